//! Writes that the mechanism wants though nobody waits for them: at once, or when a time has come.

use std::time::Duration;

use backstitch_store::{Batch, Goal};

use crate::{BATCH_BYTES, Session};

impl Session {
    /// Whether [`next_issued`](Self::next_issued) has something to look at.
    pub fn is_issue_due(&self, now: Duration) -> bool {
        let is_due = self.next_issue().is_some_and(|at| now >= at);
        is_due && self.latched.is_none()
    }

    /// Whether a batch may be [reported](Session::written) once the device has taken it and puts
    /// later ones behind it. All order is kept then, but before a caller is told that something is
    /// on stable storage, the driver has to wait for the device.
    pub fn may_be_ordered_by_queue(&self) -> bool {
        self.mechanism.is_ordered_by_queue()
    }

    /// When the mechanism is to be asked again, where nothing happens before.
    pub fn next_issue(&self) -> Option<Duration> {
        match self.issued.is_empty() {
            true => self.mechanism.next_tick(),
            false => Some(Duration::ZERO),
        }
    }

    /// Hands out the next batch that the mechanism wants to be written; [`written`](Self::written)
    /// is to be told of it. `None` where there is nothing, or it waits for another batch. `hurry`:
    /// somebody waits for what the mechanism puts off, or memory fills up.
    pub fn next_issued(&mut self, now: Duration, hurry: bool) -> Option<Batch> {
        if self.latched.is_some() {
            return None;
        }
        (self.mechanism).tick(&mut self.store, now, hurry, &mut self.issued);
        let graph = self.store.graph();
        self.issued.retain(|id| graph.is_live(*id));
        if self.issued.is_empty() {
            return None;
        }
        let goal = Goal::Patches(&self.issued);
        let batch = self.store.next_batch(goal, now, BATCH_BYTES);
        self.hand_out(batch)
    }
}
