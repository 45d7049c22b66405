//! The journal as a mechanism: cut at any write, replayed by e2fsck and by us, nothing is left to repair.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{MemoryDevice, Record, RecordingDevice, SlowFlushDevice, materialise_torn};
use backstitch_ext::Ext2;
use backstitch_vfs::{Engine, FileType, MountOptions, Ordering};
use support::workload::{OnError, Workload};

/// Where the images of a test are, until it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("backstitch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An ext3 image as mke2fs makes it.
fn ext3(scratch: &Scratch, options: &[&str], blocks: &str) -> Vec<u8> {
    let path = scratch.file("fresh.img");
    let _ = std::fs::remove_file(&path);
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext3"])
        .args(options)
        .arg(&path)
        .arg(blocks)
        .output()
        .expect("mke2fs is there");
    assert!(made.status.success(), "{made:?}");
    std::fs::read(&path).unwrap()
}

/// Has e2fsck replay the journal and repair what it finds; what it says beyond the replay.
fn e2fsck(path: &Path) -> Vec<String> {
    let done = Command::new("e2fsck")
        .arg("-fy")
        .arg(path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let usual = [
        "recovering journal",
        "Pass ",
        "FILE SYSTEM WAS MODIFIED",
        "files (",
        // What the orphan list is for.
        "Clearing orphaned inode",
        "Truncating orphaned inode",
    ];
    let mut found: Vec<String> = said
        .lines()
        .filter(|line| !line.trim().is_empty() && !usual.iter().any(|u| line.contains(u)))
        .map(str::to_owned)
        .collect();
    if !matches!(done.status.code(), Some(0 | 1)) {
        found.push(format!("{done:?}"));
    }
    found
}

fn options(ordering: Ordering) -> MountOptions {
    MountOptions {
        ordering,
        commit_seconds: 0.05,
        cache_bytes: 8 << 20,
        ..MountOptions::default()
    }
}

/// Cuts a run at many places; every image must be whole after e2fsck's replay, and after ours.
fn cut_everywhere(name: &str, ordering: &str, mkfs: &[&str], cuts: usize) {
    let scratch = Scratch::new(name);
    let ordering: Ordering = ordering.parse().unwrap();
    let image = ext3(&scratch, mkfs, "24m");
    let memory = Arc::new(MemoryDevice::from_bytes(image.clone()));
    let recording = Arc::new(RecordingDevice::new(memory));
    let engine = Engine::mount(recording.clone(), &Ext2, &options(ordering)).unwrap();
    let mut workload = Workload::new(OnError::NoSpace);
    workload.run(&engine);
    engine.sync().unwrap();
    engine.unmount().unwrap();
    let records = recording.records();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut replayed = 0;
    for index in 0..=cuts {
        let cut = if index == cuts {
            records.len()
        } else {
            index * records.len() / cuts
        };
        let mut bytes = image.clone();
        materialise_torn(&mut bytes, &records, cut, 4096, &mut |_, _| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            random >> 63 == 0
        });
        let path = scratch.file("cut.img");
        std::fs::write(&path, &bytes).unwrap();
        let found = e2fsck(&path);
        assert!(
            found.is_empty(),
            "{name}, cut {cut} of {}: {found:?}",
            records.len()
        );
        // And ours: mounting recovers, and leaves what e2fsck finds nothing in.
        let memory = Arc::new(MemoryDevice::from_bytes(bytes));
        let engine = Engine::mount(memory.clone(), &Ext2, &options(ordering)).unwrap();
        assert_eq!(engine.read_only_reason(), None);
        replayed += usize::from(
            engine
                .recovery()
                .actions
                .iter()
                .any(|a| a.contains("replayed")),
        );
        engine.unmount().unwrap();
        std::fs::write(&path, memory.snapshot()).unwrap();
        let found = e2fsck(&path);
        assert!(found.is_empty(), "{name}, recovered, cut {cut}: {found:?}");
    }
    assert!(
        replayed > cuts / 2,
        "{replayed} of {cuts} cuts left something to replay"
    );
}

#[test]
fn nothing_is_left_to_repair_with_ordered_contents() {
    cut_everywhere(
        "ordered",
        "journal=ordered",
        &["-b", "1024", "-J", "size=1"],
        60,
    );
}

#[test]
fn nothing_is_left_to_repair_with_contents_at_any_time() {
    cut_everywhere("writeback", "journal=writeback", &["-b", "4096"], 25);
}

#[test]
fn nothing_is_left_to_repair_with_contents_in_the_journal() {
    cut_everywhere("full", "journal=full", &["-b", "1024", "-J", "size=4"], 25);
}

