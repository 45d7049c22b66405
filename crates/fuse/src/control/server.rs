//! The socket: makes groups, and does what is asked about them.
//!
//! One thread waits for all connections. What takes time is answered by another one, or by the
//! thread that writes the batch that it waits for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use backstitch_vfs::{Error, GroupId, Result};
use parking_lot::{Mutex, RwLock};
use patchgroup::protocol::{Op, Request, encode_answer, receive_request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recv, recvmsg, send, socket_with, sockopt,
};

use super::{Current, Kind, Member, Shared};

/// Who connects and says nothing is let go after so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most groups, in all and of one user, and the most connections beside them that ask about
/// groups.
const MOST_GROUPS: usize = 440;
const MOST_OF_USER: usize = 220;
const SPARE: usize = 20;
/// The most syncs at once, and the most clients that wait to be told of something.
const MOST_SYNCS: usize = 32;
const MOST_WAITING: usize = 1024;
/// After an accept that failed for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The running server; it ends when this is dropped.
pub(super) struct Handle {
    name: Vec<u8>,
    _stop: OwnedFd,
}

impl Handle {
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }
}

enum Stage {
    /// Has said nothing yet.
    New(Instant),
    /// Is a group.
    Group(Arc<Member>),
}

struct Connection {
    socket: OwnedFd,
    user: u32,
    stage: Stage,
}

struct Server {
    shared: Arc<Shared>,
    listener: OwnedFd,
    stop: OwnedFd,
    connections: Vec<Connection>,
    syncs: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
}

/// Binds the socket and starts the thread.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Handle> {
    let name = format!(
        "backstitch/{}/{:016x}",
        std::process::id(),
        fastrand::u64(..)
    )
    .into_bytes();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&listener, &SocketAddrUnix::new_abstract_name(&name)?)?;
    listen(&listener, 128)?;
    let (stop, stopper) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut server = Server {
        shared: shared.clone(),
        listener,
        stop,
        connections: Vec::new(),
        syncs: Arc::default(),
        waiting: Arc::default(),
    };
    std::thread::Builder::new()
        .name("backstitch-groups".into())
        .spawn(move || while server.turn() {})?;
    Ok(Handle {
        name,
        _stop: stopper,
    })
}

