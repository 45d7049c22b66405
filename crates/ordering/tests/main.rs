//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod rules;
#[path = "volume/main.rs"]
mod volume;
mod without_log;
