//! Finding names in directories: a linear scan of small ones, the index on the disk where there is
//! one that can be believed, an index in memory for other large ones.
//!
//! The index on the disk, where a format has one, is kept in step with the names only where scopes are atomic.
//! Elsewhere a directory that has one loses the flag with its first new name, and is linear from
//! then on, as every ext2 driver without the feature leaves it.

use std::ops::Range;

use backstitch_layout::{BlockNumber, DirectoryEntry, Error, InodeNumber, Step, Stop, Structure};
use backstitch_ordering::{PatchId, Volume};

use crate::fault::Fault;
use crate::format::{Format, Inode, InodeEditor};
use crate::inodes::{READ_AHEAD_BLOCKS, want_ahead};
use crate::rules::{Rule, wait_for};
use crate::state::UnixFs;
use backstitch_blocks::block_edit::{Room, find_gap, largest_gap};
use backstitch_blocks::directory::{
    DirectoryError, Entry, EntryLayout, Found, entries, entry_at, required_len,
};
use backstitch_blocks::directory_index::DirectoryIndex;
use backstitch_blocks::name_table::{self, NameTable};
use backstitch_blocks::room::RoomSummary;
use backstitch_blocks::runs::Mapped;

/// Directories of more blocks than this get an index in memory.
const LINEAR_BLOCKS: u64 = 2;

/// Bytes of a unit of a directory's block, which no new entry crosses: the device's atomic unit, so
/// that a crash leaves an entry wholly or not at all, or the format's, whichever is smaller.
pub(crate) fn entry_unit<L: EntryLayout>(v: &Volume<'_>) -> usize {
    v.atomic_bytes().min(L::UNIT_BYTES)
}

impl<F: Format> UnixFs<F> {
    /// A directory's inode.
    ///
    /// # Errors
    /// [`Error::NotADirectory`] for another inode; where it is missing or damaged.
    pub fn read_directory_inode(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
    ) -> Step<F::Inode> {
        let inode = self.read_inode(v, number)?;
        if !inode.is_directory() {
            return Err(Error::NotADirectory.into());
        }
        let unit = F::Entries::UNIT_BYTES.min(self.block_size());
        if !inode.size().is_multiple_of(unit as u64) {
            return Err(Error::corrupt(
                Structure::directory(number),
                Fault::SizeNotWhole {
                    bytes: inode.size(),
                },
            )
            .into());
        }
        Ok(inode)
    }

    /// How many blocks a directory has.
    pub fn directory_blocks(&self, inode: &F::Inode) -> u64 {
        inode.size().div_ceil(self.format.block_size().into())
    }

