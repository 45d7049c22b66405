//! Blocks that are not in memory: which are wanted, and how they come in.

use backstitch_device::Buffer;

use crate::kind::{BlockClass, Key, VolumeId};
use crate::store::Store;

/// Ranges of blocks that are remembered because somebody will probably read them soon.
const SOON_MAX: usize = 64;

impl Store {
    /// Notes that a block will be wanted, without failing now: so that several misses become one
    /// round of reads.
    pub fn want(&mut self, volume: VolumeId, block: u64) -> bool {
        let key = self.key(volume, block);
        let there = self.map.contains_key(&key);
        if !there {
            self.wanted.push(key);
        }
        there
    }

    /// Blocks that will probably be wanted soon after those that are wanted now: the reader of
    /// these may have the device fetch them in the background. Runs that were among the last ones
    /// noted are not noted again. Nothing comes of it for a volume that is on another one.
    pub fn want_soon(&mut self, volume: VolumeId, first: u64, count: u64) {
        let run = (volume, first, count);
        if self.is_on_another(volume) || self.noted_soon.contains(&run) {
            return;
        }
        if self.noted_soon.len() == SOON_MAX {
            self.noted_soon.pop_front();
            // Nobody has taken the list, and its oldest entries suffice: dropping the others does
            // no harm.
            self.soon.truncate(SOON_MAX);
        }
        self.noted_soon.push_back(run);
        self.soon.push(run);
    }

    /// Takes the list of [`want_soon`](Self::want_soon): volume, first block, number of blocks.
    pub fn take_wanted_soon(&mut self) -> Vec<(VolumeId, u64, u64)> {
        std::mem::take(&mut self.soon)
    }

    /// Takes the list of blocks that look-ups missed, each once, in order of place. The caller
    /// reads them and hands each in ([`insert`](Self::insert)), or gives up on all of them
    /// ([`abandon`](Self::abandon)).
    ///
    /// A block is left out while a read of it is under way whose bytes may be stale: the store
    /// cannot tell one reader's bytes from another's, and if readers kept joining, all of their
    /// bytes would be thrown away for ever. The look-up that misses again asks again.
    pub fn take_wanted(&mut self) -> Vec<(VolumeId, u64)> {
        let mut wanted: Vec<_> = self.wanted.drain(..).map(|k| (k.volume, k.block)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|(volume, block)| {
            let key = Key {
                volume: *volume,
                block: *block,
            };
            !self.reading.get(&key).is_some_and(|r| r.stale)
        });
        for (volume, block) in &wanted {
            self.reading
                .entry(Key {
                    volume: *volume,
                    block: *block,
                })
                .or_default()
                .readers += 1;
        }
        wanted
    }

    /// Hands in a block as it was read from its device. Where the block came into memory meanwhile,
    /// that one is kept: it is newer. Where it came and left again, what was read is thrown away,
    /// and a caller that wants the block asks anew.
    pub fn insert(&mut self, volume: VolumeId, block: u64, class: BlockClass, data: Buffer) {
        debug_assert_eq!(data.len(), self.block_bytes(volume) as usize);
        let key = self.key(volume, block);
        let may_be_stale = self.end_reading(key);
        if !may_be_stale && !self.map.contains_key(&key) {
            self.new_slot(key, class, data);
        }
    }

    /// Gives up on blocks that were taken to be read.
    pub fn abandon(&mut self, wanted: &[(VolumeId, u64)]) {
        for (volume, block) in wanted {
            self.end_reading(Key {
                volume: *volume,
                block: *block,
            });
        }
    }

    /// One reader of a block is done. Returns whether what it read may be older than what was
    /// written since.
    fn end_reading(&mut self, key: Key) -> bool {
        let Some(reading) = self.reading.get_mut(&key) else {
            return false;
        };
        reading.readers -= 1;
        let stale = reading.stale;
        if reading.readers == 0 {
            self.reading.remove(&key);
        }
        stale
    }
}
