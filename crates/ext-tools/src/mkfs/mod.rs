//! Making an ext2 or ext3 file system: what `mke2fs -t ext2` (or `ext3`) makes, with the same geometry. The journal of the latter
//! lies behind the first directories, where mke2fs looks for a place in the middle.
//!
//! Nothing here reads a clock or makes random numbers: UUID, hash seed and time are arguments, so the same options give the same
//! bytes. Works on plain bytes of a device; filling it with files is the layout's work.
//!
//! ```
//! use backstitch_device::MemoryDevice;
//! use backstitch_ext::mkfs::Mkfs;
//!
//! let device = MemoryDevice::new(8 << 20);
//! let superblock = Mkfs::new([1; 16], [2; 16], 1_700_000_000).write(&device)?;
//! assert_eq!(superblock.block_size, 1024);
//! # Ok::<(), backstitch_ext::mkfs::MkfsError>(())
//! ```

mod geometry;
mod journal;
mod journal_device;
mod writer;

use backstitch_device::{BlockDevice, DeviceError};
use backstitch_ext::format::superblock::Superblock;
use backstitch_ext::format::{Features, FormatError};
use backstitch_journal::format::Features as JournalFeatures;
use thiserror::Error;

pub use geometry::Geometry;
pub(crate) use journal::usual_blocks as usual_journal_blocks;
pub use journal_device::{MkfsJournal, attach_journal};

/// What to make. [`Mkfs::new`] gives mke2fs's defaults.
#[derive(Clone, Debug)]
pub struct Mkfs {
    /// The size of the file system; the device's where `None`.
    pub size_bytes: Option<u64>,
    /// 1024, 2048 or 4096; where `None`, 1024 for less than 512 MiB and else 4096.
    pub block_size: Option<u32>,
    /// Blocks in a group, a multiple of 8 from 256 to eight times the block size; as many as a bitmap block has bits where `None`.
    pub blocks_per_group: Option<u32>,
    /// Make one inode for this many bytes of space; where `None` by size, as mke2fs.conf has it: 8192 below 3 MiB, 4096 below 512 MiB, 16384 below
    /// 4 TiB, 32768 below 16 TiB.
    pub bytes_per_inode: Option<u64>,
    /// This many inodes at least, instead of `bytes_per_inode`.
    pub inodes: Option<u32>,
    /// Bytes per inode, a power of two from 128 to the block size; 256 where `None` (128 in revision 0).
    pub inode_size: Option<u32>,
    /// The label, at most 16 bytes.
    pub label: Vec<u8>,
    /// The UUID.
    pub uuid: [u8; 16],
    /// The seed of directory hashes.
    pub hash_seed: [u8; 16],
    /// What the file system uses; must be empty in revision 0.
    pub features: Features,
    /// 1; 0 for the format of 1993.
    pub revision: u32,
    /// The size of the journal, 1024 blocks at least, where the features have one; by the file system's size, as mke2fs has it,
    /// where `None`.
    pub journal_bytes: Option<u64>,
    /// The journal's device, where the features have a journal and it is not to be inside; [`attach_journal`] must follow.
    pub journal_uuid: Option<[u8; 16]>,
    /// What the journal uses, where it is inside; nothing, as mke2fs has it.
    pub journal_features: JournalFeatures,
    /// Blocks kept for root, in percent, at most 50.
    pub reserved_percent: u32,
    /// When it is made, in seconds since 1970.
    pub time_seconds: u64,
    /// The owner of the root directory.
    pub root_uid: u32,
    /// The group of the root directory.
    pub root_gid: u32,
    /// The device holds nothing but zeros (a new file): inode tables need not be written.
    pub device_is_zero: bool,
}

/// Why no file system could be made.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MkfsError {
    /// There is no room for the file system's own structures.
    #[error("too small for a file system: {0}")]
    TooSmall(String),
    /// More blocks or inodes than 32 bits can number.
    #[error("too large for ext2: {0}")]
    TooLarge(String),
    /// An option is out of its range, or contradicts another one.
    #[error("{0}")]
    BadOption(String),
    /// A feature that ext2 does not have, or that this version cannot make.
    #[error("unsupported feature: {0}")]
    Unsupported(String),
    /// The result did not pass its own check: a bug.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Mkfs {
    /// mke2fs's defaults for ext2.
    pub fn new(uuid: [u8; 16], hash_seed: [u8; 16], time_seconds: u64) -> Mkfs {
        Mkfs {
            size_bytes: None,
            block_size: None,
            blocks_per_group: None,
            bytes_per_inode: None,
            inodes: None,
            inode_size: None,
            label: Vec::new(),
            uuid,
            hash_seed,
            features: Features::EXT2_DEFAULT,
            revision: 1,
            journal_bytes: None,
            journal_uuid: None,
            journal_features: JournalFeatures::default(),
            reserved_percent: 5,
            time_seconds,
            root_uid: 0,
            root_gid: 0,
            device_is_zero: false,
        }
    }

    /// Computes what [`write`](Self::write) would make on a device of this size, without touching one.
    ///
    /// # Errors
    ///
    /// Everything but [`MkfsError::Device`].
    pub fn geometry(&self, device_size_bytes: u64) -> Result<Geometry, MkfsError> {
        Geometry::compute(self, device_size_bytes)
    }

    /// Makes the file system and flushes the device.
    ///
    /// The primary superblock is written last, behind a flush, so that a crash in the middle leaves no file system rather than half of
    /// one.
    ///
    /// # Errors
    ///
    /// Options that cannot be had (the device is then untouched), and the device's errors.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<Superblock, MkfsError> {
        let geometry = self.geometry(device.size_bytes())?;
        writer::write(self, &geometry, device)
    }
}
