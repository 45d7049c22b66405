//! The journal as a mechanism: turns a layout's patches into transactions.
//!
//! # How it works (Frost et al., SOSP 2007, §5.1)
//!
//! Everything that the layout changes goes into the *running* transaction T. Each of its patches
//! depends on T's *hold*, an empty patch that nobody releases yet, and on nothing else: what the
//! layout states about the order inside T does not matter, for T is there as a whole or not at all.
//! So the blocks stay in memory, and their patches merge into one per block that needs no undo
//! data.
//!
//! When T is closed, between two operations:
//!
//! ```text
//!   contents (ordered) ──┐
//!   copies, descriptors ─┼──▶ commit record of T ──▶ hold of T ──▶ originals of T ──▶ the journal's tail moves past T
//!   hold of T-1 ─────────┘          (what is written before ──▶ what is written after)
//! ```
//!
//! *Copies* are the blocks' bytes at that moment, shared with the cache until somebody changes
//! them. The commit record waits for all of them, and for the transaction before it, so commit
//! records reach the disk in sequence. The hold waits for the commit record, and is the layout's
//! name for everything in T: what the layout is told of a patch is T's hold, so *stable* means
//! committed for all who ask.
//!
//! A block that T+1 changes before its version of T is home stays back until T+1 commits. So the
//! tail moves past T once each block of T is at home *or* in a later transaction that is committed.
//!
//! # Freed blocks
//!
//! What the layout frees once something is stable it frees at T's end instead
//! ([`Log::begin_close`]), in T itself: nothing leaks, and nothing is reused inside T. A freed
//! block that is in the log is *revoked* in T, so that no older copy comes home over what the block
//! holds next; logging it again in T takes the revocation back. (Under `full` what it holds next is in
//! the log too, and nothing is revoked.) Contents written into a block that an uncommitted T freed
//! wait for T's hold.
//!
//! # Patchgroups over several volumes
//!
//! Where the volume is one of a stack, a change may be made under a patchgroup that comes after
//! changes of a volume without a log. Then T's commit record waits for those ([`Log::come_after`]),
//! and so does its hold from then on, so that the graph sees a circle before it is one: where what
//! T is to wait for waits for T itself, because the same programs went from here to the other
//! volume before, T is closed and the change goes into the next transaction. Of the tail of a group
//! that changed something in T and something elsewhere, T waits for the latter only.
//!
//! # Contents that are journaled all the same
//!
//! Contents that the layout orders after a change of T itself (the end of a last block, zeroed once
//! the size hides it) go into T. (After a change of an earlier transaction that is closed, as between
//! two steps of a long truncation, they wait for that one's hold.) And what is written into a block
//! of which a copy is in the log must go into the log too: a replay would bring the older copy home
//! over it. And so must what is written under a patchgroup (§5.1), or a later transaction could be
//! there before it; but for contents that nothing leads to yet, under `ordered`: those are there
//! before the transaction that makes them show.

mod kind;
mod log;
mod runs;
mod tail;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use backstitch_ordering::{
    BlockClass, Decision, Log, Mechanism, MechanismKind, PatchId, PatchSpec, VolumeId,
};
use backstitch_store::Store;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::format::features::INCOMPAT_REVOKE;
use crate::format::superblock::SUPERBLOCK_BYTES;
use crate::format::{Features, Superblock};
use crate::rules::{Rule, holds, implied, wait_for_now};
use backstitch_layout::JournalMap;

pub use kind::JournalMode;

/// Where a mechanism's journal is.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its superblock; the log is empty.
    pub superblock: Superblock,
    /// Where its blocks are: in blocks of the volume.
    pub map: Arc<JournalMap>,
}

/// Whether changes go through the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Before it is started, and after it was stopped.
    Past,
    Through,
}

/// The transaction that operations add to.
#[derive(Debug, Default)]
struct Running {
    /// Made with the first change.
    hold: Option<PatchId>,
    /// Patches of other volumes that the commit record waits for: patchgroups have it come after
    /// them.
    after: Vec<PatchId>,
    /// What the transaction is known to come after: these, and tails of groups that were taken
    /// apart because the rest of them is in it.
    others: FxHashSet<PatchId>,
    prune_others_at: usize,
    /// The blocks changed, each with its patch.
    blocks: FxHashMap<u64, PatchId>,
    /// Blocks that what was put off until its end will change.
    expected: FxHashSet<u64>,
    revokes: BTreeSet<u64>,
    /// Contents that must be there before the commit record.
    contents: Vec<(u64, PatchId)>,
    /// Their patches: of one file they are one run, see [`Mechanism::run`].
    runs: FxHashSet<PatchId>,
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

