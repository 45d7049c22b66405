//! `backstitch bench WORKLOAD … TARGET`.

use crate::host_memory;
use crate::options::AtomicUnit;
use backstitch_files::error::{Error, Result};
use backstitch_files::foreign;
use backstitch_files::image::{DeviceOptions, open_device};
use backstitch_files::named::{Named, Part};
use backstitch_files::{show, size};
mod disk;
mod figures;

use backstitch_bench::{
    IMAGE_UUID, JOURNAL_UUID, RecoverySpec, Scale, Series, Spec, Target, Workload, client_specs,
    document, imap_specs, imap_table, measure_recovery, micro_specs, micro_table,
    optimisation_specs, optimisation_tables, plot_optimisations, plot_runs, plot_traces,
    recovery_table, run_line, run_series, run_table,
};
use backstitch_device::BlockDevice;
use backstitch_formats::{Layout, usual};
use backstitch_mechanisms::{Unknown, in_order, usual_for};
use backstitch_vfs::{Optimisations, Ordering, Stats};
use clap::ArgGroup;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Run the papers' workloads and measure what they cost.
///
/// Workloads: untar, delete, andrew and andrew-small (the trees of two papers), zero, postmark,
/// postmark-small and postmark-large (the numbers of three papers), micro-create, micro-read, micro-write and micro-delete (a run for each size of
/// file), sdet (scripts of user commands: 1, 5 and 10 at a time), ssh (unpack, configure, build),
/// netnews, connectathon, fsync (2,000 files of 4 kB, each made durable, with one writer and with
/// eight); recovery (the time to a usable mount after a crash, empty and 76 % full, and the
/// reclaim's); or `optimisations`, figure 9 of Frost et al. 2007: untar, delete, postmark and andrew,
/// or those of them that are named too, with every choice of patch optimisations; imap (1,000
/// messages of 2 kB moved from one mailbox to another, figure 11 of the same: fsync per operation,
/// patchgroups, fsync per durable operation); figures (the papers' tables and figures on their
/// simulated disks, as a page: --plot DIR).
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("target").args(["memory", "image", "dir", "disk"]),
    after_help = "The time runs from the first operation to the return of the final sync. Each run makes a new image:
what FILE held is lost. CPU time is that of this process; with --dir it leaves out what the file system uses elsewhere.
In a backstitch mount, --dir shows the engine's own figures, with peaks since the mount, and the final sync is that of `backstitch sync`.

