//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod failing_device;
mod kernel_caches;
