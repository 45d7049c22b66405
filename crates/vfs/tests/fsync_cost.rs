//! What an fsync costs: the flushes of the device and the requests, counted.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::support::{Disk, check, mount, new_image, new_inode, options, read_all, write_new};
use backstitch_device::{FaultCounts, Loss, MemoryDevice, SlowFlushDevice};
use backstitch_formats::named;
use backstitch_layout::tools::{CheckOptions, DeviceSource, Mkfs};
use backstitch_mechanisms::Ordering;
use backstitch_vfs::{Engine, FileType, RenameMode};

/// The device's requests between two moments.
fn between(before: FaultCounts, after: FaultCounts) -> (u64, u64) {
    (after.flushes - before.flushes, after.writes - before.writes)
}

/// Runs `change`, then fsyncs the file that it returns. Returns the flushes and the write requests
/// of the fsync.
fn cost(
    disk: &Disk,
    engine: &Engine,
    change: impl FnOnce() -> backstitch_vfs::InodeNumber,
) -> (u64, u64) {
    let inode = change();
    let before = disk.fault.counts();
    engine.fsync(inode, false).unwrap();
    between(before, disk.fault.counts())
}

#[test]
fn an_overwrite_takes_one_flush_an_append_two_a_new_file_three() {
    let disk = Disk::new(new_image(8 << 20, 512), Loss::Half);
    let engine = disk.mount().unwrap();
    let root = engine.root();
    // The root directory's block has been written before.
    let file = write_new(&engine, root, "first", &[1; 3000]);
    engine.sync().unwrap();
    let before = engine.stats();
    assert_eq!(before.syncer.oldest_seconds, 0.0);

    let overwrite = cost(&disk, &engine, || {
        engine.write(file, 100, &[2; 1500]).unwrap();
        file
    });
    let append = cost(&disk, &engine, || {
        engine.write(file, 3072, &[3; 2000]).unwrap();
        file
    });
    let new = cost(&disk, &engine, || {
        write_new(&engine, root, "second", &[4; 3000])
    });
    let nothing = cost(&disk, &engine, || file);
    println!(
        "flushes and write requests: overwrite {overwrite:?}, append {append:?}, new file {new:?}"
    );
    assert_eq!(overwrite.0, 1, "flushes of an overwrite");
    assert_eq!(append.0, 2, "flushes of an append");
    assert_eq!(new.0, 3, "flushes of a new file");
    assert_eq!(nothing, (0, 0), "an fsync without changes");
    // The engine's figures agree.
    let after = engine.stats();
    assert_eq!(after.waits - before.waits, 3);
    assert_eq!(after.waited_batches - before.waited_batches, 1 + 2 + 3);
    // Overwriting: contents and inode. Appending: contents, bitmap and inode. A new file: the same
    // and the directory. Adjacent blocks are one request.
    assert!(overwrite.1 <= 2, "{overwrite:?}");
    assert!(append.1 <= 3, "{append:?}");
    assert!(new.1 <= 5, "{new:?}");
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

/// Makes files in a directory and fsyncs each, under names of their own or replacing the one
/// before. Returns the flushes for each.
fn flushed_files(
    disk: &Disk,
    engine: &Engine,
    directory: backstitch_vfs::InodeNumber,
    replaces: bool,
) -> Vec<u64> {
    let make = |n: usize| {
        let name = match replaces {
            true => "new".to_owned(),
            false => format!("message {n}"),
        };
        let mut file = None;
        let (flushes, _) = cost(disk, engine, || {
            *file.insert(write_new(engine, directory, &name, &[n as u8; 4000]))
        });
        engine.forget(file.expect("it was made"), 1);
        if replaces {
            let mode = RenameMode::Replace;
            (engine.rename(directory, b"new", directory, b"kept", mode)).unwrap();
        }
        flushes
    };
    (0..FILES).map(make).collect()
}

const FILES: usize = 200;

/// Most take `expected` flushes, and none takes less. Some take more, because the writer has its
/// turn twice a second.
fn assert_mostly(flushes: &[u64], expected: u64) {
    let are_right = flushes.iter().filter(|f| **f == expected).count();
    let none_less = flushes.iter().all(|f| *f >= expected);
    assert!(
        none_less && are_right >= flushes.len() * 4 / 5,
        "not {expected}: {flushes:?}"
    );
}

/// A program that fsyncs each file that it makes waits for two flushes each: whatever else a new
/// file waits for went with the flush before.
#[test]
fn new_files_that_are_flushed_one_after_the_other_take_two_flushes_each() {
    let disk = Disk::new(new_image(16 << 20, 2048), Loss::Half);
    let engine = disk.mount().unwrap();
    let free_before = engine.statistics().unwrap().free_inodes;
    let directory = engine.create(engine.root(), b"mail", &new_inode(FileType::Directory));
    let directory = directory.unwrap().inode;
    let kept = write_new(&engine, directory, "kept", &[0; 4000]);
    engine.fsync(kept, false).unwrap();
    engine.forget(kept, 1);

    let replaced = flushed_files(&disk, &engine, directory, true);
    // Before the first fsync nothing was marked ahead.
    assert!(replaced[0] >= 3);
    assert_mostly(&replaced, 2);
    // A new block of the directory goes together with the directory's inode.
    assert_mostly(&flushed_files(&disk, &engine, directory, false), 2);
    // The directory has more than one block now, and the new name is in another one than the name
    // that is replaced. Link count, name and removal go one after the other, and the program fsyncs
    // after the first rename.
    assert_mostly(&flushed_files(&disk, &engine, directory, true)[1..], 3);

    // Inodes and blocks that are marked ahead count as free, and are free in the end.
    engine.sync().unwrap();
    let free = engine.statistics().unwrap().free_inodes;
    assert_eq!(free_before - free, FILES as u64 + 2);
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

/// The same on UFS2 where the map of a group's inodes takes several blocks, of which one is read.
#[test]
fn new_files_take_two_flushes_each_beside_a_long_map_of_inodes() {
    let (ufs2, _) = named("ufs2").unwrap();
    let image = MemoryDevice::new(64 << 20);
    let mkfs = Mkfs {
        block_size: Some(8192),
        fragment_size: Some(1024),
        inodes: Some(60_000),
        ..Mkfs::new([7; 16], [9; 16], 1_700_000_000)
    };
    ufs2.make(&mkfs, &image).unwrap();
    let disk = Disk::new(image.snapshot(), Loss::Half);
    let device = disk.fault.clone();
    let engine = Engine::mount(device, ufs2.layout(), &options(Ordering::SOFT)).unwrap();
    let directory = engine.create(engine.root(), b"mail", &new_inode(FileType::Directory));
    let directory = directory.unwrap().inode;

    // Before the first fsync nothing was marked ahead.
    let flushes = flushed_files(&disk, &engine, directory, false);
    assert!(flushes[0] >= 3);
    assert_mostly(&flushes[1..], 2);

    engine.unmount().unwrap();
    let source = DeviceSource(&*disk.memory);
    let report = ufs2.check(&source, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Also for blocks behind an indirect block: that moves to another place, and the inode points
/// there with the same write that has the new size.
#[test]
fn flushed_appends_take_two_flushes_each_however_long_the_file_is() {
    let disk = Disk::new(new_image(16 << 20, 512), Loss::Half);
    let engine = disk.mount().unwrap();
    let free_before = engine.statistics().unwrap().free_blocks;
    let log = write_new(&engine, engine.root(), "log", &[1; 13 << 10]);
    engine.fsync(log, false).unwrap();
    let mut end = 13 << 10;
    let mut flushes = |appends: usize, bytes: usize| -> Vec<u64> {
        let mut append = |n: usize| {
            let (flushes, _) = cost(&disk, &engine, || {
                assert_eq!(
                    engine.write(log, end, &vec![n as u8; bytes]).unwrap(),
                    bytes
                );
                log
            });
            end += bytes as u64;
            flushes
        };
        (0..appends).map(&mut append).collect()
    };
    assert_mostly(&flushes(200, 1 << 10), 2);
    // From block 12 + 256 on there are two levels of indirect blocks, with a new lower one for each
    // 256 blocks.
    flushes(1, 70 << 10);
    assert_mostly(&flushes(300, 1 << 10), 2);

    // Removing the file frees all its blocks and no others: also the old places of its indirect
    // blocks.
    let bytes = read_all(&engine, log).unwrap();
    assert_eq!(bytes.len() as u64, end);
    assert_eq!(bytes[113 << 10..][..1 << 10], [100; 1 << 10]);
    engine.unlink(engine.root(), b"log").unwrap();
    engine.forget(log, 1);
    engine.sync().unwrap();
    assert_eq!(engine.statistics().unwrap().free_blocks, free_before);
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

#[test]
fn fdatasync_leaves_out_times_and_an_fsync_after_it_writes_nothing_else() {
    let disk = Disk::new(new_image(8 << 20, 512), Loss::Half);
    let engine = disk.mount().unwrap();
    let file = write_new(&engine, engine.root(), "file", &[1; 3000]);
    let other = write_new(&engine, engine.root(), "other", &[1; 3000]);
    engine.sync().unwrap();
    // Longer than a tick of the clock that times are read from.
    std::thread::sleep(Duration::from_millis(30));
    engine.write(other, 0, &[2; 100]).unwrap();
    engine.write(file, 100, &[2; 500]).unwrap();
    for (data_only, what) in [(true, "contents"), (false, "the inode")] {
        let before = disk.fault.counts();
        engine.fsync(file, data_only).unwrap();
        assert_eq!(between(before, disk.fault.counts()), (1, 1), "{what}");
    }
    assert!(engine.stats().cache.dirty > 0, "the other file's contents");
    engine.unmount().unwrap();
}

#[test]
fn concurrent_fsyncs_share_flushes() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 30;
    let disk = Disk::new(new_image(8 << 20, 512), Loss::Half);
    // As long as a fast drive's flush, so that other callers come during it.
    let slow = SlowFlushDevice::new(disk.fault.clone(), Duration::from_millis(2));
    let engine = mount(Arc::new(slow)).unwrap();
    let files: Vec<_> = (0..THREADS)
        .map(|n| write_new(&engine, engine.root(), &format!("file{n}"), &[0; 4000]))
        .collect();
    engine.sync().unwrap();
    let before = disk.fault.counts();
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for (n, file) in files.iter().enumerate() {
            let (engine, barrier) = (&engine, &barrier);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    engine.write(*file, 0, &[(n + round) as u8; 2000]).unwrap();
                    // All ask at the same moment: one leads, and its batch or the next one serves
                    // the others.
                    barrier.wait();
                    engine.fsync(*file, false).unwrap();
                    barrier.wait();
                }
            });
        }
    });
    let (flushes, _) = between(before, disk.fault.counts());
    let fsyncs = (THREADS * ROUNDS) as u64;
    println!("{flushes} flushes for {fsyncs} fsyncs");
    assert!(flushes >= ROUNDS as u64, "an fsync without a flush");
    assert!(
        flushes * 2 <= fsyncs,
        "{flushes} flushes for {fsyncs} fsyncs"
    );
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}
