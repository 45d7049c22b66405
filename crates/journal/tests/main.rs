//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod format;
mod format_document;
mod log;
#[path = "module/main.rs"]
mod module;
mod recovery;
