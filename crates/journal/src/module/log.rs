//! Closing transactions.

use std::time::Duration;

use backstitch_device::Buffer;
use backstitch_ordering::{
    BlockClass, Change, CloseError, GATHER_TIME, Log, LogState, NoRoom, PatchId, Running, VolumeId,
};
use backstitch_store::Store;

use super::{JournalMechanism, JournalMode, OwnClosed, OwnRunning, superblock_block};
use crate::format::features::INCOMPAT_ASYNC_COMMIT;
use crate::format::{ChecksumKind, Sequence, revoke};
use crate::rules::{Rule, holds, implied, wait_for_now};
use crate::transaction;

/// Blocks that a scope may change at most; in a small log it is an eighth of the log's blocks.
const MOST_PER_SCOPE: u32 = 1024;

impl JournalMechanism {
    /// Blocks kept for one more operation; as many are kept for what is put off until the end.
    fn reserve(&self) -> usize {
        (self.superblock.log_blocks() / 8).min(MOST_PER_SCOPE) as usize
    }

    /// The number of blocks that the running transaction has changed, or is expected to change.
    fn blocks(&self) -> usize {
        self.transactions.running.blocks.len() + self.transactions.running.expected.len()
    }

    fn size(&self, more: usize) -> u32 {
        let copies = self.blocks() + more;
        let revokes = self.transactions.running.own.revokes.len() + more;
        transaction::log_blocks(&self.superblock, copies, revokes) as u32
    }

    /// All of the log can be in use: the superblock says whether it is empty, so that a full log is
    /// not mistaken for an empty one.
    fn free(&self) -> u32 {
        self.superblock.log_blocks().saturating_sub(self.used)
    }

    pub(super) fn sequence(&self, number: u64) -> Sequence {
        Sequence(self.first_sequence.wrapping_add(number as u32))
    }

    /// The bytes of the running transaction's blocks as they are to be on the disk, by number.
    fn copies(&self, store: &Store, volume: VolumeId) -> Vec<(u64, Buffer)> {
        let mut copies: Vec<(u64, Buffer)> = (self.transactions.running.blocks.keys())
            .map(|block| {
                let bytes = store.for_disk(volume, *block);
                // It has a patch that waits for the hold.
                (*block, bytes.expect("a changed block is in memory"))
            })
            .collect();
        copies.sort_unstable_by_key(|(block, _)| *block);
        copies
    }

    /// The number of revoke blocks, which come first in a transaction, that the commit record must
    /// wait for, though it may go together with the copies: its checksum leaves them out. A block
    /// whose records are in one sector need not be waited for: it cannot be torn, and where it is
    /// missing the log ends there.
    fn revoke_blocks_awaited(&self, revokes: usize) -> usize {
        match revoke::fits_sector(self.superblock.features, revokes) {
            true => 0,
            false if !holds(Rule::CommitAfterRevokeBlocks) => 0,
            false => transaction::revoke_blocks(&self.superblock, revokes),
        }
    }

    /// States the patches that put a transaction's blocks into the log; nothing is written here.
    /// The commit record waits for the first `awaited` of them at least. Returns a patch that is
    /// stable once the transaction is committed: the commit record, with the blocks that may go
    /// beside it.
    ///
    /// The write of the commit record is the commit point of the transaction; it is certain once
    /// the flush of its batch has returned (`Graph::complete_write`). A replay counts a transaction
    /// only if it finds that record (`recovery/scan.rs`).
    fn append(
        &self,
        store: &mut Store,
        volume: VolumeId,
        now: Duration,
        log: &[Buffer],
        awaited: usize,
    ) -> Option<PatchId> {
        let mut after = Vec::with_capacity(self.transactions.running.own.contents.len());
        let mut beside = Vec::new();
        if self.mode != JournalMode::Ordered {
            implied(Rule::CommitAfterContents, || {
                self.transactions.running.own.contents.is_empty()
            });
        }
        if holds(Rule::CommitAfterContents) {
            after.extend(self.transactions.running.own.contents.iter().map(|c| c.1));
            after.sort_unstable();
            after.dedup();
        }
        after.push(wait_for_now(
            store.graph(),
            Rule::CommitAfterEarlierCommit,
            self.transactions.last,
        ));
        after.extend_from_slice(&self.transactions.running.after);
        let (commit, rest) = log.split_last()?;
        let at = |index: usize| {
            let position = self.superblock.advance(self.head, index as u32);
            let place = self.map.block(position);
            place.expect("the log is in the journal").0
        };
        let (class, mut run) = (BlockClass::Journal, PatchId::COMMITTED);
        for (index, bytes) in rest.iter().enumerate() {
            if index == awaited {
                // A new run: blocks that the commit record waits for are not in one run with blocks
                // that it does not wait for.
                run = PatchId::COMMITTED;
            }
            let goes_beside = index >= awaited && self.commits_at_once();
            let parts = if goes_beside { &mut beside } else { &mut after };
            let change = Change::Bytes {
                offset_bytes: 0,
                bytes,
            };
            let id = store.patch_in_run(
                volume,
                at(index),
                class,
                change,
                (&[]).into(),
                run.into(),
                now,
            );
            if run != id {
                run = id;
                if goes_beside || holds(Rule::CommitAfterCopies) {
                    parts.push(id);
                }
            }
        }
        let place = at(rest.len());
        let commit = store.initialise(
            volume,
            place,
            BlockClass::Journal,
            commit,
            (&after).into(),
            now,
        );
        if beside.is_empty() || !holds(Rule::CommitStandsWithCopies) {
            return Some(commit);
        }
        beside.push(commit);
        Some(store.graph_mut().create_empty(&beside, None, false))
    }

