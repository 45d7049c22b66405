//! The arena of patches and edges, and what is known per block.

use crate::crowd::Crowds;
use crate::settle::Flights;
use crate::undo::{Undo, UndoStore};
use crate::{Counters, Event, Hook, Optimisations};

/// Edges that a short look for `after → before` goes through: this many of the newest dependencies
/// of `after`, and of the newest dependents of `before`.
pub(crate) const LOOK: usize = 16;

/// The end of an intrusive list; no patch, edge or block.
pub(crate) const NIL: u32 = u32::MAX;

/// A block, as the graph's owner numbers it: small dense numbers, since they index a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A patch. Once the patch has committed its id is dead and stands for "on disk"; ids are never
/// used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatchId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl PatchId {
    /// An id that is dead from the start: depending on it is depending on nothing.
    pub const COMMITTED: PatchId = PatchId {
        index: NIL,
        generation: 0,
    };

    /// The patch's slot in the table of live patches, and the generation that tells it from earlier
    /// users of the slot: a key for tables beside the graph.
    pub fn place(self) -> (u32, u32) {
        (self.index, self.generation)
    }
}

/// What a patch was made of, for tests, viewers and statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// Bytes with undo data.
    Soft,
    /// Bits of one word; taken back by flipping them again.
    Bits,
    /// Bytes without undo data.
    Hard,
    /// No bytes: stands for its dependencies.
    Empty,
    /// Changes of several blocks without undo data; see [`Graph::create_in_run`].
    Run,
}

/// What is known of a live patch.
#[derive(Clone, Copy, Debug)]
pub struct PatchInfo {
    /// Its kind.
    pub kind: PatchKind,
    /// Its block, `None` when empty.
    pub block: Option<BlockId>,
    /// The first byte it changes (of a hard patch: not kept, 0).
    pub offset_bytes: u32,
    /// How many bytes it changes (of a hard patch: not kept, 0).
    pub len_bytes: u32,
    /// Whether a version of its block that contains it is on its way to the device.
    pub in_flight: bool,
    /// How many patches it directly waits for.
    pub dependencies: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot is free; `next_in_block` links the free list.
    Free,
    Soft,
    Bits,
    Hard,
    Empty,
    /// Changes of several blocks.
    Run,
    /// Merged into the patch in `offset`; lives until that one commits, so that its id keeps
    /// standing for it.
    Forward,
}

#[derive(Debug)]
pub(crate) struct Patch {
    pub(crate) generation: u32,
    pub(crate) block: u32,
    /// Bytes: first byte. Bits: the word's first byte. Empty or hard, if watched: low half of the
    /// token. Forward: the target's index. Run: how many of its blocks are not on disk.
    pub(crate) offset: u32,
    /// Bytes: length. Bits: the mask (bits flipped back by a merged change are not in it, but in
    /// `undo`). Empty or hard, if watched: high half of the token. Run: the first of its blocks
    /// that no write has taken up.
    pub(crate) len: u32,
    pub(crate) next_in_block: u32,
    pub(crate) prev_in_block: u32,
    pub(crate) next_ready: u32,
    pub(crate) prev_ready: u32,
    /// First edge to a patch that this one depends on.
    pub(crate) befores: u32,
    /// First edge from a patch that depends on this one.
    pub(crate) afters: u32,
    pub(crate) befores_count: u32,
    /// The last search that visited it. While a write is put together: how many of its dependencies
    /// go along (see `Graph::choose`).
    pub(crate) mark: u32,
    /// First of the patches that were merged into this one (linked by their `next_in_block`).
    pub(crate) forwards: u32,
    pub(crate) state: State,
    pub(crate) in_flight: bool,
    /// It waits for nothing. Runs: its blocks need not wait.
    pub(crate) ready: bool,
    /// Empty patches: kept from committing until released. Runs: no block joins any more.
    pub(crate) held: bool,
    /// Empty and hard patches: somebody wants to hear of its commit.
    pub(crate) watched: bool,
    /// Blocks that its longest chain of dependencies leads through, as known when the dependencies
    /// were added: a commit since then does not lower it, and what its dependencies came to wait
    /// for later does not raise it. Or [`DEPTH_OF_TRANSACTION`].
    pub(crate) depth: u8,
    /// How far it is from being settled (see `settle.rs`). Of a run: whether a write has taken up
    /// some of it.
    pub(crate) flights: Flights,
    pub(crate) undo: Undo,
}

