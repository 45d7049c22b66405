//! What can be wrong with a journal.

use backstitch_device::DeviceError;
use thiserror::Error;

/// The result of an operation on a journal.
pub type Result<T> = std::result::Result<T, Error>;

/// What can be wrong with a journal: *none*, *one that is too new*, *damaged*, or the device fails.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// There is no journal where one should be.
    #[error("not a journal: {what}")]
    NotAJournal {
        /// What was found instead.
        what: String,
    },
    /// The journal uses what this version does not know.
    #[error("the journal uses {features}")]
    Incompatible {
        /// The features by their names, separated by commas.
        features: String,
    },
    /// The journal contradicts itself, or the place where it is.
    #[error("the journal is damaged: block {position}: {what}")]
    Corrupt {
        /// The block, counted from the journal's start.
        position: u32,
        /// What was expected and what was found.
        what: String,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Error {
    /// A [`Error::Corrupt`].
    pub fn corrupt(position: u32, what: impl Into<String>) -> Error {
        Error::Corrupt {
            position,
            what: what.into(),
        }
    }
}
