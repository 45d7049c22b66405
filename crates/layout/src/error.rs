//! Errors of a layout's operations, as POSIX and a person need them; and why a step of one did not
//! come to its end, which nobody outside sees.

use crate::{Corruption, Structure};
use backstitch_device::DeviceError;
use thiserror::Error;

/// The result of what is done as a whole.
pub type Result<T> = std::result::Result<T, Error>;

/// The result of a step of an operation.
pub type Step<T> = std::result::Result<T, Stop>;

/// Why a step did not come to its end. But for [`Again`](Stop::Again), nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Blocks are needed that are not in memory: read what the store wants, then call again.
    Miss,
    /// The step was done, and there is more: call again (long truncations).
    Again,
    /// Something has to come first: see to it, then call again.
    WaitFor(Awaited),
    /// The operation cannot be done.
    Failed(Error),
}

/// What has to come before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Deferred work, by which space may become free: write out.
    Frees,
    /// The names of directories, settled by the reclaim: a crash may have left a directory with
    /// two.
    Names,
    /// The reclaim of what a crash left, by which space may become free.
    Reclaim,
    /// The end of the running transaction.
    Transaction,
}

impl Stop {
    /// The error for a caller that can have nothing done first: for it, space that may become free
    /// does not exist.
    pub fn into_error(self) -> Error {
        match self {
            Stop::Failed(error) => error,
            Stop::WaitFor(Awaited::Frees | Awaited::Reclaim) => Error::NoSpace,
            Stop::WaitFor(Awaited::Names | Awaited::Transaction) | Stop::Miss | Stop::Again => {
                Error::Busy
            }
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<DeviceError> for Stop {
    fn from(error: DeviceError) -> Stop {
        Stop::Failed(error.into())
    }
}

impl From<backstitch_ordering::Miss> for Stop {
    fn from(_: backstitch_ordering::Miss) -> Stop {
        Stop::Miss
    }
}

impl From<Awaited> for Stop {
    fn from(awaited: Awaited) -> Stop {
        Stop::WaitFor(awaited)
    }
}

/// Why an operation could not be done. Nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// `ENOENT`
    #[error("no such file or directory")]
    NotFound,
    /// `EEXIST`
    #[error("file exists")]
    Exists,
    /// `ENOTDIR`
    #[error("not a directory")]
    NotADirectory,
    /// `EISDIR`
    #[error("is a directory")]
    IsADirectory,
    /// `ENOTEMPTY`
    #[error("directory not empty")]
    NotEmpty,
    /// `ENOSPC`
    #[error("no space left on device")]
    NoSpace,
    /// `EFBIG`
    #[error("file too large")]
    FileTooLarge,
    /// `ENAMETOOLONG`
    #[error("file name too long")]
    NameTooLong,
    /// `EMLINK`
    #[error("too many links")]
    TooManyLinks,
    /// `EINVAL`
    #[error("invalid argument")]
    Invalid,
    /// `EPERM`
    #[error("operation not permitted")]
    NotPermitted,
    /// `EACCES`
    #[error("permission denied")]
    AccessDenied,
    /// `EROFS`
    #[error("read-only file system")]
    ReadOnly,
    /// `ENODATA`
    #[error("no such attribute")]
    NoAttribute,
    /// `ERANGE`
    #[error("result too large")]
    Range,
    /// `EOPNOTSUPP`
    #[error("operation not supported")]
    NotSupported,
    /// `ENXIO`
    #[error("no such device or address")]
    NoSuchAddress,
    /// `EBUSY`: a volume is in the file, or on the directory.
    #[error("a volume of the stack uses it")]
    Busy,
    /// `EXDEV`
    #[error("in another file system")]
    OtherFileSystem,
    /// `ELOOP`
    #[error("too many levels of symbolic links")]
    Loop,
    /// `EUCLEAN`: the image contradicts itself.
    #[error("corrupt file system: {0}")]
    Corrupt(Corruption),
    /// The image uses what this version cannot read or write: *incompatible* is not *corrupt*.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The rest of the file system is in a log on another device, which was not given: what is
    /// missing, in words. How it is named differs from command to command.
    #[error("{0}")]
    LogElsewhere(String),
    /// `EIO`
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Error {
    /// A [`Error::Corrupt`].
    pub fn corrupt(
        structure: Structure,
        fault: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        Error::Corrupt(Corruption::new(structure, fault))
    }
}
