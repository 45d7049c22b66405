//! The papers' tables and figures, measured again. The papers are data, and share all code.
//!
//! A [`Paper`] consists of its drive and its [`Figure`]s. A figure says what is measured, under
//! which orderings, at which places (sizes of files, scripts at a time, phases of a workload), what
//! the paper printed, and what could make ours differ. [`measure_papers`] makes the runs that they
//! need, each distinct one once, in virtual time and so with the same result everywhere.
//! [`write_page`] draws.
//!
//! The crate depends on `bench`, which makes the runs, and on what is below it. Only `cli` depends
//! on it.
//!
//! | module | what |
//! |---|---|
//! | `ganger`, `seltzer`, `feng`, `frost` | the papers; another paper is one more such file, and a line in [`PAPERS`] |
//! | `lines` | the lines of a figure that a layout can have |
//! | `run` | from figures to distinct runs, and their results |
//! | `counters` | counters of a run, in the phases that a figure is about |
//! | `judge` | differences, the counters that explain them, and a sentence for each figure |
//! | `chart`, `svg` | pictures |
//! | `page` | the page |
//!
//! # Why a writer of SVG of our own
//!
//! The pictures must follow the reader's colours (light, dark, paper), carry a title and a
//! description for those who cannot see them, and be searchable text. `plotters`, which draws the
//! pictures of `bench`, writes colours as attributes of each element, which no style sheet
//! can change, and has no titles or descriptions. `charming` hands its data to ECharts: a picture
//! needs a JavaScript engine, in the page or at build time. Bars, lines, axes and a legend are 300
//! lines here.

mod chart;
mod counters;
mod feng;
mod frost;
mod ganger;
mod judge;
mod lines;
mod page;
mod places;
mod run;
mod seltzer;
mod svg;

use backstitch_bench::{QueueOrder, Scale, Workload};
use counters::{Counter, Measurement};

pub use page::write_page;
pub use run::{Measured, PapersSpec, measure_papers, papers_document};

/// All papers, in the order of their numbers.
pub const PAPERS: &[&Paper] = &[
    &ganger::PAPER,
    &seltzer::JOURNALING,
    &seltzer::LOGGING,
    &feng::PAPER,
    &frost::PAPER,
];

/// A paper, and the machine of its measurements.
#[derive(Debug)]
pub struct Paper {
    /// Its name in `--papers`.
    pub number: &'static str,
    /// Authors and year, for texts.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Where it was published.
    pub published: &'static str,
    /// The preset of its drive, which includes the computer of the drive.
    pub disk: &'static str,
    /// The size of its file system.
    pub size_bytes: u64,
    /// Whether the drive's write cache is off, though the preset has it on.
    pub writes_through: bool,
    /// A paragraph on what was taken from the paper, and what had to be assumed.
    pub setting: &'static str,
    /// Its tables and figures.
    pub figures: &'static [Figure],
    /// The tables and figures that are not here, and why.
    pub left_out: &'static str,
}

/// A table or figure, or one measure of it.
#[derive(Debug)]
pub struct Figure {
    /// Where in the paper it is.
    pub place: &'static str,
    /// Its subject.
    pub title: &'static str,
    /// What is measured.
    pub measure: Measure,
    /// Its lines: the orderings and their options.
    pub lines: &'static [Line],
    /// The line that the others are compared with.
    pub base: usize,
    /// The label of the horizontal axis.
    pub axis: &'static str,
    /// The points of each line on the horizontal axis.
    pub places: &'static [Place],
    /// The paper's values, by line and place. Empty if it printed none.
    pub printed: &'static [&'static [Option<f64>]],
    /// The paper's statements on lines whose values it drew but did not print.
    pub claims: &'static [Claim],
    /// How it is drawn.
    pub chart: ChartKind,
    /// Reasons why our values may differ, the likeliest first.
    pub reasons: &'static [Reason],
    /// What the page says of the runs in any case.
    pub remarks: &'static [Remark],
    /// How the paper's figure was read, if that is not obvious.
    pub note: &'static str,
    /// Whether memory holds everything, and nothing is written before the final sync.
    pub holds_everything: bool,
}

/// A row of a table, or a line of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Its name in the paper.
    pub name: &'static str,
    /// The ordering, in the form of `--ordering`.
    pub ordering: &'static str,
    /// The optimisations of the patch graph, in the form of `--opt`.
    pub opt: &'static str,
    /// The drive for its log alone, in the form of `--log-device`. Where `None`, a second one of
    /// the paper's, if the ordering's log is always on another drive.
    pub log_disk: Option<&'static str>,
    /// How `scheduler` tells the drive its order.
    pub queue_order: QueueOrder,
}

