//! What the explorations of crashes have in common, whatever it is that is explored.
//!
//! | module | what |
//! |---|---|
//! | [`operation`] | what is done on a file system, as workloads and traces write it |
//! | `base`, [`image`], [`device`] | forks: images that cost their differing blocks only |
//! | [`formatted`] | new images |
//! | [`nesting`], `nested` | images that hold the one that is explored |
//! | [`mount`] | a session over a fork, in one thread, with somebody who looks at each moment |
//! | [`schedule`] | when the engine of a run writes back |
//! | [`frontier`], [`closed`] | the states that a crash can leave at a moment |
//! | [`recovered`], [`classes`] | of states that a replay makes the same, only one is visited |
//! | [`parts`] | which blocks of a batch on its way have arrived |
//! | [`reads`] | results of a deterministic function, remembered by the blocks that it read |
//! | [`geography`] | what blocks are for, in the words of their layout |
//! | [`check`], [`fewest`] | a user's command as the judge, and the smallest failure |
//! | [`missing`], [`scene`] | the order whose lack let a failure happen, for people to read |
//! | [`report`] | what an exploration found |
//!
//! Above it are `crash` (our own file system, judged against a model), `crash-app` (a program, by
//! its user's check) and `crash-device` (the recorded writes of any device, likewise); it knows
//! none of them, and none of them uses another. It may depend on everything below the command line
//! but FUSE, and reaches layouts through the registry only.
//!
//! # Invariants
//!
//! * The same fork and the same calls come to the same: no clock, no randomness but by a seed that
//!   is given, no thread. (A check is a command of the user's, which may do what it wants.)
//! * A state costs what differs in it, and not the size of the image.
//! * The crates below know nothing of this one. What it needs of them is public; errors that tests
//!   plant in them are behind a feature, and cost nothing without it.

mod base;
pub mod check;
pub mod classes;
pub mod closed;
pub mod device;
pub mod error;
pub mod fault;
mod fewest;
pub mod formatted;
pub mod frontier;
pub mod geography;
pub mod image;
pub mod missing;
pub mod mount;
mod nested;
pub mod nesting;
pub mod operation;
pub mod parts;
#[cfg(feature = "planted-errors")]
pub mod planted;
pub mod reads;
pub mod recovered;
pub mod report;
pub mod scene;
pub mod schedule;

pub use fewest::fewest;
