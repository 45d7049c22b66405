//! The beginning and the end of a life.

use std::time::Duration;

use backstitch_layout::{Error as LayoutError, FileSystem, Timestamp};
use backstitch_ordering::{Operation, PatchId, Volume};

use crate::commit::EndLog;
use crate::drain::Drain;
use crate::reclaim::{Reclaim, Until};
use crate::stable::Settle;
use crate::task::{Call, Context, Flow, Outcome, Poll, call};
use crate::{Result, Session};

/// Says on stable storage that the file system is in use, and has the log begin.
pub(crate) struct Start {
    first: Vec<PatchId>,
    at: AtStart,
}

enum AtStart {
    First,
    Mark,
    Log,
    End,
}

impl Start {
    pub(crate) fn new(first: Vec<PatchId>) -> Start {
        Start {
            first,
            at: AtStart::First,
        }
    }
}

impl Call for Start {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        cx.came()?;
        let s = &mut *cx.session;
        match self.at {
            AtStart::First => {
                self.at = AtStart::Mark;
                call(Settle::new(std::mem::take(&mut self.first)))
            }
            AtStart::Mark => {
                let at = cx.clock.stamp();
                match s.own_step(Operation::Administration, at, |fs, v, _| fs.mark_in_use(v)) {
                    Err(LayoutError::Miss) => return Ok(Flow::Need(Poll::Read)),
                    marked => self.first = marked?,
                }
                s.has_changed = true;
                self.at = AtStart::Log;
                call(Settle::new(std::mem::take(&mut self.first)))
            }
            AtStart::Log => {
                self.at = AtStart::End;
                let is_writable = s.fs.read_only_reason().is_none();
                let log = s.mechanism.log().filter(|_| is_writable);
                let started = log.map(|log| log.start(&mut s.store, s.volume));
                s.has_changed = started.is_some();
                call(Settle::new(started.into_iter().collect()))
            }
            AtStart::End => {
                // No caller had to wait.
                (s.waits, s.waited_batches) = (0, 0);
                Ok(Flow::Return(Outcome::Worked))
            }
        }
    }
}

/// What an unmount does, in this order.
const PARTS: [Part; 8] = [
    Part::Release,
    Part::Reclaim,
    Part::Drain,
    Part::Settle,
    Part::Drain,
    Part::EndLog,
    Part::MarkClean,
    Part::Drain,
];

#[derive(Clone, Copy)]
enum Part {
    /// What is open is let go, and everything that follows from it done.
    Release,
    /// Everything onto stable storage, and all deferred work.
    Drain,
    /// What a crash left is reclaimed.
    Reclaim,
    /// The counters.
    Settle,
    EndLog,
    MarkClean,
}

/// Ends everything that is under way, and marks the image clean.
pub(crate) struct Unmount {
    reclaim_wait: Duration,
    done: usize,
}

impl Unmount {
    pub(crate) fn new(reclaim_wait: Duration) -> Unmount {
        Unmount {
            reclaim_wait,
            done: 0,
        }
    }
}

impl Call for Unmount {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        cx.came()?;
        let Some(part) = PARTS.get(self.done) else {
            return Ok(Flow::Return(Outcome::Worked));
        };
        self.done += 1;
        let s = &mut *cx.session;
        match part {
            Part::Release => {
                s.fs.release_all();
                s.fs.retry_deferred();
                call(Drain::default())
            }
            Part::Drain => call(Drain::default()),
            Part::Reclaim => {
                let end = cx.clock.now() + self.reclaim_wait;
                call(Reclaim::new(Until::Time(end)))
            }
            Part::Settle => {
                s.not_unreadable()?;
                call(Step(|fs, v, now| fs.settle(v, now)))
            }
            Part::EndLog => call(EndLog::default()),
            Part::MarkClean => call(Step(|fs, v, now| fs.mark_clean(v, now))),
        }
    }
}

type Body = fn(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> backstitch_layout::Result<()>;

/// A step of its own, again after each miss.
struct Step(Body);

impl Call for Step {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        cx.came()?;
        let at = cx.clock.stamp();
        match cx.session.own_step(Operation::Administration, at, self.0) {
            Err(LayoutError::Miss) => return Ok(Flow::Need(Poll::Read)),
            done => done?,
        }
        cx.session.has_changed = true;
        Ok(Flow::Return(Outcome::Worked))
    }
}

impl Session {
    /// Nothing that was removed is kept from being freed by a block that cannot be read.
    pub(crate) fn not_unreadable(&self) -> Result<()> {
        match &self.unreadable {
            Some(error) if self.fs.deferred().unreadable > 0 => Err(error.clone()),
            _ => Ok(()),
        }
    }
}
