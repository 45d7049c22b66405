//! A file system in this thread: the engine over a fork, with somebody who looks at it whenever something was written.

mod groups;
mod log;

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::BlockDevice;
use backstitch_layout::{
    Error, FileSystem, LayoutKind, OpenRequest, ReclaimProgress, ReclaimStep, Result, Timestamp,
};
use backstitch_ordering::{
    GroupId, Groups, JournalMode, Mechanism, MechanismKind, Operation, Volume, VolumeId,
};
use backstitch_store::{Batch, BlockClass, Goal, Limits, Optimisations, PatchId, Store, drive};

use crate::image::{Fork, ForkDevice, Kind};
use crate::nested::Nesting;
use crate::reads::Reads;
use log::{log_of, mechanism};
pub(crate) use log::{replay, replayed};
use rustc_hash::FxHashMap;

/// How the engine is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Engine {
    /// The mechanism.
    pub ordering: MechanismKind,
    /// The optimisations of the patch graph.
    pub optimisations: Optimisations,
    /// What is taken to be written wholly or not at all; the block where `None`.
    pub unit_bytes: Option<u32>,
}

/// Sees the moments at which a crash may come.
pub(crate) trait Watcher {
    /// A batch is on its way: each of its blocks may arrive or not.
    fn in_flight(&mut self, mount: &Mount, batch: &Batch);

    /// Nothing is on its way: what is in memory may be there in any way that its dependencies allow.
    fn at_rest(&mut self, mount: &Mount);
}

/// Nobody who looks.
pub(crate) struct Nobody;

impl Watcher for Nobody {
    fn in_flight(&mut self, _mount: &Mount, _batch: &Batch) {}

    fn at_rest(&mut self, _mount: &Mount) {}
}

/// An open file system over a fork.
pub(crate) struct Mount {
    pub(crate) store: Store,
    mechanism: Box<dyn Mechanism>,
    pub(crate) fs: Box<dyn FileSystem>,
    volume: VolumeId,
    device: Arc<ForkDevice>,
    devices: [Arc<dyn BlockDevice>; 1],
    clock: u64,
    /// Contents that were not synced may be anything after a crash.
    pub(crate) contents_may_be_stale: bool,
    /// A file has its old size with all that it had then, or the new one.
    pub(crate) cuts_are_atomic: bool,
    /// The patchgroups, by the workload's numbers, and those that the caller has engaged.
    groups: Groups,
    numbered: FxHashMap<u32, GroupId>,
    engaged: Vec<GroupId>,
    /// What the mechanism wants on stable storage before operations are answered.
    waiting: Vec<PatchId>,
}

/// The steps of a mount's life: no workload takes a thousandth of them, and an engine that takes more never ends.
const STEPS_MAX: u64 = 1 << 20;

/// Steps of 20 milliseconds in a second.
const STEPS_A_SECOND: u64 = 50;

/// The first moment of a run, in seconds since 1970.
pub(crate) const START_SECONDS: i64 = 1_700_000_000;

impl Mount {
    /// Opens the file system of an image, as a mount does, recovering it where a crash left it.
    pub(crate) fn open(
        fork: Fork,
        engine: Engine,
        read_only: bool,
        watcher: &mut dyn Watcher,
    ) -> Result<Mount> {
        let (stack, kind) = (fork.nesting.clone(), fork.kind);
        let device = ForkDevice::new(fork);
        Mount::open_device(device, stack, kind, engine, read_only, watcher)
    }

    /// The same, not read-only, over a device that notes what is read.
    pub(crate) fn open_noting(
        fork: Fork,
        engine: Engine,
        watcher: &mut dyn Watcher,
    ) -> Result<Mount> {
        let (stack, kind) = (fork.nesting.clone(), fork.kind);
        let device = ForkDevice::noting(fork);
        Mount::open_device(device, stack, kind, engine, false, watcher)
    }

