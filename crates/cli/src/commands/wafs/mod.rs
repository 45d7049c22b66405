//! `backstitch wafs`: write-ahead logs as files of their own.

mod append;
mod read;

use crate::commands::mkfs::random_uuid;
use crate::commands::overwritten::Overwritten;
use backstitch_device::{BlockDevice, FileDevice, MappedDevice};
use backstitch_files::error::{Error, FAILED, Result};
use backstitch_files::image::{DeviceOptions, open_device};
use backstitch_files::{show, size};
use backstitch_layout::tools::uuid_text;
use backstitch_wafs::{CheckReport, Log, Lsn, Wafs, WafsError, check, host_clock};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Keep a write-ahead log: append records, read them back after a crash.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "A record has a number, its LSN: its offset in a log that never ends. The log's bytes are used in a
circle; `checkpoint` says which records are needed no more. After a crash every record is there that
`append` printed, whole, and none without those before it.

Examples:
  backstitch wafs mkfs -s 64M app.log
  tail -F /var/log/syslog | backstitch wafs append --sync each app.log
  backstitch wafs tail -f app.log
  backstitch wafs read --from 4096 -n 1 app.log
  backstitch wafs checkpoint app.log end"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make an empty log that takes up a whole file or device
    Mkfs(MkfsArgs),
    /// Append records, and print their LSNs once they are on stable storage
    Append(append::Args),
    /// Print records, from the oldest one or an LSN on
    Read(read::ReadArgs),
    /// Print the last records, and those that come
    Tail(read::TailArgs),
    /// Let go of the records before an LSN: their room is used again
    Checkpoint(CheckpointArgs),
    /// Read the whole log and say what is wrong with it
    Check(ReportArgs),
    /// Say how large the log is and what is in it
    Info(ReportArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch wafs mkfs -s 64M app.log
  backstitch wafs mkfs --force /dev/sdb1")]
struct MkfsArgs {
    /// The log: a file, which is made where there is none, or a block device
    file: PathBuf,
    /// The file's size (k, M, G; a file that is there keeps its size without)
    #[arg(short, long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// Make the log though something is there, which is then lost
    #[arg(short = 'F', long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes of `check`: 0 nothing is wrong, 1 something is, or it failed.

Examples:
  backstitch wafs info app.log
  backstitch wafs check --json app.log"
)]
struct ReportArgs {
    /// The log
    file: PathBuf,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch wafs checkpoint app.log 123456
  backstitch wafs checkpoint app.log end       nothing that is there is needed")]
struct CheckpointArgs {
    /// The log
    file: PathBuf,
    /// The oldest record that is still needed; `end` for none
    #[arg(value_name = "LSN")]
    start: Place,
    /// The log is memory that survives a power cut
    #[arg(long)]
    nvram: bool,
}

/// An LSN as it is typed.
#[derive(Clone, Copy, Debug)]
enum Place {
    End,
    At(Lsn),
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Place, String> {
        match text {
            "end" => Ok(Place::End),
            _ => lsn(text).map(Place::At),
        }
    }
}

fn lsn(text: &str) -> std::result::Result<Lsn, String> {
    let number = text.parse().map_err(|_| format!("'{text}' is no LSN"))?;
    Ok(Lsn(number))
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Mkfs(args) => mkfs(args)?,
        Command::Append(args) => append::run(args)?,
        Command::Read(args) => read::run(args)?,
        Command::Tail(args) => read::tail(args)?,
        Command::Checkpoint(args) => checkpoint(args)?,
        Command::Check(args) => return check_log(args),
        Command::Info(args) => info(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn mkfs(args: &MkfsArgs) -> Result<()> {
    const WHAT: &str = "wafs mkfs";
    let failed = |why: &dyn std::fmt::Display| Error::at_path(WHAT, &args.file, why);
    let is_new = !args.file.exists();
    let size = match (is_new, args.size) {
        (true, None) => return Err(failed(&"there is no such file").hint("-s SIZE makes one")),
        (_, size) => size,
    };
    let made = (|| {
        let mut device = FileDevice::open_or_make(&args.file).map_err(|e| failed(&e))?;
        let overwritten = Overwritten {
            what: WHAT,
            path: &args.file,
            made: "log",
            is_forced: args.force,
            kept: &[],
        };
        overwritten.refuse(&device, None)?;
        if let Some(size) = size {
            overwritten.refuse_to_cut(&device, size)?;
        }
        overwritten.erase(&device)?;
        if let Some(size) = size {
            device.resize(size).map_err(|e| failed(&e))?;
        }
        let now = host_clock()();
        Wafs::make(&device, random_uuid(WHAT)?, now).map_err(|e| failed(&e))
    })();
    if made.is_err() && is_new {
        // Nothing is left of a log that could not be made; that it cannot be removed is no news.
        let _ = std::fs::remove_file(&args.file);
    }
    made
}

/// A log for reading: somebody may write it meanwhile.
fn open_to_read(what: &str, path: &Path) -> Result<Arc<dyn BlockDevice>> {
    let options = DeviceOptions {
        read_only: true,
        beside_writers: true,
        ..DeviceOptions::default()
    };
    open_device(what, path, options)
}

/// Mounts a log for writing.
fn mount(what: &str, path: &Path, is_nvram: bool) -> Result<Wafs> {
    let failed = |why: &dyn std::fmt::Display| Error::at_path(what, path, why);
    let device: Arc<dyn BlockDevice> = match is_nvram {
        true => Arc::new(MappedDevice::open(path).map_err(|e| failed(&e))?),
        false => open_device(what, path, DeviceOptions::default())?,
    };
    Wafs::mount(device, host_clock()).map_err(|why| match why {
        WafsError::OfFileSystem { .. } => {
            // A file system that was not unmounted may need what is in it.
            let shown = path.display();
            failed(&why).hint(format!(
                "nothing was changed; where no file system needs it: backstitch wafs mkfs --force {shown}"
            ))
        }
        _ => failed(&why),
    })
}

fn checkpoint(args: &CheckpointArgs) -> Result<()> {
    const WHAT: &str = "wafs checkpoint";
    let failed = |why| Error::at_path(WHAT, &args.file, why);
    let wafs = mount(WHAT, &args.file, args.nvram)?;
    let start = match args.start {
        Place::End => wafs.end(),
        Place::At(lsn) => lsn,
    };
    let done = wafs.checkpoint(start);
    wafs.unmount().and(done).map_err(failed)
}

fn check_log(args: &ReportArgs) -> Result<ExitCode> {
    const WHAT: &str = "wafs check";
    let device = open_to_read(WHAT, &args.file)?;
    let report = check(&*device).map_err(|why| Error::at_path(WHAT, &args.file, why))?;
    let CheckReport {
        start,
        end,
        records,
        payload_bytes,
        was_unmounted,
        damage,
    } = report;
    if args.json {
        show::print_json(
            WHAT,
            &json!({
                "file": args.file.display().to_string(),
                "start": start.0,
                "end": end.0,
                "records": records,
                "payload_bytes": payload_bytes,
                "was_unmounted": was_unmounted,
                "damage": damage,
            }),
        )?;
    } else {
        let mut text: String = damage.iter().map(|line| format!("{line}\n")).collect();
        let state = if was_unmounted {
            ""
        } else {
            "; it is in use, or a crash ended its use"
        };
        text.push_str(&format!(
            "{}: LSN {start} to {end}, {} records, {}{state}\n",
            args.file.display(),
            show::count(records),
            size::show(payload_bytes)
        ));
        show::print_bytes(WHAT, text.as_bytes())?;
    }
    Ok(match damage.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILED),
    })
}

fn info(args: &ReportArgs) -> Result<()> {
    const WHAT: &str = "wafs info";
    let device = open_to_read(WHAT, &args.file)?;
    let log = Log::open(&*device).map_err(|why| Error::at_path(WHAT, &args.file, why))?;
    let superblock = log.superblock();
    let (log_bytes, used) = (superblock.log_bytes.get(), log.end().0 - log.start().0);
    let was_unmounted = superblock.flags.get() & backstitch_wafs::format::IS_CLEAN != 0;
    let is_of_programs = superblock.owner.get() == backstitch_wafs::format::OF_PROGRAMS;
    let owner = match is_of_programs {
        true => "programs",
        false => "a file system",
    };
    let uuid = uuid_text(&superblock.uuid);
    if args.json {
        let document = json!({
            "file": args.file.display().to_string(),
            "uuid": uuid,
            "log_bytes": log_bytes,
            "used_bytes": used,
            "start": log.start().0,
            "end": log.end().0,
            "last": log.last().map(|lsn| lsn.0),
            "turns": log.end().0 / log_bytes,
            "mounts": superblock.mount.get(),
            "was_unmounted": was_unmounted,
            "owner": owner,
        });
        return show::print_json(WHAT, &document);
    }
    let row = |name: &str, value: String| [name.to_owned(), value];
    let last = log.last().map_or("none".into(), |lsn| format!("LSN {lsn}"));
    show::print_table(
        WHAT,
        &[
            row("UUID", uuid),
            row("written by", owner.into()),
            row("log", size::show(log_bytes)),
            row("used", size::show(used)),
            row("start", format!("LSN {}", log.start())),
            row("end", format!("LSN {}", log.end())),
            row("last record", last),
            row("turns", show::count(log.end().0 / log_bytes)),
            row("mounts", show::count(superblock.mount.get())),
            row("unmounted", if was_unmounted { "yes" } else { "no" }.into()),
        ],
    )
}
