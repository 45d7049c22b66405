//! The on-disk format of ext2, byte by byte, and nothing else: no I/O, no allocation policy, no
//! patches.
//!
//! One file per on-disk structure. Each has the *raw* structure first, with the field names that
//! the kernel's headers use, little-endian and without padding, its size and offsets asserted by
//! tests; then a *validated* one that the rest of the crate works with. Parsing never panics and
//! never trusts: what an image says is checked once, here, and arithmetic on it is checked.
//!
//! Numbers: inodes and groups have types of their own.
//! Sizes are in bytes unless a name says otherwise.

use backstitch_layout::InodeNumber;
pub use backstitch_unixfs::{bitmap, replaced};
pub mod directory;
pub mod extent;
pub mod fault;
pub mod features;
pub mod group;
pub mod htree;
pub mod inode;
pub mod log_record;
pub mod posix_acl;
pub mod record;
pub mod superblock;
pub mod xattr;

pub use backstitch_layout::FormatError;
pub use directory::DirectoryError;
pub use features::Features;
pub use group::{GroupDescriptor, RawGroupDescriptor};
pub use inode::{Inode, RawInode, RawInodeExtra};
pub use record::MountRecord;
pub use superblock::{RawSuperblock, Superblock};

/// The inode that lists bad blocks.
pub const BAD_BLOCKS_INODE: InodeNumber = InodeNumber(1);
/// The root directory's inode.
pub const ROOT_INODE: InodeNumber = InodeNumber(2);
/// The inode that holds the descriptor blocks kept for growing the file system.
pub const RESIZE_INODE: InodeNumber = InodeNumber(7);
/// The journal's inode (ext3).
pub const JOURNAL_INODE: InodeNumber = InodeNumber(8);
/// The first inode that files may have in a revision 0 file system; also mke2fs's choice for
/// revision 1.
pub const GOOD_OLD_FIRST_INODE: InodeNumber = InodeNumber(11);
/// The inode of the file that a log of ours is in, where mkfs makes one: the first one behind
/// lost+found.
pub const FIRST_LOG_INODE: InodeNumber = InodeNumber(GOOD_OLD_FIRST_INODE.0 + 1);
/// The size of an inode in a revision 0 file system.
pub const GOOD_OLD_INODE_SIZE: u16 = 128;
/// The longest name in a directory.
pub const NAME_MAX_BYTES: usize = 255;
/// The most names that the kernel's ext2 gives an inode; its ext4 and e2fsck allow 65,000.
pub const LINK_MAX: u16 = 32_000;

/// The error for a device that holds something else than ext2, or nothing.
pub fn not_ext2(what: String) -> FormatError {
    FormatError::NotAFileSystem {
        wanted: "an ext2",
        what,
    }
}
