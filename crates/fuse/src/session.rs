//! Mounting, serving, and the end of both.

use crate::convert::Nodes;
use crate::front::Front;
use crate::squash::Squash;
use crate::trace::Traces;
use backstitch_fuse_protocol::{
    self as protocol, IoUring, MountOptions, Notifier, Session, SessionOptions,
};
use backstitch_vfs::{AccessTimes, Changed, Engine, InodeNumber};
use rustix::mount::{UnmountFlags, unmount};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The largest write that the kernel may send in one request, in bytes.
const MAX_WRITE_BYTES: u32 = 1 << 20;

/// How many requests nobody waits for (read-ahead, write-back) may be under way at once.
const MAX_BACKGROUND: u16 = 64;

/// Threads that serve by io_uring, where there are not too many processors for that.
const RING_THREADS: usize = 64;

/// What is shown as a mount's type, behind `fuse.`.
pub(crate) const SUBTYPE: &str = "backstitch";

/// How a mount is to look to the system.
#[derive(Clone, Debug)]
pub struct FrontOptions {
    /// What is shown as the mount's source, and in its counters.
    pub image: String,
    /// The file that describes the stack of which that is the first file system.
    pub stack: Option<String>,
    /// No writes.
    pub read_only: bool,
    /// Users other than the one who mounts may use it. Without root, `/etc/fuse.conf` has to allow
    /// it.
    pub allow_other: bool,
    /// The kernel checks permissions. Without, everybody who may use the mount may do everything:
    /// right where that is root alone, and it saves a request after every change of a directory,
    /// whose attributes the kernel then need not look at.
    pub check_permissions: bool,
    /// When reads move access times.
    pub access_times: AccessPolicy,
    /// Every change is on stable storage before it is answered (`sync`).
    pub synchronous: bool,
    /// The same for changes of names (`dirsync`).
    pub synchronous_names: bool,
    /// New files have the group of their directory (`grpid`).
    pub group_of_directory: bool,
    /// One owner and one set of permissions for all files.
    pub squash: Squash,
    /// The kernel asks when a file is opened, so that an immutable one cannot be opened for
    /// writing.
    pub check_open: bool,
    /// Further options for the kernel, as they are (`context=…`).
    pub kernel_options: Vec<String>,
    /// Device nodes work. Only root can ask for it.
    pub devices: bool,
    /// Set-user-ID and set-group-ID work. Only root can ask for it.
    pub set_user_id: bool,
    /// Programs can be run.
    pub execute: bool,
    /// The kernel gathers what is written and hands it over later, in large requests. The order in
    /// which the contents of files reach the file system is then the kernel's.
    pub writeback_cache: bool,
    /// Extended attributes and ACLs can be asked for and set. Without, the kernel need not ask for
    /// `security.capability` before the first write to a file whose attributes it has looked at;
    /// nor can anybody ask for the mount's counters and copies.
    pub xattrs: bool,
    /// A loss that a failed device causes is reported once to each open file, and not every time.
    /// The kernel then has to tell of each open and each close.
    pub report_once: bool,
    /// Threads that serve requests; 0 chooses by the number of CPUs.
    pub threads: usize,
    /// Whether requests are to come by io_uring.
    pub io_uring: IoUring,
}

impl Default for FrontOptions {
    fn default() -> Self {
        FrontOptions {
            image: "backstitch".into(),
            stack: None,
            read_only: false,
            allow_other: false,
            check_permissions: true,
            access_times: AccessPolicy::default(),
            synchronous: false,
            synchronous_names: false,
            group_of_directory: false,
            squash: Squash::default(),
            check_open: false,
            kernel_options: Vec::new(),
            devices: false,
            set_user_id: false,
            execute: true,
            writeback_cache: false,
            xattrs: true,
            report_once: false,
            threads: 0,
            io_uring: IoUring::default(),
        }
    }
}

/// When reads move access times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessPolicy {
    /// By what rule; `None` for never.
    pub rule: Option<AccessTimes>,
    /// Reading a directory does, too.
    pub of_directories: bool,
}

impl Default for AccessPolicy {
    fn default() -> Self {
        AccessPolicy {
            rule: Some(AccessTimes::Relative),
            of_directories: true,
        }
    }
}

