//! Ablation: the engine's rules are switched off one at a time, and the workloads are explored
//! until a state shows that the rule is missing.
//!
//! If no state shows it, either no workload tests the rule or nothing needs it. First each workload
//! runs once with every rule, to see which rules it *comes by* (executes) and whether they had
//! anything to wait for (`scout`). Then each rule is switched off in each of its forms, and the
//! workloads that come by it are explored, the shortest first, in rounds with more and more sets of
//! patches at each moment.
//!
//! # Invariants
//!
//! * All bounds are numbers of states: the same seed gives the same table, however many threads
//!   work.
//! * A rule is off in the thread that explores: both in the engine and in the recovery after the
//!   crash.

mod elsewhere;
mod leaves;
mod scout;
mod worlds;

use crate::campaign::NoObserver;
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

/// What to ablate, and how.
#[derive(Clone, Debug)]
pub struct Ablation {
    /// The mechanism.
    pub ordering: Ordering,
    /// The image that runs start from.
    pub image: ImageOptions,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// The sites to ablate: those whose names, with their forms, contain one of these; all if the
    /// list is empty.
    pub patterns: Vec<String>,
    /// The forms to ablate; all if the list is empty.
    pub forms: Vec<Form>,
    /// The seed of all random choices.
    pub seed: u64,
    /// How many threads work.
    pub threads: usize,
    /// The factor by which the bounds of the rounds are multiplied.
    pub effort: u64,
}

/// A rule that is off, wholly or in part.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The rule.
    pub site: &'static Site,
    /// How far it is off.
    pub form: Form,
}

/// Whether a layout states the rule, and not the mechanism, the journal or its recovery.
fn is_of_layouts(site: &Site) -> bool {
    let mut of_layouts = backstitch_formats::RULES.iter().copied().flatten();
    of_layouts.any(|known| known.id == site.id)
}

impl Cut {
    /// The site's name. If the rule is half off, a number sign and the form's name follow.
    pub fn name(&self) -> String {
        match self.form {
            Form::Whole => self.site.name(),
            form => format!("{}#{form}", self.site.name()),
        }
    }
}

/// The result of switching a rule off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Fate {
    /// A state of a workload is wrong without the rule.
    Found {
        /// The workload's name.
        workload: String,
        /// States that were explored until then.
        states: u64,
        /// What is wrong with the state.
        what: String,
    },
    /// No state that was explored is wrong without the rule.
    Survived {
        /// States that were explored.
        states: u64,
        /// Runs that were explored.
        runs: u64,
        /// A workload whose states differ without the rule, if that was asked and there is one.
        differs: Option<String>,
    },
    /// No state can be wrong without the rule: other rules imply it.
    Implied {
        /// How often the workloads came by it.
        asked: u64,
    },
    /// No state can be wrong without the rule, since the mechanism has an order of its own: in each
    /// run that comes by the rule, every moment leaves the same with and without it, and so does
    /// every moment of the lives after some of the run's crashes.
    Alike {
        /// Runs that were compared.
        runs: u64,
    },
    /// No workload shows that the rule is missing, but a test written for it does.
    Tested {
        /// The file of the test.
        test: &'static str,
    },
    /// No workload comes by the rule, or none does with anything to wait for.
    NotReached,
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The site, with the form if the rule is half off.
    pub site: String,
    /// The crate of the rule.
    pub layer: &'static str,
    /// What kind of rule it is.
    pub class: &'static str,
    /// What may go wrong without the rule.
    pub without: &'static str,
    /// The result.
    #[serde(flatten)]
    pub fate: Fate,
    /// How long this row took.
    pub seconds: f64,
}

/// The rules that scripts for a whole layer come by, see [`Ablation::come_by`].
#[derive(Default)]
struct Deep {
    of_journal: OnceLock<Arc<Counts>>,
    of_ordering: OnceLock<Arc<Counts>>,
}

/// The bounds of a round.
struct Round {
    exhaustive: usize,
    samples: usize,
    /// The most runs of workloads.
    runs: usize,
    /// The most states of each run.
    states_each: u64,
    /// The most states in all.
    states: u64,
    /// One state in so many is reclaimed.
    whole_every: u64,
}