#[test]
fn a_run_without_a_cut_leaves_an_empty_journal() {
    let scratch = Scratch::new("whole");
    let image = ext3(&scratch, &["-b", "1024", "-J", "size=1"], "24m");
    let memory = Arc::new(MemoryDevice::from_bytes(image));
    let ordering: Ordering = "journal=ordered".parse().unwrap();
    let engine = Engine::mount(memory.clone(), &Ext2, &options(ordering)).unwrap();
    let mut workload = Workload::new(OnError::NoSpace);
    for _ in 0..4 {
        workload.run(&engine);
    }
    engine.unmount().unwrap();
    let path = scratch.file("whole.img");
    std::fs::write(&path, memory.snapshot()).unwrap();
    let checked = Command::new("e2fsck")
        .arg("-fn")
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

/// Device flushes per fsync where so many write new files of 4 kB and sync each.
fn flushes_per_fsync(writers: usize, each: usize) -> f64 {
    let scratch = Scratch::new(&format!("flushes-{writers}"));
    let image = ext3(&scratch, &["-b", "4096"], "64m");
    let memory = Arc::new(MemoryDevice::from_bytes(image));
    let recording = Arc::new(RecordingDevice::new(memory.clone()));
    // As long as a fast drive's.
    let device = SlowFlushDevice::new(recording.clone(), Duration::from_millis(2));
    let wanted = MountOptions {
        ordering: "journal=ordered".parse().unwrap(),
        ..MountOptions::default()
    };
    let engine = Engine::mount(Arc::new(device), &Ext2, &wanted).unwrap();
    let count = || {
        recording
            .records()
            .iter()
            .filter(|r| **r == Record::Flush)
            .count()
    };
    let before = count();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let engine = &engine;
            scope.spawn(move || {
                for number in 0..each {
                    let name = format!("{writer}-{number}");
                    let new = support::new_inode(FileType::Regular);
                    let made = engine.create(engine.root(), name.as_bytes(), &new).unwrap();
                    engine.write(made.inode, 0, &[7; 4096]).unwrap();
                    engine.fsync(made.inode, false).unwrap();
                    engine.forget(made.inode, 1);
                }
            });
        }
    });
    let flushes = count() - before;
    engine.unmount().unwrap();
    let path = scratch.file("end.img");
    std::fs::write(&path, memory.snapshot()).unwrap();
    let checked = Command::new("e2fsck")
        .arg("-fn")
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    flushes as f64 / (writers * each) as f64
}

#[test]
fn an_fsync_takes_two_flushes_and_eight_writers_share_them() {
    let alone = flushes_per_fsync(1, 50);
    let shared = flushes_per_fsync(8, 50);
    println!("flushes per fsync: {alone} alone, {shared} with eight writers");
    assert!((1.9..2.1).contains(&alone), "{alone}");
    assert!(shared < 0.4, "{shared}");
}

/// What was synced is there after a crash that keeps nothing but what was flushed, in every mode.
#[test]
fn an_inode_that_left_the_list_of_orphans_may_be_had_again() {
    let scratch = Scratch::new("journal-orphan-again");
    let memory = Arc::new(MemoryDevice::from_bytes(ext3(
        &scratch,
        &["-b", "1024"],
        "24m",
    )));
    let options = MountOptions {
        ordering: "journal=ordered".parse().unwrap(),
        commit_seconds: 1e6,
        ..MountOptions::default()
    };
    let engine = Engine::mount(memory.clone(), &Ext2, &options).unwrap();
    for round in 0..20 {
        // Made, opened and removed in one transaction: it is on the disk without ever having had a name there.
        let new = support::new_inode(FileType::Regular);
        let open = engine.create(engine.root(), b"open", &new).unwrap().inode;
        engine.unlink(engine.root(), b"open").unwrap();
        engine.sync().unwrap();
        engine.forget(open, 1);
        // Nobody has it open any more, and in the same transaction others are made.
        for number in 0..20 {
            std::thread::sleep(Duration::from_micros(200));
            let name = format!("f{round}-{number}");
            support::write_new(&engine, engine.root(), &name, b"contents");
        }
        engine.sync().unwrap();
    }
    engine.unmount().unwrap();
    let path = scratch.file("after.img");
    std::fs::write(&path, memory.snapshot()).unwrap();
    assert_eq!(e2fsck(&path), Vec::<String>::new());
}

#[test]
fn what_was_synced_is_there() {
    for mode in ["journal=writeback", "journal=ordered", "journal=full"] {
        let scratch = Scratch::new(&format!("synced-{}", &mode[8..]));
        let image = ext3(&scratch, &["-b", "1024", "-J", "size=1"], "24m");
        let memory = Arc::new(MemoryDevice::from_bytes(image.clone()));
        let recording = Arc::new(RecordingDevice::new(memory));
        let wanted = options(mode.parse().unwrap());
        let engine = Engine::mount(recording.clone(), &Ext2, &wanted).unwrap();
        let new = support::new_inode(FileType::Regular);
        // The second one has indirect blocks.
        let sizes = [("small", 3000), ("large", 600_000)];
        for (name, size) in sizes {
            let made = engine.create(engine.root(), name.as_bytes(), &new).unwrap();
            engine.write(made.inode, 0, &vec![7; size]).unwrap();
            engine.fsync(made.inode, true).unwrap();
        }
        let records = recording.records();
        let mut bytes = image;
        materialise_torn(&mut bytes, &records, records.len(), 4096, &mut |_, _| false);
        let crashed = Arc::new(MemoryDevice::from_bytes(bytes));
        let engine = Engine::mount(crashed, &Ext2, &wanted).unwrap();
        for (name, size) in sizes {
            let found = engine.lookup(engine.root(), name.as_bytes()).unwrap();
            let mut contents = Vec::new();
            engine
                .read(found.inode, 0, size + 1, &mut contents)
                .unwrap();
            assert!(contents == vec![7; size], "{mode}, {name}");
        }
    }
}
