//! Writing out: the writer thread, the leaders of fsync, the throttle.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use backstitch_ordering::PatchId;
use backstitch_store::{Batch, Goal, Rounds};
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::{Error, MemoryStats, Result, groups};

/// What the writer puts into one batch: enough for long runs, little enough that a waiting fsync is soon served.
pub(crate) const BATCH_BYTES: u64 = 16 << 20;
/// No batch is larger than this part of the bound on memory: its versions stay in memory beside newer ones.
const BATCH_PART: u64 = 4;
/// From how many blocks on the writer leaves everything to a sync that is writing them: as many as its own batches have.
const LARGE_SYNC_BLOCKS: usize = 4096;
/// How long the writer sleeps at most: the resolution of expiry.
const NAP: Duration = Duration::from_millis(500);

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
    // An error has made the file system read-only, and is told to whoever asks for something.
    let _ = engine.do_deferred_work(&mut core);
    if let Err(error) = engine.tend_log(&mut core) {
        tracing::error!("{error}");
    }
    engine.note_held(&mut core);
    let wrote = !engine.leaves_it_to_a_sync(&core) && engine.write_oldest(&mut core);
    core.store.trim();
    let gave_back = engine.give_back_memory(&mut core);
    // What the deferred work has changed can wait: spinning over it would take up one removed file at a time.
    // Nor is there anything to wait for where somebody may have called while the lock was not held.
    if !wrote && !gave_back && !core.stopping && !core.store.graph().has_fired() {
        engine.wake_writer.wait_for(&mut core, NAP);
    }
    !core.stopping
}

impl Engine {
    /// Gives memory back that a burst of changes has left, if that was some time ago; whether it did.
    fn give_back_memory(&self, core: &mut MutexGuard<'_, Core>) -> bool {
        let bytes = core.store.memory_bytes();
        if !core.high_water.note(bytes, self.clock()) {
            return false;
        }
        core.store.shrink();
        if let Some(give_back) = self.on_memory_free.get() {
            MutexGuard::unlocked(core, give_back);
        }
        true
    }

    /// Whether a large batch of a sync is under way: what it leaves for later rounds goes in those. Bits of it written beside it would
    /// each cost a flush that the large batch waits for as well.
    fn leaves_it_to_a_sync(&self, core: &Core) -> bool {
        core.sync_blocks >= LARGE_SYNC_BLOCKS && !core.store.is_crowded()
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

    /// Puts a batch together, writes it without the lock and reports it done. False where there was nothing to write,
    /// or a failure was latched.
    pub(crate) fn write_batch(
        &self,
        core: &mut MutexGuard<'_, Core>,
        make: impl FnOnce(&mut Core, Duration) -> Batch,
    ) -> bool {
        if core.latched.is_some() {
            return false;
        }
        let batch = make(core, self.clock());
        if batch.is_empty() {
            return false;
        }
        core.batches_in_flight += 1;
        // Asked under the lock: a copy that begins after this has the batch's blocks from memory.
        let snapshot = self.snapshot.lock().clone();
        let (repeated, result) = MutexGuard::unlocked(core, || {
            if let Some(snapshot) = snapshot {
                snapshot.before_write(&batch.writes);
            }
            self.retrier.perform(&*self.device, &batch.writes)
        });
        core.batches_in_flight -= 1;
        core.write_retries += repeated;
        match result {
            Ok(()) => {
                let clock = self.clock();
                core.store.complete(batch, clock);
            }
            // Nobody knows what of it is on the disk: its blocks stay in flight, and nothing is written after it.
            Err(error) => {
                tracing::error!("{error}; nothing is written any more");
                core.fs.become_read_only(&error.to_string());
                core.latched.get_or_insert(error);
            }
        }
        self.batch_done.notify_all();
        self.tell_listeners(core);
        true
    }

    /// Tells the store what is held in memory until patches commit, or until a copy has got it.
    pub(crate) fn note_held(&self, core: &mut Core) {
        let snapshot = self.snapshot.lock().as_ref().map_or(0, |s| s.held_bytes());
        let deferred = core.fs.deferred();
        let retiring = deferred.bytes + snapshot;
        core.store.note_held(retiring, deferred.index_bytes);
    }

    /// Waits while memory is crowded with what is not on disk yet. What is done under patchgroups may take a flush for each of them to
    /// get there; so it waits a little earlier, and nobody else's changes have to wait for somebody's endless chain of groups.
    pub(crate) fn throttle(&self, core: &mut MutexGuard<'_, Core>) {
        self.note_held(core);
        let may_be_slow = groups::under().is_some() && !core.mechanism.scopes_are_atomic();
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
            // Not to hang where nothing can be retired: the operation goes on, and memory grows by what it needs.
            idle_rounds = if timed_out && core.batches_in_flight == 0 {
                idle_rounds + 1
            } else {
                0
            };
            self.note_held(core);
        }
        core.throttled_time += self.clock().saturating_sub(since);
    }

