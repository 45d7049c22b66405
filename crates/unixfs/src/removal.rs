//! Removing names, and what goes with the last one.

use backstitch_layout::{BlockNumber, Error, InodeNumber, Step, Structure, Timestamp, flags};
use backstitch_ordering::{PatchId, Volume};

use crate::fault::Fault;
use crate::format::DIRECT_POINTERS;
use crate::format::{Format, Inode, InodeEditor};
use crate::rules::{Rule, holds, implied, note_by, wait_for, wait_for_all};
use crate::state::UnixFs;
use crate::state::inode::PendingName;
use backstitch_blocks::directory::Found;
use backstitch_blocks::directory::{NAME_MAX_BYTES, OFFSET_INODE};

impl<F: Format> UnixFs<F> {
    /// Takes a name away: a file's, or an empty directory's.
    pub(crate) fn remove_name(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        of_directory: bool,
        now: Timestamp,
    ) -> Step<InodeNumber> {
        if name == b"." || name == b".." {
            return Err(if of_directory && name == b".." {
                Error::NotEmpty.into()
            } else {
                Error::Invalid.into()
            });
        }
        if name.len() > NAME_MAX_BYTES {
            return Err(Error::NameTooLong.into());
        }
        let parent = self.read_parent(v, directory)?;
        let found = self
            .find_in(v, directory, &parent, name)?
            .ok_or(Error::NotFound)?;
        let target = self.read_named(v, directory, found.inode)?;
        match (of_directory, target.is_directory()) {
            (true, false) => return Err(Error::NotADirectory.into()),
            (false, true) => return Err(Error::IsADirectory.into()),
            _ => {}
        }
        if target.flags() & (flags::IMMUTABLE | flags::APPEND) != 0
            || parent.flags() & flags::APPEND != 0
        {
            return Err(Error::NotPermitted.into());
        }
        if of_directory {
            self.check_settled(found.inode)?;
        }
        if of_directory && !self.is_empty_directory(v, found.inode, &target)? {
            return Err(Error::NotEmpty.into());
        }
        if of_directory {
            self.check_childless(found.inode, &target)?;
        }
        let mut after = Vec::new();
        if of_directory {
            let departures = self.departures_of(v, found.inode);
            after.extend_from_slice(wait_for_all(Rule::ClearingAfterDepartures, &departures));
        } else if target.links() > 1 && holds(Rule::ClearingAfterOtherReach) {
            self.reach_of_another_name(v, &target, &found, &mut after);
        }
        if of_directory && holds(Rule::ClearingAfterEarlierNames) {
            self.earlier_names_gone(v, found.inode, &mut after);
        }
        if !holds(Rule::CountFollowsClearing) {
            let links = target.links().saturating_sub(1);
            after.push(self.change_inode(v, found.inode, &[], |e| e.set_links(links)));
        }
        let cleared = self.clear_name(v, directory, &found, &after);
        if !after.is_empty() && holds(Rule::RemovalIsDeparture) {
            self.note_departure(v, directory, cleared);
        }
        self.name_removed(v, directory, name, &found, cleared, now);
        self.lose_name(v, directory, &found, &target, cleared, now);
        Ok(found.inode)
    }

    /// What a directory knows of a name that was cleared in it.
    fn name_removed(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        found: &Found,
        cleared: PatchId,
        now: Timestamp,
    ) {
        self.index_removed(directory, name, found);
        if holds(Rule::RemovalOfReplacementIsNoted) || !self.is_as_written(v, found, cleared) {
            self.note_removal(v, directory, name, cleared);
        }
        let noted = note_by(Rule::FsyncOfDirectoryWaitsForRemoval, cleared);
        self.note_change(v, directory, noted);
        self.touch_modified(v, directory, now);
    }

    /// Whether a name and its removal are one patch. Even so the entry may be on the disk, with the
    /// inode that the name stood for before.
    fn is_as_written(&self, v: &Volume<'_>, found: &Found, cleared: PatchId) -> bool {
        let names = self.inodes.get(&found.inode).map_or(&[][..], |s| &s.names);
        let pending = names
            .iter()
            .find(|n| (n.block, n.offset) == (found.block, found.offset));
        pending.is_some_and(|n| v.merged(n.name, cleared))
    }

    /// The inode that a name stands for; it must be in use.
    pub(crate) fn read_named(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        inode: InodeNumber,
    ) -> Step<F::Inode> {
        let target = self.read_any_inode(v, inode)?;
        if target.links() == 0 || target.file_type().is_none() {
            return Err(Error::corrupt(
                Structure::directory(directory),
                Fault::NameOfFree { inode },
            )
            .into());
        }
        Ok(target)
    }

    /// Clears a name of a directory on the disk: its entry becomes unused.
    ///
    /// The cleared entry is the commit point of a removal.
    pub(crate) fn clear_name(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        found: &Found,
        after: &[PatchId],
    ) -> PatchId {
        let place = (found.block, found.offset + OFFSET_INODE);
        self.change_entry(v, directory, place, &[0; 4], after)
    }

