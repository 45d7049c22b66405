//! What can be wrong with a journal.

use crate::Fault;
use backstitch_device::DeviceError;
use backstitch_layout::{MapError, MapFault};
use thiserror::Error;

/// The result of an operation on a journal.
pub type Result<T> = std::result::Result<T, Error>;

/// What can be wrong with a journal: there is *none*, it is *too new*, it is *damaged*, or the
/// device fails.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// There is no journal where one should be.
    #[error("not a journal: {0}")]
    NotAJournal(Fault),
    /// The journal uses features that this version does not know.
    #[error("the journal uses {features}")]
    Incompatible {
        /// The features by their names, separated by commas.
        features: String,
    },
    /// The journal contradicts itself, or the place where it is.
    #[error("the journal is damaged: block {position}: {fault}")]
    Corrupt {
        /// The block, counted from the journal's start.
        position: u32,
        /// What was expected and what was found.
        fault: Fault,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<MapError> for Error {
    fn from(MapError { position, fault }: MapError) -> Error {
        let fault = match fault {
            MapFault::NoPlace => Fault::NoPlace,
            MapFault::NoSuchBlock => Fault::NoSuchBlock,
            MapFault::PlaceTakenTwice => Fault::PlaceTakenTwice,
        };
        Error::corrupt(position, fault)
    }
}

impl Error {
    /// A [`Error::Corrupt`].
    pub fn corrupt(position: u32, fault: Fault) -> Error {
        Error::Corrupt { position, fault }
    }
}
