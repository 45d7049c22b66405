//! Batches that are on stable storage, as a whole or request by request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstitch_patch::BlockId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::batch::Batch;
use crate::kind::Key;
use crate::store::Store;
use crate::watch::Happening;

impl Store {
    /// Divides a batch into its requests, each of which [completes](Self::complete) by itself.
    /// Requests with parts of the same block stay together. Those that follow others of the batch
    /// come after them. The batch counts as flushed when the last one completes.
    pub fn split(&self, batch: Batch) -> Vec<Batch> {
        let Batch {
            writes,
            mut slots,
            mut units,
            number,
            chains,
            levels,
            ..
        } = batch;
        let level_of = |slot: u32| levels.get(&slot).copied().unwrap_or(0);
        let place_of = |slot: u32| (level_of(slot), self.slots[slot as usize].key);
        let place_of_unit = |unit: BlockId| place_of(self.numbering.slot_of(unit));
        let mut chains: FxHashMap<BlockId, Vec<BlockId>> = chains.into_iter().collect();
        slots.sort_unstable_by_key(|slot| place_of(*slot));
        units.sort_unstable_by_key(|unit| place_of_unit(*unit));
        let (mut slots, mut units) = (slots.into_iter().peekable(), units.into_iter().peekable());
        let mut parts: Vec<Batch> = Vec::new();
        for (volume, requests) in writes {
            // It begins with a slot that none before has a part of.
            let level = slots.peek().map_or(0, |slot| level_of(*slot));
            let block_bytes = u64::from(self.block_bytes(volume));
            for request in requests {
                let end_bytes = request.offset_bytes + request.len_bytes();
                let block = end_bytes.div_ceil(block_bytes);
                let end = (level, Key { volume, block });
                let own = std::iter::from_fn(|| slots.next_if(|slot| place_of(*slot) < end));
                let own: Vec<u32> = own.collect();
                let of_own = std::iter::from_fn(|| units.next_if(|u| place_of_unit(*u) < end));
                let units: Vec<BlockId> = of_own.collect();
                let chain_of = |unit: &BlockId| Some((*unit, chains.remove(unit)?));
                let own_chains: Vec<_> = units.iter().filter_map(chain_of).collect();
                match parts.last_mut() {
                    // The last request has its block.
                    Some(last) if own.is_empty() => {
                        last.units.extend(units);
                        last.chains.extend(own_chains);
                        last.writes.push((volume, vec![request]));
                    }
                    _ => parts.push(Batch {
                        writes: vec![(volume, vec![request])],
                        slots: own,
                        units,
                        number,
                        parts_left: None,
                        chains: own_chains,
                        levels: FxHashMap::default(),
                    }),
                }
            }
        }
        let left = Arc::new(AtomicUsize::new(parts.len()));
        for part in &mut parts {
            part.parts_left = Some(left.clone());
        }
        parts
    }

    /// How far slots of a batch are behind others of it: one more than any that they follow. Those
    /// that follow none are left out, at level 0.
    ///
    /// A block follows only what was taken up before it, wherever that lies. Requests of one level
    /// follow none of each other, so blocks of a level that lie together may share one.
    pub(crate) fn levels(&self, chains: &[(BlockId, Vec<BlockId>)]) -> FxHashMap<u32, u32> {
        let slot_of = |unit: &BlockId| self.numbering.slot_of(*unit);
        let own: FxHashSet<u32> = chains.iter().map(|(unit, _)| slot_of(unit)).collect();
        let mut levels = FxHashMap::default();
        for (unit, before) in chains {
            let slot = slot_of(unit);
            let others = before.iter().map(slot_of);
            let others = others.filter(|other| *other != slot && own.contains(other));
            let behind = others.map(|other| levels.get(&other).copied().unwrap_or(0) + 1);
            if let Some(behind) = behind.max() {
                let level = levels.entry(slot).or_insert(0);
                *level = behind.max(*level);
            }
        }
        levels
    }

    /// The batch and a flush after it succeeded: its patches are on stable storage.
    pub fn complete(&mut self, batch: Batch, now: Duration) {
        let parts_left = batch.parts_left.as_ref();
        if parts_left.is_none_or(|left| left.fetch_sub(1, Ordering::Relaxed) == 1) {
            self.stats.flushes += batch.writes.len() as u64;
            self.tell(|| Happening::Flushed(now, batch.number));
        }
        drop(batch.writes);
        for unit in batch.units {
            self.graph.complete_write(unit);
        }
        for index in batch.slots {
            let has_uncommitted = self.has_uncommitted(index);
            let slot = &mut self.slots[index as usize];
            slot.in_flight = false;
            if has_uncommitted {
                slot.dirtied = if slot.rollback_owed {
                    slot.dirtied
                } else {
                    now
                };
                // The block left the queue when it was taken up; units of it that can be written
                // now enter it again.
                for unit in self.units(index) {
                    if self.graph.has_ready(unit) {
                        self.became_ready.push(unit);
                    }
                }
            } else {
                self.become_clean(index);
                self.note_written(index);
            }
        }
        self.note_ready();
    }
}
