//! Undo files: the old contents of what a program is about to overwrite, in the format of
//! e2fsprogs.
//!
//! # The file
//!
//! Blocks of one size: a header, the superblock as it is after the changes, then blocks of keys,
//! each followed by the contents that its keys name. A key says where a stretch lay, how long it
//! is, and its checksum. `docs/FORMAT.md` has every field. `e2undo` applies our files, and we apply
//! those of `e2fsck -z`, `tune2fs -z` and the like.
//!
//! # When
//!
//! [`write()`] gets all changes at once ([`StagedDevice`](crate::StagedDevice)) and returns when
//! the file is whole and on stable storage, its name too. Only then the first byte is overwritten.
//! So after a power cut at any moment the file restores everything. The header is written last: a
//! file that a power cut left incomplete has none, and then nothing has been overwritten.
//!
//! # Which file system
//!
//! `e2undo` compares the superblock with the copy, and refuses if the changes are not finished:
//! after a power cut in the middle of them it needs `-f`. We keep in the header's padding the
//! checksum of every sector that the superblock has in between, so [`UndoFile::fits`] knows those
//! states too.

pub mod raw;
mod reader;
mod writer;

pub use reader::{UndoError, UndoFile};
pub use writer::{Written, needed_bytes, write};

/// Where the superblock is on a device, and how large it is.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;
/// Where its magic is in it. The copy has those bytes inverted, so that no program takes an undo
/// file for a file system.
const SUPERBLOCK_MAGIC: std::ops::Range<usize> = 0x38..0x3a;
/// What a drive writes wholly or not at all.
const SECTOR_BYTES: usize = 512;
/// Blocks of our undo files, and the unit in which old contents are kept.
const BLOCK_BYTES: u64 = 4096;
/// The unit of places in our keys.
const KEY_UNIT_BYTES: u64 = 1024;
/// The longest stretch of one key; e2fsprogs takes 512 blocks at most.
const MOST_STRETCH_BYTES: u64 = 1 << 20;
/// The longest stretch that is read, in blocks.
const MOST_STRETCH_BLOCKS: u64 = 512;

/// Turns a superblock into its copy in the file, and back.
fn disguised(mut superblock: [u8; 1024]) -> [u8; 1024] {
    for byte in &mut superblock[SUPERBLOCK_MAGIC] {
        *byte = !*byte;
    }
    superblock
}
