//! `backstitch sync DIR`.

use crate::commands::stats::failure;
use backstitch_files::error::Result;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Write all changes in a mount to stable storage: what syncfs(2) is for, of which Linux does not
/// tell FUSE mounts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch sync /mnt
  backstitch sync /mnt/some/file     the same: the mount that contains it

fsync, fdatasync, O_SYNC, O_DSYNC and msync of a single file work as usual and do not need this command.")]
pub(crate) struct Args {
    /// Where it is mounted, or anything inside
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    sync_showing(&args.dir).map_err(|error| failure("sync", &args.dir, &error))
}

/// Puts everything of a mount onto stable storage; on a terminal, with how much is left if that
/// takes long.
pub(super) fn sync_showing(dir: &Path) -> std::io::Result<()> {
    const PATIENCE: Duration = Duration::from_millis(500);
    const TICK: Duration = Duration::from_millis(200);
    if !std::io::stderr().is_terminal() {
        return backstitch_fuse::sync_of(dir);
    }
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| backstitch_fuse::sync_of(dir));
        let (started, mut bar) = (Instant::now(), None);
        while !sync.is_finished() {
            // Most are done before anybody could look.
            std::thread::sleep(TICK.min(started.elapsed() + Duration::from_millis(1)));
            if started.elapsed() > PATIENCE {
                let bar = bar.get_or_insert_with(writing_out_bar);
                let left = backstitch_fuse::stats_of(dir).unwrap_or_default();
                if let Some(changes) = left["patches"]["live"].as_u64() {
                    bar.set_message(format!("{changes} changes left, "));
                }
                bar.tick();
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        match sync.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// What shows that something is being written out.
pub(super) fn writing_out_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} writing out, {msg}{elapsed}") {
        bar.set_style(style);
    }
    bar
}
