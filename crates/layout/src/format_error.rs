//! What can be wrong with an image: *not one*, *one that is too new*, *damaged*.

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
    #[error("corrupt: {where_}: {what}")]
    Corrupt {
        /// Which structure.
        where_: String,
        /// What was expected and what was found.
        what: String,
    },
}

impl FormatError {
    /// A [`FormatError::Corrupt`].
    pub fn corrupt(where_: impl Into<String>, what: impl Into<String>) -> FormatError {
        FormatError::Corrupt {
            where_: where_.into(),
            what: what.into(),
        }
    }
}
