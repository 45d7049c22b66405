//! A disk that fills up: each allocation of a workload in turn is the one that finds nothing left.
//!
//! A ballast leaves a number of free blocks or inodes: with none left the workload's first
//! allocation fails, with one left its second, and so on; either once, or from then on. Nothing may
//! be half done, nothing lost, and when everything is removed the counters are those of a new file
//! system. `BACKSTITCH_FAULTS=all` takes every number; otherwise a run takes a few dozen, spread.

use std::sync::Arc;
use std::time::Duration;

use crate::support::gate::{Gate, Held};
use crate::support::workload::{OPERATIONS, OnError, Workload, remove_everything};
use crate::support::{Disk, check, mount, new_image, new_inode, read_all, write_new};
use backstitch_device::{BlockDevice, Loss, SlowFlushDevice};
use backstitch_vfs::{DirectoryEntry, Engine, FileSystemStatistics, FileType};

/// How many numbers a short run takes.
const SHORT: u64 = 12;

fn image() -> Vec<u8> {
    new_image(3 << 20, 128)
}

fn statistics(engine: &Engine) -> FileSystemStatistics {
    engine.statistics().unwrap()
}

/// Fills the disk up to about `left` free blocks.
fn leave_blocks(engine: &Engine, left: u64) {
    let new = new_inode(FileType::Regular);
    let ballast = engine
        .create(engine.root(), b"ballast", &new)
        .unwrap()
        .inode;
    let mut at = 0;
    loop {
        let free = statistics(engine).free_blocks;
        if free <= left {
            break;
        }
        // Indirect blocks take some too.
        let blocks = ((free - left) * 9 / 10).max(1);
        let data = vec![1; blocks as usize * 1024];
        match engine.write(ballast, at, &data) {
            Ok(written) => at += written as u64,
            Err(error) => {
                assert_eq!(error.errno(), 28);
                break;
            }
        }
    }
    engine.forget(ballast, 1);
    engine.sync().unwrap();
}

/// Leaves `left` free inodes.
fn leave_inodes(engine: &Engine, left: u64) {
    // The inodes are made in a directory of its own: directories do not shrink, and the root is
    // compared with a new one.
    let (root, new) = (engine.root(), new_inode(FileType::Directory));
    let directory = engine.create(root, b"ballast", &new).unwrap().inode;
    let new = new_inode(FileType::Regular);
    for n in left..statistics(engine).free_inodes {
        let made = engine.create(directory, n.to_string().as_bytes(), &new);
        engine.forget(made.unwrap().inode, 1);
    }
    engine.forget(directory, 1);
    engine.sync().unwrap();
}

/// Takes away what fills the disk.
fn remove_ballast(engine: &Engine) {
    let (root, name) = (engine.root(), b"ballast");
    let ballast = engine.lookup(root, name).unwrap();
    if ballast.file_type == FileType::Directory {
        remove_everything(engine, ballast.inode);
        engine.forget(ballast.inode, 1);
        engine.rmdir(root, name).unwrap();
    } else {
        engine.forget(ballast.inode, 1);
        engine.unlink(root, name).unwrap();
    }
}

/// How long there is no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// For one operation: then the ballast is removed, and nothing fails any more.
    Once,
    /// From then on.
    Lasting,
}

/// One run; returns how many operations found no space.
fn run(image: &[u8], leave: fn(&Engine, u64), left: u64, full: Full) -> usize {
    let disk = Disk::new(image.to_vec(), Loss::Half);
    let engine = disk.mount().unwrap();
    leave(&engine, left);
    let mut workload = Workload::new(OnError::NoSpace);
    let mut failures = 0;
    for _ in 0..OPERATIONS {
        workload.step(&engine);
        let so_far = workload.failures.values().sum();
        if full == Full::Once && failures == 0 && so_far > 0 {
            remove_ballast(&engine);
        }
        assert!(full == Full::Lasting || failures == 0 || so_far == failures);
        failures = so_far;
    }
    workload.expect_everything(&engine);
    engine.unmount().unwrap();
    let report = check(&*disk.memory);
    assert!(report.is_clean(), "{left} left: {:?}", report.findings);

    let engine = disk.mount().unwrap();
    workload.expect_everything(&engine);
    remove_everything(&engine, engine.root());
    engine.unmount().unwrap();
    let report = check(&*disk.memory);
    assert!(
        report.is_clean(),
        "{left} left, removed: {:?}",
        report.findings
    );
    let new = Disk::new(image.to_vec(), Loss::Half);
    assert_eq!(
        statistics(&disk.mount().unwrap()),
        statistics(&new.mount().unwrap()),
        "{left} left"
    );
    failures
}

/// Runs with 0, 1, 2 … left, until there is enough for the whole workload.
fn sweep(leave: fn(&Engine, u64), enough: u64) {
    let image = image();
    let all = std::env::var("BACKSTITCH_FAULTS").is_ok_and(|v| v == "all");
    let stride = if all { 1 } else { (enough / SHORT).max(1) };
    let (mut runs, mut failures) = (0, 0);
    for left in 0..=enough {
        if left % stride == left / stride % stride {
            for full in [Full::Once, Full::Lasting] {
                runs += 1;
                failures += run(&image, leave, left, full);
            }
        }
    }
    println!("{runs} runs, {failures} operations without space");
    assert!(failures > runs, "{failures} failures in {runs} runs");
}

