//! Closing groups.

use std::time::Duration;

use backstitch_device::Buffer;
use backstitch_ordering::{
    BlockClass, Change, CloseError, Log, LogState, NoRoom, PatchId, VolumeId,
};
use backstitch_store::{PatchKind, Store};
use rustc_hash::FxHashSet;

use super::{Closed, LffsMechanism, Logged, Running, Stage};
use crate::record::{About, Changes, end_of_group, mark_end};
use crate::rules::{Rule, holds};

/// Blocks that a scope may change, or a part of the log where that is small.
const MOST_PER_SCOPE: u64 = 1024;
/// What a block that is changed takes in the log at most, beside its bytes.
const AROUND_BLOCK_BYTES: u64 = 64;
/// How often the log's start is moved past what is at home, though there is room.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// Tails of patchgroups that are taken apart for one change; what is nested deeper than that ends
/// the group of operations.
const MOST_TAKEN_APART: usize = 64;

impl LffsMechanism {
    /// What a block that is changed takes in the log at most.
    fn per_block_bytes(&self) -> u64 {
        u64::from(self.map.block_bytes()) + AROUND_BLOCK_BYTES
    }

    /// Blocks that one more operation may change; as many are kept for what is put off until the
    /// end.
    fn reserve(&self) -> u64 {
        let blocks = self.pen.log_bytes() / u64::from(self.map.block_bytes());
        (blocks / 10).min(MOST_PER_SCOPE)
    }

    /// What the running group takes in the log, with `more` blocks.
    fn size_bytes(&self, more: u64) -> u64 {
        let open = (self.current.changes.blocks() + self.running.expected.len()) as u64;
        let more = (open + more) * self.per_block_bytes();
        self.running.record_bytes + more + u64::from(self.map.block_bytes())
    }

    /// What of the log is in use.
    pub(super) fn used(&self) -> u64 {
        self.pen.head - self.start
    }

    fn free_bytes(&self) -> u64 {
        self.pen.most_bytes().saturating_sub(self.used())
    }

    /// Blocks that the operation under way may change; while the group is being closed, what was put
    /// off. The list of orphans and the counters come after that.
    pub(super) fn blocks_left(&self) -> usize {
        let reserve = self.reserve();
        let left = match self.is_closing {
            false => reserve,
            true => {
                let free = self.free_bytes();
                free.saturating_sub(self.size_bytes(reserve / 2)) / self.per_block_bytes()
            }
        };
        left as usize
    }

    /// A checksum that a block has on the disk only is changed by nobody: blocks with one are logged
    /// as a whole, once, as they are to be on the disk.
    fn log_sealed(&mut self, store: &Store, volume: VolumeId) {
        let is_sealed = |block: &&u64| store.seal_of(volume, **block).is_some();
        let mut sealed: Vec<(u64, Buffer)> = (self.running.blocks.keys().filter(is_sealed))
            .filter_map(|block| Some((*block, store.for_disk(volume, *block)?)))
            .collect();
        if sealed.is_empty() {
            return;
        }
        sealed.sort_unstable_by_key(|(block, _)| *block);
        let (mut changes, block_bytes) = (Changes::default(), self.map.block_bytes());
        for (block, _) in &sealed {
            changes.note(*block, 0..block_bytes);
        }
        let bytes = |block| {
            let at = sealed.binary_search_by_key(&block, |(block, _)| *block);
            at.ok().map(|at| &sealed[at].1[..])
        };
        let before = self.running.records.len();
        let about = About::default();
        let lens = (block_bytes, self.pen.longest_bytes());
        changes.encode(&about, lens, bytes, &mut self.running.records);
        let lens = self.running.records[before..].iter().map(Vec::len);
        self.running.record_bytes += self.pen.records_bytes(lens);
    }

    /// Puts the records into the log, and has the hold wait for them.
    fn append(
        &mut self,
        store: &mut Store,
        volume: VolumeId,
        now: Duration,
        bytes: &[u8],
        start: u64,
        hold: PatchId,
    ) -> Result<(), CloseError> {
        let (mut run, size) = (PatchId::COMMITTED, self.map.block_bytes() as usize);
        // Nothing of a group counts before its first block is there: a record's header, with a number
        // that no other has, is in it. What is in the last one may have been there before.
        let after = std::mem::take(&mut self.running.after);
        for (index, bytes) in bytes.chunks(size).enumerate() {
            let lsn = start + (index * size) as u64;
            let place = self.map.block(self.pen.offset_bytes(lsn));
            let place = place.expect("the log is in its place");
            let change = Change::Bytes {
                offset_bytes: 0,
                bytes,
            };
            let class = BlockClass::Journal;
            let is_apart = index == 0 && !after.is_empty();
            let id = match is_apart {
                true => store.initialise(volume, place, class, bytes, (&after).into(), now),
                false => {
                    store.patch_in_run(volume, place, class, change, (&[]).into(), run.into(), now)
                }
            };
            if run != id {
                if !is_apart {
                    run = id;
                }
                if holds(Rule::HoldAfterRecords) {
                    let added = store.graph_mut().add_dependency(hold, id);
                    added.map_err(|error| CloseError::Contradiction(error.to_string()))?;
                }
            }
        }
        Ok(())
    }

