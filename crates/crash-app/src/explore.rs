//! Checks the chosen states, minimises those that fail, and reports.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use backstitch_crash_core::check::Verdict;
use backstitch_crash_core::error::StepError;
use backstitch_crash_core::fewest;
use backstitch_crash_core::frontier::{Frontier, Node, States};
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::missing::{Question, Said, missing};
use backstitch_crash_core::operation::Operation;
use backstitch_crash_core::report::graph::Graph;
use backstitch_crash_core::report::{Failure, Progress, Report};
use backstitch_crash_core::scene::{Told, rank};
use parking_lot::Mutex;

use crate::bench::{self, Bench, DAMAGED};
use crate::choose::{Choice, Job, choose};
use crate::error::{AppError, AppResult};
use crate::explain::{self, Images};
use crate::graph::{self, MOST_ASKED, NOT_ASKED};
use crate::options::Options;
use crate::place::{Cut, Place};
use crate::player::{Moment, play, play_recorded};
use crate::summary::report;
use crate::trace::Trace;

/// The most failures that are described. The others are counted.
const FAILURES: usize = 3;
/// The most states that are checked to minimise one.
const QUESTIONS: u32 = 200;

/// A state on its way to a thread that checks it.
struct Errand {
    job: usize,
    state: Fork,
    said: usize,
}

/// The verdicts of the checks.
#[derive(Default)]
pub(crate) struct Found {
    /// With the job's number, so that the order in which threads finish does not matter.
    pub(crate) failed: Vec<(usize, Verdict)>,
    checked: u64,
    pub(crate) leaks_max: u64,
}

