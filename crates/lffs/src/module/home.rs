//! What of the log is at home, moving its start past that, and keeping blocks of different groups
//! out of one run.

use std::time::Duration;

use backstitch_ordering::{BlockClass, PatchId, VolumeId};
use backstitch_store::Store;

use super::LffsMechanism;
use crate::rules::{Rule, holds};

impl LffsMechanism {
    /// Brings up to date what is in the log for good, what is at home, and what is before the start.
    pub(super) fn look_at_home(&mut self, store: &Store) {
        while let Some(next) = self.log.get(self.committed)
            && !(store.graph().is_live(next.hold) && holds(Rule::AtHomeOnlyIfLogged))
        {
            let number = next.number;
            for block in std::mem::take(&mut self.log[self.committed].freed) {
                if self.freed.get(&block).is_some_and(|f| f.0 == number) {
                    self.freed.remove(&block);
                }
            }
            self.committed += 1;
        }
        if let Some((id, past)) = self.tail
            && !(store.graph().is_live(id) && holds(Rule::RoomIsFreeOnceStartMoved))
        {
            self.tail = None;
            self.drop_before_start(past);
        }
        while self.at_home < self.committed {
            let at = self.at_home;
            while let Some(block) = self.log[at].left.checked_sub(1)
                && self.is_home(store, self.log[at].number, self.log[at].blocks[block])
            {
                self.log[at].left = block;
            }
            if self.log[at].left > 0 {
                return;
            }
            self.at_home += 1;
        }
    }

    fn drop_before_start(&mut self, past: usize) {
        for gone in self.log.drain(..past) {
            self.start = gone.end;
            for block in gone.blocks {
                if self
                    .logged
                    .get(&block)
                    .is_some_and(|l| l.number == gone.number)
                {
                    self.logged.remove(&block);
                }
            }
        }
        self.committed -= past;
        self.at_home -= past;
    }

    fn is_committed(&self, number: u64) -> bool {
        self.log
            .get(self.committed)
            .is_none_or(|t| number < t.number)
            && number < self.number
    }

    /// Whether what this group, which is in the log, says of a block is not needed any more.
    fn is_home(&self, store: &Store, number: u64, block: u64) -> bool {
        let Some(logged) = self.logged.get(&block) else {
            return true;
        };
        if !holds(Rule::StartAfterHomes) {
            return true;
        }
        if logged.number > number && !holds(Rule::StartAfterLaterGroup) {
            return true;
        }
        match logged.freed_by {
            Some(by) => self.is_committed(by) || !holds(Rule::StartAfterFreeingGroup),
            None => !self.is_pending(store, block, logged.original),
        }
    }

    /// Whether a change of the running group, which may have been merged with it, or the block's own
    /// patch is not on the disk.
    fn is_pending(&self, store: &Store, block: u64, original: PatchId) -> bool {
        let running = self.running.blocks.get(&block);
        store.graph().is_live(original) || running.is_some_and(|id| *id == original)
    }

    /// The patches that must be on stable storage before about half of the log is free.
    pub(super) fn what_keeps_the_start(&self, into: &mut Vec<PatchId>) {
        let mut wanted = self.used() / 2;
        let mut is_back = false;
        for group in self.log.iter().skip(self.at_home) {
            into.push(group.hold);
            for block in &group.blocks[..group.left] {
                let Some(logged) = self.logged.get(block) else {
                    continue;
                };
                if let Some(by) = logged.freed_by {
                    if let Some(later) = self.log.iter().find(|t| t.number == by) {
                        into.push(later.hold);
                    }
                    is_back |= by == self.number;
                    continue;
                }
                // What the running group has changed too stays back until that is in the log.
                is_back |= self.running.blocks.contains_key(block);
                // Most are of one run.
                if into.last() != Some(&logged.original) {
                    into.push(logged.original);
                }
            }
            wanted = wanted.saturating_sub(group.end - group.start);
            if wanted == 0 {
                break;
            }
        }
        // While the running group is being closed it cannot be waited for: it waits for the room.
        if is_back && !self.is_closing {
            into.extend(self.running.hold);
        }
    }

    /// Writes the superblock with the log beginning at the first group that is not at home.
    ///
    /// The commit point of giving room in the log back.
    pub(super) fn write_superblock(
        &mut self,
        store: &mut Store,
        volume: VolumeId,
        now: Duration,
        is_clean: bool,
    ) -> PatchId {
        let head = self.pen.head;
        let start = self.log.get(self.at_home).map_or(head, |t| t.start);
        let committed = match holds(Rule::EndIsLogged) {
            true => self.committed,
            false => self.log.len(),
        };
        let end = self.log.get(committed).map_or(head, |t| t.start);
        let last = committed.checked_sub(1).and_then(|at| self.log.get(at));
        let last_bytes = last.filter(|_| end > start).map_or(0, |t| t.last_bytes);
        let (offset_bytes, block) = self.pen.superblock((start, end), last_bytes, is_clean);
        let place = self.map.block(offset_bytes);
        let place = place.expect("the superblocks are in the log's place");
        let before = [self.superblock];
        self.superblock = store.initialise(
            volume,
            place,
            BlockClass::Journal,
            &block,
            (&before).into(),
            now,
        );
        self.superblock
    }

    /// The run for a change that goes through the log. What a group changes waits for its hold and
    /// for nothing else, so it is one patch, as far as nothing older is pending on the blocks.
    pub(super) fn run_of_changes(
        &mut self,
        store: &Store,
        dependencies: &[PatchId],
    ) -> Option<PatchId> {
        let hold = self.running.hold?;
        if let Some(newest) = self.running.newest.take()
            && store.graph().is_run(newest)
        {
            self.running.changed = Some(newest);
        }
        let waits_for_hold = dependencies == [hold];
        waits_for_hold.then(|| self.running.changed.unwrap_or(PatchId::COMMITTED))
    }

    /// The block is about to be changed in the running group: takes it out of the run of an earlier
    /// one. It stays back until the running group is in the log, and the run must not: the log's
    /// start waits for that, and no room in the log might be left for the running group.
    pub(super) fn part_from_run(&mut self, store: &mut Store, block: u64) {
        if self.running.has_logged(block) || !holds(Rule::HomesArePartedFromRuns) {
            return;
        }
        let Some(run) = store.run_at(self.volume, block) else {
            return;
        };
        if self.logged.get(&block).is_none_or(|l| l.original != run) {
            return;
        }
        if let Some(own) = store.leave_run(self.volume, block) {
            if let Some(logged) = self.logged.get_mut(&block) {
                logged.original = own;
            }
            return;
        }
        // Somebody waits for the run, and goes on waiting for all of it: so nobody else may.
        for (block, logged) in &mut self.logged {
            if logged.original == run
                && store.run_at(self.volume, *block) == Some(run)
                && let Some(own) = store.take_from_run(self.volume, *block)
            {
                logged.original = own;
            }
        }
    }
}
