//! The end of a file in a format whose unit of allocation is smaller than its block.
//!
//! UFS gives space in fragments, of which a block has up to eight. All blocks of a file are whole
//! but for the last one, which is a run of as many fragments as the size needs. The run lies within
//! one block, and only files that end in a direct block have one. As the file grows the run takes
//! the fragments behind it, if they are free and in the same block; otherwise it moves to a place
//! with room, and the old fragments are freed once the pointer to the new ones is on the disk, as it
//! is with every block that moves.

use backstitch_layout::BlockNumber;

use crate::runs::Run;

/// How many units a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// Units of a block, a power of two; 1 where the block is the unit.
    pub per_block: u32,
}

/// What becomes of the run of units at a file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// It is as long as it must be.
    Stays,
    /// It takes these units, which follow it.
    Grows(Run),
    /// It goes to a place of this many units within one block, with what it holds.
    Moves {
        /// The units that are needed there.
        units: u32,
    },
    /// It gives up these units, its last ones.
    Shrinks(Run),
}

impl Units {
    /// Whether a run lies within one block: units are counted from the start of the first group, so
    /// that blocks begin at multiples.
    pub fn is_within_block(self, run: Run) -> bool {
        let block = |unit: BlockNumber| unit.0 / u64::from(self.per_block);
        run.len > 0 && block(run.start) == block(run.end() - 1)
    }

    /// What becomes of a tail, of which there is at least one unit, that must have `wanted` units,
    /// at least one and at most a block's. `is_free` tells whether a unit is free.
    pub fn plan_tail(self, tail: Run, wanted: u32, is_free: impl Fn(BlockNumber) -> bool) -> Tail {
        debug_assert!(self.is_within_block(tail) && (1..=self.per_block).contains(&wanted));
        let wanted_end = tail.start + u64::from(wanted);
        if wanted_end == tail.end() {
            return Tail::Stays;
        }
        if wanted_end < tail.end() {
            return Tail::Shrinks(Run {
                start: wanted_end,
                len: tail.end() - wanted_end,
            });
        }
        let more = Run {
            start: tail.end(),
            len: wanted_end - tail.end(),
        };
        let grown = Run {
            start: tail.start,
            len: u64::from(wanted),
        };
        match self.is_within_block(grown) && more.blocks().all(is_free) {
            true => Tail::Grows(more),
            false => Tail::Moves { units: wanted },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UFS: Units = Units { per_block: 8 };
    const EXT: Units = Units { per_block: 1 };

    fn run(start: u64, len: u64) -> Run {
        Run {
            start: BlockNumber(start),
            len,
        }
    }

    #[test]
    fn a_tail_grows_in_place_while_its_block_has_room() {
        let taken = |free: std::ops::Range<u64>| move |unit: BlockNumber| free.contains(&unit.0);
        assert_eq!(
            UFS.plan_tail(run(80, 2), 5, taken(82..88)),
            Tail::Grows(run(82, 3))
        );
        assert_eq!(
            UFS.plan_tail(run(80, 2), 8, taken(82..96)),
            Tail::Grows(run(82, 6))
        );
        // One of the units behind it is somebody else's.
        assert_eq!(
            UFS.plan_tail(run(80, 2), 5, taken(82..84)),
            Tail::Moves { units: 5 }
        );
        // All are free, but they are the next block's.
        assert_eq!(
            UFS.plan_tail(run(84, 3), 5, taken(87..96)),
            Tail::Moves { units: 5 }
        );
    }

    #[test]
    fn a_tail_that_gets_shorter_gives_up_its_end() {
        assert_eq!(
            UFS.plan_tail(run(82, 5), 2, |_| false),
            Tail::Shrinks(run(84, 3))
        );
        assert_eq!(UFS.plan_tail(run(82, 5), 5, |_| false), Tail::Stays);
    }

    #[test]
    fn where_the_block_is_the_unit_a_tail_stays() {
        for start in 0..4 {
            assert!(EXT.is_within_block(Run::one(BlockNumber(start))));
            assert_eq!(
                EXT.plan_tail(Run::one(BlockNumber(start)), 1, |_| true),
                Tail::Stays
            );
        }
    }

    /// Every tail of a block, every wish, every set of free units: what is planned is what the wish
    /// says, within one block and of free units, and nothing moves that could stay.
    #[test]
    fn all_plans_hold_what_was_wished_for() {
        for (first, len, wanted, free) in cases() {
            let tail = run(8 + first, len);
            let is_free = |unit: BlockNumber| free >> (unit.0 - 8) & 1 != 0;
            let end = first + u64::from(wanted);
            let fits = end <= 8 && (first + len..end).all(|unit| free >> unit & 1 != 0);
            match UFS.plan_tail(tail, wanted, is_free) {
                Tail::Stays => assert_eq!(u64::from(wanted), len),
                Tail::Shrinks(gone) => {
                    assert_eq!(gone, run(8 + end, len - u64::from(wanted)));
                }
                Tail::Grows(more) => {
                    assert!(fits && more == run(tail.end().0, 8 + end - tail.end().0));
                }
                Tail::Moves { units } => assert!(!fits && units == wanted),
            }
        }
    }

    fn cases() -> impl Iterator<Item = (u64, u64, u32, u16)> {
        (0..8_u64).flat_map(|first| {
            (1..=8 - first).flat_map(move |len| {
                (1..=8).flat_map(move |wanted| (0..256).map(move |free| (first, len, wanted, free)))
            })
        })
    }
}
