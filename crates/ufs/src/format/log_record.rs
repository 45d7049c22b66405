//! Our own record behind the superblock of where a log of operations lies.
//!
//! # Format
//!
//! 28 bytes behind the [mount record](super::record), in the image's byte order, within the
//! `fs_sbsize` bytes of the superblock, which FreeBSD reads and writes as a whole, and of which it
//! uses the first 1376.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 1408 | 4 | `l_magic` | 0x474c5342, "BSLG" |
//! | 1412 | 4 | `l_inode` | inode of the file that the log is in; 0: it lies elsewhere |
//! | 1416 | 16 | `l_uuid` | name of a log that lies elsewhere |
//! | 1432 | 4 | `l_check` | CRC-32C of the 24 bytes above, the numbers little-endian |
//!
//! Nothing but our tools writes them, and never while the file system is mounted: they are in every
//! state that a crash leaves.

use backstitch_layout::InodeNumber;

use super::order::{ByteOrder, OnDisk, on_disk};
use super::record::RECORD_END;
use super::superblock::RawSuperblock;

/// Where the record lies, in bytes from the superblock's start.
pub const LOG_RECORD_AT: usize = RECORD_END;
/// The record's bytes.
pub const LOG_RECORD_BYTES: usize = RawLogRecord::SIZE;
/// Bytes of the superblock with both records.
pub const LOG_RECORD_END: usize = LOG_RECORD_AT + LOG_RECORD_BYTES;

const LOG_RECORD_MAGIC: u32 = u32::from_le_bytes(*b"BSLG");

on_disk! {
    /// The record as it is on the disk.
    pub struct RawLogRecord, 28 {
        pub l_magic: u32,
        pub l_inode: u32,
        pub l_uuid: [u8; 16],
        pub l_check: u32,
    }
}

/// Where a log of ours lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The inode of the file that the log is in; 0 where it lies elsewhere.
    pub inode: InodeNumber,
    /// What names the log, where it lies elsewhere.
    pub uuid: [u8; 16],
}

impl LogRecord {
    /// Reads the record behind a superblock; `None` where there is none, where its check fails, or
    /// where the superblock has no room for it.
    pub fn parse(raw: &RawSuperblock, order: ByteOrder, bytes: &[u8]) -> Option<LogRecord> {
        let record = RawLogRecord::decode(order, bytes.get(LOG_RECORD_AT..LOG_RECORD_END)?);
        let is_right =
            has_room(raw) && record.l_magic == LOG_RECORD_MAGIC && record.l_check == check(&record);
        is_right.then_some(LogRecord {
            inode: InodeNumber(record.l_inode),
            uuid: record.l_uuid,
        })
    }

    /// The bytes to put at [`LOG_RECORD_AT`] of a superblock.
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut record = RawLogRecord {
            l_magic: LOG_RECORD_MAGIC,
            l_inode: self.inode.0,
            l_uuid: self.uuid,
            l_check: 0,
        };
        record.l_check = check(&record);
        record.to_bytes(order)
    }
}

/// Whether a superblock takes so many bytes on the disk that the record is among them.
pub fn has_room(raw: &RawSuperblock) -> bool {
    usize::try_from(raw.fs_sbsize).is_ok_and(|bytes| bytes >= LOG_RECORD_END)
}

/// The check over everything before `l_check`, in little-endian order whatever the image's is.
fn check(record: &RawLogRecord) -> u32 {
    let bytes = record.to_bytes(ByteOrder::Little);
    crc32c::crc32c(&bytes[..LOG_RECORD_BYTES - 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_is_checked() {
        let record = LogRecord {
            inode: InodeNumber(3),
            uuid: *b"the name of logs",
        };
        let raw = RawSuperblock {
            fs_sbsize: 1536,
            ..RawSuperblock::default()
        };
        for order in ByteOrder::ALL {
            let mut bytes = vec![0; LOG_RECORD_END];
            assert_eq!(LogRecord::parse(&raw, order, &bytes), None);
            bytes[LOG_RECORD_AT..].copy_from_slice(&record.encode(order));
            assert_eq!(LogRecord::parse(&raw, order, &bytes), Some(record));
            let short = RawSuperblock {
                fs_sbsize: LOG_RECORD_AT as i32,
                ..raw.clone()
            };
            assert_eq!(LogRecord::parse(&short, order, &bytes), None);
            for at in LOG_RECORD_AT..LOG_RECORD_END {
                bytes[at] ^= 1;
                assert_eq!(LogRecord::parse(&raw, order, &bytes), None, "byte {at}");
                bytes[at] ^= 1;
            }
        }
    }
}
