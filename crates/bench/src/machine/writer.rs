//! Write-back, and the throttle while memory is full.

use std::rc::Rc;
use std::time::Duration;

use backstitch_session::{Chore, Task, Throttle, Turn};

use super::Machine;
use super::schedule::Event;
use crate::Result;

/// The writer's task, until the machine ends it.
pub(super) async fn write_back(machine: Rc<Machine>) {
    while !machine.core.borrow().is_stopping {
        match machine.turn_of_writer().await {
            Ok(None) => {}
            Ok(Some(nap)) => machine.schedule.event_within(Event::Writer, nap).await,
            // Callers get this error too. Nothing is written any more.
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
    /// One turn of the writer, as the session asks. Returns how long to sleep then, if at all.
    async fn turn_of_writer(&self) -> Result<Option<Duration>> {
        self.write_gathered_long_ago().await?;
        let mut turn = Turn::default();
        loop {
            let now = self.now();
            let chore = turn.next(&mut self.core.borrow_mut().session, now, 0);
            match chore {
                Chore::Work(task) | Chore::Log(task) => {
                    self.drive(task).await?;
                }
                Chore::Write(batch) => self.write_out(batch).await,
                Chore::Again => return Ok(None),
                Chore::Nap(time) => return Ok(Some(time)),
            }
        }
    }

    /// Waits while memory is crowded with changes that are not on disk yet.
    pub(super) async fn throttle(&self) -> Result<()> {
        let must_wait = |throttle: &Throttle| {
            let session = &mut self.core.borrow_mut().session;
            session.note_held(0);
            throttle.must_wait(session)
        };
        let mut throttle = Throttle::new(false);
        if !must_wait(&throttle) {
            return Ok(());
        }
        let since = self.now();
        self.drive(Task::commit()).await?;
        while must_wait(&throttle) {
            self.schedule.tell(Event::Writer);
            let before = self.now();
            self.schedule
                .event_within(Event::News, Throttle::ROUND)
                .await;
            let timed_out = self.now() - before >= Throttle::ROUND;
            throttle.waited(&self.core.borrow().session, timed_out);
        }
        let mut core = self.core.borrow_mut();
        core.throttled += 1;
        core.throttled_time += self.now() - since;
        Ok(())
    }
}
