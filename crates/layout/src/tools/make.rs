//! What is to be made.

use backstitch_device::DeviceError;
use thiserror::Error;

use crate::FormatError;

/// Bytes of the boot blocks, the second of which may have a disk label. Magic numbers of all layouts lie
/// behind them.
const BOOT_BLOCK_BYTES: u64 = 1_024;

/// What to make. [`Mkfs::new`] gives the layout's usual values.
#[derive(Clone, Debug, Default)]
pub struct Mkfs {
    /// The size of the file system; the device's where `None`.
    pub size_bytes: Option<u64>,
    /// 1024, 2048 or 4096; where `None`, 1024 for less than 512 MiB and else 4096.
    pub block_size: Option<u32>,
    /// Bytes in a fragment, the unit of allocation where the layout divides blocks; an eighth of the
    /// block where `None`.
    pub fragment_size: Option<u32>,
    /// Blocks in a group, a multiple of 8 from 256 to eight times the block size; as many as a
    /// bitmap block has bits where `None`.
    pub blocks_per_group: Option<u32>,
    /// Make one inode for this many bytes of space; where `None` by size, as mke2fs.conf has it:
    /// 8192 below 3 MiB, 4096 below 512 MiB, 16384 below 4 TiB, 32768 below 16 TiB.
    pub bytes_per_inode: Option<u64>,
    /// This many inodes at least, instead of `bytes_per_inode`.
    pub inodes: Option<u32>,
    /// Bytes per inode, a power of two from 128 to the block size; 256 where `None` (128 in
    /// revision 0).
    pub inode_size: Option<u32>,
    /// The label, at most 16 bytes.
    pub label: Vec<u8>,
    /// The UUID.
    pub uuid: [u8; 16],
    /// The seed of directory hashes.
    pub hash_seed: [u8; 16],
    /// Features to add to the layout's usual ones or, with `^` in front, to leave out; `none`
    /// leaves out all before it.
    pub features: Vec<String>,
    /// 1; 0 for the format of 1993.
    pub revision: u32,
    /// The size of the journal, 1024 blocks at least, where the features have one; by the file
    /// system's size, as mke2fs has it, where `None`.
    pub journal_bytes: Option<u64>,
    /// The journal's device, where the features have a journal and it is not to be inside;
    /// [`attach_journal`](super::Tools::attach_journal) must follow.
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
    /// The boot blocks stay as they are: a disk label lies there, which names the partition.
    pub keeps_boot_blocks: bool,
}

/// Why no file system could be made.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MkfsError {
    /// There is no room for the file system's own structures.
    #[error("too small for a file system: {0}")]
    TooSmall(String),
    /// More blocks or inodes than 32 bits can number.
    #[error("too large for {0}")]
    TooLarge(String),
    /// An option is out of its range, or contradicts another one.
    #[error("{0}")]
    BadOption(String),
    /// A feature that the layout does not have, or that this version cannot make.
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
    /// The first byte that making a file system may write to.
    pub fn first_byte(&self) -> u64 {
        match self.keeps_boot_blocks {
            true => BOOT_BLOCK_BYTES,
            false => 0,
        }
    }

    /// The usual values.
    pub fn new(uuid: [u8; 16], hash_seed: [u8; 16], time_seconds: u64) -> Mkfs {
        Mkfs {
            uuid,
            hash_seed,
            revision: 1,
            reserved_percent: 5,
            time_seconds,
            ..Mkfs::default()
        }
    }
}

/// What a journal uses, by the names that dumpe2fs shows; nothing, as mke2fs has it, where it is
/// empty.
pub type JournalFeatures = &'static [&'static str];

/// A journal that was made on a device of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeJournal {
    /// The size of a block.
    pub block_bytes: u32,
    /// Blocks in all.
    pub blocks: u32,
    /// The device's number, by which a file system names it.
    pub uuid: [u8; 16],
}

/// How a journal's device is made.
#[derive(Clone, Debug, Default)]
pub struct MkfsJournal {
    /// How much of the device it takes; all where `None`.
    pub size_bytes: Option<u64>,
    /// 1024, 2048 or 4096, as the file system's; 4096 where `None`.
    pub block_size: Option<u32>,
    /// The label, at most 16 bytes.
    pub label: Vec<u8>,
    /// The UUID, by which a file system names the device.
    pub uuid: [u8; 16],
    /// What the journal uses; nothing, as mke2fs has it.
    pub features: JournalFeatures,
    /// When it is made, in seconds since 1970.
    pub time_seconds: u64,
    /// The device holds nothing but zeros (a new file).
    pub device_is_zero: bool,
}

impl MkfsJournal {
    /// All of a device that may hold anything, in blocks of 4096 bytes, with nothing that mke2fs
    /// would not use.
    pub fn new(uuid: [u8; 16], time_seconds: u64) -> MkfsJournal {
        MkfsJournal {
            uuid,
            time_seconds,
            ..MkfsJournal::default()
        }
    }
}