Examples:
  backstitch bench untar,delete,postmark --ordering soft,async --image /tmp/x.img --runs 3
  backstitch bench optimisations --memory --plot plots/
  backstitch bench optimisations,untar,delete --memory     only these two of its workloads
  backstitch bench optimisations --ordering journal=ordered --memory
  backstitch bench recovery --image /tmp/x.img --runs 5    64 GiB (sparse) with 500,000 files
  backstitch bench imap --flush 0.005                       soft updates and the journals, in memory
  backstitch bench imap --disk st3320620as --ordering soft,journal=full
  backstitch bench postmark --disk viking --ordering soft,sync,async
  backstitch bench figures --plot figures/                  figures/figures.html, ours beside the papers'
  backstitch bench figures --papers 003 --scale 0.1 --json
  backstitch bench zero --memory --record zero.trace && backstitch trace stats zero.trace
  backstitch bench zero --memory --json | jq '.runs[].operations_per_second'
  backstitch bench untar --files 1000 --megabytes 20 --dir /mnt"
)]
pub(crate) struct Args {
    /// The workloads
    #[arg(
        required_unless_present = "list_disks",
        value_name = "WORKLOAD",
        value_delimiter = ','
    )]
    workloads: Vec<String>,
    /// Run on a device in memory
    #[arg(long)]
    memory: bool,
    /// Run on this image file or disk, which is overwritten
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Put the journals, or the log of lffs-wafs=2sync and 2async, on this file or disk, which is
    /// overwritten, instead of inside the image
    #[arg(long, value_name = "FILE", requires = "image")]
    journal_dev: Option<PathBuf>,
    /// Run through system calls in this directory
    #[arg(
        long,
        conflicts_with_all = ["layout", "block_size", "ordering", "opt", "cache", "expire", "atomic", "size", "check"]
    )]
    dir: Option<PathBuf>,
    /// Run on a simulated disk, in virtual time: the name of a preset (--list-disks), or a file
    /// that describes a drive and ends in .toml
    #[arg(long, value_name = "PRESET")]
    disk: Option<String>,
    #[command(flatten)]
    simulated: disk::Args,
    #[command(flatten)]
    figures: figures::FiguresArgs,
    /// The orderings, as mount --ordering takes them: soft is the default; imap runs by default under
    /// all that keep order without a wait at each call and need no second device
    #[arg(long, value_name = "MODE", value_delimiter = ',', value_parser = ordering)]
    ordering: Vec<Ordering>,
    /// The patch optimisations that are on: none, hard, merge, both
    #[arg(long, value_name = "OPT", value_delimiter = ',', default_value = "both", value_parser = optimisations)]
    opt: Vec<Optimisations>,
    /// The type of the file systems that are made: one of those that mkfs makes. Their journals go by the ordering
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = usual().name(), hide_default_value = true)]
    layout: Layout,
    /// The size of a block, with UFS that of a fragment, an eighth of a block; 4096 by default
    #[arg(short, long, value_name = "BYTES", value_parser = size::parse)]
    block_size: Option<u64>,
    /// The size of the file system, with K, M, G or T behind the number; by default 4G, and 64G for
    /// recovery
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// The bound on buffers; by default 256M, with --image as much more for unwritten changes as a
    /// mount has, and with --disk what its host had
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    cache: Option<u64>,
    /// How long a change may stay in memory only; 30 by default
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    expire: Option<f64>,
    /// What order is kept between (atomic= of mount): block (the default), or a number of bytes
    #[arg(long, value_name = "UNIT")]
    atomic: Option<AtomicUnit>,
    /// What everything random is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Repeat each run, interleaved; shows the median, the least and the largest
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// This part of the papers' numbers of files, transactions and megabytes
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    scale: Option<f64>,
    /// Files of the tree (untar, delete, andrew, ssh), of the pool (postmark, netnews), created (zero,
    /// micro-…) or there (recovery), messages (imap)
    #[arg(long, value_name = "N", conflicts_with = "scale")]
    files: Option<u64>,
    /// What the tree's files hold, in MiB
    #[arg(long, value_name = "M", conflicts_with = "scale", value_parser = seconds)]
    megabytes: Option<f64>,
    /// PostMark's transactions
    #[arg(long, value_name = "N", conflicts_with = "scale")]
    transactions: Option<u64>,
    /// PostMark's smallest file; the smallest of micro-…'s sizes to run; the size of a message (imap)
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    min_bytes: Option<u64>,
    /// PostMark's largest file; the largest of micro-…'s sizes to run
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_bytes: Option<u64>,
    /// How many writers fsync has at a time (by default 1, and then 8), or scripts sdet has (by default
    /// 1, 5, 10)
    #[arg(long, value_name = "N", conflicts_with = "scale", value_parser = clap::value_parser!(u64).range(1..=1000))]
    writers: Option<u64>,
    /// How long each flush of the device in memory takes; 0, and 0.005 of imap
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    flush: Option<f64>,
    /// Record the patches of the run into this file, for backstitch trace; of several runs, the last
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    record: Option<PathBuf>,
    /// Check the image after each run
    #[arg(long)]
    check: bool,
    /// Draw an SVG into this directory; of figures, a page and an SVG for each
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Say what each run took as soon as it is done, on standard error (always done on a terminal)
    #[arg(long)]
    progress: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

impl Args {
    fn orderings(&self) -> Vec<Ordering> {
        match self.ordering[..] {
            // Under others one of the ways is unsafe, or costs nothing.
            [] if self.is_imap() => in_order()
                .filter(|o| !o.promises().answers_once_stable && !o.needs_log_device())
                .collect(),
            [] => vec![usual_for(false)],
            _ => self.ordering.clone(),
        }
    }

    /// Whether it is `imap` alone.
    fn is_imap(&self) -> bool {
        self.workloads == [IMAP]
    }

    /// What a flush costs on a device in memory.
    fn flush(&self) -> Duration {
        let seconds = match self.is_imap() {
            true => IMAP_FLUSH_SECONDS,
            false => 0.0,
        };
        // More than a minute makes no run better.
        Duration::from_secs_f64(self.flush.unwrap_or(seconds).min(60.0))
    }
}

/// The mail server, whose waits are what is measured.
const IMAP: &str = "imap";
/// What a flush costs there.
const IMAP_FLUSH_SECONDS: f64 = 0.005;

/// What stands for the workloads of figure 9.
const OPTIMISATIONS: &str = "optimisations";

fn ordering(text: &str) -> std::result::Result<Ordering, String> {
    text.parse().map_err(|error: Unknown| error.to_string())
}

