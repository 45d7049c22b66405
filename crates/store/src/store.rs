//! Blocks in memory and the changes to them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{Buffer, Slab, Slabs};
use backstitch_patch::{BlockId, Change, Graph, Optimisations, PatchId, Stating};
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::StoreStats;
use crate::cache::kept_slab_bytes;
use crate::kind::{BlockClass, BlockKind, Key, VolumeId};
use crate::limits::Limits;
use crate::places::Space;
use crate::queue::{Part, Queue};
use crate::seal::{BlockSeal, Seals};
use crate::units::{Numbering, Sizes};
use crate::watch::Watcher;

/// A block is not in memory. The store has noted that it is wanted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("block {block} of volume {} is not in memory", volume.0)]
pub struct Miss {
    /// The volume.
    pub volume: VolumeId,
    /// The block's number in it.
    pub block: u64,
}

/// A block that somebody reads from its device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) readers: u32,
    /// The block came into memory and left again meanwhile.
    pub(crate) stale: bool,
}

pub(crate) struct Slot {
    pub(crate) key: Key,
    pub(crate) data: Buffer,
    pub(crate) class: BlockClass,
    /// Completes its bytes just before they are written, by a checksum for example.
    pub(crate) seal: Option<Box<BlockSeal>>,
    /// The slot holds a block: it is not free.
    pub(crate) used: bool,
    /// Into how many units the block is divided. A device writes a unit wholly or not at all, and each
    /// is a block of its own in the graph.
    pub(crate) units: u8,
    /// A change of this block was taken back (superseded) before it was written. A unit may have
    /// other bytes in memory than on the disk then, although no patch of it is pending.
    pub(crate) differs: bool,
    /// Looked at since the clock's hand last came by.
    pub(crate) referenced: bool,
    pub(crate) in_flight: bool,
    /// The part of the queue that it is in, at the time `dirtied`; `None` while nothing in it is
    /// ready.
    pub(crate) queued: Option<Part>,
    /// How often the block was passed over because it would have needed a rollback.
    pub(crate) passed_over: u8,
    /// The last version written left patches out, and nothing changed the block since.
    pub(crate) rollback_owed: bool,
    /// The watcher that was told where the block is and what it holds, by its number; 0 for none.
    pub(crate) told_to: u32,
    /// When the oldest change that is not on disk was made.
    pub(crate) dirtied: Duration,
    /// Where the block is in the list of dirty ones, if it is.
    dirty_at: Option<u32>,
}

impl Slot {
    /// The bytes, to be changed. Many blocks that were read together share one allocation, a *slab*;
    /// `part_bytes` counts the bytes that blocks have in slabs. Where the slab cannot be changed, or few
    /// blocks use it still, this one gets a buffer of its own first.
    pub(crate) fn bytes_mut(&mut self, part_bytes: &mut u64) -> &mut [u8] {
        // A changed block stays in memory, and would keep the whole slab there.
        if self.data.is_part() && (self.data.get_mut().is_none() || self.data.is_part_of_few()) {
            *part_bytes -= self.data.part_bytes();
            self.data = Buffer::from(&self.data[..]);
        }
        self.data.make_unique()
    }

    /// Whether the block has changes that are not on stable storage.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty_at.is_some()
    }
}

