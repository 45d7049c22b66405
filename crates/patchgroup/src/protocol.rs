//! The messages between a program and the process that serves a mount.
//!
//! The mount's root has an extended attribute, not listed, that holds the name of an abstract Unix
//! socket. A connection to it begins with one message: the operation, its argument, and the
//! descriptors that it is about. The answer is an error number and a value.
//!
//! **A descriptor is a group.** The connection that asked for a group ([`Op::Create`]) is that
//! group as long as any process has it open: `fork` copies it, `exec` keeps it, `SCM_RIGHTS` passes
//! it on, and the last close ends it, in whatever way a process ends. Everything else is asked on a
//! connection of its own, with the group's descriptor attached: having the descriptor is the
//! permission to use the group.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The extended attribute of a mount's root that names the socket.
pub const SOCKET_XATTR: &str = "system.backstitch.patchgroups";

/// Setting this extended attribute of any file in a mount puts all changes of the mount onto stable
/// storage before it returns. It is needed because the kernel passes syncfs(2) on to virtiofs and
/// fuseblk mounts only.
pub const SYNC_XATTR: &str = "system.backstitch.sync";

/// The most descriptors of a request.
const MOST_DESCRIPTORS: usize = 4;
/// The longest request, in bytes.
const MOST_BYTES: usize = 256;

/// A request's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes the connection a group; its own descriptor is attached.
    Create,
    /// The first group attached comes after the second.
    Depend,
    /// What the holders of the group do from now on belongs to it.
    Engage,
    /// Ends that.
    Disengage,
    /// Puts everything done under the group onto stable storage.
    Sync,
    /// Whether everything done under the group is on stable storage; the value is 1 or 0.
    IsDurable,
    /// Answers once everything done under the group is on stable storage.
    Wait,
    /// Gives the group a name for people.
    Label,
    /// Each operation under the group comes after the one before it.
    Linear,
    /// Under the group, an fsync or a rename that replaces a file does not wait: what comes after
    /// it comes after what was done before it. The argument is the time in milliseconds after which
    /// that is put onto stable storage, 0 for no limit.
    Order,
    /// What is done under the group from now on comes after what was done under it before.
    Advance,
}

impl Op {
    const ALL: [Op; 11] = [
        Op::Create,
        Op::Depend,
        Op::Engage,
        Op::Disengage,
        Op::Sync,
        Op::IsDurable,
        Op::Wait,
        Op::Label,
        Op::Linear,
        Op::Order,
        Op::Advance,
    ];

    fn from_byte(byte: u8) -> Option<Op> {
        Op::ALL.get(usize::from(byte)).copied()
    }
}

/// A request that was received.
#[derive(Debug)]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// Its argument.
    pub argument: Vec<u8>,
    /// The descriptors attached.
    pub descriptors: Vec<OwnedFd>,
}

/// Sends a request.
///
/// # Errors
/// The system's.
pub fn send_request(
    socket: impl AsFd,
    op: Op,
    argument: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(rustix::io::Errno::INVAL.into());
    }
    let op = [op as u8];
    let parts = [IoSlice::new(&op), IoSlice::new(argument)];
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a request from a connection without waiting.
///
/// # Errors
/// `EAGAIN` where there is none yet, `EPROTO` where the message is no request, `EPIPE` where the
/// other side is gone.
pub fn receive_request(socket: impl AsFd) -> io::Result<Request> {
    let mut bytes = [0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit();
        rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, parts, &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(attached) = message {
            descriptors.extend(attached);
        }
    }
    let Some((op, argument)) = bytes[..received.bytes].split_first() else {
        return Err(rustix::io::Errno::PIPE.into());
    };
    let op = Op::from_byte(*op).ok_or(rustix::io::Errno::PROTO)?;
    Ok(Request {
        op,
        argument: argument.to_vec(),
        descriptors,
    })
}

/// An answer: an error number (0 where there is none) and a value.
pub fn encode_answer(errno: i32, value: i32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&errno.to_ne_bytes());
    bytes[4..].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// The value of an answer.
///
/// # Errors
/// The error number in the answer, or `EPROTO` where the message is no answer.
pub fn decode_answer(bytes: &[u8]) -> io::Result<i32> {
    let (errno, value) = match bytes {
        [a, b, c, d, e, f, g, h] => (
            i32::from_ne_bytes([*a, *b, *c, *d]),
            i32::from_ne_bytes([*e, *f, *g, *h]),
        ),
        _ => return Err(rustix::io::Errno::PROTO.into()),
    };
    match errno {
        0 => Ok(value),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
