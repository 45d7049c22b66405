//! `backstitch crash fs`.

use super::print::{Output, Recorded, progress_bar, quoted, stop_on_signals, verdict};
use super::workloads::{is_case, named, scripted};
use crate::options::AtomicUnit;
use backstitch_bench::{Disk, DiskOptions, DriveSpec};
use backstitch_crash::{
    Campaign, Foreign, Fork, ImageOptions, Observer, Operation, ReplayError, Replayed, Results,
    Schedule, Workload,
};
use backstitch_crash_core::report::Report;
use backstitch_files::error::{Error, FAILED, Result, host};
use backstitch_files::{show, size};
use backstitch_formats::{Layout, usual};
use backstitch_layout::tools::JournalFeatures;
use backstitch_mechanisms::{in_order, one_flush_features, usual_for};
use backstitch_vfs::{Optimisations, Ordering};
use indicatif::ProgressBar;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const WHAT: &str = "crash fs";
/// What is explored where nothing is asked for. (`guided:20` would add two minutes of processor
/// time over all mechanisms, to about fifteen, and the cases come by almost as much.)
const DEFAULT_WORKLOADS: [&str; 6] = [
    "scripts",
    "cases",
    "ace:1",
    "seq:1",
    "flushed:20",
    "random:60",
];
/// What one of the cases needs to show what it is about.
const STATES_OF_A_CASE: u64 = 1000;
/// What each other workload gets where nothing is asked for: a run of all mechanisms has to end in
/// minutes.
const STATES_OF_OTHERS: u64 = 2000;
/// What a case gets where the image is nearly full: a look at such an image takes ten times as long.
const STATES_OF_FULL: u64 = 200;
/// The exit status of a run that a signal has ended, as shells have it for ^C.
const INTERRUPTED: u8 = 130;
/// What a script or a case gets once more with torn blocks.
const STATES_OF_TORN: u64 = 300;
/// The image is kept in memory, and so are its forks' differences.
const SIZES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;

/// Explore what a crash can leave of the file system itself.
///
/// Runs workloads in memory. At every moment, each set of changes that includes all that must be on
/// the disk before them is a state that a crash can leave. Each state is checked, mounted and
/// compared with what was promised; a sample is reclaimed, with further crashes.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Workloads:
  ace:1, ace:2     ACE's sequences of one and two operations, each with fsync or sync
  seq:1, seq:2     one and two operations on a small tree, each with fsync, fdatasync, sync or nothing
  random:N         N random ones of up to fifteen operations
  guided:N         N of up to 24 operations, drawn and mutated until they come by rules in ways that others do not: found anew for each
                   mechanism, some 50 tried for each that is taken
  flushed:N        N of programs that fsync most of what they create and append
  scripts          sequences written for one rule of the file system each
  long:N           N sessions of more than 200 operations, something of which is flushed again and again
  cases            all of the following, each a few scripts around one thing:
    fsync          each kind of change between two calls of fsync, fdatasync or sync
    indirect       single, double and triple indirect blocks: made, extended, cut, made again
    attributes     attribute blocks: changed in place, shared, unshared, freed; access control lists
    links          three names of a file, removed in every order and made again; renames over them
    moves          names exchanged, directories moved up and down
    index          directories of several blocks, whose index splits
    reuse          blocks and inodes freed and used again, as something else
    full           images that are nearly full
    orphans        files without names that are open
    cuts           truncations, and growth behind them
    holes          holes, filled and punched, and reserved space
    fragments      files and directories that end within a block of several fragments
    log            journals that wrap, revoke, meet their magic number, or end their sequence numbers
    crashes        power cuts with work between them, and mounts with another mechanism
  FILE             ACE's files (lines of '## NAME' between workloads), or a script as --script takes it, or a recorded trace
More than one may be given, with commas. Those of two operations come in an order that depends on the seed. Of each script of the cases,
under each variant, 1000 new states are visited unless --states-each says otherwise; without arguments, 2000 of each other workload, and 300 more of each
script and case with torn blocks.

The first ^C ends the run with the figures of what has been explored; the second one kills it.

Exit status: 0 no failure found, 1 a failure found or the command could not run, 2 wrong usage, 130 interrupted.

