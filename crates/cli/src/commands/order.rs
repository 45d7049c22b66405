//! `backstitch order -- CMD`.

use backstitch_files::error::{Error, Result, host};
use patchgroup::Group;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Run a program whose fsyncs do not wait for the disk: each becomes a point of order. After a
/// crash its files are as they were at one of these points or between two of them, possibly at an
/// earlier one than the last.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "fsync, fdatasync, msync, O_SYNC and renames that may replace a file become points of order, in the program and in all that it
starts. Renames are among them because many programs rely on them without calling fsync.

Examples:
  backstitch order -- git clone https://example.org/x /mnt/x
  backstitch order --durable-every 5 --in /mnt -- dpkg --root=/mnt -i a.deb"
)]
pub(crate) struct Args {
    /// A path in the mount
    #[arg(long = "in", value_name = "PATH", default_value = ".")]
    inside: PathBuf,
    /// After a crash, lose at most the work of this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    durable_every: Option<Duration>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let number: Option<f64> = text.parse().ok();
    let number = number.filter(|n| (0.001..=1e6).contains(n));
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("not between 0.001 and a million seconds: '{text}'"))
}

/// Becomes the program, which has the group from then on, and its children.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let failed = |error: &std::io::Error| Error::at_path("order", &args.inside, host(error));
    let group = Group::create_in(&args.inside).map_err(|error| failed(&error))?;
    if !group.is_supported() {
        let why = "no patchgroups here: not in a backstitch mount that can be reached";
        return Err(Error::at_path("order", &args.inside, why).hint("--in names the mount"));
    }
    group
        .order(args.durable_every)
        .and_then(|()| group.engage())
        .map_err(|error| failed(&error))?;
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| Error::usage("order", "a program is missing"))?;
    let error = Command::new(program).args(arguments).exec();
    Err(Error::failed("order", program.display(), host(&error)))
}
