//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod format_document;
mod module;
mod recovery;
