//! Whether switching a rule off makes any difference to what a crash may leave.
//!
//! A layout states its order under every mechanism. A journal replaces it by that of its
//! transactions, and under `sync` a call waits for its changes before the next one begins. So under
//! these many rules of the layout decide nothing, and the same holds of the journal's rules that
//! only another of its modes needs. To find out, a run with the rule is compared with one without
//! it. What a moment of a run may leave is reduced to one number: a hash of what is on the disk,
//! what is on its way, for each patch what must be there before it and what the disk holds then,
//! what is promised, and which operations were refused. If all moments of two runs have the same
//! numbers, every crash of the one leaves what a crash of the other leaves, and no judge can tell
//! them apart. A moment that leaves what the one before it leaves does not count, so steps that
//! change nothing are not compared.
//!
//! The rule may still matter to later lives of such a state. So the states that the scout went on
//! with (`scout`) are recovered, used and unmounted here too, and each moment of these lives counts
//! as one of the run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;

use backstitch_crash_core::frontier::{Frontier, Node, States};
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Watcher};
use backstitch_crash_core::operation::Operation;
use backstitch_layout::Error;
use backstitch_ordering::rules::forget_followed;
use backstitch_rules::watch;
use backstitch_store::Batch;

use super::scout::Run;
use super::worlds::World;
use super::{Ablation, ROUNDS};
use crate::arrival::arriving;
use crate::explore::{Plan, Spectator, run};
use crate::model::Model;
use crate::scout::FurtherLives;
use backstitch_crash_workloads::Workload;

/// The most runs that are compared for a rule, of all lengths.
const RUNS: usize = 400;

/// For each run with every rule, the number for what all its moments may leave.
#[derive(Default)]
pub(super) struct Leaves {
    with_every_rule: Mutex<BTreeMap<(usize, usize, usize), u64>>,
}

/// The result of a comparison.
pub(super) enum Compared {
    /// The rule made no difference in this number of runs.
    Alike(u64),
    /// It made a difference in a run of this workload.
    Differs(String),
}

impl Leaves {
    /// Whether switching off the rule makes a difference in runs that come by it, and in the lives
    /// after some of their crashes. `None` if the mechanism has no order but the one that the
    /// layout states. The caller has switched the rule off in this thread.
    pub(super) fn compare(
        &self,
        ablation: &Ablation,
        worlds: &[World],
        runs: &[Run],
    ) -> Option<Compared> {
        let promises = ablation.ordering.promises();
        let has_own_order = promises.has_log || promises.answers_once_stable;
        if !has_own_order || runs.is_empty() {
            return None;
        }
        let step = runs.len().div_ceil(RUNS).max(1);
        let mut alike = 0;
        for run in runs.iter().step_by(step) {
            if left_by(ablation, worlds, run) != self.with_every_rule(ablation, worlds, run) {
                let workload = &ablation.workloads[run.workload];
                return Some(Compared::Differs(worlds[run.world].name_of(workload)));
            }
            alike += 1;
        }
        Some(Compared::Alike(alike))
    }

    fn with_every_rule(&self, ablation: &Ablation, worlds: &[World], run: &Run) -> u64 {
        let key = run.key();
        let known = |leaves: &Leaves| Some(*leaves.with_every_rule.lock().ok()?.get(&key)?);
        if let Some(known) = known(self) {
            return known;
        }
        let left = watch::with_every_rule(|| left_by(ablation, worlds, run));
        if let Ok(mut all) = self.with_every_rule.lock() {
            all.insert(key, left);
        }
        left
    }
}

/// What all moments of a run may leave.
fn left_by(ablation: &Ablation, worlds: &[World], of: &Run) -> u64 {
    let world = &worlds[of.world];
    let workload = &ablation.workloads[of.workload];
    let plan = world.plan(of.variant, ablation.seed, &ROUNDS[0]);
    world.enter();
    let left = left(world.image(), workload, &plan);
    World::leave();
    left
}