/// Explores a trace.
///
/// # Errors
/// What prevents states from being made or checked. A failing check is not an error but a part of
/// the report.
pub fn explore(
    trace: &Trace,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> AppResult<Report> {
    bench::raise_file_limit();
    let image = trace
        .geometry
        .image(options.image.as_deref(), options.ordering)?;
    let said = said(trace);
    let choice = choose(&image, trace, options)?;
    if options.is_stopped() {
        return Err(StepError::Stopped.into());
    }
    let started = Instant::now();
    let mut found = visit(&image, trace, options, &said, &choice.jobs, progress)?;
    let seconds = started.elapsed().as_secs_f64();
    found.failed.sort_unstable_by_key(|(job, _)| *job);
    let mut bench = Bench::new(options)?;
    let mut failures: Vec<Failure> = Vec::new();
    for (job, verdict) in of_each_kind(&found.failed) {
        let mut again = Again {
            bench: &mut bench,
            options,
            trace,
            said: &said,
            place: choice.jobs[job].place.clone(),
            is_kept: failures.is_empty(),
        };
        let failure = again.smallest(&image, &verdict)?;
        // After it was minimised it may be the same as another one.
        let same =
            |known: &Failure| without_numbers(&known.verdict) == without_numbers(&failure.verdict);
        if !failures.iter().any(same) {
            failures.push(failure);
        }
    }
    let mut report = report(trace, options, &choice, &found);
    report.failures = failures;
    report.states_per_second = Some(found.checked as f64 / seconds.max(1e-9));
    Ok(report)
}

/// Everything the program said.
fn said(trace: &Trace) -> Vec<u8> {
    let mut said = Vec::new();
    for operation in &trace.operations {
        if let Operation::Said(bytes) = operation {
            said.extend_from_slice(bytes);
        }
    }
    said
}

fn visit(
    image: &Fork,
    trace: &Trace,
    options: &Options,
    said: &[u8],
    jobs: &[Job],
    progress: &(dyn Fn(Progress) + Sync),
) -> AppResult<Found> {
    let (sender, receiver) = sync_channel::<Errand>(4);
    let receiver = Mutex::new(Some(receiver));
    let found = Mutex::new(Found::default());
    let of = jobs.len() as u64;
    let work = || -> AppResult<()> {
        let mut bench = Bench::new(options)?;
        while let Some(errand) = next(&receiver) {
            let verdict = bench.judge(&errand.state, &said[..errand.said])?;
            let mut found = found.lock();
            found.checked += 1;
            if verdict != Verdict::Good {
                found.failed.push((errand.job, verdict));
            }
            progress(Progress {
                done: found.checked,
                of,
                failed: found.failed.len() as u64,
            });
        }
        let mut found = found.lock();
        found.leaks_max = found.leaks_max.max(bench.leaks_max);
        Ok(())
    };
    std::thread::scope(|scope| {
        let run = || {
            // A thread that fails drops the receiver, so that no more states are made.
            work().inspect_err(|_| drop(receiver.lock().take()))
        };
        let workers: Vec<_> = (0..options.jobs.max(1)).map(|_| scope.spawn(run)).collect();
        let sent = send(image, trace, options, jobs, &|errand| {
            sender.send(errand).is_ok()
        });
        drop(sender);
        for worker in workers {
            match worker.join() {
                Ok(done) => done?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        sent
    })?;
    Ok(found.into_inner())
}

fn next(receiver: &Mutex<Option<Receiver<Errand>>>) -> Option<Errand> {
    receiver.lock().as_ref()?.recv().ok()
}

/// Makes the states, variant after variant, and hands them to the threads.
fn send(
    image: &Fork,
    trace: &Trace,
    options: &Options,
    jobs: &[Job],
    hand_over: &dyn Fn(Errand) -> bool,
) -> AppResult<()> {
    let mut at = 0;
    while at < jobs.len() {
        let variant = jobs[at].place.variant;
        let end = at + jobs[at..].partition_point(|job| job.place.variant == variant);
        let mut audience = |moment: &Moment<'_>| {
            let here = |at: usize| at < end && jobs[at].place.moment == moment.number;
            if !here(at) {
                return at < end;
            }
            let Frontier { nodes, mut states } =
                Frontier::new(&moment.mount.store, moment.mount.fork());
            while here(at) {
                if let Some(included) = jobs[at].place.cut.included(&nodes) {
                    let errand = Errand {
                        job: at,
                        state: states.fork(&nodes, &included),
                        said: moment.said,
                    };
                    if !hand_over(errand) {
                        return false;
                    }
                }
                at += 1;
            }
            at < end
        };
        play(image, trace, options.ordering, &variant, &mut audience)?;
        if at < end {
            return Ok(());
        }
    }
    Ok(())
}

/// The first failure of each kind, at most [`FAILURES`]. Failures are of one kind if the first two
/// lines of their verdicts differ only in numbers. One with damage that fsck cannot repair comes
/// last.
fn of_each_kind(failed: &[(usize, Verdict)]) -> Vec<(usize, Verdict)> {
    let mut kinds: Vec<String> = Vec::new();
    let mut chosen = Vec::new();
    for (job, verdict) in failed {
        let kind = kind(verdict);
        if !kinds.contains(&kind) {
            kinds.push(kind);
            chosen.push((*job, verdict.clone()));
        }
    }
    let (mut programs, mut damage): (Vec<_>, Vec<_>) = chosen
        .into_iter()
        .partition(|(_, verdict)| !is_damage(verdict));
    programs.truncate(FAILURES);
    damage.truncate(1);
    programs.append(&mut damage);
    programs
}

/// Whether the check did not run, because fsck found damage that it does not repair unasked.
pub(crate) fn is_damage(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Failed { how, .. } if how.starts_with(DAMAGED))
}

fn kind(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Good => String::new(),
        Verdict::Failed { how, .. } if how.starts_with(DAMAGED) => how.clone(),
        Verdict::Failed { how, output } => without_numbers(&format!("{how}\n{output}")),
    }
}

