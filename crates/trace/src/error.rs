//! What can be wrong with a trace.

use thiserror::Error as ThisError;

/// What is wrong in a chunk.
#[derive(Clone, Copy, Debug, ThisError, PartialEq, Eq)]
pub enum Damage {
    /// It ends in the middle of a record.
    #[error("a record ends too early")]
    Short,
    /// A number is larger than it can be.
    #[error("a number is out of range")]
    Number,
    /// A code has no meaning.
    #[error("code {0} has no meaning")]
    Kind(u8),
    /// It does not begin as a chunk does.
    #[error("a chunk was expected")]
    Chunk,
    /// Its checksum is not that of its bytes.
    #[error("the checksum of a chunk is wrong")]
    Checksum,
}

/// Why a trace cannot be read, or not to its end.
#[derive(Clone, Debug, ThisError, PartialEq)]
pub enum Error {
    /// It is something else.
    #[error("not a trace of patches")]
    NoTrace,
    /// It is of a version that this one does not know.
    #[error("a trace of version {0}; this is for version {VERSION}", VERSION = crate::VERSION)]
    Version(u16),
    /// It is damaged.
    #[error("damaged in the chunk that ends at byte {at_bytes}: {damage}")]
    Damaged {
        /// Where the chunk ends.
        at_bytes: u64,
        /// How.
        damage: Damage,
    },
    /// It has no contents, and they are needed.
    #[error("the trace was recorded without contents")]
    NoContents,
    /// It was not all taken down.
    #[error("the trace is not complete: records are missing at its end")]
    Incomplete,
    /// There is no such moment in it.
    #[error("the trace has no such moment: it ends at record {records}, {seconds:.3} s")]
    NoMoment {
        /// How many records it has.
        records: u64,
        /// When it ends.
        seconds: f64,
    },
    /// Nothing could be written to the device.
    #[error("{0}")]
    Device(String),
}
