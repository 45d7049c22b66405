//! Driving a mechanism with a log: when transactions end, and how the log gets room.
//!
//! A transaction ends when it is large, when it is as old as the commit interval, and when somebody waits for something in it.
//! Whoever comes while one is on its way to the disk waits for that first, so that all who came meanwhile share the next one.

use std::time::Duration;

use backstitch_device::DeviceError;
use backstitch_layout::{Error as LayoutError, FileSystem};
use backstitch_ordering::{CloseError, Log, LogState, Mechanism, Operation, PatchId, VolumeId};
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::options::now;
use crate::{Error, Result};

/// So often a transaction that does not fit waits for others to go home before that counts as a fault.
const ROUNDS: usize = 64;
/// Where several waited for the last transaction, others are let join the next one for such a part of the time that it took.
const NAP_PART: u32 = 8;
const LONGEST_NAP: Duration = Duration::from_millis(2);

/// The log that changes go through, if there is one, and its volume: the mechanism's, or that of a file system inside this one.
pub(crate) fn log_of<'c>(
    mechanism: &'c mut dyn Mechanism,
    fs: &'c mut dyn FileSystem,
    volume: VolumeId,
) -> Option<(&'c mut dyn Log, VolumeId)> {
    match mechanism.log() {
        Some(log) => Some((log, volume)),
        None => fs.log(),
    }
}

impl Core {
    fn log(&mut self) -> Option<(&mut dyn Log, VolumeId)> {
        log_of(&mut *self.mechanism, &mut *self.fs, self.volume)
    }

    /// Whether everything goes through the log, or what is in it is one file system among others.
    pub(crate) fn log_is_for_all(&mut self) -> bool {
        self.mechanism.log().is_some()
    }

    /// How the log is doing; `None` where there is none.
    pub(crate) fn log_state(&mut self) -> Option<LogState> {
        let (log, _) = log_of(&mut *self.mechanism, &mut *self.fs, self.volume)?;
        Some(log.state(&self.store))
    }

    /// Whether any of these cannot be on stable storage before the running transaction ends.
    fn wait_for_running(&mut self, targets: &[PatchId]) -> bool {
        let Some((log, _)) = log_of(&mut *self.mechanism, &mut *self.fs, self.volume) else {
            return false;
        };
        targets
            .iter()
            .any(|t| log.waits_for_running(&self.store, *t))
    }
}

impl Engine {
    /// Waits until a further operation fits into the running transaction, and that into the log.
    pub(crate) fn make_room(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        loop {
            while core.committing.is_some() {
                self.will_wait();
                self.batch_done.wait(core);
            }
            if let Some(error) = &core.latched {
                return Err(Error::Latched(error.clone()));
            }
            match core.log_state() {
                Some(state) if state.is_dirty && (state.is_large || state.is_full) => {
                    self.commit(core)?;
                }
                Some(state) if state.is_full => self.free_log(core)?,
                _ => return Ok(()),
            }
        }
    }

    /// Ends the running transaction, with all deferred work of it. False where it was empty. What it holds is on its way then, but
    /// nobody writes it yet.
    pub(crate) fn commit(&self, core: &mut MutexGuard<'_, Core>) -> Result<bool> {
        while core.committing.is_some() {
            self.will_wait();
            self.batch_done.wait(core);
        }
        core.last_commit = self.clock();
        if !core.log_state().is_some_and(|s| s.is_dirty) {
            return Ok(false);
        }
        core.committing = Some(std::thread::current().id());
        let result = self.close(core);
        core.committing = None;
        self.batch_done.notify_all();
        result.map(|()| true)
    }

