//! One life of a volume: mount, step, commit, drain, reclaim, unmount.
//!
//! It is a machine without threads, locks, clocks and I/O. A [`Session`] is everything that a
//! mounted file system has in memory. A [`Task`] is something that takes more than a step: the end
//! of a transaction, a sync, an unmount. [`Task::poll`] goes on with it as far as it can, and says
//! what has to happen before the next call: blocks are to be read, a batch is to be written,
//! somebody else has to finish ([`Poll`]). Its driver brings the I/O, and whatever else a mount
//! needs:
//!
//! * `vfs` has one lock over the session and many threads, each with a task of its own. It polls
//!   under the lock, and does what it is asked for without it;
//! * `crash-core` has one thread and a fork of an image, and looks at every moment before, in and after
//!   each batch.
//!
//! The crate is above `layout` and `ordering`, and knows no particular layout.
//!
//! # Invariants
//!
//! * Between two polls anybody may use the session, other tasks too. A task takes nothing for
//!   granted that it saw before.
//! * A task that ended, in an error too, leaves nothing behind that others wait for.
//! * The same calls with the same times come to the same.
//!
//! | module | what |
//! |---|---|
//! | `task` | what all tasks have in common: a stack of calls; `tasks` which there are |
//! | `commit` | when a transaction ends, and how the log gets room |
//! | `stable` | flush rounds: what callers wait for, which they share |
//! | `issue` | what the mechanism wants to be written though nobody waits |
//! | `writer` | the policy of write-back |
//! | `drain` | deferred work, and everything onto stable storage |
//! | `reclaim` | the reclaim of what a crash left |
//! | `life` | the first patches of a mount, and the order in which an unmount ends everything |
//! | [`log`] | what a log holds is brought home before the file system is opened |

mod commit;
mod drain;
mod error;
mod issue;
mod life;
pub mod log;
mod reclaim;
mod stable;
mod task;
mod tasks;
mod writer;

use std::time::Duration;

use backstitch_device::{BlockDevice, DeviceError};
use backstitch_layout::{FileSystem, LayoutKind, OpenRequest, Stop, Timestamp};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::{
    GroupId, Groups, Log, LogState, Mechanism, Operation, PatchId, Volume, VolumeId,
};
use backstitch_store::{Batch, Rounds, Store};

pub use error::{Error, Result};
pub use reclaim::Until;
pub use task::{Outcome, Poll, Task};
pub use tasks::NextTry;
pub use writer::{Chore, NAP, Throttle, Turn};

/// Bytes of the largest batch that a task puts together: enough for long runs, and few enough that
/// callers who wait for something else are soon served.
pub const BATCH_BYTES: u64 = 16 << 20;

/// The commit interval of a new session.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// The source of time for tasks.
pub trait Clock {
    /// The time that the store goes by.
    fn now(&self) -> Duration;

    /// The time of a step that begins: on the store's clock, and as a date.
    fn stamp(&mut self) -> (Duration, Timestamp);
}

/// How a file system is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Change nothing.
    pub read_only: bool,
    /// The time of the mount.
    pub now: Timestamp,
    /// Write a file system that has a journal without it.
    pub without_journal: bool,
    /// The consistency mechanism.
    pub ordering: Ordering,
}

/// What was found where a file system was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// A crash left something to be done.
    pub recovery_needed: bool,
    /// What was done, in words.
    pub actions: Vec<String>,
    /// What [`Task::start`] has to put onto stable storage first.
    pub first: Vec<PatchId>,
}

/// A mounted file system, as far as it is in memory.
pub struct Session {
    /// Buffers and patches.
    pub store: Store,
    /// How order is kept.
    pub mechanism: Box<dyn Mechanism>,
    /// The file system.
    pub fs: Box<dyn FileSystem>,
    /// Where it lies in the store.
    pub volume: VolumeId,
    /// The open patchgroups.
    pub groups: Groups,
    /// How long a change may stay in the running transaction.
    pub commit_interval: Duration,
    /// The failure after which nothing is written any more.
    pub latched: Option<DeviceError>,
    /// Calls that had to wait for something to be on stable storage.
    pub waits: u64,
    /// Batches written for them.
    pub waited_batches: u64,
    /// Blocks of the batch that is on its way for them.
    pub sync_blocks: usize,
    /// What the mechanism wants to be written though nobody waits for it.
    issued: Vec<PatchId>,
    /// Something has happened that a task may wait for, other than a batch.
    news: bool,
    /// A task has changed something.
    has_changed: bool,
    /// Batches handed out and not reported.
    in_flight: u32,
    /// Somebody ends the running transaction: nothing is begun until that is over.
    is_committing: bool,
    /// When the last transaction was ended.
    last_commit: Duration,
    /// Tasks that wait for a transaction, and whether several did for the last.
    committers: u32,
    is_shared: bool,
    /// How long the last transaction that somebody waited for took to reach the disk.
    commit_took: Duration,
    /// The transaction that those who wait keep open for others, by its number, and until when,
    /// under a mechanism that gathers them.
    gathers: Option<(u64, Duration)>,
    /// What tasks wait for to be on stable storage, by ticket.
    wishes: Vec<(u64, Vec<PatchId>)>,
    next_ticket: u64,
    /// A task writes a batch for the wishes.
    has_leader: bool,
    /// What the leader remembers of what is waited for, and for which wishes that holds: their
    /// number, and the next ticket.
    rounds: Rounds,
    rounds_of: (usize, u64),
    /// Why deferred work was put aside, the last time.
    unreadable: Option<Error>,
}

