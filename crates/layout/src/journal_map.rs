//! Where the blocks of a log are that a layout hosts.
//!
//! A place and nothing more: what is in the blocks is the business of the log's writer.

use backstitch_ordering::BlockNumber;
use thiserror::Error;

/// Blocks of a journal that follow each other on the device too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRun {
    /// The first one, counted from the journal's start.
    pub position: u32,
    /// Where that one is on the device.
    pub block: BlockNumber,
    /// How many.
    pub blocks: u32,
}

impl JournalRun {
    /// The block behind the last one on the device.
    pub fn end(&self) -> BlockNumber {
        let end = self.block.checked_add(self.blocks.into());
        end.unwrap_or(BlockNumber::MAX)
    }
}

/// The map from a journal's blocks to a device's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalMap {
    runs: Vec<JournalRun>,
    blocks: u32,
    superblock: u32,
    /// The same runs, sorted by their place on the device.
    by_block: Vec<JournalRun>,
    is_inside: bool,
}

impl JournalMap {
    /// A journal inside the file system whose blocks it logs. `runs` must begin with position 0 and
    /// leave out none.
    ///
    /// # Errors
    /// [`MapError`] where positions are missing or a block of the device appears twice.
    pub fn inside(runs: Vec<JournalRun>) -> Result<JournalMap, MapError> {
        Self::new(runs, 0, true)
    }

    /// A journal that has a device of `blocks` blocks of its own, its superblock in block
    /// `superblock`.
    ///
    /// # Errors
    /// [`MapError`] where the device is too small for a superblock.
    pub fn whole_device(blocks: u32, superblock: u32) -> Result<JournalMap, MapError> {
        let run = JournalRun {
            position: 0,
            block: BlockNumber(0),
            blocks,
        };
        Self::new(vec![run], superblock, false)
    }

    /// What is left of a journal of `blocks` blocks inside a damaged file system. `runs` go up and
    /// may leave positions out: those cannot be read.
    ///
    /// # Errors
    /// [`MapError`] where the first block is missing, runs do not go up, or a block of the
    /// device appears twice.
    pub fn with_gaps(runs: Vec<JournalRun>, blocks: u32) -> Result<JournalMap, MapError> {
        if runs.first().is_none_or(|run| run.position > 0) {
            return Err(MapError::of(0, MapFault::NoPlace));
        }
        Self::checked(runs, 0, true, blocks)
    }

    fn new(
        runs: Vec<JournalRun>,
        superblock: u32,
        is_inside: bool,
    ) -> Result<JournalMap, MapError> {
        let mut blocks = 0_u32;
        for run in &runs {
            if run.position != blocks {
                return Err(MapError::of(blocks, MapFault::NoPlace));
            }
            blocks = blocks.saturating_add(run.blocks);
        }
        Self::checked(runs, superblock, is_inside, blocks)
    }

    /// The map with these runs, which lie one behind the other and before `blocks`.
    fn checked(
        runs: Vec<JournalRun>,
        superblock: u32,
        is_inside: bool,
        blocks: u32,
    ) -> Result<JournalMap, MapError> {
        let mut end = 0_u32;
        for run in &runs {
            let next = run.position.checked_add(run.blocks);
            let is_behind = run.position >= end && run.blocks > 0;
            match next.filter(|next| is_behind && *next <= blocks) {
                Some(next) => end = next,
                None => return Err(MapError::of(end, MapFault::NoPlace)),
            }
        }
        if blocks <= superblock {
            return Err(MapError::of(superblock, MapFault::NoSuchBlock));
        }
        let mut by_block = runs.clone();
        by_block.sort_unstable_by_key(|run| run.block);
        let overlap = by_block
            .windows(2)
            .find(|pair| pair[0].end() > pair[1].block);
        if let Some(pair) = overlap {
            return Err(MapError::of(pair[1].position, MapFault::PlaceTakenTwice));
        }
        Ok(JournalMap {
            runs,
            blocks,
            superblock,
            by_block,
            is_inside,
        })
    }

