//! Patchgroups over the mount: which requests belong to which group.
//!
//! A group is a connection to this process's socket (`patchgroup::protocol`, [`server`]), and each
//! process that has its descriptor open belongs to it while it is engaged. So a request belongs to
//! a group where the process that it comes from has that descriptor:
//!
//! * **The request's process id** is a thread's, as this process's namespace sees it. Its thread
//!   waits for our answer inside a system call, so the number stands for it until then, and
//!   `/proc/ID/fd` is its table of descriptors: threads, forks, `exec`, a parent that has exited,
//!   descriptors that were passed or closed, all are as the kernel has them at this moment. Nothing
//!   is remembered of processes, so no number that is used again can be taken for another process;
//!   but that within a millisecond of a look a thread's changes count as its group's without
//!   another one. An fsync is always looked at.
//! * **Write-back of the page cache has no caller.** There is none but for shared mappings, for
//!   writes go through the cache at once. The kernel does it at `msync`, `munmap` and the end of a
//!   process. It belongs to every engaged group of the file's owner and of root: more order than
//!   was asked for, never less. (More order holds nothing back for long: groups hold nothing.)
//! * **A process in a namespace that we do not see** has the number 0. It is in no group.
//!
//! The descriptor that proves it is the other end of our connection: a request for a group comes
//! with it, and a message sent through it has to arrive here with our own credentials. A group of
//! one user counts for that user's processes only (root's for all).
//!
//! While no group is engaged a request pays one atomic load for all this.

mod server;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use backstitch_fuse_protocol::Request;
use backstitch_vfs::{Engine, GroupId, InodeNumber, Result, Under};
use parking_lot::lock_api::ArcRwLockReadGuard;
use parking_lot::{Mutex, RawRwLock, RwLock};
use rustix::fs::{Mode, OFlags};
use rustix::path::DecInt;

use crate::turns::Turns;

/// What becomes of a group's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// They are in one group.
    Plain,
    /// Each begins a group that comes after the one before it.
    Linear,
    /// So does each fsync, without waiting; a rename that may replace something has such a point
    /// before it and one after it.
    Order,
}

/// A group as the engine has it now.
#[derive(Debug)]
struct Current {
    group: GroupId,
    kind: Kind,
    is_engaged: bool,
}

/// A group as its holders have it.
struct Member {
    /// How `/proc` shows its descriptor.
    link: String,
    owner: u32,
    /// Read for as long as an operation runs under it.
    current: Arc<RwLock<Current>>,
    /// The number of its descriptor in the process that had it last: children have their parent's
    /// numbers, so that most requests need not have a whole table read.
    last_number: AtomicU32,
    /// The next operation comes after everything done so far.
    is_due: AtomicBool,
    /// Which thread was last seen to have it, and in which millisecond.
    seen: AtomicU64,
    /// The thread that syncs it now and then ends when this does.
    every: Mutex<Option<Sender<()>>>,
}

struct Shared {
    engine: Arc<Engine>,
    members: RwLock<Vec<Arc<Member>>>,
    tables: Tables,
    started: Instant,
    /// How many of them are engaged.
    engaged: AtomicUsize,
}

/// The groups of a mount, and the socket by which programs reach them, as long as it lives.
pub struct Control {
    shared: Arc<Shared>,
    /// The socket's abstract name, where there is one; it ends with this.
    server: Option<server::Handle>,
}

/// An operation runs under the groups of its caller until this is dropped.
pub(crate) struct Scope {
    _under: Under,
    _current: Vec<ArcRwLockReadGuard<RawRwLock, Current>>,
}

impl Control {
    /// There are no groups where the kernel hands contents over in an order of its own: nobody
    /// finds a socket then, and libraries fall back to waiting.
    pub fn new(engine: Arc<Engine>, reorders_contents: bool) -> Control {
        let shared = Arc::new(Shared {
            engine,
            members: RwLock::default(),
            tables: Tables::default(),
            started: Instant::now(),
            engaged: AtomicUsize::new(0),
        });
        let server = (!reorders_contents).then(|| server::start(&shared));
        let server = server.and_then(|started| {
            started
                .inspect_err(|error| tracing::warn!("there are no patchgroups: {error}"))
                .ok()
        });
        Control { shared, server }
    }

    /// The abstract name of the socket.
    pub fn socket_name(&self) -> Option<&[u8]> {
        self.server.as_ref().map(server::Handle::name)
    }