fn left(image: &Fork, workload: &Workload, plan: &Plan) -> u64 {
    forget_followed();
    let mut moments = Moments {
        left: Left::default(),
        model: None,
        setup: workload.setup,
        begun: 0,
        further: FurtherLives::new(plan),
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        run(image, &workload.operations, plan, &mut moments)
    }));
    let how = match ran {
        Ok(Ok(())) => String::new(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "panic".to_owned(),
    };
    // The panic may have come in the life after a crash.
    watch::set_remounted(false);
    how.hash(&mut moments.left.all);
    moments.left.all.finish()
}

/// The hash of what all moments so far may leave.
#[derive(Default)]
struct Left {
    all: DefaultHasher,
    /// The moment before; `None` if something was written or an operation was begun since.
    last: Option<u64>,
}

impl Left {
    /// Adds a moment at which this many promises were made. False if it leaves the same as the one
    /// before it.
    fn add(&mut self, mount: &Mount, promises: u64) -> bool {
        let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
        let mut one = DefaultHasher::new();
        (promises, states.is_complete).hash(&mut one);
        states
            .fingerprint(&nodes, &vec![false; nodes.len()])
            .hash(&mut one);
        of_patches(&nodes, &mut states).hash(&mut one);
        let moment = one.finish();
        let is_new = self.last.replace(moment) != Some(moment);
        if is_new {
            moment.hash(&mut self.all);
        }
        is_new
    }
}

impl Watcher for Left {
    fn at_rest(&mut self, mount: &Mount) {
        self.add(mount, 0);
    }

    fn in_flight(&mut self, mount: &Mount, batch: &Batch) {
        self.last = None;
        let disk = mount.fork();
        disk.fingerprint().hash(&mut self.all);
        for part in arriving(batch, &disk) {
            let arrived = disk.fingerprint_of(part.block, part.bytes());
            (part.block, part.sectors, arrived).hash(&mut self.all);
        }
    }
}

/// Records what each moment of a run may leave, and each one of the lives after some of its
/// crashes.
struct Moments {
    left: Left,
    model: Option<Rc<RefCell<Model>>>,
    setup: usize,
    begun: usize,
    further: FurtherLives,
}

impl Moments {
    /// The number of promises made so far.
    fn promises(&self) -> u64 {
        let model = self.model.as_ref();
        model.map_or(0, |model| model.borrow().promises)
    }
}

impl Watcher for Moments {
    fn at_rest(&mut self, mount: &Mount) {
        let is_new = self.left.add(mount, self.promises());
        if self.begun <= self.setup || !is_new {
            return;
        }
        if let Some(state) = self.further.pick(mount) {
            self.left.last = None;
            match self.further.live_on(state, &mut self.left) {
                Ok(end) => end.fingerprint().hash(&mut self.left.all),
                Err(error) => error.to_string().hash(&mut self.left.all),
            }
            self.left.last = None;
        }
    }

    fn in_flight(&mut self, mount: &Mount, batch: &Batch) {
        self.promises().hash(&mut self.left.all);
        self.left.in_flight(mount, batch);
    }
}

/// A number for the patches of a moment, in whatever order: for each patch, what the disk holds
/// once it and all that must be there before it are on the disk, and the same for each of those.
fn of_patches(nodes: &[Node], states: &mut States) -> u64 {
    let mut needed: Vec<Vec<bool>> = Vec::new();
    let mut holds: Vec<u128> = Vec::new();
    let mut sum = 0_u64;
    for (at, node) in nodes.iter().enumerate() {
        // The patches are sorted: befores come first.
        let mut needs = vec![false; nodes.len()];
        for before in &node.befores {
            let theirs = &needed[*before];
            needs
                .iter_mut()
                .zip(theirs)
                .for_each(|(needs, theirs)| *needs |= theirs);
        }
        needs[at] = true;
        holds.push(states.fingerprint(nodes, &needs));
        let before = (0..at).filter(|before| needs[*before]);
        let before = before.fold(0_u128, |sum, before| sum.wrapping_add(mixed(holds[before])));
        let mut one = DefaultHasher::new();
        (holds[at], before, node.is_independent()).hash(&mut one);
        sum = sum.wrapping_add(one.finish());
        needed.push(needs);
    }
    sum
}

