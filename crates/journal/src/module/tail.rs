//! Which transactions are at home, and moving the tail past them.

use std::time::Duration;

use backstitch_ordering::{BlockClass, Logged, PatchId, Transactions, VolumeId};
use backstitch_store::Store;
use rustc_hash::FxHashSet;

use super::{JournalMechanism, OwnClosed, OwnRunning, superblock_block};
use crate::rules::{Rule, holds};

impl JournalMechanism {
    /// Brings up to date what is committed, what is at home, and what is behind the tail.
    pub(super) fn look_at_home(&mut self, store: &Store) {
        while let Some(committed) = self.transactions.next_committed(store) {
            for block in std::mem::take(&mut committed.own.awaited) {
                if self.awaited.get(&block) == Some(&committed.number) {
                    self.awaited.remove(&block);
                }
            }
            committed.own.runs = FxHashSet::default();
        }
        let gone = self.transactions.take_moved_past(store);
        self.used -= gone.iter().map(|gone| gone.own.len).sum::<u32>();
        self.transactions
            .count_home(|transactions, closed, _, logged| {
                is_home(transactions, store, closed.number, logged)
            });
    }

    /// The patches that must be on stable storage before about half of the log is free.
    pub(super) fn what_keeps_the_tail(&self, into: &mut Vec<PatchId>) {
        let mut wanted = self.used / 2;
        for transaction in self.transactions.not_at_home() {
            into.push(transaction.hold);
            for block in &transaction.blocks[..transaction.left] {
                let Some(logged) = self.transactions.logged.get(block) else {
                    continue;
                };
                // A block that the running transaction has changed, too, stays back until that is
                // committed.
                let is_back = self.transactions.running.blocks.contains_key(block);
                if logged.number == transaction.number && logged.freed_by.is_none() && !is_back {
                    // Most blocks are of one run, and share a patch.
                    if into.last() != Some(&logged.original) {
                        into.push(logged.original);
                    }
                    continue;
                }
                let by = match logged.freed_by {
                    Some(by) if logged.number == transaction.number => by,
                    _ => logged.number,
                };
                if let Some(later) = self.transactions.find_closed(by) {
                    into.push(later.hold);
                }
            }
            wanted = wanted.saturating_sub(transaction.own.len);
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
        let first = self
            .transactions
            .not_at_home()
            .next()
            .map_or(self.transactions.number, |t| t.number);
        let sequence = self.sequence(first);
        self.superblock.set_tail(start, sequence);
        let block = superblock_block(&self.superblock);
        let place = self.map.block(self.map.superblock());
        let place = place.expect("the superblock is in the journal");
        store.initialise(
            volume,
            place.0,
            BlockClass::Journal,
            &block,
            (&[]).into(),
            now,
        )
    }
}

/// Whether the copy of a block in the transaction with this number, which is committed, is no
/// longer needed.
fn is_home(
    transactions: &Transactions<OwnRunning, OwnClosed>,
    store: &Store,
    number: u64,
    logged: &Logged,
) -> bool {
    if !holds(Rule::TailAfterOriginals) {
        return true;
    }
    if logged.number > number {
        return transactions.is_committed(logged.number) || !holds(Rule::TailAfterLaterCommit);
    }
    match logged.freed_by {
        Some(by) => transactions.is_committed(by) || !holds(Rule::TailAfterFreeingCommit),
        None => !store.graph().is_live(logged.original),
    }
}
