//! Many workloads, each explored under several plans, on all processors. The result does not depend
//! on the number of threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

use backstitch_crash_core::formatted::ImageOptions;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Nobody};
use backstitch_crash_core::operation::Operation;
use backstitch_crash_core::report::graph::Graph;
use backstitch_crash_core::schedule::Schedule;
use backstitch_drives::DriveSpec;
use backstitch_layout::Error as LayoutError;
use backstitch_layout::tools::MkfsError;
use backstitch_mechanisms::Ordering;
use backstitch_rules::Id;
use backstitch_rules::watch::{self, Counts, Form};
use backstitch_store::Optimisations;
use rustc_hash::FxHashSet;
use thiserror::Error;

use crate::explore::{Found, Known, Outcome, Plan, explore};
use crate::graph::shown;
use crate::machine::Machine;
use crate::replay::minimise;
use backstitch_crash_workloads::Workload;

/// What is explored.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The mechanism.
    pub ordering: Ordering,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// Under which optimisations and schedules each of them runs.
    pub variants: Vec<(Optimisations, Schedule)>,
    /// Options of the image that each run starts from, unless there is a `base`.
    pub image: ImageOptions,
    /// A given image that each run starts from.
    pub base: Option<Fork>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether blocks may arrive in part, in units of 512 bytes.
    pub torn: bool,
    /// The drive that the image is on. States are then those that its queue and its cache may
    /// leave. With `None`, any set of changes that keeps the order is a state.
    pub drive: Option<Arc<DriveSpec>>,
    /// The size of what the engine takes to be written wholly or not at all; a block where `None`.
    pub unit_bytes: Option<u32>,
    /// The most sets of patches of a moment that are all visited.
    pub exhaustive: usize,
    /// How many random sets are visited if there are more.
    pub samples: usize,
    /// One state in so many is also reclaimed to the end, with crashes inside; none where 0.
    pub whole_every: u64,
    /// Of these, one in so many is reclaimed once more while somebody uses the file system; each
    /// where 0.
    pub in_use_every: u64,
    /// Ends once this number of states was visited.
    pub most_states: u64,
    /// The most states of a workload under each variant, without those known from it or from an
    /// earlier workload that begins in the same way. The run ends then.
    pub most_states_each: u64,
    /// Ends once this number of workloads failed.
    pub most_failures: usize,
    /// How many threads work.
    pub threads: usize,
}

/// Workloads of a chunk, which one thread explores one after the other.
const CHUNK: usize = 32;

/// Some workloads under one variant.
struct Chunk {
    workloads: Range<usize>,
    variant: usize,
}

/// Collects the fingerprints of all states.
#[derive(Default)]
struct Distinct {
    left: FxHashSet<u64>,
    recovered: FxHashSet<u64>,
}

/// Why nothing could be explored.
#[derive(Debug, Error)]
pub enum CampaignError {
    /// The image could not be made.
    #[error("making an image: {0}")]
    Mkfs(#[from] MkfsError),
    /// The engine failed in a workload.
    #[error("workload {workload}: {error}")]
    Engine {
        /// The workload's name.
        workload: String,
        /// The engine's error.
        error: LayoutError,
    },
}

/// A state that must not be, with the workload and the variant that left it.
#[derive(Clone, Debug)]
pub struct Failure {
    pub(crate) workload: Workload,
    pub(crate) plan: Plan,
    pub(crate) found: Found,
    pub(crate) minimised: bool,
    pub(crate) graph: Option<Graph>,
}

impl Failure {
    /// What is wrong.
    pub fn verdict(&self) -> &str {
        &self.found.verdict.what
    }

    /// The image as the crash left it.
    pub fn state(&self) -> &Fork {
        &self.found.state
    }

    /// What was done, up to the crash.
    pub fn operations(&self) -> &[Operation] {
        &self.workload.operations[..self.found.begun.min(self.workload.operations.len())]
    }
}

/// What a campaign found.
#[derive(Debug, Default)]
pub struct Results {
    /// Workloads that were run, each under every variant.
    pub workloads: u64,
    /// Runs: workloads times variants.
    pub runs: u64,
    /// States visited.
    pub states: u64,
    /// States with different bytes.
    pub distinct: u64,
    /// Different file systems that the replay of a journal made of the states, where there is one.
    pub recovered: u64,
    /// How often a state was recovered and judged. That is done anew in every workload, and
    /// whenever there are new promises.
    pub judged: u64,
    /// States that must not be, at most one for each run.
    pub failures: Vec<Failure>,
    /// The most leaks found in one state.
    pub leaks_max: u64,
    /// Moments at which a crash was tried.
    pub moments: u64,
    /// Moments at which not all sets of patches were visited.
    pub sampled_moments: u64,
    /// Moments at which bits of bitmaps were tried one at a time.
    pub reduced_moments: u64,
    /// Batches on their way of which not all parts were visited.
    pub sampled_batches: u64,
    /// Runs that ended before their workloads did.
    pub cut_short: u64,
    /// Moments inside recovery and reclaim at which not all sets of patches were visited.
    pub second_sampled: u64,
    /// States in which recovery and reclaim ran to the end.
    pub reclaimed: u64,
    /// Of these, states for which the result of the reclaim was known from another state.
    pub reclaims_known: u64,
    /// Of those reclaimed, states that were reclaimed once more while somebody used the file
    /// system.
    pub reclaimed_in_use: u64,
    /// Of those reclaimed, states on which work went on until another power cut.
    pub gone_on: u64,
    /// States that crashes inside recovery and reclaim left.
    pub second: u64,
    /// How many patches of each kind were uncommitted at the moments.
    pub coverage: BTreeMap<&'static str, u64>,
    /// The rules that the runs came by, if the observer has them counted.
    pub rules: Counts,
    /// Every workload was run to its end.
    pub is_complete: bool,
    /// How often operations were answered with each error.
    pub refused: BTreeMap<String, u64>,
}

/// Sees states while they are judged.
pub trait Observer: Sync {
    /// Called with a state that is about to be judged, and its fingerprint. Returns what the
    /// observer finds wrong with it, if anything.
    fn state(&self, _state: &Fork, _fingerprint: u128) -> Option<String> {
        None
    }

