//! The mechanism: turns a layout's patches into records of operations.
//!
//! # How it works
//!
//! Everything that the layout changes goes into the *running* group. Each of its patches depends on
//! the group's *hold*, an empty patch that nobody releases yet, and on nothing else. What an
//! operation changed is noted byte by byte; when the next one begins, it becomes a record in memory.
//!
//! When the group is closed, between two operations, its records go into the log:
//!
//! ```text
//!   the records of G ──┐
//!   hold of G-1 ───────┼─▶ hold of G ─▶ what G changed, at home ─▶ the log's start moves past G
//!                      ┘     (what is written before ─▶ what is written after)
//! ```
//!
//! The records have checksums, so they may reach the disk in any order: a group of which something
//! is missing does not count, nor do those behind it. There is no commit record to wait for, and
//! one flush makes a group durable. The hold is the layout's name for everything in the group.
//!
//! The start moves past G once each block that G changed is at home with these changes. A later
//! group's record of the block does not make up for them, for it has other bytes of it: a block that
//! each group changes must come home now and then (the paper's forced checkpoint). So, unlike a
//! journal's original, a block that a later group changes need not leave the patch that it shares
//! with others of G: the start waits for this block, and by that for all of them.
//!
//! # Freed blocks
//!
//! As under a journal, what the layout puts off until something is stable it does at the group's end.
//! A record lists the freed blocks of which the log has bytes, so that recovery does not bring these
//! over what the block holds next. Contents written into a block that a group freed wait for its
//! hold.
//!
//! # Contents
//!
//! Contents are not logged and not waited for: a new file may show what its blocks held before.
//! Exceptions go into the log: contents that the layout orders after a change of the running group
//! (the end of a last block, zeroed once the size hides it), contents of a block of which the log
//! has bytes, and contents that are written under a patchgroup.

mod home;
mod kind;
mod log;

use std::sync::Arc;
use std::time::Duration;

use backstitch_ordering::{
    Awaited, BlockClass, Change, Decision, Log, LogRules, Mechanism, MechanismKind, Operation,
    PatchId, PatchSpec, Transactions,
};
use backstitch_store::Store;

use crate::pen::Pen;
use crate::place::LogMap;
use crate::record::{About, Changes};
use crate::rules::{Rule, holds};

pub use kind::{Setup, Variant};

/// The part of the running group that only this log has: its records.
#[derive(Debug, Default)]
struct OwnRunning {
    /// The changes of operations that are over.
    records: Vec<Vec<u8>>,
    /// Their length.
    record_bytes: u64,
}

/// The operation under way.
#[derive(Debug, Default)]
struct Current {
    about: About,
    changes: Changes,
    /// The operation after it, which has begun and changed nothing yet.
    next: Option<About>,
    /// The blocks that the next operation has freed.
    freed_by_next: Vec<(u64, bool)>,
    /// Whether the operation under way has changed something that its caller waits for.
    awaited: Awaited,
}

/// The part that only this log has of a group that is in the log, or on its way there.
#[derive(Debug)]
struct OwnClosed {
    /// Where its records begin and end.
    start: u64,
    end: u64,
    /// The length of the last one.
    last_bytes: u64,
}

/// This log's names of the rules that all logs have. A transaction of the shared part is a group of
/// operations here.
static RULES: LogRules = LogRules {
    hold_after_earlier_hold: Rule::GroupAfterEarlierGroup.id(),
    after_other_volumes: Rule::RecordsAfterOtherVolumes.id(),
    parts_of_groups_count: None,
    contents_after_closed: Rule::ContentsAfterClosedGroup.id(),
    reuse_after_freeing: Rule::ReuseAfterFreeingGroup.id(),
    freed_count_as_logged: None,
    at_home_only_if_committed: Rule::AtHomeOnlyIfLogged.id(),
    room_is_free_once_tail_moved: Rule::RoomIsFreeOnceStartMoved.id(),
};

/// Counts since the mount, for statistics.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    records: u64,
    groups: u64,
    log_bytes: u64,
    wraps: u64,
    checkpoints: u64,
    forced: u64,
    stalls: u64,
}

/// A log of operations of the volume that it is for. See the module's documentation.
pub struct LffsMechanism {
    variant: Variant,
    map: Arc<LogMap>,
    is_inside: bool,
    pen: Pen,
    /// The groups.
    transactions: Transactions<OwnRunning, OwnClosed>,
    current: Current,
    /// The superblock that was written last.
    superblock: PatchId,
    /// The start that is on the disk.
    start: u64,
    counted: Counted,
    /// The time now, and the time of the last checkpoint.
    now: Duration,
    last_checkpoint: Duration,
}

impl LffsMechanism {
    /// The mechanism for an empty log.
    pub fn new(setup: Setup, variant: Variant) -> LffsMechanism {
        let Setup {
            pen,
            map,
            is_inside,
        } = setup;
        LffsMechanism {
            variant,
            map,
            is_inside,
            transactions: Transactions::new(&RULES),
            current: Current::default(),
            superblock: PatchId::COMMITTED,
            start: pen.head,
            counted: Counted::default(),
            now: Duration::ZERO,
            last_checkpoint: Duration::ZERO,
            pen,
        }
    }

