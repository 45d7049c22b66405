//! Ending what is under way: deferred work, the reclaim of what a crash left, draining, unmounting.

use backstitch_layout::{FileSystem, Timestamp};
use backstitch_ordering::{Operation, Volume};
use backstitch_store::Goal;
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::options::now;
use crate::writer::BATCH_BYTES;
use crate::{Error, Result};

impl Engine {
    /// Writes everything, ends all deferred work, marks the image clean and stops the writer. A second call does nothing. Where what a
    /// crash left takes too long to reclaim ([`MountOptions::reclaim_wait_seconds`](crate::MountOptions)), it stays as it is after a
    /// crash, and the next mount goes on.
    ///
    /// # Errors
    /// Where the device failed: the image is left as after a crash.
    pub fn unmount(&self) -> Result<()> {
        self.discard_last();
        let mut core = self.core.lock();
        if core.unmounted {
            return Ok(());
        }
        self.end_gathering(&mut core);
        core.unmounted = true;
        core.stopping = true;
        if let Some(snapshot) = self.snapshot.lock().as_ref() {
            snapshot.give_up(Error::Snapshot("it was unmounted meanwhile".to_owned()));
        }
        drop(core);
        self.join_threads();
        let mut core = self.core.lock();
        if let Some(error) = &core.latched {
            return Err(Error::Latched(error.clone()));
        }
        if core.fs.read_only_reason().is_some() && !core.store.is_dirty() {
            return Ok(());
        }
        core.fs.release_all();
        core.fs.retry_deferred();
        self.drain(&mut core)?;
        self.end_reclaim(&mut core)?;
        self.drain(&mut core)?;
        if let Some(error) = core.unreadable.clone()
            && core.fs.deferred().unreadable > 0
        {
            return Err(error);
        }
        self.step(&mut core, Operation::Administration, |fs, v, now| {
            fs.settle(v, now)
        })??;
        self.drain(&mut core)?;
        self.end_log(&mut core)?;
        self.step(&mut core, Operation::Administration, |fs, v, now| {
            fs.mark_clean(v, now)
        })??;
        self.drain(&mut core)
    }

    /// Reclaims what a crash left, as long as an unmount may take for it.
    fn end_reclaim(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        let began = self.clock();
        let reclaimed = self.reclaim_until(core, |progress| {
            !progress.running || self.clock().saturating_sub(began) >= self.reclaim_wait
        });
        let progress = core.fs.reclaim_progress();
        if progress.running {
            tracing::warn!(
                "the next mount reclaims the rest of what a crash left: {:.0} % were looked at, {} blocks and {} inodes found",
                progress.done_fraction * 100.0,
                progress.freed_blocks,
                progress.freed_inodes
            );
        }
        reclaimed
    }

    /// One step that nobody asked for, again after each miss: what the layout says, or why a block could not be read.
    pub(crate) fn step<T>(
        &self,
        core: &mut MutexGuard<'_, Core>,
        operation: Operation,
        mut body: impl FnMut(
            &mut dyn FileSystem,
            &mut Volume<'_>,
            Timestamp,
        ) -> backstitch_layout::Result<T>,
    ) -> Result<backstitch_layout::Result<T>> {
        // Nobody waits for what such a step changes; whoever ends it drains.
        let mut wait_for = Vec::new();
        loop {
            match core.step(
                Some(operation),
                self.clock(),
                now(),
                &mut wait_for,
                &mut body,
            ) {
                Err(backstitch_layout::Error::Miss) => self.read_wanted(core)?,
                done => return Ok(done),
            }
        }
    }

    /// Frees what the last reference went from, if that waits for nothing. Waking the writer for it would cost more than doing it;
    /// the writer does what needs a block from the device.
    pub(crate) fn free_ready(&self, core: &mut MutexGuard<'_, Core>) {
        while core.fs.deferred().ready > 0 {
            let is_at_end = core.latched.is_some() || core.unmounted || core.committing.is_some();
            // Nobody waits for what this changes.
            let mut wait_for = Vec::new();
            let operation = Some(Operation::Background);
            let done = match is_at_end {
                true => Err(backstitch_layout::Error::Miss),
                false => core.step(
                    operation,
                    self.clock(),
                    now(),
                    &mut wait_for,
                    &mut |fs, v, _| fs.free_ready(v),
                ),
            };
            match done {
                Ok(true) => {}
                Ok(false) => return,
                Err(backstitch_layout::Error::Miss) => {
                    self.wake_writer.notify_one();
                    return;
                }
                Err(error) => {
                    deferred_work_failed(core, error);
                    return;
                }
            }
        }
    }

    /// Does the layout's deferred work whose time has come. True where there was any. What needs a block that cannot be read is put
    /// aside, and keeps nothing else waiting.
    pub(crate) fn do_deferred_work(&self, core: &mut MutexGuard<'_, Core>) -> Result<bool> {
        let mut worked = false;
        loop {
            let aside = core.fs.deferred().unreadable;
            let step = self.step(core, Operation::Background, |fs, v, now| {
                fs.background(v, now)
            });
            let done = match step {
                Ok(done) => done,
                Err(error) => {
                    // Unless another thread, which missed the same block, has done so meanwhile.
                    if core.fs.deferred().unreadable == aside && !core.fs.put_deferred_aside() {
                        return Err(error);
                    }
                    tracing::warn!("what was removed cannot be freed yet: {error}");
                    core.unreadable = Some(error);
                    worked = true;
                    continue;
                }
            };
            match done {
                Ok(true) => {
                    worked = true;
                    core.store.trim();
                    MutexGuard::bump(core);
                }
                Ok(false) => return Ok(worked),
                Err(error) => return Err(deferred_work_failed(core, error)),
            }
        }
    }

    /// Writes everything and ends all deferred work. Progress is counted in patches, not in blocks: a block that stays dirty
    /// because of a rollback is no reason to give up while patches commit. Nor is deferred work that fails, for what it would read
    /// cannot be read: everything is written first.
    pub(crate) fn drain(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        self.will_wait();
        let mut deferred = Ok(());
        loop {
            if let Some(error) = &core.latched {
                return Err(Error::Latched(error.clone()));
            }
            let mut worked = false;
            if deferred.is_ok() {
                deferred = self.do_deferred_work(core).map(|any| worked = any);
            }
            // What is put off from one transaction to the next finds room in the log at last.
            if core.log_state().is_some_and(|s| s.is_full) && core.committing.is_none() {
                self.free_log(core)?;
            }
            let committed = self.commit(core)?;
            let wrote = self.write_batch(core, |core, now| {
                core.store.next_batch(Goal::All, now, BATCH_BYTES)
            });
            if worked || committed || wrote {
                continue;
            }
            if core.batches_in_flight > 0 {
                self.batch_done.wait(core);
                continue;
            }
            deferred.clone()?;
            let live = core.store.graph().counters().live;
            if live == 0 && core.fs.deferred().pending == 0 {
                return Ok(());
            }
            if core.store.graph().has_fired() {
                continue;
            }
            return Err(Error::Stuck { patches: live });
        }
    }
}

/// What could not be freed makes the file system read-only.
fn deferred_work_failed(core: &mut Core, error: backstitch_layout::Error) -> Error {
    tracing::error!("deferred work: {error}");
    core.fs.become_read_only(&error.to_string());
    error.into()
}
