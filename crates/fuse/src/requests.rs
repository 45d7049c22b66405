//! The requests: each is parsed, handed to the engine, and answered.

use crate::convert::{FOREVER, allocation, errno, no_entry, rename_mode, requested_time};
use crate::front::Front;
use crate::page_buffer::PageBuffer;
use crate::privileges::Caller;
use backstitch_vfs::{FileType, ForUser, LayoutError, Seek, SetAttributes};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    INodeNo, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// The most that one `copy_file_range` request copies before its caller hears of it.
const MAX_COPY_BYTES: u64 = 64 << 20;

thread_local! {
    /// Where a thread's reads are put together.
    static READ_BUFFER: RefCell<PageBuffer> = const { RefCell::new(PageBuffer::new()) };
}

fn caller(request: &Request) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
        pid: request.pid(),
    }
}

fn requested(time: TimeOrNow) -> backstitch_vfs::Timestamp {
    match time {
        // The same clock as for what changes by itself: times must not go back between them.
        TimeOrNow::Now => backstitch_vfs::now(),
        TimeOrNow::SpecificTime(time) => requested_time(time),
    }
}

impl Front {
    /// The engine's operations that may take space, for who asks.
    fn for_caller(&self, request: &Request) -> ForUser<'_> {
        self.engine.for_user(Some(caller(request).user()))
    }
}

