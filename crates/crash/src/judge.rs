//! The verdict on one state: what the check says, whether it can be mounted, whether the promises
//! hold.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use backstitch_crash_core::closed::{self, Bounds, Coverage};
use backstitch_crash_core::frontier::Frontier;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Nobody, Watcher, replayed};
use backstitch_crash_core::operation::{Operation, script};
use backstitch_crash_core::recovered::{Left, Recoveries};
use backstitch_layout::tools::{CheckOptions, Code, Finding, Kind};
use backstitch_layout::{Error, InodeNumber, ReclaimStep};
use backstitch_store::Batch;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::machine::Machine;
use crate::model::Model;
use crate::reclaimed::{INSIDE, Open, Reclaims};
use crate::visitor::Visitor;
use crate::{order, promises};
use backstitch_crash_workloads::generate;
use fastrand::Rng as Random;

/// What is wrong with a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The kind of failure, by which it is recognised in another state: `corruption`, `not as
    /// promised`, …
    pub(crate) kind: &'static str,
    pub(crate) what: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            // The text of these is enough.
            "corruption" | "foreign" => f.write_str(&self.what),
            kind => write!(f, "{kind}: {}", self.what),
        }
    }
}

/// What was counted while judging.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// The most leaks found in one state.
    pub(crate) leaks_max: u64,
    /// States in which recovery and reclaim were run to the end.
    pub(crate) reclaimed: u64,
    /// Of these, states for which the result of the reclaim was known from another state.
    pub(crate) reclaims_known: u64,
    /// Of those that were reclaimed, states that were reclaimed once more while being used.
    pub(crate) in_use: u64,
    /// States on which work went on until another power cut.
    pub(crate) gone_on: u64,
    /// States of crashes inside recovery or reclaim.
    pub(crate) second: u64,
    /// Moments inside recovery or reclaim at which not every set of patches was visited.
    pub(crate) second_sampled: u64,
}

/// What is asked about a state. Each question includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    /// Whether it can be mounted, and what is promised is there.
    Promises,
    /// Whether a check finds nothing that no crash may leave.
    Consistency,
    /// Whether the reclaim succeeds, after which nothing may be wrong at all.
    Reclaim,
}

/// States left by a crash inside a replay that are replayed in their turn, with crashes inside.
const REPLAYS_OF_REPLAYS: usize = 2;

/// At most one reclaimed state in so many is worked on.
const GO_ON_EVERY: u64 = 16;

/// Operations that are done on such a state, and power cuts that are tried after them.
const FURTHER: usize = 20;
const CUTS_AFTER: usize = 4;

/// Judges states.
pub(crate) struct Judge {
    pub(crate) engine: Engine,
    /// One reclaimed state in so many is also reclaimed while being used.
    in_use_every: u64,
    pub(crate) tally: Tally,
    /// The reclaims of earlier states.
    pub(crate) reclaims: Reclaims,
    /// Whether the state judged last has files that map blocks beyond their ends.
    pub(crate) maps_behind: bool,
    /// The fingerprint of all that the state judged last shows to a program.
    pub(crate) shown: Option<u128>,
}

impl Judge {
    pub(crate) fn new(engine: Engine, in_use_every: u64) -> Judge {
        Judge {
            engine,
            in_use_every: in_use_every.max(1),
            tally: Tally::default(),
            reclaims: Reclaims::default(),
            maps_behind: false,
            shown: None,
        }
    }

    /// Recovers states by another mechanism from now on.
    pub(crate) fn recover_with(&mut self, engine: Engine) {
        if engine != self.engine {
            self.engine = engine;
            self.reclaims = Reclaims::default();
        }
    }

    /// Recovers and checks a state.
    pub(crate) fn judge(
        &mut self,
        fork: &Fork,
        model: &Model,
        question: Question,
    ) -> Option<Verdict> {
        self.maps_behind = false;
        self.shown = None;
        let judged = catch_unwind(AssertUnwindSafe(|| self.try_judge(fork, model, question)));
        judged.unwrap_or_else(|panic| {
            Some(Verdict {
                kind: "panic",
                what: panic_message(&*panic),
            })
        })
    }