impl Session {
    /// Opens a file system, on a volume of the store. `read` is to read the blocks that
    /// [`Store::take_wanted`] returns.
    ///
    /// # Errors
    /// Where there is no readable file system of this kind; what `read` says.
    pub fn open(
        mut store: Store,
        mut mechanism: Box<dyn Mechanism>,
        volume: VolumeId,
        layout: &dyn LayoutKind,
        device: &dyn BlockDevice,
        request: &OpenRequest,
        mut read: impl FnMut(&mut Store) -> std::result::Result<(), DeviceError>,
    ) -> Result<(Session, Found)> {
        let opened = loop {
            let mut v = Volume::new(&mut store, &mut *mechanism, volume, Duration::ZERO);
            v.begin(Operation::Administration);
            match layout.open(&mut v, device, request) {
                Err(Stop::Miss) => read(&mut store)?,
                done => break done?,
            }
        };
        store.write_back_with_rollback(mechanism.writes_with_rollback());
        let session = Session {
            store,
            mechanism,
            fs: opened.file_system,
            volume,
            groups: Groups::default(),
            commit_interval: COMMIT_INTERVAL,
            latched: None,
            waits: 0,
            waited_batches: 0,
            sync_blocks: 0,
            issued: Vec::new(),
            news: false,
            has_changed: true,
            in_flight: 0,
            is_committing: false,
            last_commit: Duration::ZERO,
            committers: 0,
            is_shared: false,
            commit_took: Duration::ZERO,
            gathers: None,
            wishes: Vec::new(),
            next_ticket: 0,
            has_leader: false,
            rounds: Rounds::default(),
            rounds_of: (0, 0),
            unreadable: None,
        };
        let found = Found {
            recovery_needed: opened.recovery_needed,
            actions: opened.actions,
            first: opened.first,
        };
        Ok((session, found))
    }

    /// One step, of an operation where it changes anything, under the patchgroups that are engaged.
    /// Appends what has to be on stable storage before the caller is answered.
    ///
    /// # Errors
    /// The layout's. [`NextTry::after`] says what is to be done before it runs again, if it is to.
    pub fn step<T>(
        &mut self,
        operation: Option<Operation<'_>>,
        (clock, now): (Duration, Timestamp),
        engaged: &[GroupId],
        wait_for: &mut Vec<PatchId>,
        body: &mut impl FnMut(
            &mut dyn FileSystem,
            &mut Volume<'_>,
            Timestamp,
        ) -> backstitch_layout::Step<T>,
    ) -> backstitch_layout::Step<T> {
        let is_asked_for = operation.is_some_and(|operation| operation.is_asked_for());
        let engaged = if is_asked_for { engaged } else { &[] };
        let mut volume = Volume::new(&mut self.store, &mut *self.mechanism, self.volume, clock)
            .under(&mut self.groups, engaged);
        if let Some(operation) = operation {
            volume.begin(operation);
        }
        let result = body(&mut *self.fs, &mut volume, now);
        if operation.is_some() {
            volume.end(wait_for);
        }
        result
    }

    /// Takes from `wait_for` what the next step of a long operation has to wait for. Changes that
    /// go through the log stay for the operation's end: transactions are in order by themselves, so
    /// one wait is enough for all steps.
    pub fn take_waits_of_step(&mut self, wait_for: &mut Vec<PatchId>) -> Vec<PatchId> {
        let Some((log, store, _)) = self.log() else {
            return std::mem::take(wait_for);
        };
        let (mut rest, now): (Vec<PatchId>, Vec<PatchId>) =
            (wait_for.drain(..)).partition(|id| log.is_of(store, *id));
        wait_for.append(&mut rest);
        wait_for.retain(|id| store.graph().is_live(*id));
        wait_for.dedup();
        now
    }

