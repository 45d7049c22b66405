//! The buffer cache, the patch graph and write-back: **the only place that decides what is written
//! when**.
//!
//! A [`Store`] is a single-threaded, deterministic state machine. It does no I/O, reads no clock,
//! starts no thread and uses no randomness: time is an argument, blocks that are missing are asked
//! for ([`Store::take_wanted`]) and handed in ([`Store::insert`]), and writes are handed out
//! ([`Store::next_batch`]) and reported done ([`Store::complete`]). So the same store runs under
//! threads, over a simulated disk, and under a crash explorer, and every run can be replayed.
//! [`drive`] does the I/O for callers with one thread.
//!
//! It depends on `patch`, `device` and `rules`, and knows no file system and no consistency
//! mechanism.
//!
//! # Rules
//!
//! * A [`Batch`] holds at most one version of a block, and only patches whose dependencies are on
//!   stable storage or in the same unit of the same version: its writes are independent of each
//!   other, and so are the units within them. The unit is the block unless the volume's device
//!   promises less ([`Store::add_volume_with_units`]).
//! * A batch is complete only when its writes *and a flush after them* succeeded on every device it
//!   touches. On a device without a volatile cache each request may complete by itself
//!   ([`Store::split`]).
//! * Buffers are reference-counted. A version without a rollback shares the newest buffer; a later
//!   change copies it first. Readers always see the newest bytes.
//! * A volume may be on another one ([`Store::add_volume_on`]): its blocks are blocks of that, and
//!   there is one buffer for both.
//! * Dirty blocks leave by age; a block that would be written with rollbacks is passed over twice
//!   before it is.

mod batch;
mod cache;
mod complete;
pub mod drive;
mod kind;
mod limits;
mod places;
mod queue;
mod reading;
mod seal;
mod space;
mod stats;
mod store;
mod units;
mod watch;

pub use backstitch_device::{Buffer, Slab, Slabs};
pub use backstitch_patch::{
    BlockId, Change, Event, Graph, Hook, Optimisations, PatchId, PatchInfo, PatchKind,
    SnapshotPatch, Standing, Stating, UndoData,
};
pub use batch::{Batch, Goal, Rounds};
pub use kind::{BlockClass, BlockKind, VolumeId};
pub use limits::Limits;
pub use seal::{BlockSeal, Seal};
pub use stats::StoreStats;
pub use store::{InRun, Miss, Store};
pub use watch::{Happening, Placement, Scope, Watcher};
