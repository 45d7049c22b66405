//! Seals: functions that complete a block's bytes for the disk, by a checksum above all.
//!
//! A checksum in a block depends on which changes the block holds when it is written, so no patch
//! can state it: a rollback would leave the checksum of other bytes. A *seal* is a function over
//! the exact bytes that are about to be written, after the rollback. It is applied to a copy: in
//! memory a sealed block has no valid checksum, and nothing reads it there.
//!
//! A layout gives its kinds of blocks numbers ([`BlockKind`]), and registers a seal for those that
//! need one ([`Store::register_seal`]). Code that copies a block to the disk by another way than a
//! batch, as a journal does, takes [`Store::for_disk`].
//!
//! # Invariants
//!
//! * A seal is a function of the bytes and the block's number alone: a block that is written twice
//!   without a change is written twice with the same bytes.
//! * It changes only bytes that no patch changes.
//! * A sealed block is one unit, whatever the volume's unit is: a checksum speaks for the whole
//!   block, so its parts cannot be written one at a time. On a device that tears blocks it needs a
//!   mechanism that mends them, as a journal does.

use std::fmt;
use std::sync::Arc;

use backstitch_device::Buffer;

use crate::kind::{BlockKind, VolumeId};
use crate::store::Store;

/// Completes the bytes of one kind of block for the disk.
pub trait Seal: Send + Sync {
    /// Puts into `bytes`, the whole block, what is computed from the rest of them. `block` is its
    /// number in its volume.
    fn seal(&self, block: u64, bytes: &mut [u8]);
}

/// The seal of one block.
#[derive(Clone)]
pub struct BlockSeal {
    seal: Arc<dyn Seal>,
    block: u64,
}

impl BlockSeal {
    /// Seals bytes of the block.
    pub fn apply(&self, bytes: &mut [u8]) {
        self.seal.seal(self.block, bytes);
    }
}

impl fmt::Debug for BlockSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockSeal({})", self.block)
    }
}

/// The registered seals; few, and none on most volumes.
#[derive(Default)]
pub(crate) struct Seals(Vec<(VolumeId, u8, Arc<dyn Seal>)>);

impl Seals {
    /// The seal of a block of this kind.
    #[inline]
    pub(crate) fn of(
        &self,
        volume: VolumeId,
        block: u64,
        kind: BlockKind,
    ) -> Option<Box<BlockSeal>> {
        let found = (self.0.iter()).find(|(v, number, _)| *v == volume && *number == kind.number);
        found.map(|(_, _, seal)| {
            Box::new(BlockSeal {
                seal: Arc::clone(seal),
                block,
            })
        })
    }
}

impl Store {
    /// From now on blocks of this kind that are changed in `volume` are sealed with `seal` as they
    /// are written. A layout registers its seals before its first change; the one that is
    /// registered last counts.
    pub fn register_seal(&mut self, volume: VolumeId, kind: BlockKind, seal: Arc<dyn Seal>) {
        debug_assert_ne!(kind.number, 0, "the number of kinds that are never sealed");
        let seals = &mut self.seals.0;
        seals.retain(|(v, number, _)| (*v, *number) != (volume, kind.number));
        seals.push((volume, kind.number, seal));
    }

    /// The seal of a block in memory, where it has one.
    pub fn seal_of(&self, volume: VolumeId, block: u64) -> Option<&BlockSeal> {
        let index = self.map.get(&self.key(volume, block))?;
        self.slots[*index as usize].seal.as_deref()
    }

    /// The newest bytes of a block in memory as they would be on the disk: what a journal copies.
    pub fn for_disk(&self, volume: VolumeId, block: u64) -> Option<Buffer> {
        let index = self.map.get(&self.key(volume, block))?;
        Some(self.slots[*index as usize].sealed(None))
    }
}

impl crate::store::Slot {
    /// `version`, or the block's newest bytes, sealed if the block has a seal. Without one, the
    /// newest bytes are shared, not copied.
    pub(crate) fn sealed(&self, version: Option<Vec<u8>>) -> Buffer {
        match (&self.seal, version) {
            (None, None) => self.data.clone(),
            (None, Some(version)) => version.into(),
            (Some(seal), version) => {
                let mut bytes = version.unwrap_or_else(|| self.data.to_vec());
                seal.apply(&mut bytes);
                bytes.into()
            }
        }
    }
}
