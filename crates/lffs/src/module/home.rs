//! Which groups of the log are at home, and moving the log's start past them.

use std::time::Duration;

use backstitch_ordering::{BlockClass, Logged, PatchId, Transactions, VolumeId};
use backstitch_store::Store;

use super::{LffsMechanism, OwnClosed, OwnRunning};
use crate::rules::{Rule, holds};

impl LffsMechanism {
    /// Brings up to date which groups are stable in the log, which are at home, and which are
    /// before the start.
    pub(super) fn look_at_home(&mut self, store: &Store) {
        while self.transactions.next_committed(store).is_some() {}
        if let Some(gone) = self.transactions.take_moved_past(store).last() {
            self.start = gone.own.end;
        }
        self.transactions
            .count_home(|groups, group, block, logged| {
                is_home(groups, store, group.number, (block, logged))
            });
    }

    /// The patches that must be on stable storage before about half of the log is free.
    pub(super) fn what_keeps_the_start(&self, into: &mut Vec<PatchId>) {
        let mut wanted = self.used() / 2;
        let mut is_back = false;
        for group in self.transactions.not_at_home() {
            into.push(group.hold);
            for block in &group.blocks[..group.left] {
                let Some(logged) = self.transactions.logged.get(block) else {
                    continue;
                };
                if let Some(by) = logged.freed_by {
                    if let Some(later) = self.transactions.find_closed(by) {
                        into.push(later.hold);
                    }
                    is_back |= by == self.transactions.number;
                    continue;
                }
                // A block that the running group has changed, too, stays back until that is in the
                // log.
                is_back |= self.transactions.running.blocks.contains_key(block);
                // Most blocks are of one run, and share a patch.
                if into.last() != Some(&logged.original) {
                    into.push(logged.original);
                }
            }
            wanted = wanted.saturating_sub(group.own.end - group.own.start);
            if wanted == 0 {
                break;
            }
        }
        // A running group that is being closed is not waited for: it waits for room itself.
        if is_back && !self.transactions.is_closing {
            into.extend(self.transactions.running.hold);
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
        let groups = &self.transactions;
        let start = groups.not_at_home().next().map_or(head, |t| t.own.start);
        let committed = match holds(Rule::EndIsLogged) {
            true => groups.committed,
            false => groups.closed.len(),
        };
        let end = groups.closed.get(committed).map_or(head, |t| t.own.start);
        let last = committed
            .checked_sub(1)
            .and_then(|at| groups.closed.get(at));
        let last_bytes = last.filter(|_| end > start).map_or(0, |t| t.own.last_bytes);
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
}

/// Whether the records of a block in the group with this number, which is in the log, are no longer
/// needed.
fn is_home(
    groups: &Transactions<OwnRunning, OwnClosed>,
    store: &Store,
    number: u64,
    (block, logged): (u64, &Logged),
) -> bool {
    if !holds(Rule::StartAfterHomes) {
        return true;
    }
    if logged.number > number && !holds(Rule::StartAfterLaterGroup) {
        return true;
    }
    match logged.freed_by {
        Some(by) => groups.is_committed(by) || !holds(Rule::StartAfterFreeingGroup),
        None => {
            // A change of the running group may have been merged with the group's own patch.
            let running = groups.running.blocks.get(&block);
            !store.graph().is_live(logged.original) && running != Some(&logged.original)
        }
    }
}
