//! Records what a program does to a mounted file system, as it reaches the layout.
//!
//! [`TracingLayout`](tracing::TracingLayout) wraps a layout. The file systems that it opens do what
//! the wrapped one does, and append every *successful* change to a trace that a [`Recorder`] shares. Requests to the
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

pub(crate) mod tracing;

use std::io::Read;
use std::sync::Arc;

use backstitch_crash_core::operation::{Operation, Path};
use backstitch_layout::flags::SETTABLE;
use backstitch_layout::{Attributes, FileType, InodeNumber, NewInode, SetAttributes};
use backstitch_ordering::GroupId;
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
