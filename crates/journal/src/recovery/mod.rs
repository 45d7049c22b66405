//! Bringing home what a crash left in the log.
//!
//! # Three passes
//!
//! 1. *Scan* (`scan`): from the tail on, transaction after transaction, as long as each is
//!    complete. The log ends at the first block that is no record of the transaction expected
//!    there, or at a commit block whose checksum is wrong: that one was torn.
//! 2. *Revoke* (`revoked`): which blocks were freed, and in which transaction last.
//! 3. *Replay* (`replay`): of each block the newest copy that was not revoked later goes home.
//!
//! # Before anything is written
//!
//! Every home is checked to lie inside the file system and outside the journal, and every checksum
//! is checked. So a log that cannot be replayed completely is not replayed at all, unless
//! [`Damage::Skip`] asks for it.
//!
//! # A crash in the middle
//!
//! Homes are written first and flushed, and only then does the superblock say that the log is
//! empty. Until then the log is as it was, and replaying it again writes the same bytes: no other
//! writer has changed the device in between.

mod revoked;
mod scan;

use backstitch_layout::{BlockNumber, HomeContents};
use std::collections::BTreeMap;
use std::mem::offset_of;

use backstitch_device::{BlockDevice, Buffer, WriteRequest};
use serde::Serialize;

use crate::format::superblock::{RawSuperblock, SUPERBLOCK_BYTES};
use crate::format::{BlockKind, ChecksumKind, Header, Sequence, Superblock, unescape};
use crate::rules::{Rule, holds};
use crate::{Error, Fault, JournalDevice, Result};

pub use revoked::Revoked;
pub use scan::{Copy, Ending, Scan};

/// Bytes that are read and written at once.
const BATCH_BYTES: usize = 1 << 20;

/// An open journal: its blocks, and its superblock.
#[derive(Clone)]
pub struct Journal<'d> {
    device: JournalDevice<'d>,
    superblock: Superblock,
}

/// The device whose blocks the journal logs.
#[derive(Clone, Copy)]
pub struct Home<'d> {
    /// The device.
    pub device: &'d dyn BlockDevice,
    /// How many blocks of it, counted in the journal's blocks, belong to the file system.
    pub blocks: u64,
    /// What is known of the blocks. Asked under [`Damage::Skip`] only.
    pub contents: &'d dyn HomeContents,
}

/// What to do where a copy does not have the checksum in its tag, or the log contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Replay nothing.
    Refuse,
    /// Leave the copy out, as e2fsck does; the file system needs a check. Transactions before a
    /// record that contradicts the log are replayed; the record and everything behind it is given
    /// up.
    Skip,
}

/// What a recovery did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The transactions replayed.
    pub transactions: u32,
    /// The blocks written home.
    pub blocks: u64,
    /// Copies left out because that transaction or a later one revoked them.
    pub revoked: u64,
    /// Copies left out because their checksum is wrong, or they have no place in the log or no
    /// home.
    pub skipped: u64,
    /// The damage behind which the log was given up; `None` where all is well.
    pub cut_short: Option<String>,
    /// How the log ended.
    pub ending: Ending,
}

impl Outcome {
    /// Whether something is missing, so that the file system must be checked.
    pub fn is_damaged(&self) -> bool {
        self.skipped > 0 || self.cut_short.is_some()
    }
}

impl<'d> Journal<'d> {
    /// Reads a journal's superblock.
    ///
    /// # Errors
    /// Where it is none or cannot be believed; the device's.
    pub fn open(device: JournalDevice<'d>) -> Result<Journal<'d>> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let position = device.map().superblock();
        device.read(position, &mut bytes)?;
        let blocks = device.map().blocks();
        let superblock = Superblock::parse(&bytes, device.block_bytes(), blocks, position)?;
        Ok(Journal { device, superblock })
    }