fn optimisations(text: &str) -> std::result::Result<Optimisations, String> {
    text.parse()
        .map_err(|_| "one of none, hard, merge, both".to_owned())
}

pub(super) fn seconds(text: &str) -> std::result::Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("not a number: '{text}'"))
}

fn fraction(text: &str) -> std::result::Result<f64, String> {
    let number = seconds(text)?;
    let fits = number > 0.0 && number <= 100.0;
    fits.then_some(number)
        .ok_or_else(|| format!("not above 0 and up to 100: '{text}'"))
}

/// The workload that makes images of its own, and is about nothing but mounting.
const RECOVERY: &str = "recovery";

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.simulated.list_disks {
        return disk::list();
    }
    if args.workloads.iter().any(|name| name == figures::FIGURES) {
        return figures::run(args);
    }
    if args.figures.is_given() {
        let why = "--papers and --reduced are about `bench figures`";
        return Err(Error::usage("bench", why));
    }
    if args.workloads.iter().any(|name| name == RECOVERY) {
        return recovery(args);
    }
    let is_table = args.workloads.iter().any(|name| name == OPTIMISATIONS);
    let specs = specs(args, is_table)?;
    args.simulated
        .check(args.disk.is_some(), specs.len() * usize::from(args.runs))?;
    refuse_to_overwrite(args)?;
    if let Some(directory) = &args.plot {
        // Before the runs, which take a while.
        std::fs::create_dir_all(directory).map_err(|error| {
            Error::at_path("bench", directory, backstitch_files::error::host(&error))
        })?;
    }
    let bar = bar();
    let all = run_series(&specs, args.runs.into(), |spec, round, done| {
        let (ordering, opt) = (spec.ordering, spec.optimisations);
        if let Some(run) = done {
            if args.progress {
                bar.suspend(|| eprintln!("{}", run_line(run)));
            } else {
                bar.println(run_line(run));
            }
            return;
        }
        bar.set_message(match &spec.target {
            Target::Directory(_) => format!("{}, run {}", spec.workload, round + 1),
            _ => format!("{}, {ordering}, {opt}, run {}", spec.workload, round + 1),
        });
    });
    bar.finish_and_clear();
    let all = all.map_err(|error| Error::failed("bench", args.workloads.join(","), error))?;
    plot(args, &all, is_table)?;
    args.simulated.write_trace(&all)?;
    if args.json {
        return show::print_json("bench", &document(&all, args.seed));
    }
    let text = if is_table {
        optimisation_tables(&all)
    } else if args.is_imap() {
        imap_table(&all)
    } else {
        run_table(&all) + "\n" + &micro_table(&all)
    };
    let text = text.trim_end().to_owned() + "\n";
    show::print_bytes("bench", text.as_bytes())
}

fn recovery(args: &Args) -> Result<()> {
    let refuse = |why: &str| Err(Error::usage("bench", format!("{RECOVERY} {why}")));
    if args.workloads.len() > 1 {
        return refuse("is measured alone");
    }
    if args.memory || args.dir.is_some() || args.disk.is_some() {
        return refuse(
            "is about images on a device: --image FILE, or none for one in the directory for temporary files",
        );
    }
    if args.orderings() != [usual_for(false)] || args.opt != [Optimisations::BOTH] {
        return refuse("is about soft updates, with all optimisations");
    }
    let unfit = [
        ("--megabytes", args.megabytes.is_some()),
        ("--transactions", args.transactions.is_some()),
        ("--min-bytes", args.min_bytes.is_some()),
        ("--max-bytes", args.max_bytes.is_some()),
        ("--expire", args.expire.is_some()),
        ("--atomic", args.atomic.is_some()),
        ("--plot", args.plot.is_some()),
        ("--journal-dev", args.journal_dev.is_some()),
    ];
    if let Some((option, _)) = unfit.iter().find(|(_, given)| *given) {
        return refuse(&format!("takes no {option}"));
    }
    refuse_to_overwrite(args)?;
    let fraction = args.scale.unwrap_or(1.0);
    let part = |full: u64| (full as f64 * fraction) as u64;
    let scratch = std::env::temp_dir().join(format!("backstitch-{}.img", std::process::id()));
    let image = args.image.clone().unwrap_or_else(|| scratch.clone());
    let spec = RecoverySpec {
        layout: args.layout,
        image: image.clone(),
        size_bytes: args.size.unwrap_or_else(|| part(64 << 30)),
        files: args.files.unwrap_or_else(|| part(500_000)),
        runs: args.runs.into(),
        cache_bytes: args.cache.unwrap_or(256 << 20),
        seed: args.seed,
        check: args.check,
    };
    let bar = bar();
    let measured = measure_recovery(&spec, |doing| bar.set_message(doing.to_owned()));
    bar.finish_and_clear();
    if image == scratch {
        let _ = std::fs::remove_file(&scratch);
    }
    let series = measured.map_err(|error| Error::at_path("bench", &image, error))?;
    if args.json {
        return show::print_json("bench", &document(&[series], args.seed));
    }
    show::print_bytes("bench", recovery_table(&series).as_bytes())
}