/// Buffers, patches and what is to be written; see the crate's documentation.
pub struct Store {
    pub(crate) graph: Graph,
    pub(crate) slots: Vec<Slot>,
    pub(crate) free_slots: Vec<u32>,
    pub(crate) map: FxHashMap<Key, u32>,
    pub(crate) volumes: Vec<Sizes>,
    /// Of each volume, where its blocks are; `None` for one on a device.
    pub(crate) spaces: Vec<Option<Space>>,
    pub(crate) numbering: Numbering,
    pub(crate) orders_contents: bool,
    /// Whether blocks that nobody waits for may be written with some of their changes rolled back.
    pub(crate) writes_with_rollback: bool,
    pub(crate) limits: Limits,
    pub(crate) wanted: Vec<Key>,
    /// Runs of blocks that will probably be wanted next, and the last ones that were noted.
    pub(crate) soon: Vec<(VolumeId, u64, u64)>,
    pub(crate) noted_soon: VecDeque<(VolumeId, u64, u64)>,
    /// Lent to code that works out what a change comes after.
    scratch: Vec<PatchId>,
    /// Blocks that are being read from their device.
    pub(crate) reading: FxHashMap<Key, Reading>,
    /// Blocks with changes that are not on stable storage, in no order.
    pub(crate) dirty: Vec<u32>,
    /// Blocks with something ready, oldest change first.
    pub(crate) queue: Queue,
    pub(crate) clock_hand: usize,
    pub(crate) stats: StoreStats,
    /// What others hold in memory until patches commit.
    pub(crate) held_bytes: u64,
    /// And what they hold that writing does not bring back.
    pub(crate) kept_bytes: u64,
    pub(crate) became_ready: Vec<BlockId>,
    pub(crate) seals: Seals,
    slabs: Arc<Slabs>,
    /// Bytes of slabs that belong to blocks in memory.
    pub(crate) part_bytes: u64,
    pub(crate) is_streaming: bool,
    pub(crate) watcher: Option<Arc<dyn Watcher>>,
    /// How many watchers there have been: the number of the last one.
    pub(crate) watchers: u32,
    /// Batches put together.
    pub(crate) batches: u64,
}

/// The run that a patch is to be a part of, and where its bytes lie.
#[derive(Clone, Copy, Debug)]
pub struct InRun<'s> {
    /// The run; see [`Graph::create_in_run`].
    pub run: PatchId,
    /// A slab that the bytes are a part of, if they are: a block that they fill takes its part of
    /// the slab in place of a copy. The slab counts as memory as long as anybody has a part of it.
    pub slab: Option<&'s Arc<Slab>>,
}

impl From<PatchId> for InRun<'_> {
    fn from(run: PatchId) -> Self {
        InRun { run, slab: None }
    }
}

impl Store {
    /// An empty store.
    pub fn new(limits: Limits, optimisations: Optimisations) -> Store {
        Store {
            graph: Graph::new(optimisations),
            slots: Vec::new(),
            free_slots: Vec::new(),
            map: FxHashMap::default(),
            volumes: Vec::new(),
            spaces: Vec::new(),
            numbering: Numbering::default(),
            orders_contents: false,
            writes_with_rollback: true,
            limits,
            wanted: Vec::new(),
            soon: Vec::new(),
            noted_soon: VecDeque::new(),
            scratch: Vec::new(),
            reading: FxHashMap::default(),
            dirty: Vec::new(),
            queue: Queue::default(),
            clock_hand: 0,
            stats: StoreStats::default(),
            held_bytes: 0,
            kept_bytes: 0,
            became_ready: Vec::new(),
            seals: Seals::default(),
            slabs: Slabs::new(kept_slab_bytes(limits.memory_bytes) as usize),
            part_bytes: 0,
            is_streaming: false,
            watcher: None,
            watchers: 0,
            batches: 0,
        }
    }

    /// The patch graph, for hooks and questions.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The patch graph, for empty patches, hooks and tokens. Patches with a block are made by
    /// [`patch`](Self::patch).
    pub fn graph_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// The figures so far.
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            blocks: self.map.len() as u64,
            dirty: self.dirty.len() as u64,
            ..self.stats
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// A block's newest bytes.
    ///
    /// # Errors
    /// [`Miss`] where the block is not in memory; it is then among the wanted ones.
    #[inline]
    pub fn read(&mut self, volume: VolumeId, block: u64) -> Result<&[u8], Miss> {
        let slot = self.find(volume, block)?;
        Ok(&self.slots[slot as usize].data)
    }

