//! From a file's blocks to the disk's.
//!
//! How a file's blocks are mapped is the business of its [`BlockMap`], of which there are two: the
//! tree of pointers that ext2 and ext3 have (`indirect`), and extents (`extents`), which ext4 has
//! and we only read. An inode's flags tell which one it has. All that reads files, directories and
//! links goes through [`Ext::map_blocks`] and knows of neither.

mod block_map;
mod cut;
mod extents;
mod growth;
mod indirect;

use backstitch_layout::{Error, Result};
use backstitch_ordering::Volume;

use crate::format::Inode;
use crate::state::Ext;
use crate::state::runs::Run;
use block_map::BlockMap;
use extents::Extents;
use indirect::Pointers;

pub(crate) use block_map::{ChangeableMap, Mapped};
pub(crate) use cut::{Cut, Owner};
pub(crate) use growth::{Growth, Moved, Moves};
pub(crate) use indirect::entry_at;

impl Ext {
    /// What a file's blocks from `logical` on are mapped to, at most `max` of them: one run of
    /// either kind.
    pub(crate) fn map_blocks(
        &self,
        v: &mut Volume<'_>,
        inode: &Inode,
        logical: u64,
        max: u64,
    ) -> Result<Mapped> {
        match inode.has_extents(&self.sb.features) {
            true => Extents { fs: self, inode }.map(v, logical, max),
            false => Pointers { fs: self, inode }.map(v, logical, max),
        }
    }

    /// The map of a file that is changed: an image with extents is mounted read-only.
    pub(crate) fn changeable_map<'m>(&'m self, inode: &'m Inode) -> Pointers<'m> {
        debug_assert!(!inode.has_extents(&self.sb.features));
        Pointers { fs: self, inode }
    }

    /// A pointer that may be followed, or 0.
    pub(crate) fn checked_pointer(&self, block: u32) -> Result<u64> {
        let block = u64::from(block);
        if block == 0 {
            return Ok(block);
        }
        self.checked_block(block)
    }

    /// A block of a map, or one that it leads to, that may be a file's.
    fn checked_block(&self, block: u64) -> Result<u64> {
        if self.is_data_run(Run {
            start: block,
            len: 1,
        }) {
            return Ok(block);
        }
        Err(Error::corrupt(
            "block map",
            format!("block {block} is outside of the file system or belongs to its metadata"),
        ))
    }

    /// A run of a file's blocks.
    fn checked_run(&self, run: Run) -> Result<Run> {
        if self.is_data_run(run) {
            return Ok(run);
        }
        Err(Error::corrupt(
            "block map",
            format!(
                "blocks {}..{} are outside of the file system or its metadata",
                run.start,
                run.end()
            ),
        ))
    }
}
