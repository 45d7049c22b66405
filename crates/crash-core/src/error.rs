//! What can go wrong in the steps that the explorations of programs and devices have in common.

use thiserror::Error;

/// The result of such a step.
pub type StepResult<T> = std::result::Result<T, StepError>;

/// What can go wrong in such a step. A state that fails its check is no error but a finding.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StepError {
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
}

/// Makes a [`StepError::Host`] of what the host said about a path.
pub fn at<'a>(
    what: &'static str,
    path: &'a std::path::Path,
) -> impl Fn(std::io::Error) -> StepError + 'a {
    move |error| {
        let text = error.to_string();
        let end = text.find(" (os error").unwrap_or(text.len());
        StepError::Host {
            place: path.display().to_string(),
            what,
            reason: text[..end].to_owned(),
        }
    }
}
