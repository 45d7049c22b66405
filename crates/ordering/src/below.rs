//! What a volume offers to volumes in its files: where their blocks are, and I/O by one thread
//! before anybody else can see them.

use backstitch_device::{BlockDevice, DeviceError};
use backstitch_store::{BlockClass, Goal, PatchId, VolumeId, drive};

use crate::log::Log;
use crate::volume::Volume;

impl Volume<'_> {
    /// Adds a volume whose blocks are blocks of this one, and none of which has a place yet.
    pub fn add_volume(&mut self) -> VolumeId {
        // What is written into one block of a file may wait for what was written into another from
        // now on.
        self.store.order_contents();
        self.store.add_volume_on(self.id)
    }

    /// Says where `count` blocks of a volume on this one are, from `first` on: from `there` on
    /// here. The places hold zeros, as the blocks did without a place, and count as stable.
    pub fn place_blocks(&mut self, volume: VolumeId, first: u64, there: u64, count: u64) {
        self.store.place_blocks(volume, first, there, count);
    }

    /// Says what must be on stable storage before the contents of these blocks, of a volume on this
    /// one, can be found on the disk.
    pub fn show_blocks_by(&mut self, volume: VolumeId, first: u64, count: u64, by: &[PatchId]) {
        let by = self.empty(by);
        self.store.show_blocks_by(volume, first, count, by);
    }

    /// Whether a block of a volume on this one has a place here.
    pub fn has_place_here(&self, volume: VolumeId, block: u64) -> bool {
        self.store.place_below(volume, block).is_some()
    }

    /// Where a block is on the device; `None` where it has no place.
    pub fn place(&self, block: u64) -> Option<u64> {
        self.place_of(self.id, block)
    }

    /// Where a block of another volume of the store is on the device; `None` where it has no place.
    pub fn place_of(&self, volume: VolumeId, block: u64) -> Option<u64> {
        let (_, block) = self.store.place(volume, block)?;
        Some(block)
    }

    /// Has changes of another volume of the store go through its log from here on. Returns what
    /// must be on stable storage first.
    pub fn start_log(&mut self, log: &mut dyn Log, volume: VolumeId) -> PatchId {
        log.start(self.store, volume)
    }

    /// Takes the blocks of a volume on this one that need a place before they can be changed, and
    /// that somebody wanted to change.
    pub fn take_places_wanted(&mut self, volume: VolumeId) -> Vec<u64> {
        self.store.take_places_wanted(volume)
    }

    /// Reads what look-ups missed. False where there was nothing.
    ///
    /// # Errors
    /// The device's.
    pub fn read_missing(&mut self, device: &dyn BlockDevice) -> Result<bool, DeviceError> {
        let wanted = self.store.take_wanted();
        for (i, (volume, block)) in wanted.iter().enumerate() {
            match drive::read_block(device, self.store.block_bytes(*volume), *block) {
                Ok(data) => self
                    .store
                    .insert(*volume, *block, BlockClass::Metadata, data),
                Err(error) => {
                    self.store.abandon(&wanted[i..]);
                    return Err(error);
                }
            }
        }
        Ok(!wanted.is_empty())
    }

    /// Puts patches and what they depend on onto stable storage.
    ///
    /// # Errors
    /// The device's.
    pub fn write_now(
        &mut self,
        device: &dyn BlockDevice,
        targets: &[PatchId],
    ) -> Result<(), DeviceError> {
        loop {
            let goal = Goal::Patches(targets);
            let batch = self.store.next_batch(goal, self.now, drive::BATCH_BYTES);
            if batch.is_empty() {
                return Ok(());
            }
            for (_, requests) in &batch.writes {
                device.submit(requests)?;
            }
            device.flush()?;
            self.store.complete(batch, self.now);
        }
    }
}
