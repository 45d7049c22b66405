//! What of an inode is under way to the disk, and what must be there before its name can be found.

use backstitch_layout::{BlockNumber, InodeNumber};
use backstitch_ordering::{PatchId, Volume};
use smallvec::SmallVec;

use crate::format::Format;
use crate::rules::{Rule, holds, note_by, wait_for, wait_for_all};
use crate::state::UnixFs;
use crate::state::inode::PendingName;

impl<F: Format> UnixFs<F> {
    /// Appends what must be on the disk for the inode to be there: its changes, and for each name
    /// that is not on the disk yet, what makes it reachable.
    pub(crate) fn collect_sync_targets(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
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
    pub(crate) fn reach_of_directory(&self, directory: InodeNumber) -> Option<PatchId> {
        self.inodes.get(&directory).and_then(|d| d.reach)
    }

    /// Appends everything that a name needs to be reachable.
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
    pub(crate) fn note_name(&mut self, v: &mut Volume<'_>, inode: InodeNumber, name: PendingName) {
        self.prune_names(v, inode);
        self.state(inode).names.push(name);
        self.note_reached(v, inode);
    }

    /// What was done under a patchgroup is there once it can be found: its tail comes after the
    /// names of the inode that was changed, and after what leads to its contents.
    pub(crate) fn note_reached(&self, v: &mut Volume<'_>, inode: InodeNumber) {
        let Some(state) = self.inodes.get(&inode).filter(|_| v.is_grouped()) else {
            return;
        };
        let mut by = Vec::new();
        for name in &state.names {
            self.reach_of_name(name, &mut by);
        }
        by.extend(state.reach);
        let shown = [state.extended, state.lengthened].into_iter().flatten();
        let shown: SmallVec<[PatchId; 2]> = shown.collect();
        by.extend(wait_for_all(Rule::GroupAfterShownContents, &shown));
        v.reached_by(&by);
    }

    pub(crate) fn prune_names(&mut self, v: &Volume<'_>, inode: InodeNumber) {
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
        inode: InodeNumber,
        block: BlockNumber,
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
        inode: InodeNumber,
        block: BlockNumber,
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
