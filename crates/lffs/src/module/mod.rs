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
//! each group changes must come home now and then (the paper's forced checkpoint).
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
//! Contents are not logged and not waited for: a new file may show what its blocks held before. But
//! those go into the log that the layout orders after a change of the running group (the end of a
//! last block, zeroed once the size hides it), those of a block of which the log has bytes, and
//! those that are written under a patchgroup.

mod home;
mod kind;
mod log;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use backstitch_ordering::{
    Awaited, BlockClass, Change, Decision, GATHER_TIME, Log, Mechanism, MechanismKind, Operation,
    PatchId, PatchSpec, VolumeId,
};
use backstitch_store::Store;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::pen::Pen;
use crate::place::LogMap;
use crate::record::{About, Changes};
use crate::rules::{Rule, holds, wait_for_now};

pub use kind::{Setup, Variant};

/// Whether changes go through the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Before it is started, and after it was stopped.
    Past,
    Through,
}

/// The group that operations add to.
#[derive(Debug, Default)]
struct Running {
    /// Made with the first change.
    hold: Option<PatchId>,
    /// Patches of other volumes that the records wait for: patchgroups have them come after them.
    after: Vec<PatchId>,
    /// What the group is known to come after: these, and tails of patchgroups that were taken apart
    /// because the rest of them is in it.
    others: FxHashSet<PatchId>,
    /// The blocks changed, each with its patch.
    blocks: FxHashMap<u64, PatchId>,
    /// Blocks that what was put off until its end will change.
    expected: FxHashSet<u64>,
    /// What operations changed that are over.
    records: Vec<Vec<u8>>,
    /// Their length.
    record_bytes: u64,
    /// The run of what is changed of blocks that nothing else was pending on.
    changed: Option<PatchId>,
    /// The patch made last, which may be that run.
    newest: Option<PatchId>,
    freed: Vec<u64>,
    /// Those of them that were among `blocks`: what is still pending on them may wait for the hold.
    freed_logged: FxHashSet<u64>,
}

impl Running {
    /// Whether a change of the block went through the log, though the block may have been freed
    /// since.
    fn has_logged(&self, block: u64) -> bool {
        self.blocks.contains_key(&block) || self.freed_logged.contains(&block)
    }
}

/// The operation under way.
#[derive(Debug, Default)]
struct Current {
    about: About,
    changes: Changes,
    /// The operation after it, which has begun and changed nothing yet.
    next: Option<About>,
    /// What that one has freed.
    freed_by_next: Vec<(u64, bool)>,
    /// Whether it has changed what its caller waits for.
    awaited: Awaited,
}

/// A group that is in the log, or on its way there.
#[derive(Debug)]
struct Closed {
    number: u64,
    hold: PatchId,
    /// Its records, from where to where.
    start: u64,
    end: u64,
    /// The length of the last one.
    last_bytes: u64,
    blocks: Vec<u64>,
    freed: Vec<u64>,
    /// The blocks from here on are at home.
    left: usize,
}

/// What is known of a block of which the log has bytes.
#[derive(Clone, Copy, Debug)]
struct Logged {
    /// The last group that changed it.
    number: u64,
    /// Its patch.
    original: PatchId,
    /// Freed by this group since.
    freed_by: Option<u64>,
}

