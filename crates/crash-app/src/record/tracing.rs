//! A layout whose file systems tell a [`Recorder`] what is changed in them.

use std::ops::Range;
use std::sync::Arc;

use backstitch_crash_core::operation::{Data, Operation};
use backstitch_device::BlockDevice;
use backstitch_layout::{
    AccessTimes, Allocate, Attributes, Changed, DeferredStatistics, DirectoryEntry, FileSystem,
    FileSystemStatistics, FreeSpaceReader, InodeNumber, JournalHost, LayoutKind, NewInode,
    OpenRequest, Opened, Piece, ReclaimProgress, ReclaimStep, Rename, RenameMode, Seek,
    SetAttributes, SetXattrMode, Step, Timestamp,
};
use backstitch_ordering::Volume;
use backstitch_store::PatchId;
use parking_lot::Mutex;

use super::{Recorder, Recording};

/// A layout whose file systems are recorded.
pub struct TracingLayout<'a> {
    /// The layout that does the work.
    pub inner: &'a dyn LayoutKind,
    /// The recorder of the trace.
    pub recorder: Recorder,
}

impl LayoutKind for TracingLayout<'_> {
    fn block_bytes(&self, device: &dyn BlockDevice) -> backstitch_layout::Result<u32> {
        self.inner.block_bytes(device)
    }

    fn journal_host(&self) -> Option<&dyn JournalHost> {
        self.inner.journal_host()
    }

    fn open(
        &self,
        volume: &mut Volume<'_>,
        device: &dyn BlockDevice,
        request: &OpenRequest,
    ) -> Step<Opened> {
        let opened = self.inner.open(volume, device, request)?;
        let recording = self.recorder.0.clone();
        recording.lock().root = Some(opened.file_system.root());
        Ok(Opened {
            file_system: Box::new(Tracing {
                inner: opened.file_system,
                recording,
            }),
            ..opened
        })
    }
}

struct Tracing {
    inner: Box<dyn FileSystem>,
    recording: Arc<Mutex<Recording>>,
}

impl Tracing {
    fn append(&self, make: impl FnOnce(&Recording) -> Operation) {
        let mut recording = self.recording.lock();
        let operation = make(&recording);
        recording.append(operation);
    }

    /// Records a change that was made in this step.
    fn changed(&self, volume: &Volume<'_>, make: impl FnOnce(&Recording) -> Operation) {
        self.recording.lock().enter(volume.engaged());
        self.append(make);
    }
}

impl FileSystem for Tracing {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn root(&self) -> InodeNumber {
        self.inner.root()
    }

    fn read_only_reason(&self) -> Option<String> {
        self.inner.read_only_reason()
    }

    fn mark_in_use(&mut self, volume: &mut Volume<'_>) -> Step<Vec<PatchId>> {
        self.inner.mark_in_use(volume)
    }

    fn become_read_only(&mut self, reason: &str) {
        self.inner.become_read_only(reason);
    }

    fn statistics(&self) -> FileSystemStatistics {
        self.inner.statistics()
    }

    fn attributes(&mut self, volume: &mut Volume<'_>, inode: InodeNumber) -> Step<Attributes> {
        self.inner.attributes(volume, inode)
    }

    fn find(&mut self, volume: &mut Volume<'_>, inode: InodeNumber) -> Step<Attributes> {
        self.inner.find(volume, inode)
    }

    fn set_attributes(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        set: &SetAttributes,
        now: Timestamp,
    ) -> Step<Attributes> {
        let changed = self.inner.set_attributes(volume, inode, set, now)?;
        let mut recording = self.recording.lock();
        recording.enter(volume.engaged());
        recording.changed(inode, set, &changed);
        drop(recording);
        Ok(changed)
    }

    fn touch_accessed(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        rule: AccessTimes,
        now: Timestamp,
    ) -> Step<()> {
        self.inner.touch_accessed(volume, inode, rule, now)
    }

    fn lookup(
        &mut self,
        volume: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
    ) -> Step<InodeNumber> {
        self.inner.lookup(volume, directory, name)
    }

    fn read_directory(
        &mut self,
        volume: &mut Volume<'_>,
        directory: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry<'_>) -> bool,
    ) -> Step<()> {
        self.inner.read_directory(volume, directory, cookie, emit)
    }

