//! What an image holds that is not ours: an error says what it is, and what reads it.

use crate::error::{Error, Result};
use crate::image::{DeviceOptions, open_device};
use backstitch_device::BlockDevice;
use backstitch_device::signature::{self, Kind, Signature};
use backstitch_ext::format::Superblock;
use backstitch_ext::format::superblock::{MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::path::Path;

/// Where ext2's magic is in its superblock.
const MAGIC_AT: u64 = 0x38;

/// What a device holds, as far as it is recognised; a device that cannot be read holds nothing that is.
pub(crate) fn found(device: &dyn BlockDevice) -> Option<&'static Signature> {
    let found = signature::find(device).ok()?;
    found.first().map(|found| found.signature)
}

/// Why a file system cannot be opened: `error`, or that the image holds something else. A hint says what reads that.
pub(crate) fn explained(
    what: &str,
    image: &Path,
    device: &dyn BlockDevice,
    error: impl std::fmt::Display,
) -> Error {
    let shown = image.display().to_string();
    let plain = Error::at_path(what, image, error);
    let mut magic = [0; 2];
    let has_magic = device
        .read(SUPERBLOCK_OFFSET + MAGIC_AT, &mut magic)
        .is_ok();
    if has_magic && magic == MAGIC.to_le_bytes() {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        // What is too short for a superblock has no feature that somebody else could read.
        let is_unread = device.read(SUPERBLOCK_OFFSET, &mut bytes).is_ok()
            && Superblock::parse(&bytes, device.size_bytes())
                .is_ok_and(|superblock| !superblock.read_support().is_empty());
        return match is_unread {
            true => plain.hint(format!(
                "the kernel's ext4 driver reads it: mount -t ext4 {shown} DIR"
            )),
            false => plain,
        };
    }
    let Some(found) = found(device) else {
        return plain;
    };
    let why = match found.kind {
        Kind::PartitionTable => format!("it is a disk with {}, not a file system", found.name),
        _ => format!("not an ext2 or ext3 file system, but {}", found.name),
    };
    Error::at_path(what, image, why).hint(found.reader_of(&shown))
}

/// Where the UUID is in ext2's superblock.
const UUID_AT: u64 = 0x68;
/// The UUID of the file systems that the explorer makes.
const EXPLORERS_UUID: [u8; 16] = [7; 16];

/// Refuses to write what a command makes over a file that holds a file system, a disk image or an archive: it was hardly meant. What the
/// explorer made before may be replaced, and what is a copy of `original`.
pub(crate) fn refuse_output(what: &str, path: &Path, original: Option<&Path>) -> Result<()> {
    if !path.is_file() {
        return Ok(());
    }
    let open = |path: &Path| {
        let read_only = DeviceOptions {
            read_only: true,
            ..DeviceOptions::default()
        };
        open_device(what, path, read_only)
    };
    let uuid = |device: &dyn BlockDevice| {
        let mut uuid = [0; 16];
        let read = device.read(SUPERBLOCK_OFFSET + UUID_AT, &mut uuid);
        read.is_ok().then_some(uuid)
    };
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
    if there == Some(EXPLORERS_UUID) || is_copy() {
        return Ok(());
    }
    let why = format!("it holds {}, which would be overwritten", found.name);
    Err(Error::at_path(what, path, why).hint("name another file, or remove this one first"))
}
