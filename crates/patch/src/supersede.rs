//! Changes that need not be written because another one makes up for them.

use crate::block::{NIL, Zones};
use crate::graph::Graph;
use crate::patch::{PatchId, State};
use crate::planted::Planted;
use crate::search::{SEARCH_LIMIT, Target};
use crate::{BlockId, Event};

impl Graph {
    /// Takes back the block's one uncommitted patch, where it has no undo data and `by`, a patch of
    /// another block that has none either, makes up for it: what waits for it waits for `by` from
    /// now on, and its id stands for `by`. What it waited for itself no longer matters; nor does
    /// `by` wait for it any more. The newest bytes stay as they are, the block counts as clean.
    ///
    /// `false`, and nothing has changed, where the block has more than that, or `by` may wait for
    /// it in a roundabout way, or the optimisations are not all on.
    pub fn supersede(&mut self, block: BlockId, by: PatchId) -> bool {
        let (Some(from), Some(by)) = (self.only_hard_patch(block), self.index_of(by)) else {
            return false;
        };
        let (p, q) = (&self.patches[from as usize], &self.patches[by as usize]);
        let fits = q.state == State::Hard
            && !q.in_flight
            && q.block != block.0
            && !(p.watched && q.watched)
            && self.optimisations.hard
            && self.optimisations.merge;
        if !fits || self.waits_in_a_roundabout_way(by, from) {
            return false;
        }
        let mut edge = self.patches[by as usize].befores;
        while edge != NIL {
            let (before, next) = {
                let e = &self.edges[edge as usize];
                (e.before, e.next_before)
            };
            if before == from {
                self.remove_edge(edge);
            }
            edge = next;
        }
        self.make_unready(from);
        self.drop_dependencies(from);
        while self.planted(Planted::SupersededForgetsDependents)
            && self.patches[from as usize].afters != NIL
        {
            let edge = self.patches[from as usize].afters;
            let after = self.edges[edge as usize].after;
            self.remove_edge(edge);
            self.update_ready(after);
        }
        self.move_token(from, by);
        self.stand_in(from, by);
        self.blocks[block.0 as usize].zones = Zones::default();
        self.update_ready(by);
        let (from, to) = (self.id_of(from), self.id_of(by));
        self.emit(&Event::Supersede { from, block, to });
        true
    }

    /// The block's hard patch, if it has no other patch that no write has taken up.
    fn only_hard_patch(&self, block: BlockId) -> Option<u32> {
        let b = self.blocks.get(block.0 as usize)?;
        (b.uncommitted == 1 && b.hard != NIL).then_some(b.hard)
    }

    /// Whether a patch may wait for `target` by way of another one.
    fn waits_in_a_roundabout_way(&mut self, index: u32, target: u32) -> bool {
        let mut starts = std::mem::take(&mut self.starts);
        starts.clear();
        starts.extend(self.before_indices(index).filter(|b| *b != target));
        let found = self.may_reach(&starts, Target::Patch(target), SEARCH_LIMIT)
            && !self.planted(Planted::SupersededInACircle);
        self.starts = starts;
        found
    }

    /// Moves the token of a superseded patch to the patch that its id stands for from now on.
    fn move_token(&mut self, from: u32, to: u32) {
        let token = {
            let p = &mut self.patches[from as usize];
            std::mem::take(&mut p.watched).then_some((p.offset, p.len))
        };
        if let Some((low, high)) = token {
            let q = &mut self.patches[to as usize];
            q.watched = true;
            (q.offset, q.len) = (low, high);
        }
    }
}
