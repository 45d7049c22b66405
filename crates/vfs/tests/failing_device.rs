//! What callers see when a device fails.

use std::sync::Arc;

use crate::support::{Disk, check, mount, new_image, new_inode, read_all, write_new};
use backstitch_device::{BlockDevice, Fault, FaultKind, FaultLength, Loss};
use backstitch_formats::usual;
use backstitch_vfs::{Engine, FileType, InodeNumber, MountOptions, OpenFile, Ordering};

fn disk() -> Disk {
    Disk::new(new_image(4 << 20, 256), Loss::Everything)
}

/// The next request of a kind fails.
fn fail_next(disk: &Disk, kind: FaultKind, length: FaultLength) {
    let counts = disk.fault.counts();
    let done = match kind {
        FaultKind::Read => counts.reads,
        FaultKind::Write => counts.writes,
        FaultKind::Flush => counts.flushes,
    };
    disk.fault.inject(Fault {
        kind,
        number: done + 1,
        length,
    });
}

fn lookup(engine: &Engine, name: &str) -> InodeNumber {
    engine.lookup(engine.root(), name.as_bytes()).unwrap().inode
}

/// Makes the directory block that holds a name unreadable. Returns its place and its bytes.
fn spoil_the_block_of(disk: &Disk, name: &str) -> (u64, Vec<u8>) {
    let image = disk.memory.snapshot();
    let holds_it = |block: &[u8]| {
        let mut places = block.windows(name.len());
        places.any(|bytes| bytes == name.as_bytes())
    };
    let mut blocks = image.chunks_exact(1024).enumerate();
    let (number, block) = blocks.find(|(_, block)| holds_it(block)).unwrap();
    let at = number as u64 * 1024;
    disk.fault.spoil(at..at + 1024);
    (at, block.to_vec())
}

#[test]
fn a_failed_read_fails_one_operation_and_succeeds_when_repeated() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let file = write_new(&engine, engine.root(), "file", &[5; 5000]);
    engine.unmount().unwrap();

    let engine = disk.mount().unwrap();
    // The directory's block, for a look-up.
    fail_next(&disk, FaultKind::Read, FaultLength::Once);
    let error = engine.lookup(engine.root(), b"file").unwrap_err();
    assert_eq!(error.errno(), 5, "{error}");
    assert_eq!(lookup(&engine, "file"), file);
    // Contents.
    fail_next(&disk, FaultKind::Read, FaultLength::Once);
    let mut data = vec![1, 2];
    let error = engine.read(file, 0, 5000, &mut data).unwrap_err();
    assert_eq!((error.errno(), data), (5, vec![1, 2]));
    assert_eq!(read_all(&engine, file).unwrap(), [5; 5000]);
    // Nothing else was touched by it.
    assert_eq!(engine.read_only_reason(), None);
    engine.write(file, 0, &[6; 100]).unwrap();
    engine.fsync(file, false).unwrap();
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

/// The places of the first block of a file full of one byte, and of its indirect block.
fn place_of(image: &[u8], fill: u8) -> (u64, u64) {
    let blocks = || image.chunks_exact(1024).enumerate();
    let contents: Vec<u32> = blocks()
        .filter(|(_, block)| *block == [fill; 1024])
        .map(|(number, _)| number as u32)
        .collect();
    // Twelve pointers are in the inode.
    let pointers: Vec<u8> = contents[12..14]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let indirect = blocks().find(|(_, block)| block.starts_with(&pointers));
    (
        u64::from(contents[0]) * 1024,
        indirect.unwrap().0 as u64 * 1024,
    )
}