Examples:
  backstitch crash fs
  backstitch crash fs --ordering soft,sync --workload ace:1,random:500 --e2fsck 1000 --html report.html
  backstitch crash fs --ordering async --json
  backstitch crash fs --ordering async,scheduler --disk viking
  backstitch crash fs --script 'creat foo; write foo 0 5000; fsync foo; rename foo bar'")]
pub(crate) struct Args {
    /// The mechanisms, as mount --ordering takes them. Without this and without a workload or a script all but async; else soft
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    ordering: Vec<Ordering>,
    /// The workloads, see below; scripts, cases, ace:1, seq:1, flushed:20 and random:60 where none
    /// is given
    #[arg(long, value_name = "WORKLOAD,…", value_delimiter = ',')]
    workload: Vec<String>,
    /// Operations to run, separated by semicolons
    #[arg(long, value_name = "OPERATIONS", conflicts_with = "workload")]
    script: Option<String>,
    /// Stop after about N states of each mechanism
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true, value_parser = clap::value_parser!(u64).range(1..))]
    states: u64,
    /// Stop each workload, under each variant, after about N states that are new
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    states_each: Option<u64>,
    /// The seed of the random samples
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Tear blocks at sectors of 512 bytes; order is then kept between sectors (atomic=512)
    #[arg(long)]
    torn: bool,
    /// Explore what this simulated disk's queue and cache may leave, a preset or a .toml file as bench
    /// takes it; by default any set of changes that is in order
    #[arg(long, value_name = "PRESET")]
    disk: Option<String>,
    /// Keep order between units of this size: block, or a number of bytes (as atomic= of mount)
    #[arg(long, value_name = "UNIT")]
    atomic: Option<AtomicUnit>,
    /// The optimisations to run under: none, hard, merge, both
    #[arg(
        long,
        value_name = "OPT,…",
        value_delimiter = ',',
        default_value = "both,none"
    )]
    opt: Vec<Optimisations>,
    /// Sample moments with more sets of changes than this
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    exhaustive: usize,
    /// How many random sets to take at those moments
    #[arg(long, value_name = "N", default_value_t = 1000)]
    samples: usize,
    /// Reclaim every Nth state to the end, with crashes inside; 0 for none
    #[arg(long, value_name = "N", default_value_t = 64)]
    reclaim: u64,
    /// Reclaim every Nth of those again while the file system is in use; by default as --reclaim
    #[arg(long, value_name = "N")]
    in_use: Option<u64>,
    /// Have e2fsck check every Nth state
    #[arg(long, value_name = "N", default_value_t = 0)]
    e2fsck: u64,
    /// Have the kernel mount and read every Nth state (needs root)
    #[arg(long, value_name = "N", default_value_t = 0)]
    kernel: u64,
    /// Stop after N failures
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    failures: u32,
    /// The type of the file system: one of those that mkfs makes. Its journal goes by the ordering
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = usual().name(), hide_default_value = true)]
    layout: Layout,
    /// The size of a block; of a fragment, an eighth of a block, under -t ufs1 and ufs2
    #[arg(short, long, value_name = "BYTES", default_value = "1K", value_parser = size::parse)]
    block_size: u64,
    /// The size of the image
    #[arg(short, long, value_name = "SIZE", default_value = "8M", value_parser = size::parse)]
    size: u64,
    /// Put the journal on a device of its own, under the orderings that use one
    #[arg(long)]
    journal_dev: bool,
    /// Write its commit records together with what they commit, as `mkfs --journal-async-commit`
    /// does
    #[arg(long)]
    journal_async_commit: bool,
    /// The number of threads; by default one for each CPU
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Look only at this state of the script, named as in a failure's report
    #[arg(long, value_name = "STATE", requires = "script")]
    replay: Option<String>,
    /// List the rules of the file system that the workloads did not come by
    #[arg(long)]
    rules: bool,
    #[command(flatten)]
    recorded: Recorded,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(WHAT, None)?;
    args.recorded.check(WHAT)?;
    if let Some(address) = &args.replay {
        open_outputs(args)?;
        let script = args.script.as_deref().unwrap_or_default();
        return replay(args, vec![scripted(WHAT, "script", script)?], address);
    }
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(WHAT, &stop)?;
    let mut reports = Vec::new();
    let mut orderings = orderings(args);
    orderings.dedup();
    let is_first = |ordering: &Ordering| *ordering == orderings[0];
    for ordering in &orderings {
        let workloads = workloads(args, *ordering)?;
        if workloads.iter().all(|w| w.operations.is_empty()) {
            return Err(Error::usage(WHAT, "there is nothing to do: no operations"));
        }
        if is_first(ordering) {
            open_outputs(args)?;
        }
        let report = under(args, *ordering, workloads, &stop)?;
        if orderings.len() > 1 && !args.output.json {
            let line = format!("{ordering}: {}\n", verdict(&report));
            show::print_bytes(WHAT, line.as_bytes())?;
        }
        reports.push(report);
        if stop.load(Relaxed) {
            break;
        }
    }
    let mut report = joined(reports);
    if stop.load(Relaxed) {
        report
            .notes
            .push("Interrupted: the figures are those of what had been explored by then.".into());
    }
    let done = args.output.finish(WHAT, &report, args.rules)?;
    Ok(match stop.load(Relaxed) {
        true => ExitCode::from(INTERRUPTED),
        false => done,
    })
}