    /// As [`read`](Self::read), as a shared buffer that stays as it is.
    ///
    /// # Errors
    /// [`Miss`] where the block is not in memory.
    pub fn read_shared(&mut self, volume: VolumeId, block: u64) -> Result<Buffer, Miss> {
        let slot = self.find(volume, block)?;
        Ok(self.slots[slot as usize].data.clone())
    }

    /// The block's newest bytes if it is in memory. Asks for nothing and counts nothing.
    pub fn peek(&self, volume: VolumeId, block: u64) -> Option<&Buffer> {
        let slot = self.map.get(&self.key(volume, block))?;
        Some(&self.slots[*slot as usize].data)
    }

    /// The place of the block that one of the graph's blocks is, or is a unit of.
    pub fn place_of(&self, id: BlockId) -> (VolumeId, u64) {
        let key = self.slots[self.numbering.slot_of(id) as usize].key;
        (key.volume, key.block)
    }

    /// What one of the graph's blocks holds.
    pub fn class_of(&self, id: BlockId) -> BlockClass {
        self.slots[self.numbering.slot_of(id) as usize].class
    }

    /// What a block holds, if it is in memory.
    pub fn class_at(&self, volume: VolumeId, block: u64) -> Option<BlockClass> {
        let slot = self.map.get(&self.key(volume, block))?;
        Some(self.slots[*slot as usize].class)
    }

    fn find(&mut self, volume: VolumeId, block: u64) -> Result<u32, Miss> {
        let key = self.key(volume, block);
        match self.map.get(&key) {
            Some(slot) => {
                self.stats.hits += 1;
                self.slots[*slot as usize].referenced = true;
                Ok(*slot)
            }
            None => {
                self.stats.misses += 1;
                self.wanted.push(key);
                Err(Miss { volume, block })
            }
        }
    }

    /// An empty list, to work out in it what a change comes after, and to [give
    /// back](Self::give_scratch).
    pub fn take_scratch(&mut self) -> Vec<PatchId> {
        std::mem::take(&mut self.scratch)
    }

    /// Takes the list of [`take_scratch`](Self::take_scratch) back.
    pub fn give_scratch(&mut self, mut list: Vec<PatchId>) {
        list.clear();
        self.scratch = list;
    }

    /// Where slabs for [`InRun::slab`] come from.
    pub fn slabs(&self) -> &Arc<Slabs> {
        &self.slabs
    }

    /// Bytes of slabs that are in no block.
    pub(crate) fn outside_blocks_bytes(&self) -> u64 {
        self.slabs.held_bytes().saturating_sub(self.part_bytes)
    }

    fn set_data(&mut self, index: u32, data: Buffer) {
        let slot = &mut self.slots[index as usize];
        self.part_bytes = self.part_bytes + data.part_bytes() - slot.data.part_bytes();
        slot.data = data;
    }

    /// Gives a block memory of its own where most of the slab that it is a part of is in no block
    /// any more.
    pub(crate) fn leave_slab_of_few(&mut self, index: u32) {
        let data = &self.slots[index as usize].data;
        if data.is_part_of_few() {
            let own = Buffer::from(&data[..]);
            self.set_data(index, own);
        }
    }

    pub(crate) fn new_slot(&mut self, key: Key, class: BlockClass, data: Buffer) -> u32 {
        self.stats.bytes += data.len() as u64;
        self.part_bytes += data.part_bytes();
        self.stats.bytes_peak = self.stats.bytes_peak.max(self.stats.bytes);
        self.note_memory();
        let slot = Slot {
            key,
            data,
            class,
            seal: None,
            used: true,
            units: 1,
            differs: false,
            referenced: true,
            in_flight: false,
            queued: None,
            passed_over: 0,
            rollback_owed: false,
            told_to: 0,
            dirtied: Duration::ZERO,
            dirty_at: None,
        };
        let index = match self.free_slots.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.map.insert(key, index);
        index
    }

