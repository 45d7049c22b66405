//! Our own record behind the superblock: which mechanism had the image mounted.
//!
//! # Format
//!
//! 32 bytes behind the superblock's structure, in the image's byte order. The superblock takes
//! `fs_sbsize` bytes, whole fragments of at least 1536 bytes; FreeBSD reads and writes all of them,
//! and uses the first 1376.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 1376 | 4 | `r_magic` | 0x55535342, "BSSU" |
//! | 1380 | 1 | `r_mechanism` | [`CrashRecord`] |
//! | 1381 | 1 | `r_version` | 1 |
//! | 1382 | 2 | `r_spare` | 0 |
//! | 1384 | 8 | `r_mount_time` | `fs_mtime` of that mount |
//! | 1392 | 4 | `r_atomic_unit` | the unit in bytes that the mechanism took for atomic |
//! | 1396 | 4 | `r_flags` | `fs_flags` as they are while the image is not mounted |
//! | 1400 | 4 | `r_spare_2` | 0 |
//! | 1404 | 4 | `r_check` | CRC-32C of `fs_id` and the 28 bytes above |
//!
//! # Order of writing
//!
//! `fs_mtime`, `fs_flags` and the record lie in the superblock's third sector, and one patch writes
//! them; `fs_clean` lies in the first sector and becomes 0 only after that. So a crash in between
//! leaves an image that says it is clean and needs a check, with a record that holds.
//!
//! The record is believed where `fs_mtime` and `fs_flags` are still as that mount left them. Who
//! mounts the image later without knowing the record changes `fs_mtime` (FreeBSD), or finds it not
//! clean and says so in `fs_flags`. `fsck_ffs` leaves `fs_mtime` as it is, and takes the mark for a
//! check out of `fs_flags`.

use backstitch_ordering::CrashRecord;

use crate::rules::{Rule, holds};

use super::order::{ByteOrder, OnDisk, on_disk};
use super::superblock::{FLAG_NEEDS_CHECK, FLAG_SOFT_UPDATES, RawSuperblock, SUPERBLOCK_BYTES};

/// Where the record lies, in bytes from the superblock's start.
pub const RECORD_AT: usize = SUPERBLOCK_BYTES;
/// The record's bytes.
pub const RECORD_BYTES: usize = RawMountRecord::SIZE;
/// Bytes of the superblock with the record.
pub const RECORD_END: usize = RECORD_AT + RECORD_BYTES;

const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"BSSU");
const RECORD_VERSION: u8 = 1;

on_disk! {
    /// The record as it is on the disk.
    pub struct RawMountRecord, 32 {
        pub r_magic: u32,
        pub r_mechanism: u8,
        pub r_version: u8,
        pub r_spare: u16,
        pub r_mount_time: i64,
        pub r_atomic_unit: u32,
        pub r_flags: u32,
        pub r_spare_2: u32,
        pub r_check: u32,
    }
}

/// Which mechanism had the image mounted, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountRecord {
    /// The mechanism's record.
    pub mechanism: CrashRecord,
    /// When, in seconds since 1970: `fs_mtime` of that mount.
    pub mount_time_seconds: i64,
    /// The unit in bytes that the mechanism took for atomic.
    pub atomic_unit_bytes: u32,
    /// `fs_flags` while the image is not mounted.
    pub flags: u32,
}

impl MountRecord {
    /// Reads the record behind a superblock; `None` where there is none, where its check fails, or
    /// where the superblock's time of mount and flags are no longer those that it was written with.
    pub fn parse(raw: &RawSuperblock, order: ByteOrder, bytes: &[u8]) -> Option<MountRecord> {
        let record = RawMountRecord::decode(order, bytes.get(RECORD_AT..RECORD_END)?);
        let has_room = raw.fs_sbsize as usize >= RECORD_END;
        if !has_room
            || record.r_magic != RECORD_MAGIC
            || record.r_version != RECORD_VERSION
            || record.r_check != check(&record, raw)
            || record.r_mount_time != raw.fs_mtime && holds(Rule::RecordIsOfLastMount)
        {
            return None;
        }
        let record = MountRecord {
            mechanism: CrashRecord::from_code(record.r_mechanism)?,
            mount_time_seconds: record.r_mount_time,
            atomic_unit_bytes: record.r_atomic_unit,
            flags: record.r_flags,
        };
        (record.flags_in_use() == raw.fs_flags as u32).then_some(record)
    }

    /// `fs_flags` while the image is mounted: marked for a check and, where an order is kept, as
    /// managed by soft updates.
    pub fn flags_in_use(&self) -> u32 {
        let ordered = match self.mechanism.is_trusted() {
            true => FLAG_SOFT_UPDATES,
            false => 0,
        };
        self.flags | FLAG_NEEDS_CHECK | ordered
    }

    /// The bytes to put at [`RECORD_AT`] of a superblock.
    pub fn encode(&self, superblock: &RawSuperblock, order: ByteOrder) -> Vec<u8> {
        let mut record = RawMountRecord {
            r_magic: RECORD_MAGIC,
            r_mechanism: self.mechanism.code(),
            r_version: RECORD_VERSION,
            r_mount_time: self.mount_time_seconds,
            r_atomic_unit: self.atomic_unit_bytes,
            r_flags: self.flags,
            ..RawMountRecord::default()
        };
        record.r_check = check(&record, superblock);
        record.to_bytes(order)
    }
}

/// The check over `fs_id` and everything before `r_check`, in little-endian order whatever the
/// image's is.
fn check(record: &RawMountRecord, superblock: &RawSuperblock) -> u32 {
    let id = superblock.fs_id.to_bytes(ByteOrder::Little);
    let bytes = record.to_bytes(ByteOrder::Little);
    crc32c::crc32c_append(crc32c::crc32c(&id), &bytes[..RECORD_BYTES - 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_of_one_image_and_one_mount() {
        let record = MountRecord {
            mechanism: CrashRecord::from_code(1).unwrap(),
            mount_time_seconds: 0x1_2345_6789,
            atomic_unit_bytes: 512,
            flags: 8,
        };
        let raw = RawSuperblock {
            fs_sbsize: 1536,
            fs_id: [3, 4],
            fs_mtime: record.mount_time_seconds,
            fs_flags: record.flags_in_use() as i32,
            ..RawSuperblock::default()
        };
        for order in ByteOrder::ALL {
            let mut bytes = vec![0; RECORD_END];
            let parse = |raw: &RawSuperblock, bytes: &[u8]| MountRecord::parse(raw, order, bytes);
            assert_eq!(parse(&raw, &bytes), None);
            bytes[RECORD_AT..].copy_from_slice(&record.encode(&raw, order));
            assert_eq!(parse(&raw, &bytes), Some(record));
            assert_eq!(parse(&raw, &bytes[..RECORD_END - 1]), None);
            for other in [
                RawSuperblock {
                    fs_mtime: raw.fs_mtime + 1,
                    ..raw.clone()
                },
                // As a check leaves it.
                RawSuperblock {
                    fs_flags: raw.fs_flags & !FLAG_NEEDS_CHECK as i32,
                    ..raw.clone()
                },
                RawSuperblock {
                    fs_id: [3, 5],
                    ..raw.clone()
                },
                RawSuperblock {
                    fs_sbsize: SUPERBLOCK_BYTES as i32,
                    ..raw.clone()
                },
            ] {
                assert_eq!(parse(&other, &bytes), None);
            }
            for at in RECORD_AT..RECORD_END {
                bytes[at] ^= 1;
                assert_eq!(parse(&raw, &bytes), None, "byte {at}");
                bytes[at] ^= 1;
            }
        }
    }
}
