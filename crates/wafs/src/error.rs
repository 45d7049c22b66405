//! What can go wrong with a log.

use crate::Lsn;
use backstitch_device::DeviceError;
use thiserror::Error;

/// The result of an operation on a log.
pub type Result<T> = std::result::Result<T, WafsError>;

/// What can go wrong with a log. A message says where, and what can be done.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WafsError {
    /// The device failed. After a failed write or flush the log takes nothing more until it is
    /// mounted again: nobody knows what of it is on the device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device does not begin with a superblock of ours.
    #[error("{device}: no write-ahead log here (make one with `backstitch wafs mkfs`)")]
    NotALog {
        /// The device's name.
        device: String,
    },
    /// The log is a file system's.
    #[error(
        "{device}: it is a file system's log of operations, which only that file system writes"
    )]
    OfFileSystem {
        /// The device's name.
        device: String,
    },
    /// A log of a version that this code does not know.
    #[error("{device}: a log of version {found}; this program knows version {known}")]
    Version {
        /// The device's name.
        device: String,
        /// The version that the superblock names.
        found: u32,
        /// The version that this code writes.
        known: u32,
    },
    /// Neither superblock can be used.
    #[error("{device}: both superblocks are damaged: {first}; {second}")]
    Superblocks {
        /// The device's name.
        device: String,
        /// What is wrong with the first one.
        first: String,
        /// What is wrong with the second one.
        second: String,
    },
    /// The superblock in use is older than the log: the newer one is damaged, and records from the
    /// older one's start on were overwritten.
    #[error(
        "{device}: the newer superblock is damaged, and the older one says that the log begins at \
         LSN {start}, where LSN {found} is now"
    )]
    StaleSuperblock {
        /// The device's name.
        device: String,
        /// Where the log began.
        start: Lsn,
        /// The record that is there.
        found: Lsn,
    },
    /// The device is too small for a log.
    #[error("{device}: {size_bytes} bytes are too few for a log; it takes at least {least_bytes}")]
    TooSmall {
        /// The device's name.
        device: String,
        /// Its size.
        size_bytes: u64,
        /// The least size.
        least_bytes: u64,
    },
    /// The log has no room for a record until a checkpoint lets older ones go.
    #[error(
        "the log is full: a record of {needed_bytes} bytes does not fit in the {free_bytes} that \
         are free; a checkpoint lets older records go"
    )]
    Full {
        /// What the record takes, with its header.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },
    /// No log of this size could ever take the record.
    #[error("a record of {len_bytes} bytes is too long: this log takes at most {most_bytes}")]
    TooLong {
        /// The payload's length.
        len_bytes: u64,
        /// The longest payload.
        most_bytes: u64,
    },
    /// The record was let go by a checkpoint.
    #[error("LSN {lsn} is before the log's start, {start}: a checkpoint has let it go")]
    Gone {
        /// What was asked for.
        lsn: Lsn,
        /// Where the log begins.
        start: Lsn,
    },
    /// Nothing is written there yet.
    #[error("LSN {lsn} is not before the log's end, {end}")]
    NotWritten {
        /// What was asked for.
        lsn: Lsn,
        /// Where the log ends.
        end: Lsn,
    },
    /// No record begins there, or it is damaged.
    #[error("LSN {lsn}: {reason}")]
    NotARecord {
        /// What was asked for.
        lsn: Lsn,
        /// What is wrong.
        reason: &'static str,
    },
}
