//! Write-back: which blocks go next, and what happens when they are on stable storage.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::WriteRequest;
use backstitch_patch::{BlockId, ClosureState, PatchId, Version};

use crate::store::{Store, VolumeId};

/// How often a block that would need a rollback is passed over before it is written with one.
const PASSES_BEFORE_ROLLBACK: u8 = 2;

/// What a batch is to bring nearer.
#[derive(Clone, Copy, Debug)]
pub enum Goal<'a> {
    /// Blocks whose oldest change has expired.
    Expired,
    /// The oldest blocks, expired or not: the cache fills up.
    Oldest,
    /// Everything.
    All,
    /// These patches and what they depend on, nothing else.
    Patches(&'a [PatchId]),
}

/// Independent writes, to be followed by one flush.
#[derive(Debug, Default)]
pub struct Batch {
    /// The requests of each volume, in order of place; adjacent blocks are one request.
    pub writes: Vec<(VolumeId, Vec<WriteRequest>)>,
    blocks: Vec<BlockId>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// How many blocks it writes.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }
}

impl Store {
    /// Puts the next batch together, of at most about `max_bytes`. Its blocks are in flight until [`complete`](Self::complete).
    ///
    /// An empty batch means that nothing of the goal can be written before a batch in flight completes, or that it is reached.
    pub fn next_batch(&mut self, goal: Goal<'_>, now: Duration, max_bytes: u64) -> Batch {
        self.note_ready();
        let mut versions: Vec<(u32, Arc<[u8]>)> = Vec::new();
        match goal {
            Goal::Patches(targets) => {
                let mut blocks = Vec::new();
                self.graph.closure(targets, &mut blocks);
                self.write_avoiding_rollback(&blocks, &mut versions);
            }
            Goal::Expired | Goal::Oldest => {
                self.collect_oldest(goal, now, max_bytes, &mut versions)
            }
            Goal::All => {
                let queue = self.queue.iter().map(|(_, i)| BlockId(*i));
                let blocks = self.as_many_as_fit(queue, max_bytes);
                self.write_avoiding_rollback(&blocks, &mut versions);
            }
        }
        self.requests_of(versions)
    }

    fn as_many_as_fit(
        &self,
        blocks: impl Iterator<Item = BlockId>,
        max_bytes: u64,
    ) -> Vec<BlockId> {
        let mut bytes = 0;
        blocks
            .take_while(|b| {
                let fits = bytes < max_bytes;
                bytes += self.slots[b.0 as usize].data.len() as u64;
                fits
            })
            .collect()
    }

    /// Takes up the blocks that need no rollback, and those that will need one however long they wait: somebody waits for this, and
    /// each round costs a flush. The others only where there are none of these: what completes first may spare them the rollback.
    fn write_avoiding_rollback(
        &mut self,
        blocks: &[BlockId],
        versions: &mut Vec<(u32, Arc<[u8]>)>,
    ) {
        let mut left = Vec::new();
        for block in blocks {
            if !self.graph.must_roll_back(*block) && self.graph.would_roll_back(*block) {
                left.push(*block);
            } else {
                self.take_up(*block, versions);
            }
        }
        if versions.is_empty() {
            for block in left {
                self.take_up(block, versions);
            }
        }
    }

    fn collect_oldest(
        &mut self,
        goal: Goal<'_>,
        now: Duration,
        max_bytes: u64,
        versions: &mut Vec<(u32, Arc<[u8]>)>,
    ) {
        let expire = self.limits.expire;
        let candidates = self
            .queue
            .iter()
            .take_while(|(dirtied, _)| matches!(goal, Goal::Oldest) || *dirtied + expire <= now)
            .map(|(_, i)| BlockId(*i));
        for block in &self.as_many_as_fit(candidates, max_bytes) {
            let slot = &mut self.slots[block.0 as usize];
            if slot.passed_over < PASSES_BEFORE_ROLLBACK && self.graph.would_roll_back(*block) {
                slot.passed_over += 1;
                continue;
            }
            self.take_up(*block, versions);
        }
    }

