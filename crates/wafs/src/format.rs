//! The bytes on the device; docs/FORMAT.md has them in tables.
//!
//! Two superblocks, in blocks 0 and 1, and the log behind them, used in a circle. A log sequence
//! number (LSN) is an offset into the log as if it never turned: it lies at that offset modulo the
//! log's length. All numbers are little-endian.

use crate::rules::{Rule, holds};
use crate::{Lsn, WafsError};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a block: the unit of reading and writing. The log's length is a multiple of it.
pub const BLOCK_BYTES: u64 = 4096;
/// Where the log begins: behind the blocks of both superblocks.
pub const LOG_OFFSET_BYTES: u64 = 2 * BLOCK_BYTES;
/// The shortest log.
pub const LEAST_LOG_BYTES: u64 = 4 * BLOCK_BYTES;
/// Records begin at multiples of this.
pub const RECORD_ALIGNMENT_BYTES: u64 = 8;
/// The version of the format.
pub const VERSION: u32 = 1;
/// The longest payload of any log; a log shorter than four times this takes a
/// [quarter](longest_payload) of its length.
pub const LONGEST_PAYLOAD_BYTES: u64 = 64 << 20;

/// The generation and the mount number of a superblock are less than this. Both grow by one at a
/// time, so no log in use ever reaches it.
pub const COUNTS_END: u64 = 1 << 63;

/// "BSTCHWAL".
pub const MAGIC: [u8; 8] = *b"BSTCHWAL";
/// The flag of a superblock that an unmount wrote: its end is the log's.
pub const IS_CLEAN: u32 = 1;
/// The owner of a log that any program may append to.
pub const OF_PROGRAMS: u32 = 0;
/// The owner of a file system's log of operations: only that file system's mounts write it.
pub const OF_FILE_SYSTEM: u32 = 1;

const _: () = {
    assert!(size_of::<Superblock>() == Superblock::BYTES);
    assert!(size_of::<RecordHeader>() as u64 == RecordHeader::BYTES);
};

/// The longest payload that a log of this length takes.
pub fn longest_payload(log_bytes: u64) -> u64 {
    LONGEST_PAYLOAD_BYTES.min(log_bytes / 4 - RecordHeader::BYTES)
}

/// A superblock: one sector, which a device writes wholly or not at all.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// CRC-32C of the sector, with zeros here.
    pub checksum: U32,
    /// Made by mkfs at random: tells this log's records from those of another log that was on the
    /// device.
    pub uuid: [u8; 16],
    /// One more in each superblock that is written. Even ones go to block 0.
    pub generation: U64,
    /// The length of the log: a multiple of [`BLOCK_BYTES`].
    pub log_bytes: U64,
    /// The LSN of the oldest record that is kept.
    pub start: U64,
    /// All kept records before this LSN were on the device when this was written. The search for
    /// the log's end begins here; records from here on were appended by this mount.
    pub end: U64,
    /// How many times the log was mounted for writing.
    pub mount: U64,
    /// [`IS_CLEAN`].
    pub flags: U32,
    /// The bytes from the beginning of the record before `end` to `end`; 0 where there is none.
    pub last_record_bytes: U32,
    /// When it was written: nanoseconds since 1970.
    pub time: U64,
    /// Whose log it is: [`OF_PROGRAMS`], or [`OF_FILE_SYSTEM`].
    pub owner: U32,
    /// Zeros.
    pub unused: [u8; 420],
}

impl Superblock {
    /// The length of a superblock.
    pub const BYTES: usize = 512;

    /// The block that this one goes to.
    pub fn block(&self) -> u64 {
        self.generation.get() % 2
    }

    /// The checksum that it should have.
    pub fn right_checksum(&self) -> u32 {
        let mut copy = *self;
        copy.checksum = U32::ZERO;
        crc32c::crc32c(copy.as_bytes())
    }

    /// Reads a superblock, which must fit a device of this size.
    ///
    /// # Errors
    /// What is wrong with a superblock that has the right magic number; `None` for a sector without
    /// it.
    pub fn read(sector: &[u8], size_bytes: u64) -> Result<Superblock, Option<String>> {
        let (sb, _) = Superblock::read_from_prefix(sector).map_err(|_| None)?;
        if sb.magic != MAGIC {
            return Err(None);
        }
        if holds(Rule::SuperblockChecksum) && sb.checksum != sb.right_checksum() {
            return Err(Some("its checksum is wrong".into()));
        }
        // In a later version other fields may have other meanings: only the version is looked at.
        if sb.version != VERSION {
            return Ok(sb);
        }
        sb.check(size_bytes).map_err(Some)?;
        Ok(sb)
    }

