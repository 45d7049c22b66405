//! Turns figures into distinct runs, makes these, and collects the results.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use backstitch_formats::Layout;
use backstitch_vfs::{Optimisations, Ordering};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::counters::Measurement;
use super::lines::Lines;
use super::{Change, Figure, Line, Measure, Paper, Place, judge};
use backstitch_bench::{Disk, DiskOptions, Error, Result, Spec, Target, measure};

/// How many seconds a change may be in memory only: the papers' systems write back after 30.
const EXPIRE_SECONDS: f64 = 30.0;
/// Bytes of a memory that holds everything: more than any run needs.
const EVERYTHING_BYTES: u64 = 1 << 40;
/// Longer than any run takes, in seconds.
const NEVER_SECONDS: f64 = 1e8;

/// Which papers' figures to measure, and how.
#[derive(Clone, Debug)]
pub struct PapersSpec {
    /// The papers.
    pub papers: Vec<&'static Paper>,
    /// The part of the papers' numbers of files, transactions and megabytes; 1 for all of them.
    pub fraction: f64,
    /// The seed of all random choices.
    pub seed: u64,
    /// The layout of the file systems that are made.
    pub layout: Layout,
    /// How many runs are made at a time. The results do not depend on it.
    pub threads: usize,
}

/// A paper's figures with their runs.
#[derive(Debug)]
pub struct Measured {
    pub(super) paper: &'static Paper,
    pub(super) figures: Vec<MeasuredFigure>,
    /// Where in the paper those are that the layout cannot have.
    pub(super) missing: Vec<&'static str>,
}

/// A figure with its runs.
#[derive(Debug)]
pub(super) struct MeasuredFigure {
    pub(super) figure: &'static Figure,
    /// Its lines on the layout that was measured.
    pub(super) of: Lines,
    /// By line, then by place.
    pub(super) runs: Vec<Vec<Arc<Measurement>>>,
    /// Runs on a changed machine.
    pub(super) tests: Vec<Test>,
}

/// A run of a line on a changed machine, and one of the base line on it.
#[derive(Debug)]
pub(super) struct Test {
    change: Change,
    /// Indices of the line and the place.
    line: usize,
    place: usize,
    run: Arc<Measurement>,
    base: Arc<Measurement>,
}

impl MeasuredFigure {
    pub(super) fn ours(&self, line: usize, place: usize) -> f64 {
        let of = |line: usize| {
            let run = &self.runs[line][place];
            (self.figure.measure).of(run, &self.figure.places[place])
        };
        match self.figure.measure {
            Measure::Speed => of(self.of.base) / of(line).max(1e-9),
            _ => of(line),
        }
    }

    /// Our value on a changed machine, if that was measured.
    pub(super) fn changed(&self, change: Change, line: usize, place: usize) -> Option<f64> {
        let test = self
            .tests
            .iter()
            .find(|test| (test.change, test.line, test.place) == (change, line, place))?;
        let of = |run: &Measurement| self.figure.measure.of(run, &self.figure.places[place]);
        Some(match self.figure.measure {
            Measure::Speed => of(&test.base) / of(&test.run).max(1e-9),
            _ => of(&test.run),
        })
    }

    pub(super) fn printed(&self, line: usize, place: usize) -> Option<f64> {
        *self.of.printed.get(line)?.get(place)?
    }

    /// Whether the paper printed any value of a line.
    pub(super) fn has_printed(&self, line: usize) -> bool {
        (0..self.figure.places.len()).any(|place| self.printed(line, place).is_some())
    }
}

/// A run that figures need.
#[derive(Clone, Copy)]
struct Job {
    disk: &'static str,
    size_bytes: u64,
    line: Line,
    place: Place,
    writes_through: bool,
    holds_everything: bool,
    change: Option<Change>,
}

impl Job {
    /// Whether two jobs are the same run, though figures give them other names and use other
    /// phases.
    fn is_same_run(&self, other: &Job) -> bool {
        let run = |job: &Job| {
            (
                (job.disk, job.size_bytes, job.writes_through),
                (job.holds_everything, job.change),
                (job.line.ordering, job.line.opt),
                (job.line.log_disk, job.line.queue_order),
                (job.place.workload, job.place.file_bytes, job.place.scripts),
                (job.place.megabytes, job.place.files, job.place.memory_part),
            )
        };
        run(self) == run(other)
    }