    /// Ends the operation before: its changes become a record, with the bytes that the blocks have
    /// now.
    fn end_record(&mut self, store: &Store) {
        let Current {
            about,
            changes,
            next,
            freed_by_next,
            ..
        } = &mut self.current;
        if !changes.is_empty() {
            let volume = self.transactions.volume;
            let lens = (self.map.block_bytes(), self.pen.longest_bytes());
            let records = &mut self.transactions.running.own.records;
            let before = records.len();
            let bytes = |block| store.peek(volume, block).map(|bytes| &bytes[..]);
            changes.encode(about, lens, bytes, records);
            self.counted.records += (records.len() - before) as u64;
            let lens = records[before..].iter().map(Vec::len);
            self.transactions.running.own.record_bytes += self.pen.records_bytes(lens);
        }
        if let Some(next) = next.take() {
            *about = next;
        }
        for (block, is_listed) in freed_by_next.drain(..) {
            changes.note_freed(block, is_listed);
        }
    }

    /// Whether a change goes into the log.
    fn takes(&self, spec: &PatchSpec<'_>, dependencies: &[PatchId]) -> bool {
        let on_running = |d: &PatchId| Some(*d) == self.transactions.running.hold;
        spec.kind.class != BlockClass::Data
            || (spec.is_grouped && holds(Rule::PatchgroupsThroughLog))
            || (self.transactions.is_logged(spec.block) && holds(Rule::RecordedContentsThroughLog))
            || (dependencies.iter().any(on_running) && holds(Rule::FollowingContentsThroughLog))
    }
}

impl Mechanism for LffsMechanism {
    fn kind(&self) -> &'static dyn MechanismKind {
        self.variant.kind()
    }

    fn begin(&mut self, operation: Operation<'_>) {
        if self.transactions.is_through {
            let current = &mut self.current;
            current.next = Some(About::of(&operation));
            current.awaited.begin(&operation);
        }
    }

    fn transform(
        &mut self,
        store: &mut Store,
        spec: &PatchSpec<'_>,
        dependencies: &mut Vec<PatchId>,
    ) -> Decision {
        if !self.transactions.is_through {
            return Decision::IN_PLACE;
        }
        if !self.takes(spec, dependencies) {
            self.transactions
                .wait_past_log(store, spec.block, dependencies);
            return Decision::IN_PLACE;
        }
        if self.current.next.is_some() {
            self.end_record(store);
        }
        let known_by = self.transactions.known_by(store, dependencies);
        dependencies.clear();
        let hold = self.transactions.hold(store);
        if holds(Rule::HomeAfterRecords) {
            dependencies.push(hold);
        }
        Decision {
            is_logged: true,
            is_apart: false,
            known_by: Some(known_by),
        }
    }

    fn run(
        &mut self,
        store: &Store,
        decision: &Decision,
        offered: Option<PatchId>,
        dependencies: &[PatchId],
    ) -> Option<PatchId> {
        match (self.transactions.is_through, decision.is_logged) {
            (false, _) => None,
            (true, true) => self.transactions.run_of_changes(store, dependencies),
            (true, false) => offered.filter(|_| dependencies.len() <= 1),
        }
    }

    fn created(&mut self, _store: &Store, spec: &PatchSpec<'_>, decision: &Decision, id: PatchId) {
        if !self.transactions.is_through || !decision.is_logged {
            return;
        }
        let is_first = self.transactions.note_created(spec.block, id);
        if !is_first || holds(Rule::RecordsAreWhole) {
            let (start, len) = match spec.change {
                Change::Bytes {
                    offset_bytes,
                    bytes,
                } => (offset_bytes, bytes.len() as u32),
                Change::Flip { offset_bytes, .. } => (offset_bytes, size_of::<u32>() as u32),
            };
            self.current.changes.note(spec.block, start..start + len);
        }
        self.current.awaited.created(spec, decision);
    }

    fn end(&mut self, wait_for: &mut Vec<PatchId>) {
        let is_awaited = self.current.awaited.take();
        if self.variant.is_sync() && is_awaited && holds(Rule::AnswersOnceLogged) {
            wait_for.extend(self.transactions.running.hold);
        }
    }

    fn forget(&mut self, block: u64) -> bool {
        if !self.transactions.is_through {
            return true;
        }
        let (was_running, was_logged) = self.transactions.note_freed(block);
        let is_listed = was_running || was_logged || self.transactions.running.has_logged(block);
        let is_listed = is_listed && holds(Rule::FreedAreListed);
        match self.current.next {
            Some(_) => self.current.freed_by_next.push((block, is_listed)),
            None => self.current.changes.note_freed(block, is_listed),
        }
        true
    }

    fn watch(&mut self, token: u64) -> bool {
        self.transactions.watch(token)
    }

    fn take_fired(&mut self, into: &mut Vec<u64>) {
        self.transactions.take_fired(into);
    }

    fn room(&self) -> usize {
        match self.transactions.is_through {
            false => usize::MAX,
            true => self.blocks_left(),
        }
    }

    fn expect(&mut self, block: u64) {
        self.transactions.expect(block);
    }

    fn tick(&mut self, _: &mut Store, now: Duration, _hurry: bool, _issue: &mut Vec<PatchId>) {
        self.now = now;
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let counted = &self.counted;
        vec![
            ("log_records", counted.records),
            ("log_groups", counted.groups),
            ("log_bytes", counted.log_bytes),
            ("log_wraps", counted.wraps),
            ("log_checkpoints", counted.checkpoints),
            ("log_forced_checkpoints", counted.forced),
            ("log_stalls", counted.stalls),
        ]
    }

    fn log(&mut self) -> Option<&mut dyn Log> {
        Some(self)
    }
}
