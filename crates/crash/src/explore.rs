//! One workload, every state: runs it under a schedule of write-back and judges what each moment's
//! crash could leave.

mod replays;

use backstitch_crash_core::classes::Choices;
use backstitch_crash_core::closed::{self, Bounds, Coverage};
use backstitch_crash_core::fault::Fault;
use backstitch_crash_core::frontier::{Frontier, Node};
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Nobody, Watcher};
use backstitch_crash_core::operation::Operation;
use backstitch_crash_core::parts::parts;
use backstitch_crash_core::recovered::Recoveries;
use backstitch_crash_core::schedule::Schedule;
use backstitch_drives::DriveSpec;
use backstitch_layout::{Error, Structure};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::rules::{count_rolled_back, forget_followed};
use backstitch_rules::watch::{self, Counts};
use backstitch_store::{Batch, BlockClass, Goal, Optimisations, PatchKind};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use crate::ace::Workload;
use crate::arrival::{Pieces, arriving};
use crate::drive::RunDrive;
use crate::judge::{Judge, Question, Tally, Verdict, panic_message};
use crate::machine::{Machine, prepared};
use crate::model::Model;
use crate::reclaimed::Reclaims;
use fastrand::Rng as Random;

/// How a workload is to be explored.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The mechanism.
    pub ordering: Ordering,
    /// The optimisations of the patch graph.
    pub optimisations: Optimisations,
    /// The write-back.
    pub schedule: Schedule,
    /// Where randomness starts.
    pub seed: u64,
    /// Whether blocks on their way may arrive in part, in units of 512 bytes.
    pub torn: bool,
    /// The drive that the image is on; any where `None`.
    pub drive: Option<Arc<DriveSpec>>,
    /// What the engine takes to be written wholly or not at all; the block where `None`.
    pub unit_bytes: Option<u32>,
    /// The most sets of patches of a moment that are all visited.
    pub exhaustive: usize,
    /// Random ones that are visited where there are more.
    pub samples: usize,
    /// States for each that is also reclaimed to the end, with crashes inside; none where 0.
    pub whole_every: u64,
    /// Of these, states for each that is reclaimed once more while somebody uses the file system.
    pub in_use_every: u64,
    /// The most states that are visited.
    pub most_states: u64,
    /// The most that were not seen before.
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

/// Which patches of the moment are on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// These.
    Patches(Vec<bool>),
    /// The blocks of the batch on its way that arrived (torn ones with the sectors that did).
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
    /// What the state was asked.
    pub(crate) question: Question,
    pub(crate) verdict: Verdict,
    /// What is on disk of each block in question, in words.
    pub(crate) blocks: Vec<(u64, usize, usize)>,
    pub(crate) state: Fork,
}

/// What came of a workload.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) states: u64,
    /// Times that a state was recovered and judged: anew where there are new promises.
    pub(crate) judged: u64,
    /// States that were never seen before.
    pub(crate) new: u64,
    pub(crate) fingerprints: FxHashSet<u64>,
    /// What the replay of a journal made of the states.
    pub(crate) recovered: FxHashSet<u64>,
    pub(crate) found: Option<Found>,
    pub(crate) moments: usize,
    /// Moments at which not every set of patches was visited.
    pub(crate) sampled_moments: usize,
    /// Moments at which bits of bitmaps were tried one at a time instead of in every combination.
    pub(crate) reduced_moments: usize,
    /// Batches of which not every part was visited.
    pub(crate) sampled_batches: usize,
    /// The run was ended before its workload was.
    pub(crate) cut_short: bool,
    pub(crate) coverage: BTreeMap<&'static str, u64>,
    /// The rules that were come by, where they are counted.
    pub(crate) rules: Counts,
    pub(crate) tally: Tally,
    /// What operations failed with, where they did.
    pub(crate) refused: Vec<String>,
}

/// Sees states beside the judge: to check some of them with foreign tools.
pub(crate) type Witness<'a> = &'a mut dyn FnMut(&Fork, u128) -> Option<String>;

/// Somebody who looks at a workload as it runs.
pub(crate) trait Spectator: Watcher {
    /// The image is mounted so: this is what will be done and promised.
    fn begin(&mut self, model: Rc<RefCell<Model>>, engine: Engine);

    /// `operations` operations are begun.
    fn begun(&mut self, operations: usize);

    /// An operation was answered with an error.
    fn refused(&mut self, operation: &Operation, error: &Error);

    /// Nothing more needs to run.
    fn is_done(&self) -> bool;
}

