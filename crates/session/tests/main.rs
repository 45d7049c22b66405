//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod commits;
mod support;
mod tasks;
