//! File systems in files of file systems: what is written inside is there afterwards, a check finds
//! nothing at any level, and what is in use cannot be removed.

use std::sync::Arc;

use crate::support::{
    Disk, after, check, mount, new_image, new_inode, options, read_all, write_new,
};
use backstitch_device::{BlockDevice, Loss, MemoryDevice};
use backstitch_formats::usual;
use backstitch_layout::tools::{Mkfs, MkfsJournal};
use backstitch_mechanisms::Ordering;
use backstitch_vfs::stack::{InnerPath, Stack, StackVolume};
use backstitch_vfs::{
    Allocate, Engine, Error, FileType, InodeNumber, LayoutError, MountOptions, RenameMode,
    SetAttributes,
};

const KIB: usize = 1 << 10;

/// A file system with this file in its root, and a directory `mnt`. With `is_sparse` zero blocks of
/// the file are holes.
fn around(name: &str, contents: &[u8], size_bytes: usize, is_sparse: bool) -> Vec<u8> {
    around_all(&[(name, contents)], size_bytes, is_sparse)
}

fn around_all(files: &[(&str, &[u8])], size_bytes: usize, is_sparse: bool) -> Vec<u8> {
    let disk = Disk::new(new_image(size_bytes, 64), Loss::Everything);
    let engine = disk.mount().unwrap();
    for (name, contents) in files {
        let inode = write_new(&engine, engine.root(), name, b"");
        for (i, block) in contents.chunks(KIB).enumerate() {
            if !(is_sparse && block.iter().all(|b| *b == 0)) {
                engine.write(inode, (i * KIB) as u64, block).unwrap();
            }
        }
        let set = SetAttributes {
            size_bytes: Some(contents.len() as u64),
            ..SetAttributes::default()
        };
        engine.set_attributes(inode, &set).unwrap();
    }
    let directory = new_inode(FileType::Directory);
    engine.create(engine.root(), b"mnt", &directory).unwrap();
    engine.unmount().unwrap();
    disk.memory.snapshot()
}

fn path(volume: usize, path: &str) -> Option<InnerPath> {
    Some(InnerPath {
        volume,
        path: path.as_bytes().to_vec(),
    })
}

fn volume(name: &str, file: Option<InnerPath>, at: Option<InnerPath>) -> StackVolume {
    StackVolume {
        name: name.to_owned(),
        layout: usual().layout(),
        file,
        journal: None,
        ordering: None,
        at,
    }
}

/// Each file system in the file `inner` of the one before, at its directory `mnt`.
fn nested(levels: usize) -> Stack {
    let names = ["outer", "middle", "inner", "innermost"];
    let volumes = (0..levels).map(|level| match level {
        0 => volume(names[0], None, None),
        _ => volume(
            names[level],
            path(level - 1, "/inner"),
            path(level - 1, "/mnt"),
        ),
    });
    Stack {
        volumes: volumes.collect(),
        front: 0,
    }
}

fn mount_stack(device: Arc<dyn BlockDevice>, stack: &Stack) -> backstitch_vfs::Result<Arc<Engine>> {
    Engine::mount(device, stack, &options(Ordering::SOFT))
}

/// The directory at the end of `levels` names `mnt`.
fn descend(engine: &Engine, levels: usize) -> InodeNumber {
    (0..levels).fold(engine.root(), |at, _| {
        engine.lookup(at, b"mnt").unwrap().inode
    })
}

/// The bytes of a file in the root of an image.
fn extracted(image: &[u8], name: &str) -> Vec<u8> {
    let engine = mount(Arc::new(MemoryDevice::from_bytes(image.to_vec()))).unwrap();
    let inode = engine.lookup(engine.root(), name.as_bytes()).unwrap().inode;
    read_all(&engine, inode).unwrap()
}

fn assert_clean(image: &[u8], what: &str) {
    let device = MemoryDevice::from_bytes(image.to_vec());
    let report = check(&device);
    assert!(report.findings.is_empty(), "{what}: {:?}", report.findings);
}

fn busy<T: std::fmt::Debug>(result: backstitch_vfs::Result<T>) {
    assert!(
        matches!(result, Err(Error::Layout(LayoutError::Busy))),
        "{result:?}"
    );
}

fn deep(is_sparse: bool) -> Vec<u8> {
    let innermost = around_all(&[], 1 << 20, false);
    let inner = around("inner", &innermost, 2 << 20, is_sparse);
    let middle = around("inner", &inner, 4 << 20, is_sparse);
    around("inner", &middle, 8 << 20, is_sparse)
}