    /// Whether a commit record may go together with the copies and descriptors that it commits.
    /// With a checksum of them (v1) it may: no replay takes a torn transaction for a whole one.
    /// With v2 and v3 the checksums are in the tags. Linux and e2fsck check those of the copies
    /// only while they replay, and take a wrong one for damage, not for the log's end.
    fn commits_at_once(&self) -> bool {
        self.superblock.features.has_incompat(INCOMPAT_ASYNC_COMMIT)
            && self.superblock.checksums().kind == ChecksumKind::Transaction
    }
}

impl JournalMechanism {
    /// Blocks that the operation under way may change; while the transaction is being closed, the
    /// operations that were put off. The list of orphans and the counters come after these.
    pub(super) fn blocks_left(&self) -> usize {
        let reserve = self.reserve();
        match self.transactions.is_closing {
            false => reserve,
            true => self.free().saturating_sub(self.size(reserve / 2)) as usize,
        }
    }
}

impl Log for JournalMechanism {
    fn state(&mut self, store: &Store) -> LogState {
        self.look_at_home(store);
        // At a third of the log, there is room for one transaction that is written, one that is
        // brought home, and this one.
        let limit = (self.superblock.log_blocks() / 3) as usize;
        let reserve = self.reserve();
        let running = &self.transactions.running;
        LogState {
            is_dirty: self.transactions.is_through && !self.transactions.is_clean(),
            running: running.hold,
            last: self.transactions.last,
            is_large: self.blocks() > limit,
            // Twice the reserve: for one more operation, then for what is put off.
            is_full: self.size(2 * reserve) > self.free(),
            is_filling: self.used > self.superblock.log_blocks() / 2,
            commits: self.commits,
        }
    }

    fn gather_time(&self) -> Option<Duration> {
        self.gathers.then_some(GATHER_TIME)
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
        self.write_tail(store, volume, Duration::ZERO, self.head)
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
        let running = &self.transactions.running;
        let (copies, revokes) = (running.blocks.len(), running.own.revokes.len());
        let needed = transaction::log_blocks(&self.superblock, copies, revokes) as u32;
        let free = self.free();
        if needed > free {
            return Err(NoRoom { needed, free }.into());
        }
        self.transactions.is_closing = false;
        let hold = self.hold(store);
        let copies = self.copies(store, volume);
        let mut contents = std::mem::take(&mut self.transactions.running.own.contents);
        // A block that went through the log waits for the hold.
        contents.retain(|(block, id)| {
            !self.transactions.running.has_logged(*block) && store.graph().is_live(*id)
        });
        if !holds(Rule::CommitAfterReusedContents) {
            contents.retain(|(block, _)| !self.transactions.running.freed.contains(block));
        }
        self.transactions.running.own.contents = contents;
        let revokes: Vec<u64> = self
            .transactions
            .running
            .own
            .revokes
            .iter()
            .copied()
            .collect();
        let sequence = self.sequence(self.transactions.number);
        let log = transaction::encode(&self.superblock, sequence, &copies, &revokes, time);
        debug_assert_eq!(log.len(), needed as usize);
        let awaited = self.revoke_blocks_awaited(revokes.len());
        if let Some(commit) = self.append(store, volume, now, &log, awaited) {
            // From here on everything that waits for the transaction waits for its commit record.
            // This fails only if the record waits (through copies, contents or earlier holds) for
            // this transaction: where a block of a damaged file system has two uses, as contents
            // and in the log.
            let added = store.graph_mut().add_dependency(hold, commit);
            added.map_err(|error| CloseError::Contradiction(error.to_string()))?;
        }
        store.graph_mut().release(hold);
        let running = std::mem::take(&mut self.transactions.running);
        self.note_closed(running, hold, needed);
        Ok(hold)
    }

    fn home(&mut self, store: &Store, into: &mut Vec<PatchId>) {
        self.look_at_home(store);
        self.what_keeps_the_tail(into);
        self.transactions.retain_pending(store, into);
    }

    fn move_tail(&mut self, store: &mut Store, volume: VolumeId, now: Duration) -> Option<PatchId> {
        self.look_at_home(store);
        if !self.transactions.can_move_tail() {
            return self.transactions.tail_on_its_way();
        }
        let start = self
            .transactions
            .not_at_home()
            .next()
            .map_or(self.head, |t| t.own.start);
        let id = self.write_tail(store, volume, now, start);
        self.transactions.note_tail(id);
        Some(id)
    }

    fn finish(&mut self, store: &mut Store, volume: VolumeId, now: Duration) -> PatchId {
        self.look_at_home(store);
        debug_assert!(self.transactions.is_all_at_home(), "everything is at home");
        if !self.transactions.is_all_at_home() {
            return PatchId::COMMITTED;
        }
        self.write_tail(store, volume, now, 0)
    }

    fn emptied(&self) -> Option<(u64, Buffer)> {
        let place = self.map.block(self.map.superblock())?;
        let mut superblock = self.superblock.clone();
        superblock.set_tail(0, self.sequence(self.transactions.number));
        let block = superblock_block(&superblock);
        self.map.is_own(place).then(|| (place.0, block.into()))
    }

    fn stop(&mut self) {
        self.transactions.stop();
    }
}

impl JournalMechanism {
    fn note_closed(&mut self, running: Running<OwnRunning>, hold: PatchId, len: u32) {
        let number = self.transactions.number;
        let mut running = running;
        let own = std::mem::take(&mut running.own);
        let awaited: Vec<u64> = own.contents.iter().map(|c| c.0).collect();
        for block in &awaited {
            self.awaited.insert(*block, number);
        }
        let own = OwnClosed {
            start: self.head,
            len,
            awaited,
            runs: own.runs,
        };
        self.transactions.note_closed(running, hold, own);
        self.head = self.superblock.advance(self.head, len);
        self.used += len;
        self.commits += 1;
    }
}
