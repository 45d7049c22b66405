//! Schedule states of any device: what a power cut could have left of recorded writes.
//!
//! Input is a base image and a log of what was written to it (see
//! [`backstitch_device::write_log`]); the judge is a command of the user's. It knows no file
//! system, so it works for every one. For the same reason it depends on nothing but `device` (the
//! log) and `crash-core` (the check, the report), neither on the engine nor on a layout.
//!
//! # The fault model
//!
//! Writes and discards between two flushes form an *epoch*. A power cut comes before some entry of
//! the log, its *cut*. What the cut leaves is
//!
//! * every change of the epochs before: the flush at their end has made them durable;
//! * of the current epoch's changes before the cut, **any part, in any order**. Only where two
//!   writes overlap does the order show: then each of them may lie on top. A discard either took
//!   effect, and its bytes are zeros, or did not, and they are what they were;
//! * with *torn* writes, any part of the 512-byte sectors of each of these.
//!
//! A write with FUA is durable when it ends. A log tells in which order requests ended, not when
//! each began, so an entry is taken to begin when the one before it has ended: a FUA write is there
//! in every state whose cut comes after it, keeps its place among overlapping writes, and may be
//! missing only while it is itself *in flight*, with nothing behind it.
//!
//! A mark tells what was promised by then. It belongs to no epoch and orders nothing, but a state
//! counts as another one when other marks have passed: the same bytes may be right before a promise
//! and wrong after it.
//!
//! Real drives do less than this. What a foreign log does not know is which writes depended on each
//! other, so nothing is left out for that reason, and nothing is added: states that only another
//! order of submission could have left are not visited.
//!
//! # How a state is made
//!
//! `plan` chooses the states: all, while there are few, and samples beyond; it sees only hashes of
//! sectors, so that states with the same bytes are found before anything is written. `overlay` puts
//! a state together from base and log as it is read, and drops what the check writes: it costs what
//! the state changes and the check touches, and needs somebody who shows a device as a file.
//! `scratch` does without: it holds the image as it was at the last flush, twice; one copy becomes
//! the state, by writing the epoch's changes into it, and is brought back from the other
//! afterwards. `shrink` looks for the smallest change that still fails. [`explore`] puts them
//! together, with the core's [`Check`](backstitch_crash_core::check::Check) as the judge.
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
