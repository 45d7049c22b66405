//! Inodes: reading and changing them on the disk, and what is known of them in memory.

use std::ops::Range;

use backstitch_layout::{
    AccessTimes, Attributes, BlockNumber, Error, FileType, InodeNumber, SetAttributes, Step,
    Structure, Timestamp, flags,
};
use backstitch_ordering::{NewObject, PatchId, Volume};
use smallvec::SmallVec;

use crate::fault::Fault;
use crate::format::{Format, Inode, InodeEditor};
use crate::kinds;
use crate::rules::{Rule, holds, note_by};
use crate::state::UnixFs;
use crate::state::inode::InodeState;

/// Blocks of a window in which inode tables and directories are read ahead.
pub const READ_AHEAD_BLOCKS: u64 = 32;
/// Windows at a time: while one is looked at, the device fetches the next.
const READ_AHEAD_WINDOWS: usize = 4;

/// One patch that stands for several: the only live one, else an empty one. So calls that change
/// nothing, again and again, make none.
fn all_of(v: &mut Volume<'_>, patches: &[PatchId]) -> PatchId {
    let mut live = patches.iter().filter(|id| v.is_live(**id));
    match (live.next(), live.next()) {
        (None, _) => PatchId::COMMITTED,
        (Some(only), None) => *only,
        _ => v.empty(patches),
    }
}

/// A change of an inode's bytes that is to be made.
struct Edited<E> {
    editor: E,
    /// The block of the table, and where in it the first byte that changes is.
    block: BlockNumber,
    at: usize,
    /// The bytes of the inode from the first to the last that changes.
    range: Range<usize>,
    changes_map: bool,
}

impl<E: InodeEditor> Edited<E> {
    fn bytes(&self) -> &[u8] {
        &self.editor.bytes()[self.range.clone()]
    }
}

impl<F: Format> UnixFs<F> {
    pub(crate) fn state(&mut self, inode: InodeNumber) -> &mut InodeState {
        let deferred = &mut self.deferred;
        self.inodes.entry(inode).or_insert_with(|| {
            // Looked at until all of it is on the disk.
            deferred.note_idle(inode);
            Box::new(InodeState::new_idle())
        })
    }

    /// Forgets what is known of an inode.
    pub(crate) fn forget_state(&mut self, inode: InodeNumber) {
        let index = self.inodes.remove(&inode).and_then(|state| state.index);
        self.index_bytes -= index.map_or(0, |index| index.bytes());
    }