    /// Notes what the transaction comes after. What has got onto stable storage meanwhile leaves as
    /// there is more of it.
    fn note_others(&mut self, store: &Store, others: Vec<PatchId>) {
        if self.others.len() + others.len() > self.prune_others_at.max(32) {
            self.others.retain(|id| store.graph().is_live(*id));
            self.after.retain(|id| store.graph().is_live(*id));
            self.prune_others_at = 2 * (self.others.len() + others.len());
        }
        self.others.extend(others);
    }
}

/// A transaction that is in the log, or on its way there.
#[derive(Debug)]
struct Closed {
    number: u64,
    hold: PatchId,
    start: u32,
    len: u32,
    blocks: Vec<u64>,
    freed: Vec<u64>,
    /// The blocks of contents that its commit record waits for.
    awaited: Vec<u64>,
    /// The patches of contents that were made in it.
    runs: FxHashSet<PatchId>,
    /// The blocks from here on are at home, or in a later transaction.
    left: usize,
}

/// What is known of a block that has a copy in the log.
#[derive(Clone, Copy, Debug)]
struct Logged {
    /// The last transaction with a copy of it.
    number: u64,
    /// Its original's patch.
    original: PatchId,
    /// Freed by this transaction since.
    freed_by: Option<u64>,
}

/// A journal in the volume that it is for. See the module's documentation.
pub struct JournalMechanism {
    mode: JournalMode,
    map: Arc<JournalMap>,
    superblock: Superblock,
    stage: Stage,
    /// The volume that it is for, once it is started.
    volume: VolumeId,
    running: Running,
    /// The running transaction's number; the first one is 0, and has the superblock's sequence.
    number: u64,
    first_sequence: u32,
    is_closing: bool,
    tokens: Vec<u64>,
    /// From the tail that is on the disk on.
    log: VecDeque<Closed>,
    /// How many of them, from the first on, are committed, and how many are at home.
    committed: usize,
    at_home: usize,
    /// The tail on its way to the disk, and how many transactions it moves past.
    tail: Option<(PatchId, usize)>,
    /// Where the next transaction begins.
    head: u32,
    used: u32,
    logged: FxHashMap<u64, Logged>,
    /// Blocks freed by transactions that are not committed: by which, and its hold.
    freed: FxHashMap<u64, (u64, PatchId)>,
    /// Blocks of contents that commit records of closed transactions wait for: the last such
    /// transaction.
    awaited: FxHashMap<u64, u64>,
    last: PatchId,
    /// The last empty patch that the layout was told of for that, and what it depends on.
    known: (Vec<PatchId>, PatchId),
    commits: u64,
}

impl JournalMechanism {
    /// The mechanism for an empty journal.
    pub fn new(setup: Setup, mode: JournalMode) -> JournalMechanism {
        let Setup {
            mut superblock,
            map,
        } = setup;
        let features = superblock.features;
        // As Linux: a journal whose superblock has none of the fields becomes one that has.
        superblock.set_features(Features {
            incompat: features.incompat | INCOMPAT_REVOKE,
            ..features
        });
        JournalMechanism {
            mode,
            map,
            stage: Stage::Past,
            volume: VolumeId(0),
            running: Running::default(),
            number: 0,
            first_sequence: superblock.sequence.0,
            is_closing: false,
            tokens: Vec::new(),
            log: VecDeque::new(),
            committed: 0,
            at_home: 0,
            tail: None,
            head: superblock.first,
            used: 0,
            logged: FxHashMap::default(),
            freed: FxHashMap::default(),
            awaited: FxHashMap::default(),
            last: PatchId::COMMITTED,
            known: (Vec::new(), PatchId::COMMITTED),
            commits: 0,
            superblock,
        }
    }

    /// The running transaction's hold. It waits for the one before it from the start, so that the
    /// graph sees that what depends on it depends on everything the earlier commit record waits
    /// for.
    fn hold(&mut self, store: &mut Store) -> PatchId {
        let Running { hold, after, .. } = &mut self.running;
        let (last, awaited, mode) = (self.last, &self.awaited, self.mode);
        *hold.get_or_insert_with(|| {
            // Where no earlier commit record waits for anything but the journal's own blocks,
            // nothing that comes after this hold can be among it, and the commit records keep their
            // order.
            if mode != JournalMode::Ordered {
                implied(Rule::HoldAfterEarlierHold, || awaited.is_empty());
            }
            let last = wait_for_now(store.graph(), Rule::HoldAfterEarlierHold, last);
            let before: Vec<PatchId> = after.iter().copied().chain([last]).collect();
            store.graph_mut().create_transaction(&before)
        })
    }