    /// The machine.
    fn disk(&self) -> Result<Disk> {
        let options = DiskOptions {
            write_cache: self.writes_through.then_some(false),
            queue_depth: (self.change == Some(Change::OneRequest)).then_some(1),
            queue_order: Some(self.line.queue_order),
            ..DiskOptions::default()
        };
        let mut disk = Disk::named(self.disk, self.size_bytes, &options)?;
        if let Some(name) = self.line.log_disk {
            disk = disk.with_log_drive(name, &DiskOptions::default())?;
        }
        let times = match self.change {
            Some(Change::Memory(times)) => times,
            _ => 1,
        };
        let part = self.place.memory_part;
        for bytes in [&mut disk.buffer_bytes, &mut disk.changes_bytes] {
            *bytes = bytes.map(|bytes| bytes * times / part);
        }
        disk.page_bytes = disk.page_bytes.map(|bytes| bytes / part);
        Ok(disk)
    }

    fn spec(&self, papers: &PapersSpec) -> Result<Spec> {
        let fault = |what: &str| Error::Scale(format!("{what}: a figure asks for it"));
        let ordering = self.line.ordering.parse::<Ordering>();
        let optimisations = self.line.opt.parse::<Optimisations>();
        let disk = self.disk()?;
        let cache_bytes = match self.holds_everything {
            true => EVERYTHING_BYTES,
            false => disk.buffer_bytes.unwrap_or(256 << 20),
        };
        Ok(Spec {
            workload: self.place.workload,
            scale: self.place.scale(papers.fraction),
            layout: papers.layout,
            unit_bytes: None,
            ordering: ordering.map_err(|_| fault(self.line.ordering))?,
            optimisations: optimisations.map_err(|_| fault(self.line.opt))?,
            target: Target::Disk(Box::new(disk)),
            journal_device: None,
            cache_bytes,
            dirty_bytes: 0,
            expire_seconds: match self.holds_everything {
                true => NEVER_SECONDS,
                false => EXPIRE_SECONDS,
            },
            atomic_bytes: None,
            seed: papers.seed,
            trace: true,
            check: false,
            mount_stats: None,
            record: None,
        })
    }
}

/// The numbers of the runs that a figure needs.
struct Plan {
    of: Lines,
    /// By line, then by place.
    runs: Vec<Vec<usize>>,
    /// The change, the line, the place, the run of the line and that of the base line.
    tests: Vec<(Change, usize, usize, usize, usize)>,
}

impl Plan {
    /// A figure's runs on a layout, which `number` numbers; `None` where too few lines are left.
    fn of(
        paper: &Paper,
        figure: &Figure,
        layout: Layout,
        mut number: impl FnMut(Job) -> usize,
    ) -> Option<Plan> {
        let of = Lines::on(figure, layout, paper.size_bytes)?;
        let job = |line: usize, place: usize, change: Option<Change>| Job {
            disk: paper.disk,
            size_bytes: paper.size_bytes,
            line: of.lines[line],
            place: figure.places[place],
            writes_through: paper.writes_through,
            holds_everything: figure.holds_everything,
            change,
        };
        let (lines, places) = (0..of.lines.len(), 0..figure.places.len());
        let cells = lines
            .clone()
            .flat_map(|line| places.clone().map(move |place| (line, place)));
        let mut tests = Vec::new();
        for reason in figure.reasons {
            let Some(change) = reason.test else { continue };
            let about = cells.clone().filter(|(line, place)| {
                reason.is_about(&of.lines[*line]) && reason.is_at(&figure.places[*place])
            });
            for (line, place) in about {
                let run = number(job(line, place, Some(change)));
                let base = match figure.measure {
                    Measure::Speed => number(job(of.base, place, Some(change))),
                    _ => run,
                };
                tests.push((change, line, place, run, base));
            }
        }
        let runs = lines.map(|line| {
            places
                .clone()
                .map(|at| number(job(line, at, None)))
                .collect()
        });
        Some(Plan {
            runs: runs.collect(),
            tests,
            of,
        })
    }

    /// The figure with its runs.
    fn with(
        self,
        figure: &'static Figure,
        run: impl Fn(usize) -> Arc<Measurement>,
    ) -> MeasuredFigure {
        let tests = self
            .tests
            .iter()
            .map(|&(change, line, place, of, base)| Test {
                change,
                line,
                place,
                run: run(of),
                base: run(base),
            });
        MeasuredFigure {
            figure,
            tests: tests.collect(),
            runs: (self.runs.iter())
                .map(|line| line.iter().map(|number| run(*number)).collect())
                .collect(),
            of: self.of,
        }
    }
}

