//! The engine that all fronts share: operations on inodes, from many threads, over one store.
//!
//! It adds what the layers below deliberately do not have: the lock, the clock, the threads and the
//! I/O. Work of more than one step is a task of `session`, which `drive` polls. It depends on
//! `session` and what is below it, and knows no particular layout.
//!
//! # Locks
//!
//! There is one lock, over the session (the store, the mechanism, the layout), and **it is never
//! held across device I/O**:
//!
//! * An operation that misses blocks lets go, reads them, and starts over; until it has everything
//!   it has changed nothing.
//! * File contents are read straight from the device after the lock was let go. Should blocks have
//!   become free meanwhile (another file might own them by now), the read is done again.
//! * A batch of writes is put together under the lock, written and flushed without it, and reported
//!   complete under it again.
//!
//! # Who writes
//!
//! One thread writes what expires, and more where memory fills up, and does the layout's deferred
//! work. A caller that needs something on stable storage (fsync) leads a batch of its own, or waits
//! for one under way and finds its wish fulfilled by it: concurrent callers share flushes. A caller
//! that makes changes while memory is crowded waits until some have been retired.
//!
//! # When the device fails
//!
//! * **A read**: `EIO` for the operation that needs the block, nothing else; the same operation may
//!   succeed when it is repeated.
//! * **A write or a flush**: everything since the last good flush is written again, a few times
//!   within a fraction of a second (`persist`). Where that succeeds nobody notices but `stats`.
//!   Where it does not, the failure is **latched**: nothing is written any more, what would change
//!   something is answered with `EROFS`, and [`Stats::read_only`] says why. What is in memory and
//!   what is on the disk stays readable, also what never reached the disk.
//! * **fsync** after that fails with `EIO` for every file (and every open handle of it) that has
//!   changes which are not on stable storage, each time: they never will be, and a success would be
//!   a lie. For a file without such changes it succeeds, since nothing is missing. A caller that
//!   names its open file ([`Engine::open`]) gets the loss reported once for each, as in Linux.
//! * **Unmounting** then fails at once and leaves the image as a crash would. If the device comes
//!   back, the image has to be mounted anew.

mod directories;
mod drive;
mod ending;
mod engine;
mod error;
mod for_user;
mod gather;
mod gathered;
mod groups;
mod mounting;
mod observer;
mod open_file;
mod operations;
mod options;
mod persist;
mod reclaim;
mod snapshot;
pub mod stack;
mod stats;
mod stream;
mod taken;
mod transfer;
mod trim;
mod under;
mod writer;

pub use backstitch_layout::{
    AccessTimes, Allocate, Attributes, Changed, DirectoryEntry, Error as LayoutError,
    FileSystemStatistics, FileType, InodeNumber, LayoutKind, NewInode, RenameMode, Seek,
    SetAttributes, SetXattrMode, Structure, Timestamp, flags,
};
pub use backstitch_mechanisms::Ordering;
pub use backstitch_ordering::{GroupError, GroupId, User};
pub use backstitch_session::log::default_ordering;
pub use backstitch_store::Optimisations;
pub use engine::Engine;
pub use error::{Error, Result};
pub use for_user::ForUser;
pub use observer::Observer;
pub use open_file::OpenFile;
pub use options::{LEAST_CACHE_BYTES, MountOptions, RecoveryReport, now};
pub use stats::{
    CacheStats, DeferredStats, GroupStats, MemoryStats, PatchStats, ReclaimStats, Stall,
    StallStats, Stats, SyncerStats, UndoStats,
};
pub use transfer::{Unsynced, step_bytes};
pub use under::Under;
