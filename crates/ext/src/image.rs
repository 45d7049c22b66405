//! An image, before it is opened: is it one of ours, and can it be read?

use backstitch_device::BlockDevice;
use backstitch_layout::{Error, Result};

use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::format::{FormatError, Superblock};

/// Recognises ext2 images and opens them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ext2;

/// The superblock of the image on a device.
pub(crate) fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if device.size_bytes() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Err(Error::Unsupported(format!(
            "not an ext2 file system: {} bytes are too few for a superblock",
            device.size_bytes()
        )));
    }
    device.read(SUPERBLOCK_OFFSET, &mut bytes)?;
    Superblock::parse(&bytes, device.size_bytes()).map_err(from_format)
}

pub(crate) fn from_format(error: FormatError) -> Error {
    match error {
        FormatError::Corrupt(corruption) => Error::Corrupt(corruption),
        other => Error::Unsupported(other.to_string()),
    }
}

/// Refuses a file system with features that cannot be read.
pub(crate) fn refuse_unreadable(sb: &Superblock) -> Result<()> {
    refuse_with(sb.read_support())
}

/// Refuses a file system with any of these features.
pub(crate) fn refuse_with(features: Vec<String>) -> Result<()> {
    if features.is_empty() {
        return Ok(());
    }
    let names = features.join(", ");
    Err(Error::Unsupported(format!("the image uses {names}")))
}