    fn create(
        &mut self,
        volume: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        new: &NewInode<'_>,
        now: Timestamp,
    ) -> Step<InodeNumber> {
        let made = self.inner.create(volume, directory, name, new, now)?;
        let mut recording = self.recording.lock();
        recording.enter(volume.engaged());
        let path = recording.entry(directory, name);
        recording.created(path, new, made);
        Ok(made)
    }

    fn create_unnamed(
        &mut self,
        volume: &mut Volume<'_>,
        directory: InodeNumber,
        new: &NewInode<'_>,
        now: Timestamp,
    ) -> Step<InodeNumber> {
        let made = self.inner.create_unnamed(volume, directory, new, now)?;
        let mut recording = self.recording.lock();
        recording.enter(volume.engaged());
        let path = recording.file(directory);
        recording.make(new, Operation::Tmpfile(path, Some(made.0)));
        recording.made_open = Some(made);
        Ok(made)
    }

    fn link(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
    ) -> Step<()> {
        self.inner.link(volume, inode, directory, name, now)?;
        self.changed(volume, |r| {
            Operation::Link(r.file(inode), r.entry(directory, name))
        });
        Ok(())
    }

    fn unlink(
        &mut self,
        volume: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
    ) -> Step<InodeNumber> {
        let removed = self.inner.unlink(volume, directory, name, now)?;
        self.changed(volume, |r| Operation::Unlink(r.entry(directory, name)));
        Ok(removed)
    }

    fn remove_directory(
        &mut self,
        volume: &mut Volume<'_>,
        directory: InodeNumber,
        name: &[u8],
        now: Timestamp,
    ) -> Step<InodeNumber> {
        let removed = self.inner.remove_directory(volume, directory, name, now)?;
        self.changed(volume, |r| Operation::Rmdir(r.entry(directory, name)));
        Ok(removed)
    }

    fn rename(
        &mut self,
        volume: &mut Volume<'_>,
        rename: &Rename<'_>,
        now: Timestamp,
    ) -> Step<Option<InodeNumber>> {
        let replaced = self.inner.rename(volume, rename, now)?;
        self.changed(volume, |r| {
            let from = r.entry(rename.from, rename.from_name);
            let to = r.entry(rename.to, rename.to_name);
            match rename.mode {
                RenameMode::Exchange => Operation::Exchange(from, to),
                RenameMode::Replace | RenameMode::NoReplace => Operation::Rename(from, to),
            }
        });
        Ok(replaced)
    }

    fn read_link(&mut self, volume: &mut Volume<'_>, inode: InodeNumber) -> Step<Vec<u8>> {
        self.inner.read_link(volume, inode)
    }

    fn map(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        len_bytes: usize,
        pieces: &mut Vec<Piece>,
    ) -> Step<()> {
        self.inner
            .map(volume, inode, offset_bytes, len_bytes, pieces)
    }

    fn free_epoch(&self) -> u64 {
        self.inner.free_epoch()
    }

