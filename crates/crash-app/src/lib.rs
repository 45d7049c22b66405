//! `crash app`: does a program survive a power cut at any time?
//!
//! It is above `crash-core`, which has the states of a moment, and above `vfs` and `fuse`, since the
//! program and the user's check run on real mounts. It knows no layout by name.
//!
//! # How
//!
//! 1. [`Program::record`] runs the program once on a mount. `record` writes down what it does to
//!    the file system, and what it says meanwhile: a [`Trace`].
//! 2. `player` does the trace again, in this process and as often as wanted, under several
//!    schedules of write-back. At every moment it knows the dependency graph, so every set of
//!    changes is known that a power cut could have left on the disk: each that holds, for every
//!    patch in it, the patches that must be there before. `choose` picks as many of these states as
//!    are wanted.
//! 3. `bench` recovers each of them as a user does: mounted, over a copy that is thrown away. The
//!    user's check looks at it, and is told what the program had said before the power went.
//! 4. Of a state that fails, `explore` looks for the fewest changes that are missing, or there, and
//!    still fail; `explain` tells what they are, and `graph` which order is missing among them.
//!
//! # What is fair
//!
//! Under an ordering that keeps the file system consistent, a state is mounted as it is: recovery
//! is what the mount does. Under `async` nothing is promised, and users run fsck before they mount.
//! If fsck finds only leaks and wrong counts, which `fsck -p` repairs without a question, the state
//! is mounted as if it had been run. If fsck finds corruption, that is a failure of its own, and
//! the check does not run, since no program is to blame for it. It is reported after the program's
//! failures.
//!
//! Blocks are taken to be stored wholly or not at all.
//!
//! # Invariants
//!
//! * The same trace, options and seed choose the same states and give the same report, on any number
//!   of threads, as far as the check says the same of the same state.
//! * A state can be made again from the trace, the ordering and its name.
//! * When an exploration ends, or is stopped, nothing stays mounted and no temporary file is left.

mod bench;
mod choose;
mod error;
mod explain;
mod explore;
mod graph;
mod options;
mod place;
mod player;
mod record;
mod run;
mod summary;
#[cfg(test)]
mod tests;
mod trace;
mod tree;
mod variant;

pub use error::{AppError, AppResult};
pub use explore::{explore, replay};
pub use options::Options;
pub use record::Recorder;
pub use record::tracing::TracingLayout;
pub use run::Program;
pub use trace::{Geometry, Start, Trace};
