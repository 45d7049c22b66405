//! The end-to-end tests, in one executable: each is a module of it, with the name of its file.

mod bad_images;
mod crash_app;
mod crash_device;
mod crash_fs;
mod direct_io;
mod documents;
mod endurance;
mod extents;
mod flags;
mod fsx;
mod generic;
mod handles;
mod htree;
mod io_uring;
#[path = "journal/main.rs"]
mod journal;
mod journal_kill;
#[path = "kernel_ufs/main.rs"]
mod kernel_ufs;
mod kill;
mod lffs_kill;
mod lockstep;
mod permissions;
mod posix;
mod read_only;
mod recorded;
mod repair_keeps;
mod reserve;
mod round_trip;
mod semantics;
mod unpack;
