//! The part of an image that all its forks share.

/// The bytes that the forks share.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the file system's device, which comes first. The rest is its journal's device, if
    /// it has one.
    pub(crate) home_bytes: usize,
    pub(crate) block_bytes: usize,
    /// For each block, whether it is all zeros.
    pub(crate) zero: Vec<bool>,
}
