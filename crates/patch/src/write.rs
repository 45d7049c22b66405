//! Choosing what of a block may be written, and what happens when it is on disk.

use crate::block::{NIL, Zones};
use crate::graph::Graph;
use crate::graph::LOOK;
use crate::patch::State;
use crate::planted::Planted;
use crate::{BlockId, Event, PatchId, create};

/// What [`Graph::closure`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosureState {
    /// Something is not on disk yet.
    pub live: bool,
    /// Some of it is in flight.
    pub in_flight: bool,
}

/// The version of a block that may go to the device now.
#[derive(Debug, PartialEq, Eq)]
pub enum Version {
    /// No patch of the block may be written yet.
    Nothing,
    /// The newest bytes, as they are.
    Newest,
    /// These bytes: patches that must wait are rolled back in them.
    RolledBack(Vec<u8>),
}

impl Graph {
    /// Takes up a write of the block, whose newest bytes are `bytes`: every patch that may go now
    /// is in flight afterwards, until [`complete_write`](Self::complete_write). `Nothing` where no
    /// patch may, or where a version is in flight already.
    ///
    /// A patch may go when all that it depends on is committed or goes along. Patches on this block
    /// that wait only for each other go together. While they are chosen, each patch counts how many of
    /// its dependencies are already chosen; those count as written (§4.4, "premature accounting").
    pub fn start_write(&mut self, block: BlockId, bytes: &[u8]) -> Version {
        let Some(b) = self.blocks.get(block.0 as usize) else {
            return Version::Nothing;
        };
        let second = b.is_in_flight() && !self.planted(Planted::SecondInFlight);
        if second || !self.has_ready(block) {
            return Version::Nothing;
        }
        let mut chosen = std::mem::take(&mut self.chosen);
        self.choose(block, &mut chosen);
        let uncommitted = self.blocks[block.0 as usize].uncommitted as usize;
        let in_run = usize::from(self.run_of(block.0).is_some());
        let left_over = uncommitted.saturating_sub(chosen.len() + in_run);
        let run = self.start_run(block);
        self.put_in_flight(block, &chosen);
        self.pass_sent(block, run, &chosen);
        self.counters.versions += 1;
        let version = if left_over == 0 {
            Version::Newest
        } else {
            self.counters.versions_with_rollback += 1;
            self.counters.rollbacks += left_over as u64;
            let mut copy = bytes.to_vec();
            self.roll_back(block, &mut copy);
            Version::RolledBack(copy)
        };
        if self.hook.is_some() {
            let bytes = match &version {
                Version::RolledBack(copy) => copy,
                _ => bytes,
            };
            self.tell_write(block, run, &chosen, left_over as u32, bytes);
        }
        self.chosen = chosen;
        version
    }

    #[cold]
    fn tell_write(
        &mut self,
        block: BlockId,
        run: Option<u32>,
        chosen: &[u32],
        rolled_back: u32,
        bytes: &[u8],
    ) {
        // Memory that is used again: there are as many versions as blocks that are written.
        let mut patches = std::mem::take(&mut self.told);
        patches.clear();
        patches.extend(run.iter().chain(chosen).map(|i| self.id_of(*i)));
        self.emit(&Event::Write {
            block,
            patches: &patches,
            rolled_back,
            bytes,
        });
        self.told = patches;
    }

