//! Disks with partitions: `backstitch info` lists them, and `IMAGE#NAME` is one of them wherever an
//! image is wanted.

use backstitch_device::BlockDevice;
use backstitch_device::partition::{Partition, PartitionDevice, PartitionTable};
use backstitch_device::signature::{self, Kind};
use backstitch_files::error::{Error, Result};
use backstitch_files::foreign;
use backstitch_files::{show, size};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Shows the partitions of a disk; false where it has none, or holds a file system from its first
/// sector on.
pub(super) fn show(image: &Path, device: &Arc<dyn BlockDevice>, as_json: bool) -> Result<bool> {
    // A table beside a file system is what that has in its boot sector; what is at a disk's end may
    // be its last partition's.
    let found = signature::find(&**device);
    let kinds: Vec<Kind> = found
        .map_err(|error| Error::at_path("info", image, error))?
        .iter()
        .map(|found| found.signature.kind)
        .collect();
    let is_disk = kinds.contains(&Kind::PartitionTable) && kinds[0] != Kind::FileSystem;
    if registered(&**device).is_some() || !is_disk {
        return Ok(false);
    }
    let table = PartitionTable::read(&**device);
    let table = table.map_err(|error| Error::at_path("info", image, error))?;
    let Some(table) = table else {
        return Ok(false);
    };
    let partitions: Vec<Value> = table.partitions.iter().map(|p| row(p, device)).collect();
    let document = json!({
        "image": image.display().to_string(),
        "layout": "disk",
        "table": table.scheme.name(),
        "size_bytes": device.size_bytes(),
        "partitions": partitions,
        "notes": table.notes,
    });
    if as_json {
        show::print_json("info", &document)?;
        return Ok(true);
    }
    let mut text = format!(
        "{}: a disk of {} with a partition table ({})\n{:<6} {:>12} {:>10}  {:<20} {:<10} {}\n",
        image.display(),
        size::show(device.size_bytes()),
        table.scheme.name(),
        "name",
        "first byte",
        "size",
        "type",
        "holds",
        "label",
    );
    for (partition, row) in table.partitions.iter().zip(&partitions) {
        let line = format!(
            "{:<6} {:>12} {:>10}  {:<20} {:<10} {}",
            partition.name,
            partition.offset_bytes,
            size::show(partition.len_bytes),
            partition.meaning.unwrap_or(&partition.kind),
            row["holds"].as_str().unwrap_or("-"),
            partition
                .label
                .as_deref()
                .unwrap_or_default()
                .replace(char::is_control, "?"),
        );
        text += line.trim_end();
        text.push('\n');
    }
    for note in &table.notes {
        text += &format!("note: {note}\n");
    }
    text += &format!(
        "backstitch info '{}#NAME' shows one of them\n",
        image.display()
    );
    show::print_bytes("info", text.as_bytes())?;
    Ok(true)
}

fn row(partition: &Partition, disk: &Arc<dyn BlockDevice>) -> Value {
    let device = PartitionDevice::new(disk.clone(), partition).ok();
    json!({
        "name": partition.name,
        "table": partition.scheme.name(),
        "type": partition.kind,
        "meaning": partition.meaning,
        "label": partition.label,
        "offset_bytes": partition.offset_bytes,
        "size_bytes": partition.len_bytes,
        "holds": device.as_ref().and_then(|device| holds(device)),
    })
}

/// What a device holds: the type of a file system that Backstitch reads, or the name of what it
/// recognises.
fn holds(device: &dyn BlockDevice) -> Option<String> {
    if let Some(layout) = registered(device) {
        return Some(layout.to_owned());
    }
    let found = foreign::found(device)?;
    let name = found
        .name
        .trim_start_matches("an ")
        .trim_start_matches("a ");
    Some(match name.trim_end_matches(" file system") {
        // As mount(8) calls its type.
        word if !word.contains(' ') => word.to_lowercase(),
        words => words.to_owned(),
    })
}

/// The type of the file system on a device that a registered layout knows.
fn registered(device: &dyn BlockDevice) -> Option<&'static str> {
    let layout = backstitch_formats::found(device)?;
    Some(
        layout
            .info(device)
            .map_or(layout.name(), |info| info.type_name),
    )
}
