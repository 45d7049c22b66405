//! What is to be changed of a file system that nobody has mounted.

use backstitch_device::DeviceError;
use thiserror::Error;

use crate::FormatError;

/// What is to be changed; `None` stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tune {
    /// The label, at most 16 bytes.
    pub label: Option<Vec<u8>>,
    /// The UUID; zeros for none.
    pub uuid: Option<[u8; 16]>,
    /// The blocks kept for root.
    pub reserved: Option<Reserved>,
    /// The time of the change, in seconds since 1970.
    pub time_seconds: u64,
}

/// How many blocks are kept for root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reserved {
    /// A number of them.
    Blocks(u64),
    /// A part of the file system, 0 to 50 percent.
    Percent(f64),
}

/// Why a file system was not changed.
#[derive(Debug, Error)]
pub enum TuneError {
    /// A value is out of its range.
    #[error("{0}")]
    BadOption(String),
    /// The file system's state or features forbid the change.
    #[error("{0}")]
    Refused(String),
    /// It is no file system that we know.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
