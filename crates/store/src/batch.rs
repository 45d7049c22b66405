//! Write-back: which blocks go next, and what happens when they are on stable storage.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use backstitch_device::{Buffer, WriteRequest};
use backstitch_patch::{BlockId, PatchId, Version, Wanted};
use rustc_hash::FxHashMap;

use crate::kind::VolumeId;
use crate::queue::Part;
use crate::store::{Slot, Store};
use crate::watch::Happening;

/// How often a block that would need a rollback is passed over before it is written with one.
const PASSES_BEFORE_ROLLBACK: u8 = 2;

/// Blocks of a small round. It is not worth its flush: blocks that need a rollback go with it where
/// they make it larger by half.
const SMALL_ROUND: usize = 64;
/// Blocks of a large closure: rounds are filled up only on the way to such a one. A smaller closure
/// is what one file or a few wait for. Its rounds are few, and a block that is written with a
/// rollback and then again costs more than it saves.
const LARGE_CLOSURE: usize = 16;

/// Where memory fills up, contents of files go alone if they make up 1/`CONTENTS_PART` of a batch.
const CONTENTS_PART: u64 = 4;
/// Metadata goes too where changes to it hold more than 1/`HELD_PART` of what may be dirty, and
/// more than they may hold for themselves: only writing the metadata frees that memory.
const HELD_PART: u64 = 4;

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

impl Goal<'_> {
    /// A word for it.
    fn word(self) -> &'static str {
        match self {
            Goal::Expired => "expired",
            Goal::Oldest => "memory",
            Goal::All => "all",
            Goal::Patches(_) => "wanted",
        }
    }
}

/// What a sync that takes many rounds remembers of what it waits for.
#[derive(Debug, Default)]
pub struct Rounds {
    wanted: Option<Wanted>,
    /// Rounds for which it may still be used.
    left: u32,
}

/// Rounds in which a sync relies on what it remembers, before it looks again for all that it waits
/// for. What it overlooks is written after these rounds at the latest.
const ROUNDS_REMEMBERED: u32 = 64;

/// Independent writes, to be followed by one flush.
#[derive(Debug, Default)]
pub struct Batch {
    /// The requests of each volume, in order of place; adjacent blocks are one request. Where the
    /// unit is smaller than the block a request may begin and end at any unit.
    pub writes: Vec<(VolumeId, Vec<WriteRequest>)>,
    /// The slots that it writes.
    pub(crate) slots: Vec<u32>,
    /// The graph's blocks that are in flight with it.
    pub(crate) units: Vec<BlockId>,
    /// Batches with blocks are counted, from 1 on.
    pub(crate) number: u64,
    /// How many [parts](Store::split) of the same batch are not complete, this one too.
    pub(crate) parts_left: Option<Arc<AtomicUsize>>,
    /// Where order is kept by the device's queue: the blocks on their way that each of `units` has
    /// to follow.
    pub(crate) chains: Vec<(BlockId, Vec<BlockId>)>,
    /// There, the [levels](Store::levels) of `slots`. Each of `writes` is of one level.
    pub(crate) levels: FxHashMap<u32, u32>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many blocks it writes.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The graph's blocks that it writes.
    pub fn units(&self) -> &[BlockId] {
        &self.units
    }

    /// The graph's blocks, on their way with other batches, that must be on stable storage before
    /// this one may be, where [order is kept by the device's queue](Store::order_by_queue).
    pub fn follows(&self) -> impl Iterator<Item = BlockId> + '_ {
        let all = self.chains.iter().flat_map(|(_, before)| before);
        all.copied().filter(|before| !self.units.contains(before))
    }
}

/// What a batch is put together from.
#[derive(Default)]
struct Versions {
    /// A slot, where in its block the bytes go, and the bytes.
    pieces: Vec<(u32, u32, Buffer)>,
    slots: Vec<u32>,
    units: Vec<BlockId>,
    chains: Vec<(BlockId, Vec<BlockId>)>,
    /// Scratch: the units of a slot that are to be written.
    chosen: Vec<BlockId>,
}

