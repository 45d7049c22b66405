//! What can go wrong with a log outside a mount.

use backstitch_device::DeviceError;
use backstitch_wafs::WafsError;

use crate::record::MAX_SPANS;
use thiserror::Error;

/// The result of what is done with a log.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong with a log.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The device's error.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The log itself cannot be believed.
    #[error(transparent)]
    Log(WafsError),
    /// A record with the right checksums states something impossible.
    #[error("LSN {lsn}: {fault}")]
    Record {
        /// Where it begins.
        lsn: u64,
        /// What is wrong with it.
        fault: RecordFault,
    },
    /// The changes that are to be written into an empty log do not fit.
    #[error("{needed_bytes} bytes do not fit into a log of {log_bytes}")]
    NoRoom {
        /// The bytes that they take.
        needed_bytes: u64,
        /// The log's length.
        log_bytes: u64,
    },
}

impl From<WafsError> for Error {
    fn from(error: WafsError) -> Error {
        match error {
            WafsError::Device(error) => error.into(),
            error => Error::Log(error),
        }
    }
}

/// What is wrong with a record whose checksums are right.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordFault {
    /// It is no record of an operation.
    #[error("no record of an operation")]
    NoOperation,
    /// It changes a block past the file system's end.
    #[error("it changes block {0}, which there is not")]
    NoSuchBlock(u64),
    /// It changes a block of the log.
    #[error("it changes block {0}, which is the log's")]
    OwnBlock(u64),
    /// It has more spans than any record that is written.
    #[error("it has {0} spans, and {MAX_SPANS} are the most")]
    TooManySpans(usize),
    /// It changes bytes past the block's end.
    #[error("it changes bytes behind the end of block {0}")]
    BehindBlock(u64),
}
