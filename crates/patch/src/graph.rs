//! The graph: an arena of patches and edges, and a table of blocks.

use crate::block::{Block, BlockId, NIL};
use crate::crowd::Crowds;
use crate::patch::{EDGE_BYTES, Edge, Flights, PATCH_BYTES, Patch, PatchId, State};
use crate::trail::Trail;
use crate::undo::{Undo, UndoStore};
use crate::{Counters, Event, Hook, Optimisations};

/// Edges that a short look for `after → before` goes through: this many of the newest dependencies
/// of `after`, and of the newest dependents of `before`.
pub(crate) const LOOK: usize = 16;

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
    /// Where order is kept by the queue of the device.
    pub(crate) trail: Option<Box<Trail>>,
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
            trail: None,
            #[cfg(feature = "planted-errors")]
            planted: None,
        }
    }

    /// Hangs a hook on the graph, or takes it off.
    pub fn set_hook(&mut self, hook: Option<Box<dyn Hook>>) {
        self.hook = hook;
    }

    /// The bytes that a patch without stored undo data, a dependency, and a block's entry in the
    /// table take.
    pub fn unit_bytes() -> [u64; 3] {
        [PATCH_BYTES, EDGE_BYTES, size_of::<Block>() as u64]
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
