//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod clean;
mod damage;
mod format_document;
mod geography;
mod hostile;
mod mkfs;
mod repair;
mod support;
