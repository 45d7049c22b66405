//! Our record in the superblock that says where the log of one of our mechanisms (`lffs`) lies.
//! ext3's journal has fields of its own.
//!
//! # Format
//!
//! 28 bytes before the [mount record](super::record), in `s_reserved` too. Only our tools write
//! them, and never while the file system is mounted; so they are the same in every state that a
//! crash leaves.

use backstitch_layout::InodeNumber;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `l_magic`: "BSLG".
pub const LOG_RECORD_MAGIC: u32 = u32::from_le_bytes(*b"BSLG");
/// The record's size.
pub const LOG_RECORD_SIZE: usize = size_of::<RawLogRecord>();

/// The record as it is on the disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawLogRecord {
    pub l_magic: U32,
    pub l_inode: U32,
    pub l_uuid: [u8; 16],
    pub l_check: U32,
}

/// Where a log of ours lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The inode of the file that the log is in; 0 where it lies elsewhere.
    pub inode: InodeNumber,
    /// The log's UUID, where it lies elsewhere.
    pub uuid: [u8; 16],
}

impl LogRecord {
    /// Reads the record; `None` where there is none, or where its check fails.
    pub fn parse(raw: &RawLogRecord) -> Option<LogRecord> {
        let is_right = raw.l_magic.get() == LOG_RECORD_MAGIC && raw.l_check.get() == check(raw);
        is_right.then(|| LogRecord {
            inode: InodeNumber(raw.l_inode.get()),
            uuid: raw.l_uuid,
        })
    }

    /// The record as it is on the disk.
    pub fn encode(&self) -> RawLogRecord {
        let mut raw = RawLogRecord {
            l_magic: LOG_RECORD_MAGIC.into(),
            l_inode: self.inode.0.into(),
            l_uuid: self.uuid,
            l_check: U32::new(0),
        };
        raw.l_check = check(&raw).into();
        raw
    }
}

/// The check over everything before `l_check`.
fn check(raw: &RawLogRecord) -> u32 {
    crc32c::crc32c(&raw.as_bytes()[..LOG_RECORD_SIZE - 4])
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn record_survives_and_is_checked() {
        assert_eq!(LOG_RECORD_SIZE, 28);
        assert_eq!(LogRecord::parse(&RawLogRecord::new_zeroed()), None);
        let record = LogRecord {
            inode: InodeNumber(12),
            uuid: [3; 16],
        };
        let mut raw = record.encode();
        assert_eq!(LogRecord::parse(&raw), Some(record));
        raw.l_inode = 13.into();
        assert_eq!(LogRecord::parse(&raw), None);
    }
}
