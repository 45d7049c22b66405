//! The engine and the loop around every operation.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use backstitch_device::BlockDevice;
use backstitch_layout::{
    Awaited, Changed, Error as LayoutError, FileSystem, InodeNumber, Stop, Timestamp,
};
use backstitch_ordering::{Operation, PatchId, Volume};
use backstitch_session::{NextTry, Session};
use backstitch_store::{Slabs, Watcher};
use nix::time::ClockId;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashSet;

use crate::gathered::Gathered;
use crate::options::{now, read_clock};
use crate::persist::Retrier;
use crate::snapshot::Snapshot;
use crate::stats::{GroupStats, StallStats};
use crate::stream::Streams;
use crate::under::{self, Listener};
use crate::{Observer, RecoveryReport, Result, Stats};

/// A function that is told of changes which did not come through the front, so that its cache does
/// not know them.
pub(crate) type OnChange = Box<dyn Fn(&[Changed]) + Send + Sync>;

/// Everything under the one lock.
pub(crate) struct Core {
    /// What is mounted.
    pub(crate) session: Session,
    /// The callers that wait to hear of patchgroups.
    pub(crate) listeners: Vec<Listener>,
    /// The files for which an `fsync` has reported, since the device failed, that changes are lost.
    pub(crate) told_of_loss: FxHashSet<InodeNumber>,
    pub(crate) stopping: bool,
    pub(crate) unmounted: bool,
    pub(crate) operations: u64,
    /// Repeated attempts to write a batch, after the first one failed.
    pub(crate) write_retries: u64,
    pub(crate) stalls: StallStats,
    /// Small writes that are kept as bytes, to become patches together with those that follow.
    pub(crate) gathered: Gathered,
    pub(crate) streams: Streams,
    /// The most that memory took since some was last given back to the host.
    pub(crate) memory_high_bytes: u64,
}

/// A mounted file system, for any number of threads; see the crate's documentation.
pub struct Engine {
    pub(crate) core: Mutex<Core>,
    /// Wakes the writer when it has something to do.
    pub(crate) wake_writer: Condvar,
    /// Signals that a batch completed.
    pub(crate) batch_done: Condvar,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) retrier: Retrier,
    pub(crate) block_bytes: u32,
    pub(crate) atomic_bytes: u32,
    /// Bytes that one step of a write takes into memory at most.
    pub(crate) write_step_bytes: usize,
    /// Memory for the bytes that callers write.
    pub(crate) slabs: Arc<Slabs>,
    pub(crate) bytes_read: AtomicU64,
    /// How long an unmount goes on reclaiming what a crash left.
    pub(crate) reclaim_wait: Duration,
    /// When the mount began, by the system's monotonic clock.
    pub(crate) started: Duration,
    pub(crate) recovery: RecoveryReport,
    pub(crate) layout_name: &'static str,
    pub(crate) ordering_name: &'static str,
    pub(crate) root: InodeNumber,
    pub(crate) writer: Mutex<Option<JoinHandle<()>>>,
    pub(crate) reclaimer: Mutex<Option<JoinHandle<()>>>,
    /// Wakes the reclaim when it is to end, or need not rest any longer.
    pub(crate) wake_reclaimer: Condvar,
    pub(crate) on_change: OnceLock<OnChange>,
    pub(crate) on_wait: OnceLock<fn()>,
    pub(crate) on_memory_free: OnceLock<fn()>,
    pub(crate) observer: OnceLock<Box<dyn Observer>>,
    /// Held while free space is discarded.
    pub(crate) trimming: Mutex<()>,
    /// The thread that discards what is freed.
    pub(crate) discarder: Mutex<Option<JoinHandle<()>>>,
    pub(crate) wake_discarder: Condvar,
    /// The snapshot that is being made, if one is.
    pub(crate) snapshot: Mutex<Option<Arc<Snapshot>>>,
}

/// How often an operation that finds no space tries again, and the pause before: the kernel may be
/// about to give up inodes whose space is then freed.
const LATE_FREES: u32 = 4;
const LATE_FREE: Duration = Duration::from_millis(5);

impl Core {
    /// Notes that a range of a file was written.
    pub(crate) fn note_written(&mut self, inode: InodeNumber, start_bytes: u64, len_bytes: usize) {
        self.streams.note(inode, start_bytes, len_bytes as u64);
        let is_any_long = self.streams.is_any_long();
        self.store.note_streaming(is_any_long);
    }
}

impl Engine {
    /// The unit that is taken to reach the disk wholly or not at all: the block, or what the
    /// mount's options state.
    pub fn atomic_bytes(&self) -> u32 {
        self.atomic_bytes
    }

