//! What an exploration finds wrong with the engine, beside what the engine finds in the image.

use backstitch_layout::Structure;
use thiserror::Error;

/// Where a fault is in the engine and not in the image.
pub const ENGINE: Structure = Structure::Sole("engine");

/// What is wrong.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// A task needs more steps than any task does.
    #[error("it does not come to an end")]
    NoEnd,
    /// A task waits, and there is nothing that it could wait for.
    #[error("it waits for nobody")]
    WaitsForNobody,
    /// The file system was made read-only in the middle of a workload.
    #[error("{0}")]
    ReadOnly(String),
    /// A block of a host file came into use with what was on the disk before.
    #[error("it shows what the disk held before")]
    ShowsOldContents,
    /// A block of a host file that lost its place.
    #[error("it is gone")]
    Gone,
}
