//! Inodes: reading and changing them on the disk, and what is known of them in memory.

use std::ops::Range;

use backstitch_layout::{
    Attributes, Error, FileType, InodeNumber, Result, SetAttributes, Timestamp,
};
use backstitch_ordering::{BlockClass, NewObject, PatchId, Volume};
use smallvec::SmallVec;

use crate::format::Inode;
use crate::format::inode::{self, BASE_SIZE, encode_time, offset};
use crate::index::DirectoryIndex;
use crate::layout::Ext;
use crate::planted::{Planted, planted, unless};
use crate::recent::Recent;

/// How much of an inode an editor can change: the base and the extra fields, whatever the inode's size.
const EDITABLE: usize = 256;

/// The bytes of an inode that change whenever its map does: from its block count to its last pointer.
const MAP_FIELDS: Range<usize> = offset::BLOCKS..offset::pointer(inode::POINTERS);

/// Blocks of inode tables and of directories are read ahead in windows of so many.
pub(crate) const READ_AHEAD_BLOCKS: u64 = 32;
/// So many windows at a time: while one is looked at, the device fetches the next.
const READ_AHEAD_WINDOWS: usize = 4;

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
    /// Zeroing the kept part of the last block after a truncation: what makes the file longer must come after it.
    pub(crate) tail_zeroed: Option<PatchId>,
    /// Its last block was a hole that this filled, without making the file longer: what does, by bytes of that block, must come after it.
    pub(crate) end_filled: Option<PatchId>,
    /// The last patch of the inode that came with blocks unmapped: a smaller size comes after all of them.
    pub(crate) unmapped: Option<PatchId>,
    /// The last patch that made the file shorter: until it is on the disk the file may be longer there.
    pub(crate) shrunk: Option<PatchId>,
    /// It has its new size, and blocks behind it: a step of a truncation was done, and not the last. The disk lists it.
    pub(crate) is_truncating: bool,
    /// Where the next block of contents would best go; 0 where nothing is known.
    pub(crate) goal: u64,
    /// Blocks were added to it before.
    pub(crate) has_grown: bool,
    /// What leads to its first contents stands apart from what made it.
    pub(crate) is_apart: bool,
    /// Blocks were added behind an indirect block that was there before, and nobody has flushed it since.
    pub(crate) is_appended: bool,
}

/// What stands for patches: the only one that is left of them, else an empty one. Whoever changes nothing again and again makes none.
fn all_of(v: &mut Volume<'_>, patches: &[PatchId]) -> PatchId {
    let mut live = patches.iter().filter(|id| v.is_live(**id));
    match (live.next(), live.next()) {
        (None, _) => PatchId::COMMITTED,
        (Some(only), None) => *only,
        _ => v.empty(patches),
    }
}

/// What is under way in a directory.
#[derive(Debug, Default)]
pub(crate) struct NamesIn {
    /// Blocks that are not part of it on the disk yet.
    pub(crate) new_blocks: Recent,
    /// Names that were removed (by their hashes) and may still be on the disk.
    pub(crate) removed: Recent,
    /// Removals of names whose inodes live on elsewhere. Its own name stays on the disk until they are there, or a crash would leave
    /// an inode whose only name cannot be reached.
    pub(crate) departures: PatchList,
}

impl InodeState {
    /// Of a directory: what is under way in it, if anything is.
    pub(crate) fn names_in(&self) -> Option<&NamesIn> {
        self.names_in.as_deref()
    }

    /// Of a directory: what is under way in it, to be changed.
    pub(crate) fn names_in_mut(&mut self) -> &mut NamesIn {
        self.names_in.get_or_insert_default()
    }
}

