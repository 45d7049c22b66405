//! `backstitch crash record --log LOG IMAGE DIR`.

use crate::commands::daemon;
use backstitch_device::write_log::{LogWriter, LoggingDevice};
use backstitch_device::{FileDevice, OpenOptions};
use backstitch_files::error::{Error, Result, host};
use backstitch_files::foreign;
use backstitch_files::paths::absolute;
use backstitch_files::show;
use backstitch_fuse::disk::{self, MountedDisk};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const WHAT: &str = "crash record";

/// Record what is written to an image: DIR/disk is the image, and every write, flush and discard
/// goes to LOG.
///
/// Put a loop device or a virtual machine onto DIR/disk and let any file system work on it; a line
/// written to DIR/mark becomes a mark in the log. The log is in the dm-log-writes format, for
/// `backstitch crash device` and other programs that read it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch crash record --base before.img --log writes.log disk.img /run/rec
  losetup --find --show --direct-io=on /run/rec/disk     say /dev/loop0
  mount /dev/loop0 /mnt                                  any file system of the kernel's
  echo hello > /mnt/a; sync -f /mnt/a
  echo 'a is safe' > /run/rec/mark                       a check may rely on this from here on
  umount /mnt; losetup -d /dev/loop0
  backstitch umount /run/rec                             or umount, or fusermount3 -u
  backstitch crash device --base before.img --log writes.log --check 'e2fsck -fy $1 > /dev/null; e2fsck -fn $1'")]
pub(crate) struct Args {
    /// The image: a file or a block device
    image: PathBuf,
    /// Where to mount the recorder: an empty directory
    dir: PathBuf,
    /// The log to write; an existing one is replaced
    #[arg(long, value_name = "LOG")]
    log: PathBuf,
    /// First copy the image to FILE, for `crash device --base FILE`
    #[arg(long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// Stay in the foreground; ^C unmounts
    #[arg(short = 'f', long)]
    foreground: bool,
    /// Print one JSON document when the recorder answers
    #[arg(long)]
    json: bool,
    /// Be the daemon of another process, and report to it
    #[arg(long, hide = true)]
    daemon: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (image, log) = (absolute(WHAT, &args.image)?, absolute(WHAT, &args.log)?);
    let dir = args
        .dir
        .canonicalize()
        .map_err(|e| Error::at_path(WHAT, &args.dir, host(&e)))?;
    if !dir.is_dir() {
        return Err(Error::at_path(WHAT, &dir, "not a directory"));
    }
    refuse_same(&image, &log)?;
    if !args.daemon {
        foreign::refuse_output(WHAT, &log, None)?;
        if let Some(base) = &args.base {
            foreign::refuse_output(WHAT, base, Some(&image))?;
        }
    }
    if !args.foreground && !args.daemon {
        return start(args, &image, &log, &dir);
    }
    serve(args, &image, &log, &dir)?;
    Ok(ExitCode::SUCCESS)
}

/// A log over the image itself, or over its copy, would destroy it.
fn refuse_same(image: &Path, log: &Path) -> Result<()> {
    let identity = |path: &Path| path.metadata().ok().map(|data| (data.dev(), data.ino()));
    if identity(log).is_some_and(|log| Some(log) == identity(image)) {
        return Err(Error::at_path(WHAT, log, "the log is the image itself"));
    }
    Ok(())
}

fn start(args: &Args, image: &Path, log: &Path, dir: &Path) -> Result<ExitCode> {
    let mut words: Vec<OsString> = ["crash", "record", "--daemon", "--log"]
        .map(OsString::from)
        .into();
    words.push(log.into());
    if let Some(base) = &args.base {
        words.extend(["--base".into(), absolute(WHAT, base)?.into()]);
    }
    words.extend(["--".into(), image.into(), dir.into()]);
    let report = match daemon::launch(WHAT, dir, &words)? {
        daemon::Launched::Answers(report) => report,
        daemon::Launched::Failed(code) => return Ok(code),
    };
    announce(&report, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn announce(report: &Value, json: bool) -> Result<()> {
    match json {
        true => show::print_json(WHAT, report),
        false => Ok(()),
    }
}

fn open(args: &Args, image: &Path, log: &Path) -> Result<Arc<LoggingDevice>> {
    let device = FileDevice::open(image, OpenOptions::default())
        .map_err(|error| Error::at_path(WHAT, image, error))?;
    if let Some(base) = &args.base {
        refuse_same(base, log)?;
        refuse_same(image, base)?;
        backstitch_crash_device::copy_sparse(image, base)
            .map_err(|error| Error::at_path(WHAT, base, host(&error)))?;
    }
    let writer = LogWriter::create(log).map_err(|error| Error::at_path(WHAT, log, error))?;
    Ok(Arc::new(LoggingDevice::new(Arc::new(device), writer)))
}

fn serve(args: &Args, image: &Path, log: &Path, dir: &Path) -> Result<()> {
    let device = open(args, image, log)?;
    let report = json!({
        "kind": "recorder",
        "pid": std::process::id(),
        "image": image.display().to_string(),
        "log": log.display().to_string(),
        "dir": dir.display().to_string(),
        "disk": dir.join(disk::DISK_NAME).display().to_string(),
        "mark": dir.join(disk::MARK_NAME).display().to_string(),
    });
    let signals = daemon::Signals::catch()?;
    let source = image.display().to_string();
    let mounted: MountedDisk = disk::spawn(device.clone(), dir, &source, report.clone())
        .map_err(|error| Error::at_path(WHAT, dir, error))?;
    if args.daemon {
        daemon::report(&report, None)?;
    } else {
        announce(&report, args.json)?;
    }
    signals.unmount_on_arrival(mounted.unmounter(), mounted.ender(), || ());
    mounted.wait();
    device
        .count()
        .map_err(|error| Error::at_path(WHAT, log, error))
}
