//! What an image holds that is not ours: an error says what it is, and what reads it.

use crate::error::Error;
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
