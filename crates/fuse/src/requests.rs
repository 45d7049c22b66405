//! The requests: each is parsed, handed to the engine, and answered.

use crate::convert::{FOREVER_SECONDS, allocation, errno, no_entry, rename_mode, requested_time};
use crate::front::Front;
use crate::privileges::Caller;
use crate::turns::{Turn, Turns};
use backstitch_fuse_protocol::abi::{
    self, fuse_copy_file_range_in, fuse_create_in, fuse_fallocate_in, fuse_ioctl_in, fuse_kstatfs,
    fuse_lseek_in, fuse_mkdir_in, fuse_mknod_in, fuse_read_in, fuse_setattr_in, fuse_statx,
    fuse_statx_in, fuse_statx_out, fuse_sx_time, fuse_write_in,
};
use backstitch_fuse_protocol::{
    Attributes, Created, Data, Directory, Empty, Entry, Errno, Filesystem, Ioctl, NodeId, Offer,
    Offset, Open, Reply, Request, Statfs, Statx, Written, Xattr,
};
use backstitch_vfs::{FileType, ForUser, LayoutError, Seek, SetAttributes, Timestamp};

/// The most that one `copy_file_range` request copies before its caller hears of it.
const MAX_COPY_BYTES: u64 = 64 << 20;

/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const BASIC_STATS: u32 = 0x7ff;
const CREATION_TIME: u32 = 0x800;

fn caller(request: &Request) -> Caller {
    Caller {
        uid: request.uid,
        gid: request.gid,
        pid: request.pid,
    }
}

/// The moment that a request wants an inode to have, by the bits that say whether it states one and
/// whether that is now.
fn wanted(set: &fuse_setattr_in, stated: u32, now: u32, time: (u64, u32)) -> Option<Timestamp> {
    match (set.valid & stated != 0, set.valid & now != 0) {
        (false, _) => None,
        // The same clock as for what changes by itself: times must not go back between them.
        (true, true) => Some(backstitch_vfs::now()),
        (true, false) => Some(requested_time(time.0, time.1)),
    }
}

impl Front {
    /// To be held while a request is answered.
    fn turn(&self) -> Option<Turn> {
        self.turns.as_ref().map(Turns::take)
    }

    /// The engine's operations that may take space, for who asks.
    fn for_caller(&self, request: &Request) -> ForUser<'_> {
        self.engine.for_user(Some(caller(request).user()))
    }
}

impl Filesystem for Front {
    fn negotiate(&mut self, offer: &Offer) -> u64 {
        self.choose(offer)
    }

    fn received(&self, opcode: u32) {
        self.requests.note(opcode);
    }

    fn ended(&self) {
        // Nobody may be waiting any more; then nobody needs to know.
        let _ = self.ended.send(());
    }

    fn lookup(&self, request: &Request, name: &[u8], reply: Reply<Entry>) {
        let _turn = self.turn();
        let dir = self.nodes.inode(request.node);
        // The kernel asks for `.` where it has forgotten a file that somebody has a handle of: the
        // inode may be anything, or gone.
        let found = match name {
            b"." => self.engine.find(dir),
            name => self.engine.lookup(dir, name),
        };
        match found {
            Ok(attributes) => self.reply_entry(reply, &attributes),
            Err(backstitch_vfs::Error::Layout(LayoutError::NotFound)) => reply.entry(&no_entry()),
            Err(error) => reply.error(errno("lookup", dir, &error)),
        }
    }

    fn forget(&self, node: NodeId, references: u64) {
        let _turn = self.turn();
        self.engine.forget(self.nodes.inode(node), references);
    }

    fn getattr(&self, request: &Request, reply: Reply<Attributes>) {
        let _turn = self.turn();
        let inode = self.nodes.inode(request.node);
        match self.engine.attributes(inode) {
            Ok(attributes) => self.reply_attributes(reply, &attributes),
            Err(error) => reply.error(errno("getattr", inode, &error)),
        }
    }

    fn statx(&self, request: &Request, _asked: &fuse_statx_in, reply: Reply<Statx>) {
        let _turn = self.turn();
        let inode = self.nodes.inode(request.node);
        match self.engine.attributes(inode) {
            Ok(attributes) => reply.statx(&self.statx_of(&attributes)),
            Err(error) => reply.error(errno("statx", inode, &error)),
        }
    }

