//! A machine in virtual time: the engine, a processor and one or two simulated drives, in one
//! thread.
//!
//! It corresponds to `vfs` in a real mount: it drives a [`Session`], and supplies the clock, the
//! I/O and the scheduling. Callers, and the writer that writes back changes, are tasks
//! ([`schedule`]). A call takes the processor for a time given by a model ([`cpu`]). If it reads,
//! or must wait, it stops until the drive is done, while the background write-back goes on. Nothing
//! depends on the host's time, or on anything else that differs between runs.
//!
//! | module | what |
//! |---|---|
//! | `schedule` | tasks, and what they wait for |
//! | `cpu` | how long the host's work takes |
//! | `drives` | the file system's drive, and that of its log where this has its own |
//! | `chains` | order that the drive's queue keeps |
//! | `requests` | where batches and reads become requests of the drive |
//! | `drive` | the session's tasks, and operations, step by step |
//! | `writer` | write-back, and who has to wait while memory is full |
//! | `operations` | names and inodes |
//! | `groups` | patchgroups |
//! | `contents` | reading and writing files, and the host's cache of what was read |
//! | `files` | all that as [`Files`](crate::files::Files), and clients that run beside each other |
//!
//! # What is as in a real mount, and what is not
//!
//! The writer, the throttle, the gathering of small writes, `fsync` and `sync` do what those of
//! `vfs` do, with the same times and bounds. A batch goes to the drive as a whole, and the writer
//! waits for it. A caller that waits for stable storage writes batches of its own meanwhile, so the
//! drive has up to two at once, as in a mount; mechanisms that leave their order to the drive's
//! queue differ ([`requests`], [`chains`]). The reclaim is not run.

mod chains;
mod contents;
mod cpu;
mod drive;
mod drives;
mod files;
mod groups;
mod operations;
mod requests;
mod schedule;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::BlockDevice;
use backstitch_drives::{SimulatedDevice, VirtualClock};
use backstitch_layout::{InodeNumber, LayoutKind, OpenRequest, Timestamp};
use backstitch_session::{Access, Clock, Found, Session, Task, log};
use backstitch_store::{Store, Watcher, drive as store_drive};
use backstitch_vfs::{GroupId, MemoryStats, MountOptions, Stats};

use crate::disk::{Disk, QueueOrder};
use crate::{Error, Result};
use chains::Chains;
use contents::{Gathered, HostCache};
use cpu::Cpu;
use drives::Drives;
use requests::Queue;
use schedule::{Event, Schedule};

pub(crate) use files::MachineFiles;

/// The start of every machine's clock, in seconds since 1970.
pub(crate) const START_SECONDS: i64 = 1_200_000_000;

/// The engine's part of a machine.
struct Core {
    session: Session,
    queue: Queue,
    chains: Chains,
    gathered: Gathered,
    cached: HostCache,
    /// The patchgroup to which changes belong.
    engaged: Option<GroupId>,
    operations: u64,
    bytes_read: u64,
    throttled: u64,
    throttled_time: Duration,
    /// Tells the writer to end.
    is_stopping: bool,
    has_stopped: bool,
}

/// A mounted file system on a simulated drive.
pub(crate) struct Machine {
    core: RefCell<Core>,
    schedule: Schedule,
    cpu: Cpu,
    drives: Rc<Drives>,
    root: InodeNumber,
    block_bytes: u32,
    write_step_bytes: usize,
    ordering_name: &'static str,
    is_ordered_by_queue: bool,
    /// The mechanism's order is kept by requests that name those before them.
    has_chains: bool,
    queue_order: QueueOrder,
}

/// The drive's clock as the engine's clock.
#[derive(Clone)]
struct Time(Arc<VirtualClock>);

impl Clock for Time {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn stamp(&mut self) -> (Duration, Timestamp) {
        let now = self.0.now();
        let world = Timestamp {
            seconds: START_SECONDS + now.as_secs() as i64,
            nanoseconds: now.subsec_nanos(),
        };
        (now, world)
    }
}

