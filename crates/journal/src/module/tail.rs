//! What of the log is at home, and moving the tail past it.

use std::time::Duration;

use backstitch_ordering::{BlockClass, PatchId, VolumeId};
use backstitch_store::Store;
use rustc_hash::FxHashSet;

use super::{JournalMechanism, superblock_block};
use crate::rules::{Rule, holds};

impl JournalMechanism {
    /// Brings up to date what is committed, what is at home, and what is behind the tail.
    pub(super) fn look_at_home(&mut self, store: &Store) {
        while let Some(next) = self.log.get(self.committed)
            && !(store.graph().is_live(next.hold) && holds(Rule::AtHomeOnlyIfCommitted))
        {
            let number = next.number;
            let committed = &mut self.log[self.committed];
            for block in std::mem::take(&mut committed.freed) {
                if self.freed.get(&block).is_some_and(|f| f.0 == number) {
                    self.freed.remove(&block);
                }
            }
            for block in std::mem::take(&mut committed.awaited) {
                if self.awaited.get(&block) == Some(&number) {
                    self.awaited.remove(&block);
                }
            }
            committed.runs = FxHashSet::default();
            self.committed += 1;
        }
        if let Some((id, past)) = self.tail
            && !(store.graph().is_live(id) && holds(Rule::SpaceIsFreeOnceTailMoved))
        {
            self.tail = None;
            self.drop_behind_tail(past);
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

    fn drop_behind_tail(&mut self, past: usize) {
        for gone in self.log.drain(..past) {
            self.used -= gone.len;
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

    /// Whether the copy of a block in this transaction, which is committed, is not needed any more.
    fn is_home(&self, store: &Store, number: u64, block: u64) -> bool {
        let Some(logged) = self.logged.get(&block) else {
            return true;
        };
        if !holds(Rule::TailAfterOriginals) {
            return true;
        }
        if logged.number > number {
            return self.is_committed(logged.number) || !holds(Rule::TailAfterLaterCommit);
        }
        match logged.freed_by {
            Some(by) => self.is_committed(by) || !holds(Rule::TailAfterFreeingCommit),
            None => !store.graph().is_live(logged.original),
        }
    }

    /// The patches that must be on stable storage before about half of the log is free.
    pub(super) fn what_keeps_the_tail(&self, into: &mut Vec<PatchId>) {
        let mut wanted = self.used / 2;
        for transaction in self.log.iter().skip(self.at_home) {
            into.push(transaction.hold);
            for block in &transaction.blocks[..transaction.left] {
                let Some(logged) = self.logged.get(block) else {
                    continue;
                };
                // What the running transaction has changed too stays back until that is committed.
                let is_back = self.running.blocks.contains_key(block);
                if logged.number == transaction.number && logged.freed_by.is_none() && !is_back {
                    // Most are of one run.
                    if into.last() != Some(&logged.original) {
                        into.push(logged.original);
                    }
                    continue;
                }
                let by = match logged.freed_by {
                    Some(by) if logged.number == transaction.number => by,
                    _ => logged.number,
                };
                if let Some(later) = self.log.iter().find(|t| t.number == by) {
                    into.push(later.hold);
                }
            }
            wanted = wanted.saturating_sub(transaction.len);
            if wanted == 0 {
                return;
            }
        }
    }

    /// Writes the superblock with the log beginning at `start`, at the first transaction that is
    /// not at home.
    ///
    /// The commit point of giving room in the log back.
    pub(super) fn write_tail(
        &mut self,
        store: &mut Store,
        volume: VolumeId,
        now: Duration,
        start: u32,
    ) -> PatchId {
        let first = self.log.get(self.at_home).map_or(self.number, |t| t.number);
        let sequence = self.sequence(first);
        self.superblock.set_tail(start, sequence);
        let block = superblock_block(&self.superblock);
        let place = self.map.block(self.map.superblock());
        let place = place.expect("the superblock is in the journal");
        store.initialise(
            volume,
            place,
            BlockClass::Journal,
            &block,
            (&[]).into(),
            now,
        )
    }
}
