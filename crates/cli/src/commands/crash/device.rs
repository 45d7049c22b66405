//! `backstitch crash device --base IMAGE --log LOG --check CMD`.

use super::overlay;
use super::print::{Output, progress_bar, quoted, stop_on_signals};
use backstitch_crash_core::check::Check;
use backstitch_crash_core::error::StepError;
use backstitch_crash_core::report::{Progress, Report};
use backstitch_crash_device::{
    CANNOT_SHOW, Options, Recording, ScheduleError, Show, explore, replay,
};
use backstitch_files::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const WHAT: &str = "crash device";

/// Explore what a crash could have left of the recorded writes of any device.
///
/// LOG holds what was written to IMAGE, in the dm-log-writes format. Between two flushes any part
/// of the writes may have reached the disk, in any order. Each such state is made, and CMD judges
/// it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "CMD is run by `sh -c` for each state, as a file that it may write to, and fails with any exit code but 0:
  $1, $BACKSTITCH_IMAGE    the state's path
  $BACKSTITCH_MARKS        the path of a file with the marks that had passed before the crash, a line each
Where a check mounts the state, it needs a directory of its own: with --jobs above 1, checks run side by side. With --copy, a check
that flushes what it repairs, as e2fsck does, is faster with TMPDIR=/dev/shm.

LOG comes from `backstitch crash record`, from QEMU's blklogwrites driver, or from Linux's dm-log-writes.

Exit status: 0 no failure found, 1 a failure found or the command could not run, 2 wrong usage.

Examples:
  backstitch crash device --base before.img --log writes.log --check 'e2fsck -fy $1 > /dev/null; e2fsck -fn $1'
  backstitch crash device --base b.img --log w.log --states 20000 --seed 7 --torn --html report.html --check ./check
  backstitch crash device --base b.img --log w.log --check ./check --replay 117:3f --keep state.img"
)]
pub(crate) struct Args {
    /// The image as it was when the log began
    #[arg(long, value_name = "IMAGE")]
    base: PathBuf,
    /// What was written to it since
    #[arg(long, value_name = "LOG")]
    log: PathBuf,
    /// The command that judges a state
    #[arg(long, value_name = "CMD")]
    check: String,
    /// About how many different states to check at most; samples, if there are more
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    states: u64,
    /// The seed of the random samples
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Tear writes at sectors of 512 bytes
    #[arg(long)]
    torn: bool,
    /// How long CMD may take for a state; longer is a failure
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    timeout: f64,
    /// Copy IMAGE into $TMPDIR and make the states there, instead of showing them through a FUSE
    /// mount; always so without /dev/fuse
    #[arg(long)]
    copy: bool,
    /// How many states to check at once; by default one for each CPU, four at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Look only at this state, named as in a failure's report
    #[arg(long, value_name = "CUT:HEX")]
    replay: Option<String>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match seconds > 0.0 && seconds <= 1e6 {
        true => Ok(seconds),
        false => Err("between 0 and 1000000".to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let recording = Arc::new(Recording::open(&args.base, &args.log).map_err(failed)?);
    if let Some(keep) = &args.output.keep {
        refuse_overwriting(keep, &[&args.base, &args.log])?;
    }
    args.output.check(WHAT, Some(&args.base))?;
    let options = options(args);
    stop_on_signals(WHAT, &options.stop)?;
    let report = match &args.replay {
        Some(state) => replay(&recording, &options, state).map_err(failed)?,
        None => explored(&recording, &options)?,
    };
    args.output.finish(WHAT, &report, false)
}

fn failed(error: ScheduleError) -> Error {
    let text = error.to_string();
    let (place, why) = text.split_once(": ").unwrap_or((&text, ""));
    let shown = Error::failed(WHAT, place, why);
    match error {
        ScheduleError::Step(StepError::Check { .. }) => {
            shown.hint("CMD is run by `sh -c`; it finds the state in $1")
        }
        ScheduleError::Step(StepError::Host { what, .. }) if what == CANNOT_SHOW => {
            shown.hint("--copy does without a FUSE mount")
        }
        ScheduleError::NoState { .. } => shown.hint("take CUT:HEX from a report on the same log"),
        _ => shown,
    }
}

fn refuse_overwriting(keep: &Path, inputs: &[&PathBuf]) -> Result<()> {
    let same = |input: &&&PathBuf| matches!((keep.canonicalize(), input.canonicalize()), (Ok(a), Ok(b)) if a == b);
    match inputs.iter().find(same) {
        Some(_) => Err(Error::at_path(WHAT, keep, "it would be overwritten")),
        None => Ok(()),
    }
}

fn options(args: &Args) -> Options {
    let base = format!(
        "backstitch crash device --base {} --log {} --check {}",
        quoted(&args.base.to_string_lossy()),
        quoted(&args.log.to_string_lossy()),
        quoted(&args.check)
    );
    let mut command = format!("{base} --states {} --seed {}", args.states, args.seed);
    if args.torn {
        command += " --torn";
    }
    let shown = !args.copy && Path::new("/dev/fuse").exists();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    Options {
        check: Check {
            command: args.check.clone(),
            timeout: Duration::from_secs_f64(args.timeout),
        },
        states: args.states,
        seed: args.seed,
        torn: args.torn,
        jobs: args.jobs.map_or(cpus.min(4), usize::from),
        command,
        replay_command: base,
        keep: args.output.keep.clone(),
        overlay: shown.then(|| Arc::new(overlay::show) as Show),
        stop: Arc::default(),
    }
}

fn explored(recording: &Arc<Recording>, options: &Options) -> Result<Report> {
    let bar = progress_bar("states, {msg} failed");
    let report = explore(recording, options, &|progress: Progress| {
        bar.set_length(progress.of);
        bar.set_position(progress.done);
        bar.set_message(progress.failed.to_string());
    });
    bar.finish_and_clear();
    report.map_err(failed)
}
