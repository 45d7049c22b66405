//! The kinds of blocks: what seals and diagnostics tell them apart by.

use backstitch_store::BlockKind;

pub use backstitch_unixfs::kinds::{ATTRIBUTES, BITMAP, DIRECTORY, INDIRECT, INODES, TARGET};

/// A superblock.
pub const SUPERBLOCK: BlockKind = BlockKind::metadata(1);
/// A block of group descriptors.
pub const DESCRIPTORS: BlockKind = BlockKind::metadata(2);
