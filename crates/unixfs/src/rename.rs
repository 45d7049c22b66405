//! Moving names.
//!
//! Within the part of a block that is written at once, both ends change in one patch, so that the
//! move is atomic. Elsewhere the object has both names for a while: link count +1, new name, old
//! name cleared, link count −1, each on the disk no earlier than the one before.

use crate::index::entry_unit;
use backstitch_layout::{
    BlockNumber, Error, InodeNumber, Rename, RenameMode, Step, Structure, Timestamp, flags,
};
use backstitch_ordering::{PatchId, Volume};

use crate::fault::Fault;
use crate::format::{Format, Inode, InodeEditor};
use crate::names::{Place, check_name};
use crate::rules::{Rule, holds, implied, note_by, wait_for, wait_for_all};
use crate::state::UnixFs;
use crate::state::inode::PendingName;
use crate::state::patches::PatchIds;
use backstitch_blocks::block_edit::BlockEdit;
use backstitch_blocks::directory::Found;
use backstitch_blocks::directory::{EntryLayout, HEADER_SIZE, OFFSET_INODE, TYPE_UNKNOWN, entries};

/// A move whose checks have passed.
struct Move<'a, F: Format> {
    from: InodeNumber,
    from_name: &'a [u8],
    old: Found,
    inode: F::Inode,
    to: InodeNumber,
    to_name: &'a [u8],
    /// The name that is replaced, and what it stands for.
    target: Option<(Found, F::Inode)>,
    is_directory: bool,
    /// The removals of names that the directories above its new place had before.
    names_above: Vec<PatchId>,
}

/// How an old name goes.
struct Retired {
    /// Once this is on the disk, the old name is gone.
    gone: PatchId,
    /// From here on recovery keeps the new name where it finds both: a directory's `..` agrees with
    /// it, or the old one is gone.
    new_stays: PatchId,
}

impl Retired {
    /// The patch that writes the new name clears the old one.
    const AT_ONCE: Retired = Retired {
        gone: PatchId::COMMITTED,
        new_stays: PatchId::COMMITTED,
    };
}

impl<F: Format> UnixFs<F> {
    /// Moves a name. Returns the inode that lost its name to the move.
    pub(crate) fn move_name(
        &mut self,
        v: &mut Volume<'_>,
        rename: &Rename<'_>,
        now: Timestamp,
    ) -> Step<Option<InodeNumber>> {
        let special = |name: &[u8]| name == b"." || name == b"..";
        if special(rename.from_name) || special(rename.to_name) {
            return Err(Error::Invalid.into());
        }
        check_name(rename.to_name)?;
        let (from, to) = (rename.from, rename.to);
        let from_parent = self.read_parent(v, from)?;
        let to_parent = self.read_parent(v, to)?;
        let old = self
            .find_in(v, from, &from_parent, rename.from_name)?
            .ok_or(Error::NotFound)?;
        let target = self.find_in(v, to, &to_parent, rename.to_name)?;
        let inode = self.read_named(v, from, old.inode)?;
        if rename.mode == RenameMode::Exchange {
            let target = target.ok_or(Error::NotFound)?;
            self.exchange_names(v, rename, old, target, now)?;
            return Ok(None);
        }
        let target = match target {
            Some(found) => {
                if rename.mode == RenameMode::NoReplace {
                    return Err(Error::Exists.into());
                }
                if found.inode == old.inode {
                    return Ok(None);
                }
                let target = self.read_named(v, to, found.inode)?;
                if to_parent.flags() & flags::APPEND != 0 {
                    return Err(Error::NotPermitted.into());
                }
                self.check_replaceable(v, &inode, &found, &target)?;
                Some((found, target))
            }
            None => None,
        };
        let is_directory = inode.is_directory();
        if is_directory {
            self.check_settled(old.inode)?;
        }
        if inode.flags() & (flags::IMMUTABLE | flags::APPEND) != 0
            || from_parent.flags() & flags::APPEND != 0
        {
            return Err(Error::NotPermitted.into());
        }
        let mut names_above = Vec::new();
        if is_directory && from != to {
            names_above = self.check_not_inside(v, old.inode, to)?;
            if to_parent.links() >= F::LINK_MAX {
                return Err(Error::TooManyLinks.into());
            }
        }
        let place = match &target {
            Some(_) => None,
            None => Some(self.gather_place(v, to, &to_parent, rename.to_name, now)?),
        };
        // A split for the new name may have moved the old one.
        let old = match from == to && place.is_some() && self.can_keep_indexes(v) {
            true => self.find_name(v, from, rename.from_name)?,
            false => Some(old),
        };
        let old = old.ok_or(Error::NotFound)?;
        let dotdot = match is_directory && from != to {
            true => Some(self.find_dotdot(v, old.inode, &inode)?),
            false => None,
        };
        let lost = target.as_ref().map(|(found, _)| found.inode);
        let m = Move {
            from,
            from_name: rename.from_name,
            old,
            inode,
            to,
            to_name: rename.to_name,
            target,
            is_directory,
            names_above,
        };
        self.apply_move(v, m, &to_parent, place, dotdot, now)?;
        Ok(lost)
    }

