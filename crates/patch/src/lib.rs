//! The patch graph: every change to stable storage as a *patch*, with explicit write-before
//! dependencies.
//!
//! This crate knows no I/O, no time and no file system, and depends on no other crate of this
//! project. A [`Graph`] is a single-threaded, deterministic state machine over blocks that its
//! owner numbers and whose bytes its owner keeps.
//!
//! # Notation (Frost et al., SOSP 2007, §3)
//!
//! A patch is *uncommitted* (U), *in flight* (F) or *committed* (C). `q → p` means: q must be on
//! disk no earlier than p. The graph keeps direct dependencies only; a committed patch is gone, and
//! its id is simply dead, so a patch whose dependencies have all committed looks like one that
//! never had any.
//!
//! # Invariants
//!
//! With `dep[S]` for all that the patches of a set S depend on, directly or through others, C for
//! the committed patches, and F_B for those of block B that are in flight:
//!
//! 1. **Disk safety**: `dep[C] ⊆ C`.
//! 2. **In-flight safety**: for every block B, `dep[F_B] ⊆ C ∪ F_B`, and at most one version of B
//!    is in flight.
//!    Where the device's queue keeps order (`trail`), dependencies in flight are enough: the request
//!    names those that it follows.
//! 3. The graph is acyclic, *including the implied edges of hard patches*: a hard patch has no undo
//!    data, so every version of its block contains it, and every other uncommitted patch of the
//!    block therefore depends on it. These edges are stored. Acyclicity is all that liveness needs:
//!    some patch has no uncommitted dependency, the patches that may not go with it can all be
//!    rolled back, and so its block can be written.
//! 4. Patches with undo data ("soft") that overlap are ordered: an edge leads from the later to the
//!    earlier one. Where a third patch, made between the two, covers all bytes of the later one,
//!    there may be an edge to that one alone; it depends on the earlier one itself.
//! 5. Bits of one word are independent. A change of single bits (a *flip*) may become a part of a
//!    patch that changes other bits of that word, but only where no bit has to wait for more than it
//!    would alone.
//!
//! [`Graph::check_invariants`] recounts what the graph keeps up to date; the model test calls it
//! after every step.
//!
//! # When a patch needs no undo data
//!
//! The paper (§4.1) makes a patch hard when no other block depends on an uncommitted patch of its
//! block: then nothing that it depends on can lead back here. That test is O(1) and is tried first.
//! Where it fails, a bounded search over the dependencies given asks the exact question, whether
//! one of them leads back to this block; a search that grows too long gives up, and the patch is
//! soft. Merging (§4.2, §4.3) asks the same question: may the merged patch's dependencies lead to
//! itself?
//!
//! With both optimisations on (hard patches and merging), changes of several blocks that wait for
//! nothing can be one patch, a *run* ([`Graph::create_in_run`]).
//!
//! Dependencies are given when a patch is made. Only an empty patch, one that changes no bytes, can
//! be given more of them later, as long as its owner *holds* it, which keeps it from committing.
//! Whether that closes a circle is searched to the end, without a limit.
//!
//! A change that another one makes needless can be taken back before it is written:
//! [`Graph::supersede`].
//!
//! Everything can be switched off by [`Optimisations`], for measurement.

mod announce;
mod block;
mod counters;
mod create;
mod crowd;
mod empty;
mod graph;
mod hook;
mod invariants;
mod links;
pub mod model;
mod optimisations;
mod patch;
mod place;
#[cfg_attr(not(feature = "planted-errors"), allow(dead_code, unreachable_pub))]
mod planted;
mod queries;
mod runs;
mod search;
mod settle;
mod snapshot;
mod supersede;
mod trail;
mod undo;
mod wanted;
mod write;

pub use block::BlockId;
pub use counters::Counters;
pub use create::Change;
pub use empty::DependencyError;
pub use graph::{Graph, Standing, Stating};
pub use hook::{Event, Hook};
pub use optimisations::{Optimisations, UnknownOptimisations};
pub use patch::{PatchId, PatchInfo, PatchKind};
#[cfg(feature = "planted-errors")]
pub use planted::Planted;
pub use snapshot::{SnapshotPatch, UndoData};
pub use wanted::Wanted;
pub use write::{ClosureState, Version};