/// The depth of an empty patch that stands for a transaction: it adds nothing to other depths.
pub(crate) const DEPTH_OF_TRANSACTION: u8 = u8::MAX;

impl Patch {
    /// Bits: every bit that was ever flipped.
    pub(crate) fn covered(&self) -> u32 {
        match self.undo {
            Undo::Flip { covered } => covered.get(),
            _ => 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) before: u32,
    pub(crate) after: u32,
    pub(crate) next_after: u32,
    pub(crate) prev_after: u32,
    pub(crate) next_before: u32,
    pub(crate) prev_before: u32,
}

/// Bytes that one patch takes, without undo data.
pub(crate) const PATCH_BYTES: u64 = size_of::<Patch>() as u64;
/// Bytes that one dependency takes.
pub(crate) const EDGE_BYTES: u64 = size_of::<Edge>() as u64;
/// Bytes that a block in a run takes: the three fields of its entry that only runs use.
pub(crate) const RUN_BLOCK_BYTES: u64 = 12;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Uncommitted patches in the order in which they were applied; a hard one comes first.
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) first_in_flight: u32,
    pub(crate) first_ready: u32,
    /// The uncommitted hard patch.
    pub(crate) hard: u32,
    pub(crate) uncommitted: u32,
    /// Edges from patches of other blocks (or from empty patches that something depends on) to
    /// uncommitted patches here.
    pub(crate) external: u32,
    /// Where in the block its soft patches may lie, one bit for 128 bytes (see [`Zones`]).
    pub(crate) zones: Zones,
    /// The run that the block is part of. If `prev_in_run` is [`RUN_IN_FLIGHT`], the run that its
    /// version in flight is part of.
    run: u32,
    /// Its neighbours among those blocks of the run that no write has taken up.
    pub(crate) next_in_run: u32,
    pub(crate) prev_in_run: u32,
}

/// Value of `prev_in_run` while the block's part of its run is in flight.
const RUN_IN_FLIGHT: u32 = NIL - 1;

/// A summary of ranges within a block: one bit for each 128 bytes, modulo 4096. A range that shares
/// no bit with the summary overlaps nothing in it, and need not be compared with every soft patch
/// of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Zones(u32);

impl Zones {
    pub(crate) fn of((start, end): (u32, u32)) -> Zones {
        let (first, last) = (start / 128, end.max(start + 1).div_ceil(128) - 1);
        if last - first >= 31 {
            return Zones(u32::MAX);
        }
        Zones(((1u32 << (last - first + 1)) - 1).rotate_left(first % 32))
    }

    pub(crate) fn add(&mut self, other: Zones) {
        self.0 |= other.0;
    }

    pub(crate) fn meets(self, other: Zones) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn contains(self, other: Zones) -> bool {
        self.0 | other.0 == self.0
    }
}

impl Block {
    const EMPTY: Block = Block {
        first: NIL,
        last: NIL,
        first_in_flight: NIL,
        first_ready: NIL,
        hard: NIL,
        uncommitted: 0,
        external: 0,
        zones: Zones(0),
        run: NIL,
        next_in_run: NIL,
        prev_in_run: NIL,
    };

    /// The run that waits for a write of the block.
    pub(crate) fn run(&self) -> Option<u32> {
        (self.run != NIL && self.prev_in_run != RUN_IN_FLIGHT).then_some(self.run)
    }

    /// The run that the version in flight is part of.
    pub(crate) fn run_in_flight(&self) -> Option<u32> {
        (self.run != NIL && self.prev_in_run == RUN_IN_FLIGHT).then_some(self.run)
    }

    pub(crate) fn enter_run(&mut self, run: u32, next: u32) {
        self.run = run;
        self.next_in_run = next;
        self.prev_in_run = NIL;
    }

    /// The write that takes up its part of the run starts.
    pub(crate) fn run_starts(&mut self) {
        self.prev_in_run = RUN_IN_FLIGHT;
    }

    pub(crate) fn leave_run(&mut self) {
        self.run = NIL;
        self.prev_in_run = NIL;
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.first_in_flight != NIL || self.run_in_flight().is_some()
    }
}

