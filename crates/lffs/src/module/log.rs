//! Closing groups.

use std::time::Duration;

use backstitch_device::Buffer;
use backstitch_ordering::{
    BlockClass, Change, CloseError, GATHER_TIME, Log, LogState, NoRoom, PatchId, Running, VolumeId,
};
use backstitch_store::Store;

use super::{LffsMechanism, OwnClosed, OwnRunning};
use crate::record::{About, Changes, end_of_group, mark_end};
use crate::rules::{Rule, holds};

/// Blocks that one operation may change are a tenth of the log's, but at least as many as a layout
/// needs for the shortest step that frees something: with less room it is put off for ever.
const LEAST_PER_SCOPE: u64 = 24;
const MOST_PER_SCOPE: u64 = 1024;
/// Bytes that a changed block takes in the log at most, beside its contents.
const AROUND_BLOCK_BYTES: u64 = 64;
/// How often the log's start is moved past groups that are at home, even if there is room.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

impl LffsMechanism {
    /// Bytes that a changed block takes in the log at most.
    fn per_block_bytes(&self) -> u64 {
        u64::from(self.map.block_bytes()) + AROUND_BLOCK_BYTES
    }

    /// Blocks that one more operation may change; as many are kept for what is put off until the
    /// end.
    fn reserve(&self) -> u64 {
        let blocks = self.pen.log_bytes() / u64::from(self.map.block_bytes());
        (blocks / 10).clamp(LEAST_PER_SCOPE, MOST_PER_SCOPE)
    }

    /// Bytes that the running group takes in the log at most, with `more` blocks more.
    fn size_bytes(&self, more: u64) -> u64 {
        let open =
            (self.current.changes.blocks() + self.transactions.running.expected.len()) as u64;
        let more = (open + more) * self.per_block_bytes();
        self.transactions.running.own.record_bytes + more + u64::from(self.map.block_bytes())
    }

    /// Bytes of the log that are in use.
    pub(super) fn used(&self) -> u64 {
        self.pen.head - self.start
    }

    fn free_bytes(&self) -> u64 {
        self.pen.most_bytes().saturating_sub(self.used())
    }

    /// Blocks that the operation under way may change; while the group is being closed, the
    /// operations that were put off. The list of orphans and the counters come after these.
    pub(super) fn blocks_left(&self) -> usize {
        let reserve = self.reserve();
        let left = match self.transactions.is_closing {
            false => reserve,
            true => {
                let free = self.free_bytes();
                free.saturating_sub(self.size_bytes(reserve / 2)) / self.per_block_bytes()
            }
        };
        left as usize
    }

    /// Logs blocks with a checksum as a whole, once, with the bytes that the disk will have: only
    /// the disk's version has the checksum, and no patch states it.
    fn log_sealed(&mut self, store: &Store, volume: VolumeId) {
        let is_sealed = |block: &&u64| store.seal_of(volume, **block).is_some();
        let mut sealed: Vec<(u64, Buffer)> =
            (self.transactions.running.blocks.keys().filter(is_sealed))
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
        let before = self.transactions.running.own.records.len();
        let about = About::default();
        let lens = (block_bytes, self.pen.longest_bytes());
        changes.encode(
            &about,
            lens,
            bytes,
            &mut self.transactions.running.own.records,
        );
        let lens = self.transactions.running.own.records[before..]
            .iter()
            .map(Vec::len);
        self.transactions.running.own.record_bytes += self.pen.records_bytes(lens);
    }

    /// Puts the records into the log, and has the hold wait for them.
    ///
    /// The last of these writes to reach the log is the commit point of the group: a recovery counts
    /// the group if it finds all of its records, up to the one that says that the group ends.
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
        // No record of a group counts before the group's first block is on the disk, because the
        // header of its first record is in that block. So this block waits for what the group comes
        // after.
        let after = std::mem::take(&mut self.transactions.running.after);
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

    fn note_closed(&mut self, running: Running<OwnRunning>, hold: PatchId, start: u64) {
        let own = OwnClosed {
            start,
            end: self.pen.head,
            last_bytes: self.pen.last_bytes,
        };
        self.transactions.note_closed(running, hold, own);
        let log_bytes = self.pen.log_bytes();
        self.counted.groups += 1;
        self.counted.log_bytes += self.pen.head - start;
        self.counted.wraps += self.pen.head / log_bytes - start / log_bytes;
    }
}

