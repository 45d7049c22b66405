//! Explores one workload: runs it under a schedule of write-back, and judges every state that a
//! crash at each moment could leave.

mod known;
mod moments;
mod replays;

use crate::campaign::Observer;
use backstitch_crash_core::fault::Fault;
use backstitch_crash_core::frontier::Node;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Nobody, Watcher};
use backstitch_crash_core::operation::Operation;
use backstitch_crash_core::schedule::Schedule;
use backstitch_drives::DriveSpec;
use backstitch_layout::{Error, Structure};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::rules::forget_followed;
use backstitch_rules::watch::{self, Counts};
use backstitch_store::{BlockClass, Goal, Optimisations, PatchKind};
use rustc_hash::FxHashSet;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use crate::drive::RunDrive;
use crate::judge::{Judge, Question, Tally, Verdict, panic_message};
use crate::machine::{Machine, prepared};
use crate::model::Model;
use backstitch_crash_workloads::Workload;
use fastrand::Rng as Random;

pub(crate) use known::Known;
use known::{Asked, KnownStates, note, question_of};

/// How a workload is to be explored.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The mechanism.
    pub ordering: Ordering,
    /// The optimisations of the patch graph.
    pub optimisations: Optimisations,
    /// The write-back.
    pub schedule: Schedule,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether blocks on their way may arrive in part, in units of 512 bytes.
    pub torn: bool,
    /// The drive that the image is on; where `None`, one that may write in any order.
    pub drive: Option<Arc<DriveSpec>>,
    /// The size of what the engine takes to be written wholly or not at all; a block where `None`.
    pub unit_bytes: Option<u32>,
    /// The most sets of patches of a moment that are all visited.
    pub exhaustive: usize,
    /// How many random sets are visited if there are more.
    pub samples: usize,
    /// One state in so many is also reclaimed to the end, with crashes inside; none where 0.
    pub whole_every: u64,
    /// Of these, one in so many is reclaimed once more while somebody uses the file system.
    pub in_use_every: u64,
    /// The most states that are visited.
    pub most_states: u64,
    /// The most of them that were not seen before.
    pub most_new: u64,
}

impl Plan {
    pub(crate) fn engine(&self) -> Engine {
        Engine {
            ordering: self.ordering,
            optimisations: self.optimisations,
            unit_bytes: self.unit_bytes,
        }
    }
}

/// What of a moment's changes is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// These.
    Patches(Vec<bool>),
    /// These blocks of the batch on its way have arrived, each with the sectors that did.
    Batch(Vec<(u64, u64)>),
}

/// A state that must not be.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The number of the moment, from the start of the workload.
    pub(crate) moment: usize,
    /// The operations begun before it.
    pub(crate) begun: usize,
    pub(crate) cut: Cut,
    /// The question on which the state failed.
    pub(crate) question: Question,
    pub(crate) verdict: Verdict,
    /// The blocks in question, each with the number of its changes and how many of them are on
    /// disk.
    pub(crate) blocks: Vec<(u64, usize, usize)>,
    pub(crate) state: Fork,
}

/// The result of exploring a workload.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) states: u64,
    /// How often a state was recovered and judged. That is done anew whenever there are new
    /// promises.
    pub(crate) judged: u64,
    /// States that were never seen before.
    pub(crate) new: u64,
    pub(crate) fingerprints: FxHashSet<u64>,
    /// The states after the replay of a journal, by fingerprint.
    pub(crate) recovered: FxHashSet<u64>,
    pub(crate) found: Option<Found>,
    pub(crate) moments: usize,
    /// Moments at which not every set of patches was visited.
    pub(crate) sampled_moments: usize,
    /// Moments at which bits of bitmaps were tried one at a time instead of in every combination.
    pub(crate) reduced_moments: usize,
    /// Batches of which not every part was visited.
    pub(crate) sampled_batches: usize,
    /// Whether the run was ended before its workload was.
    pub(crate) cut_short: bool,
    pub(crate) coverage: BTreeMap<&'static str, u64>,
    /// The rules that the run came by, if they are counted.
    pub(crate) rules: Counts,
    pub(crate) tally: Tally,
    /// The errors with which operations were answered.
    pub(crate) refused: Vec<String>,
}

/// Watches a workload as it runs.
pub(crate) trait Spectator: Watcher {
    /// The image is mounted, at the start and after each crash of the workload.
    fn mounted(&mut self, _mount: &mut Mount) {}

    /// A mount begins under this engine; `model` is what is done and promised from now on.
    fn begin(&mut self, model: Rc<RefCell<Model>>, engine: Engine);

    /// Called when the operation with this number, counted from 1, begins.
    fn begun(&mut self, operations: usize);

    /// An operation was answered with an error.
    fn refused(&mut self, operation: &Operation, error: &Error);

    /// Whether the rest of the workload need not run.
    fn is_done(&self) -> bool;
}

