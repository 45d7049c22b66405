//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod format;
mod marked;
mod read;
mod support;
mod write;