impl Store {
    /// Whether blocks that nobody waits for may be written with some of their changes rolled back,
    /// as they may by default. If not, such a block waits until all that its changes depend on is
    /// on stable storage; then no two blocks may wait for each other.
    pub fn write_back_with_rollback(&mut self, may: bool) {
        self.writes_with_rollback = may;
    }

    /// From now on batches may [follow](Batch::follows) others that are on their way, for a device
    /// whose queue keeps order between requests. A block is one unit there: all of it is in one
    /// request. To be called before anything is changed.
    pub fn order_by_queue(&mut self) {
        self.graph.order_by_queue();
    }

    /// Puts the next batch together, of at most about `max_bytes`. Its blocks are in flight until
    /// [`complete`](Self::complete).
    ///
    /// An empty batch means that nothing of the goal can be written before a batch in flight
    /// completes, or that it is reached.
    pub fn next_batch(&mut self, goal: Goal<'_>, now: Duration, max_bytes: u64) -> Batch {
        self.note_ready();
        self.graph.next_flight();
        let mut versions = Versions::default();
        match goal {
            Goal::Patches(targets) => {
                let mut units = Vec::new();
                let (_, wanted) = self.graph.closure_remembered(targets, &mut units);
                let slots = self.slots_of(&units);
                self.write_avoiding_rollback(&slots, Some(&wanted), &mut versions);
            }
            Goal::Expired | Goal::Oldest => {
                self.collect_oldest(goal, now, max_bytes, &mut versions)
            }
            Goal::All => {
                let mut slots = Vec::new();
                self.take_while_fits(self.queue.all(), max_bytes, &mut slots);
                self.write_avoiding_rollback(&slots, None, &mut versions);
            }
        }
        let batch = self.requests_of(versions);
        self.tell_batch(&batch, goal.word(), now);
        batch
    }

    /// As [`next_batch`](Self::next_batch) for patches that have been [settled](Self::settle),
    /// round after round. What the patches depend on is remembered between the rounds, not looked
    /// up in each.
    pub fn next_round(
        &mut self,
        rounds: &mut Rounds,
        targets: impl FnOnce() -> Vec<PatchId>,
        now: Duration,
    ) -> Batch {
        self.note_ready();
        self.graph.next_flight();
        let mut versions = Versions::default();
        if let Some(wanted) = rounds.wanted.take_if(|_| rounds.left > 0) {
            rounds.left -= 1;
            let is_wanted = |slot: &u32| {
                let mut units = self.units(*slot);
                units.any(|unit| self.graph.has_wanted_ready(unit, &wanted))
            };
            let mut slots: Vec<u32> = self.queue.all().filter(is_wanted).collect();
            slots.sort_unstable();
            self.write_avoiding_rollback(&slots, Some(&wanted), &mut versions);
            rounds.wanted = Some(wanted);
        }
        if versions.slots.is_empty() {
            let mut units = Vec::new();
            let (_, wanted) = self.graph.closure_remembered(&targets(), &mut units);
            let slots = self.slots_of(&units);
            self.write_avoiding_rollback(&slots, Some(&wanted), &mut versions);
            *rounds = Rounds {
                wanted: Some(wanted),
                left: ROUNDS_REMEMBERED,
            };
        }
        let batch = self.requests_of(versions);
        self.tell_batch(&batch, Goal::Patches(&[]).word(), now);
        batch
    }

    /// The slots of units, each slot once; the units are sorted.
    fn slots_of(&self, units: &[BlockId]) -> Vec<u32> {
        let slots = units.iter().map(|unit| self.numbering.slot_of(*unit));
        let mut slots: Vec<u32> = slots.collect();
        slots.dedup();
        slots
    }

    /// Appends slots while there is room for another `room_bytes`, and returns the bytes of what
    /// was appended.
    fn take_while_fits(
        &self,
        slots: impl Iterator<Item = u32>,
        room_bytes: u64,
        into: &mut Vec<u32>,
    ) -> u64 {
        let mut bytes = 0;
        for slot in slots {
            if bytes >= room_bytes {
                break;
            }
            bytes += self.slots[slot as usize].data.len() as u64;
            into.push(slot);
        }
        bytes
    }

