//! The commands on images as a whole and on mounts, a module each. Those on the files of an image
//! are in the crate `files`.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod crash;
mod daemon;
pub(crate) mod depend;
pub(crate) mod disk;
pub(crate) mod fsck;
pub(crate) mod info;
pub(crate) mod journal;
pub(crate) mod later;
pub(crate) mod man;
pub(crate) mod mkfs;
pub(crate) mod mount;
mod mount_point;
mod operations_log;
pub(crate) mod order;
mod overwritten;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod sync;
pub(crate) mod trace;
pub(crate) mod tune;
pub(crate) mod umount;
pub(crate) mod undo;
pub(crate) mod wafs;

use crate::args::Command;
use backstitch_files::commands::{
    cat, chmod, chown, cp, df, du, find, ln, ls, mkdir, mv, rm, stat, touch, xattr,
};
use backstitch_files::error::Result;
use std::process::ExitCode;

/// Does what was asked; the exit code where nothing failed.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let done = match command {
        Command::Mkfs(args) => mkfs::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Mount(args) => return mount::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Cp(args) => cp::run(&args),
        Command::Rm(args) => rm::run(&args),
        Command::Mkdir(args) => mkdir::run(&args),
        Command::Ln(args) => ln::run(&args),
        Command::Mv(args) => mv::run(&args),
        Command::Find(args) => find::run(&args),
        Command::Chmod(args) => chmod::run(&args),
        Command::Chown(args) => chown::run(&args),
        Command::Touch(args) => touch::run(&args),
        Command::Getfattr(args) => xattr::get(&args),
        Command::Setfattr(args) => xattr::set(&args),
        Command::Df(args) => df::run(&args),
        Command::Du(args) => du::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Fsck(args) => return fsck::run(&args),
        Command::Undo(args) => undo::run(&args),
        Command::Journal(args) => journal::run(&args),
        Command::Crash(args) => return crash::run(&args),
        Command::Trace(args) => return trace::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Depend(args) => return depend::run(&args),
        Command::Order(args) => return order::run(&args),
        Command::Wafs(args) => return wafs::run(&args),
        Command::NbdServe(_) => later::refuse("nbd-serve"),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