impl Server {
    /// One turn; false when it is to end.
    fn turn(&mut self) -> bool {
        let mut fds = vec![
            PollFd::new(&self.stop, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        let any_new = self.connections.iter().any(Connection::is_new);
        fds.extend(
            self.connections
                .iter()
                .map(|c| PollFd::new(&c.socket, PollFlags::IN)),
        );
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        match poll(&mut fds, any_new.then_some(&second)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!("patchgroups: {error}");
                return false;
            }
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0] {
            return false;
        }
        let connections = std::mem::take(&mut self.connections);
        for (connection, is_ready) in connections.into_iter().zip(&ready[2..]) {
            let kept = match is_ready {
                true => self.serve(connection),
                false => Some(connection).filter(|c| !c.is_late()),
            };
            self.connections.extend(kept);
        }
        if ready[1] {
            self.accept();
        }
        true
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE) => return std::thread::sleep(PAUSE),
            Err(_) => return,
        };
        let Ok(peer) = sockopt::socket_peercred(&socket) else {
            return;
        };
        let user = peer.uid.as_raw();
        let asking = self.connections.iter().filter(|c| c.is_new());
        let of_user = asking.clone().filter(|c| c.user == user).count();
        if of_user >= SPARE || asking.count() >= 2 * SPARE {
            answer(&socket, Err(Errno::AGAIN.raw_os_error()));
            return;
        }
        // From here on messages say who sent them.
        if sockopt::set_socket_passcred(&socket, true).is_ok() {
            self.connections.push(Connection {
                socket,
                user,
                stage: Stage::New(Instant::now()),
            });
        }
    }

    /// Does what a connection asks for; the connection, where it stays.
    fn serve(&mut self, connection: Connection) -> Option<Connection> {
        if let Stage::Group(member) = &connection.stage {
            // A group is asked nothing through its own descriptor: whatever comes that way is
            // thrown away, until its end.
            let mut nothing = [0; 1];
            return match recv(&connection.socket, &mut nothing[..], RecvFlags::DONTWAIT) {
                Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR) => Some(connection),
                Ok(_) | Err(_) => {
                    self.shared.end(member);
                    None
                }
            };
        }
        let request = match receive_request(&connection.socket) {
            Ok(request) => request,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(connection),
            Err(_) => return None,
        };
        if request.op == Op::Create {
            return self.create(connection, &request);
        }
        let done = self.find(&request).and_then(|groups| match request.op {
            Op::Sync => self.sync(&connection, &groups[0]),
            Op::Wait => self.wait(&connection, &groups[0]),
            _ => self.change(&request, &groups).map(Some),
        });
        match done {
            Ok(Some(value)) => answer(&connection.socket, Ok(value)),
            // Somebody else answers.
            Ok(None) => {}
            Err(errno) => answer(&connection.socket, Err(errno)),
        }
        None
    }

    /// Makes a group of the connection.
    fn create(&self, connection: Connection, request: &Request) -> Option<Connection> {
        let Connection { socket, user, .. } = connection;
        let groups = self.connections.iter().filter(|c| !c.is_new());
        let of_user = groups.clone().filter(|c| c.user == user).count();
        let most = if user == 0 { MOST_GROUPS } else { MOST_OF_USER };
        let made = match &request.descriptors[..] {
            _ if of_user >= most || groups.count() >= MOST_GROUPS => {
                Err(Errno::MFILE.raw_os_error())
            }
            [own] if is_other_end(&socket, own) => self.make(own, user),
            _ => Err(Errno::INVAL.raw_os_error()),
        };
        match made {
            Ok(member) => {
                answer(&socket, Ok(0));
                Some(Connection {
                    socket,
                    user,
                    stage: Stage::Group(member),
                })
            }
            Err(errno) => {
                answer(&socket, Err(errno));
                None
            }
        }
    }

    fn make(&self, own: &OwnedFd, owner: u32) -> std::result::Result<Arc<Member>, i32> {
        let link = link_of(own)?;
        let group = self.shared.engine.group_create().map_err(errno)?;
        let member = Arc::new(Member {
            link,
            owner,
            current: Arc::new(RwLock::new(Current {
                group,
                kind: Kind::Plain,
                is_engaged: false,
            })),
            last_number: AtomicU32::new(0),
            is_due: AtomicBool::new(false),
            seen: AtomicU64::new(0),
            every: Mutex::default(),
        });
        self.shared.members.write().push(member.clone());
        Ok(member)
    }

    /// The groups whose descriptors a request has.
    fn find(&self, request: &Request) -> std::result::Result<Vec<Arc<Member>>, i32> {
        let wanted = if request.op == Op::Depend { 2 } else { 1 };
        if request.descriptors.len() != wanted {
            return Err(Errno::INVAL.raw_os_error());
        }
        let members = self.shared.members.read();
        let find = |descriptor: &OwnedFd| {
            let link = link_of(descriptor)?;
            let found = members.iter().find(|member| member.link == link);
            found.cloned().ok_or(Errno::BADF.raw_os_error())
        };
        request.descriptors.iter().map(find).collect()
    }

    fn change(&self, request: &Request, groups: &[Arc<Member>]) -> std::result::Result<i32, i32> {
        let shared = &self.shared;
        let first = &groups[0];
        let done: Result<i32> = match request.op {
            Op::Depend => self.depend(first, &groups[1]).map(|()| 0),
            Op::Engage => shared.set_engaged(first, true).map(|()| 0),
            Op::Advance => shared.advance(first).map(|()| 0),
            Op::Disengage => shared.set_engaged(first, false).map(|()| 0),
            Op::IsDurable => {
                let group = first.current.read().group;
                shared.engine.group_is_durable(group).map(i32::from)
            }
            Op::Label => {
                let label = String::from_utf8_lossy(&request.argument);
                tracing::info!(user = first.owner, group = first.link, %label, "patchgroup");
                Ok(0)
            }
            Op::Linear => self.set_kind(first, Kind::Linear).map(|()| 0),
            Op::Order => {
                let bytes = <[u8; 8]>::try_from(&request.argument[..]);
                let every = u64::from_ne_bytes(bytes.unwrap_or_default());
                let done = self.set_kind(first, Kind::Order);
                match (&done, every) {
                    (Err(_), _) => {}
                    (Ok(()), 0) => *first.every.lock() = None,
                    (Ok(()), every) => self.sync_every(first, Duration::from_millis(every)),
                }
                done.map(|()| 0)
            }
            Op::Create | Op::Sync | Op::Wait => return Err(Errno::INVAL.raw_os_error()),
        };
        done.map_err(errno)
    }

    fn depend(&self, after: &Arc<Member>, before: &Arc<Member>) -> Result<()> {
        if Arc::ptr_eq(after, before) {
            return Err(backstitch_vfs::GroupError::Itself.into());
        }
        let (later, earlier) = (after.current.read().group, before.current.read().group);
        self.shared.engine.group_depend(later, earlier)
    }

    fn set_kind(&self, member: &Member, kind: Kind) -> Result<()> {
        let mut current = member.current.write();
        if current.is_engaged {
            return Err(backstitch_vfs::GroupError::Used.into());
        }
        current.kind = kind;
        Ok(())
    }

    /// Puts a group onto stable storage in another thread, which answers.
    fn sync(
        &self,
        connection: &Connection,
        member: &Arc<Member>,
    ) -> std::result::Result<Option<i32>, i32> {
        let running = Counted::below(&self.syncs, MOST_SYNCS)?;
        let socket = connection.socket.try_clone();
        let socket = socket.map_err(|_| Errno::MFILE.raw_os_error())?;
        let (engine, member) = (self.shared.engine.clone(), member.clone());
        let spawned = std::thread::Builder::new()
            .name("backstitch-sync".into())
            .spawn(move || {
                let done = sync_current(&engine, &member);
                answer(&socket, done.map(|()| 0).map_err(errno));
                drop(running);
            });
        spawned
            .map(|_| None)
            .map_err(|_| Errno::AGAIN.raw_os_error())
    }

    /// The thread that makes the group durable answers.
    fn wait(
        &self,
        connection: &Connection,
        member: &Arc<Member>,
    ) -> std::result::Result<Option<i32>, i32> {
        let waiting = Counted::below(&self.waiting, MOST_WAITING)?;
        let socket = connection.socket.try_clone();
        let socket = socket.map_err(|_| Errno::MFILE.raw_os_error())?;
        let group = member.current.read().group;
        let (engine, member) = (self.shared.engine.clone(), member.clone());
        let tell = move || {
            // It may have gone on to another group meanwhile; but only where the device failed, or
            // nobody has it any more, is that an error. The teller may be in the middle of an
            // operation under the group.
            let group = member.current.read_recursive().group;
            let done = engine.group_is_durable(group);
            answer(&socket, done.map(|_| 0).map_err(errno));
            drop(waiting);
        };
        let listening = self.shared.engine.group_listen(group, tell);
        listening.map(|()| None).map_err(errno)
    }

    /// Has a thread sync the group after so long, again and again, until it is told something else
    /// or the group ends.
    fn sync_every(&self, member: &Arc<Member>, every: Duration) {
        let (alive, ended) = mpsc::channel();
        *member.every.lock() = Some(alive);
        let (engine, member) = (self.shared.engine.clone(), Arc::downgrade(member));
        let spawned = std::thread::Builder::new()
            .name("backstitch-every".into())
            .spawn(move || {
                while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                    let Some(member) = Weak::upgrade(&member) else {
                        return;
                    };
                    if let Err(error) = sync_current(&engine, &member) {
                        tracing::warn!("what was ordered is not on the disk yet: {error}");
                    }
                }
            });
        if let Err(error) = spawned {
            tracing::warn!("nothing is synced now and then: {error}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for connection in &self.connections {
            if let Stage::Group(member) = &connection.stage {
                self.shared.end(member);
            }
        }
    }
}

