//! The commands, a module each.

pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod chmod;
pub(crate) mod chown;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod crash;
mod daemon;
pub(crate) mod depend;
pub(crate) mod df;
pub(crate) mod disk;
pub(crate) mod du;
pub(crate) mod find;
pub(crate) mod fsck;
pub(crate) mod info;
pub(crate) mod journal;
pub(crate) mod later;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
pub(crate) mod mount;
mod mount_point;
pub(crate) mod mv;
pub(crate) mod order;
pub(crate) mod rm;
pub(crate) mod snapshot;
pub(crate) mod stat;
pub(crate) mod stats;
pub(crate) mod sync;
pub(crate) mod touch;
pub(crate) mod tune;
pub(crate) mod umount;
pub(crate) mod undo;
pub(crate) mod wafs;
pub(crate) mod xattr;

use crate::args::Command;
use crate::error::Result;
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
        Command::Trace(_) => later::refuse("trace"),
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
