//! Ablation: one rule of the engine is switched off at a time, and the workloads are explored until
//! one of them shows it.
//!
//! A rule that nothing shows is one that no workload tests, or that nothing needs. First each
//! workload is run once with every rule, to see which rules it comes by and whether they had
//! anything to wait for (`scout`); then each rule, in each of its forms, is off while the workloads
//! that come by it are explored, the shortest first, in rounds of more and more sets of patches at
//! each moment.
//!
//! # Invariants
//!
//! * All bounds are numbers of states: the same seed gives the same table, however many threads
//!   work.
//! * A rule is off in the thread that explores, for the engine and for the recovery after the crash
//!   alike.

mod elsewhere;
mod leaves;
mod scout;
mod worlds;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use backstitch_crash_core::formatted::ImageOptions;
use backstitch_mechanisms::Ordering;
use backstitch_rules::Site;
use backstitch_rules::watch::{self, Counts, Form};
use serde::Serialize;

use crate::campaign::CampaignError;
use crate::explore::{Known, explore};
use backstitch_crash_workloads::Workload;
use backstitch_crash_workloads::rules;
pub use elsewhere::test_of;
use leaves::{Compared, Leaves};
use scout::{Run, Scouted};
use worlds::World;

/// What is to be found.
#[derive(Clone, Debug)]
pub struct Ablation {
    /// The mechanism.
    pub ordering: Ordering,
    /// The image that runs start from.
    pub image: ImageOptions,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// Which sites: those whose names, with their forms, contain one of these; all where there is
    /// none.
    pub patterns: Vec<String>,
    /// In which forms; all where there is none.
    pub forms: Vec<Form>,
    /// Where randomness starts.
    pub seed: u64,
    /// How many threads work.
    pub threads: usize,
    /// What the bounds of the rounds are multiplied by.
    pub effort: u64,
}

/// A rule that is off, or half off.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The rule.
    pub site: &'static Site,
    /// How far it is off.
    pub form: Form,
}

/// Whether a layout states the rule: not the mechanism, the journal or its recovery.
fn is_of_layouts(site: &Site) -> bool {
    let mut of_layouts = backstitch_formats::RULES.iter().copied().flatten();
    of_layouts.any(|known| known.id == site.id)
}

impl Cut {
    /// Its name: the site's, and where it is half off the form's behind a number sign.
    pub fn name(&self) -> String {
        match self.form {
            Form::Whole => self.site.name(),
            form => format!("{}#{form}", self.site.name()),
        }
    }
}

/// What came of a rule that was off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Fate {
    /// A workload shows it.
    Found {
        /// Which.
        workload: String,
        /// States until then.
        states: u64,
        /// What is wrong then.
        what: String,
    },
    /// Nothing shows it.
    Survived {
        /// States that were explored.
        states: u64,
        /// Runs of workloads that they were of.
        runs: u64,
        /// A workload that leaves something else without the rule, where that was asked.
        differs: Option<String>,
    },
    /// Nothing shows it, and nothing can: others imply it.
    Implied {
        /// Times that the workloads came by.
        asked: u64,
    },
    /// Nothing shows it, and nothing can under a mechanism that has an order of its own: with it
    /// and without it no moment of a run that comes by it leaves anything else, nor any moment of
    /// the lives after some of its crashes.
    Alike {
        /// Runs that were compared.
        runs: u64,
    },
    /// No workload shows it; a test of its own does.
    Tested {
        /// The file with the test.
        test: &'static str,
    },
    /// No workload comes by it, or none with anything to wait for.
    NotReached,
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The site, and the form where it is half off.
    pub site: String,
    /// The crate that it is in.
    pub layer: &'static str,
    /// What kind of rule it is.
    pub class: &'static str,
    /// What may be seen without it.
    pub without: &'static str,
    /// What came of it.
    #[serde(flatten)]
    pub fate: Fate,
    /// How long that took.
    pub seconds: f64,
}

