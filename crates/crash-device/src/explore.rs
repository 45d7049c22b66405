//! Visits the states of a recording, and reports.

use crate::describe;
use crate::error::ScheduleResult;
use crate::overlay::{Overlay, Show};
use crate::plan::{Job, Plan, plan};
use crate::recording::{Moment, Recording};
use crate::scratch::{Scratch, Stage, copy_sparse};
use crate::shrink::{Judge, shrink};
use crate::variant::StateId;
use backstitch_crash_core::check::{Check, Verdict, scratch_directory};
use backstitch_crash_core::error::{StepError, at};
use backstitch_crash_core::report::{Failure, Kind, Progress, Report};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The most failing states that are described. The others are counted.
const FAILURES: usize = 10;
/// The most states that are checked to minimise one.
const QUESTIONS: u32 = 200;

/// What to explore, and how.
#[derive(Clone)]
pub struct Options {
    /// The judge.
    pub check: Check,
    /// About how many states are visited.
    pub states: u64,
    /// The seed of the samples.
    pub seed: u64,
    /// Whether writes are torn at sectors.
    pub torn: bool,
    /// How many checks run at once. The report is the same for any number.
    pub jobs: usize,
    /// The command that makes the report, for the report.
    pub command: String,
    /// The command of a replay, to which the state's name is added.
    pub replay_command: String,
    /// The file for the image of the first failing state.
    pub keep: Option<PathBuf>,
    /// Shows states as a device, without copying the base. If this is `None`, one image file
    /// becomes each state in turn.
    pub overlay: Option<Show>,
    /// Once this is set, the exploration ends before the next state, and cleans up.
    pub stop: Arc<AtomicBool>,
}

/// A directory with an image, and the file of marks beside it.
struct Bench<'a> {
    recording: &'a Recording,
    scratch: Box<dyn Stage>,
    marks: PathBuf,
    marks_there: Option<usize>,
    options: &'a Options,
}

impl<'a> Bench<'a> {
    fn new(
        dir: &Path,
        recording: &'a Arc<Recording>,
        options: &'a Options,
    ) -> ScheduleResult<Self> {
        let scratch: Box<dyn Stage> = match &options.overlay {
            Some(show) => Box::new(Overlay::new(dir, recording.clone(), show)?),
            None => Box::new(Scratch::new(dir, recording.clone())?),
        };
        Ok(Self {
            recording,
            scratch,
            marks: dir.join("marks"),
            marks_there: None,
            options,
        })
    }

    /// Makes a state and checks it. Also returns whether the check wrote to the image.
    fn judge(&mut self, state: &StateId, keep: Option<&Path>) -> ScheduleResult<(Verdict, bool)> {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(StepError::Stopped.into());
        }
        self.scratch.build(&state.moment, &state.variant)?;
        self.write_marks(&state.moment)?;
        if let Some(keep) = keep {
            copy_sparse(self.scratch.path(), keep).map_err(at("cannot keep the image", keep))?;
        }
        let verdict = self.options.check.run(self.scratch.path(), &self.marks);
        let wrote = self.scratch.restore()?;
        Ok((verdict?, wrote))
    }

    fn write_marks(&mut self, moment: &Moment) -> ScheduleResult<()> {
        if self.marks_there == Some(moment.marks) {
            return Ok(());
        }
        let marks = &self.recording.marks()[..moment.marks];
        let line = |mark: &String| mark.replace(['\n', '\r'], " ") + "\n";
        let text: String = marks.iter().map(line).collect();
        std::fs::write(&self.marks, text).map_err(at("cannot write the marks", &self.marks))?;
        self.marks_there = Some(moment.marks);
        Ok(())
    }
}

/// The results of all threads.
struct Found {
    /// With the job's number, so that the order in which threads finish does not matter.
    failed: Vec<(usize, Verdict)>,
    wrote: u64,
}

