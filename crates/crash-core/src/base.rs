//! What forks of an image have in common.

/// The bytes that forks have in common.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) bytes: Vec<u8>,
    /// Bytes of them that are the file system's device; behind them comes that of its journal,
    /// where there is one.
    pub(crate) home_bytes: usize,
    pub(crate) block_bytes: usize,
    /// Which blocks are nothing but zeros.
    pub(crate) zero: Vec<bool>,
}