    fn note_closed(&mut self, running: Running, hold: PatchId, start: u64) {
        let number = self.number;
        for block in &running.freed {
            self.freed.insert(*block, (number, hold));
        }
        let mut blocks: Vec<u64> = running.blocks.keys().copied().collect();
        blocks.sort_unstable();
        for (block, original) in running.blocks {
            let logged = Logged {
                number,
                original,
                freed_by: None,
            };
            self.logged.insert(block, logged);
        }
        self.log.push_back(Closed {
            number,
            hold,
            start,
            end: self.pen.head,
            last_bytes: self.pen.last_bytes,
            left: blocks.len(),
            blocks,
            freed: running.freed,
        });
        self.number += 1;
        self.last = hold;
        let log_bytes = self.pen.log_bytes();
        self.counted.groups += 1;
        self.counted.log_bytes += self.pen.head - start;
        self.counted.wraps += self.pen.head / log_bytes - start / log_bytes;
    }

    /// Notes what the running group comes after. What has got onto stable storage meanwhile leaves.
    fn note_others(&mut self, store: &Store, others: Vec<PatchId>) {
        let running = &mut self.running;
        if running.others.len() + others.len() > 64 {
            running.others.retain(|id| store.graph().is_live(*id));
            running.after.retain(|id| store.graph().is_live(*id));
        }
        running.others.extend(others);
    }
}

impl Log for LffsMechanism {
    fn state(&mut self, store: &Store) -> LogState {
        self.look_at_home(store);
        // Of a third of the log there can be one that is written, one that is brought home, and
        // this one.
        let limit = self.pen.log_bytes() / 3;
        let reserve = self.reserve();
        let running = &self.running;
        let is_due = self.at_home > 0
            && self.tail.is_none()
            && self.now >= self.last_checkpoint + CHECKPOINT_INTERVAL;
        LogState {
            is_dirty: self.stage == Stage::Through
                && !(running.hold.is_none()
                    && running.blocks.is_empty()
                    && running.records.is_empty()
                    && self.current.changes.is_empty()
                    && self.current.freed_by_next.is_empty()
                    && self.tokens.is_empty()),
            running: running.hold,
            last: self.last,
            is_large: self.size_bytes(0) > limit,
            // For one more operation, and then for what is put off.
            is_full: self.size_bytes(2 * reserve) > self.free_bytes(),
            is_filling: self.used() > self.pen.most_bytes() / 2 || is_due,
            commits: self.counted.groups,
        }
    }

    fn waits_for_running(&self, store: &Store, id: PatchId) -> bool {
        let is_closed = || self.log.iter().any(|t| t.hold == id);
        self.running.hold.is_some() && is_empty(store, id) && !is_closed()
    }

    fn is_of(&self, store: &Store, id: PatchId) -> bool {
        let is_hold =
            |id: PatchId| self.running.hold == Some(id) || self.log.iter().any(|t| t.hold == id);
        let stands_for_one = || {
            let of = store.graph().dependencies(id);
            is_empty(store, id) && of.into_iter().any(|(id, _)| is_hold(id))
        };
        !store.graph().is_live(id) || is_hold(id) || stands_for_one()
    }

    fn come_after(&mut self, store: &mut Store, patches: &[PatchId]) -> bool {
        if self.stage == Stage::Past || !holds(Rule::RecordsAfterOtherVolumes) {
            return true;
        }
        let mut left: Vec<PatchId> = patches.to_vec();
        let mut seen = Vec::new();
        let mut taken_apart = 0;
        while let Some(id) = left.pop() {
            let is_own = self.running.hold == Some(id) || self.log.iter().any(|t| t.hold == id);
            if is_own || self.running.others.contains(&id) || !store.graph().is_live(id) {
                continue;
            }
            let hold = self.running.hold;
            match hold.map(|hold| store.graph_mut().add_dependency(hold, id)) {
                // The tail of a patchgroup that changed something in this very group of operations,
                // and elsewhere: the latter is what counts.
                Some(Err(_)) if is_empty(store, id) && taken_apart < MOST_TAKEN_APART => {
                    taken_apart += 1;
                    left.extend(store.graph().dependencies(id).into_iter().map(|d| d.0));
                }
                Some(Err(_)) => return false,
                _ => self.running.after.push(id),
            }
            seen.push(id);
        }
        // Only now: what comes again after a "no" is to be told the same.
        self.note_others(store, seen);
        true
    }