/// Explores one workload from an image on.
///
/// If the engine fails other than by answering an operation with an error, that is a failure too.
pub(crate) fn explore(
    image: &Fork,
    workload: &Workload,
    plan: &Plan,
    known: &mut Known,
    observer: &dyn Observer,
) -> Outcome {
    let setup = known.part_from(workload);
    let mut reclaims = std::mem::take(&mut known.reclaims);
    reclaims.next_workload();
    let mut explorer = Explorer::new(setup, plan, &mut known.states, observer);
    explorer.judge.reclaims = reclaims;
    // For nested file systems, the result of a replay inside is no state of the device.
    explorer.replays &= image.nesting().is_none();
    if watch::records() {
        forget_followed();
    }
    let trouble = trouble_of(image, &workload.operations, plan, &mut explorer);
    if let Some(what) = trouble {
        explorer.note_engine(what, image);
    }
    let reclaims = std::mem::take(&mut explorer.judge.reclaims);
    let mut outcome = explorer.into_outcome();
    if watch::records() {
        outcome.rules = watch::take();
    }
    known.reclaims = reclaims;
    if outcome.found.is_some() {
        *known = Known::default();
    } else if outcome.cut_short {
        // The states of the rest of this workload were not looked at.
        known.looked_at = 0;
    }
    outcome
}

/// Runs a workload under a plan. Returns the engine's error or panic, if there is one.
pub(crate) fn trouble_of(
    image: &Fork,
    operations: &[Operation],
    plan: &Plan,
    spectator: &mut dyn Spectator,
) -> Option<String> {
    let ran = catch_unwind(AssertUnwindSafe(|| run(image, operations, plan, spectator)));
    match ran {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(panic_message(&*panic)),
    }
}

/// Runs a workload under a plan.
///
/// # Errors
/// Where the image cannot be mounted, or the engine fails other than by answering an operation with
/// an error.
pub(crate) fn run(
    image: &Fork,
    operations: &[Operation],
    plan: &Plan,
    spectator: &mut dyn Spectator,
) -> Result<(), Error> {
    let image = prepared(image, operations, plan.engine())?;
    let mut machine = Machine::new(image, plan.engine(), &mut Nobody)?;
    spectator.mounted(&mut machine.mount);
    spectator.begin(machine.model(), machine.engine());
    let mut random = Random::with_seed(plan.seed ^ 0x5ca1_ab1e);
    let mut unanswered = None;
    for (number, operation) in operations.iter().enumerate() {
        spectator.begun(number + 1);
        match machine.apply(operation, spectator) {
            Ok(()) => {
                spectator.at_rest(&machine.mount);
                // If a crash follows (after any `round`s), this operation is not answered before
                // it: where each call waits for its changes, an answered one would leave nothing to
                // lose. It is answered on the old mount once the crash has made the next one, so
                // the states of that answer are seen too.
                let is_crash = |o: &Operation| matches!(o, Operation::Crash(_) | Operation::Cut);
                let mut then = operations[number + 1..].iter();
                let then = then.find(|then| !matches!(then, Operation::Round));
                let is_cut_off = is_crash(operation) || then.is_some_and(is_crash);
                if !is_cut_off || operation.is_flush() {
                    machine.answer(operation, spectator)?;
                } else if !is_crash(operation) {
                    unanswered = Some(operation);
                }
            }
            Err(error @ (Error::Corrupt(_) | Error::Device(_))) => return Err(error),
            Err(error) => spectator.refused(operation, &error),
        }
        // The reclaim, or deferred work, found what no crash may leave.
        if let Some(reason) = machine.mount.fs.read_only_reason() {
            return Err(Error::corrupt(
                Structure::Sole("the file system in use"),
                Fault::ReadOnly(reason),
            ));
        }
        let next = match operation {
            Operation::Crash(number) => {
                let seed = random.u64(..).wrapping_add((*number).into());
                Some(machine.crashed(&mut Random::with_seed(seed))?)
            }
            Operation::Cut => Some(machine.cut()?),
            Operation::Remount(ordering) => Some(machine.remounted(*ordering, spectator)?),
            _ => None,
        };
        if let Some(next) = next {
            if let Some(operation) = unanswered.take() {
                machine.answer(operation, spectator)?;
                spectator.at_rest(&machine.mount);
            }
            next.follow(&machine);
            machine = next;
            spectator.mounted(&mut machine.mount);
            spectator.begin(machine.model(), machine.engine());
        }
        spectator.at_rest(&machine.mount);
        write_back(&mut machine, plan.schedule, &mut random, spectator)?;
        if spectator.is_done() {
            return Ok(());
        }
    }
    machine.mount.drain(spectator)
}

