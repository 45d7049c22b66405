//! The reclaim of what a crash left.

use std::time::Duration;

use backstitch_layout::{ReclaimStep, Stop};
use backstitch_ordering::Operation;
use backstitch_store::Goal;

use crate::drain::Drain;
use crate::stable::Stable;
use crate::task::{Call, Context, Flow, Outcome, Poll, call};
use crate::{BATCH_BYTES, Error, Result, Session};

/// How far the reclaim goes on, unless it comes to its end before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// One step. What it comes to is the task's outcome, and nothing that it asks for is done.
    Step,
    /// Every directory has one name.
    Settled,
    /// More was given back than this.
    FreedMoreThan(u64),
    /// [`Clock::now`](crate::Clock::now) is this time or later.
    Time(Duration),
}

/// Reclaims until enough is done.
pub(crate) struct Reclaim {
    until: Until,
    at: AtReclaim,
    /// How much had been put aside when the step that misses blocks began.
    aside: Option<u64>,
}

enum AtReclaim {
    Look,
    Step,
    /// A batch was written.
    Turn,
    /// All deferred work is done.
    Freed,
}

impl Call for Reclaim {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        if let AtReclaim::Step = self.at {
            return self.step(cx);
        }
        cx.came()?;
        match self.at {
            AtReclaim::Turn => {
                self.at = AtReclaim::Look;
                return Ok(Flow::Need(Poll::Turn));
            }
            // Fails if a block that cannot be read keeps something from being freed.
            AtReclaim::Freed => cx.session.not_unreadable()?,
            AtReclaim::Look | AtReclaim::Step => {}
        }
        match self.is_enough(cx) {
            true => Ok(Flow::Return(Outcome::Idle)),
            false => self.step(cx),
        }
    }

    fn end(&mut self, session: &mut Session) {
        let progress = session.fs.reclaim_progress();
        if progress.running && matches!(self.until, Until::Time(_)) {
            tracing::warn!(
                "the next mount reclaims the rest of what a crash left: {:.0} % were looked at, {} blocks and {} inodes found",
                progress.done_fraction * 100.0,
                progress.freed_blocks,
                progress.freed_inodes
            );
        }
    }
}

impl Reclaim {
    pub(crate) fn new(until: Until) -> Reclaim {
        Reclaim {
            until,
            at: AtReclaim::Look,
            aside: None,
        }
    }

    fn is_enough(&self, cx: &Context<'_>) -> bool {
        let progress = cx.session.fs.reclaim_progress();
        match self.until {
            Until::Step => false,
            Until::Settled => progress.is_settled,
            Until::FreedMoreThan(before) => !progress.running || progress.freed() != before,
            Until::Time(end) => !progress.running || cx.clock.now() >= end,
        }
    }

    /// One step. Where that shows damage, the image stays as it is: readable, not clean.
    fn step(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        self.at = AtReclaim::Step;
        let came = cx.came();
        let s = &mut *cx.session;
        if let Err(error) = came {
            let aside = self.aside.take();
            // Another task that missed the same block may have done so meanwhile.
            if aside == Some(s.fs.reclaim_progress().put_aside) && !s.fs.put_reclaim_aside() {
                return Err(error);
            }
            tracing::warn!("the reclaim goes on without a directory that cannot be read: {error}");
            return self.after(ReclaimStep::More, cx);
        }
        self.aside.get_or_insert(s.fs.reclaim_progress().put_aside);
        match s.own_step(Operation::Background, cx.clock.stamp(), |fs, v, now| {
            fs.reclaim(v, now)
        }) {
            Err(Stop::Miss) => Ok(Flow::Need(Poll::Read)),
            Ok(step) => {
                s.store.trim();
                s.has_changed = true;
                self.after(step, cx)
            }
            Err(stop) => {
                let error = Error::from(stop);
                let reason = format!("what a crash left cannot be reclaimed, run fsck: {error}");
                tracing::error!("{reason}");
                s.fs.become_read_only(&reason);
                self.after(ReclaimStep::Done, cx)
            }
        }
    }

    /// What a step asks for.
    fn after(&mut self, step: ReclaimStep, cx: &mut Context<'_>) -> Result<Flow> {
        (self.at, self.aside) = (AtReclaim::Look, None);
        match step {
            step if self.until == Until::Step => Ok(Flow::Return(Outcome::Reclaim(step))),
            ReclaimStep::Done => Ok(Flow::Return(Outcome::Worked)),
            ReclaimStep::Wait(patch) => call(Stable::new(vec![patch])),
            ReclaimStep::WaitForFrees => {
                self.at = AtReclaim::Freed;
                call(Drain::default())
            }
            ReclaimStep::More => {
                let (s, now) = (&mut *cx.session, cx.clock.now());
                // There may be nobody else to write.
                let writes = s.store.is_filling() && s.latched.is_none();
                let batch = writes.then(|| s.store.next_batch(Goal::Oldest, now, BATCH_BYTES));
                let batch = batch.and_then(|batch| s.hand_out(batch));
                let issued = |s: &mut Session| s.next_issued(now, true);
                if let Some(batch) = batch.or_else(|| writes.then(|| issued(s)).flatten()) {
                    self.at = AtReclaim::Turn;
                    return Ok(Flow::Need(Poll::Write(batch)));
                }
                Ok(Flow::Need(Poll::Turn))
            }
        }
    }
}