    /// Opens a journal whose superblock is damaged: see [`Superblock::mended`]. If the place where
    /// the log begins is lost, it is searched for. Returns what was wrong.
    ///
    /// # Errors
    /// Where the block cannot be a journal's superblock; the device's.
    pub fn open_damaged(device: JournalDevice<'d>) -> Result<(Journal<'d>, Vec<String>)> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let position = device.map().superblock();
        device.read(position, &mut bytes)?;
        let blocks = device.map().blocks();
        let (superblock, wrong) =
            Superblock::mended(&bytes, device.block_bytes(), blocks, position)?;
        let mut journal = Journal { device, superblock };
        let had_log = bytes[offset_of!(RawSuperblock, s_start)..][..4] != [0; 4];
        if had_log && journal.superblock.is_empty() {
            let start = journal.find_start().unwrap_or(0);
            let sequence = journal.superblock.sequence;
            journal.superblock.set_tail(start, sequence);
        }
        Ok((journal, wrong))
    }

    /// The first record of the transaction that the superblock names: of its records, the one that
    /// is farthest before the transaction's commit record, around the log. Without a commit record
    /// nothing is replayed, and any will do.
    fn find_start(&self) -> Option<u32> {
        let sb = &self.superblock;
        let mut begins = Vec::new();
        let mut commit = None;
        for position in sb.first..sb.end {
            let header = self.read(position).ok();
            let header = header.and_then(|block| Header::parse(&block));
            let header = header.filter(|header| header.sequence == sb.sequence);
            match header.and_then(|header| header.kind()) {
                Some(BlockKind::Commit) => commit = Some(position),
                Some(BlockKind::Descriptor | BlockKind::Revoke) => begins.push(position),
                _ => {}
            }
        }
        let (end, log) = (commit.unwrap_or(sb.first), u64::from(sb.log_blocks()));
        let distance = |position: &u32| (u64::from(end) + log - u64::from(*position)) % log;
        begins.into_iter().max_by_key(distance)
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The blocks.
    pub fn device(&self) -> &JournalDevice<'d> {
        &self.device
    }

    /// A whole block of the journal.
    ///
    /// # Errors
    /// The device's.
    pub fn read(&self, position: u32) -> Result<Vec<u8>> {
        let mut block = vec![0; self.device.block_bytes() as usize];
        self.device.read(position, &mut block)?;
        Ok(block)
    }

    /// Writes the superblock with another tail, and flushes: see [`Superblock::set_tail`].
    ///
    /// # Errors
    /// The device's.
    pub fn write_tail(&mut self, start: u32, sequence: Sequence) -> Result<()> {
        self.superblock.set_tail(start, sequence);
        let bytes = Buffer::from(&self.superblock.encode()[..]);
        let position = self.device.map().superblock();
        self.device.write(&[(position, bytes)])?;
        match holds(Rule::TailIsFlushed) {
            true => self.device.flush(),
            false => Ok(()),
        }
    }

    /// Looks at the log, and changes nothing: what a recovery would replay.
    ///
    /// # Errors
    /// As [`recover`](Self::recover) with [`Damage::Refuse`], but for checksums of copies, which
    /// are not read.
    pub fn scan(&self, home_blocks: u64) -> Result<Scan> {
        self.scan_with(home_blocks, Damage::Refuse)
    }

    /// As [`scan`](Self::scan); with [`Damage::Skip`] up to the first damage.
    ///
    /// # Errors
    /// As [`recover`](Self::recover), but for checksums of copies, which are not read.
    pub fn scan_with(&self, home_blocks: u64, damage: Damage) -> Result<Scan> {
        let unknown = self.superblock.features.unreplayable();
        if !unknown.is_empty() {
            let features = unknown.join(", ");
            return Err(Error::Incompatible { features });
        }
        scan::scan(self, home_blocks, damage)
    }

    /// Replays the log, and marks it as empty.
    ///
    /// The commit point is the superblock that says "empty": until then the log is replayed again.
    ///
    /// # Errors
    /// [`Error::Incompatible`] where it uses what cannot be replayed, [`Error::Corrupt`] where it
    /// contradicts itself and `damage` is [`Damage::Refuse`]: nothing was written then. The
    /// devices' errors: the log is still there, and can be replayed again.
    pub fn recover(&mut self, home: &Home<'_>, damage: Damage) -> Result<Outcome> {
        let mut scan = self.scan_with(home.blocks, damage)?;
        let revoked = self.revoked(&mut scan, damage)?;
        let chosen = self.choose(&scan, &revoked, home, damage)?;
        self.write_home(home, &chosen.copies)?;
        // Skip as many numbers as the log has blocks, at least as many as it has transactions: no
        // record that is given up can be taken for a new one.
        let given_up = scan
            .cut_short
            .as_ref()
            .map_or(0, |_| self.superblock.blocks);
        self.write_tail(0, Sequence(scan.end.next().0.wrapping_add(given_up)))?;
        Ok(Outcome {
            transactions: scan.end.distance(scan.first),
            blocks: chosen.copies.len() as u64,
            revoked: chosen.revoked,
            skipped: chosen.skipped,
            cut_short: scan.cut_short,
            ending: scan.ending,
        })
    }

    /// The revocations. With [`Damage::Skip`] the log ends before a transaction with a damaged
    /// revoke block.
    fn revoked(&self, scan: &mut Scan, damage: Damage) -> Result<Revoked> {
        loop {
            match Revoked::read(self, scan) {
                Err(error @ Error::Corrupt { position, .. }) if damage == Damage::Skip => {
                    let bad = scan.revokes.iter().find(|(at, _)| *at == position);
                    let Some((_, sequence)) = bad.copied() else {
                        return Err(error);
                    };
                    scan.cut(sequence, &error);
                }
                read => return read,
            }
        }
    }

    /// Whether a copy's home is inside the file system and outside the journal.
    fn check_home(&self, copy: &Copy, home_blocks: u64) -> Result<()> {
        let (sequence, home) = (copy.sequence, copy.home);
        let fault = if home >= home_blocks {
            Fault::HomeOutside { sequence, home }
        } else if self.device.map().is_own(BlockNumber(home)) {
            Fault::HomeInJournal { sequence, home }
        } else {
            return Ok(());
        };
        Err(Error::corrupt(copy.position, fault))
    }

    /// The newest good copy of each home.
    fn choose(
        &self,
        scan: &Scan,
        revoked: &Revoked,
        home: &Home<'_>,
        damage: Damage,
    ) -> Result<Chosen> {
        let mut chosen = Chosen::default();
        for copy in &scan.copies {
            if revoked.covers(copy.home, copy.sequence) {
                chosen.revoked += 1;
                continue;
            }
            let checked = self.check_copy(copy, home.blocks);
            let checked = match (checked, damage) {
                (Ok(()), Damage::Skip) => self.check_contents(copy, home),
                (checked, _) => checked,
            };
            match checked {
                Ok(()) => {
                    let place = (copy.position, copy.is_escaped);
                    if chosen.copies.contains_key(&copy.home) && !holds(Rule::NewestCopyComesHome) {
                        continue;
                    }
                    chosen.copies.insert(copy.home, place);
                }
                Err(Error::Corrupt { .. }) if damage == Damage::Skip => chosen.skipped += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(chosen)
    }

    /// Whether a copy has a home, a place in the log, and the checksum in its tag.
    fn check_copy(&self, copy: &Copy, home_blocks: u64) -> Result<()> {
        self.check_home(copy, home_blocks)?;
        let checksums = self.superblock.checksums();
        if checksums.are_per_block() {
            let found = checksums.of_copy(copy.sequence, &self.read(copy.position)?);
            if found != copy.checksum && holds(Rule::CopyChecksumIsChecked) {
                return Err(wrong_checksum(copy, found, checksums.kind));
            }
        } else if self.device.map().block(copy.position).is_none() {
            return Err(Error::corrupt(copy.position, Fault::NoPlace));
        }
        Ok(())
    }

    /// Whether a copy can be what its home holds.
    fn check_contents(&self, copy: &Copy, home: &Home<'_>) -> Result<()> {
        let mut bytes = self.read(copy.position)?;
        if copy.is_escaped {
            unescape(&mut bytes);
        }
        if home.contents.can_hold(copy.home, &bytes) {
            return Ok(());
        }
        let fault = Fault::Contents { home: copy.home };
        Err(Error::corrupt(copy.position, fault))
    }

    /// Writes copies to their homes, and flushes.
    fn write_home(&self, home: &Home<'_>, copies: &BTreeMap<u64, (u32, bool)>) -> Result<()> {
        let block_bytes = u64::from(self.device.block_bytes());
        let mut batch: Vec<WriteRequest> = Vec::new();
        let mut waiting = 0;
        for (block, (position, is_escaped)) in copies {
            let mut bytes = self.read(*position)?;
            if *is_escaped && holds(Rule::CopiesAreUnescaped) {
                unescape(&mut bytes);
            }
            let offset_bytes = block * block_bytes;
            waiting += bytes.len();
            match batch.last_mut() {
                Some(last) if last.offset_bytes + last.len_bytes() == offset_bytes => {
                    last.buffers.push(bytes.into());
                }
                _ => batch.push(WriteRequest {
                    offset_bytes,
                    buffers: vec![bytes.into()],
                }),
            }
            if waiting >= BATCH_BYTES {
                home.device.submit(&batch)?;
                batch.clear();
                waiting = 0;
            }
        }
        if !batch.is_empty() {
            home.device.submit(&batch)?;
        }
        if holds(Rule::HomeIsFlushedBeforeTail) {
            home.device.flush()?;
        }
        Ok(())
    }
}

/// The copies that go home, and the number of those that do not.
#[derive(Default)]
struct Chosen {
    /// By home: the position in the log, and whether the copy is escaped.
    copies: BTreeMap<u64, (u32, bool)>,
    revoked: u64,
    skipped: u64,
}

fn wrong_checksum(copy: &Copy, found: u32, kind: ChecksumKind) -> Error {
    let fault = Fault::CopyChecksum {
        home: copy.home,
        sequence: copy.sequence,
        found,
        expected: copy.checksum,
        kind,
    };
    Error::corrupt(copy.position, fault)
}
