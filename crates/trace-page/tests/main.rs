//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod answers;
mod door;
mod hostile;
mod live;
mod mounted;
mod states;
