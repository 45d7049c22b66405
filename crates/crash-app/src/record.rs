//! Records what a program does to a mounted file system, as it reaches the layout.
//!
//! [`TracingLayout`] wraps a layout. The file systems that it opens do what the wrapped one does,
//! and append every *successful* change to a trace that a [`Recorder`] shares. Requests to the
//! engine that reach no layout come to the recorder as the engine's [`Observer`]. All of it happens
//! under the engine's lock, so a trace is one sequence, even of a program with many threads. Files
//! are named by their inode's number (`#12`), which no other file gets before they are gone.
//!
//! # What the program says
//!
//! The program's standard output goes through a pipe, which is emptied before each operation is
//! appended. What comes out of it then was written before that operation was answered. So
//! everything that the program says has its place in the trace, and a check can be told what the
//! program had acknowledged when the power was cut.
//!
//! # What is not recorded
//!
//! Times; reads, and the access times that they move; named pipes, sockets and device nodes (a note
//! says so). sync(2) and syncfs(2) do not reach a mount of FUSE at all: the kernel sends them to
//! block devices' file systems only.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use backstitch_crash_core::operation::{Data, Operation, Path};
use backstitch_device::BlockDevice;
use backstitch_layout::flags::SETTABLE;
use backstitch_layout::{
    AccessTimes, Allocate, Attributes, Changed, DeferredStatistics, DirectoryEntry, FileSystem,
    FileSystemStatistics, FileType, FreeSpaceReader, InodeNumber, JournalHost, LayoutKind,
    NewInode, OpenRequest, Opened, Piece, ReclaimProgress, ReclaimStep, Rename, RenameMode, Seek,
    SetAttributes, SetXattrMode, Step, Timestamp,
};
use backstitch_ordering::{GroupId, Volume};
use backstitch_store::PatchId;
use backstitch_vfs::Observer;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// The most bytes of a program's writes that are recorded.
const MOST_BYTES: u64 = 1 << 30;

/// A trace while it is being recorded. Clones share it.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Recording>>);

#[derive(Default)]
struct Recording {
    on: bool,
    operations: Vec<Operation>,
    /// The program's output, in non-blocking mode.
    output: Option<std::io::PipeReader>,
    /// Counts references to inodes. Only the first and the last one of an inode are recorded.
    held: FxHashMap<u32, u64>,
    /// A file that was just made without a name: making it has opened it.
    made_open: Option<InodeNumber>,
    root: Option<InodeNumber>,
    maker: Option<(u32, u32, u16)>,
    /// The numbers of patchgroups, and those under which the last change was made.
    groups: FxHashMap<GroupId, u32>,
    under: Vec<u32>,
    bytes: u64,
    notes: Vec<String>,
}

impl Recorder {
    /// Starts to record, including what comes out of `output`, which must not block.
    pub fn start(&self, output: Option<std::io::PipeReader>) {
        let mut recording = self.0.lock();
        recording.on = true;
        recording.output = output;
    }

    /// Adds what the program has said so far.
    pub fn listen(&self) {
        self.0.lock().listen();
    }

    /// Ends the recording for now.
    pub fn stop(&self) {
        let mut recording = self.0.lock();
        recording.listen();
        recording.on = false;
        recording.output = None;
    }

    /// What was recorded so far, and notes about it.
    pub fn operations(&self) -> (Vec<Operation>, Vec<String>) {
        let recording = self.0.lock();
        (recording.operations.clone(), recording.notes.clone())
    }
}

impl Observer for Recorder {
    fn sync_asked(&self) {
        self.0.lock().append(Operation::Sync);
    }

    fn group_depends(&self, after: GroupId, before: GroupId) {
        self.0.lock().depends(after, before);
    }

    fn group_sync_asked(&self, group: GroupId) {
        let mut recording = self.0.lock();
        let number = recording.group(group);
        recording.append(Operation::SyncGroup(number));
    }
}

