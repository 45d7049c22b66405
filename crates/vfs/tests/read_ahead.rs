//! Reading a cold tree: which blocks the device is told of (`will_read`) before they are read.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::support::{new_inode, write_new};
use backstitch_device::{BlockDevice, MemoryDevice, Result, WriteRequest};
use backstitch_formats::usual;
use backstitch_layout::tools::Mkfs;
use backstitch_vfs::{Engine, FileType, InodeNumber, MountOptions};

/// Notes which ranges are read, and which it was told of before.
struct Noting {
    memory: Arc<MemoryDevice>,
    /// Reads, and whether all of each was told before.
    reads: Mutex<Vec<(Range<u64>, bool)>>,
    told: Mutex<Vec<Range<u64>>>,
}

impl BlockDevice for Noting {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn name(&self) -> String {
        self.memory.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let read = offset_bytes..offset_bytes + buffer.len() as u64;
        let told = self.told.lock().unwrap();
        let was_told = read
            .clone()
            .step_by(4096)
            .all(|block| told.iter().any(|t| t.contains(&block)));
        self.reads.lock().unwrap().push((read, was_told));
        self.memory.read(offset_bytes, buffer)
    }

    fn will_read(&self, offset_bytes: u64, len_bytes: u64) {
        let range = offset_bytes..offset_bytes + len_bytes;
        assert!(range.end <= self.size_bytes(), "{range:?}");
        self.told.lock().unwrap().push(range);
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        self.memory.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }
}

fn mount(memory: &Arc<MemoryDevice>) -> (Arc<Noting>, Arc<Engine>) {
    let device = Arc::new(Noting {
        memory: memory.clone(),
        reads: Mutex::default(),
        told: Mutex::default(),
    });
    let engine = Engine::mount(device.clone(), usual().layout(), &MountOptions::default()).unwrap();
    device.reads.lock().unwrap().clear();
    (device, engine)
}

/// All names of a directory with their inodes.
fn names(engine: &Engine, directory: InodeNumber) -> Vec<(Vec<u8>, InodeNumber)> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let before = cookie;
        let mut note = |entry: &backstitch_vfs::DirectoryEntry<'_>, _: &_| {
            cookie = entry.next_cookie;
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.inode));
            }
            // The reply is full.
            names.len() % 100 != 99
        };
        engine
            .read_directory_plus(directory, before, &mut note)
            .unwrap();
        if cookie == before {
            return names;
        }
    }
}

#[test]
fn whoever_walks_a_cold_tree_waits_for_few_reads() {
    const DIRECTORIES: usize = 40;
    const FILES: usize = 60;
    let memory = Arc::new(MemoryDevice::new(256 << 20));
    let mkfs = Mkfs {
        block_size: Some(4096),
        ..Mkfs::new([7; 16], [9; 16], 1_700_000_000)
    };
    usual().make(&mkfs, &*memory).unwrap();
    let (_, engine) = mount(&memory);
    for d in 0..DIRECTORIES {
        let new = new_inode(FileType::Directory);
        let name = format!("d{d}");
        let directory = engine.create(engine.root(), name.as_bytes(), &new).unwrap();
        for f in 0..FILES {
            write_new(&engine, directory.inode, &format!("f{f}"), b"contents");
        }
    }
    engine.unmount().unwrap();

    let (device, engine) = mount(&memory);
    let found = names(&engine, engine.root());
    assert_eq!(found.len(), DIRECTORIES + 1, "and lost+found");
    let files: usize = found.iter().map(|(_, d)| names(&engine, *d).len()).sum();
    assert_eq!(files, DIRECTORIES * FILES);
    let reads = device.reads.lock().unwrap().clone();
    let untold: Vec<_> = reads.iter().filter(|(_, was_told)| !was_told).collect();
    // 150 blocks of inodes and 42 of names lie in a few groups.
    assert!(reads.len() > 50, "{}", reads.len());
    assert!(untold.is_empty(), "{untold:?}");
    let told = device.told.lock().unwrap().len();
    assert!(
        told < reads.len() / 2,
        "{told} times for {} reads",
        reads.len()
    );
    // Gives back exactly the references that were taken.
    for (_, inode) in found {
        engine.forget(inode, 1);
    }
    engine.unmount().unwrap();
}
