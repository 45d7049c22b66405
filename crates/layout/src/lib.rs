//! What every file-system layout offers to the layers above it, and the types both sides speak.
//!
//! A *layout* (ext2, UFS, …) knows where things are on the disk. It states every change as patches
//! with soft-updates dependencies, whatever the mechanism, through an ordering's
//! [`Volume`](backstitch_ordering::Volume). It knows no mechanism, no FUSE, no clock and no
//! threads. This crate depends on `ordering`, `store`, `patch`, `device` and `rules`;
//! layouts implement [`LayoutKind`], [`FileSystem`] and [`tools::Tools`], and fronts and `vfs` use
//! them.
//!
//! # Gather, then apply
//!
//! Every operation of [`FileSystem`] first *gathers*: it reads what it needs and decides what it
//! will do, changing nothing. A block that is not in memory ends it with [`Stop::Miss`]; the
//! caller reads the wanted blocks without holding the lock, and calls again. Once everything is in
//! memory the operation *applies*: it creates its patches and cannot fail. So an error means that
//! nothing was changed.

mod corruption;
mod error;
pub mod flags;
mod format_error;
mod fs;
mod journal;
mod journal_map;
mod log;
pub mod operations;
mod pieces;
pub mod steps;
pub mod tools;
mod types;

pub use backstitch_ordering::BlockNumber;
pub use corruption::{Corruption, Structure};
pub use error::{Awaited, Error, Result, Step, Stop};
pub use format_error::FormatError;
pub use fs::{
    Changed, DeferredStatistics, FileSystem, FreeSpaceReader, LayoutKind, OpenRequest, Opened,
    ReclaimProgress, ReclaimStep, Rename,
};
pub use journal::{
    ChangedBlock, HomeContents, JournalHost, JournalLocation, JournalPlace, Left, LogNote,
    NotedPlace, Orphans, RecoveryMark,
};
pub use journal_map::{JournalMap, JournalRun, MapError, MapFault};
pub use log::{
    Findable, FoundLog, LOG_FILE_NAME, LogDamage, LogDevice, LogKind, LogRecord, LogReport,
    LogSite, LogTrial,
};
pub use pieces::{Piece, pieces_of_blocks};
pub use types::*;
