//! What a graph knows of each block: its lists of patches, its part of a run, and where its soft
//! patches lie.

/// The end of an intrusive list; no patch, edge or block.
pub(crate) const NIL: u32 = u32::MAX;

/// A block, as the graph's owner numbers it: small dense numbers, since they index a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Uncommitted patches in the order in which they were applied; a hard one comes first.
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) first_in_flight: u32,
    pub(crate) first_ready: u32,
    /// The uncommitted hard patch.
    pub(crate) hard: u32,
    pub(crate) uncommitted: u32,
    /// Edges from patches of other blocks (or from empty patches that something depends on) to
    /// uncommitted patches here.
    pub(crate) external: u32,
    /// Where in the block its soft patches may lie, one bit for 128 bytes (see [`Zones`]).
    pub(crate) zones: Zones,
    /// The run that the block is part of. If `prev_in_run` is [`RUN_IN_FLIGHT`], the run that its
    /// version in flight is part of.
    run: u32,
    /// Its neighbours among those blocks of the run that no write has taken up.
    pub(crate) next_in_run: u32,
    pub(crate) prev_in_run: u32,
}

/// Value of `prev_in_run` while the block's part of its run is in flight.
const RUN_IN_FLIGHT: u32 = NIL - 1;

/// A summary of ranges within a block: one bit for each 128 bytes, modulo 4096. A range that shares
/// no bit with the summary overlaps nothing in it, and need not be compared with every soft patch
/// of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Zones(u32);

impl Zones {
    pub(crate) fn of((start, end): (u32, u32)) -> Zones {
        let (first, last) = (start / 128, end.max(start + 1).div_ceil(128) - 1);
        if last - first >= 31 {
            return Zones(u32::MAX);
        }
        Zones(((1u32 << (last - first + 1)) - 1).rotate_left(first % 32))
    }

    pub(crate) fn add(&mut self, other: Zones) {
        self.0 |= other.0;
    }

    pub(crate) fn meets(self, other: Zones) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn contains(self, other: Zones) -> bool {
        self.0 | other.0 == self.0
    }
}

impl Block {
    pub(crate) const EMPTY: Block = Block {
        first: NIL,
        last: NIL,
        first_in_flight: NIL,
        first_ready: NIL,
        hard: NIL,
        uncommitted: 0,
        external: 0,
        zones: Zones(0),
        run: NIL,
        next_in_run: NIL,
        prev_in_run: NIL,
    };

    /// The run that waits for a write of the block.
    pub(crate) fn run(&self) -> Option<u32> {
        (self.run != NIL && self.prev_in_run != RUN_IN_FLIGHT).then_some(self.run)
    }

    /// The run that the version in flight is part of.
    pub(crate) fn run_in_flight(&self) -> Option<u32> {
        (self.run != NIL && self.prev_in_run == RUN_IN_FLIGHT).then_some(self.run)
    }

    pub(crate) fn enter_run(&mut self, run: u32, next: u32) {
        self.run = run;
        self.next_in_run = next;
        self.prev_in_run = NIL;
    }

    /// The write that takes up its part of the run starts.
    pub(crate) fn run_starts(&mut self) {
        self.prev_in_run = RUN_IN_FLIGHT;
    }

    pub(crate) fn leave_run(&mut self) {
        self.run = NIL;
        self.prev_in_run = NIL;
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.first_in_flight != NIL || self.run_in_flight().is_some()
    }
}