    /// What was read of a device that notes it, and what it holds.
    pub(crate) fn take_reads(&self) -> (Reads, Fork) {
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
        // What is made in one life is not taken for what was made in another one: that hangs on the moment of the mount.
        let nanoseconds = (device.fingerprint() % 1_000_000_000) as u32;
        // What holds the file system is under soft updates.
        let stack = nesting.map(|n| n.stack(engine.ordering));
        let (layout, below): (&dyn LayoutKind, _) = match &stack {
            Some(stack) => (stack, MechanismKind::Soft),
            None => (kind.layout(), engine.ordering),
        };
        let device = Arc::new(device);
        let devices: [Arc<dyn BlockDevice>; 1] = [device.clone()];
        let mut store = Store::new(Limits::default(), engine.optimisations);
        #[cfg(feature = "planted-errors")]
        crate::planted::plant_into(store.graph_mut());
        let unit_bytes = match below {
            // What a journal has not at home yet it writes there again.
            MechanismKind::Journal(_) | MechanismKind::Async => block_bytes,
            _ => engine.unit_bytes.unwrap_or(block_bytes).min(block_bytes),
        };
        let volume = store.add_volume_with_units(block_bytes, unit_bytes);
        let mut mechanism = mechanism(&device, below, read_only)?;
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
        let opened = loop {
            let mut v = Volume::new(&mut store, &mut *mechanism, volume, Duration::ZERO);
            match layout.open(&mut v, &*devices[0], &request) {
                Err(Error::Miss) => drive::read_wanted(&mut store, &devices)?,
                other => break other?,
            };
        };
        let mut mount = Mount {
            store,
            mechanism,
            fs: opened.file_system,
            volume,
            device,
            devices,
            clock: 0,
            contents_may_be_stale: engine.ordering
                == MechanismKind::Journal(JournalMode::Writeback),
            cuts_are_atomic: matches!(engine.ordering, MechanismKind::Journal(_)),
            groups: Groups::default(),
            numbered: FxHashMap::default(),
            engaged: Vec::new(),
            waiting: Vec::new(),
        };
        if !read_only {
            watcher.at_rest(&mount);
            mount.sync(&opened.first, watcher)?;
            let marked = mount.run(Operation::Administration, watcher, |fs, v, _| {
                fs.mark_in_use(v)
            })?;
            watcher.at_rest(&mount);
            mount.sync(&marked, watcher)?;
            mount.start_log(watcher)?;
        }
        Ok(mount)
    }

    /// What the device holds.
    pub(crate) fn fork(&self) -> Fork {
        self.device.fork()
    }

    /// The size of a block.
    pub(crate) fn block_bytes(&self) -> u32 {
        self.store.block_bytes(self.volume)
    }

    /// Whether a block in memory holds a file's contents.
    pub(crate) fn holds_contents(&self, block: u64) -> bool {
        self.store.class_at(self.volume, block) == Some(BlockClass::Data)
    }

