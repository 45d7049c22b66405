//! Write-back, and who has to wait while memory is full.

use std::rc::Rc;
use std::time::Duration;

use backstitch_session::{BATCH_BYTES, Task};
use backstitch_store::Goal;

use super::schedule::Event;
use super::{Core, Machine};
use crate::Result;

/// How long the writer sleeps at most: the resolution of expiry.
const NAP: Duration = Duration::from_millis(500);
/// No batch is larger than this part of the bound on memory.
const BATCH_PART: u64 = 4;
/// From how many blocks on the writer leaves everything to a sync that is writing them.
const LARGE_SYNC_BLOCKS: usize = 4096;
/// How long one who waits for memory waits before it looks again.
const LOOK: Duration = Duration::from_millis(100);
/// How often it finds that nothing is on its way before it goes on.
const IDLE_ROUNDS: u32 = 20;

/// The writer, until the machine has it end.
pub(super) async fn write_back(machine: Rc<Machine>) {
    while !machine.core.borrow().is_stopping {
        match machine.turn_of_writer().await {
            Ok(true) => {}
            Ok(false) => {
                machine
                    .schedule
                    .event_within(Event::Writer, machine.nap())
                    .await
            }
            // The callers are told: nothing is written any more.
            Err(error) => {
                tracing::error!("{error}");
                break;
            }
        }
    }
    machine.core.borrow_mut().has_stopped = true;
    machine.schedule.tell(Event::News);
}

impl Machine {
    /// Whether there may be more to do at once.
    async fn turn_of_writer(&self) -> Result<bool> {
        self.write_gathered_long_ago().await?;
        self.drive(Task::work()).await?;
        self.tend_log().await?;
        let issued = self.write_issued().await;
        let wrote = self.write_oldest().await || issued;
        let mut core = self.core.borrow_mut();
        core.session.store.trim();
        Ok(wrote || core.session.store.graph().has_fired())
    }

    /// Ends a transaction that is old, and keeps half of the log free.
    async fn tend_log(&self) -> Result<()> {
        let now = self.now();
        let is_due = self.core.borrow_mut().session.is_commit_due(now);
        if is_due {
            self.drive(Task::commit()).await?;
            let log = self.core.borrow_mut().session.log_state();
            self.make_stable(log.map(|log| log.last).into_iter().collect())
                .await?;
        }
        if self.core.borrow_mut().session.is_log_filling() {
            self.drive(Task::free_log()).await?;
        }
        Ok(())
    }

    /// Writes what the mechanism wants to be written though nobody waits for it.
    async fn write_issued(&self) -> bool {
        let now = self.now();
        let batch = {
            let session = &mut self.core.borrow_mut().session;
            let hurry = session.store.is_filling();
            session.next_issued(now, hurry)
        };
        match batch {
            Some(batch) => {
                self.write_out(batch).await;
                true
            }
            None => false,
        }
    }

    /// How long the writer sleeps where nobody wakes it.
    fn nap(&self) -> Duration {
        let issue = self.core.borrow().session.next_issue();
        let until = issue.map(|at| at.saturating_sub(self.now()));
        // What is issued and could not be written waits for a batch on its way.
        until
            .filter(|time| !time.is_zero())
            .map_or(NAP, |time| time.min(NAP))
    }

    /// Writes a batch of what is old, or of what memory is full of. False where there is none.
    async fn write_oldest(&self) -> bool {
        let batch = {
            let mut core = self.core.borrow_mut();
            core.note_held();
            let session = &mut core.session;
            let is_left_to_a_sync =
                session.sync_blocks >= LARGE_SYNC_BLOCKS && !session.store.is_crowded();
            if is_left_to_a_sync || session.latched.is_some() {
                return false;
            }
            let goal = match session.store.is_filling() {
                true => Goal::Oldest,
                false => Goal::Expired,
            };
            let max_bytes = BATCH_BYTES.min(session.store.limits().memory_bytes / BATCH_PART);
            let batch = session.store.next_batch(goal, self.now(), max_bytes);
            session.hand_out(batch)
        };
        match batch {
            Some(batch) => {
                self.write_out(batch).await;
                true
            }
            None => false,
        }
    }

    /// Waits while memory is crowded with what is not on disk yet.
    pub(super) async fn throttle(&self) -> Result<()> {
        let must_wait = || {
            let mut core = self.core.borrow_mut();
            core.note_held();
            core.session.store.is_crowded() && core.session.latched.is_none()
        };
        if !must_wait() {
            return Ok(());
        }
        let since = self.now();
        // What a running transaction has changed cannot leave memory.
        self.drive(Task::commit()).await?;
        let mut idle_rounds = 0;
        while must_wait() && idle_rounds < IDLE_ROUNDS {
            self.schedule.tell(Event::Writer);
            let before = self.now();
            self.schedule.event_within(Event::News, LOOK).await;
            let is_idle =
                self.now() - before >= LOOK && self.core.borrow().session.batches_in_flight() == 0;
            idle_rounds = if is_idle { idle_rounds + 1 } else { 0 };
        }
        let mut core = self.core.borrow_mut();
        core.throttled += 1;
        core.throttled_time += self.now() - since;
        Ok(())
    }
}

impl Core {
    /// Tells the store what is held in memory until patches commit.
    fn note_held(&mut self) {
        let deferred = self.session.fs.deferred();
        (self.session.store).note_held(deferred.bytes, deferred.index_bytes);
    }
}