impl Machine {
    /// Opens the file system of a drive, whose log may be on another one, in the computer of
    /// `disk`. This takes no time that counts, since nothing else runs yet.
    fn open(
        device: Arc<SimulatedDevice>,
        log_device: Option<Arc<SimulatedDevice>>,
        layout: &dyn LayoutKind,
        options: &MountOptions,
        disk: &Disk,
    ) -> Result<(Machine, Found)> {
        let mut time = Time(device.clock().clone());
        let (_, now) = time.stamp();
        let access = Access {
            read_only: false,
            now,
            without_journal: false,
            ordering: options.ordering,
        };
        let log_below = log_device.clone().map(|log| log as Arc<dyn BlockDevice>);
        let prepared = log::prepare(device.clone(), log_below, layout, &access).map_err(engine)?;
        let block_bytes = layout.block_bytes(&*device).map_err(engine)?;
        let drives = Rc::new(Drives::new(device, log_device, block_bytes));
        let limits = options.limits();
        let mut store = Store::new(limits, options.optimisations);
        let mut mechanism = log::mechanism(&access, false, prepared.log).map_err(engine)?;
        let is_chained = mechanism.is_ordered_by_queue() && disk.queue_order == QueueOrder::Chain;
        let has_chains = is_chained && !drives.have_cache();
        if has_chains {
            store.order_by_queue();
        }
        let promises = mechanism.kind().promises();
        let unit_bytes = options.unit_bytes(promises, block_bytes).map_err(engine)?;
        let volume = store.add_volume_with_units(block_bytes, unit_bytes);
        let request = OpenRequest {
            now,
            journaled: mechanism.log().is_some(),
            ..OpenRequest::default()
        };
        let ordering_name = mechanism.kind().name();
        let devices = [prepared.device];
        let (mut session, found) = Session::open(
            store,
            mechanism,
            volume,
            layout,
            &*devices[0],
            &request,
            |store| store_drive::read_wanted(store, &devices).map(drop),
        )
        .map_err(engine)?;
        session.commit_interval = Duration::from_secs_f64(options.commit_seconds);
        let is_ordered_by_queue = session.may_be_ordered_by_queue();
        let machine = Machine {
            is_ordered_by_queue,
            has_chains,
            queue_order: disk.queue_order,
            root: session.fs.root(),
            core: RefCell::new(Core {
                session,
                queue: Queue::default(),
                chains: Chains::default(),
                gathered: Gathered::default(),
                cached: HostCache::new(disk.page_bytes.unwrap_or(limits.memory_bytes)),
                engaged: None,
                operations: 0,
                bytes_read: 0,
                throttled: 0,
                throttled_time: Duration::ZERO,
                is_stopping: false,
                has_stopped: false,
            }),
            schedule: Schedule::new(drives.clone()),
            cpu: Cpu::new(disk.host_speed),
            drives,
            block_bytes,
            write_step_bytes: backstitch_vfs::step_bytes(
                limits.memory_bytes,
                promises.scopes_are_atomic(),
            ),
            ordering_name,
        };
        Ok((machine, found))
    }

    fn time(&self) -> Time {
        Time(self.drives.clock().clone())
    }

    /// The time.
    pub(crate) fn now(&self) -> Duration {
        self.drives.now()
    }

    /// How long the processor has been busy since the mount.
    pub(crate) fn cpu_busy(&self) -> Duration {
        self.cpu.busy()
    }

    /// The root directory.
    pub(crate) fn root(&self) -> InodeNumber {
        self.root
    }

    /// Lets a watcher see what happens to blocks and patches from now on; `None` ends that.
    pub(crate) fn watch(&self, watcher: Option<Arc<dyn Watcher>>) {
        self.core.borrow_mut().session.store.watch(watcher);
    }

    /// The engine's counters.
    pub(crate) fn stats(&self) -> Stats {
        let core = self.core.borrow();
        let session = &core.session;
        Stats {
            ordering: self.ordering_name.to_owned(),
            atomic_unit_bytes: self.block_bytes,
            ops: core.operations,
            read_only: session.fs.read_only_reason(),
            waits: session.waits,
            waited_batches: session.waited_batches,
            bytes_read: core.bytes_read,
            memory: MemoryStats {
                throttled: core.throttled,
                throttled_seconds: core.throttled_time.as_secs_f64(),
                ..MemoryStats::default()
            },
            ..Stats::of(
                &session.store,
                session.fs.deferred(),
                session.fs.reclaim_progress(),
                self.now(),
            )
        }
    }

    /// Begins the life of the mount.
    async fn start(&self, found: Found) -> Result<()> {
        self.drive(Task::start(found.first)).await?;
        let session = &mut self.core.borrow_mut().session;
        (session.waits, session.waited_batches) = (0, 0);
        Ok(())
    }

    /// Writes everything, marks the image clean, and ends the writer.
    async fn end(&self) -> Result<()> {
        self.end_gathering().await?;
        self.core.borrow_mut().is_stopping = true;
        self.schedule.tell(Event::Writer);
        while !self.core.borrow().has_stopped {
            self.schedule.event(Event::News).await;
        }
        self.drive(Task::unmount(Duration::ZERO)).await?;
        self.settle().await;
        Ok(())
    }
}

/// The engine's error as the error of a run.
fn engine(error: impl Into<backstitch_vfs::Error>) -> Error {
    Error::Engine(error.into())
}