/// Refuses what cannot be written before anything is explored.
fn open_outputs(args: &Args) -> Result<()> {
    let outputs = args.output.html.iter().chain(&args.output.keep);
    for path in outputs.chain(&args.recorded.path) {
        let place = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path);
        place.map_err(|error| Error::at_path(WHAT, path, host(&error)))?;
    }
    Ok(())
}

/// Explores under one mechanism.
fn under(
    args: &Args,
    ordering: Ordering,
    workloads: Vec<Workload>,
    stop: &AtomicBool,
) -> Result<Report> {
    let (cases, others): (Vec<_>, Vec<_>) = workloads.into_iter().partition(is_case);
    let is_full = |workload: &Workload| workload.name.starts_with("full/");
    let (full, cases): (Vec<_>, Vec<_>) = cases.into_iter().partition(is_full);
    let mut reports = Vec::new();
    let mut failures = 0;
    let is_whole = args.workload.is_empty() && args.script.is_none();
    let most_of_others = if is_whole { STATES_OF_OTHERS } else { u64::MAX };
    let bounded = [
        (&full, STATES_OF_FULL),
        (&cases, STATES_OF_A_CASE),
        (&others, most_of_others),
    ];
    for (workloads, most_states_each) in bounded {
        let has_ended = failures >= args.failures as usize || stop.load(Relaxed);
        if workloads.is_empty() || has_ended && !reports.is_empty() {
            continue;
        }
        let mut campaign = campaign(args, ordering, workloads.clone())?;
        campaign.most_states_each = args.states_each.unwrap_or(most_states_each);
        let report = explore(args, &campaign, stop)?;
        failures += report.failures.len();
        reports.push(report);
    }
    let goes_on = is_whole && failures == 0 && !stop.load(Relaxed);
    if goes_on && !ordering.one_flush_features().is_empty() {
        reports.push(elsewhere(args, ordering, &cases, stop)?);
    }
    let is_good = reports.iter().all(|report| report.failures.is_empty());
    if is_whole && !args.torn && is_good && !stop.load(Relaxed) {
        reports.push(torn(args, ordering, cases, others, stop)?);
    }
    Ok(joined(reports))
}

/// The scripts and the cases once more, with blocks that are torn at sectors.
fn torn(
    args: &Args,
    ordering: Ordering,
    cases: Vec<Workload>,
    mut others: Vec<Workload>,
    stop: &AtomicBool,
) -> Result<Report> {
    others.retain(|workload| workload.name.starts_with("scripts/"));
    others.extend(cases);
    let args = Args {
        torn: true,
        ..args.clone()
    };
    let mut campaign = campaign(&args, ordering, others)?;
    campaign.most_states_each = args.states_each.unwrap_or(STATES_OF_TORN);
    explore(&args, &campaign, stop)
}