/// What scripts for all rules of a layer come by: see [`Ablation::come_by`].
#[derive(Default)]
struct Deep {
    of_journal: OnceLock<Arc<Counts>>,
    of_ordering: OnceLock<Arc<Counts>>,
}

/// The bounds of a round.
struct Round {
    exhaustive: usize,
    samples: usize,
    /// Runs of workloads at most.
    runs: usize,
    /// States of each of them at most.
    states_each: u64,
    /// States at most.
    states: u64,
    /// States for each that is reclaimed.
    whole_every: u64,
}

/// A look at many runs, then a closer one at some.
const ROUNDS: [Round; 2] = [
    Round {
        exhaustive: 16,
        samples: 8,
        runs: 600,
        states_each: 400,
        states: 40_000,
        whole_every: 64,
    },
    Round {
        exhaustive: 200,
        samples: 60,
        runs: 100,
        states_each: 2_000,
        states: 100_000,
        whole_every: 64,
    },
];

/// What was written for a rule is looked at more closely, and some times with another write-back.
const OWN: Round = Round {
    exhaustive: 400,
    samples: 100,
    runs: usize::MAX,
    states_each: 4_000,
    states: 60_000,
    whole_every: 16,
};
const OWN_SEEDS: u64 = 3;

/// And at last each of its states is reclaimed to the end, and used meanwhile.
const OWN_TO_THE_END: Round = Round {
    whole_every: 1,
    ..OWN
};

/// How many times as many states are explored of a rule that survived and may make a difference.
const CLOSER: u64 = 8;

/// States that are recovered for a rule of the recovery, for each that is reclaimed to the end.
const WHOLE_EVERY_OF_RECOVERY: u64 = 4;

impl Ablation {
    /// Switches one rule off after the other. `each` is told of each line as soon as it is known,
    /// in no order; what is returned is in the order of the sites.
    ///
    /// # Errors
    /// Where the image cannot be made, or the engine does not get through a workload with every
    /// rule.
    pub fn run(&self, each: &(dyn Fn(&Row) + Sync)) -> Result<Vec<Row>, CampaignError> {
        let mut whole = self.clone();
        let worlds = World::all(&mut whole)?;
        whole.run_in(&worlds, each)
    }

