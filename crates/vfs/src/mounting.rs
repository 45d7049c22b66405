//! Mounting: recovery, the first patches, the threads.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use backstitch_device::{BlockDevice, DeviceError};
use backstitch_layout::{LayoutKind, OpenRequest};
use backstitch_ordering::VolumeId;
use backstitch_session::{Access, Session, Task, log};
use backstitch_store::{BlockClass, Store};
use nix::time::ClockId;
use parking_lot::{Condvar, Mutex};

use crate::engine::{Core, Engine, monotonic};
use crate::options::seconds;
use crate::persist::Retrier;
use crate::transfer::{read_blocks, step_bytes};
use crate::{Error, MountOptions, RecoveryReport, Result};

impl Engine {
    /// Opens the file system on a device, recovers it where a crash left it, and starts the writer.
    ///
    /// # Errors
    /// Where the device holds no readable file system of this kind, or recovery could not write.
    pub fn mount(
        device: Arc<dyn BlockDevice>,
        layout: &dyn LayoutKind,
        options: &MountOptions,
    ) -> Result<Arc<Engine>> {
        Self::mount_with_journal(device, None, layout, options)
    }

    /// As [`mount`](Self::mount), for a file system whose journal is on a device of its own.
    ///
    /// # Errors
    /// As [`mount`](Self::mount).
    pub fn mount_with_journal(
        device: Arc<dyn BlockDevice>,
        journal_device: Option<Arc<dyn BlockDevice>>,
        layout: &dyn LayoutKind,
        options: &MountOptions,
    ) -> Result<Arc<Engine>> {
        let started = Instant::now();
        let access = Access {
            read_only: options.read_only,
            now: options.mount_time,
            without_journal: options.without_journal,
            ordering: options.ordering,
        };
        let log::Prepared {
            device,
            actions: recovered,
            log: found_log,
        } = log::prepare(device, journal_device, layout, &access)?;
        device.reads_are_scattered();
        let block_bytes = layout.block_bytes(&*device)?;
        let limits = options.limits();
        let mut store = Store::new(limits, options.optimisations);
        let is_read_only = options.read_only || device.is_read_only();
        let unwritable_journal = found_log.as_ref().err().cloned();
        let mut mechanism = log::mechanism(&access, is_read_only, found_log)?;
        let promises = mechanism.kind().promises();
        let write_step_bytes = step_bytes(limits.memory_bytes, promises.scopes_are_atomic());
        let atomic_bytes = options.unit_bytes(promises, block_bytes)?;
        let volume = store.add_volume_with_units(block_bytes, atomic_bytes);
        let request = OpenRequest {
            read_only: is_read_only,
            now: options.mount_time,
            without_journal: options.without_journal,
            journaled: mechanism.log().is_some(),
            unwritable_journal,
        };
        let ordering_name = mechanism.kind().name();
        let (mut session, found) = Session::open(
            store,
            mechanism,
            volume,
            layout,
            &*device,
            &request,
            |store| read(store, volume, &*device),
        )?;
        session.commit_interval = seconds(options.commit_seconds);
        let slabs = session.store.slabs().clone();
        let engine = Arc::new(Engine {
            slabs,
            recovery: RecoveryReport {
                needed: found.recovery_needed || !recovered.is_empty(),
                seconds: started.elapsed().as_secs_f64(),
                actions: [recovered, found.actions].concat(),
            },
            layout_name: session.fs.name(),
            ordering_name,
            root: session.fs.root(),
            core: Mutex::new(Core::new(session)),
            wake_writer: Condvar::new(),
            batch_done: Condvar::new(),
            device,
            retrier: Retrier::default(),
            block_bytes,
            atomic_bytes,
            write_step_bytes,
            bytes_read: AtomicU64::new(0),
            reclaim_wait: seconds(options.reclaim_wait_seconds),
            started: monotonic(ClockId::CLOCK_MONOTONIC),
            writer: Mutex::new(None),
            reclaimer: Mutex::new(None),
            wake_reclaimer: Condvar::new(),
            on_change: OnceLock::new(),
            on_wait: OnceLock::new(),
            on_memory_free: OnceLock::new(),
            observer: OnceLock::new(),
            trimming: Mutex::new(()),
            discarder: Mutex::new(None),
            wake_discarder: Condvar::new(),
            snapshot: Mutex::new(None),
        });
        engine.begin(Task::start(found.first), options, is_read_only)?;
        Ok(engine)
    }

    /// Does what a mount writes first, and starts the threads.
    fn begin(
        self: &Arc<Self>,
        start: Task,
        options: &MountOptions,
        is_read_only: bool,
    ) -> Result<()> {
        let mut core = self.core.lock();
        self.drive(&mut core, start).map_err(|error| match error {
            Error::Latched(error) => error.into(),
            error => error,
        })?;
        // These were no callers' waits.
        (core.waits, core.waited_batches) = (0, 0);
        drop(core);
        *self.writer.lock() = Some(crate::writer::spawn(self));
        *self.reclaimer.lock() = crate::reclaim::spawn(self);
        if options.discard && !is_read_only {
            self.core.lock().fs.remember_freed(true);
            let rest = Duration::from_secs_f64(options.expire_seconds.clamp(0.01, 1e9));
            *self.discarder.lock() = crate::trim::spawn(self, rest);
        }
        Ok(())
    }
}

/// Reads the blocks that the opening of a file system missed.
fn read(
    store: &mut Store,
    volume: VolumeId,
    device: &dyn BlockDevice,
) -> std::result::Result<(), DeviceError> {
    let wanted = store.take_wanted();
    let (read, unreadable) = read_blocks(device, store.block_bytes(volume), &wanted)?;
    store.abandon(&unreadable);
    for (block, data) in read {
        store.insert(volume, block, BlockClass::Metadata, data);
    }
    Ok(())
}
