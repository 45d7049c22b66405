//! What small files cost at the device: blocks and requests, counted where they arrive (Ganger et
//! al. 2000, figure 6; Seltzer et al. 2000, `zero`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::support::{check, new_inode, write_new};
use backstitch_device::{BlockDevice, MemoryDevice, Result, WriteRequest};
use backstitch_formats::usual;
use backstitch_layout::tools::Mkfs;
use backstitch_vfs::{Engine, FileType, InodeNumber, MountOptions, Ordering};

const BLOCK_BYTES: u64 = 4096;

/// Counts the writes that it gets.
struct Counting {
    memory: MemoryDevice,
    bytes: AtomicU64,
    requests: AtomicU64,
}

/// Blocks and requests.
#[derive(Clone, Copy, Debug)]
struct Counts {
    blocks: u64,
    requests: u64,
}

impl Counting {
    /// A device with a new file system in it.
    fn new(size_bytes: usize) -> Arc<Counting> {
        let memory = MemoryDevice::new(size_bytes);
        let mkfs = Mkfs {
            block_size: Some(BLOCK_BYTES as u32),
            ..Mkfs::new([7; 16], [9; 16], 1_700_000_000)
        };
        usual().make(&mkfs, &memory).unwrap();
        Arc::new(Counting {
            memory,
            bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        })
    }

    fn counts(&self) -> Counts {
        Counts {
            blocks: self.bytes.load(Relaxed).div_ceil(BLOCK_BYTES),
            requests: self.requests.load(Relaxed),
        }
    }

    /// What `work` and a sync after it write.
    fn cost(&self, engine: &Engine, work: impl FnOnce()) -> Counts {
        let before = self.counts();
        work();
        engine.sync().unwrap();
        let after = self.counts();
        Counts {
            blocks: after.blocks - before.blocks,
            requests: after.requests - before.requests,
        }
    }
}

impl BlockDevice for Counting {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn name(&self) -> String {
        self.memory.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.memory.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let bytes = batch.iter().map(WriteRequest::len_bytes).sum();
        self.bytes.fetch_add(bytes, Relaxed);
        self.requests.fetch_add(batch.len() as u64, Relaxed);
        self.memory.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }
}

fn mount(device: &Arc<Counting>, ordering: Ordering, cache_bytes: u64) -> Arc<Engine> {
    mount_in_units(device, ordering, cache_bytes, None)
}

fn mount_in_units(
    device: &Arc<Counting>,
    ordering: Ordering,
    cache_bytes: u64,
    atomic_bytes: Option<u32>,
) -> Arc<Engine> {
    let options = MountOptions {
        ordering,
        cache_bytes,
        atomic_bytes,
        expire_seconds: 30.0,
        ..MountOptions::default()
    };
    Engine::mount(device.clone(), usual().layout(), &options).unwrap()
}

fn make_directory(engine: &Engine, name: &str) -> InodeNumber {
    let new = new_inode(FileType::Directory);
    engine
        .create(engine.root(), name.as_bytes(), &new)
        .unwrap()
        .inode
}

/// Files of one size, 50 in a directory, as the paper's benchmark makes them.
fn create_files(engine: &Engine, files: u64, file_bytes: usize) {
    for first in (0..files).step_by(50) {
        let directory = make_directory(engine, &format!("d{first}"));
        for number in first..files.min(first + 50) {
            let file = write_new(
                engine,
                directory,
                &format!("f{number}"),
                &vec![number as u8; file_bytes],
            );
            engine.forget(file, 1);
        }
        engine.forget(directory, 1);
    }
}

/// Blocks and requests for each of `files` files.
fn per_file(ordering: Ordering, files: u64, file_bytes: usize, cache_bytes: u64) -> (f64, f64) {
    per_file_in_units(ordering, files, file_bytes, cache_bytes, None)
}

