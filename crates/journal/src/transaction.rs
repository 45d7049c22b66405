//! A whole transaction at once: for recovery, which writes before a file system is in use, and for
//! tests.

use backstitch_device::Buffer;
use backstitch_layout::BlockNumber;

use crate::format::checksum::crc32;
use crate::format::{
    ChecksumKind, MAGIC_BYTES, Sequence, Superblock, commit, descriptor, escape, revoke,
};
use crate::recovery::Journal;
use crate::rules::{Rule, holds};
use crate::{Error, Fault, Result};

/// What a transaction changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Blocks with their new contents.
    pub copies: Vec<(u64, Vec<u8>)>,
    /// Blocks of which older copies must not come home.
    pub revokes: Vec<u64>,
    /// When, in seconds since 1970 and nanoseconds.
    pub time: (u64, u32),
}

impl Transaction {
    /// The blocks of the log that it takes, in their order: revoke blocks, descriptors with their
    /// copies, the commit block.
    pub fn encode(&self, sb: &Superblock, sequence: Sequence) -> Vec<Buffer> {
        let share = |(home, bytes): &(u64, Vec<u8>)| (*home, Buffer::from(&bytes[..]));
        let copies: Vec<(u64, Buffer)> = self.copies.iter().map(share).collect();
        encode(sb, sequence, &copies, &self.revokes, self.time)
    }
}

/// The number of blocks that `revokes` revocations take at a transaction's beginning.
pub(crate) fn revoke_blocks(sb: &Superblock, revokes: usize) -> usize {
    let per_block = revoke::capacity(sb.block_bytes, sb.features, &sb.checksums()).max(1);
    revokes.div_ceil(per_block)
}

/// How many blocks of the log a transaction takes.
pub(crate) fn log_blocks(sb: &Superblock, copies: usize, revokes: usize) -> usize {
    let per_descriptor = sb.tag_format().capacity(sb.block_bytes).max(1);
    revoke_blocks(sb, revokes) + copies + copies.div_ceil(per_descriptor) + 1
}

/// Encodes a transaction as blocks of the log. Copies that need no escape are shared, not copied.
pub(crate) fn encode(
    sb: &Superblock,
    sequence: Sequence,
    copies: &[(u64, Buffer)],
    revokes: &[u64],
    time: (u64, u32),
) -> Vec<Buffer> {
    let (checksums, format) = (sb.checksums(), sb.tag_format());
    let mut log: Vec<Buffer> = Vec::new();
    let mut sum = !0;
    let room = revoke::capacity(sb.block_bytes, sb.features, &checksums).max(1);
    for part in revokes.chunks(room) {
        let block = revoke::encode(sb.block_bytes, sb.features, &checksums, sequence, part);
        log.push(block.into());
    }
    for part in copies.chunks(format.capacity(sb.block_bytes).max(1)) {
        let mut tags = Vec::new();
        let mut logged: Vec<Buffer> = Vec::new();
        for (home, contents) in part {
            let is_escaped = contents.starts_with(&MAGIC_BYTES) && holds(Rule::CopiesAreEscaped);
            let copy = match is_escaped {
                false => contents.clone(),
                true => {
                    let mut copy = contents.to_vec();
                    escape(&mut copy);
                    copy.into()
                }
            };
            tags.push((*home, is_escaped, checksums.of_copy(sequence, &copy)));
            logged.push(copy);
        }
        let uuid = &sb.uuid;
        let block = descriptor::encode(sb.block_bytes, &format, &checksums, uuid, sequence, &tags);
        log.push(block.into());
        log.append(&mut logged);
    }
    if checksums.kind == ChecksumKind::Transaction {
        for block in &log[revoke_blocks(sb, revokes.len())..] {
            sum = crc32(sum, block);
        }
    }
    let end = commit::encode(sb.block_bytes, &checksums, sequence, time, sum);
    log.push(end.into());
    log
}

impl Journal<'_> {
    /// How many copies a transaction in an empty log can have, without revocations.
    pub fn capacity(&self) -> usize {
        let sb = self.superblock();
        let per_descriptor = sb.tag_format().capacity(sb.block_bytes).max(1);
        let log = sb.log_blocks().saturating_sub(1) as usize;
        let descriptors = log.div_ceil(per_descriptor + 1);
        log - descriptors
    }

    /// Writes a transaction into an empty log. When this returns it is stable: a recovery brings it
    /// home.
    ///
    /// The commit point is the superblock that leads to the transaction.
    ///
    /// # Errors
    /// [`Error::Incompatible`] where the journal has features that we do not write,
    /// [`Error::Corrupt`] where the log is not empty, the transaction does not fit, or it would
    /// change the journal's own blocks; the device's.
    pub fn write_alone(&mut self, transaction: &Transaction) -> Result<()> {
        let sb = self.superblock();
        let unwritable = sb.features.unwritable();
        if !unwritable.is_empty() {
            let features = unwritable.join(", ");
            return Err(Error::Incompatible { features });
        }
        let (first, sequence) = (sb.first, sb.sequence);
        let is_own = |copy: &&(u64, Vec<u8>)| self.device().map().is_own(BlockNumber(copy.0));
        if let Some((home, _)) = transaction.copies.iter().find(is_own) {
            let fault = Fault::WouldChangeJournal { home: *home };
            return Err(Error::corrupt(first, fault));
        }
        let log = transaction.encode(sb, sequence);
        if !sb.is_empty() || log.len() > sb.log_blocks() as usize {
            return Err(Error::corrupt(first, Fault::NoRoom));
        }
        let blocks: Vec<_> = (first..).zip(log).collect();
        self.device().write(&blocks)?;
        self.device().flush()?;
        self.write_tail(first, sequence)
    }
}
