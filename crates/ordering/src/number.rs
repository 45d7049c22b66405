//! Block numbers of a volume, as a type of their own: no other number (of a block within a file, of
//! an inode) can be passed for one.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// The number of a block of a volume: what is read, written and allocated as one. Where a layout
/// allocates parts of what it calls a block, as UFS does with fragments, it is such a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNumber(pub u64);

impl BlockNumber {
    /// The value of a pointer that leads to no block: a volume's first block is never a file's.
    pub const NONE: BlockNumber = BlockNumber(0);
    /// A number behind every block.
    pub const MAX: BlockNumber = BlockNumber(u64::MAX);

    /// The blocks from an earlier one to this one; 0 where that one is not earlier.
    pub fn saturating_sub(self, earlier: BlockNumber) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The block that many behind this one; `None` where no number is so large.
    pub fn checked_add(self, blocks: u64) -> Option<BlockNumber> {
        self.0.checked_add(blocks).map(BlockNumber)
    }

    /// Where the block begins in its volume, in bytes.
    pub fn offset_bytes(self, block_bytes: u64) -> u64 {
        self.0 * block_bytes
    }

    /// That many blocks, from this one on.
    pub fn run(self, count: u64) -> impl DoubleEndedIterator<Item = BlockNumber> + Clone {
        (self.0..self.0 + count).map(BlockNumber)
    }

    /// The blocks from this one up to `end`, without it.
    pub fn up_to(self, end: BlockNumber) -> impl DoubleEndedIterator<Item = BlockNumber> + Clone {
        (self.0..end.0).map(BlockNumber)
    }
}

impl fmt::Display for BlockNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The block that many behind another one.
impl Add<u64> for BlockNumber {
    type Output = BlockNumber;

    fn add(self, blocks: u64) -> BlockNumber {
        BlockNumber(self.0 + blocks)
    }
}

impl AddAssign<u64> for BlockNumber {
    fn add_assign(&mut self, blocks: u64) {
        self.0 += blocks;
    }
}

/// The block that many before another one.
impl Sub<u64> for BlockNumber {
    type Output = BlockNumber;

    fn sub(self, blocks: u64) -> BlockNumber {
        BlockNumber(self.0 - blocks)
    }
}

/// The blocks from one number to a later one.
impl Sub for BlockNumber {
    type Output = u64;

    fn sub(self, earlier: BlockNumber) -> u64 {
        self.0 - earlier.0
    }
}
