//! One run: a new file system, a new engine, the workload, the figures.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, FileDevice, MemoryDevice, OpenOptions, SlowFlushDevice};
use backstitch_drives::{DriveSpec, SimulatedDevice, VirtualClock};
use backstitch_formats::Layout;
use backstitch_layout::tools::{CheckOptions, DeviceSource, Mkfs, MkfsJournal};
use backstitch_mechanisms::{logs, usual_for};
use backstitch_vfs::{Engine, MountOptions, Optimisations, Ordering, Stats};
use backstitch_wafs::Wafs;

use crate::disk::Disk;
use crate::files::{EngineFiles, Files, HostFiles, Node};
use crate::machine::{MachineFiles, START_SECONDS};
use crate::record;
use crate::workload::{Plan, SCRIPTS, Session, file_bytes};
use crate::{CpuTime, EngineFigures, Error, Result, Run, Scale, Workload, paper};

/// What a workload runs on.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// The engine in this process over a device in memory.
    Memory {
        /// The file system's size.
        size_bytes: u64,
        /// Cost of a flush: the device sleeps for this long, so that the figures do not depend on
        /// the host's disk.
        flush: Duration,
    },
    /// The engine in this process over an image file or a block device, which is overwritten.
    Image {
        /// The file or device.
        path: PathBuf,
        /// The file system's size. A block device has its own.
        size_bytes: u64,
    },
    /// The engine over a simulated disk, in virtual time.
    Disk(Box<Disk>),
    /// System calls in a directory of any mounted file system.
    Directory(PathBuf),
}

impl Target {
    fn describe(&self) -> String {
        match self {
            Target::Memory { flush, .. } if flush.is_zero() => "memory".to_owned(),
            Target::Memory { flush, .. } => {
                format!("memory, {} ms a flush", flush.as_secs_f64() * 1e3)
            }
            Target::Image { path, .. } => format!("image {}", path.display()),
            Target::Disk(disk) => format!("disk {}", disk.drive.name),
            Target::Directory(path) => format!("dir {}", path.display()),
        }
    }
}

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The workload.
    pub workload: Workload,
    /// Its size.
    pub scale: Scale,
    /// The layout of the file systems that are made.
    pub layout: Layout,
    /// The mechanism.
    pub ordering: Ordering,
    /// Which optimisations of the patch engine are on.
    pub optimisations: Optimisations,
    /// What it runs on.
    pub target: Target,
    /// The file or block device for the journal or the log, which is overwritten. With `None` the
    /// journal is inside the image.
    pub journal_device: Option<PathBuf>,
    /// The limit on buffers.
    pub cache_bytes: u64,
    /// The limit on changes that wait to be written ([`MountOptions::dirty_bytes`]).
    pub dirty_bytes: u64,
    /// How long a change may be in memory only.
    pub expire_seconds: f64,
    /// The unit between which order is kept, in bytes: a block where `None`.
    pub atomic_bytes: Option<u32>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether to record each request of a simulated disk.
    pub trace: bool,
    /// The file in which to record the patches of the run, for `backstitch trace`.
    pub record: Option<PathBuf>,
    /// Whether to check the image after the run.
    pub check: bool,
    /// Reads the counters of the mount of ours in which a directory is, if it is in one.
    pub mount_stats: Option<fn(&Path) -> Option<Stats>>,
}

/// Does one run.
///
/// # Errors
///
/// If something fails, or a check was asked for and the image is not clean.
pub fn measure(spec: &Spec) -> Result<Run> {
    let plan = Plan::draw(spec.workload, &spec.scale, spec.seed)?;
    match &spec.target {
        Target::Memory { size_bytes, flush } => {
            let device = MemoryDevice::new(*size_bytes as usize);
            let journal = make_with_journal(spec, &device, true)?;
            let device: Arc<dyn BlockDevice> = Arc::new(device);
            let device: Arc<dyn BlockDevice> = match flush.is_zero() {
                true => device,
                false => Arc::new(SlowFlushDevice::new(device, *flush)),
            };
            on_device(spec, &plan, device, journal)
        }
        Target::Image { path, size_bytes } => {
            let (device, is_zero) = emptied(path, *size_bytes)?;
            let journal = make_with_journal(spec, &device, is_zero)?;
            on_device(spec, &plan, Arc::new(device), journal)
        }
        Target::Disk(disk) => on_disk(spec, &plan, disk),
        Target::Directory(path) => in_directory(spec, &plan, path),
    }
}

/// An emptied file, in which the host must allocate all blocks again; or a block device. Also
/// whether it is known to hold zeros.
fn emptied(path: &Path, size_bytes: u64) -> Result<(FileDevice, bool)> {
    use std::os::unix::fs::FileTypeExt;
    let is_disk = std::fs::metadata(path).is_ok_and(|seen| seen.file_type().is_block_device());
    if is_disk {
        let device = FileDevice::open(path, OpenOptions::default())?;
        return Ok((device, false));
    }
    // Both calls take a lock, so an image that is mounted is not touched.
    drop(FileDevice::create(path, 0)?);
    Ok((FileDevice::create(path, size_bytes)?, true))
}

