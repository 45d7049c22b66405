//! The mount's side of the socket.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use backstitch_trace::{Recorder, Recording, RecordingError, Written};
use backstitch_vfs::Engine;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use serde_json::json;

use super::{REQUEST_BYTES, VERSION, WITH_CONTENTS};

/// Who connects and says nothing is let go after so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// A reader that takes nothing for so long is given up. An unmount waits no longer for it, whatever
/// it takes meanwhile.
const READER_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether a recording has ended by itself, and how late at most a reader gets
/// what is recorded.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// After an accept that failed for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// The most connections at once.
const MOST_CLIENTS: usize = 8;

/// What is recorded, and who does.
struct Source {
    engine: Arc<Engine>,
    image: String,
    is_recording: AtomicBool,
    clients: AtomicUsize,
    /// Who reads the recording under way.
    reader: Mutex<Option<UnixStream>>,
}

/// The recordings of one mount: one at a time. The socket is there from the first time on that
/// somebody asks for its name.
#[derive(Clone)]
pub(crate) struct Traces {
    source: Arc<Source>,
    server: Arc<Mutex<Option<Server>>>,
}

impl std::fmt::Debug for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Traces")
    }
}

/// The running server; it ends when `stop` is closed.
struct Server {
    name: String,
    stop: OwnedFd,
    thread: JoinHandle<()>,
    /// Tells nothing, and is over when the thread is.
    done: Receiver<()>,
}

impl Traces {
    pub(crate) fn new(engine: Arc<Engine>, image: &str) -> Traces {
        let source = Source {
            engine,
            image: image.to_owned(),
            is_recording: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            reader: Mutex::default(),
        };
        Traces {
            source: Arc::new(source),
            server: Arc::default(),
        }
    }

    /// The abstract name of the socket, if there can be one.
    pub(crate) fn socket_name(&self) -> Option<Vec<u8>> {
        let mut server = self.server.lock();
        if server.is_none() {
            let started = start(&self.source);
            let started = started.inspect_err(|error| tracing::warn!("no trace: {error}"));
            *server = started.ok();
        }
        server
            .as_ref()
            .map(|server| server.name.clone().into_bytes())
    }

    /// Ends the recording under way, if there is one, and waits until its reader has everything, or
    /// has had its time. For a mount that has ended.
    pub(crate) fn end(&self) {
        let Some(server) = self.server.lock().take() else {
            return;
        };
        drop(server.stop);
        if server.done.recv_timeout(READER_PATIENCE) == Err(RecvTimeoutError::Timeout)
            && let Some(reader) = &*self.source.reader.lock()
        {
            // It may be gone already.
            let _ = reader.shutdown(Shutdown::Both);
        }
        // A thread that has died has told its reader nothing more; nobody else waits for it.
        let _ = server.thread.join();
    }
}

fn start(source: &Arc<Source>) -> io::Result<Server> {
    let name = format!(
        "backstitch-trace/{}/{:016x}",
        std::process::id(),
        fastrand::u64(..)
    );
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    listener.set_nonblocking(true)?;
    let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let source = source.clone();
    let thread = std::thread::Builder::new().name("backstitch-trace".into());
    let (running, done) = sync_channel(0);
    let thread = thread.spawn(move || {
        backstitch_fuse_protocol::run_anywhere();
        let _running: SyncSender<()> = running;
        serve(&source, &listener, &Arc::new(stopped));
    })?;
    Ok(Server {
        name,
        stop,
        thread,
        done,
    })
}

