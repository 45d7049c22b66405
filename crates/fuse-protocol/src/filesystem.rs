//! What a file system answers.

use crate::abi::{
    fuse_copy_file_range_in, fuse_create_in, fuse_fallocate_in, fuse_ioctl_in, fuse_lseek_in,
    fuse_mkdir_in, fuse_mknod_in, fuse_read_in, fuse_setattr_in, fuse_statx_in, fuse_write_in,
};
use crate::answer::{
    Attributes, Created, Data, Directory, Empty, Entry, Errno, Ioctl, Offset, Open, Reply, Statfs,
    Statx, Written, Xattr,
};
use crate::request::{NodeId, Request};

/// What the kernel can do, and how requests will come.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The `FUSE_…` flags of `INIT` that the kernel offers.
    pub flags: u64,
    /// Requests will come by io_uring.
    pub over_io_uring: bool,
}

/// A file system behind a mount. Its methods are called by several threads at once. A method that a
/// file system does not have answers `ENOSYS`, after which the kernel mostly does not ask again.
///
/// Structures are the kernel's own, of `linux/fuse.h`. Names have no `/` and no zero, but nothing
/// else is certain of them.
#[allow(
    unused_variables,
    reason = "the names document what the methods are given"
)]
pub trait Filesystem: Send + Sync + 'static {
    /// The `FUSE_…` flags of `INIT` that the file system wants, of those that are offered.
    fn negotiate(&mut self, offer: &Offer) -> u64;

    /// A request has come, whose `FUSE_…` number is `opcode`; what it asks is told after this. See
    /// [`REQUESTS`](crate::REQUESTS).
    fn received(&self, opcode: u32) {}

    /// The mount is gone, and the last request has been answered.
    fn ended(&self) {}

    /// Finds a name in the directory `request.node`. What is found has one more reference; a reply
    /// with a node number of 0 says that there is none, and may be remembered.
    fn lookup(&self, request: &Request, name: &[u8], reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// The kernel gives back references.
    fn forget(&self, node: NodeId, references: u64) {}

    /// `stat`.
    fn getattr(&self, request: &Request, reply: Reply<Attributes>) {
        reply.error(Errno::NOSYS);
    }

    /// `statx`, where more is asked for than `stat` has.
    fn statx(&self, request: &Request, asked: &fuse_statx_in, reply: Reply<Statx>) {
        reply.error(Errno::NOSYS);
    }

    /// `chmod`, `chown`, `truncate`, `utimensat`.
    fn setattr(&self, request: &Request, set: &fuse_setattr_in, reply: Reply<Attributes>) {
        reply.error(Errno::NOSYS);
    }

    /// The target of a symbolic link.
    fn readlink(&self, request: &Request, reply: Reply<Data>) {
        reply.error(Errno::NOSYS);
    }

    /// A new file that is neither directory nor link.
    fn mknod(&self, request: &Request, node: &fuse_mknod_in, name: &[u8], reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// A new directory.
    fn mkdir(&self, request: &Request, node: &fuse_mkdir_in, name: &[u8], reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// Removes the name of what is no directory.
    fn unlink(&self, request: &Request, name: &[u8], reply: Reply<Empty>) {
        reply.error(Errno::NOSYS);
    }

    /// Removes an empty directory.
    fn rmdir(&self, request: &Request, name: &[u8], reply: Reply<Empty>) {
        reply.error(Errno::NOSYS);
    }

    /// A new symbolic link.
    fn symlink(&self, request: &Request, name: &[u8], target: &[u8], reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// Gives what `name` leads to in `request.node` the name `new_name` in `new_parent`, with
    /// `RENAME_…` flags.
    fn rename(
        &self,
        request: &Request,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: u32,
        reply: Reply<Empty>,
    ) {
        reply.error(Errno::NOSYS);
    }

    /// A further name, in `request.node`, of the inode `node`.
    fn link(&self, request: &Request, node: NodeId, name: &[u8], reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// A new file without a name, made as if in `request.node`, and opened.
    fn tmpfile(&self, request: &Request, node: &fuse_create_in, reply: Reply<Created>) {
        reply.error(Errno::NOSYS);
    }

    /// Opens a file, with `O_…` flags.
    fn open(&self, request: &Request, flags: u32, reply: Reply<Open>) {
        reply.error(Errno::NOSYS);
    }

    /// The last descriptor of an open file is closed.
    fn release(&self, request: &Request, handle: u64, reply: Reply<Empty>) {
        reply.error(Errno::NOSYS);
    }

    /// Reads a file.
    fn read(&self, request: &Request, read: &fuse_read_in, reply: Reply<Data>) {
        reply.error(Errno::NOSYS);
    }

    /// Writes a file.
    fn write(&self, request: &Request, write: &fuse_write_in, data: &[u8], reply: Reply<Written>) {
        reply.error(Errno::NOSYS);
    }

    /// A descriptor of an open file is closed.
    fn flush(&self, request: &Request, reply: Reply<Empty>) {
        reply.error(Errno::NOSYS);
    }

    /// A file is to be on stable storage; of its attributes only what leads to the data where
    /// `data_only` is set.
    fn fsync(&self, request: &Request, handle: u64, data_only: bool, reply: Reply<Empty>) {
        reply.error(Errno::NOSYS);
    }

    /// Opens a directory.
    fn opendir(&self, request: &Request, reply: Reply<Open>) {
        reply.error(Errno::NOSYS);
    }

    /// An open directory is closed.
    fn releasedir(&self, request: &Request, handle: u64, reply: Reply<Empty>) {
        reply.error(Errno::NOSYS);
    }

    /// Lists a directory from the cookie `read.offset` on.
    fn readdir(&self, request: &Request, read: &fuse_read_in, reply: Reply<Directory>) {
        reply.error(Errno::NOSYS);
    }

    /// The same with attributes. Each entry but `.` and `..` counts as a lookup.
    fn readdirplus(&self, request: &Request, read: &fuse_read_in, reply: Reply<Directory>) {
        reply.error(Errno::NOSYS);
    }

    /// A directory is to be on stable storage.
    fn fsyncdir(&self, request: &Request, handle: u64, data_only: bool, reply: Reply<Empty>) {
        reply.error(Errno::NOSYS);
    }

    /// `statfs`.
    fn statfs(&self, request: &Request, reply: Reply<Statfs>) {
        reply.error(Errno::NOSYS);
    }

    /// Sets an extended attribute, with `XATTR_…` flags.
    fn setxattr(
        &self,
        request: &Request,
        name: &[u8],
        value: &[u8],
        flags: u32,
        reply: Reply<Empty>,
    ) {
        reply.error(Errno::NOSYS);
    }

    /// An extended attribute, of which the caller takes `most` bytes (see [`Reply::value`]).
    fn getxattr(&self, request: &Request, name: &[u8], most: u32, reply: Reply<Xattr>) {
        reply.error(Errno::NOSYS);
    }

    /// The names of the extended attributes, each with a zero behind it.
    fn listxattr(&self, request: &Request, most: u32, reply: Reply<Xattr>) {
        reply.error(Errno::NOSYS);
    }

    /// Removes an extended attribute.
    fn removexattr(&self, request: &Request, name: &[u8], reply: Reply<Empty>) {
        reply.error(Errno::NOSYS);
    }

    /// `ioctl`, with what the caller's memory holds.
    fn ioctl(&self, request: &Request, ioctl: &fuse_ioctl_in, data: &[u8], reply: Reply<Ioctl>) {
        reply.error(Errno::NOSYS);
    }

    /// Reserves space, or makes a hole.
    fn fallocate(&self, request: &Request, what: &fuse_fallocate_in, reply: Reply<Empty>) {
        reply.error(Errno::NOSYS);
    }

    /// The next data or the next hole.
    fn lseek(&self, request: &Request, what: &fuse_lseek_in, reply: Reply<Offset>) {
        reply.error(Errno::NOSYS);
    }

    /// Copies from `request.node`.
    fn copy_file_range(
        &self,
        request: &Request,
        what: &fuse_copy_file_range_in,
        reply: Reply<Written>,
    ) {
        reply.error(Errno::NOSYS);
    }
}
