//! The trait that every mechanism implements; the modules are the mechanisms that need no disk space
//! of their own.
//!
//! # What a mechanism is told, and when
//!
//! ```text
//!   begin(operation) ─▶ for each change:  transform ─▶ run ─▶ (the patch is made) ─▶ created ─▶ end
//!                        frees: forget      deferred work: watch, expect, take_fired
//!   between operations:  tick, at next_tick and after each batch
//!   where it has a log:  Log::state, close, home, move_tail;  last: finish, stop
//! ```
//!
//! The layout states soft-updates dependencies for all of them. A mechanism changes those in
//! [`transform`](Mechanism::transform); the other methods have defaults. The store
//! then writes a patch only after what it depends on: so what a mechanism wants to be written in
//! order it states as dependencies, what it wants to be waited for it returns from
//! [`end`](Mechanism::end), and what it wants to be written soon from [`tick`](Mechanism::tick).
//!
//! # How each mechanism uses it
//!
//! The last column names what a mechanism needs beyond this trait.
//!
//! | mechanism | `begin` | `transform`, `run` | `created`, [`Decision`] | `end` | `tick` | [`Log`] | promises | beyond |
//! |---|---|---|---|---|---|---|---|---|
//! | `soft` | — | keeps the dependencies | by itself | — | — | — | excess | |
//! | `async` | — | drops them | by itself | — | — | — | anything | |
//! | `sync` | notes whether it may be delayed | keeps them | collects metadata | waits for what it collected | — | — | excess, stable once answered | |
//! | `scheduler` | the same | keeps them | collects metadata | — | issues what it collected | — | excess | |
//! | `interbuffer` | notes whether anybody waits | keeps them | orders block behind block | waits for what would close a circle of blocks | issues that of deferred work | — | excess; no rollback in write-back | |
//! | `amom` | — | metadata: one dependency, its batch's gate | apart, where its block is in an earlier batch | — | begins the next batch | — | excess | |
//! | `journal=writeback` | — | metadata: one dependency, the transaction's hold | known by the hold, and by the contents before it | — | — | closes, brings home, moves its tail | log, contents may be stale | |
//! | `journal=ordered` | — | the same | known by the hold; collects contents for the commit record | — | — | the same | log | |
//! | `journal=full` | — | contents too | known by the hold | — | — | the same | log | |
//! | `lffs-file`, `lffs-wafs` | the record before ends | metadata: one dependency, the group's hold | notes the bytes; known by the hold, and by the contents before it | `sync`: waits for the hold | notes the time | closes, brings home, moves its start | log, contents may be stale | where a log of ours lies |
//!
//! A mechanism that makes every operation a batch, and writes batch after batch, is one file in
//! `crates/crash/tests/toy`: `begin`, `transform` and `created`, and nothing else.

mod amom;
mod awaited;
mod interbuffer;
mod scheduler;
mod soft;
mod sync;
mod unordered;

use std::time::Duration;

use backstitch_store::{BlockKind, Change, PatchId, Store};

use crate::kind::MechanismKind;
use crate::log::Log;
use crate::operation::Operation;

pub use amom::{AMOM_DELAYED, AMOM_IMMEDIATE, AMOM_PERIODIC, AmomKind};
pub use awaited::{Awaited, GATHER_TIME};
pub use interbuffer::INTERBUFFER;
pub use scheduler::SCHEDULER;
pub use soft::SOFT;
pub use sync::SYNC;
pub use unordered::ASYNC;

/// A patch that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct PatchSpec<'a> {
    /// The block, in the volume.
    pub block: u64,
    /// What the block holds.
    pub kind: BlockKind,
    /// Where in the block, and the new bytes, or the bits that are flipped.
    pub change: Change<'a>,
    /// It changes nothing but times that move along with something else: nobody asked for them.
    pub is_implied_times: bool,
    /// It is made under a patchgroup, whose order must hold.
    pub is_grouped: bool,
    /// Nothing on the disk leads to it yet.
    pub is_hidden: bool,
    /// It is to stand apart from others of its block.
    pub is_apart: bool,
}

impl<'a> PatchSpec<'a> {
    pub(crate) fn new(block: u64, kind: impl Into<BlockKind>, change: Change<'a>) -> Self {
        PatchSpec {
            block,
            kind: kind.into(),
            change,
            is_implied_times: false,
            is_grouped: false,
            is_hidden: false,
            is_apart: false,
        }
    }
}

/// What a mechanism decides about a patch before it is made, and is given back once it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The change goes through the mechanism's log.
    pub is_logged: bool,
    /// The patch is to stand apart from others of its block: neither waits for what the other waits
    /// for.
    pub is_apart: bool,
    /// What the layout is to know the patch by: whatever is on stable storage only once the change
    /// is there *for good*. `None`: by the patch itself.
    pub known_by: Option<PatchId>,
}