    fn run_in(
        &self,
        worlds: &[World],
        each: &(dyn Fn(&Row) + Sync),
    ) -> Result<Vec<Row>, CampaignError> {
        let scouted = scout::scout(self, worlds)?;
        let cuts: Vec<Cut> = rules::sites()
            .flat_map(|site| cuts(site, &scouted))
            .collect();
        let picked: Vec<Cut> = cuts.into_iter().filter(|cut| self.is_picked(cut)).collect();
        let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let (leaves, deep) = (Leaves::default(), Deep::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Relaxed);
                        let Some(cut) = picked.get(number) else {
                            return;
                        };
                        let row = self.row(cut, worlds, &scouted, (&leaves, &deep));
                        each(&row);
                        if let Ok(mut rows) = rows.lock() {
                            rows.push((number, row));
                        }
                    }
                });
            }
        });
        let mut rows = rows.into_inner().unwrap_or_default();
        rows.sort_by_key(|(number, _)| *number);
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    fn is_picked(&self, cut: &Cut) -> bool {
        let name = cut.name();
        let is_form = self.forms.is_empty() || self.forms.contains(&cut.form);
        is_form
            && (self.patterns.is_empty() || self.patterns.iter().any(|p| name.contains(p.as_str())))
    }

    fn row(
        &self,
        cut: &Cut,
        worlds: &[World],
        scouted: &Scouted,
        (leaves, deep): (&Leaves, &Deep),
    ) -> Row {
        let started = Instant::now();
        watch::switch_off(Some((cut.site.id, cut.form)));
        let fate = match self.fate(cut, worlds, scouted, deep) {
            // Of what recovery alone comes by too few moments are compared: those of a few lives.
            Fate::Survived { .. } if !scouted.is_of_recovery(cut.site) => {
                match leaves.compare(self, worlds, &scouted.runs_by(cut)) {
                    Some(Compared::Alike(runs)) => Fate::Alike { runs },
                    Some(Compared::Differs(workload)) => {
                        self.closer(cut, worlds, scouted, deep, Some(workload))
                    }
                    None => self.closer(cut, worlds, scouted, deep, None),
                }
            }
            other => other,
        };
        watch::switch_off(None);
        Row {
            site: cut.name(),
            layer: cut.site.layer,
            class: cut.site.class.name(),
            without: cut.site.without.trim(),
            fate,
            seconds: started.elapsed().as_secs_f64(),
        }
    }

    /// Where nothing says that the rule makes no difference one looks at more states.
    fn closer(
        &self,
        cut: &Cut,
        worlds: &[World],
        scouted: &Scouted,
        deep: &Deep,
        differs: Option<String>,
    ) -> Fate {
        let closer = Ablation {
            effort: self.effort * CLOSER,
            ..self.clone()
        };
        match closer.fate(cut, worlds, scouted, deep) {
            Fate::Survived { states, runs, .. } => Fate::Survived {
                states,
                runs,
                differs,
            },
            other => other,
        }
    }

    fn fate(&self, cut: &Cut, worlds: &[World], scouted: &Scouted, deep: &Deep) -> Fate {
        let runs = scouted.runs_by(cut);
        // The look beforehand recovers from a few states only: what was written for a rule is
        // explored all the same.
        let own = scouted.all.iter().filter(|run| self.is_own(cut, run));
        let own: Vec<Run> = own.copied().collect();
        if runs.is_empty() && (own.is_empty() || cut.form != Form::Whole) {
            return match test_of(cut.site.id) {
                Some(test) if cut.form == Form::Whole => Fate::Tested { test },
                _ => Fate::NotReached,
            };
        }
        let mut search = Search::of(self, worlds, scouted.is_of_recovery(cut.site));
        // A test is about the whole rule.
        let test = test_of(cut.site.id).filter(|_| cut.form == Form::Whole);
        // Many rules are of what other mechanisms do: no script comes by them, however long one
        // looks.
        if runs.is_empty() {
            let passes = self.come_by(cut, &own, worlds, deep);
            let passes = passes.get(&cut.site.id).copied().unwrap_or_default();
            if !scout::is_worth(cut, &passes) {
                return Fate::NotReached;
            }
        }
        if let Some(found) = self.look_around(&mut search, &runs, &ROUNDS[0]) {
            return found;
        }
        // What was written for the rule, with other write-backs, before a closer look at the rest.
        let seeds = if test.is_some() { 0 } else { OWN_SEEDS };
        for seed in 0..seeds {
            if let Some(found) = search.look(&own, &OWN, self.seed + seed) {
                return found;
            }
        }
        if is_of_layouts(cut.site)
            && let Some(found) = search.look(&own, &OWN_TO_THE_END, self.seed)
        {
            return found;
        }
        if let Some(test) = test {
            return Fate::Tested { test };
        }
        if let Some(found) = self.look_around(&mut search, &runs, &ROUNDS[1]) {
            return found;
        }
        match scouted.times_implied(cut) {
            Some(asked) => Fate::Implied { asked },
            None if runs.is_empty() => Fate::NotReached,
            None => Fate::Survived {
                states: search.states,
                runs: search.count,
                differs: None,
            },
        }
    }

    /// Explores runs as a round does: of more than it has, some of all lengths.
    fn look_around(&self, search: &mut Search<'_>, runs: &[Run], round: &Round) -> Option<Fate> {
        let most = round.runs * self.effort as usize;
        let step = runs.len().div_ceil(most).max(1);
        let some: Vec<Run> = runs.iter().step_by(step).copied().collect();
        search.look(&some, round, self.seed)
    }

    /// How often the scripts for this rule come by it and others, at a closer look than the one
    /// beforehand.
    /// No rule is off: until a run comes by a rule it makes no difference whether that one is. The
    /// scripts for all rules of a layer are looked at once.
    fn come_by(&self, cut: &Cut, own: &[Run], worlds: &[World], deep: &Deep) -> Arc<Counts> {
        let look = || {
            watch::record(true);
            let mut search = Search::of(self, worlds, false);
            let found = watch::with_every_rule(|| search.look(own, &ROUNDS[0], self.seed));
            watch::record(false);
            debug_assert!(found.is_none(), "every rule holds");
            Arc::new(search.come_by)
        };
        match cut.site.layer {
            "journal" => deep.of_journal.get_or_init(look).clone(),
            "ordering" => deep.of_ordering.get_or_init(look).clone(),
            _ => look(),
        }
    }

    /// Whether a run is of a script that was written for the rule, or for those of its layer.
    fn is_own(&self, cut: &Cut, run: &Run) -> bool {
        let Some(script) = World::script_of(&self.workloads[run.workload]) else {
            return false;
        };
        let is_soft = !self.ordering.has_log();
        match cut.site.layer {
            "journal" => script.starts_with("log-of") && !is_soft,
            "ordering" => script.starts_with("group") || script.starts_with("stack"),
            _ => is_for(script, &cut.site.name()),
        }
    }
}

