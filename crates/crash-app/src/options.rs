//! The user's options of an exploration.

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
    /// The judge. It runs in the mounted state's directory, which is also `$1` and
    /// `$BACKSTITCH_DIR`. `$BACKSTITCH_OUTPUT` is the path of a file with what the program had
    /// said.
    pub check: Check,
    /// The most states that are checked.
    pub states: u64,
    /// The seed of the samples.
    pub seed: u64,
    /// How many checks run at once. The report is the same for any number.
    pub jobs: usize,
    /// The user's image, if the program did not start on an empty file system.
    pub image: Option<PathBuf>,
    /// The command that makes the report, for the report.
    pub command: String,
    /// The command of a replay, to which the state's name is added.
    pub replay_command: String,
    /// The file for the image of the first failing state.
    pub keep: Option<PathBuf>,
    /// The file for the trace of the patches of the run up to that state.
    pub record: Option<PathBuf>,
    /// Once this is set, the exploration ends before the next state, and cleans up.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Atomic::Relaxed)
    }
}
