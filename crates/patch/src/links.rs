//! The intrusive lists: a block's patches, its ready patches, and the edges.

use crate::block::NIL;
use crate::graph::Graph;
use crate::patch::{DEPTH_OF_TRANSACTION, Edge, State};
use crate::planted::Planted;
use crate::{BlockId, Event};

/// The number of dependencies at which a patch is looked at for duplicates among them; again at
/// twice as many, and so on.
const FIRST_THINNED: u32 = 16;

impl Graph {
    /// Appends a patch to its block's uncommitted patches, or puts it first (a hard one: everything
    /// else lies on top of it).
    pub(crate) fn link_into_block(&mut self, index: u32, first: bool) {
        let block = self.patches[index as usize].block as usize;
        let b = &mut self.blocks[block];
        b.uncommitted += 1;
        let (old_first, old_last) = (b.first, b.last);
        if old_first == NIL {
            b.first = index;
            b.last = index;
            return;
        }
        if first {
            b.first = index;
            self.patches[index as usize].next_in_block = old_first;
            self.patches[old_first as usize].prev_in_block = index;
        } else {
            b.last = index;
            self.patches[index as usize].prev_in_block = old_last;
            self.patches[old_last as usize].next_in_block = index;
        }
    }

    pub(crate) fn unlink_from_block(&mut self, index: u32) {
        self.leave_crowd(index);
        let (block, next, prev) = {
            let p = &mut self.patches[index as usize];
            let links = (p.block as usize, p.next_in_block, p.prev_in_block);
            p.next_in_block = NIL;
            p.prev_in_block = NIL;
            links
        };
        if next != NIL {
            self.patches[next as usize].prev_in_block = prev;
        }
        if prev != NIL {
            self.patches[prev as usize].next_in_block = next;
        }
        let b = &mut self.blocks[block];
        b.uncommitted -= 1;
        if b.first == index {
            b.first = next;
        }
        if b.last == index {
            b.last = prev;
        }
        if b.hard == index {
            b.hard = NIL;
        }
    }

    /// Puts a patch on its block's ready list; tells the owner when the block had none.
    pub(crate) fn make_ready(&mut self, index: u32) {
        let block = {
            let p = &mut self.patches[index as usize];
            if p.ready {
                return;
            }
            p.ready = true;
            p.block
        };
        let first = self.blocks[block as usize].first_ready;
        self.blocks[block as usize].first_ready = index;
        self.patches[index as usize].next_ready = first;
        self.patches[index as usize].prev_ready = NIL;
        if first == NIL {
            self.became_ready.push(BlockId(block));
        } else {
            self.patches[first as usize].prev_ready = index;
        }
    }

    pub(crate) fn make_unready(&mut self, index: u32) {
        let (block, next, prev) = {
            let p = &mut self.patches[index as usize];
            if !p.ready {
                return;
            }
            p.ready = false;
            (p.block as usize, p.next_ready, p.prev_ready)
        };
        if next != NIL {
            self.patches[next as usize].prev_ready = prev;
        }
        if prev != NIL {
            self.patches[prev as usize].next_ready = next;
        } else {
            self.blocks[block].first_ready = next;
        }
    }

    /// Puts a patch on the ready list if it waits for nothing, and takes it off otherwise.
    pub(crate) fn update_ready(&mut self, index: u32) {
        let p = &self.patches[index as usize];
        if matches!(p.state, State::Empty | State::Run) || p.in_flight {
            return;
        }
        if p.befores_count <= u32::from(self.planted(Planted::ReadyTooEarly)) {
            self.make_ready(index);
        } else {
            self.make_unready(index);
        }
    }

    /// Whether an edge from `after` makes `before`'s block one that others depend on.
    pub(crate) fn counts_as_external(&self, before: u32, after: u32) -> bool {
        let (b, a) = (
            &self.patches[before as usize],
            &self.patches[after as usize],
        );
        if b.block == NIL || b.in_flight {
            return false;
        }
        match a.state {
            State::Empty | State::Run => {
                a.afters != NIL && !self.planted(Planted::ExternalMissesEmpties)
            }
            _ => a.block != b.block && !self.planted(Planted::ExternalNotIncremented),
        }
    }

