//! Turns figures into distinct runs, makes these, and collects the results.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use backstitch_formats::Layout;
use backstitch_vfs::{Optimisations, Ordering};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::counters::Measurement;
use super::lines::Lines;
use super::{Figure, Line, Measure, Paper, Place, judge};
use crate::{Disk, DiskOptions, Error, Result, Spec, Target, measure};

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
    holds_everything: bool,
}

impl Job {
    /// Whether two jobs are the same run, though figures give them other names and use other
    /// phases.
    fn is_same_run(&self, other: &Job) -> bool {
        let run = |job: &Job| {
            (
                (job.disk, job.size_bytes, job.holds_everything),
                (job.line.ordering, job.line.opt, job.line.log_disk),
                (job.place.workload, job.place.file_bytes, job.place.scripts),
                (job.place.megabytes, job.place.files),
            )
        };
        run(self) == run(other)
    }

    fn spec(&self, papers: &PapersSpec) -> Result<Spec> {
        let fault = |what: &str| Error::Scale(format!("{what}: a figure asks for it"));
        let ordering = self.line.ordering.parse::<Ordering>();
        let optimisations = self.line.opt.parse::<Optimisations>();
        let options = DiskOptions::default();
        let mut disk = Disk::named(self.disk, self.size_bytes, &options)?;
        if let Some(name) = self.line.log_disk {
            disk = disk.with_log_drive(name, &options)?;
        }
        let cache_bytes = match self.holds_everything {
            true => EVERYTHING_BYTES,
            false => disk.buffer_bytes.unwrap_or(256 << 20),
        };
        Ok(Spec {
            workload: self.place.workload,
            scale: self.place.scale(papers.fraction),
            layout: papers.layout,
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
        let figures = paper.figures.iter().map(|figure| {
            let of = Lines::on(figure, spec.layout, paper.size_bytes)?;
            let lines = of.lines.iter().map(|line| {
                let places = figure.places.iter().map(|place| {
                    number(Job {
                        disk: paper.disk,
                        size_bytes: paper.size_bytes,
                        line: *line,
                        place: *place,
                        holds_everything: figure.holds_everything,
                    })
                });
                places.collect::<Vec<_>>()
            });
            let lines = lines.collect::<Vec<_>>();
            Some((of, lines))
        });
        figures.collect::<Vec<_>>()
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
                Some((of, lines)) => figures.push(MeasuredFigure {
                    figure,
                    of,
                    runs: (lines.into_iter())
                        .map(|line| line.into_iter().map(run).collect())
                        .collect(),
                }),
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
        "differences": differences.collect::<Vec<_>>(),
        "left_out": measured.of.left_out,
    })
}
