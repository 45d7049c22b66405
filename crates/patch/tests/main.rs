//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod bits;
mod chains;
mod crowds;
mod kinds;
mod model;
mod planted;
mod settle;
mod size;
mod support;
mod wanted;