#[test]
fn a_bad_sector_is_the_trouble_of_its_file_alone() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    // Large enough for an indirect block, which is read together with its neighbours.
    let files: Vec<_> = (1..=3)
        .map(|n| write_new(&engine, engine.root(), &n.to_string(), &[n; 40_000]))
        .collect();
    engine.unmount().unwrap();
    let image = disk.memory.snapshot();
    let (first, indirect) = place_of(&image, 2);
    for (what, spoilt) in [("contents", first + 1024), ("indirect", indirect)] {
        let disk = Disk::new(image.clone(), Loss::Half);
        disk.fault.spoil(spoilt..spoilt + 512);
        let engine = disk.mount().unwrap();
        for _ in 0..2 {
            assert!(
                read_all(&engine, files[0]).unwrap() == [1; 40_000],
                "{what}"
            );
            assert_eq!(
                read_all(&engine, files[1]).unwrap_err().errno(),
                5,
                "{what}"
            );
            assert!(
                read_all(&engine, files[2]).unwrap() == [3; 40_000],
                "{what}"
            );
        }
        assert_eq!(engine.read_only_reason(), None);
        // Other names come and go, and what is written anew can be read again.
        engine.unlink(engine.root(), b"1").unwrap();
        if what == "contents" {
            engine.write(files[1], 0, &[2; 40_000]).unwrap();
            assert!(read_all(&engine, files[1]).unwrap() == [2; 40_000]);
        }
        engine.unmount().unwrap();
        drop(engine);
        assert!(check(&*disk.memory).is_clean(), "{what}");
    }
}

#[test]
fn a_removed_file_that_cannot_be_freed_keeps_nothing_from_the_disk() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    write_new(&engine, engine.root(), "bad", &[2; 40_000]);
    engine.unmount().unwrap();
    let (_, indirect) = place_of(&disk.memory.snapshot(), 2);
    disk.fault.spoil(indirect..indirect + 512);

    let engine = disk.mount().unwrap();
    engine.unlink(engine.root(), b"bad").unwrap();
    write_new(&engine, engine.root(), "synced", &[3; 3000]);
    engine.sync().unwrap();
    write_new(&engine, engine.root(), "unmounted", &[4; 3000]);
    assert_eq!(engine.read_only_reason(), None);
    assert_eq!(engine.unmount().unwrap_err().errno(), 5);
    drop(engine);
    assert!(check(&*disk.memory).is_consistent());
    let after = mount(disk.memory.clone()).unwrap();
    assert!(read_all(&after, lookup(&after, "synced")).unwrap() == [3; 3000]);
    assert!(read_all(&after, lookup(&after, "unmounted")).unwrap() == [4; 3000]);
    assert!(after.lookup(after.root(), b"bad").is_err());
    // On this device the block can be read: the rest is reclaimed.
    after.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

#[test]
fn a_removed_file_that_cannot_be_freed_keeps_no_other_waiting() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    write_new(&engine, engine.root(), "bad", &[2; 40_000]);
    for number in 0..5 {
        write_new(&engine, engine.root(), &format!("f{number}"), &[3; 40_000]);
    }
    engine.unmount().unwrap();
    let (_, indirect) = place_of(&disk.memory.snapshot(), 2);
    disk.fault.spoil(indirect..indirect + 512);

    let engine = disk.mount().unwrap();
    let used = || engine.statistics().unwrap().free_blocks;
    let before = used();
    engine.unlink(engine.root(), b"bad").unwrap();
    for number in 0..5 {
        engine
            .unlink(engine.root(), format!("f{number}").as_bytes())
            .unwrap();
    }
    engine.sync().unwrap();
    let stats = engine.stats();
    assert_eq!((stats.deferred.unreadable, stats.deferred.pending), (1, 0));
    assert_eq!(stats.read_only, None);
    // The space of five files is free; that of the sixth is not, and is not promised either.
    let freed = used() - before;
    assert!((5 * 40..6 * 40).contains(&freed), "{freed} blocks");
    let large = write_new(&engine, engine.root(), "large", &[4; 180_000]);
    assert!(read_all(&engine, large).unwrap() == [4; 180_000]);
    assert_eq!(engine.unmount().unwrap_err().errno(), 5);
    drop(engine);
    assert!(check(&*disk.memory).is_consistent());
}

#[test]
fn a_removed_file_is_freed_once_its_blocks_can_be_read() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    write_new(&engine, engine.root(), "bad", &[2; 40_000]);
    engine.unmount().unwrap();
    let engine = disk.mount().unwrap();
    let before = engine.statistics().unwrap().free_blocks;
    engine.unlink(engine.root(), b"bad").unwrap();
    let reads = disk.fault.counts().reads;
    let (_, indirect) = place_of(&disk.memory.snapshot(), 2);
    disk.fault.inject(Fault {
        kind: FaultKind::Read,
        number: reads + 1,
        length: FaultLength::Once,
    });
    assert!(indirect > 0);
    engine.sync().unwrap();
    engine.sync().unwrap();
    let stats = engine.stats();
    assert_eq!((stats.deferred.unreadable, stats.deferred.pending), (0, 0));
    assert!(engine.statistics().unwrap().free_blocks >= before + 40);
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