    /// The blocks to write first where memory fills up, or those that have expired.
    ///
    /// Memory gets free with contents of files, in long runs that nobody changes again. So where
    /// there are enough of these, nothing else goes with them: a block of metadata costs a request
    /// of its own, is likely to be changed again, and takes little room. Metadata that has expired
    /// has half a batch for itself: no stream of contents keeps it from the disk. So has all
    /// metadata where changes to it hold much of the memory: until the block of an inode is
    /// written, each of many small files keeps its inode in memory, and a removed file all that it
    /// held.
    fn candidates(&self, goal: Goal<'_>, now: Duration, max_bytes: u64) -> Vec<u32> {
        let mut slots = Vec::new();
        let expired = now.checked_sub(self.limits.expire);
        let until = match (goal, expired) {
            (Goal::Oldest, _) => Duration::MAX,
            (_, Some(expired)) => expired,
            (_, None) => return slots,
        };
        let first_until = match matches!(goal, Goal::Oldest) && self.is_much_held() {
            true => Some(Duration::MAX),
            false => expired,
        };
        let first_bytes = first_until.map_or(0, |until| {
            let metadata = self.queue.oldest(Part::Metadata, until);
            self.take_while_fits(metadata, max_bytes / 2, &mut slots)
        });
        let taken = slots.len();
        let contents = self.queue.oldest(Part::Contents, until);
        let contents_bytes =
            self.take_while_fits(contents, max_bytes.saturating_sub(first_bytes), &mut slots);
        let are_enough = matches!(goal, Goal::Oldest)
            && !self.has_many_patches()
            && contents_bytes >= max_bytes / CONTENTS_PART;
        if !are_enough {
            let others = self.queue.oldest(Part::Metadata, until).skip(taken);
            let room_bytes = max_bytes.saturating_sub(first_bytes + contents_bytes);
            self.take_while_fits(others, room_bytes, &mut slots);
        }
        slots
    }

    /// Whether changes hold so much memory that metadata has to be written to free it.
    fn is_much_held(&self) -> bool {
        let least = self.limits.most_changes_bytes();
        self.changes_bytes() > least.max(self.limits.most_dirty_bytes() / HELD_PART)
    }

    /// Takes up the units that need no rollback, and those that will need one however long they
    /// wait: somebody waits for this, and each round costs a flush. The others go only where there
    /// are few of these: what completes first may spare them the rollback, but a round of few
    /// blocks costs a flush like any other. In a small closure a unit also goes where only changes
    /// that are not `wanted` would be left out: for the caller's wait their rollback makes no
    /// difference.
    fn write_avoiding_rollback(
        &mut self,
        slots: &[u32],
        wanted: Option<&Wanted>,
        versions: &mut Versions,
    ) {
        let mut left = Vec::new();
        let may = self.writes_with_rollback || wanted.is_some();
        let wanted = wanted.filter(|_| slots.len() < LARGE_CLOSURE);
        for index in slots {
            let mut leaves = false;
            versions.chosen.clear();
            for unit in self.units(*index) {
                let must = may && self.graph.must_roll_back(unit);
                if !must
                    && self.graph.would_roll_back(unit)
                    && wanted.is_none_or(|w| self.graph.has_wanted_waiting(unit, w))
                {
                    leaves = true;
                } else {
                    versions.chosen.push(unit);
                }
            }
            if !self.take_up(*index, versions) && leaves {
                left.push(*index);
            }
        }
        let taken = versions.slots.len();
        let is_small = self.writes_with_rollback
            && slots.len() >= LARGE_CLOSURE
            && taken < SMALL_ROUND
            && 2 * left.len() >= taken;
        if may && (taken == 0 || is_small) {
            for index in left {
                self.take_up_all(index, versions);
            }
        }
    }

