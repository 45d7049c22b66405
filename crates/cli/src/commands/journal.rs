//! `backstitch journal dump IMAGE`, and what `info` says of a journal.

use backstitch_device::BlockDevice;
use backstitch_files::error::{Error, Result, host};
use backstitch_files::foreign;
use backstitch_files::image::{DeviceOptions, open_device};
use backstitch_files::{show, size};
use backstitch_layout::tools::uuid_text;
use backstitch_layout::{JournalHost, JournalLocation, JournalPlace, LogRecord, LogSite};
use backstitch_mechanisms::{log_device, logs};
use serde_json::{Map, Value, json};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const WHAT: &str = "journal dump";

/// Look at the journal of a file system.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "A journal is replayed when an image is mounted, and by `backstitch fsck -p`.

Examples:
  backstitch journal dump disk.img
  backstitch journal dump --json disk.img | jq '.records[] | select(.record == \"commit\")'"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the records of the log, from its tail on, as `debugfs -R "logdump -a"` does
    #[command(after_help = "Examples:
  backstitch journal dump disk.img
  backstitch journal dump --journal-dev journal.img disk.img
  backstitch journal dump journal.img          a device that holds a journal and nothing else")]
    Dump(DumpArgs),
}

#[derive(Debug, clap::Args)]
struct DumpArgs {
    /// The image: a file or a block device
    image: PathBuf,
    /// The device that holds the journal, if it is not in IMAGE
    #[arg(short = 'j', long, value_name = "IMAGE2")]
    journal_dev: Option<PathBuf>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Command::Dump(args) = &args.command;
    let read_only = DeviceOptions {
        read_only: true,
        ..DeviceOptions::default()
    };
    let device = open_device(WHAT, &args.image, read_only)?;
    let other = match &args.journal_dev {
        Some(path) => Some(open_device(WHAT, path, read_only)?),
        None => None,
    };
    let site = site(&*device, other.as_deref());
    match show(args, site)? {
        true => Ok(()),
        false => Err(Error::at_path(WHAT, &args.image, "it has no journal")),
    }
}

/// Prints the records. Whether there is a log whose records can be printed.
fn show(args: &DumpArgs, site: LogSite<'_>) -> Result<bool> {
    let failed = |error| foreign::explained(WHAT, &args.image, site.device, error);
    if args.json {
        let mut records: Vec<Value> = Vec::new();
        let is_there = dumped(site, &mut |record| records.push(record.json)).map_err(failed)?;
        let image = args.image.display().to_string();
        if is_there {
            show::print_json(WHAT, &json!({ "image": image, "records": records }))?;
        }
        return Ok(is_there);
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    let is_there = dumped(site, &mut |record| {
        if written.is_ok() {
            written = out.write_all(record.text.as_bytes());
        }
    });
    match written.and_then(|()| out.flush()) {
        // Who closed the pipe has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(true),
        Err(error) => return Err(Error::at_path(WHAT, &args.image, host(&error))),
        Ok(()) => {}
    }
    is_there.map_err(failed)
}

fn dumped(site: LogSite<'_>, show: &mut dyn FnMut(LogRecord)) -> backstitch_layout::Result<bool> {
    for kind in logs() {
        if kind.records(site, show)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What can be told of the log of what is on a device; `None` where there is none, or nothing can.
pub(super) fn described(
    site: LogSite<'_>,
) -> backstitch_layout::Result<Option<Map<String, Value>>> {
    for kind in logs() {
        if let Some(members) = kind.describe(site)? {
            return Ok(Some(members));
        }
    }
    Ok(None)
}

pub(super) fn site<'d>(
    device: &'d dyn BlockDevice,
    log_device: Option<&'d dyn BlockDevice>,
) -> LogSite<'d> {
    LogSite {
        device,
        log_device,
        host: journal_host(device),
    }
}

/// How what a device holds hosts a journal; `None` where it never does.
pub(super) fn journal_host(device: &dyn BlockDevice) -> Option<&'static dyn JournalHost> {
    backstitch_formats::of(device).layout().journal_host()
}

pub(super) fn place(device: &dyn BlockDevice) -> backstitch_layout::Result<Option<JournalPlace>> {
    journal_host(device).map_or(Ok(None), |host| host.place(device))
}

