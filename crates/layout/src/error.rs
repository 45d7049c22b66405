//! Errors of a layout's operations, as POSIX and a person need them.

use backstitch_device::DeviceError;
use thiserror::Error;

/// The result of a layout's operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation could not be done. Nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// Blocks are needed that are not in memory: read what the store wants, then call again.
    #[error("blocks are missing from the cache")]
    Miss,
    /// Space may become free: deferred work is under way. Write out, then call again.
    #[error("waiting for deferred frees")]
    WaitForFrees,
    /// A crash may have left a directory with two names: call again once the reclaim has settled
    /// the names.
    #[error("waiting for the names to be settled after a crash")]
    WaitForNames,
    /// Space may become free: a crash left some that is not reclaimed yet. Call again once it is.
    #[error("waiting for the reclaim of what a crash left")]
    WaitForReclaim,
    /// The running transaction is to come after something that waits for it: call again once it is
    /// ended.
    #[error("waiting for the running transaction to end")]
    WaitForTransaction,
    /// The step was done, and there is more: call again (long truncations).
    #[error("more steps to do")]
    Again,
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
    #[error("corrupt file system: {where_}: {what}")]
    Corrupt {
        /// Where, in words (`inode 12`, `group 3's block bitmap`).
        where_: String,
        /// What was expected and what was found.
        what: String,
    },
    /// The image uses what this version cannot read or write: *incompatible* is not *corrupt*.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// `EIO`
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Error {
    /// A [`Error::Corrupt`].
    pub fn corrupt(where_: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Corrupt {
            where_: where_.into(),
            what: what.into(),
        }
    }
}

impl From<backstitch_ordering::Miss> for Error {
    fn from(_: backstitch_ordering::Miss) -> Error {
        Error::Miss
    }
}
