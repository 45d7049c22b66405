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
    /// There is no such moment in it.
    #[error(
        "the trace has no such moment: it ends at #{last}, {seconds:.3}s, {}",
        batches_text(.batches)
    )]
    NoMoment {
        /// The number of its last record.
        last: u64,
        /// When it ends.
        seconds: f64,
        /// The numbers of its first and last batch.
        batches: Option<(u64, u64)>,
    },
    /// Nothing could be written to the device.
    #[error("{0}")]
    Device(String),
}

/// Which batches a trace has, in words.
fn batches_text(batches: &Option<(u64, u64)>) -> String {
    match batches {
        Some((first, last)) => format!("and has batches {first} to {last}"),
        None => "and has no batches".to_owned(),
    }
}

/// Why a recording is not all there.
#[derive(Debug, ThisError)]
pub enum RecordingError {
    /// The writer failed.
    #[error("{0}")]
    Writer(#[from] std::io::Error),
    /// Events came faster than they could be written, or there was no more room for them. What came
    /// before is a trace, which says so at its end.
    #[error("at least {events} events could not be kept: the trace ends before them")]
    Lost {
        /// How many, as long as somebody counted.
        events: u64,
        /// What there is.
        kept: Written,
    },
}

/// What was written of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The length of the trace.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
}
