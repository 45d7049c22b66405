//! `backstitch crash`: what a crash can leave.

mod app;
mod device;
mod fs;
mod print;
mod record;

use crate::error::Result;
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
    Fs(fs::Args),
    /// A program on a mount
    App(app::Args),
    /// The recorded writes of any device
    Device(device::Args),
    /// Record what is written to an image
    Record(record::Args),
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.what {
        What::Fs(args) => fs::run(args),
        What::App(args) => app::run(args),
        What::Device(args) => device::run(args),
        What::Record(args) => record::run(args),
    }
}
