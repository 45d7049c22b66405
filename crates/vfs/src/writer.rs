//! Writing out: the writer thread, the leaders of fsync, the throttle.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use backstitch_session::{BATCH_BYTES, Task};
use backstitch_store::{Batch, Goal};
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::{MemoryStats, Result, under};

/// No batch is larger than this part of the bound on memory: its versions stay in memory beside
/// newer ones.
const BATCH_PART: u64 = 4;
/// From how many blocks on the writer leaves everything to a sync that is writing them: as many as
/// its own batches have.
const LARGE_SYNC_BLOCKS: usize = 4096;
/// How long the writer sleeps at most: the resolution of expiry.
const NAP: Duration = Duration::from_millis(500);
/// Less free memory than this stays with the process: the next changes want it again.
const WORTH_GIVING_BACK_BYTES: u64 = 64 << 20;

/// Starts the writer. It holds the engine only while it works, so that dropping the engine ends it.
pub(crate) fn spawn(engine: &Arc<Engine>) -> JoinHandle<()> {
    let engine = Arc::downgrade(engine);
    std::thread::Builder::new()
        .name("backstitch-writer".into())
        .spawn(move || while turn(&engine) {})
        .expect("the host can start a thread")
}

/// One turn of the writer; false when it is to end.
fn turn(engine: &Weak<Engine>) -> bool {
    let Some(engine) = engine.upgrade() else {
        return false;
    };
    let mut core = engine.core.lock();
    if core.stopping {
        return false;
    }
    if core.latched.is_some() {
        // Nothing will ever be written again: only to be there until the end.
        engine.wake_writer.wait_for(&mut core, NAP);
        return !core.stopping;
    }
    engine.write_gathered_long_ago(&mut core);
    // An error has made the file system read-only, and is told to each caller.
    let _ = engine.do_deferred_work(&mut core);
    if let Err(error) = engine.tend_log(&mut core) {
        tracing::error!("{error}");
    }
    engine.note_held(&mut core);
    let issued = engine.write_issued(&mut core);
    let wrote = !engine.leaves_it_to_a_sync(&core) && engine.write_oldest(&mut core) || issued;
    core.store.trim();
    let gave_back = !wrote && engine.give_back_memory(&mut core);
    // What the deferred work has changed can wait: spinning over it would take up one removed file
    // at a time. Nor is there anything to wait for where somebody may have called while the lock
    // was not held.
    if !wrote && !gave_back && !core.stopping && !core.store.graph().has_fired() {
        let clock = engine.clock();
        let issue = core.next_issue().map(|at| at.saturating_sub(clock));
        // What is issued and could not be written waits for a batch on its way.
        let nap = issue
            .filter(|time| !time.is_zero())
            .map_or(NAP, |time| time.min(NAP));
        engine.wake_writer.wait_for(&mut core, nap);
    }
    !core.stopping
}

impl Engine {
    /// Gives memory back that a burst of changes has left; whether there was enough of it.
    fn give_back_memory(&self, core: &mut MutexGuard<'_, Core>) -> bool {
        let bytes = core.store.memory_bytes();
        core.memory_high_bytes = core.memory_high_bytes.max(bytes);
        if core.memory_high_bytes - bytes < WORTH_GIVING_BACK_BYTES {
            return false;
        }
        core.memory_high_bytes = bytes;
        core.store.shrink();
        if let Some(give_back) = self.on_memory_free.get() {
            MutexGuard::unlocked(core, give_back);
        }
        true
    }

    /// Ends a transaction that is old, and keeps half of the log free.
    fn tend_log(&self, core: &mut MutexGuard<'_, Core>) -> Result<()> {
        if core.session.is_commit_due(self.clock()) {
            self.commit(core)?;
            let last = core.log_state().map(|log| log.last);
            self.make_stable(core, last.into_iter().collect())?;
        }
        if core.session.is_log_filling() {
            self.drive(core, Task::free_log())?;
        }
        Ok(())
    }