    fn write(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Step<usize> {
        let written = self.inner.write(volume, inode, offset_bytes, data, now)?;
        let bytes = Data::Bytes(data[..written].into());
        self.changed(volume, |r| {
            Operation::Write(r.file(inode), offset_bytes, bytes)
        });
        self.recording.lock().count(written);
        Ok(written)
    }

    fn allocate(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        how: Allocate,
        offset_bytes: u64,
        len_bytes: u64,
        now: Timestamp,
    ) -> Step<()> {
        self.inner
            .allocate(volume, inode, how, offset_bytes, len_bytes, now)?;
        self.changed(volume, |r| {
            Operation::Allocate(r.file(inode), how, offset_bytes, len_bytes)
        });
        Ok(())
    }

    fn seek(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        offset_bytes: u64,
        what: Seek,
    ) -> Step<u64> {
        self.inner.seek(volume, inode, offset_bytes, what)
    }

    fn xattr(&mut self, volume: &mut Volume<'_>, inode: InodeNumber, name: &[u8]) -> Step<Vec<u8>> {
        self.inner.xattr(volume, inode, name)
    }

    fn list_xattrs(&mut self, volume: &mut Volume<'_>, inode: InodeNumber) -> Step<Vec<u8>> {
        self.inner.list_xattrs(volume, inode)
    }

    fn set_xattr(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        name: &[u8],
        value: Option<&[u8]>,
        mode: SetXattrMode,
        now: Timestamp,
    ) -> Step<()> {
        self.inner
            .set_xattr(volume, inode, name, value, mode, now)?;
        let name = name.to_vec();
        self.changed(volume, |r| match value {
            // A line of a trace cannot express an empty value.
            Some([]) => Operation::SetXattr(r.file(inode), name, vec![0]),
            Some(value) => Operation::SetXattr(r.file(inode), name, value.to_vec()),
            None => Operation::RemoveXattr(r.file(inode), name),
        });
        Ok(())
    }

    fn sync_targets(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        data_only: bool,
        targets: &mut Vec<PatchId>,
    ) {
        self.inner.sync_targets(volume, inode, data_only, targets);
    }

    fn flush_targets(
        &mut self,
        volume: &mut Volume<'_>,
        inode: InodeNumber,
        data_only: bool,
        targets: &mut Vec<PatchId>,
    ) {
        self.inner.flush_targets(volume, inode, data_only, targets);
        self.append(|r| match data_only {
            true => Operation::Fdatasync(r.file(inode)),
            false => Operation::Fsync(r.file(inode)),
        });
    }

    fn prepare_commit(&mut self, volume: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        self.inner.prepare_commit(volume, now)
    }

    fn put_deferred_aside(&mut self) -> bool {
        self.inner.put_deferred_aside()
    }

    fn put_reclaim_aside(&mut self) -> bool {
        self.inner.put_reclaim_aside()
    }

    fn retry_deferred(&mut self) {
        self.inner.retry_deferred();
    }

    fn free_space(&self) -> FreeSpaceReader {
        self.inner.free_space()
    }

    fn hold(&mut self, inode: InodeNumber) {
        self.inner.hold(inode);
        let mut recording = self.recording.lock();
        let is_open = recording.made_open.take_if(|made| *made == inode).is_some();
        let count = recording.held.entry(inode.0).or_default();
        *count += 1;
        if *count == 1 && !is_open {
            let path = recording.file(inode);
            recording.append(Operation::Open(path));
        }
    }

    fn release(&mut self, inode: InodeNumber) {
        self.inner.release(inode);
        let mut recording = self.recording.lock();
        let Some(count) = recording.held.get_mut(&inode.0) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            recording.held.remove(&inode.0);
            let path = recording.file(inode);
            recording.append(Operation::Close(path));
        }
    }

    fn release_all(&mut self) {
        self.inner.release_all();
    }

    fn background(&mut self, volume: &mut Volume<'_>, now: Timestamp) -> Step<bool> {
        self.inner.background(volume, now)
    }

    fn free_ready(&mut self, volume: &mut Volume<'_>) -> Step<bool> {
        self.inner.free_ready(volume)
    }

    fn note_free(&mut self, volume: &mut Volume<'_>, blocks: Range<u64>) -> Step<u64> {
        self.inner.note_free(volume, blocks)
    }

    fn take_free(&mut self, most: u64) -> Option<Range<u64>> {
        self.inner.take_free(most)
    }

    fn forget_free(&mut self) {
        self.inner.forget_free();
    }

    fn remember_freed(&mut self, remember: bool) {
        self.inner.remember_freed(remember);
    }

    fn take_freed(&mut self) -> Vec<Range<u64>> {
        self.inner.take_freed()
    }

    fn deferred(&self) -> DeferredStatistics {
        self.inner.deferred()
    }

    fn reclaim(&mut self, volume: &mut Volume<'_>, now: Timestamp) -> Step<ReclaimStep> {
        self.inner.reclaim(volume, now)
    }

    fn reclaim_progress(&self) -> ReclaimProgress {
        self.inner.reclaim_progress()
    }

    fn take_changed(&mut self, into: &mut Vec<Changed>) {
        self.inner.take_changed(into);
    }

    fn write_counters(&mut self, volume: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        self.inner.write_counters(volume, now)
    }

    fn mark_clean(&mut self, volume: &mut Volume<'_>, now: Timestamp) -> Step<()> {
        self.inner.mark_clean(volume, now)
    }
}