    /// Waits until `targets` are on stable storage, writing what is needed. Callers who come while a batch is under way put
    /// their wish beside the others', and one of them writes for all.
    pub(crate) fn make_stable(
        &self,
        core: &mut MutexGuard<'_, Core>,
        targets: Vec<PatchId>,
    ) -> Result<()> {
        self.commit_for(core, &targets)?;
        self.wait_for(core, targets)
    }

    /// As [`make_stable`](Self::make_stable), of what waits for no running transaction.
    pub(crate) fn wait_for(
        &self,
        core: &mut MutexGuard<'_, Core>,
        targets: Vec<PatchId>,
    ) -> Result<()> {
        if !targets.iter().any(|t| core.store.graph().is_live(*t)) {
            return Ok(());
        }
        let ticket = core.next_ticket;
        core.next_ticket += 1;
        core.store.settle(&targets);
        core.waits += 1;
        self.will_wait();
        core.wishes.push((ticket, targets));
        let result = self.fulfil(core, ticket);
        core.wishes.retain(|(t, _)| *t != ticket);
        result
    }

    fn fulfil(&self, core: &mut MutexGuard<'_, Core>, ticket: u64) -> Result<()> {
        loop {
            let Some(position) = core.wishes.iter().position(|(t, _)| *t == ticket) else {
                return Ok(());
            };
            let mut targets = std::mem::take(&mut core.wishes[position].1);
            // What is there already is not looked at in every round that follows.
            while targets
                .pop_if(|last| !core.store.graph().is_live(*last))
                .is_some()
            {}
            let is_there = targets.is_empty();
            core.wishes[position].1 = targets;
            if is_there {
                return Ok(());
            }
            if let Some(error) = &core.latched {
                return Err(Error::Latched(error.clone()));
            }
            if core.sync_leader {
                self.batch_done.wait(core);
                continue;
            }
            core.sync_leader = true;
            let wrote = self.write_batch(core, |core, _| core.next_round());
            core.sync_leader = false;
            core.sync_blocks = 0;
            if wrote {
                core.waited_batches += 1;
                continue;
            }
            self.batch_done.notify_all();
            if core.batches_in_flight == 0 {
                // Somebody has changed a block again that this waits for, contents in the log for example: it stays back until that
                // transaction ends.
                let is_dirty = core.log_state().is_some_and(|s| s.is_dirty);
                match core.committing {
                    None if is_dirty => {
                        self.commit(core)?;
                        continue;
                    }
                    Some(other) if other != std::thread::current().id() => {
                        self.batch_done.wait(core);
                        continue;
                    }
                    _ => {}
                }
                return Err(Error::Stuck {
                    patches: core.store.graph().counters().live,
                });
            }
            self.batch_done.wait(core);
        }
    }
}

impl Core {
    /// The next batch for all who wait for something to be on stable storage.
    fn next_round(&mut self) -> Batch {
        let Core { store, wishes, .. } = self;
        let of = (wishes.len(), self.next_ticket);
        if self.rounds_of != of {
            (self.rounds, self.rounds_of) = (Rounds::default(), of);
        }
        let targets = || wishes.iter().flat_map(|(_, w)| w.iter().copied()).collect();
        let batch = store.next_round(&mut self.rounds, targets);
        self.sync_blocks = batch.len();
        batch
    }

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