/// What it has counted.
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
    stage: Stage,
    /// The volume that it is for, once it is started.
    volume: VolumeId,
    current: Current,
    running: Running,
    /// The running group's number.
    number: u64,
    is_closing: bool,
    tokens: Vec<u64>,
    /// From the start that is on the disk on.
    log: VecDeque<Closed>,
    /// How many of them, from the first on, are in the log for good, and how many are at home.
    committed: usize,
    at_home: usize,
    /// The superblock on its way to the disk, and how many groups it moves the start past.
    tail: Option<(PatchId, usize)>,
    /// The superblock that was written last.
    superblock: PatchId,
    /// The start that is on the disk.
    start: u64,
    logged: FxHashMap<u64, Logged>,
    /// Blocks freed by groups that are not in the log: by which, and its hold.
    freed: FxHashMap<u64, (u64, PatchId)>,
    last: PatchId,
    /// The last empty patch that the layout was told of for that, and what it depends on.
    known: (Vec<PatchId>, PatchId),
    counted: Counted,
    /// The time, and that of the last checkpoint.
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
            stage: Stage::Past,
            volume: VolumeId(0),
            current: Current::default(),
            running: Running::default(),
            number: 0,
            is_closing: false,
            tokens: Vec::new(),
            log: VecDeque::new(),
            committed: 0,
            at_home: 0,
            tail: None,
            superblock: PatchId::COMMITTED,
            start: pen.head,
            logged: FxHashMap::default(),
            freed: FxHashMap::default(),
            last: PatchId::COMMITTED,
            known: (Vec::new(), PatchId::COMMITTED),
            counted: Counted::default(),
            now: Duration::ZERO,
            last_checkpoint: Duration::ZERO,
            pen,
        }
    }

    /// The running group's hold. It waits for the one before it from the start, so that the graph
    /// sees that what depends on it depends on everything that comes before its records.
    fn hold(&mut self, store: &mut Store) -> PatchId {
        let Running { hold, after, .. } = &mut self.running;
        let last = self.last;
        *hold.get_or_insert_with(|| {
            let last = wait_for_now(store.graph(), Rule::GroupAfterEarlierGroup, last);
            let before: Vec<PatchId> = after.iter().copied().chain([last]).collect();
            store.graph_mut().create_transaction(&before)
        })
    }

    /// The operation before is over: what it changed becomes a record, as the blocks are now.
    fn end_record(&mut self, store: &Store) {
        let Current {
            about,
            changes,
            next,
            freed_by_next,
            ..
        } = &mut self.current;
        if !changes.is_empty() {
            let volume = self.volume;
            let lens = (self.map.block_bytes(), self.pen.longest_bytes());
            let records = &mut self.running.records;
            let before = records.len();
            let bytes = |block| store.peek(volume, block).map(|bytes| &bytes[..]);
            changes.encode(about, lens, bytes, records);
            self.counted.records += (records.len() - before) as u64;
            let lens = records[before..].iter().map(Vec::len);
            self.running.record_bytes += self.pen.records_bytes(lens);
        }
        if let Some(next) = next.take() {
            *about = next;
        }
        for (block, is_listed) in freed_by_next.drain(..) {
            changes.note_freed(block, is_listed);
        }
    }

    /// Whether the log has bytes of the block that recovery might bring home, or will.
    fn is_logged(&self, block: u64) -> bool {
        self.running.has_logged(block)
            || self
                .logged
                .get(&block)
                .is_some_and(|l| l.freed_by.is_none())
    }

    /// What the layout is told of a patch in the running group that it orders after these: the hold.
    /// Contents may come after the records: what waits for the patch must wait for those among these
    /// too.
    fn known_by(&mut self, store: &mut Store, dependencies: &[PatchId]) -> PatchId {
        let hold = self.hold(store);
        let is_hold = |id: &PatchId| *id == hold || self.log.iter().any(|t| t.hold == *id);
        // What is known of a file's last change comes after the contents before it: they are waited
        // for as what they are.
        let (known, by) = &self.known;
        let is_known = dependencies.contains(by);
        let mut of: Vec<PatchId> = (dependencies.iter().filter(|d| *d != by))
            .chain(known.iter().filter(|_| is_known))
            .copied()
            .filter(|d| store.graph().is_live(*d) && !is_hold(d))
            .collect();
        of.sort_unstable();
        of.dedup();
        if of.is_empty() {
            return hold;
        }
        of.push(hold);
        // One change after the other comes after the contents of one file.
        if self.known.0 != of || !store.graph().is_live(self.known.1) {
            let known = store.graph_mut().create_empty(&of, None, false);
            self.known = (of, known);
        }
        self.known.1
    }

    /// Whether a change goes into the log.
    fn takes(&self, spec: &PatchSpec<'_>, dependencies: &[PatchId]) -> bool {
        let on_running = |d: &PatchId| Some(*d) == self.running.hold;
        spec.kind.class != BlockClass::Data
            || (spec.is_grouped && holds(Rule::PatchgroupsThroughLog))
            || (self.is_logged(spec.block) && holds(Rule::RecordedContentsThroughLog))
            || (dependencies.iter().any(on_running) && holds(Rule::FollowingContentsThroughLog))
    }
}

