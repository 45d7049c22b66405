//! Write-ahead logging of operations, after Seltzer et al., *Journaling versus Soft Updates* (USENIX
//! 2000), §5: LFFS-file, whose log is a file of the file system, and LFFS-wafs, whose log is a
//! write-ahead file system of its own, on the same device or another one.
//!
//! The log is one of the crate `wafs`, byte for byte, wherever it lies ([`LogMap`]): checksummed
//! records, used in a circle, whose end is not stored but found. A record says what one operation
//! changed, byte by byte ([`record`]). Records are in *groups*: a group ends when a caller waits
//! for it, or after a few seconds. It counts as a whole, and its last record says that it ends.
//!
//! The crate knows these bytes ([`record`]), brings what a crash left in a log home
//! ([`recovery`]), and writes one while a file system is in use ([`module`]). It knows no layout.
//! It depends on `wafs`, `store`, `ordering` and what is below them.
//!
//! # Invariants
//!
//! * No changed block goes home before the group that changed it is in the log. So a group that is
//!   not whole in the log has left nothing on the disk that would have to be undone.
//! * Bringing a record home twice does no harm, and a crash at any point of a recovery leaves what a
//!   second one brings to the same state: the log is marked as empty once all is at home.
//! * Nothing that a log says makes recovery panic, run without end, or write outside the file system
//!   or into the log.

mod error;
pub mod module;
mod pen;
mod place;
pub mod record;
pub mod recovery;
pub mod rules;

pub use error::{Error, RecordFault, Result};
pub use module::{LffsMechanism, Setup, Variant};
pub use pen::{LEAST_LOG_BLOCKS, Pen};
pub use place::{LogDevice, LogMap};
pub use recovery::{Home, Outcome, Unmounted};
