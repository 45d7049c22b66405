//! The first pass: which transactions are complete.

use serde::Serialize;

use super::{Damage, Journal};
use crate::format::checksum::crc32;
use crate::format::commit::Commit;
use crate::format::features::INCOMPAT_FAST_COMMIT;
use crate::format::{BlockKind, ChecksumKind, Header, Sequence};
use crate::rules::{Rule, holds};
use crate::{Error, Fault, Result};

/// The tag of the record that begins a log of fast commits; little-endian, its length follows.
const FAST_COMMIT_HEAD: u16 = 9;

/// How a log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Nothing is in it.
    Empty,
    /// The log ends with a commit block: no record of the next transaction follows.
    Commit,
    /// The last transaction has no commit block.
    Unfinished,
    /// The last transaction's checksums are wrong: it was torn.
    Checksum,
}

/// A copy in the log, in a transaction that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Where it belongs.
    pub home: u64,
    /// Where it is.
    pub position: u32,
    /// Its transaction.
    pub sequence: Sequence,
    /// Whether its magic number is zeroed.
    pub is_escaped: bool,
    /// The checksum that its tag states.
    pub checksum: u32,
}

/// What is in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The first transaction.
    pub first: Sequence,
    /// The number behind the last complete transaction's.
    pub end: Sequence,
    /// All copies, oldest first.
    pub copies: Vec<Copy>,
    /// The revoke blocks, oldest first.
    pub revokes: Vec<(u32, Sequence)>,
    /// How it ended.
    pub ending: Ending,
    /// The damage that hides what comes behind `end`; `None` where the log ends there.
    pub cut_short: Option<String>,
}

impl Scan {
    /// Leaves out a transaction and all behind it.
    pub(super) fn cut(&mut self, at: Sequence, why: &Error) {
        self.copies.retain(|copy| at.is_after(copy.sequence));
        self.revokes.retain(|(_, sequence)| at.is_after(*sequence));
        self.end = at;
        self.cut_short = Some(why.to_string());
    }
}

