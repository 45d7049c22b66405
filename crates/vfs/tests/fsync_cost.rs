//! What an fsync costs: the flushes of the device and the requests, counted.

mod support;

use std::sync::{Arc, Barrier};
use std::time::Duration;

use backstitch_device::{FaultCounts, Loss, SlowFlushDevice};
use support::{Disk, check, mount, new_image, write_new};

/// What the device was asked for between two moments.
fn between(before: FaultCounts, after: FaultCounts) -> (u64, u64) {
    (after.flushes - before.flushes, after.writes - before.writes)
}

/// Runs `change` and then fsyncs the file that it returns: flushes and write requests of the fsync.
fn cost(
    disk: &Disk,
    engine: &backstitch_vfs::Engine,
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
    // The figures say so too.
    let after = engine.stats();
    assert_eq!(after.waits - before.waits, 3);
    assert_eq!(after.waited_batches - before.waited_batches, 1 + 2 + 3);
    // Contents and inode; contents, bitmap and inode; the same and the directory. Adjacent blocks are one request.
    assert!(overwrite.1 <= 2, "{overwrite:?}");
    assert!(append.1 <= 3, "{append:?}");
    assert!(new.1 <= 5, "{new:?}");
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
    // As long as a fast drive's: others come while one is under way.
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
                    // All ask at the same moment: one leads, the others find themselves served by it or by the next.
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
