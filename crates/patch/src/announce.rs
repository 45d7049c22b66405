//! Tells a hook that is set late of the patches that exist already.

use crate::block::NIL;
use crate::graph::Graph;
use crate::patch::State;
use crate::{BlockId, Event, Hook, PatchKind};

impl Graph {
    /// Tells a hook of every patch that has not committed and of what each waits for, as if it had
    /// been there from the beginning. The patches of one block come in the order in which they were
    /// applied.
    pub fn announce(&self, hook: &mut dyn Hook) {
        for (block, b) in self.blocks.iter().enumerate() {
            let block = BlockId(block as u32);
            let in_flight = b.run_in_flight();
            if let Some(run) = b.run().or(in_flight) {
                self.announce_in_run(run, block, in_flight.is_some(), hook);
            }
            for first in [b.first_in_flight, b.first] {
                let mut index = first;
                while index != NIL {
                    self.announce_one(index, hook);
                    index = self.patches[index as usize].next_in_block;
                }
            }
        }
        for (index, p) in self.patches.iter().enumerate() {
            let index = index as u32;
            match p.state {
                State::Empty => self.announce_one(index, hook),
                // No block is left in the run: it only waits for the parts that were taken out of
                // it.
                State::Run if p.offset == 0 => self.announce_one(index, hook),
                _ => {}
            }
        }
        for (index, p) in self.patches.iter().enumerate() {
            let id = self.id_of(index as u32);
            let stands_for = self.index_of(id);
            if p.state == State::Forward
                && let Some(to) = stands_for
            {
                let to = self.id_of(to);
                hook.event(&Event::Forward { from: id, to });
            } else if stands_for.is_some() {
                for before in self.before_indices(index as u32) {
                    let before = self.id_of(before);
                    hook.event(&Event::Wait { after: id, before });
                }
            }
        }
    }

    fn announce_one(&self, index: u32, hook: &mut dyn Hook) {
        let info = self.info_of(index);
        hook.event(&Event::Present {
            id: self.id_of(index),
            kind: info.kind,
            block: info.block,
            offset_bytes: info.offset_bytes,
            len_bytes: info.len_bytes,
            in_flight: info.in_flight,
            held: self.patches[index as usize].held && info.kind == PatchKind::Empty,
        });
    }

    fn announce_in_run(&self, run: u32, block: BlockId, in_flight: bool, hook: &mut dyn Hook) {
        hook.event(&Event::Present {
            id: self.id_of(run),
            kind: PatchKind::Run,
            block: Some(block),
            offset_bytes: 0,
            len_bytes: 0,
            in_flight,
            held: false,
        });
    }
}
