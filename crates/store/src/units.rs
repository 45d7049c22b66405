//! The units of a block: what the device writes wholly or not at all.
//!
//! To the patch graph a unit is what a block is to everybody else: patches of one unit go to the
//! disk together, those of two units in any order that their dependencies allow. Where the unit is
//! the block, a slot is one block of the graph. Where it is a sector, a slot has a row of them, and
//! a version that holds back some of its units is written in pieces.
//!
//! Contents of files are one unit whatever the volume's is. Nothing in them waits for anything else
//! in the same block, so that each sector of a torn one is right by itself: the order between them
//! is worth nothing, and its patches would cost something. That is so until somebody orders
//! contents ([`Store::order_contents`]).

use std::ops::Range;

use backstitch_patch::{BlockId, Change, PatchId, Stating};

use crate::kind::{BlockClass, BlockKind, VolumeId};
use crate::store::{Slot, Store};

/// How a store numbers units.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbering {
    /// Unit numbers that each slot has, as a power of two.
    shift: u32,
}

impl Numbering {
    #[inline]
    pub(crate) fn slot_of(self, unit: BlockId) -> u32 {
        unit.0 >> self.shift
    }

    #[inline]
    pub(crate) fn first(self, slot: u32) -> BlockId {
        BlockId(slot << self.shift)
    }
}

impl Store {
    /// Adds a block space with blocks of this size, each of which is written wholly or not at all.
    pub fn add_volume(&mut self, block_bytes: u32) -> VolumeId {
        self.add_volume_with_units(block_bytes, block_bytes)
    }

    /// Adds a block space whose device writes no more than `unit_bytes` wholly or not at all: order
    /// is kept between the units of a block as it is between blocks.
    ///
    /// # Panics
    /// Where the unit is not a power of two of at least 512 bytes, or larger than the block; where
    /// blocks are in memory already whose numbers would change.
    pub fn add_volume_with_units(&mut self, block_bytes: u32, unit_bytes: u32) -> VolumeId {
        assert!(
            unit_bytes.is_power_of_two() && unit_bytes >= 512 && block_bytes >= unit_bytes,
            "blocks of {block_bytes} bytes have no units of {unit_bytes}"
        );
        let shift = (block_bytes / unit_bytes).ilog2();
        if shift > self.numbering.shift {
            assert!(self.slots.is_empty(), "volumes come before their blocks");
            self.numbering.shift = shift;
        }
        self.volumes.push(Sizes {
            block_bytes,
            unit_bytes,
        });
        self.spaces.push(None);
        VolumeId(self.volumes.len() as u32 - 1)
    }

    /// The size of a volume's blocks.
    pub fn block_bytes(&self, volume: VolumeId) -> u32 {
        self.volumes[volume.0 as usize].block_bytes
    }

    /// The size of what a volume's device writes wholly or not at all.
    pub fn unit_bytes(&self, volume: VolumeId) -> u32 {
        self.volumes[volume.0 as usize].unit_bytes
    }

    /// From now on changes of contents may have to wait for others in the same block, and have
    /// units as everything else. A block of contents with changes from before stays one unit until
    /// they are on their way.
    pub fn order_contents(&mut self) {
        self.orders_contents = true;
    }

    /// The bytes of its block that one of the graph's blocks stands for.
    pub fn range_of(&self, unit: BlockId) -> Range<usize> {
        let index = self.numbering.slot_of(unit);
        let slot = &self.slots[index as usize];
        let len = slot.data.len() / usize::from(slot.units);
        let start = (unit.0 - self.numbering.first(index).0) as usize * len;
        start..start + len
    }

    /// Appends the patches of a block in memory that are not on stable storage.
    pub fn pending(&self, volume: VolumeId, block: u64, into: &mut Vec<PatchId>) {
        if let Some(index) = self.map.get(&self.key(volume, block)) {
            for unit in self.units(*index) {
                self.graph.collect_live(unit, into);
            }
        }
    }

    /// The units of a slot.
    #[inline]
    pub(crate) fn units(&self, index: u32) -> impl Iterator<Item = BlockId> + use<> {
        let first = self.numbering.first(index).0;
        let units = u32::from(self.slots[index as usize].units);
        (first..first + units).map(BlockId)
    }

    /// Whether a slot has changes that no write has taken up.
    #[inline]
    pub(crate) fn has_uncommitted(&self, index: u32) -> bool {
        self.units(index).any(|u| self.graph.has_uncommitted(u))
    }