/// Accepts connections until it is stopped, and waits for those under way.
fn serve(source: &Arc<Source>, listener: &UnixListener, stopped: &Arc<OwnedFd>) {
    let mut clients: Vec<JoinHandle<()>> = Vec::new();
    loop {
        let mut fds = [
            PollFd::new(&**stopped, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!("traces: {error}");
                break;
            }
        }
        if !fds[0].revents().is_empty() {
            break;
        }
        clients.retain(|client| !client.is_finished());
        match listener.accept() {
            Ok((socket, _)) => clients.extend(admit(source, socket, stopped)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    for client in clients {
        let _ = client.join();
    }
}

/// One of a bounded number of connections.
struct Client(Arc<Source>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Starts a thread for a connection, if it may ask for something.
fn admit(
    source: &Arc<Source>,
    mut socket: UnixStream,
    stopped: &Arc<OwnedFd>,
) -> Option<JoinHandle<()>> {
    let peer = sockopt::socket_peercred(&socket).ok()?;
    // What a reader does not take is its own loss, and not ours.
    socket.set_write_timeout(Some(READER_PATIENCE)).ok()?;
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        refuse(&mut socket, Errno::PERM);
        return None;
    }
    let before = source.clients.fetch_add(1, Ordering::AcqRel);
    let client = Client(source.clone());
    if before >= MOST_CLIENTS {
        refuse(&mut socket, Errno::AGAIN);
        return None;
    }
    let stopped = stopped.clone();
    let thread = std::thread::Builder::new().name("backstitch-trace".into());
    let spawned = thread.spawn(move || {
        if let Err(error) = attend(&client.0, socket, &stopped) {
            tracing::debug!("a recording: {error}");
        }
    });
    spawned.ok()
}

fn refuse(socket: &mut UnixStream, errno: Errno) {
    // Who asked may be gone: then nobody is told.
    let _ = socket.write_all(&errno.raw_os_error().to_le_bytes());
}

/// A recording is under way as long as this lives.
struct Claim<'s>(&'s Source);

impl<'s> Claim<'s> {
    fn on(source: &'s Source) -> Option<Claim<'s>> {
        // Not `then_some`: a claim that is made is given back.
        (!source.is_recording.swap(true, Ordering::AcqRel)).then(|| Claim(source))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        *self.0.reader.lock() = None;
        self.0.is_recording.store(false, Ordering::Release);
    }
}

/// Does what a connection asks for.
fn attend(source: &Source, mut socket: UnixStream, stopped: &OwnedFd) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut request = [0; REQUEST_BYTES];
    socket.read_exact(&mut request)?;
    let [version, flags] = request;
    if version != VERSION {
        refuse(&mut socket, Errno::PROTO);
        return Ok(());
    }
    let Some(_claim) = Claim::on(source) else {
        refuse(&mut socket, Errno::BUSY);
        return Ok(());
    };
    let recording = Recording {
        description: json!({
            "image": source.image,
            "layout": source.engine.layout_name(),
            "ordering": source.engine.ordering_name(),
            "root": source.engine.root().0,
        }),
        with_contents: flags & WITH_CONTENTS != 0,
    };
    *source.reader.lock() = Some(socket.try_clone()?);
    socket.write_all(&0_i32.to_le_bytes())?;
    let recorder = Recorder::into_writer(&recording, Frames(socket.try_clone()?))?;
    let recorder = Arc::new(recorder);
    source.engine.watch(Some(recorder.clone()));
    wait(&socket, stopped, &recorder);
    source.engine.watch(None);
    tell_end(&mut socket, recorder.finish_writing())
}

/// Waits until the reader wants no more or is gone, the mount has ended, or the recording has.
fn wait(socket: &UnixStream, stopped: &OwnedFd, recorder: &Recorder) {
    while !recorder.is_over() {
        let mut fds = [
            PollFd::new(stopped, PollFlags::IN),
            PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN | PollFlags::RDHUP),
        ];
        match poll(&mut fds, Some(&LOOK)) {
            Ok(0) => recorder.pass_on(),
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Tells the reader what the recording came to.
fn tell_end(socket: &mut UnixStream, done: Result<Written, RecordingError>) -> io::Result<()> {
    let (written, lost) = match done {
        Ok(written) => (written, None),
        // Also where none was counted: the recording ended before the reader or the mount did.
        Err(RecordingError::Lost { events, kept }) => (kept, Some(events)),
        Err(RecordingError::Writer(error)) => return Err(error),
    };
    let end = json!({
        "bytes": written.bytes,
        "records": written.records,
        "lost_events": lost,
    });
    socket.write_all(&0_u32.to_le_bytes())?;
    socket.write_all(end.to_string().as_bytes())
}

/// Each write is a frame.
struct Frames(UnixStream);

impl Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.0.write_all(&len.to_le_bytes())?;
        self.0.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