/// The cases about journals once more, with a journal on a device of its own whose commit records
/// do not wait.
fn elsewhere(
    args: &Args,
    ordering: Ordering,
    cases: &[Workload],
    stop: &AtomicBool,
) -> Result<Report> {
    let args = Args {
        journal_dev: true,
        journal_async_commit: true,
        workload: ["log", "reuse", "orphans", "crashes"]
            .map(str::to_owned)
            .to_vec(),
        ..args.clone()
    };
    let is_named = |workload: &&Workload| {
        let name = &workload.name;
        args.workload
            .iter()
            .any(|family| name.starts_with(family.as_str()))
    };
    let cases = cases.iter().filter(is_named).cloned().collect();
    let mut campaign = campaign(&args, ordering, cases)?;
    campaign.most_states_each = args.states_each.unwrap_or(STATES_OF_A_CASE);
    explore(&args, &campaign, stop)
}

fn workloads(args: &Args, ordering: Ordering) -> Result<Vec<Workload>> {
    if let Some(text) = &args.script {
        return Ok(vec![scripted(WHAT, "script", text)?]);
    }
    let campaign = campaign(args, ordering, Vec::new())?;
    named(WHAT, &names(args), &campaign)
}

/// The mechanisms that are explored: where none are named, those that the type has a place for the
/// log of, if they have one.
fn orderings(args: &Args) -> Vec<Ordering> {
    let has_place = |ordering: &Ordering| {
        let words = ordering.image_features();
        words.iter().all(|word| args.layout.has_feature(word))
    };
    let is_all = args.ordering.is_empty() && args.workload.is_empty() && args.script.is_none();
    match (is_all, args.ordering.is_empty()) {
        (true, _) => in_order().filter(has_place).collect(),
        (false, true) => vec![usual_for(false)],
        (false, false) => args.ordering.clone(),
    }
}

/// The names of the workloads.
fn names(args: &Args) -> Vec<String> {
    match args.workload.is_empty() {
        true => DEFAULT_WORKLOADS.map(str::to_owned).to_vec(),
        false => args.workload.clone(),
    }
}

/// What is explored under a mechanism.
fn campaign(args: &Args, ordering: Ordering, workloads: Vec<Workload>) -> Result<Campaign> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let block_bytes = match args.block_size {
        1024 | 2048 | 4096 => args.block_size as u32,
        512 if args.layout.divides_blocks() => 512,
        other => {
            let least = match args.layout.divides_blocks() {
                true => "512, ",
                false => "",
            };
            let why = format!("--block-size {other}: it must be {least}1024, 2048 or 4096");
            return Err(Error::usage(WHAT, why));
        }
    };
    if !SIZES.contains(&args.size) || !args.size.is_multiple_of(args.block_size * 16) {
        let why = format!(
            "--size {}: it must be from 1M to 1G, and a multiple of 16 blocks",
            args.size
        );
        return Err(Error::usage(WHAT, why));
    }
    if (args.e2fsck > 0 || args.kernel > 0) && !Foreign::knows(args.layout) {
        let why = format!(
            "--e2fsck and --kernel judge ext2 and ext3, not {}",
            args.layout.name()
        );
        return Err(Error::usage(WHAT, why));
    }
    let schedules = Schedule::ALL;
    Ok(Campaign {
        ordering,
        workloads,
        variants: args
            .opt
            .iter()
            .flat_map(|opt| schedules.map(|schedule| (*opt, schedule)))
            .collect(),
        image: ImageOptions {
            layout: args.layout,
            size_bytes: args.size,
            block_bytes,
            features: &[],
            journal_device: args.journal_dev,
            journal_features: match args.journal_async_commit {
                true => one_flush_features(),
                false => JournalFeatures::default(),
            },
            ..ImageOptions::default()
        },
        base: None,
        seed: args.seed,
        torn: args.torn,
        drive: drive(args)?,
        unit_bytes: atomic(args).bytes(),
        exhaustive: args.exhaustive,
        samples: args.samples,
        whole_every: args.reclaim,
        in_use_every: args.in_use.unwrap_or(args.reclaim),
        most_states: args.states,
        most_states_each: args.states_each.unwrap_or(u64::MAX),
        most_failures: args.failures as usize,
        threads: args.jobs.unwrap_or(cpus),
    })
}