/// Mixes a fingerprint, so that a sum of them identifies the set that was summed.
fn mixed(fingerprint: u128) -> u128 {
    let mut hasher = DefaultHasher::new();
    fingerprint.hash(&mut hasher);
    u128::from(hasher.finish())
}

impl Spectator for Moments {
    fn begin(&mut self, model: Rc<RefCell<Model>>, _engine: Engine) {
        self.model = Some(model);
    }

    fn begun(&mut self, operations: usize) {
        self.begun = operations;
        operations.hash(&mut self.left.all);
        self.left.last = None;
    }

    fn refused(&mut self, operation: &Operation, error: &Error) {
        format!("{operation}: {error}").hash(&mut self.left.all);
    }

    fn is_done(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_crash_core::formatted::ImageOptions;
    use backstitch_crash_core::operation::parse_script;
    use backstitch_crash_core::schedule::Schedule;
    use backstitch_formats::Rule;
    use backstitch_mechanisms::Ordering;
    use backstitch_rules::watch::Form;
    use backstitch_store::Optimisations;

    /// What a script may leave, without `rule` if one is given.
    fn left_without(rule: Option<Rule>, ordering: Ordering, script: &str) -> u64 {
        let plan = Plan {
            ordering,
            optimisations: Optimisations::NONE,
            schedule: Schedule::Nothing,
            seed: 1,
            torn: false,
            drive: None,
            unit_bytes: None,
            exhaustive: 1,
            samples: 1,
            whole_every: 0,
            in_use_every: 1,
            most_states: 1,
            most_new: 1,
        };
        let image = ImageOptions::default().make_for(ordering);
        watch::switch_off(rule.map(|rule| (rule.into(), Form::Whole)));
        let workload = Workload {
            name: "script".to_owned(),
            operations: parse_script(script).unwrap(),
            setup: 0,
        };
        let left = left(&image.unwrap(), &workload, &plan);
        watch::switch_off(None);
        left
    }

    #[test]
    fn runs_leave_the_same_but_where_a_rule_has_an_effect() {
        let ordered = Ordering::JOURNAL_ORDERED;
        let linked = "mkdir A; mkdir B; creat A/f; sync; link A/f B/g; unlink A/f; fsync B/g";
        let every = left_without(None, Ordering::SOFT, linked);
        let rule = Some(Rule::NameIsPendingUntilWritten);
        assert_eq!(left_without(None, Ordering::SOFT, linked), every);
        assert_ne!(left_without(rule, Ordering::SOFT, linked), every);
        // The order of the journal's transactions makes it needless.
        let every = left_without(None, ordered, linked);
        assert_eq!(left_without(rule, ordered, linked), every);
        // Promises count too, and whether contents are waited for.
        let rule = Some(Rule::FsyncWaits);
        assert_ne!(left_without(rule, ordered, linked), every);
        let cut = "creat f; write f 0 3000; sync; truncate f 100; fsync f";
        let rule = Some(Rule::TailZeroedAfterSize);
        assert_ne!(
            left_without(rule, ordered, cut),
            left_without(None, ordered, cut)
        );
    }

    /// Operations report their changes to the reclaim. That makes no difference before a crash.
    #[test]
    fn lives_after_a_crash_count() {
        let script = "mkdir A; creat A/f; write A/f 0 9000; sync; unlink A/f; mkdir B; creat B/g; \
                      rename B/g A/g; rename A C";
        let every = left_without(None, Ordering::SOFT, script);
        let rule = Some(Rule::ReclaimToldOfBlocks);
        assert_ne!(left_without(rule, Ordering::SOFT, script), every);
    }
}
