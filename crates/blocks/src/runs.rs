//! Runs of physical blocks, and what is mapped to them.

/// A run of physical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub start: u64,
    /// How many there are.
    pub len: u64,
}

impl Run {
    /// One block.
    pub const fn one(block: u64) -> Run {
        Run {
            start: block,
            len: 1,
        }
    }

    /// One more than the last one.
    pub fn end(self) -> u64 {
        self.start + self.len
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
pub fn push_run(runs: &mut Vec<Run>, start: u64, len: u64) {
    match runs.last_mut() {
        Some(last) if last.end() == start => last.len += len,
        _ => runs.push(Run { start, len }),
    }
}