/// The drive that is named.
fn drive(args: &Args) -> Result<Option<Arc<DriveSpec>>> {
    let Some(name) = &args.disk else {
        return Ok(None);
    };
    let disk = Disk::named(name, args.size, &DiskOptions::default());
    let disk = disk.map_err(|error| Error::failed(WHAT, name, error))?;
    Ok(Some(Arc::new(disk.drive)))
}

/// What the engine is to take for written wholly or not at all.
fn atomic(args: &Args) -> AtomicUnit {
    args.atomic.unwrap_or(match args.torn {
        true => AtomicUnit::Bytes(512),
        false => AtomicUnit::Block,
    })
}

/// Shows how far the exploration is, beside what others see.
struct Progress<'a> {
    bar: ProgressBar,
    foreign: &'a Foreign,
    stop: &'a AtomicBool,
}

impl Observer for Progress<'_> {
    fn thread_starts(&self) {
        backstitch_rules::watch::record(true);
    }

    fn state(&self, state: &backstitch_crash::Fork, fingerprint: u128) -> Option<String> {
        self.foreign.state(state, fingerprint)
    }

    fn progress(&self, runs: usize, of: usize, results: &Results) {
        self.bar.set_length(of as u64);
        self.bar.set_position(runs as u64);
        let (distinct, failed) = (results.distinct, results.failures.len());
        self.bar
            .set_message(format!("{distinct} states, {failed} failed"));
    }

    fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

fn explore(args: &Args, campaign: &Campaign, stop: &AtomicBool) -> Result<Report> {
    let failed =
        |error: &dyn std::fmt::Display| Error::failed(WHAT, "exploring", error.to_string());
    let foreign = Foreign::new(args.e2fsck, args.kernel).map_err(|error| failed(&error))?;
    let progress = Progress {
        bar: progress_bar(&format!("runs under {}, {{msg}}", campaign.ordering)),
        foreign: &foreign,
        stop,
    };
    let started = Instant::now();
    let mut results = campaign.run(&progress).map_err(|error| failed(&error))?;
    let seconds = started.elapsed().as_secs_f64();
    progress.bar.finish_and_clear();
    for failure in &mut results.failures {
        *failure = campaign.minimise(failure).map_err(|error| failed(&error))?;
    }
    for (number, failure) in results.failures.iter_mut().enumerate() {
        let trace = campaign.draw(failure).map_err(|error| failed(&error))?;
        if let Some(trace) = trace.filter(|_| number == 0) {
            args.recorded.keep(WHAT, &trace)?;
        }
    }
    if let (Some(path), Some(failure)) = (&args.output.keep, results.failures.first()) {
        keep(path, failure.state())?;
    }
    let (command, again) = commands(args, campaign.ordering);
    let mut report = campaign.report(&results, &command, &again);
    report.states_per_second = Some(results.distinct as f64 / seconds);
    for (what, count) in [
        ("states_checked_by_e2fsck", &foreign.checked),
        ("states_mounted_by_the_kernel", &foreign.mounted),
    ] {
        let count = count.load(Relaxed);
        if count > 0 {
            report.coverage.insert(what.to_owned(), count);
        }
    }
    Ok(report)
}

