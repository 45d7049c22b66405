//! The kinds of blocks that all formats have: what seals and diagnostics tell them apart by.
//! Numbers 1 and 2 are left to those that only a format has.

use backstitch_store::BlockKind;

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