#[test]
fn what_the_mount_itself_writes_is_tried_again() {
    for kind in [FaultKind::Write, FaultKind::Flush] {
        let disk = disk();
        fail_next(&disk, kind, FaultLength::Once);
        let engine = disk.mount().unwrap();
        assert_eq!(engine.stats().write_retries, 1);
        engine.unmount().unwrap();
        assert!(check(&*disk.memory).is_clean());
    }
}

#[test]
fn a_failure_that_passes_is_not_noticed() {
    for kind in [FaultKind::Write, FaultKind::Flush] {
        let disk = disk();
        let engine = disk.mount().unwrap();
        let file = write_new(&engine, engine.root(), "file", &[5; 5000]);
        fail_next(&disk, kind, FaultLength::Once);
        engine.fsync(file, false).unwrap();
        let stats = engine.stats();
        assert_eq!((stats.write_retries, stats.read_only), (1, None));
        // After a power cut everything acknowledged is there, though the device had lost it before.
        let after = mount(copy_of(&disk)).unwrap();
        assert_eq!(read_all(&after, lookup(&after, "file")).unwrap(), [5; 5000]);
        engine.unmount().unwrap();
        assert!(check(&*disk.memory).is_clean());
    }
}

#[test]
fn a_device_that_is_gone_for_a_moment_is_waited_for() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let file = write_new(&engine, engine.root(), "file", &[5; 5000]);
    disk.fault.vanish();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while disk.fault.counts().failures < 2 {
                std::thread::yield_now();
            }
            disk.fault.comes_back();
        });
        engine.fsync(file, false).unwrap();
    });
    assert!(engine.stats().write_retries >= 1);
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

#[test]
fn a_failure_that_stays_is_latched_and_everything_stays_readable() {
    for kind in [FaultKind::Write, FaultKind::Flush] {
        let disk = disk();
        let engine = disk.mount().unwrap();
        write_new(&engine, engine.root(), "stable", &[1; 5000]);
        engine.unmount().unwrap();
        let engine = disk.mount().unwrap();
        let stable = lookup(&engine, "stable");
        let lost = write_new(&engine, engine.root(), "lost", &[2; 5000]);
        let also_lost = write_new(&engine, engine.root(), "also lost", &[3; 5000]);
        fail_next(&disk, kind, FaultLength::Gone);
        // The loss is reported for each file, and none is ever called safe again; a file without
        // changes is.
        for file in [lost, also_lost, lost, engine.root()] {
            assert_eq!(engine.fsync(file, false).unwrap_err().errno(), 5);
        }
        engine.fsync(stable, false).unwrap();
        assert_eq!(engine.sync().unwrap_err().errno(), 5);
        // Read-only, and it says why.
        let reason = engine.stats().read_only.unwrap();
        assert!(reason.contains("injected failure"), "{reason}");
        assert_eq!(engine.write(stable, 0, b"x").unwrap_err().errno(), 30);
        assert_eq!(
            engine.unlink(engine.root(), b"lost").unwrap_err().errno(),
            30
        );
        // What is in memory can be read while the device is gone; the rest when it is back. It
        // stays read-only.
        assert_eq!(read_all(&engine, lost).unwrap(), [2; 5000]);
        assert!(read_all(&engine, stable).is_err_and(|e| e.errno() == 5));
        disk.fault.comes_back();
        assert_eq!(read_all(&engine, stable).unwrap(), [1; 5000]);
        assert_eq!(read_all(&engine, also_lost).unwrap(), [3; 5000]);
        assert_eq!(engine.write(stable, 0, b"x").unwrap_err().errno(), 30);
        assert_eq!(engine.fsync(lost, false).unwrap_err().errno(), 5);
        assert_eq!(engine.unmount().unwrap_err().errno(), 5);
        drop(engine);
        // As after a crash; a new mount of the device that came back works.
        disk.fault.reset_after_failure();
        assert!(check(&*disk.memory).is_consistent());
        let again = disk.mount().unwrap();
        assert_eq!(
            read_all(&again, lookup(&again, "stable")).unwrap(),
            [1; 5000]
        );
        write_new(&again, again.root(), "new", &[4; 100]);
        again.unmount().unwrap();
        assert!(check(&*disk.memory).is_clean());
    }
}