/// The command that explores the same again, and the beginning of the one that makes one state
/// again.
fn commands(args: &Args, ordering: Ordering) -> (String, String) {
    let mut common = format!("backstitch crash fs --ordering {ordering}");
    let defaults = ImageOptions::default();
    if args.layout != defaults.layout {
        common += &format!(" --type {}", args.layout.name());
    }
    if args.block_size != u64::from(defaults.block_bytes) {
        common += &format!(" --block-size {}", args.block_size);
    }
    if args.size != defaults.size_bytes {
        common += &format!(" --size {}", args.size);
    }
    if args.torn {
        common += " --torn";
    }
    if let Some(disk) = &args.disk {
        common += &format!(" --disk {}", quoted(disk));
    }
    if args.journal_dev {
        common += " --journal-dev";
    }
    if args.journal_async_commit {
        common += " --journal-async-commit";
    }
    if let Some(unit) = args.atomic {
        common += &format!(" --atomic {unit}");
    }
    // Which states are used, and worked on, hangs on it.
    if let Some(in_use) = args.in_use {
        common += &format!(" --in-use {in_use}");
    }
    let mut command = match &args.script {
        Some(script) => format!("{common} --script {}", quoted(script)),
        None => format!("{common} --workload {}", quoted(&names(args).join(","))),
    };
    command += &format!(" --seed {}", args.seed);
    if args.states != u64::MAX {
        command += &format!(" --states {}", args.states);
    }
    if let Some(states_each) = args.states_each {
        command += &format!(" --states-each {states_each}");
    }
    for (option, value, default) in [
        ("e2fsck", args.e2fsck, 0),
        ("kernel", args.kernel, 0),
        ("failures", u64::from(args.failures), 1),
    ] {
        if value != default {
            command += &format!(" --{option} {value}");
        }
    }
    let opt: Vec<String> = args.opt.iter().map(Optimisations::to_string).collect();
    command += &format!(
        " --opt {} --exhaustive {} --samples {} --reclaim {}",
        opt.join(","),
        args.exhaustive,
        args.samples,
        args.reclaim
    );
    (command, common)
}

/// Keeps a state's image, and beside it the journal's where that has a device of its own.
fn keep(path: &Path, state: &Fork) -> Result<()> {
    let write = |path: &Path, bytes: &[u8]| {
        std::fs::write(path, bytes).map_err(|error| Error::at_path(WHAT, path, host(&error)))
    };
    let (home, journal) = state.to_devices();
    write(path, &home)?;
    match journal {
        Some(journal) => {
            let mut beside = path.as_os_str().to_owned();
            beside.push(".journal");
            write(Path::new(&beside), &journal)
        }
        None => Ok(()),
    }
}

fn replay(args: &Args, workloads: Vec<Workload>, address: &str) -> Result<ExitCode> {
    let operations: Vec<Operation> = workloads.into_iter().flat_map(|w| w.operations).collect();
    let [ordering] = orderings(args)[..] else {
        return Err(Error::usage(WHAT, "--replay is for one --ordering"));
    };
    let campaign = campaign(args, ordering, Vec::new())?;
    let Replayed {
        state,
        verdict,
        trace,
    } = campaign
        .replay(&operations, address)
        .map_err(|error| match error {
            ReplayError::BadAddress(why) => Error::usage(WHAT, format!("--replay: {why}")),
            other => Error::failed(WHAT, address, other.to_string()),
        })?;
    if let Some(path) = &args.output.keep {
        keep(path, &state)?;
    }
    args.recorded.keep(WHAT, &trace)?;
    let text = verdict
        .as_deref()
        .unwrap_or("nothing is wrong with this state");
    match args.output.json {
        true => show::print_json(
            WHAT,
            &serde_json::json!({ "replay": address, "verdict": verdict }),
        )?,
        false => show::print_bytes(WHAT, format!("{text}\n").as_bytes())?,
    }
    Ok(match verdict {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(FAILED),
    })
}

/// One report of those of several mechanisms.
fn joined(mut reports: Vec<Report>) -> Report {
    let mut whole = reports.remove(0);
    for report in reports {
        if !whole.command.ends_with(&report.command) {
            whole.command += "; ";
            whole.command += &report.command;
        }
        whole.states += report.states;
        whole.distinct += report.distinct;
        whole.exhaustive &= report.exhaustive;
        whole.explored += " ";
        whole.explored += &report.explored;
        whole.failures.extend(report.failures);
        whole.leaks_max = whole.leaks_max.max(report.leaks_max);
        whole.states_per_second = match (whole.states_per_second, report.states_per_second) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        whole.rules = match (whole.rules, report.rules) {
            (Some(mut all), Some(more)) => {
                more.into_iter()
                    .for_each(|(rule, counts)| all.entry(rule).or_default().add(&counts));
                Some(all)
            }
            (all, more) => all.or(more),
        };
        whole.notes.extend(report.notes);
        for (what, count) in report.coverage {
            *whole.coverage.entry(what).or_default() += count;
        }
    }
    whole
}
