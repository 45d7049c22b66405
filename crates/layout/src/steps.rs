//! How a layout cuts long operations into steps, for tests: an explorer of crash states is to see
//! long operations in short files.

use std::cell::Cell;

use backstitch_rules::are_watched;

/// How operations are cut into steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steps {
    /// As they are meant to be.
    #[default]
    Usual,
    /// Each frees one block.
    Small,
    /// As they are meant to be; and what is known of an inode is forgotten with the first deferred
    /// work once nothing is under way.
    Forgetful,
}

thread_local! {
    static STEPS: Cell<Steps> = const { Cell::new(Steps::Usual) };
}

/// Has this thread's operations cut into such steps from here on; returns how they were cut before.
pub fn set(steps: Steps) -> Steps {
    if steps != Steps::Usual {
        backstitch_rules::watch::begin();
    }
    STEPS.replace(steps)
}

/// Whether they are small.
pub fn are_small() -> bool {
    are_watched() && STEPS.get() == Steps::Small
}

/// Whether this thread looks for inodes with nothing under way whenever it does deferred work.
pub fn are_forgetful() -> bool {
    are_watched() && STEPS.get() == Steps::Forgetful
}
