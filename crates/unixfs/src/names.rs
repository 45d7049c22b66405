//! Making names, and the inodes they stand for.

use crate::index::entry_unit;
use backstitch_layout::{
    BlockNumber, Error, FileType, InodeNumber, NewInode, Step, Stop, Structure, Timestamp, flags,
};
use backstitch_ordering::{BlockClass, PatchId, Volume};
use smallvec::smallvec;

use crate::extend::NewContents;
use crate::fault::Fault;
use crate::format::{DIRECT_POINTERS, Format, Inode, InodeEditor, Picks, Purpose};
use crate::kinds;
use crate::map::Growth;
use crate::rules::{Rule, holds, implied, note_by, wait_for, wait_for_all};
use crate::state::UnixFs;
use crate::state::inode::PendingName;
use crate::state::patches::PatchIds;
use crate::state::spares::Spare;
use backstitch_blocks::block_edit::Room;
use backstitch_blocks::block_edit::{cut_into_units, entry_bytes};
use backstitch_blocks::directory::{
    EntryLayout, NAME_MAX_BYTES, OFFSET_INODE, OFFSET_REC_LEN, TYPE_UNKNOWN, empty_block,
    encode_entry, new_directory_block, unused_head,
};
use backstitch_blocks::runs::{Mapped, Run};

/// Where a new name goes.
pub(crate) enum Place {
    /// Into a block that the directory has.
    Room(Room),
    /// Into a block that it gets.
    NewBlock(Growth),
}

impl Place {
    /// The blocks that it takes; an indirect block takes `units`.
    fn picks(&self, units: u64) -> Picks {
        match self {
            Place::Room(_) => Picks::default(),
            Place::NewBlock(e) => {
                let mut runs = smallvec![e.run];
                let indirect = |start: &BlockNumber| Run {
                    start: *start,
                    len: units,
                };
                runs.extend(e.indirects.iter().map(indirect));
                Picks(runs)
            }
        }
    }
}

/// A new inode that was decided on.
pub(crate) struct Plan<'a, F: Format> {
    pub(crate) number: InodeNumber,
    /// It gets no name, and so no link.
    pub(crate) is_unnamed: bool,
    /// The inode's entry among the spares, where it is marked as used already.
    spare: Option<Spare>,
    new: &'a NewInode<'a>,
    mode: u16,
    gid: u32,
    /// The block of a directory or a slow symlink.
    block: Option<Run>,
    inherited: F::Inheritance,
}

/// A name as POSIX allows it.
pub(crate) fn check_name(name: &[u8]) -> Step<()> {
    if name.len() > NAME_MAX_BYTES {
        Err(Error::NameTooLong.into())
    } else if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        Err(Error::Invalid.into())
    } else {
        Ok(())
    }
}

impl<F: Format> UnixFs<F> {
    pub(crate) fn type_code(&self, file_type: FileType) -> u8 {
        if self.format.has_file_types() {
            F::Entries::type_code(file_type)
        } else {
            TYPE_UNKNOWN
        }
    }

    /// A directory that names can be added to.
    pub(crate) fn read_parent(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
    ) -> Step<F::Inode> {
        let parent = self.read_directory_inode(v, number)?;
        if parent.links() == 0 {
            return Err(Error::NotFound.into());
        }
        if parent.flags() & flags::IMMUTABLE != 0 {
            return Err(Error::NotPermitted.into());
        }
        self.fill_last_block(v, number, parent)
    }

    /// A directory of which all blocks are wholly its own: where it ends within one, the rest of
    /// that becomes unused entries, and its size counts them once they are on the disk. Behind the
    /// direct pointers that is the rest of all units that its last pointer leads to.
    fn fill_last_block(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: F::Inode,
    ) -> Step<F::Inode> {
        let (bs, units) = (self.block_size(), self.format.units_per_pointer());
        let mut end = self.directory_blocks(&inode);
        if end > units * DIRECT_POINTERS as u64 {
            end = end.next_multiple_of(units);
        }
        let size = end * bs as u64;
        if F::Entries::UNIT_BYTES == usize::MAX || size == inode.size() {
            return Ok(inode);
        }
        let first = inode.size() / bs as u64;
        let mut within = (inode.size() % bs as u64) as usize;
        let Mapped::Blocks(run) = self.map_blocks(v, &inode, first, end - first)? else {
            return Ok(inode);
        };
        let blocks = run.start.run(end - first);
        if blocks.clone().filter(|block| !v.want(*block)).count() > 0 {
            return Err(Stop::Miss);
        }
        let mut emptied = PatchIds::new();
        for block in blocks.clone() {
            let rest = empty_block::<F::Entries>(bs - within);
            emptied.push(v.write(block, kinds::DIRECTORY, within, &rest, &[]));
            within = 0;
        }
        let after = wait_for_all(Rule::SizeAfterContents, &emptied);
        let sized = self.change_inode(v, number, after, |e| e.set_size(size));
        for (logical, block) in (first..).zip(blocks) {
            if holds(Rule::NewDirectoryBlockIsNoted) {
                self.note_new_block(v, number, block, sized);
            }
            self.index_filled(number, logical);
        }
        self.read_directory_inode(v, number)
    }