#[test]
fn four_file_systems_in_each_other_are_one_tree() {
    for is_sparse in [false, true] {
        let disk = Disk::new(deep(is_sparse), Loss::Everything);
        let engine = mount_stack(disk.fault.clone(), &nested(4)).unwrap();
        for level in 0..4 {
            let at = descend(&engine, level);
            for i in 0..30 {
                let data = vec![level as u8 * 50 + i; 100 * usize::from(i) + 1];
                let file = write_new(&engine, at, &format!("f{i}"), &data);
                assert_eq!(engine.attributes(file).unwrap().inode, file);
                if i % 3 == 0 {
                    engine.unlink(at, format!("f{i}").as_bytes()).unwrap();
                }
                if i % 7 == 0 {
                    engine.fsync(file, false).unwrap();
                }
                engine.forget(file, 1);
            }
        }
        engine.sync().unwrap();
        engine.unmount().unwrap();
        let mut image = disk.memory.snapshot();
        for level in 0..4 {
            assert_clean(&image, &format!("level {level}"));
            for i in (0..30).filter(|i| i % 3 != 0) {
                let data = vec![level * 50 + i; 100 * usize::from(i) + 1];
                assert_eq!(extracted(&image, &format!("f{i}")), data);
            }
            if level < 3 {
                image = extracted(&image, "inner");
            }
        }
    }
}

#[test]
fn what_holds_a_volume_stays_and_shows_it() {
    let disk = Disk::new(deep(false), Loss::Everything);
    let engine = mount_stack(disk.fault.clone(), &nested(2)).unwrap();
    let root = engine.root();
    let holder = engine.lookup(root, b"inner").unwrap().inode;
    busy(engine.write(holder, 0, b"x"));
    let shorter = SetAttributes {
        size_bytes: Some(1),
        ..SetAttributes::default()
    };
    busy(engine.set_attributes(holder, &shorter));
    busy(engine.allocate(holder, Allocate::PunchHole, 0, 4096));
    busy(engine.unlink(root, b"inner"));
    busy(engine.rmdir(root, b"mnt"));
    write_new(&engine, root, "other", b"other");
    let replace = RenameMode::Replace;
    busy(engine.rename(root, b"other", root, b"inner", replace));
    busy(engine.rename(root, b"mnt", root, b"elsewhere", replace));
    let inside = descend(&engine, 1);
    for moved in [
        engine.rename(root, b"other", inside, b"other", replace),
        engine
            .link(
                engine.lookup(root, b"other").unwrap().inode,
                inside,
                b"other",
            )
            .map(drop),
    ] {
        assert!(matches!(
            moved,
            Err(Error::Layout(LayoutError::OtherFileSystem))
        ));
    }
    // Renaming the file is allowed, and what is written inside shows in it at once: they are the
    // same blocks.
    engine
        .rename(root, b"inner", root, b"renamed", replace)
        .unwrap();
    write_new(&engine, inside, "new", b"to be found in the file outside");
    let outside = read_all(&engine, holder).unwrap();
    let needle = b"to be found in the file outside";
    assert!(outside.windows(needle.len()).any(|w| w == needle));
    assert_ne!(
        engine.statistics_at(inside).unwrap().blocks,
        engine.statistics_at(root).unwrap().blocks
    );
    engine.unmount().unwrap();
}

#[test]
fn a_hole_takes_space_of_the_host_and_is_refused_where_there_is_none() {
    let inner = around_all(&[], 4 << 20, false);
    let outer = around("inner", &inner, 1 << 20, true);
    let disk = Disk::new(outer, Loss::Everything);
    let engine = mount_stack(disk.fault.clone(), &nested(2)).unwrap();
    let (root, inside) = (engine.root(), descend(&engine, 1));
    let before = engine.statistics_at(root).unwrap().free_blocks;
    let file = write_new(&engine, inside, "some", &[1; 100 << 10]);
    let used = before - engine.statistics_at(root).unwrap().free_blocks;
    assert!((100..130).contains(&used), "{used} blocks");
    // Space is left inside, but not outside.
    let error = (1..64)
        .find_map(|i| engine.write(file, i * (100 << 10), &[2; 100 << 10]).err())
        .expect("more fits than there is");
    assert!(
        matches!(error, Error::Layout(LayoutError::NoSpace)),
        "{error}"
    );
    assert!(engine.statistics_at(inside).unwrap().free_blocks > 1000);
    engine.unmount().unwrap();
    let image = disk.memory.snapshot();
    assert_clean(&image, "outer");
    assert_clean(&extracted(&image, "inner"), "inner");
}

