//! What can be wrong with a journal, with the numbers.

use crate::format::{ChecksumKind, Sequence};
use thiserror::Error;

/// What is wrong with a block of a journal.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// The first bytes are not a journal's.
    #[error("magic number {expected:#010x} expected, {found:#010x} found")]
    Magic {
        /// The journal's magic number.
        expected: u32,
        /// What is there.
        found: u32,
    },
    /// A block of the journal where its superblock should be.
    #[error("a block of type {0}")]
    NoSuperblock(u32),
    /// Nothing says where on the device the block is.
    #[error("it has no place on the device")]
    NoPlace,
    /// The journal ends before it.
    #[error("there is no such block")]
    NoSuchBlock,
    /// Another block of the journal has the same place.
    #[error("its place is taken twice")]
    PlaceTakenTwice,
    /// An impossible block size.
    #[error("a block size of 1024 << {log}")]
    BlockSize {
        /// Its logarithm, as the superblock has it.
        log: u32,
    },
    /// The device ends before the journal.
    #[error("{blocks} blocks do not fit onto the device")]
    LongerThanDevice {
        /// The blocks by the superblock.
        blocks: u32,
    },
    /// Both kinds of checksums of blocks (v2 and v3); a journal has one.
    #[error("superblock: journal_checksum_v2 together with journal_checksum_v3")]
    TwoKindsOfChecksum,
    /// Blocks of another size than the file system's.
    #[error("superblock: blocks of {found} bytes, {expected} expected")]
    BlockBytes {
        /// Bytes of a block by the superblock.
        found: u32,
        /// Bytes of a block of the file system.
        expected: u32,
    },
    /// More blocks than the file or the device has.
    #[error("superblock: {found} blocks, there is room for {room}")]
    TooManyBlocks {
        /// The blocks by the superblock.
        found: u32,
        /// The blocks that have a place.
        room: u32,
    },
    /// A log that begins inside or before the superblock's block, or has no room for a transaction.
    #[error("superblock: a log from block {first} to {end}")]
    LogBounds {
        /// The log's first block.
        first: u32,
        /// The first block behind it.
        end: u32,
    },
    /// The oldest transaction is outside of the log.
    #[error("superblock: the log begins at block {start}")]
    Start {
        /// Where it begins by the superblock.
        start: u32,
    },
    /// The superblock does not have its checksum.
    #[error("superblock: checksum {found:#010x}, {expected:#010x} expected")]
    SuperblockChecksum {
        /// The checksum in it.
        found: u32,
        /// The checksum of its bytes.
        expected: u32,
    },
    /// A record of a committed transaction does not have its checksum.
    #[error("wrong checksum of a record of transaction {sequence}")]
    RecordChecksum {
        /// The transaction.
        sequence: Sequence,
    },
    /// More revoked blocks than a block holds.
    #[error("a revoke block of transaction {sequence} is too long")]
    RevokeTooLong {
        /// The transaction.
        sequence: Sequence,
    },
    /// A copy of a block past the file system's end.
    #[error("transaction {sequence} has a copy of block {home}, past the file system's end")]
    HomeOutside {
        /// The transaction.
        sequence: Sequence,
        /// Where the copy belongs.
        home: u64,
    },
    /// A copy of one of the journal's own blocks.
    #[error("transaction {sequence} has a copy of block {home}, inside the journal itself")]
    HomeInJournal {
        /// The transaction.
        sequence: Sequence,
        /// Where the copy belongs.
        home: u64,
    },
    /// A copy that its home cannot hold: bytes that the file system never has there.
    #[error("no block {home} of a file system is like this")]
    Contents {
        /// Where the copy belongs.
        home: u64,
    },
    /// A copy does not have the checksum in its tag.
    #[error(
        "the copy of block {home} in transaction {sequence} has checksum {found:#0width$x}, its tag {expected:#0width$x}",
        width = if *kind == ChecksumKind::Short { 6 } else { 10 }
    )]
    CopyChecksum {
        /// Where the copy belongs.
        home: u64,
        /// The transaction.
        sequence: Sequence,
        /// The checksum of the copy's bytes.
        found: u32,
        /// The checksum in the tag.
        expected: u32,
        /// How long the checksums are.
        kind: ChecksumKind,
    },
    /// Unknown features, in a journal that is damaged in other ways, too.
    #[error("the journal uses {0}")]
    UnknownFeatures(String),
    /// A transaction to be written that would change the journal.
    #[error("a transaction would change block {home}, which is the journal's own")]
    WouldChangeJournal {
        /// The block.
        home: u64,
    },
    /// A transaction to be written that is longer than the log, or a log that is in use.
    #[error("no room for a transaction of its own")]
    NoRoom,
}