/// Explores one workload from an image on.
///
/// Where the engine fails otherwise than with an answer to an operation, that is a failure too.
pub(crate) fn explore(
    image: &Fork,
    workload: &Workload,
    plan: &Plan,
    known: &mut Known,
    witness: Witness<'_>,
) -> Outcome {
    let setup = known.part_from(workload);
    let mut reclaims = std::mem::take(&mut known.reclaims);
    reclaims.next_workload();
    let mut explorer = Explorer::new(setup, plan, &mut known.states, witness);
    explorer.judge.reclaims = reclaims;
    // What a replay makes of a state inside another one is no state of the device.
    explorer.replays &= image.nesting().is_none();
    if watch::records() {
        forget_followed();
    }
    let ran = catch_unwind(AssertUnwindSafe(|| {
        run(image, &workload.operations, plan, &mut explorer)
    }));
    let trouble = match ran {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(panic_message(&*panic)),
    };
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
        // What the rest of this workload would have shown was not looked at.
        known.looked_at = 0;
    }
    outcome
}

/// What is known from the workload before, under the same plan: as far as two workloads begin
/// alike, so do their states.
#[derive(Default)]
pub(crate) struct Known {
    operations: Vec<Operation>,
    /// Operations at the beginning that were not looked at.
    setup: usize,
    /// Operations that were looked at, or were those not looked at.
    looked_at: usize,
    states: KnownStates,
    reclaims: Reclaims,
}

/// What was found good, by fingerprint.
#[derive(Default)]
struct KnownStates {
    /// As a crash left it.
    left: FxHashMap<u128, Good>,
    /// As the replay of its journal made it.
    recovered: FxHashMap<u128, Good>,
    /// What states show to a program: whether the promises hold depends on nothing else.
    shown: FxHashMap<u128, Times>,
    /// What the replay of a journal does to states: a matter of what they hold, and of nothing that
    /// was promised.
    recoveries: Recoveries,
}

/// A state in which nothing was found wrong.
#[derive(Clone, Copy)]
struct Good {
    times: Times,
    /// Some file maps blocks behind its end: whether it may depends on the promises.
    maps_behind: bool,
    /// What it shows, where that was looked at.
    shown: Option<u128>,
}

/// When something was found good.
#[derive(Clone, Copy)]
struct Times {
    first: Asked,
    last: Asked,
}

impl Times {
    fn at(now: Asked) -> Times {
        Times {
            first: now,
            last: now,
        }
    }

    /// Forgets what was found for other workloads than those that begin with the same `operations`
    /// operations. False where nothing is left.
    fn forget_behind(&mut self, operations: usize) -> bool {
        // What was promised later was promised by operations that this workload does not do.
        if self.last.begun > operations {
            self.last = self.first;
        }
        self.first.begun <= operations
    }
}

/// When a state was asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked {
    /// The number of promises under which it was judged.
    promises: u64,
    /// The number of operations that had begun.
    begun: usize,
}

impl Known {
    /// Forgets what does not hold for a workload. How many of its operations need not be looked at:
    /// those that it has to begin with, and those that were looked at in the one before.
    fn part_from(&mut self, workload: &Workload) -> usize {
        let operations = &workload.operations;
        let pairs = self.operations.iter().zip(operations);
        let common = pairs.take_while(|(before, now)| before == now).count();
        let states = &mut self.states;
        for known in [&mut states.left, &mut states.recovered] {
            known.retain(|_, good| good.times.forget_behind(common));
        }
        states.shown.retain(|_, times| times.forget_behind(common));
        // The last operation's moments go on to the end of the workload, which is another one's
        // only by chance.
        let seen = match self.setup <= workload.setup {
            true => common
                .min(self.looked_at)
                .min(operations.len().saturating_sub(1)),
            false => 0,
        };
        self.operations = operations.clone();
        self.looked_at = operations.len();
        self.setup = workload.setup;
        workload.setup.max(seen)
    }
}

