//! `backstitch snapshot DIR OUT`.

use crate::commands::stats::failure;
use crate::stack;
use backstitch_device::{FileDevice, OpenOptions};
use backstitch_files::error::{Error, Result, host};
use backstitch_files::image::now;
use backstitch_files::show;
use backstitch_fuse::SnapshotProgress;
use backstitch_layout::tools::{CheckOptions, Mode, RepairOptions};
use backstitch_vfs::stack::Stack;
use backstitch_vfs::{Engine, LayoutKind, MountOptions, Ordering};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const COMMAND: &str = "snapshot";

/// Copy a mounted image as of one moment, while it is in use: for backups.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "OUT is a clean image of one moment, as if the file system had been unmounted then. It has what every call had done that had returned,
and nothing of later ones. It is sparse: free blocks and holes are not copied. It gets its name when it is complete; until then it is
.OUT.partial-PID beside it, which is removed if something fails. Writers wait at most for the copying of 1 MiB at a time.

Examples:
  backstitch snapshot /mnt backup.img
  backstitch snapshot --force /mnt /backups/today.img && backstitch fsck /backups/today.img"
)]
pub(crate) struct Args {
    /// Where it is mounted
    dir: PathBuf,
    /// The image to write
    out: PathBuf,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// The image while it is not complete; removed unless it was.
struct Partial {
    path: PathBuf,
    kept: bool,
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes the copy. The rename at its end is the commit point.
pub(crate) fn run(args: &Args) -> Result<()> {
    let started = Instant::now();
    let stats = backstitch_fuse::stats_of(&args.dir)
        .map_err(|error| failure(COMMAND, &args.dir, &error))?;
    let parent = check_out(args, &stats)?;
    let described = match stats["stack"].as_str() {
        Some(file) => Some(stack::read(COMMAND, Path::new(file))?),
        None => None,
    };
    let interrupted = catch_signals()?;
    let mut partial = make_partial(args, &parent)?;
    copy(args, &partial.path, &interrupted)?;
    // Blocks that no file system is known of are as they are.
    if stats["layout"] != "raw" {
        let stack = described.as_ref().map(|described| &described.stack);
        let ordering = stats["ordering"].as_str().unwrap_or_default();
        recover(&partial.path, stack, ordering)
            .map_err(|why| Error::at_path(COMMAND, &args.out, why))?;
    }
    let failed = |error: std::io::Error| Error::at_path(COMMAND, &args.out, host(&error));
    std::fs::rename(&partial.path, &args.out).map_err(failed)?;
    partial.kept = true;
    // The name as well is to be there after a power cut.
    std::fs::File::open(&parent)
        .and_then(|directory| directory.sync_all())
        .map_err(failed)?;
    if !args.json {
        return Ok(());
    }
    let seen = std::fs::metadata(&args.out).map_err(failed)?;
    let report = json!({
        "dir": args.dir,
        "out": args.out,
        "size_bytes": seen.len(),
        "allocated_bytes": seen.blocks() * 512,
        "elapsed_seconds": started.elapsed().as_secs_f64(),
    });
    show::print_json(COMMAND, &report)
}

/// Refuses what must not be written over; returns the directory of OUT.
fn check_out(args: &Args, stats: &Value) -> Result<PathBuf> {
    let refuse = |why: &str| Err(Error::at_path(COMMAND, &args.out, why));
    let failed = |error: std::io::Error| Error::at_path(COMMAND, &args.out, host(&error));
    let parent = match args.out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    if args.out.file_name().is_none() {
        return refuse("not the name of a file");
    }
    let parent = parent.canonicalize().map_err(failed)?;
    let device_of = |path: &Path| std::fs::metadata(path).map(|seen| seen.dev());
    if device_of(&parent).map_err(failed)? == device_of(&args.dir).map_err(failed)? {
        return refuse("it lies in the mount that is being copied");
    }
    if let Ok(seen) = std::fs::symlink_metadata(&args.out) {
        if !args.force {
            return refuse("it exists already").map_err(|e: Error| e.hint("--force replaces it"));
        }
        if !seen.is_file() {
            return refuse("not a regular file");
        }
        let image = stats["image"].as_str().map(std::fs::metadata);
        if let Some(Ok(image)) = image
            && (image.dev(), image.ino()) == (seen.dev(), seen.ino())
        {
            return refuse("it is the mounted image itself");
        }
    }
    Ok(parent)
}

fn make_partial(args: &Args, parent: &Path) -> Result<Partial> {
    let name = args.out.file_name().unwrap_or_default().to_string_lossy();
    let path = parent.join(format!(".{name}.partial-{}", std::process::id()));
    std::fs::File::options()
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(|error| Error::at_path(COMMAND, &path, host(&error)))?;
    Ok(Partial { path, kept: false })
}

/// From now on a signal that would end the command is noted.
fn catch_signals() -> Result<Arc<AtomicBool>> {
    let told = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, told.clone())
            .map_err(|error| Error::failed(COMMAND, "signals", host(&error)))?;
    }
    Ok(told)
}

