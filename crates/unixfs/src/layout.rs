//! The file system as the layers above see it.

use std::ops::Range;

use backstitch_layout::{
    AccessTimes, Allocate, Attributes, BlockNumber, Changed, DeferredStatistics, DirectoryEntry,
    Error, FileSystem, FileSystemStatistics, FreeSpaceReader, InodeNumber, NewInode, Piece,
    ReclaimProgress, ReclaimStep, Rename, Seek, SetAttributes, SetXattrMode, Step, Timestamp,
};
use backstitch_ordering::{PatchId, Volume};

use crate::format::Format;
use crate::space::are_in_memory;
use crate::state::UnixFs;
use backstitch_blocks::directory::NAME_MAX_BYTES;
use backstitch_blocks::free_runs::{FreeRuns, Freed};

impl<F: Format> UnixFs<F> {
    fn write_counters(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        match self.read_only {
            Some(_) => Ok(()),
            None => self.format.write_counters(v, now),
        }
    }
}

impl<F: Format> FileSystem for UnixFs<F> {
    fn name(&self) -> &'static str {
        self.format.type_name()
    }

    fn root(&self) -> InodeNumber {
        F::ROOT_INODE
    }

    fn read_only_reason(&self) -> Option<String> {
        self.read_only.clone()
    }

    fn mark_in_use(&mut self, v: &mut Volume<'_>) -> Step<Vec<PatchId>> {
        match self.read_only {
            Some(_) => Ok(Vec::new()),
            None => self.format.take_clean_mark(v),
        }
    }

    fn become_read_only(&mut self, reason: &str) {
        self.read_only.get_or_insert_with(|| reason.to_string());
    }

    fn statistics(&self) -> FileSystemStatistics {
        // What waits for its turn to be freed is as good as free: a caller that needs it waits.
        let kept = self.left_places.count() as u64;
        let free = self.format.free_blocks() + self.deferred.pending_blocks() + kept;
        let all = self.format.blocks_count();
        FileSystemStatistics {
            block_size_bytes: self.format.block_size(),
            blocks: all.saturating_sub(self.format.overhead_blocks()),
            free_blocks: free,
            free_in_whole_blocks: self.format.free_blocks_in_wholes(),
            available_blocks: free.saturating_sub(self.format.reserved_blocks()),
            inodes: self.format.inodes_count().into(),
            free_inodes: u64::from(self.format.free_inodes())
                + self.deferred.pending_inodes()
                + self.spares.count() as u64,
            name_max_bytes: NAME_MAX_BYTES as u32,
        }
    }

    fn attributes(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Attributes> {
        self.show_attributes(v, inode)
    }

    fn find(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Attributes> {
        let is_root = inode == F::ROOT_INODE;
        if !self.format.is_valid_inode(inode) || inode < self.format.first_inode() && !is_root {
            return Err(Error::NotFound.into());
        }
        let attributes = self.show_attributes(v, inode)?;
        match attributes.links {
            0 => Err(Error::NotFound.into()),
            _ => Ok(attributes),
        }
    }

    fn set_attributes(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        set: &SetAttributes,
        now: Timestamp,
    ) -> Step<Attributes> {
        self.check_changeable(inode)?;
        self.change_attributes(v, inode, set, now)?;
        self.note_reached(v, inode);
        self.show_attributes(v, inode)
    }

    fn touch_accessed(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        rule: AccessTimes,
        now: Timestamp,
    ) -> Step<()> {
        self.check_writable()?;
        self.note_read(v, inode, rule, now)
    }

    fn lookup(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
    ) -> Step<InodeNumber> {
        if name.len() > NAME_MAX_BYTES {
            return Err(Error::NameTooLong.into());
        }
        let found = self.find_name(v, directory, name)?;
        let found = found.ok_or(Error::NotFound)?;
        Ok(found.inode)
    }

    fn read_directory(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Step<()> {
        self.list_names(v, directory, cookie, emit)
    }

    fn create(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        new: &NewInode<'_>,
        now: Timestamp,
    ) -> Step<InodeNumber> {
        self.check_writable()?;
        self.make(v, directory, name, new, now)
    }

    fn create_unnamed(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        new: &NewInode<'_>,
        now: Timestamp,
    ) -> Step<InodeNumber> {
        self.check_writable()?;
        self.make_unnamed(v, directory, new, now)
    }

    fn link(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
    ) -> Step<()> {
        self.check_changeable(inode)?;
        self.add_link(v, inode, directory, name, now)
    }

    fn unlink(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
    ) -> Step<InodeNumber> {
        self.check_writable()?;
        self.remove_name(v, directory, name, false, now)
    }

    fn remove_directory(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
    ) -> Step<InodeNumber> {
        self.check_writable()?;
        self.remove_name(v, directory, name, true, now)
    }

    fn rename(
        &mut self,
        v: &mut Volume<'_>,
        rename: &Rename<'_>,
        now: Timestamp,
    ) -> Step<Option<InodeNumber>> {
        self.check_writable()?;
        self.move_name(v, rename, now)
    }

    fn read_link(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Vec<u8>> {
        self.symlink_target(v, inode)
    }

    fn map(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        len_bytes: usize,
        pieces: &mut Vec<Piece>,
    ) -> Step<()> {
        self.map_for_reading(v, inode, offset_bytes, len_bytes, pieces)
    }

    fn extent(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        first: u64,
        count: u64,
    ) -> Step<(Option<BlockNumber>, u64)> {
        self.extent_at(v, inode, first, count)
    }

    fn free_epoch(&self) -> u64 {
        self.free_epoch
    }

    fn write(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Step<usize> {
        self.check_changeable(inode)?;
        let written = self.write_step(v, inode, offset_bytes, data, now)?;
        self.note_reached(v, inode);
        Ok(written)
    }

    fn is_sure_to_fit(&self, _inode: InodeNumber, end_bytes: u64, len_bytes: u64) -> bool {
        /// What others may take at the same time, directories for example.
        const BESIDES: u64 = 1024;
        // Each block may need indirect blocks, in a file full of holes.
        let units = self.format.units_per_pointer();
        let block_bytes = u64::from(self.format.block_size()) * units;
        let blocks = 4 * len_bytes.div_ceil(block_bytes) * units + BESIDES;
        // Later it is written for no user, so the reserve must not be needed.
        let free = self.format.free_blocks_in_wholes();
        let free = free.saturating_sub(self.format.reserved_blocks());
        let most_bytes = self.format.max_file_bytes_at_once();
        self.read_only.is_none() && end_bytes <= most_bytes && free >= blocks
    }

    fn finds_place_unread(&self, v: &Volume<'_>, inode: InodeNumber) -> bool {
        /// More than what is put off takes, so that no search goes on to another group.
        const ROOM: u32 = 1024;
        let group = self.format.group_of_block(self.format.goal_near(inode));
        self.format.free_in_wholes_of(group) >= ROOM
            && are_in_memory(v, &self.format.block_bits(group))
    }

    fn allocate(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        how: Allocate,
        offset_bytes: u64,
        len_bytes: u64,
        now: Timestamp,
    ) -> Step<()> {
        self.check_changeable(inode)?;
        let done = self.allocate_step(v, inode, how, offset_bytes, len_bytes, now);
        self.note_reached(v, inode);
        done
    }

    fn seek(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        what: Seek,
    ) -> Step<u64> {
        self.find_data_or_hole(v, inode, offset_bytes, what)
    }

    fn xattr(&mut self, v: &mut Volume<'_>, inode: InodeNumber, name: &[u8]) -> Step<Vec<u8>> {
        F::read_xattr(self, v, inode, name)
    }

    fn list_xattrs(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<Vec<u8>> {
        F::list_xattrs(self, v, inode)
    }

    fn set_xattr(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        name: &[u8],
        value: Option<&[u8]>,
        mode: SetXattrMode,
        now: Timestamp,
    ) -> Step<()> {
        self.check_changeable(inode)?;
        F::change_xattr(self, v, inode, name, (value, mode), now)?;
        self.note_reached(v, inode);
        Ok(())
    }

    fn sync_targets(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        data_only: bool,
        targets: &mut Vec<PatchId>,
    ) {
        self.collect_sync_targets(v, inode, data_only, targets);
    }

    fn flush_targets(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        data_only: bool,
        targets: &mut Vec<PatchId>,
    ) {
        self.collect_sync_targets(v, inode, data_only, targets);
        self.note_flushed(v, inode, targets);
    }

    fn prepare_commit(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        self.write_orphans(v, now)?;
        // Also where the file system has become read-only: the transaction changes bitmaps.
        self.format.write_counters(v, now)?;
        self.defer_rest(v);
        Ok(())
    }

    fn hold(&mut self, inode: InodeNumber) {
        self.references.add(inode);
    }

    fn release(&mut self, inode: InodeNumber) {
        self.drop_reference(inode);
    }

    fn release_all(&mut self) {
        self.drop_all_references();
    }

    fn background(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<bool> {
        self.do_deferred(v, now)
    }

    fn free_ready(&mut self, v: &mut Volume<'_>) -> Step<bool> {
        self.free_ready_items(v)
    }

    fn put_reclaim_aside(&mut self) -> bool {
        self.reclaim.as_deref_mut().is_some_and(|r| r.put_aside())
    }

    fn put_deferred_aside(&mut self) -> bool {
        self.deferred.put_aside()
    }

    fn retry_deferred(&mut self) {
        self.deferred.take_up_again();
        self.left_places.ask_back();
        self.spares.ask_back();
    }

    fn free_space(&self) -> FreeSpaceReader {
        self.format.free_space_reader()
    }

    fn note_free(&mut self, v: &mut Volume<'_>, blocks: Range<u64>) -> Step<u64> {
        self.note_free_blocks(v, blocks)
    }

    fn take_free(&mut self, most: u64) -> Option<Range<u64>> {
        self.noted_free.take(most)
    }

    fn forget_free(&mut self) {
        self.noted_free = FreeRuns::default();
    }

    fn remember_freed(&mut self, remember: bool) {
        self.freed = remember.then(Freed::default);
    }

    fn take_freed(&mut self) -> Vec<Range<u64>> {
        self.freed.as_mut().map(Freed::take).unwrap_or_default()
    }

    fn deferred(&self) -> DeferredStatistics {
        DeferredStatistics {
            index_bytes: self.index_bytes,
            ..self.deferred.statistics()
        }
    }

    fn reclaim(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<ReclaimStep> {
        self.reclaim_step(v, now)
    }

    fn reclaim_progress(&self) -> ReclaimProgress {
        self.show_reclaim()
    }

    fn take_changed(&mut self, into: &mut Vec<Changed>) {
        into.append(&mut self.changed);
    }

    fn write_counters(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        self.write_counters(v, now)
    }

    fn mark_clean(&mut self, v: &mut Volume<'_>, _now: Timestamp) -> Step<()> {
        match self.read_only {
            Some(_) => Ok(()),
            None => self.format.write_clean_mark(v, self.has_leaks),
        }
    }
}
