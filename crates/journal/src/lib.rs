//! Journals, byte-compatible with Linux's jbd2 in both directions.
//!
//! A journal is a circular log of *transactions*: copies of blocks that belong together, ended by a
//! commit record. A transaction with its commit record counts as a whole, however much of it had
//! been written to the blocks' homes; one without counts for nothing. This crate knows the bytes of
//! such a log ([`format`](mod@format)), brings home what a crash left in one ([`recovery`]), lists
//! one for people ([`dump`]), and writes one while a file system is in use ([`module`]).
//!
//! It stands beside `ordering`. It may depend on `device`, `store`, `patch`, `ordering`, and on
//! `layout` for the types by which any layout describes its log: a
//! [`JournalMap`](backstitch_layout::JournalMap) leads from the journal's blocks to a device's. It
//! knows no layout by name. A layout's `mkfs` and `fsck` use [`format`](mod@format) for the journal
//! that they make and check.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | log block, *position* | a block of the journal, counted from its start |
//! | home | where a logged block belongs on the file system's device |
//! | tail | the first transaction that is not yet wholly at home: `s_start` and `s_sequence` |
//! | revoked | logged in some transaction, and later freed: older copies must not come home over what the block holds now |
//! | escaped | a copy that begins with the journal's magic number, which is zeroed in the log so that no scan takes it for a record |
//!
//! # Invariants
//!
//! * Nothing that a log says makes recovery panic, run without end, write outside the file system,
//!   or write into the journal. Everything is checked before anything is written.
//! * Recovery writes the homes first, flushes, and only then marks the log as empty. A crash at any
//!   point leaves a log that recovers to the same bytes.
//! * A log that this crate cannot replay completely (unknown features, fast commits) is not
//!   replayed at all.

mod device;
pub mod dump;
mod error;
mod fault;
pub mod format;
pub mod module;
pub mod recovery;
pub mod rules;
mod transaction;

pub use device::JournalDevice;
pub use error::{Error, Result};
pub use fault::Fault;
pub use module::{JournalMechanism, JournalMode, Setup};
pub use recovery::Journal;
pub use transaction::Transaction;