impl Log for LffsMechanism {
    fn state(&mut self, store: &Store) -> LogState {
        self.look_at_home(store);
        // At a third of the log, there is room for one group that is written, one that is brought
        // home, and this one.
        let limit = self.pen.log_bytes() / 3;
        let reserve = self.reserve();
        let running = &self.transactions.running;
        let is_due = self.transactions.can_move_tail()
            && self.transactions.tail_on_its_way().is_none()
            && self.now >= self.last_checkpoint + CHECKPOINT_INTERVAL;
        LogState {
            is_dirty: self.transactions.is_through && !self.transactions.is_clean(),
            running: running.hold,
            last: self.transactions.last,
            is_large: self.size_bytes(0) > limit,
            // Twice the reserve: for one more operation, then for what is put off.
            is_full: self.size_bytes(2 * reserve) > self.free_bytes(),
            is_filling: self.used() > self.pen.most_bytes() / 2 || is_due,
            commits: self.counted.groups,
        }
    }

    fn gather_time(&self) -> Option<Duration> {
        self.variant.gathers().then_some(GATHER_TIME)
    }

    fn waits_for_running(&self, store: &Store, id: PatchId) -> bool {
        self.transactions.waits_for_running(store, id)
    }

    fn is_of(&self, store: &Store, id: PatchId) -> bool {
        self.transactions.is_of(store, id)
    }

    fn come_after(&mut self, store: &mut Store, patches: &[PatchId]) -> bool {
        self.transactions.come_after(store, patches)
    }

    fn start(&mut self, store: &mut Store, volume: VolumeId) -> PatchId {
        self.transactions.start(volume);
        self.pen.begin_mount();
        self.write_superblock(store, volume, Duration::ZERO, false)
    }

    fn begin_close(&mut self) {
        self.transactions.is_closing = true;
    }

    fn cancel_close(&mut self) {
        self.transactions.is_closing = false;
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
        let sealed = self
            .transactions
            .running
            .blocks
            .keys()
            .filter(is_sealed)
            .count() as u64
            * sealed;
        let needed = self.transactions.running.own.record_bytes + sealed + 2 * block_bytes;
        if needed > free {
            self.counted.stalls += 1;
            let (needed, free) = (
                needed.div_ceil(block_bytes) as u32,
                (free / block_bytes) as u32,
            );
            return Err(NoRoom { needed, free }.into());
        }
        self.transactions.is_closing = false;
        let hold = self.transactions.hold(store);
        self.log_sealed(store, volume);
        let mut records = std::mem::take(&mut self.transactions.running.own.records);
        match records.last_mut() {
            Some(last) => mark_end(last),
            None => records.push(end_of_group()),
        }
        let start = self.pen.head;
        let nanoseconds = time.0.saturating_mul(1_000_000_000) + u64::from(time.1);
        let bytes = self.pen.append(&mut records, nanoseconds);
        self.append(store, volume, now, &bytes, start, hold)?;
        store.graph_mut().release(hold);
        let running = std::mem::take(&mut self.transactions.running);
        self.note_closed(running, hold, start);
        Ok(hold)
    }

    fn home(&mut self, store: &Store, into: &mut Vec<PatchId>) {
        self.look_at_home(store);
        self.what_keeps_the_start(into);
        self.transactions.retain_pending(store, into);
        self.counted.forced += u64::from(!into.is_empty());
    }

    fn move_tail(&mut self, store: &mut Store, volume: VolumeId, now: Duration) -> Option<PatchId> {
        self.look_at_home(store);
        if !self.transactions.can_move_tail() {
            return self.transactions.tail_on_its_way();
        }
        let id = self.write_superblock(store, volume, now, false);
        self.transactions.note_tail(id);
        self.last_checkpoint = self.now;
        self.counted.checkpoints += 1;
        Some(id)
    }

    fn finish(&mut self, store: &mut Store, volume: VolumeId, now: Duration) -> PatchId {
        self.look_at_home(store);
        debug_assert!(self.transactions.is_all_at_home(), "everything is at home");
        if !self.transactions.is_all_at_home() {
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
        self.transactions.stop();
    }
}
