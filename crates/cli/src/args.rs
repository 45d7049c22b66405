//! The commands and what they share.

use crate::commands::{
    bench, completions, crash, depend, fsck, info, journal, later, man, mkfs, mount, order,
    snapshot, stats, sync, trace, tune, umount, undo, wafs,
};
use backstitch_files::commands::{
    cat, chmod, chown, cp, df, du, find, ln, ls, mkdir, mv, rm, stat, touch, xattr,
};
use clap::{Parser, Subcommand};

/// Crash-safe ext2, ext3 and UFS in user space: mount images and disks through FUSE, or work on them
/// without mounting.
#[derive(Debug, Parser)]
#[command(
    name = "backstitch",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  backstitch mkfs -s 1G -L data disk.img     make an image with an ext2 file system
  backstitch mount disk.img /mnt             mount it; unmount with `backstitch umount /mnt`
  backstitch cp -r src disk.img:/src         copy into it without mounting
  backstitch fsck -n disk.img                check it

IMAGE is a file or a block device; IMAGE:/path names a file inside one.
BACKSTITCH_LOG=info (or debug, trace) prints more on stderr.
Exit status: 0 success, 1 failure, 2 wrong usage; fsck as in fsck(8).")]
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
    /// Unmount, and wait until all changes are on the disk
    #[command(alias = "unmount")]
    Umount(umount::Args),
    /// Show the live counters of a mount
    Stats(stats::Args),
    /// Copy a mounted image as of one moment, while it is in use
    Snapshot(snapshot::Args),
    /// Write all changes in a mount to stable storage
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
    /// Find files in an image
    Find(find::Args),
    /// Change the permissions of files in an image
    Chmod(chmod::Args),
    /// Change the owner or the group of files in an image
    Chown(chown::Args),
    /// Change the times of files in an image, or make empty files
    Touch(touch::Args),
    /// Show extended attributes of files in an image
    Getfattr(xattr::GetArgs),
    /// Set or remove an extended attribute of files in an image
    Setfattr(xattr::SetArgs),
    /// Show the free space of images
    Df(df::Args),
    /// Add up what directories of an image take
    Du(du::Args),
    /// Change the label, the UUID or the reserved blocks of a file system
    Tune(tune::Args),
    /// Check a file system, and repair it
    Fsck(fsck::Args),
    /// Take a repair back, by the undo file that it wrote
    Undo(undo::Args),
    /// Look at the journal of a file system
    Journal(journal::Args),
    /// Explore the states that a crash can leave: of a file system, a program's files, any device
    Crash(crash::Args),
    /// Record what waits for what, and show, draw, count or replay it
    Trace(trace::Args),
    /// Run the papers' workloads and measure what they cost
    Bench(bench::Args),
    /// Run commands whose effects reach the disk in a given order
    Depend(depend::Args),
    /// Run a command whose fsync keeps order instead of waiting for the disk
    Order(order::Args),
    /// Keep a write-ahead log: append records, read them back after a crash
    Wafs(wafs::Args),
    /// Export an image as a network block device (not implemented)
    NbdServe(later::NbdServe),
    /// Print shell completions
    Completions(completions::Args),
    /// Write manual pages into a directory
    Man(man::Args),
}

impl Command {
    /// Whether it serves a file system, so that nobody but its log may hear of an error.
    pub(crate) fn serves(&self) -> bool {
        match self {
            Command::Mount(_) => true,
            Command::Crash(args) => args.serves(),
            _ => false,
        }
    }
}
