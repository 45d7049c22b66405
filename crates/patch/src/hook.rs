//! Events for recorders, explorers and graph viewers.

use crate::{BlockId, Change, PatchId, PatchKind};

/// Something that happened in a graph. Ids are as they were when it happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A change became a patch. What it waits for was told before, by [`Wait`](Self::Wait).
    Create {
        /// The new patch.
        id: PatchId,
        /// What it is made of.
        kind: PatchKind,
        /// Its block; `None` for an empty patch.
        block: Option<BlockId>,
        /// What it changes; `None` for an empty patch.
        change: Option<Change<'a>>,
        /// An empty patch: it does not commit before it is [released](Self::Release).
        held: bool,
        /// What the caller says must be on disk before it (overlaps are not listed; dead ids may
        /// be).
        dependencies: &'a [PatchId],
    },
    /// A change was merged into a patch that existed.
    Merge {
        /// The patch that took it.
        into: PatchId,
        /// What that one is made of now.
        kind: PatchKind,
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
    /// A patch will never be written: its id now stands for another one, which makes up for it.
    Supersede {
        /// The patch that is no more.
        from: PatchId,
        /// Its block.
        block: BlockId,
        /// The one that it now stands for.
        to: PatchId,
    },
    /// A patch lost its undo data: it is hard from now on.
    Harden {
        /// The patch.
        id: PatchId,
    },
    /// The changes of a block that no write has taken up will never be written. Its part of a run
    /// is gone; each of its patches is told by a [`Commit`](Self::Commit).
    Discard {
        /// The block.
        block: BlockId,
    },
    /// A patch waits for another one from now on: because that was stated, because they overlap, or
    /// because the other one is hard. The event may come just before the one that makes a patch
    /// known.
    Wait {
        /// The patch that waits.
        after: PatchId,
        /// What it waits for.
        before: PatchId,
    },
    /// A patch no longer waits for another one, though that is not on stable storage.
    StopWaiting {
        /// The patch that waited.
        after: PatchId,
        /// What it waited for.
        before: PatchId,
    },
    /// A held empty patch commits as soon as what it waits for has.
    Release {
        /// The empty patch.
        id: PatchId,
    },
    /// Somebody waits for these: they, and what they wait for, take on nothing more to wait for.
    Settle {
        /// What is waited for.
        targets: &'a [PatchId],
    },
    /// A version of a block goes to the device.
    Write {
        /// The block.
        block: BlockId,
        /// The patches that this version holds for the first time.
        patches: &'a [PatchId],
        /// How many patches of the block are left out, and rolled back in these bytes.
        rolled_back: u32,
        /// The bytes of this version.
        bytes: &'a [u8],
    },
    /// A patch is on stable storage; its id is dead from now on. A patch with a block that commits
    /// without having been written was discarded: nothing refers to its block any more.
    Commit {
        /// The patch.
        id: PatchId,
    },
    /// A patch that existed before the hook was set; see
    /// [`Graph::announce`](crate::Graph::announce). A run is told once for each of its blocks.
    Present {
        /// The patch.
        id: PatchId,
        /// What it is made of.
        kind: PatchKind,
        /// Its block; `None` for an empty patch.
        block: Option<BlockId>,
        /// The first byte it changes (of a hard patch and a run: not kept, 0).
        offset_bytes: u32,
        /// How many bytes it changes (of a hard patch and a run: not kept, 0).
        len_bytes: u32,
        /// A version of its block that contains it is on its way to the device.
        in_flight: bool,
        /// An empty patch that is not released.
        held: bool,
    },
}

/// Sees every event of a graph. At no cost when unused: the graph tests one option.
pub trait Hook: Send {
    /// Called after the event took place in the graph, before its caller goes on.
    fn event(&mut self, event: &Event<'_>);
}