    fn is_idle(&self) -> bool {
        self.shared.engaged.load(Ordering::Acquire) == 0
    }

    /// A change that the request asks for belongs to its caller's groups.
    pub(crate) fn enter(&self, request: &Request) -> Option<Scope> {
        self.enter_after_points(request, |kind| kind == Kind::Linear)
            .map(|(scope, _)| scope)
    }

    /// As [`enter`](Self::enter), for a rename that may replace something: where its caller's
    /// fsyncs are ordering points, there is one before it and one after it.
    pub(crate) fn enter_rename(&self, request: &Request) -> Option<Scope> {
        let (scope, points) = self.enter_after_points(request, |kind| kind != Kind::Plain)?;
        for member in points {
            member.is_due.store(true, Ordering::Release);
        }
        Some(scope)
    }

    /// Groups of such kinds, and those where it is due, go on to what comes after all that was done
    /// under them. Returns the former too.
    fn enter_after_points(
        &self,
        request: &Request,
        is_point: impl Fn(Kind) -> bool,
    ) -> Option<(Scope, Vec<Arc<Member>>)> {
        if self.is_idle() {
            return None;
        }
        let held = self.shared.held_lately_by(request.uid, request.pid);
        let mut points = Vec::new();
        for member in &held {
            let is_point = is_point(member.current.read().kind);
            if is_point || member.is_due.load(Ordering::Acquire) {
                // Where that cannot be, the operation still comes after what the group stood for
                // before.
                self.shared
                    .note_failure(self.shared.pass_point(member, is_point));
            }
            if is_point {
                points.push(member.clone());
            }
        }
        Some((self.shared.under(&held)?, points))
    }

    /// As [`enter`](Self::enter), for pages that are written back for nobody in particular.
    pub(crate) fn enter_write_back(&self, inode: InodeNumber) -> Option<Scope> {
        if self.is_idle() {
            return None;
        }
        let owner = self.shared.engine.attributes(inode).ok()?.uid;
        let engaged = self.shared.engaged_for(owner);
        self.shared.under(&engaged)
    }

    /// Whether the caller's fsync is one that waits for nothing: what it does from now on comes
    /// after what it has done. The next operation sees to that.
    pub(crate) fn is_ordering_point(&self, request: &Request) -> bool {
        if self.is_idle() {
            return false;
        }
        let held = self.shared.held_by(request.uid, request.pid);
        let ordered = held
            .iter()
            .filter(|member| member.current.read().kind == Kind::Order);
        ordered
            .map(|member| member.is_due.store(true, Ordering::Release))
            .count()
            > 0
    }
}

impl Shared {
    /// The engaged groups that may concern a user's processes.
    fn engaged_for(&self, user: u32) -> Vec<Arc<Member>> {
        let members = self.members.read();
        let concerned = members.iter().filter(|member| {
            (member.owner == user || member.owner == 0) && member.current.read().is_engaged
        });
        concerned.cloned().collect()
    }

    /// As [`held_by`](Self::held_by), or as it was within the last millisecond: a process that
    /// closed a descriptor meanwhile is given more order than was asked for.
    fn held_lately_by(&self, user: u32, thread: u32) -> Vec<Arc<Member>> {
        let now = u64::from(thread) << 32 | u64::from(self.started.elapsed().as_millis() as u32);
        let engaged = self.engaged_for(user);
        let seen = |member: &Arc<Member>| member.seen.load(Ordering::Acquire) == now;
        if thread != 0 && engaged.iter().all(seen) {
            return engaged;
        }
        let held = self.held_by(user, thread);
        for member in &held {
            member.seen.store(now, Ordering::Release);
        }
        held
    }

    /// The engaged groups whose descriptor a thread's process has.
    fn held_by(&self, user: u32, thread: u32) -> Vec<Arc<Member>> {
        let mut engaged = self.engaged_for(user);
        if thread == 0 || engaged.is_empty() {
            return Vec::new();
        }
        if let Some(table) = self.tables.of(thread) {
            if engaged.iter().all(|member| member.is_where_it_was(&table)) {
                return engaged;
            }
            self.tables.forget(thread);
        }
        let held = sockets_of(Path::new(&format!("/proc/{thread}/fd")));
        engaged.retain(|member| {
            let found = held.iter().find(|(_, link)| *link == member.link);
            if let Some((number, _)) = found {
                member.last_number.store(*number, Ordering::Relaxed);
            }
            found.is_some()
        });
        engaged
    }

