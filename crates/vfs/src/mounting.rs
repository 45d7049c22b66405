//! Mounting: recovery, the first patches, the threads.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use backstitch_device::BlockDevice;
use backstitch_layout::{Error as LayoutError, FileSystem, LayoutKind, OpenRequest, Opened};
use backstitch_ordering::{Mechanism, Operation, PatchId, Volume, VolumeId};
use backstitch_store::{BlockClass, Goal, Limits, Store};
use nix::time::ClockId;
use parking_lot::{Condvar, Mutex};

use crate::engine::{Core, Engine, monotonic};
use crate::options::LEAST_CACHE_BYTES;
use crate::persist::Retrier;
use crate::transfer::step_bytes;
use crate::{Error, MountOptions, RecoveryReport, Result, journal};

/// So many bytes of the bound on memory allow one more patch to be alive. They take less; but a sync writes them all.
const BYTES_PER_PATCH: u64 = 512;
/// So many patches may be alive however little memory there is.
const LEAST_PATCHES: u64 = 4096;

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
        let journal::Prepared {
            device,
            actions: replayed,
            setup,
        } = journal::prepare(device, journal_device, layout, options)?;
        device.reads_are_scattered();
        let block_bytes = layout.block_bytes(&*device)?;
        let limits = limits(options);
        let mut store = Store::new(limits, options.optimisations);
        let is_read_only = options.read_only || device.is_read_only();
        let unwritable_journal = setup.as_ref().err().cloned();
        let mut mechanism = journal::mechanism(options, is_read_only, setup)?;
        let needs_units = mechanism.keeps_order() && !mechanism.scopes_are_atomic();
        let write_step_bytes = step_bytes(limits.memory_bytes, mechanism.scopes_are_atomic());
        let asked_for = options.atomic_bytes.filter(|_| needs_units);
        let atomic_bytes = atomic_unit(asked_for, block_bytes)?;
        let volume = store.add_volume_with_units(block_bytes, atomic_bytes);
        let request = OpenRequest {
            read_only: is_read_only,
            now: options.mount_time,
            without_journal: options.without_journal,
            journaled: mechanism.log().is_some(),
            unwritable_journal,
        };
        let mut opened = open(
            &mut store,
            &mut *mechanism,
            volume,
            &device,
            layout,
            &request,
        )?;
        let retrier = Retrier::default();
        let mut write_retries = write_first(&mut store, &retrier, &*device, &opened.first)?;
        write_retries += write_start(
            &mut store,
            &mut *mechanism,
            volume,
            &mut *opened.file_system,
            |store, targets| write_first(store, &retrier, &*device, targets),
        )?;
        let slabs = store.slabs().clone();
        let engine = Arc::new(Engine {
            slabs,
            recovery: RecoveryReport {
                needed: opened.recovery_needed || !replayed.is_empty(),
                seconds: started.elapsed().as_secs_f64(),
                actions: [replayed, opened.actions].concat(),
            },
            layout_name: opened.file_system.name(),
            ordering_name: mechanism.name(),
            root: opened.file_system.root(),
            core: Mutex::new(Core::new(
                store,
                mechanism,
                opened.file_system,
                volume,
                write_retries,
            )),
            wake_writer: Condvar::new(),
            batch_done: Condvar::new(),
            device,
            retrier,
            block_bytes,
            atomic_bytes,
            write_step_bytes,
            bytes_read: AtomicU64::new(0),
            commit_interval: crate::commit::interval(options.commit_seconds),
            reclaim_wait: Duration::from_secs_f64(options.reclaim_wait_seconds.clamp(0.0, 1e9)),
            started: monotonic(ClockId::CLOCK_MONOTONIC),
            writer: Mutex::new(None),
            reclaimer: Mutex::new(None),
            wake_reclaimer: Condvar::new(),
            on_change: OnceLock::new(),
            on_wait: OnceLock::new(),
            on_memory_free: OnceLock::new(),
            trimming: Mutex::new(()),
            discarder: Mutex::new(None),
            wake_discarder: Condvar::new(),
            snapshot: Mutex::new(None),
        });
        *engine.writer.lock() = Some(crate::writer::spawn(&engine));
        *engine.reclaimer.lock() = crate::reclaim::spawn(&engine);
        if options.discard && !is_read_only {
            engine.core.lock().fs.remember_freed(true);
            let rest = Duration::from_secs_f64(options.expire_seconds.clamp(0.01, 1e9));
            *engine.discarder.lock() = crate::trim::spawn(&engine, rest);
        }
        Ok(engine)
    }
}