/// The paper's figure 8: a root with soft updates, and in it a file system whose journal is in
/// another file.
fn figure_8() -> (Vec<u8>, Stack) {
    let journal = MemoryDevice::new(1100 * KIB);
    let made = MkfsJournal {
        block_size: Some(1024),
        device_is_zero: true,
        ..MkfsJournal::new([11; 16], 1_700_000_000)
    };
    let made = usual().make_journal(&made, &journal).unwrap();
    let inner = MemoryDevice::new(2 << 20);
    let mut mkfs = Mkfs {
        block_size: Some(1024),
        inodes: Some(256),
        journal_uuid: Some(made.uuid),
        ..Mkfs::new([7; 16], [9; 16], 1_700_000_000)
    };
    mkfs.features.push("has_journal".to_owned());
    usual().make(&mkfs, &inner).unwrap();
    usual().attach_journal(&journal, [7; 16]).unwrap();
    let (inner, journal) = (inner.snapshot(), journal.snapshot());
    let root = around_all(
        &[("fs.img", &inner), ("journal.img", &journal)],
        8 << 20,
        true,
    );
    let mut loop_volume = volume("loop", path(0, "/fs.img"), path(0, "/mnt"));
    loop_volume.journal = path(0, "/journal.img");
    let stack = Stack {
        volumes: vec![volume("root", None, None), loop_volume],
        front: 0,
    };
    (root, stack)
}

#[test]
fn a_journal_in_a_file_is_replayed_after_a_crash() {
    let (root, stack) = figure_8();
    let disk = Disk::new(root, Loss::Everything);
    let engine = mount_stack(disk.fault.clone(), &stack).unwrap();
    let inside = descend(&engine, 1);
    for i in 0..40 {
        write_new(&engine, inside, &format!("f{i}"), &[i; 3000]);
        write_new(&engine, engine.root(), &format!("f{i}"), &[i; 3000]);
    }
    let last = engine.lookup(inside, b"f39").unwrap().inode;
    engine.fsync(last, false).unwrap();
    // The image as a crash at this moment leaves it.
    let crashed = disk.memory.snapshot();
    engine.unmount().unwrap();
    let clean = disk.memory.snapshot();
    let options = MountOptions {
        read_only: true,
        ..MountOptions::default()
    };
    let looked_at = |image: &[u8]| {
        let device = Arc::new(MemoryDevice::from_bytes(image.to_vec()));
        let info = stack.inspect(&*device, options.mount_time);
        (Engine::mount(device, &stack, &options), info)
    };
    // Before the replay nothing in the image can be believed.
    let (refused, info) = looked_at(&crashed);
    let whys = [
        refused.map(drop).unwrap_err().to_string(),
        info.unwrap_err().to_string(),
    ];
    for why in whys {
        assert!(why.contains("must be replayed"), "{why}");
    }
    let (engine, info) = looked_at(&clean);
    assert_eq!(info.unwrap()[1].blocks, 2048);
    let file = engine.map(|e| e.lookup(descend(&e, 1), b"f7").map(|_| ()));
    file.unwrap().unwrap();
    for (image, is_crashed) in [(crashed, true), (clean, false)] {
        let disk = Disk::new(image, Loss::Everything);
        let engine = mount_stack(disk.fault.clone(), &stack).unwrap();
        let actions = engine.recovery().actions.join("; ");
        assert_eq!(actions.contains("loop: replayed"), is_crashed, "{actions}");
        let inside = descend(&engine, 1);
        for i in 0..40 {
            let name = format!("f{i}");
            let file = engine.lookup(inside, name.as_bytes()).unwrap().inode;
            assert_eq!(read_all(&engine, file).unwrap(), [i; 3000]);
        }
        engine.unmount().unwrap();
        let image = disk.memory.snapshot();
        assert_clean(&image, "root");
        assert_clean(&extracted(&image, "fs.img"), "loop");
    }
}