/// The first two lines of a verdict without their numbers.
fn without_numbers(verdict: &str) -> String {
    let lines: Vec<&str> = verdict.lines().take(2).collect();
    let text = lines.join("\n");
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Makes one state again.
struct Again<'a, 'b> {
    bench: &'a mut Bench<'b>,
    options: &'a Options,
    trace: &'a Trace,
    said: &'a [u8],
    place: Place,
    /// Whether its image and its trace are kept, if the options ask for that.
    is_kept: bool,
}

impl Again<'_, '_> {
    /// Repeats the trace up to the moment, and does something there.
    fn there<T>(
        &mut self,
        image: &Fork,
        mut act: impl FnMut(&mut Self, &Moment<'_>, Vec<Node>, States) -> AppResult<T>,
    ) -> AppResult<T> {
        let (trace, ordering) = (self.trace, self.options.ordering);
        let variant = self.place.variant;
        let mut done = None;
        let mut audience = |moment: &Moment<'_>| {
            if moment.number < self.place.moment {
                return true;
            }
            let Frontier { nodes, states } =
                Frontier::new(&moment.mount.store, moment.mount.fork());
            done = Some(act(self, moment, nodes, states));
            false
        };
        play_recorded(image, trace, ordering, &variant, &mut audience)?;
        done.unwrap_or_else(|| {
            Err(AppError::NoState {
                place: self.place.to_string(),
                why: format!("the trace has no moment {}", self.place.moment),
            })
        })
    }

    fn judge(
        &mut self,
        moment: &Moment<'_>,
        nodes: &[Node],
        states: &mut States,
        included: &[bool],
    ) -> AppResult<Verdict> {
        let state = states.fork(nodes, included);
        self.bench.judge(&state, &self.said[..moment.said])
    }

    /// Looks for the fewest missing changes, and for the fewest changes on the disk, with which a
    /// state still fails in the same way.
    fn smallest(&mut self, image: &Fork, first: &Verdict) -> AppResult<Failure> {
        self.there(image, |again, moment, nodes, mut states| {
            let Some(included) = again.place.cut.included(&nodes) else {
                return Err(again.no_state(nodes.len()));
            };
            let mut left = QUESTIONS;
            let mut fails = |cut: &Cut| -> AppResult<bool> {
                if left == 0 {
                    return Ok(false);
                }
                left -= 1;
                let Some(included) = cut.included(&nodes) else {
                    return Ok(false);
                };
                let verdict = again.judge(moment, &nodes, &mut states, &included)?;
                Ok(verdict != Verdict::Good && is_damage(&verdict) == is_damage(first))
            };
            let list = |wanted: bool| -> Vec<u32> {
                let all = 0..nodes.len() as u32;
                all.filter(|at| included[*at as usize] == wanted).collect()
            };
            let missing = fewest(&list(false), &mut |m| fails(&Cut::But(m.to_vec())))?;
            let there = fewest(&list(true), &mut |p| fails(&Cut::Only(p.to_vec())))?;
            let minimised = left > 0;
            let part = Cut::Only(there.clone());
            let small = match missing.len() <= there.len() + 4 {
                true => Cut::But(missing),
                false => Cut::Only(there),
            };
            let before = std::mem::replace(&mut again.place.cut, small);
            let small = again
                .place
                .cut
                .included(&nodes)
                .unwrap_or_else(|| included.clone());
            // The small state may have another verdict. If the check now says it is good, the first
            // one stays.
            let verdict = again.judge(moment, &nodes, &mut states, &small)?;
            let (chosen, verdict, minimised) = match verdict {
                Verdict::Good => {
                    again.place.cut = before;
                    (included, first.clone(), false)
                }
                verdict => (small, verdict, minimised),
            };
            let part = part.included(&nodes).unwrap_or_else(|| chosen.clone());
            let told = again.told(moment, &nodes, &mut states, (&chosen, &part), &verdict)?;
            let mut failure = again.describe(moment, &nodes, &mut states, &chosen, &verdict);
            failure.minimised = minimised;
            again.keep(&nodes, &mut states, &chosen)?;
            failure.graph = again.graph(moment, &nodes, &mut states, &chosen, &told)?;
            Ok(failure)
        })
    }

    /// Finds the missing order. `part` is a part of the state that fails as well.
    fn told(
        &mut self,
        moment: &Moment<'_>,
        nodes: &[Node],
        states: &mut States,
        (state, part): (&[bool], &[bool]),
        failed: &Verdict,
    ) -> AppResult<Told> {
        let befores: Vec<Vec<usize>> = nodes.iter().map(|node| node.befores.clone()).collect();
        let patches = states.pending(nodes);
        let question = Question {
            befores: &befores,
            state,
            part,
            rank: &|at| rank(&patches[at]),
            most: MOST_ASKED,
        };
        let found = missing(&question, &mut |set| {
            let verdict = self.judge(moment, nodes, states, set)?;
            Ok::<Said, AppError>(match verdict {
                Verdict::Good => Said::Good,
                verdict if is_damage(&verdict) == is_damage(failed) => Said::Alike,
                _ => Said::Otherwise,
            })
        });
        Ok(Told::Patches(found?))
    }

    fn graph(
        &self,
        moment: &Moment<'_>,
        nodes: &[Node],
        states: &mut States,
        included: &[bool],
        told: &Told,
    ) -> AppResult<Option<Graph>> {
        let Some(recorder) = moment.recorder else {
            return Ok(None);
        };
        let (graph, trace) = graph::graph(recorder, nodes, states, included, told);
        if let Some(path) = self.options.record.as_deref().filter(|_| self.is_kept) {
            bench::keep(&trace, path)?;
        }
        Ok(Some(graph))
    }

    fn no_state(&self, patches: usize) -> AppError {
        AppError::NoState {
            place: self.place.to_string(),
            why: format!("that moment has {patches} changes in memory"),
        }
    }

    fn keep(&self, nodes: &[Node], states: &mut States, included: &[bool]) -> AppResult<()> {
        if let Some(path) = self.options.keep.as_deref().filter(|_| self.is_kept) {
            bench::keep(&states.fork(nodes, included).to_bytes(), path)?;
        }
        Ok(())
    }

    fn describe(
        &self,
        moment: &Moment<'_>,
        nodes: &[Node],
        states: &mut States,
        included: &[bool],
        verdict: &Verdict,
    ) -> Failure {
        let numbers: Vec<u64> = states
            .blocks(nodes, included)
            .iter()
            .map(|(block, _, _)| *block)
            .collect();
        let images = Images {
            disk: states.fork(nodes, &vec![false; nodes.len()]),
            state: states.fork(nodes, included),
            newest: states.fork(nodes, &vec![true; nodes.len()]),
        };
        let (blocks, reasons) = explain::blocks(&images, &numbers, moment.tree);
        let missing = included.iter().filter(|is| !**is).count();
        let write_back = self.place.variant.write_back;
        let operations = explain::operations(self.trace, moment.begun, write_back);
        let last = operations.last().map_or("the setup", String::as_str);
        let mut cut = format!(
            "after {last} (operation {} of {}), {missing} of {} changes in memory had not reached the disk{}",
            moment.begun,
            self.trace.operations.len(),
            nodes.len(),
            explain::written_back(self.trace, write_back),
        );
        for reason in reasons {
            cut += &format!(". Reason: {reason}");
        }
        Failure {
            verdict: words(verdict),
            operations,
            cut,
            blocks,
            replay: format!("{} --replay {}", self.options.replay_command, self.place),
            minimised: false,
            graph: None,
        }
    }
}

fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Good => "good".to_owned(),
        Verdict::Failed { how, output } if output.is_empty() => how.clone(),
        Verdict::Failed { how, output } => format!("{how}\n{output}"),
    }
}