/// Why mounting, serving or unmounting failed.
#[derive(Debug, Error)]
pub enum MountError {
    /// The kernel or fusermount3 would not mount.
    #[error("{dir}: cannot mount: {reason}")]
    Mount {
        /// The mount point.
        dir: PathBuf,
        /// What they said.
        reason: io::Error,
    },
    /// The mount does not come off.
    #[error("{dir}: cannot unmount: {reason}")]
    Unmount {
        /// The mount point.
        dir: PathBuf,
        /// What the kernel or fusermount3 said.
        reason: io::Error,
    },
    /// The engine could not bring everything to the disk at the end.
    #[error(transparent)]
    Engine(#[from] backstitch_vfs::Error),
}

/// A mounted file system that is being served.
#[derive(Debug)]
pub struct Mounted {
    engine: EngineHandle,
    traces: Traces,
    dir: PathBuf,
    ended: Receiver<()>,
    ender: Ender,
    invalidator: Invalidator,
}

struct EngineHandle(Arc<Engine>);

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

impl Mounted {
    /// Waits until the file system is unmounted (by whomever), then brings everything to the disk.
    ///
    /// # Errors
    ///
    /// [`MountError::Engine`] if not everything could be written.
    pub fn wait(self) -> Result<(), MountError> {
        // This cannot fail: `ender` keeps a sender alive.
        let _ = self.ended.recv();
        let done = self.engine.0.unmount();
        // Not before: what the unmount writes belongs to a recording of the mount.
        self.traces.end();
        Ok(done?)
    }

    /// Something that can take the mount off, from any thread.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter {
            dir: self.dir.clone(),
        }
    }

    /// Something that can tell the kernel of changes that did not pass through it.
    pub fn invalidator(&self) -> Invalidator {
        self.invalidator.clone()
    }

    /// Something that can end [`wait`](Self::wait) although the mount is still there.
    pub fn ender(&self) -> Ender {
        self.ender.clone()
    }
}

/// Tells the kernel what changed without passing through it, as the reclaim of what a crash left
/// does: it would keep what it knows for ever.
///
/// Never call it while a request waits for the caller: the kernel may itself wait for that request.
#[derive(Clone, Debug)]
pub struct Invalidator {
    notifier: Notifier,
    nodes: Nodes,
}

impl Invalidator {
    /// The inode's attributes changed.
    pub fn attributes(&self, inode: InodeNumber) {
        self.inode(inode, -1, 0);
    }

    /// The inode's contents changed, and with them its attributes.
    pub fn contents(&self, inode: InodeNumber) {
        self.inode(inode, 0, 0);
    }

    /// What background work changed.
    fn tell(&self, change: &Changed) {
        match change {
            Changed::Attributes(inode) => self.attributes(*inode),
            Changed::Name { directory, name } => {
                self.name(*directory, name);
                self.contents(*directory);
            }
        }
    }

    /// A name came or went.
    pub fn name(&self, directory: InodeNumber, name: &[u8]) {
        let node = self.nodes.node(directory);
        if let Err(error) = self.notifier.invalidate_entry(node, name) {
            tracing::debug!(%directory, %error, "the kernel keeps a name");
        }
    }

    /// A negative offset leaves pages alone; a length of 0 means all.
    fn inode(&self, inode: InodeNumber, offset: i64, len: i64) {
        if let Err(error) = self
            .notifier
            .invalidate_inode(self.nodes.node(inode), offset, len)
        {
            tracing::debug!(%inode, %error, "the kernel keeps what it knows");
        }
    }
}

/// Ends the serving of a mount that does not come off, from any thread.
#[derive(Clone, Debug)]
pub struct Ender {
    told: Sender<()>,
}

impl Ender {
    /// For a mount whose end is told to `told`.
    pub(crate) fn new(told: Sender<()>) -> Ender {
        Ender { told }
    }

    /// Makes [`Mounted::wait`] go on to bring everything to the disk. Its users get errors from
    /// then on.
    pub fn end(&self) {
        // Nobody waits any more: it has ended already.
        let _ = self.told.send(());
    }
}

/// Takes a mount off.
#[derive(Clone, Debug)]
pub struct Unmounter {
    dir: PathBuf,
}

