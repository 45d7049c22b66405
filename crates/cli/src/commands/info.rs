//! `backstitch info IMAGE`.

use super::{disk, journal, operations_log};
use crate::stack;
use backstitch_device::BlockDevice;
use backstitch_files::error::{Error, Result, warn_line};
use backstitch_files::foreign;
use backstitch_files::image::{DeviceOptions, open_device};
use backstitch_files::named::Named;
use backstitch_files::{show, size};
use backstitch_layout::tools::{CheckError, Info, uuid_text};
use backstitch_mechanisms::recorded;
use backstitch_ordering::CrashRecord;
use backstitch_vfs::Timestamp;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Show type, features, geometry, free space, state, label and log of a file system, or the
/// partitions of a disk.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Free space is taken from the superblock; it may be wrong for an image that a kernel has in use, or that a crash left.

Examples:
  backstitch info disk.img
  backstitch info disk.img#1          one of its partitions; this works wherever an IMAGE is expected
  backstitch info disk.img#home       the one with this label (GPT)
  backstitch info 'disk.img?offset=1M'          from this byte on; &sizelimit=64M ends it
  backstitch info --json /dev/sdb1 | jq .state
  backstitch info -j log.img disk.img            with its journal, or its log of operations, there
  backstitch info journal.img         a journal on a device of its own
  backstitch info --stack figure8.toml          what the file describes, drawn

A stack is a TOML file. The paper's figure 8 (Frost et al., 2007):
  [[volume]]
  name = \"root\"
  image = \"disk.img\"            only for info; mount takes it from the command line
  [[volume]]
  name = \"loop\"
  file = \"root:/fs.img\"         the file that holds it
  journal = \"root:/log.img\"     if its journal is in another file
  ordering = \"journal=full\"     by default journal=ordered with a journal, else soft
  at = \"root:/loop\"             the directory where it appears
front = NAME before the volumes makes another volume's root the root of the mount."
)]
pub(crate) struct Args {
    /// The image: a file or a block device
    #[arg(required_unless_present = "stack")]
    image: Option<PathBuf>,
    /// Show the stack of file systems that a TOML file describes, on IMAGE or on the image that the
    /// file names
    #[arg(long, value_name = "FILE")]
    stack: Option<PathBuf>,
    /// The device that holds the journal or the log of operations, if that is not in IMAGE
    #[arg(short = 'j', long, value_name = "IMAGE2", conflicts_with = "stack")]
    journal_dev: Option<PathBuf>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let read_only = DeviceOptions {
        read_only: true,
        ..Default::default()
    };
    if let Some(file) = &args.stack {
        return show_stack(args, file, read_only);
    }
    let image = args.image.clone().unwrap_or_default();
    let device = open(&image)?;
    if disk::show(&image, &device, args.json)? {
        return Ok(());
    }
    let document = match journal::device_document(&image, &*device)? {
        Some(document) => document,
        None => {
            let other = match &args.journal_dev {
                Some(path) => Some(open_device("info", path, read_only)?),
                None => None,
            };
            let superblock = superblock("info", &image, &*device)?;
            document(&image, &superblock, &*device, other.as_deref())
        }
    };
    if args.json {
        return show::print_json("info", &document);
    }
    show::print_table("info", &rows(&document))
}

/// Opens an image to look at it. Where it is in use what the disk says is shown, and that it may be old.
fn open(image: &Path) -> Result<Arc<dyn BlockDevice>> {
    let locking = DeviceOptions {
        read_only: true,
        ..Default::default()
    };
    let beside = DeviceOptions {
        beside_writers: true,
        ..locking
    };
    open_device("info", image, locking).or_else(|error| {
        let holder = Named::of("info", image).ok().and_then(|named| named.holder(true));
        let Some(holder) = holder else {
            return Err(error);
        };
        let device = open_device("info", image, beside)?;
        let image = image.display();
        warn_line(&format!(
            "info: {image}: in use by {holder}: what follows is from the disk, and may be older than what is in memory"
        ));
        Ok(device)
    })
}

