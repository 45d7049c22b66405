//! An engine over a device in memory that can fail.

#![allow(dead_code)] // Each test uses its part.

pub(crate) mod gate;
pub(crate) mod workload;

use std::path::PathBuf;
use std::sync::Arc;

use backstitch_device::{BlockDevice, FaultDevice, Loss, MemoryDevice};
use backstitch_formats::usual;
use backstitch_layout::tools::{CheckOptions, DeviceSource, Mkfs, Report};
use backstitch_mechanisms::Ordering;
use backstitch_vfs::{Engine, FileType, GroupId, InodeNumber, MountOptions, NewInode};

/// Where the images of a test are, until it ends.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let name = name.replace('=', "-");
        let path = std::env::temp_dir().join(format!("backstitch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Which parts of a torn write reach the disk: random, but the same in every run.
pub(crate) fn torn_parts(seed: u64) -> impl FnMut(usize, usize) -> bool {
    let mut random = seed;
    move |_, _| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        random >> 63 == 0
    }
}

/// The bytes of a new file system.
pub(crate) fn new_image(size_bytes: usize, inodes: u32) -> Vec<u8> {
    made(size_bytes, inodes, false)
}

/// The same with the smallest journal.
pub(crate) fn new_image_with_journal(size_bytes: usize, inodes: u32) -> Vec<u8> {
    made(size_bytes, inodes, true)
}

fn made(size_bytes: usize, inodes: u32, has_journal: bool) -> Vec<u8> {
    let device = MemoryDevice::new(size_bytes);
    let mut mkfs = Mkfs {
        block_size: Some(1024),
        inodes: Some(inodes),
        journal_bytes: has_journal.then_some(1 << 20),
        ..Mkfs::new([7; 16], [9; 16], 1_700_000_000)
    };
    let journal = has_journal.then(|| "has_journal".to_owned());
    mkfs.features.extend(journal);
    usual().make(&mkfs, &device).unwrap();
    device.snapshot()
}

/// A device that holds an image and can fail, and the memory behind it.
pub(crate) struct Disk {
    pub(crate) memory: Arc<MemoryDevice>,
    pub(crate) fault: Arc<FaultDevice>,
}

impl Disk {
    pub(crate) fn new(image: Vec<u8>, loss: Loss) -> Disk {
        let memory = Arc::new(MemoryDevice::from_bytes(image));
        let fault = Arc::new(FaultDevice::new(memory.clone(), loss));
        Disk { memory, fault }
    }

    pub(crate) fn mount(&self) -> backstitch_vfs::Result<Arc<Engine>> {
        mount(self.fault.clone())
    }
}

/// Mounts with little memory, so that blocks are read again, and with a writer that leaves writing
/// to fsync. `BACKSTITCH_ATOMIC` may state the atomic unit.
pub(crate) fn mount(device: Arc<dyn BlockDevice>) -> backstitch_vfs::Result<Arc<Engine>> {
    mount_under(device, Ordering::SOFT)
}

/// As [`mount`], under this mechanism.
pub(crate) fn mount_under(
    device: Arc<dyn BlockDevice>,
    ordering: Ordering,
) -> backstitch_vfs::Result<Arc<Engine>> {
    Engine::mount(device, usual().layout(), &options(ordering))
}

/// How [`mount`] mounts, under this mechanism.
pub(crate) fn options(ordering: Ordering) -> MountOptions {
    MountOptions {
        ordering,
        cache_bytes: 1 << 20,
        expire_seconds: 1e6,
        atomic_bytes: std::env::var("BACKSTITCH_ATOMIC").ok().map(|unit| {
            unit.parse()
                .expect("BACKSTITCH_ATOMIC is a number of bytes")
        }),
        ..MountOptions::default()
    }
}

/// Makes a patchgroup that comes after another one, closes that, and calls `body` under the new
/// one.
pub(crate) fn after(engine: &Engine, before: Option<GroupId>, body: impl FnOnce()) -> GroupId {
    let group = engine.group_create().unwrap();
    if let Some(before) = before {
        engine.group_depend(group, before).unwrap();
        engine.group_close(before);
    }
    engine.group_engage(group).unwrap();
    engine.under(&[group], body);
    engine.group_disengage(group).unwrap();
    group
}

/// What is wrong with an image.
pub(crate) fn check(device: &dyn BlockDevice) -> Report {
    usual()
        .check(&DeviceSource(device), &CheckOptions::default())
        .unwrap()
}

/// The request for a new file or directory.
pub(crate) fn new_inode(file_type: FileType) -> NewInode<'static> {
    NewInode {
        file_type,
        permissions: 0o755,
        umask: 0,
        uid: 0,
        gid: 0,
        device_number: 0,
        target: b"",
    }
}

/// A new file with contents.
pub(crate) fn write_new(
    engine: &Engine,
    directory: InodeNumber,
    name: &str,
    data: &[u8],
) -> InodeNumber {
    let new = new_inode(FileType::Regular);
    let inode = engine.create(directory, name.as_bytes(), &new).unwrap();
    assert_eq!(engine.write(inode.inode, 0, data).unwrap(), data.len());
    inode.inode
}

/// A file's contents.
pub(crate) fn read_all(engine: &Engine, inode: InodeNumber) -> backstitch_vfs::Result<Vec<u8>> {
    let size = engine.attributes(inode)?.size_bytes;
    let mut data = Vec::new();
    engine.read(inode, 0, size as usize, &mut data)?;
    Ok(data)
}