    /// The bytes of a directory's block that hold entries: of the last block those up to the
    /// directory's end.
    pub fn entries_part<'b>(&self, inode: &F::Inode, logical: u64, block: &'b [u8]) -> &'b [u8] {
        // Known when this is compiled: in ext a directory is a whole number of blocks.
        if F::Entries::UNIT_BYTES == usize::MAX {
            return block;
        }
        let start = logical.saturating_mul(block.len() as u64);
        let len = inode.size().saturating_sub(start);
        &block[..len.min(block.len() as u64) as usize]
    }

    /// The physical block of a directory's block; `None` for a hole, which holds no names.
    ///
    /// # Errors
    /// Where blocks of its map are missing or damaged.
    pub fn directory_block(
        &self,
        v: &mut Volume<'_>,
        inode: &F::Inode,
        logical: u64,
    ) -> Step<Option<BlockNumber>> {
        match self.map_blocks(v, inode, logical, 1)? {
            Mapped::Blocks(run) => Ok(Some(run.start)),
            Mapped::Hole(_) => Ok(None),
        }
    }

    /// The first block of a directory from `from` on that is mapped: its number in the directory
    /// and the one on the disk. Holes are passed over as wholes: a damaged size may make millions
    /// of them.
    fn mapped_from(
        &self,
        v: &mut Volume<'_>,
        inode: &F::Inode,
        mut from: u64,
    ) -> Step<Option<(u64, BlockNumber)>> {
        let end = self.directory_blocks(inode);
        while from < end {
            if let Some(block) = self.directory_block(v, inode, from)? {
                return Ok(Some((from, block)));
            }
            match self.map_blocks(v, inode, from, end - from)? {
                Mapped::Hole(len) => from += len,
                Mapped::Blocks(_) => {}
            }
        }
        Ok(None)
    }

    /// Finds a name in a directory.
    pub(crate) fn find_name(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        name: &[u8],
    ) -> Step<Option<Found>> {
        let inode = self.read_directory_inode(v, number)?;
        if inode.links() == 0 {
            return Ok(None);
        }
        self.find_in(v, number, &inode, name)
    }

    pub(crate) fn find_in(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        name: &[u8],
    ) -> Step<Option<Found>> {
        if self.directory_blocks(inode) <= LINEAR_BLOCKS {
            return self.scan(v, number, inode, name);
        }
        if self.uses_index(number, inode)
            && let Some(answer) = F::find_by_index(self, v, number, inode, name)?
        {
            return answer
                .map(|found| {
                    Ok(Found {
                        inode: self.checked_inode(number, found.inode)?,
                        ..found
                    })
                })
                .transpose();
        }
        self.build_index(v, number, inode)?;
        let Some(index) = self.inodes.get(&number).and_then(|s| s.index.as_ref()) else {
            return self.scan(v, number, inode, name);
        };
        for (logical, offset) in index.find(name) {
            let Some(block) = self.directory_block(v, inode, logical)? else {
                continue;
            };
            // The index knows where entries start.
            let bytes = self.entries_part(inode, logical, v.read(block)?);
            let found = entry_at::<F::Entries>(bytes, offset, u32::MAX)
                .ok()
                .filter(|e| e.inode != InodeNumber::NONE && e.name == name);
            if let Some(entry) = found {
                let (inode, offset) = (entry.inode, entry.offset);
                return Ok(Some(Found {
                    inode: self.checked_inode(number, inode)?,
                    block,
                    offset,
                    logical,
                }));
            }
        }
        Ok(None)
    }

    fn scan(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        name: &[u8],
    ) -> Step<Option<Found>> {
        let mut next = 0;
        while let Some((logical, block)) = self.mapped_from(v, inode, next)? {
            next = logical + 1;
            let Ok(bytes) = v.read(block) else {
                // All that is missing, in one round.
                self.want_directory(v, inode)?;
                return Err(Stop::Miss);
            };
            let bytes = self.entries_part(inode, logical, bytes);
            let found = self.find_in_block(bytes, number, (logical, block), name)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Finds a name in the bytes of one of a directory's blocks.
    ///
    /// # Errors
    /// Where a wrong entry comes first.
    pub fn find_in_block(
        &self,
        bytes: &[u8],
        number: InodeNumber,
        (logical, block): (u64, BlockNumber),
        name: &[u8],
    ) -> Step<Option<Found>> {
        let found = entries::<F::Entries>(bytes, self.format.inodes_count())
            .find_name(name)
            .map_err(|e| corrupt_directory(number, logical, e))?;
        Ok(found.map(|entry| Found {
            inode: entry.inode,
            block,
            offset: entry.offset,
            logical,
        }))
    }

    /// Brings a whole directory into memory, with one round of reads.
    ///
    /// # Errors
    /// [`Stop::Miss`] where any of it was missing.
    pub fn want_directory(&mut self, v: &mut Volume<'_>, inode: &F::Inode) -> Step<()> {
        self.want_blocks(v, inode, 0..self.directory_blocks(inode))
    }

    /// The same for some of its blocks.
    fn want_blocks(&self, v: &mut Volume<'_>, inode: &F::Inode, of: Range<u64>) -> Step<()> {
        let (mut at, end) = (of.start, of.end);
        let mut missing = false;
        while at < end {
            match self.map_blocks(v, inode, at, end - at)? {
                Mapped::Hole(len) => at += len,
                Mapped::Blocks(run) => {
                    for block in run.blocks() {
                        if !v.want(block) {
                            missing = true;
                            self.want_directories_near(v, block);
                        }
                    }
                    at += run.len;
                }
            }
        }
        if missing { Err(Stop::Miss) } else { Ok(()) }
    }

    /// A directory's block is missing: asks for those near it too, where the format keeps
    /// directories beside each other.
    fn want_directories_near(&self, v: &mut Volume<'_>, block: BlockNumber) {
        if let Some(end) = self.format.directories_end(block) {
            want_ahead(v, block - block.0 % READ_AHEAD_BLOCKS, end);
        }
    }

    fn checked_inode(&self, directory: InodeNumber, inode: InodeNumber) -> Step<InodeNumber> {
        if self.format.is_valid_inode(inode) {
            return Ok(inode);
        }
        Err(Error::corrupt(
            Structure::directory(directory),
            Fault::NameOfMissing { inode },
        )
        .into())
    }

    fn build_index(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
    ) -> Step<()> {
        if self.inodes.get(&number).is_some_and(|s| s.index.is_some()) {
            return Ok(());
        }
        if inode.size() > name_table::MOST_BYTES {
            return Ok(());
        }
        self.want_directory(v, inode)?;
        let unit = entry_unit::<F::Entries>(v);
        let mut index = DirectoryIndex {
            places: NameTable::default(),
            room: RoomSummary::default(),
            block_size: self.format.block_size().into(),
        };
        let mut next = 0;
        while let Some((logical, block)) = self.mapped_from(v, inode, next)? {
            next = logical + 1;
            let bytes = self.entries_part(inode, logical, v.read(block)?);
            for entry in entries::<F::Entries>(bytes, self.format.inodes_count()) {
                let entry = entry.map_err(|e| corrupt_directory(number, logical, e))?;
                if entry.inode != InodeNumber::NONE {
                    index.add(entry.name, logical, entry.offset);
                }
            }
            index.set_room(logical, largest_gap::<F::Entries>(bytes, unit));
        }
        self.index_bytes += index.bytes();
        self.state(number).index = Some(Box::new(index));
        Ok(())
    }

    /// Finds room for a name in a directory's blocks; `None` where it needs another block.
    pub(crate) fn find_room(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        name: &[u8],
    ) -> Step<Option<Room>> {
        let needed = required_len::<F::Entries>(name.len());
        let blocks = self.directory_blocks(inode);
        if blocks <= LINEAR_BLOCKS {
            for logical in 0..blocks {
                if let Some(room) = self.room_in(v, number, inode, logical, name)? {
                    return Ok(Some(room));
                }
            }
            return Ok(None);
        }
        self.build_index(v, number, inode)?;
        let unit = entry_unit::<F::Entries>(v);
        loop {
            let candidate = self
                .inodes
                .get(&number)
                .and_then(|s| s.index.as_ref())
                // The last blocks are where there was room last time.
                .and_then(|index| index.room.last_with(needed));
            let Some(logical) = candidate else {
                return Ok(None);
            };
            if let Some(room) = self.room_in(v, number, inode, logical as u64, name)? {
                return Ok(Some(room));
            }
            // The bound was too high: now it is exact.
            let exact = match self.directory_block(v, inode, logical as u64)? {
                Some(block) => {
                    let bytes = self.entries_part(inode, logical as u64, v.read(block)?);
                    largest_gap::<F::Entries>(bytes, unit).min(needed - 1)
                }
                None => 0,
            };
            if let Some(index) = self.state(number).index.as_mut() {
                index.set_room(logical as u64, exact);
            }
        }
    }

    fn room_in(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        logical: u64,
        name: &[u8],
    ) -> Step<Option<Room>> {
        let Some(block) = self.directory_block(v, inode, logical)? else {
            return Ok(None);
        };
        let unit = entry_unit::<F::Entries>(v);
        let bytes = self.entries_part(inode, logical, v.read(block)?);
        let found = find_gap::<F::Entries>(bytes, name.len(), unit)
            .map_err(|e| corrupt_directory(number, logical, e))?;
        Ok(found.map(|gap| Room {
            logical,
            block,
            gap,
        }))
    }

    /// A directory with an on-disk index that is not kept loses the flag before its first new name:
    /// the index would not lead to it.
    pub(crate) fn drop_index(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        parent: &F::Inode,
    ) -> Option<PatchId> {
        if parent.flags() & F::INDEX_FLAG == 0 || self.keeps_index(v, directory, parent) {
            return None;
        }
        let cleared = self.change_inode(v, directory, &[], |e| {
            e.set_flags(parent.flags() & !F::INDEX_FLAG)
        });
        Some(wait_for(Rule::NameAfterIndexFlag, cleared))
    }

    /// Whether the index on the disk of a directory may be used for finding names.
    pub(crate) fn uses_index(&self, directory: InodeNumber, inode: &F::Inode) -> bool {
        self.format.has_index(directory, inode)
            && self
                .inodes
                .get(&directory)
                .is_none_or(|s| s.index.is_none())
    }

    /// Whether indexes on the disk can be made and changed on this volume. Not while leaks of an
    /// earlier crash are looked for: a split moves names under the search.
    pub fn can_keep_indexes(&self, v: &Volume<'_>) -> bool {
        v.scopes_are_atomic()
            && self.read_only.is_none()
            && self.reclaim.is_none()
            && self.format.can_keep_indexes()
    }

    /// Whether new names go into the directory's index on the disk.
    pub fn keeps_index(&self, v: &Volume<'_>, directory: InodeNumber, inode: &F::Inode) -> bool {
        self.can_keep_indexes(v) && self.uses_index(directory, inode)
    }

    /// An entry as it is listed.
    pub fn shown<'e>(&self, entry: &Entry<'e>, next_cookie: u64) -> DirectoryEntry<'e> {
        let file_type = match self.format.has_file_types() {
            true => F::Entries::type_of_code(entry.file_type),
            false => None,
        };
        DirectoryEntry {
            inode: entry.inode,
            file_type,
            name: entry.name,
            next_cookie,
        }
    }

    /// Keeps the index in step: a name was added.
    pub(crate) fn index_added(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        logical: u64,
        offset: usize,
    ) {
        self.format.note_name_added();
        if let Some(index) = self
            .inodes
            .get_mut(&directory)
            .and_then(|s| s.index.as_mut())
        {
            let before = index.bytes();
            index.add(name, logical, offset);
            self.index_bytes += index.bytes() - before;
            // The room known of the block is too much now; it is put right when it is relied upon.
            if !index.room.knows(logical as usize) {
                index.set_room(logical, self.format.block_size() as usize);
            }
        }
    }

    /// Keeps the index in step: there is more room in a block.
    pub(crate) fn index_filled(&mut self, directory: InodeNumber, logical: u64) {
        let state = self.inodes.get_mut(&directory);
        if let Some(index) = state.and_then(|state| state.index.as_mut()) {
            index.set_room(logical, self.format.block_size() as usize);
        }
    }

    /// Keeps the index in step: a name was removed.
    pub(crate) fn index_removed(&mut self, directory: InodeNumber, name: &[u8], found: &Found) {
        if let Some(index) = self
            .inodes
            .get_mut(&directory)
            .and_then(|s| s.index.as_mut())
        {
            let before = index.bytes();
            index.remove(name, found.logical, found.offset);
            self.index_bytes -= before - index.bytes();
            // How much the removal joins is found out when it is relied upon.
            index.set_room(found.logical, self.format.block_size() as usize);
        }
    }

    /// The names in a directory that stand for an inode, `.` and `..` apart.
    pub(crate) fn find_by_inode(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        wanted: InodeNumber,
    ) -> Step<Vec<(Found, Vec<u8>)>> {
        self.want_directory(v, inode)?;
        let mut names = Vec::new();
        let mut next = 0;
        while let Some((logical, block)) = self.mapped_from(v, inode, next)? {
            next = logical + 1;
            let bytes = self.entries_part(inode, logical, v.read(block)?);
            for entry in entries::<F::Entries>(bytes, self.format.inodes_count()) {
                let entry = entry.map_err(|e| corrupt_directory(number, logical, e))?;
                if entry.inode == wanted && entry.name != b"." && entry.name != b".." {
                    let found = Found {
                        inode: wanted,
                        block,
                        offset: entry.offset,
                        logical,
                    };
                    names.push((found, entry.name.to_vec()));
                }
            }
        }
        Ok(names)
    }

    /// Whether a directory has no names but `.` and `..`.
    pub(crate) fn is_empty_directory(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
    ) -> Step<bool> {
        self.want_directory(v, inode)?;
        let mut next = 0;
        while let Some((logical, block)) = self.mapped_from(v, inode, next)? {
            next = logical + 1;
            let bytes = self.entries_part(inode, logical, v.read(block)?);
            for entry in entries::<F::Entries>(bytes, self.format.inodes_count()) {
                let entry = entry.map_err(|e| corrupt_directory(number, logical, e))?;
                if entry.inode != InodeNumber::NONE && entry.name != b"." && entry.name != b".." {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    pub(crate) fn list_names(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Step<()> {
        let inode = self.read_directory_inode(v, number)?;
        if inode.links() == 0 {
            // Somebody has it open still. Its blocks may hold names that are gone: nobody writes
            // them any more.
            return Ok(());
        }
        if self.keeps_index(v, number, &inode)
            && F::list_by_index(self, v, number, &inode, cookie, emit)?
        {
            return Ok(());
        }
        // The position is in an index that is no more: starts over, rather a name twice than never.
        let cookie = if cookie > u64::from(u32::MAX) {
            0
        } else {
            cookie
        };
        let bs = self.block_size() as u64;
        let blocks = self.directory_blocks(&inode);
        let mut next = cookie / bs;
        while let Some((logical, block)) = self.mapped_from(v, &inode, next)? {
            next = logical + 1;
            let Ok(bytes) = v.read(block) else {
                let end = blocks.min(logical + READ_AHEAD_BLOCKS);
                self.want_blocks(v, &inode, logical..end)?;
                return Err(Stop::Miss);
            };
            let bytes = self.entries_part(&inode, logical, bytes);
            for entry in entries::<F::Entries>(bytes, self.format.inodes_count()) {
                let entry = entry.map_err(|e| corrupt_directory(number, logical, e))?;
                let position = logical * bs + entry.offset as u64;
                if position < cookie || entry.inode == InodeNumber::NONE {
                    continue;
                }
                if !emit(&self.shown(&entry, position + entry.rec_len as u64)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The error for a directory's block that is wrong.
pub fn corrupt_directory(number: InodeNumber, logical: u64, error: DirectoryError) -> Error {
    let directory = number;
    Error::corrupt(Structure::DirectoryBlock { directory, logical }, error)
}
