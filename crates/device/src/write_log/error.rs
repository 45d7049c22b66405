//! What can be wrong with a log.

use thiserror::Error;

/// The result of reading or writing a log.
pub type LogResult<T> = std::result::Result<T, LogError>;

/// What can be wrong with a log. Messages name the log and the place in it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LogError {
    /// The host cannot open the file.
    #[error("{log}: {what}: {reason}")]
    Open {
        /// The log's name.
        log: String,
        /// What was attempted.
        what: &'static str,
        /// What the host said.
        reason: String,
    },
    /// The host refused to read or write.
    #[error("{log}: {what} at byte {at_bytes}: {reason}")]
    Io {
        /// The log's name.
        log: String,
        /// What was attempted.
        what: &'static str,
        /// Where in the log.
        at_bytes: u64,
        /// What the host said.
        reason: String,
    },
    /// The file is no log at all.
    #[error("{log}: not a log in the dm-log-writes format: {reason}")]
    NotALog {
        /// The log's name.
        log: String,
        /// What is missing or wrong in the first sector.
        reason: String,
    },
    /// A log of an unknown kind.
    #[error("{log}: an unsupported kind of log: {reason}")]
    Unsupported {
        /// The log's name.
        log: String,
        /// What is unknown.
        reason: String,
    },
    /// An entry makes no sense, or the file ends inside it.
    #[error("{log}: entry {entry} at byte {at_bytes} of the log: {reason}")]
    Entry {
        /// The log's name.
        log: String,
        /// The entry's number, from 0.
        entry: u64,
        /// Where its header starts.
        at_bytes: u64,
        /// What is wrong.
        reason: String,
    },
}

/// The host's words without the number that the standard library adds.
pub(crate) fn reason_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
