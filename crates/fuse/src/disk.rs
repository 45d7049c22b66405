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

use crate::session::{self, Ender, MountError, Unmounter};
use backstitch_device::write_log::LoggingDevice;
use backstitch_device::{BlockDevice, DeviceError, WriteRequest};
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, Session, SessionACL, TimeOrNow, WriteFlags,
};
use rustix::fs::FallocateFlags;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest write that the kernel may send in one request.
const MAX_WRITE_BYTES: u32 = 1 << 20;
/// Requests are logged one at a time; more threads would only wait.
const THREADS: usize = 2;
/// Nothing about the two files ever changes.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

const ROOT: INodeNo = INodeNo(1);
const DISK: INodeNo = INodeNo(2);
const MARK: INodeNo = INodeNo(3);

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
        ended: Some(told.clone()),
    };
    let session = Session::new(files, &dir, &config(image));
    let session = session.map_err(|error| refused(session::plain(error)))?;
    let background = session.spawn().map_err(refused)?;
    // As in `session`: fuser would unmount by name when this is dropped.
    std::mem::forget(background);
    let ender = Ender::new(told);
    Ok(MountedDisk { dir, ended, ender })
}

fn config(image: &str) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(session::source_name(image)),
        MountOption::CUSTOM("subtype=backstitch".into()),
        MountOption::RW,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
        MountOption::NoAtime,
    ];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    config
}

/// The two files.
struct DiskFile {
    device: Arc<dyn Disk>,
    about: serde_json::Value,
    ended: Option<Sender<()>>,
}

impl DiskFile {
    fn attributes(&self, node: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match node {
            ROOT => (FileType::Directory, 0o755, 2, 0),
            DISK => (FileType::RegularFile, 0o600, 1, self.device.size_bytes()),
            MARK => (FileType::RegularFile, 0o200, 1, 0),
            _ => return None,
        };
        Some(FileAttr {
            ino: node,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// What `stat` shows, or that there is no such file.
    fn reply_attributes(&self, node: INodeNo, reply: ReplyAttr) {
        match self.attributes(node) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read_disk(&self, offset: u64, size: u32) -> Result<Vec<u8>, DeviceError> {
        let rest = self.device.size_bytes().saturating_sub(offset);
        let len = u64::from(size).min(rest) as usize;
        let mut bytes = vec![0; len];
        self.device.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn write_disk(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > self.device.size_bytes()) {
            return Err(Errno::ENOSPC);
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
    fn allocate(&self, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
        if end > self.device.size_bytes() {
            return Err(Errno::ENOSPC);
        }
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        if mode.contains(FallocateFlags::PUNCH_HOLE) {
            return match self.device.discard(offset, length) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Errno::EOPNOTSUPP),
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
        Err(Errno::EOPNOTSUPP)
    }
}

fn failed(operation: &str, error: &DeviceError) -> Errno {
    tracing::error!(operation, %error, "the recorder fails");
    Errno::EIO
}

fn reply_empty(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for DiskFile {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Never FUSE_WRITEBACK_CACHE: see the head of this file. Never FUSE_ASYNC_DIO: see "What
        // the kernel keeps" in the crate's documentation. This cannot fail: the value is within
        // what fuser takes.
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        Ok(())
    }

    fn destroy(&mut self) {
        if let Some(ended) = self.ended.take() {
            // Nobody may be waiting any more; then nobody needs to know.
            let _ = ended.send(());
        }
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let node = match name.to_str() {
            Some(DISK_NAME) if parent == ROOT => DISK,
            Some(MARK_NAME) if parent == ROOT => MARK,
            _ => return reply.error(Errno::ENOENT),
        };
        match self.attributes(node) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.reply_attributes(node, reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        _modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _created: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let resized = size.is_some_and(|size| node == DISK && size != self.device.size_bytes());
        if resized || mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        // `echo … > mark` cuts the file first; times are nobody's business.
        self.reply_attributes(node, reply);
    }

    fn open(&self, _request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = match node {
            DISK => FopenFlags::FOPEN_NOFLUSH,
            _ => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH,
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if node != DISK {
            return reply.data(&[]);
        }
        match self.read_disk(offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(failed("read", &error)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let done = match node {
            DISK => self.write_disk(offset, data),
            _ => self.write_marks(data),
        };
        match done {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _node: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let done = match node {
            DISK => self.device.flush().map_err(|error| failed("flush", &error)),
            _ => Ok(()),
        };
        reply_empty(done, reply);
    }

    fn fallocate(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match node {
            DISK => reply_empty(self.allocate(offset, length, mode), reply),
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if node != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let names = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, DISK_NAME),
            (MARK, FileType::RegularFile, MARK_NAME),
        ];
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (node, kind, name)) in names.into_iter().enumerate().skip(from) {
            if reply.add(node, at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        let blocks = self.device.size_bytes().div_ceil(4096);
        reply.statfs(blocks, 0, 0, 2, 0, 4096, 255, 4096);
    }

    fn getxattr(
        &self,
        _request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        if node != ROOT || name != crate::STATS_XATTR {
            return reply.error(Errno::NO_XATTR);
        }
        let mut about = self.about.clone();
        if let serde_json::Value::Object(members) = &mut about {
            members.insert("entries".into(), self.device.entries().into());
        }
        let text = about.to_string().into_bytes();
        match size {
            0 => reply.size(text.len() as u32),
            size if (size as usize) < text.len() => reply.error(Errno::ERANGE),
            _ => reply.data(&text),
        }
    }

    fn listxattr(&self, _request: &Request, _node: INodeNo, size: u32, reply: ReplyXattr) {
        match size {
            0 => reply.size(0),
            _ => reply.data(&[]),
        }
    }
}