/// Visits the states of a recording.
///
/// # Errors
///
/// What prevents states from being made or checked. A failing check is not an error but a part of
/// the report.
pub fn explore(
    recording: &Arc<Recording>,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> ScheduleResult<Report> {
    let plan = plan(recording, options.states, options.seed, options.torn)?;
    let started = Instant::now();
    let mut found = visit(recording, options, &plan.jobs, progress)?;
    let seconds = started.elapsed().as_secs_f64();
    found.failed.sort_unstable_by_key(|(job, _)| *job);
    let failures = minimise(recording, options, &plan.jobs, &found.failed)?;
    let mut report = report(recording, options, &plan, &found);
    report.failures = failures;
    report.states_per_second = Some(plan.jobs.len() as f64 / seconds.max(1e-9));
    Ok(report)
}

fn visit(
    recording: &Arc<Recording>,
    options: &Options,
    jobs: &[Job],
    progress: &(dyn Fn(Progress) + Sync),
) -> ScheduleResult<Found> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let found = Mutex::new(Found {
        failed: Vec::new(),
        wrote: 0,
    });
    let work = || -> ScheduleResult<()> {
        let dir = scratch_directory()?;
        let mut bench = Bench::new(dir.path(), recording, options)?;
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { break };
            let state = state_of(job);
            let (verdict, wrote) = bench.judge(&state, None)?;
            let mut found = locked(&found);
            found.wrote += u64::from(wrote);
            if verdict != Verdict::Good {
                found.failed.push((number, verdict));
            }
            progress(Progress {
                done: number as u64 + 1,
                of: jobs.len() as u64,
                failed: found.failed.len() as u64,
            });
        }
        Ok(())
    };
    let workers = options.jobs.clamp(1, jobs.len().max(1));
    let results: Vec<ScheduleResult<()>> = std::thread::scope(|scope| {
        let run = || {
            let done = work();
            if done.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            done
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(run)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    });
    results.into_iter().collect::<ScheduleResult<Vec<()>>>()?;
    Ok(found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic cannot leave this half changed.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn state_of(job: &Job) -> StateId {
    StateId {
        moment: job.moment,
        variant: job.variant.clone(),
    }
}

/// Describes the first failing state of each moment, after minimising it.
fn minimise(
    recording: &Arc<Recording>,
    options: &Options,
    jobs: &[Job],
    failed: &[(usize, Verdict)],
) -> ScheduleResult<Vec<Failure>> {
    let mut chosen: Vec<&(usize, Verdict)> = Vec::new();
    for failed in failed {
        let moment = |job: usize| jobs[job].moment;
        let known = chosen.last().map(|(job, _)| moment(*job));
        if known != Some(moment(failed.0)) {
            chosen.push(failed);
        }
    }
    chosen.truncate(FAILURES);
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let dir = scratch_directory()?;
    let mut bench = Bench::new(dir.path(), recording, options)?;
    let mut failures: Vec<Failure> = Vec::new();
    for (job, verdict) in chosen {
        let state = state_of(&jobs[*job]);
        let keep = options.keep.as_deref().filter(|_| failures.is_empty());
        let failure = smallest(&mut bench, options, &state, verdict, keep)?;
        // Several moments may have the same smallest state.
        if !failures.iter().any(|known| known.replay == failure.replay) {
            failures.push(failure);
        }
    }
    Ok(failures)
}

fn smallest(
    bench: &mut Bench<'_>,
    options: &Options,
    state: &StateId,
    verdict: &Verdict,
    keep: Option<&Path>,
) -> ScheduleResult<Failure> {
    let recording = bench.recording;
    let mut judge = Judge {
        fails: &mut |state| Ok(bench.judge(state, None)?.0 != Verdict::Good),
        left: QUESTIONS,
    };
    let small = shrink(recording, state, &mut judge)?;
    let minimised = judge.left > 0;
    // The small state may fail in another way. If the check now says it is good, the first verdict
    // stays.
    let (again, _) = bench.judge(&small, keep)?;
    let (small, verdict) = match again {
        Verdict::Good => (state, verdict),
        _ => (&small, &again),
    };
    let mut failure = describe::failure(recording, small, verdict);
    failure.minimised = minimised && *verdict == again;
    failure.replay = format!("{} --replay {small}", options.replay_command);
    Ok(failure)
}

/// Visits one state.
///
/// # Errors
///
/// As [`explore`]; also if there is no such state.
pub fn replay(
    recording: &Arc<Recording>,
    options: &Options,
    state: &str,
) -> ScheduleResult<Report> {
    let state = StateId::parse(state, recording)?;
    let dir = scratch_directory()?;
    let mut bench = Bench::new(dir.path(), recording, options)?;
    let (verdict, wrote) = bench.judge(&state, options.keep.as_deref())?;
    let plan = Plan {
        states: 1,
        jobs: vec![Job {
            moment: state.moment,
            variant: state.variant.clone(),
        }],
        ..Plan::default()
    };
    let failed = match verdict {
        Verdict::Good => Vec::new(),
        _ => vec![(0, verdict)],
    };
    let wrote = u64::from(wrote);
    let mut report = report(
        recording,
        options,
        &plan,
        &Found {
            failed: failed.clone(),
            wrote,
        },
    );
    report.exhaustive = false;
    report.explored = format!("replayed: state {state} alone");
    report.failures = failed
        .iter()
        .map(|(_, verdict)| {
            let mut failure = describe::failure(recording, &state, verdict);
            failure.replay = format!("{} --replay {state}", options.replay_command);
            failure
        })
        .collect();
    Ok(report)
}

fn report(recording: &Recording, options: &Options, plan: &Plan, found: &Found) -> Report {
    let changes = recording.changes();
    let discards = changes.iter().filter(|change| change.is_discard()).count();
    let fua = changes.iter().filter(|change| change.is_fua()).count();
    let mut report = Report::new(Kind::Device, options.command.clone(), options.seed);
    report.states = plan.states;
    report.distinct = plan.jobs.len() as u64;
    report.exhaustive = plan.is_exhaustive();
    report.explored = explored(options, plan);
    for (name, count) in [
        ("log_entries", recording.entries()),
        ("writes", (changes.len() - discards) as u64),
        ("fua_writes", fua as u64),
        ("discards", discards as u64),
        ("flushes", recording.flushes() as u64),
        ("marks", recording.marks().len() as u64),
        ("moments", plan.moments as u64),
        (
            "moments_explored_exhaustively",
            plan.exhaustive_moments as u64,
        ),
        ("moments_left_out", plan.skipped_moments as u64),
        ("most_changes_in_flight", plan.largest_epoch as u64),
        ("states_with_torn_writes", plan.torn),
        ("states_with_another_order", plan.reordered),
        ("states_that_failed", found.failed.len() as u64),
        ("checks_that_wrote_to_the_image", found.wrote),
    ] {
        report.coverage.insert(name.to_owned(), count);
    }
    report.notes = notes(recording, options, plan);
    report
}

fn explored(options: &Options, plan: &Plan) -> String {
    let what = match options.torn {
        true => "every part of the sectors, and every order,",
        false => "every subset and order",
    };
    let (all, whole, skipped) = (plan.moments, plan.exhaustive_moments, plan.skipped_moments);
    if plan.is_exhaustive() {
        return format!(
            "exhaustive: {what} of the changes in flight at all {all} moments of the log"
        );
    }
    let sampled = all - whole - skipped;
    let mut text = format!(
        "sampled with seed {}: of {all} moments of the log, {whole} with {what} of the changes in flight, {sampled} with samples",
        options.seed
    );
    if skipped > 0 {
        text += &format!(", {skipped} not at all (more --states reach them)");
    }
    text
}

fn notes(recording: &Recording, options: &Options, plan: &Plan) -> Vec<String> {
    let mut notes = vec![
        "The log tells the order of flushes and FUA writes only; what else the file system depended on is not known. States are \
         what a drive may leave that keeps to those and to nothing else."
            .to_owned(),
    ];
    if !options.torn {
        notes.push(
            "Each request was taken to be stored wholly or not at all; --torn tears it at sectors."
                .to_owned(),
        );
    }
    let rest = recording.log().rest_bytes();
    if rest > 0 {
        notes.push(format!(
            "The log goes on for {rest} bytes behind the entries that its superblock counts; they were not read."
        ));
    }
    if recording.flushes() == 0 && plan.moments > 0 {
        notes.push("The log has no flush at all: nothing was ever made durable.".to_owned());
    }
    notes
}
