//! `backstitch crash app --run CMD --check CMD`.

use super::device::seconds;
use super::print::{Output, Recorded, progress_bar, quoted, stop_on_signals};
use backstitch_crash_app::{AppError, Geometry, Options, Program, Start, Trace, explore, replay};
use backstitch_crash_core::check::Check;
use backstitch_crash_core::error::StepError;
use backstitch_crash_core::operation::Operation;
use backstitch_crash_core::report::{Progress, Report};
use backstitch_files::error::{Error, Result};
use backstitch_files::foreign;
use backstitch_files::size;
use backstitch_mechanisms::usual_for;
use backstitch_vfs::Ordering;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const WHAT: &str = "crash app";
/// What to do where the shell does not find a script.
const WHOLE_PATH: &str = "a program or a script of yours needs its whole path, in double quotes so that your shell knows it: \"sh $PWD/save.sh\"";

/// Explore what a crash can leave of a program's files.
///
/// The program runs once, on a mount of its own, and its operations are then repeated. At every
/// moment, each set of changes that a power cut could have left on the disk is a state. Each chosen
/// state is recovered and mounted, and the check judges it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Both commands are run by `sh -c`, with the mount as their directory, in $1 and in $BACKSTITCH_DIR: a script of yours
needs its whole path. The check fails with any exit code but 0. It may write: each state is a copy. It also gets
  $BACKSTITCH_OUTPUT       the path of a file with what the program had written to its standard output before the crash: what
                           it reported as done must be done. The program must not buffer that output.

Without --run, --trace names a trace recorded before. The same trace, seed and check make the same report. `backstitch crash fs
--workload FILE` explores a trace too, with the file system's promises as the judge.

With --ordering async, a state with damage that `fsck -p` does not repair is a failure too.

Root is not needed where FUSE allows a user to mount.

Exit status: 0 no failure found, 1 a failure found, the command could not run or changed nothing in its mount, 2 wrong usage.

Examples:
  backstitch crash app --run \"sh $PWD/save.sh\" --check \"sh $PWD/check.sh\"
  backstitch crash app --ordering async --run $PWD/program --check $PWD/check --states 2000 --html report.html
  backstitch crash app --setup \"sqlite3 db < $PWD/schema.sql\" --run $PWD/insert --check 'sqlite3 db \"PRAGMA integrity_check\" | grep -qx ok'
  backstitch crash app --run $PWD/program --check $PWD/check --trace program.trace
  backstitch crash app --trace program.trace --check $PWD/check --replay nothing/both/12/but-3 --keep state.img"
)]
pub(crate) struct Args {
    /// The consistency mechanism, as mount --ordering takes it
    #[arg(long, value_name = "MODE", default_value_t = usual_for(false), value_parser = ordering)]
    ordering: Ordering,
    /// The program
    #[arg(long, value_name = "CMD", required_unless_present = "trace")]
    run: Option<String>,
    /// What runs before it; its files are on the disk when the program begins
    #[arg(long, value_name = "CMD", requires = "run")]
    setup: Option<String>,
    /// The command that judges a state
    #[arg(long, value_name = "CMD")]
    check: String,
    /// How many states to check at most
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    states: u64,
    /// The seed of the random samples
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How long the check may take for a state; longer is a failure
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    timeout: f64,
    /// How many states to check at once; by default one for each CPU, four at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    /// The size of the file system
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    size: u64,
    /// The size of its blocks: 1024, 2048 or 4096. A block is stored wholly or not at all
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = size::parse)]
    block_size: u64,
    /// Start on a copy of this image instead of an empty file system
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Start on a volume of zeros, which the program finds as the one file `volume`: what it writes
    /// are blocks (see mount -o raw)
    #[arg(long, requires = "run", conflicts_with_all = ["image"])]
    raw: bool,
    /// With --run, where the trace goes (by default it is kept only where a state fails, as
    /// backstitch-crash-app.trace in the current directory); without, the trace to explore
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Look only at this state of --trace, named as in a failure's report
    #[arg(long, value_name = "PLACE", requires = "trace", conflicts_with = "run")]
    replay: Option<String>,
    /// Explore what would be left if the program had not used patchgroups (`order` and `depend` use
    /// them too)
    #[arg(long)]
    without_groups: bool,
    #[command(flatten)]
    recorded: Recorded,
    #[command(flatten)]
    output: Output,
}

