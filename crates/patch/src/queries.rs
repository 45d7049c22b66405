//! What can be asked of a graph: nothing here changes it.

use crate::block::{Block, BlockId, NIL};
use crate::graph::Graph;
use crate::patch::{DEPTH_OF_TRANSACTION, PatchId, PatchInfo, PatchKind, State};
use crate::{Counters, Optimisations};

impl Graph {
    /// The figures so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The switches that the graph was made with.
    pub fn optimisations(&self) -> Optimisations {
        self.optimisations
    }

    /// Whether the patch has yet to reach stable storage.
    pub fn is_live(&self, id: PatchId) -> bool {
        self.index_of(id).is_some()
    }

    /// Whether the patch is a part of another one that it was merged into.
    pub fn was_merged(&self, id: PatchId) -> bool {
        self.index_of(id).is_some_and(|index| index != id.index)
    }

    /// Blocks that the patch's longest chain of dependencies leads through, as known when they were
    /// stated. 0 where it is on stable storage or on its way; at most 254. A transaction counts as
    /// 0.
    pub fn depth(&self, id: PatchId) -> u8 {
        let patch = self.index_of(id).map(|i| &self.patches[i as usize]);
        let patch = patch.filter(|p| !p.in_flight && p.depth != DEPTH_OF_TRANSACTION);
        patch.map_or(0, |p| p.depth)
    }

    /// Whether the patch could still change: it is live, and no version with it is on its way. Two
    /// changes whose ids resolve to the same pending patch reach the disk together, or not at all.
    /// That is not so of a run: it never counts as pending.
    pub fn is_pending(&self, id: PatchId) -> bool {
        self.index_of(id).is_some_and(|i| {
            let p = &self.patches[i as usize];
            !p.in_flight && p.state != State::Run
        })
    }

    /// Whether the patch is held: an empty one that can still be given more to come after.
    pub fn is_held(&self, id: PatchId) -> bool {
        self.index_of(id)
            .is_some_and(|i| self.patches[i as usize].held)
    }

    /// Whether the patch is a live run.
    pub fn is_run(&self, id: PatchId) -> bool {
        self.index_of(id)
            .is_some_and(|i| self.patches[i as usize].state == State::Run)
    }

    /// Whether two ids stand for one live patch.
    pub fn is_same(&self, a: PatchId, b: PatchId) -> bool {
        self.index_of(a)
            .is_some_and(|i| self.index_of(b) == Some(i))
    }

    /// A look at a patch; `None` once it has committed.
    pub fn info(&self, id: PatchId) -> Option<PatchInfo> {
        Some(self.info_of(self.index_of(id)?))
    }

    pub(crate) fn kind_of(&self, index: u32) -> PatchKind {
        match self.patches[index as usize].state {
            State::Soft => PatchKind::Soft,
            State::Bits => PatchKind::Bits,
            State::Hard => PatchKind::Hard,
            State::Run => PatchKind::Run,
            _ => PatchKind::Empty,
        }
    }

    pub(crate) fn info_of(&self, index: u32) -> PatchInfo {
        let p = &self.patches[index as usize];
        let kind = self.kind_of(index);
        PatchInfo {
            kind,
            block: (p.block != NIL).then_some(BlockId(p.block)),
            offset_bytes: match kind {
                PatchKind::Soft | PatchKind::Bits => p.offset,
                _ => 0,
            },
            len_bytes: match kind {
                PatchKind::Soft => p.len,
                PatchKind::Bits => 4,
                _ => 0,
            },
            in_flight: p.in_flight,
            dependencies: p.befores_count,
        }
    }

    /// Whether the block has patches that no write has taken up.
    pub fn has_uncommitted(&self, block: BlockId) -> bool {
        self.blocks
            .get(block.0 as usize)
            .is_some_and(|b| b.uncommitted > 0)
    }

    /// How many patches of the block no write has taken up.
    pub fn uncommitted_count(&self, block: BlockId) -> u32 {
        self.blocks
            .get(block.0 as usize)
            .map_or(0, |b| b.uncommitted)
    }

    /// Whether a version of the block is on its way to the device.
    pub fn is_in_flight(&self, block: BlockId) -> bool {
        self.blocks
            .get(block.0 as usize)
            .is_some_and(Block::is_in_flight)
    }

    /// Whether the block has a patch that may be written now.
    pub fn has_ready(&self, block: BlockId) -> bool {
        self.blocks
            .get(block.0 as usize)
            .is_some_and(|b| b.first_ready != NIL || self.run_is_ready(block.0))
    }

    /// Whether a cheap look shows that the block's version in memory may be written as it is: it
    /// has just one patch, which is ready.
    pub fn is_simply_ready(&self, block: BlockId) -> bool {
        self.blocks
            .get(block.0 as usize)
            .is_some_and(|b| b.uncommitted == 1 && self.has_ready(block))
    }

    /// The direct dependencies of a live patch, as (id, block).
    pub fn dependencies(&self, id: PatchId) -> Vec<(PatchId, Option<BlockId>)> {
        let Some(i) = self.index_of(id) else {
            return Vec::new();
        };
        self.before_indices(i)
            .map(|b| {
                let block = self.patches[b as usize].block;
                (self.id_of(b), (block != NIL).then_some(BlockId(block)))
            })
            .collect()
    }

    /// The uncommitted patches of a block in the order in which they were applied.
    pub fn uncommitted(&self, block: BlockId) -> Vec<PatchId> {
        let mut found = Vec::new();
        let run = self.blocks.get(block.0 as usize).and_then(Block::run);
        found.extend(run.map(|run| self.id_of(run)));
        let mut i = self.blocks.get(block.0 as usize).map_or(NIL, |b| b.first);
        while i != NIL {
            found.push(self.id_of(i));
            i = self.patches[i as usize].next_in_block;
        }
        found
    }

    /// Appends the patches of a block that have not committed, those in flight among them.
    pub fn collect_live(&self, block: BlockId, into: &mut Vec<PatchId>) {
        let Some(b) = self.blocks.get(block.0 as usize) else {
            return;
        };
        let run = b.run().or(b.run_in_flight());
        into.extend(run.map(|run| self.id_of(run)));
        for first in [b.first, b.first_in_flight] {
            let mut index = first;
            while index != NIL {
                into.push(self.id_of(index));
                index = self.patches[index as usize].next_in_block;
            }
        }
    }
}
