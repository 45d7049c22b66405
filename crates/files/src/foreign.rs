//! Images that hold something else: an error names it, and the program that reads it.

use crate::error::{Error, Result};
use crate::image::{DeviceOptions, open_device};
use backstitch_device::BlockDevice;
use backstitch_device::signature::{self, Kind, Signature};
use backstitch_vfs::LayoutError;
use std::path::Path;

/// The shortest file system with copies of its superblock, in bytes.
const LEAST_BYTES: u64 = 64 << 10;

/// The format on a device, if it is recognised; `None` where the device cannot be read.
pub fn found(device: &dyn BlockDevice) -> Option<&'static Signature> {
    let found = signature::find(device).ok()?;
    found.first().map(|found| found.signature)
}

/// The error for a file system that cannot be opened: `error`, or that the image holds something
/// else, with a hint at the program that reads it.
pub fn explained(
    what: &str,
    image: &Path,
    device: &dyn BlockDevice,
    error: impl std::error::Error + 'static,
) -> Error {
    let shown = image.display().to_string();
    let is_elsewhere = is_log_elsewhere(&error);
    let plain = Error::at_path(what, image, error);
    if is_elsewhere {
        return plain.hint(match what {
            "mount" => "-o journal_dev=DEVICE names it".to_owned(),
            "fsck" | "info" | "journal dump" => "-j DEVICE names it".to_owned(),
            _ => format!("backstitch fsck -p -j DEVICE {shown} brings home what it holds"),
        });
    }
    if let Some(layout) = backstitch_formats::found(device) {
        // An error here means no readable superblock: then no driver of the kernel is suggested.
        let info = layout.info(device);
        let is_unread = info.is_ok_and(|info| !info.unreadable_features.is_empty());
        return match layout.kernel_type().filter(|_| is_unread) {
            Some(driver) => plain.hint(format!(
                "the kernel's {driver} driver reads it: mount -t {driver} {shown} DIR"
            )),
            None => plain,
        };
    }
    let Some(found) = found(device) else {
        let could_be = device.size_bytes() >= LEAST_BYTES;
        return match what {
            "fsck" | "info" | "mount" if could_be => plain.hint(format!(
                "no superblock was found; if there was a file system, backstitch fsck -y {shown} looks for copies of it"
            )),
            _ => plain,
        };
    };
    let why = match found.kind {
        Kind::PartitionTable => format!("it is a disk with {}, not a file system", found.name),
        _ => {
            let types = backstitch_formats::types().join(" or ");
            format!("not an {types} file system, but {}", found.name)
        }
    };
    Error::at_path(what, image, why).hint(found.reader_of(&shown))
}

/// Whether a file system is not opened because its log is elsewhere.
fn is_log_elsewhere(error: &(dyn std::error::Error + 'static)) -> bool {
    let of_engine = match error.downcast_ref() {
        Some(backstitch_vfs::Error::Layout(error)) => Some(error),
        _ => error.downcast_ref(),
    };
    matches!(of_engine, Some(LayoutError::LogElsewhere(_)))
}

/// The UUID of the file systems that the crash explorer makes.
const EXPLORERS_UUID: [u8; 16] = [7; 16];

/// Refuses to overwrite a file that holds a file system, a disk image or an archive with the output
/// of a command: that is probably a mistake. A file that the explorer made before may be replaced,
/// and so may a copy of `original`.
pub fn refuse_output(what: &str, path: &Path, original: Option<&Path>) -> Result<()> {
    refuse_holding(what, path, original, false)
}

/// The same of a file that the caller has locked.
pub fn refuse_locked_output(what: &str, path: &Path) -> Result<()> {
    refuse_holding(what, path, None, true)
}

fn refuse_holding(
    what: &str,
    path: &Path,
    original: Option<&Path>,
    beside_writers: bool,
) -> Result<()> {
    if !path.is_file() {
        return Ok(());
    }
    let open = |path: &Path| {
        let read_only = DeviceOptions {
            read_only: true,
            beside_writers,
            ..DeviceOptions::default()
        };
        open_device(what, path, read_only)
    };
    let uuid = |device: &dyn BlockDevice| backstitch_formats::of(device).uuid_on(device);
    let device = open(path)?;
    let Some(found) = found(&*device).filter(|found| found.kind != Kind::File) else {
        return Ok(());
    };
    let there = uuid(&*device);
    drop(device);
    let is_copy = || {
        let original = original.and_then(|original| open(original).ok());
        original.is_some_and(|original| uuid(&*original) == there)
    };
    // Two images without a UUID are not copies of each other for that.
    if there == Some(EXPLORERS_UUID) || (there.is_some() && is_copy()) {
        return Ok(());
    }
    let why = format!("it holds {}, which would be overwritten", found.name);
    Err(Error::at_path(what, path, why).hint("name another file, or remove this one first"))
}
