//! Where a change goes: into the block's hard patch, into a soft patch, or into a patch of its own.

use std::ops::ControlFlow;

use crate::block::{NIL, Zones};
use crate::graph::Graph;
use crate::graph::LOOK;
use crate::patch::State;
use crate::planted::Planted;
use crate::search::Target;
use crate::undo::{Packed, Undo};
use crate::{BlockId, Change, Event};

/// Bytes from which on a patch may keep only the old bytes that it changes. Smaller patches keep
/// all.
const DIFFERENCE_FROM: usize = 128;

impl Graph {
    /// Soft-to-hard conversion (§4.2): no other block waits for this one, so nothing can force its
    /// soft patches back any more. All become one hard patch.
    pub(crate) fn collapse_softs(&mut self, block: BlockId) {
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
        self.blocks[block.0 as usize].zones = Zones::default();
        self.dissolve_crowd(block.0);
        if old_hard == NIL {
            self.counters.converted_to_hard += 1;
            self.drop_undo(keep);
            let p = &mut self.patches[keep as usize];
            p.state = State::Hard;
            self.blocks[block.0 as usize].hard = keep;
            let id = self.id_of(keep);
            self.emit(&Event::Harden { id });
        }
        self.update_ready(keep);
    }

    /// Moves everything of a soft patch to `to`, a patch of the same block, and leaves the id
    /// standing for that one.
    fn forward_to(&mut self, from: u32, to: u32) {
        self.counters.converted_to_hard += 1;
        self.make_unready(from);
        while self.patches[from as usize].befores != NIL {
            let edge = self.patches[from as usize].befores;
            let before = self.edges[edge as usize].before;
            self.remove_edge(edge);
            if before != to
                && self.patches[before as usize].block != self.patches[to as usize].block
                && !self.planted(Planted::ForwardLosesDependencies)
            {
                self.add_edge(to, before);
            }
        }
        self.stand_in(from, to);
        let (from, to) = (self.id_of(from), self.id_of(to));
        self.emit(&Event::Forward { from, to });
    }

    /// Takes a patch that depends on nothing (any more) out of its block. What waits for it waits
    /// for `to`, and its id stands for that one.
    pub(crate) fn stand_in(&mut self, from: u32, to: u32) {
        while self.patches[from as usize].afters != NIL {
            let edge = self.patches[from as usize].afters;
            let after = self.edges[edge as usize].after;
            self.remove_edge(edge);
            if after != to && !self.planted(Planted::ForwardLosesDependents) {
                self.add_edge(after, to);
            }
        }
        self.unlink_from_block(from);
        self.drop_undo(from);
        let forwards = self.patches[from as usize].forwards;
        let mut last = from;
        self.patches[from as usize].next_in_block = forwards;
        // What had been forwarded to `from` resolves through it; the chain is freed as one when
        // `to` commits.
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
    }