/// When images are made: an arbitrary time, the same for all.
const MADE_SECONDS: u64 = START_SECONDS as u64;
/// The UUID of the file systems that benchmarks make.
pub const IMAGE_UUID: [u8; 16] = [0xb5; 16];
/// The UUID of the separate journals that benchmarks make.
pub const JOURNAL_UUID: [u8; 16] = [0x1b; 16];

/// Makes a new file system, with a journal inside if the ordering is one.
pub(crate) fn make(
    layout: Layout,
    device: &dyn BlockDevice,
    device_is_zero: bool,
    ordering: Ordering,
) -> Result<()> {
    let wanted = wanted(layout, device_is_zero, ordering);
    layout.make(&wanted, device)?;
    Ok(())
}

/// The options of a new file system of a type. The ordering decides whether it has a log, not the
/// type.
pub(crate) fn wanted(layout: Layout, device_is_zero: bool, ordering: Ordering) -> Mkfs {
    let is_of_log = |word: &&str| logs().iter().any(|kind| kind.features().contains(word));
    let of_type = layout.type_features().iter().copied();
    let of_type = of_type.filter(|word| !is_of_log(word)).map(str::to_owned);
    Mkfs {
        features: of_type.chain(ordering.image_features()).collect(),
        // The block size of larger file systems, whatever the size of this one.
        block_size: Some(BLOCK_BYTES),
        device_is_zero,
        ..Mkfs::new(IMAGE_UUID, [0x5b; 16], MADE_SECONDS)
    }
}

/// Whether a layout can host what an ordering needs, in a file system of this size.
pub fn can_make(layout: Layout, ordering: Ordering, size_bytes: u64) -> bool {
    let wanted = wanted(layout, true, ordering);
    layout.can_make(&wanted, size_bytes).is_ok()
}

const BLOCK_BYTES: u32 = 4096;

/// The size that mkfs gives a journal in 4 GiB, and that of the papers' journals.
const JOURNAL_BYTES: u64 = 64 << 20;
/// The size of a separate log of operations, as in Seltzer et al. 2000 (table 3).
const LOG_BYTES: u64 = 128 << 20;

/// The size of a log on a device of its own.
fn log_bytes(ordering: Ordering) -> u64 {
    match ordering.needs_log_device() {
        true => LOG_BYTES,
        false => JOURNAL_BYTES,
    }
}

/// Makes a new file system, with its log on a device of its own.
pub(crate) fn make_apart(
    (layout, ordering): (Layout, Ordering),
    (device, device_is_zero): (&dyn BlockDevice, bool),
    (log, log_is_zero): (&dyn BlockDevice, bool),
) -> Result<()> {
    if ordering.needs_log_device() {
        make(layout, device, device_is_zero, ordering)?;
        let made_nanoseconds = MADE_SECONDS * 1_000_000_000;
        return Ok(Wafs::make(log, JOURNAL_UUID, made_nanoseconds)?);
    }
    let made = MkfsJournal {
        block_size: Some(BLOCK_BYTES),
        device_is_zero: log_is_zero,
        ..MkfsJournal::new(JOURNAL_UUID, MADE_SECONDS)
    };
    let uuid = layout.make_journal(&made, log)?.uuid;
    let wanted = Mkfs {
        journal_uuid: Some(uuid),
        ..wanted(layout, device_is_zero, ordering)
    };
    layout.make(&wanted, device)?;
    layout.attach_journal(log, wanted.uuid)?;
    Ok(())
}

/// Makes a new file system, and its log if that is elsewhere.
fn make_with_journal(
    spec: &Spec,
    device: &dyn BlockDevice,
    device_is_zero: bool,
) -> Result<Option<Arc<dyn BlockDevice>>> {
    let kind = (spec.layout, spec.ordering);
    let log: Arc<dyn BlockDevice> = match &spec.journal_device {
        Some(path) => {
            let (log, log_is_zero) = emptied(path, log_bytes(spec.ordering))?;
            make_apart(kind, (device, device_is_zero), (&log, log_is_zero))?;
            Arc::new(log)
        }
        None if spec.ordering.needs_log_device()
            && matches!(spec.target, Target::Memory { .. }) =>
        {
            let log = MemoryDevice::new(log_bytes(spec.ordering) as usize);
            make_apart(kind, (device, device_is_zero), (&log, true))?;
            Arc::new(log)
        }
        None => {
            make(spec.layout, device, device_is_zero, spec.ordering)?;
            return Ok(None);
        }
    };
    Ok(Some(log))
}