    /// An inode lost a name, its link to `directory` with it: its link count, and the inode itself
    /// if that was the last one.
    pub(crate) fn lose_name(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        found: &Found,
        target: &F::Inode,
        cleared: PatchId,
        now: Timestamp,
    ) {
        let number = found.inode;
        self.track_name_removed(directory, found.logical, number, target.is_directory());
        let pending = self.take_name(number, found.block, found.offset);
        self.note_clearing(v, number, pending, cleared);
        if target.is_directory() || target.links() <= 1 {
            self.track_last_name(number, target.is_directory());
            if F::CLEARS_FREED && !v.scopes_are_atomic() && !target.is_directory() {
                self.let_die(v, number, now);
                return;
            }
            let freed = self.free_inode(v, number, now);
            if target.is_directory() {
                let too_early = !holds(Rule::NamesGoWithInode);
                names_go_with(v, target, if too_early { cleared } else { freed });
                // With the inode goes its `..`.
                let after = wait_for(Rule::ParentLinkAfterFreeing, freed);
                self.drop_parent_link(v, directory, &[after]);
            }
            return;
        }
        // Every name that went before may still be on the disk, and this count is without them.
        let clearings = self.state(number).clearings.clone();
        let after = wait_for_all(Rule::CountAfterClearings, &clearings);
        // A patchgroup need not wait for a count that is too high: what can be seen is that the
        // name goes.
        let counted = v.hidden(true, |v| {
            self.change_inode(v, number, after, |e| {
                e.set_links(target.links() - 1);
                e.set_changed(now);
            })
        });
        // One scope is there as a whole, whatever the order in it.
        if v.scopes_are_atomic() {
            implied(Rule::CountFollowsClearing, || {
                v.goes_with_transaction(counted) && v.goes_with_transaction(cleared)
            });
        }
    }

    /// Remembers that a name of the inode is gone once `cleared` is on the disk, unless it never
    /// got there.
    pub(crate) fn note_clearing(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        name: Option<PendingName>,
        cleared: PatchId,
    ) {
        // What waits for it is in the same transaction, or in a later one.
        if v.scopes_are_atomic() {
            implied(Rule::ClearingCountsUnlessMerged, || v.is_in_log(cleared));
        }
        let never_on_disk = name
            .is_some_and(|n| v.merged(n.name, cleared) || !holds(Rule::ClearingCountsUnlessMerged));
        let state = self.state(inode);
        state.clearings.retain(|c| v.is_live(*c));
        if !never_on_disk {
            state.clearings.push(cleared);
        }
    }

    /// A subdirectory's `..` no longer counts.
    pub(crate) fn drop_parent_link(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        after: &[PatchId],
    ) {
        if let Ok(parent) = self.read_any_inode(v, directory) {
            self.change_inode(v, directory, after, |e| {
                e.set_links(parent.links().saturating_sub(1))
            });
        }
    }

    /// The last name went: the inode is marked as deleted once no name of it is left on the disk.
    /// What it has is freed when the last reference goes.
    pub(crate) fn free_inode(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        now: Timestamp,
    ) -> PatchId {
        let clearings = std::mem::take(&mut self.state(number).clearings);
        let after = wait_for_all(Rule::FreeingAfterClearings, &clearings);
        // The list of orphans goes on in the same field.
        let is_listed = self.orphans.contains(&number) && holds(Rule::ListedKeepTheirLink);
        let edit = |e: &mut F::Editor| {
            e.set_links(0);
            if !is_listed {
                e.set_deleted(Some(now));
            }
            e.set_changed(now);
        };
        let is_apart = self.keeps_apart(v);
        // No name leads to it any more.
        let freed = v.hidden(true, |v| {
            self.change_inode_apart(v, number, is_apart, after, edit)
        });
        let state = self.state(number);
        state.never_alive = state
            .made
            .is_some_and(|made| v.merged(made, freed) || !holds(Rule::NeverAliveOnlyIfMerged));
        state.freed = Some(freed);
        state.names.clear();
        self.index_bytes -= state.index.take().map_or(0, |index| index.bytes());
        self.format.forget_directory(number);
        if !self.is_referenced(number) {
            self.deferred.note_dead(number);
        }
        freed
    }

    /// The last name of a file went whose inode will be [cleared](Format::CLEARS_FREED): once the
    /// last reference goes, in one change, after the clearings of its names. Until then the inode
    /// stays as it is, which a crash may leave anyway, and only memory knows that it has no name.
    fn let_die(&mut self, v: &Volume<'_>, number: InodeNumber, now: Timestamp) {
        let state = self.state(number);
        let unborn = state
            .made
            .filter(|made| v.is_pending(*made) && state.clearings.is_empty());
        state.never_alive = unborn.is_some();
        state.freed = unborn.or(Some(PatchId::COMMITTED));
        state.died = Some(now);
        state.names.clear();
        if !self.is_referenced(number) {
            self.deferred.note_dead(number);
        }
    }
}

/// The names that were removed from a directory are gone with the directory itself: its blocks need
/// not be written again for them. What waits for that, their inodes above all, waits for the
/// directory's inode instead.
fn names_go_with(v: &mut Volume<'_>, directory: &impl Inode, freed: PatchId) {
    for block in (0..DIRECT_POINTERS).map(|index| directory.pointer(index)) {
        if block != BlockNumber::NONE {
            v.supersede(block, freed);
        }
    }
}
