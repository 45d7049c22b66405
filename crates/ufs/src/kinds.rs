//! The kinds of blocks, by which seals and diagnostics tell blocks apart.

use backstitch_store::BlockKind;

pub use backstitch_unixfs::kinds::{DIRECTORY, INDIRECT, INODES, TARGET};

/// A superblock.
pub const SUPERBLOCK: BlockKind = BlockKind::metadata(1);
/// The summary array.
pub const SUMMARY: BlockKind = BlockKind::metadata(2);
/// A cylinder group's header and maps.
pub const GROUP: BlockKind = backstitch_unixfs::kinds::BITMAP;
