//! What is known in memory of one inode: what of it is under way to the disk.

use backstitch_layout::{BlockNumber, InodeNumber, Timestamp};
use backstitch_ordering::{PatchId, Volume};
use smallvec::SmallVec;

use super::patches::PatchList;
use super::recent::Recent;
use crate::rules::{Rule, holds};
use backstitch_blocks::directory_index::DirectoryIndex;

/// A name whose way to the disk is not over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingName {
    pub(crate) directory: InodeNumber,
    /// The directory's block that holds it, and where in it.
    pub(crate) block: BlockNumber,
    pub(crate) offset: usize,
    /// The patch that writes it.
    pub(crate) name: PatchId,
    /// The patch that makes that block part of the directory, where it is new.
    pub(crate) pointer: PatchId,
}

/// What is known in memory of one inode.
#[derive(Debug, Default)]
pub(crate) struct InodeState {
    /// It is in the queue of those that may soon be forgotten.
    pub(crate) is_idle: bool,
    /// It is in the queue of those that are kept for their index.
    pub(crate) is_kept: bool,
    /// The patch that made the inode, while it has not reached the disk.
    pub(crate) made: Option<PatchId>,
    /// The patch that freed the inode: it has no name any more.
    pub(crate) freed: Option<PatchId>,
    /// When its last name went, where the disk does not tell that yet.
    pub(crate) died: Option<Timestamp>,
    /// The freed inode was never alive on the disk, and never will be.
    pub(crate) never_alive: bool,
    /// It was made without a name, and has had none since.
    pub(crate) is_unnamed: bool,
    /// Removed names that are still on the disk, or may be.
    pub(crate) clearings: Vec<PatchId>,
    pub(crate) names: SmallVec<[PendingName; 1]>,
    /// Changes that fsync must wait for; of those that only change times, fdatasync need not.
    pub(crate) changes: PatchList,
    pub(crate) time_changes: PatchList,
    /// Of a directory: stands for its own name and everything that makes that reachable.
    pub(crate) reach: Option<PatchId>,
    pub(crate) index: Option<Box<DirectoryIndex>>,
    names_in: Option<Box<NamesIn>>,
    /// The patch of the contents written last: more of them may join it.
    pub(crate) run: Option<PatchId>,
    /// Zeroing the kept part of the last block after truncations, each of its units by itself: what
    /// makes the file longer must come after all of it.
    pub(crate) tail_zeroed: PatchList,
    /// Where in the file the first of these zeros begin, in bytes. Once a later cut has taken their
    /// blocks away, the file has a hole there, and nothing waits for them.
    pub(crate) tail_zeroed_from: u64,
    /// The patch that filled a hole in its last block without making the file longer. A growth by
    /// bytes of that block must come after it.
    pub(crate) end_filled: Option<PatchId>,
    /// The last patch of the inode that came with blocks unmapped: a smaller size comes after all
    /// of them.
    pub(crate) unmapped: Option<PatchId>,
    /// The last patch that added blocks, and the last one that made the file longer without: what
    /// is written into the blocks that it has shows once both are on the disk. Each comes after the
    /// earlier ones of its kind, since both change one field.
    pub(crate) extended: Option<PatchId>,
    pub(crate) lengthened: Option<PatchId>,
    /// The last patch that made the file shorter: until it is on the disk the file may be longer
    /// there.
    pub(crate) shrunk: Option<PatchId>,
    /// It has its new size, and blocks behind it: a step of a truncation was done, and not the
    /// last. The disk lists it.
    pub(crate) is_truncating: bool,
    /// Where the next block of contents would best go; 0 where nothing is known.
    pub(crate) goal: BlockNumber,
    /// Blocks were added to it before.
    pub(crate) has_grown: bool,
    /// The last patch that leads to contents of it, where that is not on the disk yet and is not
    /// the patch that made the inode. It comes after the earlier ones.
    pub(crate) apart: Option<PatchId>,
    /// Blocks were added behind an indirect block that was there before, and nobody has flushed it
    /// since.
    pub(crate) is_appended: bool,
}

/// What is under way in a directory.
#[derive(Debug, Default)]
pub(crate) struct NamesIn {
    /// Blocks that are not part of it on the disk yet.
    pub(crate) new_blocks: Recent,
    /// The places that units of it went to. The disk shows them where they were until the patch, the
    /// pointer, is there.
    pub(crate) moved_units: Recent,
    /// Names that were removed (by their hashes) and may still be on the disk.
    pub(crate) removed: Recent,
    /// Removals of names whose inodes live on elsewhere. Its own name stays on the disk until they
    /// are there, or a crash would leave an inode whose only name cannot be reached.
    pub(crate) departures: PatchList,
}

impl InodeState {
    /// Of an inode that nothing is known of: in the queue of those that may soon be forgotten.
    pub(crate) fn new_idle() -> InodeState {
        InodeState {
            is_idle: true,
            ..InodeState::default()
        }
    }

    /// Of a directory: what is under way in it, if anything is.
    pub(crate) fn names_in(&self) -> Option<&NamesIn> {
        self.names_in.as_deref()
    }

    /// Whether anything of it is not on the disk, or may still be that should not. (Nobody asks
    /// about a freed one.)
    pub(crate) fn is_under_way(&self, v: &Volume<'_>) -> bool {
        // What zeroes the file's tail, fills its end or unmaps blocks is among the changes. So is
        // what is under way in a directory, or what comes after it: a new block's pointer and size,
        // a name's removal, what takes a moved name's place.
        let known = [
            self.end_filled,
            self.unmapped,
            self.extended,
            self.lengthened,
        ];
        debug_assert!(
            backstitch_rules::watch::off().is_some()
                || self.changes.any_live(v)
                || !self.tail_zeroed.any_live(v)
                    && known.iter().flatten().all(|id| !v.is_live(*id))
                    && self.names_in().is_none_or(|names| !names.any_live(v))
        );
        let is_reach_live = self
            .reach
            .is_some_and(|id| v.is_live_by(Rule::RememberedWhileReached, id));
        let is_other = self.is_truncating
            || !self.names.is_empty() && holds(Rule::RememberedWhileNamed)
            || self.made.is_some_and(|made| v.is_live(made))
            || self.changes.any_live(v) && holds(Rule::RememberedWhileChanged)
            || self.time_changes.any_live(v);
        // While it cannot be reached, its name is among `names`.
        backstitch_rules::implied(Rule::RememberedWhileReached, || is_other || !is_reach_live);
        // Asked last: mostly the count that comes after a removal is among the changes. Not so of a
        // directory that replaced another one: that the other is gone is no change of it.
        is_other
            || is_reach_live
            || (self.clearings.iter()).any(|c| v.is_live_by(Rule::RememberedWhileCleared, *c))
    }

    /// Of a directory: what is under way in it, to be changed.
    pub(crate) fn names_in_mut(&mut self) -> &mut NamesIn {
        self.names_in.get_or_insert_default()
    }
}

impl NamesIn {
    fn any_live(&self, v: &Volume<'_>) -> bool {
        self.new_blocks.any_live(v)
            || self.moved_units.any_live(v)
            || self.removed.any_live(v)
            || self.departures.any_live(v)
    }
}
