//! Requests as the kernel sends them: a header, a structure that belongs to the kind of request,
//! and what has no fixed size: names, values, contents.

use crate::abi::{
    fuse_access_in, fuse_batch_forget_in, fuse_bmap_in, fuse_copy_file_range_in, fuse_create_in,
    fuse_fallocate_in, fuse_flush_in, fuse_forget_in, fuse_fsync_in, fuse_getattr_in,
    fuse_getxattr_in, fuse_in_header, fuse_init_in, fuse_interrupt_in, fuse_ioctl_in, fuse_link_in,
    fuse_lk_in, fuse_lseek_in, fuse_mkdir_in, fuse_mknod_in, fuse_opcode, fuse_open_in,
    fuse_poll_in, fuse_read_in, fuse_release_in, fuse_rename_in, fuse_rename2_in, fuse_setattr_in,
    fuse_statx_in, fuse_syncfs_in, fuse_write_in,
};
use std::mem::size_of;
use zerocopy::FromBytes;

/// The number by which the kernel knows an inode; the root's is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub u64);

/// Who asks, and about which inode.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What the reply is found by.
    pub(crate) unique: u64,
    /// The inode that the request is about: of names, their directory.
    pub node: NodeId,
    /// The user who asks, as the mount's user namespace sees it.
    pub uid: u32,
    /// That user's group.
    pub gid: u32,
    /// The thread that asks, as this process's namespace sees it; 0 where it does not.
    pub pid: u32,
}

impl Request {
    pub(crate) fn new(header: &fuse_in_header) -> Request {
        Request {
            unique: header.unique,
            node: NodeId(header.nodeid),
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
        }
    }
}

/// A request in its parts.
pub(crate) struct Parts<'a> {
    pub(crate) header: fuse_in_header,
    /// Begins with the structure of the kind.
    pub(crate) structure: &'a [u8],
    pub(crate) rest: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Of a request in one piece, as `/dev/fuse` gives it; `None` if there is not even a header.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Parts<'a>> {
        let (header, body) = fuse_in_header::read_from_prefix(bytes).ok()?;
        let known = structure_bytes(header.opcode).min(body.len());
        let (structure, rest) = body.split_at(known);
        Some(Parts {
            header,
            structure,
            rest,
        })
    }

    /// The structure of the kind.
    pub(crate) fn structure<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.structure)
            .ok()
            .map(|(found, _)| found)
    }

    /// The name that the rest begins with, and what follows it.
    pub(crate) fn name(&self) -> Option<(&'a [u8], &'a [u8])> {
        name_of(self.rest)
    }
}