    /// Whether the log holds a copy of the block that a replay might bring home, or will.
    fn is_logged(&self, block: u64) -> bool {
        self.running.has_logged(block)
            || self
                .logged
                .get(&block)
                .is_some_and(|l| l.freed_by.is_none())
    }

    /// What the layout is told of a patch in the running transaction that it orders after these:
    /// the hold. Where contents may come after the commit record, what waits for the patch must
    /// wait for those among them too.
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
        // Under `ordered` what nothing leads to yet is there before what will, and that is
        // journaled.
        let is_early = spec.is_hidden && self.mode == JournalMode::Ordered;
        spec.kind.class != BlockClass::Data
            || self.mode == JournalMode::Full
            || (spec.is_grouped && !is_early && holds(Rule::GroupsThroughLog))
            || (self.is_logged(spec.block) && holds(Rule::LoggedContentsThroughLog))
            || (dependencies.iter().any(on_running) && holds(Rule::OrderedContentsThroughLog))
    }
}

impl Mechanism for JournalMechanism {
    fn kind(&self) -> &'static dyn MechanismKind {
        self.mode.kind()
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
                *id = wait_for_now(store.graph(), Rule::ContentsAfterClosed, *id);
            }
            if let Some((_, hold)) = self.freed.get(&spec.block) {
                dependencies.push(wait_for_now(store.graph(), Rule::ReuseAfterFreeing, *hold));
            }
            return Decision::IN_PLACE;
        }
        let known_by = match self.mode {
            JournalMode::Writeback => Some(self.known_by(store, dependencies)),
            JournalMode::Ordered | JournalMode::Full => None,
        };
        dependencies.clear();
        self.part_from_runs(store, spec.block);
        let hold = self.hold(store);
        if holds(Rule::OriginalsAfterCommit) {
            dependencies.push(hold);
        }
        Decision {
            is_logged: true,
            is_apart: false,
            known_by: known_by.or(Some(hold)),
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
            (Stage::Through, false) => self.run_of_contents(offered, dependencies),
        }
    }

    fn created(&mut self, _store: &Store, spec: &PatchSpec<'_>, decision: &Decision, id: PatchId) {
        match (self.stage, decision.is_logged) {
            (Stage::Past, _) => {}
            (Stage::Through, true) => {
                self.running.newest = Some(id);
                self.running.blocks.insert(spec.block, id);
                if self.running.revokes.contains(&spec.block) && holds(Rule::LoggingTakesRevokeBack)
                {
                    self.running.revokes.remove(&spec.block);
                }
                self.running.expected.remove(&spec.block);
            }
            (Stage::Through, false) => {
                let entry = (spec.block, id);
                if self.mode == JournalMode::Ordered && self.running.contents.last() != Some(&entry)
                {
                    self.running.contents.push(entry);
                    self.note_run(id);
                }
            }
        }
    }

    fn forget(&mut self, block: u64) -> bool {
        if self.stage == Stage::Past {
            return true;
        }
        let was_logged = self.running.blocks.remove(&block).is_some();
        if was_logged && holds(Rule::FreedCountAsLogged) {
            self.running.freed_logged.insert(block);
        }
        self.running.freed.push(block);
        if let Some(logged) = self.logged.get_mut(&block) {
            logged.freed_by = Some(self.number);
            // Where all contents are journaled, what the block holds next has a later copy: an older
            // one comes home to a free block, or is followed by that.
            if self.mode != JournalMode::Full && holds(Rule::FreedAreRevoked) {
                self.running.revokes.insert(block);
            }
        }
        // A transaction that is closed and not committed shows the block to a replay that ends with
        // it: its contents must be there.
        !self.awaited.contains_key(&block) || !holds(Rule::AwaitedContentsAreKept)
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

    fn log(&mut self) -> Option<&mut dyn Log> {
        Some(self)
    }
}

/// The journal's first block: the superblock and zeros.
fn superblock_block(superblock: &Superblock) -> Vec<u8> {
    let mut block = vec![0; superblock.block_bytes as usize];
    block[..SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
    block
}