    fn collect_oldest(
        &mut self,
        goal: Goal<'_>,
        now: Duration,
        max_bytes: u64,
        versions: &mut Versions,
    ) {
        let candidates = self.candidates(goal, now, max_bytes);
        for index in &candidates {
            let index = *index;
            let passes = self.slots[index as usize].passed_over;
            if (passes < PASSES_BEFORE_ROLLBACK || !self.writes_with_rollback)
                && self.units(index).any(|u| self.graph.would_roll_back(u))
            {
                self.slots[index as usize].passed_over = passes.saturating_add(1);
                self.stats.passed_over += 1;
                continue;
            }
            self.take_up_all(index, versions);
        }
        // Callers wait for memory. A long chain has one link ready at a time. If it were passed
        // over, each link would wait for two batches of other blocks, and take three flushes. Where
        // nothing may go with a rollback, callers would wait for ever if nothing went at all.
        let may = self.writes_with_rollback || versions.slots.is_empty();
        if may && versions.slots.len() < SMALL_ROUND && self.is_nearly_crowded() {
            for index in candidates {
                self.take_up_all(index, versions);
            }
        }
    }

    fn take_up_all(&mut self, index: u32, versions: &mut Versions) {
        versions.chosen.clear();
        versions.chosen.extend(self.units(index));
        self.take_up(index, versions);
    }

    /// Takes up a write of the chosen units of a slot, if they have anything to write. False where
    /// they have not.
    fn take_up(&mut self, index: u32, versions: &mut Versions) -> bool {
        let slot = &self.slots[index as usize];
        if slot.in_flight {
            return false;
        }
        let is_one = slot.units == 1;
        let mut pieces: Vec<(BlockId, Option<Vec<u8>>)> = Vec::new();
        let mut single = None;
        for unit in &versions.chosen {
            let range = self.range_of(*unit);
            let version = (self.graph).start_write(*unit, self.slots[index as usize].part(range));
            if version != Version::Nothing && self.graph.is_ordered_by_queue() {
                versions.chains.push((*unit, self.graph.take_chain(*unit)));
            }
            match version {
                Version::Nothing => {}
                Version::Newest if is_one => single = Some(self.slots[index as usize].sealed(None)),
                Version::RolledBack(copy) if is_one => {
                    single = Some(self.slots[index as usize].sealed(Some(copy)));
                }
                Version::Newest => pieces.push((*unit, None)),
                Version::RolledBack(copy) => pieces.push((*unit, Some(copy))),
            }
        }
        if single.is_none() && pieces.is_empty() {
            if !self.units(index).any(|u| self.graph.has_ready(u)) {
                self.leave_queue(index);
            }
            return false;
        }
        let left_out = self.has_uncommitted(index);
        let written_bytes = match single {
            Some(data) => {
                let len = data.len();
                versions.units.push(self.numbering.first(index));
                versions.pieces.push((index, 0, data));
                len
            }
            None => {
                versions.units.extend(pieces.iter().map(|(unit, _)| *unit));
                self.put_pieces(index, pieces, left_out, &mut versions.pieces)
            }
        };
        let slot = &mut self.slots[index as usize];
        if slot.rollback_owed {
            self.stats.blocks_rewritten_for_rollback += 1;
        }
        slot.rollback_owed = left_out;
        slot.in_flight = true;
        slot.passed_over = 0;
        self.stats.blocks_written += 1;
        self.stats.bytes_written += written_bytes as u64;
        self.leave_queue(index);
        versions.slots.push(index);
        true
    }

    /// Appends the bytes to write of a block of which some units go; returns how many. Where no
    /// unit holds anything back the whole block goes as it is: a unit with nothing to write has the
    /// same bytes on the disk as in memory, unless something in it was superseded.
    fn put_pieces(
        &self,
        index: u32,
        units: Vec<(BlockId, Option<Vec<u8>>)>,
        left_out: bool,
        into: &mut Vec<(u32, u32, Buffer)>,
    ) -> usize {
        let Slot {
            data,
            differs,
            seal,
            ..
        } = &self.slots[index as usize];
        debug_assert!(seal.is_none(), "a sealed block is one unit");
        if !left_out && !differs {
            into.push((index, 0, data.clone()));
            return data.len();
        }
        let mut written_bytes = 0;
        let mut units = units.into_iter().peekable();
        while let Some((first, version)) = units.next() {
            let range = self.range_of(first);
            let mut bytes = version.unwrap_or_else(|| data[range.clone()].to_vec());
            let mut last = first.0;
            while let Some((next, version)) = units.next_if(|(unit, _)| unit.0 == last + 1) {
                bytes.extend_from_slice(version.as_deref().unwrap_or(&data[self.range_of(next)]));
                last = next.0;
            }
            written_bytes += bytes.len();
            into.push((index, range.start as u32, bytes.into()));
        }
        written_bytes
    }

