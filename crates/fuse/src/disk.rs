//! A block device as a file: what a loop device or a virtual machine sits on while its writes are
//! recorded.
//!
//! [`spawn`] mounts a directory of two files. `disk` is the device: of fixed size, read and written
//! in place. `mark` takes remarks: each line written to it becomes a mark in the log, at the place
//! that the log has reached.
//!
//! # Order
//!
//! The log is worth what the order of requests is worth, so nothing may hold writes back. The
//! kernel's write-back cache for FUSE stays off: a `write` on `disk` returns when it has reached
//! us, in one piece or several, and an `fsync` comes after the writes before it. A loop device
//! turns the flushes of the file system above it into `fsync` here, and its discards into holes.
//! (What is written through a shared mapping reaches us when the kernel writes it back: before the
//! next `fsync`, in no order.)

use crate::convert::{FOREVER_SECONDS, entry};
use crate::session::{self, Ender, MountError, Unmounter};
use backstitch_device::write_log::LoggingDevice;
use backstitch_device::{BlockDevice, DeviceError, WriteRequest};
use backstitch_fuse_protocol::abi::{
    self, fuse_attr, fuse_attr_out, fuse_fallocate_in, fuse_kstatfs, fuse_read_in, fuse_setattr_in,
    fuse_write_in,
};
use backstitch_fuse_protocol::{
    self as protocol, Attributes, Data, Directory, Empty, Entry, Errno, Filesystem, IoUring,
    MountOptions, NodeId, Offer, Open, Reply, Request, Session, SessionOptions, Statfs, Written,
    Xattr,
};
use rustix::fs::FallocateFlags;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The largest write that the kernel may send in one request.
const MAX_WRITE_BYTES: u32 = 1 << 20;

const ROOT: NodeId = NodeId(1);
const DISK: NodeId = NodeId(2);
const MARK: NodeId = NodeId(3);

/// The name of the device's file.
pub const DISK_NAME: &str = "disk";
/// The name of the file that takes marks.
pub const MARK_NAME: &str = "mark";

/// A device that takes marks.
pub trait Disk: BlockDevice {
    /// Takes a remark.
    ///
    /// # Errors
    ///
    /// The device's.
    fn mark(&self, text: &str) -> Result<(), DeviceError>;

    /// How many requests and marks it has taken, as far as it counts.
    fn entries(&self) -> u64;
}

impl Disk for LoggingDevice {
    fn mark(&self, text: &str) -> Result<(), DeviceError> {
        LoggingDevice::mark(self, text)
    }

    fn entries(&self) -> u64 {
        LoggingDevice::entries(self)
    }
}

/// A recorder that is mounted and being served.
#[derive(Debug)]
pub struct MountedDisk {
    dir: PathBuf,
    ended: Receiver<()>,
    ender: Ender,
}

impl MountedDisk {
    /// Waits until the recorder is unmounted, by whomever.
    pub fn wait(self) {
        // This cannot fail: `ender` keeps a sender alive.
        let _ = self.ended.recv();
    }

    /// Something that can take the mount off, from any thread.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter::new(self.dir.clone())
    }

    /// Something that can end [`wait`](Self::wait) although the mount is still there.
    pub fn ender(&self) -> Ender {
        self.ender.clone()
    }
}

/// Mounts `device` at `dir` and serves it in the background. When this returns, the mount answers.
///
/// `image` is shown as the mount's source; `about` is what [`stats_of`](crate::stats_of) answers.
///
/// # Errors
///
/// [`MountError::Mount`].
pub fn spawn(
    device: Arc<dyn Disk>,
    dir: &Path,
    image: &str,
    about: serde_json::Value,
) -> Result<MountedDisk, MountError> {
    let refused = |reason| MountError::Mount {
        dir: dir.to_owned(),
        reason,
    };
    let dir = dir.canonicalize().map_err(refused)?;
    let (told, ended) = channel();
    let files = DiskFile {
        device,
        about,
        ended: told.clone(),
    };
    let connection = protocol::mount(&dir, &mount_options(image)).map_err(refused)?;
    Session::new(files, connection, SESSION)
        .and_then(Session::start)
        .map_err(|error| session::given_up(&dir, error))?;
    let ender = Ender::new(told);
    Ok(MountedDisk { dir, ended, ender })
}

