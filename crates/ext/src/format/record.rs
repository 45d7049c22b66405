//! Our own record in the superblock: which mechanism had the image mounted.
//!
//! # Format
//!
//! 24 bytes at 0x3e4 of the superblock, the last ones of `s_reserved` (0x284 … 0x3fb in Linux 6 and
//! e2fsprogs 1.47, both of which write them back as they found them). New fields have always been
//! taken from the front of that area; the four bytes after the record are `s_checksum`.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0x3e4 | 4 | `r_magic` | 0x55535342, "BSSU" |
//! | 0x3e8 | 1 | `r_mechanism` | [`CrashRecord`] |
//! | 0x3e9 | 1 | `r_version` | 1 |
//! | 0x3ea | 2 | `r_mount_count` | `s_mnt_count` of that mount |
//! | 0x3ec | 8 | `r_mount_time` | seconds since 1970; its low 32 bits are `s_mtime` of that mount |
//! | 0x3f4 | 4 | `r_atomic_unit` | the unit in bytes that the mechanism took for atomic |
//! | 0x3f8 | 4 | `r_check` | CRC-32C of the superblock's UUID and the 20 bytes above |
//!
//! # Order of writing
//!
//! The record lies in the superblock's second sector, `s_state`, `s_mtime` and `s_mnt_count` in its
//! first. Where a sector is the atomic unit the record must be stable *before* the first sector
//! says "not clean" with its time and count: a crash between the two leaves a clean image with a
//! record of no mount, which nobody looks at. Software that does not know the record (the kernel,
//! fuse2fs) changes time and count when it mounts the image. The record then no longer matches, and
//! the image is not trusted.

use backstitch_ordering::CrashRecord;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `r_magic`: "BSSU".
pub const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"BSSU");
/// The record's size.
pub const RECORD_SIZE: usize = size_of::<RawMountRecord>();

const RECORD_VERSION: u8 = 1;

/// The record as it is on the disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawMountRecord {
    pub r_magic: U32,
    pub r_mechanism: u8,
    pub r_version: u8,
    pub r_mount_count: U16,
    pub r_mount_time: U64,
    pub r_atomic_unit: U32,
    pub r_check: U32,
}

/// Which mechanism had the image mounted, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountRecord {
    /// The mechanism's record.
    pub mechanism: CrashRecord,
    /// `s_mnt_count` of that mount.
    pub mount_count: u16,
    /// When, in seconds since 1970.
    pub mount_time_seconds: u64,
    /// The unit that the mechanism took for atomic.
    pub atomic_unit_bytes: u32,
}

impl MountRecord {
    /// Reads the record of the superblock that has this UUID; `None` where there is none, or where
    /// its check fails.
    pub fn parse(record: &RawMountRecord, uuid: &[u8; 16]) -> Option<MountRecord> {
        if record.r_magic.get() != RECORD_MAGIC
            || record.r_version != RECORD_VERSION
            || record.r_check.get() != check(record, uuid)
        {
            return None;
        }
        Some(MountRecord {
            mechanism: CrashRecord::from_code(record.r_mechanism)?,
            mount_count: record.r_mount_count.get(),
            mount_time_seconds: record.r_mount_time.get(),
            atomic_unit_bytes: record.r_atomic_unit.get(),
        })
    }

    /// The bytes to put at [`OFFSET_RECORD`](super::superblock::OFFSET_RECORD) of the superblock that has this UUID.
    pub fn encode(&self, uuid: &[u8; 16]) -> [u8; RECORD_SIZE] {
        let mut raw = RawMountRecord {
            r_magic: RECORD_MAGIC.into(),
            r_mechanism: self.mechanism.code(),
            r_version: RECORD_VERSION,
            r_mount_count: self.mount_count.into(),
            r_mount_time: self.mount_time_seconds.into(),
            r_atomic_unit: self.atomic_unit_bytes.into(),
            r_check: U32::new(0),
        };
        raw.r_check = check(&raw, uuid).into();
        let mut bytes = [0; RECORD_SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Whether the record is of the mount that the superblock's time and count tell of: only then
    /// is a dirty image what this mechanism left.
    pub fn matches(&self, mount_time: u32, mount_count: u16) -> bool {
        self.mount_time_seconds as u32 == mount_time && self.mount_count == mount_count
    }
}

/// The check over the UUID and everything before `r_check`.
fn check(record: &RawMountRecord, uuid: &[u8; 16]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(uuid), &record.as_bytes()[..RECORD_SIZE - 4])
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn record_survives_and_is_bound_to_its_image() {
        assert_eq!(RECORD_SIZE, 24);
        let record = MountRecord {
            mechanism: CrashRecord::SOFT,
            mount_count: 7,
            mount_time_seconds: 0x1_2345_6789,
            atomic_unit_bytes: 512,
        };
        let uuid = [3; 16];
        assert_eq!(
            MountRecord::parse(&RawMountRecord::new_zeroed(), &uuid),
            None
        );
        let raw: RawMountRecord = zerocopy::transmute!(record.encode(&uuid));
        assert_eq!(MountRecord::parse(&raw, &uuid), Some(record));
        assert!(record.matches(0x2345_6789, 7) && !record.matches(0x2345_6789, 8));
        assert_eq!(MountRecord::parse(&raw, &[4; 16]), None);
        for code in 0..=255 {
            let record = CrashRecord::from_code(code);
            let listed = CrashRecord::ALL.into_iter().find(|r| r.code() == code);
            assert_eq!(record, listed, "{code}");
        }
    }
}