/// The most blocks or inodes (`count` says which) that the workload takes.
fn taken(count: fn(FileSystemStatistics) -> u64) -> u64 {
    let disk = Disk::new(image(), Loss::Half);
    let engine = disk.mount().unwrap();
    let before = count(statistics(&engine));
    let mut workload = Workload::new(OnError::NoSpace);
    let mut least = before;
    for _ in 0..OPERATIONS {
        workload.step(&engine);
        least = least.min(count(statistics(&engine)));
    }
    assert!(workload.failures.is_empty(), "the image is too small");
    before - least
}

/// A disk after a crash whose blocks, or inodes, nearly all belong to open files without a name.
fn filled_by_the_nameless(block_hungry: bool) -> Vec<u8> {
    let disk = Disk::new(image(), Loss::Half);
    let engine = disk.mount().unwrap();
    // A file for the reclaim to look at before it finds anything to free.
    write_new(&engine, engine.root(), "kept", &[7; 40_000]);
    match block_hungry {
        true => leave_blocks(&engine, 30),
        false => leave_inodes(&engine, 2),
    }
    let mut held = Vec::new();
    let ballast = engine.lookup(engine.root(), b"ballast").unwrap();
    if block_hungry {
        held.push(ballast.inode);
        engine.unlink(engine.root(), b"ballast").unwrap();
    } else {
        let mut names = Vec::new();
        let mut note = |entry: &DirectoryEntry<'_>| {
            names.push(entry.name.to_vec());
            true
        };
        engine.read_directory(ballast.inode, 0, &mut note).unwrap();
        for name in names.iter().filter(|name| !name.starts_with(b".")) {
            held.push(engine.lookup(ballast.inode, name).unwrap().inode);
            engine.unlink(ballast.inode, name).unwrap();
        }
        engine.forget(ballast.inode, 1);
    }
    engine.sync().unwrap();
    let crashed = disk.memory.snapshot();
    held.into_iter().for_each(|inode| engine.forget(inode, 1));
    engine.unmount().unwrap();
    crashed
}

/// Mounts with a reclaim that reads and flushes only once the gate is open: until then nothing has
/// been reclaimed, however late the test looks. Its flushes take a while, so that it does not end
/// before it is waited for.
fn mount_slow(disk: &Disk) -> (Arc<Engine>, Arc<Gate>) {
    let flush = Duration::from_millis(40);
    let slow = SlowFlushDevice::new(disk.fault.clone(), flush);
    let device = Gate::new(Arc::new(slow), Held::Thread("backstitch-reclaim"), true);
    (mount(device.clone()).unwrap(), device)
}

#[test]
fn space_that_a_crash_lost_is_waited_for() {
    let disk = Disk::new(filled_by_the_nameless(true), Loss::Half);
    let (engine, device) = mount_slow(&disk);
    let before = statistics(&engine).free_blocks;
    assert!(before < 100, "{before} blocks are free already");
    assert!(engine.stats().reclaim.running);
    device.set(false);
    // More than is free before the reclaim has freed anything.
    let data = vec![3; 1 << 20];
    let file = write_new(&engine, engine.root(), "large", &data);
    assert!(read_all(&engine, file).unwrap() == data);
    // A write that finds no space in the end does not wait for ever.
    let rest = vec![4; 3 << 20];
    let mut at = data.len() as u64;
    let refused = loop {
        match engine.write(file, at, &rest) {
            Ok(written) => at += written as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.errno(), 28);
    assert!(!engine.stats().reclaim.running, "not all was waited for");
    assert_eq!(statistics(&engine).free_blocks, 0);
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

#[test]
fn inodes_that_a_crash_lost_are_waited_for() {
    let disk = Disk::new(filled_by_the_nameless(false), Loss::Half);
    let (engine, device) = mount_slow(&disk);
    assert!(statistics(&engine).free_inodes < 4);
    assert!(engine.stats().reclaim.running);
    device.set(false);
    for number in 0..40 {
        write_new(&engine, engine.root(), &number.to_string(), b"new");
    }
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

#[test]
fn space_that_cannot_be_reclaimed_is_not_waited_for_without_end() {
    let disk = Disk::new(filled_by_the_nameless(true), Loss::Half);
    // Makes the indirect block of the file with a name unreadable: its blocks are not known then,
    // so no block is known to be free.
    let contents = [7; 1024];
    let image = disk.memory.snapshot();
    let mut blocks = (0_u32..).zip(image.chunks_exact(1024));
    let of_file: Vec<u32> = blocks
        .by_ref()
        .filter(|(_, block)| **block == contents)
        .map(|(at, _)| at)
        .collect();
    let pointers: Vec<u8> = of_file[12..14]
        .iter()
        .flat_map(|at| at.to_le_bytes())
        .collect();
    let indirect = image
        .chunks_exact(1024)
        .position(|block| block.starts_with(&pointers));
    let at = indirect.unwrap() as u64 * 1024;
    disk.fault.spoil(at..at + 1024);
    let (engine, device) = mount_slow(&disk);
    device.set(false);
    let new = new_inode(FileType::Regular);
    let file = engine.create(engine.root(), b"large", &new).unwrap().inode;
    let (data, mut done) = (vec![3; 1 << 20], 0);
    let refused = loop {
        match engine.write(file, done, &data) {
            Ok(written) => done += written as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.errno(), 28);
    assert_eq!(engine.read_only_reason(), None);
    // The place is written anew.
    let block = &image[at as usize..at as usize + 1024];
    disk.fault.write(at, block).unwrap();
    let more = engine.write(file, done, &data).unwrap();
    assert!(more > 0);
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

#[test]
fn each_block_is_the_last() {
    sweep(leave_blocks, taken(|statistics| statistics.free_blocks));
}

#[test]
fn each_inode_is_the_last() {
    sweep(leave_inodes, taken(|statistics| statistics.free_inodes));
}