fn show_stack(args: &Args, file: &Path, read_only: DeviceOptions) -> Result<()> {
    let described = stack::read("info", file)?;
    let image = (args.image.clone().or(described.image)).ok_or_else(|| {
        Error::at_path("info", file, "its first volume names no image")
            .hint("name it after the options, or add image = \"FILE\"")
    })?;
    let device = open_device("info", &image, read_only)?;
    let infos = stack::inspect("info", &image, &described.stack, &*device)?;
    match args.json {
        true => show::print_json("info", &stack::document(&described.stack, &image, &infos)),
        false => {
            let drawn = stack::draw(&described.stack, &image, &infos);
            show::print_bytes("info", drawn.as_bytes())
        }
    }
}

/// What the superblock of a file system says.
pub(super) fn superblock(what: &str, image: &Path, device: &dyn BlockDevice) -> Result<Info> {
    let info = backstitch_formats::of(device).info(device);
    info.map_err(|error| match error {
        CheckError::Device(error) => Error::at_path(what, image, error),
        error => foreign::explained(what, image, device, error),
    })
}

/// Seconds since 1970 as text; nothing for "never".
fn time(seconds: u64) -> Option<String> {
    let seconds = i64::try_from(seconds)
        .ok()
        .filter(|&seconds| seconds != 0)?;
    Some(show::time_long(Timestamp {
        seconds,
        nanoseconds: 0,
    }))
}

/// Of the features that the format alone would not let a mount use, those that keep it from using
/// the image: a journal that can be replayed and written is none.
fn obstacles(mut features: Vec<String>, journal: &Value) -> Vec<String> {
    let is_used = journal["error"].is_null()
        && (journal["not_writable_for"].as_array()).is_none_or(Vec::is_empty);
    if is_used {
        features.retain(|name| name != "has_journal" && name != "needs_recovery");
    }
    features
}

/// The mechanism of the last mount, as `--ordering` takes it.
fn ordering_name(record: CrashRecord) -> String {
    match recorded(record) {
        Some(ordering) => ordering.to_string(),
        None => format!("number {}", record.code()),
    }
}

fn document(
    image: &Path,
    s: &Info,
    device: &dyn BlockDevice,
    journal_device: Option<&dyn BlockDevice>,
) -> Value {
    let record = s.record.as_ref().map(|record| {
        json!({
            "ordering": ordering_name(record.mechanism),
            "mounted": time(record.mounted_seconds),
            "atomic_unit_bytes": record.atomic_unit_bytes,
        })
    });
    let journal = journal::summary(device, journal_device);
    let mut document = json!({
        "image": image.display().to_string(),
        "layout": s.type_name,
        "revision": s.revision,
        "label": String::from_utf8_lossy(&s.label),
        "uuid": uuid_text(&s.uuid),
        "state": s.state.name(),
        "last_ordering": record,
        "features": s.features,
        "not_readable_for": obstacles(s.unreadable_features.clone(), &journal),
        "not_writable_for": obstacles(s.unwritable_features.clone(), &journal),
        "journal_inode": s.journal_inode,
        "journal": journal,
        "log": operations_log::summary(device, journal_device),
        "device_size_bytes": device.size_bytes(),
        "atomic_unit_bytes": device.atomic_unit_bytes(),
        "size_bytes": s.size_bytes(),
        "free_bytes": s.bytes(s.free_blocks),
        "reserved_bytes": s.bytes(s.reserved_blocks),
        "block_size_bytes": s.block_bytes,
        "blocks": s.blocks,
        "free_blocks": s.free_blocks,
        "reserved_blocks": s.reserved_blocks,
        "inode_size_bytes": s.inode_bytes,
        "inodes": s.inodes,
        "free_inodes": s.free_inodes,
        "groups": s.groups,
        "blocks_per_group": s.blocks_per_group,
        "inodes_per_group": s.inodes_per_group,
        "file_max_bytes": s.max_file_bytes,
        "made": time(s.made_seconds),
        "mounted": time(s.mounted_seconds),
        "written": time(s.written_seconds),
        "checked": time(s.checked_seconds),
        "mounts_since_check": s.mounts,
        "mounts_between_checks": s.max_mounts,
        "last_mounted_at": String::from_utf8_lossy(&s.last_mounted_at),
    });
    if let Some(bytes) = s.whole_block_bytes {
        document["whole_block_size_bytes"] = bytes.into();
    }
    document
}

