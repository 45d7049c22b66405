//! What can go wrong while exploring.

use backstitch_device::write_log::LogError;
use thiserror::Error;

/// The result of a step of the exploration.
pub type ScheduleResult<T> = std::result::Result<T, ScheduleError>;

/// What can go wrong while exploring: never a state that fails its check, which is a finding.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ScheduleError {
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
        /// Where it writes.
        offset_bytes: u64,
        /// How much.
        len_bytes: u64,
    },
    /// The host refused something.
    #[error("{place}: {what}: {reason}")]
    Host {
        /// A path.
        place: String,
        /// What was tried.
        what: &'static str,
        /// What the host said.
        reason: String,
    },
    /// The check itself cannot be run.
    #[error("{command}: the check cannot be run: {reason}")]
    Check {
        /// The user's command.
        command: String,
        /// Why.
        reason: String,
    },
    /// Somebody asked to stop.
    #[error("the exploration: stopped")]
    Stopped,
    /// A state that was asked for is none of this log's.
    #[error("{state}: no state of this log: {reason}")]
    NoState {
        /// What was asked for.
        state: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Makes a [`ScheduleError::Host`] of what the host said about a path.
pub(crate) fn at<'a>(
    what: &'static str,
    path: &'a std::path::Path,
) -> impl Fn(std::io::Error) -> ScheduleError + 'a {
    move |error| {
        let text = error.to_string();
        let end = text.find(" (os error").unwrap_or(text.len());
        ScheduleError::Host {
            place: path.display().to_string(),
            what,
            reason: text[..end].to_owned(),
        }
    }
}