#[test]
fn a_directory_that_cannot_be_read_is_its_own_trouble_after_a_crash_too() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let root = engine.root();
    let directory = |parent, name: &[u8]| {
        let made = engine.create(parent, name, &new_inode(FileType::Directory));
        made.unwrap().inode
    };
    let bad = directory(root, b"bad");
    write_new(&engine, bad, "needle", &[1; 3000]);
    let above = directory(root, b"above");
    directory(above, b"moves");
    directory(root, b"goes");
    engine.sync().unwrap();
    // The power fails here.
    let crashed = Disk::new(disk.memory.snapshot(), Loss::Everything);
    engine.unmount().unwrap();
    let (at, contents) = spoil_the_block_of(&crashed, "needle");

    let engine = crashed.mount().unwrap();
    let root = engine.root();
    let above = lookup(&engine, "above");
    let mode = backstitch_vfs::RenameMode::Replace;
    engine
        .rename(above, b"moves", root, b"moved", mode)
        .unwrap();
    engine.rmdir(root, b"goes").unwrap();
    let bad = lookup(&engine, "bad");
    let moved = engine.rename(root, b"bad", above, b"bad", mode);
    assert_eq!(moved.unwrap_err().errno(), 5);
    assert_eq!(engine.lookup(bad, b"needle").unwrap_err().errno(), 5);
    assert_eq!(engine.read_only_reason(), None);
    // Inodes without a name are known only once all names are read.
    assert!(engine.stats().reclaim.running);
    crashed.fault.write(at, &contents).unwrap();
    engine.lookup(bad, b"needle").unwrap();
    engine
        .rename(root, b"moved", bad, b"moved again", mode)
        .unwrap();
    engine.unmount().unwrap();
    assert!(check(&*crashed.memory).is_clean());
}

#[test]
fn a_loss_is_reported_once_to_each_open_file() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let stable = write_new(&engine, engine.root(), "stable", &[1; 5000]);
    engine.sync().unwrap();
    let lost = write_new(&engine, engine.root(), "lost", &[2; 5000]);
    let unseen = write_new(&engine, engine.root(), "unseen", &[3; 5000]);
    let [first, second, untouched] = [lost, lost, stable].map(|inode| engine.open(inode));
    fail_next(&disk, FaultKind::Flush, FaultLength::Gone);
    let is_told =
        |file: &OpenFile| match engine.report_once(file, engine.fsync(file.inode(), false)) {
            Ok(()) => false,
            Err(error) => error.errno() == 5,
        };
    assert!(is_told(&first));
    assert!(!is_told(&first));
    // A handle that is opened now gets no report, since another one had it.
    let late = engine.open(lost);
    assert!(!is_told(&late));
    assert!(is_told(&second));
    assert!(!is_told(&second));
    // No handle has had a report about this file yet.
    let late = engine.open(unseen);
    assert!(is_told(&late));
    assert!(!is_told(&late));
    assert!(!is_told(&untouched));
    // It stays read-only, even when the device is back.
    disk.fault.comes_back();
    assert!(engine.read_only_reason().is_some());
    assert_eq!(engine.write(lost, 0, b"x").unwrap_err().errno(), 30);
    assert_eq!(engine.fsync(lost, false).unwrap_err().errno(), 5);
}

