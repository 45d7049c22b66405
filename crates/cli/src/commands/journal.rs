//! `backstitch journal dump IMAGE`, and what `info` says of a journal.

use backstitch_device::BlockDevice;
use backstitch_files::error::{Error, Result, host};
use backstitch_files::foreign;
use backstitch_files::image::{DeviceOptions, open_device};
use backstitch_files::{show, size};
use backstitch_journal::dump::{self, Line};
use backstitch_journal::format::{ChecksumKind, ExternalJournal};
use backstitch_journal::{Journal, JournalDevice};
use backstitch_layout::tools::uuid_text;
use backstitch_layout::{JournalHost, JournalLocation, JournalPlace};
use backstitch_mechanisms::jbd2;
use serde_json::{Map, Value, json};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    let failed = |why: &dyn std::fmt::Display| Error::at_path(WHAT, &args.image, why);
    let device = open_device(WHAT, &args.image, read_only)?;
    let other = match &args.journal_dev {
        Some(path) => Some(open_device(WHAT, path, read_only)?),
        None => None,
    };
    let found = found(&*device, other.as_deref());
    let found = found.map_err(|error| foreign::explained(WHAT, &args.image, &*device, error))?;
    let found = found.ok_or_else(|| failed(&"it has no journal"))?;
    print(args, &found.journal)
}

fn print(args: &DumpArgs, journal: &Journal<'_>) -> Result<()> {
    let failed = |why: &dyn std::fmt::Display| Error::at_path(WHAT, &args.image, why);
    let mut lines: Vec<Line> = Vec::new();
    if args.json {
        dump::lines(journal, &mut |line| lines.push(line)).map_err(|error| failed(&error))?;
        let image = args.image.display().to_string();
        return show::print_json(WHAT, &json!({ "image": image, "records": lines }));
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    let dumped = dump::lines(journal, &mut |line| {
        if written.is_ok() {
            written = write!(out, "{line}");
        }
    });
    match written.and_then(|()| out.flush()) {
        // Who closed the pipe has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
        Err(error) => return Err(failed(&host(&error))),
        Ok(()) => {}
    }
    dumped.map_err(|error| failed(&error))
}

/// A journal, and where it was found.
struct Found<'d> {
    journal: Journal<'d>,
    /// Of the file system; `None` for a device that holds a journal only.
    place: Option<JournalPlace>,
}

/// How what a device holds hosts a journal; `None` where it never does.
pub(super) fn journal_host(device: &dyn BlockDevice) -> Option<&'static dyn JournalHost> {
    backstitch_formats::of(device).layout().journal_host()
}

fn place(device: &dyn BlockDevice) -> backstitch_layout::Result<Option<JournalPlace>> {
    journal_host(device).map_or(Ok(None), |host| host.place(device))
}

/// The journal of what is on a device, be that a file system or a journal of its own. `None` where
/// there is none.
fn found<'d>(
    device: &'d dyn BlockDevice,
    journal_device: Option<&'d dyn BlockDevice>,
) -> backstitch_vfs::Result<Option<Found<'d>>> {
    let alone = ExternalJournal::read(device).map_err(jbd2::from_journal)?;
    if let Some(alone) = alone {
        let blocks = JournalDevice::new(device, alone.block_bytes, Arc::new(alone.map));
        let journal = Journal::open(blocks).map_err(jbd2::from_journal)?;
        return Ok(Some(Found {
            journal,
            place: None,
        }));
    }
    let Some(place) = place(device)? else {
        return Ok(None);
    };
    Ok(Some(Found {
        journal: jbd2::open(device, journal_device, &place)?,
        place: Some(place),
    }))
}

/// What `info` shows of a device that holds a journal and no file system; `None` where it holds
/// something else.
pub(super) fn device_document(image: &Path, device: &dyn BlockDevice) -> Result<Option<Value>> {
    let failed = |why: &dyn std::fmt::Display| Error::at_path("info", image, why);
    let alone = ExternalJournal::read(device).map_err(|error| failed(&error))?;
    let Some(alone) = alone else {
        return Ok(None);
    };
    let label = backstitch_formats::of(device).journal_label(device);
    let (label, features) = label.map_err(|error| failed(&error))?;
    let mut journal = Map::new();
    match found(device, None) {
        Ok(Some(found)) => {
            let needs_recovery = !found.journal.superblock().is_empty();
            journal.insert("needs_recovery".into(), needs_recovery.into());
            journal.extend(details(&found));
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
    let Ok(Some(_)) = ExternalJournal::read(device) else {
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
    match found(device, journal_device) {
        Ok(Some(found)) => members.extend(details(&found)),
        Ok(None) => {}
        Err(error) => drop(members.insert("error".into(), error.to_string().into())),
    }
    members.into()
}

fn details(found: &Found<'_>) -> Map<String, Value> {
    let sb = found.journal.superblock();
    let bytes = u64::from(sb.blocks) * u64::from(sb.block_bytes);
    // How large the file system is that a journal alone is for is not known.
    let home_blocks = (found.place.as_ref()).map_or(u64::MAX, |place| place.home_blocks);
    let scan = found.journal.scan(home_blocks);
    let transactions = scan.map(|scan| scan.end.distance(scan.first));
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    put("version", sb.version.into());
    put("size_bytes", bytes.into());
    put("blocks", sb.blocks.into());
    put("features", json!(sb.features.names()));
    put("not_writable_for", json!(sb.features.unwritable()));
    put("uuid", uuid_text(&sb.uuid).into());
    put("sequence", sb.sequence.0.into());
    put("start", sb.start.into());
    put("first", sb.first.into());
    put("error_number", sb.error_number.into());
    put("is_empty", sb.is_empty().into());
    let checksums = match sb.checksums().kind {
        ChecksumKind::None => None,
        ChecksumKind::Transaction => Some("crc32"),
        ChecksumKind::Short | ChecksumKind::Full => Some("crc32c"),
    };
    put("checksum_type", json!(checksums));
    let users = sb.users.iter().filter(|user| **user != [0; 16]);
    let users: Vec<String> = users.map(uuid_text).collect();
    put("users", json!(users));
    match transactions {
        Ok(transactions) => drop(put("transactions", transactions.into())),
        Err(error) => drop(put("error", error.to_string().into())),
    }
    members
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
        (true, Some(count)) => format!("needs recovery: {count} transactions"),
        (true, None) => "needs recovery".to_owned(),
        (false, _) => "clean".to_owned(),
    });
    words.extend(text("error"));
    words.join(", ")
}