    /// Changes a block in memory; see [`Graph::create`].
    ///
    /// # Panics
    /// Where the block is not in memory: the caller looked it up in the same step.
    pub fn patch(
        &mut self,
        volume: VolumeId,
        block: u64,
        kind: impl Into<BlockKind>,
        change: Change<'_>,
        stating: Stating<'_>,
        now: Duration,
    ) -> PatchId {
        let Some(index) = self.map.get(&self.key(volume, block)).copied() else {
            panic!(
                "block {block} of volume {} is changed but was not looked up",
                volume.0
            )
        };
        self.note_kind(index, volume, block, kind.into());
        self.tell_place(index);
        let id = self.change(index, change, stating);
        self.note_dirty(index, now);
        self.note_memory();
        id
    }

    /// As [`patch`](Self::patch), as a part of `run` if it can be; see [`Graph::create_in_run`]. A
    /// block that is given whole need not be in memory.
    ///
    /// # Panics
    /// Where the block is not in memory and the change is not of all its bytes.
    #[allow(clippy::too_many_arguments)]
    pub fn patch_in_run(
        &mut self,
        volume: VolumeId,
        block: u64,
        kind: impl Into<BlockKind>,
        change: Change<'_>,
        stating: Stating<'_>,
        run: InRun<'_>,
        now: Duration,
    ) -> PatchId {
        let (kind, InRun { run, slab }) = (kind.into(), run);
        let size = self.block_bytes(volume) as usize;
        let whole = match change {
            Change::Bytes { bytes, .. } if bytes.len() == size => Some(bytes),
            _ => None,
        };
        let lent = |bytes| Buffer::part(slab?, bytes);
        let mut lent = whole.and_then(lent);
        let mut is_given = false;
        let index = match (self.map.get(&self.key(volume, block)), whole) {
            (Some(index), _) => *index,
            (None, Some(contents)) => {
                // A part of a run is never rolled back.
                is_given = self.graph.goes_into_runs(stating);
                let data = match (is_given, lent.take()) {
                    (true, Some(lent)) => lent,
                    (true, None) => contents.into(),
                    (false, _) => Buffer::zeroed(contents.len()),
                };
                self.new_slot(self.key(volume, block), kind.class, data)
            }
            (None, None) => panic!(
                "block {block} of volume {} is changed but was not looked up",
                volume.0
            ),
        };
        self.note_kind(index, volume, block, kind);
        self.tell_place(index);
        let slot = &mut self.slots[index as usize];
        slot.differs &= whole.is_none();
        let id = match slot.units {
            1 => {
                let block = self.numbering.first(index);
                let given = (is_given || lent.is_some())
                    .then(|| (self.graph).create_in_run_as_given(block, change, stating, run));
                match given.flatten() {
                    Some(id) => {
                        if let Some(data) = lent {
                            self.set_data(index, data);
                        }
                        id
                    }
                    None => {
                        let bytes = slot.bytes_mut(&mut self.part_bytes);
                        self.graph.create_in_run(block, bytes, change, stating, run)
                    }
                }
            }
            _ => self.change(index, change, stating),
        };
        self.note_dirty(index, now);
        self.note_memory();
        id
    }

    /// The run that a block's newest bytes are a part of; see [`Graph::run_at`].
    pub fn run_at(&self, volume: VolumeId, block: u64) -> Option<PatchId> {
        self.graph.run_at(self.only_unit(volume, block)?)
    }

    /// Takes a block out of its run; see [`Graph::take_from_run`].
    pub fn take_from_run(&mut self, volume: VolumeId, block: u64) -> Option<PatchId> {
        let unit = self.only_unit(volume, block)?;
        self.graph.take_from_run(unit)
    }

    /// Takes a block out of its run, which then does not wait for it; see [`Graph::leave_run`].
    pub fn leave_run(&mut self, volume: VolumeId, block: u64) -> Option<PatchId> {
        let unit = self.only_unit(volume, block)?;
        self.graph.leave_run(unit)
    }

