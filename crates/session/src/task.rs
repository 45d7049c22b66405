//! Tasks, which take more than a step: a stack of calls, each of which knows where it is.

use std::time::Duration;

use backstitch_device::DeviceError;
use backstitch_layout::ReclaimStep;
use backstitch_store::Batch;

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
    /// Nothing. The task has changed something: a driver that looks at each moment looks now.
    Changed,
    /// Nothing. It has changed something, and others may have a turn.
    Turn,
    /// Nothing: it is done.
    Done(Outcome),
}

/// The outcome of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to do.
    Idle,
    /// Something was done.
    Worked,
    /// What one step of the reclaim came to.
    Reclaim(ReclaimStep),
}

/// What a call says as it gives up its turn.
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
    /// The outcome of the call, or of the reading, after which this goes on.
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
    /// The outcome of the call, or of the reading, after which the topmost call goes on.
    came: Option<Result<Outcome>>,
}

impl Task {
    pub(crate) fn of(call: impl Call + 'static) -> Task {
        Task {
            stack: vec![Box::new(call)],
            came: None,
        }
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