    fn check_replaceable(
        &mut self,
        v: &mut Volume<'_>,
        inode: &F::Inode,
        found: &Found,
        target: &F::Inode,
    ) -> Step<()> {
        if target.flags() & (flags::IMMUTABLE | flags::APPEND) != 0 {
            return Err(Error::NotPermitted.into());
        }
        match (inode.is_directory(), target.is_directory()) {
            (true, false) => Err(Error::NotADirectory.into()),
            (false, true) => Err(Error::IsADirectory.into()),
            (true, true) => {
                self.check_settled(found.inode)?;
                if !self.is_empty_directory(v, found.inode, target)? {
                    return Err(Error::NotEmpty.into());
                }
                self.check_childless(found.inode, target)
            }
            _ => Ok(()),
        }
    }

    /// Checks that a directory does not move into itself or below. On the disk a directory above
    /// the new place may still have an earlier name, below the directory that moves. Returns the
    /// removals of such names, which must come first: else a crash could leave a circle.
    pub(crate) fn check_not_inside(
        &mut self,
        v: &mut Volume<'_>,
        moved: InodeNumber,
        into: InodeNumber,
    ) -> Step<Vec<PatchId>> {
        let mut at = into;
        let mut names_above = Vec::new();
        // A cycle on a damaged image must not hold us: no path is longer than there are
        // directories.
        for _ in 0..=self.format.inodes_count().min(1 << 20) {
            if at == moved {
                return Err(Error::Invalid.into());
            }
            self.earlier_names_gone(v, at, &mut names_above);
            if at == F::ROOT_INODE {
                return Ok(names_above);
            }
            let inode = self.read_directory_inode(v, at)?;
            at = self.find_dotdot(v, at, &inode)?.inode;
        }
        Err(Error::corrupt(Structure::directory(into), Fault::ParentsNeverEnd).into())
    }

    pub(crate) fn find_dotdot(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
    ) -> Step<Found> {
        let missing = || Error::corrupt(Structure::directory(number), Fault::NoParent);
        let block = self.directory_block(v, inode, 0)?.ok_or_else(missing)?;
        let inodes_count = self.format.inodes_count();
        let bytes = self.entries_part(inode, 0, v.read(block)?);
        let found = entries::<F::Entries>(bytes, inodes_count)
            .map_while(std::result::Result::ok)
            .find(|e| e.name == b".." && e.inode != InodeNumber::NONE)
            .map(|e| Found {
                inode: e.inode,
                block,
                offset: e.offset,
                logical: 0,
            })
            .ok_or_else(missing)?;
        Ok(found)
    }

