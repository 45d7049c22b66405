//! What the explorer of crash states runs: lists of operations, and nothing that runs them.
//!
//! | module | what |
//! |---|---|
//! | [`ace`] | a workload; ACE's, read as CrashMonkey's generator writes them |
//! | [`generate`] | sequences of one and two operations, random ones, families around one thing each, and those that prefer what was not reached |
//! | [`scripts`] | sequences that were written by hand |
//! | [`provoking`] | one script for each of many rules, written by those who know the rule |
//! | [`rules`] | the rules that they are about |
//!
//! # Invariants
//!
//! * The same seed gives the same workloads.
//! * Nothing here opens an image: what a workload came by is told by whoever ran it
//!   ([`generate::guided`]).

pub mod ace;
pub mod generate;
pub mod provoking;
pub mod rules;
pub mod scripts;

pub use ace::Workload;

/// The largest file that a workload makes, in bytes.
pub const MOST_BYTES: u64 = 128 << 20;
