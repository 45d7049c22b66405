//! Events for recorders, explorers and graph viewers.

use crate::{BlockId, Change, PatchId};

/// Something that happened in a graph. Ids are as they were when it happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A change became a patch.
    Create {
        /// The new patch.
        id: PatchId,
        /// Its block; `None` for an empty patch.
        block: Option<BlockId>,
        /// What it changes; `None` for an empty patch.
        change: Option<Change<'a>>,
        /// What the caller says must be on disk before it (overlaps are not listed; dead ids may
        /// be).
        dependencies: &'a [PatchId],
    },
    /// A change was merged into a patch that existed.
    Merge {
        /// The patch that took it.
        into: PatchId,
        /// Its block.
        block: BlockId,
        /// What the change does.
        change: Change<'a>,
        /// What the caller says must be on disk before it.
        dependencies: &'a [PatchId],
    },
    /// A patch was merged into another one; its id now stands for that one.
    Forward {
        /// The patch that is no more.
        from: PatchId,
        /// The one that took its place.
        to: PatchId,
    },
    /// A block left a run: what the run was to write to it is in a patch of its own now, which the
    /// run waits for.
    Split {
        /// The run.
        from: PatchId,
        /// The block.
        block: BlockId,
        /// Its hard patch.
        to: PatchId,
    },
    /// As [`Split`](Self::Split), but the run does not wait for the block's patch.
    Leave {
        /// The run.
        from: PatchId,
        /// The block.
        block: BlockId,
        /// Its hard patch.
        to: PatchId,
    },
    /// What a patch was to write never will be: its id now stands for another one, which makes up
    /// for it.
    Supersede {
        /// The patch that is no more.
        from: PatchId,
        /// Its block.
        block: BlockId,
        /// The one that it now stands for.
        to: PatchId,
    },
    /// An empty patch was given a further dependency.
    Depend {
        /// The empty patch.
        id: PatchId,
        /// What it now also depends on.
        on: PatchId,
    },
    /// A version of a block goes to the device.
    Write {
        /// The block.
        block: BlockId,
        /// The patches that this version holds for the first time.
        patches: &'a [PatchId],
        /// The bytes of this version.
        bytes: &'a [u8],
    },
    /// A patch is on stable storage; its id is dead from now on. A patch with a block that commits
    /// without having been written was discarded: nothing refers to its block any more.
    Commit {
        /// The patch.
        id: PatchId,
    },
}

/// Sees every event of a graph. At no cost when unused: the graph tests one option.
pub trait Hook: Send {
    /// Called after the event took place in the graph, before its caller goes on.
    fn event(&mut self, event: &Event<'_>);
}