    fn requests_of(&mut self, versions: Versions) -> Batch {
        let Versions {
            mut pieces,
            slots,
            units,
            chains,
            ..
        } = versions;
        let levels = self.levels(&chains);
        let level_of = |slot: &u32| levels.get(slot).copied().unwrap_or(0);
        pieces.sort_unstable_by_key(|(slot, at, _)| {
            let key = self.slots[*slot as usize].key;
            (level_of(slot), key.volume, key.block, *at)
        });
        self.batches += u64::from(!slots.is_empty());
        let mut batch = Batch {
            writes: Vec::new(),
            slots,
            units,
            number: self.batches,
            parts_left: None,
            chains,
            levels: FxHashMap::default(),
        };
        // Where the last request ends, how long it is, and its level.
        let (mut end_bytes, mut len_bytes, mut last_level) = (0, 0, 0);
        for (index, at, data) in pieces {
            let key = self.slots[index as usize].key;
            let block_bytes = u64::from(self.block_bytes(key.volume));
            let offset_bytes = key.block * block_bytes + u64::from(at);
            let level = level_of(&index);
            let is_new = (batch.writes.last()).is_none_or(|(volume, _)| *volume != key.volume);
            if is_new || level != last_level {
                batch.writes.push((key.volume, Vec::new()));
                last_level = level;
            }
            let Some((_, requests)) = batch.writes.last_mut() else {
                continue;
            };
            match requests.last_mut() {
                Some(last)
                    if end_bytes == offset_bytes
                        && len_bytes + data.len() as u64 <= self.limits.request_bytes =>
                {
                    end_bytes += data.len() as u64;
                    len_bytes += data.len() as u64;
                    last.buffers.push(data);
                }
                _ => {
                    len_bytes = data.len() as u64;
                    end_bytes = offset_bytes + len_bytes;
                    self.stats.write_requests += 1;
                    requests.push(WriteRequest {
                        offset_bytes,
                        buffers: vec![data],
                    });
                }
            }
        }
        batch.levels = levels;
        batch
    }

    fn tell_batch(&self, batch: &Batch, goal: &'static str, now: Duration) {
        if !batch.is_empty() {
            self.tell(|| Happening::Batch {
                now,
                number: batch.number,
                goal,
                writes: &batch.writes,
            });
        }
    }

    /// From now on `targets` and what they depend on take on nothing more to wait for, so that
    /// other changes, made meanwhile, do not prolong a wait for these.
    pub fn settle(&mut self, targets: &[PatchId]) {
        self.graph.settle(targets);
    }

    /// Appends every patch that is not on stable storage.
    pub fn uncommitted(&self, into: &mut Vec<PatchId>) {
        for index in &self.dirty {
            for unit in self.units(*index) {
                self.graph.collect_live(unit, into);
            }
        }
    }

    /// Appends every patch of file contents that is not on stable storage.
    pub fn uncommitted_contents(&self, into: &mut Vec<PatchId>) {
        let is_contents = |i: &&u32| self.slots[**i as usize].class == crate::BlockClass::Data;
        for index in self.dirty.iter().filter(is_contents) {
            for unit in self.units(*index) {
                self.graph.collect_live(unit, into);
            }
        }
    }

    /// The blocks of a volume with changes that are not on stable storage, each with its newest
    /// bytes, sealed.
    pub fn dirty_blocks(&self, volume: VolumeId) -> impl Iterator<Item = (u64, Buffer)> + '_ {
        let slots = self.dirty.iter().map(|index| &self.slots[*index as usize]);
        slots
            .filter(move |slot| slot.key.volume == volume)
            .map(|slot| (slot.key.block, slot.sealed(None)))
    }

    /// Whether anything is not on stable storage.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// When the block that has been dirty for longest was dirtied, whether it could be written or
    /// not. Looks at every dirty block.
    pub fn oldest_change(&self) -> Option<Duration> {
        let since = |index: &u32| self.slots[*index as usize].dirtied;
        self.dirty.iter().map(since).min()
    }
}