    /// The depth that a patch of `block` has by depending on `before`.
    pub(crate) fn depth_on(&self, block: u32, before: u32) -> u8 {
        let b = &self.patches[before as usize];
        if b.in_flight || b.depth == DEPTH_OF_TRANSACTION {
            return 0;
        }
        let crosses = b.block != NIL && b.block != block;
        b.depth
            .saturating_add(u8::from(crosses))
            .min(DEPTH_OF_TRANSACTION - 1)
    }

    /// Adds `after → before`, unless a look at the newest edges of both finds it there already
    /// (merging asks for the same edge again and again). Duplicates that slip through are taken out
    /// as the list grows: they would cost memory, and the bounded searches would give up among
    /// them.
    pub(crate) fn add_edge(&mut self, after: u32, before: u32) {
        debug_assert_ne!(after, before, "a patch cannot depend on itself");
        if self.has_edge_among_newest(after, before, 4) || self.follows(after, before) {
            return;
        }
        let first_edge_of_empty = {
            let b = &self.patches[before as usize];
            matches!(b.state, State::Empty | State::Run) && b.afters == NIL
        };
        let edge = self.new_edge(after, before);
        let depth = self.depth_on(self.patches[after as usize].block, before);
        let a = &mut self.patches[after as usize];
        if a.depth != DEPTH_OF_TRANSACTION {
            a.depth = a.depth.max(depth);
        }
        let (head_after, head_before) = (
            self.patches[before as usize].afters,
            self.patches[after as usize].befores,
        );
        self.edges[edge as usize].next_after = head_after;
        self.edges[edge as usize].next_before = head_before;
        if head_after != NIL {
            self.edges[head_after as usize].prev_after = edge;
        }
        if head_before != NIL {
            self.edges[head_before as usize].prev_before = edge;
        }
        self.patches[before as usize].afters = edge;
        let a = &mut self.patches[after as usize];
        a.befores = edge;
        a.befores_count += 1;
        if first_edge_of_empty {
            self.shift_external_of_empty(before, true);
        }
        if self.counts_as_external(before, after) {
            let block = self.patches[before as usize].block as usize;
            self.blocks[block].external += 1;
        }
        let a = &self.patches[after as usize];
        if a.ready && a.state != State::Run {
            self.make_unready(after);
        }
        if self.hook.is_some() {
            self.tell_wait(after, before);
        }
        // The credit keeps the cost of all these looks within a few steps for each edge that is
        // added.
        self.thinning_credit += 2;
        let count = self.patches[after as usize].befores_count;
        let is_due = count >= FIRST_THINNED && count.is_power_of_two();
        if is_due && u64::from(count) <= self.thinning_credit {
            self.thinning_credit -= u64::from(count);
            self.thin(after);
        }
    }

    #[cold]
    fn tell_wait(&mut self, after: u32, before: u32) {
        let (after, before) = (self.id_of(after), self.id_of(before));
        self.emit(&Event::Wait { after, before });
    }

    /// Takes out the duplicates among what a patch depends on.
    fn thin(&mut self, after: u32) {
        let mark = self.next_mark();
        let mut edge = self.patches[after as usize].befores;
        while edge != NIL {
            let Edge {
                before,
                next_before,
                ..
            } = self.edges[edge as usize];
            let before = &mut self.patches[before as usize];
            let is_known = std::mem::replace(&mut before.mark, mark) == mark;
            if is_known || self.planted(Planted::ThinnedTooMuch) {
                self.remove_edge(edge);
            }
            edge = next_before;
        }
    }

