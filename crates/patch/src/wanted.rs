//! What a sync waits for, remembered from round to round.
//!
//! A sync of a chain of patchgroups takes a round for each link, and looking for what it can write
//! next among a hundred thousand patches in each round took longer than the writes. What the sync
//! waits for changes little from round to round: it was settled, so it takes on nothing more to
//! wait for. So it is found once, and then only blocks that have something ready are looked at.
//!
//! What is remembered may be wrong in both ways: a patch may become a part of another one, and the
//! place of one that is on the disk be taken by a new one. So it is good for finding what to write
//! next, and not for saying that nothing is left.

use crate::block::NIL;
use crate::graph::Graph;
use crate::write::ClosureState;
use crate::{BlockId, PatchId};

/// Patches that a sync waits for; see [`Graph::closure_remembered`].
#[derive(Debug)]
pub struct Wanted {
    /// A bit for each place of a patch.
    places: Vec<u64>,
}

impl Wanted {
    fn of(patches: &[u32]) -> Wanted {
        let most = patches.iter().max().map_or(0, |most| *most as usize + 1);
        let mut places = vec![0; most.div_ceil(64)];
        for patch in patches {
            places[*patch as usize / 64] |= 1 << (patch % 64);
        }
        Wanted { places }
    }

    fn has(&self, patch: u32) -> bool {
        let word = self.places.get(patch as usize / 64);
        word.is_some_and(|word| word >> (patch % 64) & 1 == 1)
    }
}

impl Graph {
    /// As [`closure`](Self::closure), and remembers what it found for
    /// [`has_wanted_ready`](Self::has_wanted_ready).
    pub fn closure_remembered(
        &mut self,
        targets: &[PatchId],
        ready: &mut Vec<BlockId>,
    ) -> (ClosureState, Wanted) {
        let mut patches = Vec::new();
        let state = self.look_at_closure(targets, ready, &mut |patch| patches.push(patch));
        (state, Wanted::of(&patches))
    }

    /// Whether a block has a wanted patch that could not be written now.
    pub fn has_wanted_waiting(&self, block: BlockId, wanted: &Wanted) -> bool {
        let mut index = (self.blocks.get(block.0 as usize)).map_or(NIL, |b| b.first);
        while index != NIL {
            let p = &self.patches[index as usize];
            if !p.ready && wanted.has(index) {
                return true;
            }
            index = p.next_in_block;
        }
        false
    }

    /// Whether a block has a wanted patch that could be written now. A run counts even while it
    /// waits.
    pub fn has_wanted_ready(&self, block: BlockId, wanted: &Wanted) -> bool {
        let Some(b) = self.blocks.get(block.0 as usize) else {
            return false;
        };
        if self.run_of(block.0).is_some_and(|run| wanted.has(run)) {
            return true;
        }
        let mut ready = b.first_ready;
        while ready != NIL {
            if wanted.has(ready) {
                return true;
            }
            ready = self.patches[ready as usize].next_ready;
        }
        false
    }
}
