//! A log's records for people, line by line as `debugfs -R "logdump -a"` prints them.

use std::fmt;

use serde::Serialize;

use crate::Result;
use crate::format::commit::Commit;
use crate::format::{BlockKind, Header, Sequence, revoke};
use crate::recovery::Journal;

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Line {
    /// Where the log begins.
    Start {
        /// The block; 0 where the log is empty.
        position: u32,
        /// The transaction.
        sequence: u32,
    },
    /// A descriptor, and the copies behind it.
    Descriptor {
        /// The block.
        position: u32,
        /// The transaction.
        sequence: u32,
        /// The copies.
        copies: Vec<LoggedBlock>,
    },
    /// A revoke block.
    Revoke {
        /// The block.
        position: u32,
        /// The transaction.
        sequence: u32,
        /// The blocks of the file system that it revokes.
        blocks: Vec<u64>,
    },
    /// A commit block.
    Commit {
        /// The block.
        position: u32,
        /// The transaction.
        sequence: u32,
        /// When, in seconds since 1970; debugfs does not print it.
        seconds: u64,
        /// And nanoseconds.
        nanoseconds: u32,
    },
    /// A record of an unknown kind, which ends the list.
    Unexpected {
        /// The block.
        position: u32,
        /// The transaction.
        sequence: u32,
        /// The kind that its header states.
        kind: u32,
    },
    /// A block without the magic number: the log's end.
    NoMagic {
        /// The block.
        position: u32,
    },
    /// A record of another transaction: the log's end.
    OtherSequence {
        /// The block.
        position: u32,
        /// The transaction found.
        sequence: u32,
        /// The one expected.
        expected: u32,
    },
    /// The listing has gone around the log once, and ends; debugfs goes on.
    Around,
}

/// A copy in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoggedBlock {
    /// Where it belongs.
    pub block: u64,
    /// Where it is.
    pub position: u32,
    /// Its tag's flags.
    pub flags: u32,
}

fn kind_name(number: u32) -> &'static str {
    match BlockKind::of(number) {
        Some(BlockKind::Descriptor) => "descriptor block",
        Some(BlockKind::Commit) => "commit block",
        Some(BlockKind::SuperblockV1) => "V1 superblock",
        Some(BlockKind::SuperblockV2) => "V2 superblock",
        Some(BlockKind::Revoke) => "revoke table",
        None => "[undocumented]",
    }
}

/// The line that every record begins with.
fn found(f: &mut fmt::Formatter<'_>, (sequence, number, position): (u32, u32, u32)) -> fmt::Result {
    let name = kind_name(number);
    writeln!(
        f,
        "Found expected sequence {sequence}, type {number} ({name}) at block {position}"
    )
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Start { position, sequence } => {
                writeln!(
                    f,
                    "Journal starts at block {position}, transaction {sequence}"
                )
            }
            Line::Descriptor {
                position,
                sequence,
                copies,
            } => {
                found(f, (*sequence, BlockKind::Descriptor.number(), *position))?;
                writeln!(
                    f,
                    "Dumping descriptor block, sequence {sequence}, at block {position}:"
                )?;
                copies.iter().try_for_each(|copy| {
                    writeln!(
                        f,
                        "  FS block {} logged at journal block {} (flags 0x{:x})",
                        copy.block, copy.position, copy.flags
                    )
                })
            }
            Line::Revoke {
                position,
                sequence,
                blocks,
            } => {
                found(f, (*sequence, BlockKind::Revoke.number(), *position))?;
                writeln!(
                    f,
                    "Dumping revoke block, sequence {sequence}, at block {position}:"
                )?;
                blocks
                    .iter()
                    .try_for_each(|block| writeln!(f, "  Revoke FS block {block}"))
            }
            Line::Commit {
                position, sequence, ..
            } => found(f, (*sequence, BlockKind::Commit.number(), *position)),
            Line::Unexpected {
                position,
                sequence,
                kind,
            } => {
                found(f, (*sequence, *kind, *position))?;
                writeln!(f, "Unexpected block type {kind} at block {position}.")
            }
            Line::NoMagic { position } => {
                writeln!(f, "No magic number at block {position}: end of journal.")
            }
            Line::OtherSequence {
                position,
                sequence,
                expected,
            } => writeln!(
                f,
                "Found sequence {sequence} (not {expected}) at block {position}: end of journal."
            ),
            Line::Around => writeln!(f, "The whole journal is full: end of journal."),
        }
    }
}

/// Hands the records of a journal's log to `emit`, from the tail to the end, complete transactions
/// or not.
///
/// # Errors
/// The device's.
pub fn lines(journal: &Journal<'_>, emit: &mut dyn FnMut(Line)) -> Result<()> {
    let sb = journal.superblock();
    let (mut position, mut sequence) = (sb.start, sb.sequence);
    emit(Line::Start {
        position,
        sequence: sequence.0,
    });
    if sb.is_empty() {
        return Ok(());
    }
    let mut walked = 0;
    while walked < sb.log_blocks() {
        let block = journal.read(position)?;
        let Some(header) = Header::parse(&block) else {
            emit(Line::NoMagic { position });
            return Ok(());
        };
        if header.sequence != sequence {
            emit(Line::OtherSequence {
                position,
                sequence: header.sequence.0,
                expected: sequence.0,
            });
            return Ok(());
        }
        let line = record(journal, &block, header, position);
        let blocks = match &line {
            Line::Descriptor { copies, .. } => 1 + copies.len() as u32,
            _ => 1,
        };
        if header.kind() == Some(BlockKind::Commit) {
            sequence = sequence.next();
        }
        let is_end = matches!(line, Line::Unexpected { .. });
        emit(line);
        if is_end {
            return Ok(());
        }
        position = sb.advance(position, blocks);
        walked = walked.saturating_add(blocks);
    }
    emit(Line::Around);
    Ok(())
}

/// One record.
fn record(journal: &Journal<'_>, block: &[u8], header: Header, position: u32) -> Line {
    let sb = journal.superblock();
    let Sequence(sequence) = header.sequence;
    match header.kind() {
        Some(BlockKind::Descriptor) => {
            let tags = sb.tag_format().tags(block);
            let copies = (1..).zip(tags).map(|(distance, tag)| LoggedBlock {
                block: tag.block,
                position: sb.advance(position, distance),
                flags: tag.flags,
            });
            Line::Descriptor {
                position,
                sequence,
                copies: copies.collect(),
            }
        }
        Some(BlockKind::Revoke) => Line::Revoke {
            position,
            sequence,
            blocks: revoke::records(block, sb.features, &sb.checksums())
                .map(Iterator::collect)
                .unwrap_or_default(),
        },
        Some(BlockKind::Commit) => {
            let commit = Commit::parse(block);
            Line::Commit {
                position,
                sequence,
                seconds: commit.map_or(0, |commit| commit.seconds),
                nanoseconds: commit.map_or(0, |commit| commit.nanoseconds),
            }
        }
        _ => Line::Unexpected {
            position,
            sequence,
            kind: header.number,
        },
    }
}
