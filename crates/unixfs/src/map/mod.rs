//! From a file's blocks to the disk's.
//!
//! How a file's blocks are mapped is the business of its [`BlockMap`]. The one that files are
//! written with is the tree of direct, indirect, double and triple indirect pointers that all
//! formats of this family have (`indirect`); a format may have another one, which is read and
//! never changed ([`Format::foreign_map`]). All that reads files, directories and links goes through
//! [`UnixFs::map_blocks`] and knows of neither.

mod block_map;
mod cut;
mod growth;
mod indirect;

use backstitch_layout::Step;
use backstitch_ordering::Volume;

use crate::format::Format;
use crate::state::UnixFs;
use backstitch_blocks::runs::{Mapped, Run};
use block_map::BlockMap;
use indirect::Pointers;

pub use growth::Growth;

pub(crate) use block_map::ChangeableMap;
pub(crate) use cut::{Cut, Owner};
pub(crate) use growth::{Links, Moved, Moves};

impl<F: Format> UnixFs<F> {
    /// What a file's blocks from `logical` on are mapped to, at most `max` of them: one run of
    /// either kind.
    pub(crate) fn map_blocks(
        &self,
        v: &mut Volume<'_>,
        inode: &F::Inode,
        logical: u64,
        max: u64,
    ) -> Step<Mapped> {
        match self.format.foreign_map(v, inode, logical, max) {
            Some(mapped) => mapped,
            None => Pointers { fs: self, inode }.map(v, logical, max),
        }
    }

    /// All blocks that an inode's pointers lead to, indirect ones among them.
    ///
    /// # Errors
    /// Where one is missing, or cannot be a file's.
    pub fn runs_of(&self, v: &mut Volume<'_>, inode: &F::Inode) -> Step<Vec<Run>> {
        let map = self.changeable_map(inode);
        Ok(map.plan_cut(v, 0..self.blocks_max(), Owner::Freed)?.freed)
    }

    /// The map of a file that is changed: nobody changes one that only the format knows.
    pub(crate) fn changeable_map<'m>(&'m self, inode: &'m F::Inode) -> Pointers<'m, F> {
        Pointers { fs: self, inode }
    }
}
