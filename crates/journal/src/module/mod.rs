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
//! *Copies* are the blocks' bytes at that moment, shared with the cache until a block is changed.
//! The commit record waits for all of them (unless it has a checksum of them and may go in one
//! batch with them: `journal_async_commit`), and for the transaction before it, so commit records
//! reach the disk in sequence. The hold waits for the commit record. The layout knows every patch
//! in T by T's hold, so *stable* means committed to all callers.
//!
//! Where T+1 changes a block before T's version of it is home, the block stays back until T+1
//! commits. So the tail moves past T once each block of T is at home *or* in a later transaction
//! that is committed.
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
//! In a stack of volumes, a change here may be made under a patchgroup that comes after changes of
//! a volume without a log. Then T's commit record waits for those ([`Log::come_after`]). So does
//! its hold from then on, so that the graph refuses a circle. If what T is to wait for waits for T
//! itself, because the same programs went from here to the other volume before, T is closed and the
//! change goes into the next transaction. If a group changed something in T and something
//! elsewhere, T waits for the latter only.
//!
//! # Contents that are journaled all the same
//!
//! Contents that the layout orders after a change of T itself (the end of a last block, zeroed once
//! the size hides it) go into T. (After a change of an earlier transaction that is closed, as
//! between two steps of a long truncation, they wait for that one's hold.)
//!
//! Contents of a block of which the log has a copy go into the log too: a replay would bring the
//! older copy home over them. So do contents that are written under a patchgroup (§5.1): a later
//! transaction could be on the disk before them. Under `ordered`, contents that nothing on the disk
//! leads to yet are an exception: they are on the disk before the transaction that makes them
//! visible.

mod kind;
mod log;
mod runs;
mod tail;

use std::collections::BTreeSet;
use std::sync::Arc;

use backstitch_ordering::{
    Awaited, BlockClass, Decision, Log, LogRules, Mechanism, MechanismKind, Operation, PatchId,
    PatchSpec, Transactions,
};
use backstitch_store::Store;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::format::features::INCOMPAT_REVOKE;
use crate::format::superblock::SUPERBLOCK_BYTES;
use crate::format::{Features, Superblock};
use crate::rules::{Rule, holds, implied};
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

/// The part of the running transaction that only a journal has.
#[derive(Debug, Default)]
struct OwnRunning {
    revokes: BTreeSet<u64>,
    /// Contents that must be there before the commit record.
    contents: Vec<(u64, PatchId)>,
    /// The patches of contents that were made in it; those of one file are one run, see
    /// [`Mechanism::run`].
    runs: FxHashSet<PatchId>,
}

/// The part of a closed transaction that only a journal has.
#[derive(Debug)]
struct OwnClosed {
    /// Its first block, as a position in the log.
    start: u32,
    /// Its blocks in the log.
    len: u32,
    /// The blocks of contents that its commit record waits for.
    awaited: Vec<u64>,
    /// The patches of contents that were made in it.
    runs: FxHashSet<PatchId>,
}

/// The journal's names of the rules that all logs have.
static RULES: LogRules = LogRules {
    hold_after_earlier_hold: Rule::HoldAfterEarlierHold.id(),
    after_other_volumes: Rule::CommitAfterOtherVolumes.id(),
    parts_of_groups_count: Some(Rule::PartsOfGroupsCount.id()),
    contents_after_closed: Rule::ContentsAfterClosed.id(),
    reuse_after_freeing: Rule::ReuseAfterFreeing.id(),
    freed_count_as_logged: Some(Rule::FreedCountAsLogged.id()),
    at_home_only_if_committed: Rule::AtHomeOnlyIfCommitted.id(),
    room_is_free_once_tail_moved: Rule::SpaceIsFreeOnceTailMoved.id(),
};

