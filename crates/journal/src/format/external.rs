//! A journal on a device of its own, as `mke2fs -O journal_dev` makes it: a superblock of ext2 that
//! says so, and the journal's superblock in the block behind it. By the format several file systems
//! may share the journal; no known software does that.

use backstitch_device::BlockDevice;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use backstitch_layout::JournalMap;

use crate::{Error, Fault, Result};

/// Where the device's superblock starts.
const OFFSET: u64 = 1024;
/// `s_magic` of ext2.
const MAGIC: u16 = 0xef53;
/// `s_feature_incompat`: this is a journal and no file system.
const INCOMPAT_JOURNAL_DEV: u32 = 0x8;

/// The fields that matter of the ext2 superblock at byte 1024 of a journal's device; little-endian,
/// unlike the journal's own.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawDevice {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_unused1: [U32; 4],
    pub s_log_block_size: U32,
    pub s_unused2: [U32; 7],
    pub s_magic: U16,
    pub s_unused3: [U16; 19],
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
}

/// A device that holds a journal and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalJournal {
    /// The size of a block.
    pub block_bytes: u32,
    /// Blocks in all.
    pub blocks: u32,
    /// The device's UUID, by which a file system names it.
    pub uuid: [u8; 16],
    /// Where the blocks are.
    pub map: JournalMap,
}

impl ExternalJournal {
    /// Reads a device's superblocks. `None` where the device holds no journal; it may hold
    /// something else.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a journal whose numbers are impossible; the device's.
    pub fn read(device: &dyn BlockDevice) -> Result<Option<ExternalJournal>> {
        let mut bytes = [0; size_of::<RawDevice>()];
        if device.size_bytes() < OFFSET + bytes.len() as u64 {
            return Ok(None);
        }
        device.read(OFFSET, &mut bytes)?;
        let raw: RawDevice = zerocopy::transmute!(bytes);
        let is_journal = raw.s_feature_incompat.get() & INCOMPAT_JOURNAL_DEV != 0;
        if raw.s_magic.get() != MAGIC || !is_journal {
            return Ok(None);
        }
        let log = raw.s_log_block_size.get();
        if log > 6 {
            return Err(Error::corrupt(0, Fault::BlockSize { log }));
        }
        let block_bytes = 1024 << log;
        let blocks = raw.s_blocks_count_lo.get();
        if u64::from(blocks) * u64::from(block_bytes) > device.size_bytes() {
            return Err(Error::corrupt(0, Fault::LongerThanDevice { blocks }));
        }
        let superblock = if block_bytes == 1024 { 2 } else { 1 };
        Ok(Some(ExternalJournal {
            block_bytes,
            blocks,
            uuid: raw.s_uuid,
            map: JournalMap::whole_device(blocks, superblock)?,
        }))
    }
}