fn mount(
    spec: &Spec,
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
) -> Result<Arc<Engine>> {
    let options = mount_options(spec);
    Ok(Engine::mount_with_journal(
        device,
        journal,
        spec.layout.layout(),
        &options,
    )?)
}

fn mount_options(spec: &Spec) -> MountOptions {
    MountOptions {
        cache_bytes: spec.cache_bytes,
        dirty_bytes: spec.dirty_bytes,
        expire_seconds: spec.expire_seconds,
        atomic_bytes: spec.atomic_bytes,
        ordering: spec.ordering,
        optimisations: spec.optimisations,
        ..MountOptions::default()
    }
}

fn on_device(
    spec: &Spec,
    plan: &Plan,
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
) -> Result<Run> {
    if plan.needs_preparation() {
        let engine = mount(spec, device.clone(), journal.clone())?;
        let mut files = EngineFiles::new(engine.clone());
        let root = files.root();
        plan.prepare(&mut files, root)?;
        engine.unmount()?;
    }
    let engine = mount(spec, device.clone(), journal)?;
    let recorder = record::start(spec, engine.root())?;
    engine.watch(recorder.as_ref().map(record::watcher));
    let mut files = EngineFiles::new(engine.clone());
    let root = files.root();
    let before = engine.stats();
    let mut before_sync = 0;
    let mut run = timed(spec, plan, &mut files, root, || {
        before_sync = engine.stats().blocks_written;
    })?;
    let figures = EngineFigures {
        blocks_written_before_sync: before_sync - before.blocks_written,
        ..EngineFigures::between(&before, &engine.stats())
    };
    plan.verify(&mut files, root)?;
    drop(files);
    engine.unmount()?;
    record::end(spec, recorder)?;
    if spec.check {
        check(spec.workload.name(), spec.layout, spec.ordering, &*device)?;
    }
    run.ordering = Some(spec.ordering.to_string());
    run.opt = Some(spec.optimisations.to_string());
    run.engine = Some(figures);
    run.paper = paper::figure(spec);
    Ok(run)
}

fn on_disk(spec: &Spec, plan: &Plan, disk: &Disk) -> Result<Run> {
    let (device, log) = make_on_disk(spec.layout, spec.ordering, disk, &Arc::default())?;
    let layout = spec.layout.layout();
    let options = MountOptions {
        changes_bytes: disk.changes_bytes.unwrap_or(0),
        ..mount_options(spec)
    };
    let mount = || MachineFiles::mount(device.clone(), log.clone(), layout, &options, disk);
    if plan.needs_preparation() {
        let mut files = mount()?;
        let root = files.root();
        plan.prepare(&mut files, root)?;
        files.unmount()?;
    }
    let mut files = mount()?;
    let (machine, root) = (files.machine().clone(), files.root());
    let recorder = record::start(spec, machine.root())?;
    machine.watch(recorder.as_ref().map(record::watcher));
    let (before, busy_before) = (machine.stats(), machine.cpu_busy());
    if spec.trace {
        device.start_trace();
        log.iter().for_each(|log| log.start_trace());
    }
    let mut before_sync = 0;
    let mut run = timed(spec, plan, &mut files, root, || {
        before_sync = machine.stats().blocks_written;
    })?;
    run.trace = device.take_trace();
    run.log_trace = log.as_ref().map_or_else(Vec::new, |log| log.take_trace());
    run.host_speed = Some(disk.host_speed);
    // The model does not distinguish time in the kernel from other time.
    run.cpu_user_seconds = (machine.cpu_busy() - busy_before).as_secs_f64();
    run.cpu_sys_seconds = 0.0;
    let figures = EngineFigures {
        blocks_written_before_sync: before_sync - before.blocks_written,
        ..EngineFigures::between(&before, &machine.stats())
    };
    plan.verify(&mut files, root)?;
    files.unmount()?;
    record::end(spec, recorder)?;
    if spec.check {
        check(spec.workload.name(), spec.layout, spec.ordering, &*device)?;
    }
    run.engine = Some(figures);
    run.ordering = Some(spec.ordering.to_string());
    run.opt = Some(spec.optimisations.to_string());
    run.paper = paper::figure(spec);
    Ok(run)
}

/// Makes a new file system on a simulated disk, and the disk for its log alone if there is one.
pub(crate) fn make_on_disk(
    layout: Layout,
    ordering: Ordering,
    disk: &Disk,
    clock: &Arc<VirtualClock>,
) -> Result<(Arc<SimulatedDevice>, Option<Arc<SimulatedDevice>>)> {
    let device = SimulatedDevice::new(&disk.drive, disk.size_bytes, clock.clone());
    let log = log_drive(ordering, disk)
        .map(|drive| SimulatedDevice::new(drive, log_bytes(ordering), clock.clone()));
    match &log {
        Some(log) => make_apart((layout, ordering), (&device, true), (log, true))?,
        None => make(layout, &device, true, ordering)?,
    }
    Ok((Arc::new(device), log.map(Arc::new)))
}

