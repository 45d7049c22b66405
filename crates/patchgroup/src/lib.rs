//! Patchgroups: order on the disk without waiting (Frost et al., *Generalized File System
//! Dependencies*, SOSP 2007, §5).
//!
//! A program that replaces a file wants its new contents on the disk before the old ones are gone.
//! `fsync` ensures that by waiting until they are there. A patchgroup states the order, and nothing
//! waits:
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! use patchgroup::Group;
//! let write = Group::create_in("/mnt")?;
//! write.engage()?;
//! std::fs::write("/mnt/out", b"contents")?;
//! write.disengage()?;
//!
//! let remove = Group::create_in("/mnt")?;
//! remove.depend(&write)?;
//! remove.engage()?;
//! std::fs::remove_file("/mnt/in")?;
//! # Ok(()) }
//! ```
//!
//! After no crash both `in` and `out` are missing. A group takes its dependencies first, then it is
//! engaged, any number of times. Once another group depends on it, it is *sealed*, and takes
//! neither dependencies nor operations. So there can be no circles.
//!
//! # Who is in a group
//!
//! A group is a file descriptor. While the group is engaged, everything that a process does which
//! has the descriptor open belongs to it. Children inherit the descriptor over `fork` and keep it
//! over `exec`; the last `close` or `exit` closes the group. Engagement belongs to the open
//! description, as a file's offset does: each holder of the descriptor may engage and disengage it,
//! for all holders. (The paper's groups are engaged for each process by itself; give a child a
//! group of its own for that.)
//!
//! What is written through a mapping belongs to the groups that are engaged when it is written
//! back, at `msync`, `munmap` or the end of the process: call `msync` or `munmap` before
//! [`Group::disengage`].
//!
//! # Without patchgroups
//!
//! [`supported`] is false on a file system without patchgroups, where the mount's process cannot be
//! reached (another network namespace), and where the kernel gathers what is written before the
//! mount sees it (`-o writeback_cache`). There the same calls give the same order by `syncfs`:
//! [`Group::depend`] waits until everything written so far is on stable storage.
//!
//! The same in C is in `include/patchgroup.h`, and in Python in `python/patchgroup.py`.
//!
//! This crate depends on nothing else of the project.

pub mod c_api;
pub mod protocol;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, getpeername, recv,
    socket_with,
};

use protocol::Op;

/// A patchgroup.
#[derive(Debug)]
pub struct Group {
    descriptor: OwnedFd,
}

/// Whether the file system that holds `path` has patchgroups, and this process can reach them.
pub fn supported(path: impl AsRef<Path>) -> bool {
    address(path.as_ref()).is_ok_and(|address| dial(&address, SocketFlags::CLOEXEC).is_ok())
}

/// The socket of the mount that holds `path`.
fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    let mut name = [0_u8; 108];
    let len = rustix::fs::getxattr(path, protocol::SOCKET_XATTR, &mut name[..])?;
    Ok(SocketAddrUnix::new_abstract_name(&name[..len])?)
}

fn dial(
    address: &impl rustix::net::addr::SocketAddrArg,
    flags: SocketFlags,
) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, address)?;
    Ok(socket)
}

fn answer(socket: &OwnedFd) -> io::Result<i32> {
    let mut bytes = [0; 16];
    let received = rustix::io::retry_on_intr(|| recv(socket, &mut bytes[..], RecvFlags::empty()))?;
    match received.1 {
        0 => Err(Errno::PIPE.into()),
        len => protocol::decode_answer(&bytes[..len]),
    }
}

fn is_socket(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let seen = rustix::fs::fstat(descriptor)?;
    Ok(FileType::from_raw_mode(seen.st_mode) == FileType::Socket)
}

