//! A file system mounted in this thread: a session over a fork, and a watcher that sees each moment
//! of its tasks.

mod groups;
mod log;
mod recorded;

use crate::fault::{ENGINE, Fault};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, DeviceError};
use backstitch_layout::{
    Error, FileSystem, LayoutKind, OpenRequest, ReclaimStep, Result, Step, Stop, Timestamp,
};
use backstitch_mechanisms::{Ordering, usual_for};
use backstitch_ordering::{GroupId, Operation, Volume};
use backstitch_session::{
    BATCH_BYTES, Clock, Error as EngineError, NextTry, Outcome, Poll, Session, Task, Until,
};
use backstitch_store::{Batch, BlockClass, Goal, Limits, Optimisations, PatchId, Store, drive};

use crate::device::ForkDevice;
use crate::image::{Fork, Kind};
use crate::nesting::Nesting;
use crate::reads::Reads;
pub use backstitch_trace::Recorder;
use log::mechanism;
pub use log::replayed;
pub(crate) use log::{replay, site};
use rustc_hash::FxHashMap;

/// How the engine is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The mechanism.
    pub ordering: Ordering,
    /// The optimisations of the patch graph.
    pub optimisations: Optimisations,
    /// The size of what is written wholly or not at all; a block where `None`.
    pub unit_bytes: Option<u32>,
}

/// Sees the moments at which a crash may come.
pub trait Watcher {
    /// A batch is on its way: each of its blocks may arrive or not.
    fn in_flight(&mut self, mount: &Mount, batch: &Batch);

    /// Nothing is on its way. A crash may leave any set of the changes in memory that their
    /// dependencies allow.
    fn at_rest(&mut self, mount: &Mount);
}

/// A watcher that ignores everything.
pub struct Nobody;

impl Watcher for Nobody {
    fn in_flight(&mut self, _mount: &Mount, _batch: &Batch) {}

    fn at_rest(&mut self, _mount: &Mount) {}
}

/// An open file system over a fork. Its methods return the engine's errors as those of a file
/// system.
pub struct Mount {
    session: Session,
    /// The mechanism that it was asked for.
    ordering: Ordering,
    clock: Steps,
    device: Arc<ForkDevice>,
    devices: [Arc<dyn BlockDevice>; 1],
    /// Whether, after a crash, a block that a file was given since it was last synced may hold
    /// anything.
    pub contents_may_be_stale: bool,
    /// Whether a truncation is atomic: a crash leaves the old size with all contents, or the new
    /// size.
    pub cuts_are_atomic: bool,
    /// The patchgroups, by the workload's numbers, and those that the caller has engaged.
    numbered: FxHashMap<u32, GroupId>,
    engaged: Vec<GroupId>,
    /// Patches that the mechanism wants on stable storage before operations are answered.
    waiting: Vec<PatchId>,
}

impl Deref for Mount {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Mount {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

/// A simulated clock: each step takes 20 ms.
struct Steps(u64);

impl Clock for Steps {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0 * 20)
    }

    fn stamp(&mut self) -> (Duration, Timestamp) {
        self.0 += 1;
        self.last_stamp()
    }
}

impl Steps {
    fn last_stamp(&self) -> (Duration, Timestamp) {
        let seconds = START_SECONDS + (self.0 / STEPS_A_SECOND) as i64;
        let nanoseconds = 7;
        (
            self.now(),
            Timestamp {
                seconds,
                nanoseconds,
            },
        )
    }

    fn not_endless(&self) -> Result<()> {
        match self.0 > STEPS_MAX {
            true => Err(Error::corrupt(ENGINE, Fault::NoEnd)),
            false => Ok(()),
        }
    }
}

/// The most steps of a mount's life. No workload takes a thousandth of them, so an engine that
/// takes more never ends.
const STEPS_MAX: u64 = 1 << 20;

/// Steps of 20 milliseconds in a second.
const STEPS_A_SECOND: u64 = 50;

/// The first moment of a run, in seconds since 1970.
pub const START_SECONDS: i64 = 1_700_000_000;