    /// One step that nobody asked for, and that nobody waits for: the task that it is part of ends
    /// with what it changes.
    fn own_step<T>(
        &mut self,
        operation: Operation<'_>,
        at: (Duration, Timestamp),
        mut body: impl FnMut(
            &mut dyn FileSystem,
            &mut Volume<'_>,
            Timestamp,
        ) -> backstitch_layout::Step<T>,
    ) -> backstitch_layout::Step<T> {
        let mut wait_for = Vec::new();
        self.step(Some(operation), at, &[], &mut wait_for, &mut body)
    }

    /// Frees objects whose last reference is gone, where that has to wait for nothing. False where
    /// there are no more.
    ///
    /// # Errors
    /// [`Stop::Miss`]: the rest needs a block from the device, or nothing is freed now.
    pub fn free_ready(&mut self, clock: &mut dyn Clock) -> backstitch_layout::Step<bool> {
        if self.latched.is_some() || self.is_committing {
            return Err(Stop::Miss);
        }
        let freed = self.own_step(Operation::Background, clock.stamp(), |fs, v, _| {
            fs.free_ready(v)
        });
        match &freed {
            Ok(_) | Err(Stop::Miss) => {}
            Err(error) => drop(self.deferred_work_failed(error.clone())),
        }
        freed
    }

    /// A batch that was handed out is on stable storage, or never will be: nobody knows what of it
    /// is there, its blocks stay in flight, and nothing is written after it.
    pub fn written(
        &mut self,
        batch: Batch,
        result: std::result::Result<(), DeviceError>,
        now: Duration,
    ) {
        self.in_flight -= 1;
        match result {
            Ok(()) => self.store.complete(batch, now),
            Err(error) => {
                tracing::error!("{error}; nothing is written any more");
                self.store.tell_failed(&batch);
                self.latch(error);
            }
        }
    }

    /// Divides a batch that was handed out into its requests, each of which is
    /// [reported](Self::written) by itself: for a device that has each write on stable storage when
    /// it is done.
    pub fn split(&mut self, batch: Batch) -> Vec<Batch> {
        let parts = self.store.split(batch);
        self.in_flight += (parts.len() as u32).saturating_sub(1);
        parts
    }

    /// Notes that a batch which was made outside of a task is on its way:
    /// [`written`](Self::written) is to be told of it.
    pub fn hand_out(&mut self, batch: Batch) -> Option<Batch> {
        self.in_flight += u32::from(!batch.is_empty());
        (!batch.is_empty()).then_some(batch)
    }

    /// How many batches are on their way.
    pub fn batches_in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether other tasks that wait are to be polled again. Asked after each poll; a batch that
    /// completes is a reason by itself.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// The log that changes go through, if there is one, and its volume: the mechanism's, or that
    /// of a file system inside this one. With the store, which it needs for everything.
    fn log(&mut self) -> Option<(&mut dyn Log, &mut Store, VolumeId)> {
        match self.mechanism.log() {
            Some(log) => Some((log, &mut self.store, self.volume)),
            None => {
                let (log, volume) = self.fs.log()?;
                Some((log, &mut self.store, volume))
            }
        }
    }

    /// Whether all changes go through the log: not where it belongs to a file system inside this
    /// one.
    pub fn log_is_for_all(&mut self) -> bool {
        self.mechanism.log().is_some()
    }

    /// How the log is doing; `None` where there is none.
    pub fn log_state(&mut self) -> Option<LogState> {
        let (log, store, _) = self.log()?;
        Some(log.state(store))
    }

    /// From now on nothing is written any more.
    fn latch(&mut self, error: DeviceError) -> Error {
        self.fs.become_read_only(&error.to_string());
        Error::Latched(self.latched.get_or_insert(error).clone())
    }

    fn not_latched(&self) -> Result<()> {
        match &self.latched {
            Some(error) => Err(Error::Latched(error.clone())),
            None => Ok(()),
        }
    }

    fn stuck(&self) -> Error {
        let patches = self.store.graph().counters().live;
        Error::Stuck { patches }
    }

    /// A failure of deferred work makes the file system read-only.
    fn deferred_work_failed(&mut self, stop: Stop) -> Error {
        let error = Error::from(stop);
        tracing::error!("deferred work: {error}");
        self.fs.become_read_only(&error.to_string());
        error
    }
}
