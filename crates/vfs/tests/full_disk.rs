//! A disk that fills up: every allocation of a workload is the one that finds nothing left, in turn.
//!
//! A ballast leaves so and so many blocks, or inodes: with none left the workload's first allocation fails, with one left its second,
//! and so on; either once, or from then on. Nothing may be half done, nothing lost, and when everything is removed the counters are those of a new file system.
//! `BACKSTITCH_FAULTS=all` takes every number; otherwise it is a few dozen, spread.

mod support;

use backstitch_device::Loss;
use backstitch_vfs::{Engine, FileSystemStatistics, FileType};
use support::workload::{OPERATIONS, OnError, Workload, remove_everything};
use support::{Disk, check, new_image, new_inode};

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

/// Leaves so many free inodes.
fn leave_inodes(engine: &Engine, left: u64) {
    // In a directory of its own: directories do not shrink, and the root is compared with a new one.
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
    /// For one operation: then somebody removes the ballast, and nothing fails any more.
    Once,
    /// From then on.
    Lasting,
}

/// One run; returns how often something found no space.
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

/// How many the workload takes at most, by `count` of free ones.
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

#[test]
fn each_block_is_the_last() {
    sweep(leave_blocks, taken(|statistics| statistics.free_blocks));
}

#[test]
fn each_inode_is_the_last() {
    sweep(leave_inodes, taken(|statistics| statistics.free_inodes));
}
