//! Which rules the workloads come by.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstitch_layout::Error;
use backstitch_ordering::rules::{count_rolled_back, forget_followed};
use backstitch_rules::watch::{self, Counts, Form, Passes};
use backstitch_rules::{Class, Id, Site};
use backstitch_store::Batch;
use fastrand::Rng as Random;

use super::worlds::{VARIANTS, World};
use super::{Ablation, Cut, ROUNDS};
use crate::ace::Workload;
use crate::campaign::CampaignError;
use crate::closed;
use crate::explore::{Spectator, run};
use crate::frontier::Frontier;
use crate::image::Fork;
use crate::model::Model;
use crate::mount::{Engine, Mount, Nobody, Watcher};
use crate::operation::Operation;
use crate::visitor::Visitor;

/// A workload in a world, under a variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) world: usize,
    pub(super) workload: usize,
    pub(super) variant: usize,
    /// Moments at which a crash is tried.
    moments: usize,
}

/// What is known of all runs.
pub(super) struct Scouted {
    /// By site: the runs that come by it, and how. Short ones first.
    by_site: BTreeMap<Id, Vec<(Run, Passes)>>,
    /// All runs.
    pub(super) all: Vec<Run>,
}

/// The most samples of what a crash may leave that a run is recovered from.
const RECOVERIES: usize = 4;

/// Runs every workload, with every rule.
pub(super) fn scout(ablation: &Ablation, worlds: &[World]) -> Result<Scouted, CampaignError> {
    let pairs: Vec<(usize, usize)> = (0..worlds.len())
        .flat_map(|world| (0..ablation.workloads.len()).map(move |workload| (world, workload)))
        .filter(|(world, workload)| worlds[*world].takes(&ablation.workloads[*workload]))
        .collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..ablation.threads.max(1) {
            scope.spawn(|| {
                watch::record(true);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((world, workload)) = pairs.get(number).copied() else {
                        return;
                    };
                    for variant in 0..VARIANTS.len() {
                        let seen = look(ablation, worlds, world, workload, variant);
                        if let Ok(mut found) = found.lock() {
                            found.push((number, variant, seen));
                        }
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(number, variant, _)| (*number, *variant));
    let mut by_site: BTreeMap<Id, Vec<(Run, Passes)>> = BTreeMap::new();
    let mut all = Vec::new();
    for (_, _, seen) in found {
        let (run, counts) = seen?;
        all.push(run);
        for (id, passes) in counts {
            by_site.entry(id).or_default().push((run, passes));
        }
    }
    for runs in by_site.values_mut() {
        runs.sort_by_key(|(run, _)| (run.world, run.moments, run.workload, run.variant));
    }
    Ok(Scouted { by_site, all })
}

fn look(
    ablation: &Ablation,
    worlds: &[World],
    world: usize,
    workload: usize,
    variant: usize,
) -> Result<(Run, Counts), CampaignError> {
    let Workload {
        name,
        operations,
        setup,
    } = &ablation.workloads[workload];
    let plan = worlds[world].plan(variant, ablation.seed, &ROUNDS[0]);
    let mut scout = Scout {
        engine: plan.engine(),
        setup: *setup,
        begun: 0,
        moments: 0,
        recoveries: RECOVERIES,
        random: Random::with_seed(ablation.seed),
    };
    forget_followed();
    worlds[world].enter();
    let done = run(worlds[world].image(), operations, &plan, &mut scout);
    World::leave();
    let counts = watch::take();
    done.map_err(|error| CampaignError::Engine {
        workload: name.clone(),
        error,
    })?;
    let run = Run {
        world,
        workload,
        variant,
        moments: scout.moments,
    };
    Ok((run, counts))
}

impl Scouted {
    /// Whether it makes a difference that a rule is off in this form.
    pub(super) fn is_worth(&self, site: &Site, form: Form) -> bool {
        let runs = self.by_site.get(&site.id).map_or(&[][..], Vec::as_slice);
        runs.iter().any(|(_, passes)| is_worth(site, form, passes))
    }

    /// Whether nothing comes by a site but recovery, and what is done after it.
    pub(super) fn is_of_recovery(&self, site: &Site) -> bool {
        let runs = self.by_site.get(&site.id).map_or(&[][..], Vec::as_slice);
        runs.iter()
            .all(|(_, passes)| passes.reached == passes.remounted)
    }

    /// How often a rule was implied by others, where it always was: because the code says so, or because what is waited for by it
    /// comes before something else that is waited for.
    pub(super) fn times_implied(&self, site: &Site) -> Option<u64> {
        let mut all = Passes::default();
        for (_, passes) in self.by_site.get(&site.id)? {
            all.add(passes);
        }
        let said = (all.implied > 0 && all.not_implied == 0).then_some(all.implied);
        said.or((all.covered > 0 && all.essential == 0).then_some(all.covered))
    }

    /// The runs in which it makes a difference that a rule is off: the shortest first.
    pub(super) fn runs_by(&self, cut: &Cut) -> Vec<Run> {
        let runs = self.by_site.get(&cut.site.id);
        let runs = runs.map_or(&[][..], Vec::as_slice).iter();
        runs.filter(|(_, passes)| is_worth(cut.site, cut.form, passes))
            .map(|(run, _)| *run)
            .collect()
    }
}

fn is_worth(site: &Site, form: Form, passes: &Passes) -> bool {
    let waits = matches!(site.class, Class::Dependency | Class::Fsync) && passes.is_of_patches;
    match form {
        Form::Whole => passes.pending > 0 || !waits && passes.reached > 0,
        Form::First | Form::Last => passes.most > 1,
        Form::OnlyFirst | Form::OnlyLast => passes.most > 2,
        Form::Merged => passes.merged > 0,
    }
}

/// Runs along, and recovers from some of what a crash could leave.
struct Scout {
    engine: Engine,
    setup: usize,
    begun: usize,
    moments: usize,
    recoveries: usize,
    random: Random,
}

/// So often somebody comes who uses a file system that was recovered.
const VISITS: usize = 6;

impl Scout {
    /// A state is recovered, used, and unmounted.
    fn live_on(&mut self, state: Fork) -> Result<(), Error> {
        let mut mount = Mount::open(state, self.engine, false, &mut Nobody)?;
        let mut visitor = Visitor::new(self.random.u64(..));
        for _ in 0..VISITS {
            visitor.act(&mut mount, &mut Nobody)?;
        }
        mount.unmount(&mut Nobody)
    }
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
            // What only prepares is not looked at.
            watch::take();
            return;
        }
        self.moments += 1;
        if self.recoveries == 0 || self.random.usize(..3) != 0 {
            return;
        }
        self.recoveries -= 1;
        let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
        // Nothing, everything, or something between.
        let mut sets = vec![vec![false; nodes.len()]];
        if !nodes.is_empty() {
            closed::sample(&nodes, 1, &mut self.random, &mut |included| {
                sets.push(included.to_vec());
            });
        }
        let included = &sets[self.random.usize(..sets.len())];
        let state = states.fork(&nodes, included);
        let before = watch::set_remounted(true);
        // Whether it succeeds is for the explorer to judge.
        let _ = self.live_on(state);
        watch::set_remounted(before);
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