impl Recording {
    fn listen(&mut self) {
        let Some(output) = &mut self.output else {
            return;
        };
        let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
        // The loop ends if there is nothing to read (`WouldBlock`), and if the other end is closed.
        while let Ok(len @ 1..) = output.read(&mut buffer) {
            said.extend_from_slice(&buffer[..len]);
        }
        if said.is_empty() || !self.on {
            return;
        }
        self.count(said.len());
        match self.operations.last_mut() {
            Some(Operation::Said(before)) => before.extend_from_slice(&said),
            _ => self.operations.push(Operation::Said(said)),
        }
    }

    /// A number for a patchgroup: 1 for the first.
    fn group(&mut self, id: GroupId) -> u32 {
        let next = self.groups.len() as u32 + 1;
        *self.groups.entry(id).or_insert(next)
    }

    /// Notes under which patchgroups the next change is made.
    fn enter(&mut self, engaged: &[GroupId]) {
        if engaged.is_empty() && self.under.is_empty() {
            return;
        }
        let mut now: Vec<u32> = engaged.iter().map(|id| self.group(*id)).collect();
        now.sort_unstable();
        let before = std::mem::replace(&mut self.under, now.clone());
        for gone in before.iter().filter(|group| !now.contains(group)) {
            self.append(Operation::Disengage(*gone));
        }
        for new in now.iter().filter(|group| !before.contains(group)) {
            self.append(Operation::Engage(*new));
        }
    }

    /// Notes that a patchgroup comes after another one, which takes no more changes.
    fn depends(&mut self, after: GroupId, before: GroupId) {
        let (after, before) = (self.group(after), self.group(before));
        if let Some(at) = self.under.iter().position(|group| *group == before) {
            self.under.swap_remove(at);
            self.append(Operation::Disengage(before));
        }
        self.append(Operation::Depend(after, before));
    }

    fn append(&mut self, operation: Operation) {
        if !self.on {
            return;
        }
        self.listen();
        self.operations.push(operation);
    }

    fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.bytes > MOST_BYTES && self.on {
            self.on = false;
            self.note("The program wrote more than 1 GiB: what came then was not recorded");
        }
    }

    fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|known| known == text) {
            self.notes.push(text.to_owned());
        }
    }

    fn file(&self, inode: InodeNumber) -> Path {
        let label = (self.root != Some(inode)).then_some(inode.0);
        Path {
            label,
            names: Vec::new(),
        }
    }

    fn entry(&self, directory: InodeNumber, name: &[u8]) -> Path {
        Path {
            names: vec![name.to_vec()],
            ..self.file(directory)
        }
    }

    fn created(&mut self, path: Path, new: &NewInode<'_>, made: InodeNumber) {
        let make = match new.file_type {
            FileType::Regular => Operation::Create(path, Some(made.0)),
            FileType::Directory => Operation::Mkdir(path, Some(made.0)),
            FileType::Symlink => Operation::Symlink(new.target.to_vec(), path, Some(made.0)),
            _ => {
                return self
                    .note("The program made named pipes, sockets or devices: no state has them");
            }
        };
        self.make(new, make);
    }

    fn make(&mut self, new: &NewInode<'_>, make: Operation) {
        let maker = (new.uid, new.gid, new.permissions & !new.umask);
        if self.maker.replace(maker) != Some(maker) {
            self.append(Operation::As(maker.0, maker.1, maker.2));
        }
        self.append(make);
    }

    fn changed(&mut self, inode: InodeNumber, set: &SetAttributes, now: &Attributes) {
        let path = self.file(inode);
        if set.uid.is_some() || set.gid.is_some() {
            self.append(Operation::Chown(path.clone(), now.uid, now.gid));
        }
        if let Some(permissions) = set.permissions {
            self.append(Operation::Chmod(path.clone(), permissions));
        }
        if let Some(size) = set.size_bytes {
            self.append(Operation::Truncate(path.clone(), size));
        }
        // The flags come last, since an immutable file refuses the other changes.
        if set.flags.is_some() {
            self.append(Operation::Chattr(path, now.flags & SETTABLE));
        }
    }
}

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