impl Connection {
    fn is_new(&self) -> bool {
        matches!(self.stage, Stage::New(_))
    }

    fn is_late(&self) -> bool {
        matches!(self.stage, Stage::New(since) if since.elapsed() > PATIENCE)
    }
}

/// One of a bounded number.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn below(counter: &Arc<AtomicUsize>, most: usize) -> std::result::Result<Counted, i32> {
        let counted = Counted(counter.clone());
        match counter.fetch_add(1, Ordering::AcqRel) {
            before if before < most => Ok(counted),
            _ => Err(Errno::AGAIN.raw_os_error()),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Puts what a group is now onto stable storage: once more where it went on meanwhile.
fn sync_current(engine: &backstitch_vfs::Engine, member: &Member) -> Result<()> {
    let sync = || {
        let group: GroupId = member.current.read().group;
        engine.group_sync(group)
    };
    match sync() {
        Err(Error::Group(backstitch_vfs::GroupError::Unknown)) => sync(),
        other => other,
    }
}

fn errno(error: Error) -> i32 {
    error.errno()
}

/// Who asked may be gone: then nobody is told.
fn answer(socket: &OwnedFd, done: std::result::Result<i32, i32>) {
    let bytes = match done {
        Ok(value) => encode_answer(0, value),
        Err(errno) => encode_answer(errno, 0),
    };
    let _ = send(socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// How `/proc` shows a descriptor, where it is a socket.
fn link_of(descriptor: &OwnedFd) -> std::result::Result<String, i32> {
    use rustix::fs::FileType;
    let seen = rustix::fs::fstat(descriptor).map_err(Errno::raw_os_error)?;
    match FileType::from_raw_mode(seen.st_mode) {
        FileType::Socket => Ok(format!("socket:[{}]", seen.st_ino)),
        _ => Err(Errno::BADF.raw_os_error()),
    }
}

/// Whether `other` is the other end of our socket: what is sent through it arrives here, and comes
/// from this very process.
fn is_other_end(socket: &OwnedFd, other: &OwnedFd) -> bool {
    let token = fastrand::u64(..).to_ne_bytes();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if send(other, &token, flags).is_err() {
        return false;
    }
    let mut bytes = [0; 16];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [io::IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket.as_fd(), parts, &mut control, RecvFlags::DONTWAIT);
    let is_ours = control.drain().any(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => sender.pid == rustix::process::getpid(),
        _ => false,
    });
    is_ours && received.is_ok_and(|r| bytes[..r.bytes] == token)
}
