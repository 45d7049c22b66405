//! Settling: from some moment on a patch takes on nothing more to wait for.
//!
//! A change that is merged into a patch brings what it waits for along. A file that grows by a
//! block every second merges its new size into the same patch of its inode, which waits for one
//! more block of contents each time: it would never be ready, nor would anything else of the
//! inode's block that went into the same hard patch, and no sync of one of its neighbours would
//! ever return. So a patch is *settled* at some time: what it waits for can only become less from
//! then on, and changes that would wait for more become patches of their own, with undo data, on
//! top of it.
//!
//! A patch settles when somebody waits for it ([`Graph::settle`]), and when things that it waits
//! for went in flight with [`MOST_FLIGHTS`](crate::patch::MOST_FLIGHTS) batches. Settling with the first batch would be safe as
//! well, but PostMark's inodes would then be written 14,000 times with a rollback.
//!
//! Waiting for a further transaction is allowed even then: otherwise a bitmap that every
//! transaction changes would get undo data for each bit, once the log's tail waits for it. Whoever
//! waits for the bitmap then waits for one more commit.

use crate::block::NIL;
use crate::graph::{Graph, LOOK};
use crate::patch::{DEPTH_OF_TRANSACTION, Flights, State};
use crate::{Event, PatchId};

impl Graph {
    /// Settles patches and all that they wait for, because somebody waits for them: from now on
    /// they take on nothing more to wait for.
    pub fn settle(&mut self, targets: &[PatchId]) {
        self.emit(&Event::Settle { targets });
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        stack.extend(targets.iter().filter_map(|target| self.index_of(*target)));
        let mark = self.next_mark();
        while let Some(index) = stack.pop() {
            let p = &mut self.patches[index as usize];
            if p.mark == mark || p.in_flight {
                continue;
            }
            p.mark = mark;
            if !matches!(p.state, State::Empty | State::Run) {
                p.flights = Flights::SETTLED;
                let block = p.block;
                self.note_settled(block, true);
            }
            stack.extend(self.before_indices(index));
        }
        self.stack = stack;
    }

    /// A batch is about to be put together.
    pub fn next_flight(&mut self) {
        self.flight = self.flight.wrapping_add(1);
    }

    /// A patch goes in flight: notes the batch in those that wait for it, directly or through empty
    /// patches.
    pub(crate) fn note_flight(&mut self, index: u32) {
        let home = self.patches[index as usize].block;
        let batch = self.flight;
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        stack.push(index);
        while let Some(index) = stack.pop() {
            let mut edge = self.patches[index as usize].afters;
            while edge != NIL {
                let e = &self.edges[edge as usize];
                let after = e.after;
                edge = e.next_after;
                let p = &mut self.patches[after as usize];
                // What lies on top of it in its own block comes after it anyway.
                let is_above = p.state != State::Empty && p.block == home;
                // An empty patch that has passed on enough batches need not pass on more, so a
                // chain of a thousand of them is not walked with every batch. A patch that came to
                // wait for it later is settled by its other dependencies.
                let has_passed_on = p.state == State::Empty && p.flights.is_settled();
                if p.state == State::Run || is_above || has_passed_on || !p.flights.note(batch) {
                    continue;
                }
                if p.state == State::Empty {
                    stack.push(after);
                } else if p.flights.is_settled() {
                    let block = p.block;
                    self.note_settled(block, true);
                }
            }
        }
        self.stack = stack;
    }

    /// Whether a change with these dependencies would make `patch` wait for something that it does
    /// not wait for already, as far as a short look shows. A transaction does not count: it ends,
    /// and a block that the next transaction changes before it was written stays back until that
    /// one has ended too.
    pub(crate) fn brings_more_to_wait_for(&self, patch: u32, deps: &[u32]) -> bool {
        let is_transaction = |d: u32| {
            let p = &self.patches[d as usize];
            p.state == State::Empty && p.depth == DEPTH_OF_TRANSACTION
        };
        deps.iter().any(|d| {
            let is_known = *d == patch
                || is_transaction(*d)
                || (patch != NIL && self.has_edge_among_newest(patch, *d, LOOK));
            !is_known
        })
    }

    /// Whether an uncommitted patch of the block may be settled.
    pub(crate) fn has_settled(&self, block: u32) -> bool {
        let word = self.settled.get(block as usize / 64);
        word.is_some_and(|word| word & (1 << (block % 64)) != 0)
    }

    pub(crate) fn note_settled(&mut self, block: u32, settled: bool) {
        let at = block as usize / 64;
        if at >= self.settled.len() {
            if !settled {
                return;
            }
            self.settled.resize(at + 1, 0);
        }
        let bit = 1 << (block % 64);
        if settled {
            self.settled[at] |= bit;
        } else {
            self.settled[at] &= !bit;
        }
    }
}
