//! `crash app`: does a program survive a power cut at any time?
//!
//! # How
//!
//! 1. [`Program::record`] runs the program once on a mount, and `record` writes down what of it
//!    reaches the file system, and what the program says meanwhile: a [`Trace`].
//! 2. `player` does the trace again, in this process and as often as wanted, under several
//!    schedules of write-back. At every moment it knows the dependency graph, so every set of
//!    changes is known that a power cut could have left on the disk: each that holds, for every
//!    patch in it, the patches that must be there before. `choose` picks as many of these states as
//!    are wanted.
//! 3. `bench` recovers each of them as a user does: mounted, over a copy that is thrown away. The
//!    user's check looks at it, and is told what the program had said before the power went.
//! 4. Of a state that fails, `explore` looks for the fewest changes that are missing, or there, and
//!    still fail; `explain` tells what they are.
//!
//! # What is fair
//!
//! Under an ordering that keeps the file system consistent, a state is mounted as it is: recovery
//! is what the mount does. Under `async` nothing is promised; users run fsck before they mount.
//! Where fsck finds no more than leaks and counts, which `fsck -p` repairs without a question, the
//! state is mounted as if it had. Where it finds corruption, that is a failure of its own, and the
//! check does not run: no program can be blamed for that. It is reported behind the failures of the
//! program.
//!
//! Any block is stored wholly or not at all.

mod bench;
mod choose;
mod error;
mod explain;
mod explore;
mod place;
mod player;
mod record;
mod run;
#[cfg(test)]
mod tests;
mod trace;
mod tree;
mod variant;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Atomic};

use backstitch_ordering::MechanismKind;

pub use error::{AppError, AppResult};
pub use explore::{explore, replay};
pub use record::{Recorder, TracingLayout};
pub use run::Program;
pub use trace::{Geometry, Start, Trace};

pub use crate::schedule::{Check, Progress};

/// How a trace is to be explored.
#[derive(Clone, Debug)]
pub struct Options {
    /// The mechanism under which the trace is done again.
    pub ordering: MechanismKind,
    /// The judge: finds the mounted state in `$1`, `$BACKSTITCH_DIR` and as its directory, and in
    /// `$BACKSTITCH_OUTPUT` the path of a file with what the program had said.
    pub check: Check,
    /// The most states that are checked.
    pub states: u64,
    /// Chooses the samples.
    pub seed: u64,
    /// How many checks run at once. The report is the same for any number.
    pub jobs: usize,
    /// The user's image, where the program did not start on an empty file system.
    pub image: Option<PathBuf>,
    /// Shown in the report: the command that makes it.
    pub command: String,
    /// To which the state's name is added for the replay.
    pub replay_command: String,
    /// Where the image of the first failing state goes.
    pub keep: Option<PathBuf>,
    /// Once this is set, the exploration ends before the next state, and cleans up.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Atomic::Relaxed)
    }
}