    /// Whether a large batch of a sync is under way: what it leaves for later rounds goes in those.
    /// Bits of it written beside it would each cost a flush that the large batch waits for as well.
    fn leaves_it_to_a_sync(&self, core: &Core) -> bool {
        core.sync_blocks >= LARGE_SYNC_BLOCKS && !core.store.is_crowded()
    }

    /// Writes what the mechanism wants to be written though nobody waits for it.
    fn write_issued(&self, core: &mut MutexGuard<'_, Core>) -> bool {
        let hurry = core.store.is_filling();
        let batch = core.session.next_issued(self.clock(), hurry);
        batch.map(|batch| self.write_out(core, batch)).is_some()
    }

    fn write_oldest(&self, core: &mut MutexGuard<'_, Core>) -> bool {
        let goal = if core.store.is_filling() {
            Goal::Oldest
        } else {
            Goal::Expired
        };
        self.write_batch(core, |core, now| {
            let max_bytes = BATCH_BYTES.min(core.store.limits().memory_bytes / BATCH_PART);
            core.store.next_batch(goal, now, max_bytes)
        })
    }

    /// Puts a batch together, writes it without the lock and reports it done. False where there was
    /// nothing to write, or a failure was latched.
    pub(crate) fn write_batch(
        &self,
        core: &mut MutexGuard<'_, Core>,
        make: impl FnOnce(&mut Core, Duration) -> Batch,
    ) -> bool {
        if core.latched.is_some() {
            return false;
        }
        let batch = make(core, self.clock());
        let Some(batch) = core.session.hand_out(batch) else {
            return false;
        };
        self.write_out(core, batch);
        true
    }

    /// Tells the store what is held in memory until patches commit, or until a copy has got it.
    pub(crate) fn note_held(&self, core: &mut Core) {
        let snapshot = self.snapshot.lock().as_ref().map_or(0, |s| s.held_bytes());
        let deferred = core.fs.deferred();
        let retiring = deferred.bytes + snapshot;
        core.store.note_held(retiring, deferred.index_bytes);
    }

    /// Waits while memory is crowded with what is not on disk yet. What is done under patchgroups
    /// may take a flush for each of them to get there; so it waits a little earlier, and nobody
    /// else's changes have to wait for somebody's endless chain of groups.
    pub(crate) fn throttle(&self, core: &mut MutexGuard<'_, Core>) {
        self.note_held(core);
        let may_be_slow =
            under::under().is_some() && !core.mechanism.kind().promises().scopes_are_atomic();
        let must_wait = |core: &Core| match may_be_slow {
            true => core.store.is_nearly_crowded(),
            false => core.store.is_crowded(),
        };
        if !must_wait(core) || core.latched.is_some() {
            return;
        }
        core.throttled += 1;
        self.will_wait();
        // What a running transaction has changed cannot leave memory.
        let _ = self.commit(core);
        let since = self.clock();
        let mut idle_rounds = 0;
        while must_wait(core) && core.latched.is_none() && idle_rounds < 20 {
            self.wake_writer.notify_one();
            let timed_out = self
                .batch_done
                .wait_for(core, Duration::from_millis(100))
                .timed_out();
            // Not to hang where nothing can be retired: the operation goes on, and memory grows by
            // what it needs.
            idle_rounds = if timed_out && core.batches_in_flight() == 0 {
                idle_rounds + 1
            } else {
                0
            };
            self.note_held(core);
        }
        core.throttled_time += self.clock().saturating_sub(since);
    }
}

impl Core {
    pub(crate) fn memory_stats(&self) -> MemoryStats {
        MemoryStats {
            bound: self.store.limits().most_bytes(),
            bytes: self.store.memory_bytes(),
            bytes_peak: self.store.stats().memory_bytes_peak,
            patches_bound: self.store.limits().patches,
            throttled: self.throttled,
            throttled_seconds: self.throttled_time.as_secs_f64(),
        }
    }
}
