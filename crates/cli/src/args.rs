//! The commands and what they share.

use crate::commands::{
    bench, cat, completions, cp, crash, depend, find, fsck, info, journal, later, ln, ls, man,
    mkdir, mkfs, mount, mv, order, rm, snapshot, stat, stats, sync, umount, undo,
};
use clap::{Parser, Subcommand};

/// File systems in images and on disks, with soft updates: mounted through FUSE, or worked on in place.
#[derive(Debug, Parser)]
#[command(
    name = "backstitch",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  backstitch mkfs -s 1G -L data disk.img     make an image with an ext2 file system
  backstitch mount disk.img /mnt             mount it; `backstitch umount /mnt` takes it off
  backstitch cp -r src disk.img:/src         copy into it without mounting
  backstitch fsck -n disk.img                check it

IMAGE is a file or a block device; IMAGE:/path names a file inside one.
BACKSTITCH_LOG=info (or debug, trace) says more on stderr.
Exit status: 0 good, 1 failed, 2 usage; fsck as in fsck(8).")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a file system, empty or filled from a directory
    Mkfs(mkfs::Args),
    /// Show type, features, geometry, free space and state of an image
    Info(info::Args),
    /// Mount an image through FUSE
    Mount(mount::Args),
    /// Unmount, and wait until everything is on the disk
    Umount(umount::Args),
    /// Show the live counters of a mount
    Stats(stats::Args),
    /// Copy a mounted image as it is at one moment, while it is in use
    Snapshot(snapshot::Args),
    /// Put everything that was changed in a mount onto stable storage
    Sync(sync::Args),
    /// List a directory in an image
    Ls(ls::Args),
    /// Write files of an image to standard output
    Cat(cat::Args),
    /// Show the attributes of files in an image
    Stat(stat::Args),
    /// Copy files between the host and images, or within them
    Cp(cp::Args),
    /// Remove files from an image
    Rm(rm::Args),
    /// Make directories in an image
    Mkdir(mkdir::Args),
    /// Make links in an image
    Ln(ln::Args),
    /// Rename or move files in an image
    Mv(mv::Args),
    /// Walk the files of an image
    Find(find::Args),
    /// Check a file system, and repair it
    Fsck(fsck::Args),
    /// Take a repair back, by the undo file that it wrote
    Undo(undo::Args),
    /// Look at the journal of a file system
    Journal(journal::Args),
    /// Explore what a crash can leave: of a file system, of a program, of any device's writes
    Crash(crash::Args),
    /// Record and show patches (not there yet)
    Trace(later::Trace),
    /// Run the papers' workloads and measure what they cost
    Bench(bench::Args),
    /// Run commands with an order on the disk between them
    Depend(depend::Args),
    /// Run a command whose fsync orders instead of waiting
    Order(order::Args),
    /// Work on a stand-alone write-ahead log (not there yet)
    Wafs(later::Wafs),
    /// Export an image as a network block device (not there yet)
    NbdServe(later::NbdServe),
    /// Print shell completions
    Completions(completions::Args),
    /// Write manual pages into a directory
    Man(man::Args),
}