/// Looks at every record from the tail on. With [`Damage::Skip`] the log ends before the
/// transaction that is damaged.
pub(super) fn scan(journal: &Journal<'_>, home_blocks: u64, damage: Damage) -> Result<Scan> {
    let sb = journal.superblock();
    let mut scanner = Scanner {
        journal,
        home_blocks,
        position: sb.start,
        walked: 0,
        // Copies and revoke blocks of complete transactions.
        complete: (0, 0),
        scan: Scan {
            first: sb.sequence,
            end: sb.sequence,
            copies: Vec::new(),
            revokes: Vec::new(),
            ending: Ending::Empty,
            cut_short: None,
        },
        damage,
        transaction_checksum: !0,
        has_bad_tail: None,
        last_seconds: 0,
    };
    if !sb.is_empty() {
        scanner.scan.ending = Ending::Commit;
        loop {
            match scanner.record() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error @ Error::Corrupt { .. }) if damage == Damage::Skip => {
                    scanner.scan.cut_short = Some(error.to_string());
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        scanner.refuse_fast_commits()?;
    }
    let mut scan = scanner.scan;
    if holds(Rule::OnlyCommittedIsReplayed) {
        scan.copies.truncate(scanner.complete.0);
    }
    scan.revokes.truncate(scanner.complete.1);
    Ok(scan)
}

struct Scanner<'s, 'd> {
    journal: &'s Journal<'d>,
    home_blocks: u64,
    position: u32,
    /// The number of blocks looked at. Once it is the log's length, all blocks have been seen.
    walked: u64,
    complete: (usize, usize),
    scan: Scan,
    damage: Damage,
    /// Checksum v1 of the transaction so far.
    transaction_checksum: u32,
    /// The position of a descriptor or revoke block of this transaction whose checksum is wrong.
    has_bad_tail: Option<u32>,
    /// When the transaction before was committed.
    last_seconds: u64,
}

impl Scanner<'_, '_> {
    /// Steps over blocks.
    fn advance(&mut self, blocks: u32) {
        self.position = self.journal.superblock().advance(self.position, blocks);
        self.walked += u64::from(blocks);
    }

    fn end(&mut self, ending: Ending) -> Result<bool> {
        let is_begun =
            self.scan.copies.len() > self.complete.0 || self.scan.revokes.len() > self.complete.1;
        self.scan.ending = match ending {
            Ending::Commit if is_begun => Ending::Unfinished,
            ending => ending,
        };
        Ok(false)
    }

    /// Looks at one record. Returns whether another one may follow.
    fn record(&mut self) -> Result<bool> {
        if self.walked >= u64::from(self.journal.superblock().log_blocks())
            && holds(Rule::LogEndsOnceAround)
        {
            return self.end(Ending::Commit);
        }
        let block = self.journal.read(self.position)?;
        let header = Header::parse(&block)
            .filter(|header| header.sequence == self.scan.end || !holds(Rule::SequenceIsChecked));
        let Some(kind) = header.and_then(|header| header.kind()) else {
            return self.end(Ending::Commit);
        };
        let position = self.position;
        let checksums = self.journal.superblock().checksums();
        if matches!(kind, BlockKind::Descriptor | BlockKind::Revoke)
            && !checksums.tail_holds(&block)
        {
            self.has_bad_tail = Some(position);
        }
        match kind {
            BlockKind::Descriptor => self.descriptor(&block),
            BlockKind::Commit => self.commit(&block),
            BlockKind::Revoke => {
                self.advance(1);
                self.scan.revokes.push((position, self.scan.end));
                Ok(true)
            }
            BlockKind::SuperblockV1 | BlockKind::SuperblockV2 => self.end(Ending::Commit),
        }
    }

    fn descriptor(&mut self, block: &[u8]) -> Result<bool> {
        let sb = self.journal.superblock();
        let has_checksum = sb.checksums().kind == ChecksumKind::Transaction;
        if has_checksum {
            self.transaction_checksum = crc32(self.transaction_checksum, block);
        }
        self.advance(1);
        for tag in sb.tag_format().tags(block) {
            if self.walked >= u64::from(sb.log_blocks()) {
                return self.end(Ending::Unfinished);
            }
            if has_checksum {
                let copy = self.journal.read(self.position)?;
                self.transaction_checksum = crc32(self.transaction_checksum, &copy);
            }
            self.scan.copies.push(Copy {
                home: tag.block,
                position: self.position,
                sequence: self.scan.end,
                is_escaped: tag.is_escaped(),
                checksum: tag.checksum,
            });
            self.advance(1);
        }
        Ok(true)
    }

    fn commit(&mut self, block: &[u8]) -> Result<bool> {
        let checksums = self.journal.superblock().checksums();
        let Some(commit) = Commit::parse(block) else {
            return self.end(Ending::Unfinished);
        };
        if let Some(position) = self.has_bad_tail {
            // An older commit time shows that these blocks are left from an earlier round: the log
            // ends here. With a later time they are damaged.
            if commit.seconds < self.last_seconds {
                return self.end(Ending::Commit);
            }
            let sequence = self.scan.end;
            return Err(Error::corrupt(position, Fault::RecordChecksum { sequence }));
        }
        let is_whole = match checksums.kind {
            ChecksumKind::Transaction => commit.fits(self.transaction_checksum),
            _ => checksums.commit_holds(block),
        };
        if !is_whole && holds(Rule::CommitChecksumIsChecked) {
            let is_stale = commit.seconds < self.last_seconds;
            return self.end(if is_stale {
                Ending::Commit
            } else {
                Ending::Checksum
            });
        }
        // Under `Skip`, copies without a home are left out later, one by one.
        if self.damage == Damage::Refuse {
            for copy in &self.scan.copies[self.complete.0..] {
                self.journal.check_home(copy, self.home_blocks)?;
            }
        }
        self.last_seconds = commit.seconds;
        self.transaction_checksum = !0;
        self.complete = (self.scan.copies.len(), self.scan.revokes.len());
        self.scan.end = self.scan.end.next();
        self.advance(1);
        Ok(true)
    }

    /// Refuses a log with fast commits behind the last transaction: only software that knows their
    /// changes can replay them.
    fn refuse_fast_commits(&self) -> Result<()> {
        let sb = self.journal.superblock();
        if !sb.features.has_incompat(INCOMPAT_FAST_COMMIT) || sb.end >= sb.blocks {
            return Ok(());
        }
        let mut head = [0; 12];
        self.journal.device().read(sb.end, &mut head)?;
        let number = |at: usize, bytes: usize| {
            let part = head[at..at + bytes].iter().rev();
            part.fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
        };
        let is_head = number(0, 2) == u32::from(FAST_COMMIT_HEAD);
        if is_head && Sequence(number(8, 4)) == self.scan.end {
            return Err(Error::Incompatible {
                features: "fast_commit, and has fast commits to be replayed".into(),
            });
        }
        Ok(())
    }
}
