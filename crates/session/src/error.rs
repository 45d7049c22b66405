//! The errors of sessions and tasks.

use backstitch_device::DeviceError;
use backstitch_layout::Stop;
use thiserror::Error;

/// The result of a task.
pub type Result<T> = std::result::Result<T, Error>;

/// What a task or a mount of a session can fail with.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The layout refused, or a block could not be read.
    #[error(transparent)]
    Layout(#[from] backstitch_layout::Error),
    /// A write or a flush failed; since then nothing can be changed or made durable.
    #[error("the device failed earlier, nothing can be written any more: {0}")]
    Latched(DeviceError),
    /// A step asks for what cannot be done for it here: a fault of this program.
    #[error("a step did not come to its end: {0:?}")]
    Unfinished(Stop),
    /// Patches are left that nothing can write: a fault of this program.
    #[error("{patches} patches are left that cannot be written")]
    Stuck {
        /// How many.
        patches: u64,
    },
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Error {
        match stop {
            Stop::Failed(error) => Error::Layout(error),
            stop => Error::Unfinished(stop),
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        Error::Layout(error.into())
    }
}