/// What is before the first zero of `bytes`, and what is behind it.
pub(crate) fn name_of(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

pub(crate) const LOOKUP: u32 = fuse_opcode::FUSE_LOOKUP as u32;
pub(crate) const FORGET: u32 = fuse_opcode::FUSE_FORGET as u32;
pub(crate) const GETATTR: u32 = fuse_opcode::FUSE_GETATTR as u32;
pub(crate) const SETATTR: u32 = fuse_opcode::FUSE_SETATTR as u32;
pub(crate) const READLINK: u32 = fuse_opcode::FUSE_READLINK as u32;
pub(crate) const SYMLINK: u32 = fuse_opcode::FUSE_SYMLINK as u32;
pub(crate) const MKNOD: u32 = fuse_opcode::FUSE_MKNOD as u32;
pub(crate) const MKDIR: u32 = fuse_opcode::FUSE_MKDIR as u32;
pub(crate) const UNLINK: u32 = fuse_opcode::FUSE_UNLINK as u32;
pub(crate) const RMDIR: u32 = fuse_opcode::FUSE_RMDIR as u32;
pub(crate) const RENAME: u32 = fuse_opcode::FUSE_RENAME as u32;
pub(crate) const LINK: u32 = fuse_opcode::FUSE_LINK as u32;
pub(crate) const OPEN: u32 = fuse_opcode::FUSE_OPEN as u32;
pub(crate) const READ: u32 = fuse_opcode::FUSE_READ as u32;
pub(crate) const WRITE: u32 = fuse_opcode::FUSE_WRITE as u32;
pub(crate) const STATFS: u32 = fuse_opcode::FUSE_STATFS as u32;
pub(crate) const RELEASE: u32 = fuse_opcode::FUSE_RELEASE as u32;
pub(crate) const FSYNC: u32 = fuse_opcode::FUSE_FSYNC as u32;
pub(crate) const SETXATTR: u32 = fuse_opcode::FUSE_SETXATTR as u32;
pub(crate) const GETXATTR: u32 = fuse_opcode::FUSE_GETXATTR as u32;
pub(crate) const LISTXATTR: u32 = fuse_opcode::FUSE_LISTXATTR as u32;
pub(crate) const REMOVEXATTR: u32 = fuse_opcode::FUSE_REMOVEXATTR as u32;
pub(crate) const FLUSH: u32 = fuse_opcode::FUSE_FLUSH as u32;
pub(crate) const INIT: u32 = fuse_opcode::FUSE_INIT as u32;
pub(crate) const OPENDIR: u32 = fuse_opcode::FUSE_OPENDIR as u32;
pub(crate) const READDIR: u32 = fuse_opcode::FUSE_READDIR as u32;
pub(crate) const RELEASEDIR: u32 = fuse_opcode::FUSE_RELEASEDIR as u32;
pub(crate) const FSYNCDIR: u32 = fuse_opcode::FUSE_FSYNCDIR as u32;
pub(crate) const IOCTL: u32 = fuse_opcode::FUSE_IOCTL as u32;
pub(crate) const BATCH_FORGET: u32 = fuse_opcode::FUSE_BATCH_FORGET as u32;
pub(crate) const FALLOCATE: u32 = fuse_opcode::FUSE_FALLOCATE as u32;
pub(crate) const READDIRPLUS: u32 = fuse_opcode::FUSE_READDIRPLUS as u32;
pub(crate) const RENAME2: u32 = fuse_opcode::FUSE_RENAME2 as u32;
pub(crate) const LSEEK: u32 = fuse_opcode::FUSE_LSEEK as u32;
pub(crate) const COPY_FILE_RANGE: u32 = fuse_opcode::FUSE_COPY_FILE_RANGE as u32;
pub(crate) const STATX: u32 = fuse_opcode::FUSE_STATX as u32;
const GETLK: u32 = fuse_opcode::FUSE_GETLK as u32;
const SETLK: u32 = fuse_opcode::FUSE_SETLK as u32;
const SETLKW: u32 = fuse_opcode::FUSE_SETLKW as u32;
const ACCESS: u32 = fuse_opcode::FUSE_ACCESS as u32;
const CREATE: u32 = fuse_opcode::FUSE_CREATE as u32;
const INTERRUPT: u32 = fuse_opcode::FUSE_INTERRUPT as u32;
const BMAP: u32 = fuse_opcode::FUSE_BMAP as u32;
const POLL: u32 = fuse_opcode::FUSE_POLL as u32;
const SYNCFS: u32 = fuse_opcode::FUSE_SYNCFS as u32;
pub(crate) const TMPFILE: u32 = fuse_opcode::FUSE_TMPFILE as u32;

/// The kinds of request that a kernel of today sends to a file system of files, by number and name.
pub const REQUESTS: &[(u32, &str)] = &[
    (LOOKUP, "lookup"),
    (FORGET, "forget"),
    (GETATTR, "getattr"),
    (SETATTR, "setattr"),
    (READLINK, "readlink"),
    (SYMLINK, "symlink"),
    (MKNOD, "mknod"),
    (MKDIR, "mkdir"),
    (UNLINK, "unlink"),
    (RMDIR, "rmdir"),
    (RENAME, "rename"),
    (LINK, "link"),
    (OPEN, "open"),
    (READ, "read"),
    (WRITE, "write"),
    (STATFS, "statfs"),
    (RELEASE, "release"),
    (FSYNC, "fsync"),
    (SETXATTR, "setxattr"),
    (GETXATTR, "getxattr"),
    (LISTXATTR, "listxattr"),
    (REMOVEXATTR, "removexattr"),
    (FLUSH, "flush"),
    (INIT, "init"),
    (OPENDIR, "opendir"),
    (READDIR, "readdir"),
    (RELEASEDIR, "releasedir"),
    (FSYNCDIR, "fsyncdir"),
    (GETLK, "getlk"),
    (SETLK, "setlk"),
    (SETLKW, "setlkw"),
    (ACCESS, "access"),
    (CREATE, "create"),
    (INTERRUPT, "interrupt"),
    (BMAP, "bmap"),
    (IOCTL, "ioctl"),
    (POLL, "poll"),
    (BATCH_FORGET, "batch_forget"),
    (FALLOCATE, "fallocate"),
    (READDIRPLUS, "readdirplus"),
    (RENAME2, "rename2"),
    (LSEEK, "lseek"),
    (COPY_FILE_RANGE, "copy_file_range"),
    (SYNCFS, "syncfs"),
    (TMPFILE, "tmpfile"),
    (STATX, "statx"),
];

/// The bytes of `fuse_setxattr_in` without `FUSE_SETXATTR_EXT`, which nobody here asks for.
pub(crate) const SETXATTR_BYTES: usize = crate::abi::FUSE_COMPAT_SETXATTR_IN_SIZE as usize;

/// The bytes of the structure that belongs to a kind of request; 0 where there is none, and for a
/// kind that is not known.
pub(crate) const fn structure_bytes(opcode: u32) -> usize {
    match opcode {
        FORGET => size_of::<fuse_forget_in>(),
        GETATTR => size_of::<fuse_getattr_in>(),
        SETATTR => size_of::<fuse_setattr_in>(),
        MKNOD => size_of::<fuse_mknod_in>(),
        MKDIR => size_of::<fuse_mkdir_in>(),
        RENAME => size_of::<fuse_rename_in>(),
        LINK => size_of::<fuse_link_in>(),
        OPEN | OPENDIR => size_of::<fuse_open_in>(),
        READ | READDIR | READDIRPLUS => size_of::<fuse_read_in>(),
        WRITE => size_of::<fuse_write_in>(),
        RELEASE | RELEASEDIR => size_of::<fuse_release_in>(),
        FSYNC | FSYNCDIR => size_of::<fuse_fsync_in>(),
        SETXATTR => SETXATTR_BYTES,
        GETXATTR | LISTXATTR => size_of::<fuse_getxattr_in>(),
        FLUSH => size_of::<fuse_flush_in>(),
        INIT => size_of::<fuse_init_in>(),
        GETLK | SETLK | SETLKW => size_of::<fuse_lk_in>(),
        ACCESS => size_of::<fuse_access_in>(),
        CREATE | TMPFILE => size_of::<fuse_create_in>(),
        INTERRUPT => size_of::<fuse_interrupt_in>(),
        BMAP => size_of::<fuse_bmap_in>(),
        IOCTL => size_of::<fuse_ioctl_in>(),
        POLL => size_of::<fuse_poll_in>(),
        BATCH_FORGET => size_of::<fuse_batch_forget_in>(),
        FALLOCATE => size_of::<fuse_fallocate_in>(),
        RENAME2 => size_of::<fuse_rename2_in>(),
        LSEEK => size_of::<fuse_lseek_in>(),
        COPY_FILE_RANGE => size_of::<fuse_copy_file_range_in>(),
        SYNCFS => size_of::<fuse_syncfs_in>(),
        STATX => size_of::<fuse_statx_in>(),
        _ => 0,
    }
}

/// Whether [`Filesystem`](crate::Filesystem) has a method for requests of this kind.
pub(crate) const fn is_known(opcode: u32) -> bool {
    match opcode {
        LOOKUP | READLINK | SYMLINK | UNLINK | RMDIR | STATFS | REMOVEXATTR => true,
        GETLK | SETLK | SETLKW | ACCESS | CREATE | INTERRUPT | BMAP | POLL | SYNCFS => false,
        opcode => structure_bytes(opcode) > 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let header = fuse_in_header {
            len: (size_of::<fuse_in_header>() + body.len()) as u32,
            opcode,
            unique: 7,
            nodeid: 1,
            uid: 2,
            gid: 3,
            pid: 4,
            total_extlen: 0,
            padding: 0,
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn a_request_is_taken_apart() {
        let mkdir = fuse_mkdir_in {
            mode: 0o755,
            umask: 0o22,
        };
        let bytes = request(MKDIR, &[mkdir.as_bytes(), b"name\0"].concat());
        let parts = Parts::of(&bytes).unwrap();
        let found: fuse_mkdir_in = parts.structure().unwrap();
        assert_eq!((found.mode, found.umask), (0o755, 0o22));
        assert_eq!(parts.name(), Some((&b"name"[..], &b""[..])));
        assert_eq!(Request::new(&parts.header).node, NodeId(1));
    }

    #[test]
    fn what_is_cut_short_is_none() {
        let bytes = request(MKDIR, &[0; 4]);
        let parts = Parts::of(&bytes).unwrap();
        assert!(parts.structure::<fuse_mkdir_in>().is_none());
        assert!(Parts::of(&bytes[..20]).is_none());
        let unnamed = request(UNLINK, b"name");
        assert_eq!(Parts::of(&unnamed).unwrap().name(), None);
    }

    #[test]
    fn structures_have_the_kernels_sizes() {
        let sizes = [
            (LOOKUP, 0),
            (FORGET, 8),
            (GETATTR, 16),
            (SETATTR, 88),
            (MKNOD, 16),
            (MKDIR, 8),
            (RENAME, 8),
            (RENAME2, 16),
            (READ, 40),
            (WRITE, 40),
            (RELEASE, 24),
            (SETXATTR, 8),
            (INIT, 64),
            (IOCTL, 32),
            (FALLOCATE, 32),
            (LSEEK, 24),
            (COPY_FILE_RANGE, 56),
            (STATX, 24),
        ];
        for (opcode, bytes) in sizes {
            assert_eq!(structure_bytes(opcode), bytes, "opcode {opcode}");
        }
    }
}
