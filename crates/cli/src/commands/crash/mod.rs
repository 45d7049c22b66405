//! `backstitch crash`: what a crash can leave.

use crate::error::{Error, Result};
use clap::Subcommand;
use std::process::ExitCode;

/// Explore what a crash can leave.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

/// What to explore.
#[derive(Debug, Subcommand)]
enum What {
    /// The file system itself
    Fs,
    /// A program on a mount
    App,
    /// The recorded writes of any device
    Device,
    /// Record what is written to an image
    Record,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let _ = &args.what;
    Err(Error::failed(
        "crash",
        env!("CARGO_PKG_VERSION"),
        "this command is not there yet",
    ))
}
