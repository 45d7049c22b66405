//! `backstitch man DIR`.

use backstitch_files::error::{Error, Result, host};
use clap::CommandFactory;
use std::path::PathBuf;

/// Write a manual page for backstitch and one for every command into a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch man /usr/local/share/man/man1
  backstitch man /tmp/man && man /tmp/man/backstitch-mount.1")]
pub(crate) struct Args {
    /// The directory, created if it does not exist
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let failed = |error: std::io::Error| Error::at_path("man", &args.dir, host(&error));
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to(crate::args::Cli::command(), &args.dir).map_err(failed)
}