/// How a new patch stands to the others of its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// As is cheapest: merged with others, and without undo data, where that is possible.
    #[default]
    Together,
    /// It keeps its undo data, though it could do without, so that the block can be written at any
    /// time without it and without what it depends on.
    WithUndo,
    /// It waits for nothing that others of the block wait for, nor do these wait for what it
    /// depends on. So it keeps its undo data, and where it depends on nothing, the others keep
    /// theirs.
    Apart,
}

/// What is stated of a new patch beside its change.
#[derive(Clone, Copy, Debug)]
pub struct Stating<'a> {
    /// The patches that it is on the disk no earlier than.
    pub after: &'a [PatchId],
    /// How it stands to the others of its block.
    pub standing: Standing,
}

impl<'a> From<&'a [PatchId]> for Stating<'a> {
    /// Stands together with the others.
    fn from(after: &'a [PatchId]) -> Stating<'a> {
        Stating {
            after,
            standing: Standing::Together,
        }
    }
}

impl<'a, const N: usize> From<&'a [PatchId; N]> for Stating<'a> {
    fn from(after: &'a [PatchId; N]) -> Stating<'a> {
        Stating::from(&after[..])
    }
}

impl<'a> From<&'a Vec<PatchId>> for Stating<'a> {
    fn from(after: &'a Vec<PatchId>) -> Stating<'a> {
        Stating::from(&after[..])
    }
}

/// The patch graph; see the crate's documentation.
pub struct Graph {
    pub(crate) patches: Vec<Patch>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) free_patch: u32,
    pub(crate) free_edge: u32,
    pub(crate) search_mark: u32,
    /// Edges that may still be looked at for duplicates (see `Graph::add_edge`).
    pub(crate) thinning_credit: u64,
    pub(crate) optimisations: Optimisations,
    pub(crate) counters: Counters,
    pub(crate) hook: Option<Box<dyn Hook>>,
    /// Tokens of watched patches that committed, until the owner takes them.
    pub(crate) fired: Vec<u64>,
    /// Blocks that came to have a ready patch, until the owner takes them.
    pub(crate) became_ready: Vec<BlockId>,
    /// Scratch space, kept to allocate nothing in steady state.
    pub(crate) stack: Vec<u32>,
    pub(crate) chosen: Vec<u32>,
    /// The patches of a version, for the hook.
    pub(crate) told: Vec<PatchId>,
    pub(crate) starts: Vec<u32>,
    pub(crate) old_bytes: Vec<u8>,
    pub(crate) undo: UndoStore,
    pub(crate) crowds: Crowds,
    /// One bit for each block, 64 in a word: the block may have a settled patch.
    pub(crate) settled: Vec<u64>,
    /// The number, modulo 256, of the batch that patches go in flight with.
    pub(crate) flight: u8,
    #[cfg(feature = "planted-errors")]
    pub(crate) planted: Option<crate::planted::Planted>,
}

impl Default for Graph {
    fn default() -> Self {
        Graph::new(Optimisations::default())
    }
}

impl Graph {
    /// An empty graph.
    pub fn new(optimisations: Optimisations) -> Graph {
        Graph {
            patches: Vec::new(),
            edges: Vec::new(),
            blocks: Vec::new(),
            free_patch: NIL,
            free_edge: NIL,
            search_mark: 0,
            thinning_credit: 0,
            optimisations,
            counters: Counters::default(),
            hook: None,
            fired: Vec::new(),
            became_ready: Vec::new(),
            stack: Vec::new(),
            chosen: Vec::new(),
            told: Vec::new(),
            starts: Vec::new(),
            old_bytes: Vec::new(),
            undo: UndoStore::default(),
            crowds: Crowds::default(),
            settled: Vec::new(),
            flight: 0,
            #[cfg(feature = "planted-errors")]
            planted: None,
        }
    }

    /// Hangs a hook on the graph, or takes it off.
    pub fn set_hook(&mut self, hook: Option<Box<dyn Hook>>) {
        self.hook = hook;
    }

    /// The figures so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The switches that the graph was made with.
    pub fn optimisations(&self) -> Optimisations {
        self.optimisations
    }

