//! Runs a workload once with every rule, and counts the rules that it comes by.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use backstitch_crash_core::closed;
use backstitch_crash_core::frontier::Frontier;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Nobody, Watcher};
use backstitch_crash_core::operation::Operation;
use backstitch_layout::Error;
use backstitch_ordering::rules::{count_rolled_back, forget_followed};
use backstitch_rules::watch::{self, Counts};
use backstitch_store::Batch;
use fastrand::Rng as Random;

use crate::explore::{Plan, Spectator, run};
use crate::judge::panic_message;
use crate::model::Model;
use crate::visitor::Visitor;

/// What a run showed.
#[derive(Debug)]
pub(crate) struct Seen {
    /// How often the run came by each rule.
    pub(crate) counts: Counts,
    /// Moments at which a crash can be tried.
    pub(crate) moments: usize,
    /// Why the engine failed, if it did.
    pub(crate) trouble: Option<Trouble>,
}

/// A failure of the engine other than answering an operation with an error.
#[derive(Debug)]
pub(crate) enum Trouble {
    Error(Error),
    /// The panic's message.
    Panic(String),
}

/// Runs a workload under a plan; its first `setup` operations only prepare.
pub(crate) fn look(image: &Fork, operations: &[Operation], setup: usize, plan: &Plan) -> Seen {
    let mut scout = Scout {
        setup,
        begun: 0,
        moments: 0,
        further: FurtherLives::new(plan),
    };
    let recorded = watch::records();
    watch::record(true);
    watch::take();
    forget_followed();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        run(image, operations, plan, &mut scout)
    }));
    let trouble = match ran {
        Ok(ran) => ran.err().map(Trouble::Error),
        Err(panic) => Some(Trouble::Panic(panic_message(&*panic))),
    };
    // The panic may have come in the life after a crash.
    watch::set_remounted(false);
    watch::record(recorded);
    Seen {
        counts: watch::take(),
        moments: scout.moments,
        trouble,
    }
}

/// Watches a run, and recovers from some of the states that a crash could leave.
struct Scout {
    setup: usize,
    begun: usize,
    moments: usize,
    further: FurtherLives,
}

/// The most states of a run from which recovery is tried.
const RECOVERIES: usize = 4;

/// How often the [`Visitor`] acts on a file system that was recovered.
const VISITS: usize = 6;

/// Picks some of the states that crashes of a run leave, and lives on with them. The same run
/// always gives the same.
pub(crate) struct FurtherLives {
    engine: Engine,
    left: usize,
    random: Random,
}

impl FurtherLives {
    pub(crate) fn new(plan: &Plan) -> FurtherLives {
        FurtherLives {
            engine: plan.engine(),
            left: RECOVERIES,
            random: Random::with_seed(plan.seed),
        }
    }

    /// At some moments, one of the states that a crash may leave then.
    pub(crate) fn pick(&mut self, mount: &Mount) -> Option<Fork> {
        if self.left == 0 || self.random.usize(..3) != 0 {
            return None;
        }
        self.left -= 1;
        let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
        // The empty set of patches, or a random one.
        let mut sets = vec![vec![false; nodes.len()]];
        if !nodes.is_empty() {
            closed::sample(&nodes, 1, &mut self.random, &mut |included| {
                sets.push(included.to_vec());
            });
        }
        let included = &sets[self.random.usize(..sets.len())];
        Some(states.fork(&nodes, included))
    }

    /// Recovers, uses and unmounts a state. Returns the image after that.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn live_on(
        &mut self,
        state: Fork,
        watcher: &mut dyn Watcher,
    ) -> Result<Fork, Error> {
        let seed = self.random.u64(..);
        let before = watch::set_remounted(true);
        let lived = live(state, self.engine, seed, watcher);
        watch::set_remounted(before);
        lived
    }
}

fn live(state: Fork, engine: Engine, seed: u64, watcher: &mut dyn Watcher) -> Result<Fork, Error> {
    let mut mount = Mount::open(state, engine, false, watcher)?;
    let mut visitor = Visitor::new(seed);
    for _ in 0..VISITS {
        visitor.act(&mut mount, watcher)?;
    }
    mount.unmount(watcher)?;
    Ok(mount.fork())
}

impl Watcher for Scout {
    fn in_flight(&mut self, mount: &Mount, _batch: &Batch) {
        if self.begun > self.setup {
            self.moments += 1;
            count_rolled_back(mount.store.graph());
        }
    }

    fn at_rest(&mut self, mount: &Mount) {
        if self.begun <= self.setup {
            // The operations of the setup are not looked at.
            watch::take();
            return;
        }
        self.moments += 1;
        if let Some(state) = self.further.pick(mount) {
            // The explorer judges whether it succeeds.
            let _ = self.further.live_on(state, &mut Nobody);
        }
    }
}

impl Spectator for Scout {
    fn begin(&mut self, _model: Rc<RefCell<Model>>, _engine: Engine) {}

    fn begun(&mut self, operations: usize) {
        self.begun = operations;
    }

    fn refused(&mut self, _operation: &Operation, _error: &Error) {}

    fn is_done(&self) -> bool {
        false
    }
}