    /// The patches of the block that wait for nothing but each other.
    fn choose(&mut self, block: BlockId, chosen: &mut Vec<u32>) {
        let mut stack = std::mem::take(&mut self.stack);
        let held_goes_along = self.planted(Planted::HeldGoesAlong);
        let one_missing = u32::from(self.planted(Planted::GoesAlongTooEarly));
        // A patch's mark above `none_go` counts those of its dependencies that go along. No patch
        // bears such a mark yet, and none has more dependencies than there are edges.
        let none_go = self.first_of_marks();
        chosen.clear();
        stack.clear();
        let mut ready = self.blocks[block.0 as usize].first_ready;
        while ready != NIL {
            stack.push(ready);
            ready = self.patches[ready as usize].next_ready;
        }
        while let Some(index) = stack.pop() {
            let p = &self.patches[index as usize];
            if p.state != State::Empty {
                chosen.push(index);
            }
            let mut edge = p.afters;
            while edge != NIL {
                let (after, next) = (
                    self.edges[edge as usize].after,
                    self.edges[edge as usize].next_after,
                );
                edge = next;
                let q = &mut self.patches[after as usize];
                let held = q.held && !held_goes_along;
                if q.block != block.0 && (q.state != State::Empty || held) {
                    // Runs are skipped too: their other blocks are still to be written.
                    continue;
                }
                q.mark = q.mark.max(none_go) + 1;
                self.search_mark = self.search_mark.max(q.mark);
                if q.mark - none_go + one_missing == q.befores_count {
                    stack.push(after);
                }
            }
        }
        self.stack = stack;
    }

    /// Whether a write of the block now would have to leave patches out.
    pub fn would_roll_back(&mut self, block: BlockId) -> bool {
        if !self.has_ready(block) || self.is_simply_ready(block) {
            return false;
        }
        let mut chosen = std::mem::take(&mut self.chosen);
        self.choose(block, &mut chosen);
        let in_run = usize::from(self.run_of(block.0).is_some());
        let uncommitted = self.blocks[block.0 as usize].uncommitted as usize;
        let leaves_out = chosen.len() + in_run < uncommitted;
        self.chosen = chosen;
        leaves_out
    }

    /// Whether waiting would only put a rollback off, not avoid it. A soft patch above an
    /// uncommitted hard one was made soft because it leads back to its own block: the hard patch
    /// has to be on disk before all that the soft one waits for.
    pub fn must_roll_back(&self, block: BlockId) -> bool {
        self.optimisations.hard
            && self.blocks.get(block.0 as usize).is_some_and(|b| {
                let hard_goes = b.hard != NIL && self.patches[b.hard as usize].ready;
                b.uncommitted > 1 && (hard_goes || self.run_is_ready(block.0))
            })
    }

    /// What stands between now and `targets` being on disk: appends the blocks of their uncommitted
    /// dependencies (and of themselves) that have something ready to `ready`, each once, and says
    /// whether anything at all is left and whether some of it is in flight.
    pub fn closure(&mut self, targets: &[PatchId], ready: &mut Vec<BlockId>) -> ClosureState {
        self.look_at_closure(targets, ready, &mut |_| {})
    }

    /// As [`closure`](Self::closure), and calls `looks_at` for each patch that it finds.
    pub(crate) fn look_at_closure(
        &mut self,
        targets: &[PatchId],
        ready: &mut Vec<BlockId>,
        looks_at: &mut impl FnMut(u32),
    ) -> ClosureState {
        let mut state = ClosureState::default();
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        stack.extend(targets.iter().filter_map(|t| self.index_of(*t)));
        let mark = self.next_mark();
        let first_new = ready.len();
        while let Some(index) = stack.pop() {
            let p = &mut self.patches[index as usize];
            if p.mark == mark {
                continue;
            }
            p.mark = mark;
            looks_at(index);
            state.live = true;
            if self.is_passed(index) {
                state.in_flight = true;
                continue;
            }
            let p = &self.patches[index as usize];
            if p.in_flight {
                state.in_flight = true;
                continue;
            }
            let (is_run, outstanding) = (p.state == State::Run, p.offset as usize);
            let (ready_now, block) = (p.ready && !is_run, p.block);
            if is_run && p.ready && !self.planted(Planted::ClosureMissesRuns) {
                let before = ready.len();
                self.for_each_in_run(index, |b| ready.push(b));
                state.in_flight |= outstanding > ready.len() - before;
            }
            let p = &self.patches[index as usize];
            let mut edge = p.befores;
            if self.planted(Planted::ClosureTooShort) && !targets.iter().any(|t| t.index == index) {
                edge = NIL;
            }
            while edge != NIL {
                let e = &self.edges[edge as usize];
                stack.push(e.before);
                edge = e.next_before;
            }
            if ready_now {
                ready.push(BlockId(block));
            }
        }
        self.stack = stack;
        ready[first_new..].sort_unstable();
        let mut kept = first_new;
        for i in first_new..ready.len() {
            if kept == first_new || ready[kept - 1] != ready[i] {
                ready[kept] = ready[i];
                kept += 1;
            }
        }
        ready.truncate(kept);
        state
    }