/// What is overwritten must be new, or hold nothing that is recognised, or be of an earlier run.
fn refuse_to_overwrite(args: &Args) -> Result<()> {
    let paths = [args.image.as_ref(), args.journal_dev.as_ref()];
    for path in paths.into_iter().flatten() {
        if Named::of("bench", path)?.part != Part::Whole {
            let why = "a benchmark takes a whole file or disk";
            return Err(Error::at_path("bench", path, why));
        }
        if !path.exists() {
            continue;
        }
        let read_only = DeviceOptions {
            read_only: true,
            ..DeviceOptions::default()
        };
        let device = open_device("bench", path, read_only)?;
        if let Some(found) = foreign::found(&*device)
            && !is_of_a_run(&*device)
        {
            let why = format!("it holds {}, which would be overwritten", found.name);
            let hint = "a benchmark overwrites new files, empty ones, and its own of earlier runs";
            return Err(Error::at_path("bench", path, why).hint(hint));
        }
    }
    Ok(())
}

/// Whether a benchmark made what a device holds: its file systems and journals have numbers of
/// their own.
fn is_of_a_run(device: &dyn BlockDevice) -> bool {
    let number = backstitch_formats::of(device).uuid_on(device);
    number.is_some_and(|number| [IMAGE_UUID, JOURNAL_UUID].contains(&number))
}

fn plot(args: &Args, all: &[Series], is_table: bool) -> Result<()> {
    let Some(directory) = &args.plot else {
        return Ok(());
    };
    let drawn = match is_table {
        true => plot_optimisations(all, directory).map(drop),
        false => plot_runs(all, directory).and_then(|_| plot_traces(all, directory)),
    };
    drawn.map_err(|error| Error::at_path("bench", directory, error))
}

fn specs(args: &Args, is_table: bool) -> Result<Vec<Spec>> {
    let workloads = workloads(args)?;
    let target = target(args)?;
    let of_disk = match &target {
        Target::Disk(disk) => disk.buffer_bytes,
        _ => None,
    };
    // On other targets runs are the same on every machine.
    let is_as_mounted = args.cache.is_none() && matches!(target, Target::Image { .. });
    let base = Spec {
        workload: Workload::Untar,
        scale: Scale {
            files: args.files,
            megabytes: args.megabytes,
            transactions: args.transactions,
            min_bytes: args.min_bytes,
            max_bytes: args.max_bytes,
            writers: args.writers,
            fraction: args.scale,
        },
        layout: args.layout,
        unit_bytes: args
            .block_size
            .map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
        ordering: args.orderings()[0],
        optimisations: Optimisations::BOTH,
        target,
        journal_device: journal_device(args)?,
        cache_bytes: args.cache.or(of_disk).unwrap_or(256 << 20),
        dirty_bytes: is_as_mounted.then(host_memory::dirty_bytes).unwrap_or(0),
        expire_seconds: args.expire.unwrap_or(30.0),
        atomic_bytes: args.atomic.and_then(AtomicUnit::bytes),
        seed: args.seed,
        trace: args.disk.is_some() && (args.simulated.trace.is_some() || args.plot.is_some()),
        check: args.check,
        record: args.record.clone(),
        mount_stats: Some(mount_stats),
    };
    if is_table {
        check_table(args, &base)?;
        let mut specs = optimisation_specs(&base);
        specs.retain(|spec| workloads.is_empty() || workloads.contains(&spec.workload));
        return Ok(specs);
    }
    let mut specs = Vec::new();
    for workload in workloads {
        for optimisations in &args.opt {
            for ordering in args.orderings() {
                let spec = Spec {
                    workload,
                    ordering,
                    optimisations: *optimisations,
                    ..base.clone()
                };
                match workload {
                    _ if workload.is_micro() => specs.extend(micro_specs(&spec)),
                    _ if workload.has_clients() => specs.extend(client_specs(&spec)),
                    Workload::Imap(_) => specs.extend(imap_specs(&spec)),
                    _ => specs.push(spec),
                }
            }
        }
    }
    if specs.is_empty() {
        let why =
            "micro-…: none of its sizes (2K, 4K … 4M) lies between --min-bytes and --max-bytes";
        return Err(Error::usage("bench", why));
    }
    Ok(specs)
}

