//! What an open ext file system keeps in memory besides what all formats do: plain data.

use backstitch_layout::{BlockNumber, JournalMap};
use std::sync::Arc;

use backstitch_unixfs::{UnixFs, Windows};
use rustc_hash::FxHashMap;

use crate::format::Superblock;
use crate::groups::Groups;
use crate::hashed::HashedDirectories;

/// Attribute blocks by the hash of what they hold, to find one to share.
pub(crate) type SharedBlocks = FxHashMap<u32, BlockNumber>;

/// How an open ext file system looks on the disk.
pub(crate) struct ExtFormat {
    pub(crate) sb: Superblock,
    pub(crate) groups: Groups,
    /// The journal's blocks, where it is among the file system's own.
    pub(crate) journal: Option<Arc<JournalMap>>,
    pub(crate) windows: Windows,
    /// What is known of the indexes of directories on the disk.
    pub(crate) hashed: HashedDirectories,
    pub(crate) shared_blocks: SharedBlocks,
    /// Changes go through the image's journal: what a crash leaves is in that.
    pub(crate) is_journaled: bool,
    /// [`Superblock::max_file_size`], remembered because computing it takes a search.
    pub(crate) max_file_bytes: u64,
}

/// An open ext file system.
pub(crate) type Ext = UnixFs<ExtFormat>;
