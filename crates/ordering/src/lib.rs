//! Consistency mechanisms, as transformations of patches.
//!
//! A layout states its changes through a [`Volume`], always with soft-updates dependencies. Between
//! the volume and the store stands one [`Mechanism`] per volume. It sees where every operation
//! begins and ends (its *scope*) and every patch *before* it is made, and may keep, drop, replace or
//! add dependencies.
//! It knows no layout; a layout knows no mechanism. This crate depends on `store` and what is below
//! it.
//!
//! | mechanism | dependencies | an operation returns |
//! |---|---|---|
//! | [`SOFT`] | kept | at once |
//! | [`ASYNC`] | dropped | at once |
//! | [`SCHEDULER`] | kept | at once; what it changed is on its way |
//! | [`INTERBUFFER`] | kept, between whole blocks | at once; where its block would wait for itself through others, once those are written |
//! | [`AMOM_IMMEDIATE`] and others | replaced by a row of batches, written one after the other | at once |
//! | [`SYNC`] | kept | when its metadata writes are on stable storage, in the order that they state |
//!
//! [`Groups`] are order that is stated from above the layout, between sets of operations; they hold
//! under every mechanism.
//!
//! A volume may be on another one: its blocks are contents of a file there ([`Volume::enter`]). The
//! one graph keeps the order of both.
//!
//! A mechanism with a log of transactions ([`Log`]) is in a crate of its own (`journal`, `lffs`), and
//! is driven by the mount; [`Transactions`] is what such logs have in common. What others may know of a
//! mechanism is its [`MechanismKind`]; the crate `mechanisms` lists them all, and nobody but it names
//! one.

mod below;
mod groups;
mod kind;
mod log;
mod mechanism;
mod number;
mod operation;
pub mod rules;
mod volume;

pub use groups::{GroupError, GroupId, Groups};
pub use kind::{CrashLeaves, CrashRecord, LogPlace, MechanismKind, NoLog, Promises};
pub use log::{CloseError, Closed, Log, LogRules, LogState, Logged, NoRoom, Running, Transactions};
pub use mechanism::{
    AMOM_DELAYED, AMOM_IMMEDIATE, AMOM_PERIODIC, ASYNC, AmomKind, Awaited, Decision, GATHER_TIME,
    INTERBUFFER, Mechanism, PatchSpec, SCHEDULER, SOFT, SYNC,
};
pub use number::BlockNumber;
pub use operation::{Moment, New, NewAttributes, Operation, Place, Range};
pub use volume::{NewObject, User, Volume};

pub use backstitch_store::{BlockClass, BlockKind, Change, Miss, PatchId, Seal, VolumeId};
