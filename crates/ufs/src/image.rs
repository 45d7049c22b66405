//! An image, before it is opened: is it one of ours, and can it be read?

use backstitch_device::BlockDevice;
use backstitch_layout::{Error, Result};

use crate::format::superblock::{PLACES, READ_BYTES, magic};
use crate::format::{FormatError, Superblock};

/// Recognises UFS images and opens them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ufs;

/// The bytes of a superblock from a place on; `None` where the device ends before.
fn superblock_bytes(device: &dyn BlockDevice, place: u64) -> Result<Option<Vec<u8>>> {
    if device.size_bytes() < place + READ_BYTES as u64 {
        return Ok(None);
    }
    let mut bytes = vec![0; READ_BYTES];
    device.read(place, &mut bytes)?;
    Ok(Some(bytes))
}

/// Whether a device has the magic number of a UFS. One that cannot be read has none.
pub fn is_on(device: &dyn BlockDevice) -> bool {
    let has_magic = |place: &u64| {
        let bytes = superblock_bytes(device, *place).ok().flatten();
        bytes.is_some_and(|bytes| magic(&bytes).is_some())
    };
    PLACES.iter().any(has_magic)
}

/// The superblock of the image on a device.
///
/// # Errors
/// Where there is none, or its numbers cannot be; the device's.
pub fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    Superblock::find(device.size_bytes(), |place| {
        superblock_bytes(device, place).map_err(Found)
    })
    .map_err(|Found(error)| error)
}

/// An error of either kind.
struct Found(Error);

impl From<FormatError> for Found {
    fn from(error: FormatError) -> Found {
        Found(from_format(error))
    }
}

pub(crate) fn from_format(error: FormatError) -> Error {
    match error {
        FormatError::Corrupt(corruption) => Error::Corrupt(corruption),
        other => Error::Unsupported(other.to_string()),
    }
}

/// Refuses a file system with features that cannot be read.
pub(crate) fn refuse_unreadable(sb: &Superblock) -> Result<()> {
    let features = sb.read_support();
    if features.is_empty() {
        return Ok(());
    }
    let names = features.join(", ");
    Err(Error::Unsupported(format!("the image uses {names}")))
}
