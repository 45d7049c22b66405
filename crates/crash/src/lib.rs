//! The crash-state explorer of our own file system: it tries every state that a crash can leave.
//!
//! A workload (`crash-workloads`) runs on a mount of the crate `session`, as users' mounts do, in
//! this thread, over a copy-on-write fork of an image. At each moment a crash is tried, in two
//! ways:
//!
//! * **dependency states**: the patches in memory are copied out of the graph, and every set of
//!   them that holds, for each of its patches, what must be on disk before it, is put onto a fork
//!   ([`frontier`](backstitch_crash_core::frontier), [`closed`](backstitch_crash_core::closed)).
//!   Whatever order a store might write in, it can leave nothing else;
//! * **schedule states**: while a batch is on its way, every part of it has arrived, as a whole or
//!   (torn) in part (`explore`).
//!
//! Each state is judged (`judge`): the check of the layout, a mount with recovery, the promises of
//! the `model` (`promises`), and in a sample the reclaim to its end, with further crashes inside.
//! States with the same bytes are judged once for the same promises.
//!
//! | module | what |
//! |---|---|
//! | [`standard`] | the workloads that are explored unless others are named |
//! | `machine`, `model`, `contents` | running workloads, and what they were promised |
//! | `explore`, `arrival`, `drive` | the states of a run |
//! | `reclaimed` | what crashes inside the reclaim leave, the same for many states |
//! | `judge`, `promises`, `order`, `visitor`, `foreign` | the verdicts |
//! | `graph` | the order that is missing among the patches of a failing moment |
//! | `campaign`, `replay`, `summary` | many workloads on all processors; small failures, again; the report |
//! | `feedback`, `scout`, [`rules`] | which rules a workload comes by; finding ones that come by more |
//! | [`semantics`] | what every crash of small scripts has in common: looked at, not judged |
//! | [`ablate`] | each rule off in turn, until a state shows it |
//! | [`run_watched`] | runs a script for a watcher of the store: recorded, not explored |
//!
//! Forks, mounts over them, the sets of patches and the report are those of `crash-core`, which the
//! explorers of programs (`crash-app`) and of devices (`crash-device`) share; it uses neither of
//! these, and they do not use it. It may depend on everything below the command line but `vfs` and
//! FUSE, and reaches layouts through the registry only.
//!
//! # Invariants
//!
//! * The same seed gives the same states and the same report, on any number of threads.
//! * A state costs what differs in it, and not the size of the image.
//! * The crates below know nothing of this one: what it needs of them is public.

pub mod ablate;
mod arrival;
mod campaign;
mod contents;
mod counts;
mod drive;
mod explore;
mod feedback;
mod foreign;
mod graph;
mod judge;
mod machine;
mod model;
mod order;
mod promises;
mod reclaimed;
mod replay;
mod scout;
pub mod semantics;
pub mod standard;
mod summary;
mod visitor;
mod watched;

pub use backstitch_crash_core::device::ForkDevice;
pub use backstitch_crash_core::formatted::ImageOptions;
pub use backstitch_crash_core::image::Fork;
pub use backstitch_crash_core::operation::{Operation, parse_script, script};
pub use backstitch_crash_core::schedule::Schedule;
pub use backstitch_crash_workloads::{Workload, ace, generate, provoking, rules, scripts};
pub use campaign::{Campaign, CampaignError, Failure, NoObserver, Observer, Results, Without};
pub use foreign::{Foreign, unexpected_of_e2fsck};
pub use summary::{ReplayError, Replayed};
pub use watched::{ScriptError, run_watched};