impl Filesystem for Front {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.negotiate(config);
        Ok(())
    }

    fn destroy(&mut self) {
        if let Some(ended) = self.ended.take() {
            // Nobody may be waiting any more; then nobody needs to know.
            let _ = ended.send(());
        }
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turns.take();
        let dir = self.nodes.inode(parent);
        // The kernel asks for `.` where it has forgotten a file that somebody has a handle of: the
        // inode may be anything, or gone.
        let found = match name.as_bytes() {
            b"." => self.engine.find(dir),
            name => self.engine.lookup(dir, name),
        };
        match found {
            Ok(attributes) => self.reply_entry(reply, &attributes),
            Err(backstitch_vfs::Error::Layout(LayoutError::NotFound)) => {
                reply.entry(&FOREVER, &no_entry(), fuser::Generation(0));
            }
            Err(error) => reply.error(errno("lookup", dir, &error)),
        }
    }

    fn forget(&self, _request: &Request, node: INodeNo, references: u64) {
        let _turn = self.turns.take();
        self.engine.forget(self.nodes.inode(node), references);
    }

    fn getattr(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let _turn = self.turns.take();
        let inode = self.nodes.inode(node);
        match self.engine.attributes(inode) {
            Ok(attributes) => self.reply_attributes(reply, &attributes),
            Err(error) => reply.error(errno("getattr", inode, &error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(node);
        let set = SetAttributes {
            permissions: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            size_bytes: size,
            accessed: accessed.map(requested),
            modified: modified.map(requested),
            flags: None,
        };
        // A kernel that gathers writes tells us itself when the last one was.
        let of_gathered = self.writeback_cache && accessed.is_none();
        let stated = [accessed, modified]
            .iter()
            .any(|time| matches!(time, Some(TimeOrNow::SpecificTime(_))));
        let is_kept = stated && !of_gathered || mode.is_some() || uid.is_some() || gid.is_some();
        let changed = self
            .check_append_only(inode, is_kept)
            .and_then(|()| self.change_attributes(inode, set, caller(request)));
        match changed {
            Ok(attributes) => self.reply_attributes(reply, &attributes),
            Err(error) => reply.error(errno("setattr", inode, &error)),
        }
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        let _turn = self.turns.take();
        let inode = self.nodes.inode(node);
        match self.engine.read_link(inode) {
            Ok(target) => {
                reply.data(&target);
                self.touch(inode);
            }
            Err(error) => reply.error(errno("readlink", inode, &error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let Some(file_type) = FileType::from_mode(mode) else {
            return reply.error(Errno::EINVAL);
        };
        let dir = self.nodes.inode(parent);
        let mut new = self.new_inode(request, dir, file_type, mode, umask, &[]);
        if matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice) {
            new.device_number = rdev;
        }
        self.reply_created(
            "mknod",
            dir,
            self.for_caller(request).create(dir, name.as_bytes(), &new),
            reply,
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let dir = self.nodes.inode(parent);
        let new = self.new_inode(request, dir, FileType::Directory, mode, umask, &[]);
        self.reply_created(
            "mkdir",
            dir,
            self.for_caller(request).create(dir, name.as_bytes(), &new),
            reply,
        );
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let dir = self.nodes.inode(parent);
        let done = self.engine.unlink(dir, name.as_bytes());
        Self::reply_empty("unlink", dir, self.in_sync(&[], &[dir], done), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let dir = self.nodes.inode(parent);
        let done = self.engine.rmdir(dir, name.as_bytes());
        Self::reply_empty("rmdir", dir, self.in_sync(&[], &[dir], done), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let dir = self.nodes.inode(parent);
        let target = target.as_os_str().as_bytes();
        let new = self.new_inode(request, dir, FileType::Symlink, 0o777, 0, target);
        self.reply_created(
            "symlink",
            dir,
            self.for_caller(request).create(dir, name.as_bytes(), &new),
            reply,
        );
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.take();
        let _under = self.control.enter_rename(request);
        let Some(mode) = rename_mode(flags) else {
            return reply.error(Errno::EINVAL);
        };
        let (from, to) = (self.nodes.inode(parent), self.nodes.inode(new_parent));
        let done =
            self.for_caller(request)
                .rename(from, name.as_bytes(), to, new_name.as_bytes(), mode);
        Self::reply_empty("rename", from, self.in_sync(&[], &[from, to], done), reply);
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let (inode, dir) = (self.nodes.inode(node), self.nodes.inode(new_parent));
        self.reply_created(
            "link",
            dir,
            self.for_caller(request)
                .link(inode, dir, new_name.as_bytes()),
            reply,
        );
    }

    fn open(&self, _request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.no_open {
            return reply.error(Errno::ENOSYS);
        }
        let inode = self.nodes.inode(node);
        if let Err(error) = self.check_open(inode, flags) {
            return reply.error(errno("open", inode, &error));
        }
        reply.opened(self.open_file(node), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn release(
        &self,
        _request: &Request,
        _node: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close_file(fh);
        reply.ok();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _node: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.close_file(fh);
        reply.ok();
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        // The kernel then sends MKNOD, and no RELEASE at the end.
        reply.error(Errno::ENOSYS);
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
        let _turn = self.turns.take();
        let inode = self.nodes.inode(node);
        READ_BUFFER.with_borrow_mut(|buffer| {
            let buffer = buffer.of(size as usize);
            match self.engine.read_into(inode, offset, buffer) {
                Ok(read) => reply.data(&buffer[..read]),
                Err(error) => reply.error(errno("read", inode, &error)),
            }
        });
        self.touch(inode);
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.turns.take();
        let inode = self.nodes.inode(node);
        let _under = match write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            true => self.control.enter_write_back(inode),
            false => self.control.enter(request),
        };
        let user = caller(request).user();
        match self.write_with_flags(user, inode, offset, data, write_flags, flags) {
            Ok(written) => reply.written(written as u32),
            Err(error) => {
                reply.error(errno("write", inode, &error));
                let is_refused = error.errno() == libc::EPERM;
                if is_refused && write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
                    self.drop_pages_later(inode);
                }
            }
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
        // Closing a file promises nothing; the kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        request: &Request,
        node: INodeNo,
        fh: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.take();
        if self.control.is_ordering_point(request) {
            return reply.ok();
        }
        let inode = self.nodes.inode(node);
        self.fsync_and_reply("fsync", inode, self.opened(fh), data_only, reply);
    }

    fn opendir(&self, _request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.no_opendir {
            return reply.error(Errno::ENOSYS);
        }
        let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        reply.opened(self.open_file(node), flags);
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let _turn = self.turns.take();
        self.read_directory(self.nodes.inode(node), offset, reply);
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.turns.take();
        self.read_directory_plus(self.nodes.inode(node), offset, reply);
    }

    fn fsyncdir(
        &self,
        request: &Request,
        node: INodeNo,
        fh: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.take();
        if self.control.is_ordering_point(request) {
            return reply.ok();
        }
        let inode = self.nodes.inode(node);
        self.fsync_and_reply("fsyncdir", inode, self.opened(fh), data_only, reply);
    }

    fn statfs(&self, _request: &Request, node: INodeNo, reply: ReplyStatfs) {
        let _turn = self.turns.take();
        match self.engine.statistics_at(self.nodes.inode(node)) {
            Ok(s) => reply.statfs(
                s.blocks,
                s.free_blocks,
                s.available_blocks,
                s.inodes,
                s.free_inodes,
                s.block_size_bytes,
                s.name_max_bytes,
                s.block_size_bytes,
            ),
            Err(error) => reply.error(errno("statfs", self.engine.root(), &error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(node);
        let done = self.set_xattr(caller(request), inode, name.as_bytes(), value, flags);
        let done = self.in_sync(&[inode], &[], done);
        Self::reply_empty("setxattr", inode, done, reply);
    }

    fn getxattr(
        &self,
        _request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let _turn = self.turns.take();
        if !self.xattrs {
            // The kernel does not ask again, for no file and no attribute.
            return reply.error(Errno::ENOSYS);
        }
        let inode = self.nodes.inode(node);
        Self::reply_xattr(
            "getxattr",
            inode,
            self.xattr(inode, name.as_bytes()),
            size,
            reply,
        );
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.turns.take();
        if !self.xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let inode = self.nodes.inode(node);
        let names = self.xattr_names(caller(request), inode);
        Self::reply_xattr("listxattr", inode, names, size, reply);
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(node);
        let done = self.remove_xattr(caller(request), inode, name.as_bytes());
        let done = self.in_sync(&[inode], &[], done);
        Self::reply_empty("removexattr", inode, done, reply);
    }

    fn access(&self, _request: &Request, _node: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself.
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _request: &Request, _node: INodeNo, _size: u32, _index: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(node);
        self.control_inode(caller(request), inode, command, data, out_size, reply);
    }

    fn poll(
        &self,
        _request: &Request,
        _node: INodeNo,
        _fh: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        // The kernel then says "always ready", as for every file.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(node);
        let Some(how) = allocation(mode) else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        let mut done = self
            .for_caller(request)
            .allocate(inode, how, offset, length);
        if done.is_ok() && !caller(request).is_privileged() {
            done = self.clear_after_write(inode);
        }
        Self::reply_empty("fallocate", inode, self.in_sync(&[inode], &[], done), reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.turns.take();
        let inode = self.nodes.inode(node);
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        match self.engine.seek(inode, offset, what) {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(errno("lseek", inode, &error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _from_fh: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _to_fh: FileHandle,
        to_offset: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _turn = self.turns.take();
        let _under = self.control.enter(request);
        let (from, to) = (self.nodes.inode(from), self.nodes.inode(to));
        let len = len.min(MAX_COPY_BYTES);
        let copied = self
            .for_caller(request)
            .copy_range(from, from_offset, to, to_offset, len);
        let copied = copied.and_then(|copied| {
            if !caller(request).is_privileged() {
                self.clear_after_write(to)?;
            }
            Ok(copied)
        });
        let copied = self.in_sync(&[to], &[], copied);
        match copied {
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(errno("copy_file_range", to, &error)),
        }
    }
}