    /// Where a new name goes. A directory with an index that is kept may grow for it.
    pub(crate) fn gather_place(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        parent: &F::Inode,
        name: &[u8],
        now: Timestamp,
    ) -> Step<Place> {
        if let Some(room) = F::room_by_index(self, v, number, parent, name, now)? {
            return Ok(Place::Room(room));
        }
        let grown;
        let parent = match self.can_keep_indexes(v) {
            // Its index may have turned out to be wrong when the directory had grown already.
            true => {
                grown = self.read_directory_inode(v, number)?;
                &grown
            }
            false => parent,
        };
        if let Some(room) = self.find_room(v, number, parent, name)? {
            return Ok(Place::Room(room));
        }
        let blocks = self.directory_blocks(parent);
        self.check_directory_size(blocks + 1)?;
        Ok(Place::NewBlock(
            self.gather_extension(v, number, parent, blocks, 1)?,
        ))
    }

    /// Whether a directory may have `blocks` blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where it may not.
    pub fn check_directory_size(&self, blocks: u64) -> Step<()> {
        if blocks * u64::from(self.format.block_size()) > F::DIRECTORY_BYTES_MAX {
            return Err(Error::NoSpace.into());
        }
        Ok(())
    }

    /// Makes an inode of any type and its name.
    pub(crate) fn make(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        new: &NewInode<'_>,
        now: Timestamp,
    ) -> Step<InodeNumber> {
        check_name(name)?;
        let parent = self.read_parent(v, directory)?;
        if name == b"." || name == b".." || self.find_in(v, directory, &parent, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        if new.file_type == FileType::Directory && parent.links() >= F::LINK_MAX {
            return Err(Error::TooManyLinks.into());
        }
        if new.file_type == FileType::Symlink && new.target.len() > self.format.symlink_max() {
            return Err(Error::NameTooLong.into());
        }
        let is_device = matches!(
            new.file_type,
            FileType::BlockDevice | FileType::CharacterDevice
        );
        if is_device && !self.format.holds_device(new.device_number) {
            return Err(Error::Invalid.into());
        }
        let place = self.gather_place(v, directory, &parent, name, now)?;
        let picks = place.picks(self.format.units_per_pointer());
        let plan = self.gather_inode(v, directory, &parent, name, new, picks)?;
        let number = plan.number;
        let before_name = self.apply_inode(v, directory, &parent, plan, now);
        let parent = match new.file_type {
            // The directory gets one more link.
            FileType::Directory => self.read_directory_inode(v, directory)?,
            _ => parent,
        };
        let pending = self.insert_name(
            v,
            directory,
            &parent,
            place,
            name,
            (number, Some(new.file_type)),
            &[before_name],
            now,
        );
        if new.file_type == FileType::Directory && holds(Rule::NewDirectoryReachIsNoted) {
            self.note_reach(v, number, &pending, PatchId::COMMITTED);
        }
        self.note_name(v, number, pending);
        if new.file_type == FileType::Regular {
            self.note_made(v, number, now);
        }
        Ok(number)
    }

    /// Decides on a new inode, beside the blocks that were picked for its name. Where that is empty it
    /// gets none.
    pub(crate) fn gather_inode<'a>(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        parent: &F::Inode,
        name: &[u8],
        new: &'a NewInode<'a>,
        mut picks: Picks,
    ) -> Step<Plan<'a, F>> {
        let is_directory = new.file_type == FileType::Directory;
        let mut spare = self.spare_for(directory, name, new.file_type);
        let number = match spare {
            Some(spare) => spare.inode,
            None => match self.format.pick_inode(v, directory, name, is_directory)? {
                Some(number) => number,
                None => {
                    // What is marked ahead is all that is left.
                    spare = self.spares.any();
                    spare.ok_or_else(|| self.nothing_free())?.inode
                }
            },
        };
        let (block, _) = self.format.inode_place(number)?;
        v.read(block)?;
        let slow_symlink =
            new.file_type == FileType::Symlink && new.target.len() > self.format.fast_symlink_max();
        let block = if is_directory || slow_symlink {
            let goal = self.format.goal_near(number);
            let purpose = if is_directory {
                Purpose::Metadata
            } else {
                Purpose::Contents
            };
            let want = match is_directory {
                true => 1,
                false => (new.target.len() as u64).div_ceil(self.block_size() as u64),
            };
            let run = self.pick_run(v, number, purpose, goal, want, false, &picks)?;
            if run.len < want {
                return Err(self.no_blocks());
            }
            picks.0.push(run);
            Some(run)
        } else {
            None
        };
        let inherited = F::gather_inheritance(self, v, (directory, parent), number, new, &picks)?;
        let setgid = parent.mode() & 0o2000 != 0;
        let mut permissions = F::inherited_permissions(&inherited) & 0o7777;
        if setgid && is_directory {
            permissions |= 0o2000;
        }
        Ok(Plan {
            number,
            is_unnamed: name.is_empty(),
            spare,
            new,
            mode: new.file_type.mode_bits() as u16 | permissions,
            gid: if setgid { parent.gid() } else { new.gid },
            block,
            inherited,
        })
    }

    /// Writes the inode and what belongs to it. Returns what its name must come after.
    pub(crate) fn apply_inode(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        parent: &F::Inode,
        plan: Plan<'_, F>,
        now: Timestamp,
    ) -> PatchId {
        let Plan {
            number,
            is_unnamed,
            spare,
            new,
            mode,
            gid,
            block,
            inherited,
        } = plan;
        let is_directory = new.file_type == FileType::Directory;
        let marked = match spare {
            Some(spare) => {
                let group = self.format.group_of_inode(number);
                self.spares.remove(group, spare);
                if is_directory {
                    self.format.note_directory(group);
                }
                wait_for(Rule::SpareInodeAfterBit, spare.marked)
            }
            None => self.format.set_inode_bit(v, number, is_directory),
        };
        let mut before: PatchIds = smallvec![wait_for(Rule::InodeAfterBit, marked)];
        let bs = self.block_size();
        if let Some(run) = block {
            let mut bits = PatchIds::new();
            self.set_block_bits(v, run, &mut bits);
            before.extend_from_slice(wait_for_all(Rule::InodeAfterBlockBit, &bits));
        }
        if is_directory {
            let parent_link =
                self.change_inode(v, directory, &[], |e| e.set_links(parent.links() + 1));
            let code = self.type_code(FileType::Directory);
            let mut contents = new_directory_block::<F::Entries>(bs, number, directory, code);
            cut_into_units::<F::Entries>(&mut contents, entry_unit::<F::Entries>(v));
            // The child's `..` counts once the child's inode shows it, and not before: the block
            // itself waits for nothing, or the blocks of a new tree could only be written level by
            // level.
            let filled = block.map(|b| v.initialise(b.start, kinds::DIRECTORY, &contents, &[]));
            before.extend(filled.map(|f| wait_for(Rule::InodeAfterDirectoryBlock, f)));
            before.push(wait_for(Rule::InodeAfterParentLink, parent_link));
        } else if let Some(run) = block {
            let mut contents = new.target.to_vec();
            contents.resize(bs * run.len as usize, 0);
            // Where changes are journaled a symlink's target is as much a part of the tree as a
            // name.
            let kind = match v.scopes_are_atomic() {
                true => kinds::TARGET,
                false => BlockClass::Data.into(),
            };
            for (block, part) in run.blocks().zip(contents.chunks(bs)) {
                let filled = v.initialise(block, kind, part, &[]);
                before.push(wait_for(Rule::InodeAfterSymlinkTarget, filled));
            }
        }
        let attribute_block = F::apply_inheritance(self, v, &inherited, &mut before);
        self.track_new_inode(number, is_directory, attribute_block);
        if is_directory {
            self.track_new_directory(number, directory);
        }
        let of_attributes = u64::from(attribute_block != BlockNumber::NONE);
        let blocks = block.map_or(0, |run| run.len) + of_attributes;
        let sectors = blocks * self.sectors_per_block();
        let generation = self.next_generation;
        self.next_generation = self
            .next_generation
            .wrapping_mul(0x0019_660d)
            .wrapping_add(0x3c6e_f35f);
        let made = self.initialise_inode(v, number, &before, now, |format, e| {
            e.set_mode(mode);
            e.set_owner(new.uid);
            e.set_group(gid);
            e.set_links(match is_directory {
                true => 2,
                false => u16::from(!is_unnamed),
            });
            if is_unnamed {
                e.set_deleted(Some(now));
            }
            e.set_generation(generation);
            e.set_sectors(sectors);
            e.set_attribute_block(attribute_block);
            format.fill_new(e, parent, new, block.map(|run| run.start));
        });
        let state = self.state(number);
        state.made = Some(made);
        (state.freed, state.died) = (None, None);
        state.never_alive = false;
        state.is_unnamed = false;
        state.apart = None;
        wait_for(Rule::NameAfterInode, made)
    }

    /// Writes a name into its place, after everything it needs. The directory changes with it.
    ///
    /// The entry is the commit point of making a name.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn insert_name(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        parent: &F::Inode,
        place: Place,
        name: &[u8],
        (inode, file_type): (InodeNumber, Option<FileType>),
        after: &[PatchId],
        now: Timestamp,
    ) -> PendingName {
        let kind = file_type.map_or(TYPE_UNKNOWN, |t| self.type_code(t));
        let is_directory = file_type == Some(FileType::Directory);
        let mut after = PatchIds::from_slice(after);
        after.extend(self.drop_index(v, directory, parent));
        after.extend(self.removal_of(v, directory, name));
        let mut filled = 0..0;
        let (block, logical, offset, id, pointer) = match place {
            Place::Room(room) => {
                let id = self.write_entry(v, &room, inode, kind, name, &after);
                let pointer = self.pointer_of(v, directory, room.block);
                (room.block, room.logical, room.gap.offset, id, pointer)
            }
            Place::NewBlock(extension) => {
                let bs = self.block_size();
                let mut entry = empty_block::<F::Entries>(bs);
                let len = bs.min(F::Entries::UNIT_BYTES);
                let first = encode_entry::<F::Entries>(inode, kind, name, len);
                entry[..first.len()].copy_from_slice(&first);
                cut_into_units::<F::Entries>(&mut entry, entry_unit::<F::Entries>(v));
                // What the run begins with, and how many blocks that is.
                let (mut contents, moved) = self.moved_entries(v, &extension, &mut after);
                contents.extend_from_slice(&entry);
                while contents.len() < extension.run.len as usize * bs {
                    contents.extend(empty_block::<F::Entries>(bs));
                }
                let contents = NewContents {
                    kind: kinds::DIRECTORY,
                    bytes: &contents,
                    within: 0,
                    after: &after,
                };
                let end = (extension.logical + extension.run.len) * bs as u64;
                let (id, pointer) = self.extend(
                    v,
                    directory,
                    parent,
                    &extension,
                    contents,
                    end,
                    PatchIds::new(),
                    now,
                );
                if holds(Rule::NewDirectoryBlockIsNoted) {
                    for block in extension.run.blocks() {
                        self.note_new_block(v, directory, block, pointer);
                    }
                }
                self.note_moved_names(v, directory, &extension, contents.bytes, pointer);
                filled = extension.logical + moved + 1..extension.logical + extension.run.len;
                let (block, logical) = (extension.run.start + moved, extension.logical + moved);
                (block, logical, 0, id, pointer)
            }
        };
        let noted = note_by(Rule::FsyncOfDirectoryWaitsForName, id);
        self.note_change(v, directory, noted);
        self.touch_modified(v, directory, now);
        self.index_added(directory, name, logical, offset);
        for logical in filled {
            self.index_filled(directory, logical);
        }
        self.track_name_added(directory, logical, inode, is_directory);
        PendingName {
            directory,
            block,
            offset,
            name: id,
            pointer,
        }
    }

    /// One patch: the entry that gives up its tail, the new one in it, and the heads of those that
    /// it swallows. Where the entry that gives up its tail does so in another unit, the tail
    /// becomes an unused entry first.
    fn write_entry(
        &mut self,
        v: &mut Volume<'_>,
        room: &Room,
        inode: InodeNumber,
        kind: u8,
        name: &[u8],
        after: &[PatchId],
    ) -> PatchId {
        let (block, mut gap) = (room.block, room.gap);
        let mut after = PatchIds::from_slice(after);
        if let Some(before) = gap
            .shortened
            .filter(|_| gap.is_apart(entry_unit::<F::Entries>(v)))
        {
            // On the disk the space may still be an entry's, or a name's that crosses the border.
            let mut pending = Vec::new();
            v.pending(block, &mut pending);
            let pending = wait_for_all(Rule::TailHeadAfterPending, &pending);
            let class = kinds::DIRECTORY;
            let head = unused_head::<F::Entries>(gap.end - gap.offset);
            let headed = v.write(block, class, gap.offset, &head, pending);
            let headed = wait_for(Rule::TailCutAfterHead, headed);
            let shorter = self.shorter_entry(v, block, before, gap.offset);
            let at = before + OFFSET_REC_LEN;
            let cut = v.write(block, class, at, &shorter, &[headed]);
            // It must be on the disk before the caller is told that the name is there.
            if v.answers_once_stable() {
                implied(Rule::NameAfterTailCut, || v.is_answered_for(cut));
            }
            after.push(wait_for(Rule::NameAfterTailCut, cut));
            gap = gap.as_unused();
        }
        let Some(bytes) = v.peek(block) else {
            return PatchId::COMMITTED;
        };
        let (from, bytes) = entry_bytes::<F::Entries>(bytes, &gap, inode, kind, name);
        v.write(block, kinds::DIRECTORY, from, &bytes, &after)
    }

    /// What changes of an entry that now ends earlier: its length, and where it is unused the name
    /// that is left in it.
    fn shorter_entry(&self, v: &Volume<'_>, block: BlockNumber, at: usize, end: usize) -> Vec<u8> {
        let is_used = v
            .peek(block)
            .is_some_and(|b| b[at + OFFSET_INODE..][..4] != [0; 4]);
        let head = unused_head::<F::Entries>(end - at);
        match is_used {
            true => head[OFFSET_REC_LEN..][..2].to_vec(),
            false => head[OFFSET_REC_LEN..].to_vec(),
        }
    }

    /// Gives an inode another name.
    pub(crate) fn add_link(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
    ) -> Step<()> {
        check_name(name)?;
        let inode = self.read_inode(v, number)?;
        if inode.is_directory() || inode.flags() & (flags::IMMUTABLE | flags::APPEND) != 0 {
            return Err(Error::NotPermitted.into());
        }
        let has_no_name = inode.links() == 0 || self.died(number).is_some();
        if has_no_name && !self.is_unnamed(number) {
            return Err(Error::NotFound.into());
        }
        let parent = self.read_parent(v, directory)?;
        if name == b"." || name == b".." || self.find_in(v, directory, &parent, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        if inode.links() >= F::LINK_MAX {
            return Err(Error::TooManyLinks.into());
        }
        let place = self.gather_place(v, directory, &parent, name, now)?;
        let parent = self.read_directory_inode(v, directory)?;
        let mut after = PatchIds::new();
        let counted = match inode.links() {
            0 => self.count_first_name(v, number, &mut after, now),
            links => self.change_inode(v, number, &[], |e| {
                e.set_links(links + 1);
                e.set_changed(now);
            }),
        };
        after.push(wait_for(Rule::LinkedNameAfterCount, counted));
        let pending = self.insert_name(
            v,
            directory,
            &parent,
            place,
            name,
            (number, inode.file_type()),
            &after,
            now,
        );
        self.note_name(v, number, pending);
        Ok(())
    }

    pub(crate) fn symlink_target(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
    ) -> Step<Vec<u8>> {
        let inode = self.read_inode(v, number)?;
        if inode.file_type() != Some(FileType::Symlink) {
            return Err(Error::Invalid.into());
        }
        let len = usize::try_from(inode.size()).unwrap_or(usize::MAX);
        let does_not_fit = |into| {
            let fault = Fault::TargetTooLong { bytes: len, into };
            Error::corrupt(Structure::Symlink(number), fault)
        };
        if inode.is_fast_symlink(self.format.block_size()) {
            let target = inode.inline_bytes().get(..len).map(<[u8]>::to_vec);
            return Ok(target.ok_or_else(|| does_not_fit("inode"))?);
        }
        let blocks = len.div_ceil(self.block_size()) as u64;
        match self.map_blocks(v, &inode, 0, blocks)? {
            // All of it lies in one block of the format.
            Mapped::Blocks(run) if blocks <= run.len.min(self.format.units_per_pointer()) => {
                let mut target = Vec::with_capacity(len);
                for block in run.start.run(blocks) {
                    target.extend_from_slice(v.read(block)?);
                }
                target.truncate(len);
                Ok(target)
            }
            _ => Err(does_not_fit("block").into()),
        }
    }
}
