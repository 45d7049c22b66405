//! The slow check that everything the graph keeps up to date is what a recount would give.

use crate::BlockId;
use crate::block::{NIL, Zones};
use crate::graph::Graph;
use crate::patch::State;

impl Graph {
    /// Recounts everything that is kept up to date as patches come and go. For tests: it takes time
    /// in proportion to the graph.
    ///
    /// # Errors
    /// In words, what is not as it should be.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut live = 0;
        let mut undo_bytes = 0;
        let mut edges = 0;
        let mut external = vec![0u32; self.blocks.len()];
        for (index, p) in self.patches.iter().enumerate() {
            if p.state == State::Free {
                continue;
            }
            live += 1;
            undo_bytes += self.undo.held_bytes(p.undo);
            edges += self.check_edges(index as u32, &mut external)?;
        }
        let counted = (live, edges, undo_bytes);
        let kept = &self.counters;
        if counted != (kept.live, kept.edges_live, kept.undo_bytes_live) {
            return Err(format!(
                "patches, edges, undo bytes: {counted:?}, but {kept:?}"
            ));
        }
        self.check_runs()?;
        for (block, external) in external.into_iter().enumerate() {
            self.check_block(block as u32)?;
            let b = &self.blocks[block];
            if b.external != external {
                let kept = b.external;
                return Err(format!(
                    "block {block}: {external} external edges, counted {kept}"
                ));
            }
        }
        Ok(())
    }

    /// Checks the edges to what a patch waits for, and counts in `external` those by which others
    /// depend on a block.
    fn check_edges(&self, index: u32, external: &mut [u32]) -> Result<u64, String> {
        let p = &self.patches[index as usize];
        let mut count = 0;
        let mut edge = p.befores;
        while edge != NIL {
            let e = &self.edges[edge as usize];
            let before = &self.patches[e.before as usize];
            if e.after != index || matches!(before.state, State::Free | State::Forward) {
                return Err(format!("patch {index}: a broken edge {e:?}"));
            }
            if self.counts_as_external(e.before, index) {
                external[before.block as usize] += 1;
            }
            count += 1;
            edge = e.next_before;
        }
        if count != p.befores_count {
            let kept = p.befores_count;
            return Err(format!(
                "patch {index} waits for {count} patches, counted {kept}"
            ));
        }
        Ok(u64::from(count))
    }

    /// A run counts its blocks, and lists those that no write has taken up.
    fn check_runs(&self) -> Result<(), String> {
        let mut members = vec![0u32; self.patches.len()];
        for (block, b) in self.blocks.iter().enumerate() {
            for run in b.run().into_iter().chain(b.run_in_flight()) {
                if self.patches[run as usize].state != State::Run {
                    return Err(format!("block {block}: {run} is not a run"));
                }
                members[run as usize] += 1;
            }
        }
        for (index, p) in self.patches.iter().enumerate() {
            if p.state != State::Run {
                continue;
            }
            let mut listed_elsewhere = false;
            self.for_each_in_run(index as u32, |b| {
                listed_elsewhere |= self.run_of(b.0) != Some(index as u32);
            });
            let waits = (self.before_indices(index as u32))
                .any(|b| self.patches[b as usize].state == State::Empty);
            let is_done = self.run_is_done(index as u32);
            if members[index] != p.offset || listed_elsewhere || is_done || p.ready == waits {
                return Err(format!("run {index}: {} blocks, {p:?}", members[index]));
            }
        }
        let all: u32 = members.iter().sum();
        if u64::from(all) != self.counters.run_blocks_live {
            return Err(format!("{all} blocks in runs, {:?}", self.counters));
        }
        Ok(())
    }

    fn check_block(&self, block: u32) -> Result<(), String> {
        let b = &self.blocks[block as usize];
        let mut earlier: Vec<u32> = Vec::new();
        let mut index = b.first;
        while index != NIL {
            let p = &self.patches[index as usize];
            let last = earlier.last().copied().unwrap_or(NIL);
            if p.block != block || p.in_flight || p.prev_in_block != last {
                return Err(format!("block {block}: patch {index} does not belong here"));
            }
            if p.ready != (p.befores_count == 0) {
                return Err(format!("patch {index}: ready is {}", p.ready));
            }
            self.check_order(index, &earlier)?;
            earlier.push(index);
            index = p.next_in_block;
        }
        self.check_crowd(block)?;
        let in_run = usize::from(b.run().is_some());
        if earlier.len() + in_run != b.uncommitted as usize
            || earlier.last().copied().unwrap_or(NIL) != b.last
        {
            return Err(format!("block {block}: {} patches, {b:?}", earlier.len()));
        }
        let ready = earlier.iter().filter(|i| self.patches[**i as usize].ready);
        if (self.run_is_ready(block) || ready.count() > 0) != self.has_ready(BlockId(block)) {
            return Err(format!("block {block}: the ready list is not right"));
        }
        Ok(())
    }

    /// A patch waits for the hard patch of its block, and a soft one also for those `earlier` ones
    /// that it overlaps, directly or through others.
    fn check_order(&self, index: u32, earlier: &[u32]) -> Result<(), String> {
        let p = &self.patches[index as usize];
        let waits_for = |other: u32| self.before_indices(index).any(|b| b == other);
        let hard = self.blocks[p.block as usize].hard;
        let Some(range) = self.range_of(index) else {
            return if hard != index {
                Err(format!("patch {index} is hard, and so is {hard}"))
            } else {
                Ok(())
            };
        };
        if hard != NIL && !waits_for(hard) {
            return Err(format!(
                "patch {index} does not wait for its block's hard patch"
            ));
        }
        if self.run_of(p.block).is_some_and(|run| !waits_for(run)) {
            return Err(format!("patch {index} does not wait for its block's run"));
        }
        let zones = Zones::of(range);
        if !self.blocks[p.block as usize].zones.contains(zones) {
            return Err(format!("patch {index} lies outside of its block's zones"));
        }
        for other in earlier {
            let Some((start, end)) = self.range_of(*other) else {
                continue;
            };
            let o = &self.patches[*other as usize];
            let bits = p.state == State::Bits && o.state == State::Bits;
            let independent = bits && p.covered() & o.covered() == 0;
            let overlap = start < range.1 && range.0 < end && !independent;
            if overlap && !self.waits_within_block(index, *other) {
                return Err(format!("patch {index} does not wait for {other} below it"));
            }
        }
        Ok(())
    }

    /// Whether a patch waits for another one of its block, directly or through patches of that
    /// block.
    fn waits_within_block(&self, index: u32, other: u32) -> bool {
        let block = self.patches[index as usize].block;
        let mut seen = vec![index];
        let mut at = 0;
        while let Some(patch) = seen.get(at).copied() {
            at += 1;
            for before in self.before_indices(patch) {
                if before == other {
                    return true;
                }
                if self.patches[before as usize].block == block && !seen.contains(&before) {
                    seen.push(before);
                }
            }
        }
        false
    }

    /// The bytes that a soft patch covers.
    pub(crate) fn range_of(&self, index: u32) -> Option<(u32, u32)> {
        let p = &self.patches[index as usize];
        match p.state {
            State::Bits => Some((p.offset, p.offset + 4)),
            State::Soft => Some((p.offset, p.offset + p.len)),
            _ => None,
        }
    }
}