    /// Whether `after → before` is among the newest `look` edges of either.
    pub(crate) fn has_edge_among_newest(&self, after: u32, before: u32, look: usize) -> bool {
        let mut edge = self.patches[before as usize].afters;
        for _ in 0..look {
            if edge == NIL {
                return false;
            }
            let e = &self.edges[edge as usize];
            if e.after == after {
                return true;
            }
            edge = e.next_after;
        }
        let mut edge = self.patches[after as usize].befores;
        for _ in 0..look {
            if edge == NIL {
                return false;
            }
            let e = &self.edges[edge as usize];
            if e.before == before {
                return true;
            }
            edge = e.next_before;
        }
        false
    }

    fn new_edge(&mut self, after: u32, before: u32) -> u32 {
        self.counters.edges_live += 1;
        let fresh = Edge {
            before,
            after,
            next_after: NIL,
            prev_after: NIL,
            next_before: NIL,
            prev_before: NIL,
        };
        if self.free_edge == NIL {
            self.edges.push(fresh);
            return self.edges.len() as u32 - 1;
        }
        let index = self.free_edge;
        self.free_edge = self.edges[index as usize].next_after;
        self.edges[index as usize] = fresh;
        index
    }

    /// An empty patch or a run got its first dependent, or lost its last one: what it depends on
    /// now counts as external, or no longer does.
    fn shift_external_of_empty(&mut self, empty: u32, up: bool) {
        if self.planted(Planted::ExternalMissesEmpties) {
            return;
        }
        let mut edge = self.patches[empty as usize].befores;
        while edge != NIL {
            let before = self.edges[edge as usize].before;
            edge = self.edges[edge as usize].next_before;
            let p = &self.patches[before as usize];
            if p.block != NIL && !p.in_flight {
                let external = &mut self.blocks[p.block as usize].external;
                *external = if up { *external + 1 } else { *external - 1 };
            }
        }
    }

    /// Takes an edge out of both lists. Does not update whether the after patch is ready.
    pub(crate) fn remove_edge(&mut self, edge: u32) {
        let Edge {
            before,
            after,
            next_after,
            prev_after,
            next_before,
            prev_before,
        } = self.edges[edge as usize];
        if self.counts_as_external(before, after) && !self.planted(Planted::ExternalNotDecremented)
        {
            let block = self.patches[before as usize].block as usize;
            self.blocks[block].external -= 1;
        }
        if next_after != NIL {
            self.edges[next_after as usize].prev_after = prev_after;
        }
        if prev_after != NIL {
            self.edges[prev_after as usize].next_after = next_after;
        } else {
            self.patches[before as usize].afters = next_after;
        }
        if next_before != NIL {
            self.edges[next_before as usize].prev_before = prev_before;
        }
        if prev_before != NIL {
            self.edges[prev_before as usize].next_before = next_before;
        } else {
            self.patches[after as usize].befores = next_before;
        }
        self.patches[after as usize].befores_count -= 1;
        let b = &self.patches[before as usize];
        if matches!(b.state, State::Empty | State::Run) && b.afters == NIL {
            self.shift_external_of_empty(before, false);
        }
        self.edges[edge as usize].next_after = self.free_edge;
        self.free_edge = edge;
        self.counters.edges_live -= 1;
    }

    /// A patch goes in flight: nothing can make it wait any more, so the edges to it no longer
    /// count as external to its block.
    pub(crate) fn stop_counting_external(&mut self, index: u32) {
        let mut edge = self.patches[index as usize].afters;
        let mut counted = 0;
        while edge != NIL {
            let e = &self.edges[edge as usize];
            if self.counts_as_external(index, e.after) {
                counted += 1;
            }
            edge = e.next_after;
        }
        let block = self.patches[index as usize].block as usize;
        self.blocks[block].external -= counted;
    }

    pub(crate) fn before_indices(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        let mut edge = self.patches[index as usize].befores;
        std::iter::from_fn(move || {
            let e = self.edges.get(edge as usize)?;
            edge = e.next_before;
            Some(e.before)
        })
    }
}