#[test]
fn what_an_unmount_does_not_reclaim_is_the_next_mounts() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let removed = write_new(&engine, engine.root(), "removed", &[1; 40_000]);
    let file = write_new(&engine, engine.root(), "file", &[2; 3000]);
    engine.sync().unwrap();
    engine.hold(removed);
    engine.unlink(engine.root(), b"removed").unwrap();
    engine.sync().unwrap();
    // The power fails here. Most of the reclaim cannot be done, because some of the names cannot be
    // read.
    let crashed = Disk::new(disk.memory.snapshot(), Loss::Everything);
    engine.unmount().unwrap();
    spoil_the_block_of(&crashed, "removed");
    let options = MountOptions {
        reclaim_wait_seconds: 0.0,
        ..MountOptions::default()
    };
    let engine = Engine::mount(crashed.fault.clone(), usual().layout(), &options).unwrap();
    engine.unmount().unwrap();
    drop(engine);
    let left = check(&*crashed.memory);
    assert!(left.is_consistent());

    let engine = mount(crashed.memory.clone()).unwrap();
    assert!(engine.recovery().needed);
    assert_eq!(lookup(&engine, "file"), file);
    engine.unmount().unwrap();
    assert!(check(&*crashed.memory).is_clean());
}

#[test]
fn a_call_that_was_to_be_on_the_disk_when_it_returns_tells_of_the_failure() {
    let disk = disk();
    let options = MountOptions {
        ordering: Ordering::SYNC,
        ..MountOptions::default()
    };
    let engine = Engine::mount(disk.fault.clone(), usual().layout(), &options).unwrap();
    let new = new_inode(FileType::Directory);
    let create = |name: &[u8]| engine.create(engine.root(), name, &new);
    create(b"first").unwrap();
    fail_next(&disk, FaultKind::Flush, FaultLength::Once);
    create(b"second").unwrap();
    fail_next(&disk, FaultKind::Write, FaultLength::Gone);
    assert_eq!(create(b"third").unwrap_err().errno(), 5);
    assert_eq!(create(b"fourth").unwrap_err().errno(), 30);
    assert_eq!(engine.unmount().unwrap_err().errno(), 5);
    assert!(check(&*disk.memory).is_consistent());
    let after = mount(copy_of(&disk)).unwrap();
    lookup(&after, "first");
    lookup(&after, "second");
}

#[test]
fn a_device_that_fails_under_several_threads_loses_nothing_acknowledged() {
    const THREADS: usize = 6;
    for number in (3..60).step_by(7) {
        let disk = disk();
        let engine = disk.mount().unwrap();
        disk.fault.inject(Fault {
            kind: FaultKind::Flush,
            number: disk.fault.counts().flushes + number,
            length: FaultLength::Once,
        });
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let engine = &engine;
                scope.spawn(move || {
                    for n in 0..8 {
                        let name = format!("{thread} {n}");
                        let data = [thread as u8 + 1; 3000];
                        let file = write_new(engine, engine.root(), &name, &data);
                        engine.fsync(file, false).unwrap();
                    }
                });
            }
        });
        let after = mount(copy_of(&disk)).unwrap();
        for thread in 0..THREADS {
            for n in 0..8 {
                let file = lookup(&after, &format!("{thread} {n}"));
                let expected = [thread as u8 + 1; 3000];
                assert_eq!(read_all(&after, file).unwrap(), expected, "{number}");
            }
        }
        engine.unmount().unwrap();
        assert!(check(&*disk.memory).is_clean());
    }
}

/// The device after a power cut at this moment: what was not flushed is lost.
fn copy_of(disk: &Disk) -> Arc<dyn BlockDevice> {
    Arc::new(backstitch_device::MemoryDevice::from_bytes(
        disk.memory.snapshot(),
    ))
}

#[test]
fn the_reclaim_goes_on_once_everything_can_be_read() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let directory = engine
        .create(engine.root(), b"directory", &new_inode(FileType::Directory))
        .unwrap();
    write_new(&engine, directory.inode, "needle", &[1; 3000]);
    engine.sync().unwrap();
    // The power fails here.
    let crashed = Disk::new(disk.memory.snapshot(), Loss::Everything);
    engine.unmount().unwrap();

    let (at, contents) = spoil_the_block_of(&crashed, "needle");
    let engine = crashed.mount().unwrap();
    let space = engine.create(engine.root(), b"file", &new_inode(FileType::Regular));
    assert!(space.is_ok(), "{space:?}");
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(engine.stats().reclaim.running);

    // The sector is written again.
    crashed.fault.write(at, &contents).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while engine.stats().reclaim.running {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            engine.stats().reclaim
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    engine.unmount().unwrap();
    assert!(check(&*crashed.memory).is_clean());
}
