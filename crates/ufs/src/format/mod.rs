//! The on-disk format of UFS1 and UFS2, byte by byte, and nothing else: no I/O, no allocation
//! policy, no patches.
//!
//! One file per on-disk structure. Each has the *raw* structure first, with the field names of
//! FreeBSD's headers and numbers in the order of this machine; then a *validated* one that the rest
//! of the crate works with. Parsing never panics and never trusts: what an image says is checked
//! once, here, and arithmetic on it is checked.
//!
//! A file system has the byte order of the machine that made it. [`ByteOrder`] is a value that the
//! superblock's magic number tells; raw structures are decoded and encoded with it.
//!
//! Numbers: an address is that of a *fragment*, a `u64`; a *block* is up to eight fragments, and
//! begins at a multiple of as many. Inodes and groups are `u32`. Sizes are in bytes unless a name
//! says otherwise.

pub mod attributes;
pub mod directory;
pub mod fault;
pub mod group;
pub mod inode;
pub mod log_record;
pub mod order;
pub mod record;
pub mod summary;
pub mod superblock;

use backstitch_layout::InodeNumber;

pub use backstitch_layout::FormatError;
pub use group::{CylinderGroup, GroupHeader, RawCylinderGroup};
pub use inode::{Inode, RawInode1, RawInode2};
pub use log_record::LogRecord;
pub use order::{ByteOrder, OnDisk};
pub use record::MountRecord;
pub use summary::{RawSummary, RawSummaryTotal};
pub use superblock::{RawSuperblock, Superblock, Version};

/// The inode that removed names were once kept in; marked as used in group 0, as inode 0 is.
pub const WHITEOUT_INODE: InodeNumber = InodeNumber(1);
/// The root directory's inode.
pub const ROOT_INODE: InodeNumber = InodeNumber(2);
/// The most names that an inode may have.
pub const LINK_MAX: u16 = 32_767;
/// The longest name in a directory, in bytes.
pub const NAME_MAX_BYTES: usize = 255;
/// The bytes of a disk's sector, in which inodes count their space.
pub const SECTOR_BYTES: u64 = 512;

/// This is something else, or nothing.
pub fn not_ufs(what: String) -> FormatError {
    FormatError::NotAFileSystem {
        wanted: "a UFS",
        what,
    }
}