/// Opens the file system with one thread, before anybody else can see it.
fn open(
    store: &mut Store,
    mechanism: &mut dyn Mechanism,
    volume: VolumeId,
    device: &Arc<dyn BlockDevice>,
    layout: &dyn LayoutKind,
    request: &OpenRequest,
) -> Result<Opened> {
    loop {
        let mut v = Volume::new(store, mechanism, volume, Duration::ZERO);
        v.begin(Operation::Administration);
        match layout.open(&mut v, &**device, request) {
            Ok(opened) => return Ok(opened),
            Err(LayoutError::Miss) => {
                let wanted = store.take_wanted();
                let block_bytes = store.block_bytes(volume);
                let (read, unreadable) =
                    crate::transfer::read_blocks(&**device, block_bytes, &wanted)?;
                store.abandon(&unreadable);
                for (block, data) in read {
                    store.insert(volume, block, BlockClass::Metadata, data);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Puts the mount's own first patches onto stable storage; returns how many attempts were repeated.
fn write_first(
    store: &mut Store,
    retrier: &Retrier,
    device: &dyn BlockDevice,
    targets: &[PatchId],
) -> Result<u64> {
    let mut all_repeated = 0;
    loop {
        let batch = store.next_batch(Goal::Patches(targets), Duration::ZERO, u64::MAX);
        if batch.is_empty() {
            return Ok(all_repeated);
        }
        let (repeated, result) = retrier.perform(device, &batch.writes);
        all_repeated += repeated;
        result?;
        store.complete(batch, Duration::ZERO);
    }
}

fn limits(options: &MountOptions) -> Limits {
    Limits {
        memory_bytes: options.cache_bytes.max(LEAST_CACHE_BYTES),
        dirty_bytes: options.dirty_bytes,
        patches: (options.cache_bytes / BYTES_PER_PATCH).max(LEAST_PATCHES),
        expire: Duration::from_secs_f64(options.expire_seconds.clamp(0.0, 1e9)),
        ..Limits::default()
    }
}

/// What is taken to reach the disk wholly or not at all: the block where nothing else was asked for.
fn atomic_unit(asked_for: Option<u32>, block_bytes: u32) -> Result<u32> {
    match asked_for {
        Some(bytes) if bytes < 512 || bytes > block_bytes || !bytes.is_power_of_two() => {
            Err(Error::AtomicUnit { bytes, block_bytes })
        }
        bytes => Ok(bytes.unwrap_or(block_bytes)),
    }
}

/// Says on stable storage that the file system is in use, and has the log begin; returns how many attempts were repeated.
fn write_start(
    store: &mut Store,
    mechanism: &mut dyn Mechanism,
    volume: VolumeId,
    fs: &mut dyn FileSystem,
    mut write: impl FnMut(&mut Store, &[PatchId]) -> Result<u64>,
) -> Result<u64> {
    let mut v = Volume::new(store, mechanism, volume, Duration::ZERO);
    // The superblock is in memory since it was opened.
    let marked = fs.mark_in_use(&mut v)?;
    let mut repeated = write(store, &marked)?;
    if fs.read_only_reason().is_none()
        && let Some(log) = mechanism.log()
    {
        let started = log.start(store, volume);
        repeated += write(store, &[started])?;
    }
    Ok(repeated)
}
