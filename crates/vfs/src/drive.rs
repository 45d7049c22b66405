//! Driving the session's tasks: they are polled under the lock, and what they ask for is done
//! without it.

use std::time::Duration;

use backstitch_layout::Timestamp;
use backstitch_ordering::PatchId;
use backstitch_session::{Clock, Outcome, Poll, Task};
use backstitch_store::Batch;
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::options::now;
use crate::{Error, Result};

/// The time of an engine.
impl Clock for &Engine {
    fn now(&self) -> Duration {
        self.clock()
    }

    fn stamp(&mut self) -> (Duration, Timestamp) {
        (self.clock(), now())
    }
}

impl Engine {
    /// Runs a task to its end. The lock is released whenever the task waits.
    pub(crate) fn drive(&self, core: &mut MutexGuard<'_, Core>, mut task: Task) -> Result<Outcome> {
        loop {
            let polled = task.poll(&mut core.session, &mut &*self);
            if core.session.take_news() {
                self.batch_done.notify_all();
            }
            match polled? {
                Poll::Done(outcome) => return Ok(outcome),
                Poll::Changed => {}
                Poll::Read => {
                    if let Err(error) = self.read_wanted(core) {
                        task.failed(error);
                    }
                }
                Poll::Write(batch) => {
                    self.will_wait();
                    self.write_out(core, batch);
                }
                Poll::Wait => {
                    self.will_wait();
                    self.batch_done.wait(core);
                }
                Poll::Rest(time) => {
                    self.will_wait();
                    MutexGuard::unlocked(core, || std::thread::sleep(time));
                }
                Poll::Turn => {
                    if core.store.is_filling() {
                        self.wake_writer.notify_one();
                    }
                    MutexGuard::bump(core);
                }
            }
        }
    }

    /// Writes a batch without the lock, then reports it complete.
    pub(crate) fn write_out(&self, core: &mut MutexGuard<'_, Core>, batch: Batch) {
        // Taken under the lock: a copy that begins later has the batch's blocks from memory.
        let snapshot = self.snapshot.lock().clone();
        let (repeated, result) = MutexGuard::unlocked(core, || {
            if let Some(snapshot) = snapshot {
                snapshot.before_write(&batch.writes);
            }
            self.retrier.perform(&*self.device, &batch.writes)
        });
        core.write_retries += repeated;
        let clock = self.clock();
        core.session.written(batch, result, clock);
        self.batch_done.notify_all();
        // Changes that are to be issued at once may have waited for this batch.
        if core.is_issue_due(clock) {
            self.wake_writer.notify_one();
        }
        self.tell_listeners(core);
    }

    /// Waits until a further operation fits into the running transaction, and this into the log.
    pub(crate) fn make_room(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        if core.session.has_room() {
            return Ok(());
        }
        core.stalls.log.count += 1;
        let since = self.clock();
        let made = self.drive(core, Task::make_room());
        let took = self.clock().saturating_sub(since);
        core.stalls.log.note(took);
        made.map(drop)
    }

    /// Ends the running transaction. False where it was empty.
    pub(crate) fn commit(&self, core: &mut MutexGuard<'_, Core>) -> Result<bool> {
        Ok(self.drive(core, Task::commit())? == Outcome::Worked)
    }

    /// Waits until `targets` are on stable storage, writing what is needed.
    pub(crate) fn make_stable(
        &self,
        core: &mut MutexGuard<'_, Core>,
        targets: Vec<PatchId>,
    ) -> Result<()> {
        self.drive(core, Task::make_stable(targets)).map(drop)
    }

    /// Does the layout's deferred work whose time has come.
    pub(crate) fn do_deferred_work(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        self.drive(core, Task::work()).map(drop)
    }

    /// Writes everything and ends all deferred work.
    pub(crate) fn drain(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        self.will_wait();
        self.drive(core, Task::drain()).map(drop)
    }
}

impl From<backstitch_session::Error> for Error {
    fn from(error: backstitch_session::Error) -> Error {
        use backstitch_session::Error as E;
        match error {
            E::Layout(error) => Error::Layout(error),
            E::Latched(error) => Error::Latched(error),
            E::Unfinished(stop) => Error::Unfinished(stop),
            E::Stuck { patches } => Error::Stuck { patches },
        }
    }
}
