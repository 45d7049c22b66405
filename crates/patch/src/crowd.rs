//! The soft patches of a crowded block, found by where in the block they lie.
//!
//! A change must know the soft patches that it overlaps. Most blocks have few, and these are
//! compared one after the other. A block of names in use may have hundreds: then they are listed by
//! zones of 128 bytes as well, and a change is compared with those of its own zones. Blocks of more
//! than 4096 bytes have no such lists.

use std::ops::ControlFlow;

use crate::block::NIL;
use crate::graph::Graph;
use rustc_hash::FxHashMap;

/// A block with more uncommitted patches than this is crowded.
const CROWD: u32 = 16;
/// The number of patches at which a crowd is dissolved.
const FEW: u32 = CROWD / 2;
const ZONE_BYTES: u32 = 128;
const ZONES: usize = 32;

/// The soft patches of one block, by zone, in the order in which they came there.
type Crowd = [Vec<u32>; ZONES];

/// The crowded blocks.
#[derive(Debug, Default)]
pub(crate) struct Crowds {
    /// Index in `crowds` of each crowded block's lists.
    of_block: FxHashMap<u32, usize>,
    crowds: Vec<Crowd>,
    /// Indices in `crowds` of lists that belong to no block and are empty.
    spare: Vec<usize>,
}

fn zones_of((start, end): (u32, u32)) -> std::ops::RangeInclusive<usize> {
    let last = end.max(start + 1) - 1;
    (start / ZONE_BYTES) as usize..=(last / ZONE_BYTES) as usize
}

impl Crowds {
    fn dissolve(&mut self, block: u32) {
        if let Some(at) = self.of_block.remove(&block) {
            self.crowds[at].iter_mut().for_each(Vec::clear);
            self.spare.push(at);
        }
    }

    fn make(&mut self, block: u32) {
        let at = self.spare.pop().unwrap_or_else(|| {
            self.crowds.push(Crowd::default());
            self.crowds.len() - 1
        });
        self.of_block.insert(block, at);
    }

    fn of_mut(&mut self, block: u32) -> Option<&mut Crowd> {
        let at = *self.of_block.get(&block)?;
        Some(&mut self.crowds[at])
    }
}

impl Graph {
    /// A soft patch has come into its block.
    pub(crate) fn enter_crowd(&mut self, index: u32) {
        let block = self.patches[index as usize].block;
        if self.crowd_of(block).is_some() {
            if let Some(range) = self.range_of(index) {
                self.list_in_crowd(block, index, zones_of(range));
            }
        } else if self.blocks[block as usize].uncommitted > CROWD {
            self.gather_crowd(block);
        }
    }

    fn gather_crowd(&mut self, block: u32) {
        self.crowds.make(block);
        let mut index = self.blocks[block as usize].first;
        while index != NIL {
            if let Some(range) = self.range_of(index)
                && !self.list_in_crowd(block, index, zones_of(range))
            {
                return;
            }
            index = self.patches[index as usize].next_in_block;
        }
    }

    /// Lists a patch under zones. False where it lies behind the last zone that a crowd has: then
    /// the crowd is dissolved.
    fn list_in_crowd(
        &mut self,
        block: u32,
        index: u32,
        zones: std::ops::RangeInclusive<usize>,
    ) -> bool {
        if *zones.end() >= ZONES {
            self.crowds.dissolve(block);
            return false;
        }
        if let Some(crowd) = self.crowds.of_mut(block) {
            zones.for_each(|zone| crowd[zone].push(index));
        }
        true
    }

    /// A patch is about to leave its block, or to be soft no more.
    pub(crate) fn leave_crowd(&mut self, index: u32) {
        if self.crowds.of_block.is_empty() {
            return;
        }
        let block = self.patches[index as usize].block;
        let range = self.range_of(index);
        let Some(crowd) = self.crowds.of_mut(block) else {
            return;
        };
        if self.blocks[block as usize].uncommitted <= FEW {
            self.crowds.dissolve(block);
            return;
        }
        for zone in range.into_iter().flat_map(zones_of) {
            // `remove` keeps the order of the list, which tells which patch came first.
            if let Some(at) = crowd[zone].iter().position(|i| *i == index) {
                crowd[zone].remove(at);
            }
        }
    }