    /// Takes up a write of the block if it has anything to write.
    fn take_up(&mut self, block: BlockId, versions: &mut Vec<(u32, Arc<[u8]>)>) {
        let slot = &mut self.slots[block.0 as usize];
        if slot.in_flight {
            return;
        }
        let data = match self.graph.start_write(block, &slot.data) {
            Version::Nothing => {
                self.leave_queue(block.0);
                return;
            }
            Version::Newest => slot.data.clone(),
            Version::RolledBack(copy) => copy.into(),
        };
        if slot.rollback_owed {
            self.stats.blocks_rewritten_for_rollback += 1;
        }
        slot.rollback_owed = self.graph.has_uncommitted(block);
        slot.in_flight = true;
        slot.passed_over = 0;
        self.stats.blocks_written += 1;
        self.stats.bytes_written += data.len() as u64;
        self.leave_queue(block.0);
        versions.push((block.0, data));
    }

    fn requests_of(&mut self, mut versions: Vec<(u32, Arc<[u8]>)>) -> Batch {
        versions.sort_unstable_by_key(|(slot, _)| {
            let key = self.slots[*slot as usize].key;
            (key.volume, key.block)
        });
        let mut batch = Batch::default();
        for (index, data) in versions {
            let key = self.slots[index as usize].key;
            let offset_bytes = key.block * data.len() as u64;
            batch.blocks.push(BlockId(index));
            if batch
                .writes
                .last()
                .is_none_or(|(volume, _)| *volume != key.volume)
            {
                batch.writes.push((key.volume, Vec::new()));
            }
            let Some((_, requests)) = batch.writes.last_mut() else {
                continue;
            };
            match requests.last_mut() {
                Some(last)
                    if last.offset_bytes + last.len_bytes() == offset_bytes
                        && last.len_bytes() + data.len() as u64 <= self.limits.request_bytes =>
                {
                    last.buffers.push(data);
                }
                _ => {
                    self.stats.write_requests += 1;
                    requests.push(WriteRequest {
                        offset_bytes,
                        buffers: vec![data],
                    });
                }
            }
        }
        batch
    }

    /// The batch and a flush after it succeeded: its patches are on stable storage.
    pub fn complete(&mut self, batch: Batch, now: Duration) {
        self.stats.flushes += batch.writes.len() as u64;
        drop(batch.writes);
        for block in batch.blocks {
            self.graph.complete_write(block);
            let slot = &mut self.slots[block.0 as usize];
            slot.in_flight = false;
            if self.graph.has_uncommitted(block) {
                slot.dirtied = if slot.rollback_owed {
                    slot.dirtied
                } else {
                    now
                };
            } else {
                self.become_clean(block.0);
                self.note_written(block.0);
            }
        }
        self.note_ready();
    }

    /// What stands between now and `targets` being on disk.
    pub fn closure_state(&mut self, targets: &[PatchId]) -> ClosureState {
        let mut blocks = Vec::new();
        self.graph.closure(targets, &mut blocks)
    }

    /// Appends every patch that is not on stable storage.
    pub fn uncommitted(&self, into: &mut Vec<PatchId>) {
        for index in &self.dirty {
            self.graph.collect_live(BlockId(*index), into);
        }
    }

    /// Appends every patch of file contents that is not on stable storage.
    pub fn uncommitted_contents(&self, into: &mut Vec<PatchId>) {
        let is_contents = |i: &&u32| self.slots[**i as usize].class == crate::BlockClass::Data;
        for index in self.dirty.iter().filter(is_contents) {
            self.graph.collect_live(BlockId(*index), into);
        }
    }

    /// The blocks of a volume with changes that are not on stable storage, each with its newest bytes.
    pub fn dirty_blocks(&self, volume: VolumeId) -> impl Iterator<Item = (u64, Arc<[u8]>)> + '_ {
        let slots = self.dirty.iter().map(|index| &self.slots[*index as usize]);
        slots
            .filter(move |slot| slot.key.volume == volume)
            .map(|slot| (slot.key.block, slot.data.clone()))
    }

    /// Whether anything is not on stable storage.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// When the oldest block that could be written expires; `None` where none could.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.queue
            .first()
            .map(|(dirtied, _)| *dirtied + self.limits.expire)
    }
}