/// A point on the horizontal axis: a workload with its parameters, and the phases that count.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its name.
    pub name: &'static str,
    /// The workload.
    pub workload: Workload,
    /// The size of each file, for workloads with files of one size.
    pub file_bytes: Option<u64>,
    /// The size of all files together in MiB, if the paper's differs from the usual one.
    pub megabytes: Option<f64>,
    /// The number of files, if the paper's differs from the usual one.
    pub files: Option<u64>,
    /// How many scripts run at a time, for `sdet`.
    pub scripts: Option<u64>,
    /// What the computer's memory is divided by: as much as the paper's numbers are, where what
    /// fits into memory decides the figure.
    pub memory_part: u64,
    /// The phases that count; if there are none, all of them with the final sync.
    pub phases: &'static [&'static str],
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Seconds.
    Seconds,
    /// The base line's seconds divided by this line's.
    Speed,
    /// Contents in MB (10⁶ bytes) a second.
    MegabytesPerSecond,
    /// Operations a second.
    OperationsPerSecond,
    /// PostMark's transactions a second.
    TransactionsPerSecond,
    /// Scripts an hour.
    ScriptsPerHour,
    /// The drive's write requests.
    WriteRequests,
    /// Write requests for each file.
    WritesPerFile,
    /// Patches that were created.
    Patches,
    /// Undo data that was allocated, in MB.
    UndoMegabytes,
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartKind {
    /// Lines over places.
    Lines,
    /// Bars, from zero.
    Bars,
    /// Bars on a logarithmic scale.
    LogBars,
}

/// A statement of a paper on the ratio of two lines.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The line that is divided.
    pub line: usize,
    /// The line that divides it.
    pub by: usize,
    /// The first place for which it holds.
    pub first: usize,
    /// The last place for which it holds.
    pub last: usize,
    /// The smallest ratio that the paper's words allow.
    pub low: f64,
    /// The largest one.
    pub high: f64,
    /// The paper's words, as a statement.
    pub says: &'static str,
}

/// A reason why a value of ours may differ, and the counter that confirms it.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// The ordering for which it holds; any if empty.
    pub ordering: &'static str,
    /// The place for which it holds; any if empty.
    pub place: &'static str,
    /// Whether it makes our value larger than the paper's, or smaller.
    pub larger: bool,
    /// The counter.
    pub counter: Counter,
    /// The smallest value of the counter with which the reason holds.
    pub at_least: f64,
    /// The largest one.
    pub at_most: f64,
    /// The reason, with `{}` for the counter's value.
    pub says: &'static str,
    /// A change of the machine that tests it: the run is made once more with the change, and the
    /// page has that value too.
    pub test: Option<Change>,
}

/// A sentence with counters, whether values differ or not.
#[derive(Clone, Copy, Debug)]
pub struct Remark {
    /// The place of the runs.
    pub place: &'static str,
    /// The sentence, with `{}` for each counter's value.
    pub says: &'static str,
    /// The counters in their order, each of the run under an ordering.
    pub counters: &'static [(&'static str, Counter)],
}

/// A change of the simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// This many times the memory for buffers and dependencies.
    Memory(u64),
    /// The drive takes one request at a time.
    OneRequest,
}

impl Change {
    /// A part of a sentence.
    fn says(self) -> String {
        match self {
            Change::Memory(times) => format!("{times} times the memory for buffers"),
            Change::OneRequest => "a drive that takes one request at a time".to_owned(),
        }
    }
}

impl Reason {
    /// A reason for larger values, confirmed by a counter of at least this value.
    const fn larger(counter: Counter, at_least: f64, says: &'static str) -> Reason {
        Reason {
            ordering: "",
            place: "",
            larger: true,
            counter,
            at_least,
            at_most: f64::INFINITY,
            says,
            test: None,
        }
    }

    /// A reason for smaller values, likewise.
    const fn smaller(counter: Counter, at_least: f64, says: &'static str) -> Reason {
        Reason {
            larger: false,
            ..Reason::larger(counter, at_least, says)
        }
    }

    /// Whether it can hold for a line.
    fn is_about(&self, line: &Line) -> bool {
        self.ordering.is_empty() || self.ordering == line.ordering
    }

    /// Whether it can hold at a place.
    fn is_at(&self, place: &Place) -> bool {
        self.place.is_empty() || self.place == place.name
    }

    /// The same, confirmed by a counter of at most this value.
    const fn up_to(mut self, at_most: f64) -> Reason {
        self.at_most = at_most;
        self
    }

    /// The same for one ordering only.
    const fn under(mut self, ordering: &'static str) -> Reason {
        self.ordering = ordering;
        self
    }

    /// The same, tested by a change of the machine.
    const fn tested_by(mut self, change: Change) -> Reason {
        self.test = Some(change);
        self
    }

    /// The same at one place only.
    const fn at(mut self, place: &'static str) -> Reason {
        self.place = place;
        self
    }
}

