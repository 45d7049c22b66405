//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod crash;
mod crash_states;
mod ext3;
mod figure_3;
mod fsck_clean;
mod fsck_damage;
mod fsck_differential;
mod fsck_hostile;
mod htree_hash;
mod log_of_operations;
mod mkfs;
mod reclaim;
mod reclaim_cut;
mod repair;
mod repair_crash;
mod support;
mod trust;
mod tune;
mod undo;
