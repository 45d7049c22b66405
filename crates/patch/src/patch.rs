//! What a patch and a dependency are: their ids, their states, and their places in the arena.

use crate::block::{BlockId, NIL};
use crate::undo::Undo;

/// A patch. Once the patch has committed its id is dead and stands for "on disk"; ids are never
/// used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatchId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl PatchId {
    /// An id that is dead from the start: depending on it is depending on nothing.
    pub const COMMITTED: PatchId = PatchId {
        index: NIL,
        generation: 0,
    };

    /// The patch's slot in the table of live patches, and the generation that tells it from earlier
    /// users of the slot: a key for tables beside the graph.
    pub fn place(self) -> (u32, u32) {
        (self.index, self.generation)
    }
}

/// What a patch was made of, for tests, viewers and statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// Bytes with undo data.
    Soft,
    /// Bits of one word; taken back by flipping them again.
    Bits,
    /// Bytes without undo data.
    Hard,
    /// No bytes: stands for its dependencies.
    Empty,
    /// Changes of several blocks without undo data; see [`crate::Graph::create_in_run`].
    Run,
}

/// What is known of a live patch.
#[derive(Clone, Copy, Debug)]
pub struct PatchInfo {
    /// Its kind.
    pub kind: PatchKind,
    /// Its block, `None` when empty.
    pub block: Option<BlockId>,
    /// The first byte it changes (of a hard patch: not kept, 0).
    pub offset_bytes: u32,
    /// How many bytes it changes (of a hard patch: not kept, 0).
    pub len_bytes: u32,
    /// Whether a version of its block that contains it is on its way to the device.
    pub in_flight: bool,
    /// How many patches it directly waits for.
    pub dependencies: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot is free; `next_in_block` links the free list.
    Free,
    Soft,
    Bits,
    Hard,
    Empty,
    /// Changes of several blocks.
    Run,
    /// Merged into the patch in `offset`; lives until that one commits, so that its id keeps
    /// standing for it.
    Forward,
}

/// Batches with which something that a patch waits for may go in flight while it takes on more to
/// wait for.
pub(crate) const MOST_FLIGHTS: u8 = 4;

/// How far a patch is from being settled (see `settle.rs`), in four bits each: the number of batches with which
/// things that it waits for went in flight, and the last of these batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flights(u8);

impl Flights {
    pub(crate) const SETTLED: Flights = Flights(MOST_FLIGHTS << 4);

    pub(crate) fn is_settled(self) -> bool {
        self.0 >> 4 == MOST_FLIGHTS
    }

    /// Notes a batch, whose number counts modulo 16. False if it is the last one noted.
    pub(crate) fn note(&mut self, batch: u8) -> bool {
        let noted = self.0 >> 4;
        let is_new = noted == 0 || self.0 & 15 != batch & 15;
        if is_new {
            self.0 = (noted + 1).min(MOST_FLIGHTS) << 4 | batch & 15;
        }
        is_new
    }
}

#[derive(Debug)]
pub(crate) struct Patch {
    pub(crate) generation: u32,
    pub(crate) block: u32,
    /// Bytes: first byte. Bits: the word's first byte. Empty or hard, if watched: low half of the
    /// token. Forward: the target's index. Run: how many of its blocks are not on disk.
    pub(crate) offset: u32,
    /// Bytes: length. Bits: the mask (bits flipped back by a merged change are not in it, but in
    /// `undo`). Empty or hard, if watched: high half of the token. Run: the first of its blocks
    /// that no write has taken up.
    pub(crate) len: u32,
    pub(crate) next_in_block: u32,
    pub(crate) prev_in_block: u32,
    pub(crate) next_ready: u32,
    pub(crate) prev_ready: u32,
    /// First edge to a patch that this one depends on.
    pub(crate) befores: u32,
    /// First edge from a patch that depends on this one.
    pub(crate) afters: u32,
    pub(crate) befores_count: u32,
    /// The last search that visited it. While a write is put together: how many of its dependencies
    /// go along (see `Graph::choose`).
    pub(crate) mark: u32,
    /// First of the patches that were merged into this one (linked by their `next_in_block`).
    pub(crate) forwards: u32,
    pub(crate) state: State,
    pub(crate) in_flight: bool,
    /// It waits for nothing. Runs: its blocks need not wait.
    pub(crate) ready: bool,
    /// Empty patches: kept from committing until released. Runs: no block joins any more.
    pub(crate) held: bool,
    /// Empty and hard patches: somebody wants to hear of its commit.
    pub(crate) watched: bool,
    /// Blocks that its longest chain of dependencies leads through, as known when the dependencies
    /// were added: a commit since then does not lower it, and what its dependencies came to wait
    /// for later does not raise it. Or [`DEPTH_OF_TRANSACTION`].
    pub(crate) depth: u8,
    /// How far it is from being settled (see `settle.rs`). Of a run: whether a write has taken up
    /// some of it.
    pub(crate) flights: Flights,
    pub(crate) undo: Undo,
}

/// The depth of an empty patch that stands for a transaction: it adds nothing to other depths.
pub(crate) const DEPTH_OF_TRANSACTION: u8 = u8::MAX;

impl Patch {
    /// Bits: every bit that was ever flipped.
    pub(crate) fn covered(&self) -> u32 {
        match self.undo {
            Undo::Flip { covered } => covered.get(),
            _ => 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) before: u32,
    pub(crate) after: u32,
    pub(crate) next_after: u32,
    pub(crate) prev_after: u32,
    pub(crate) next_before: u32,
    pub(crate) prev_before: u32,
}

/// Bytes that one patch takes, without undo data.
pub(crate) const PATCH_BYTES: u64 = size_of::<Patch>() as u64;
/// Bytes that one dependency takes.
pub(crate) const EDGE_BYTES: u64 = size_of::<Edge>() as u64;
/// Bytes that a block in a run takes: the three fields of its entry that only runs use.
pub(crate) const RUN_BLOCK_BYTES: u64 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_batches_settle_a_patch() {
        let mut flights = Flights::default();
        // The number of a batch is known by four bits of it, and counts from 0 as well.
        let batches = [0, 0, 1, 17, 0x82, 2, 3, 3, 4];
        let new = [true, false, true, false, true, false, true, false, true];
        let mut counted = 0;
        for (batch, is_new) in batches.into_iter().zip(new) {
            assert_eq!(flights.note(batch), is_new, "{batch}");
            counted += u8::from(is_new);
            assert_eq!(flights.is_settled(), counted >= MOST_FLIGHTS, "{batch}");
        }
        assert!(Flights::SETTLED.is_settled() && !Flights::default().is_settled());
    }
}