/// Whether a script was written for a rule: it has the rule's name, behind which a second one has a
/// number.
fn is_for(script: &str, rule: &str) -> bool {
    let rest = script.strip_prefix(rule);
    rest.is_some_and(|rest| {
        let number = rest.strip_prefix('-').unwrap_or_default();
        rest.is_empty() || !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// The search for a state that shows what a rule prevents.
struct Search<'a> {
    ablation: &'a Ablation,
    worlds: &'a [World],
    is_of_recovery: bool,
    /// How often the runs came by the rules, where that is recorded.
    come_by: Counts,
    states: u64,
    count: u64,
}

impl<'a> Search<'a> {
    fn of(ablation: &'a Ablation, worlds: &'a [World], is_of_recovery: bool) -> Search<'a> {
        Search {
            ablation,
            worlds,
            is_of_recovery,
            come_by: Counts::new(),
            states: 0,
            count: 0,
        }
    }

    /// Explores runs, within the bounds of a round.
    fn look(&mut self, runs: &[Run], round: &Round, seed: u64) -> Option<Fate> {
        let last = self.states + round.states * self.ablation.effort;
        for run in runs {
            let world = &self.worlds[run.world];
            let workload = &self.ablation.workloads[run.workload];
            let mut plan = world.plan(run.variant, seed, round);
            if self.is_of_recovery {
                plan.whole_every = round.whole_every.min(WHOLE_EVERY_OF_RECOVERY);
            }
            if plan.whole_every == 1 {
                plan.in_use_every = 1;
            }
            let mut known = Known::default();
            let mut nobody = |_: &crate::Fork, _: u128| None;
            world.enter();
            let outcome = explore(world.image(), workload, &plan, &mut known, &mut nobody);
            World::leave();
            self.states += outcome.states;
            for (id, passes) in &outcome.rules {
                self.come_by.entry(*id).or_default().add(passes);
            }
            self.count += 1;
            if let Some(found) = outcome.found {
                return Some(Fate::Found {
                    workload: world.name_of(workload),
                    states: self.states,
                    what: found.verdict.what,
                });
            }
            if self.states >= last {
                break;
            }
        }
        None
    }
}

/// The forms in which a rule can be off such that it makes a difference.
fn cuts(site: &'static Site, scouted: &Scouted) -> Vec<Cut> {
    let forms = Form::ALL
        .into_iter()
        .filter(|form| *form == Form::Whole || scouted.is_worth(site, *form));
    forms.map(|form| Cut { site, form }).collect()
}
