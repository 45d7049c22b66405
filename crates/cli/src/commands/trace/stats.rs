//! `backstitch trace stats`.

use super::{COMMAND, opened, read, warn_of_missing};
use backstitch_files::error::{Error, Result};
use backstitch_files::show;
use backstitch_trace::stats::Stats;
use std::path::PathBuf;

/// Count what a trace has: patches of each kind of operation, rollbacks and what they waited for,
/// batches in which a wait ended, the age of patches when they reached the disk.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch trace stats t.trace
  backstitch trace stats t.trace --json | jq .rollbacks")]
pub(super) struct Args {
    /// The trace
    file: PathBuf,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let bytes = read(&args.file)?;
    let trace = opened(&args.file, &bytes)?;
    let stats = Stats::of(&trace).map_err(|why| Error::at_path(COMMAND, &args.file, why))?;
    match args.json {
        true => show::print_json(COMMAND, &stats.json())?,
        false => show::print_bytes(COMMAND, stats.text().as_bytes())?,
    }
    warn_of_missing(&args.file, stats.is_cut, stats.lost);
    Ok(())
}
