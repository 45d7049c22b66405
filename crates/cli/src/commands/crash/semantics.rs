//! `backstitch crash semantics`.

use backstitch_bench::{Costs, measure_costs};
use backstitch_crash::semantics::{Damage, Half, Semantics, measure};
use backstitch_files::error::{Error, FAILED, Result, warn_line};
use backstitch_files::show;
use backstitch_formats::usual;
use backstitch_vfs::Ordering;
use serde_json::{Value, json};
use std::num::NonZero;
use std::process::ExitCode;

const WHAT: &str = "crash semantics";
/// The drive of Seltzer et al. 2000, whose tables 1 and 2 these are.
const DISK: &str = "cheetah9";

/// Measure what a program can rely on under each mechanism, and what that costs.
///
/// Small scripts are crashed at every moment, and what all crashes have in common is said: which calls
/// are on the disk when they return, whether of two calls the second can be there without the first,
/// what a rename shows half way, what is left to repair. Fails where a mechanism shows something
/// that it promises not to. Write requests and the time to mount after a
/// crash are those of the simulated disk cheetah9.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch crash semantics
  backstitch crash semantics --ordering sync,soft,lffs-file --json")]
pub(crate) struct Args {
    /// The mechanisms; by default all
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    ordering: Vec<Ordering>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// What was measured of a mechanism.
struct Row {
    semantics: Semantics,
    costs: Costs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let orderings: Vec<Ordering> = match args.ordering[..] {
        [] => Ordering::ALL
            .into_iter()
            .chain(Ordering::WITH_GROUP_COMMIT)
            .collect(),
        _ => args.ordering.clone(),
    };
    let rows = measured(&orderings)?;
    let mut is_kept = true;
    for row in &rows {
        let ordering = row.semantics.ordering;
        for what in row.semantics.broken(&ordering.promises()) {
            is_kept = false;
            warn_line(&format!("{WHAT}: {ordering}: not as promised: {what}"));
        }
    }
    if args.json {
        let rows: Vec<Value> = rows.iter().map(document).collect();
        let all =
            json!({ "backstitch": env!("CARGO_PKG_VERSION"), "disk": DISK, "mechanisms": rows });
        show::print_json(WHAT, &all)?;
    } else {
        show::print_bytes(WHAT, table(&rows).as_bytes())?;
    }
    Ok(match is_kept {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILED),
    })
}

/// The mechanisms, as many at a time as there are processors: each is measured by one thread, which
/// changes no result.
fn measured(orderings: &[Ordering]) -> Result<Vec<Row>> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut rows = Vec::new();
    for some in orderings.chunks(threads) {
        let done: Vec<Result<Row>> = std::thread::scope(|scope| {
            let started: Vec<_> = some
                .iter()
                .map(|ordering| scope.spawn(|| row(*ordering)))
                .collect();
            let ended = started.into_iter().zip(some).map(|(thread, ordering)| {
                let panicked = |_| Err(Error::failed(WHAT, ordering, "the engine panicked"));
                thread.join().unwrap_or_else(panicked)
            });
            ended.collect()
        });
        for row in done {
            rows.push(row?);
        }
    }
    Ok(rows)
}

fn row(ordering: Ordering) -> Result<Row> {
    let semantics = measure(ordering).map_err(|error| Error::failed(WHAT, ordering, error))?;
    let costs = measure_costs(usual(), ordering, DISK);
    Ok(Row {
        semantics,
        costs: costs.map_err(|error| Error::failed(WHAT, ordering, error))?,
    })
}

