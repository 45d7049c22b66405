//! The asynchronous metadata order manager (Feng and Chang 1997): a ring of batches of blocks. The
//! blocks of a batch are in no order, batch follows batch.
//!
//! An operation is a linear order over blocks: each change goes into the first batch behind all
//! that it comes after. Where its block is in that batch already, or in a later one, the change
//! joins the block there (a *hit*), and a write is saved. A daemon, which is
//! [`tick`](Mechanism::tick), begins the batch at the ring's head; once all of it is on stable
//! storage (the *condition sensor*) the next one is at the head, and is begun at once, after a
//! delay, or at the next beat of a clock.
//!
//! The order of the batches stands in the place of the layout's dependencies between blocks of
//! metadata. All changes of a batch come after its *gate*, an empty patch that is held until the
//! batch is begun. Contents of files are not in the ring; pointers come after them as the layout
//! states it.
//!
//! The paper writes a new directory's inode synchronously, since there is only one copy of each
//! block in memory and the block is needed in two versions. Here the later version is taken back
//! from the earlier one, so that nothing is synchronous.

mod kind;

use std::collections::VecDeque;
use std::time::Duration;

use backstitch_store::{BlockClass, Graph, PatchId, Store};
use rustc_hash::FxHashMap;

use super::{Decision, Mechanism, PatchSpec};
use crate::kind::MechanismKind;
use crate::rules::{Rule, holds};

pub(crate) use kind::Policy;
pub use kind::{AMOM_DELAYED, AMOM_IMMEDIATE, AMOM_PERIODIC, AmomKind};

/// Blocks that are written in no order.
struct Batch {
    /// Held until the batch is begun.
    gate: PatchId,
    patches: Vec<PatchId>,
    /// How many of `patches`, from the last one on, are on stable storage.
    done: usize,
    /// The blocks that have their last element here.
    blocks: Vec<u64>,
    /// Empty patches that stand for something in here, and for nothing in a later batch.
    standing: Vec<PatchId>,
}

/// A block in the ring.
#[derive(Clone, Copy)]
struct Element {
    /// The last batch that the block is in.
    batch: u64,
    /// The last batch before that one that the block is in.
    before: Option<u64>,
}

/// What the daemon has done.
#[derive(Default)]
struct Figures {
    batches: u64,
    elements: u64,
    hits: u64,
    ring_peak: u64,
    /// Blocks of the batches that are accomplished.
    blocks_done: u64,
    /// The time during which a batch was begun and not accomplished.
    busy: Duration,
}

/// The mechanism.
pub(crate) struct Amom {
    kind: &'static AmomKind,
    /// The batches, those that are written first at the head.
    ring: VecDeque<Batch>,
    /// The number of the one at the head.
    first: u64,
    /// That one is begun: nothing joins it.
    has_begun: bool,
    /// Since when the head waits to be begun, or, once it has, since when it is under way.
    since: Option<Duration>,
    elements: FxHashMap<u64, Element>,
    /// The batch of each change that is not on stable storage.
    batch_of: FxHashMap<PatchId, u64>,
    /// By empty patch: the last batch that holds anything that the patch stands for.
    level_of: FxHashMap<PatchId, u64>,
    /// Where the change under way goes; `None`: it is of contents, and in no batch.
    chosen: Option<u64>,
    figures: Figures,
}

impl Amom {
    fn new(kind: &'static AmomKind) -> Amom {
        Amom {
            kind,
            ring: VecDeque::new(),
            first: 0,
            has_begun: false,
            since: None,
            elements: FxHashMap::default(),
            batch_of: FxHashMap::default(),
            level_of: FxHashMap::default(),
            chosen: None,
            figures: Figures::default(),
        }
    }

    /// The first batch that something can still join.
    fn open(&self) -> u64 {
        self.first + u64::from(self.has_begun && holds(Rule::NobodyJoinsABegunBatch))
    }

