//! `backstitch fsck IMAGE`, with the exit code of fsck(8).

use crate::error::{Error, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// fsck(8): the check itself could not be done.
const OPERATIONAL: u8 = 8;

/// Check a file system, changing nothing (repairing is not there yet).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status, as fsck(8): 0 clean, 4 damage found, 8 the check could not be done, 16 usage.

Examples:
  backstitch fsck -n disk.img
  backstitch fsck --json disk.img | jq '.findings[] | select(.kind == \"corruption\")'"
)]
pub(crate) struct Args {
    /// The image: a file or a block device
    image: PathBuf,
    /// Only look (the default)
    #[arg(short = 'n', group = "mode")]
    no: bool,
    /// Repair what needs no questions (not there yet)
    #[arg(short = 'p', group = "mode")]
    preen: bool,
    /// Repair everything (not there yet)
    #[arg(short = 'y', group = "mode")]
    yes: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.preen || args.yes {
        let why = "repairing is not there yet; -n checks";
        return Err(Error::at_path("fsck", &args.image, why).exit(OPERATIONAL));
    }
    Err(Error::at_path("fsck", &args.image, "this command is not there yet").exit(OPERATIONAL))
}