/// Makes all distinct runs that the papers' figures need. `progress` is called before each run, on
/// any thread, with the number of runs done, the number of all, and the name of the next.
///
/// # Errors
/// The first error of a run.
pub fn measure_papers(
    spec: &PapersSpec,
    progress: impl Fn(usize, usize, &Spec) + Sync,
) -> Result<Vec<Measured>> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut number = |job: Job| {
        let known = jobs.iter().position(|other| other.is_same_run(&job));
        known.unwrap_or_else(|| {
            jobs.push(job);
            jobs.len() - 1
        })
    };
    let plans = spec.papers.iter().map(|paper| {
        let figures = paper.figures.iter();
        let plans = figures.map(|figure| Plan::of(paper, figure, spec.layout, &mut number));
        plans.collect::<Vec<_>>()
    });
    let plans: Vec<_> = plans.collect();
    let specs: Vec<Spec> = jobs
        .iter()
        .map(|job| job.spec(spec))
        .collect::<Result<_>>()?;
    let runs = run_all(&specs, spec.threads, progress)?;
    let measured = spec.papers.iter().zip(plans).map(|(paper, plans)| {
        let run = |number: usize| runs[number].clone();
        let (mut figures, mut missing) = (Vec::new(), Vec::new());
        for (figure, plan) in paper.figures.iter().zip(plans) {
            match plan {
                Some(plan) => figures.push(plan.with(figure, run)),
                None => missing.push(figure.place),
            }
        }
        Measured {
            paper,
            figures,
            missing,
        }
    });
    Ok(measured.collect())
}

/// Makes runs on some threads. Each run is made by a single thread, so the result does not depend
/// on which.
fn run_all(
    specs: &[Spec],
    threads: usize,
    progress: impl Fn(usize, usize, &Spec) + Sync,
) -> Result<Vec<Arc<Measurement>>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<Measurement>>>> =
        Mutex::new(specs.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(spec) = specs.get(number) else {
                        break;
                    };
                    progress(number, specs.len(), spec);
                    let run = measure(spec).map(Measurement::of);
                    if run.is_err() {
                        // The remaining runs are not needed then.
                        next.store(specs.len(), Relaxed);
                    }
                    results.lock()[number] = Some(run);
                }
            });
        }
    });
    let done = results.into_inner().into_iter().flatten();
    done.map(|run| run.map(Arc::new)).collect()
}

/// The results as JSON: for each figure its values and the paper's, the paper's statements and our
/// ratios, the sentence of the page, and the differences with their reasons.
pub fn papers_document(all: &[Measured], spec: &PapersSpec) -> Value {
    let figures = all.iter().flat_map(|measured| {
        let figures = measured.figures.iter();
        figures.map(|figure| figure_value(measured.paper, figure))
    });
    json!({
        "backstitch": env!("CARGO_PKG_VERSION"),
        "seed": spec.seed,
        "fraction": spec.fraction,
        "type": spec.layout.name(),
        "figures": figures.collect::<Vec<_>>(),
    })
}

fn figure_value(paper: &Paper, measured: &MeasuredFigure) -> Value {
    let figure = measured.figure;
    let values = measured
        .of
        .lines
        .iter()
        .enumerate()
        .flat_map(|(line, named)| {
            let places = figure.places.iter().enumerate();
            places.map(move |(place, at)| {
                json!({
                    "line": named.name,
                    "ordering": named.ordering,
                    "opt": named.opt,
                    "place": at.name,
                    "ours": measured.ours(line, place),
                    "paper": measured.printed(line, place),
                })
            })
        });
    let claims = judge::claims(measured).into_iter().map(|claim| {
        json!({ "says": claim.says, "paper": claim.paper, "ours": claim.ours, "holds": claim.holds })
    });
    let differences = judge::differences(measured).into_iter().map(|difference| {
        json!({
            "what": difference.what,
            "why": difference.why,
            "is_explained": difference.is_explained,
            "counters": difference.counters,
        })
    });
    json!({
        "paper": paper.number,
        "place": figure.place,
        "title": figure.title,
        "disk": paper.disk,
        "unit": figure.measure.unit(),
        "sentence": judge::sentence(measured),
        "values": values.collect::<Vec<_>>(),
        "claims": claims.collect::<Vec<_>>(),
        "remarks": judge::remarks(measured),
        "differences": differences.collect::<Vec<_>>(),
        "left_out": measured.of.left_out,
    })
}
