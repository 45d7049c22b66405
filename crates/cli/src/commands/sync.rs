//! `backstitch sync DIR`.

use crate::commands::stats::failure;
use crate::error::Result;
use std::path::PathBuf;

/// Put everything that was changed in a mount onto stable storage: what syncfs(2) is for, of which Linux does not tell FUSE mounts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch sync /mnt
  backstitch sync /mnt/some/file     the same: the mount that it lies in

fsync, fdatasync, O_SYNC, O_DSYNC and msync of a file work as everywhere and need no help from this.")]
pub(crate) struct Args {
    /// Where it is mounted, or anything inside
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    backstitch_fuse::sync_of(&args.dir).map_err(|error| failure("sync", &args.dir, &error))
}