    fn under(&self, members: &[Arc<Member>]) -> Option<Scope> {
        if members.is_empty() {
            return None;
        }
        let current: Vec<_> = members.iter().map(|m| m.current.read_arc()).collect();
        let groups: Vec<GroupId> = current
            .iter()
            .filter(|current| current.is_engaged)
            .map(|current| current.group)
            .collect();
        Some(Scope {
            _under: self.engine.enter(&groups),
            _current: current,
        })
    }

    /// What follows under the member comes after what was done so far.
    fn advance(&self, member: &Member) -> Result<()> {
        self.pass_point(member, true)
    }

    /// As [`advance`](Self::advance), if this is a point of order or one is due.
    fn pass_point(&self, member: &Member, is_point: bool) -> Result<()> {
        // Waits for operations under way: those before this point are in the group that is left.
        let mut current = member.current.try_write().unwrap_or_else(|| {
            Turns::hand_over();
            member.current.write()
        });
        // Nobody passes by before this is done.
        if !is_point && !member.is_due.load(Ordering::Acquire) {
            return Ok(());
        }
        current.group = self
            .engine
            .group_advance(current.group, current.is_engaged)?;
        member.is_due.store(false, Ordering::Release);
        Ok(())
    }

    fn note_failure(&self, done: Result<()>) {
        if let Err(error) = done {
            tracing::warn!("patchgroups: {error}");
        }
    }

    /// Engages a group or takes that back.
    fn set_engaged(&self, member: &Member, engage: bool) -> Result<()> {
        let mut current = member.current.write();
        match (current.is_engaged, engage) {
            (false, true) => {
                self.engine.group_engage(current.group)?;
                self.engaged.fetch_add(1, Ordering::AcqRel);
            }
            (true, false) => {
                self.engine.group_disengage(current.group)?;
                self.engaged.fetch_sub(1, Ordering::AcqRel);
            }
            _ => {}
        }
        current.is_engaged = engage;
        Ok(())
    }

    /// Nobody has the group's descriptor any more.
    fn end(&self, member: &Arc<Member>) {
        self.note_failure(self.set_engaged(member, false));
        self.engine.group_close(member.current.read().group);
        self.members
            .write()
            .retain(|other| !Arc::ptr_eq(other, member));
    }
}

/// The tables of descriptors of the threads that asked for something last, as `/proc` shows them,
/// kept open: a walk down its path would take longer than the look into it. What is opened once
/// stays that thread's: with its end there is nothing in it any more, no matter who gets its
/// number.
#[derive(Default)]
struct Tables(Mutex<VecDeque<(u32, Arc<OwnedFd>)>>);

impl Tables {
    /// Tables that are kept.
    const MOST: usize = 8;

    /// The table of a thread; `None` where it may not be looked at.
    fn of(&self, thread: u32) -> Option<Arc<OwnedFd>> {
        let mut kept = self.0.lock();
        if let Some((_, table)) = kept.iter().find(|(of, _)| *of == thread) {
            return Some(table.clone());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = format!("/proc/{thread}/fd");
        let table = Arc::new(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        kept.truncate(Self::MOST - 1);
        kept.push_front((thread, table.clone()));
        Some(table)
    }

    /// It had nothing of what was looked for: perhaps it is that of another thread, which had the
    /// number before.
    fn forget(&self, thread: u32) {
        self.0.lock().retain(|(of, _)| *of != thread);
    }
}

impl Member {
    /// Whether a process's table of descriptors has it under the number that it had last.
    fn is_where_it_was(&self, table: &OwnedFd) -> bool {
        let number = DecInt::new(self.last_number.load(Ordering::Relaxed));
        let mut space = [MaybeUninit::uninit(); 64];
        let link = rustix::fs::readlinkat_raw(table, number, &mut space);
        link.is_ok_and(|(link, _)| *link == *self.link.as_bytes())
    }
}

/// The sockets of a process's table of descriptors with their numbers, as `/proc` shows them.
/// Nothing where it may not be looked at.
fn sockets_of(table: &Path) -> Vec<(u32, String)> {
    let Ok(entries) = std::fs::read_dir(table) else {
        return Vec::new();
    };
    let links = entries.flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let link = std::fs::read_link(entry.path()).ok()?;
        Some((number, link.into_os_string().into_string().ok()?))
    });
    links
        .filter(|(_, link)| link.starts_with("socket:["))
        .collect()
}