/// The drive for a mechanism's log alone on a simulated disk, if it has one.
fn log_drive(ordering: Ordering, disk: &Disk) -> Option<&DriveSpec> {
    let stated = disk.log_drive.as_ref();
    match ordering.needs_log_device() {
        true => stated.or(Some(&disk.drive)),
        false => stated,
    }
}

fn in_directory(spec: &Spec, plan: &Plan, path: &Path) -> Result<Run> {
    let mut files = HostFiles::new(path)?;
    let name = format!("backstitch-bench-{}", std::process::id());
    let root = files.root();
    let at = files.make_directory(root, &name, 0o755)?;
    let stats = || spec.mount_stats.and_then(|of| of(path));
    let mut before = None;
    let mut before_sync = None;
    let prepared = match plan.needs_preparation() {
        true => plan.prepare(&mut files, at),
        false => Ok(()),
    };
    let done = prepared.and_then(|()| {
        before = stats();
        let run = timed(spec, plan, &mut files, at, || before_sync = stats())?;
        plan.verify(&mut files, at)?;
        Ok(run)
    });
    let after = stats();
    // Removes what is left, even after a failure. The run's error matters more than one of the
    // removal.
    drop(files);
    let inside = path.join(&name);
    let removed = std::fs::remove_dir_all(&inside).map_err(Error::at(&inside));
    let mut run = done?;
    removed?;
    if let (Some(before), Some(before_sync), Some(after)) = (before, before_sync, after) {
        run.engine = Some(EngineFigures {
            blocks_written_before_sync: before_sync.blocks_written - before.blocks_written,
            ..EngineFigures::between(&before, &after)
        });
        run.ordering = Some(after.ordering);
    }
    Ok(run)
}

/// The part that is measured.
fn timed(
    spec: &Spec,
    plan: &Plan,
    files: &mut dyn Files,
    at: Node,
    before_sync: impl FnOnce(),
) -> Result<Run> {
    let mut session = plan.session(files, at);
    let (cpu, started) = (CpuTime::now(), session.files.now());
    plan.run(&mut session)?;
    before_sync();
    session.sync()?;
    let elapsed_seconds = (session.files.now() - started).as_secs_f64();
    let cpu = CpuTime::now().since(cpu);
    let Session {
        operations, phases, ..
    } = session;
    Ok(Run {
        workload: spec.workload.name(),
        ordering: None,
        opt: None,
        variant: match spec.workload {
            workload if workload.is_micro() => Some(file_bytes(&spec.scale).to_string()),
            Workload::Fsync => Some(format!("{} writers", spec.scale.writers.unwrap_or(1))),
            Workload::Imap(variant) => Some(variant.name().to_owned()),
            Workload::Sdet => Some(format!("{} scripts", spec.scale.writers.unwrap_or(SCRIPTS))),
            _ => None,
        },
        target: spec.target.describe(),
        host_speed: None,
        trace: Vec::new(),
        log_trace: Vec::new(),
        elapsed_seconds,
        cpu_user_seconds: cpu.user_seconds,
        cpu_sys_seconds: cpu.sys_seconds,
        operations,
        operations_per_second: operations as f64 / elapsed_seconds.max(1e-9),
        engine: None,
        phases,
        recovery: None,
        paper: None,
    })
}

/// Checks the image that a workload left under soft updates.
pub(crate) fn check_image(workload: &'static str, layout: Layout, path: &Path) -> Result<()> {
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    check(
        workload,
        layout,
        usual_for(false),
        &FileDevice::open(path, options)?,
    )
}

pub(crate) fn check(
    workload: &'static str,
    layout: Layout,
    ordering: Ordering,
    device: &dyn BlockDevice,
) -> Result<()> {
    let report = layout.check(&DeviceSource(device), &CheckOptions::default())?;
    match report.findings.first() {
        None if report.is_clean() => Ok(()),
        first => Err(Error::NotClean {
            workload,
            ordering: ordering.to_string(),
            findings: report.findings.len(),
            first: first.map(ToString::to_string).unwrap_or_default(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_of_the_type_that_was_asked_for() {
        for (asked, has_journal, made) in [
            ("ufs1", false, "ufs1"),
            ("ufs2", false, "ufs2"),
            ("ext2", false, "ext2"),
            ("ext2", true, "ext3"),
            ("ext3", false, "ext2"),
        ] {
            let layout: Layout = asked.parse().unwrap();
            let device = MemoryDevice::new(64 << 20);
            make(layout, &device, true, usual_for(has_journal)).unwrap();
            let found = layout.info(&device).unwrap().type_name;
            assert_eq!(found, made, "{asked}, {has_journal}");
        }
    }
}
