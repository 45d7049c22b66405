//! Deferred work, and draining: putting everything onto stable storage.

use backstitch_layout::Stop;
use backstitch_ordering::Operation;
use backstitch_store::Goal;

use crate::commit::{Commit, FreeLog};
use crate::stable::FlushRounds;
use crate::task::{Call, Context, Flow, Outcome, Poll, call};
use crate::{BATCH_BYTES, Result};

/// Does deferred work whose time has come.
#[derive(Default)]
pub(crate) struct Work {
    worked: bool,
    /// How much had been put aside as unreadable when the step that misses blocks began.
    aside: Option<u64>,
}

impl Call for Work {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        let came = cx.came();
        let s = &mut *cx.session;
        if let Err(error) = came {
            let aside = self.aside.take();
            // Puts the work aside, unless another task that missed the same block has done so
            // meanwhile.
            if aside == Some(s.fs.deferred().unreadable) && !s.fs.put_deferred_aside() {
                return Err(error);
            }
            tracing::warn!("what was removed cannot be freed yet: {error}");
            s.unreadable = Some(error);
            self.worked = true;
        }
        self.aside.get_or_insert(s.fs.deferred().unreadable);
        match s.own_step(Operation::Background, cx.clock.stamp(), |fs, v, now| {
            fs.background(v, now)
        }) {
            Err(Stop::Miss) => Ok(Flow::Need(Poll::Read)),
            Ok(false) if self.worked => Ok(Flow::Return(Outcome::Worked)),
            Ok(false) => Ok(Flow::Return(Outcome::Idle)),
            Ok(true) => {
                (self.worked, self.aside) = (true, None);
                s.store.trim();
                Ok(Flow::Need(Poll::Turn))
            }
            Err(error) => Err(s.deferred_work_failed(error)),
        }
    }
}

/// Puts everything onto stable storage and ends all deferred work. Progress is counted in patches,
/// not in blocks: a block that stays dirty because of a rollback is no reason to give up while
/// patches commit. Nor is a block that cannot be read, though deferred work fails by it: everything
/// is written first.
pub(crate) struct Drain {
    at: AtDrain,
    /// Something was done in this round.
    worked: bool,
    /// Everything that is left was waited for, and nothing has been done since.
    is_forced: bool,
    deferred: Result<()>,
}

enum AtDrain {
    Work,
    Log,
    Commit,
    Write,
}

impl Default for Drain {
    fn default() -> Drain {
        Drain {
            at: AtDrain::Work,
            worked: false,
            is_forced: false,
            deferred: Ok(()),
        }
    }
}

impl Call for Drain {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        loop {
            let came = cx.came();
            match self.at {
                AtDrain::Work => {
                    cx.session.not_latched()?;
                    (self.at, self.worked) = (AtDrain::Log, false);
                    if self.deferred.is_ok() {
                        return call(Work::default());
                    }
                }
                AtDrain::Log => {
                    self.at = AtDrain::Commit;
                    match came {
                        Ok(outcome) => self.worked = outcome == Outcome::Worked,
                        Err(error) => self.deferred = Err(error),
                    }
                    // Work that was put off from one transaction to the next gets room in the log
                    // this way.
                    let is_full = cx.session.log_state().is_some_and(|log| log.is_full);
                    if is_full && !cx.session.is_committing {
                        return call(FreeLog::default());
                    }
                }
                AtDrain::Commit => {
                    came?;
                    self.at = AtDrain::Write;
                    return call(Commit::default());
                }
                AtDrain::Write => {
                    self.worked |= came? == Outcome::Worked;
                    self.at = AtDrain::Work;
                    if let Some(flow) = self.write(cx)? {
                        return Ok(flow);
                    }
                }
            }
        }
    }
}

impl Drain {
    /// The batch of a round; `None` where there is another round to come.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<Option<Flow>> {
        let s = &mut *cx.session;
        s.not_latched()?;
        let batch = s.store.next_batch(Goal::All, cx.clock.now(), BATCH_BYTES);
        let batch = s.hand_out(batch);
        if let Some(batch) = batch.or_else(|| s.next_issued(cx.clock.now(), true)) {
            return Ok(Some(Flow::Need(Poll::Write(batch))));
        }
        if self.worked {
            self.is_forced = false;
            return Ok(None);
        }
        if s.in_flight > 0 {
            return Ok(Some(Flow::Need(Poll::Wait)));
        }
        self.deferred.clone()?;
        if s.store.graph().counters().live == 0 && s.fs.deferred().pending == 0 {
            return Ok(Some(Flow::Return(Outcome::Worked)));
        }
        if s.store.graph().has_fired() {
            return Ok(None);
        }
        // Blocks wait for each other in a circle that the mechanism did not foresee. They cannot go
        // without a rollback, and write-back makes none; a wait for them does.
        if !std::mem::replace(&mut self.is_forced, true) && !s.mechanism.writes_with_rollback() {
            let mut all = Vec::new();
            s.store.uncommitted(&mut all);
            return call(FlushRounds::new(all)).map(Some);
        }
        Err(s.stuck())
    }
}
