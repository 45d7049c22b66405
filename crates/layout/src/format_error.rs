//! What can be wrong with an image: *not one*, *one that is too new*, *damaged*.

use crate::{Corruption, Structure};
use thiserror::Error;

/// Why bytes could not be taken for what they should be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FormatError {
    /// The magic number is missing: this is something else, or nothing.
    #[error("not {wanted} file system: {what}")]
    NotAFileSystem {
        /// What was looked for: `an ext2`.
        wanted: &'static str,
        /// What was found instead.
        what: String,
    },
    /// The image is intact but uses what this version does not know.
    #[error("unsupported feature: {features}")]
    Incompatible {
        /// The features by their mke2fs names, separated by commas.
        features: String,
    },
    /// The image contradicts itself or its device.
    #[error("corrupt: {0}")]
    Corrupt(Corruption),
}

impl FormatError {
    /// A [`FormatError::Corrupt`].
    pub fn corrupt(
        structure: Structure,
        fault: impl std::error::Error + Send + Sync + 'static,
    ) -> FormatError {
        FormatError::Corrupt(Corruption::new(structure, fault))
    }
}
