//! Where a journal's blocks are.

use std::sync::Arc;

use backstitch_device::{BlockDevice, Buffer, WriteRequest};

use crate::{Error, Fault, Result};

/// Blocks of a journal that follow each other on the device too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRun {
    /// The first one, counted from the journal's start.
    pub position: u32,
    /// Where that one is on the device, in blocks.
    pub block: u64,
    /// How many.
    pub blocks: u32,
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
    /// [`Error::Corrupt`] where positions are missing or a block of the device appears twice.
    pub fn inside(runs: Vec<JournalRun>) -> Result<JournalMap> {
        Self::new(runs, 0, true)
    }

    /// A journal that has a device of `blocks` blocks of its own, its superblock in block
    /// `superblock`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the device is too small for a superblock.
    pub fn whole_device(blocks: u32, superblock: u32) -> Result<JournalMap> {
        let run = JournalRun {
            position: 0,
            block: 0,
            blocks,
        };
        Self::new(vec![run], superblock, false)
    }

    /// What is left of a journal of `blocks` blocks inside a damaged file system. `runs` go up and
    /// may leave positions out: those cannot be read.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the first block is missing, runs do not go up, or a block of the
    /// device appears twice.
    pub fn with_gaps(runs: Vec<JournalRun>, blocks: u32) -> Result<JournalMap> {
        if runs.first().is_none_or(|run| run.position > 0) {
            return Err(Error::corrupt(0, Fault::NoPlace));
        }
        Self::checked(runs, 0, true, blocks)
    }

    fn new(runs: Vec<JournalRun>, superblock: u32, is_inside: bool) -> Result<JournalMap> {
        let mut blocks = 0_u32;
        for run in &runs {
            if run.position != blocks {
                return Err(Error::corrupt(blocks, Fault::NoPlace));
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
    ) -> Result<JournalMap> {
        let mut end = 0_u32;
        for run in &runs {
            let next = run.position.checked_add(run.blocks);
            let is_behind = run.position >= end && run.blocks > 0;
            match next.filter(|next| is_behind && *next <= blocks) {
                Some(next) => end = next,
                None => return Err(Error::corrupt(end, Fault::NoPlace)),
            }
        }
        if blocks <= superblock {
            return Err(Error::corrupt(superblock, Fault::NoSuchBlock));
        }
        let mut by_block = runs.clone();
        by_block.sort_unstable_by_key(|run| run.block);
        let overlap = by_block
            .windows(2)
            .find(|pair| pair[0].block.saturating_add(pair[0].blocks.into()) > pair[1].block);
        if let Some(pair) = overlap {
            return Err(Error::corrupt(pair[1].position, Fault::PlaceTakenTwice));
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
            block: run.block.saturating_add(blocks),
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
    pub fn block(&self, position: u32) -> Option<u64> {
        let at = self.runs.partition_point(|run| run.position <= position);
        let run = self.runs.get(at.checked_sub(1)?)?;
        let distance = position - run.position;
        (distance < run.blocks).then(|| run.block + u64::from(distance))
    }

    /// Whether any of these blocks of the device the journal is inside of belongs to it.
    pub fn owns_any(&self, first: u64, blocks: u64) -> bool {
        let end = first.saturating_add(blocks);
        let at = self.by_block.partition_point(|run| run.block < end);
        let run = at.checked_sub(1).and_then(|at| self.by_block.get(at));
        self.is_inside && run.is_some_and(|run| run.block + u64::from(run.blocks) > first)
    }

    /// Whether a block of the file system's device is the journal's own.
    pub fn is_own(&self, block: u64) -> bool {
        let at = self.by_block.partition_point(|run| run.block <= block);
        let run = at.checked_sub(1).and_then(|at| self.by_block.get(at));
        self.is_inside && run.is_some_and(|run| block - run.block < run.blocks.into())
    }
}

/// A journal's blocks on a device.
#[derive(Clone)]
pub struct JournalDevice<'d> {
    device: &'d dyn BlockDevice,
    block_bytes: u32,
    map: Arc<JournalMap>,
}

impl<'d> JournalDevice<'d> {
    /// Blocks of `block_bytes` on `device`, where `map` says.
    pub fn new(device: &'d dyn BlockDevice, block_bytes: u32, map: Arc<JournalMap>) -> Self {
        JournalDevice {
            device,
            block_bytes,
            map,
        }
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Where the blocks are.
    pub fn map(&self) -> &JournalMap {
        &self.map
    }

    fn offset_bytes(&self, position: u32) -> Result<u64> {
        let block = self.map.block(position);
        block
            .and_then(|block| block.checked_mul(self.block_bytes.into()))
            .ok_or_else(|| Error::corrupt(position, Fault::NoPlace))
    }

    /// Fills `buffer`, of a block's size or less, with the beginning of a block.
    ///
    /// # Errors
    /// The device's, and [`Error::Corrupt`] past the journal's end.
    pub fn read(&self, position: u32, buffer: &mut [u8]) -> Result<()> {
        Ok(self.device.read(self.offset_bytes(position)?, buffer)?)
    }

    /// Writes blocks, or the beginning of one. Nothing is stable before [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, blocks: &[(u32, Buffer)]) -> Result<()> {
        let mut requests: Vec<WriteRequest> = Vec::new();
        for (position, bytes) in blocks {
            let offset_bytes = self.offset_bytes(*position)?;
            match requests.last_mut() {
                Some(last) if last.offset_bytes + last.len_bytes() == offset_bytes => {
                    last.buffers.push(bytes.clone());
                }
                _ => requests.push(WriteRequest {
                    offset_bytes,
                    buffers: vec![bytes.clone()],
                }),
            }
        }
        Ok(self.device.submit(&requests)?)
    }

    /// Makes everything written before stable.
    ///
    /// # Errors
    /// The device's.
    pub fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(position: u32, block: u64, blocks: u32) -> JournalRun {
        JournalRun {
            position,
            block,
            blocks,
        }
    }

    #[test]
    fn positions_are_found_and_own_blocks_known() {
        let map = JournalMap::inside(vec![run(0, 100, 3), run(3, 50, 2), run(5, 103, 1)]).unwrap();
        let found: Vec<_> = (0..7).map(|at| map.block(at)).collect();
        let expected = [100, 101, 102, 50, 51, 103].map(Some);
        assert_eq!(found[..6], expected);
        assert_eq!(found[6], None);
        for block in [49, 52, 99, 104] {
            assert!(!map.is_own(block), "{block}");
        }
        for block in [50, 51, 100, 103] {
            assert!(map.is_own(block), "{block}");
        }
        let alone = JournalMap::whole_device(1024, 2).unwrap();
        assert!(!alone.is_own(5));
        let behind = alone.behind(300);
        assert_eq!(
            (behind.block(2), behind.block(1023)),
            (Some(302), Some(1323))
        );
        assert_eq!((behind.superblock(), behind.block(1024)), (2, None));
    }

    #[test]
    fn what_is_left_of_a_map_can_be_used() {
        let map = JournalMap::with_gaps(vec![run(0, 100, 3), run(5, 50, 2)], 9).unwrap();
        assert!(map.has_gaps());
        let found: Vec<_> = [0, 2, 3, 4, 5, 6, 7, 8].map(|at| map.block(at)).to_vec();
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
        assert!(map.is_own(51) && !map.is_own(52));
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
