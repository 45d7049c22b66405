//! What an engine's operation can fail with.

use backstitch_device::DeviceError;
use thiserror::Error;

/// The result of an engine's operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What an engine's operation can fail with.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The layout refused.
    #[error(transparent)]
    Layout(#[from] backstitch_layout::Error),
    /// A write or a flush failed earlier; since then nothing can be changed or made durable.
    #[error("the device failed earlier, nothing can be written any more: {0}")]
    Latched(DeviceError),
    /// A patchgroup does not allow this.
    #[error(transparent)]
    Group(#[from] backstitch_ordering::GroupError),
    /// An impossible atomic unit.
    #[error(
        "the atomic unit cannot be {bytes} bytes: it must be a power of two from 512 to the block size, {block_bytes}"
    )]
    AtomicUnit {
        /// The unit that was asked for.
        bytes: u32,
        /// The size of a block.
        block_bytes: u32,
    },
    /// A copy of the mounted file system could not be made.
    #[error("{0}")]
    Snapshot(String),
    /// A step asked for something that cannot be done at this place: a fault of this program.
    #[error("a step did not come to its end: {0:?}")]
    Unfinished(backstitch_layout::Stop),
    /// Patches are left that nothing can write: a fault of this program.
    #[error("{patches} patches are left that cannot be written")]
    Stuck {
        /// How many.
        patches: u64,
    },
}

impl Error {
    /// The error number for system calls.
    pub fn errno(&self) -> i32 {
        use backstitch_layout::Error as E;
        match self {
            Error::Latched(_) | Error::Stuck { .. } | Error::Unfinished(_) | Error::Snapshot(_) => {
                5
            }
            Error::Group(e) => {
                use backstitch_ordering::GroupError as G;
                match e {
                    G::Unknown => 9,
                    G::Engaged => 16,
                    G::Sealed | G::Used | G::NotEngaged | G::Itself => 22,
                    G::TooMany => 24,
                }
            }
            Error::AtomicUnit { .. } => 22,
            Error::Layout(e) => match e {
                E::NotPermitted => 1,
                E::NotFound => 2,
                E::Device(_) => 5,
                E::NoSuchAddress => 6,
                E::AccessDenied => 13,
                E::Busy => 16,
                E::Exists => 17,
                E::OtherFileSystem => 18,
                E::NotADirectory => 20,
                E::IsADirectory => 21,
                E::Invalid => 22,
                E::FileTooLarge => 27,
                E::NoSpace => 28,
                E::ReadOnly => 30,
                E::TooManyLinks => 31,
                E::Range => 34,
                E::NameTooLong => 36,
                E::NotEmpty => 39,
                E::Loop => 40,
                E::NoAttribute => 61,
                E::NotSupported | E::Unsupported(_) | E::LogElsewhere(_) => 95,
                E::Corrupt(_) => 117,
            },
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        Error::Layout(error.into())
    }
}
