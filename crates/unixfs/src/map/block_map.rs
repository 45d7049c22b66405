//! What every kind of map can be asked.

use std::ops::Range;

use backstitch_layout::Step;
use backstitch_ordering::{PatchId, Volume};

use super::cut::{Cut, Owner};
use super::growth::{Growth, Links};
use crate::state::patches::PatchIds;
use backstitch_blocks::runs::Mapped;

/// The map of a file's blocks, to be read.
pub(crate) trait BlockMap {
    /// What the file's blocks from `logical` on are mapped to, at most `max` of them: one run of
    /// either kind.
    ///
    /// # Errors
    ///
    /// [`Miss`](backstitch_layout::Stop::Miss) where blocks of the map are missing; [`Corrupt`](backstitch_layout::Error::Corrupt) for a map that leads
    /// where no file's blocks are, or to itself.
    fn map(&self, v: &mut Volume<'_>, logical: u64, max: u64) -> Step<Mapped>;
}

/// A map that can also be changed, in two halves: a plan, which may miss blocks and changes nothing,
/// and what it gives ([`Cut`], [`Links`]), which cannot fail.
pub(crate) trait ChangeableMap: BlockMap {
    /// How many blocks of its own the map needs for a run of new blocks at a hole.
    fn blocks_needed(&self, v: &mut Volume<'_>, logical: u64, len: u64) -> Step<usize>;

    /// What links the run of a growth to the file; `data` are the patches of its blocks. Appends to
    /// `before_inode` what the inode's change must wait for because of pointers in it. All blocks
    /// of the map were looked up before: it cannot fail.
    fn link(
        &self,
        v: &mut Volume<'_>,
        growth: &Growth,
        data: &[PatchId],
        before_inode: &mut PatchIds,
    ) -> Links;

    /// One more than the last mapped block before block `below`; 0 where nothing is mapped. In a
    /// freed inode, whose blocks from `below` on are free already, nothing is looked at that may
    /// belong to others by now.
    fn end(&self, v: &mut Volume<'_>, below: u64) -> Step<u64>;

    /// What has to change so that a part of the file is mapped to nothing.
    fn plan_cut(&self, v: &mut Volume<'_>, part: Range<u64>, owner: Owner) -> Step<Cut>;
}