impl NamesIn {
    fn any_live(&mut self, v: &Volume<'_>) -> bool {
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
            self.ids.retain(|id| v.is_live(*id));
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

/// A change of an inode's bytes that is to be made.
struct Edited {
    editor: InodeEditor,
    /// The block of the table, and where in it the first byte that changes is.
    block: u64,
    at: usize,
    /// The bytes of the inode from the first to the last that changes.
    range: Range<usize>,
    changes_map: bool,
}

impl Edited {
    fn bytes(&self) -> &[u8] {
        &self.editor.bytes[self.range.clone()]
    }
}

/// Changes fields of an inode; [`Ext::edit_inode`] makes one patch of what differs afterwards.
pub(crate) struct InodeEditor {
    bytes: [u8; EDITABLE],
    len: usize,
    extra_end: usize,
}

impl InodeEditor {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn set_mode(&mut self, mode: u16) {
        self.put(offset::MODE, &mode.to_le_bytes());
    }

    pub(crate) fn set_owner(&mut self, uid: u32) {
        self.put(offset::UID, &(uid as u16).to_le_bytes());
        self.put(offset::UID_HIGH, &((uid >> 16) as u16).to_le_bytes());
    }

    pub(crate) fn set_group(&mut self, gid: u32) {
        self.put(offset::GID, &(gid as u16).to_le_bytes());
        self.put(offset::GID_HIGH, &((gid >> 16) as u16).to_le_bytes());
    }

    pub(crate) fn set_size(&mut self, size: u64) {
        self.put(offset::SIZE, &(size as u32).to_le_bytes());
        if u16::from_le_bytes([self.bytes[offset::MODE], self.bytes[offset::MODE + 1]]) & 0o170_000
            == 0o100_000
        {
            self.put(offset::SIZE_HIGH, &((size >> 32) as u32).to_le_bytes());
        }
    }

    pub(crate) fn set_links(&mut self, links: u16) {
        self.put(offset::LINKS, &links.to_le_bytes());
    }

    pub(crate) fn set_sectors(&mut self, sectors: u32) {
        self.put(offset::BLOCKS, &sectors.to_le_bytes());
    }

    pub(crate) fn set_flags(&mut self, flags: u32) {
        self.put(offset::FLAGS, &flags.to_le_bytes());
    }

    pub(crate) fn set_version(&mut self, version: u32) {
        self.put(offset::VERSION, &version.to_le_bytes());
    }

    pub(crate) fn set_dtime(&mut self, seconds: u32) {
        self.put(offset::DTIME, &seconds.to_le_bytes());
    }

    pub(crate) fn set_pointer(&mut self, index: usize, block: u32) {
        self.put(offset::pointer(index), &block.to_le_bytes());
    }

    pub(crate) fn set_inline(&mut self, bytes: &[u8]) {
        self.put(offset::BLOCK, bytes);
    }

    pub(crate) fn set_generation(&mut self, generation: u32) {
        self.put(offset::GENERATION, &generation.to_le_bytes());
    }

    pub(crate) fn set_attribute_block(&mut self, block: u32) {
        self.put(offset::FILE_ACL, &block.to_le_bytes());
    }

    fn set_time(&mut self, low_at: usize, extra_at: usize, time: Timestamp) {
        let has_extra = extra_at + 4 <= self.extra_end;
        let (low, extra) = encode_time(time, has_extra);
        self.put(low_at, &low.to_le_bytes());
        if has_extra {
            self.put(extra_at, &extra.to_le_bytes());
        }
    }

    pub(crate) fn set_accessed(&mut self, time: Timestamp) {
        self.set_time(offset::ATIME, offset::ATIME_EXTRA, time);
    }

    pub(crate) fn set_modified(&mut self, time: Timestamp) {
        self.set_time(offset::MTIME, offset::MTIME_EXTRA, time);
    }

    pub(crate) fn set_changed(&mut self, time: Timestamp) {
        self.set_time(offset::CTIME, offset::CTIME_EXTRA, time);
    }

    fn set_created(&mut self, time: Timestamp) {
        if offset::CRTIME + 4 <= self.extra_end {
            self.set_time(offset::CRTIME, offset::CRTIME_EXTRA, time);
        }
    }

    /// The bytes behind the extra fields: attributes in the inode's body.
    pub(crate) fn body(&mut self) -> &mut [u8] {
        let from = self.extra_end.min(self.len);
        &mut self.bytes[from..self.len]
    }
}

impl Ext {
    pub(crate) fn state(&mut self, inode: u32) -> &mut InodeState {
        let deferred = &mut self.deferred;
        self.inodes.entry(inode).or_insert_with(|| {
            // Looked at until all of it is on the disk.
            deferred.note_idle(inode);
            Box::new(InodeState {
                is_idle: true,
                ..InodeState::default()
            })
        })
    }

    /// Forgets what is known of an inode.
    pub(crate) fn forget_state(&mut self, inode: u32) {
        let index = self.inodes.remove(&inode).and_then(|state| state.index);
        self.index_bytes -= index.map_or(0, |index| index.bytes());
    }

    /// The block and the offset of an inode.
    pub(crate) fn inode_place(&self, inode: u32) -> Result<(u64, usize)> {
        if !self.sb.is_valid_inode(inode) {
            return Err(Error::corrupt(
                format!("inode {inode}"),
                format!("the numbers end at {}", self.sb.inodes_count),
            ));
        }
        let group = self.sb.group_of_inode(inode) as usize;
        let (block, at) = self.sb.inode_position(inode);
        Ok((self.groups.list[group].inode_table + block, at))
    }

    /// An inode as it is, in use or not.
    pub(crate) fn read_any_inode(&mut self, v: &mut Volume<'_>, inode: u32) -> Result<Inode> {
        let (block, at) = self.inode_place(inode)?;
        let size = self.sb.inode_size as usize;
        let Ok(data) = v.read(block) else {
            self.want_neighbours(v, inode, block);
            return Err(Error::Miss);
        };
        let bytes = &data[at..at + size];
        Inode::parse(bytes).map_err(|e| Error::corrupt(format!("inode {inode}"), e.to_string()))
    }

    /// A block of an inode table is missing: who looks at one file of a directory looks at the others too, and their inodes are near.
    #[cold]
    fn want_neighbours(&self, v: &mut Volume<'_>, inode: u32, block: u64) {
        let table = self.groups.list[self.sb.group_of_inode(inode) as usize].inode_table;
        let len = u64::from(self.sb.inode_table_blocks);
        let first = (block - table) / READ_AHEAD_BLOCKS * READ_AHEAD_BLOCKS;
        want_ahead(v, table + first, table + len);
    }

    /// An inode that is in use (or was until its last name went, while somebody refers to it).
    pub(crate) fn read_inode(&mut self, v: &mut Volume<'_>, number: u32) -> Result<Inode> {
        let inode = self.read_any_inode(v, number)?;
        if inode.links == 0 && !self.is_referenced(number) {
            return Err(Error::NotFound);
        }
        if inode.file_type().is_none() {
            return Err(Error::corrupt(
                format!("inode {number}"),
                format!("mode {:#o} is of no file type", inode.mode),
            ));
        }
        Ok(inode)
    }

    /// Changes an inode: one patch over what differs. Where nothing does (of a damaged inode, whose count of sectors cannot become less
    /// though blocks go), what is returned stands for what the change would have come after. Its block must be in memory.
    pub(crate) fn edit_inode(
        &mut self,
        v: &mut Volume<'_>,
        inode: u32,
        after: &[PatchId],
        edit: impl FnOnce(&mut InodeEditor),
    ) -> PatchId {
        let new = self.new_object(v, inode);
        let id = self.edit_inode_by(inode, edit, v, |v, block, at, bytes| match new {
            Some(new) => v.write_into_new(block, at, bytes, after, &new),
            None => v.write(block, BlockClass::Metadata, at, bytes, after),
        });
        id.unwrap_or_else(|| all_of(v, after))
    }

    /// A file that is not on the disk yet, for the patchgroups that something is done to it under. Not a directory: what shows with that is
    /// more than itself.
    pub(crate) fn new_object(&self, v: &Volume<'_>, inode: u32) -> Option<NewObject> {
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

    /// Whether nothing on the disk leads to a file, nor will before `edit` is there: its inode is not on the disk yet, and the change would
    /// reach it together with the patch that makes the inode. Only "yes" is certain.
    pub(crate) fn is_unborn_with(
        &mut self,
        v: &mut Volume<'_>,
        inode: u32,
        after: &[PatchId],
        edit: impl FnOnce(&mut InodeEditor),
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

    /// What of an inode `edit` changes, if it changes anything.
    fn edited(
        &self,
        v: &Volume<'_>,
        inode: u32,
        edit: impl FnOnce(&mut InodeEditor),
    ) -> Option<Edited> {
        let (block, at) = self.inode_place(inode).ok()?;
        let len = (self.sb.inode_size as usize).min(EDITABLE);
        let Some(data) = v.peek(block) else {
            debug_assert!(false, "inode {inode} is changed but was not read");
            return None;
        };
        let old = &data[at..at + len];
        let mut editor = InodeEditor {
            bytes: [0; EDITABLE],
            len,
            extra_end: extra_end(old),
        };
        editor.bytes[..len].copy_from_slice(old);
        edit(&mut editor);
        let (first, last) = differing(&editor.bytes[..len], old)?;
        Some(Edited {
            block,
            at: at + first,
            range: first..last + 1,
            changes_map: editor.bytes[MAP_FIELDS] != old[MAP_FIELDS],
            editor,
        })
    }

    /// Changes an inode by `write`; `None` where nothing of it differs.
    fn edit_inode_by(
        &mut self,
        inode: u32,
        edit: impl FnOnce(&mut InodeEditor),
        v: &mut Volume<'_>,
        write: impl FnOnce(&mut Volume<'_>, u64, usize, &[u8]) -> PatchId,
    ) -> Option<PatchId> {
        let edited = self.edited(v, inode, edit)?;
        if edited.changes_map {
            self.track_map(inode);
        }
        Some(write(v, edited.block, edited.at, edited.bytes()))
    }

    /// As [`edit_inode`](Self::edit_inode), and fsync of the inode waits for it.
    pub(crate) fn change_inode(
        &mut self,
        v: &mut Volume<'_>,
        inode: u32,
        after: &[PatchId],
        edit: impl FnOnce(&mut InodeEditor),
    ) -> PatchId {
        let id = self.edit_inode(v, inode, after, edit);
        self.note_change(v, inode, id);
        id
    }

    /// As [`change_inode`](Self::change_inode), kept apart from what else is pending on the inode's block.
    pub(crate) fn change_inode_apart(
        &mut self,
        v: &mut Volume<'_>,
        inode: u32,
        after: &[PatchId],
        edit: impl FnOnce(&mut InodeEditor),
    ) -> PatchId {
        let id = self.edit_inode_by(inode, edit, v, |v, block, at, bytes| {
            v.write_apart(block, at, bytes, after)
        });
        let id = id.unwrap_or_else(|| all_of(v, after));
        self.note_change(v, inode, id);
        id
    }

    /// Changes nothing but times, as somebody asked for.
    fn set_times(&mut self, v: &mut Volume<'_>, inode: u32, edit: impl FnOnce(&mut InodeEditor)) {
        let id = self.edit_inode(v, inode, &[], edit);
        self.note_time_change(v, inode, id);
    }

    /// Changes nothing but times, for something else has changed.
    pub(crate) fn touch_inode(
        &mut self,
        v: &mut Volume<'_>,
        inode: u32,
        edit: impl FnOnce(&mut InodeEditor),
    ) {
        let id = self.edit_inode_by(inode, edit, v, |v, block, at, bytes| {
            v.write_implied_times(block, at, bytes)
        });
        if let Some(id) = id {
            self.note_time_change(v, inode, id);
        }
    }

    fn note_time_change(&mut self, v: &Volume<'_>, inode: u32, id: PatchId) {
        if v.is_live(id) {
            self.state(inode).time_changes.push(v, id);
        }
    }

    /// The inode's contents changed: its times say so.
    pub(crate) fn touch_modified(&mut self, v: &mut Volume<'_>, inode: u32, now: Timestamp) {
        self.touch_inode(v, inode, |e| {
            e.set_modified(now);
            e.set_changed(now);
        });
    }

    pub(crate) fn note_change(&mut self, v: &Volume<'_>, inode: u32, id: PatchId) {
        if v.is_live(id) {
            self.state(inode).changes.push(v, id);
        }
    }

    /// Writes a new inode over whatever was there.
    pub(crate) fn initialise_inode(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
        after: &[PatchId],
        now: Timestamp,
        fill: impl FnOnce(&mut InodeEditor),
    ) -> PatchId {
        let Ok((block, at)) = self.inode_place(number) else {
            return PatchId::COMMITTED;
        };
        let size = self.sb.inode_size as usize;
        let extra = inode::new_extra_isize(&self.sb);
        let mut editor = InodeEditor {
            bytes: [0; EDITABLE],
            len: size.min(EDITABLE),
            extra_end: BASE_SIZE + usize::from(extra),
        };
        if extra > 0 {
            editor.put(offset::EXTRA_ISIZE, &extra.to_le_bytes());
        }
        editor.set_accessed(now);
        editor.set_modified(now);
        editor.set_changed(now);
        editor.set_created(now);
        fill(&mut editor);
        let mut bytes = SmallVec::<[u8; 256]>::from_slice(&editor.bytes[..editor.len]);
        bytes.resize(size, 0);
        // Nothing leads to it: its name comes after it.
        let before = v.hide(true);
        let id = match self.keeps_apart(v) {
            true => v.write_apart(block, at, &bytes, after),
            false => v.write(block, BlockClass::Metadata, at, &bytes, after),
        };
        v.hide(before);
        self.note_change(v, number, id);
        id
    }

    pub(crate) fn show_attributes(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
    ) -> Result<Attributes> {
        let inode = self.read_inode(v, number)?;
        let file_type = inode.file_type().ok_or(Error::NotFound)?;
        let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharacterDevice);
        Ok(Attributes {
            inode: InodeNumber(number),
            generation: inode.generation,
            file_type,
            permissions: inode.mode & 0o7777,
            links: inode.links.into(),
            uid: inode.uid,
            gid: inode.gid,
            device_number: if is_device { inode.device_number() } else { 0 },
            size_bytes: inode.size,
            sectors: inode.sectors.into(),
            block_size_bytes: self.sb.block_size,
            accessed: inode.accessed,
            modified: inode.modified,
            changed: inode.changed,
            created: inode.created,
        })
    }

    pub(crate) fn change_attributes(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
        set: &SetAttributes,
        now: Timestamp,
    ) -> Result<()> {
        let inode = self.read_inode(v, number)?;
        if inode.flags & inode::FLAG_IMMUTABLE != 0 {
            return Err(Error::NotPermitted);
        }
        let acl = match set.permissions {
            Some(permissions) => self.gather_acl_mode(v, number, &inode, permissions)?,
            None => None,
        };
        if let Some(size) = set.size_bytes {
            self.resize(v, number, &inode, size, now)?;
        }
        if let Some(acl) = acl {
            self.apply_attribute_plan(v, number, acl, now);
        }
        let only_times = set.permissions.is_none() && set.uid.is_none() && set.gid.is_none();
        let edit = |e: &mut InodeEditor| {
            if let Some(permissions) = set.permissions {
                e.set_mode(inode.mode & 0o170_000 | permissions & 0o7777);
            }
            set.uid.inspect(|uid| e.set_owner(*uid));
            set.gid.inspect(|gid| e.set_group(*gid));
            set.accessed.inspect(|t| e.set_accessed(*t));
            set.modified.inspect(|t| e.set_modified(*t));
            e.set_changed(now);
        };
        if only_times {
            self.set_times(v, number, edit);
        } else {
            self.change_inode(v, number, &[], edit);
        }
        Ok(())
    }

    /// Moves the access time of an inode that was read, as `relatime` has it.
    pub(crate) fn note_read(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
        now: Timestamp,
    ) -> Result<()> {
        const DAY_SECONDS: i64 = 86_400;
        let inode = self.read_inode(v, number)?;
        let accessed = inode.accessed;
        let stale = accessed <= inode.modified
            || accessed <= inode.changed
            || accessed.seconds + DAY_SECONDS <= now.seconds;
        if stale && inode.flags & inode::FLAG_NOATIME == 0 {
            self.touch_inode(v, number, |e| e.set_accessed(now));
        }
        Ok(())
    }

    /// What must be on the disk for the inode to be: its changes, and for every name that is not yet, what makes it reachable.
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
        if !planted(Planted::FsyncWithoutInode) {
            targets.extend(state.changes.iter());
        }
        if !data_only {
            targets.extend(state.time_changes.iter());
        }
        if state.reach.is_some() {
            targets.extend(state.reach);
            // A moved directory with both names might come back under the old one.
            targets.extend(state.clearings.iter().copied());
        }
        for name in &state.names {
            targets.push(unless(Planted::FsyncWithoutName, name.name));
            targets.push(unless(Planted::FsyncWithoutPointer, name.pointer));
            let reach = self.reach_of_directory(name.directory);
            targets.extend(reach.map(|r| unless(Planted::FsyncWithoutReach, r)));
        }
        targets.retain(|t| v.is_live(*t) && !planted(Planted::FsyncAtOnce));
    }

    /// What makes a directory's own name reachable, where that is not on the disk yet.
    pub(crate) fn reach_of_directory(&self, directory: u32) -> Option<PatchId> {
        self.inodes.get(&directory).and_then(|d| d.reach)
    }

    /// Everything that a name needs to be reachable.
    pub(crate) fn reach_of_name(&self, name: &PendingName, into: &mut Vec<PatchId>) {
        into.extend([
            name.name,
            unless(Planted::ReachWithoutPointer, name.pointer),
        ]);
        let parents = self.reach_of_directory(name.directory);
        into.extend(parents.map(|p| unless(Planted::ReachWithoutParents, p)));
    }

    fn is_name_pending(&self, v: &Volume<'_>, name: &PendingName) -> bool {
        v.is_live(name.name)
            || v.is_live(name.pointer)
            || self
                .reach_of_directory(name.directory)
                .is_some_and(|r| v.is_live(r))
    }

    /// Remembers a name until it is reachable on the disk.
    pub(crate) fn note_name(&mut self, v: &mut Volume<'_>, inode: u32, name: PendingName) {
        self.prune_names(v, inode);
        self.state(inode).names.push(name);
        self.note_reached(v, inode);
    }

    /// What was done under a patchgroup is there once it can be found: its tail comes after the names of the inode that was changed.
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

    /// Whether somebody above refers to an inode.
    pub(crate) fn is_referenced(&self, inode: u32) -> bool {
        self.references.any_to(inode)
    }

    /// Forgets what is known of an inode of which everything is on the disk, whether somebody refers to it or not: the kernel
    /// remembers as many as it likes. Only a directory that somebody refers to is kept for its index, within a bound. False where
    /// something is still under way.
    pub(crate) fn forget_if_idle(&mut self, v: &Volume<'_>, number: u32) -> bool {
        self.prune_names(v, number);
        let is_referenced = self.is_referenced(number);
        let Some(state) = self.inodes.get_mut(&number) else {
            return true;
        };
        let live = |id: &Option<PatchId>| id.is_some_and(|id| v.is_live(id));
        let busy = state.freed.is_some()
            || state.is_truncating
            || !state.names.is_empty()
            || live(&state.made)
            || live(&state.reach)
            || live(&state.tail_zeroed)
            || live(&state.end_filled)
            || live(&state.unmapped)
            || state.clearings.iter().any(|c| v.is_live(*c))
            || state
                .names_in
                .as_mut()
                .is_some_and(|names| names.any_live(v))
            || state.changes.any_live(v)
            || state.time_changes.any_live(v);
        if busy {
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
            self.windows.drop_of(number);
        }
        true
    }
}

/// Windows from `first` on will be wanted, as far as they begin before `end`.
pub(crate) fn want_ahead(v: &mut Volume<'_>, first: u64, end: u64) {
    let starts = (first..end).step_by(READ_AHEAD_BLOCKS as usize);
    for start in starts.take(READ_AHEAD_WINDOWS) {
        v.want_soon(start, READ_AHEAD_BLOCKS.min(end - start));
    }
}

/// The first and the last byte in which two inodes differ, looked for eight at a time.
fn differing(a: &[u8], b: &[u8]) -> Option<(usize, usize)> {
    const WORD: usize = 8;
    let (words_a, rest_a) = a.as_chunks::<WORD>();
    let (words_b, rest_b) = b.as_chunks::<WORD>();
    let whole = words_a.len() * WORD;
    let mut words = words_a.iter().zip(words_b);
    let first_word = words.clone().position(|(a, b)| a != b);
    let last_word = words.rposition(|(a, b)| a != b);
    let bits = |word: usize| u64::from_le_bytes(words_a[word]) ^ u64::from_le_bytes(words_b[word]);
    let mut rest = (0..rest_a.len()).filter(|i| rest_a[*i] != rest_b[*i]);
    let first_rest = rest.next();
    let last_rest = rest.next_back().or(first_rest).map(|i| whole + i);
    let first = first_word.map(|w| w * WORD + bits(w).trailing_zeros() as usize / 8);
    let last = last_word.map(|w| w * WORD + WORD - 1 - bits(w).leading_zeros() as usize / 8);
    Some((
        first.or(first_rest.map(|i| whole + i))?,
        last_rest.or(last)?,
    ))
}

/// Where the extra fields of an inode end.
fn extra_end(bytes: &[u8]) -> usize {
    match bytes.get(offset::EXTRA_ISIZE..offset::EXTRA_ISIZE + 2) {
        Some(size) => {
            let size = usize::from(u16::from_le_bytes([size[0], size[1]]));
            // As the parser: an impossible size counts as none.
            if size >= 4 && size % 4 == 0 && BASE_SIZE + size <= bytes.len() {
                BASE_SIZE + size
            } else {
                BASE_SIZE
            }
        }
        None => BASE_SIZE,
    }
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn what_differs_is_found_at_every_place() {
        for len in [0, 5, 8, 128, 131, 256] {
            let old = vec![0x5a_u8; len];
            assert_eq!(differing(&old, &old), None);
            for first in 0..len {
                for last in (first..len).step_by(3) {
                    let mut new = old.clone();
                    new[first] ^= 0x80;
                    if last > first {
                        new[last] ^= 1;
                    }
                    assert_eq!(differing(&new, &old), Some((first, last)), "of {len}");
                }
            }
        }
    }
}
