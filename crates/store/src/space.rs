//! Volumes whose blocks are blocks of another volume: a file that holds a file system.
//!
//! Nothing is kept twice. A block of such a volume *is* the block of the device that its bytes end
//! up in: the same buffer, the same patches, the same order. So what the file system inside states
//! is kept where the order outside is kept, however deep they are nested.
//!
//! A block may have no place yet (a hole of the file). It reads as zeros and cannot be changed
//! before it is given a place ([`Store::place_blocks`]); an operation that needs one asks for it
//! ([`Store::want_place`]). Until the file on the disk leads to the new place, what is written
//! there does not count as stable ([`Store::shown_by`]).

use std::collections::BTreeMap;

use backstitch_device::Buffer;
use backstitch_patch::PatchId;
use rustc_hash::FxHashMap;

use crate::kind::{Key, VolumeId};
use crate::places::Space;
use crate::store::Store;

impl Store {
    /// Adds a block space whose blocks are blocks of another volume, none of which has a place at
    /// first.
    pub fn add_volume_on(&mut self, on: VolumeId) -> VolumeId {
        let sizes = self.volumes[on.0 as usize];
        self.volumes.push(sizes);
        let block_bytes = self.block_bytes(on);
        self.spaces.push(Some(Space {
            on,
            runs: BTreeMap::new(),
            shown: FxHashMap::default(),
            wanted: Vec::new(),
            zeros: Buffer::zeroed(block_bytes as usize),
        }));
        VolumeId(self.volumes.len() as u32 - 1)
    }

    fn space(&self, volume: VolumeId) -> Option<&Space> {
        self.spaces[volume.0 as usize].as_ref()
    }

    fn space_mut(&mut self, volume: VolumeId) -> &mut Space {
        let space = self.spaces[volume.0 as usize].as_mut();
        space.unwrap_or_else(|| panic!("volume {} is on a device", volume.0))
    }

    /// Says where `count` blocks from `first` on are: from `there` on in the volume that this one
    /// is on.
    ///
    /// # Panics
    /// Where the volume is on a device, or a block has a place already: a block in use must not
    /// move.
    pub fn place_blocks(&mut self, volume: VolumeId, first: u64, there: u64, count: u64) {
        let space = self.space_mut(volume);
        let next = space.runs.range(first..).next().map(|(at, _)| *at);
        assert!(
            space.place(first).is_none() && next.is_none_or(|at| at >= first + count),
            "blocks {first} to {} of volume {} have a place already",
            first + count,
            volume.0
        );
        match space.runs.range_mut(..first).next_back() {
            Some((at, (to, len))) if at + *len == first && *to + *len == there => *len += count,
            _ => {
                space.runs.insert(first, (there, count));
            }
        }
    }

    /// Says which patch must be on stable storage before the contents of these blocks can be found
    /// on the disk.
    pub fn show_blocks_by(&mut self, volume: VolumeId, first: u64, count: u64, id: PatchId) {
        if self.graph.is_live(id) {
            let shown = &mut self.space_mut(volume).shown;
            shown.extend((first..first + count).map(|block| (block, id)));
        }
    }

    /// Where a block is in the volume that this one is on; `None` where it has no place there.
    pub fn place_below(&self, volume: VolumeId, block: u64) -> Option<u64> {
        self.space(volume)?.place(block)
    }

    /// Where a block is on its device; `None` where it has no place.
    pub fn place(&self, volume: VolumeId, block: u64) -> Option<(VolumeId, u64)> {
        match self.space(volume) {
            None => Some((volume, block)),
            Some(space) => self.place(space.on, space.place(block)?),
        }
    }

    /// Whether the volume is on another one.
    #[inline]
    pub fn is_on_another(&self, volume: VolumeId) -> bool {
        self.space(volume).is_some()
    }

    /// Whether a block has no place yet.
    #[inline]
    pub fn is_hole(&self, volume: VolumeId, block: u64) -> bool {
        self.space(volume).is_some() && self.place(volume, block).is_none()
    }

    /// A block of zeros, for one that has no place.
    ///
    /// # Panics
    /// Where the volume is on a device.
    pub fn zeros(&self, volume: VolumeId) -> &Buffer {
        match self.space(volume) {
            Some(space) => &space.zeros,
            None => panic!("volume {} has no holes", volume.0),
        }
    }

    /// Notes that a block without a place is to be changed.
    pub fn want_place(&mut self, volume: VolumeId, block: u64) {
        self.space_mut(volume).wanted.push(block);
    }

    /// Takes the blocks that [`want_place`](Self::want_place) noted, each once, in order.
    pub fn take_places_wanted(&mut self, volume: VolumeId) -> Vec<u64> {
        let Some(space) = self.spaces[volume.0 as usize].as_mut() else {
            return Vec::new();
        };
        let mut wanted = std::mem::take(&mut space.wanted);
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    /// The patch that must be on stable storage, beside what is written into a block, before that
    /// can be found on the disk.
    pub fn shown_by(&mut self, volume: VolumeId, block: u64) -> Option<PatchId> {
        let space = self.spaces[volume.0 as usize].as_mut()?;
        let id = *space.shown.get(&block)?;
        if self.graph.is_live(id) {
            return Some(id);
        }
        space.shown.remove(&block);
        None
    }

    /// The key of a block in the cache: the same one for every volume that the block belongs to.
    #[inline]
    pub(crate) fn key(&self, volume: VolumeId, block: u64) -> Key {
        match self.spaces[volume.0 as usize] {
            None => Key { volume, block },
            Some(_) => self.resolve(volume, block),
        }
    }

    fn resolve(&self, volume: VolumeId, block: u64) -> Key {
        // A block without a place is in no device's space: it is found nowhere.
        let (volume, block) = self.place(volume, block).unwrap_or((volume, block));
        Key { volume, block }
    }
}
