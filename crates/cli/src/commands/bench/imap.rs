//! `bench imap`: moving messages between mailboxes, in three ways.

use backstitch_bench::{
    ImapSpec, ImapVariant, Series, document, imap_table, measure_imap, run_line,
};
use backstitch_mechanisms::in_order;
use backstitch_vfs::Ordering;

use super::{Args, bar};
use backstitch_files::error::{Error, Result};
use backstitch_files::show;

/// Its name.
pub(super) const IMAP: &str = "imap";

pub(super) fn run(args: &Args) -> Result<()> {
    let specs = specs(args)?;
    let bar = bar();
    let mut all: Vec<Series> = specs.iter().map(|_| Series { runs: Vec::new() }).collect();
    for round in 0..args.runs {
        for (spec, series) in specs.iter().zip(&mut all) {
            let (ordering, variant) = (spec.ordering, spec.variant.name());
            bar.set_message(format!("{IMAP}, {ordering}, {variant}, run {}", round + 1));
            let run = measure_imap(spec).map_err(|error| Error::failed("bench", IMAP, error))?;
            if args.progress {
                bar.suspend(|| eprintln!("{variant}: {}", run_line(&run)));
            }
            series.runs.push(run);
        }
    }
    bar.finish_and_clear();
    if args.json {
        return show::print_json("bench", &document(&all, args.seed));
    }
    show::print_bytes("bench", imap_table(&all).as_bytes())
}

fn specs(args: &Args) -> Result<Vec<ImapSpec>> {
    let refuse = |why: &str| Err(Error::usage("bench", format!("{IMAP} {why}")));
    if args.workloads.len() > 1 {
        return refuse("is measured alone");
    }
    let unfit = [
        ("--image", args.image.is_some()),
        ("--dir", args.dir.is_some()),
        ("--disk", args.disk.is_some()),
        ("--files", args.files.is_some()),
        ("--megabytes", args.megabytes.is_some()),
        ("--transactions", args.transactions.is_some()),
        ("--expire", args.expire.is_some()),
        ("--atomic", args.atomic.is_some()),
        ("--plot", args.plot.is_some()),
    ];
    if let Some((option, _)) = unfit.iter().find(|(_, given)| *given) {
        return refuse(&format!(
            "runs in memory, on a device that charges for flushes: it takes no {option}"
        ));
    }
    let orderings: Vec<Ordering> = match args.ordering[..] {
        // Under others one of the ways is unsafe, or costs nothing.
        [] => in_order()
            .filter(|o| !o.promises().answers_once_stable && !o.needs_log_device())
            .collect(),
        _ => args.ordering.clone(),
    };
    let pairs = orderings
        .iter()
        .flat_map(|ordering| ImapVariant::ALL.map(|variant| (*ordering, variant)));
    let specs = pairs
        .filter(|(ordering, variant)| variant.is_safe(*ordering))
        .map(|(ordering, variant)| {
            let full = ImapSpec::new(ordering, variant);
            let part = |messages: u64| (messages as f64 * args.scale.unwrap_or(1.0)) as u64;
            ImapSpec {
                layout: args.layout,
                messages: part(full.messages).max(1),
                message_bytes: args.min_bytes.unwrap_or(full.message_bytes).max(1),
                flush_seconds: args.flush.unwrap_or(full.flush_seconds),
                size_bytes: args.size.unwrap_or(full.size_bytes),
                cache_bytes: args.cache.unwrap_or(full.cache_bytes),
                seed: args.seed,
                check: args.check,
                ..full
            }
        });
    Ok(specs.collect())
}
