//! Schedule states of any device: what a power cut could have left of recorded writes.
//!
//! Input is a base image and a log of what was written to it (see
//! [`backstitch_device::write_log`]); the judge is a command of the user's. This crate knows no
//! file system, so it works for every one. It depends only on `device` (the log) and `crash-core`
//! (the check, the report).
//!
//! # The fault model
//!
//! Writes and discards between two flushes form an *epoch*. The power is cut before some entry of
//! the log, the *cut*. What is then on the disk is
//!
//! * every change of earlier epochs, since the flush at their end has made them durable;
//! * of the current epoch's changes before the cut, **any part, in any order**. Only where two
//!   writes overlap does the order show: then each of them may lie on top. A discard either took
//!   effect, and its bytes are zeros, or did not, and they are what they were;
//! * with *torn* writes, any part of the 512-byte sectors of each of these.
//!
//! A write with FUA is durable when it ends. A log tells in which order requests ended, not when
//! each began. So an entry is taken to begin when the one before it has ended. Then a FUA write is
//! there in every state whose cut comes later, keeps its place among overlapping writes, and may be
//! missing only while it is itself *in flight*, when nothing after it has begun.
//!
//! A mark tells what was promised by then. It belongs to no epoch and orders nothing, but states
//! with different marks passed count as different: the same bytes may be right before a promise and
//! wrong after it.
//!
//! Real drives leave fewer states than this. A foreign log does not tell which writes depended on
//! each other. So no state is left out for that reason, and none is added: states that only another
//! order of submission could have left are not visited.
//!
//! # How a state is made
//!
//! `plan` chooses the states: all if there are few, else samples. It works on hashes of sectors, so
//! that states with the same bytes are found before anything is written. `overlay` puts a state
//! together from base and log while it is read, and drops what the check writes. It costs what the
//! state changes and the check touches, and needs a way to show a device as a file. `scratch` does
//! without that. It keeps two copies of the image as it was at the last flush. One becomes the
//! state, when the epoch's changes are written into it, and is restored from the other afterwards.
//! `shrink` looks for the smallest change that still fails. [`explore`] combines them, with the
//! core's [`Check`](backstitch_crash_core::check::Check) as the judge.
//!
//! # Invariants
//!
//! * The same log, options and seed give the same states and the same report, on any number of
//!   threads, as far as the check says the same of the same state.
//! * Base and log are only read.

mod choose;
mod contents;
mod describe;
mod error;
mod explore;
mod overlay;
mod plan;
mod recording;
mod scratch;
mod shrink;
mod variant;

pub use error::{ScheduleError, ScheduleResult};
pub use explore::{Options, explore, replay};
pub use overlay::{CANNOT_SHOW, OverlayDevice, Show, Shown};
pub use recording::{Change, Moment, Recording, SECTOR_BYTES};
pub use scratch::copy_sparse;
pub use variant::{StateId, Variant};
