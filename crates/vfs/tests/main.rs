//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod block_writes;
mod damaged_attributes;
mod failing_device;
mod faults;
mod fsync_cost;
mod full_disk;
mod gather;
mod group_commit;
mod groups;
#[path = "hashed_directories/main.rs"]
mod hashed_directories;
mod journal_limits;
mod journal_write;
mod kept_ready;
mod large_file;
mod link_limit;
mod lying_groups;
mod memory;
mod placement;
mod read_ahead;
mod reserve;
mod snapshot;
mod stack;
mod stream;
mod support;
mod trim;