    /// What the mount found.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// Why nothing can be changed, in words; `None` where it can.
    pub fn read_only_reason(&self) -> Option<String> {
        self.core.lock().fs.read_only_reason()
    }

    /// The layout's name.
    pub fn layout_name(&self) -> &str {
        self.layout_name
    }

    /// The mechanism's name.
    pub fn ordering_name(&self) -> &str {
        self.ordering_name
    }

    /// The root directory.
    pub fn root(&self) -> InodeNumber {
        self.root
    }

    /// Sets a function that is called, in the thread that called the engine, before this waits for
    /// the device, for memory or for other threads. A front with few threads can then let another
    /// thread take the place of this one. The first one given stays. It must not call the engine.
    pub fn on_wait(&self, tell: fn()) {
        let _ = self.on_wait.set(tell);
    }

    /// Sets a function that is called, without a lock, after much memory has become free, so that
    /// the program may give it back to the host. The first one given stays.
    pub fn on_memory_free(&self, give_back: fn()) {
        let _ = self.on_memory_free.set(give_back);
    }

    /// Sets the observer, which is told what callers ask for. The first one given stays.
    pub fn observe(&self, observer: Box<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    /// Sets the watcher, which is told what happens to blocks and patches; see
    /// [`Store::watch`](backstitch_store::Store::watch).
    pub fn watch(&self, watcher: Option<Arc<dyn Watcher>>) {
        self.core.lock().store.watch(watcher);
    }

    /// This thread is about to wait.
    pub(crate) fn will_wait(&self) {
        if let Some(tell) = self.on_wait.get() {
            tell();
        }
    }

    /// The time of an operation's step: [`clock`](Self::clock) as of the kernel's last tick.
    pub(crate) fn clock_of_step(&self) -> Duration {
        monotonic(ClockId::CLOCK_MONOTONIC_COARSE).saturating_sub(self.started)
    }

    /// The store's time: since the mount began.
    pub(crate) fn clock(&self) -> Duration {
        monotonic(ClockId::CLOCK_MONOTONIC).saturating_sub(self.started)
    }

    /// Runs one operation: again after each miss, each step, each wait for deferred frees. Gathered
    /// writes are done before it.
    pub(crate) fn run<T>(
        &self,
        operation: Option<Operation<'_>>,
        body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> backstitch_layout::Step<T>,
    ) -> Result<T> {
        let mut core = self.core.lock();
        self.end_gathering(&mut core);
        self.run_in(&mut core, operation, body)
    }

    /// As [`run`](Self::run), for a caller that has the lock and has dealt with the gathered
    /// writes.
    pub(crate) fn run_in<T>(
        &self,
        core: &mut MutexGuard<'_, Core>,
        operation: Option<Operation<'_>>,
        mut body: impl FnMut(
            &mut dyn FileSystem,
            &mut Volume<'_>,
            Timestamp,
        ) -> backstitch_layout::Step<T>,
    ) -> Result<T> {
        core.operations += 1;
        let mut wait_for = Vec::new();
        let mut asked_again = 0;
        loop {
            if operation.is_some() {
                self.before_step(core)?;
                // The lock may have been released during a wait, and others have gathered writes:
                // these came before this step, and are done first.
                while core.gathered.is_under_way() {
                    self.end_gathering(core);
                    self.before_step(core)?;
                }
            }
            let step = core.step(
                operation,
                self.clock_of_step(),
                now(),
                &mut wait_for,
                &mut body,
            );
            match step {
                Ok(value) => {
                    self.after_step(core, &mut wait_for)?;
                    return Ok(value);
                }
                Err(stop) => self.before_next_try(core, stop, &mut wait_for, &mut asked_again)?,
            }
        }
    }

    /// What comes before every step that changes something.
    pub(crate) fn before_step(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        // Once unmounting has begun, no caller must be told that a change was made.
        if core.latched.is_some() || core.unmounted {
            return Err(LayoutError::ReadOnly.into());
        }
        core.note_memory();
        self.throttle(core);
        self.make_room(core)
    }

    /// Does what a step that did not come to its end asks for, so that it can run again.
    ///
    /// # Errors
    /// The step's error, where running it again is no use.
    pub(crate) fn before_next_try(
        &self,
        core: &mut MutexGuard<'_, Core>,
        stop: Stop,
        wait_for: &mut Vec<PatchId>,
        asked_again: &mut u32,
    ) -> Result<()> {
        let is_for_reclaim = stop == Stop::WaitFor(Awaited::Reclaim);
        match NextTry::after(stop, &core.session) {
            Ok(NextTry::Read) => self.read_wanted(core)?,
            Ok(NextTry::Turn) => {
                let mut now = core.session.take_waits_of_step(wait_for);
                self.after_step(core, &mut now)?;
                // The operation is long, and others may wait for the lock.
                self.will_wait();
                MutexGuard::bump(core);
            }
            Ok(NextTry::Task(task)) => {
                self.will_wait();
                let done = self.drive(core, task);
                // Space that cannot be reclaimed counts as used.
                if done.is_err() && is_for_reclaim && core.latched.is_none() {
                    return Err(LayoutError::NoSpace.into());
                }
                done?;
            }
            // The kernel gives up the last reference to a removed file only after `unlink` has
            // returned: space may be about to become free.
            Err(LayoutError::NoSpace)
                if self.on_wait.get().is_some() && *asked_again < LATE_FREES =>
            {
                *asked_again += 1;
                self.will_wait();
                MutexGuard::unlocked(core, || std::thread::sleep(LATE_FREE));
            }
            Err(error) => {
                note_corruption(core, &error);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// What comes after every step that changed something.
    pub(crate) fn after_step(
        &self,
        core: &mut MutexGuard<'_, Core>,
        wait_for: &mut Vec<PatchId>,
    ) -> Result<()> {
        core.store.trim();
        let is_due = |core: &Core| core.is_issue_due(self.clock_of_step());
        if core.store.graph().has_fired() || core.store.is_filling() || is_due(core) {
            self.wake_writer.notify_one();
        }
        if wait_for.is_empty() {
            return Ok(());
        }
        let targets = std::mem::take(wait_for);
        self.make_stable(core, targets)
    }

    /// The live figures.
    pub fn stats(&self) -> Stats {
        let core = self.core.lock();
        Stats {
            ordering: self.ordering_name.to_string(),
            atomic_unit_bytes: self.atomic_bytes,
            ops: core.operations,
            read_only: core.fs.read_only_reason(),
            waits: core.waits,
            waited_batches: core.waited_batches,
            write_retries: core.write_retries,
            memory: core.memory_stats(),
            stalls: core.stalls,
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            mechanism: (core.mechanism.figures().into_iter())
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            patchgroups: GroupStats {
                open: core.groups.open() as u64,
                engaged: core.groups.engaged(),
                listeners: core.listeners.len() as u64,
            },
            ..Stats::of(
                &core.store,
                core.fs.deferred(),
                core.fs.reclaim_progress(),
                self.clock(),
            )
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.core.lock().stopping = true;
        self.join_threads();
    }
}

impl Engine {
    /// Waits for the engine's own threads, which were told to stop. (The thread that drops the
    /// engine may be one of them.)
    pub(crate) fn join_threads(&self) {
        self.wake_writer.notify_all();
        self.wake_reclaimer.notify_all();
        self.wake_discarder.notify_all();
        for thread in [&self.writer, &self.reclaimer, &self.discarder] {
            if let Some(thread) = thread.lock().take()
                && thread.thread().id() != std::thread::current().id()
            {
                let _ = thread.join();
            }
        }
    }
}

impl Core {
    pub(crate) fn new(session: Session) -> Core {
        Core {
            session,
            listeners: Vec::new(),
            told_of_loss: FxHashSet::default(),
            stopping: false,
            unmounted: false,
            operations: 0,
            write_retries: 0,
            stalls: StallStats::default(),
            gathered: Gathered::default(),
            streams: Streams::default(),
            memory_high_bytes: 0,
        }
    }

    /// One step of an operation.
    pub(crate) fn step<T>(
        &mut self,
        operation: Option<Operation<'_>>,
        clock: Duration,
        now: Timestamp,
        wait_for: &mut Vec<PatchId>,
        body: &mut impl FnMut(
            &mut dyn FileSystem,
            &mut Volume<'_>,
            Timestamp,
        ) -> backstitch_layout::Step<T>,
    ) -> backstitch_layout::Step<T> {
        let under = under::under();
        let under = under.as_deref().unwrap_or_default();
        (self.session).step(operation, (clock, now), under, wait_for, body)
    }
}

impl Deref for Core {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Core {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

pub(crate) fn monotonic(clock: ClockId) -> Duration {
    Duration::from(read_clock(clock))
}

/// Makes the file system read-only once the image contradicts itself: more may be wrong than was
/// seen.
fn note_corruption(core: &mut Core, error: &LayoutError) {
    if let LayoutError::Corrupt(_) = error
        && core.fs.read_only_reason().is_none()
    {
        tracing::error!("{error}; the file system is read-only from now on");
        core.fs.become_read_only(&error.to_string());
    }
}