/// Requests are logged one at a time: more threads would only wait, and io_uring would bring them
/// no sooner.
const SESSION: SessionOptions = SessionOptions {
    max_write_bytes: MAX_WRITE_BYTES,
    max_background: 16,
    max_read_ahead_bytes: 128 << 10,
    threads: 2,
    ring_threads: 0,
    io_uring: IoUring::Off,
};

fn mount_options(image: &str) -> MountOptions {
    MountOptions {
        source: image.to_owned(),
        subtype: session::SUBTYPE.into(),
        ..MountOptions::default()
    }
}

/// The two files.
struct DiskFile {
    device: Arc<dyn Disk>,
    about: serde_json::Value,
    ended: Sender<()>,
}

impl DiskFile {
    fn attributes(&self, node: NodeId) -> Option<fuse_attr> {
        let (mode, nlink, size) = match node {
            ROOT => (0o040_755, 2, 0),
            DISK => (0o100_600, 1, self.device.size_bytes()),
            MARK => (0o100_200, 1, 0),
            _ => return None,
        };
        Some(fuse_attr {
            ino: node.0,
            size,
            blocks: size.div_ceil(512),
            mode,
            nlink,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            blksize: 4096,
            ..Default::default()
        })
    }

    /// What `stat` shows, or that there is no such file.
    fn reply_attributes(&self, node: NodeId, reply: Reply<Attributes>) {
        match self.attributes(node) {
            Some(attributes) => reply.attributes(&fuse_attr_out {
                attr_valid: FOREVER_SECONDS,
                attr_valid_nsec: 0,
                dummy: 0,
                attr: attributes,
            }),
            None => reply.error(Errno::NOENT),
        }
    }

    fn read_disk(&self, offset: u64, space: &mut [u8]) -> Result<usize, Errno> {
        let rest = self.device.size_bytes().saturating_sub(offset);
        let len = (space.len() as u64).min(rest) as usize;
        let done = self.device.read(offset, &mut space[..len]);
        done.map_err(|error| failed("read", &error))?;
        Ok(len)
    }

    fn write_disk(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > self.device.size_bytes()) {
            return Err(Errno::NOSPC);
        }
        let request = WriteRequest {
            offset_bytes: offset,
            buffers: vec![data.into()],
        };
        let done = self.device.submit(&[request]);
        done.map_err(|error| failed("write", &error))
    }

    fn write_marks(&self, data: &[u8]) -> Result<(), Errno> {
        let text = String::from_utf8_lossy(data);
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .try_for_each(|line| self.device.mark(line))
            .map_err(|error| failed("mark", &error))
    }

    /// Holes are discards; zeros are written; blocks that are there already need no allocation.
    fn allocate(&self, offset: u64, length: u64, mode: u32) -> Result<(), Errno> {
        let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
        if end > self.device.size_bytes() {
            return Err(Errno::NOSPC);
        }
        let mode = FallocateFlags::from_bits_retain(mode);
        if mode.contains(FallocateFlags::PUNCH_HOLE) {
            return match self.device.discard(offset, length) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Errno::OPNOTSUPP),
                Err(error) => Err(failed("discard", &error)),
            };
        }
        if mode.contains(FallocateFlags::ZERO_RANGE) {
            let zeros = vec![0; length.min(u64::from(MAX_WRITE_BYTES)) as usize];
            let mut at = offset;
            while at < end {
                let len = (end - at).min(zeros.len() as u64);
                self.write_disk(at, &zeros[..len as usize])?;
                at += len;
            }
            return Ok(());
        }
        if (mode - FallocateFlags::KEEP_SIZE).is_empty() {
            return Ok(());
        }
        Err(Errno::OPNOTSUPP)
    }
}

fn failed(operation: &str, error: &DeviceError) -> Errno {
    tracing::error!(operation, %error, "the recorder fails");
    Errno::IO
}