    fn try_judge(&mut self, fork: &Fork, model: &Model, question: Question) -> Option<Verdict> {
        if fork.nesting().is_some() {
            return self.judge_nested(fork, model, question);
        }
        let mapped_behind = match question {
            Question::Promises => Vec::new(),
            _ => match self.check_recovered(fork) {
                Ok(mapped_behind) => mapped_behind,
                Err(verdict) => return Some(verdict),
            },
        };
        self.maps_behind = !mapped_behind.is_empty();
        let read_only = !self.engine.ordering.promises().keeps_order();
        let mut mount = match Mount::open(fork.clone(), self.engine, read_only, &mut Nobody) {
            Ok(mount) => mount,
            Err(error) => return Some(unmountable(&error.to_string())),
        };
        if let Some(reason) = mount.fs.read_only_reason().filter(|_| !read_only) {
            return Some(unmountable(&reason));
        }
        let (verdict, shown) = promise(&mut mount, model, &mapped_behind, "");
        self.shown = Some(shown);
        if verdict.is_some() || question < Question::Reclaim || read_only {
            return verdict;
        }
        let behind = promises::behind_the_ends(&mut mount, model);
        if !behind.is_empty() {
            return Some(not_promised(behind.join("; ")));
        }
        let verdict = self
            .crash_in_replay(fork, model)
            .or_else(|| self.recover_whole(fork, model))
            .or_else(|| self.recover_in_use(fork))
            .or_else(|| self.go_on(fork));
        self.maps_behind = !mapped_behind.is_empty();
        self.shown = Some(shown);
        verdict
    }

    /// Judges a state with a file system inside: the outer and the inner one must each be as a
    /// crash of a device of its own may leave it, and after recovery nothing may be wrong.
    fn judge_nested(&mut self, fork: &Fork, model: &Model, question: Question) -> Option<Verdict> {
        if question != Question::Promises
            && let Err(verdict) = self.check(&fork.outermost(), false)
        {
            return Some(outside(verdict));
        }
        let inner = match fork.inner() {
            Ok(inner) => inner?,
            Err(error) => return Some(outside(unmountable(&error.to_string()))),
        };
        let is_shown = fork.nesting().is_some_and(|n| n.is_shown());
        let verdict = match is_shown {
            true => self.judge_tree(fork, &inner, model, question),
            false => self.try_judge(&inner, model, question),
        };
        if verdict.is_some() || question != Question::Reclaim {
            return verdict;
        }
        let (maps_behind, shown) = (self.maps_behind, self.shown);
        let verdict = self.recover_whole(fork, model).or_else(|| {
            // Not done otherwise: the random operations may rename the file that holds the inner
            // file system.
            (!is_shown).then(|| self.recover_in_use(fork))?
        });
        (self.maps_behind, self.shown) = (maps_behind, shown);
        verdict
    }

    /// Judges a state in which the inner file system is mounted in the tree of the outer one.
    /// Promises are checked on the whole tree.
    fn judge_tree(
        &mut self,
        fork: &Fork,
        inner: &Fork,
        model: &Model,
        question: Question,
    ) -> Option<Verdict> {
        let mut mapped_behind = Vec::new();
        if question != Question::Promises {
            let found = self.check(&fork.outermost(), false);
            match found.and_then(|behind| self.check_recovered(inner).map(|_| behind)) {
                Ok(behind) => mapped_behind = behind,
                Err(verdict) => return Some(verdict),
            }
        }
        let mut mount = match Mount::open(fork.clone(), self.engine, false, &mut Nobody) {
            Ok(mount) => mount,
            Err(error) => return Some(unmountable(&error.to_string())),
        };
        if let Some(reason) = mount.fs.read_only_reason() {
            return Some(unmountable(&reason));
        }
        self.maps_behind = !mapped_behind.is_empty();
        let (verdict, shown) = promise(&mut mount, model, &mapped_behind, "");
        self.shown = Some(shown);
        verdict
    }

    /// Checks an image and all images inside it; each must be clean.
    fn check_clean(&mut self, fork: &Fork) -> Result<(), Verdict> {
        self.check(&fork.outermost(), true)?;
        match fork.inner() {
            Ok(Some(inner)) => self.check_clean(&inner),
            Ok(None) => Ok(()),
            Err(error) => Err(outside(unmountable(&error.to_string()))),
        }
    }

    /// Checks a state. If it has a journal, it is replayed first, and then nothing at all may be
    /// wrong.
    fn check_recovered(&mut self, fork: &Fork) -> Result<Vec<InodeNumber>, Verdict> {
        match fork.inner() {
            Ok(Some(inner)) => {
                self.check(&fork.outermost(), false).map_err(outside)?;
                return self.check_recovered(&inner);
            }
            Ok(None) => {}
            Err(error) => return Err(outside(unmountable(&error.to_string()))),
        }
        if !self.engine.ordering.has_log() {
            return self.check(fork, false);
        }
        match replayed(fork) {
            Ok(fork) => self.check(&fork, true),
            Err(error) => Err(unmountable(&error.to_string())),
        }
    }

