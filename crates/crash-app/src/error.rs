//! What can go wrong while a program is recorded or explored. A state that fails its check is no
//! error but a finding.

use std::path::PathBuf;
use std::process::ExitStatus;

use backstitch_crash_core::error::StepError;
use thiserror::Error;

/// The result of a step of the exploration.
pub type AppResult<T> = std::result::Result<T, AppError>;

/// What can go wrong.
#[derive(Debug, Error)]
pub enum AppError {
    /// A step that all explorations share.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The image could not be made.
    #[error("the image: cannot make a file system: {0}")]
    Mkfs(#[from] backstitch_layout::tools::MkfsError),
    /// A device in memory failed.
    #[error("the image: {0}")]
    Device(#[from] backstitch_device::DeviceError),
    /// The engine did not mount the image on which the program runs.
    #[error("the image: cannot mount: {0}")]
    Engine(#[from] backstitch_vfs::Error),
    /// The system did not mount it.
    #[error(transparent)]
    Mount(#[from] backstitch_fuse::MountError),
    /// The trace cannot be repeated.
    #[error("operation {number} of the trace, '{operation}': {error}")]
    Replay {
        /// Counted from 1; 0 for the mount.
        number: usize,
        /// The operation.
        operation: String,
        /// What the engine says.
        error: backstitch_layout::Error,
    },
    /// The program itself failed.
    #[error("{command}: the program failed: {status}")]
    Program {
        /// The user's command.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// A file of a trace that cannot be read.
    #[error("{path}: {why}")]
    Trace {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The named state is not one of this trace.
    #[error("{place}: no state of this trace: {why}")]
    NoState {
        /// The name.
        place: String,
        /// What is wrong with it.
        why: String,
    },
}