    /// A slot is about to get a change of this kind. Divides it into the units that the kind wants,
    /// unless changes are pending that were made with other units.
    #[inline]
    pub(crate) fn note_kind(&mut self, index: u32, volume: VolumeId, block: u64, kind: BlockKind) {
        let class = kind.class;
        let slot = &mut self.slots[index as usize];
        if slot.class != class {
            (slot.class, slot.told_to) = (class, 0);
        }
        slot.rollback_owed = false;
        if kind.number == 0 {
            slot.seal = None;
        } else if slot.seal.is_none() {
            slot.seal = self.seals.of(volume, block, kind);
        }
        let is_whole = slot.seal.is_some();
        if self.numbering.shift == 0 {
            return;
        }
        let units = match class {
            BlockClass::Data if !self.orders_contents => 1,
            _ if is_whole => 1,
            _ => self.volumes[slot.key.volume.0 as usize].units(),
        };
        if units != slot.units && !self.has_uncommitted(index) {
            let slot = &mut self.slots[index as usize];
            (slot.units, slot.told_to) = (units, 0);
        }
        debug_assert!(
            is_whole || class == BlockClass::Data || self.slots[index as usize].units >= units,
            "a block is freed before it is used for something else"
        );
    }

    /// Whether [`patch`](Self::patch) would have the change of a block be a part of `into`; see
    /// `Graph::would_join`. "No" for a change that lies in several units.
    pub fn would_join(
        &mut self,
        volume: VolumeId,
        block: u64,
        change: &Change<'_>,
        stating: Stating<'_>,
        into: PatchId,
    ) -> bool {
        let Some(index) = self.map.get(&self.key(volume, block)).copied() else {
            return false;
        };
        let first = self.numbering.first(index);
        let slot = &self.slots[index as usize];
        let size = slot.data.len() / usize::from(slot.units);
        let (start, len) = match *change {
            Change::Bytes {
                offset_bytes,
                bytes,
            } => (offset_bytes as usize, bytes.len()),
            Change::Flip { offset_bytes, .. } => (offset_bytes as usize, 4),
        };
        let unit = start / size;
        if start + len > (unit + 1) * size {
            return false;
        }
        let offset_bytes = (start - unit * size) as u32;
        let part = match *change {
            Change::Bytes { bytes, .. } => Change::Bytes {
                offset_bytes,
                bytes,
            },
            Change::Flip { mask, .. } => Change::Flip { offset_bytes, mask },
        };
        let unit = BlockId(first.0 + unit as u32);
        self.graph.would_join(unit, &part, stating, into)
    }

    /// Whether contents written into a block now would be a part of what `after` waits for; see
    /// `Graph::joins_contents_before`.
    pub fn joins_contents_before(&self, volume: VolumeId, block: u64, after: PatchId) -> bool {
        self.map.get(&self.key(volume, block)).is_some_and(|index| {
            let is_one = self.slots[*index as usize].units == 1;
            let unit = self.numbering.first(*index);
            is_one && self.graph.joins_contents_before(after, unit)
        })
    }

    /// Makes a change of a slot: a patch of the unit that it lies in; where it lies in several, a
    /// patch of each, and an empty one that stands for them.
    pub(crate) fn change(
        &mut self,
        index: u32,
        change: Change<'_>,
        stating: Stating<'_>,
    ) -> PatchId {
        let first = self.numbering.first(index);
        let slot = &mut self.slots[index as usize];
        let units = slot.units;
        let bytes = slot.bytes_mut(&mut self.part_bytes);
        if units == 1 {
            return self.graph.create(first, bytes, change, stating);
        }
        let size = bytes.len() / usize::from(units);
        let (start, len) = match change {
            Change::Bytes {
                offset_bytes,
                bytes,
            } => (offset_bytes as usize, bytes.len()),
            Change::Flip { offset_bytes, .. } => (offset_bytes as usize, 4),
        };
        let end = start + len.max(1);
        let mut made = Vec::new();
        for unit in start / size..end.div_ceil(size) {
            let base = unit * size;
            let part = match change {
                Change::Bytes { bytes, .. } => {
                    let (from, to) = (start.max(base), (start + len).min(base + size));
                    Change::Bytes {
                        offset_bytes: (from - base) as u32,
                        bytes: &bytes[from - start..to - start],
                    }
                }
                Change::Flip { mask, .. } => Change::Flip {
                    offset_bytes: (start - base) as u32,
                    mask,
                },
            };
            let id = BlockId(first.0 + unit as u32);
            let bytes = &mut bytes[base..base + size];
            made.push(self.graph.create(id, bytes, part, stating));
        }
        match made[..] {
            [one] => one,
            _ => self.graph.create_empty(&made, None, false),
        }
    }
}

/// The sizes of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    block_bytes: u32,
    unit_bytes: u32,
}

impl Sizes {
    /// How many units a block has.
    fn units(self) -> u8 {
        (self.block_bytes / self.unit_bytes) as u8
    }
}

impl Slot {
    /// The part of the newest bytes that a unit stands for.
    pub(crate) fn part(&self, range: Range<usize>) -> &[u8] {
        &self.data[range]
    }
}
