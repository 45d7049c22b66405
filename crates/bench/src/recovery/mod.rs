//! `recovery`: how long after a crash a file system is usable, empty and 76 % full (Ganger et al.
//! 2000, table III), and how long the reclaim of what the crash left takes.
//!
//! Two images are made, one empty and one with many files. Each is crashed (the engine is dropped
//! in the middle of work, with removed files still open), dropped from the host's page cache, and
//! mounted. The time is that from opening the image to the answer of the first look-up. Then the
//! reclaim is timed to its end, and the next run begins with the next crash.
//!
//! For all this, the contents of files do not matter, but the places of their blocks do. So the
//! large image's files hold zeros, which [`sparse::SparseDevice`] does not store on the host.
//! Bitmaps, inodes, directories and indirect blocks are all there.

mod sparse;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use backstitch_device::{BlockDevice, FileDevice, OpenOptions};
use backstitch_formats::Layout;
use backstitch_mechanisms::{fastest, usual_for};
use backstitch_vfs::{Allocate, Engine, MountOptions};
use serde::Serialize;

use crate::files::{EngineFiles, Files, Node};
use crate::image::Making;
use crate::measure::check_image;
use crate::paper::PaperFigure;
use crate::random::Random;
use crate::series::Series;
use crate::{CpuTime, Error, Phase, Result, Run};
use sparse::SparseDevice;

/// The part of the full image that is in use.
const FILL: f64 = 0.76;
const FILES_PER_DIRECTORY: u64 = 500;
/// One file in so many is large. The others have no indirect block; the large ones share the rest
/// of the space.
const FILES_PER_LARGE: u64 = 250;
const SMALL_BLOCKS: (u64, u64) = (1, 12);
const BLOCK_BYTES: u64 = 4096;
/// Removed files whose inodes and blocks a crash leaves.
const REMOVED_FILES: u64 = 500;
/// The size of each of them. It takes an indirect block, if the image is large enough.
const REMOVED_BYTES: u64 = 64 << 10;
/// Interval at which the reclaim's progress is read.
const LOOK: Duration = Duration::from_millis(2);

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct RecoverySpec {
    /// The layout of both file systems.
    pub layout: Layout,
    /// The full image, which is made anew. The empty one is beside it during the measurement.
    pub image: PathBuf,
    /// The size of both file systems.
    pub size_bytes: u64,
    /// The files of the full one.
    pub files: u64,
    /// How often each image is crashed and mounted.
    pub runs: usize,
    /// The limit on buffers.
    pub cache_bytes: u64,
    /// The seed of the files' sizes.
    pub seed: u64,
    /// Whether to check both images at the end.
    pub check: bool,
}

/// The figures of this workload only. The keys are those of the JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RecoveryFigures {
    /// Files of the full image.
    pub files: u64,
    /// The part of its blocks that is in use.
    pub fill_fraction: f64,
    /// The part of its inodes that is in use.
    pub inodes_fraction: f64,
    /// How long it took to make it.
    pub build_seconds: f64,
    /// The time to a usable mount of the full image divided by that of the empty one.
    pub full_by_empty: f64,
    /// Blocks that the reclaim of the full image freed.
    pub reclaimed_blocks: u64,
    /// Inodes that it freed.
    pub reclaimed_inodes: u64,
    /// When it reported that one, two … ten tenths were done, in seconds from the mount on.
    pub reclaim_progress_seconds: [f64; 10],
}