/// What the schedule writes between two operations.
fn write_back(
    machine: &mut Machine,
    schedule: Schedule,
    random: &mut Random,
    spectator: &mut dyn Spectator,
) -> Result<(), Error> {
    match schedule {
        Schedule::Nothing => {
            // Transactions end without being written, so several of them pile up.
            if machine.mount.has_log() && random.usize(..2) == 0 {
                machine.mount.commit(spectator)?;
            }
        }
        Schedule::Everything => machine.mount.drain(spectator)?,
        Schedule::Partial => {
            if machine.mount.has_log() {
                machine.mount.tend_log(random.u64(..), spectator)?;
            }
            machine.mount.write_issued(spectator)?;
            if random.usize(..2) == 0 {
                machine.mount.work(spectator)?;
            }
            if random.usize(..2) == 0 {
                let mut some = Vec::new();
                machine.mount.store.uncommitted(&mut some);
                let wanted = 1 + random.usize(..3);
                while some.len() > wanted {
                    some.swap_remove(random.usize(..some.len()));
                }
                machine.mount.write_out(Goal::Patches(&some), spectator)?;
            }
        }
    }
    Ok(())
}

struct Explorer<'a> {
    plan: Plan,
    /// The drive of this run, once it is written to.
    drive: Option<RunDrive>,
    /// The operations at the beginning whose moments are not looked at.
    setup: usize,
    /// Whether states are told apart by what the replay of a journal makes of them.
    replays: bool,
    judge: Judge,
    random: Random,
    /// What was done and promised; `None` while the image is being mounted.
    model: Option<Rc<RefCell<Model>>>,
    begun: usize,
    moment: usize,
    known: &'a mut KnownStates,
    outcome: Outcome,
    /// Sees states beside the judge, and says when to end.
    observer: &'a dyn Observer,
}

impl<'a> Explorer<'a> {
    fn new(
        setup: usize,
        plan: &Plan,
        known: &'a mut KnownStates,
        observer: &'a dyn Observer,
    ) -> Explorer<'a> {
        Explorer {
            plan: plan.clone(),
            drive: None,
            setup,
            replays: plan.ordering.has_log(),
            judge: Judge::new(plan.engine(), plan.in_use_every),
            random: Random::with_seed(plan.seed),
            model: None,
            begun: 0,
            moment: 0,
            known,
            outcome: Outcome::default(),
            observer,
        }
    }

    fn into_outcome(self) -> Outcome {
        let found = self.outcome.found.is_some();
        Outcome {
            cut_short: !found && self.is_enough(),
            tally: self.judge.tally,
            ..self.outcome
        }
    }

    fn is_enough(&self) -> bool {
        self.outcome.states >= self.plan.most_states
            || self.outcome.new >= self.plan.most_new
            || self.observer.is_over()
    }

    fn now(&self) -> Asked {
        Asked {
            promises: (self.model.as_ref()).map_or(0, |model| model.borrow().promises),
            begun: self.begun,
        }
    }

    /// The question still to be answered about a state that a crash left, under the present
    /// promises.
    fn open_question(&mut self, fingerprint: u128) -> Option<Question> {
        self.outcome.states += 1;
        let now = self.now();
        // The seed decides which states are reclaimed, so that another seed looks at others.
        let choice = fingerprint as u64 ^ self.plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let every = self.plan.whole_every;
        let whole = every != 0 && choice.is_multiple_of(every);
        let known = &mut *self.known;
        let question = question_of(&mut known.left, &known.shown, fingerprint, now)?;
        if question.1 {
            self.outcome.new += 1;
            self.outcome.fingerprints.insert(fingerprint as u64);
        }
        Some(if whole { Question::Reclaim } else { question.0 })
    }

    fn judge(&mut self, question: Question, fingerprint: u128, state: &Fork) -> Option<Verdict> {
        let model = self.model.clone()?;
        let model = model.borrow();
        self.outcome.judged += 1;
        let before = watch::set_remounted(true);
        let mut verdict = self.judge.judge(state, &model, question);
        watch::set_remounted(before);
        if verdict.is_none() && question != Question::Promises {
            verdict = self.observer.state(state, fingerprint).map(|what| Verdict {
                kind: "foreign",
                what,
            });
        }
        let now = self.now();
        let known = &mut *self.known;
        note(
            &mut known.left,
            &mut known.shown,
            &self.judge,
            fingerprint,
            now,
            verdict.is_none(),
        );
        verdict
    }

    /// The engine itself failed.
    fn note_engine(&mut self, what: String, image: &Fork) {
        let verdict = Verdict {
            kind: "engine",
            what,
        };
        self.outcome.found.get_or_insert(Found {
            moment: self.moment,
            begun: self.begun,
            cut: Cut::Patches(Vec::new()),
            question: Question::Promises,
            verdict,
            blocks: Vec::new(),
            state: image.clone(),
        });
    }

    fn count_coverage(&mut self, nodes: &[Node]) {
        for node in nodes {
            let name = match (node.class, node.kind) {
                (BlockClass::Data, PatchKind::Hard) => "data_hard",
                (BlockClass::Data, _) => "data_soft",
                (_, PatchKind::Bits) => "bitmap_bits",
                (BlockClass::Directory, PatchKind::Hard) => "names_hard",
                (BlockClass::Directory, _) => "names_soft",
                (_, PatchKind::Hard) => "metadata_hard",
                (_, _) => "metadata_soft",
            };
            *self.outcome.coverage.entry(name).or_default() += 1;
        }
    }
}
