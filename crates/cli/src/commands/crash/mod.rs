//! `backstitch crash`: what a crash can leave.

mod ablate;
mod app;
mod device;
mod fs;
mod overlay;
mod print;
mod record;
mod semantics;
mod workloads;

use backstitch_files::error::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Explore what a crash can leave.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch crash fs --workload ace:1,random:100
  backstitch crash ablate --site name-after-inode
  backstitch crash app --run $PWD/program --check $PWD/check
  backstitch crash record --base before.img --log writes.log disk.img /run/rec
  backstitch crash device --base before.img --log writes.log --check ./check
  backstitch crash semantics --ordering soft,journal=ordered

Each of them has more with --help.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

/// What to explore.
#[derive(Debug, Subcommand)]
enum What {
    Fs(fs::Args),
    Ablate(ablate::Args),
    App(app::Args),
    Device(device::Args),
    Record(record::Args),
    Semantics(semantics::Args),
}

impl Args {
    /// Whether a mount is served meanwhile. What is explored logs nothing: its errors are what is looked
    /// for, and with a rule off they are many.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.what, What::App(_) | What::Record(_))
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.what {
        What::Fs(args) => fs::run(args),
        What::Ablate(args) => ablate::run(args),
        What::App(args) => app::run(args),
        What::Device(args) => device::run(args),
        What::Record(args) => record::run(args),
        What::Semantics(args) => semantics::run(args),
    }
}