/// An image under test.
struct Image {
    path: PathBuf,
    /// Whether the file is removed at the end.
    is_scratch: bool,
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.is_scratch {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A mount, and how long its recovery took.
struct Mounted {
    engine: Arc<Engine>,
    device: Arc<dyn BlockDevice>,
    usable_seconds: f64,
}

/// How long a reclaim took, and what it freed.
#[derive(Default)]
struct Reclaimed {
    seconds: f64,
    progress: [f64; 10],
    blocks: u64,
    inodes: u64,
}

/// Makes both images, and crashes and mounts them in turn, `runs` times each. `tell` is called with
/// a description of each step.
///
/// # Errors
///
/// If something fails, a crash leaves nothing to recover, or a check was asked for and an image is
/// not clean at the end.
pub fn measure_recovery(spec: &RecoverySpec, mut tell: impl FnMut(&str)) -> Result<Series> {
    if let Ok(seen) = std::fs::metadata(&spec.image)
        && !seen.is_file()
    {
        let why = "recovery makes sparse image files: a regular file, or a new one";
        return Err(Error::Scale(format!("{}: {why}", spec.image.display())));
    }
    let full = Image {
        path: spec.image.clone(),
        is_scratch: false,
    };
    let mut beside = spec.image.clone().into_os_string();
    beside.push(".empty");
    let empty = Image {
        path: beside.into(),
        is_scratch: true,
    };
    tell("making the empty image");
    build(spec, &empty.path, 0)?;
    tell("making the full image");
    let built = build(spec, &full.path, spec.files)?;
    for image in [&empty, &full] {
        let mounted = mount(spec, &image.path)?;
        crash(mounted, 0)?;
    }
    let mut runs = Vec::new();
    for round in 1..=spec.runs.max(1) {
        tell(&format!("run {round}"));
        runs.push(run(spec, &empty, &full, built, round)?);
    }
    if spec.check {
        check_image("recovery", spec.layout, &full.path)?;
        check_image("recovery", spec.layout, &empty.path)?;
    }
    Ok(Series { runs })
}

fn run(
    spec: &RecoverySpec,
    empty: &Image,
    full: &Image,
    built: RecoveryFigures,
    round: usize,
) -> Result<Run> {
    let (cpu, started) = (CpuTime::now(), Instant::now());
    let mut times = [0.0; 2];
    let mut last = Reclaimed::default();
    for (image, time) in [empty, full].into_iter().zip(&mut times) {
        let mounted = mount(spec, &image.path)?;
        if !mounted.engine.recovery().needed {
            return Err(Error::NothingToRecover(image.path.clone()));
        }
        *time = mounted.usable_seconds;
        last = watch_reclaim(&mounted.engine)?;
        if round < spec.runs {
            crash(mounted, round)?;
        } else {
            mounted.engine.unmount()?;
            release(mounted);
        }
    }
    let cpu = CpuTime::now().since(cpu);
    let phase = |name, elapsed_seconds| Phase {
        name,
        started: Duration::ZERO,
        processor: Duration::ZERO,
        elapsed_seconds,
        operations: 1,
    };
    let elapsed_seconds = started.elapsed().as_secs_f64();
    Ok(Run {
        workload: "recovery",
        ordering: Some(usual_for(false).to_string()),
        opt: Some("both".to_owned()),
        variant: None,
        target: format!("image {}", spec.image.display()),
        host_speed: None,
        trace: Vec::new(),
        log_trace: Vec::new(),
        elapsed_seconds,
        cpu_user_seconds: cpu.user_seconds,
        cpu_sys_seconds: cpu.sys_seconds,
        operations: 2,
        operations_per_second: 2.0 / elapsed_seconds.max(1e-9),
        engine: None,
        phases: vec![
            phase("mount_empty", times[0]),
            phase("mount_full", times[1]),
            phase("reclaim_full", last.seconds),
        ],
        recovery: Some(RecoveryFigures {
            full_by_empty: times[1] / times[0].max(1e-9),
            reclaimed_blocks: last.blocks,
            reclaimed_inodes: last.inodes,
            reclaim_progress_seconds: last.progress,
            ..built
        }),
        paper: Some(PaperFigure {
            source: "Ganger et al. 2000, table III",
            value: 0.35,
            unit: "mount_full_seconds",
        }),
    })
}

/// Makes an image with `files` files that fill it, or with none.
fn build(spec: &RecoverySpec, path: &Path, files: u64) -> Result<RecoveryFigures> {
    let started = Instant::now();
    // The old contents are dropped, since the device below relies on an image of zeros.
    drop(FileDevice::create(path, 0)?);
    let device = FileDevice::create(path, spec.size_bytes)?;
    let device: Arc<dyn BlockDevice> = Arc::new(SparseDevice::over_zeros(device));
    Making::new(spec.layout, usual_for(false)).make(&*device, true)?;
    let options = MountOptions {
        cache_bytes: spec.cache_bytes,
        ordering: fastest(),
        ..MountOptions::default()
    };
    let engine = Engine::mount(device.clone(), spec.layout.layout(), &options)?;
    let mut made = EngineFiles::new(engine.clone());
    fill(spec, &engine, &mut made, files)?;
    let used = engine.statistics()?;
    engine.unmount()?;
    drop(made);
    let part = |free: u64, all: u64| 1.0 - free as f64 / all.max(1) as f64;
    release(Mounted {
        engine,
        device,
        usable_seconds: 0.0,
    });
    Ok(RecoveryFigures {
        files,
        fill_fraction: part(used.free_blocks, used.blocks),
        inodes_fraction: part(used.free_inodes, used.inodes),
        build_seconds: started.elapsed().as_secs_f64(),
        ..RecoveryFigures::default()
    })
}

fn fill(spec: &RecoverySpec, engine: &Engine, made: &mut EngineFiles, files: u64) -> Result<()> {
    /// The size of files divided by that of their indirect blocks and directories, about.
    const METADATA_PART: u64 = 900;
    let room = engine.statistics()?.blocks as f64 * FILL;
    let mut left = room as u64;
    left -= (left / METADATA_PART + files / 100).min(left);
    let mut large_left = files / FILES_PER_LARGE;
    let average = left / files.max(1);
    let mut random = Random::new(spec.seed, 0x7265);
    let mut directory = made.root();
    for number in 0..files {
        if number % FILES_PER_DIRECTORY == 0 {
            let name = format!("d{:06}", number / FILES_PER_DIRECTORY);
            directory = made.make_directory(made.root(), &name, 0o755)?;
        }
        let small_left = (files - number - large_left) * (SMALL_BLOCKS.0 + SMALL_BLOCKS.1) / 2;
        let blocks = if number % FILES_PER_LARGE == FILES_PER_LARGE - 1 {
            // Keeps the blocks that the remaining small files need.
            let part = left.saturating_sub(small_left) / large_left.max(1);
            large_left -= 1;
            part
        } else {
            random.between(SMALL_BLOCKS.0, SMALL_BLOCKS.1).min(average)
        };
        let node = made.create(directory, &format!("f{number:07}"), 0o644)?;
        reserve(engine, node, blocks)?;
        left = left.saturating_sub(blocks);
        made.close(node)?;
    }
    Ok(())
}

fn reserve(engine: &Engine, node: Node, blocks: u64) -> Result<()> {
    /// Bytes reserved by one operation, so that the writer can work between operations.
    const PIECE_BYTES: u64 = 4 << 20;
    let (inode, end) = (EngineFiles::inode(node), blocks * BLOCK_BYTES);
    for at in (0..end).step_by(PIECE_BYTES as usize) {
        let how = Allocate::Reserve { keep_size: false };
        engine.allocate(inode, how, at, PIECE_BYTES.min(end - at))?;
    }
    Ok(())
}

/// Mounts an image that is not in the host's cache.
fn mount(spec: &RecoverySpec, path: &Path) -> Result<Mounted> {
    forget_on_host(path)?;
    let options = MountOptions {
        cache_bytes: spec.cache_bytes,
        ..MountOptions::default()
    };
    let started = Instant::now();
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path, OpenOptions::default())?);
    let engine = Engine::mount(device.clone(), spec.layout.layout(), &options)?;
    let found = engine.lookup(engine.root(), b"lost+found")?;
    let usable_seconds = started.elapsed().as_secs_f64();
    engine.forget(found.inode, 1);
    Ok(Mounted {
        engine,
        device,
        usable_seconds,
    })
}

