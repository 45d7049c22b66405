//! One run: a new file system, a new engine, the workload, the figures.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, FileDevice, MemoryDevice, OpenOptions, SlowFlushDevice};
use backstitch_formats::Layout;
use backstitch_layout::tools::{CheckOptions, DeviceSource};
use backstitch_mechanisms::usual_for;
use backstitch_vfs::{Engine, MountOptions, Optimisations, Ordering, Stats};

use crate::cold;
use crate::disk::Disk;
use crate::files::{EngineFiles, Files, HostFiles, Node};
use crate::image::{Making, emptied};
use crate::machine::MachineFiles;
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
    /// The size of their blocks, or of their fragments where blocks are divided, in bytes: 4096 where
    /// `None`.
    pub unit_bytes: Option<u32>,
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
    let making = Making {
        files: plan.most_files(),
        unit_bytes: spec.unit_bytes,
        ..Making::new(spec.layout, spec.ordering)
    };
    let journal = spec.journal_device.as_deref();
    match &spec.target {
        Target::Memory { size_bytes, flush } => {
            let device = MemoryDevice::new(*size_bytes as usize);
            let journal = match journal {
                None => making.in_memory(&device)?,
                Some(path) => Some(making.with_log_at(path, &device, true)?),
            };
            let device: Arc<dyn BlockDevice> = Arc::new(device);
            let device: Arc<dyn BlockDevice> = match flush.is_zero() {
                true => device,
                false => Arc::new(SlowFlushDevice::new(device, *flush)),
            };
            on_device(spec, &plan, device, journal)
        }
        Target::Image { path, size_bytes } => {
            let (device, is_zero) = emptied(path, *size_bytes)?;
            let journal = match journal {
                None => making.make(&device, is_zero).map(|()| None)?,
                Some(path) => Some(making.with_log_at(path, &device, is_zero)?),
            };
            on_device(spec, &plan, Arc::new(device), journal)
        }
        Target::Disk(disk) => on_disk(spec, &plan, making, disk),
        Target::Directory(path) => in_directory(spec, &plan, path),
    }
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
    if let (Target::Image { path, .. }, true) = (&spec.target, spec.workload.is_micro()) {
        cold::forget(path)?;
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

fn on_disk(spec: &Spec, plan: &Plan, making: Making, disk: &Disk) -> Result<Run> {
    let (device, log) = making.on_disk(disk, &Arc::default())?;
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
    let prepared = prepared.and_then(|()| match spec.workload.is_micro() {
        true => cold::forget(&path.join(&name)),
        false => Ok(()),
    });
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