    /// The same blocks on a device on which `blocks` others come before them.
    pub fn behind(&self, blocks: u64) -> JournalMap {
        let moved = |run: &JournalRun| JournalRun {
            block: run.block.checked_add(blocks).unwrap_or(BlockNumber::MAX),
            ..*run
        };
        JournalMap {
            runs: self.runs.iter().map(moved).collect(),
            by_block: self.by_block.iter().map(moved).collect(),
            ..self.clone()
        }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The superblock's position.
    pub fn superblock(&self) -> u32 {
        self.superblock
    }

    /// The runs, by position.
    pub fn runs(&self) -> &[JournalRun] {
        &self.runs
    }

    /// Whether some of its blocks are missing.
    pub fn has_gaps(&self) -> bool {
        let mapped: u64 = self.runs.iter().map(|run| u64::from(run.blocks)).sum();
        mapped < u64::from(self.blocks)
    }

    /// Where a block is on the device; `None` past the journal's end and in a gap.
    pub fn block(&self, position: u32) -> Option<BlockNumber> {
        let at = self.runs.partition_point(|run| run.position <= position);
        let run = self.runs.get(at.checked_sub(1)?)?;
        let distance = position - run.position;
        (distance < run.blocks).then(|| run.block + u64::from(distance))
    }

    /// Whether any of these blocks of the device the journal is inside of belongs to it.
    pub fn owns_any(&self, first: BlockNumber, blocks: u64) -> bool {
        let end = first.checked_add(blocks).unwrap_or(BlockNumber::MAX);
        let at = self.by_block.partition_point(|run| run.block < end);
        let run = at.checked_sub(1).and_then(|at| self.by_block.get(at));
        self.is_inside && run.is_some_and(|run| run.end() > first)
    }

    /// Whether a block of the file system's device is the journal's own.
    pub fn is_own(&self, block: BlockNumber) -> bool {
        let at = self.by_block.partition_point(|run| run.block <= block);
        let run = at.checked_sub(1).and_then(|at| self.by_block.get(at));
        self.is_inside && run.is_some_and(|run| block - run.block < run.blocks.into())
    }
}

/// What contradicts itself in the place of a journal, and at which of its blocks.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the journal is damaged: block {position}: {fault}")]
pub struct MapError {
    /// The block, counted from the journal's start.
    pub position: u32,
    /// What is wrong.
    pub fault: MapFault,
}

/// What can be wrong with the place of a journal's block.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MapFault {
    /// Nothing says where on the device the block is.
    #[error("it has no place on the device")]
    NoPlace,
    /// The journal ends before it.
    #[error("there is no such block")]
    NoSuchBlock,
    /// Another block of the journal has the same place.
    #[error("its place is taken twice")]
    PlaceTakenTwice,
}

impl MapError {
    fn of(position: u32, fault: MapFault) -> MapError {
        MapError { position, fault }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(position: u32, block: u64, blocks: u32) -> JournalRun {
        JournalRun {
            position,
            block: BlockNumber(block),
            blocks,
        }
    }

    #[test]
    fn positions_are_found_and_own_blocks_known() {
        let map = JournalMap::inside(vec![run(0, 100, 3), run(3, 50, 2), run(5, 103, 1)]).unwrap();
        let found: Vec<_> = (0..7)
            .map(|at| map.block(at).map(|block| block.0))
            .collect();
        let expected = [100, 101, 102, 50, 51, 103].map(Some);
        assert_eq!(found[..6], expected);
        assert_eq!(found[6], None);
        for block in [49, 52, 99, 104] {
            assert!(!map.is_own(BlockNumber(block)), "{block}");
        }
        for block in [50, 51, 100, 103] {
            assert!(map.is_own(BlockNumber(block)), "{block}");
        }
        let alone = JournalMap::whole_device(1024, 2).unwrap();
        assert!(!alone.is_own(BlockNumber(5)));
        let behind = alone.behind(300);
        assert_eq!(
            (behind.block(2), behind.block(1023)),
            (Some(BlockNumber(302)), Some(BlockNumber(1323)))
        );
        assert_eq!((behind.superblock(), behind.block(1024)), (2, None));
    }

    #[test]
    fn what_is_left_of_a_map_can_be_used() {
        let map = JournalMap::with_gaps(vec![run(0, 100, 3), run(5, 50, 2)], 9).unwrap();
        assert!(map.has_gaps());
        let found: Vec<_> = [0, 2, 3, 4, 5, 6, 7, 8]
            .map(|at| map.block(at).map(|block| block.0))
            .to_vec();
        let expected = [
            Some(100),
            Some(102),
            None,
            None,
            Some(50),
            Some(51),
            None,
            None,
        ];
        assert_eq!((found.as_slice(), map.blocks()), (&expected[..], 9));
        assert!(map.is_own(BlockNumber(51)) && !map.is_own(BlockNumber(52)));
        assert!(JournalMap::with_gaps(vec![run(1, 100, 3)], 9).is_err());
        assert!(JournalMap::with_gaps(vec![run(0, 100, 3), run(2, 50, 2)], 9).is_err());
        assert!(JournalMap::with_gaps(vec![run(0, 100, 3), run(5, 101, 2)], 9).is_err());
        assert!(JournalMap::with_gaps(vec![run(0, 100, 3)], 2).is_err());
    }

    #[test]
    fn a_map_with_gaps_or_overlaps_is_refused() {
        assert!(JournalMap::inside(vec![]).is_err());
        assert!(JournalMap::inside(vec![run(1, 5, 1)]).is_err());
        assert!(JournalMap::inside(vec![run(0, 5, 2), run(3, 9, 1)]).is_err());
        assert!(JournalMap::inside(vec![run(0, 5, 2), run(2, 6, 2)]).is_err());
        assert!(JournalMap::inside(vec![run(0, 5, u32::MAX), run(u32::MAX, 1, 2)]).is_err());
        assert!(JournalMap::whole_device(2, 2).is_err());
    }
}
