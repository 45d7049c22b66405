//! The kinds of blocks: what seals and diagnostics tell them apart by.

use backstitch_store::BlockKind;

/// A superblock.
pub const SUPERBLOCK: BlockKind = BlockKind::metadata(1);
/// A block of group descriptors.
pub const DESCRIPTORS: BlockKind = BlockKind::metadata(2);
/// A bitmap of blocks or of inodes.
pub const BITMAP: BlockKind = BlockKind::metadata(3);
/// A block of an inode table.
pub const INODES: BlockKind = BlockKind::metadata(4);
/// An indirect block.
pub const INDIRECT: BlockKind = BlockKind::metadata(5);
/// An attribute block.
pub const ATTRIBUTES: BlockKind = BlockKind::metadata(6);
/// A symbolic link's target, where it is as much a part of the tree as a name.
pub const TARGET: BlockKind = BlockKind::metadata(7);
/// A directory's block.
pub const DIRECTORY: BlockKind = BlockKind::directory(8);
