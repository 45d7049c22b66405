//! Memory has one bound: a program that makes changes faster than they can be written waits, and
//! nothing hangs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{check, new_image, new_inode, write_new};
use backstitch_device::{MemoryDevice, SlowFlushDevice};
use backstitch_formats::usual;
use backstitch_vfs::{Engine, FileType, InodeNumber, MountOptions, SetAttributes, Stats};

/// The bound of these mounts.
const BOUND_BYTES: u64 = 2 << 20;
/// Bytes that an operation may take beyond the bound before it can be made to wait.
const STEP_BYTES: u64 = BOUND_BYTES / 8;
/// Nothing here takes a second: a test that takes this long hangs.
const HANGS: Duration = Duration::from_secs(60);

struct Disk {
    memory: Arc<MemoryDevice>,
    started: Instant,
}

impl Disk {
    fn new(size_bytes: usize, inodes: u32) -> Disk {
        let memory = MemoryDevice::from_bytes(new_image(size_bytes, inodes));
        Disk {
            memory: Arc::new(memory),
            started: Instant::now(),
        }
    }

    fn mount(&self) -> Arc<Engine> {
        let options = MountOptions {
            cache_bytes: BOUND_BYTES,
            expire_seconds: 1e6,
            ..MountOptions::default()
        };
        // As long as a fast drive's flush, so that changes come faster than they can be written.
        let device = SlowFlushDevice::new(self.memory.clone(), Duration::from_millis(1));
        Engine::mount(Arc::new(device), usual().layout(), &options).unwrap()
    }

    /// Unmounts, and checks how much memory the mount took.
    fn end(&self, what: &str, engine: &Engine, must_wait: bool) {
        engine.unmount().unwrap();
        let Stats { memory, stalls, .. } = engine.stats();
        println!("{what}: {memory:?}, {:?}", self.started.elapsed());
        assert_eq!(memory.bound, BOUND_BYTES);
        assert!(
            memory.bytes_peak <= BOUND_BYTES + STEP_BYTES,
            "{what}: {memory:?}"
        );
        assert!(!must_wait || memory.throttled > 0, "{what}: {memory:?}");
        assert!(memory.throttled == 0 || memory.throttled_seconds > 0.0);
        let stall = stalls.memory;
        assert_eq!(
            (stall.count, stall.seconds),
            (memory.throttled, memory.throttled_seconds)
        );
        assert!(stall.longest_seconds <= stall.seconds);
        assert!(stall.longest_seconds * stall.count as f64 >= stall.seconds * 0.99);
        assert!(self.started.elapsed() < HANGS);
        assert!(check(&*self.memory).is_clean());
    }
}

fn make_directory(engine: &Engine, name: &str) -> InodeNumber {
    let new = new_inode(FileType::Directory);
    let made = engine.create(engine.root(), name.as_bytes(), &new).unwrap();
    made.inode
}

fn file_name(number: u32) -> Vec<u8> {
    format!("a name of some length {number:06}").into_bytes()
}

#[test]
fn making_and_removing_many_files() {
    const FILES: u32 = 20_000;
    const IN_DIRECTORY: u32 = 500;
    let disk = Disk::new(32 << 20, 24_000);
    let engine = disk.mount();
    for first in (0..FILES).step_by(IN_DIRECTORY as usize) {
        let directory = make_directory(&engine, &format!("d{first}"));
        for number in first..first + IN_DIRECTORY {
            let new = new_inode(FileType::Regular);
            let made = engine.create(directory, &file_name(number), &new).unwrap();
            engine.forget(made.inode, 1);
        }
        engine.forget(directory, 1);
    }
    disk.end("making", &engine, true);

    let engine = disk.mount();
    for first in (0..FILES).step_by(IN_DIRECTORY as usize) {
        let name = format!("d{first}");
        let directory = engine.lookup(engine.root(), name.as_bytes()).unwrap().inode;
        for number in first..first + IN_DIRECTORY {
            // As the kernel does it: it looks a name up, and forgets the inode afterwards.
            let found = engine.lookup(directory, &file_name(number)).unwrap();
            engine.unlink(directory, &file_name(number)).unwrap();
            engine.forget(found.inode, 1);
        }
        engine.rmdir(engine.root(), name.as_bytes()).unwrap();
        engine.forget(directory, 1);
    }
    disk.end("removing", &engine, true);
    assert_eq!(engine.stats().deferred.pending, 0);
}

#[test]
fn the_index_of_a_large_directory_counts() {
    const NAMES: u32 = 20_000;
    let disk = Disk::new(32 << 20, 24_000);
    let engine = disk.mount();
    let directory = make_directory(&engine, "large");
    for number in 0..NAMES {
        let new = new_inode(FileType::Regular);
        let made = engine.create(directory, &file_name(number), &new).unwrap();
        engine.forget(made.inode, 1);
    }
    let held = |engine: &Engine| {
        let stats = engine.stats();
        stats.memory.bytes - stats.cache.bytes - stats.patches.bytes_live
    };
    engine.sync().unwrap();
    let indexed = u64::from(NAMES) * 8;
    assert!(held(&engine) >= indexed, "{:?}", engine.stats().memory);
    for number in 0..NAMES {
        engine.unlink(directory, &file_name(number)).unwrap();
    }
    // Inodes that are still to be freed count as well.
    let since = Instant::now();
    while held(&engine) >= indexed {
        assert!(since.elapsed() < HANGS, "{:?}", engine.stats().memory);
        engine.sync().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    disk.end("a large directory", &engine, true);
}

#[test]
fn large_writes_of_several_threads() {
    const THREADS: u8 = 4;
    // As large as the kernel's requests, half of the bound.
    const WRITE_BYTES: usize = 1 << 20;
    let disk = Disk::new(32 << 20, 64);
    let engine = disk.mount();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || {
                let file = write_new(engine, engine.root(), &thread.to_string(), &[1]);
                for number in 0..5 {
                    let data = vec![thread; WRITE_BYTES];
                    let at = number * WRITE_BYTES as u64;
                    assert_eq!(engine.write(file, at, &data).unwrap(), WRITE_BYTES);
                }
            });
        }
    });
    disk.end("large writes", &engine, true);
}

#[test]
fn cutting_off_a_sparse_file_with_many_indirect_blocks() {
    const BLOCK_BYTES: u64 = 1024;
    /// At this distance every block has an indirect block of its own.
    const STRIDE_BYTES: u64 = BLOCK_BYTES / 4 * BLOCK_BYTES;
    const BLOCKS: u64 = 8_000;
    let disk = Disk::new(32 << 20, 64);
    let engine = disk.mount();
    let file = write_new(&engine, engine.root(), "sparse", &[1]);
    for number in 1..BLOCKS {
        engine
            .write(file, number * STRIDE_BYTES, &[2; 100])
            .unwrap();
    }
    disk.end("writing", &engine, true);

    let engine = disk.mount();
    let file = engine.lookup(engine.root(), b"sparse").unwrap().inode;
    let before = engine.statistics().unwrap().free_blocks;
    let cut = SetAttributes {
        size_bytes: Some(10),
        ..SetAttributes::default()
    };
    engine.set_attributes(file, &cut).unwrap();
    engine.sync().unwrap();
    let freed = engine.statistics().unwrap().free_blocks - before;
    assert!(freed >= 2 * (BLOCKS - 1), "{freed} blocks came back");
    disk.end("cutting", &engine, false);
}