    /// The last batch that holds this patch, or anything that it stands for; `None` where there is
    /// none.
    fn level(&mut self, graph: &Graph, id: PatchId) -> Option<u64> {
        if !graph.is_live(id) {
            return None;
        }
        if let Some(known) = self.batch_of.get(&id).or(self.level_of.get(&id)) {
            return Some(*known);
        }
        // Contents that are in no batch come after nothing that is in one.
        if graph.is_run(id) || graph.info(id).is_some_and(|info| info.block.is_some()) {
            return None;
        }
        let members = graph.dependencies(id);
        let levels = members.into_iter().map(|(of, _)| self.level(graph, of));
        let level = levels.max().flatten()?;
        if !graph.is_held(id) {
            self.level_of.insert(id, level);
            self.ring[(level - self.first) as usize].standing.push(id);
        }
        Some(level)
    }

    /// The batch for a change of a block that comes after what is in batch `level`, and whether the
    /// block also has something in an earlier batch.
    fn place(&mut self, store: &mut Store, block: u64, level: Option<u64>) -> (u64, bool) {
        let open = self.open();
        let behind = u64::from(holds(Rule::BatchBehindPredecessors));
        let earliest = level.map_or(open, |level| (level + behind).max(open));
        let element = self.elements.get(&block).copied();
        let last = element.filter(|element| element.batch >= self.first);
        let is_hit = |last: &Element| {
            last.batch >= earliest
                || (last.batch >= open && !holds(Rule::HitOnlyBehindPredecessors))
        };
        let element = match last {
            Some(last) if is_hit(&last) => {
                self.figures.hits += 1;
                last
            }
            _ => {
                self.figures.elements += 1;
                let before = last.map(|last| last.batch);
                let batch = earliest;
                self.reach(store, batch);
                self.ring[(batch - self.first) as usize].blocks.push(block);
                Element { batch, before }
            }
        };
        self.elements.insert(block, element);
        let is_split = element.before.is_some_and(|before| before >= self.first);
        (element.batch, is_split)
    }

    /// Lengthens the ring up to this batch.
    fn reach(&mut self, store: &mut Store, batch: u64) {
        while self.first + self.ring.len() as u64 <= batch {
            self.ring.push_back(Batch {
                gate: store.graph_mut().create_empty(&[], None, true),
                patches: Vec::new(),
                done: 0,
                blocks: Vec::new(),
                standing: Vec::new(),
            });
        }
        self.figures.ring_peak = self.figures.ring_peak.max(self.ring.len() as u64);
    }

    /// The condition sensor: whether all of the batch at the head is on stable storage.
    fn is_accomplished(&mut self, graph: &Graph) -> bool {
        let Some(head) = self.ring.front_mut() else {
            return true;
        };
        let left = |head: &Batch| head.patches.len() - head.done;
        while left(head) > 0 && !graph.is_live(head.patches[left(head) - 1]) {
            head.done += 1;
        }
        left(head) == 0 || (head.done > 0 && !holds(Rule::SensorWaitsForAll))
    }

    /// Takes the finished batch off the head.
    fn retire_head(&mut self, now: Duration) {
        let Some(head) = self.ring.pop_front() else {
            return;
        };
        self.figures.blocks_done += head.blocks.len() as u64;
        self.figures.busy += now.saturating_sub(self.since.unwrap_or(now));
        for id in &head.patches {
            if self.batch_of.get(id) == Some(&self.first) {
                self.batch_of.remove(id);
            }
        }
        for id in &head.standing {
            self.level_of.remove(id);
        }
        for block in &head.blocks {
            let is_last = |element: &Element| element.batch == self.first;
            if self.elements.get(block).is_some_and(is_last) {
                self.elements.remove(block);
            }
        }
        self.first += 1;
        self.has_begun = false;
        self.since = None;
    }

