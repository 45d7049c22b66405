//! Runs: one hard patch for the contents of several blocks.
//!
//! A file that is written gets new contents in one block after the other, and what points to them waits for all of them. None of
//! these changes waits for anything, so none will ever have to be taken back, and a patch for each says nothing that one patch for
//! all does not say. A run is that patch. It commits when each of its blocks has been written.
//!
//! A block belongs to a run as long as nothing else is pending on it but changes without dependencies. Like a hard patch, its part
//! of the run is in every version of the block, and every later patch of the block depends on the run (on all of it: this waits
//! for more than it must, and as a run waits for nothing that closes no circle). A later change that may go without undo data but
//! has dependencies takes the block out of the run: it becomes an ordinary hard patch that the run waits for.
//!
//! No block joins a run any more once one of its blocks went to the device. So whoever waits for a run waits for a bounded time,
//! however fast its file grows.

use crate::graph::{Graph, NIL, PatchId, State};
use crate::planted::Planted;
use crate::undo::Undo;
use crate::{BlockId, Change, Event};

impl Graph {
    /// As [`create`](Self::create) without dependencies, for one of several blocks that whoever depends on one of them depends on
    /// all of, as on the contents of a file. Where that can be, the change joins `run`, the patch that this function returned for
    /// another of these blocks, if that still takes blocks up.
    ///
    /// # Panics
    /// Where the change does not lie inside `bytes`.
    pub fn create_in_run(
        &mut self,
        block: BlockId,
        bytes: &mut [u8],
        change: Change<'_>,
        run: PatchId,
    ) -> PatchId {
        let on = self.optimisations.hard && self.optimisations.merge;
        let b = self.block_mut(block);
        let busy = b.uncommitted > 0 || b.run_in_flight().is_some();
        if !on || busy {
            return self.create(block, bytes, change, &[]);
        }
        assert!(
            change.range().1 as usize <= bytes.len(),
            "a change must lie inside its block"
        );
        change.apply(bytes);
        let open = self.index_of(run).filter(|i| {
            let p = &self.patches[*i as usize];
            p.state == State::Run && !p.held
        });
        let index = open.unwrap_or_else(|| {
            self.counters.created_runs += 1;
            self.new_patch(State::Run, NIL, 0, NIL, Undo::None)
        });
        self.join_run(block, index);
        self.counters.note_peak();
        let id = self.id_of(index);
        if self.hook.is_some() {
            self.emit(&match open {
                Some(_) => Event::Merge {
                    into: id,
                    block,
                    change,
                    dependencies: &[],
                },
                None => Event::Create {
                    id,
                    block: Some(block),
                    change: Some(change),
                    dependencies: &[],
                },
            });
        }
        id
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
        self.became_ready.push(block);
    }

    /// The run that waits for a write of the block.
    pub(crate) fn run_of(&self, block: u32) -> Option<u32> {
        self.blocks[block as usize].run()
    }

    /// Takes the block out of the list of its run; the run, which still counts it.
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
        // From here on it takes no further blocks, or it might never be done.
        self.patches[index as usize].held = true;
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

    /// The block's part of a run in flight is on disk. The run, where that was the last it waited for.
    pub(crate) fn complete_run(&mut self, block: BlockId) -> Option<u32> {
        let b = &mut self.blocks[block.0 as usize];
        let index = b.run_in_flight()?;
        b.leave_run();
        self.one_block_less(index).then_some(index)
    }

    /// What the run was to write to the block need not be written. The run, where that was the last it waited for.
    pub(crate) fn discard_from_run(&mut self, block: BlockId) -> Option<u32> {
        let index = self.unlink_from_run(block)?;
        self.blocks[block.0 as usize].leave_run();
        self.one_block_less(index).then_some(index)
    }

    fn one_block_less(&mut self, index: u32) -> bool {
        self.counters.run_blocks_live -= 1;
        self.patches[index as usize].offset -= 1;
        if self.planted(Planted::RunCommitsEarly) {
            let rest = self.patches[index as usize].offset;
            return rest == 1 || rest == 0 && self.run_is_done(index);
        }
        self.run_is_done(index)
    }

    /// Whether a run may commit.
    pub(crate) fn run_is_done(&self, index: u32) -> bool {
        let run = &self.patches[index as usize];
        run.offset == 0 && run.befores_count == 0
    }

    /// The block's part of its run becomes a hard patch of its own, for something is to go along with it that waits. Whoever waits
    /// for the run waits for that patch.
    pub(crate) fn split_from_run(&mut self, block: BlockId) {
        let Some(run) = self.unlink_from_run(block) else {
            return;
        };
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
        if !self.planted(Planted::SplitForgetsRun) {
            self.add_edge(run, hard);
        }
        self.counters.run_blocks_live -= 1;
        self.patches[run as usize].offset -= 1;
        self.update_ready(hard);
        let (from, to) = (self.id_of(run), self.id_of(hard));
        self.emit(&Event::Split { from, block, to });
    }

    /// Whether a run has to do with what is pending on a block: its own part there, or one that was taken out of it.
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