    fn apply_move(
        &mut self,
        v: &mut Volume<'_>,
        mut m: Move<'_, F>,
        to_parent: &F::Inode,
        place: Option<Place>,
        dotdot: Option<Found>,
        now: Timestamp,
    ) -> Step<()> {
        let number = m.old.inode;
        let edit = self.edit_within_unit(v, &m, place.as_ref());
        let atomic = edit.is_some();
        let mut before_name = Vec::new();
        if let Some((found, target)) = &m.target {
            // The target loses a name to the new one, as to a removal.
            if target.is_directory() {
                let departures = self.departures_of(v, found.inode);
                before_name = wait_for_all(Rule::ReplacingAfterDepartures, &departures).to_vec();
            } else if target.links() > 1 && holds(Rule::ReplacingAfterReach) {
                self.reach_of_another_name(v, target, found, &mut before_name);
            }
        }
        let target_lives_on = !before_name.is_empty();
        let mark = match &m.target {
            Some((found, target)) if target.is_directory() && !atomic => {
                let places = (self.place_of(m.from, &m.old), self.place_of(m.to, found));
                self.mark_replaced(v, (number, &m.inode), places, found.inode)
            }
            _ => None,
        };
        before_name.extend(mark);
        // A program that gives a new file another name, often that of the file it replaces, expects
        // its contents there, flushed or not.
        let contents = self.contents_apart(v, number);
        before_name.extend(contents.map(|c| wait_for(Rule::RenameAfterContents, c)));
        let takes_a_name = m.target.as_ref().is_some_and(|(_, t)| t.is_directory());
        if m.is_directory && (!atomic || takes_a_name) && holds(Rule::MovingAfterEarlierNames) {
            // It may have two names at most. And a mark is about one move: with a third name, from
            // before, recovery could not tell which of them another directory had.
            self.earlier_names_gone(v, number, &mut before_name);
        }
        if !atomic {
            let counted = self.change_inode(v, number, &[], |e| {
                e.set_links(m.inode.links().saturating_add(1));
                e.set_changed(now);
            });
            before_name.push(wait_for(Rule::NewNameAfterCount, counted));
        }
        before_name.extend(wait_for_all(Rule::NewNameAfterNamesAbove, &m.names_above));
        if !holds(Rule::OldNameFollowsNew) {
            before_name.push(self.clear_name(v, m.from, &m.old, &[]));
        }
        let moves = m.is_directory && m.from != m.to;
        if moves && holds(Rule::NewNameAfterPendingOldName) {
            // Until the `..` is rewritten the old name must be there to agree with it: should it
            // not be on the disk yet, it gets there first.
            self.reach_of_pending_name(number, m.old.block, m.old.offset, &mut before_name);
        }
        let replaced = m.target.as_ref().filter(|(_, t)| t.is_directory());
        if let Some((found, _)) = replaced
            && holds(Rule::ReplacingAfterEarlierNames)
        {
            self.earlier_names_gone(v, found.inode, &mut before_name);
        }
        let new_parent_link = moves
            .then(|| self.change_inode(v, m.to, &[], |e| e.set_links(to_parent.links() + 1)))
            .map(|counted| wait_for(Rule::MovedAfterParentLink, counted));
        // `..` comes after the name, and so after the count. But where the name was another
        // directory's, a recovery that finds both names leads `..` to the new parent by itself.
        before_name.extend(new_parent_link);
        let old_block = match &place {
            // The old name may be in the units that move to make room for the new one.
            Some(Place::NewBlock(growth)) if m.from == m.to => growth.place_of(m.old.block),
            _ => m.old.block,
        };
        let pending = match edit {
            Some((edit, offset)) => {
                self.move_within_unit(v, &m, &edit, offset, &before_name, now)?
            }
            None => self.write_new_name(v, &m, place, &before_name, now)?,
        };
        m.old.block = old_block;
        if target_lives_on && holds(Rule::ReplacementIsDeparture) {
            self.note_departure(v, m.to, pending.name);
        }
        self.track_name_removed(m.from, m.old.logical, number, m.is_directory);
        let old_name = self.take_name(number, m.old.block, m.old.offset);
        let mut old = Retired::AT_ONCE;
        if !atomic {
            old = self.retire_old_name(v, &m, &pending, old_name, dotdot, now);
        } else {
            // The patch that writes the new name clears the old one. Should the new name go before
            // it is on the disk, the old one may still be there.
            let cleared = wait_for(Rule::MoveWithinBlockIsClearing, pending.name);
            self.note_clearing(v, number, old_name, cleared);
            self.touch_inode(v, number, |e| e.set_changed(now));
        }
        if let Some((found, target)) = &m.target {
            // The new name overwrites the target's entry: once it is on the disk, the target's name
            // is gone as after a removal.
            let replaced = wait_for(Rule::TargetAfterNewName, pending.name);
            if mark.is_some() {
                self.keep_mark(v, found, replaced, old.gone);
            }
            self.lose_name(v, m.to, found, target, replaced, now);
            if mark.is_some() {
                self.note_mark_gone(v, number, found.inode);
            }
        }
        if m.is_directory && holds(Rule::MovedDirectoryReachIsNoted) {
            self.note_reach(v, number, &pending, old.new_stays);
        }
        self.note_name(v, number, pending);
        Ok(())
    }

