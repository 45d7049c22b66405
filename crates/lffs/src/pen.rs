//! Where the next record of the log goes, and what the log's own bytes look like.

use backstitch_wafs::format::{
    BLOCK_BYTES, Circle, IS_CLEAN, RECORD_ALIGNMENT_BYTES, RecordHeader, Superblock, checksum,
    longest_payload, record_bytes, seed,
};
use backstitch_wafs::{Log, Lsn};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::record::LONG_BYTES;
use crate::rules::{Rule, holds};

/// The blocks of the shortest log, without its superblocks: a record has a quarter of it at most, and
/// an operation may change several blocks.
pub const LEAST_LOG_BLOCKS: u64 = 64;

/// Writes records one behind the other. Records that are appended together begin and end at the
/// border of a block, so that no block whose records are stable is written again.
#[derive(Clone, Debug)]
pub struct Pen {
    superblock: Superblock,
    seed: u32,
    block_bytes: u64,
    /// Where the next record begins.
    pub(crate) head: u64,
    /// The length of the last record, in bytes, as far as `head`; 0 where the log has none.
    pub(crate) last_bytes: u64,
    time: u64,
}

impl Pen {
    /// A pen that continues behind the end of a log whose records are all at home, in blocks of
    /// this size.
    pub fn behind(log: &Log<'_>, block_bytes: u32) -> Pen {
        let superblock = *log.superblock();
        let head = log.end().0.next_multiple_of(block_bytes.into());
        Pen {
            seed: seed(&superblock.uuid),
            block_bytes: block_bytes.into(),
            last_bytes: 0,
            time: log.last_time().max(superblock.time.get()),
            head,
            superblock,
        }
    }

    /// The log's length.
    pub fn log_bytes(&self) -> u64 {
        self.superblock.log_bytes.get()
    }

    /// The length of the shortest log in blocks of this size.
    pub fn least_bytes(&self) -> u64 {
        LEAST_LOG_BLOCKS * self.block_bytes
    }

    /// The superblock that was read or written last.
    pub(crate) fn last_superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The log's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    /// How many bytes of the log may be in use at a time.
    pub(crate) fn most_bytes(&self) -> u64 {
        // Readers read whole blocks. The one in which the oldest record begins is not written to, so
        // that they never find a new record before it.
        self.log_bytes() - BLOCK_BYTES.max(self.block_bytes)
    }

    /// The offset of a byte of the log, from the beginning of the log's place.
    pub(crate) fn offset_bytes(&self, lsn: u64) -> u64 {
        let circle = Circle {
            log_bytes: self.log_bytes(),
        };
        circle.offset_bytes(Lsn(lsn))
    }

    /// Gives the log a new UUID: the next one in a cycle of all possible values, so it differs from
    /// every one that the log has had.
    pub(crate) fn rename(&mut self) {
        // A linear congruential generator with its full period of 2^128 (Knuth, 3.2.1.2).
        const FACTOR: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
        const ADDED: u128 = 0x5851_f42d_4c95_7f2d_1405_7b7e_f767_814f;
        let name = u128::from_le_bytes(self.uuid());
        let next = name.wrapping_mul(FACTOR).wrapping_add(ADDED);
        self.superblock.uuid = next.to_le_bytes();
        self.seed = seed(&self.superblock.uuid);
    }

    /// The longest payload that a record is made with, without the zeros that fill the last record
    /// of a group up to the border of a block. Readers take a longer payload for the end of the
    /// log.
    pub(crate) fn longest_bytes(&self) -> usize {
        let longest = longest_payload(self.log_bytes());
        LONG_BYTES.min(longest.saturating_sub(2 * self.block_bytes) as usize)
    }

    /// Begins a mount, or a recovery: records that are appended from now on have a new number.
    pub(crate) fn begin_mount(&mut self) {
        if holds(Rule::MountsAreNumbered) {
            self.superblock.mount += 1;
        }
    }

    /// The length of records with payloads of these lengths.
    pub(crate) fn records_bytes(&self, payloads: impl Iterator<Item = usize>) -> u64 {
        payloads.map(|len| record_bytes(len as u64)).sum()
    }

    /// The same, where the last one ends at the border of a block.
    pub(crate) fn len_bytes(&self, payloads: impl Iterator<Item = usize>) -> u64 {
        self.records_bytes(payloads)
            .next_multiple_of(self.block_bytes)
    }

    /// Returns the bytes of records with these payloads, and moves the head behind them. The last
    /// payload gets zeros up to the border of a block.
    pub(crate) fn append(&mut self, payloads: &mut [Vec<u8>], time: u64) -> Vec<u8> {
        let len = self.len_bytes(payloads.iter().map(Vec::len));
        self.time = self.time.max(time);
        let mut bytes = Vec::with_capacity(len as usize);
        let before = self.head;
        let mut last = payloads.len();
        for payload in payloads {
            last -= 1;
            if last == 0 {
                let whole = len - bytes.len() as u64 - RecordHeader::BYTES;
                payload.resize(whole as usize, 0);
            }
            assert!(
                payload.len() as u64 <= longest_payload(self.log_bytes()),
                "readers take a record of {} bytes",
                payload.len()
            );
            let mut header = RecordHeader {
                checksum: U32::ZERO,
                payload_checksum: checksum(payload).into(),
                len_bytes: (payload.len() as u32).into(),
                back_bytes: (self.last_bytes as u32).into(),
                lsn: (before + bytes.len() as u64).into(),
                time: self.time.into(),
                mount: self.superblock.mount,
            };
            header.checksum = header.right_checksum(self.seed).into();
            self.last_bytes = header.record_bytes();
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(payload);
            bytes.resize(
                bytes
                    .len()
                    .next_multiple_of(RECORD_ALIGNMENT_BYTES as usize),
                0,
            );
        }
        self.head += bytes.len() as u64;
        bytes
    }

    /// The next superblock, with everything between `start` and `end` in the log, and where it goes
    /// from the beginning of the log's place on. `last_bytes`: of the record before `end`.
    pub(crate) fn superblock(
        &mut self,
        (start, end): (u64, u64),
        last_bytes: u64,
        is_clean: bool,
    ) -> (u64, Vec<u8>) {
        let sb = &mut self.superblock;
        sb.generation += 1;
        (sb.start, sb.end) = (start.into(), end.into());
        sb.last_record_bytes = (last_bytes as u32).into();
        sb.flags = U32::new(if is_clean { IS_CLEAN } else { 0 });
        sb.time = self.time.into();
        sb.checksum = sb.right_checksum().into();
        let mut block = vec![0; self.block_bytes as usize];
        block[..Superblock::BYTES].copy_from_slice(sb.as_bytes());
        (sb.block() * BLOCK_BYTES, block)
    }
}
