//! The beginning and the end of a life.

use std::time::Duration;

use backstitch_layout::{FileSystem, Stop, Timestamp};
use backstitch_ordering::{Operation, PatchId, Volume};

use crate::drain::Drain;
use crate::reclaim::{Reclaim, Until};
use crate::stable::FlushRounds;
use crate::task::{Call, Context, Flow, Outcome, Poll, call};
use crate::{Result, Session};

/// What a mount does once the file system is open, in this order.
const BEGINNING: &[Part] = &[Part::First, Part::MarkInUse, Part::StartLog];

/// What an unmount does, in this order.
const END: &[Part] = &[
    Part::Release,
    Part::Drain,
    Part::Reclaim,
    Part::Drain,
    Part::Counters,
    Part::Drain,
    Part::FinishLog,
    Part::StopLog,
    Part::MarkClean,
    Part::Drain,
];

#[derive(Clone, Copy)]
enum Part {
    /// What opening the file system found has to be on stable storage before anything else.
    First,
    MarkInUse,
    StartLog,
    /// Lets go of everything that is open.
    Release,
    /// Everything onto stable storage, and all deferred work.
    Drain,
    /// Reclaims what a crash left.
    Reclaim,
    /// Writes the counters.
    Counters,
    /// Empties the log, which says so.
    FinishLog,
    StopLog,
    MarkClean,
}

/// The parts of a beginning or an end, one after the other.
pub(crate) struct Life {
    parts: &'static [Part],
    first: Vec<PatchId>,
    reclaim_wait: Duration,
}

impl Life {
    pub(crate) fn begin(first: Vec<PatchId>) -> Life {
        Life {
            parts: BEGINNING,
            first,
            reclaim_wait: Duration::ZERO,
        }
    }

    pub(crate) fn end(reclaim_wait: Duration) -> Life {
        Life {
            parts: END,
            first: Vec::new(),
            reclaim_wait,
        }
    }
}

impl Call for Life {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        cx.came()?;
        let s = &mut *cx.session;
        while let Some((part, rest)) = self.parts.split_first() {
            self.parts = rest;
            match part {
                Part::First => return call(FlushRounds::new(std::mem::take(&mut self.first))),
                Part::MarkInUse => return call(Step::new(|fs, v, _| fs.mark_in_use(v))),
                Part::StartLog => {
                    let is_writable = s.fs.read_only_reason().is_none();
                    if let Some(log) = s.mechanism.log().filter(|_| is_writable) {
                        let started = log.start(&mut s.store, s.volume);
                        s.has_changed = true;
                        return call(FlushRounds::new(vec![started]));
                    }
                }
                Part::Release => {
                    s.fs.release_all();
                    s.fs.retry_deferred();
                }
                Part::Drain => return call(Drain::default()),
                Part::Reclaim => {
                    let end = cx.clock.now() + self.reclaim_wait;
                    return call(Reclaim::new(Until::Time(end)));
                }
                Part::Counters => {
                    s.not_unreadable()?;
                    return call(Step::new(|fs, v, now| {
                        fs.write_counters(v, now).map(|()| Vec::new())
                    }));
                }
                Part::FinishLog => {
                    let now = cx.clock.now();
                    if let Some((log, store, volume)) = s.log() {
                        let finished = log.finish(store, volume, now);
                        s.has_changed = true;
                        return call(FlushRounds::new(vec![finished]));
                    }
                }
                Part::StopLog => {
                    if let Some((log, ..)) = s.log() {
                        log.stop();
                    }
                }
                Part::MarkClean => {
                    return call(Step::new(|fs, v, now| {
                        fs.mark_clean(v, now).map(|()| Vec::new())
                    }));
                }
            }
        }
        Ok(Flow::Return(Outcome::Worked))
    }
}

type Body =
    fn(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> backstitch_layout::Step<Vec<PatchId>>;

/// A step of its own, again after each miss; what it returns is on stable storage afterwards.
struct Step {
    body: Body,
    is_done: bool,
}

impl Step {
    fn new(body: Body) -> Step {
        Step {
            body,
            is_done: false,
        }
    }
}

impl Call for Step {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        let came = cx.came()?;
        if self.is_done {
            return Ok(Flow::Return(came));
        }
        let at = cx.clock.stamp();
        match (cx.session).own_step(Operation::Administration, at, self.body) {
            Err(Stop::Miss) => Ok(Flow::Need(Poll::Read)),
            targets => {
                (self.is_done, cx.session.has_changed) = (true, true);
                call(FlushRounds::new(targets?))
            }
        }
    }
}

impl Session {
    /// Fails where a block that cannot be read keeps something that was removed from being freed.
    pub(crate) fn not_unreadable(&self) -> Result<()> {
        match &self.unreadable {
            Some(error) if self.fs.deferred().unreadable > 0 => Err(error.clone()),
            _ => Ok(()),
        }
    }
}
