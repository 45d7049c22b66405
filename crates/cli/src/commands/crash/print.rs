//! What the commands of `crash` print alike.

use backstitch_crash_core::report::graph::Graph;
use backstitch_crash_core::report::{Block, BlockState, Failure, Kind, Report, RuleCounts};
use backstitch_files::error::{Error, FAILED, Result, host};
use backstitch_files::foreign;
use backstitch_files::show;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// No more changes than these are listed where they can as well be counted.
const SHOWN: usize = 4;

/// A word as a shell reads it back.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Where the outcome goes.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Output {
    /// Write the image of the first failing state, or of the replayed one, to FILE
    #[arg(long, value_name = "FILE")]
    pub(super) keep: Option<PathBuf>,
    /// Write the report as an HTML page to FILE
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Print the report as one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// Where the patches of a failure go.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Recorded {
    /// Write what happened up to the first failing state, or the replayed one, to FILE as a trace of patches, which `trace serve` opens at
    /// that moment
    #[arg(long = "record", value_name = "FILE")]
    pub(super) path: Option<PathBuf>,
}

impl Output {
    /// Refuses to write over what somebody may want to keep; states may be those of `original`.
    pub(super) fn check(&self, command: &str, original: Option<&Path>) -> Result<()> {
        let mut paths = self.html.iter().chain(&self.keep);
        paths.try_for_each(|path| foreign::refuse_output(command, path, original))
    }

    /// Writes the report where it was asked for; the exit code says whether it has failures.
    /// `names_rules`: with the names of the rules that nothing came by.
    pub(super) fn finish(
        &self,
        command: &str,
        report: &Report,
        names_rules: bool,
    ) -> Result<ExitCode> {
        if let Some(path) = &self.html {
            std::fs::write(path, report.to_html())
                .map_err(|error| Error::at_path(command, path, host(&error)))?;
        }
        match self.json {
            true => show::print_json(command, report)?,
            false => show::print_bytes(command, summary(report, names_rules).as_bytes())?,
        }
        Ok(match report.is_good() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(FAILED),
        })
    }
}

impl Recorded {
    /// As [`Output::check`].
    pub(super) fn check(&self, command: &str) -> Result<()> {
        let mut path = self.path.iter();
        path.try_for_each(|path| foreign::refuse_output(command, path, None))
    }

    /// Writes a trace where that was asked for.
    pub(super) fn keep(&self, command: &str, trace: &[u8]) -> Result<()> {
        match &self.path {
            Some(path) => std::fs::write(path, trace)
                .map_err(|error| Error::at_path(command, path, host(&error))),
            None => Ok(()),
        }
    }
}

/// A bar on a terminal; `what` is counted, and said behind the count.
pub(super) fn progress_bar(what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let template = format!("{{bar:30}} {{pos}}/{{len}} {what}, {{eta}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

/// Lets the first signal to end raise `stop`, so that there is time to clean up; the second one, if
/// a check does not end, kills.
pub(super) fn stop_on_signals(command: &str, stop: &Arc<AtomicBool>) -> Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Error::failed(command, "signals", host(&error)))?;
    }
    Ok(())
}

/// What a person reads.
fn summary(report: &Report, names_rules: bool) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text += &line;
        text.push('\n');
    };
    for (at, failure) in report.failures.iter().enumerate() {
        let mut said = failure.verdict.lines();
        line(format!(
            "failure {}: {}",
            at + 1,
            said.next().unwrap_or_default()
        ));
        said.for_each(|said| line(format!("    | {said}")));
        let shown = failure.operations.iter().enumerate();
        for (number, operation) in shown.filter(|_| report.kind == Kind::Fs) {
            line(format!("  {:<8} {operation}", number + 1));
        }
        line(format!("  cut      {}", failure.cut));
        blocks(failure).into_iter().for_each(&mut line);
        let orders = failure.graph.as_ref().map(Graph::lines);
        let orders = orders.into_iter().flatten();
        orders.for_each(|order| line(format!("  order    {order}")));
        line(format!("  replay   {}", failure.replay));
    }
    line(report.explored.clone());
    line(verdict(report));
    if let Some(rules) = &report.rules {
        let count = |is: fn(&RuleCounts) -> bool| rules.values().filter(|r| is(r)).count();
        line(format!(
            "{} rules: {} reached, {} with something pending, {} in a rollback, {} after a remount",
            rules.len(),
            count(|r| r.reached > 0),
            count(|r| r.pending > 0),
            count(|r| r.rolled_back > 0),
            count(|r| r.after_remount > 0),
        ));
        let missed = rules
            .iter()
            .filter(|(_, counts)| names_rules && counts.reached == 0);
        missed.for_each(|(name, _)| line(format!("  not reached: {name}")));
        let wrong = rules.iter().filter(|(_, counts)| counts.not_implied > 0);
        wrong.for_each(|(name, _)| line(format!("  NOT IMPLIED by others: {name}")));
    }
    let refused = report.coverage.get("operations_answered_with_an_error");
    if let Some(refused) = refused {
        line(format!("{refused} operations failed with an error"));
    }
    report
        .notes
        .iter()
        .for_each(|note| line(format!("note: {note}")));
    text
}

/// How many states there were, and how many of them failed.
pub(super) fn verdict(report: &Report) -> String {
    let (states, distinct) = (report.states, report.distinct);
    let verdict = match (report.failed_states(), report.failures.len() as u64) {
        (0, _) => match report.coverage.get("different_states_among_them") {
            Some(all) if !report.exhaustive => {
                format!("no failure in {distinct} of {all} states, sampled")
            }
            _ => "no failure".to_owned(),
        },
        // Those that are shown were chosen among many: one of each kind.
        (failed, shown) if failed > shown => format!("{failed} failed, {shown} of them shown"),
        (failed, _) => format!("{failed} failed"),
    };
    let rate = report.states_per_second;
    let rate = rate.map_or(String::new(), |rate| format!(", {rate:.0} a second"));
    format!("{states} states, {distinct} of them different{rate}: {verdict}")
}

/// What was in flight. Of what is on the disk and what is not, the larger part is only counted.
fn blocks(failure: &Failure) -> Vec<String> {
    let on_disk = |block: &&Block| block.state == BlockState::OnDisk;
    let there = failure.blocks.iter().filter(on_disk).count();
    let larger = match there * 2 > failure.blocks.len() {
        true => BlockState::OnDisk,
        false => BlockState::Missing,
    };
    let (counted, shown): (Vec<&Block>, Vec<&Block>) = failure
        .blocks
        .iter()
        .partition(|block| block.state == larger);
    let (counted, shown) = match counted.len() > SHOWN {
        true => (counted.len(), shown),
        false => (0, failure.blocks.iter().collect()),
    };
    let mut lines: Vec<String> = shown
        .iter()
        .map(|block| format!("  {:8} {}", block.state.word(), block.what))
        .collect();
    if counted > 0 {
        lines.push(format!("  {:8} the {counted} others", larger.word()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_from_a_shell() {
        assert_eq!(quoted("/a/b.img"), "/a/b.img");
        assert_eq!(quoted("e2fsck -fn $1"), "'e2fsck -fn $1'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
