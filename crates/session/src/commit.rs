//! Driving a mechanism with a log: when transactions end, and how the log gets room.
//!
//! A transaction ends when it is large, when it is as old as the commit interval, and when somebody
//! waits for something in it. A caller that comes while one is on its way to the disk waits for
//! that first, so that all who came meanwhile share the next one.

use std::time::Duration;

use backstitch_device::DeviceError;
use backstitch_layout::{Error as LayoutError, Stop};
use backstitch_ordering::{CloseError, LogState, Operation};

use crate::drain::Work;
use crate::stable::FlushRounds;
use crate::task::{Call, Context, Flow, Outcome, Poll, call};
use crate::{Error, Result, Session};

/// Rounds in which a transaction that does not fit waits for others to go home, before that counts
/// as a fault.
const ROUNDS: usize = 64;

impl Session {
    /// Whether a further operation fits: there is nothing for
    /// [`Task::make_room`](crate::Task::make_room) to do.
    pub fn has_room(&mut self) -> bool {
        let is_full = |state: LogState| state.is_full || (state.is_dirty && state.is_large);
        !self.is_committing && self.latched.is_none() && !self.log_state().is_some_and(is_full)
    }

    /// Whether the running transaction is so old that it is to be ended, or holds too much memory.
    pub fn is_commit_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.last_commit + self.commit_interval || self.store.is_filling();
        is_due && !self.is_committing && self.log_state().is_some_and(|log| log.is_dirty)
    }

    /// Whether less than half of the log is free, and nobody is about to change that.
    pub fn is_log_filling(&mut self) -> bool {
        !self.is_committing && self.log_state().is_some_and(|log| log.is_filling)
    }

    /// A transaction could not be closed, and goes on running. Blocks that are freed at its end may
    /// be free in memory by now, while the disk still shows them in use, and contents may be written
    /// into a free block at any time. So nothing may be allocated any more: the file system becomes
    /// read-only. If the cause of the failure goes away, the next attempt closes the transaction with
    /// all that is in it.
    fn commit_failed(&mut self, error: &Error) {
        if self.fs.read_only_reason().is_none() {
            tracing::error!("the running transaction cannot be ended: {error}");
        }
        self.fs.become_read_only(&error.to_string());
        if let Some((log, ..)) = self.log() {
            log.cancel_close();
        }
    }
}

/// Makes sure that a further operation fits.
pub(crate) struct Room;

impl Call for Room {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        cx.came()?;
        if cx.session.is_committing {
            return Ok(Flow::Need(Poll::Wait));
        }
        cx.session.not_latched()?;
        match cx.session.log_state() {
            Some(s) if s.is_dirty && (s.is_large || s.is_full) => call(Commit::default()),
            Some(s) if s.is_full => call(FreeLog::default()),
            _ => Ok(Flow::Return(Outcome::Idle)),
        }
    }
}

/// Closes the running transaction: its commit record is then a patch that is yet to be written.
#[derive(Default)]
pub(crate) struct Commit {
    at: AtCommit,
    rounds: usize,
}

#[derive(Default, PartialEq, Eq)]
enum AtCommit {
    #[default]
    Begin,
    Work,
    Close,
    Read,
}

impl Call for Commit {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        let flow = self.go_on(cx);
        if let Err(error) = &flow
            && self.is_closing()
        {
            cx.session.commit_failed(error);
        }
        flow
    }

    fn end(&mut self, session: &mut Session) {
        if self.is_closing() {
            (session.is_committing, session.news) = (false, true);
        }
    }

    fn is_closing(&self) -> bool {
        self.at != AtCommit::Begin
    }
}

impl Commit {
    fn go_on(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        let s = &mut *cx.session;
        match self.at {
            AtCommit::Begin if s.is_committing => return Ok(Flow::Need(Poll::Wait)),
            AtCommit::Begin => {
                s.last_commit = cx.clock.now();
                if !s.log_state().is_some_and(|log| log.is_dirty) {
                    return Ok(Flow::Return(Outcome::Idle));
                }
                s.is_committing = true;
            }
            // What cannot be freed has made the file system read-only; everything else is committed
            // all the same.
            AtCommit::Close => return self.close(cx),
            AtCommit::Work | AtCommit::Read => drop(cx.came()?),
        }
        self.at = AtCommit::Close;
        cx.session.not_latched()?;
        if let Some((log, ..)) = cx.session.log() {
            log.begin_close();
        }
        call(Work::default())
    }

    /// Follows the end of the deferred work without a turn of others in between.
    fn close(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        let (s, at) = (&mut *cx.session, cx.clock.stamp());
        let prepare = s.own_step(Operation::Administration, at, |fs, v, now| {
            fs.prepare_commit(v, now)
        });
        if let Err(Stop::Miss) = prepare {
            self.at = AtCommit::Read;
            return Ok(Flow::Need(Poll::Read));
        }
        prepare?;
        let Some((log, store, volume)) = s.log() else {
            return Ok(Flow::Return(Outcome::Worked));
        };
        let (now, time) = at;
        let time = (time.seconds.max(0) as u64, time.nanoseconds);
        match log.close(store, volume, now, time) {
            Ok(_) => {
                s.has_changed = true;
                Ok(Flow::Return(Outcome::Worked))
            }
            Err(error @ CloseError::Contradiction(_)) => {
                let reason = error.to_string();
                Err(s.latch(DeviceError::Abandoned { reason }))
            }
            Err(no_room) if self.rounds == ROUNDS => {
                Err(LayoutError::Unsupported(no_room.to_string()).into())
            }
            Err(CloseError::NoRoom(_)) => {
                self.rounds += 1;
                self.at = AtCommit::Work;
                call(FreeLog::default())
            }
        }
    }
}

/// One step of making room in the log.
#[derive(Default)]
pub(crate) struct FreeLog {
    is_begun: bool,
}

impl Call for FreeLog {
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<Flow> {
        if std::mem::replace(&mut self.is_begun, true) {
            return cx.came().map(Flow::Return);
        }
        let now = cx.clock.now();
        let Some((log, store, volume)) = cx.session.log() else {
            return Ok(Flow::Return(Outcome::Idle));
        };
        let mut targets = Vec::new();
        match log.move_tail(store, volume, now) {
            Some(tail) => targets.push(tail),
            None => log.home(store, &mut targets),
        }
        cx.session.has_changed = true;
        call(FlushRounds::new(targets))
    }
}
