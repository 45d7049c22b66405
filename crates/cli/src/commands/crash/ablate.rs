//! `backstitch crash ablate`.

use super::print::progress_bar;
use backstitch_crash::ablate::{Ablation, Fate, Row};
use backstitch_crash::rules::sites;
use backstitch_crash::{ImageOptions, standard};
use backstitch_files::error::{Error, FAILED, Result};
use backstitch_files::show;
use backstitch_formats::{Layout, usual};
use backstitch_mechanisms::usual_for;
use backstitch_rules::watch::Form;
use backstitch_rules::{Id, Site};
use backstitch_vfs::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Instant;

const WHAT: &str = "crash ablate";

/// Switch off one rule of the file system at a time, and explore until a crash shows it.
///
/// Each place in the code that states a dependency, a wait or a check has a name. Each of them is
/// off in turn, as a whole and in part, while workloads that come by it are explored. A rule that
/// nothing shows survives: no workload tests it, or nothing needs it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 every rule that was reached was found, 1 some survived or the command could not run, 2 wrong usage.

Examples:
  backstitch crash ablate
  backstitch crash ablate --ordering journal=ordered --site commit,revoke
  backstitch crash ablate --site name-after-inode --json"
)]
pub(crate) struct Args {
    /// The mechanisms that keep order, as mount --ordering takes them
    #[arg(
        long,
        value_name = "MODE,…",
        value_delimiter = ',',
        default_values_t = [usual_for(false)]
    )]
    ordering: Vec<Ordering>,
    /// Only rules whose names contain one of these
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    site: Vec<String>,
    /// Only rules that one of the mechanisms states itself, and that nothing else comes by
    #[arg(long, conflicts_with = "site")]
    own: bool,
    /// Only these forms: whole, first, last, only-oldest, only-newest, merged
    #[arg(long, value_name = "FORM,…", value_delimiter = ',')]
    form: Vec<Form>,
    /// The workloads, as `crash fs` takes them; by default those that it explores, and more
    #[arg(long, value_name = "WORKLOAD,…", value_delimiter = ',')]
    workload: Vec<String>,
    /// The type of the file system: one of those that mkfs makes
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = usual().name(), hide_default_value = true)]
    layout: Layout,
    /// The seed of random workloads and samples
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Explore up to N times as many states of each rule
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    effort: u64,
    /// The number of threads; by default one for each CPU
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print the table as one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.jobs.unwrap_or(cpus);
    let mut tables: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for ordering in &args.ordering {
        let campaign = standard::campaign(*ordering, args.seed, threads);
        let workloads = match args.workload.is_empty() {
            true => standard::workloads(args.seed),
            false => super::workloads::named(WHAT, &args.workload, &campaign)?,
        };
        let ablation = Ablation {
            ordering: *ordering,
            image: ImageOptions {
                layout: args.layout,
                ..campaign.image
            },
            workloads,
            patterns: patterns(args)?,
            forms: args.form.clone(),
            seed: args.seed,
            threads,
            effort: args.effort,
        };
        tables.insert(ordering.to_string(), table(&ablation, args)?);
    }
    if tables.values().all(Vec::is_empty) {
        let why = match args.site.is_empty() {
            true => "no rule that is come by can be off in these forms".to_owned(),
            false => format!(
                "there is no rule with '{}' in its name",
                args.site.join("' or '")
            ),
        };
        return Err(Error::usage(WHAT, why));
    }
    if args.json {
        show::print_json(
            WHAT,
            &serde_json::json!({ "seed": args.seed, "tables": tables }),
        )?;
    }
    let survived = |row: &Row| matches!(row.fate, Fate::Survived { .. });
    Ok(match tables.values().flatten().any(survived) {
        true => ExitCode::from(FAILED),
        false => ExitCode::SUCCESS,
    })
}

/// What the names of the rules contain, one of these; none for all rules.
fn patterns(args: &Args) -> Result<Vec<String>> {
    if !args.own {
        return Ok(args.site.clone());
    }
    let own = args.ordering.iter().flat_map(|o| o.own_rules());
    let own: BTreeSet<Id> = own.copied().collect();
    if own.is_empty() {
        let why = "these mechanisms state no rules of their own";
        return Err(Error::usage(WHAT, why));
    }
    let own = sites().filter(|site| own.contains(&site.id));
    Ok(own.map(Site::name).collect())
}

fn table(ablation: &Ablation, args: &Args) -> Result<Vec<Row>> {
    let started = Instant::now();
    let bar = progress_bar("rules");
    let each = |row: &Row| {
        bar.inc(1);
        if !args.json {
            // Where nobody reads any more the exit code still counts.
            bar.suspend(|| drop(show::print_bytes(WHAT, line(row).as_bytes())));
        }
    };
    let rows = ablation
        .run(&each)
        .map_err(|error| Error::failed(WHAT, "exploring", error.to_string()))?;
    bar.finish_and_clear();
    if !args.json {
        let seconds = started.elapsed().as_secs();
        let text = format!("{}: {} in {seconds} s\n", ablation.ordering, sum(&rows));
        show::print_bytes(WHAT, text.as_bytes())?;
    }
    Ok(rows)
}

fn line(row: &Row) -> String {
    let fate = match &row.fate {
        Fate::Found {
            workload,
            states,
            what,
        } => format!(
            "found      {workload}, state {states}: {}",
            first_line(what)
        ),
        Fate::Survived {
            states,
            runs,
            differs,
        } => {
            let differs = differs.as_ref();
            let differs =
                differs.map_or_else(String::new, |w| format!("; {w} leaves something else"));
            format!("SURVIVED   {states} states of {runs} runs{differs}")
        }
        Fate::Implied { asked } => format!("implied    by others, asked {asked} times"),
        Fate::Alike { runs } => format!("no effect  {runs} runs leave the same without it"),
        Fate::Tested { test } => format!("found      by {test}"),
        Fate::NotReached => "not reached".to_owned(),
    };
    format!("{:<44} {:>6.1} s  {fate}\n", row.site, row.seconds)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn sum(rows: &[Row]) -> String {
    let count = |is: fn(&Fate) -> bool| rows.iter().filter(|row| is(&row.fate)).count();
    format!(
        "{} rules off, {} found, {} survived, {} implied by others, {} without effect, {} not reached",
        rows.len(),
        count(|fate| matches!(fate, Fate::Found { .. } | Fate::Tested { .. })),
        count(|fate| matches!(fate, Fate::Survived { .. })),
        count(|fate| matches!(fate, Fate::Implied { .. })),
        count(|fate| matches!(fate, Fate::Alike { .. })),
        count(|fate| matches!(fate, Fate::NotReached)),
    )
}
