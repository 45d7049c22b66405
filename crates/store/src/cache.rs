//! What stays in memory: clean blocks leave by the clock algorithm, dirty ones are the throttle's
//! business.

use backstitch_device::Buffer;

use crate::kind::{BlockClass, Key};
use crate::store::{Slot, Store};

/// 1/`CLEAN_PART` of memory is for buffers, whatever else takes memory.
const CLEAN_PART: u64 = 4;
/// 1/`ALLOCATOR_PART` of the bound on memory is left to the allocator, for its headers and gaps.
const ALLOCATOR_PART: u64 = 32;
/// The allocator's part is 1/`ALLOCATOR_PART_MOST` of `memory_bytes` at most, also where dirty blocks
/// raise the bound.
const ALLOCATOR_PART_MOST: u64 = 8;

/// Bytes of slabs that are kept for writes to come, where memory has this bound.
pub(crate) fn kept_slab_bytes(memory_bytes: u64) -> u64 {
    (8 << 20).min(memory_bytes / 32)
}

impl Store {
    /// Lets clean blocks go until memory is within its bound (or only dirty ones are left). Call it
    /// between operations, never inside one: an operation relies on what it looked up.
    pub fn trim(&mut self) {
        // Leave room for the slabs that are kept for writes to come.
        let kept_bytes = kept_slab_bytes(self.limits.memory_bytes);
        let bound = self.bound_bytes() - self.allocator_bytes() - kept_bytes;
        if self.memory_bytes() <= bound || self.slots.is_empty() {
            return;
        }
        let others = self.memory_bytes() - self.blocks_bytes();
        // Leave a little room, so that the next block does not start another walk; two rounds clear
        // every "referenced" bit. However much others hold, operations need some blocks at the same
        // time.
        let most = bound - bound / 32;
        let least = self.limits.memory_bytes / CLEAN_PART;
        let goal = most.saturating_sub(others).max(least);
        for _ in 0..self.slots.len() * 2 {
            // A slab that is part of no clean block is not freed by letting blocks go.
            if self.blocks_bytes() <= goal || self.stats.bytes <= least {
                return;
            }
            self.clock_hand = (self.clock_hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.clock_hand];
            if !slot.used || slot.is_dirty() || slot.in_flight {
                continue;
            }
            if slot.referenced {
                slot.referenced = false;
                self.leave_slab_of_few(self.clock_hand as u32);
                continue;
            }
            self.drop_slot(self.clock_hand as u32);
        }
    }

    /// The bound on memory at present. Dirty blocks beyond half of `memory_bytes`, and changes
    /// beyond their part of it, raise the bound, up to
    /// [`Limits::most_bytes`](crate::Limits::most_bytes).
    fn bound_bytes(&self) -> u64 {
        let clean_bytes = self.limits.memory_bytes - self.limits.memory_bytes / 2;
        let changes_bytes = self.changes_bytes().min(self.limits.most_changes_bytes());
        let apart_bytes = changes_bytes.saturating_sub(self.limits.changes_within_bytes());
        (clean_bytes.saturating_add(self.retiring_bytes()))
            .max(self.limits.memory_bytes)
            .saturating_add(apart_bytes)
            .min(self.limits.most_bytes())
    }

    /// The part of the bound that is left to the allocator. However much may wait to be written,
    /// clean blocks keep most of their half.
    fn allocator_bytes(&self) -> u64 {
        (self.bound_bytes() / ALLOCATOR_PART).min(self.limits.memory_bytes / ALLOCATOR_PART_MOST)
    }

    pub(crate) fn drop_slot(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        debug_assert!(!slot.is_dirty() && !slot.in_flight && slot.queued.is_none());
        self.stats.bytes -= slot.data.len() as u64;
        self.part_bytes -= slot.data.part_bytes();
        self.map.remove(&slot.key);
        if let Some(reading) = self.reading.get_mut(&slot.key) {
            reading.stale = true;
        }
        slot.used = false;
        slot.data = Buffer::default();
        self.free_slots.push(index);
    }