impl Mechanism for LffsMechanism {
    fn kind(&self) -> &'static dyn MechanismKind {
        self.variant.kind()
    }

    fn begin(&mut self, operation: Operation<'_>) {
        if self.stage == Stage::Through {
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
        if self.stage == Stage::Past {
            return Decision::IN_PLACE;
        }
        if !self.takes(spec, dependencies) {
            let closed = |id: &PatchId| self.log.iter().skip(self.committed).any(|t| t.hold == *id);
            dependencies.retain(closed);
            for id in dependencies.iter_mut() {
                *id = wait_for_now(store.graph(), Rule::ContentsAfterClosedGroup, *id);
            }
            if let Some((_, hold)) = self.freed.get(&spec.block) {
                dependencies.push(wait_for_now(
                    store.graph(),
                    Rule::ReuseAfterFreeingGroup,
                    *hold,
                ));
            }
            return Decision::IN_PLACE;
        }
        if self.current.next.is_some() {
            self.end_record(store);
        }
        let known_by = self.known_by(store, dependencies);
        dependencies.clear();
        self.part_from_run(store, spec.block);
        let hold = self.hold(store);
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
        match (self.stage, decision.is_logged) {
            (Stage::Past, _) => None,
            (Stage::Through, true) => self.run_of_changes(store, dependencies),
            (Stage::Through, false) => offered.filter(|_| dependencies.len() <= 1),
        }
    }

    fn created(&mut self, _store: &Store, spec: &PatchSpec<'_>, decision: &Decision, id: PatchId) {
        if self.stage == Stage::Past || !decision.is_logged {
            return;
        }
        self.running.newest = Some(id);
        let is_first = self.running.blocks.insert(spec.block, id).is_none();
        self.running.expected.remove(&spec.block);
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
            wait_for.extend(self.running.hold);
        }
    }

    fn gather_time(&self) -> Option<Duration> {
        self.variant.gathers().then_some(GATHER_TIME)
    }

    fn forget(&mut self, block: u64) -> bool {
        if self.stage == Stage::Past {
            return true;
        }
        let was_running = self.running.blocks.remove(&block).is_some();
        if was_running {
            self.running.freed_logged.insert(block);
        }
        self.running.freed.push(block);
        let logged = self.logged.get_mut(&block);
        let is_listed = was_running || self.running.has_logged(block) || logged.is_some();
        if let Some(logged) = logged {
            logged.freed_by = Some(self.number);
        }
        let is_listed = is_listed && holds(Rule::FreedAreListed);
        match self.current.next {
            Some(_) => self.current.freed_by_next.push((block, is_listed)),
            None => self.current.changes.note_freed(block, is_listed),
        }
        true
    }

    fn watch(&mut self, token: u64) -> bool {
        let takes = self.stage == Stage::Through;
        if takes {
            self.tokens.push(token);
        }
        takes
    }

    fn take_fired(&mut self, into: &mut Vec<u64>) {
        if self.is_closing {
            into.append(&mut self.tokens);
        }
    }

    fn room(&self) -> usize {
        match self.stage {
            Stage::Past => usize::MAX,
            Stage::Through => self.blocks_left(),
        }
    }

    fn expect(&mut self, block: u64) {
        if self.stage == Stage::Through && !self.running.blocks.contains_key(&block) {
            self.running.expected.insert(block);
        }
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
