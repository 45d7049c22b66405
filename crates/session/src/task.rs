//! What takes more than a step: a stack of calls, each of which knows where it is.

use std::time::Duration;

use backstitch_device::DeviceError;
use backstitch_layout::{Error as LayoutError, ReclaimStep};
use backstitch_ordering::PatchId;
use backstitch_store::Batch;

use crate::commit::{Commit, FreeLog, Room};
use crate::drain::{Drain, Work};
use crate::life::Life;
use crate::reclaim::{Reclaim, Until};
use crate::stable::Stable;
use crate::{Clock, Result, Session};

/// What a task needs before it is polled again.
#[derive(Debug)]
#[must_use]
pub enum Poll {
    /// The blocks that steps missed ([`Store::take_wanted`](backstitch_store::Store::take_wanted))
    /// in the store; or [`Task::failed`], where they cannot be read.
    Read,
    /// This batch written and flushed, and [`Session::written`] told of it.
    Write(Batch),
    /// The end of somebody else's batch, or [`Session::take_news`].
    Wait,
    /// Time, in which others may come to share what the task does.
    Rest(Duration),
    /// Nothing. The task has changed something: who wants to see each moment looks now.
    Changed,
    /// Nothing. It has changed something, and others may have a turn.
    Turn,
    /// Nothing: it is done.
    Done(Outcome),
}

/// What a task came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to do.
    Idle,
    /// Something was done.
    Worked,
    /// What one step of the reclaim came to.
    Reclaim(ReclaimStep),
}

/// What a call says when it lets go.
pub(crate) enum Flow {
    Need(Poll),
    Call(Box<dyn Call>),
    Return(Outcome),
}

/// Calls something else; what comes of it is in [`Context::came`] when this goes on.
pub(crate) fn call(callee: impl Call + 'static) -> Result<Flow> {
    Ok(Flow::Call(Box::new(callee)))
}

/// What a call sees.
pub(crate) struct Context<'c> {
    pub(crate) session: &'c mut Session,
    pub(crate) clock: &'c mut dyn Clock,
    /// The task itself ends the running transaction.
    pub(crate) is_closing: bool,
    came: Option<Result<Outcome>>,
}

impl Context<'_> {
    /// What came of the call, or of the reading, that this goes on after.
    pub(crate) fn came(&mut self) -> Result<Outcome> {
        self.came.take().unwrap_or(Ok(Outcome::Idle))
    }
}

/// A call under way.
pub(crate) trait Call {
    /// Goes on from where it is.
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow>;

    /// It is over, in whatever way: nobody is to wait for it.
    fn end(&mut self, _session: &mut Session) {}

    /// It ends the running transaction.
    fn is_closing(&self) -> bool {
        false
    }
}

/// Something that takes more than a step.
pub struct Task {
    stack: Vec<Box<dyn Call>>,
    /// What came of the call, or of the reading, that the last one goes on after.
    came: Option<Result<Outcome>>,
}

impl Task {
    fn of(call: impl Call + 'static) -> Task {
        Task {
            stack: vec![Box::new(call)],
            came: None,
        }
    }

    /// The beginning of a life: puts onto stable storage [what comes first](crate::Found), the mark
    /// that the file system is in use, and the beginning of the log.
    pub fn start(first: Vec<PatchId>) -> Task {
        Task::of(Life::begin(first))
    }

    /// Sees that a further operation fits into the running transaction, and that into the log.
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

    /// Goes on as far as it can.
    ///
    /// # Errors
    /// What the task fails with; it is over then.
    pub fn poll(&mut self, session: &mut Session, clock: &mut dyn Clock) -> Result<Poll> {
        loop {
            let is_closing = self.stack.iter().any(|call| call.is_closing());
            let came = self.came.take();
            let Some(call) = self.stack.last_mut() else {
                return came.unwrap_or(Ok(Outcome::Idle)).map(Poll::Done);
            };
            let flow = call.advance(&mut Context {
                session,
                clock,
                is_closing,
                came,
            });
            let has_changed = std::mem::take(&mut session.has_changed);
            let over = match flow {
                Ok(Flow::Need(need)) => return Ok(need),
                Ok(Flow::Call(callee)) => {
                    self.stack.push(callee);
                    None
                }
                Ok(Flow::Return(outcome)) => Some(Ok(outcome)),
                Err(error) => Some(Err(error)),
            };
            if over.is_some()
                && let Some(mut call) = self.stack.pop()
            {
                call.end(session);
            }
            self.came = over;
            if has_changed {
                return Ok(Poll::Changed);
            }
        }
    }

    /// What [`Poll::Read`] asked for could not be read.
    pub fn failed(&mut self, error: DeviceError) {
        self.came = Some(Err(error.into()));
    }
}

/// What is to be done before a step that did not come to its end runs again.
pub enum NextTry {
    /// What it missed is to be read.
    Read,
    /// Others may have a turn.
    Turn,
    /// This.
    Task(Task),
}

impl NextTry {
    /// After a step that came to `error`.
    ///
    /// # Errors
    /// Where it need not run again, and why.
    pub fn after(error: LayoutError, session: &Session) -> backstitch_layout::Result<NextTry> {
        Ok(NextTry::Task(match error {
            LayoutError::Miss => return Ok(NextTry::Read),
            LayoutError::Again => return Ok(NextTry::Turn),
            LayoutError::WaitForFrees => Task::drain(),
            LayoutError::WaitForTransaction => Task::commit(),
            LayoutError::WaitForNames => Task::reclaim(Until::Settled),
            // What was given back by then may be enough.
            LayoutError::WaitForReclaim => {
                Task::reclaim(Until::FreedMoreThan(session.fs.reclaim_progress().freed()))
            }
            error => return Err(error),
        }))
    }
}