/// Sends a request about groups; the first one's socket leads to the mount. `None` where they are
/// of a file system without patchgroups.
fn ask(op: Op, argument: &[u8], groups: &[BorrowedFd<'_>]) -> io::Result<Option<OwnedFd>> {
    let Some(first) = groups.first() else {
        return Err(Errno::INVAL.into());
    };
    if !is_socket(*first)? {
        return Ok(None);
    }
    let Some(address) = getpeername(first)? else {
        return Err(Errno::NOTCONN.into());
    };
    let socket = dial(&address, SocketFlags::CLOEXEC)?;
    protocol::send_request(&socket, op, argument, groups)?;
    Ok(Some(socket))
}

/// As [`ask`], and waits for the answer.
fn call(op: Op, argument: &[u8], groups: &[BorrowedFd<'_>]) -> io::Result<Option<i32>> {
    ask(op, argument, groups)?.map(|s| answer(&s)).transpose()
}

/// Puts everything written so far to the descriptor's file system onto stable storage.
fn sync_all(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    rustix::fs::syncfs(descriptor)?;
    // It may be a mount of Backstitch whose groups cannot be reached. The kernel does not pass
    // syncfs on to such a mount, so this attribute is set.
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::fsetxattr(descriptor, protocol::SYNC_XATTR, &[], flags) {
        Err(Errno::IO) => Err(Errno::IO.into()),
        // Another file system, or a read-only mount of Backstitch.
        _ => Ok(()),
    }
}

/// The calls on descriptors, which a [`Group`] and a C program's `pg_t` both are.
mod on {
    use super::*;

    pub(crate) fn create(path: &Path) -> io::Result<OwnedFd> {
        let Ok(address) = address(path) else {
            // Without close-on-exec, as a group's descriptor.
            return Ok(rustix::fs::open(path, OFlags::RDONLY, Mode::empty())?);
        };
        let socket = match dial(&address, SocketFlags::empty()) {
            // The mount's process is in another network namespace.
            Err(error) if error.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error()) => {
                return Ok(rustix::fs::open(path, OFlags::RDONLY, Mode::empty())?);
            }
            other => other?,
        };
        protocol::send_request(&socket, Op::Create, &[], &[socket.as_fd()])?;
        answer(&socket)?;
        Ok(socket)
    }

    pub(crate) fn depend(after: BorrowedFd<'_>, before: BorrowedFd<'_>) -> io::Result<()> {
        match call(Op::Depend, &[], &[after, before])? {
            Some(_) => Ok(()),
            None => sync_all(before),
        }
    }

    pub(crate) fn advance(group: BorrowedFd<'_>) -> io::Result<()> {
        match call(Op::Advance, &[], &[group])? {
            Some(_) => Ok(()),
            None => sync_all(group),
        }
    }

    pub(crate) fn simple(
        op: Op,
        argument: &[u8],
        group: BorrowedFd<'_>,
    ) -> io::Result<Option<i32>> {
        call(op, argument, &[group])
    }

    pub(crate) fn sync(group: BorrowedFd<'_>, op: Op) -> io::Result<()> {
        match call(op, &[], &[group])? {
            Some(_) => Ok(()),
            None => sync_all(group),
        }
    }

    pub(crate) fn is_durable(group: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(call(Op::IsDurable, &[], &[group])?.is_some_and(|value| value != 0))
    }

    pub(crate) fn notify(group: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        match ask(Op::Wait, &[], &[group])? {
            Some(socket) => Ok(socket),
            None => {
                sync_all(group)?;
                let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
                // For a pipe that is merely closed, poll reports "hung up" and not "readable".
                rustix::io::write(&writer, &[1])?;
                Ok(reader)
            }
        }
    }
}

impl Group {
    /// Makes a group of the file system that holds `path`.
    ///
    /// # Errors
    /// `ENOENT` and other errors of the path; `EMFILE` where there are too many groups.
    pub fn create_in(path: impl AsRef<Path>) -> io::Result<Group> {
        let descriptor = on::create(path.as_ref())?;
        Ok(Group { descriptor })
    }

    /// Whether order is kept without waiting.
    pub fn is_supported(&self) -> bool {
        is_socket(self.descriptor.as_fd()).unwrap_or(false)
    }

    /// Everything that will be done under this group reaches the disk no earlier than everything
    /// done under `before`, which is sealed.
    ///
    /// # Errors
    /// `EINVAL` where this group was engaged or is sealed; `EBUSY` where `before` is engaged.
    pub fn depend(&self, before: &Group) -> io::Result<()> {
        on::depend(self.descriptor.as_fd(), before.descriptor.as_fd())
    }

    /// Engages the group: what the processes that have it open do from now on belongs to it.
    /// Calling this again has no further effect.
    ///
    /// # Errors
    /// `EINVAL` where it is sealed.
    pub fn engage(&self) -> io::Result<()> {
        on::simple(Op::Engage, &[], self.descriptor.as_fd()).map(drop)
    }

    /// Disengages the group.
    ///
    /// # Errors
    /// The system's.
    pub fn disengage(&self) -> io::Result<()> {
        on::simple(Op::Disengage, &[], self.descriptor.as_fd()).map(drop)
    }

    /// Puts everything done under the group onto stable storage, and what it comes after.
    ///
    /// # Errors
    /// `EIO` where the device failed.
    pub fn sync(&self) -> io::Result<()> {
        on::sync(self.descriptor.as_fd(), Op::Sync)
    }

    /// Whether everything done under the group is on stable storage. On a file system without
    /// patchgroups that is not known, and the answer is no.
    ///
    /// # Errors
    /// `EIO` where the device failed.
    pub fn is_durable(&self) -> io::Result<bool> {
        on::is_durable(self.descriptor.as_fd())
    }

    /// Waits until everything done under the group is on stable storage. With patchgroups, no write
    /// is asked for.
    ///
    /// # Errors
    /// `EIO` where the device failed.
    pub fn wait(&self) -> io::Result<()> {
        on::sync(self.descriptor.as_fd(), Op::Wait)
    }

    /// A descriptor that `poll` shows as readable once everything done under the group so far is on
    /// stable storage.
    ///
    /// # Errors
    /// The system's.
    pub fn notify(&self) -> io::Result<OwnedFd> {
        on::notify(self.descriptor.as_fd())
    }

    /// Gives the group a name, up to 200 bytes, for the log of the mount's process.
    ///
    /// # Errors
    /// `EINVAL` where it is too long.
    pub fn label(&self, name: &str) -> io::Result<()> {
        match name.len() {
            0..=200 => on::simple(Op::Label, name.as_bytes(), self.descriptor.as_fd()).map(drop),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Makes what is done under the group from now on come after everything that was done under it
    /// before, as if a new group that depends on this one took its place. The group may be engaged.
    ///
    /// # Errors
    /// The system's.
    pub fn advance(&self) -> io::Result<()> {
        on::advance(self.descriptor.as_fd())
    }

    /// From now on each operation under the group comes after the one before it.
    ///
    /// # Errors
    /// `EINVAL` where it was engaged or is sealed; `EOPNOTSUPP` where the file system has no
    /// patchgroups: there this would be a `syncfs` after each operation.
    pub fn linear(&self) -> io::Result<()> {
        match on::simple(Op::Linear, &[], self.descriptor.as_fd())? {
            Some(_) => Ok(()),
            None => Err(Errno::OPNOTSUPP.into()),
        }
    }

    /// From now on `fsync`, `fdatasync`, `msync` and renames that replace a file do not wait, under
    /// the group: what is done after them comes after what was done before. With an interval, what
    /// was done so far is put onto stable storage once in each interval.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn order(&self, durable_every: Option<Duration>) -> io::Result<()> {
        let milliseconds = durable_every.map_or(0, |every| {
            u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1)
        });
        let argument = milliseconds.to_ne_bytes();
        match on::simple(Op::Order, &argument, self.descriptor.as_fd())? {
            Some(_) => Ok(()),
            None => Err(Errno::OPNOTSUPP.into()),
        }
    }

    /// Sets whether `exec` closes the group's descriptor, so that only children have it. At first
    /// it does not.
    ///
    /// # Errors
    /// The system's.
    pub fn set_close_on_exec(&self, closes: bool) -> io::Result<()> {
        let flags = if closes {
            FdFlags::CLOEXEC
        } else {
            FdFlags::empty()
        };
        Ok(rustix::io::fcntl_setfd(&self.descriptor, flags)?)
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl From<Group> for OwnedFd {
    fn from(group: Group) -> OwnedFd {
        group.descriptor
    }
}