    fn setattr(&self, request: &Request, set: &fuse_setattr_in, reply: Reply<Attributes>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(request.node);
        let given = |bit: u32| set.valid & bit != 0;
        let accessed = (set.atime, set.atimensec);
        let modified = (set.mtime, set.mtimensec);
        let wishes = SetAttributes {
            permissions: given(abi::FATTR_MODE).then_some((set.mode & 0o7777) as u16),
            uid: given(abi::FATTR_UID).then_some(set.uid),
            gid: given(abi::FATTR_GID).then_some(set.gid),
            size_bytes: given(abi::FATTR_SIZE).then_some(set.size),
            accessed: wanted(set, abi::FATTR_ATIME, abi::FATTR_ATIME_NOW, accessed),
            modified: wanted(set, abi::FATTR_MTIME, abi::FATTR_MTIME_NOW, modified),
            flags: None,
        };
        // A kernel that gathers writes tells us itself when the last one was.
        let of_gathered = self.writeback_cache && !given(abi::FATTR_ATIME);
        let states = |stated: u32, now: u32| given(stated) && !given(now);
        let stated = states(abi::FATTR_ATIME, abi::FATTR_ATIME_NOW)
            || states(abi::FATTR_MTIME, abi::FATTR_MTIME_NOW);
        let is_kept =
            stated && !of_gathered || given(abi::FATTR_MODE | abi::FATTR_UID | abi::FATTR_GID);
        let clears_privileges = given(abi::FATTR_KILL_SUIDGID);
        let changed = self.check_append_only(inode, is_kept).and_then(|()| {
            self.change_attributes(inode, wishes, caller(request), clears_privileges)
        });
        match changed {
            Ok(attributes) => self.reply_attributes(reply, &attributes),
            Err(error) => reply.error(errno("setattr", inode, &error)),
        }
    }

    fn readlink(&self, request: &Request, reply: Reply<Data>) {
        let _turn = self.turn();
        let inode = self.nodes.inode(request.node);
        match self.engine.read_link(inode) {
            Ok(target) => {
                reply.data(&target);
                self.touch(inode);
            }
            Err(error) => reply.error(errno("readlink", inode, &error)),
        }
    }