fn per_file_in_units(
    ordering: Ordering,
    files: u64,
    file_bytes: usize,
    cache_bytes: u64,
    atomic_bytes: Option<u32>,
) -> (f64, f64) {
    let device = Counting::new(256 << 20);
    let engine = mount_in_units(&device, ordering, cache_bytes, atomic_bytes);
    let counts = device.cost(&engine, || create_files(&engine, files, file_bytes));
    engine.unmount().unwrap();
    assert!(check(&device.memory).is_clean());
    let each = |count: u64| count as f64 / files as f64;
    let (blocks, requests) = (each(counts.blocks), each(counts.requests));
    println!("{ordering}, {file_bytes} bytes: {blocks:.3} blocks, {requests:.3} requests a file");
    (blocks, requests)
}

#[test]
fn a_small_file_takes_little_more_than_its_block() {
    for ordering in [Ordering::SOFT, Ordering::ASYNC] {
        for file_bytes in [2048, 4096] {
            let (blocks, requests) = per_file(ordering, 4000, file_bytes, 256 << 20);
            assert!((1.0..=1.1).contains(&blocks), "{ordering}: {blocks}");
            assert!(requests < 0.1, "{ordering}: {requests}");
        }
    }
}

#[test]
fn order_between_sectors_costs_little() {
    for unit in [512, 1024] {
        let (blocks, requests) =
            per_file_in_units(Ordering::SOFT, 4000, 4096, 256 << 20, Some(unit));
        // The names take one more round: some sectors of a block wait, others do not.
        assert!((1.0..=1.12).contains(&blocks), "{blocks}");
        assert!(requests < 0.1, "{requests}");
    }
}

#[test]
fn writing_back_meanwhile_costs_hardly_more() {
    // The host decides when the writer has its turns, so a bitmap is written more or less often.
    let (blocks, requests) = per_file(Ordering::SOFT, 12_000, 4096, 32 << 20);
    assert!((1.0..=1.12).contains(&blocks), "{blocks}");
    assert!(requests < 0.1, "{requests}");
}

#[test]
fn waiting_for_each_call_costs_several_times_as_much() {
    // The paper's 3.1 are the inode, the name, the contents and parts of what is delayed. Ours also
    // has the inode's bit on the disk before the inode, so that no checker is needed after a crash.
    let (blocks, _) = per_file(Ordering::SYNC, 1000, 2048, 256 << 20);
    assert!((3.0..4.3).contains(&blocks), "{blocks}");
}

#[test]
fn what_is_created_and_deleted_is_hardly_written() {
    const PAIRS: u64 = 50_000;
    let device = Counting::new(64 << 20);
    let engine = mount(&device, Ordering::SOFT, 256 << 20);
    let directory = make_directory(&engine, "zero");
    let counts = device.cost(&engine, || {
        for number in 0..PAIRS {
            let name = format!("f{number:06}");
            let new = new_inode(FileType::Regular);
            let file = engine.create(directory, name.as_bytes(), &new).unwrap();
            engine.unlink(directory, name.as_bytes()).unwrap();
            engine.forget(file.inode, 1);
        }
    });
    println!("{PAIRS} pairs: {counts:?}");
    assert!(counts.blocks < 50, "{counts:?}");
    engine.unmount().unwrap();
    assert!(check(&device.memory).is_clean());
}

#[test]
fn a_tree_that_was_just_made_is_removed_without_writing_it() {
    let device = Counting::new(64 << 20);
    let engine = mount(&device, Ordering::SOFT, 256 << 20);
    let counts = device.cost(&engine, || {
        create_files(&engine, 2000, 4096);
        for first in (0..2000).step_by(50) {
            let name = format!("d{first}");
            let directory = engine.lookup(engine.root(), name.as_bytes()).unwrap().inode;
            for number in first..first + 50 {
                engine
                    .unlink(directory, format!("f{number}").as_bytes())
                    .unwrap();
            }
            engine.rmdir(engine.root(), name.as_bytes()).unwrap();
            engine.forget(directory, 1);
        }
    });
    println!("2000 files made and removed: {counts:?}");
    assert!(counts.blocks < 20, "{counts:?}");
    engine.unmount().unwrap();
    assert!(check(&device.memory).is_clean());
}
