//! What all logs of transactions have in common, whatever they write: which transaction is running,
//! which are closed, what of those is at home, and what comes after what.
//!
//! A log's own crate adds the bytes: what a transaction looks like in the log, how it is found
//! again, and when a block of it counts as at home. The rules of all this have names in that crate
//! too, so that each log's can be switched off; [`LogRules`] hands them over.
//!
//! The *hold* of a transaction is an empty patch that nobody releases while the transaction runs.
//! What the transaction changes depends on it, and the layout knows these changes by it.

use std::collections::VecDeque;

use backstitch_rules::{Id, holds};
use backstitch_store::{PatchId, PatchKind, Store, VolumeId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::rules::wait_for_now;

/// Tails of patchgroups that are taken apart for one change; a deeper nesting ends the transaction.
const MOST_TAKEN_APART: usize = 64;

/// Noted patches of other volumes, at which those on stable storage are dropped for the first time.
const FIRST_PRUNED_AT: usize = 32;

/// The names that a log's crate gives to the rules stated here.
#[derive(Clone, Copy, Debug)]
pub struct LogRules {
    /// A transaction's hold waits for the hold before it.
    pub hold_after_earlier_hold: Id,
    /// A transaction waits for what its patchgroups come after on other volumes.
    pub after_other_volumes: Id,
    /// A patchgroup may have changed something in the running transaction and elsewhere: what is
    /// elsewhere is waited for. `None`: the log has no name for it, and it holds.
    pub parts_of_groups_count: Option<Id>,
    /// Contents that come after a change of a closed transaction wait for its hold.
    pub contents_after_closed: Id,
    /// Contents in a block that a transaction freed wait for its hold.
    pub reuse_after_freeing: Id,
    /// A block that was changed and freed in one transaction counts as changed. `None`: the log has
    /// no name for it, and it holds.
    pub freed_count_as_logged: Option<Id>,
    /// Only a transaction that is in the log for good may be at home.
    pub at_home_only_if_committed: Id,
    /// Room is free once the tail on the disk has moved past it.
    pub room_is_free_once_tail_moved: Id,
}

/// Whether the rule holds; one without a name always does.
fn holds_if_named(rule: Option<Id>) -> bool {
    rule.is_none_or(holds)
}

/// The transaction that operations add to. `Own` is what only this log keeps of it.
#[derive(Debug, Default)]
pub struct Running<Own> {
    /// Made with the first change.
    pub hold: Option<PatchId>,
    /// Patches of other volumes that the transaction in the log waits for: patchgroups have it come
    /// after them.
    pub after: Vec<PatchId>,
    /// What the transaction is known to come after: these, and tails of patchgroups that were taken
    /// apart because the rest of them is in it.
    others: FxHashSet<PatchId>,
    prune_others_at: usize,
    /// The blocks changed, each with its patch.
    pub blocks: FxHashMap<u64, PatchId>,
    /// Blocks that what was put off until its end will change.
    pub expected: FxHashSet<u64>,
    /// The run of changes of blocks that nothing else was pending on.
    changed: Option<PatchId>,
    /// The patch made last, which may be that run.
    newest: Option<PatchId>,
    /// The blocks freed.
    pub freed: Vec<u64>,
    /// Those of them that were among `blocks`: what is still pending on them may wait for the hold.
    freed_logged: FxHashSet<u64>,
    /// What only this log keeps.
    pub own: Own,
}

impl<Own> Running<Own> {
    /// Whether a change of the block went through the log, though the block may have been freed
    /// since.
    pub fn has_logged(&self, block: u64) -> bool {
        self.blocks.contains_key(&block) || self.freed_logged.contains(&block)
    }

    /// Notes what the transaction comes after. The list grows by patches that are not yet on stable
    /// storage only: the others leave it whenever it has doubled.
    fn note_others(&mut self, store: &Store, others: Vec<PatchId>) {
        if self.others.len() + others.len() > self.prune_others_at.max(FIRST_PRUNED_AT) {
            self.others.retain(|id| store.graph().is_live(*id));
            self.after.retain(|id| store.graph().is_live(*id));
            self.prune_others_at = 2 * (self.others.len() + others.len());
        }
        self.others.extend(others);
    }
}

/// A transaction that is in the log, or on its way there. `Own` is what only this log keeps of it.
#[derive(Debug)]
pub struct Closed<Own> {
    /// Its number, from 0 on.
    pub number: u64,
    /// On stable storage once the transaction is in the log.
    pub hold: PatchId,
    /// The blocks changed, in ascending order.
    pub blocks: Vec<u64>,
    /// The blocks freed.
    freed: Vec<u64>,
    /// The first `left` of `blocks` must still come home.
    pub left: usize,
    /// What only this log keeps.
    pub own: Own,
}

/// What is known of a block that has bytes in the log.
#[derive(Clone, Copy, Debug)]
pub struct Logged {
    /// The last transaction that changed it.
    pub number: u64,
    /// The patch that brings it home.
    pub original: PatchId,
    /// Freed by this transaction since.
    pub freed_by: Option<u64>,
}

/// The transactions of one log. See the module's documentation.
///
/// `R` and `C` are what only this log keeps of the running transaction and of each closed one.
#[derive(Debug)]
pub struct Transactions<R, C> {
    rules: &'static LogRules,
    /// Changes go through the log; not so before it is started, and after it was stopped.
    pub is_through: bool,
    /// The volume that the log is for, once it is started.
    pub volume: VolumeId,
    /// The transaction that operations add to.
    pub running: Running<R>,
    /// Its number.
    pub number: u64,
    /// It is being closed: what was put off until its end is done now.
    pub is_closing: bool,
    tokens: Vec<u64>,
    /// The closed transactions, from the tail on the disk on.
    pub closed: VecDeque<Closed<C>>,
    /// How many of `closed`, from the first on, are in the log for good.
    pub committed: usize,
    /// How many of `closed`, from the first on, are at home.
    at_home: usize,
    /// The tail on its way to the disk, and how many transactions it moves past.
    tail: Option<(PatchId, usize)>,
    /// What is known of each block that has bytes in the log.
    pub logged: FxHashMap<u64, Logged>,
    /// Blocks freed by transactions that are not in the log for good: by which, and its hold.
    freed: FxHashMap<u64, (u64, PatchId)>,
    /// The hold of the transaction closed last.
    pub last: PatchId,
    /// The last empty patch that [`known_by`](Self::known_by) made, behind the patches that it
    /// stands for.
    known: (Vec<PatchId>, PatchId),
}

impl<R: Default, C> Transactions<R, C> {
    /// The state of an empty log that is not started.
    pub fn new(rules: &'static LogRules) -> Transactions<R, C> {
        Transactions {
            rules,
            is_through: false,
            volume: VolumeId(0),
            running: Running::default(),
            number: 0,
            is_closing: false,
            tokens: Vec::new(),
            closed: VecDeque::new(),
            committed: 0,
            at_home: 0,
            tail: None,
            logged: FxHashMap::default(),
            freed: FxHashMap::default(),
            last: PatchId::COMMITTED,
            known: (Vec::new(), PatchId::COMMITTED),
        }
    }

    /// From here on changes go through the log.
    pub fn start(&mut self, volume: VolumeId) {
        self.is_through = true;
        self.volume = volume;
    }

    /// From here on changes go past the log.
    pub fn stop(&mut self) {
        self.is_through = false;
        self.running.others = FxHashSet::default();
    }

    /// The running transaction's hold. It waits for the one before it from the start, so that the
    /// graph sees that what depends on it depends on everything the earlier ones wait for.
    pub fn hold(&mut self, store: &mut Store) -> PatchId {
        let Running { hold, after, .. } = &mut self.running;
        let (last, rule) = (self.last, self.rules.hold_after_earlier_hold);
        *hold.get_or_insert_with(|| {
            let last = wait_for_now(store.graph(), rule, last);
            let before: Vec<PatchId> = after.iter().copied().chain([last]).collect();
            store.graph_mut().create_transaction(&before)
        })
    }

    /// Whether the patch is the hold of a closed transaction.
    fn is_closed(&self, id: PatchId) -> bool {
        self.closed.iter().any(|t| t.hold == id)
    }

    fn is_hold(&self, id: PatchId) -> bool {
        self.running.hold == Some(id) || self.is_closed(id)
    }

    /// Whether the log has bytes of the block that recovery might bring home, or will.
    pub fn is_logged(&self, block: u64) -> bool {
        let is_in_log = |l: &Logged| l.freed_by.is_none();
        self.running.has_logged(block) || self.logged.get(&block).is_some_and(is_in_log)
    }

    /// Whether the running transaction has changed and freed nothing, and nothing waits for its end.
    pub fn is_clean(&self) -> bool {
        let running = &self.running;
        let has_changed = running.hold.is_some() || !running.blocks.is_empty();
        // Contents in a block that it freed wait for its end.
        !has_changed && running.freed.is_empty() && self.tokens.is_empty()
    }

    /// The patch by which the layout knows a change of the running transaction that it orders after
    /// `dependencies`: the hold. What waits for the change must also wait for those contents among
    /// `dependencies` that may reach the disk after the transaction; with such, an empty patch
    /// stands for them and the hold.
    pub fn known_by(&mut self, store: &mut Store, dependencies: &[PatchId]) -> PatchId {
        let hold = self.hold(store);
        // Where the empty patch that was made last is a dependency, the patches that it stands for
        // take its place.
        let (known, by) = &self.known;
        let is_known = dependencies.contains(by);
        let mut of: Vec<PatchId> = (dependencies.iter().filter(|d| *d != by))
            .chain(known.iter().filter(|_| is_known))
            .copied()
            .filter(|d| store.graph().is_live(*d) && !self.is_hold(*d))
            .collect();
        of.sort_unstable();
        of.dedup();
        if of.is_empty() {
            return hold;
        }
        of.push(hold);
        // One change after another depends on the same contents of a file: one empty patch does for
        // them.
        if self.known.0 != of || !store.graph().is_live(self.known.1) {
            let known = store.graph_mut().create_empty(&of, None, false);
            self.known = (of, known);
        }
        self.known.1
    }

    /// Leaves in `dependencies` what contents that go past the log must wait for: the holds of
    /// closed transactions that are not in the log for good. Adds the hold of the transaction that
    /// freed the block.
    pub fn wait_past_log(&self, store: &Store, block: u64, dependencies: &mut Vec<PatchId>) {
        dependencies.retain(|id| self.not_committed().any(|t| t.hold == *id));
        for id in dependencies.iter_mut() {
            *id = wait_for_now(store.graph(), self.rules.contents_after_closed, *id);
        }
        if let Some((_, hold)) = self.freed.get(&block) {
            let rule = self.rules.reuse_after_freeing;
            dependencies.push(wait_for_now(store.graph(), rule, *hold));
        }
    }

    /// Notes a patch of a change that goes through the log. Returns whether it is the running
    /// transaction's first one of the block.
    pub fn note_created(&mut self, block: u64, id: PatchId) -> bool {
        self.running.newest = Some(id);
        self.running.expected.remove(&block);
        self.running.blocks.insert(block, id).is_none()
    }

    /// Notes that a block was freed. Returns whether the running transaction had changed it, and
    /// whether an earlier one that is in the log had.
    pub fn note_freed(&mut self, block: u64) -> (bool, bool) {
        let was_running = self.running.blocks.remove(&block).is_some();
        if was_running && holds_if_named(self.rules.freed_count_as_logged) {
            self.running.freed_logged.insert(block);
        }
        self.running.freed.push(block);
        let logged = self.logged.get_mut(&block);
        let was_logged = logged.is_some();
        if let Some(logged) = logged {
            logged.freed_by = Some(self.number);
        }
        (was_running, was_logged)
    }

    /// See [`Mechanism::watch`](crate::Mechanism::watch).
    pub fn watch(&mut self, token: u64) -> bool {
        if self.is_through {
            self.tokens.push(token);
        }
        self.is_through
    }

    /// See [`Mechanism::take_fired`](crate::Mechanism::take_fired).
    pub fn take_fired(&mut self, into: &mut Vec<u64>) {
        if self.is_closing {
            into.append(&mut self.tokens);
        }
    }

    /// See [`Mechanism::expect`](crate::Mechanism::expect).
    pub fn expect(&mut self, block: u64) {
        if self.is_through && !self.running.blocks.contains_key(&block) {
            self.running.expected.insert(block);
        }
    }

    /// The run for a change that goes through the log. What a transaction changes waits for its hold
    /// and for nothing else, so it is one patch, as far as nothing older is pending on the blocks.
    pub fn run_of_changes(&mut self, store: &Store, dependencies: &[PatchId]) -> Option<PatchId> {
        let hold = self.running.hold?;
        if let Some(newest) = self.running.newest.take()
            && store.graph().is_run(newest)
        {
            self.running.changed = Some(newest);
        }
        let waits_for_hold = dependencies == [hold];
        waits_for_hold.then(|| self.running.changed.unwrap_or(PatchId::COMMITTED))
    }

    /// See [`Log::waits_for_running`](crate::Log::waits_for_running).
    pub fn waits_for_running(&self, store: &Store, id: PatchId) -> bool {
        self.running.hold.is_some() && is_empty(store, id) && !self.is_closed(id)
    }

    /// See [`Log::is_of`](crate::Log::is_of).
    pub fn is_of(&self, store: &Store, id: PatchId) -> bool {
        let stands_for_one = || {
            let of = store.graph().dependencies(id);
            is_empty(store, id) && of.into_iter().any(|(id, _)| self.is_hold(id))
        };
        !store.graph().is_live(id) || self.is_hold(id) || stands_for_one()
    }

    /// See [`Log::come_after`](crate::Log::come_after).
    pub fn come_after(&mut self, store: &mut Store, patches: &[PatchId]) -> bool {
        if !self.is_through || !holds(self.rules.after_other_volumes) {
            return true;
        }
        let mut left: Vec<PatchId> = patches.to_vec();
        let mut seen = Vec::new();
        let mut taken_apart = 0;
        while let Some(id) = left.pop() {
            let is_noted = self.is_hold(id) || self.running.others.contains(&id);
            if is_noted || !store.graph().is_live(id) {
                continue;
            }
            let hold = self.running.hold;
            match hold.map(|hold| store.graph_mut().add_dependency(hold, id)) {
                // The tail of a group that changed something in this very transaction, and
                // elsewhere: the latter is what counts.
                Some(Err(_)) if is_empty(store, id) && taken_apart < MOST_TAKEN_APART => {
                    // Only one volume of a stack may have a log. It would not do to come after what
                    // the hold of another log's running transaction depends on now: the hold may be
                    // given more.
                    debug_assert!(!store.graph().is_held(id), "the hold of another log");
                    taken_apart += 1;
                    let of = store.graph().dependencies(id);
                    if holds_if_named(self.rules.parts_of_groups_count) {
                        left.extend(of.into_iter().map(|d| d.0));
                    }
                }
                Some(Err(_)) => return false,
                _ => self.running.after.push(id),
            }
            seen.push(id);
        }
        // Noted only now: after a "no" the same patches must give the same answer again.
        self.running.note_others(store, seen);
        true
    }

    /// The running transaction was written into the log, and the next one begins.
    pub fn note_closed(&mut self, running: Running<R>, hold: PatchId, own: C) {
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
        self.closed.push_back(Closed {
            number,
            hold,
            left: blocks.len(),
            blocks,
            freed: running.freed,
            own,
        });
        self.number += 1;
        self.last = hold;
    }

    /// The next transaction that is in the log for good and was not known to be: what it freed may
    /// be used. Called until it returns `None`.
    pub fn next_committed(&mut self, store: &Store) -> Option<&mut Closed<C>> {
        let next = self.closed.get_mut(self.committed)?;
        if store.graph().is_live(next.hold) && holds(self.rules.at_home_only_if_committed) {
            return None;
        }
        for block in std::mem::take(&mut next.freed) {
            if self.freed.get(&block).is_some_and(|f| f.0 == next.number) {
                self.freed.remove(&block);
            }
        }
        self.committed += 1;
        Some(next)
    }

    /// Takes the transactions that the tail has moved past, once the tail is on the disk. Their
    /// room is free.
    pub fn take_moved_past(&mut self, store: &Store) -> Vec<Closed<C>> {
        let Some((id, past)) = self.tail else {
            return Vec::new();
        };
        if store.graph().is_live(id) && holds(self.rules.room_is_free_once_tail_moved) {
            return Vec::new();
        }
        self.tail = None;
        let gone: Vec<Closed<C>> = self.closed.drain(..past).collect();
        for gone in &gone {
            for block in &gone.blocks {
                let logged = self.logged.get(block);
                if logged.is_some_and(|l| l.number == gone.number) {
                    self.logged.remove(block);
                }
            }
        }
        self.committed -= past;
        self.at_home -= past;
        gone
    }

    /// Counts the transactions that are at home. `is_home`: whether what the log has of a block in
    /// such a transaction, which is in the log for good, is not needed any more.
    pub fn count_home(&mut self, is_home: impl Fn(&Self, &Closed<C>, u64, &Logged) -> bool) {
        while self.at_home < self.committed {
            let closed = &self.closed[self.at_home];
            let is_home = |block: &u64| {
                let logged = self.logged.get(block);
                logged.is_none_or(|logged| is_home(self, closed, *block, logged))
            };
            let mut left = closed.left;
            while left > 0 && is_home(&closed.blocks[left - 1]) {
                left -= 1;
            }
            self.closed[self.at_home].left = left;
            if left > 0 {
                return;
            }
            self.at_home += 1;
        }
    }

    /// The closed transactions that are not known to be in the log for good.
    pub fn not_committed(&self) -> impl Iterator<Item = &Closed<C>> {
        self.closed.iter().skip(self.committed)
    }

    /// The closed transactions that are not known to be at home.
    pub fn not_at_home(&self) -> impl Iterator<Item = &Closed<C>> {
        self.closed.iter().skip(self.at_home)
    }

    /// Whether the transaction with this number is in the log for good.
    pub fn is_committed(&self, number: u64) -> bool {
        let first_pending = self.closed.get(self.committed);
        first_pending.is_none_or(|t| number < t.number) && number < self.number
    }

    /// Whether moving the tail now frees more than the move that is on its way.
    pub fn can_move_tail(&self) -> bool {
        match self.tail {
            Some((_, past)) => past != self.at_home,
            None => self.at_home > 0,
        }
    }

    /// The patch that moves the tail, while it is on its way to the disk.
    pub fn tail_on_its_way(&self) -> Option<PatchId> {
        self.tail.map(|(id, _)| id)
    }

    /// The patch moves the tail past everything that is at home.
    pub fn note_tail(&mut self, id: PatchId) {
        self.tail = Some((id, self.at_home));
    }

    /// Whether every closed transaction is at home.
    pub fn is_all_at_home(&self) -> bool {
        self.at_home == self.closed.len()
    }

    /// The closed transaction with this number, where the tail has not moved past it.
    pub fn find_closed(&self, number: u64) -> Option<&Closed<C>> {
        self.closed.iter().find(|t| t.number == number)
    }

    /// Drops from what keeps the tail in place all that is on stable storage. If nothing is left,
    /// adds the holds that are not: a caller that waits for room must not be told that there is
    /// nothing to wait for while a transaction is on its way.
    pub fn retain_pending(&self, store: &Store, into: &mut Vec<PatchId>) {
        into.retain(|id| store.graph().is_live(*id));
        if into.is_empty() {
            let holds = self.closed.iter().map(|t| t.hold);
            into.extend(holds.filter(|hold| store.graph().is_live(*hold)));
        }
    }
}

/// Whether the patch is an empty one. Of these only holds are held, so any other stands for just
/// what it depends on.
fn is_empty(store: &Store, id: PatchId) -> bool {
    store.graph().info(id).map(|i| i.kind) == Some(PatchKind::Empty)
}