    fn check(&self, size_bytes: u64) -> Result<(), String> {
        let (log, start, end) = (self.log_bytes.get(), self.start.get(), self.end.get());
        let is_whole = log.is_multiple_of(BLOCK_BYTES) && log >= LEAST_LOG_BYTES;
        let fits = log
            .checked_add(LOG_OFFSET_BYTES)
            .is_some_and(|b| b <= size_bytes);
        if !is_whole || !fits {
            return Err(format!(
                "a log of {log} bytes cannot be on a device of {size_bytes}"
            ));
        }
        let (generation, mount) = (self.generation.get(), self.mount.get());
        if generation >= COUNTS_END || mount >= COUNTS_END {
            return Err(format!(
                "generation {generation} and mount {mount} are too high"
            ));
        }
        let is_live = end.checked_sub(start).is_some_and(|live| live <= log);
        let is_aligned = (start | end).is_multiple_of(RECORD_ALIGNMENT_BYTES);
        let is_far = u64::MAX - end < 2 * log;
        if !is_live || !is_aligned || is_far {
            return Err(format!(
                "a log from LSN {start} to {end} cannot be in {log} bytes"
            ));
        }
        Ok(())
    }
}

/// What stands before each record's payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecordHeader {
    /// CRC-32C of the log's [seed] and of the header behind this field.
    pub checksum: U32,
    /// CRC-32C of the payload.
    pub payload_checksum: U32,
    /// The payload's length.
    pub len_bytes: U32,
    /// The bytes from the beginning of the record before this one to this one's; 0 for the first one
    /// of a log.
    pub back_bytes: U32,
    /// Where the record begins.
    pub lsn: U64,
    /// When it was appended, in nanoseconds since 1970; never before the record before it.
    pub time: U64,
    /// The number of the mount that appended it.
    pub mount: U64,
}

impl RecordHeader {
    /// The length of a header.
    pub const BYTES: u64 = 40;

    /// The checksum that it should have in a log with this [seed].
    pub fn right_checksum(&self, seed: u32) -> u32 {
        let seed = if holds(Rule::RecordsAreOfThisLog) {
            seed
        } else {
            0
        };
        crc32c::crc32c_append(seed, &self.as_bytes()[4..])
    }

    /// The length of the record: with its header and its padding.
    pub fn record_bytes(&self) -> u64 {
        record_bytes(self.len_bytes.get().into())
    }
}

/// The length of a record with a payload of `len_bytes`.
pub fn record_bytes(len_bytes: u64) -> u64 {
    (RecordHeader::BYTES + len_bytes).next_multiple_of(RECORD_ALIGNMENT_BYTES)
}

/// The checksum of a payload.
pub fn checksum(payload: &[u8]) -> u32 {
    crc32c::crc32c(payload)
}

/// The value that the checksums of a log's records start from.
pub fn seed(uuid: &[u8; 16]) -> u32 {
    crc32c::crc32c(uuid)
}

/// Both superblocks of a device, and which one counts.
#[derive(Debug)]
pub struct Superblocks {
    /// The one that counts.
    pub newer: Superblock,
    /// What is wrong with the other one; `None` where nothing is.
    pub damaged: Option<String>,
}

impl Superblocks {
    /// Chooses between what is in the first sectors of blocks 0 and 1 of a device.
    ///
    /// # Errors
    /// Where none can be believed, or is of a version that this code does not know.
    pub fn choose(
        device: &str,
        size_bytes: u64,
        sectors: [&[u8]; 2],
    ) -> Result<Superblocks, WafsError> {
        let device = || device.to_owned();
        let [first, second] = sectors.map(|sector| Superblock::read(sector, size_bytes));
        let (newer, damaged) = match (first, second) {
            (Err(None), Err(None)) => return Err(WafsError::NotALog { device: device() }),
            (Err(first), Err(second)) => {
                let (first, second) = (reason(first), reason(second));
                return Err(WafsError::Superblocks {
                    device: device(),
                    first,
                    second,
                });
            }
            (Ok(one), Err(error)) | (Err(error), Ok(one)) => (one, Some(reason(error))),
            (Ok(one), Ok(two)) => {
                let is_first = one.generation.get() > two.generation.get();
                let newer = if is_first == holds(Rule::NewerSuperblockCounts) {
                    one
                } else {
                    two
                };
                (newer, None)
            }
        };
        match newer.version.get() {
            VERSION => Ok(Superblocks { newer, damaged }),
            found => Err(WafsError::Version {
                device: device(),
                found,
                known: VERSION,
            }),
        }
    }
}

fn reason(wrong: Option<String>) -> String {
    wrong.unwrap_or_else(|| "its magic number is wrong".into())
}

/// Where LSNs lie on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circle {
    /// The log's length.
    pub log_bytes: u64,
}

impl Circle {
    /// Where on the device an LSN lies.
    pub fn offset_bytes(self, lsn: Lsn) -> u64 {
        LOG_OFFSET_BYTES + lsn.0 % self.log_bytes
    }

    /// How many bytes lie between an LSN and the place where the log turns.
    pub fn bytes_to_turn(self, lsn: Lsn) -> u64 {
        self.log_bytes - lsn.0 % self.log_bytes
    }

    /// The free bytes of a log with this start and end: all blocks but those of the two.
    pub fn free_bytes(self, start: Lsn, end: Lsn) -> u64 {
        let from = match holds(Rule::EndKeepsOffBlockOfStart) {
            true => start.block_start().0,
            false => start.0,
        };
        (from + self.log_bytes).saturating_sub(end.0)
    }
}
