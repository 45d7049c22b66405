//! The tasks that there are, and which one a step that did not come to its end waits for.

use std::time::Duration;

use backstitch_layout::{Awaited, Stop};
use backstitch_ordering::PatchId;

use crate::Session;
use crate::commit::{Commit, FreeLog, Room};
use crate::drain::{Drain, Work};
use crate::life::Life;
use crate::reclaim::{Reclaim, Until};
use crate::stable::Stable;
use crate::task::Task;

impl Task {
    /// The beginning of a life: puts onto stable storage [what comes first](crate::Found), the mark
    /// that the file system is in use, and the beginning of the log.
    pub fn start(first: Vec<PatchId>) -> Task {
        Task::of(Life::begin(first))
    }

    /// Sees that a further operation fits into the running transaction, and that transaction into
    /// the log.
    pub fn make_room() -> Task {
        Task::of(Room)
    }

    /// Ends the running transaction, with all deferred work of it. It is on its way then, but
    /// nobody writes it yet.
    pub fn commit() -> Task {
        Task::of(Commit::default())
    }

    /// One step of making room in the log: moves its tail, or brings home what keeps it where it
    /// is.
    pub fn free_log() -> Task {
        Task::of(FreeLog::default())
    }

    /// Puts patches, and what they depend on, onto stable storage.
    pub fn make_stable(targets: Vec<PatchId>) -> Task {
        Task::of(Stable::new(targets))
    }

    /// Does deferred work whose time has come. What needs a block that cannot be read is put aside,
    /// and keeps nothing else waiting.
    pub fn work() -> Task {
        Task::of(Work::default())
    }

    /// Puts everything onto stable storage, and ends all deferred work.
    pub fn drain() -> Task {
        Task::of(Drain::default())
    }

    /// Reclaims what a crash left, until enough is done.
    pub fn reclaim(until: Until) -> Task {
        Task::of(Reclaim::new(until))
    }

    /// The end of a life. The reclaim may take `reclaim_wait`; the next mount does the rest.
    pub fn unmount(reclaim_wait: Duration) -> Task {
        Task::of(Life::end(reclaim_wait))
    }
}

/// What is to be done before a step that did not come to its end runs again.
pub enum NextTry {
    /// What it missed is to be read.
    Read,
    /// Others may have a turn.
    Turn,
    /// This task is to be driven.
    Task(Task),
}

impl NextTry {
    /// After a step that stopped.
    ///
    /// # Errors
    /// Where it need not run again, and why.
    pub fn after(stop: Stop, session: &Session) -> backstitch_layout::Result<NextTry> {
        let awaited = match stop {
            Stop::Miss => return Ok(NextTry::Read),
            Stop::Again => return Ok(NextTry::Turn),
            Stop::WaitFor(awaited) => awaited,
            Stop::Failed(error) => return Err(error),
        };
        Ok(NextTry::Task(match awaited {
            Awaited::Frees => Task::drain(),
            Awaited::Transaction => Task::commit(),
            Awaited::Names => Task::reclaim(Until::Settled),
            // What was given back by then may be enough.
            Awaited::Reclaim => {
                Task::reclaim(Until::FreedMoreThan(session.fs.reclaim_progress().freed()))
            }
        }))
    }
}