    /// An inode as it is, in use or not.
    ///
    /// # Errors
    /// Where its block is missing, or it cannot exist.
    pub fn read_any_inode(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<F::Inode> {
        self.format.read_inode(v, inode)
    }

    /// An inode that is in use (or was until its last name went, while somebody refers to it).
    ///
    /// # Errors
    /// [`Error::NotFound`] for one that is not in use.
    pub fn read_inode(&mut self, v: &mut Volume<'_>, number: InodeNumber) -> Step<F::Inode> {
        let inode = self.read_any_inode(v, number)?;
        if inode.links() == 0 && !self.is_referenced(number) {
            return Err(Error::NotFound.into());
        }
        if inode.file_type().is_none() {
            return Err(Error::corrupt(
                Structure::inode(number),
                Fault::ModeOfNoType { mode: inode.mode() },
            )
            .into());
        }
        Ok(inode)
    }

    /// Changes an inode: one patch over what differs. Where nothing does (of a damaged inode, whose
    /// count of sectors cannot become less though blocks go), the patch returned stands for
    /// `after`. Its block must be in memory.
    pub(crate) fn edit_inode(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        after: &[PatchId],
        edit: impl FnOnce(&mut F::Editor),
    ) -> PatchId {
        self.edit_inode_apart(v, inode, false, after, edit)
    }

    /// As [`edit_inode`](Self::edit_inode); where `is_apart`, kept apart from what else is pending
    /// on the inode's block.
    pub(crate) fn edit_inode_apart(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        is_apart: bool,
        after: &[PatchId],
        edit: impl FnOnce(&mut F::Editor),
    ) -> PatchId {
        let new = self.new_object(v, inode);
        let id = self.edit_inode_by(inode, edit, v, |v, block, at, bytes| match new {
            Some(new) => v.write_into_new(block, kinds::INODES, at, bytes, after, &new),
            None if is_apart => v.write_apart(block, kinds::INODES, at, bytes, after),
            None => v.write(block, kinds::INODES, at, bytes, after),
        });
        id.unwrap_or_else(|| all_of(v, after))
    }

    /// A file that is not on the disk yet, for changes of it under patchgroups. `None` for a
    /// directory: what shows with its name is more than itself.
    pub(crate) fn new_object(&self, v: &Volume<'_>, inode: InodeNumber) -> Option<NewObject> {
        if !v.is_grouped() || v.scopes_are_atomic() {
            return None;
        }
        let state = self.inodes.get(&inode)?;
        let made = state.made.filter(|made| v.is_pending(*made))?;
        let is_file = state.reach.is_none() && !state.names.is_empty();
        is_file.then(|| NewObject {
            made,
            names: state.names.iter().map(|n| n.name).collect(),
        })
    }

    /// Whether nothing on the disk leads to a file, nor will before `edit` is there: its inode is
    /// not on the disk yet, and the change would reach it together with the patch that makes the
    /// inode. Only "yes" is certain.
    pub(crate) fn is_unborn_with(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        after: &[PatchId],
        edit: impl FnOnce(&mut F::Editor),
    ) -> bool {
        let made = self.inodes.get(&inode).and_then(|state| state.made);
        let Some(made) = made.filter(|made| v.is_pending(*made)) else {
            return false;
        };
        match self.edited(v, inode, edit) {
            Some(edited) => v.joins(edited.block, edited.at, edited.bytes(), after, made),
            None => false,
        }
    }

    /// What `edit` changes of an inode; `None` where it changes nothing.
    fn edited(
        &self,
        v: &Volume<'_>,
        inode: InodeNumber,
        edit: impl FnOnce(&mut F::Editor),
    ) -> Option<Edited<F::Editor>> {
        let (block, at) = self.format.inode_place(inode).ok()?;
        let Some(data) = v.peek(block) else {
            debug_assert!(false, "inode {inode} is changed but was not read");
            return None;
        };
        let old = &data[at..at + self.format.inode_bytes()];
        let mut editor = F::Editor::of_inode(old);
        edit(&mut editor);
        let range = editor.differing(old)?;
        Some(Edited {
            block,
            at: at + range.start,
            range,
            changes_map: editor.changes_map(old),
            editor,
        })
    }

    /// Changes an inode by `write`; `None` where nothing of it differs.
    fn edit_inode_by(
        &mut self,
        inode: InodeNumber,
        edit: impl FnOnce(&mut F::Editor),
        v: &mut Volume<'_>,
        write: impl FnOnce(&mut Volume<'_>, BlockNumber, usize, &[u8]) -> PatchId,
    ) -> Option<PatchId> {
        let edited = self.edited(v, inode, edit)?;
        if edited.changes_map {
            self.track_map(inode);
        }
        Some(write(v, edited.block, edited.at, edited.bytes()))
    }

    /// Changes an inode: one patch over what differs, for which `fsync` of the inode waits. Where
    /// nothing differs, the patch returned stands for `after`. Its block must be in memory.
    pub fn change_inode(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        after: &[PatchId],
        edit: impl FnOnce(&mut F::Editor),
    ) -> PatchId {
        self.change_inode_apart(v, inode, false, after, edit)
    }

    /// As [`change_inode`](Self::change_inode); where `is_apart`, kept apart from what else is
    /// pending on the inode's block.
    pub(crate) fn change_inode_apart(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        is_apart: bool,
        after: &[PatchId],
        edit: impl FnOnce(&mut F::Editor),
    ) -> PatchId {
        let id = self.edit_inode_apart(v, inode, is_apart, after, edit);
        self.note_change(v, inode, note_by(Rule::FsyncWaitsForInode, id));
        id
    }

    /// Changes nothing but times, as somebody asked for.
    fn set_times(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        edit: impl FnOnce(&mut F::Editor),
    ) {
        let id = self.edit_inode(v, inode, &[], edit);
        self.note_time_change(v, inode, id);
    }

    /// Changes nothing but times, because something else has changed.
    pub(crate) fn touch_inode(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        edit: impl FnOnce(&mut F::Editor),
    ) {
        let id = self.edit_inode_by(inode, edit, v, |v, block, at, bytes| {
            v.write_implied_times(block, kinds::INODES, at, bytes)
        });
        if let Some(id) = id {
            self.note_time_change(v, inode, id);
        }
    }

    fn note_time_change(&mut self, v: &Volume<'_>, inode: InodeNumber, id: PatchId) {
        if v.is_live(id) {
            self.state(inode).time_changes.push(v, id);
        }
    }

    /// Notes in an inode's times that its contents changed.
    pub(crate) fn touch_modified(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        now: Timestamp,
    ) {
        self.touch_inode(v, inode, |e| {
            e.set_modified(now);
            e.set_changed(now);
        });
    }

    /// Notes a change that `fsync` of the inode waits for.
    pub fn note_change(&mut self, v: &Volume<'_>, inode: InodeNumber, id: PatchId) {
        if v.is_live(id) {
            self.state(inode).changes.push(v, id);
        }
    }

    /// Writes a new inode over whatever was there.
    pub(crate) fn initialise_inode(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        after: &[PatchId],
        now: Timestamp,
        fill: impl FnOnce(&F, &mut F::Editor),
    ) -> PatchId {
        let Ok((block, at)) = self.format.inode_place(number) else {
            return PatchId::COMMITTED;
        };
        let size = self.format.inode_bytes();
        let mut editor = self.format.new_inode();
        editor.set_accessed(now);
        editor.set_modified(now);
        editor.set_changed(now);
        editor.set_created(now);
        fill(&self.format, &mut editor);
        let mut bytes = SmallVec::<[u8; 256]>::from_slice(editor.bytes());
        bytes.resize(size, 0);
        // Nothing leads to it: its name comes after it.
        v.hidden(true, |v| match self.keeps_apart(v) {
            true => v.write_apart(block, kinds::INODES, at, &bytes, after),
            false => v.write(block, kinds::INODES, at, &bytes, after),
        })
    }

    pub(crate) fn show_attributes(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
    ) -> Step<Attributes> {
        let inode = self.read_inode(v, number)?;
        let file_type = inode.file_type().ok_or(Error::NotFound)?;
        let died = self.died(number);
        let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharacterDevice);
        Ok(Attributes {
            inode: number,
            generation: inode.generation(),
            file_type,
            permissions: inode.mode() & 0o7777,
            links: died.map_or(inode.links().into(), |_| 0),
            uid: inode.uid(),
            gid: inode.gid(),
            device_number: if is_device { inode.device_number() } else { 0 },
            size_bytes: inode.size(),
            sectors: inode.sectors(),
            block_size_bytes: self.format.block_size(),
            accessed: inode.accessed(),
            modified: inode.modified(),
            changed: died.map_or(inode.changed(), |died| died.max(inode.changed())),
            created: inode.created(),
            flags: inode.flags() & flags::VISIBLE,
        })
    }

    pub(crate) fn change_attributes(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        set: &SetAttributes,
        now: Timestamp,
    ) -> Step<()> {
        let inode = self.read_inode(v, number)?;
        let only_flags = SetAttributes {
            flags: set.flags,
            ..SetAttributes::default()
        };
        if inode.flags() & flags::IMMUTABLE != 0 && *set != only_flags {
            return Err(Error::NotPermitted.into());
        }
        let lost = flags::SETTABLE & !F::FLAGS_KEPT;
        if set.flags.is_some_and(|wanted| wanted & lost != 0) {
            return Err(Error::NotSupported.into());
        }
        let acl = match set.permissions {
            Some(permissions) => F::gather_permissions(self, v, (number, &inode), permissions)?,
            None => None,
        };
        if let Some(size) = set.size_bytes {
            self.resize(v, number, &inode, size, now)?;
        }
        if let Some(acl) = acl {
            F::apply_attributes(self, v, number, acl, now);
        }
        let only_times = set.permissions.is_none()
            && set.uid.is_none()
            && set.gid.is_none()
            && set.flags.is_none();
        let edit = |e: &mut F::Editor| {
            if let Some(permissions) = set.permissions {
                e.set_mode(inode.mode() & 0o170_000 | permissions & 0o7777);
            }
            set.uid.inspect(|uid| e.set_owner(*uid));
            set.gid.inspect(|gid| e.set_group(*gid));
            set.accessed.inspect(|t| e.set_accessed(*t));
            set.modified.inspect(|t| e.set_modified(*t));
            set.flags.inspect(|wanted| {
                e.set_flags(inode.flags() & !flags::SETTABLE | wanted & flags::SETTABLE);
            });
            e.set_changed(now);
        };
        if only_times {
            self.set_times(v, number, edit);
        } else if set.flags.is_some() && !holds(Rule::FsyncWaitsForFlags) {
            self.edit_inode(v, number, &[], edit);
        } else {
            self.change_inode(v, number, &[], edit);
        }
        Ok(())
    }

    /// Moves the access time of an inode that was read.
    pub(crate) fn note_read(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        rule: AccessTimes,
        now: Timestamp,
    ) -> Step<()> {
        const DAY_SECONDS: i64 = 86_400;
        let inode = self.read_inode(v, number)?;
        let accessed = inode.accessed();
        let stale = rule == AccessTimes::Strict
            || accessed <= inode.modified()
            || accessed <= inode.changed()
            || accessed.seconds + DAY_SECONDS <= now.seconds;
        if stale && inode.flags() & flags::NOATIME == 0 {
            self.touch_inode(v, number, |e| e.set_accessed(now));
        }
        Ok(())
    }

    /// When the last name of an inode went, where the disk does not tell that yet.
    pub(crate) fn died(&self, inode: InodeNumber) -> Option<Timestamp> {
        self.inodes.get(&inode).and_then(|state| state.died)
    }

    /// Whether somebody above refers to an inode.
    pub(crate) fn is_referenced(&self, inode: InodeNumber) -> bool {
        self.references.any_to(inode)
    }

    /// Forgets what is known of an inode of which everything is on the disk, whether somebody
    /// refers to it or not: the kernel remembers as many as it likes. Only a directory that
    /// somebody refers to is kept for its index, within a bound. False where something is still
    /// under way.
    pub(crate) fn forget_if_idle(&mut self, v: &Volume<'_>, number: InodeNumber) -> bool {
        self.prune_names(v, number);
        let is_referenced = self.is_referenced(number);
        let Some(state) = self.inodes.get_mut(&number) else {
            return true;
        };
        if state.is_under_way(v) {
            return false;
        }
        if is_referenced && state.index.is_some() {
            if !std::mem::replace(&mut state.is_kept, true) {
                self.deferred.note_kept(number);
            }
            return true;
        }
        self.forget_state(number);
        if !is_referenced {
            self.format.drop_window(number);
        }
        true
    }
}

/// Asks ahead for the windows from `first` on that begin before `end`.
pub fn want_ahead(v: &mut Volume<'_>, first: BlockNumber, end: BlockNumber) {
    let starts = first.up_to(end).step_by(READ_AHEAD_BLOCKS as usize);
    for start in starts.take(READ_AHEAD_WINDOWS) {
        v.want_soon(start, READ_AHEAD_BLOCKS.min(end - start));
    }
}
