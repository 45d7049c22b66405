//! What a user says of an exploration.

use backstitch_mechanisms::Ordering;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Atomic};

use backstitch_crash_core::check::Check;

/// How a trace is to be explored.
#[derive(Clone, Debug)]
pub struct Options {
    /// The mechanism under which the trace is done again.
    pub ordering: Ordering,
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
    /// Where the patches of the run up to that state go, as a trace.
    pub record: Option<PathBuf>,
    /// Once this is set, the exploration ends before the next state, and cleans up.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Atomic::Relaxed)
    }
}
