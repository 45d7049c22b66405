//! Flush rounds: putting patches onto stable storage for tasks that wait for them.
//!
//! One task at a time leads: it writes a batch for all that is waited for. The others find their
//! wish fulfilled by it, or lead the next one. Where several wait for the running transaction, they
//! share it.

use std::time::Duration;

use backstitch_ordering::PatchId;
use backstitch_store::{Batch, Happening};

use crate::commit::Commit;
use crate::task::{Call, Context, Flow, Outcome, Poll, call};
use crate::{Result, Session};

/// Where several callers waited for the last transaction, the next one is ended later, so that more can
/// join it: by this part (one eighth) of the time that the last one took.
const NAP_PART: u32 = 8;
const LONGEST_NAP: Duration = Duration::from_millis(2);

/// Waits until patches are on stable storage, which may take the end of the running transaction.
pub(crate) struct Stable {
    targets: Vec<PatchId>,
    at: AtStable,
    is_counted: bool,
    has_napped: bool,
}

enum AtStable {
    Look,
    /// The transaction that began to end at this time is closed.
    Closed(Duration),
    /// It is on stable storage.
    Committed(Duration),
    End,
}

impl Stable {
    pub(crate) fn new(targets: Vec<PatchId>) -> Stable {
        Stable {
            targets,
            at: AtStable::Look,
            is_counted: false,
            has_napped: false,
        }
    }

    fn count(&mut self, session: &mut Session, counts: bool) {
        match (self.is_counted, counts) {
            (false, true) => session.committers += 1,
            (true, false) => session.committers -= 1,
            _ => {}
        }
        self.is_counted = counts;
    }
}

impl Call for Stable {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        let came = cx.came()?;
        let s = &mut *cx.session;
        match self.at {
            AtStable::Look => {}
            AtStable::Closed(began) => {
                self.at = AtStable::Committed(began);
                // The transaction is waited for with the other targets, which may go in the same
                // batch.
                let last = s.log_state().map(|log| log.last);
                let targets = self.targets.iter().copied().chain(last);
                return call(FlushRounds::new(targets.collect()));
            }
            AtStable::Committed(began) => s.commit_took = cx.clock.now().saturating_sub(began),
            AtStable::End => return Ok(Flow::Return(came)),
        }
        self.at = AtStable::Look;
        let waits = s.wait_for_running(&self.targets);
        self.count(s, waits);
        if !waits {
            self.at = AtStable::End;
            return call(FlushRounds::new(std::mem::take(&mut self.targets)));
        }
        if s.is_committing {
            // Somebody ends the transaction: another commit would end the one after it as well.
            return Ok(Flow::Need(Poll::Wait));
        }
        let now = cx.clock.now();
        s.begin_to_gather(now);
        if let Some(last) = s.log_state().map(|log| log.last)
            && s.store.graph().is_live(last)
        {
            return call(FlushRounds::new(vec![last]));
        }
        if !self.has_napped
            && let Some(nap) = s.nap(now)
        {
            self.has_napped = true;
            return Ok(Flow::Need(Poll::Rest(nap)));
        }
        s.is_shared = s.committers > 1;
        self.at = AtStable::Closed(cx.clock.now());
        call(Commit::default())
    }

    fn end(&mut self, session: &mut Session) {
        self.count(session, false);
    }
}

/// Waits until patches that wait for no running transaction are on stable storage, writing what is
/// needed.
pub(crate) struct FlushRounds {
    /// The patches waited for, until they are entered among the session's wishes.
    targets: Vec<PatchId>,
    ticket: Option<u64>,
    is_leading: bool,
}

impl FlushRounds {
    pub(crate) fn new(targets: Vec<PatchId>) -> FlushRounds {
        FlushRounds {
            targets,
            ticket: None,
            is_leading: false,
        }
    }
}

