//! What of an inode is under way to the disk, and what must be there before its name can be found.

use backstitch_ordering::{PatchId, Volume};
use smallvec::SmallVec;

use crate::index::DirectoryIndex;
use crate::layout::Ext;
use crate::recent::Recent;
use crate::rules::{Rule, holds, note_by, wait_for};

/// A name whose way to the disk is not over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingName {
    pub(crate) directory: u32,
    /// The directory's block that holds it, and where in it.
    pub(crate) block: u64,
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
    /// The freed inode was never alive on the disk, and never will be.
    pub(crate) never_alive: bool,
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
    /// Zeroing the kept part of the last block after a truncation: what makes the file longer must
    /// come after it.
    pub(crate) tail_zeroed: Option<PatchId>,
    /// Its last block was a hole that this filled, without making the file longer: what does, by
    /// bytes of that block, must come after it.
    pub(crate) end_filled: Option<PatchId>,
    /// The last patch of the inode that came with blocks unmapped: a smaller size comes after all
    /// of them.
    pub(crate) unmapped: Option<PatchId>,
    /// The last patch that made the file shorter: until it is on the disk the file may be longer
    /// there.
    pub(crate) shrunk: Option<PatchId>,
    /// It has its new size, and blocks behind it: a step of a truncation was done, and not the
    /// last. The disk lists it.
    pub(crate) is_truncating: bool,
    /// Where the next block of contents would best go; 0 where nothing is known.
    pub(crate) goal: u64,
    /// Blocks were added to it before.
    pub(crate) has_grown: bool,
    /// The last patch that leads to contents of it, where one that is not on the disk yet is
    /// another one than that which made it: it comes after the earlier ones.
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

    /// Whether anything of it is not on the disk, or may still be that should not.
    pub(crate) fn is_under_way(&self, v: &Volume<'_>) -> bool {
        // What zeroes the file's tail, fills its end or unmaps blocks is among the changes. So is
        // what is under way in a directory, or what comes after it: a new block's pointer and size,
        // a name's removal, what takes a moved name's place.
        let known = [self.tail_zeroed, self.end_filled, self.unmapped];
        debug_assert!(
            backstitch_rules::watch::off().is_some()
                || self.changes.any_live(v)
                || known.iter().flatten().all(|id| !v.is_live(*id))
                    && self.names_in().is_none_or(|names| !names.any_live(v))
        );
        let is_reach_live = self
            .reach
            .is_some_and(|id| v.is_live_by(Rule::RememberedWhileReached, id));
        let is_other = self.freed.is_some()
            || self.is_truncating
            || !self.names.is_empty() && holds(Rule::RememberedWhileNamed)
            || self.made.is_some_and(|made| v.is_live(made))
            || (self.clearings.iter()).any(|c| v.is_live_by(Rule::RememberedWhileCleared, *c))
            || self.changes.any_live(v) && holds(Rule::RememberedWhileChanged)
            || self.time_changes.any_live(v);
        // While its name cannot be reached that is among its names.
        backstitch_rules::implied(Rule::RememberedWhileReached, || is_other || !is_reach_live);
        is_other || is_reach_live
    }

    /// Of a directory: what is under way in it, to be changed.
    pub(crate) fn names_in_mut(&mut self) -> &mut NamesIn {
        self.names_in.get_or_insert_default()
    }
}

impl NamesIn {
    fn any_live(&self, v: &Volume<'_>) -> bool {
        self.new_blocks.any_live(v) || self.removed.any_live(v) || self.departures.any_live(v)
    }
}

/// Patches that somebody may want to wait for. What has committed leaves as the list grows.
#[derive(Debug, Default)]
pub(crate) struct PatchList {
    ids: SmallVec<[PatchId; 2]>,
    prune_at: usize,
}

impl PatchList {
    pub(crate) fn push(&mut self, v: &Volume<'_>, id: PatchId) {
        if self.ids.last() == Some(&id) || id == PatchId::COMMITTED {
            return;
        }
        if self.ids.len() >= self.prune_at.max(16) {
            self.ids
                .retain(|id| v.is_live_by(Rule::ChangesKeptWhileLive, *id));
            self.prune_at = self.ids.len() * 2;
        }
        self.ids.push(id);
    }

    pub(crate) fn any_live(&self, v: &Volume<'_>) -> bool {
        self.ids.iter().any(|id| v.is_live(*id))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = PatchId> + '_ {
        self.ids.iter().copied()
    }
}