/// Runs a workload under a plan.
///
/// # Errors
/// Where the image cannot be mounted, or the engine fails otherwise than with an answer to an
/// operation.
pub(crate) fn run(
    image: &Fork,
    operations: &[Operation],
    plan: &Plan,
    spectator: &mut dyn Spectator,
) -> Result<(), Error> {
    let image = prepared(image, operations, plan.engine())?;
    let mut machine = Machine::new(image, plan.engine(), &mut Nobody)?;
    spectator.begin(machine.model(), machine.engine());
    let mut random = Random::with_seed(plan.seed ^ 0x5ca1_ab1e);
    for (number, operation) in operations.iter().enumerate() {
        spectator.begun(number + 1);
        match machine.apply(operation, spectator) {
            Ok(()) => {
                spectator.at_rest(&machine.mount);
                // A crash comes before the caller of the operation before it is answered, and what
                // is written meanwhile: where each call waits, nothing would be left to lose.
                let is_crash = |o: &Operation| matches!(o, Operation::Crash(_) | Operation::Cut);
                let mut then = operations[number + 1..].iter();
                let then = then.find(|then| !matches!(then, Operation::Round));
                let is_cut_off = is_crash(operation) || then.is_some_and(is_crash);
                if !is_cut_off || operation.is_flush() {
                    machine.answer(operation, spectator)?;
                }
            }
            Err(error @ (Error::Corrupt(_) | Error::Device(_))) => return Err(error),
            Err(error) => spectator.refused(operation, &error),
        }
        // The reclaim, or deferred work, met what no crash may leave.
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
            machine = next;
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
            // Transactions pile up, nothing of which is written.
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
    /// Operations at the beginning that are not looked at.
    setup: usize,
    /// States are what the replay of a journal makes of them.
    replays: bool,
    judge: Judge,
    random: Random,
    /// What was done and promised; `None` while the image is being mounted.
    model: Option<Rc<RefCell<Model>>>,
    begun: usize,
    moment: usize,
    known: &'a mut KnownStates,
    outcome: Outcome,
    witness: Witness<'a>,
}

impl<'a> Explorer<'a> {
    fn new(
        setup: usize,
        plan: &Plan,
        known: &'a mut KnownStates,
        witness: Witness<'a>,
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
            witness,
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
        self.outcome.states >= self.plan.most_states || self.outcome.new >= self.plan.most_new
    }

    fn now(&self) -> Asked {
        Asked {
            promises: (self.model.as_ref()).map_or(0, |model| model.borrow().promises),
            begun: self.begun,
        }
    }

    /// What has yet to be asked about a state that a crash left, under what is promised now.
    fn open_question(&mut self, fingerprint: u128) -> Option<Question> {
        self.outcome.states += 1;
        let now = self.now();
        // Which ones are reclaimed depends on the seed, so that a longer search looks at others
        // each time.
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
            verdict = (self.witness)(state, fingerprint).map(|what| Verdict {
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

impl Spectator for Explorer<'_> {
    fn begin(&mut self, model: Rc<RefCell<Model>>, engine: Engine) {
        self.model = Some(model);
        self.judge.recover_with(engine);
    }

    fn begun(&mut self, operations: usize) {
        self.begun = operations;
    }

    fn refused(&mut self, operation: &Operation, error: &Error) {
        self.outcome.refused.push(format!("{operation}: {error}"));
    }

    fn is_done(&self) -> bool {
        self.outcome.found.is_some() || self.is_enough()
    }
}

impl Watcher for Explorer<'_> {
    fn at_rest(&mut self, mount: &Mount) {
        self.moment += 1;
        if self.begun <= self.setup || self.is_done() {
            return;
        }
        self.outcome.moments += 1;
        if self.plan.drive.is_some() {
            return self.visit_medium(mount.fork());
        }
        let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
        self.count_coverage(&nodes);
        let bounds = Bounds {
            exhaustive: self.plan.exhaustive,
            samples: self.plan.samples,
        };
        let mut random = Random::with_seed(self.random.u64(..));
        if self.replays {
            let sampled = self.visit_classes(&nodes, &mut states, &mut random);
            self.outcome.sampled_moments += usize::from(sampled || !states.is_complete);
            return;
        }
        let coverage = closed::visit(&nodes, bounds, &mut random, &mut |included| {
            if self.is_done() {
                return;
            }
            let fingerprint = states.fingerprint(&nodes, included);
            let Some(question) = self.open_question(fingerprint) else {
                return;
            };
            let state = states.fork(&nodes, included);
            if let Some(verdict) = self.judge(question, fingerprint, &state) {
                let blocks = states.blocks(&nodes, included);
                let cut = Cut::Patches(included.to_vec());
                self.note(cut, blocks, (question, verdict), state);
            }
        });
        self.outcome.sampled_moments +=
            usize::from(coverage == Coverage::Sampled || !states.is_complete);
        self.outcome.reduced_moments += usize::from(coverage == Coverage::Reduced);
    }

    fn in_flight(&mut self, mount: &Mount, batch: &Batch) {
        self.moment += 1;
        if watch::records() {
            count_rolled_back(mount.store.graph());
        }
        if self.begun <= self.setup || self.is_done() {
            return;
        }
        self.outcome.moments += 1;
        let disk = mount.fork();
        let arriving = arriving(batch, &disk);
        let contents: Vec<bool> = arriving
            .iter()
            .map(|part| mount.holds_contents(part.block))
            .collect();
        let mut pieces = Pieces::of(&arriving, &contents, &disk, self.plan.torn);
        let is_any_drive = self.plan.drive.is_none();
        if self.replays && is_any_drive && self.visit_classes_of_batch(&mut pieces) {
            return;
        }
        let contents: Vec<bool> = (0..pieces.count())
            .map(|at| pieces.is_contents(at))
            .collect();
        let samples = self.plan.samples.min(64);
        let (parts, complete) = match self.plan.drive.clone() {
            None => parts(&contents, samples, &mut self.random),
            Some(spec) => {
                let drive =
                    (self.drive).get_or_insert_with(|| RunDrive::new(&spec, disk.all_bytes()));
                let requests: Vec<_> = batch.writes.iter().flat_map(|(_, all)| all).collect();
                let of = pieces.of_each();
                drive.parts(&requests, &of, &contents, samples, &mut self.random)
            }
        };
        self.outcome.sampled_batches += usize::from(!complete);
        for included in parts {
            if self.is_done() {
                return;
            }
            let (state, fingerprint) = pieces.state(&included);
            let asked = self.open_question(fingerprint);
            let asked = asked.and_then(|q| Some((q, self.judge(q, fingerprint, &state)?)));
            if let Some(found) = asked {
                self.note_part(&pieces, &included, found, state);
            }
        }
    }
}

impl Explorer<'_> {
    /// Nothing is on its way: a drive leaves what it has.
    fn visit_medium(&mut self, state: Fork) {
        let fingerprint = state.fingerprint();
        let asked = self.open_question(fingerprint);
        let asked = asked.and_then(|q| Some((q, self.judge(q, fingerprint, &state)?)));
        if let Some(found) = asked {
            self.note(Cut::Batch(Vec::new()), Vec::new(), found, state);
        }
    }

    fn note_part(
        &mut self,
        pieces: &Pieces<'_>,
        included: &[bool],
        wrong: (Question, Verdict),
        state: Fork,
    ) {
        let mut cut: Vec<(u64, u64)> = Vec::new();
        let mut blocks = Vec::new();
        for (part, sectors) in pieces.arriving.iter().zip(pieces.arrived(included)) {
            blocks.push((part.block, 1, usize::from(sectors != 0)));
            match cut.last_mut() {
                _ if sectors == 0 => {}
                Some((block, there)) if *block == part.block => *there |= sectors,
                _ => cut.push((part.block, sectors)),
            }
        }
        self.note(Cut::Batch(cut), blocks, wrong, state);
    }

    fn note(
        &mut self,
        cut: Cut,
        blocks: Vec<(u64, usize, usize)>,
        (question, verdict): (Question, Verdict),
        state: Fork,
    ) {
        self.outcome.found = Some(Found {
            moment: self.moment,
            begun: self.begun,
            cut,
            question,
            verdict,
            blocks,
            state,
        });
    }
}

/// What has yet to be asked about a state, and whether it was never seen.
fn question_of(
    known: &mut FxHashMap<u128, Good>,
    shown: &FxHashMap<u128, Times>,
    fingerprint: u128,
    now: Asked,
) -> Option<(Question, bool)> {
    match known.entry(fingerprint) {
        Entry::Occupied(known) if known.get().times.last.promises == now.promises => None,
        Entry::Occupied(mut known) => {
            let good = known.get_mut();
            good.times.last = now;
            // Another state that shows the same was asked already.
            let same = good.shown.and_then(|shows| shown.get(&shows));
            if same.is_some_and(|times| times.last.promises == now.promises) {
                return None;
            }
            Some(match good.maps_behind {
                true => (Question::Consistency, false),
                false => (Question::Promises, false),
            })
        }
        Entry::Vacant(new) => {
            new.insert(Good {
                times: Times::at(now),
                maps_behind: false,
                shown: None,
            });
            Some((Question::Consistency, true))
        }
    }
}

/// Remembers the verdict on a state.
fn note(
    known: &mut FxHashMap<u128, Good>,
    shown: &mut FxHashMap<u128, Times>,
    judge: &Judge,
    fingerprint: u128,
    now: Asked,
    is_good: bool,
) {
    if !is_good {
        known.remove(&fingerprint);
        return;
    }
    if let Some(good) = known.get_mut(&fingerprint) {
        good.maps_behind |= judge.maps_behind;
        good.shown = judge.shown;
    }
    if let Some(shows) = judge.shown {
        let times = shown.entry(shows).or_insert(Times::at(now));
        times.last = now;
    }
}
