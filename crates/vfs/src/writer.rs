//! Writing out: the writer thread, and operations that wait for memory.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use backstitch_session::{Chore, NAP, Throttle, Turn};
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::{MemoryStats, under};

/// With less free memory than this, nothing is given back to the host: the next changes would take
/// it again.
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
        // Nothing will ever be written again; the thread waits for its end.
        engine.wake_writer.wait_for(&mut core, NAP);
        return !core.stopping;
    }
    engine.write_gathered_long_ago(&mut core);
    core.note_memory();
    if let Some(nap) = engine.do_chores(&mut core) {
        let gave_back = engine.give_back_memory(&mut core);
        // Giving memory back released the lock, so the writer may have been called meanwhile: it
        // does not sleep then.
        if !gave_back && !core.stopping {
            engine.wake_writer.wait_for(&mut core, nap);
        }
    }
    !core.stopping
}

impl Core {
    /// Notes the most that memory took. At each turn, for during continuous writing no memory is given
    /// back, and at each operation, for a burst may begin and end between two turns.
    pub(crate) fn note_memory(&mut self) {
        self.memory_high_bytes = self.memory_high_bytes.max(self.store.memory_bytes());
    }
}

impl Engine {
    /// Gives back memory that a burst of changes has left; returns whether there was enough of it.
    fn give_back_memory(&self, core: &mut MutexGuard<'_, Core>) -> bool {
        let bytes = core.store.memory_bytes();
        if core.memory_high_bytes.saturating_sub(bytes) < WORTH_GIVING_BACK_BYTES {
            return false;
        }
        core.memory_high_bytes = bytes;
        core.store.shrink();
        if let Some(give_back) = self.on_memory_free.get() {
            MutexGuard::unlocked(core, give_back);
        }
        true
    }

    /// Does what the session asks of its writer in one turn. Returns how long to sleep then, if at
    /// all.
    fn do_chores(&self, core: &mut MutexGuard<'_, Core>) -> Option<Duration> {
        let mut turn = Turn::default();
        loop {
            let held_bytes = self.held_bytes();
            match turn.next(&mut core.session, self.clock(), held_bytes) {
                Chore::Work(task) => {
                    // An error has made the file system read-only; each caller hears of it.
                    let _ = self.drive(core, task);
                }
                Chore::Log(task) => {
                    if let Err(error) = self.drive(core, task) {
                        tracing::error!("{error}");
                        turn.log_failed();
                    }
                }
                Chore::Write(batch) => self.write_out(core, batch),
                Chore::Again => return None,
                Chore::Nap(time) => return Some(time),
            }
        }
    }

    /// Bytes of memory that a snapshot under way holds.
    fn held_bytes(&self) -> u64 {
        self.snapshot.lock().as_ref().map_or(0, |s| s.held_bytes())
    }

    /// Tells the store how much memory a snapshot holds.
    pub(crate) fn note_held(&self, core: &mut Core) {
        core.session.note_held(self.held_bytes());
    }

    /// Waits while memory is crowded with changes that are not on disk yet. Operations under
    /// patchgroups begin to wait a little earlier than others.
    pub(crate) fn throttle(&self, core: &mut MutexGuard<'_, Core>) {
        self.note_held(core);
        let may_be_slow =
            under::under().is_some() && !core.mechanism.kind().promises().scopes_are_atomic();
        let mut throttle = Throttle::new(may_be_slow);
        if !throttle.must_wait(core) {
            return;
        }
        core.stalls.memory.count += 1;
        self.will_wait();
        let _ = self.commit(core);
        let since = self.clock();
        while throttle.must_wait(core) {
            self.wake_writer.notify_one();
            let round = self.batch_done.wait_for(core, Throttle::ROUND);
            throttle.waited(core, round.timed_out());
            self.note_held(core);
        }
        let took = self.clock().saturating_sub(since);
        core.stalls.memory.note(took);
    }
}

impl Core {
    pub(crate) fn memory_stats(&self) -> MemoryStats {
        MemoryStats {
            bound: self.store.limits().most_bytes(),
            bytes: self.store.memory_bytes(),
            bytes_peak: self.store.stats().memory_bytes_peak,
            patches_bound: self.store.limits().patches,
            throttled: self.stalls.memory.count,
            throttled_seconds: self.stalls.memory.seconds,
        }
    }
}