    fn start(&mut self, store: &mut Store, volume: VolumeId) -> PatchId {
        self.stage = Stage::Through;
        self.volume = volume;
        self.pen.begin_mount();
        self.write_superblock(store, volume, Duration::ZERO, false)
    }

    fn begin_close(&mut self) {
        self.is_closing = true;
    }

    fn close(
        &mut self,
        store: &mut Store,
        volume: VolumeId,
        now: Duration,
        time: (u64, u32),
    ) -> Result<PatchId, CloseError> {
        self.end_record(store);
        self.end_record(store);
        let free = self.free_bytes();
        let (block_bytes, sealed) = (u64::from(self.map.block_bytes()), self.per_block_bytes());
        let is_sealed = |block: &&u64| store.seal_of(volume, **block).is_some();
        let sealed = self.running.blocks.keys().filter(is_sealed).count() as u64 * sealed;
        let needed = self.running.record_bytes + sealed + 2 * block_bytes;
        if needed > free {
            self.counted.stalls += 1;
            let (needed, free) = (
                needed.div_ceil(block_bytes) as u32,
                (free / block_bytes) as u32,
            );
            return Err(NoRoom { needed, free }.into());
        }
        self.is_closing = false;
        let hold = self.hold(store);
        self.log_sealed(store, volume);
        let mut records = std::mem::take(&mut self.running.records);
        match records.last_mut() {
            Some(last) => mark_end(last),
            None => records.push(end_of_group()),
        }
        let start = self.pen.head;
        let nanoseconds = time.0.saturating_mul(1_000_000_000) + u64::from(time.1);
        let bytes = self.pen.append(&mut records, nanoseconds);
        self.append(store, volume, now, &bytes, start, hold)?;
        store.graph_mut().release(hold);
        let running = std::mem::take(&mut self.running);
        self.note_closed(running, hold, start);
        Ok(hold)
    }

    fn home(&mut self, store: &Store, into: &mut Vec<PatchId>) {
        self.look_at_home(store);
        self.what_keeps_the_start(into);
        into.retain(|id| store.graph().is_live(*id));
        if into.is_empty() {
            // A caller that waits for room must not be told that there is nothing to wait for while
            // a group is on its way.
            let holds = self.log.iter().map(|t| t.hold);
            into.extend(holds.filter(|hold| store.graph().is_live(*hold)));
        }
        self.counted.forced += u64::from(!into.is_empty());
    }

    fn move_tail(&mut self, store: &mut Store, volume: VolumeId, now: Duration) -> Option<PatchId> {
        self.look_at_home(store);
        match self.tail {
            Some((id, past)) if past == self.at_home => return Some(id),
            None if self.at_home == 0 => return None,
            _ => {}
        }
        let id = self.write_superblock(store, volume, now, false);
        self.tail = Some((id, self.at_home));
        self.last_checkpoint = self.now;
        self.counted.checkpoints += 1;
        Some(id)
    }

    fn finish(&mut self, store: &mut Store, volume: VolumeId, now: Duration) -> PatchId {
        self.look_at_home(store);
        debug_assert_eq!(self.at_home, self.log.len(), "everything is at home");
        if self.at_home < self.log.len() {
            return PatchId::COMMITTED;
        }
        self.write_superblock(store, volume, now, true)
    }

    fn emptied(&self) -> Option<(u64, Buffer)> {
        let mut pen = self.pen.clone();
        let head = pen.head;
        let (offset_bytes, block) = pen.superblock((head, head), 0, true);
        let place = self.map.block(offset_bytes)?;
        self.is_inside.then(|| (place, block.into()))
    }

    fn stop(&mut self) {
        self.stage = Stage::Past;
        self.running.others = FxHashSet::default();
    }
}

/// Whether the patch stands for others. None but holds are held, so there is nothing in it but what
/// it depends on.
fn is_empty(store: &Store, id: PatchId) -> bool {
    store.graph().info(id).map(|i| i.kind) == Some(PatchKind::Empty)
}