fn workloads(args: &Args) -> Result<Vec<Workload>> {
    let mut workloads = Vec::new();
    for name in args.workloads.iter().filter(|name| *name != OPTIMISATIONS) {
        workloads.push(name.parse().map_err(|why| {
            let why: String = why;
            Error::usage("bench", why)
        })?);
    }
    Ok(workloads)
}

/// What makes no sense with `optimisations`.
fn check_table(args: &Args, base: &Spec) -> Result<()> {
    let refuse = |why: &str| Err(Error::usage("bench", format!("{OPTIMISATIONS} {why}")));
    let only_fraction = Scale {
        fraction: base.scale.fraction,
        ..Scale::default()
    };
    if base.scale != only_fraction && args.workloads.len() != 2 {
        return refuse("runs several workloads: --scale changes the size of all");
    }
    if args.cache.is_some() || args.expire.is_some() {
        return refuse(
            "keeps everything in memory until the sync: --cache and --expire say otherwise",
        );
    }
    if args.orderings().len() > 1 || args.opt != [Optimisations::BOTH] {
        return refuse("runs every --opt under one ordering");
    }
    match base.target {
        Target::Directory(_) => refuse("is about our engine: --memory or --image"),
        _ => Ok(()),
    }
}

fn target(args: &Args) -> Result<Target> {
    let size_bytes = args.size.unwrap_or(4 << 30);
    let refuse = |why: &str| Err(Error::usage("bench", why));
    if args.dir.is_some() && args.workloads.iter().any(|name| name == IMAP) {
        return refuse(
            "imap needs patchgroups, which --dir has none of: --memory, --image or --disk",
        );
    }
    if args.flush.is_some() && (args.image.is_some() || args.dir.is_some() || args.disk.is_some()) {
        return refuse("--flush is about a device in memory: others take the time that they take");
    }
    if let Some(name) = &args.disk {
        return args.simulated.target(name, size_bytes);
    }
    match (&args.image, &args.dir) {
        (Some(path), _) => Ok(Target::Image {
            path: path.clone(),
            size_bytes,
        }),
        (None, Some(dir)) => Ok(Target::Directory(dir.clone())),
        (None, None) if args.memory || args.is_imap() => Ok(Target::Memory {
            size_bytes,
            flush: args.flush(),
        }),
        (None, None) => {
            let why =
                "nothing to run on: --memory, --image FILE, --disk PRESET or --dir DIR is missing";
            Err(Error::usage("bench", why))
        }
    }
}

/// Where the journals are to be: not every log can be on a device of its own, and some must.
fn journal_device(args: &Args) -> Result<Option<PathBuf>> {
    let refuse = |why: String| Err(Error::usage("bench", why));
    let orderings = args.orderings();
    let option = match (&args.journal_dev, &args.simulated.log_device) {
        (Some(_), _) => Some("--journal-dev"),
        (None, Some(_)) => Some("--log-device"),
        (None, None) => None,
    };
    if let Some(option) = option
        && let Some(other) = orderings.iter().find(|o| !o.takes_log_device())
    {
        let what = match other.has_log() {
            true => "has its log with the file system",
            false => "has none",
        };
        return refuse(format!(
            "{option} is for a log on a device of its own: {other} {what}"
        ));
    }
    if option.is_none()
        && args.image.is_some()
        && let Some(other) = orderings.iter().find(|o| o.needs_log_device())
    {
        return refuse(format!(
            "{other} has its log on another device: --journal-dev FILE"
        ));
    }
    Ok(args.journal_dev.clone())
}

/// The counters of the mount of ours that a directory is in.
fn mount_stats(directory: &Path) -> Option<Stats> {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| path.metadata().ok().map(|seen| seen.dev());
    let absolute = directory.canonicalize().ok()?;
    let inside = device(&absolute)?;
    let found = absolute
        .ancestors()
        .take_while(|above| device(above) == Some(inside))
        .find_map(|above| backstitch_fuse::stats_of(above).ok())?;
    serde_json::from_value(found).ok()
}

/// What is being done, on a terminal only.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
        bar.set_style(style);
    }
    // Seldom, for it costs what is being measured.
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}
