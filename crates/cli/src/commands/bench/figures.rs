//! `bench figures`: the papers' tables and figures, on their simulated disks.

use backstitch_papers::{PAPERS, Paper, PapersSpec, measure_papers, papers_document, write_page};

use super::{Args, bar};
use crate::error::{Error, Result};
use backstitch_files::show;

/// Its name.
pub(super) const FIGURES: &str = "figures";
/// What `--reduced` takes of the papers' numbers: the whole set runs in less than a minute.
const REDUCED: f64 = 1.0 / 64.0;
/// Runs at a time at most: more need memory that a small machine does not have.
const MOST_THREADS: usize = 8;

/// What is said of the papers' figures.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct FiguresArgs {
    /// The papers whose figures are measured, by their numbers (figures); all of them by default
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', value_parser = paper)]
    papers: Vec<&'static Paper>,
    /// Measure the figures with a small part of the papers' numbers, to see that they can be made
    #[arg(long, conflicts_with = "scale")]
    reduced: bool,
}

impl FiguresArgs {
    /// Whether anything is said that is only of use to `figures`.
    pub(super) fn is_given(&self) -> bool {
        !self.papers.is_empty() || self.reduced
    }
}

fn paper(text: &str) -> std::result::Result<&'static Paper, String> {
    let found = PAPERS.iter().find(|paper| paper.number == text);
    found.copied().ok_or_else(|| {
        let known = PAPERS
            .iter()
            .map(|paper| format!("{} ({})", paper.number, paper.name));
        format!("one of {}", known.collect::<Vec<_>>().join(", "))
    })
}

pub(super) fn run(args: &Args) -> Result<()> {
    check(args)?;
    let papers = match &args.figures.papers[..] {
        [] => PAPERS.to_vec(),
        named => named.to_vec(),
    };
    let spec = PapersSpec {
        papers,
        fraction: match args.figures.reduced {
            true => REDUCED,
            false => args.scale.unwrap_or(1.0),
        },
        seed: args.seed,
        layout: args.layout,
        threads: std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST_THREADS)),
    };
    if let Some(directory) = &args.plot {
        // Before the runs, which take a while.
        std::fs::create_dir_all(directory)
            .map_err(|error| Error::at_path("bench", directory, crate::error::host(&error)))?;
    }
    let bar = bar();
    let measured = measure_papers(&spec, |done, all, next| {
        let (workload, ordering) = (next.workload, next.ordering);
        bar.set_message(format!("run {} of {all}: {workload}, {ordering}", done + 1));
        if args.progress {
            bar.suspend(|| eprintln!("run {} of {all}: {workload}, {ordering}", done + 1));
        }
    });
    bar.finish_and_clear();
    let measured = measured.map_err(|error| Error::failed("bench", FIGURES, error))?;
    let page = match &args.plot {
        Some(directory) => Some(
            write_page(&measured, &spec, directory)
                .map_err(|error| Error::at_path("bench", directory, error))?,
        ),
        None => None,
    };
    let document = papers_document(&measured, &spec);
    if args.json {
        return show::print_json("bench", &document);
    }
    let mut text = summary(&document);
    if let Some(page) = page {
        text.push_str(&format!("\nThe page: {}\n", page.display()));
    }
    show::print_bytes("bench", text.as_bytes())
}

/// What makes no sense here.
fn check(args: &Args) -> Result<()> {
    let refuse = |why: &str| Err(Error::usage("bench", format!("{FIGURES} {why}")));
    if args.workloads.len() > 1 {
        return refuse("is measured alone");
    }
    let unfit = [
        ("--memory", args.memory),
        ("--image", args.image.is_some()),
        ("--dir", args.dir.is_some()),
        ("--disk", args.disk.is_some()),
        ("--ordering", !args.ordering.is_empty()),
        ("--size", args.size.is_some()),
        ("--cache", args.cache.is_some()),
        ("--expire", args.expire.is_some()),
        ("--atomic", args.atomic.is_some()),
        ("--files", args.files.is_some()),
        ("--megabytes", args.megabytes.is_some()),
        ("--transactions", args.transactions.is_some()),
        ("--min-bytes", args.min_bytes.is_some()),
        ("--max-bytes", args.max_bytes.is_some()),
        ("--writers", args.writers.is_some()),
        ("--runs", args.runs > 1),
        ("--check", args.check),
    ];
    if let Some((option, _)) = unfit.iter().find(|(_, given)| *given) {
        return refuse(&format!(
            "goes by what the papers say: it takes no {option}"
        ));
    }
    args.simulated.check(false, 1)
}

/// Each figure in a sentence, with how many differences from the paper it has.
fn summary(document: &serde_json::Value) -> String {
    let mut text = String::new();
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    for figure in document["figures"].as_array().into_iter().flatten() {
        let differences = figure["differences"].as_array();
        let count = differences.map_or(0, Vec::len);
        let open = differences.into_iter().flatten();
        let open = open.filter(|difference| difference["is_explained"] == false);
        text.push_str(&format!(
            "{} {}: {}\n  {}\n  {count} differences from the paper, {} without a reason\n",
            word(&figure["paper"]),
            word(&figure["place"]),
            word(&figure["title"]),
            word(&figure["sentence"]),
            open.count(),
        ));
    }
    text
}