    /// Runs our own check, and fails if it finds what no crash may leave, or, with `clean`,
    /// anything at all. Else the inodes that map blocks beyond their ends.
    fn check(&mut self, fork: &Fork, clean: bool) -> Result<Vec<InodeNumber>, Verdict> {
        let report = match fork.kind().tools().check(fork, &CheckOptions::QUICK) {
            Ok(report) => report,
            Err(error) => return Err(unmountable(&error.to_string())),
        };
        // An image that claims to have been unmounted must be clean.
        let unmounted = !report
            .notes
            .iter()
            .any(|note| note.code == Code::NotUnmounted);
        let clean = clean || unmounted;
        let leaks = report.count(Kind::Leak) as u64;
        self.tally.leaks_max = self.tally.leaks_max.max(leaks);
        let bad: Vec<String> = report
            .findings
            .iter()
            .filter(|finding| clean || finding.kind == Kind::Corruption)
            .take(8)
            .map(Finding::to_string)
            .collect();
        let hidden = report.worst_omitted == Some(Kind::Corruption);
        if !bad.is_empty() || hidden {
            return Err(Verdict {
                kind: if clean { "marked clean" } else { "corruption" },
                what: bad.join("; "),
            });
        }
        let behind = report.findings.iter();
        let behind = behind.filter(|finding| finding.code == Code::SizeBelowMapped);
        Ok(behind
            .filter_map(|finding| finding.location.inode)
            .collect())
    }

    /// Crashes inside the replay of a journal. Each leaves a state that must itself be replayed to
    /// a good one.
    fn crash_in_replay(&mut self, fork: &Fork, model: &Model) -> Option<Verdict> {
        if !self.engine.ordering.has_log() {
            return None;
        }
        let mut recoveries = Recoveries::default();
        let recovered = recoveries.of(fork);
        // The result without a crash was judged already.
        let mut seen = FxHashSet::from_iter([recovered.result_fingerprint(fork)]);
        let mut random = Random::with_seed(fork.fingerprint() as u64);
        // Many crashes leave the same state, which is made only once.
        let mut forks: FxHashMap<u128, Rc<Fork>> = FxHashMap::default();
        let mut keep = |left: Left<'_>| {
            let made = forks.entry(left.fingerprint());
            made.or_insert_with(|| Rc::new(left.fork())).clone()
        };
        let mut left = Vec::new();
        let emit = &mut |state: Left<'_>| left.push(keep(state));
        recovered.cuts(fork, INSIDE.samples, &mut random, emit);
        // Also crashes inside the replay of some of these states.
        for _ in 0..REPLAYS_OF_REPLAYS.min(left.len()) {
            let first = left[random.usize(..left.len())].clone();
            let again = recoveries.of(&first);
            let mut inside = Vec::new();
            let emit = &mut |state: Left<'_>| inside.push(keep(state));
            again.cuts(&first, 1, &mut random, emit);
            random.shuffle(&mut inside);
            inside.truncate(REPLAYS_OF_REPLAYS);
            left.append(&mut inside);
        }
        self.tally.second += left.len() as u64;
        let mut looked_at = FxHashSet::default();
        left.retain(|state| looked_at.insert(state.fingerprint()));
        left.iter().find_map(|state| {
            let again = recoveries.of(state);
            let verdict = match &again.error {
                Some(error) => unmountable(error),
                None => {
                    let is_new = seen.insert(again.result_fingerprint(state));
                    let question = Question::Consistency;
                    is_new.then(|| self.judge(&again.result(state), model, question))??
                }
            };
            let what = format!("after a crash inside the replay: {}", verdict.what);
            Some(Verdict { what, ..verdict })
        })
    }

    /// Recovery and reclaim to the end, with crashes inside both.
    fn recover_whole(&mut self, fork: &Fork, model: &Model) -> Option<Verdict> {
        let (reclaimed, was_known) = self.reclaims.of(fork, self.engine);
        self.tally.reclaimed += 1;
        self.tally.reclaims_known += u64::from(was_known);
        self.tally.second_sampled += reclaimed.sampled;
        let start = fork.fingerprint();
        for cut in &reclaimed.cuts {
            let fingerprint = cut.fingerprint(start);
            let question = match self.reclaims.open_of_left(fingerprint, model.promises) {
                Open::Nothing => continue,
                Open::Promises => Question::Promises,
                Open::All => Question::Consistency,
            };
            self.tally.second += 1;
            if let Some(verdict) = self.judge(&cut.of(fork), model, question) {
                return Some(inside(verdict));
            }
            let maps_behind = self.maps_behind;
            self.reclaims
                .note_left(fingerprint, model.promises, maps_behind);
        }
        let end = match &reclaimed.end {
            Ok(end) => end,
            Err(what) => return Some(unmountable(what)),
        };
        let fingerprint = end.fingerprint(start);
        let open = self.reclaims.open_of_ended(fingerprint, model.promises);
        if open == Open::Nothing {
            return None;
        }
        let end = end.of(fork);
        if open == Open::All
            && let Err(verdict) = self.check_clean(&end)
        {
            return Some(verdict);
        }
        // A new mount shows what is on the disk, not what the old one has in memory.
        let verdict = match Mount::open(end, self.engine, true, &mut Nobody) {
            Ok(mut mount) => promise(&mut mount, model, &[], "after the reclaim: ").0,
            Err(error) => Some(unmountable(&format!("after the reclaim: {error}"))),
        };
        if verdict.is_none() {
            self.reclaims.note_ended(fingerprint, model.promises);
        }
        verdict
    }
}