impl Ext {
    /// What must be on the disk for the inode to be: its changes, and for every name that is not
    /// yet, what makes it reachable.
    pub(crate) fn collect_sync_targets(
        &mut self,
        v: &mut Volume<'_>,
        inode: u32,
        data_only: bool,
        targets: &mut Vec<PatchId>,
    ) {
        let Some(state) = self.inodes.get(&inode) else {
            return;
        };
        if holds(Rule::FsyncWaitsForChanges) {
            targets.extend(state.changes.iter());
        }
        if !data_only && holds(Rule::FsyncWaitsForTimes) {
            targets.extend(state.time_changes.iter());
        }
        for name in &state.names {
            targets.push(note_by(Rule::FsyncWaitsForName, name.name));
            targets.push(note_by(Rule::FsyncWaitsForPointer, name.pointer));
            let reach = self.reach_of_directory(name.directory);
            targets.extend(reach.map(|r| note_by(Rule::FsyncWaitsForReach, r)));
        }
        targets.retain(|t| v.is_live(*t) && holds(Rule::FsyncWaits));
    }

    /// What makes a directory's own name reachable, where that is not on the disk yet.
    pub(crate) fn reach_of_directory(&self, directory: u32) -> Option<PatchId> {
        self.inodes.get(&directory).and_then(|d| d.reach)
    }

    /// Everything that a name needs to be reachable.
    pub(crate) fn reach_of_name(&self, name: &PendingName, into: &mut Vec<PatchId>) {
        into.extend([
            name.name,
            wait_for(Rule::ReachIncludesPointer, name.pointer),
        ]);
        let parents = self.reach_of_directory(name.directory);
        into.extend(parents.map(|p| wait_for(Rule::ReachIncludesParents, p)));
    }

    fn is_name_pending(&self, v: &Volume<'_>, name: &PendingName) -> bool {
        v.is_live_by(Rule::NameIsPendingUntilWritten, name.name)
            || v.is_live_by(Rule::NameIsPendingUntilPointer, name.pointer)
            || self
                .reach_of_directory(name.directory)
                .is_some_and(|r| v.is_live_by(Rule::NameIsPendingUntilReach, r))
    }

    /// Remembers a name until it is reachable on the disk.
    pub(crate) fn note_name(&mut self, v: &mut Volume<'_>, inode: u32, name: PendingName) {
        self.prune_names(v, inode);
        self.state(inode).names.push(name);
        self.note_reached(v, inode);
    }

    /// What was done under a patchgroup is there once it can be found: its tail comes after the
    /// names of the inode that was changed.
    pub(crate) fn note_reached(&self, v: &mut Volume<'_>, inode: u32) {
        let Some(state) = self.inodes.get(&inode).filter(|_| v.is_grouped()) else {
            return;
        };
        let mut by = Vec::new();
        for name in &state.names {
            self.reach_of_name(name, &mut by);
        }
        by.extend(state.reach);
        v.reached_by(&by);
    }

    pub(crate) fn prune_names(&mut self, v: &Volume<'_>, inode: u32) {
        let Some(state) = self.inodes.get(&inode) else {
            return;
        };
        if state.names.iter().all(|n| self.is_name_pending(v, n)) {
            return;
        }
        let pending: SmallVec<[PendingName; 1]> = state
            .names
            .iter()
            .filter(|n| self.is_name_pending(v, n))
            .copied()
            .collect();
        self.state(inode).names = pending;
    }

    /// What makes a name reachable, where it is not on the disk yet.
    pub(crate) fn reach_of_pending_name(
        &self,
        inode: u32,
        block: u64,
        offset: usize,
        into: &mut Vec<PatchId>,
    ) {
        let names = self.inodes.get(&inode).map_or(&[][..], |s| &s.names);
        if let Some(name) = names
            .iter()
            .find(|n| n.block == block && n.offset == offset)
        {
            self.reach_of_name(name, into);
        }
    }

    /// Takes a name out of the list of those that are not on the disk yet.
    pub(crate) fn take_name(
        &mut self,
        inode: u32,
        block: u64,
        offset: usize,
    ) -> Option<PendingName> {
        let state = self.inodes.get_mut(&inode)?;
        let at = state
            .names
            .iter()
            .position(|n| n.block == block && n.offset == offset)?;
        Some(state.names.swap_remove(at))
    }
}