/// Makes one state again and has it checked.
///
/// # Errors
/// As [`explore`]; also if there is no such state.
pub fn replay(trace: &Trace, options: &Options, place: &str) -> AppResult<Report> {
    bench::raise_file_limit();
    let image = trace
        .geometry
        .image(options.image.as_deref(), options.ordering)?;
    let place: Place = place.parse().map_err(|why| AppError::NoState {
        place: place.to_owned(),
        why,
    })?;
    let said = said(trace);
    let mut bench = Bench::new(options)?;
    let mut again = Again {
        bench: &mut bench,
        options,
        trace,
        said: &said,
        place: place.clone(),
        is_kept: true,
    };
    let failure = again.there(&image, |again, moment, nodes, mut states| {
        let Some(included) = again.place.cut.included(&nodes) else {
            return Err(again.no_state(nodes.len()));
        };
        let verdict = again.judge(moment, &nodes, &mut states, &included)?;
        let mut described = again.describe(moment, &nodes, &mut states, &included, &verdict);
        let told = Told::Nothing(NOT_ASKED);
        described.graph = again.graph(moment, &nodes, &mut states, &included, &told)?;
        again.keep(&nodes, &mut states, &included)?;
        Ok((verdict != Verdict::Good).then_some(described))
    })?;
    let found = Found {
        checked: 1,
        leaks_max: bench.leaks_max,
        ..Found::default()
    };
    let choice = Choice::default();
    let mut report = report(trace, options, &choice, &found);
    report.exhaustive = false;
    report.explored = format!("replayed: state {place} alone");
    (report.states, report.distinct) = (1, 1);
    report.coverage.clear();
    report.failures = failure.into_iter().collect();
    Ok(report)
}