/// How long an unmount waits for the reclaim: longer than any reclaim takes.
const RECLAIM_WAIT: Duration = Duration::from_secs(1 << 32);

impl Mount {
    /// Opens the file system of an image, as a mount does, recovering it where a crash left it.
    ///
    /// # Errors
    /// Where it cannot be recovered or mounted.
    pub fn open(
        fork: Fork,
        engine: Engine,
        read_only: bool,
        watcher: &mut dyn Watcher,
    ) -> Result<Mount> {
        let (stack, kind) = (fork.nesting.clone(), fork.kind);
        let device = ForkDevice::new(fork);
        Mount::open_device(device, stack, kind, engine, read_only, watcher)
    }

    /// As [`open`](Self::open), writable, over a device that notes what is read.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_noting(fork: Fork, engine: Engine, watcher: &mut dyn Watcher) -> Result<Mount> {
        let (stack, kind) = (fork.nesting.clone(), fork.kind);
        let device = ForkDevice::noting(fork);
        Mount::open_device(device, stack, kind, engine, false, watcher)
    }

    /// What was read, and what the device holds. For mounts that were opened by
    /// [`open_noting`](Self::open_noting).
    pub fn take_reads(&self) -> (Reads, Fork) {
        self.device.take_reads()
    }

    fn open_device(
        device: ForkDevice,
        nesting: Option<Arc<Nesting>>,
        kind: Kind,
        engine: Engine,
        read_only: bool,
        watcher: &mut dyn Watcher,
    ) -> Result<Mount> {
        let block_bytes = device.atomic_unit_bytes();
        // Objects of different lives must be told apart. They are by the time of the mount, so each
        // image gets another one.
        let nanoseconds = (device.fingerprint() % 1_000_000_000) as u32;
        // Where file systems are nested, the outermost has the usual mechanism without a log.
        let stack = nesting.map(|n| n.stack(kind.tools(), engine.ordering));
        let (layout, below): (&dyn LayoutKind, _) = match &stack {
            Some(stack) => (stack, usual_for(false)),
            None => (kind.layout(), engine.ordering),
        };
        let device = Arc::new(device);
        let devices: [Arc<dyn BlockDevice>; 1] = [device.clone()];
        let mut store = Store::new(Limits::default(), engine.optimisations);
        #[cfg(feature = "planted-errors")]
        crate::planted::plant_into(store.graph_mut());
        let unit_bytes = match below.promises().keeps_order_in_place() {
            true => engine.unit_bytes.unwrap_or(block_bytes).min(block_bytes),
            // A journal writes the blocks again that are not at home yet, so torn ones are mended.
            false => block_bytes,
        };
        let volume = store.add_volume_with_units(block_bytes, unit_bytes);
        let mut mechanism = mechanism(&device, kind.journal_host(), below, read_only)?;
        let request = OpenRequest {
            read_only,
            now: Timestamp {
                seconds: START_SECONDS,
                nanoseconds,
            },
            without_journal: false,
            journaled: mechanism.log().is_some(),
            unwritable_journal: None,
        };
        let (session, found) = Session::open(
            store,
            mechanism,
            volume,
            layout,
            &*devices[0],
            &request,
            |store| drive::read_wanted(store, &devices).map(drop),
        )
        .map_err(to_layout)?;
        let mut mount = Mount {
            session,
            ordering: engine.ordering,
            clock: Steps(0),
            device,
            devices,
            contents_may_be_stale: engine.ordering.promises().contents_may_be_stale,
            cuts_are_atomic: engine.ordering.has_log(),
            numbered: FxHashMap::default(),
            engaged: Vec::new(),
            waiting: Vec::new(),
        };
        if !read_only {
            mount.drive(Task::start(found.first), watcher)?;
        }
        Ok(mount)
    }

    /// What the device holds.
    pub fn fork(&self) -> Fork {
        self.device.fork()
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> u32 {
        self.store.block_bytes(self.volume)
    }

    /// Whether a block in memory holds a file's contents.
    pub fn holds_contents(&self, block: u64) -> bool {
        self.store.class_at(self.volume, block) == Some(BlockClass::Data)
    }

    /// Reads bytes of which memory has nothing newer than the device.
    pub fn read_device(&self, offset_bytes: u64, into: &mut [u8]) -> Result<()> {
        Ok(self.device.read(offset_bytes, into)?)
    }

    /// Sets the clock to a time after this, in seconds since 1970. Times that no mount's life can
    /// reach are ignored.
    pub fn come_after(&mut self, seconds: i64) {
        let steps = (seconds - START_SECONDS + 1) * STEPS_A_SECOND as i64;
        if let Ok(steps) = u64::try_from(steps)
            && steps < STEPS_MAX
        {
            self.clock.0 = self.clock.0.max(steps);
        }
    }

    /// Runs a task of the engine to its end; the watcher sees each of its moments.
    fn drive(&mut self, mut task: Task, watcher: &mut dyn Watcher) -> Result<Outcome> {
        loop {
            self.clock.not_endless()?;
            let polled = task.poll(&mut self.session, &mut self.clock);
            match polled.map_err(to_layout)? {
                Poll::Done(outcome) => return Ok(outcome),
                Poll::Changed | Poll::Turn => watcher.at_rest(self),
                Poll::Read => {
                    if let Err(error) = self.read_wanted() {
                        task.failed(error);
                    }
                }
                Poll::Write(batch) => self.write(batch, watcher),
                Poll::Rest(_) => {}
                Poll::Wait => return Err(Error::corrupt(ENGINE, Fault::WaitsForNobody)),
            }
        }
    }

    fn read_wanted(&mut self) -> std::result::Result<(), DeviceError> {
        drive::read_wanted(&mut self.session.store, &self.devices).map(drop)
    }

    /// Writes a batch, and tells the engine the result.
    fn write(&mut self, batch: Batch, watcher: &mut dyn Watcher) {
        watcher.in_flight(self, &batch);
        let result = drive::perform(&self.devices, &batch.writes);
        self.session.written(batch, result, self.clock.now());
        if self.latched.is_none() {
            watcher.at_rest(self);
        }
    }

    /// Runs one operation, repeating it after each miss and after the frees that it waits for.
    /// Patches that the mechanism wants on stable storage before the caller is answered are left to
    /// [`settle_waiting`](Self::settle_waiting).
    pub fn run<T>(
        &mut self,
        operation: Operation<'_>,
        watcher: &mut dyn Watcher,
        body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Result<T> {
        self.run_stepwise(operation, watcher, body, |_| Ok(()))
    }

    /// The same, and `after_step` is called after each step of a long operation but the last.
    pub fn run_stepwise<T>(
        &mut self,
        operation: Operation<'_>,
        watcher: &mut dyn Watcher,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
        mut after_step: impl FnMut(&mut Mount) -> Result<()>,
    ) -> Result<T> {
        loop {
            if let Some(done) = self.run_step(operation, watcher, &mut body)? {
                return Ok(done);
            }
            after_step(self)?;
            // Between the steps of a long operation other work may come, such as the end of a
            // transaction.
            self.tend_log(self.clock.0, watcher)?;
        }
    }

    /// Runs one step of an operation; `None` if more steps follow.
    pub fn run_step<T>(
        &mut self,
        operation: Operation<'_>,
        watcher: &mut dyn Watcher,
        mut body: &mut impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Result<Option<T>> {
        loop {
            if !self.has_room() {
                self.drive(Task::make_room(), watcher)?;
            }
            self.clock.not_endless()?;
            let at = self.clock.stamp();
            let stop = match self.step(operation, at, &mut body) {
                Ok(done) => return Ok(Some(done)),
                Err(stop) => stop,
            };
            match NextTry::after(stop, &self.session)? {
                NextTry::Read => self.read_wanted()?,
                NextTry::Turn => return Ok(None),
                NextTry::Task(task) => drop(self.drive(task, watcher)?),
            }
        }
    }

    /// Asks the file system something that changes nothing. The clock stands still, and there is no
    /// moment for the watcher.
    pub fn look<T>(
        &mut self,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Result<T> {
        loop {
            let at = self.clock.last_stamp();
            match self.step(Operation::Administration, at, &mut body) {
                Err(Stop::Miss) => self.read_wanted()?,
                other => return other.map_err(Stop::into_error),
            }
        }
    }

    fn step<T>(
        &mut self,
        operation: Operation<'_>,
        at: (Duration, Timestamp),
        body: &mut impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Step<T> {
        let (engaged, waiting) = (&self.engaged, &mut self.waiting);
        (self.session).step(Some(operation), at, engaged, waiting, body)
    }

    /// Decides which of two names that a crash left is the right one.
    pub fn settle_names(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.drive(Task::reclaim(Until::Settled), watcher).map(drop)
    }

    /// Does up to `steps` steps of the reclaim; fewer if it has to wait for something.
    pub fn reclaim_steps(&mut self, steps: u32, watcher: &mut dyn Watcher) -> Result<()> {
        for _ in 0..steps {
            let is_running = self.fs.reclaim_progress().running;
            if !is_running || self.reclaim_step(watcher)? != ReclaimStep::More {
                break;
            }
        }
        Ok(())
    }

    /// One step of the reclaim.
    pub fn reclaim_step(&mut self, watcher: &mut dyn Watcher) -> Result<ReclaimStep> {
        Ok(match self.drive(Task::reclaim(Until::Step), watcher)? {
            Outcome::Reclaim(step) => step,
            Outcome::Idle | Outcome::Worked => ReclaimStep::Done,
        })
    }

    /// Makes stable what the operations since the last call must have on stable storage before they
    /// are answered.
    pub fn settle_waiting(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        self.sync(&waiting, watcher)
    }

    /// Does the deferred work whose time has come. True where there was any.
    pub fn work(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        Ok(self.drive(Task::work(), watcher)? == Outcome::Worked)
    }

    /// Puts patches and what they depend on onto stable storage, and nothing else.
    pub fn sync(&mut self, targets: &[PatchId], watcher: &mut dyn Watcher) -> Result<()> {
        let task = Task::make_stable(targets.to_vec());
        self.drive(task, watcher).map(drop)
    }

    /// Writes batch after batch until there is nothing more for the goal. True where anything was
    /// written.
    pub fn write_out(&mut self, goal: Goal<'_>, watcher: &mut dyn Watcher) -> Result<bool> {
        let mut wrote = false;
        while self.write_batch(goal, watcher)? {
            wrote = true;
        }
        Ok(wrote)
    }

    /// Writes one batch for the goal; false where there is nothing more.
    fn write_batch(&mut self, goal: Goal<'_>, watcher: &mut dyn Watcher) -> Result<bool> {
        let batch = (self.session.store).next_batch(goal, self.clock.now(), BATCH_BYTES);
        let Some(batch) = self.hand_out(batch) else {
            return Ok(false);
        };
        self.write(batch, watcher);
        match &self.latched {
            Some(error) => Err(error.clone().into()),
            None => Ok(true),
        }
    }

    /// Writes what the mechanism wants to be written by now, though nobody waits for it.
    ///
    /// # Errors
    /// What the device fails with.
    pub fn write_issued(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        while let Some(batch) = self.session.next_issued(self.clock.now(), false) {
            self.write(batch, watcher);
        }
        match &self.latched {
            Some(error) => Err(error.clone().into()),
            None => Ok(()),
        }
    }

    /// Writes one batch of what waits for nothing else. Under a journal that is nothing of the
    /// running transaction.
    pub fn round(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.write_batch(Goal::All, watcher).map(drop)
    }

    /// Puts everything onto stable storage, and does all deferred work.
    pub fn drain(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.drive(Task::drain(), watcher).map(drop)
    }

    /// Reclaims what a crash left, and marks the image clean.
    pub fn unmount(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.drive(Task::unmount(RECLAIM_WAIT), watcher).map(drop)
    }
}

/// The engine's error as one of the file system.
pub(crate) fn to_layout(error: EngineError) -> Error {
    match error {
        EngineError::Layout(error) => error,
        EngineError::Latched(error) => error.into(),
        EngineError::Unfinished(stop) => stop.into_error(),
        stuck @ EngineError::Stuck { .. } => Error::corrupt(ENGINE, stuck),
    }
}
