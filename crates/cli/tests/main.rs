//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod case_studies;
mod command_line;
mod durability;
mod files;
mod foreign;
mod groups;
#[path = "habits/main.rs"]
mod habits;
mod mount;
mod raw;
mod reports;
mod snapshot;
mod stack;
mod support;
mod tour;
mod trace;
mod trace_serve;
mod tune;
mod undo;
mod wafs;
