//! The crash-state explorer: every state that a crash can leave, not the one that was tried.
//!
//! It sits above the layouts and below the command line. A workload runs on a mount of the crate
//! `session`, as users' mounts do, in this thread, over a copy-on-write fork of an image. At each
//! moment a crash is tried, in two ways:
//!
//! * **dependency states**: the patches in memory are copied out of the graph, and every set of
//!   them that holds, for each of its patches, what must be on disk before it, is put onto a fork
//!   (`frontier`, `closed`). Whatever order a store might write in, it can leave nothing else;
//! * **schedule states**: while a batch is on its way, every part of it has arrived, as a whole or
//!   (torn) in part (`explore`).
//!
//! Each state is judged (`judge`): the check of the layout, a mount with recovery, the promises of
//! the `model` (`promises`), and in a sample the reclaim to its end, with further crashes inside.
//! States with the same bytes are judged once for the same promises.
//!
//! | module | what |
//! |---|---|
//! | `image` | forks that cost the blocks in which they differ |
//! | `nested` | images that hold the one that is explored |
//! | `operation`, [`ace`], [`generate`] | what workloads do, ACE's and our own |
//! | `mount`, `machine`, `model` | running them, and what they were promised |
//! | `frontier`, `closed`, `arrival`, `explore` | the states |
//! | `recovered`, `classes` | those that the replay of a journal makes the same, once |
//! | `reclaimed` | what crashes inside the reclaim leave, of all states that show it the same, once |
//! | `reads` | what a deterministic function comes to, by the blocks that it reads |
//! | `judge`, `promises`, `order`, `foreign` | the verdicts |
//! | `campaign`, `replay`, `summary` | many workloads on all processors, failures made small and made again, the report |
//! | [`schedule`] | the schedule states of any device's recorded writes |
//! | [`report`] | what all of them say |
//!
//! # Invariants
//!
//! * The same seed gives the same states and the same report, on any number of threads.
//! * A state costs what differs in it, and not the size of the image.
//! * Nothing here is known to the crates below: what it needs of them is public, and the errors
//!   that tests plant cost nothing without their feature.

pub mod ablate;
pub mod ace;
pub mod app;
mod arrival;
mod campaign;
mod classes;
mod closed;
mod contents;
mod explore;
mod feedback;
mod foreign;
mod frontier;
pub mod generate;
mod geography;
mod image;
mod judge;
mod machine;
mod model;
mod mount;
mod nested;
mod operation;
mod order;
mod parts;
#[cfg(feature = "planted-errors")]
pub mod planted;
mod promises;
pub mod provoking;
mod reads;
mod reclaimed;
mod recovered;
mod replay;
pub mod report;
pub mod rules;
pub mod schedule;
mod scout;
pub mod scripts;
pub mod standard;
mod summary;
mod visitor;

pub use ace::Workload;
pub use campaign::{Campaign, CampaignError, Failure, ImageOptions, NoObserver, Observer, Results};
pub use explore::Schedule;
pub use foreign::{Foreign, unexpected_of_e2fsck};
pub use image::{Fork, ForkDevice};
pub use operation::{BadOperation, Data, Operation, Path, parse_script, script};
pub use summary::{ReplayError, Replayed};