    /// Called when a thread begins to explore.
    fn thread_starts(&self) {}

    /// Called when `_runs` runs of `_of` are done.
    fn progress(&self, _runs: usize, _of: usize, _results: &Results) {}

    /// Whether to end before everything is explored, with what is known by then. Asked at each
    /// state.
    fn is_over(&self) -> bool {
        false
    }
}

/// An observer that ignores everything.
pub struct NoObserver;

impl Observer for NoObserver {}

/// Switches off this rule, if there is one, in every thread that explores.
pub struct Without(pub Option<Id>);

impl Observer for Without {
    fn thread_starts(&self) {
        watch::switch_off(self.0.map(|rule| (rule, Form::Whole)));
    }
}

impl Campaign {
    pub(crate) fn start(&self) -> Result<Fork, CampaignError> {
        Ok(match &self.base {
            Some(base) => base.clone(),
            None => self.image.make_for(self.ordering)?,
        })
    }

    /// The image that a workload leaves once it is unmounted.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn after(&self, workload: &Workload) -> Result<Fork, CampaignError> {
        after(self.start()?, self.plan(0).engine(), workload)
    }

    pub(crate) fn plan(&self, variant: usize) -> Plan {
        let (optimisations, schedule) = self.variants[variant];
        Plan {
            ordering: self.ordering,
            optimisations,
            schedule,
            // The same seed for all workloads, so that two which begin alike have the same states
            // up to there.
            seed: self.seed.wrapping_add(variant as u64),
            torn: self.torn,
            drive: self.drive.clone(),
            unit_bytes: self.unit_bytes,
            exhaustive: self.exhaustive,
            samples: self.samples,
            whole_every: self.whole_every,
            in_use_every: self.in_use_every,
            most_states: self.most_states,
            most_new: self.most_states_each,
        }
    }