fn ordering(text: &str) -> std::result::Result<Ordering, String> {
    text.parse()
        .map_err(|error: backstitch_mechanisms::Unknown| error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(WHAT, None)?;
    args.recorded.check(WHAT)?;
    if let (Some(trace), true) = (&args.trace, args.run.is_some()) {
        foreign::refuse_output(WHAT, trace, None)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(WHAT, &stop)?;
    let trace_place = args.trace.clone().unwrap_or_else(unnamed_trace);
    let recorded = match &args.run {
        Some(command) => recorded(args, command, &stop)?,
        None => Trace::load(&trace_place).map_err(failed)?,
    };
    if args.run.is_some() && args.trace.is_some() {
        recorded.save(&trace_place).map_err(failed)?;
    }
    let stripped = args
        .without_groups
        .then(|| recorded.clone().without_groups());
    let trace = stripped.as_ref().unwrap_or(&recorded);
    if !trace.operations[trace.setup..].iter().any(changes) {
        let why = "it changed nothing in its mount, so that there is no state to check";
        let what = args.run.as_deref().unwrap_or("--trace");
        return Err(Error::failed(WHAT, what, why).hint(
            "the program is to work in the mount: its current directory, which is also in $1 and $BACKSTITCH_DIR",
        ));
    }
    let options = options(args, &trace_place, stop);
    let mut report = match &args.replay {
        Some(state) => replay(trace, &options, state).map_err(failed)?,
        None => explored(trace, &options)?,
    };
    if args.trace.is_none() && !report.is_good() {
        // A failing state is nothing without the trace. As it was recorded: the replay lines say
        // --without-groups themselves.
        recorded.save(&trace_place).map_err(failed)?;
        report.notes.push(format!(
            "The replay lines need the trace, which is in {}; the next failing run here replaces it, unless --trace FILE names another place.",
            trace_place.display()
        ));
    }
    args.output.finish(WHAT, &report, false)
}

/// Whether something may differ on the disk after an operation.
fn changes(operation: &Operation) -> bool {
    let is_change = !matches!(
        operation,
        Operation::Open(_) | Operation::Close(_) | Operation::Said(_)
    );
    is_change && !operation.is_flush()
}

/// Where the trace of a failing program goes if nobody named a place: the current directory, or the
/// one for temporary files where that cannot be written.
fn unnamed_trace() -> PathBuf {
    match rustix::fs::access(".", rustix::fs::Access::WRITE_OK) {
        Ok(()) => PathBuf::from("backstitch-crash-app.trace"),
        Err(_) => {
            let name = format!("backstitch-crash-app-{}.trace", std::process::id());
            std::env::temp_dir().join(name)
        }
    }
}

/// Runs the program.
fn recorded(args: &Args, command: &str, stop: &Arc<AtomicBool>) -> Result<Trace> {
    let geometry = match &args.image {
        Some(path) => Geometry::of_image(path).map_err(failed)?,
        None => Geometry {
            size_bytes: args.size,
            block_bytes: match args.block_size {
                1024 | 2048 | 4096 => args.block_size as u32,
                other => {
                    let why = format!("a block size of {other}: 1024, 2048 or 4096 expected");
                    return Err(Error::usage(WHAT, why));
                }
            },
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            start: match args.raw {
                true => Start::Raw,
                false => Start::Empty,
            },
        },
    };
    if !geometry
        .size_bytes
        .is_multiple_of(geometry.block_bytes.into())
    {
        return Err(Error::usage(
            WHAT,
            "the size must be a whole number of blocks",
        ));
    }
    if args.raw && args.ordering.has_log() {
        return Err(Error::usage(
            WHAT,
            "a raw volume has no journal: --ordering soft, sync or async",
        ));
    }
    let program = Program {
        command: command.to_owned(),
        setup: args.setup.clone(),
        ordering: args.ordering,
        geometry,
        image: args.image.clone(),
        stop: stop.clone(),
    };
    program.record().map_err(failed)
}

fn failed(error: AppError) -> Error {
    let text = error.to_string();
    let (place, why) = text.split_once(": ").unwrap_or((&text, ""));
    let shown = Error::failed(WHAT, place, why);
    match error {
        AppError::Mount(_) => shown.hint("without root, fusermount3 (Debian package fuse3) mounts"),
        // What a shell ends with where there is no such command or script.
        AppError::Program { status, .. } if matches!(status.code(), Some(2 | 126 | 127)) => {
            shown.hint(format!("it is run by `sh -c` in the mount: {WHOLE_PATH}"))
        }
        AppError::Program { .. } => shown
            .hint("it is run by `sh -c` in the mount; let it end with `|| true` where it may fail"),
        AppError::NoState { .. } => {
            shown.hint("take the state from a report on the same trace, with the same --ordering")
        }
        AppError::Step(StepError::Check { .. }) => shown.hint(format!(
            "CMD is run by `sh -c` in the mounted state, which is also in $1: {WHOLE_PATH}"
        )),
        _ => shown,
    }
}

fn options(args: &Args, trace: &Path, stop: Arc<AtomicBool>) -> Options {
    let mut base = format!(
        "backstitch crash app --ordering {} --trace {} --check {}",
        args.ordering,
        quoted(&trace.to_string_lossy()),
        quoted(&args.check)
    );
    if let Some(image) = &args.image {
        base += &format!(" --image {}", quoted(&image.to_string_lossy()));
    }
    if args.without_groups {
        base += " --without-groups";
    }
    let command = format!("{base} --states {} --seed {}", args.states, args.seed);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    Options {
        ordering: args.ordering,
        check: Check {
            command: args.check.clone(),
            timeout: Duration::from_secs_f64(args.timeout),
        },
        states: args.states,
        seed: args.seed,
        jobs: args.jobs.map_or(cpus.min(4), usize::from),
        image: args.image.clone(),
        command,
        replay_command: base,
        keep: args.output.keep.clone(),
        record: args.recorded.path.clone(),
        stop,
    }
}

fn explored(trace: &Trace, options: &Options) -> Result<Report> {
    let bar = progress_bar("states, {msg} failed");
    let report = explore(trace, options, &|progress: Progress| {
        bar.set_length(progress.of);
        bar.set_position(progress.done);
        bar.set_message(progress.failed.to_string());
    });
    bar.finish_and_clear();
    report.map_err(failed)
}
