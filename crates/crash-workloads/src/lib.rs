//! Workloads for the explorer of crash states: lists of operations, and nothing that runs them.
//!
//! | module | what |
//! |---|---|
//! | [`ace`] | the type of a workload; reading those that CrashMonkey's generator ACE writes |
//! | [`generate`] | generated ones: one and two operations, random, by feedback, families of scripts |
//! | [`scripts`] | sequences that were written by hand |
//! | [`provoking`] | scripts that were each written to show the lack of one rule |
//! | [`rules`] | a list of all rules |
//!
//! # Invariants
//!
//! * The same seed gives the same workloads.
//! * Nothing here opens an image. The caller runs workloads, and says what they came by
//!   ([`generate::guided`]).

pub mod ace;
pub mod generate;
pub mod provoking;
pub mod rules;
pub mod scripts;

pub use ace::Workload;

/// The largest file that a workload makes, in bytes.
pub const MOST_BYTES: u64 = 128 << 20;
