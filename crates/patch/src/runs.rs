//! Runs: one hard patch for changes of several blocks.
//!
//! A file that is written gets new contents in one block after the other, and what points to them
//! waits for all of them. None of these changes waits for anything, so none will ever have to be
//! taken back, and a patch for each says nothing that one patch for all does not say. A run is that
//! patch. It commits when each of its blocks has been written.
//!
//! A block belongs to a run until it is written, or until a further change comes that needs no undo
//! data but waits for something else. That takes the block's part out of the run: it becomes an
//! ordinary hard patch that the run waits for. Like a hard patch, the part is in every version of
//! the block, and every later patch of the block depends on the run. (On all of it, which is more
//! than it must wait for. This closes no circle: nothing depends on a new patch.)
//!
//! No block joins a run any more once one of its blocks went to the device. So what waits for a run
//! waits for a bounded time, however fast its file grows.
//!
//! # Runs that wait
//!
//! Everything that a transaction changes waits for one and the same empty patch, and for nothing
//! else. So that is a run too: it waits for the empty patch, none of its blocks is ready before
//! that commits, and a block joins it without a new edge.

use crate::block::NIL;
use crate::graph::LOOK;
use crate::graph::{Graph, Standing, Stating};
use crate::patch::{PatchId, PatchKind, State};
use crate::planted::Planted;
use crate::undo::Undo;
use crate::{BlockId, Change, Event};

