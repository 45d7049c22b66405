//! What was explored, in numbers and in words.

use backstitch_crash_core::report::{Kind, Report};

use crate::choose::Choice;
use crate::explore::{Found, is_damage};
use crate::options::Options;
use crate::trace::Trace;

/// The report of an exploration, without its failures.
pub(crate) fn report(trace: &Trace, options: &Options, choice: &Choice, found: &Found) -> Report {
    let mut report = Report::new(Kind::App, options.command.clone(), options.seed);
    report.states = choice.jobs.len() as u64;
    report.distinct = choice.jobs.len() as u64;
    report.exhaustive = choice.is_exhaustive();
    report.leaks_max = Some(found.leaks_max);
    report.explored = explored(options, choice);
    let damaged = found.failed.iter().filter(|(_, v)| is_damage(v)).count();
    for (name, count) in [
        ("operations", trace.operations.len() - trace.setup),
        ("operations_of_the_setup", trace.setup),
        ("states_that_failed", found.failed.len()),
        ("states_that_fsck_cannot_repair_unasked", damaged),
    ] {
        report.coverage.insert(name.to_owned(), count as u64);
    }
    for (name, count) in [
        ("moments", choice.moments),
        ("moments_visited", choice.visited_moments),
        (
            "moments_of_which_every_set_was_visited",
            choice.whole_moments,
        ),
        ("sets_of_changes_that_were_visited", choice.sets),
        ("different_states_among_them", choice.distinct),
        (
            "operations_after_which_everything_was_written_back_once",
            choice.once as u64,
        ),
        (
            "operations_after_which_that_could_be_done",
            choice.once_of as u64,
        ),
    ] {
        report.coverage.insert(name.to_owned(), count);
    }
    for (name, count) in &choice.coverage {
        report.coverage.insert((*name).to_owned(), *count);
    }
    report.notes = notes(trace, choice);
    report
}

/// What was covered: whether these are all states, and of which schedules of write-back.
pub(crate) fn explored(options: &Options, choice: &Choice) -> String {
    let ordering = options.ordering;
    let (all, visited, whole) = (choice.moments, choice.visited_moments, choice.whole_moments);
    let schedules = schedules(choice);
    if choice.is_exhaustive() {
        return format!(
            "exhaustive: every set of changes that {ordering} allows at all {all} moments, {schedules}"
        );
    }
    format!(
        "sampled with seed {}: {} of {} different states, from sets of changes that {ordering} allows, at {visited} of {all} moments \
         ({whole} of them with every set), {schedules}",
        options.seed,
        choice.jobs.len(),
        choice.distinct
    )
}

/// How was written back what the program did not ask to be written.
fn schedules(choice: &Choice) -> String {
    const SIX: &str = "under six schedules of write-back";
    match (choice.once, choice.once_of) {
        (0, _) => SIX.to_owned(),
        (1, 1) => format!("{SIX}, and with everything written back once, after one operation"),
        (once, all) if once == all => {
            format!("{SIX}, and with everything written back once, after each of {all} operations")
        }
        (once, all) => format!(
            "{SIX}, and with everything written back once, after each of {once} out of {all} operations"
        ),
    }
}

fn notes(trace: &Trace, choice: &Choice) -> Vec<String> {
    let mut notes = trace.notes.clone();
    if !choice.refused.is_empty() {
        let shown = choice.refused[..choice.refused.len().min(3)].join("; ");
        notes.push(format!(
            "{} operations could not be done again: {shown}",
            choice.refused.len()
        ));
    }
    notes.push(
        "Contents of files, and bits of bitmaps where there are many sets, are not taken in every combination: each set of the other \
         changes is tried with no more of them than it needs, with all, with all but each one, and with each one alone."
            .to_owned(),
    );
    notes.push(
        "The program ran once; what it would have done under another timing is not known. Its sync(2) and syncfs(2) do not reach a \
         mount of FUSE; its fsync(2) does."
            .to_owned(),
    );
    notes
}
