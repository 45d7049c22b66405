//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod agrees;
mod figures;
mod format_document;
mod hostile;
mod index;
mod mounts;
mod recorder;
mod why;
