//! What can go wrong while exploring.

use backstitch_crash_core::error::StepError;
use backstitch_device::write_log::LogError;
use thiserror::Error;

/// The result of a step of the exploration.
pub type ScheduleResult<T> = std::result::Result<T, ScheduleError>;

/// What can go wrong while exploring. A state that fails its check is no error but a finding.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ScheduleError {
    /// A step that all explorations share.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log does not belong to the base.
    #[error(
        "{base}: it has {base_bytes} bytes, but entry {entry} of the log changes {len_bytes} bytes at {offset_bytes}: it is not the image that the log was recorded on"
    )]
    Outside {
        /// The base's name.
        base: String,
        /// Its size.
        base_bytes: u64,
        /// The entry.
        entry: u64,
        /// The offset of its write.
        offset_bytes: u64,
        /// The length of its write.
        len_bytes: u64,
    },
    /// The named state is not one of this log.
    #[error("{state}: no state of this log: {reason}")]
    NoState {
        /// The name.
        state: String,
        /// What is wrong with it.
        reason: String,
    },
}