impl Graph {
    /// As [`create`](Self::create), for one of several blocks such that what depends on one of them
    /// depends on all, as on the contents of a file: the change waits for nothing, or for one empty
    /// patch that all of them wait for. Where that can be, it joins `run`, the patch that this
    /// function returned for another of these blocks, if that still takes blocks up.
    ///
    /// # Panics
    /// Where the change does not lie inside `bytes`.
    pub fn create_in_run<'a>(
        &mut self,
        block: BlockId,
        bytes: &mut [u8],
        change: Change<'_>,
        stating: impl Into<Stating<'a>>,
        run: PatchId,
    ) -> PatchId {
        let stating = stating.into();
        let Some(waits_for) = self.in_run_after(block, stating) else {
            return self.create(block, bytes, change, stating);
        };
        assert!(
            change.range().1 as usize <= bytes.len(),
            "a change must lie inside its block"
        );
        change.apply(bytes);
        self.add_to_run(block, change, stating.after, run, waits_for)
    }

    /// As [`create_in_run`](Self::create_in_run), of a change that the block's bytes show already
    /// or are about to be replaced by bytes that do. `None`, with nothing done, where it cannot be
    /// a part of a run.
    pub fn create_in_run_as_given(
        &mut self,
        block: BlockId,
        change: Change<'_>,
        stating: Stating<'_>,
        run: PatchId,
    ) -> Option<PatchId> {
        let waits_for = self.in_run_after(block, stating)?;
        Some(self.add_to_run(block, change, stating.after, run, waits_for))
    }

    /// What the run of such a change waits for: an empty patch, or `NIL` for nothing. `None` where
    /// the change can be in no run, or something is pending on its block.
    fn in_run_after(&mut self, block: BlockId, stating: Stating<'_>) -> Option<u32> {
        let b = self.block_mut(block);
        let busy = b.uncommitted > 0 || b.run_in_flight().is_some();
        self.runs_after(stating).filter(|_| !busy)
    }

    fn add_to_run(
        &mut self,
        block: BlockId,
        change: Change<'_>,
        dependencies: &[PatchId],
        run: PatchId,
        waits_for: u32,
    ) -> PatchId {
        let open = self.index_of(run).filter(|i| {
            let p = &self.patches[*i as usize];
            p.state == State::Run && !p.held && self.waits_only_for(*i, waits_for)
        });
        let index = open.unwrap_or_else(|| self.new_run(waits_for));
        self.join_run(block, index);
        self.counters.note_peak();
        let id = self.id_of(index);
        if self.hook.is_some() {
            self.emit(&match open {
                Some(_) => Event::Merge {
                    into: id,
                    kind: PatchKind::Run,
                    block,
                    change,
                    dependencies,
                },
                None => Event::Create {
                    id,
                    kind: PatchKind::Run,
                    block: Some(block),
                    change: Some(change),
                    held: false,
                    dependencies,
                },
            });
        }
        id
    }

    /// Whether a change with this `stating` will be a part of a run, if nothing is pending on its
    /// block.
    pub fn goes_into_runs<'a>(&self, stating: impl Into<Stating<'a>>) -> bool {
        self.runs_after(stating.into()).is_some()
    }

    /// What the run of a change with this `stating` waits for: an empty patch, or `NIL` for
    /// nothing. `None` where the change can be in no run.
    fn runs_after(&self, stating: Stating<'_>) -> Option<u32> {
        if !self.optimisations.hard
            || !self.optimisations.merge
            || stating.standing != Standing::Together
        {
            return None;
        }
        let mut live = stating.after.iter().filter_map(|d| self.index_of(*d));
        match (live.next(), live.next()) {
            (None, _) => Some(NIL),
            (Some(d), None) if self.patches[d as usize].state == State::Empty => Some(d),
            _ => None,
        }
    }

    /// Whether a run waits for this empty patch, or for none (`NIL`).
    fn waits_only_for(&self, run: u32, empty: u32) -> bool {
        match empty {
            NIL => self.patches[run as usize].ready,
            _ => self.has_edge_among_newest(run, empty, LOOK),
        }
    }

    /// Whether no block of a run is written before `index` is on disk.
    pub(crate) fn run_waits_for(&self, run: u32, index: u32) -> bool {
        let is_empty = self.patches[index as usize].state == State::Empty;
        is_empty && self.before_indices(run).any(|b| b == index)
    }

    fn new_run(&mut self, waits_for: u32) -> u32 {
        self.counters.created_runs += 1;
        let index = self.new_patch(State::Run, NIL, 0, NIL, Undo::None);
        self.patches[index as usize].ready = true;
        if waits_for != NIL {
            self.add_edge(index, waits_for);
            self.patches[index as usize].ready = self.planted(Planted::RunDoesNotWait);
            self.update_run(index);
        }
        index
    }

    /// Something that a run waited for is on disk: its blocks may be ready now.
    pub(crate) fn update_run(&mut self, run: u32) {
        let is_empty = |b: u32| self.patches[b as usize].state == State::Empty;
        if self.patches[run as usize].ready || self.before_indices(run).any(is_empty) {
            return;
        }
        self.patches[run as usize].ready = true;
        let mut became_ready = std::mem::take(&mut self.became_ready);
        self.for_each_in_run(run, |block| became_ready.push(block));
        self.became_ready = became_ready;
    }

    fn join_run(&mut self, block: BlockId, index: u32) {
        let run = &mut self.patches[index as usize];
        run.offset += 1;
        let next = std::mem::replace(&mut run.len, block.0);
        if next != NIL {
            self.blocks[next as usize].prev_in_run = block.0;
        }
        let b = &mut self.blocks[block.0 as usize];
        b.enter_run(index, next);
        b.uncommitted += 1;
        self.counters.run_blocks_live += 1;
        if self.patches[index as usize].ready {
            self.became_ready.push(block);
        }
    }

    /// Whether the block may be written for its part of a run.
    pub(crate) fn run_is_ready(&self, block: u32) -> bool {
        self.run_of(block)
            .is_some_and(|run| self.patches[run as usize].ready)
    }

    /// The run that waits for a write of the block.
    pub(crate) fn run_of(&self, block: u32) -> Option<u32> {
        self.blocks[block as usize].run()
    }

    /// Takes the block out of the list of its run. Returns the run, which still counts the block.
    fn unlink_from_run(&mut self, block: BlockId) -> Option<u32> {
        let index = self.run_of(block.0)?;
        let b = &mut self.blocks[block.0 as usize];
        b.uncommitted -= 1;
        let (next, prev) = (b.next_in_run, b.prev_in_run);
        if next != NIL {
            self.blocks[next as usize].prev_in_run = prev;
        }
        if prev != NIL {
            self.blocks[prev as usize].next_in_run = next;
        } else {
            self.patches[index as usize].len = next;
        }
        // A run that is ready takes no further blocks from here on, or it might never be done. One
        // that still waits does: it cannot be done yet anyhow.
        let run = &mut self.patches[index as usize];
        run.held |= run.ready;
        Some(index)
    }

    /// The block's part of its run goes in flight.
    pub(crate) fn start_run(&mut self, block: BlockId) -> Option<u32> {
        let index = self.unlink_from_run(block)?;
        self.blocks[block.0 as usize].run_starts();
        if self.patches[index as usize].flights.note(self.flight) {
            self.note_flight(index);
        }
        Some(index)
    }

    /// The block's part of a run in flight is on disk. Returns the run if it waited for nothing
    /// else.
    pub(crate) fn complete_run(&mut self, block: BlockId) -> Option<u32> {
        let b = &mut self.blocks[block.0 as usize];
        let index = b.run_in_flight()?;
        b.leave_run();
        self.one_block_less(index).then_some(index)
    }

    /// What the run was to write to the block need not be written. Returns the run if it waited for
    /// nothing else.
    pub(crate) fn discard_from_run(&mut self, block: BlockId) -> Option<u32> {
        let index = self.unlink_from_run(block)?;
        self.blocks[block.0 as usize].leave_run();
        self.one_block_less(index).then_some(index)
    }

    fn one_block_less(&mut self, index: u32) -> bool {
        self.counters.run_blocks_live -= 1;
        self.patches[index as usize].offset -= 1;
        self.end_waiting_without_blocks(index);
        if self.planted(Planted::RunCommitsEarly) {
            let rest = self.patches[index as usize].offset;
            return rest == 1 || rest == 0 && self.run_is_done(index);
        }
        self.run_is_done(index)
    }

    /// The run that the block's newest bytes are a part of, as the patch that stands for it.
    pub fn run_at(&self, block: BlockId) -> Option<PatchId> {
        let b = self.blocks.get(block.0 as usize)?;
        Some(self.id_of(b.run().or(b.run_in_flight())?))
    }

    /// A waiting run that has no block left stops waiting for its empty patch: from now on it waits
    /// only for the parts that were taken out of it.
    fn end_waiting_without_blocks(&mut self, index: u32) {
        let run = &mut self.patches[index as usize];
        if run.offset > 0 || run.ready {
            return;
        }
        run.ready = true;
        run.held = true;
        let mut edge = run.befores;
        while edge != NIL {
            let (before, next) = {
                let e = &self.edges[edge as usize];
                (e.before, e.next_before)
            };
            if self.patches[before as usize].state == State::Empty {
                self.remove_edge(edge);
                let (after, before) = (self.id_of(index), self.id_of(before));
                self.emit(&Event::StopWaiting { after, before });
            }
            edge = next;
        }
    }

    /// Whether a run may commit.
    pub(crate) fn run_is_done(&self, index: u32) -> bool {
        let run = &self.patches[index as usize];
        run.offset == 0 && run.befores_count == 0 && !self.is_behind(index)
    }

    /// The block's part of its run becomes a hard patch of its own, because a change that waits for
    /// something else is about to join it. What waits for the run also waits for that patch.
    pub(crate) fn split_from_run(&mut self, block: BlockId) {
        if let Some((run, hard)) = self.part_from_run(block) {
            self.run_waits_for_part(run, hard, block);
        }
    }

    /// Takes the block out of its run: its part is a patch of its own from now on, which the run
    /// waits for, so that somebody may wait for less than the whole run. Returns the patch; `None`
    /// where no part of a run is pending on the block or on its way.
    pub fn take_from_run(&mut self, block: BlockId) -> Option<PatchId> {
        let b = self.blocks.get(block.0 as usize)?;
        let in_flight = b.run_in_flight();
        let (run, hard) = match in_flight {
            Some(run) => (run, self.part_in_flight(block, run)),
            None => self.part_from_run(block)?,
        };
        self.run_waits_for_part(run, hard, block);
        Some(self.id_of(hard))
    }

    /// Takes the block out of its run: its part is a patch of its own from now on, and the run does
    /// not wait for that. Returns the patch; `None` where no part of a run is pending on the block,
    /// or where a patch depends on the run.
    pub fn leave_run(&mut self, block: BlockId) -> Option<PatchId> {
        let run = self.blocks.get(block.0 as usize)?.run()?;
        if self.patches[run as usize].afters != NIL {
            return None;
        }
        let (run, hard) = self.part_from_run(block)?;
        let (from, to) = (self.id_of(run), self.id_of(hard));
        self.emit(&Event::Leave { from, block, to });
        self.end_waiting_without_blocks(run);
        if self.run_is_done(run) {
            let mut work = std::mem::take(&mut self.stack);
            work.clear();
            work.push(run);
            self.retire(&mut work);
            self.stack = work;
        }
        Some(to)
    }

    /// Makes the block's part of its run a hard patch, which waits for what the run waits for.
    fn part_from_run(&mut self, block: BlockId) -> Option<(u32, u32)> {
        let run = self.unlink_from_run(block)?;
        self.blocks[block.0 as usize].leave_run();
        self.counters.created_hard += 1;
        let hard = self.new_patch(State::Hard, block.0, 0, 0, Undo::None);
        // Soft patches that lie on top of the run's part wait for the run, and so for this.
        self.link_into_block(hard, true);
        self.blocks[block.0 as usize].hard = hard;
        let mut soft = self.patches[hard as usize].next_in_block;
        while soft != NIL {
            self.add_edge(soft, hard);
            soft = self.patches[soft as usize].next_in_block;
        }
        if !self.patches[run as usize].ready && !self.planted(Planted::PartDoesNotWait) {
            let mut edge = self.patches[run as usize].befores;
            while edge != NIL {
                let (before, next) = {
                    let e = &self.edges[edge as usize];
                    (e.before, e.next_before)
                };
                if self.patches[before as usize].state == State::Empty {
                    self.add_edge(hard, before);
                }
                edge = next;
            }
        }
        self.counters.run_blocks_live -= 1;
        self.patches[run as usize].offset -= 1;
        self.part_follows(run, block);
        self.update_ready(hard);
        Some((run, hard))
    }

    /// Makes the block's part of its run, which is on its way to the device, a patch in flight.
    fn part_in_flight(&mut self, block: BlockId, run: u32) -> u32 {
        self.blocks[block.0 as usize].leave_run();
        self.counters.created_hard += 1;
        let hard = self.new_patch(State::Hard, block.0, 0, 0, Undo::None);
        let first = std::mem::replace(&mut self.blocks[block.0 as usize].first_in_flight, hard);
        let p = &mut self.patches[hard as usize];
        p.in_flight = true;
        p.next_in_block = first;
        self.counters.run_blocks_live -= 1;
        self.patches[run as usize].offset -= 1;
        hard
    }

    fn run_waits_for_part(&mut self, run: u32, hard: u32, block: BlockId) {
        if !self.planted(Planted::SplitForgetsRun) {
            self.add_edge(run, hard);
        }
        self.end_waiting_without_blocks(run);
        let (from, to) = (self.id_of(run), self.id_of(hard));
        self.emit(&Event::Split { from, block, to });
    }

    /// Whether a run has to do with what is pending on a block: its own part there, or one that was
    /// taken out of it.
    pub(crate) fn run_involves(&self, run: u32, block: BlockId) -> bool {
        self.run_of(block.0) == Some(run) || self.stands_for_block(run, block)
    }

    /// Calls `f` for each block of a run that no write has taken up.
    pub(crate) fn for_each_in_run(&self, run: u32, mut f: impl FnMut(BlockId)) {
        let mut block = self.patches[run as usize].len;
        while block != NIL {
            f(BlockId(block));
            block = self.blocks[block as usize].next_in_run;
        }
    }
}