    fn put_in_flight(&mut self, block: BlockId, chosen: &[u32]) {
        for index in chosen {
            self.make_unready(*index);
            self.stop_counting_external(*index);
            self.unlink_from_block(*index);
            self.drop_undo(*index);
            let first = self.blocks[block.0 as usize].first_in_flight;
            let p = &mut self.patches[*index as usize];
            p.in_flight = true;
            p.next_in_block = first;
            self.blocks[block.0 as usize].first_in_flight = *index;
        }
        self.summarise(block);
        for index in chosen {
            self.note_flight(*index);
        }
    }

    /// Brings the summaries of a block up to date after patches have left it: its zones, and
    /// whether one of the remaining patches is settled.
    fn summarise(&mut self, block: BlockId) {
        // Both can only shrink, so the walk ends once they are as before.
        let zones_before = self.blocks[block.0 as usize].zones;
        let settled_before = self.has_settled(block.0);
        let mut zones = Zones::default();
        let mut settled = false;
        let mut index = self.blocks[block.0 as usize].first;
        while index != NIL {
            if let Some(range) = self.range_of(index) {
                zones.add(Zones::of(range));
            }
            settled |= self.patches[index as usize].flights.is_settled();
            if zones == zones_before && settled == settled_before {
                break;
            }
            index = self.patches[index as usize].next_in_block;
        }
        self.blocks[block.0 as usize].zones = zones;
        self.note_settled(block.0, settled);
    }

    /// Takes the block's uncommitted patches back in `copy`, newest first.
    fn roll_back(&self, block: BlockId, copy: &mut [u8]) {
        let b = &self.blocks[block.0 as usize];
        if self.planted(Planted::RollbackInWrongOrder) {
            let mut index = b.first;
            while index != NIL {
                self.take_back_one(index, copy);
                index = self.patches[index as usize].next_in_block;
            }
            return;
        }
        let newest = self.first_of_whole(b.first, copy.len()).unwrap_or(b.last);
        self.take_back(newest, NIL, copy);
    }

    /// Takes back in `copy` what a block's uncommitted patches did from `newest` down to `oldest`,
    /// or to the oldest there is.
    pub(crate) fn take_back(&self, newest: u32, oldest: u32, copy: &mut [u8]) {
        let mut index = newest;
        while index != NIL {
            self.take_back_one(index, copy);
            if index == oldest {
                break;
            }
            index = self.patches[index as usize].prev_in_block;
        }
    }

    fn take_back_one(&self, index: u32, copy: &mut [u8]) {
        let p = &self.patches[index as usize];
        match p.state {
            State::Bits => create::flip(copy, p.offset, p.len),
            State::Soft => {
                let range = p.offset as usize..(p.offset + p.len) as usize;
                self.undo.restore(p.undo, &mut copy[range]);
            }
            _ => debug_assert!(false, "a hard patch cannot be rolled back"),
        }
    }

    /// A patch, among the oldest of a block, that changes the whole block and keeps all the old
    /// bytes: taking it back takes back all later patches too.
    fn first_of_whole(&self, first: u32, block_bytes: usize) -> Option<u32> {
        let mut index = first;
        for _ in 0..LOOK {
            let p = self.patches.get(index as usize)?;
            if self.has_whole_undo(index, block_bytes) {
                return Some(index);
            }
            index = p.next_in_block;
        }
        None
    }

    /// Whether a patch changes its whole block and keeps all the old bytes.
    pub(crate) fn has_whole_undo(&self, index: u32, block_bytes: usize) -> bool {
        let p = &self.patches[index as usize];
        let is_whole = (p.offset, p.len as usize) == (0, block_bytes);
        p.state == State::Soft && is_whole && !self.undo.is_difference(p.undo)
    }