/// Drops a file from the host's page cache.
fn forget_on_host(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path).map_err(Error::at(path))?;
    file.sync_all().map_err(Error::at(path))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .map_err(|error| Error::at(path)(error.into()))
}

/// Waits for the end of a reclaim.
fn watch_reclaim(engine: &Engine) -> Result<Reclaimed> {
    let started = Instant::now();
    let mut watched = Reclaimed::default();
    let mut tenths = 0;
    loop {
        let stats = engine.stats();
        let seconds = started.elapsed().as_secs_f64();
        let reclaim = stats.reclaim;
        let is_over = !reclaim.running;
        let done = if is_over { 1.0 } else { reclaim.done_fraction };
        while tenths < 10 && done >= (tenths + 1) as f64 / 10.0 {
            watched.progress[tenths] = seconds;
            tenths += 1;
        }
        if is_over {
            // The reclaim also ends if the image turns out to be inconsistent.
            if let Some(reason) = stats.read_only {
                return Err(Error::Reclaim(reason));
            }
            return Ok(Reclaimed {
                seconds,
                blocks: reclaim.freed_blocks,
                inodes: reclaim.freed_inodes,
                ..watched
            });
        }
        std::thread::sleep(LOOK);
    }
}

/// Works, and drops the engine in the middle. On the disk, removed files that are still open have
/// lost their names but not their blocks, and some new files are there in part.
fn crash(mounted: Mounted, round: usize) -> Result<()> {
    let engine = &mounted.engine;
    let mut files = EngineFiles::new(engine.clone());
    let blocks = engine.statistics()?.available_blocks;
    let each = REMOVED_BYTES.min(blocks * BLOCK_BYTES / (REMOVED_FILES * 4));
    let contents = vec![0x5a; each as usize];
    let directory = files.make_directory(files.root(), &format!("crash{round}"), 0o755)?;
    for number in 0..REMOVED_FILES {
        let node = files.create(directory, &format!("r{number}"), 0o644)?;
        files.write(node, 0, &contents)?;
        files.close(node)?;
    }
    files.sync()?;
    for number in 0..REMOVED_FILES {
        // The look-up keeps the file open for ever, so its inode and blocks stay.
        files.lookup(directory, &format!("r{number}"))?;
        files.unlink(directory, &format!("r{number}"))?;
    }
    engine.fsync(EngineFiles::inode(directory), false)?;
    for number in 0..REMOVED_FILES / 4 {
        let node = files.create(directory, &format!("n{number}"), 0o644)?;
        files.write(node, 0, &contents)?;
        if number % 8 == 0 {
            engine.fsync(EngineFiles::inode(node), false)?;
        }
        files.close(node)?;
    }
    drop(files);
    release(mounted);
    Ok(())
}

/// Drops an engine, and waits until its threads have released the image.
fn release(mounted: Mounted) {
    let Mounted { engine, device, .. } = mounted;
    drop(engine);
    while Arc::strong_count(&device) > 1 {
        std::thread::sleep(LOOK);
    }
}