    /// Clears the old name, after the new one and a directory's `..`; then drops its links.
    ///
    /// The cleared entry is the second commit point of a rename.
    fn retire_old_name(
        &mut self,
        v: &mut Volume<'_>,
        m: &Move<'_, F>,
        pending: &PendingName,
        old_name: Option<PendingName>,
        dotdot: Option<Found>,
        now: Timestamp,
    ) -> Retired {
        let number = m.old.inode;
        let mut agrees = None;
        let mut before_clearing = self.reach_for_clearing(m, pending);
        if let Some(dotdot) = dotdot {
            let after = [
                wait_for(Rule::DotDotAfterName, pending.name),
                wait_for(Rule::DotDotAfterPointer, pending.pointer),
            ];
            let place = (dotdot.block, dotdot.offset + OFFSET_INODE);
            let parent = F::Entries::encode_inode(m.to);
            let id = self.change_entry(v, number, place, &parent, &after);
            before_clearing.push(wait_for(Rule::OldNameAfterDotDot, id));
            agrees = Some(id);
        }
        let cleared = self.clear_name(v, m.from, &m.old, &before_clearing);
        // One scope is there as a whole, whatever the order in it.
        if v.scopes_are_atomic() {
            implied(Rule::OldNameFollowsNew, || {
                v.goes_with_transaction(cleared) && v.goes_with_transaction(pending.name)
            });
        }
        if holds(Rule::MoveIsRemoval) {
            self.note_removal(v, m.from, m.from_name, cleared);
        }
        if m.from != m.to && holds(Rule::MoveIsDeparture) {
            self.note_departure(v, m.from, cleared);
        }
        self.index_removed(m.from, m.from_name, &m.old);
        let noted = note_by(Rule::FsyncOfDirectoryWaitsForOldName, cleared);
        self.note_change(v, m.from, noted);
        // The new name, and a directory's `..`, are there before the old one is gone.
        let noted = note_by(Rule::FsyncOfTargetWaitsForOldName, cleared);
        self.note_change(v, m.to, noted);
        if holds(Rule::MoveIsClearing) {
            self.note_clearing(v, number, old_name, cleared);
        }
        let after = wait_for(Rule::CountAfterOldName, cleared);
        self.change_inode(v, number, &[after], |e| e.set_links(m.inode.links()));
        if m.is_directory && m.from != m.to {
            // As long as the old name is there it may be the one by which the directory is reached.
            // (The old name goes after the `..`.)
            let after = wait_for(Rule::OldParentLinkAfterOldName, cleared);
            self.drop_parent_link(v, m.from, &[after]);
        }
        self.touch_modified(v, m.from, now);
        Retired {
            gone: cleared,
            new_stays: agrees.unwrap_or(cleared),
        }
    }

    /// What the old name's removal must come after: that the new one is there and, in another
    /// directory, can be reached.
    fn reach_for_clearing(&self, m: &Move<'_, F>, pending: &PendingName) -> Vec<PatchId> {
        let mut after = vec![
            wait_for(Rule::OldNameAfterNew, pending.name),
            wait_for(Rule::OldNameAfterPointer, pending.pointer),
        ];
        // In one directory, the new name can be reached wherever the old one could.
        if m.from != m.to {
            let reach = self.reach_of_directory(m.to);
            after.extend(reach.map(|r| wait_for(Rule::OldNameAfterReach, r)));
        }
        after
    }

    /// The new name, in its own patch: a new entry, or the inode of the one that is replaced.
    ///
    /// The first commit point of a rename: from here on the new name is there.
    fn write_new_name(
        &mut self,
        v: &mut Volume<'_>,
        m: &Move<'_, F>,
        place: Option<Place>,
        after: &[PatchId],
        now: Timestamp,
    ) -> Step<PendingName> {
        let kind = m
            .inode
            .file_type()
            .map_or(TYPE_UNKNOWN, |t| self.type_code(t));
        let Some((found, _)) = &m.target else {
            let parent = self.read_directory_inode(v, m.to)?;
            let Some(place) = place else {
                return Err(Error::Invalid.into());
            };
            return Ok(self.insert_name(
                v,
                m.to,
                &parent,
                place,
                m.to_name,
                (m.old.inode, m.inode.file_type()),
                after,
                now,
            ));
        };
        let name = self.write_header(v, m.to, found, (m.old.inode, kind), after);
        self.track_name_added(m.to, found.logical, m.old.inode, m.is_directory);
        self.touch_modified(v, m.to, now);
        let pointer = self.pointer_of(v, m.to, found.block);
        Ok(PendingName {
            directory: m.to,
            block: found.block,
            offset: found.offset,
            name,
            pointer,
        })
    }

    /// An entry's header with another inode: its first eight bytes.
    pub(crate) fn entry_header(
        &self,
        v: &Volume<'_>,
        found: &Found,
        inode: InodeNumber,
        kind: u8,
    ) -> Vec<u8> {
        let mut bytes = v.peek(found.block).map_or_else(
            || vec![0; 8],
            |b| b[found.offset..found.offset + 8].to_vec(),
        );
        bytes[OFFSET_INODE..OFFSET_INODE + 4].copy_from_slice(&F::Entries::encode_inode(inode));
        if self.format.has_file_types() {
            bytes[F::Entries::OFFSET_FILE_TYPE] = kind;
        }
        bytes
    }