/// First a quick look at many runs, then a closer one at some.
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

/// Scripts that were written for the rule are looked at more closely, with several random
/// write-backs.
const OWN: Round = Round {
    exhaustive: 400,
    samples: 100,
    runs: usize::MAX,
    states_each: 4_000,
    states: 60_000,
    whole_every: 16,
};
const OWN_SEEDS: u64 = 3;

/// Finally, each state of these scripts is reclaimed to the end, and used meanwhile.
const OWN_TO_THE_END: Round = Round {
    whole_every: 1,
    ..OWN
};

/// How many times more states are explored for a rule that survived and may make a difference.
const CLOSER: u64 = 8;

/// For a rule of the recovery, one recovered state in so many is reclaimed to the end.
const WHOLE_EVERY_OF_RECOVERY: u64 = 4;

impl Ablation {
    /// Switches off one rule after the other. `each` is called with each row as soon as it is
    /// known, in any order. The rows that are returned are in the order of the sites.
    ///
    /// # Errors
    /// If the image cannot be made, or the engine fails in a workload with every rule on.
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
            // For a rule that only recovery comes by, the comparison sees too few moments: those of
            // a few lives.
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

    /// Explores more states, for a rule that is not known to make no difference.
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
        // The scout recovers from a few states only, so it may miss rules. Scripts that were
        // written for the rule are explored even if it did not see them come by it.
        let own = scouted.all.iter().filter(|run| self.is_own(cut, run));
        let own: Vec<Run> = own.copied().collect();
        if runs.is_empty() && (own.is_empty() || cut.form != Form::Whole) {
            return match test_of(cut.site.id) {
                Some(test) if cut.form == Form::Whole => Fate::Tested { test },
                _ => Fate::NotReached,
            };
        }
        let mut search = Search::of(self, worlds, scouted.is_of_recovery(cut.site));
        // A test switches off the whole rule.
        let test = test_of(cut.site.id).filter(|_| cut.form == Form::Whole);
        // Many rules belong to other mechanisms. No script comes by these, however long one looks.
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
        // First the scripts written for the rule, with other write-backs, then a closer look at the
        // rest.
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

    /// Explores runs as a round does. If there are more than it allows, takes some of all lengths.
    fn look_around(&self, search: &mut Search<'_>, runs: &[Run], round: &Round) -> Option<Fate> {
        let most = round.runs * self.effort as usize;
        let step = runs.len().div_ceil(most).max(1);
        let some: Vec<Run> = runs.iter().step_by(step).copied().collect();
        search.look(&some, round, self.seed)
    }

    /// How often the scripts for this rule come by each rule. This look is closer than the scout's.
    /// Every rule is on: until a run comes by a rule, it makes no difference whether that one is.
    /// Scripts for a whole layer are looked at only once for all its rules.
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

    /// Whether a run is one of a script that was written for the rule, or for all rules of its
    /// layer.
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

/// Whether a script was written for a rule: its name is the rule's, followed by a number if there
/// are several.
fn is_for(script: &str, rule: &str) -> bool {
    let rest = script.strip_prefix(rule);
    rest.is_some_and(|rest| {
        let number = rest.strip_prefix('-').unwrap_or_default();
        rest.is_empty() || !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// The search for a state that is wrong without a rule.
struct Search<'a> {
    ablation: &'a Ablation,
    worlds: &'a [World],
    is_of_recovery: bool,
    /// How often the runs came by the rules, if that is recorded.
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
            world.enter();
            let outcome = explore(world.image(), workload, &plan, &mut known, &NoObserver);
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

/// The forms in which switching the rule off can make a difference.
fn cuts(site: &'static Site, scouted: &Scouted) -> Vec<Cut> {
    let forms = Form::ALL
        .into_iter()
        .filter(|form| *form == Form::Whole || scouted.is_worth(site, *form));
    forms.map(|form| Cut { site, form }).collect()
}