    /// Bytes that are nowhere newer than on the device.
    pub(crate) fn read_device(&self, offset_bytes: u64, into: &mut [u8]) -> Result<()> {
        Ok(self.device.read(offset_bytes, into)?)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.clock * 20)
    }

    /// It is later than this, in seconds since 1970, unless that is no time that a mount's life could have come to.
    pub(crate) fn come_after(&mut self, seconds: i64) {
        let steps = (seconds - START_SECONDS + 1) * STEPS_A_SECOND as i64;
        if let Ok(steps) = u64::try_from(steps)
            && steps < STEPS_MAX
        {
            self.clock = self.clock.max(steps);
        }
    }

    /// One operation: again after each miss, and after the frees that it waits for. What the mechanism wants on stable storage
    /// before the caller is answered is put there by [`settle_waiting`](Self::settle_waiting).
    pub(crate) fn run<T>(
        &mut self,
        operation: Operation,
        watcher: &mut dyn Watcher,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Result<T>,
    ) -> Result<T> {
        loop {
            if let Some(done) = self.run_step(operation, watcher, &mut body)? {
                return Ok(done);
            }
            // Others may come between the steps of a long operation, and so may the end of a transaction.
            self.tend_log(self.clock, watcher)?;
        }
    }

    /// One step of an operation; `None` where that was not the last one.
    pub(crate) fn run_step<T>(
        &mut self,
        operation: Operation,
        watcher: &mut dyn Watcher,
        body: &mut impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Result<T>,
    ) -> Result<Option<T>> {
        loop {
            self.make_room(watcher)?;
            match self.step(operation, body) {
                Err(Error::Miss) => {
                    drive::read_wanted(&mut self.store, &self.devices)?;
                }
                Err(Error::Again) => return Ok(None),
                Err(Error::WaitForFrees) => self.drain(watcher)?,
                Err(Error::WaitForTransaction) => drop(self.commit(watcher)?),
                Err(Error::WaitForNames) => {
                    self.reclaim_until(watcher, |progress| progress.is_settled)?;
                }
                Err(Error::WaitForReclaim) => {
                    self.reclaim_until(watcher, |progress| !progress.running)?;
                }
                other => return other.map(Some),
            }
        }
    }

    /// What a file system says that changes nothing: no moment comes between it and the operation before it, and no time goes by.
    pub(crate) fn look<T>(
        &mut self,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Result<T>,
    ) -> Result<T> {
        loop {
            match self.at_this_moment(Operation::Administration, &mut body) {
                Err(Error::Miss) => {
                    drive::read_wanted(&mut self.store, &self.devices)?;
                }
                other => return other,
            }
        }
    }

    /// Reclaims what a crash left, until so much is done.
    fn reclaim_until(
        &mut self,
        watcher: &mut dyn Watcher,
        is_enough: impl Fn(&ReclaimProgress) -> bool,
    ) -> Result<()> {
        while !is_enough(&self.fs.reclaim_progress()) {
            let step = self.reclaim_step(watcher)?;
            if let ReclaimStep::Wait(_) | ReclaimStep::WaitForFrees = step {
                self.drain(watcher)?;
            }
        }
        Ok(())
    }

    /// Decides which of two names that a crash left is the right one.
    pub(crate) fn settle_names(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.reclaim_until(watcher, |progress| progress.is_settled)
    }

    /// Some steps of the reclaim, or as many as there are until it waits for something.
    pub(crate) fn reclaim_steps(&mut self, steps: u32, watcher: &mut dyn Watcher) -> Result<()> {
        for _ in 0..steps {
            let is_running = self.fs.reclaim_progress().running;
            if !is_running || self.reclaim_step(watcher)? != ReclaimStep::More {
                break;
            }
        }
        Ok(())
    }

    /// One step of the reclaim.
    pub(crate) fn reclaim_step(&mut self, watcher: &mut dyn Watcher) -> Result<ReclaimStep> {
        let step = self.run(Operation::Background, watcher, |fs, v, now| {
            fs.reclaim(v, now)
        })?;
        watcher.at_rest(self);
        Ok(step)
    }

    fn step<T>(
        &mut self,
        operation: Operation,
        body: &mut impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Result<T>,
    ) -> Result<T> {
        self.clock += 1;
        if self.clock > STEPS_MAX {
            return Err(Error::corrupt("engine", "it does not come to an end"));
        }
        self.at_this_moment(operation, body)
    }

    fn at_this_moment<T>(
        &mut self,
        operation: Operation,
        body: &mut impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Result<T>,
    ) -> Result<T> {
        let now = Timestamp {
            seconds: START_SECONDS + (self.clock / STEPS_A_SECOND) as i64,
            nanoseconds: 7,
        };
        let time = self.now();
        let is_asked_for = matches!(
            operation,
            Operation::Names | Operation::Attributes | Operation::Contents
        );
        let engaged = if is_asked_for { &self.engaged[..] } else { &[] };
        let mut v = Volume::new(&mut self.store, &mut *self.mechanism, self.volume, time)
            .under(&mut self.groups, engaged);
        v.begin(operation);
        let result = body(&mut *self.fs, &mut v, now);
        v.end(&mut self.waiting);
        result
    }

    /// Puts what the operations since the last call want before they are answered onto stable storage.
    pub(crate) fn settle_waiting(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        self.sync(&waiting, watcher)
    }

    /// Does the deferred work whose time has come. True where there was any.
    pub(crate) fn work(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        let mut worked = false;
        while self.run(Operation::Background, watcher, |fs, v, now| {
            fs.background(v, now)
        })? {
            worked = true;
        }
        Ok(worked)
    }

    /// Puts patches and what they depend on onto stable storage, and nothing else.
    pub(crate) fn sync(&mut self, targets: &[PatchId], watcher: &mut dyn Watcher) -> Result<()> {
        let log = log_of(&mut *self.mechanism, &mut *self.fs, self.volume);
        if let Some((log, _)) = log
            && targets
                .iter()
                .any(|t| log.waits_for_running(&self.store, *t))
        {
            self.commit(watcher)?;
        }
        self.write_out(Goal::Patches(targets), watcher).map(drop)
    }

    /// Writes batch after batch until there is nothing more for the goal. True where anything was written.
    pub(crate) fn write_out(&mut self, goal: Goal<'_>, watcher: &mut dyn Watcher) -> Result<bool> {
        let mut wrote = false;
        while self.write_batch(goal, watcher)? {
            wrote = true;
        }
        Ok(wrote)
    }

    /// Writes one batch for the goal; false where there is nothing more.
    fn write_batch(&mut self, goal: Goal<'_>, watcher: &mut dyn Watcher) -> Result<bool> {
        let now = self.now();
        let batch = self.store.next_batch(goal, now, drive::BATCH_BYTES);
        if batch.is_empty() {
            return Ok(false);
        }
        watcher.in_flight(self, &batch);
        drive::perform(&self.devices, &batch.writes)?;
        self.store.complete(batch, now);
        watcher.at_rest(self);
        Ok(true)
    }

    /// Writes what need not wait for anything else: one batch, and of a journal none of the transaction that is running.
    pub(crate) fn round(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.write_batch(Goal::All, watcher).map(drop)
    }

    /// Puts everything onto stable storage and does all deferred work, as soon as its time has come.
    pub(crate) fn drain(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        loop {
            let worked = self.work(watcher)?;
            if worked {
                watcher.at_rest(self);
            }
            if self.is_log_full() {
                self.free_log(watcher)?;
            }
            let committed = self.commit(watcher)?;
            let wrote = self.write_batch(Goal::All, watcher)?;
            if !worked && !committed && !wrote {
                return Ok(());
            }
        }
    }

    /// Reclaims what a crash left, and marks the image clean.
    pub(crate) fn unmount(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.fs.release_all();
        self.fs.retry_deferred();
        self.drain(watcher)?;
        self.reclaim_until(watcher, |progress| !progress.running)?;
        self.drain(watcher)?;
        self.run(Operation::Administration, watcher, |fs, v, now| {
            fs.settle(v, now)
        })?;
        watcher.at_rest(self);
        self.drain(watcher)?;
        self.end_log(watcher)?;
        self.run(Operation::Administration, watcher, |fs, v, now| {
            fs.mark_clean(v, now)
        })?;
        watcher.at_rest(self);
        self.drain(watcher)
    }
}