fn table(rows: &[Row]) -> String {
    let mut text = "| mechanism | on the disk when the call returns | after `fsync` | order of calls kept | \
                    a new file may show old blocks | replaced by a rename without `fsync` | the same, the \
                    new name on the disk before its contents | `rename` over a name | a crash leaves | after recovery | states | writes a file: made, renamed, removed | \
                    mount after a crash, s, with a log of 4, 16, 64 MiB |\n"
        .to_owned();
    text += &("|---".repeat(13) + "|\n");
    for row in rows {
        let seen = &row.semantics;
        let cells = [
            format!("`{}`", seen.ordering),
            durable(seen),
            yes(seen.fsync_is_durable),
            some(&seen.ordered),
            yes(seen.shows_stale),
            replaced(seen.replacing_loses),
            replaced(seen.replacing_later_loses),
            renamed(seen),
            left(seen),
            damage(seen.recovered).to_owned(),
            states(seen),
            writes(&row.costs),
            recoveries(&row.costs),
        ];
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

fn replaced(loses: bool) -> String {
    match loses {
        true => "can be lost",
        false => "old or new",
    }
    .to_owned()
}

/// Which of some things hold.
fn some(all: &[(&'static str, bool)]) -> String {
    let names: Vec<&str> = all
        .iter()
        .filter(|(_, is)| *is)
        .map(|(name, _)| *name)
        .collect();
    match names.len() {
        0 => "no".to_owned(),
        len if len == all.len() => "yes".to_owned(),
        _ => names.join(", "),
    }
}

fn durable(seen: &Semantics) -> String {
    let names = some(&seen.durable);
    match seen.write_is_durable {
        true => names + ", contents too",
        false if names == "yes" => "names and attributes".to_owned(),
        false => names,
    }
}

fn renamed(seen: &Semantics) -> String {
    let words = seen.half_renamed.iter().map(|half| match half {
        Half::BothNames => "both names",
        Half::NoTarget => "the name can be lost",
        Half::NoFile => "the file can be lost",
    });
    let words: Vec<&str> = words.collect();
    match words.is_empty() {
        true => "atomic".to_owned(),
        false => words.join(", "),
    }
}

/// What a crash leaves before anything is done about it.
fn left(seen: &Semantics) -> String {
    match seen.ordering.has_log() && seen.left >= Damage::Corruption {
        true => "a log, and damage without it".to_owned(),
        false => damage(seen.left).to_owned(),
    }
}

fn damage(damage: Damage) -> &'static str {
    match damage {
        Damage::None => "nothing to repair",
        Damage::Leaks => "leaks",
        Damage::Corruption => "damage",
        Damage::Unreadable => "damage that keeps it from being mounted",
    }
}

/// How many states were looked at, and at how many moments these were not all.
fn states(seen: &Semantics) -> String {
    match seen.sampled_moments {
        0 => seen.states.to_string(),
        moments => format!("{}, at {moments} moments a sample", seen.states),
    }
}

fn writes(costs: &Costs) -> String {
    let all = [costs.creates, costs.renames, costs.removals];
    all.map(|count| format!("{count:.2}")).join(", ")
}

fn recoveries(costs: &Costs) -> String {
    let times = costs.recoveries.iter();
    let times: Vec<String> = times.map(|(_, seconds)| format!("{seconds:.2}")).collect();
    match times.is_empty() {
        true => "–".to_owned(),
        false => times.join(", "),
    }
}

fn document(row: &Row) -> Value {
    let (seen, costs) = (&row.semantics, &row.costs);
    let named = |all: &[(&'static str, bool)]| -> Value {
        all.iter().map(|(name, is)| (*name, *is)).collect()
    };
    let recoveries = costs.recoveries.iter();
    let recoveries: Vec<Value> = recoveries
        .map(|(mib, seconds)| json!({ "log_mib": mib, "seconds": seconds }))
        .collect();
    json!({
        "ordering": seen.ordering.name(),
        "durable": named(&seen.durable),
        "write_is_durable": seen.write_is_durable,
        "fsync_is_durable": seen.fsync_is_durable,
        "ordered": named(&seen.ordered),
        "shows_stale": seen.shows_stale,
        "replacing_loses": seen.replacing_loses,
        "replacing_later_loses": seen.replacing_later_loses,
        "rename": renamed(seen),
        "left": left(seen),
        "recovered": damage(seen.recovered),
        "states": seen.states,
        "sampled_moments": seen.sampled_moments,
        "writes_by_create": costs.creates,
        "writes_by_rename": costs.renames,
        "writes_by_removal": costs.removals,
        "recoveries": recoveries,
    })
}