impl Call for FlushRounds {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        self.stop_leading(cx.session);
        cx.came()?;
        let s = &mut *cx.session;
        if self.ticket.is_none() {
            if !self.targets.iter().any(|t| s.store.graph().is_live(*t)) {
                return Ok(Flow::Return(Outcome::Idle));
            }
            let targets = std::mem::take(&mut self.targets);
            self.ticket = Some(s.wish(targets, cx.clock.now()));
        }
        if s.is_fulfilled(self.ticket) {
            return Ok(Flow::Return(Outcome::Worked));
        }
        s.not_latched()?;
        if s.has_leader {
            return Ok(Flow::Need(Poll::Wait));
        }
        let batch = s.next_round(cx.clock.now());
        if let Some(batch) = s.hand_out(batch) {
            (s.has_leader, self.is_leading) = (true, true);
            s.sync_blocks = batch.len();
            s.waited_batches += 1;
            return Ok(Flow::Need(Poll::Write(batch)));
        }
        // What is waited for may come after what the mechanism puts off.
        if let Some(batch) = s.next_issued(cx.clock.now(), true) {
            (s.has_leader, self.is_leading) = (true, true);
            s.waited_batches += 1;
            return Ok(Flow::Need(Poll::Write(batch)));
        }
        s.news = true;
        if s.in_flight > 0 || (s.is_committing && !cx.is_closing) {
            return Ok(Flow::Need(Poll::Wait));
        }
        // Somebody has changed a block again that this waits for, contents in the log for example:
        // it stays back until that transaction ends.
        if !s.is_committing && s.log_state().is_some_and(|log| log.is_dirty) {
            return call(Commit::default());
        }
        Err(s.stuck())
    }

    fn end(&mut self, session: &mut Session) {
        self.stop_leading(session);
        if let Some(ticket) = self.ticket {
            (session.store).tell(|| Happening::Reached(ticket));
        }
        let is_others = |(ticket, _): &(u64, _)| Some(*ticket) != self.ticket;
        session.wishes.retain(is_others);
    }
}

impl FlushRounds {
    fn stop_leading(&mut self, session: &mut Session) {
        if std::mem::take(&mut self.is_leading) {
            (session.has_leader, session.sync_blocks) = (false, 0);
        }
    }
}

impl Session {
    /// Whether any of these cannot be on stable storage before the running transaction ends.
    fn wait_for_running(&mut self, targets: &[PatchId]) -> bool {
        let Some((log, store, _)) = self.log() else {
            return false;
        };
        targets.iter().any(|t| log.waits_for_running(store, *t))
    }

    /// Somebody waits for the running transaction. From the first one on it stays open for a while,
    /// under a mechanism that gathers those who wait. The write of the transaction before it is a
    /// part of this time.
    fn begin_to_gather(&mut self, now: Duration) {
        let Some((log, store, _)) = self.log() else {
            return;
        };
        let Some(time) = log.gather_time() else {
            return;
        };
        let number = log.state(store).commits;
        if self.gathers.is_none_or(|(of, _)| of != number) {
            self.gathers = Some((number, now + time));
        }
    }

    /// How long a caller that waits for the running transaction leaves it open for others.
    fn nap(&self, now: Duration) -> Option<Duration> {
        if let Some((_, until)) = self.gathers {
            // All who come meanwhile go on when the first one does.
            return until.checked_sub(now).filter(|nap| !nap.is_zero());
        }
        // Those who shared the last transaction may come again at once: they can share this one
        // too.
        let nap = (self.commit_took / NAP_PART).min(LONGEST_NAP);
        self.is_shared.then_some(nap)
    }

    fn wish(&mut self, targets: Vec<PatchId>, now: Duration) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        (self.store).tell(|| Happening::Awaited(now, ticket, &targets));
        self.store.settle(&targets);
        self.waits += 1;
        self.wishes.push((ticket, targets));
        ticket
    }

    fn is_fulfilled(&mut self, ticket: Option<u64>) -> bool {
        let wish = self.wishes.iter_mut().find(|(t, _)| Some(*t) == ticket);
        let Some((_, targets)) = wish else {
            return true;
        };
        // What is on stable storage already need not be looked at in every round that follows.
        let graph = self.store.graph();
        while targets.pop_if(|last| !graph.is_live(*last)).is_some() {}
        targets.is_empty()
    }

    /// The next batch for all who wait for something to be on stable storage.
    fn next_round(&mut self, now: Duration) -> Batch {
        let of = (self.wishes.len(), self.next_ticket);
        if self.rounds_of != of {
            (self.rounds, self.rounds_of) = (Default::default(), of);
        }
        let wishes = &self.wishes;
        let targets = || wishes.iter().flat_map(|(_, w)| w.iter().copied()).collect();
        self.store.next_round(&mut self.rounds, targets, now)
    }
}