fn rows(document: &Value) -> Vec<[String; 2]> {
    let Some(members) = document.as_object() else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for name in ORDER {
        let text = match members.get(name) {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) if text.is_empty() => continue,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(words)) if words.is_empty() => continue,
            Some(Value::Array(words)) => words
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(" "),
            Some(Value::Object(parts)) if name == "journal" => journal::summary_text(parts),
            Some(Value::Object(parts)) if name == "log" => operations_log::summary_text(parts),
            Some(Value::Object(parts)) => {
                let ordering = parts.get("ordering").and_then(Value::as_str);
                match (ordering, &parts["atomic_unit_bytes"]) {
                    (None, _) => continue,
                    (Some(ordering), Value::Null) => ordering.to_owned(),
                    (Some(ordering), unit) => format!("{ordering}, in units of {unit} bytes"),
                }
            }
            Some(value) if name.ends_with("_bytes") => {
                let bytes = value.as_u64().unwrap_or_default();
                format!("{bytes} ({})", size::show(bytes))
            }
            Some(value) => value.to_string(),
        };
        rows.push([name.trim_end_matches("_bytes").replace('_', " "), text]);
    }
    rows
}

/// The order in which a person reads them.
const ORDER: [&str; 37] = [
    "image",
    "layout",
    "revision",
    "label",
    "uuid",
    "state",
    "last_ordering",
    "features",
    "not_readable_for",
    "not_writable_for",
    "journal_inode",
    "journal",
    "log",
    "device_size_bytes",
    "atomic_unit_bytes",
    "size_bytes",
    "free_bytes",
    "reserved_bytes",
    "block_size_bytes",
    "whole_block_size_bytes",
    "blocks",
    "free_blocks",
    "reserved_blocks",
    "inode_size_bytes",
    "inodes",
    "free_inodes",
    "groups",
    "blocks_per_group",
    "inodes_per_group",
    "file_max_bytes",
    "made",
    "mounted",
    "written",
    "checked",
    "mounts_since_check",
    "mounts_between_checks",
    "last_mounted_at",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_for_people() {
        let document =
            json!({"size_bytes": 2048, "label": "", "features": ["a", "b"], "groups": 1});
        let expected = [
            ["features", "a b"],
            ["size", "2048 (2 KiB)"],
            ["groups", "1"],
        ];
        assert_eq!(rows(&document), expected.map(|row| row.map(str::to_owned)));
    }

    #[test]
    fn a_journal_that_can_be_written_is_no_obstacle() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let features: Vec<String> = names(&["needs_recovery", "has_journal", "extents"]);
        let shown = |journal: Value| obstacles(features.clone(), &journal);
        assert_eq!(shown(json!({"not_writable_for": []})), ["extents"]);
        assert_eq!(shown(json!({"device_uuid": "x"})), ["extents"]);
        assert_eq!(
            shown(json!({"not_writable_for": ["fast_commit"]})),
            features
        );
        assert_eq!(shown(json!({"error": "corrupt"})), features);
    }

    #[test]
    fn never_is_nothing() {
        assert_eq!(time(0), None);
        assert_eq!(time(1).as_deref(), Some("1970-01-01T00:00:01.000000000Z"));
    }
}