    fn mknod(&self, request: &Request, node: &fuse_mknod_in, name: &[u8], reply: Reply<Entry>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let Some(file_type) = FileType::from_mode(node.mode) else {
            return reply.error(Errno::INVAL);
        };
        let dir = self.nodes.inode(request.node);
        let mut new = self.new_inode(request, dir, file_type, node.mode, node.umask, &[]);
        if matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice) {
            new.device_number = node.rdev;
        }
        let made = self.for_caller(request).create(dir, name, &new);
        self.reply_created("mknod", dir, made, reply);
    }

    fn mkdir(&self, request: &Request, node: &fuse_mkdir_in, name: &[u8], reply: Reply<Entry>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let dir = self.nodes.inode(request.node);
        let kind = FileType::Directory;
        let new = self.new_inode(request, dir, kind, node.mode, node.umask, &[]);
        let made = self.for_caller(request).create(dir, name, &new);
        self.reply_created("mkdir", dir, made, reply);
    }

    fn unlink(&self, request: &Request, name: &[u8], reply: Reply<Empty>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let dir = self.nodes.inode(request.node);
        let done = self.engine.unlink(dir, name);
        Self::reply_empty("unlink", dir, self.in_sync(&[], &[dir], done), reply);
    }

    fn rmdir(&self, request: &Request, name: &[u8], reply: Reply<Empty>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let dir = self.nodes.inode(request.node);
        let done = self.engine.rmdir(dir, name);
        Self::reply_empty("rmdir", dir, self.in_sync(&[], &[dir], done), reply);
    }

    fn symlink(&self, request: &Request, name: &[u8], target: &[u8], reply: Reply<Entry>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let dir = self.nodes.inode(request.node);
        let new = self.new_inode(request, dir, FileType::Symlink, 0o777, 0, target);
        let made = self.for_caller(request).create(dir, name, &new);
        self.reply_created("symlink", dir, made, reply);
    }

    fn rename(
        &self,
        request: &Request,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: u32,
        reply: Reply<Empty>,
    ) {
        let _turn = self.turn();
        let _under = self.control.enter_rename(request);
        let Some(mode) = rename_mode(flags) else {
            return reply.error(Errno::INVAL);
        };
        let from = self.nodes.inode(request.node);
        let to = self.nodes.inode(new_parent);
        let done = self
            .for_caller(request)
            .rename(from, name, to, new_name, mode);
        Self::reply_empty("rename", from, self.in_sync(&[], &[from, to], done), reply);
    }

    fn link(&self, request: &Request, node: NodeId, name: &[u8], reply: Reply<Entry>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(node);
        let dir = self.nodes.inode(request.node);
        let made = self.for_caller(request).link(inode, dir, name);
        self.reply_created("link", dir, made, reply);
    }

    fn tmpfile(&self, request: &Request, node: &fuse_create_in, reply: Reply<Created>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let dir = self.nodes.inode(request.node);
        let new = self.new_inode(request, dir, FileType::Regular, node.mode, node.umask, &[]);
        // Nothing is lost with it that anybody could find after a crash: there is nothing to sync.
        match self.for_caller(request).create_unnamed(dir, &new) {
            Ok(attributes) => {
                let made = self.entry_of(&attributes);
                let handle = self.open_file(NodeId(made.nodeid));
                reply.created(&made, handle, abi::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(errno("tmpfile", dir, &error)),
        }
    }

    // CREATE is not there: the kernel then sends MKNOD, and no RELEASE at the end.

    fn open(&self, request: &Request, flags: u32, reply: Reply<Open>) {
        if self.no_open {
            return reply.error(Errno::NOSYS);
        }
        let inode = self.nodes.inode(request.node);
        if let Err(error) = self.check_open(inode, flags) {
            return reply.error(errno("open", inode, &error));
        }
        reply.opened(self.open_file(request.node), abi::FOPEN_KEEP_CACHE);
    }

    fn release(&self, _request: &Request, handle: u64, reply: Reply<Empty>) {
        self.close_file(handle);
        reply.ok();
    }

    fn releasedir(&self, _request: &Request, handle: u64, reply: Reply<Empty>) {
        self.close_file(handle);
        reply.ok();
    }

    fn read(&self, request: &Request, read: &fuse_read_in, reply: Reply<Data>) {
        let _turn = self.turn();
        let inode = self.nodes.inode(request.node);
        reply.read(read.size as usize, |space| {
            let done = self.engine.read_into(inode, read.offset, space);
            done.map_err(|error| errno("read", inode, &error))
        });
        self.touch(inode);
    }

    fn write(&self, request: &Request, write: &fuse_write_in, data: &[u8], reply: Reply<Written>) {
        let _turn = self.turn();
        let inode = self.nodes.inode(request.node);
        let is_written_back = write.write_flags & abi::FUSE_WRITE_CACHE != 0;
        let _under = match is_written_back {
            true => self.control.enter_write_back(inode),
            false => self.control.enter(request),
        };
        let user = caller(request).user();
        match self.write_with_flags(user, inode, write, data) {
            Ok(written) => reply.written(written as u32),
            Err(error) => {
                reply.error(errno("write", inode, &error));
                if error.errno() == libc::EPERM && is_written_back {
                    self.drop_pages_later(inode);
                }
            }
        }
    }

    // FLUSH is not there: closing a file promises nothing, and the kernel does not ask again. Nor is
    // ACCESS, for the kernel checks permissions itself, nor POLL: it then says "always ready", as
    // for every file.

    fn fsync(&self, request: &Request, handle: u64, data_only: bool, reply: Reply<Empty>) {
        let _turn = self.turn();
        if self.control.is_ordering_point(request) {
            return reply.ok();
        }
        let inode = self.nodes.inode(request.node);
        self.fsync_and_reply("fsync", inode, self.opened(handle), data_only, reply);
    }

    fn opendir(&self, request: &Request, reply: Reply<Open>) {
        if self.no_opendir {
            return reply.error(Errno::NOSYS);
        }
        let flags = abi::FOPEN_KEEP_CACHE | abi::FOPEN_CACHE_DIR;
        reply.opened(self.open_file(request.node), flags);
    }

    fn readdir(&self, request: &Request, read: &fuse_read_in, reply: Reply<Directory>) {
        let _turn = self.turn();
        let dir = self.nodes.inode(request.node);
        self.read_directory(dir, read.offset, read.size, reply);
    }

    fn readdirplus(&self, request: &Request, read: &fuse_read_in, reply: Reply<Directory>) {
        let _turn = self.turn();
        let dir = self.nodes.inode(request.node);
        self.read_directory_plus(dir, read.offset, read.size, reply);
    }

    fn fsyncdir(&self, request: &Request, handle: u64, data_only: bool, reply: Reply<Empty>) {
        let _turn = self.turn();
        if self.control.is_ordering_point(request) {
            return reply.ok();
        }
        let inode = self.nodes.inode(request.node);
        self.fsync_and_reply("fsyncdir", inode, self.opened(handle), data_only, reply);
    }

    fn statfs(&self, request: &Request, reply: Reply<Statfs>) {
        let _turn = self.turn();
        match self.engine.statistics_at(self.nodes.inode(request.node)) {
            Ok(s) => reply.statfs(fuse_kstatfs {
                blocks: s.blocks,
                bfree: s.free_blocks,
                bavail: s.available_blocks,
                files: s.inodes,
                ffree: s.free_inodes,
                bsize: s.block_size_bytes,
                namelen: s.name_max_bytes,
                frsize: s.block_size_bytes,
                ..Default::default()
            }),
            Err(error) => reply.error(errno("statfs", self.engine.root(), &error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        name: &[u8],
        value: &[u8],
        flags: u32,
        reply: Reply<Empty>,
    ) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(request.node);
        let done = self.set_xattr(caller(request), inode, name, value, flags);
        let done = self.in_sync(&[inode], &[], done);
        Self::reply_empty("setxattr", inode, done, reply);
    }

    fn getxattr(&self, request: &Request, name: &[u8], most: u32, reply: Reply<Xattr>) {
        let _turn = self.turn();
        if !self.xattrs {
            // The kernel does not ask again, for no file and no attribute.
            return reply.error(Errno::NOSYS);
        }
        let inode = self.nodes.inode(request.node);
        Self::reply_xattr("getxattr", inode, self.xattr(inode, name), most, reply);
    }

    fn listxattr(&self, request: &Request, most: u32, reply: Reply<Xattr>) {
        let _turn = self.turn();
        if !self.xattrs {
            return reply.error(Errno::NOSYS);
        }
        let inode = self.nodes.inode(request.node);
        let names = self.xattr_names(caller(request), inode);
        Self::reply_xattr("listxattr", inode, names, most, reply);
    }

    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<Empty>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(request.node);
        let done = self.remove_xattr(caller(request), inode, name);
        let done = self.in_sync(&[inode], &[], done);
        Self::reply_empty("removexattr", inode, done, reply);
    }

    fn ioctl(&self, request: &Request, ioctl: &fuse_ioctl_in, data: &[u8], reply: Reply<Ioctl>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(request.node);
        self.control_inode(
            caller(request),
            inode,
            ioctl.cmd,
            data,
            ioctl.out_size,
            reply,
        );
    }

    fn fallocate(&self, request: &Request, what: &fuse_fallocate_in, reply: Reply<Empty>) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let inode = self.nodes.inode(request.node);
        let Some(how) = allocation(what.mode) else {
            return reply.error(Errno::OPNOTSUPP);
        };
        let mut done = self
            .for_caller(request)
            .allocate(inode, how, what.offset, what.length);
        if done.is_ok() && !caller(request).is_privileged() {
            done = self.clear_after_write(inode);
        }
        Self::reply_empty("fallocate", inode, self.in_sync(&[inode], &[], done), reply);
    }

    fn lseek(&self, request: &Request, what: &fuse_lseek_in, reply: Reply<Offset>) {
        let _turn = self.turn();
        let inode = self.nodes.inode(request.node);
        let kind = match what.whence.cast_signed() {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::INVAL),
        };
        if what.offset > i64::MAX.cast_unsigned() {
            return reply.error(Errno::NXIO);
        }
        match self.engine.seek(inode, what.offset, kind) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(errno("lseek", inode, &error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        what: &fuse_copy_file_range_in,
        reply: Reply<Written>,
    ) {
        let _turn = self.turn();
        let _under = self.control.enter(request);
        let from = self.nodes.inode(request.node);
        let to = self.nodes.inode(NodeId(what.nodeid_out));
        let len = what.len.min(MAX_COPY_BYTES);
        let copied = self
            .for_caller(request)
            .copy_range(from, what.off_in, to, what.off_out, len);
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

impl Front {
    /// What `statx` shows of an inode that the kernel knows: with the layout's own number.
    fn statx_of(&self, attributes: &backstitch_vfs::Attributes) -> fuse_statx_out {
        let shown = self.show(u64::from(attributes.inode.0), attributes);
        let time = |time: Timestamp| fuse_sx_time {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds,
            ..Default::default()
        };
        let created = attributes.created;
        fuse_statx_out {
            attr_valid: FOREVER_SECONDS,
            stat: fuse_statx {
                mask: BASIC_STATS | created.map_or(0, |_| CREATION_TIME),
                blksize: shown.blksize,
                nlink: shown.nlink,
                uid: shown.uid,
                gid: shown.gid,
                mode: shown.mode as u16,
                ino: shown.ino,
                size: shown.size,
                blocks: shown.blocks,
                atime: time(attributes.accessed),
                btime: created.map_or_else(Default::default, time),
                ctime: time(attributes.changed),
                mtime: time(attributes.modified),
                rdev_major: rustix::fs::major(u64::from(shown.rdev)),
                rdev_minor: rustix::fs::minor(u64::from(shown.rdev)),
                ..Default::default()
            },
            ..Default::default()
        }
    }
}