#[test]
fn groups_go_back_and_forth_between_a_journal_and_what_has_none() {
    let (root, stack) = figure_8();
    let disk = Disk::new(root, Loss::Everything);
    let engine = mount_stack(disk.fault.clone(), &stack).unwrap();
    let places = [engine.root(), descend(&engine, 1)];
    engine.sync().unwrap();
    let before = engine.stats();
    let mut last = None;
    for turn in 0..24_u8 {
        let place = places[usize::from(turn % 2)];
        last = Some(after(&engine, last, || {
            write_new(&engine, place, &format!("g{turn}"), &[turn; 1500]);
        }));
    }
    // No call waited: transactions were closed in between, but not written.
    assert_eq!(engine.stats().waited_batches, before.waited_batches);
    let last = last.unwrap();
    engine.group_sync(last).unwrap();
    engine.group_close(last);
    // The sync of the last group brought all others with it.
    let crashed = disk.memory.snapshot();
    engine.unmount().unwrap();
    for image in [crashed, disk.memory.snapshot()] {
        let disk = Disk::new(image, Loss::Everything);
        let engine = mount_stack(disk.fault.clone(), &stack).unwrap();
        let places = [engine.root(), descend(&engine, 1)];
        for turn in 0..24_u8 {
            let name = format!("g{turn}");
            let place = places[usize::from(turn % 2)];
            let file = engine.lookup(place, name.as_bytes()).unwrap().inode;
            assert_eq!(read_all(&engine, file).unwrap(), [turn; 1500]);
        }
        engine.unmount().unwrap();
        let image = disk.memory.snapshot();
        assert_clean(&image, "root");
        assert_clean(&extracted(&image, "fs.img"), "loop");
    }
}

#[test]
fn what_does_not_fit_together_is_refused_with_its_name() {
    let refused = |stack: &Stack, image: &[u8]| {
        let device = Arc::new(MemoryDevice::from_bytes(image.to_vec()));
        match mount_stack(device, stack) {
            Ok(_) => panic!("it was mounted"),
            Err(error) => error.to_string(),
        }
    };
    let image = deep(false);
    let mut missing = nested(2);
    missing.volumes[1].file = path(0, "/nowhere");
    assert!(refused(&missing, &image).contains("middle: no such file"));
    let mut twice = nested(2);
    twice.volumes.push(volume("again", path(0, "/inner"), None));
    let error = refused(&twice, &image);
    assert!(
        error.contains("again") && error.contains("holds another volume"),
        "{error}"
    );
    let mut circle = nested(2);
    circle.volumes[1].file = path(1, "/inner");
    assert!(refused(&circle, &image).contains("comes before"));
    let mut nowhere = nested(2);
    nowhere.volumes[1].at = path(0, "/nothing");
    let error = refused(&nowhere, &image);
    assert!(
        error.contains("/nothing") && error.contains("does not exist"),
        "{error}"
    );
    let device = MemoryDevice::new(2 << 20);
    let mkfs = Mkfs {
        block_size: Some(2048),
        ..Mkfs::new([7; 16], [9; 16], 1_700_000_000)
    };
    usual().make(&mkfs, &device).unwrap();
    let other = around("inner", &device.snapshot(), 4 << 20, false);
    let error = refused(&nested(2), &other);
    assert!(error.contains("2048") && error.contains("1024"), "{error}");
}

/// A file system inside another one has no place to note which log of operations is its own, so
/// such a log is refused. (The outermost one's is the mount's.)
#[test]
fn no_inner_file_system_of_a_stack_has_a_log_elsewhere() {
    let inner = around("file", b"", 2048 * KIB, false);
    let outer = around("inner", &inner, 8192 * KIB, false);
    let before = outer.clone();
    for ordering in [
        Ordering::LFFS_WAFS_1SYNC,
        Ordering::LFFS_WAFS_1ASYNC,
        Ordering::LFFS_WAFS_2SYNC,
        Ordering::LFFS_WAFS_2ASYNC,
    ] {
        let mut stack = nested(2);
        stack.volumes[1].ordering = Some(ordering);
        let memory = Arc::new(MemoryDevice::from_bytes(outer.clone()));
        let error = mount_stack(memory.clone(), &stack).map(drop).unwrap_err();
        let why = error.to_string();
        assert!(
            why.contains("stack") && why.contains(ordering.name()),
            "{why}"
        );
        // The outer file system may have been opened for writing, but nothing is left half done.
        assert_clean(&memory.snapshot(), ordering.name());
    }
    assert!(outer == before);
}