impl Judge {
    /// Recovery and reclaim to the end while somebody uses the file system, with crashes inside.
    /// The file system must stay consistent, and nothing may be wrong with it at the end. Promises
    /// are not checked.
    fn recover_in_use(&mut self, fork: &Fork) -> Option<Verdict> {
        let (seed, engine) = (fork.fingerprint() as u64, self.engine);
        // Not the bits by which states to reclaim are chosen.
        if !(seed >> 20).is_multiple_of(self.in_use_every) {
            return None;
        }
        self.tally.in_use += 1;
        let mut second = Second {
            judge: self,
            seen: FxHashSet::default(),
            // Begins with another moment for each state.
            moment: seed >> 32,
            verdict: None,
        };
        let ended = reclaim_in_use(fork, engine, seed, &mut second);
        if let Some(verdict) = second.verdict.take() {
            return Some(verdict);
        }
        let failed = |what: String| Some(unmountable(&format!("reclaim in use: {what}")));
        let reclaimed = match ended {
            Ok(mount) => match mount.fs.read_only_reason() {
                Some(reason) => return failed(reason),
                None => mount.fork(),
            },
            Err(error) => return failed(error.to_string()),
        };
        let verdict = self.check_clean(&reclaimed).err()?;
        Some(Verdict {
            what: format!("after a reclaim in use: {}", verdict.what),
            ..verdict
        })
    }

    /// Goes on working on what a crash left, then cuts the power again. What the state showed and
    /// what is done then is promised as in any run.
    fn go_on(&mut self, fork: &Fork) -> Option<Verdict> {
        let seed = fork.fingerprint() as u64;
        // Not the bits by which states are chosen for anything else.
        if !(seed >> 40).is_multiple_of(self.in_use_every.max(GO_ON_EVERY)) {
            return None;
        }
        self.tally.gone_on += 1;
        let mut done = Vec::new();
        let verdict = self.work_on(fork, seed, &mut done)?;
        let what = format!(
            "after further operations ({}): {}",
            script(&done),
            verdict.what
        );
        Some(Verdict { what, ..verdict })
    }

    /// Does operations on what a crash left, and cuts the power. Each operation is added to `done`.
    fn work_on(&mut self, fork: &Fork, seed: u64, done: &mut Vec<Operation>) -> Option<Verdict> {
        let mut random = Random::with_seed(seed);
        let failed = |error: &dyn fmt::Display| Some(unmountable(&error.to_string()));
        let mut machine = match Machine::recovered(fork.clone(), self.engine) {
            Ok(machine) => machine,
            Err(error) => return failed(&error),
        };
        let (directories, files) = machine.model().borrow().paths();
        for operation in generate::more(directories, files, FURTHER, &mut random) {
            let answer = match machine.apply(&operation, &mut Nobody) {
                Ok(()) => machine.answer(&operation, &mut Nobody),
                Err(error @ (Error::Corrupt(_) | Error::Device(_) | Error::ReadOnly)) => Err(error),
                Err(_) => Ok(()),
            };
            done.push(operation);
            if let Err(error) = answer {
                return failed(&error);
            }
        }
        let Frontier { nodes, mut states } =
            Frontier::new(&machine.mount.store, machine.mount.fork());
        let mut left = Vec::new();
        for _ in 0..CUTS_AFTER {
            left.push(states.fork(&nodes, &closed::some(&nodes, &mut random)));
        }
        let model = machine.model();
        let verdict = left.iter().find_map(|state| {
            self.tally.second += 1;
            self.judge(state, &model.borrow(), Question::Consistency)
        });
        if verdict.is_some() {
            return verdict;
        }
        done.push(Operation::Sync);
        if let Err(error) = machine.answer(&Operation::Sync, &mut Nobody) {
            return failed(&error);
        }
        let end = machine.mount.fork();
        self.judge(&end, &model.borrow(), Question::Consistency)
    }

