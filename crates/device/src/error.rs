//! What can go wrong with a device.

use thiserror::Error;

/// The result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// What can go wrong with a device. Messages name the device and the place.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DeviceError {
    /// The device could not be opened.
    #[error("{device}: cannot open: {reason}")]
    Open {
        /// The device's name.
        device: String,
        /// What the host said.
        reason: String,
    },
    /// Another program holds the device.
    #[error("{device}: in use by {holder}")]
    Busy {
        /// The device's name.
        device: String,
        /// What holds it, as far as can be found out.
        holder: String,
    },
    /// A read failed.
    #[error("{device}: read of {len_bytes} bytes at {offset_bytes} failed: {reason}")]
    Read {
        /// The device's name.
        device: String,
        /// Where.
        offset_bytes: u64,
        /// How much.
        len_bytes: u64,
        /// What the host said.
        reason: String,
    },
    /// A write failed.
    #[error("{device}: write of {len_bytes} bytes at {offset_bytes} failed: {reason}")]
    Write {
        /// The device's name.
        device: String,
        /// Where.
        offset_bytes: u64,
        /// How much.
        len_bytes: u64,
        /// What the host said.
        reason: String,
    },
    /// A flush failed; what was written since the last good flush may be lost.
    #[error("{device}: flush failed: {reason}")]
    Flush {
        /// The device's name.
        device: String,
        /// What the host said.
        reason: String,
    },
    /// Nothing is written any more, because the changes in memory have no possible order.
    #[error("nothing is written any more: {reason}")]
    Abandoned {
        /// What is wrong.
        reason: String,
    },
    /// A request reaches past the device's end.
    #[error("{device}: {len_bytes} bytes at {offset_bytes} reach past its end at {size_bytes}")]
    OutOfRange {
        /// The device's name.
        device: String,
        /// Where.
        offset_bytes: u64,
        /// How much.
        len_bytes: u64,
        /// The device's size.
        size_bytes: u64,
    },
    /// A write to a device opened for reading.
    #[error("{device}: opened read-only")]
    ReadOnly {
        /// The device's name.
        device: String,
    },
}
