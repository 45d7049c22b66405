//! The socket through which programs order their changes. Whatever they send, the server answers
//! the next program.
//!
//! The input is a list of steps: groups are made and closed, and messages are sent with arbitrary
//! bytes and with descriptors of groups and of other things.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use backstitch_formats::usual;
use backstitch_fuse::Control;
use backstitch_mechanisms::Ordering;
use backstitch_vfs::Engine;
use patchgroup::protocol::{Op, decode_answer, send_request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, send, sendmsg, socket_with,
};

use crate::base::{self, mount_options};
use crate::{Input, base::new_inode};

/// The most steps of one input.
const STEPS: usize = 32;
/// The most descriptors in a message: more than the server accepts.
const DESCRIPTORS: usize = 6;
/// The longest time for an answer that must come.
const PATIENCE_SECONDS: i64 = 10;

/// Does the steps, then makes a group as any program would.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let _ = decode_answer(bytes);
    let options = mount_options(Ordering::SOFT);
    let engine = Engine::mount(base::all()[0].device(), usual().layout(), &options);
    let engine = engine.expect("a sound image");
    let control = Control::new(engine.clone(), false);
    let name = control.socket_name().expect("a socket").to_vec();
    let mut session = Session {
        name: &name,
        engine: &engine,
        groups: Vec::new(),
        pending: Vec::new(),
        other: rustix::pipe::pipe().expect("a pipe").0,
    };
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        session.step(&mut input);
    }
    session.pending.clear();
    session.groups.clear();
    session.create().expect("the server takes the next program");
    drop(session);
    drop(control);
    engine.unmount().expect("a device in memory does not fail");
}

struct Session<'s> {
    name: &'s [u8],
    engine: &'s Arc<Engine>,
    groups: Vec<OwnedFd>,
    /// Connections on which an answer need not come at once.
    pending: Vec<OwnedFd>,
    /// A descriptor that is not a group's.
    other: OwnedFd,
}

impl Session<'_> {
    fn connect(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(self.name)?)?;
        Ok(socket)
    }

    /// Makes a group as the libraries do.
    fn create(&mut self) -> io::Result<()> {
        let socket = self.connect()?;
        send_request(&socket, Op::Create, b"", &[socket.as_fd()])?;
        answer(&socket)?;
        self.groups.push(socket);
        Ok(())
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let step = input.byte();
        let group = match self.groups.len() {
            0 => None,
            groups => Some(usize::from(input.byte()) % groups),
        };
        match (step % 8, group) {
            (0, _) | (_, None) => drop(self.create()),
            (1, Some(group)) => drop(self.groups.swap_remove(group)),
            (2, Some(group)) => {
                let bytes = input.bytes(3);
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                let _ = send(&self.groups[group], bytes, flags);
            }
            (3, Some(_)) => self.change(step),
            (_, Some(_)) => {
                let length = usize::from(input.byte() % 20);
                let op = input.byte() % 16;
                let message = [&[op][..], input.bytes(length)].concat();
                let choices = input.bytes(usize::from(step >> 4) % DESCRIPTORS);
                let _ = self.say(&message, choices);
            }
        }
    }

    /// Changes a file, so that groups have something to order.
    fn change(&self, step: u8) {
        let name = [b"changed ".as_slice(), &[b'a' + step / 16]].concat();
        let new = new_inode(backstitch_vfs::FileType::Regular, b"");
        let made = self.engine.create(self.engine.root(), &name, &new);
        if let Ok(made) = made {
            let _ = self.engine.write(made.inode, 0, b"contents");
            self.engine.forget(made.inode, 1);
        }
    }

    /// Sends a message on a new connection, and waits for the answer if there must be one.
    fn say(&mut self, message: &[u8], choices: &[u8]) -> io::Result<()> {
        let socket = self.connect()?;
        let descriptors: Vec<BorrowedFd<'_>> = choices
            .iter()
            .map(|choice| match usize::from(*choice) {
                choice if choice % 8 == 6 => self.other.as_fd(),
                choice if choice % 8 == 7 => socket.as_fd(),
                choice => self.groups[choice % self.groups.len()].as_fd(),
            })
            .collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let parts = [IoSlice::new(message)];
        sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
        if message[0] == Op::Wait as u8 {
            self.pending.push(socket);
            return Ok(());
        }
        answer(&socket).map(drop)
    }
}

/// The server's answer; an error if it refuses.
fn answer(socket: &OwnedFd) -> io::Result<i32> {
    let patience = Timespec {
        tv_sec: PATIENCE_SECONDS,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let ready = poll(&mut fds, Some(&patience))?;
    assert!(ready > 0, "the server does not answer");
    let mut bytes = [0; 16];
    let (length, _) = recv(socket, &mut bytes[..], RecvFlags::DONTWAIT)?;
    decode_answer(&bytes[..length])
}