/// A journal in the volume that it is for. See the module's documentation.
pub struct JournalMechanism {
    mode: JournalMode,
    /// Whether operations wait for their transactions, together with others: group commit.
    gathers: bool,
    /// Whether the operation under way is to wait.
    awaited_now: Awaited,
    map: Arc<JournalMap>,
    superblock: Superblock,
    /// The sequence of transaction number 0, the first one of this mount.
    first_sequence: u32,
    transactions: Transactions<OwnRunning, OwnClosed>,
    /// Where the next transaction begins, as a position in the log.
    head: u32,
    /// Blocks of the log in use.
    used: u32,
    /// Blocks of contents that commit records of closed transactions wait for, with the number of
    /// the last such transaction.
    awaited: FxHashMap<u64, u64>,
    /// Transactions closed so far.
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
            gathers: false,
            awaited_now: Awaited::default(),
            map,
            first_sequence: superblock.sequence.0,
            transactions: Transactions::new(&RULES),
            head: superblock.first,
            used: 0,
            awaited: FxHashMap::default(),
            commits: 0,
            superblock,
        }
    }

    /// The same, whose operations wait for their transactions, together with others.
    pub fn gathered(self) -> JournalMechanism {
        JournalMechanism {
            gathers: true,
            ..self
        }
    }

    /// The running transaction's hold.
    fn hold(&mut self, store: &mut Store) -> PatchId {
        // Where earlier commit records wait for the journal's own blocks only, nothing that comes
        // after this hold can be among these, and the commit records keep their order by
        // themselves.
        if self.transactions.running.hold.is_none() && self.mode != JournalMode::Ordered {
            implied(Rule::HoldAfterEarlierHold, || self.awaited.is_empty());
        }
        self.transactions.hold(store)
    }

    /// The patch by which the layout knows a change in the running transaction that it orders after
    /// these.
    fn known_by(&mut self, store: &mut Store, dependencies: &[PatchId]) -> PatchId {
        self.hold(store);
        self.transactions.known_by(store, dependencies)
    }

    /// Whether a change goes into the log.
    fn takes(&self, spec: &PatchSpec<'_>, dependencies: &[PatchId]) -> bool {
        let on_running = |d: &PatchId| Some(*d) == self.transactions.running.hold;
        // Under `ordered`, contents that nothing leads to yet are on the disk before the change
        // that will lead to them: that is journaled.
        let is_early = spec.is_hidden && self.mode == JournalMode::Ordered;
        spec.kind.class != BlockClass::Data
            || self.mode == JournalMode::Full
            || (spec.is_grouped && !is_early && holds(Rule::GroupsThroughLog))
            || (self.transactions.is_logged(spec.block) && holds(Rule::LoggedContentsThroughLog))
            || (dependencies.iter().any(on_running) && holds(Rule::OrderedContentsThroughLog))
    }
}

impl Mechanism for JournalMechanism {
    fn kind(&self) -> &'static dyn MechanismKind {
        match self.gathers {
            true => self.mode.gathered(),
            false => self.mode.kind(),
        }
    }

    fn begin(&mut self, operation: Operation<'_>) {
        self.awaited_now.begin(&operation);
    }

    fn end(&mut self, wait_for: &mut Vec<PatchId>) {
        let is_awaited = self.awaited_now.take();
        if self.gathers && is_awaited && holds(Rule::AnswersOnceCommitted) {
            wait_for.extend(self.transactions.running.hold);
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
        match (self.transactions.is_through, decision.is_logged) {
            (false, _) => None,
            (true, true) => self.transactions.run_of_changes(store, dependencies),
            (true, false) => self.run_of_contents(offered, dependencies),
        }
    }

    fn created(&mut self, _store: &Store, spec: &PatchSpec<'_>, decision: &Decision, id: PatchId) {
        let own = &mut self.transactions.running.own;
        match (self.transactions.is_through, decision.is_logged) {
            (false, _) => {}
            (true, true) => {
                self.awaited_now.created(spec, decision);
                if own.revokes.contains(&spec.block) && holds(Rule::LoggingTakesRevokeBack) {
                    own.revokes.remove(&spec.block);
                }
                self.transactions.note_created(spec.block, id);
            }
            (true, false) => {
                let entry = (spec.block, id);
                if self.mode == JournalMode::Ordered && own.contents.last() != Some(&entry) {
                    own.contents.push(entry);
                    self.note_run(id);
                }
            }
        }
    }

    fn forget(&mut self, block: u64) -> bool {
        if !self.transactions.is_through {
            return true;
        }
        let (_, was_logged) = self.transactions.note_freed(block);
        // Under `full` the block's next contents are in the log too. If the replay has only the
        // older copy, it comes home to a free block; else the newer copy follows.
        let is_revoked = was_logged && self.mode != JournalMode::Full;
        if is_revoked && holds(Rule::FreedAreRevoked) {
            self.transactions.running.own.revokes.insert(block);
        }
        // After a crash the file may still have the block, if the log ends with a transaction that
        // is closed and waits for these contents.
        !self.awaited.contains_key(&block) || !holds(Rule::AwaitedContentsAreKept)
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