impl Decision {
    /// The change is made in its place, and is there for good once it is there.
    pub const IN_PLACE: Decision = Decision {
        is_logged: false,
        is_apart: false,
        known_by: None,
    };
}

/// A consistency mechanism of one volume.
pub trait Mechanism: Send {
    /// Its kind, which knows its name and its promises.
    fn kind(&self) -> &'static dyn MechanismKind;

    /// An operation, or the next step of a long one, is about to change things. It may turn out to
    /// change nothing, or begin once more after blocks have been read that it lacked.
    fn begin(&mut self, _operation: Operation<'_>) {}

    /// A patch is about to be made; `dependencies` are the layout's and may be changed. It may also
    /// be called only to learn the dependencies, and no patch follows: a mechanism must not count
    /// on [`created`](Self::created) or [`end`](Self::end) for what it notes here. (It is not asked
    /// so where it [orders by batches](crate::Promises::orders_by_batches).)
    fn transform(
        &mut self,
        _store: &mut Store,
        _spec: &PatchSpec<'_>,
        _dependencies: &mut Vec<PatchId>,
    ) -> Decision {
        Decision::IN_PLACE
    }

    /// The run that a change which depends on `dependencies` is to join (`PatchId::COMMITTED`: a
    /// new one), or `None` where it is to be a patch of its own; see `Graph::create_in_run`.
    /// `offered`: the layout makes what depends on it depend on this run anyhow.
    fn run(
        &mut self,
        _store: &Store,
        _decision: &Decision,
        offered: Option<PatchId>,
        dependencies: &[PatchId],
    ) -> Option<PatchId> {
        offered.filter(|_| dependencies.is_empty())
    }

    /// Whether the patch keeps its undo data where it could do without: its block can then be
    /// written without it, and without what it depends on. Worth it where some changes of a block
    /// are waited for and others are not.
    fn keeps_undo(&self, _spec: &PatchSpec<'_>) -> bool {
        false
    }

    /// The patch was made as decided (or the change merged into a patch that existed).
    fn created(
        &mut self,
        _store: &Store,
        _spec: &PatchSpec<'_>,
        _decision: &Decision,
        _id: PatchId,
    ) {
    }

    /// The layout puts something off, under this token. True where the mechanism will report it
    /// itself, by [`take_fired`](Self::take_fired).
    fn watch(&mut self, _token: u64) -> bool {
        false
    }

    /// The tokens of [`watch`](Self::watch) whose time has come.
    fn take_fired(&mut self, _into: &mut Vec<u64>) {}

    /// How many blocks the scope under way may change, where the size of a transaction is bounded.
    /// While a transaction is being ended: how many the work that was put off until then may
    /// change.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// Work that was put off until the end of the transaction will change this block.
    fn expect(&mut self, _block: u64) {}

    /// Between operations, and whenever something has reached stable storage: appends what is to be
    /// written now though nobody waits for it. `hurry`: somebody waits for what the mechanism puts
    /// off, or memory fills up; then no delay is kept for its own sake.
    fn tick(
        &mut self,
        _store: &mut Store,
        _now: Duration,
        _hurry: bool,
        _issue: &mut Vec<PatchId>,
    ) {
    }

    /// When [`tick`](Self::tick) has something to do; `None`: not before an operation has changed
    /// something, or something has reached stable storage.
    fn next_tick(&self) -> Option<Duration> {
        None
    }

    /// Whether blocks that nobody waits for may be written with some of their changes taken back.
    fn writes_with_rollback(&self) -> bool {
        true
    }

    /// Whether its order may be left to a device's queue. A batch then counts as done once the
    /// device has taken it and puts later requests behind it; callers who wait for stable storage
    /// still wait for the device.
    fn is_ordered_by_queue(&self) -> bool {
        false
    }

    /// What it has counted, for the statistics: each with its name.
    fn figures(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// The mechanism's log, for the driver of its commits; `None` where it has none.
    fn log(&mut self) -> Option<&mut dyn Log> {
        None
    }

    /// The operation ends. Appends what must be on stable storage before its caller may be
    /// answered.
    fn end(&mut self, _wait_for: &mut Vec<PatchId>) {}

    /// Whether the change is among what [`end`](Self::end) will append.
    fn answers_for(&self, _id: PatchId) -> bool {
        false
    }

    /// A block was freed: a mechanism that copied it must not bring it back. Returns whether what
    /// is not written of it may be dropped. Not so where a crash may leave the state before the
    /// free, in which the block is in use.
    fn forget(&mut self, _block: u64) -> bool {
        true
    }
}