    /// The only unit of a block in memory; `None` where it has several.
    fn only_unit(&self, volume: VolumeId, block: u64) -> Option<BlockId> {
        let index = *self.map.get(&self.key(volume, block))?;
        let is_one = self.slots[index as usize].units == 1;
        is_one.then(|| self.numbering.first(index))
    }

    /// Gives a block wholly new contents, whatever it held before: it need not be in memory. Made
    /// for blocks just allocated, to which nothing on the disk points.
    pub fn initialise(
        &mut self,
        volume: VolumeId,
        block: u64,
        kind: impl Into<BlockKind>,
        contents: &[u8],
        stating: Stating<'_>,
        now: Duration,
    ) -> PatchId {
        let kind = kind.into();
        let key = self.key(volume, block);
        if let Some(index) = self.map.get(&key) {
            self.slots[*index as usize].differs = false;
        } else {
            // A version with a rollback is never looked at, since nothing points here. Zeros keep
            // out of it what the block held before, which may be secret.
            let zeros = Buffer::zeroed(contents.len());
            self.new_slot(key, kind.class, zeros);
        }
        let change = Change::Bytes {
            offset_bytes: 0,
            bytes: contents,
        };
        self.patch(volume, block, kind, change, stating, now)
    }

    /// Drops what is not written yet of a block that was freed before anything on the disk could
    /// point to it.
    pub fn discard(&mut self, volume: VolumeId, block: u64) {
        let key = self.key(volume, block);
        let Some(index) = self.map.get(&key).copied() else {
            return;
        };
        for unit in self.units(index) {
            self.graph.discard(unit);
        }
        if !self.slots[index as usize].in_flight {
            self.become_clean(index);
            self.drop_slot(index);
        }
        self.note_ready();
    }

    /// Lets go of what is not written yet of a block of `class`, because `by` makes up for it; see
    /// `Graph::supersede`. The block must not be needed any more: from now on it may be read again
    /// from the disk.
    pub fn supersede(&mut self, volume: VolumeId, block: u64, class: BlockClass, by: PatchId) {
        let Some(index) = self.map.get(&self.key(volume, block)).copied() else {
            return;
        };
        let slot = &self.slots[index as usize];
        let (fits, in_flight) = (slot.class == class, slot.in_flight);
        let mut superseded = false;
        if fits {
            for unit in self.units(index) {
                superseded |= self.graph.supersede(unit, by);
            }
        }
        if superseded {
            self.slots[index as usize].differs = true;
            if !in_flight && !self.has_uncommitted(index) {
                self.become_clean(index);
            }
        }
        self.note_ready();
    }

    fn note_dirty(&mut self, index: u32, now: Duration) {
        let slot = &mut self.slots[index as usize];
        if !slot.is_dirty() {
            slot.dirty_at = Some(self.dirty.len() as u32);
            self.dirty.push(index);
            slot.dirtied = now;
            slot.passed_over = 0;
        }
        self.note_ready();
    }

    /// Queues the blocks that came to have something ready.
    pub(crate) fn note_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.became_ready);
        self.graph.take_became_ready(&mut ready);
        for unit in ready.drain(..) {
            let index = self.numbering.slot_of(unit);
            let slot = &mut self.slots[index as usize];
            if slot.queued.is_none() && !slot.in_flight && self.graph.has_ready(unit) {
                let part = Part::of(slot.class);
                slot.queued = Some(part);
                self.queue.insert(part, slot.dirtied, index);
            }
        }
        self.became_ready = ready;
    }

    pub(crate) fn become_clean(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(at) = slot.dirty_at.take() {
            self.dirty.swap_remove(at as usize);
            if let Some(moved) = self.dirty.get(at as usize) {
                self.slots[*moved as usize].dirty_at = Some(at);
            }
        }
        self.leave_queue(index);
    }

    pub(crate) fn leave_queue(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(part) = slot.queued.take() {
            self.queue.remove(part, slot.dirtied, index);
        }
    }
}