fn reply_empty(done: Result<(), Errno>, reply: Reply<Empty>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for DiskFile {
    fn negotiate(&mut self, _offer: &Offer) -> u64 {
        // Never FUSE_WRITEBACK_CACHE: see the head of this file. Never FUSE_ASYNC_DIO: see "What
        // the kernel keeps" in the crate's documentation.
        0
    }

    fn ended(&self) {
        // Nobody may be waiting any more; then nobody needs to know.
        let _ = self.ended.send(());
    }

    fn lookup(&self, request: &Request, name: &[u8], reply: Reply<Entry>) {
        let node = match name {
            name if name == DISK_NAME.as_bytes() && request.node == ROOT => DISK,
            name if name == MARK_NAME.as_bytes() && request.node == ROOT => MARK,
            _ => return reply.error(Errno::NOENT),
        };
        match self.attributes(node) {
            Some(attributes) => reply.entry(&entry(node, 0, attributes)),
            None => reply.error(Errno::NOENT),
        }
    }

    fn getattr(&self, request: &Request, reply: Reply<Attributes>) {
        self.reply_attributes(request.node, reply);
    }

    fn setattr(&self, request: &Request, set: &fuse_setattr_in, reply: Reply<Attributes>) {
        let node = request.node;
        let given = |bit: u32| set.valid & bit != 0;
        let resized =
            given(abi::FATTR_SIZE) && node == DISK && set.size != self.device.size_bytes();
        if resized || given(abi::FATTR_MODE | abi::FATTR_UID | abi::FATTR_GID) {
            return reply.error(Errno::PERM);
        }
        // `echo … > mark` cuts the file first; times are nobody's business.
        self.reply_attributes(node, reply);
    }

    fn open(&self, request: &Request, _flags: u32, reply: Reply<Open>) {
        let flags = match request.node {
            DISK => abi::FOPEN_NOFLUSH,
            _ => abi::FOPEN_DIRECT_IO | abi::FOPEN_NOFLUSH,
        };
        reply.opened(0, flags);
    }

    fn release(&self, _request: &Request, _handle: u64, reply: Reply<Empty>) {
        reply.ok();
    }

    fn opendir(&self, _request: &Request, reply: Reply<Open>) {
        reply.opened(0, 0);
    }

    fn releasedir(&self, _request: &Request, _handle: u64, reply: Reply<Empty>) {
        reply.ok();
    }

    fn read(&self, request: &Request, read: &fuse_read_in, reply: Reply<Data>) {
        if request.node != DISK {
            return reply.data(&[]);
        }
        reply.read(read.size as usize, |space| {
            self.read_disk(read.offset, space)
        });
    }

    fn write(&self, request: &Request, write: &fuse_write_in, data: &[u8], reply: Reply<Written>) {
        let done = match request.node {
            DISK => self.write_disk(write.offset, data),
            _ => self.write_marks(data),
        };
        match done {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _request: &Request, reply: Reply<Empty>) {
        reply.ok();
    }

    fn fsync(&self, request: &Request, _handle: u64, _data_only: bool, reply: Reply<Empty>) {
        let done = match request.node {
            DISK => self.device.flush().map_err(|error| failed("flush", &error)),
            _ => Ok(()),
        };
        reply_empty(done, reply);
    }

    fn fallocate(&self, request: &Request, what: &fuse_fallocate_in, reply: Reply<Empty>) {
        match request.node {
            DISK => reply_empty(self.allocate(what.offset, what.length, what.mode), reply),
            _ => reply.error(Errno::OPNOTSUPP),
        }
    }

    fn readdir(&self, request: &Request, read: &fuse_read_in, reply: Reply<Directory>) {
        if request.node != ROOT {
            return reply.error(Errno::NOTDIR);
        }
        let (directory, file) = (0o040_000, 0o100_000);
        let names = [
            (ROOT, directory, "."),
            (ROOT, directory, ".."),
            (DISK, file, DISK_NAME),
            (MARK, file, MARK_NAME),
        ];
        let from = usize::try_from(read.offset).unwrap_or(usize::MAX);
        reply.entries(read.size as usize, |list| {
            for (at, (node, mode, name)) in names.into_iter().enumerate().skip(from) {
                if !list.add(node.0, at as u64 + 1, mode, name.as_bytes()) {
                    break;
                }
            }
            Ok(())
        });
    }

    fn statfs(&self, _request: &Request, reply: Reply<Statfs>) {
        reply.statfs(fuse_kstatfs {
            blocks: self.device.size_bytes().div_ceil(4096),
            files: 2,
            bsize: 4096,
            namelen: 255,
            frsize: 4096,
            ..Default::default()
        });
    }

    fn getxattr(&self, request: &Request, name: &[u8], most: u32, reply: Reply<Xattr>) {
        if request.node != ROOT || name != crate::STATS_XATTR.as_bytes() {
            return reply.error(Errno::NODATA);
        }
        let mut about = self.about.clone();
        if let serde_json::Value::Object(members) = &mut about {
            members.insert("entries".into(), self.device.entries().into());
        }
        reply.value(most, about.to_string().as_bytes());
    }

    fn listxattr(&self, _request: &Request, most: u32, reply: Reply<Xattr>) {
        reply.value(most, &[]);
    }
}