impl Unmounter {
    /// For whatever is mounted at `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Unmounter {
        Unmounter { dir: dir.into() }
    }

    /// Unmounts; fails while files are in use.
    ///
    /// # Errors
    ///
    /// [`MountError::Unmount`] with what the kernel or fusermount3 said, `EBUSY` above all.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.unmount_with(UnmountFlags::NOFOLLOW, &[])
    }

    /// Unmounts, and waits up to `patience` for processes that have files in use: a process that
    /// was just forked has the files of its parent until it executes something else.
    ///
    /// # Errors
    ///
    /// As [`unmount`](Self::unmount), of the last try.
    pub fn unmount_within(&self, patience: Duration) -> Result<(), MountError> {
        let deadline = Instant::now() + patience;
        loop {
            let done = self.unmount();
            if done.is_ok() || Instant::now() >= deadline {
                return done;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Takes the mount out of the tree now; it ends when the last file in use is closed.
    ///
    /// # Errors
    ///
    /// As [`unmount`](Self::unmount).
    pub fn detach(&self) -> Result<(), MountError> {
        self.unmount_with(UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, &["-z"])
    }

    fn unmount_with(&self, flags: UnmountFlags, options: &[&str]) -> Result<(), MountError> {
        let done = match unmount(&self.dir, flags) {
            Err(rustix::io::Errno::PERM) => self.fusermount(options),
            other => other.map_err(io::Error::from),
        };
        done.map_err(|reason| MountError::Unmount {
            dir: self.dir.clone(),
            reason,
        })
    }

    /// Without root only the set-user-ID helper can unmount.
    fn fusermount(&self, options: &[&str]) -> io::Result<()> {
        let output = Command::new("fusermount3")
            .arg("-u")
            .args(options)
            .arg("--")
            .arg(&self.dir)
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("fusermount3: ");
        if said.contains("busy") {
            return Err(rustix::io::Errno::BUSY.into());
        }
        Err(io::Error::other(said.to_owned()))
    }
}

/// Mounts `engine` at `dir` and serves it in the background. When this returns, the mount answers.
///
/// # Errors
///
/// [`MountError::Mount`].
pub fn spawn(
    engine: Arc<Engine>,
    dir: &Path,
    options: &FrontOptions,
) -> Result<Mounted, MountError> {
    let refused = |reason| MountError::Mount {
        dir: dir.to_owned(),
        reason,
    };
    let dir = dir.canonicalize().map_err(refused)?;
    let (told, ended) = channel();
    let front = Front::new(engine.clone(), options, told.clone());
    let kernel_pages = front.invalidator.clone();
    let traces = front.traces.clone();
    let transport = front.transport.clone();
    let connection = protocol::mount(&dir, &mount_options(options)).map_err(refused)?;
    let started = Session::new(front, connection, session_options(options))
        .and_then(Session::start)
        .map_err(|error| given_up(&dir, error))?;
    let invalidator = Invalidator {
        notifier: started.notifier,
        nodes: Nodes::new(engine.root()),
    };
    // Neither can have been set before.
    let _ = kernel_pages.set(invalidator.clone());
    let _ = transport.set(started.transport);
    let kernel = invalidator.clone();
    engine.on_change(move |changes| changes.iter().for_each(|change| kernel.tell(change)));
    raise_read_ahead(&dir);
    Ok(Mounted {
        engine: EngineHandle(engine),
        traces,
        dir,
        ended,
        ender: Ender::new(told),
        invalidator,
    })
}

/// Takes off a mount that nobody serves.
pub(crate) fn given_up(dir: &Path, reason: io::Error) -> MountError {
    if let Err(error) = Unmounter::new(dir).detach() {
        tracing::warn!(%error, "a mount that nobody serves stays");
    }
    MountError::Mount {
        dir: dir.to_owned(),
        reason,
    }
}

/// Mounts `engine` at `dir` and serves it until it is unmounted.
///
/// # Errors
///
/// Those of [`spawn`] and [`Mounted::wait`].
pub fn run(engine: Arc<Engine>, dir: &Path, options: &FrontOptions) -> Result<(), MountError> {
    spawn(engine, dir, options)?.wait()
}

fn mount_options(options: &FrontOptions) -> MountOptions {
    MountOptions {
        source: options.image.clone(),
        subtype: SUBTYPE.into(),
        read_only: options.read_only,
        devices: options.devices,
        set_user_id: options.set_user_id,
        execute: options.execute,
        access_times: options.access_times.rule.is_some(),
        // The kernel then follows each write with FSYNC; changes of names are ours.
        synchronous: options.synchronous,
        synchronous_names: options.synchronous_names,
        allow_other: options.allow_other,
        check_permissions: options.check_permissions,
        more: options.kernel_options.clone(),
    }
}

fn session_options(options: &FrontOptions) -> SessionOptions {
    SessionOptions {
        max_write_bytes: MAX_WRITE_BYTES,
        max_background: MAX_BACKGROUND,
        max_read_ahead_bytes: u32::MAX,
        threads: threads(options.threads),
        ring_threads: RING_THREADS,
        io_uring: options.io_uring,
    }
}

/// Twice the CPUs, so that a thread that waits for the disk does not keep one idle.
fn threads(wanted: usize) -> usize {
    match wanted {
        0 => {
            let cpus = std::thread::available_parallelism().map_or(1, usize::from);
            (2 * cpus).clamp(2, 16)
        }
        n => n.min(256),
    }
}

/// The kernel starts FUSE mounts with 128 KiB of read-ahead and lets only root raise it. Requests
/// are of 1 MiB at most: with two of them the disk has the next one while a program works through
/// the last.
fn raise_read_ahead(dir: &Path) {
    const READ_AHEAD_KIB: &str = "2048";
    let Ok(metadata) = dir.metadata() else { return };
    let (major, minor) = (
        rustix::fs::major(metadata.dev()),
        rustix::fs::minor(metadata.dev()),
    );
    let knob = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&knob, READ_AHEAD_KIB) {
        tracing::debug!(knob, %error, "read-ahead stays as it is");
    }
}