    /// The block's version in flight is on stable storage: its patches commit, and what waited for
    /// them may become ready.
    ///
    /// The write of the version is the commit point of every patch in it; the flush before this call
    /// has made it certain.
    pub fn complete_write(&mut self, block: BlockId) {
        let Some(b) = self.blocks.get_mut(block.0 as usize) else {
            return;
        };
        let mut index = std::mem::replace(&mut b.first_in_flight, NIL);
        let mut work = std::mem::take(&mut self.stack);
        work.clear();
        while index != NIL {
            work.push(index);
            index = self.patches[index as usize].next_in_block;
        }
        work.extend(self.complete_run(block));
        self.retire(&mut work);
        self.stack = work;
        // What became ready while the version was in flight could not be written then, so the owner
        // is told again.
        if self.has_ready(block) {
            self.became_ready.push(block);
        }
    }

    /// Drops what the block's uncommitted patches would have written, because nothing refers to the
    /// block any more and nothing that refers to it can ever reach the disk: what depends on them
    /// need not wait. A version in flight completes as usual.
    pub fn discard(&mut self, block: BlockId) {
        let Some(b) = self.blocks.get(block.0 as usize) else {
            return;
        };
        let mut index = b.first;
        self.emit(&Event::Discard { block });
        let mut work = std::mem::take(&mut self.stack);
        work.clear();
        while index != NIL {
            let next = self.patches[index as usize].next_in_block;
            self.make_unready(index);
            self.drop_dependencies(index);
            while self.planted(Planted::DiscardForgetsDependents)
                && self.patches[index as usize].afters != NIL
            {
                self.remove_edge(self.patches[index as usize].afters);
            }
            self.stop_counting_external(index);
            self.unlink_from_block(index);
            self.patches[index as usize].in_flight = true;
            if self.planted(Planted::DiscardKeepsEdges)
                && self.patches[index as usize].afters != NIL
            {
                return;
            }
            work.push(index);
            index = next;
        }
        self.blocks[block.0 as usize].zones = Zones::default();
        work.extend(self.discard_from_run(block));
        self.retire(&mut work);
        self.stack = work;
    }

    /// Commits patches that wait for nothing, and the empty ones that waited only for them.
    pub(crate) fn retire(&mut self, work: &mut Vec<u32>) {
        while let Some(index) = work.pop() {
            debug_assert_eq!(
                self.patches[index as usize].befores, NIL,
                "a patch commits after its dependencies"
            );
            while self.patches[index as usize].afters != NIL {
                let edge = self.patches[index as usize].afters;
                let after = self.edges[edge as usize].after;
                self.remove_edge(edge);
                let q = &self.patches[after as usize];
                if q.befores_count > 0 {
                    if q.state == State::Run {
                        self.update_run(after);
                        continue;
                    }
                    if q.state == State::Empty && self.planted(Planted::EmptyCommitsEarly) {
                        self.drop_dependencies(after);
                        work.push(after);
                    }
                    continue;
                }
                match q.state {
                    State::Empty if q.held && !self.planted(Planted::HeldCommits) => {}
                    State::Empty if self.is_behind(after) => self.pass(after),
                    State::Empty => work.push(after),
                    State::Run if self.run_is_done(after) => work.push(after),
                    State::Run => self.update_run(after),
                    _ => self.update_ready(after),
                }
            }
            let p = &self.patches[index as usize];
            if p.watched && !self.planted(Planted::TokenLost) {
                self.fired
                    .push(u64::from(p.offset) | u64::from(p.len) << 32);
            }
            let mut forward = p.forwards;
            while forward != NIL {
                let next = self.patches[forward as usize].next_in_block;
                self.free_slot(forward);
                forward = next;
            }
            let id = self.id_of(index);
            self.free_slot(index);
            self.end_trail(id, work);
            self.emit(&Event::Commit { id });
        }
    }

    pub(crate) fn drop_dependencies(&mut self, index: u32) {
        while self.patches[index as usize].befores != NIL {
            self.remove_edge(self.patches[index as usize].befores);
        }
    }
}