    fn close(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        let mut rounds = 0;
        loop {
            if let Some(error) = &core.latched {
                return Err(Error::Latched(error.clone()));
            }
            if let Some((log, _)) = core.log() {
                log.begin_close();
            }
            // What cannot be freed has made the file system read-only; everything else is committed all the same.
            let _ = self.do_deferred_work(core);
            let mut wait_for = Vec::new();
            let (clock, time) = (self.clock(), now());
            let operation = Some(Operation::Administration);
            let prepared = core.step(operation, clock, time, &mut wait_for, &mut |fs, v, now| {
                fs.prepare_commit(v, now)
            });
            match prepared {
                Ok(()) => {}
                Err(LayoutError::Miss) => {
                    self.read_wanted(core)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            // The lock was held since the deferred work came to its end.
            let Core {
                store,
                mechanism,
                volume,
                fs,
                ..
            } = &mut **core;
            let Some((log, volume)) = log_of(&mut **mechanism, &mut **fs, *volume) else {
                return Ok(());
            };
            let time = (time.seconds.max(0) as u64, time.nanoseconds);
            match log.close(store, volume, clock, time) {
                Ok(_) => return Ok(()),
                Err(error @ CloseError::Contradiction(_)) => {
                    let reason = error.to_string();
                    core.fs.become_read_only(&reason);
                    let error = DeviceError::Abandoned { reason };
                    let latched = core.latched.get_or_insert(error).clone();
                    return Err(Error::Latched(latched));
                }
                Err(no_room) if rounds == ROUNDS => {
                    core.fs.become_read_only(&no_room.to_string());
                    return Err(LayoutError::Unsupported(no_room.to_string()).into());
                }
                Err(CloseError::NoRoom(_)) => rounds += 1,
            }
            self.free_log(core)?;
        }
    }

    /// One step of making room in the log: moves its tail, or brings home what keeps it where it is.
    pub(crate) fn free_log(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        let clock = self.clock();
        let Core {
            store,
            mechanism,
            volume,
            fs,
            ..
        } = &mut **core;
        let Some((log, volume)) = log_of(&mut **mechanism, &mut **fs, *volume) else {
            return Ok(());
        };
        let mut targets = Vec::new();
        match log.move_tail(store, volume, clock) {
            Some(tail) => targets.push(tail),
            None => log.home(store, &mut targets),
        }
        self.wait_for(core, targets)
    }

    /// What the writer does for the log: ends a transaction that is old, and keeps half of the log free.
    pub(crate) fn tend_log(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        let Some(state) = core.log_state() else {
            return Ok(());
        };
        let is_due = self.clock() >= core.last_commit + self.commit_interval;
        if state.is_dirty && core.committing.is_none() && (is_due || core.store.is_filling()) {
            self.commit(core)?;
            let last = core.log_state().map(|s| s.last);
            self.wait_for(core, last.into_iter().collect())?;
        }
        if state.is_filling && core.committing.is_none() {
            self.free_log(core)?;
        }
        Ok(())
    }

    /// Ends the running transaction where these cannot be on stable storage before; one at a time is on its way.
    pub(crate) fn commit_for(
        &self,
        core: &mut MutexGuard<'_, Core>,
        targets: &[PatchId],
    ) -> Result<()> {
        if !core.wait_for_running(targets) {
            return Ok(());
        }
        core.committers += 1;
        let result = self.share_commit(core, targets);
        core.committers -= 1;
        result
    }

    fn share_commit(&self, core: &mut MutexGuard<'_, Core>, targets: &[PatchId]) -> Result<()> {
        let mut has_napped = false;
        while core.wait_for_running(targets) {
            let last = core.log_state().map(|s| s.last);
            if let Some(last) = last
                && core.store.graph().is_live(last)
            {
                self.wait_for(core, vec![last])?;
                continue;
            }
            // Those who shared the last transaction may come again at once: they can share this one too.
            if core.is_shared && !std::mem::replace(&mut has_napped, true) {
                self.will_wait();
                let nap = (core.commit_took / NAP_PART).min(LONGEST_NAP);
                MutexGuard::unlocked(core, || std::thread::sleep(nap));
                continue;
            }
            core.is_shared = core.committers > 1;
            let began = self.clock();
            self.commit(core)?;
            // With what else they wait for, which may go in the same batch.
            let last = core.log_state().map(|s| s.last);
            self.wait_for(core, targets.iter().copied().chain(last).collect())?;
            core.commit_took = self.clock().saturating_sub(began);
        }
        Ok(())
    }

    /// Everything is on stable storage: ends the log.
    pub(crate) fn end_log(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        let clock = self.clock();
        let Core {
            store,
            mechanism,
            volume,
            fs,
            ..
        } = &mut **core;
        let Some((log, volume)) = log_of(&mut **mechanism, &mut **fs, *volume) else {
            return Ok(());
        };
        let ended = log.finish(store, volume, clock);
        self.wait_for(core, vec![ended])?;
        if let Some((log, _)) = core.log() {
            log.stop();
        }
        Ok(())
    }
}

/// The commit interval of an option, in seconds.
pub(crate) fn interval(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 1e9))
}
