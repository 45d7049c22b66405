//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod common;
mod device;
mod order;
mod published;
mod speed;
