//! The raw layout: a volume (an image, a disk, a partition) as one file of its size.
//!
//! A program that keeps its own structure on a volume writes blocks, and no file system knows what
//! they mean to each other. Here its writes go through the same store as a file system's. They are
//! patches, they can be put into patchgroups (Frost et al., SOSP 2007, §5: "raw block writes"), and
//! the order of the groups is kept.
//!
//! The root directory has one name, [`VOLUME_NAME`]: the volume. Its bytes are the volume's bytes,
//! at the same places. Its size does not change; nothing can be made beside it or removed. Owners,
//! permissions and times are kept in memory until the unmount, as those of a device's node are:
//! there is no place for them on the volume.
//!
//! # What holds
//!
//! * Without groups, blocks reach the disk in any order, as those of a disk do between two flushes;
//!   `fsync` is the flush.
//! * Nothing is written to the volume but what programs write: no mark that it is in use, nothing
//!   at the unmount. So there is nothing to recover after a crash, and nothing that could tell that
//!   there was one.
//! * There is no journal; [`LayoutKind::journal_host`] returns none.
//!
//! It depends on `layout` and what is below that.

mod volume;

use backstitch_device::BlockDevice;
use backstitch_layout::{Error, LayoutKind, OpenRequest, Opened, Step};
use backstitch_ordering::Volume;

pub use volume::VOLUME_NAME;

/// Shows a volume as a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    /// The owner of the file and of its directory.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
}

/// The largest block, in bytes; a block is a power of two.
const MOST_BLOCK_BYTES: u64 = 4096;
/// The smallest block: a sector.
const LEAST_BLOCK_BYTES: u64 = 512;

impl LayoutKind for Raw {
    /// The largest block size that divides the device's size, without what is behind the last whole
    /// sector: that is not shown.
    fn block_bytes(&self, device: &dyn BlockDevice) -> backstitch_layout::Result<u32> {
        let sectors = device.size_bytes() / LEAST_BLOCK_BYTES;
        if sectors == 0 {
            let what = format!("{} is smaller than a sector", device.name());
            return Err(Error::Unsupported(what));
        }
        let whole = LEAST_BLOCK_BYTES << sectors.trailing_zeros();
        Ok(whole.min(MOST_BLOCK_BYTES) as u32)
    }

    fn open(
        &self,
        volume: &mut Volume<'_>,
        device: &dyn BlockDevice,
        request: &OpenRequest,
    ) -> Step<Opened> {
        let block_bytes = u64::from(volume.block_bytes());
        let blocks = device.size_bytes() / block_bytes;
        Ok(Opened {
            file_system: Box::new(volume::RawVolume::new(*self, block_bytes, blocks, request)),
            recovery_needed: false,
            actions: Vec::new(),
            first: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_device::MemoryDevice;

    #[test]
    fn blocks_are_as_large_as_the_size_allows() {
        for (size_bytes, block_bytes) in [
            (1 << 20, 4096),
            ((1 << 20) + 2048, 2048),
            ((1 << 20) + 512, 512),
            ((1 << 20) + 511, 4096),
            (512, 512),
        ] {
            let device = MemoryDevice::new(size_bytes);
            let found = Raw::default().block_bytes(&device).unwrap();
            assert_eq!(found, block_bytes, "{size_bytes} bytes");
        }
        let device = MemoryDevice::new(511);
        assert!(Raw::default().block_bytes(&device).is_err());
    }
}
