//! Runs of blocks on the disk, and what is mapped to them.

use backstitch_layout::BlockNumber;

/// A run of blocks on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub start: BlockNumber,
    /// How many there are.
    pub len: u64,
}

impl Run {
    /// No block.
    pub const EMPTY: Run = Run {
        start: BlockNumber::NONE,
        len: 0,
    };

    /// One block.
    pub const fn one(block: BlockNumber) -> Run {
        Run {
            start: block,
            len: 1,
        }
    }

    /// One more than the last one.
    pub fn end(self) -> BlockNumber {
        self.start + self.len
    }

    /// All of them.
    pub fn blocks(self) -> impl DoubleEndedIterator<Item = BlockNumber> + Clone {
        self.start.run(self.len)
    }

    /// Whether a block is one of them.
    pub fn contains(self, block: BlockNumber) -> bool {
        (self.start..self.end()).contains(&block)
    }
}

/// What a stretch of a file is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Adjacent blocks on the disk.
    Blocks(Run),
    /// A number of blocks of nothing (at least; more may follow).
    Hole(u64),
}

/// Adds blocks to a list of runs, joining what is adjacent.
pub fn push_run(runs: &mut Vec<Run>, start: BlockNumber, len: u64) {
    match runs.last_mut() {
        Some(last) if last.end() == start => last.len += len,
        _ => runs.push(Run { start, len }),
    }
}
