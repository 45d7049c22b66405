//! Which names can be reached on the disk, and what must be there before one may go: no inode with
//! a name may ever be without one that can be reached.

use backstitch_layout::{BlockNumber, InodeNumber};
use backstitch_ordering::{PatchId, Volume};

use crate::format::{Format, Inode};
use crate::kinds;
use crate::rules::{Rule, holds, implied, wait_for};
use crate::state::UnixFs;
use crate::state::inode::PendingName;
use crate::state::patches::PatchIds;
use backstitch_blocks::directory::Found;
use backstitch_blocks::directory_index::hash;

impl<F: Format> UnixFs<F> {
    /// Remembers that a name is gone from a directory once `cleared` is on the disk.
    pub(crate) fn note_removal(
        &mut self,
        v: &Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        cleared: PatchId,
    ) {
        if !holds(Rule::RemovalIsNoted) {
            return;
        }
        let names = self.state(directory).names_in_mut();
        names.removed.add(v, hash(name), cleared);
    }

    /// A name whose inode lives on elsewhere is gone from a directory once `cleared` is on the
    /// disk.
    pub(crate) fn note_departure(
        &mut self,
        v: &Volume<'_>,
        directory: InodeNumber,
        cleared: PatchId,
    ) {
        let names = self.state(directory).names_in_mut();
        names.departures.push(v, cleared);
    }

    /// What must be on the disk before an empty directory may lose its name.
    pub(crate) fn departures_of(&self, v: &Volume<'_>, directory: InodeNumber) -> Vec<PatchId> {
        let names = self.inodes.get(&directory).and_then(|s| s.names_in());
        let all = names.into_iter().flat_map(|n| n.departures.iter());
        all.filter(|p| v.is_live(*p)).collect()
    }

    /// What must be on the disk before a name is there (again), or a crash could leave the
    /// directory with two entries of that name: the removal of the earlier one.
    pub(crate) fn removal_of(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
    ) -> Option<PatchId> {
        let names = self.inodes.get(&directory)?.names_in()?;
        let found = names.removed.find(v, hash(name))?;
        // (Under `writeback` the removal may stand for contents as well, which no name waits for.)
        if v.scopes_are_atomic() {
            implied(Rule::NameAfterEarlierRemoval, || v.is_in_log(found));
        }
        (holds(Rule::NameAfterEarlierRemoval)).then_some(found)
    }

    /// A block is part of a directory once `pointer` is on the disk.
    pub fn note_new_block(
        &mut self,
        v: &Volume<'_>,
        directory: InodeNumber,
        block: BlockNumber,
        pointer: PatchId,
    ) {
        let names = self.state(directory).names_in_mut();
        names.new_blocks.add(v, block.0, pointer);
    }

    /// The patch that makes a block part of its directory, while that is not on the disk.
    pub(crate) fn pointer_of(
        &mut self,
        v: &Volume<'_>,
        directory: InodeNumber,
        block: BlockNumber,
    ) -> PatchId {
        let names = self.inodes.get(&directory).and_then(|s| s.names_in());
        let pointer = names.and_then(|n| n.new_blocks.find(v, block.0));
        pointer.unwrap_or(PatchId::COMMITTED)
    }

    /// Changes a name that a directory has in a block: once the patch is on the disk nothing there
    /// shows the name as it was.
    pub(crate) fn change_entry(
        &self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        (block, offset): (BlockNumber, usize),
        bytes: &[u8],
        after: &[PatchId],
    ) -> PatchId {
        let mut after = PatchIds::from_slice(after);
        let names = self.inodes.get(&directory).and_then(|s| s.names_in());
        let moved = names.and_then(|names| names.moved_units.find(v, block.0));
        after.extend(moved.map(|pointer| wait_for(Rule::EntryAfterMovedPointer, pointer)));
        v.write(block, kinds::DIRECTORY, offset, bytes, &after)
    }

    /// From now on `directory` is reachable once this name of it is, and after `stays`: from then
    /// on no recovery takes that name away and keeps an earlier one.
    pub(crate) fn note_reach(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &PendingName,
        stays: PatchId,
    ) {
        let mut of = Vec::new();
        self.reach_of_name(name, &mut of);
        of.push(wait_for(Rule::ReachOutlastsRecovery, stays));
        let reach = v.empty(&of);
        self.state(directory).reach = Some(reach);
    }

    /// What the removal of a directory's name must come after: that its earlier names are gone,
    /// because its `..` agrees with none of them.
    pub(crate) fn earlier_names_gone(
        &self,
        v: &Volume<'_>,
        directory: InodeNumber,
        after: &mut Vec<PatchId>,
    ) {
        if let Some(state) = self.inodes.get(&directory) {
            after.extend(state.clearings.iter().filter(|c| v.is_live(**c)));
        }
    }

    /// What the removal of one of several names must come after: that another one is reachable.
    /// Nothing where one of the others is not pending: that one is on the disk.
    pub(crate) fn reach_of_another_name(
        &mut self,
        v: &Volume<'_>,
        target: &F::Inode,
        found: &Found,
        after: &mut Vec<PatchId>,
    ) {
        self.prune_names(v, found.inode);
        let Some(state) = self.inodes.get(&found.inode) else {
            return;
        };
        let others: Vec<PendingName> = state
            .names
            .iter()
            .filter(|n| (n.block, n.offset) != (found.block, found.offset))
            .copied()
            .collect();
        // A crash leaves link counts that are too high: until the reclaim is over, a count does not
        // prove that a name is on the disk.
        let is_another_there =
            others.len() + 1 < usize::from(target.links()) && self.reclaim.is_none();
        if !is_another_there && let Some(other) = others.first() {
            self.reach_of_name(other, after);
        }
    }
}