    /// Gives back the slots of blocks that have left. Blocks move from the last slots to free ones
    /// before them, up to the first block that has changes: such a block cannot move, and the slots
    /// before it stay until the next call. Takes a time proportional to the slots: call it when
    /// many blocks have left.
    pub fn shrink(&mut self) {
        self.free_slots.sort_unstable_by(|a, b| b.cmp(a));
        while let Some(last) = self.slots.pop() {
            let from = self.slots.len() as u32;
            if !last.used {
                continue;
            }
            let is_idle = !last.is_dirty() && !last.in_flight && last.queued.is_none();
            let to = self.free_slots.last().copied().filter(|to| *to < from);
            let Some(to) = to.filter(|_| is_idle) else {
                self.slots.push(last);
                break;
            };
            self.free_slots.pop();
            self.map.insert(last.key, to);
            self.slots[to as usize] = last;
        }
        let len = self.slots.len();
        self.free_slots.retain(|index| (*index as usize) < len);
        self.clock_hand = 0;
        self.slots.shrink_to_fit();
        self.free_slots.shrink_to_fit();
        self.dirty.shrink_to_fit();
        self.map.shrink_to_fit();
        let end = self.numbering.first(len as u32);
        self.graph.forget_blocks_from(end);
    }

    /// What is held in memory: buffers and what the store keeps with each, patches, edges, undo
    /// data, and what [`note_held`](Self::note_held) was told.
    pub fn memory_bytes(&self) -> u64 {
        let others = self.graph.counters().bytes_live() + self.held_bytes + self.kept_bytes;
        self.blocks_bytes() + others
    }

    /// What the cache itself takes for its blocks, in a map that is half full.
    fn slots_bytes(&self) -> u64 {
        (self.map.len() * (size_of::<Slot>() + 2 * size_of::<(Key, u32)>())) as u64
    }

    /// What is held for blocks: their buffers, and the rest of the slabs that some are parts of.
    fn blocks_bytes(&self) -> u64 {
        self.stats.bytes + self.outside_blocks_bytes() + self.slots_bytes()
    }

    /// Notes what others hold now: `bytes` that they free as patches commit (deferred work above
    /// all), and `kept` bytes that writing does not free. For the latter buffers leave memory; no
    /// caller waits.
    pub fn note_held(&mut self, bytes: u64, kept: u64) {
        self.held_bytes = bytes;
        self.kept_bytes = kept;
        self.note_memory();
    }

    pub(crate) fn note_memory(&mut self) {
        self.stats.memory_bytes_peak = self.stats.memory_bytes_peak.max(self.memory_bytes());
    }

    /// Whether so much waits to be written that a writer of more should wait: what cannot be let go
    /// takes all that it may, or there are as many patches as there may be.
    pub fn is_crowded(&self) -> bool {
        self.retiring_bytes() > self.limits.most_dirty_bytes()
            || self.graph.counters().live > self.limits.patches
    }

    /// Whether three quarters of what makes it [crowded](Self::is_crowded) are reached. From here
    /// on those wait whose changes may be slow to reach the disk, so that there is room for others.
    pub fn is_nearly_crowded(&self) -> bool {
        self.retiring_bytes() > self.limits.most_dirty_bytes() / 4 * 3
            || self.graph.counters().live > self.limits.patches / 4 * 3
    }

    /// Whether write-back should begin before blocks expire, so that
    /// [`is_crowded`](Self::is_crowded) does not come about.
    pub fn is_filling(&self) -> bool {
        let enough_bytes = match self.is_streaming {
            true => self.limits.memory_bytes / 4,
            false => self.limits.most_dirty_bytes() / 2,
        };
        self.retiring_bytes() > enough_bytes || self.has_many_patches()
    }

    /// Notes whether what is being written is a long stream. None of it is likely to be changed or
    /// removed soon, so waiting saves no writing, and a sync at its end would wait for all of it.
    pub fn note_streaming(&mut self, is_streaming: bool) {
        self.is_streaming = is_streaming;
    }

    /// Whether it is the number of patches that asks for write-back.
    pub(crate) fn has_many_patches(&self) -> bool {
        self.graph.counters().live > self.limits.patches / 2
    }

    /// What only writing can make free: dirty blocks, and what changes hold beyond their own part of
    /// memory.
    fn retiring_bytes(&self) -> u64 {
        let dirty_bytes = self.dirty.len() as u64 * self.average_block_bytes();
        let free_bytes = self.limits.most_changes_bytes();
        dirty_bytes + self.changes_bytes().saturating_sub(free_bytes)
    }

    /// What changes to blocks hold beside the blocks.
    pub(crate) fn changes_bytes(&self) -> u64 {
        self.graph.counters().bytes_live() + self.held_bytes
    }

    fn average_block_bytes(&self) -> u64 {
        if self.map.is_empty() {
            0
        } else {
            self.blocks_bytes() / self.map.len() as u64
        }
    }

    /// After a write: contents of files go first, since the kernel keeps them as well.
    pub(crate) fn note_written(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.referenced = slot.class != BlockClass::Data;
    }
}
