//! The reclaim of what a crash left: in the background while the file system is in use, and at once
//! for those who wait for it.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use backstitch_layout::{Changed, ReclaimStep};
use backstitch_session::{Outcome, Task, Until};
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};

/// While other operations run, the reclaim rests this many times as long as its last step took, so
/// that they get most of the device and of the engine.
const REST: u32 = 4;
/// The longest of these rests.
const LONGEST_REST: Duration = Duration::from_millis(200);
/// How long it waits for deferred work.
const NAP: Duration = Duration::from_millis(500);

/// How long it waits before it reads a block again that could not be read.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the reclaim, where there is anything to reclaim. It holds the engine only while it works,
/// so that dropping the engine ends it.
pub(crate) fn spawn(engine: &Arc<Engine>) -> Option<JoinHandle<()>> {
    if !engine.core.lock().fs.reclaim_progress().running {
        return None;
    }
    let engine = Arc::downgrade(engine);
    let mut seen = Seen::default();
    std::thread::Builder::new()
        .name("backstitch-reclaim".into())
        .spawn(move || while turn(&engine, &mut seen) {})
        .inspect_err(|error| tracing::warn!("the reclaim waits for the unmount: {error}"))
        .ok()
}

/// What the thread has seen in its turns so far.
#[derive(Default)]
struct Seen {
    /// The number of operations at the last turn.
    operations: u64,
    /// Whether the last turn could not read something.
    is_failing: bool,
}

/// One turn; false when there is nothing left to do.
fn turn(engine: &Weak<Engine>, seen: &mut Seen) -> bool {
    let Some(engine) = engine.upgrade() else {
        return false;
    };
    let mut core = engine.core.lock();
    if core.stopping || core.latched.is_some() {
        return false;
    }
    let started = Instant::now();
    let step = match engine.drive(&mut core, Task::reclaim(Until::Step)) {
        Ok(step) => step,
        // The device may come back, or the block may be written anew.
        Err(error) => {
            if !std::mem::replace(&mut seen.is_failing, true) {
                tracing::warn!("the reclaim goes on once it can read everything: {error}");
            }
            engine.wake_reclaimer.wait_for(&mut core, RETRY);
            return !core.stopping;
        }
    };
    seen.is_failing = false;
    let took = started.elapsed();
    engine.tell_changes(&mut core);
    if core.store.is_filling() {
        engine.wake_writer.notify_one();
    }
    match step {
        Outcome::Reclaim(ReclaimStep::Wait(patch)) => {
            if engine.make_stable(&mut core, vec![patch]).is_err() {
                return false;
            }
        }
        Outcome::Reclaim(ReclaimStep::WaitForFrees) => {
            engine.wake_reclaimer.wait_for(&mut core, NAP);
        }
        Outcome::Reclaim(ReclaimStep::More) => {}
        _ => return false,
    }
    let others_work = std::mem::replace(&mut seen.operations, core.operations) != core.operations;
    if others_work && !core.stopping {
        let rest = (took * REST).min(LONGEST_REST);
        engine.wake_reclaimer.wait_for(&mut core, rest);
    }
    !core.stopping
}

impl Engine {
    /// Sets a function that is told of changes that the reclaim makes. It is called by the
    /// reclaim's thread, without a lock, and may wait for requests under way. The first one given
    /// stays.
    pub fn on_change(&self, tell: impl Fn(&[Changed]) + Send + Sync + 'static) {
        let _ = self.on_change.set(Box::new(tell));
    }

    fn tell_changes(&self, core: &mut MutexGuard<'_, Core>) {
        let mut changes = Vec::new();
        core.fs.take_changed(&mut changes);
        if let Some(tell) = self.on_change.get()
            && !changes.is_empty()
        {
            MutexGuard::unlocked(core, || tell(&changes));
        }
    }
}