/// What `info` shows of a device that holds a journal and no file system; `None` where it holds
/// something else.
pub(super) fn device_document(image: &Path, device: &dyn BlockDevice) -> Result<Option<Value>> {
    let failed = |why: &dyn std::fmt::Display| Error::at_path("info", image, why);
    let alone = log_device(device).map_err(|error| failed(&error))?;
    let Some(alone) = alone else {
        return Ok(None);
    };
    let label = backstitch_formats::of(device).journal_label(device);
    let (label, features) = label.map_err(|error| failed(&error))?;
    let mut journal = Map::new();
    match described(site(device, None)) {
        Ok(Some(members)) => {
            let is_empty = members.get("is_empty") == Some(&Value::Bool(true));
            journal.insert("needs_recovery".into(), (!is_empty).into());
            journal.extend(members);
        }
        Ok(None) => {}
        Err(error) => drop(journal.insert("error".into(), error.to_string().into())),
    }
    Ok(Some(json!({
        "image": image.display().to_string(),
        "layout": "journal",
        "label": String::from_utf8_lossy(&label),
        "uuid": uuid_text(&alone.uuid),
        "features": features,
        "journal": journal,
        "device_size_bytes": device.size_bytes(),
        "atomic_unit_bytes": device.atomic_unit_bytes(),
        "size_bytes": u64::from(alone.blocks) * u64::from(alone.block_bytes),
        "block_size_bytes": alone.block_bytes,
        "blocks": alone.blocks,
    })))
}

/// The error of a command that wants a file system, where a device holds another one's journal.
pub(super) fn refuse_journal(what: &str, image: &Path, device: &dyn BlockDevice) -> Result<()> {
    // What is damaged is for the command itself to name.
    let Ok(Some(_)) = log_device(device) else {
        return Ok(());
    };
    let why = "it is a journal, and no file system";
    let shown = image.display();
    Err(Error::at_path(what, image, why).hint(format!(
        "backstitch {what} --journal-dev {shown} IMAGE, with the file system that it is for; `backstitch info {shown}` names that"
    )))
}

/// What `info` shows of the journal of a file system; null where it has none.
pub(super) fn summary(device: &dyn BlockDevice, journal_device: Option<&dyn BlockDevice>) -> Value {
    let place = match place(device) {
        Ok(None) => return Value::Null,
        Err(error) => return json!({ "error": error.to_string() }),
        Ok(Some(place)) => place,
    };
    let mut members = Map::new();
    members.insert("needs_recovery".into(), place.needs_recovery.into());
    if let JournalLocation::Outside(uuid) = &place.location {
        let uuid = uuid_text(uuid);
        members.insert("device_uuid".into(), uuid.into());
        if journal_device.is_none() {
            return members.into();
        }
    }
    match described(site(device, journal_device)) {
        Ok(Some(described)) => members.extend(described),
        Ok(None) => {}
        Err(error) => drop(members.insert("error".into(), error.to_string().into())),
    }
    members.into()
}

/// The same in one line.
pub(super) fn summary_text(parts: &Map<String, Value>) -> String {
    let text = |name: &str| parts.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |name: &str| parts.get(name).and_then(Value::as_u64);
    let mut words = Vec::new();
    if let Some(uuid) = text("device_uuid") {
        words.push(format!("on device {uuid}"));
    }
    if let (Some(bytes), Some(blocks)) = (number("size_bytes"), number("blocks")) {
        words.push(format!("{} ({blocks} blocks)", size::show(bytes)));
    }
    if let Some(Value::Array(names)) = parts.get("features") {
        words.extend(names.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    if let Some(kind) = text("checksum_type") {
        words.push(format!("checksums {kind}"));
    }
    if let (Some(sequence), Some(start)) = (number("sequence"), number("start")) {
        words.push(format!("sequence {sequence}, start {start}"));
    }
    if let Some(uuid) = text("uuid") {
        words.push(format!("UUID {uuid}"));
    }
    if let Some(Value::Array(users)) = parts.get("users") {
        let users = users.iter().filter_map(Value::as_str);
        words.extend(users.map(|user| format!("used by {user}")));
    }
    let needs = parts.get("needs_recovery") == Some(&Value::Bool(true));
    words.push(match (needs, number("transactions")) {
        (true, Some(1)) => "needs recovery: 1 transaction".to_owned(),
        (true, Some(count)) => format!("needs recovery: {count} transactions"),
        (true, None) => "needs recovery".to_owned(),
        (false, _) => "clean".to_owned(),
    });
    words.extend(text("error"));
    words.join(", ")
}