    /// Looks for the smallest workload, and in it for the fewest patches, that fail in the same
    /// way.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn minimise(&self, failure: &Failure) -> Result<Failure, CampaignError> {
        let image = self.start()?;
        let found = failure.found.clone();
        let (workload, plan, found) = minimise(&image, &failure.workload, &failure.plan, found);
        Ok(Failure {
            workload,
            plan,
            // A foreign tool is not asked about the states of smaller workloads.
            minimised: found.verdict.kind != "foreign",
            found,
            graph: None,
        })
    }

    /// Looks at the patches of the failing moment, and for the order that is missing among them;
    /// the failure's report shows both from then on. Returns a trace of what happened from the
    /// mount up to the moment; `None` if the engine itself failed.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn draw(&self, failure: &mut Failure) -> Result<Option<Vec<u8>>, CampaignError> {
        let image = self.start()?;
        let shown = shown(&image, &failure.workload, &failure.plan, &failure.found);
        let (graph, trace) = shown.map(|shown| (shown.graph, shown.trace)).unzip();
        failure.graph = graph;
        Ok(trace)
    }

    /// Explores.
    ///
    /// # Errors
    /// If the image cannot be made or the engine fails.
    pub fn run(&self, observer: &dyn Observer) -> Result<Results, CampaignError> {
        let image = self.start()?;
        let chunks: Vec<Chunk> = (0..self.workloads.len())
            .step_by(CHUNK)
            .flat_map(|first| {
                let workloads = first..self.workloads.len().min(first + CHUNK);
                (0..self.variants.len()).map(move |variant| Chunk {
                    workloads: workloads.clone(),
                    variant,
                })
            })
            .collect();
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..self.threads.clamp(1, chunks.len().max(1)) {
                let sender = sender.clone();
                let (next, stop, image, chunks) = (&next, &stop, &image, &chunks);
                scope.spawn(move || {
                    observer.thread_starts();
                    while !stop.load(Relaxed) && !observer.is_over() {
                        let number = next.fetch_add(1, Relaxed);
                        let Some(chunk) = chunks.get(number) else {
                            return;
                        };
                        let outcomes = self.run_chunk(image, chunk, observer, stop);
                        if sender.send((number, outcomes)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let results = self.gather(&receiver, &chunks, observer);
            stop.store(true, Relaxed);
            results
        })
    }

    /// Explores the workloads of a chunk, one after the other. Of each only the part is explored in
    /// which it differs from the one before.
    fn run_chunk(
        &self,
        image: &Fork,
        chunk: &Chunk,
        observer: &dyn Observer,
        stop: &AtomicBool,
    ) -> Vec<Outcome> {
        let plan = self.plan(chunk.variant);
        let mut known = Known::default();
        let (mut states, mut failures) = (0, 0);
        let mut outcomes = Vec::new();
        for workload in &self.workloads[chunk.workloads.clone()] {
            let outcome = explore(image, workload, &plan, &mut known, observer);
            states += outcome.states;
            failures += usize::from(outcome.found.is_some());
            let ended = states >= self.most_states || failures >= self.most_failures;
            outcomes.push(outcome);
            if ended || stop.load(Relaxed) || observer.is_over() {
                break;
            }
        }
        outcomes
    }

    /// Collects the outcomes in the order of the runs, whatever order they end in, until there is
    /// enough. So the result does not depend on the number of threads.
    fn gather(
        &self,
        receiver: &mpsc::Receiver<(usize, Vec<Outcome>)>,
        chunks: &[Chunk],
        observer: &dyn Observer,
    ) -> Result<Results, CampaignError> {
        let runs = self.workloads.len() * self.variants.len();
        let mut waiting = BTreeMap::new();
        let mut results = Results::default();
        let mut distinct = Distinct::default();
        let mut next = 0;
        while let Ok((number, outcomes)) = receiver.recv() {
            waiting.insert(number, outcomes);
            while let Some(outcomes) = waiting.remove(&next) {
                let chunk = &chunks[next];
                next += 1;
                for (workload, outcome) in chunk.workloads.clone().zip(outcomes) {
                    let workload = &self.workloads[workload];
                    self.take(
                        workload,
                        chunk.variant,
                        outcome,
                        &mut results,
                        &mut distinct,
                    );
                    observer.progress(results.runs as usize, runs, &results);
                    let enough = results.failures.len() >= self.most_failures
                        || results.states >= self.most_states;
                    if enough {
                        return Ok(results);
                    }
                }
            }
        }
        results.is_complete = !observer.is_over();
        Ok(results)
    }

    fn take(
        &self,
        workload: &Workload,
        variant: usize,
        outcome: Outcome,
        results: &mut Results,
        distinct: &mut Distinct,
    ) {
        results.runs += 1;
        // The first variant of a workload comes before the others.
        results.workloads += u64::from(variant == 0);
        results.states += outcome.states;
        results.judged += outcome.judged;
        distinct.left.extend(outcome.fingerprints);
        distinct.recovered.extend(outcome.recovered);
        results.distinct = distinct.left.len() as u64;
        results.recovered = distinct.recovered.len() as u64;
        results.leaks_max = results.leaks_max.max(outcome.tally.leaks_max);
        results.moments += outcome.moments as u64;
        results.sampled_moments += outcome.sampled_moments as u64;
        results.reduced_moments += outcome.reduced_moments as u64;
        results.sampled_batches += outcome.sampled_batches as u64;
        results.cut_short += u64::from(outcome.cut_short || outcome.found.is_some());
        results.second_sampled += outcome.tally.second_sampled;
        results.reclaimed += outcome.tally.reclaimed;
        results.reclaims_known += outcome.tally.reclaims_known;
        results.reclaimed_in_use += outcome.tally.in_use;
        results.gone_on += outcome.tally.gone_on;
        results.second += outcome.tally.second;
        for (kind, count) in outcome.coverage {
            *results.coverage.entry(kind).or_default() += count;
        }
        for (rule, passes) in &outcome.rules {
            results.rules.entry(*rule).or_default().add(passes);
        }
        for refused in outcome.refused {
            *results.refused.entry(refused).or_default() += 1;
        }
        if let Some(found) = outcome.found {
            results.failures.push(Failure {
                workload: workload.clone(),
                plan: self.plan(variant),
                found,
                minimised: false,
                graph: None,
            });
        }
    }
}

/// The image that a workload leaves, unmounted.
pub(crate) fn after(
    image: Fork,
    engine: Engine,
    workload: &Workload,
) -> Result<Fork, CampaignError> {
    let done = Machine::new(image, engine, &mut Nobody).and_then(|mut machine| {
        for operation in &workload.operations {
            if machine.apply(operation, &mut Nobody).is_ok() {
                machine.answer(operation, &mut Nobody)?;
            }
        }
        machine.mount.unmount(&mut Nobody)?;
        Ok(machine.mount.fork())
    });
    done.map_err(|error| CampaignError::Engine {
        workload: workload.name.clone(),
        error,
    })
}