    /// Writes an entry's header with another inode. Where it lies in two units, of which the second
    /// has the type, and the type becomes another one, there is no type for a while: no state shows
    /// a wrong one. (Entries that we make lie in one unit.)
    fn write_header(
        &self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        found: &Found,
        (inode, kind): (InodeNumber, u8),
        after: &[PatchId],
    ) -> PatchId {
        let (block, at) = (found.block, found.offset);
        let header = self.entry_header(v, found, inode, kind);
        if v.is_atomic(at..at + HEADER_SIZE) {
            let place = (block, at + OFFSET_INODE);
            return self.change_entry(v, directory, place, &header, after);
        }
        let at_type = at + F::Entries::OFFSET_FILE_TYPE;
        let is_other = v
            .peek(block)
            .is_some_and(|b| b[at_type] != header[F::Entries::OFFSET_FILE_TYPE]);
        let mut after = after.to_vec();
        if is_other {
            let place = (block, at_type);
            let unknown = self.change_entry(v, directory, place, &[TYPE_UNKNOWN], &[]);
            after.push(wait_for(Rule::TypeUnknownBeforeNumber, unknown));
        }
        let number = &header[OFFSET_INODE..OFFSET_INODE + 4];
        let place = (block, at + OFFSET_INODE);
        let named = self.change_entry(v, directory, place, number, &after);
        match is_other {
            true => {
                let named = wait_for(Rule::TypeAfterNumber, named);
                self.change_entry(v, directory, (block, at_type), &[kind], &[named])
            }
            false => named,
        }
    }

    /// Both ends in one unit: its bytes are worked out, and what differs will be one patch. Returns
    /// that, and where the new name is; `None` where the ends lie apart.
    fn edit_within_unit(
        &self,
        v: &Volume<'_>,
        m: &Move<'_, F>,
        place: Option<&Place>,
    ) -> Option<(BlockEdit<F::Entries>, usize)> {
        let block = match (&m.target, place) {
            (Some((found, _)), _) => found.block,
            (None, Some(Place::Room(room))) => room.block,
            _ => return None,
        };
        if m.from != m.to || block != m.old.block {
            return None;
        }
        let kind = m
            .inode
            .file_type()
            .map_or(TYPE_UNKNOWN, |t| self.type_code(t));
        let mut edit = BlockEdit::new(v.peek(block)?, entry_unit::<F::Entries>(v));
        let offset = match &m.target {
            Some((found, _)) => {
                let header = self.entry_header(v, found, m.old.inode, kind);
                edit.put(found.offset, &header);
                edit.clear_entry(m.old.offset);
                found.offset
            }
            None => {
                edit.clear_entry(m.old.offset);
                edit.add_entry(m.old.inode, kind, m.to_name)?
            }
        };
        let is_one = edit.is_atomic() || !holds(Rule::MoveWithinUnit);
        is_one.then_some((edit, offset))
    }

    /// Writes what [`edit_within_unit`](Self::edit_within_unit) worked out.
    ///
    /// The one patch of both entries is the commit point of the move.
    fn move_within_unit(
        &mut self,
        v: &mut Volume<'_>,
        m: &Move<'_, F>,
        edit: &BlockEdit<F::Entries>,
        offset: usize,
        before: &[PatchId],
        now: Timestamp,
    ) -> Step<PendingName> {
        let parent = self.read_directory_inode(v, m.to)?;
        let mut after = PatchIds::from_iter(self.drop_index(v, m.to, &parent));
        after.extend(self.removal_of(v, m.to, m.to_name));
        after.extend_from_slice(before);
        let name = self.write_edit(v, m.from, m.old.block, edit, &after);
        if holds(Rule::MoveIsRemoval) {
            self.note_removal(v, m.from, m.from_name, name);
        }
        let noted = note_by(Rule::FsyncOfDirectoryWaitsForMove, name);
        self.note_change(v, m.to, noted);
        self.touch_modified(v, m.to, now);
        self.index_removed(m.from, m.from_name, &m.old);
        if m.target.is_none() {
            self.index_added(m.to, m.to_name, m.old.logical, offset);
        }
        self.track_name_added(m.to, m.old.logical, m.old.inode, m.is_directory);
        let pointer = self.pointer_of(v, m.to, m.old.block);
        Ok(PendingName {
            directory: m.to,
            block: m.old.block,
            offset,
            name,
            pointer,
        })
    }

    /// One patch of all that was edited in a directory's block.
    pub(crate) fn write_edit(
        &self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        block: BlockNumber,
        edit: &BlockEdit<F::Entries>,
        after: &[PatchId],
    ) -> PatchId {
        let (offset, bytes) = edit.patch();
        self.change_entry(v, directory, (block, offset), bytes, after)
    }
}
