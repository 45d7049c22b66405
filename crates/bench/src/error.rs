//! Why a run failed.

use std::path::{Path, PathBuf};

use backstitch_device::DeviceError;
use thiserror::Error;

/// The result of a step.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a run failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The engine refused an operation.
    #[error(transparent)]
    Engine(#[from] backstitch_vfs::Error),
    /// No file system could be made.
    #[error("making the file system: {0}")]
    Mkfs(#[from] backstitch_layout::tools::MkfsError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A system call on a path failed.
    #[error("{}: {error}", path.display())]
    Host {
        /// The path.
        path: PathBuf,
        /// The host's error.
        error: std::io::Error,
    },
    /// A workload read something other than it wrote.
    #[error("{what}: {expected} bytes expected, {found} read")]
    ShortRead {
        /// The file.
        what: String,
        /// Bytes that were written.
        expected: u64,
        /// Bytes that were read.
        found: u64,
    },
    /// The check could not be done.
    #[error("checking: {0}")]
    Check(#[from] backstitch_layout::tools::CheckError),
    /// The image is damaged after a run: a fault of this program.
    #[error(
        "the image has {findings} findings after {workload} under {ordering}, the first: {first}"
    )]
    NotClean {
        /// The workload.
        workload: &'static str,
        /// The mechanism.
        ordering: String,
        /// How many.
        findings: usize,
        /// The first one in words.
        first: String,
    },
    /// A crash left an image that needs no recovery: a fault of this program.
    #[error("{}: the crash left nothing to recover", .0.display())]
    NothingToRecover(PathBuf),
    /// A reclaim did not complete.
    #[error("the reclaim: {0}")]
    Reclaim(String),
    /// All tasks of a simulated machine wait for something that never happens: a fault of this
    /// program.
    #[error("the simulated machine has come to a standstill")]
    Standstill,
    /// No log of operations could be made.
    #[error("making the log: {0}")]
    Log(#[from] backstitch_wafs::WafsError),
    /// There is no such drive.
    #[error(transparent)]
    Drive(#[from] backstitch_drives::SpecError),
    /// A workload needs patchgroups.
    #[error(
        "patchgroups: only with the engine in this process (in memory, on an image or a simulated disk)"
    )]
    NoPatchgroups,
    /// A scale that makes no sense.
    #[error("{0}")]
    Scale(String),
    /// Events of a recording were lost, since they could not be written fast enough.
    #[error("{}: the disk is too slow for the recording: {events} events are missing at its end", .path.display())]
    NotRecorded {
        /// The recording.
        path: PathBuf,
        /// How many events are missing.
        events: u64,
    },
    /// A picture could not be drawn.
    #[error("drawing: {0}")]
    Plot(String),
}

impl Error {
    /// Turns an error of the host's at a path into one of this crate.
    pub fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |error| Error::Host { path, error }
    }
}