    /// The bytes that a patch without stored undo data, a dependency, and a block's entry in the
    /// table take.
    pub fn unit_bytes() -> [u64; 3] {
        [PATCH_BYTES, EDGE_BYTES, size_of::<Block>() as u64]
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

    /// Moves the tokens of watched patches that have committed since the last call to `into`.
    pub fn take_fired(&mut self, into: &mut Vec<u64>) {
        into.append(&mut self.fired);
    }

    /// As [`take_fired`](Self::take_fired), but takes only tokens for which `is_taken` is true.
    pub fn take_fired_where(&mut self, into: &mut Vec<u64>, mut is_taken: impl FnMut(u64) -> bool) {
        let mut is_left = |token: &u64| {
            let taken = is_taken(*token);
            if taken {
                into.push(*token);
            }
            !taken
        };
        self.fired.retain(|token| is_left(token));
    }

    /// Whether a watched patch has committed since the last [`take_fired`](Self::take_fired).
    pub fn has_fired(&self) -> bool {
        !self.fired.is_empty()
    }

    /// Moves the blocks that came to have a ready patch since the last call to `into` (a block may
    /// be listed more than once, and may have lost its ready patch to a write since).
    pub fn take_became_ready(&mut self, into: &mut Vec<BlockId>) {
        into.append(&mut self.became_ready);
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

    pub(crate) fn id_of(&self, index: u32) -> PatchId {
        PatchId {
            index,
            generation: self.patches[index as usize].generation,
        }
    }

    /// The slot that a live id stands for, merged patches followed to where they went.
    pub(crate) fn index_of(&self, id: PatchId) -> Option<u32> {
        let mut index = id.index;
        let mut patch = self.patches.get(index as usize)?;
        if patch.generation != id.generation || patch.state == State::Free {
            return None;
        }
        while patch.state == State::Forward {
            index = patch.offset;
            patch = &self.patches[index as usize];
        }
        Some(index)
    }

    pub(crate) fn block_mut(&mut self, block: BlockId) -> &mut Block {
        let index = block.0 as usize;
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, Block::EMPTY);
        }
        &mut self.blocks[index]
    }

    /// Gives back what is kept for blocks from this number on. None of them has uncommitted
    /// patches.
    pub fn forget_blocks_from(&mut self, end: BlockId) {
        let end = (end.0 as usize).min(self.blocks.len());
        debug_assert!(
            (self.blocks[end..].iter()).all(|b| b.uncommitted == 0 && b.external == 0),
            "blocks with patches are kept"
        );
        self.blocks.truncate(end);
        self.blocks.shrink_to_fit();
    }

    pub(crate) fn new_patch(
        &mut self,
        state: State,
        block: u32,
        offset: u32,
        len: u32,
        undo: Undo,
    ) -> u32 {
        self.counters.created += 1;
        self.counters.live += 1;
        self.count_undo(undo);
        let fresh = |generation| Patch {
            generation,
            block,
            offset,
            len,
            next_in_block: NIL,
            prev_in_block: NIL,
            next_ready: NIL,
            prev_ready: NIL,
            befores: NIL,
            afters: NIL,
            befores_count: 0,
            mark: 0,
            forwards: NIL,
            state,
            in_flight: false,
            ready: false,
            held: false,
            watched: false,
            depth: 0,
            flights: Flights::default(),
            undo,
        };
        if self.free_patch == NIL {
            self.patches.push(fresh(1));
            return self.patches.len() as u32 - 1;
        }
        let index = self.free_patch;
        let slot = &mut self.patches[index as usize];
        self.free_patch = slot.next_in_block;
        *slot = fresh(slot.generation);
        index
    }

    /// Gives a slot back; its id is dead from here on.
    pub(crate) fn free_slot(&mut self, index: u32) {
        self.drop_undo(index);
        self.counters.live -= 1;
        let free = self.free_patch;
        let p = &mut self.patches[index as usize];
        p.state = State::Free;
        p.generation = p.generation.wrapping_add(1);
        p.next_in_block = free;
        self.free_patch = index;
    }

    pub(crate) fn drop_undo(&mut self, index: u32) {
        let p = &mut self.patches[index as usize];
        let undo = std::mem::replace(&mut p.undo, Undo::None);
        self.counters.undo_bytes_live -= self.undo.held_bytes(undo);
        self.undo.forget(undo);
    }

    pub(crate) fn count_undo(&mut self, undo: Undo) {
        let held_bytes = self.undo.held_bytes(undo);
        self.counters.undo_bytes_live += held_bytes;
        self.counters.undo_bytes_total += held_bytes;
    }

    pub(crate) fn emit(&mut self, event: &Event<'_>) {
        if let Some(hook) = &mut self.hook {
            hook.event(event);
        }
    }
}