    /// A soft patch, which covered `old`, covers `new` as well.
    pub(crate) fn grow_in_crowd(&mut self, index: u32, old: (u32, u32), new: (u32, u32)) {
        let block = self.patches[index as usize].block;
        if !self.crowds.of_block.contains_key(&block) {
            return;
        }
        let (old, new) = (zones_of(old), zones_of(new));
        for zone in new {
            if !old.contains(&zone) && !self.list_in_crowd(block, index, zone..=zone) {
                return;
            }
        }
    }

    /// None of the block's patches is soft any more.
    pub(crate) fn dissolve_crowd(&mut self, block: u32) {
        if !self.crowds.of_block.is_empty() {
            self.crowds.dissolve(block);
        }
    }

    /// Calls `look` for each uncommitted patch of a block that may share bytes of a range with a
    /// change, each once, until it has seen enough.
    pub(crate) fn for_each_near(
        &self,
        block: u32,
        range: (u32, u32),
        mut look: impl FnMut(u32) -> ControlFlow<()>,
    ) {
        let Some(crowd) = self.crowd_of(block) else {
            let mut index = self.blocks[block as usize].first;
            while index != NIL && look(index).is_continue() {
                index = self.patches[index as usize].next_in_block;
            }
            return;
        };
        let zones = zones_of(range);
        let first_zone = *zones.start();
        for zone in zones.take_while(|z| *z < ZONES) {
            for index in &crowd[zone] {
                // A patch in several of the zones is looked at in the first of them only.
                let starts = self.range_of(*index).map_or(0, |r| *zones_of(r).start());
                if zone == starts.max(first_zone) && look(*index).is_break() {
                    return;
                }
            }
        }
    }

    /// The same, the newest first among those that share bytes within the range. (A patch that grew
    /// into a zone is listed there behind newer ones, but it shares no bytes of the zone with
    /// them.)
    pub(crate) fn for_each_near_from_newest(
        &self,
        block: u32,
        range: (u32, u32),
        mut look: impl FnMut(u32) -> ControlFlow<()>,
    ) {
        let zones = zones_of(range);
        // The order is known within one zone's list, not across several.
        let is_one = zones.start() == zones.end() && *zones.end() < ZONES;
        if let Some(crowd) = self.crowd_of(block).filter(|_| is_one) {
            let _ = crowd[*zones.start()]
                .iter()
                .rev()
                .try_for_each(|index| look(*index));
            return;
        }
        let mut index = self.blocks[block as usize].last;
        while index != NIL && look(index).is_continue() {
            index = self.patches[index as usize].prev_in_block;
        }
    }

    fn crowd_of(&self, block: u32) -> Option<&Crowd> {
        if self.crowds.of_block.is_empty() {
            return None;
        }
        let at = *self.crowds.of_block.get(&block)?;
        Some(&self.crowds.crowds[at])
    }

    /// Whether the lists of a block hold what they should: each soft patch, in each of its zones,
    /// once.
    pub(crate) fn check_crowd(&self, block: u32) -> Result<(), String> {
        let Some(crowd) = self.crowd_of(block) else {
            return Ok(());
        };
        let mut expected: Crowd = Default::default();
        let mut index = self.blocks[block as usize].first;
        while index != NIL {
            for zone in self.range_of(index).into_iter().flat_map(zones_of) {
                expected[zone].push(index);
            }
            index = self.patches[index as usize].next_in_block;
        }
        for (zone, (expected, listed)) in expected.iter_mut().zip(crowd).enumerate() {
            let mut listed = listed.clone();
            expected.sort_unstable();
            listed.sort_unstable();
            if *expected != listed {
                return Err(format!(
                    "block {block}: zone {zone} lists {listed:?}, not {expected:?}"
                ));
            }
        }
        Ok(())
    }
}