impl Line {
    const fn of(name: &'static str, ordering: &'static str) -> Line {
        Line {
            name,
            ordering,
            opt: "both",
            log_disk: None,
            queue_order: QueueOrder::Chain,
        }
    }
}

impl Place {
    const fn of(name: &'static str, workload: Workload, phases: &'static [&'static str]) -> Place {
        Place {
            name,
            workload,
            file_bytes: None,
            megabytes: None,
            files: None,
            scripts: None,
            memory_part: 1,
            phases,
        }
    }

    fn scale(&self, fraction: f64) -> Scale {
        Scale {
            min_bytes: self.file_bytes,
            megabytes: self.megabytes.map(|all| all * fraction),
            files: self
                .files
                .map(|all| ((all as f64 * fraction).round() as u64).max(1)),
            writers: self.scripts,
            fraction: (fraction != 1.0).then_some(fraction),
            ..Scale::default()
        }
    }
}

impl Measure {
    /// The unit, and what it is a unit of.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Seconds => "seconds",
            Measure::Speed => "times the speed of FFS-async",
            Measure::MegabytesPerSecond => "MB a second",
            Measure::OperationsPerSecond => "files a second",
            Measure::TransactionsPerSecond => "transactions a second",
            Measure::ScriptsPerHour => "scripts an hour",
            Measure::WriteRequests => "write requests",
            Measure::WritesPerFile => "write requests for each file",
            Measure::Patches => "patches",
            Measure::UndoMegabytes => "MB of undo data",
        }
    }

    /// Whether a larger value means a faster run.
    fn is_rate(self) -> bool {
        matches!(
            self,
            Measure::Speed
                | Measure::MegabytesPerSecond
                | Measure::OperationsPerSecond
                | Measure::TransactionsPerSecond
                | Measure::ScriptsPerHour
        )
    }

    fn is_time(self) -> bool {
        self == Measure::Seconds
    }

    /// The value of a run at a place; for a speed, the time from which it is computed.
    fn of(self, run: &Measurement, place: &Place) -> f64 {
        let part = run.part(place.phases);
        let by_second = |count: f64| count / part.seconds.max(1e-9);
        let engine = run.run.engine.unwrap_or_default();
        let operations = part.operations as f64;
        match self {
            Measure::Seconds | Measure::Speed => part.seconds,
            Measure::MegabytesPerSecond => {
                let file_bytes = place.file_bytes.unwrap_or(0) as f64;
                by_second(operations * file_bytes / 1e6)
            }
            Measure::OperationsPerSecond => by_second(operations),
            // A transaction consists of two operations.
            Measure::TransactionsPerSecond => by_second(operations / 2.0),
            Measure::ScriptsPerHour => by_second(place.scripts.unwrap_or(1) as f64 * 3600.0),
            Measure::WriteRequests => engine.write_requests as f64,
            Measure::WritesPerFile => engine.write_requests as f64 / operations.max(1.0),
            Measure::Patches => engine.patches_created as f64,
            Measure::UndoMegabytes => engine.undo_bytes_total as f64 / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use backstitch_vfs::{Optimisations, Ordering};

    use super::*;

    /// Checks what the compiler cannot check in the papers' data.
    #[test]
    fn figures_are_whole() {
        for figure in PAPERS.iter().flat_map(|paper| paper.figures) {
            let (lines, places) = (figure.lines.len(), figure.places.len());
            assert!(figure.base < lines && lines > 1, "{}", figure.place);
            assert!(
                [0, lines].contains(&figure.printed.len()),
                "{}",
                figure.place
            );
            for printed in figure.printed {
                assert_eq!(printed.len(), places, "{}", figure.place);
            }
            for line in figure.lines {
                line.ordering.parse::<Ordering>().unwrap();
                assert!(line.opt.parse::<Optimisations>().is_ok(), "{}", line.opt);
            }
            for claim in figure.claims {
                assert!(claim.line < lines && claim.by < lines, "{}", claim.says);
                assert!(
                    claim.first <= claim.last && claim.last < places,
                    "{}",
                    claim.says
                );
                assert!(claim.low <= claim.high, "{}", claim.says);
            }
            for remark in figure.remarks {
                assert_eq!(remark.says.matches("{}").count(), remark.counters.len());
                assert!(figure.places.iter().any(|place| place.name == remark.place));
                for (ordering, _) in remark.counters {
                    let is_named = figure.lines.iter().any(|line| line.ordering == *ordering);
                    assert!(is_named, "{}", remark.says);
                }
            }
            for reason in figure.reasons {
                assert!(reason.says.contains("{}"), "{}", reason.says);
                assert!(reason.at_least <= reason.at_most, "{}", reason.says);
                let is_named = figure
                    .lines
                    .iter()
                    .any(|line| line.ordering == reason.ordering);
                assert!(reason.ordering.is_empty() || is_named, "{}", reason.says);
            }
        }
    }
}