    /// When the batch at the head is to be begun, if it waits since then.
    fn begins_at(&self, since: Duration) -> Duration {
        match self.kind.policy {
            Policy::Immediate => since,
            Policy::Delayed(delay) => since + delay,
            Policy::Periodic(period) => {
                let periods = since.as_nanos().div_ceil(period.as_nanos());
                period * u32::try_from(periods).unwrap_or(u32::MAX)
            }
        }
    }
}

impl Mechanism for Amom {
    fn kind(&self) -> &'static dyn MechanismKind {
        self.kind
    }

    fn transform(
        &mut self,
        store: &mut Store,
        spec: &PatchSpec<'_>,
        dependencies: &mut Vec<PatchId>,
    ) -> Decision {
        let graph = store.graph();
        let levels = dependencies.iter().map(|id| self.level(graph, *id));
        let level = levels.max().flatten();
        let is_contents = spec.kind.class == BlockClass::Data;
        self.chosen = None;
        if is_contents && level.is_none() {
            // Contents that wait for no gate are kept apart from changes of the block that wait for
            // one.
            let element = self.elements.get(&spec.block);
            return Decision {
                is_apart: element.is_some_and(|element| element.batch >= self.first),
                ..Decision::IN_PLACE
            };
        }
        let (batch, is_split) = self.place(store, spec.block, level);
        self.chosen = Some(batch);
        // The order of the batches keeps these dependencies.
        dependencies.retain(|id| self.batch_of.get(id).is_none_or(|of| *of > batch));
        let gate = self.ring[(batch - self.first) as usize].gate;
        if holds(Rule::BatchAfterGate) {
            dependencies.push(gate);
        }
        Decision {
            // A patch of changes in two batches would wait for the later gate, and so for itself.
            // And contents that wait for no gate may be pending on the block.
            is_apart: is_split || is_contents,
            ..Decision::IN_PLACE
        }
    }

    fn created(
        &mut self,
        _store: &Store,
        _spec: &PatchSpec<'_>,
        _decision: &Decision,
        id: PatchId,
    ) {
        let Some(batch) = self.chosen.take() else {
            return;
        };
        if self.batch_of.insert(id, batch) != Some(batch) {
            self.ring[(batch - self.first) as usize].patches.push(id);
        }
    }

    fn tick(&mut self, store: &mut Store, now: Duration, hurry: bool, issue: &mut Vec<PatchId>) {
        loop {
            if self.has_begun {
                if !self.is_accomplished(store.graph()) {
                    return;
                }
                self.retire_head(now);
            }
            let Some(head) = self.ring.front() else {
                return;
            };
            let since = *self.since.get_or_insert(now);
            if !hurry && now < self.begins_at(since) {
                return;
            }
            store.graph_mut().release(head.gate);
            issue.extend_from_slice(&head.patches);
            self.has_begun = true;
            self.since = Some(now);
            self.figures.batches += 1;
        }
    }

    fn next_tick(&self) -> Option<Duration> {
        let waits = !self.has_begun && !self.ring.is_empty();
        let at = |since| self.begins_at(since);
        waits.then(|| self.since.map_or(Duration::ZERO, at))
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let patches = self.batch_of.capacity() + self.level_of.capacity();
        let listed: usize = self.ring.iter().map(|batch| batch.patches.capacity()).sum();
        let bytes = patches * size_of::<(PatchId, u64)>()
            + self.elements.capacity() * size_of::<(u64, Element)>()
            + listed * size_of::<PatchId>();
        let busy = self.figures.busy;
        let blocks = u128::from(self.figures.blocks_done) * Duration::from_secs(1).as_nanos();
        vec![
            ("batches_begun", self.figures.batches),
            ("busy_milliseconds", busy.as_millis() as u64),
            (
                "blocks_by_second",
                blocks.checked_div(busy.as_nanos()).unwrap_or(0) as u64,
            ),
            ("elements", self.figures.elements),
            ("hits", self.figures.hits),
            ("ring_length", self.ring.len() as u64),
            ("ring_length_peak", self.figures.ring_peak),
            ("ring_bytes", bytes as u64),
        ]
    }
}