    /// Whether the state can be mounted and holds nothing that no crash may leave.
    fn judge_alone(&mut self, fork: &Fork) -> Option<Verdict> {
        if let Err(verdict) = self.check_recovered(fork) {
            return Some(verdict);
        }
        match Mount::open(fork.clone(), self.engine, false, &mut Nobody) {
            Ok(mount) => mount.fs.read_only_reason().map(|why| unmountable(&why)),
            Err(error) => Some(unmountable(&error.to_string())),
        }
    }
}

fn reclaim_in_use(
    fork: &Fork,
    engine: Engine,
    seed: u64,
    watcher: &mut Second<'_>,
) -> backstitch_layout::Result<Mount> {
    let mut mount = Mount::open(fork.clone(), engine, false, watcher)?;
    let mut visitor = Visitor::new(seed);
    while mount.fs.reclaim_progress().running && watcher.verdict.is_none() {
        visitor.act(&mut mount, watcher)?;
        match mount.reclaim_step(watcher)? {
            ReclaimStep::Wait(patch) => mount.sync(&[patch], watcher)?,
            ReclaimStep::WaitForFrees => mount.drain(watcher)?,
            ReclaimStep::More | ReclaimStep::Done => {}
        }
    }
    mount.unmount(watcher)?;
    Ok(mount)
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
    format!("panic: {}", message.unwrap_or_default())
}

/// A verdict on a file system that holds the explored one.
fn outside(verdict: Verdict) -> Verdict {
    Verdict {
        kind: "outside",
        what: format!("the file system that holds it: {}", verdict.what),
    }
}

fn unmountable(why: &str) -> Verdict {
    Verdict {
        kind: "unmountable",
        what: why.to_owned(),
    }
}

/// Which promises are broken, and the fingerprint of all that is shown.
fn promise(
    mount: &mut Mount,
    model: &Model,
    mapped_behind: &[InodeNumber],
    when: &str,
) -> (Option<Verdict>, u128) {
    let (mut broken, shown) = promises::broken(mount, model, mapped_behind);
    if broken.is_empty() {
        broken = order::broken(mount, model);
    }
    let broken = (!broken.is_empty()).then(|| format!("{when}{}", broken.join("; ")));
    (broken.map(not_promised), shown)
}

fn not_promised(what: String) -> Verdict {
    Verdict {
        kind: "not as promised",
        what,
    }
}

/// A verdict on a state that a second crash left.
fn inside(verdict: Verdict) -> Verdict {
    Verdict {
        what: format!("after a crash inside the recovery: {}", verdict.what),
        ..verdict
    }
}

/// Crashes inside recovery and reclaim while somebody uses the file system.
struct Second<'a> {
    judge: &'a mut Judge,
    seen: FxHashSet<u128>,
    moment: u64,
    verdict: Option<Verdict>,
}

/// Bounds for the sets of patches of a moment. They are smaller than where nobody uses the file
/// system, since here there are more moments.
const SECOND_IN_USE: Bounds = Bounds {
    exhaustive: 16,
    samples: 4,
};

/// One of these moments in so many is looked at.
const MOMENTS_IN_USE: u64 = 4;

impl Watcher for Second<'_> {
    fn in_flight(&mut self, _mount: &Mount, _batch: &Batch) {}

    fn at_rest(&mut self, mount: &Mount) {
        self.moment += 1;
        if self.verdict.is_some() || !self.moment.is_multiple_of(MOMENTS_IN_USE) {
            return;
        }
        let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
        let mut random = Random::with_seed(nodes.len() as u64);
        let coverage = closed::visit(&nodes, SECOND_IN_USE, &mut random, &mut |included| {
            let is_new = self.seen.insert(states.fingerprint(&nodes, included));
            if !is_new || self.verdict.is_some() {
                return;
            }
            self.judge.tally.second += 1;
            let state = states.fork(&nodes, included);
            self.verdict = self.judge.judge_alone(&state).map(inside);
        });
        let sampled = coverage != Coverage::Everything || !states.is_complete;
        self.judge.tally.second_sampled += u64::from(sampled);
    }
}