    /// Merges into the block's hard patch, or makes it (with every soft patch of the block lying on
    /// top of it).
    pub(crate) fn place_hard(&mut self, block: BlockId, deps: &[u32]) -> (u32, bool) {
        if let Some(run) = self.run_of(block.0) {
            let is_ready = self.patches[run as usize].ready;
            let waits = |d: &u32| self.run_waits_for(run, *d);
            if deps.is_empty() == is_ready && deps.iter().all(waits) {
                self.counters.merged_hard += 1;
                return (run, true);
            }
            self.split_from_run(block);
        }
        let old = self.blocks[block.0 as usize].hard;
        let merged = old != NIL;
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
            self.blocks[block.0 as usize].hard = index;
            index
        };
        for d in deps {
            if *d != hard && self.patches[*d as usize].block != block.0 {
                self.add_edge(hard, *d);
            }
        }
        (hard, merged)
    }

    /// Whether a change can be joined to a soft patch that it overlaps (§4.3): it can where none of
    /// its dependencies leads back to the patch. Bits are independent of each other and stay so: a
    /// flip is joined to a patch of several bits only where it brings them nothing new to wait for,
    /// or flips them all.
    pub(crate) fn can_merge_into(
        &mut self,
        target: u32,
        change: &Change<'_>,
        deps: &[u32],
    ) -> bool {
        let p = &self.patches[target as usize];
        let same_kind = match change {
            Change::Bytes { .. } => p.state == State::Soft,
            Change::Flip { .. } => p.state == State::Bits,
        };
        if !same_kind || (p.flights.is_settled() && self.brings_more_to_wait_for(target, deps)) {
            return false;
        }
        // The hard patch below can never lead to what lies on top of it.
        let hard = self.blocks[p.block as usize].hard;
        if let Change::Flip { mask, .. } = change
            && self.patches[target as usize].covered() & !mask != 0
            && !deps
                .iter()
                .all(|d| *d == target || self.depends_directly(target, *d))
        {
            return false;
        }
        !self.leads_to(deps, target, hard, Target::Patch(target))
            || self.planted(Planted::OverlapMergeIgnoresSearch)
    }

    /// Whether a soft patch changes every byte that the change does, or flips every bit of it.
    fn covers(&self, index: u32, change: &Change<'_>) -> bool {
        let p = &self.patches[index as usize];
        let (start, end) = change.range();
        match (p.state, change) {
            (State::Soft, _) => p.offset <= start && end <= p.offset + p.len,
            (State::Bits, Change::Flip { offset_bytes, mask }) => {
                p.offset == *offset_bytes && p.covered() & mask == *mask
            }
            _ => false,
        }
    }

    /// Makes a soft patch depend on those that its change overlaps, the newest first. The look ends
    /// with one that covers the change: that one depends itself on whatever older patch the change
    /// overlaps.
    fn come_after_overlapped(&mut self, index: u32, block: BlockId, change: &Change<'_>) {
        let mut overlapped = std::mem::take(&mut self.starts);
        overlapped.clear();
        self.for_each_near_from_newest(block.0, change.range(), |other| {
            if !self.overlaps(other, change) {
                return ControlFlow::Continue(());
            }
            overlapped.push(other);
            match self.covers(other, change) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        for other in &overlapped {
            self.add_edge(index, *other);
        }
        self.starts = overlapped;
    }

    fn depends_directly(&self, index: u32, on: u32) -> bool {
        self.before_indices(index).any(|b| b == on)
    }

    /// The first patch of flips of a word that waits for exactly `deps` (and, as everything on the
    /// block does, for its hard patch). A flip that joins it makes nothing wait longer, since both
    /// wait for the same.
    pub(crate) fn same_word_and_dependencies(
        &self,
        block: BlockId,
        word: u32,
        deps: &[u32],
    ) -> Option<u32> {
        let block = block.0;
        let hard = self.blocks[block as usize].hard;
        // Not counted: the hard patch, and a patch of this block in flight, which is on disk before
        // any later version of the block.
        let counts = |g: &Graph, d: u32| {
            let p = &g.patches[d as usize];
            d != hard && !(p.block == block && p.in_flight)
        };
        let mut found = None;
        self.for_each_near(block, (word, word + 4), |index| {
            let p = &self.patches[index as usize];
            if p.state == State::Bits && p.offset == word {
                let both_ways = self
                    .before_indices(index)
                    .all(|b| !counts(self, b) || deps.contains(&b))
                    && deps
                        .iter()
                        .all(|d| !counts(self, *d) || self.depends_directly(index, *d));
                if both_ways || self.planted(Planted::BitsMergeIgnoresDependencies) {
                    found = Some(index);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// Joins a flip to the flips of other bits of its word.
    pub(crate) fn merge_bits(&mut self, target: u32, mask: u32) {
        self.counters.merged_bits += 1;
        self.flip_also(target, mask);
    }

    fn flip_also(&mut self, target: u32, mask: u32) {
        let forgets = self.planted(Planted::CancelledFlipsForget);
        let p = &mut self.patches[target as usize];
        p.len ^= mask;
        let covered = if forgets { p.len } else { p.covered() | mask };
        p.undo = Undo::Flip {
            covered: Packed::new(covered),
        };
    }

    pub(crate) fn merge_into_soft(
        &mut self,
        target: u32,
        bytes: &[u8],
        change: Change<'_>,
        deps: &[u32],
    ) {
        self.counters.merged_overlap += 1;
        match change {
            Change::Flip { mask, .. } => self.flip_also(target, mask),
            Change::Bytes { .. } => self.extend_range(target, bytes, change.range()),
        }
        for d in deps {
            if *d != target {
                self.add_edge(target, *d);
            }
        }
    }

    /// Makes a soft patch cover `range` too. The bytes that it gains are not changed yet.
    fn extend_range(&mut self, target: u32, bytes: &[u8], (start, end): (u32, u32)) {
        let p = &self.patches[target as usize];
        let (old_start, old_end) = (p.offset, p.offset + p.len);
        let (new_start, new_end) = (old_start.min(start), old_end.max(end));
        let (block, undo) = (p.block as usize, p.undo);
        let is_difference =
            self.undo.is_difference(undo) && !self.planted(Planted::DifferenceOutlivesMerge);
        if (new_start, new_end) == (old_start, old_end) && !is_difference {
            return;
        }
        let new_range = new_start as usize..new_end as usize;
        let mut old = std::mem::take(&mut self.old_bytes);
        old.clear();
        if is_difference {
            // A difference can be put back only into bytes as the patch left them, so newer patches
            // are taken back first.
            old.extend_from_slice(bytes);
            self.take_back(self.blocks[block].last, target, &mut old);
            old.truncate(new_range.end);
            old.drain(..new_range.start);
        } else {
            old.extend_from_slice(&bytes[new_range]);
            if !self.planted(Planted::MergedUndoWrong) {
                let inner = (old_start - new_start) as usize..(old_end - new_start) as usize;
                self.undo.restore(undo, &mut old[inner]);
            }
        }
        // Undo bytes that were held before are not counted a second time.
        self.counters.undo_bytes_total -= self.undo.held_bytes(undo);
        self.drop_undo(target);
        let undo = self.undo.keep(&old, self.is_frugal());
        self.old_bytes = old;
        self.count_undo(undo);
        if !self.planted(Planted::ZonesForgotten) {
            self.grow_in_crowd(target, (old_start, old_end), (new_start, new_end));
            self.blocks[block]
                .zones
                .add(Zones::of((new_start, new_end)));
        }
        let p = &mut self.patches[target as usize];
        p.undo = undo;
        p.offset = new_start;
        p.len = new_end - new_start;
    }

    /// Whether undo data are kept without the zeros at their end. With every optimisation off they
    /// are kept as they are.
    fn is_frugal(&self) -> bool {
        self.optimisations.hard || self.optimisations.merge
    }

    /// Whether a new patch of `bytes` bytes may keep only the old bytes that it changes. A patch of
    /// a whole block may only if one of the newest keeps all the old bytes: a rollback of thousands
    /// of patches then starts at one like that, and need not go through all of them.
    fn may_keep_difference(&self, block: BlockId, bytes: usize, block_bytes: usize) -> bool {
        if !self.is_frugal() || bytes < DIFFERENCE_FROM {
            return false;
        }
        let mut index = self.blocks[block.0 as usize].last;
        let mut looks = 1..LOOK;
        bytes < block_bytes
            || std::iter::from_fn(|| {
                let found = (index != NIL && looks.next().is_some()).then_some(index)?;
                index = self.patches[found as usize].prev_in_block;
                Some(found)
            })
            .any(|index| self.has_whole_undo(index, block_bytes))
    }

    pub(crate) fn place_soft(
        &mut self,
        block: BlockId,
        bytes: &[u8],
        change: Change<'_>,
        deps: &[u32],
        overlaps: bool,
    ) -> u32 {
        let (start, end) = change.range();
        self.blocks[block.0 as usize]
            .zones
            .add(Zones::of((start, end)));
        let index = match change {
            Change::Flip { mask, .. } => self.new_patch(
                State::Bits,
                block.0,
                start,
                mask,
                Undo::Flip {
                    covered: Packed::new(mask),
                },
            ),
            Change::Bytes { bytes: new, .. } => {
                let old = &bytes[start as usize..end as usize];
                let difference = match self.may_keep_difference(block, old.len(), bytes.len()) {
                    true => self.undo.keep_difference(old, new),
                    false => None,
                };
                let frugal = self.is_frugal();
                let undo = difference.unwrap_or_else(|| self.undo.keep(old, frugal));
                self.new_patch(State::Soft, block.0, start, end - start, undo)
            }
        };
        let hard = self.blocks[block.0 as usize].hard;
        if hard != NIL {
            self.add_edge(index, hard);
        }
        if let Some(run) = self.run_of(block.0) {
            self.add_edge(index, run);
        }
        if overlaps && !self.planted(Planted::OverlapLeftOut) {
            self.come_after_overlapped(index, block, &change);
        }
        for d in deps {
            let p = &self.patches[*d as usize];
            if !(p.block == block.0 && p.in_flight) {
                self.add_edge(index, *d);
            }
        }
        self.link_into_block(index, false);
        self.enter_crowd(index);
        index
    }
}
