//! Creating patches: hard where possible, merged where possible, with undo data otherwise.

use crate::graph::{Graph, NIL, PatchId, State, Undo};
use crate::search::{SEARCH_LIMIT, Target};
use crate::{BlockId, Event};

/// What a patch does to its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Writes `bytes` from `offset_bytes` on.
    Bytes {
        /// The first byte, counted from the block's start.
        offset_bytes: u32,
        /// The new bytes.
        bytes: &'a [u8],
    },
    /// Flips the bits of `mask` in the little-endian 32-bit word at `offset_bytes` (a multiple of 4). Flips of different bits are
    /// independent of each other.
    Flip {
        /// The word's first byte.
        offset_bytes: u32,
        /// The bits to flip.
        mask: u32,
    },
}

impl Change<'_> {
    fn range(&self) -> (u32, u32) {
        match *self {
            Change::Bytes {
                offset_bytes,
                bytes,
            } => (offset_bytes, offset_bytes + bytes.len() as u32),
            Change::Flip { offset_bytes, .. } => (offset_bytes, offset_bytes + 4),
        }
    }

    /// Applies the change to a block's bytes.
    pub fn apply(&self, block: &mut [u8]) {
        match *self {
            Change::Bytes {
                offset_bytes,
                bytes,
            } => {
                block[offset_bytes as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            Change::Flip { offset_bytes, mask } => flip(block, offset_bytes, mask),
        }
    }
}

pub(crate) fn flip(block: &mut [u8], offset: u32, mask: u32) {
    for (byte, bits) in block[offset as usize..][..4]
        .iter_mut()
        .zip(mask.to_le_bytes())
    {
        *byte ^= bits;
    }
}

/// What stands in the way of making a new patch hard.
enum Hardness {
    /// Nothing; the block's soft patches can become hard with it.
    WithSofts,
    /// Nothing, but the block's soft patches must stay as they are.
    Alone,
    No,
}

impl Graph {
    /// Changes a block: applies `change` to `bytes` (the block's newest bytes) and records it as a patch that is on disk no
    /// earlier than each of `dependencies`. Returns the patch that now holds the change, possibly one that existed.
    ///
    /// Dead ids among the dependencies count for nothing. Overlaps with earlier patches of the block need not be stated.
    ///
    /// # Panics
    /// Where the change does not lie inside `bytes`.
    pub fn create(
        &mut self,
        block: BlockId,
        bytes: &mut [u8],
        change: Change<'_>,
        dependencies: &[PatchId],
    ) -> PatchId {
        assert!(
            change.range().1 as usize <= bytes.len(),
            "a change must lie inside its block"
        );
        self.block_mut(block);
        let mut deps = std::mem::take(&mut self.chosen);
        deps.clear();
        deps.extend(dependencies.iter().filter_map(|d| self.index_of(*d)));
        let (index, merged) = self.place(block, bytes, change, &mut deps);
        self.chosen = deps;
        change.apply(bytes);
        self.update_ready(index);
        self.counters.note_peak();
        let id = self.id_of(index);
        if self.hook.is_some() {
            self.emit(&if merged {
                Event::Merge {
                    into: id,
                    block,
                    change,
                    dependencies,
                }
            } else {
                Event::Create {
                    id,
                    block: Some(block),
                    change: Some(change),
                    dependencies,
                }
            });
        }
        id
    }

    /// Finds or makes the patch for a change; true where it is one that existed.
    fn place(
        &mut self,
        block: BlockId,
        bytes: &[u8],
        change: Change<'_>,
        deps: &mut Vec<u32>,
    ) -> (u32, bool) {
        let (any_overlap, only_overlap) = self.overlapped_softs(block, &change);
        match self.hardness(block, deps) {
            Hardness::WithSofts if self.optimisations.merge => {
                self.collapse_softs(block);
                return self.place_hard(block, deps);
            }
            Hardness::WithSofts | Hardness::Alone if !any_overlap => {
                return self.place_hard(block, deps);
            }
            _ => {}
        }
        if self.optimisations.merge
            && let Some(target) = only_overlap
            && self.can_merge_into(target, &change, deps)
        {
            self.merge_into_soft(target, bytes, change, deps);
            return (target, true);
        }
        (self.place_soft(block, bytes, change, deps), false)
    }

    /// Whether soft patches of the block overlap the change, and which one where there is just one.
    fn overlapped_softs(&self, block: BlockId, change: &Change<'_>) -> (bool, Option<u32>) {
        let mut index = self.blocks[block.0 as usize].first;
        let mut only = None;
        let mut any = false;
        while index != NIL {
            if self.overlaps(index, change) {
                only = if any { None } else { Some(index) };
                any = true;
            }
            index = self.patches[index as usize].next_in_block;
        }
        (any, only)
    }

    fn overlaps(&self, index: u32, change: &Change<'_>) -> bool {
        let p = &self.patches[index as usize];
        let (start, end) = change.range();
        match (p.state, change) {
            (State::Bits, Change::Flip { offset_bytes, mask }) => {
                p.offset == *offset_bytes && p.covered & mask != 0
            }
            (State::Bits, Change::Bytes { .. }) => p.offset < end && start < p.offset + 4,
            (State::Soft, _) => p.offset < end && start < p.offset + p.len,
            _ => false,
        }
    }

    /// Asks whether the change can go without undo data, and leaves in `deps` what the patch is to depend on then: an empty patch
    /// that stands for patches of this very block is replaced by what else it stands for.
    fn hardness(&mut self, block: BlockId, deps: &mut Vec<u32>) -> Hardness {
        if !self.optimisations.hard {
            return Hardness::No;
        }
        let nobody_waits_for_this_block = self.blocks[block.0 as usize].external == 0;
        let merge = self.optimisations.merge;
        let mut i = 0;
        while i < deps.len() {
            let d = &self.patches[deps[i] as usize];
            if d.state == State::Empty && d.afters == NIL && self.stands_for_block(deps[i], block) {
                if d.held {
                    return Hardness::No;
                }
                let empty = deps.swap_remove(i);
                let count = deps.len();
                let befores: Vec<u32> = self.before_indices(empty).collect();
                deps.extend(befores);
                debug_assert!(deps.len() > count);
                continue;
            }
            let soft_here = d.block == block.0 && !d.in_flight && d.state != State::Hard;
            if soft_here && !(nobody_waits_for_this_block && merge) {
                return Hardness::No;
            }
            i += 1;
        }
        if nobody_waits_for_this_block {
            return Hardness::WithSofts;
        }
        // Without merging a block has several hard patches, which go together though no edge says so: a search would not see it.
        if !merge {
            return Hardness::No;
        }
        let hard = self.blocks[block.0 as usize].hard;
        let starts: Vec<u32> = deps.iter().copied().filter(|d| *d != hard).collect();
        if starts.is_empty() || !self.may_reach(&starts, Target::Block(block.0), SEARCH_LIMIT) {
            Hardness::Alone
        } else {
            Hardness::No
        }
    }

    fn stands_for_block(&self, empty: u32, block: BlockId) -> bool {
        self.before_indices(empty).any(|b| {
            let p = &self.patches[b as usize];
            p.block == block.0 && !p.in_flight
        })
    }

    /// Soft-to-hard conversion (§4.2): no other block waits for this one, so nothing can force its soft patches back any more.
    /// All become one hard patch.
    fn collapse_softs(&mut self, block: BlockId) {
        let first = self.blocks[block.0 as usize].first;
        if first == NIL {
            return;
        }
        let old_hard = self.blocks[block.0 as usize].hard;
        let keep = if old_hard == NIL { first } else { old_hard };
        let mut index = first;
        while index != NIL {
            let next = self.patches[index as usize].next_in_block;
            if index != keep {
                self.forward_to(index, keep);
            }
            index = next;
        }
        self.drop_edges_within_block(keep);
        if old_hard == NIL {
            self.counters.converted_to_hard += 1;
            self.drop_undo(keep);
            let p = &mut self.patches[keep as usize];
            p.state = State::Hard;
            self.blocks[block.0 as usize].hard = keep;
        }
        self.update_ready(keep);
    }

    /// Moves everything of a soft patch to `to`, a patch of the same block, and leaves the id standing for that one.
    fn forward_to(&mut self, from: u32, to: u32) {
        self.counters.converted_to_hard += 1;
        self.make_unready(from);
        while self.patches[from as usize].befores != NIL {
            let edge = self.patches[from as usize].befores;
            let before = self.edges[edge as usize].before;
            self.remove_edge(edge);
            if before != to
                && self.patches[before as usize].block != self.patches[to as usize].block
            {
                self.add_edge(to, before);
            }
        }
        while self.patches[from as usize].afters != NIL {
            let edge = self.patches[from as usize].afters;
            let after = self.edges[edge as usize].after;
            self.remove_edge(edge);
            if after != to {
                self.add_edge(after, to);
            }
        }
        self.unlink_from_block(from);
        self.drop_undo(from);
        let (from_id, to_id) = (self.id_of(from), self.id_of(to));
        let forwards = self.patches[from as usize].forwards;
        let mut last = from;
        self.patches[from as usize].next_in_block = forwards;
        // What had been forwarded to `from` resolves through it; the chain is freed as one when `to` commits.
        while self.patches[last as usize].next_in_block != NIL {
            last = self.patches[last as usize].next_in_block;
        }
        let p = &mut self.patches[from as usize];
        p.state = State::Forward;
        p.offset = to;
        p.forwards = NIL;
        let head = self.patches[to as usize].forwards;
        self.patches[last as usize].next_in_block = head;
        self.patches[to as usize].forwards = from;
        self.emit(&Event::Forward {
            from: from_id,
            to: to_id,
        });
    }

    fn drop_edges_within_block(&mut self, index: u32) {
        let block = self.patches[index as usize].block;
        let mut edge = self.patches[index as usize].befores;
        while edge != NIL {
            let next = self.edges[edge as usize].next_before;
            let before = self.edges[edge as usize].before;
            if self.patches[before as usize].block == block {
                self.remove_edge(edge);
            }
            edge = next;
        }
    }

    /// Merges into the block's hard patch, or makes it (with every soft patch of the block lying on top of it).
    fn place_hard(&mut self, block: BlockId, deps: &[u32]) -> (u32, bool) {
        let old = self.blocks[block.0 as usize].hard;
        let merged = old != NIL && self.optimisations.merge;
        let hard = if merged {
            self.counters.merged_hard += 1;
            old
        } else {
            self.counters.created_hard += 1;
            let index = self.new_patch(State::Hard, block.0, 0, 0, Undo::None);
            let mut soft = self.blocks[block.0 as usize].first;
            while soft != NIL {
                let next = self.patches[soft as usize].next_in_block;
                if self.patches[soft as usize].state != State::Hard {
                    self.add_edge(soft, index);
                }
                soft = next;
            }
            self.link_into_block(index, true);
            if old != NIL {
                self.add_edge(index, old);
            }
            self.blocks[block.0 as usize].hard = index;
            index
        };
        for d in deps {
            let p = &self.patches[*d as usize];
            let same_block = p.block == block.0;
            if *d != hard && !(same_block && (p.in_flight || merged || self.optimisations.merge)) {
                self.add_edge(hard, *d);
            }
        }
        (hard, merged)
    }

    /// Whether a change can be joined to a soft patch that it overlaps (§4.3): it can where none of its dependencies leads back.
    fn can_merge_into(&mut self, target: u32, change: &Change<'_>, deps: &[u32]) -> bool {
        let p = &self.patches[target as usize];
        let same_kind = match change {
            Change::Bytes { .. } => p.state == State::Soft,
            Change::Flip { .. } => p.state == State::Bits,
        };
        if !same_kind {
            return false;
        }
        // The hard patch below can never lead to what lies on top of it.
        let hard = self.blocks[p.block as usize].hard;
        let starts: Vec<u32> = deps
            .iter()
            .copied()
            .filter(|d| *d != target && *d != hard)
            .collect();
        starts.is_empty() || !self.may_reach(&starts, Target::Patch(target), SEARCH_LIMIT)
    }

    fn merge_into_soft(&mut self, target: u32, bytes: &[u8], change: Change<'_>, deps: &[u32]) {
        self.counters.merged_overlap += 1;
        match change {
            Change::Flip { mask, .. } => {
                let p = &mut self.patches[target as usize];
                p.len ^= mask;
                p.covered |= mask;
            }
            Change::Bytes { .. } => self.extend_range(target, bytes, change.range()),
        }
        for d in deps {
            if *d != target {
                self.add_edge(target, *d);
            }
        }
    }

    /// Makes a soft patch cover `range` too; the bytes it gains are, so far, as they were before it.
    fn extend_range(&mut self, target: u32, bytes: &[u8], (start, end): (u32, u32)) {
        let p = &self.patches[target as usize];
        let (old_start, old_end) = (p.offset, p.offset + p.len);
        let (new_start, new_end) = (old_start.min(start), old_end.max(end));
        if (new_start, new_end) == (old_start, old_end) {
            return;
        }
        let mut old = bytes[new_start as usize..new_end as usize].to_vec();
        p.undo.restore(
            &mut old[(old_start - new_start) as usize..][..(old_end - old_start) as usize],
        );
        self.drop_undo(target);
        let undo = Undo::of(&old, self.optimisations.hard);
        self.count_undo(&undo);
        let p = &mut self.patches[target as usize];
        p.undo = undo;
        p.offset = new_start;
        p.len = new_end - new_start;
    }

    fn count_undo(&mut self, undo: &Undo) {
        self.counters.undo_bytes_live += undo.held_bytes();
        self.counters.undo_bytes_total += undo.held_bytes();
    }

    fn place_soft(
        &mut self,
        block: BlockId,
        bytes: &[u8],
        change: Change<'_>,
        deps: &[u32],
    ) -> u32 {
        let (start, end) = change.range();
        let index = match change {
            Change::Flip { mask, .. } => {
                self.new_patch(State::Bits, block.0, start, mask, Undo::None)
            }
            Change::Bytes { .. } => {
                let old = &bytes[start as usize..end as usize];
                let undo = Undo::of(old, self.optimisations.hard);
                self.new_patch(State::Soft, block.0, start, end - start, undo)
            }
        };
        let mut other = self.blocks[block.0 as usize].first;
        while other != NIL {
            if self.overlaps(other, &change) || self.patches[other as usize].state == State::Hard {
                self.add_edge(index, other);
            }
            other = self.patches[other as usize].next_in_block;
        }
        for d in deps {
            let p = &self.patches[*d as usize];
            if !(p.block == block.0 && p.in_flight) {
                self.add_edge(index, *d);
            }
        }
        self.link_into_block(index, false);
        index
    }
}