/// Has the mount's daemon write the copy, and waits for it.
fn copy(args: &Args, path: &Path, interrupted: &AtomicBool) -> Result<()> {
    backstitch_fuse::begin_snapshot(&args.dir, path).map_err(|error| {
        let failed = |why: &str| Error::at_path(COMMAND, &args.dir, why);
        match error.raw_os_error() {
            Some(libc::EPERM) => failed("only root, or the user who mounted it, can copy it"),
            Some(libc::EEXIST) => failed("another snapshot of it is running"),
            Some(libc::EROFS) => failed("it is mounted read-only: copy the image itself"),
            _ => failure(COMMAND, &args.dir, &error),
        }
    })?;
    let bar = bar();
    loop {
        if interrupted.load(Relaxed) {
            return Err(Error::at_path(COMMAND, &args.out, "interrupted"));
        }
        let progress = backstitch_fuse::snapshot_progress(&args.dir)
            .map_err(|error| failure(COMMAND, &args.dir, &error))?;
        match progress {
            SnapshotProgress::Running(part) => bar.set_position((part * 1000.0) as u64),
            SnapshotProgress::Done => break,
            SnapshotProgress::Failed(why) => {
                return Err(Error::at_path(COMMAND, &args.out, why));
            }
            SnapshotProgress::None => {
                let why = "the mount was replaced meanwhile";
                return Err(Error::at_path(COMMAND, &args.dir, why));
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bar.finish_and_clear();
    Ok(())
}

/// What is being done, on a terminal only.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1000);
    if let Ok(style) = ProgressStyle::with_template("copying {wide_bar} {percent}%, {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// Makes the copy clean, and the file systems in its files where the mount has them: it is as if a
/// power cut had come just after everything had been written. A mount with the ordering of the
/// original recovers that.
fn recover(path: &Path, stack: Option<&Stack>, ordering: &str) -> std::result::Result<(), String> {
    let device = FileDevice::open(path, OpenOptions::default()).map_err(|e| e.to_string())?;
    let tools = backstitch_formats::of(&device);
    let ordering: Ordering = ordering
        .parse()
        .map_err(|_| format!("the mount has an unknown ordering: '{ordering}'"))?;
    if !ordering.promises().keeps_order() {
        // Such an image is trusted by nobody after a crash; this one is in order, for nothing of it
        // is missing.
        let options = RepairOptions {
            mode: Mode::Preen,
            guess_geometry: false,
            now_seconds: u32::try_from(now().seconds).unwrap_or(u32::MAX),
            check: CheckOptions::default(),
        };
        let outcome = tools.repair(&device, &options).map_err(|e| e.to_string())?;
        return match outcome.is_clean() {
            true => Ok(()),
            false => Err("the copy is damaged, and so is the mounted file system".to_owned()),
        };
    }
    let options = MountOptions {
        ordering,
        // Without a journal this changes nothing; with one it is how the original is mounted.
        without_journal: !ordering.has_log(),
        mount_time: now(),
        ..MountOptions::default()
    };
    let layout: &dyn LayoutKind = match stack {
        Some(stack) => stack,
        None => tools.layout(),
    };
    let engine =
        Engine::mount(Arc::new(device), layout, &options).map_err(|error| error.to_string())?;
    if let Some(why) = engine.read_only_reason() {
        return Err(why);
    }
    engine.unmount().map_err(|error| error.to_string())?;
    engine.read_only_reason().map_or(Ok(()), Err)
}
