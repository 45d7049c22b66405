//! Random operations on a graph, each checked against the reference model.

mod answers;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use backstitch_patch::model::Model;
use backstitch_patch::{
    BlockId, Change, DependencyError, Event, Graph, Hook, Optimisations, PatchId, PatchKind,
    Planted, Standing, Stating, Version,
};
use proptest::prelude::*;

const BLOCKS: u32 = 5;
/// Changes lie in the last 28 bytes, on both sides of a border between two zones of 128 bytes.
const BLOCK_BYTES: usize = 144;
const FIRST_BYTE: u32 = 116;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Bytes {
        block: u32,
        offset: u32,
        data: Vec<u8>,
        deps: Vec<u16>,
    },
    /// A change of the whole block from `from` on. Of its bytes only `bytes` differ from what is
    /// there, at offsets from `FIRST_BYTE`.
    Wide {
        block: u32,
        from: u32,
        bytes: Vec<(u8, u8)>,
        deps: Vec<u16>,
    },
    /// A change that joins the run of the change made `run` before the last one, if it can; it
    /// waits for nothing, or for the held empty patch that was made `after` before the last one.
    InRun {
        block: u32,
        offset: u32,
        data: Vec<u8>,
        run: u16,
        after: Option<u16>,
    },
    /// The block's part of a run becomes a patch of its own.
    TakeFromRun {
        block: u32,
    },
    /// As before, but the run does not wait for the patch.
    LeaveRun {
        block: u32,
    },
    Flip {
        block: u32,
        word: u32,
        mask: u32,
        deps: Vec<u16>,
    },
    Empty {
        deps: Vec<u16>,
        held: bool,
        watched: bool,
    },
    /// Watches a change by its patch itself, where that is hard.
    Watch {
        change: u16,
    },
    /// Gives the held empty patch that was made `empty` before the last one a further dependency.
    Depend {
        empty: u16,
        on: u16,
    },
    Release {
        empty: u16,
    },
    Discard {
        block: u32,
    },
    /// Supersedes the block's changes by the change made `by` before the last one.
    Supersede {
        block: u32,
        by: u16,
    },
    /// Writes these changes, what they depend on, and nothing else.
    Sync {
        targets: Vec<u16>,
    },
    /// Somebody waits for these changes: they take on nothing more to wait for.
    Settle {
        targets: Vec<u16>,
    },
    /// What is written from here on goes with another batch.
    NextFlight,
    Start {
        block: u32,
    },
    Complete {
        block: u32,
    },
    /// From now on changes have this standing.
    Stand {
        standing: Standing,
    },
}

fn deps() -> impl Strategy<Value = Vec<u16>> {
    // Small numbers mean recent changes: those are where cycles come from.
    prop::collection::vec(prop_oneof![3 => 0u16..6, 1 => 0u16..40], 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        24 => (0..BLOCKS, 0u32..20, prop::collection::vec(any::<u8>(), 1..5), deps())
            .prop_map(|(block, offset, data, deps)| Step::Bytes { block, offset, data, deps }),
        5 => (0..BLOCKS, prop_oneof![3 => Just(0u32), 1 => 1u32..12], prop::collection::vec((0u8..28, any::<u8>()), 0..4), deps())
            .prop_map(|(block, from, bytes, deps)| Step::Wide { block, from, bytes, deps }),
        16 => (0..BLOCKS, 0u32..20, prop::collection::vec(any::<u8>(), 1..5), 0u16..6, prop::option::of(0u16..2))
            .prop_map(|(block, offset, data, run, after)| Step::InRun { block, offset, data, run, after }),
        1 => (0..BLOCKS).prop_map(|block| Step::TakeFromRun { block }),
        2 => (0..BLOCKS).prop_map(|block| Step::LeaveRun { block }),
        12 => (0..BLOCKS, 0u32..6, 0u32..3, 1u32..8, deps())
            .prop_map(|(block, word, shift, mask, deps)| Step::Flip { block, word: word * 4, mask: mask << shift, deps }),
        4 => (deps(), prop::bool::weighted(0.3), any::<bool>())
            .prop_map(|(deps, held, watched)| Step::Empty { deps, held, watched }),
        2 => (0u16..12).prop_map(|change| Step::Watch { change }),
        3 => (0u16..3, 0u16..12).prop_map(|(empty, on)| Step::Depend { empty, on }),
        2 => (0u16..4).prop_map(|empty| Step::Release { empty }),
        1 => (0..BLOCKS).prop_map(|block| Step::Discard { block }),
        3 => (0..BLOCKS, 0u16..6).prop_map(|(block, by)| Step::Supersede { block, by }),
        1 => prop::collection::vec(0u16..30, 1..3).prop_map(|targets| Step::Sync { targets }),
        1 => prop::collection::vec(0u16..30, 1..3).prop_map(|targets| Step::Settle { targets }),
        2 => Just(Step::NextFlight),
        8 => (0..BLOCKS).prop_map(|block| Step::Start { block }),
        8 => (0..BLOCKS).prop_map(|block| Step::Complete { block }),
        2 => prop_oneof![
            2 => Just(Standing::Together),
            1 => Just(Standing::WithUndo),
            1 => Just(Standing::Apart),
        ]
        .prop_map(|standing| Step::Stand { standing }),
    ]
}

/// Random sequences of operations.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..150)
}

#[derive(Default)]
struct Seen {
    forwards: Vec<(PatchId, PatchId)>,
    splits: Vec<(PatchId, BlockId, PatchId)>,
    left: Vec<(PatchId, BlockId, PatchId)>,
    superseded: Vec<(PatchId, BlockId)>,
    writes: Vec<(BlockId, Vec<PatchId>, Vec<u8>)>,
}

struct Recorder(Arc<Mutex<Seen>>);

impl Hook for Recorder {
    fn event(&mut self, event: &Event<'_>) {
        let mut seen = self.0.lock().unwrap();
        match event {
            Event::Forward { from, to } => seen.forwards.push((*from, *to)),
            Event::Split { from, block, to } => seen.splits.push((*from, *block, *to)),
            Event::Leave { from, block, to } => seen.left.push((*from, *block, *to)),
            Event::Supersede { from, block, .. } => seen.superseded.push((*from, *block)),
            Event::Write {
                block,
                patches,
                bytes,
                ..
            } => {
                seen.writes.push((*block, patches.to_vec(), bytes.to_vec()));
            }
            _ => {}
        }
    }
}

struct Run {
    graph: Graph,
    model: Model,
    /// Whether the graph's own books are checked after every step.
    invariants: bool,
    newest: Vec<Vec<u8>>,
    /// Of each change: the patch that its maker was told of.
    ids: Vec<PatchId>,
    /// Of each patch: the changes that it holds, by block.
    held: HashMap<(PatchId, BlockId), Vec<usize>>,
    /// The runs, in the order in which they were made.
    runs: Vec<PatchId>,
    /// Empty changes that are held or were.
    held_empties: Vec<usize>,
    /// Empty changes with a token (which is their number), and those whose token has fired.
    watched: BTreeSet<usize>,
    fired: BTreeSet<usize>,
    in_flight: HashSet<BlockId>,
    /// Order is kept by the queue of a device.
    in_queue: bool,
    /// How changes stand to the others of their blocks from now on.
    standing: Standing,
    /// Something may have been settled.
    settles: bool,
    /// Of each block: whether it had something ready after the last step.
    was_ready: [bool; BLOCKS as usize],
    seen: Arc<Mutex<Seen>>,
}

impl Run {
    fn new(optimisations: Optimisations, planted: Option<Planted>, invariants: bool) -> Run {
        let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|i| vec![i as u8; BLOCK_BYTES]).collect();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut graph = Graph::new(optimisations);
        graph.set_hook(Some(Box::new(Recorder(seen.clone()))));
        if let Some(planted) = planted {
            graph.plant(planted);
        }
        Run {
            graph,
            model: Model::new(&blocks),
            invariants,
            newest: blocks,
            ids: Vec::new(),
            held: HashMap::new(),
            runs: Vec::new(),
            held_empties: Vec::new(),
            watched: BTreeSet::new(),
            fired: BTreeSet::new(),
            in_flight: HashSet::new(),
            in_queue: false,
            standing: Standing::default(),
            settles: false,
            was_ready: [false; BLOCKS as usize],
            seen,
        }
    }

    fn pick(&self, deps: &[u16]) -> (Vec<usize>, Vec<PatchId>) {
        let numbers: Vec<usize> = deps
            .iter()
            .filter_map(|d| self.ids.len().checked_sub(1 + *d as usize))
            .collect();
        let ids = numbers.iter().map(|n| self.ids[*n]).collect();
        (numbers, ids)
    }

    /// The token is the number of a change that the same patch holds.
    fn watch(&mut self, number: usize) -> Result<(), String> {
        let info = self.graph.info(self.ids[number]);
        let is_hard = info.is_some_and(|i| i.kind == PatchKind::Hard);
        match self.graph.watch(self.ids[number], number as u64) {
            Some(token) if is_hard && self.watched.contains(&(token as usize)) => Ok(()),
            Some(token) if is_hard && token as usize == number => {
                self.watched.insert(number);
                Ok(())
            }
            None if !is_hard => Ok(()),
            other => Err(format!("watching change {number} ({info:?}): {other:?}")),
        }
    }

    fn pick_held(&self, empty: u16) -> Option<usize> {
        let index = self.held_empties.len().checked_sub(1 + empty as usize)?;
        Some(self.held_empties[index])
    }

    fn create(&mut self, block: u32, change: Change<'_>, deps: &[u16]) -> Result<(), String> {
        let (numbers, ids) = self.pick(deps);
        let block = BlockId(block);
        let before = match self.invariants {
            true => Some(self.before_change(block, change, &ids)?),
            false => None,
        };
        let number = self.model.create(block, change, &numbers);
        let bytes = &mut self.newest[block.0 as usize];
        let stating = Stating {
            after: &ids,
            standing: self.standing,
        };
        let id = self.graph.create(block, bytes, change, stating);
        if let Some(before) = before {
            let splits = self.seen.lock().unwrap().splits.len() as u64;
            self.after_change(&before, block, change, id, splits)?;
        }
        self.created(number, block, id);
        Ok(())
    }

    fn create_in_run(
        &mut self,
        block: u32,
        change: Change<'_>,
        run: u16,
        after: Option<u16>,
    ) -> Result<(), String> {
        let (_, ids) = self.pick(&[run]);
        let run = ids.first().copied().unwrap_or(PatchId::COMMITTED);
        let after = after.and_then(|empty| self.pick_held(empty));
        let (numbers, deps) = (Vec::from_iter(after), after.map(|n| self.ids[n]));
        let number = self.model.create(BlockId(block), change, &numbers);
        let (block, deps) = (BlockId(block), Vec::from_iter(deps));
        let is_in_run = self.will_be_in_run(block, &deps);
        let bytes = &mut self.newest[block.0 as usize];
        let stating = Stating {
            after: &deps,
            standing: self.standing,
        };
        let id = (self.graph).create_in_run(block, bytes, change, stating, run);
        self.created(number, block, id);
        match is_in_run && !self.graph.is_run(id) {
            true => Err(format!("{block:?} was to be in a run, and is not")),
            false => Ok(()),
        }
    }

    fn take_from_run(&mut self, block: BlockId) {
        self.graph.take_from_run(block);
        self.note_splits();
    }

    fn leave_run(&mut self, block: BlockId) -> Result<(), String> {
        let own = self.graph.leave_run(block);
        let left = std::mem::take(&mut self.seen.lock().unwrap().left);
        if left.len() != usize::from(own.is_some()) {
            return Err(format!("{block:?} left {left:?}, was told {own:?}"));
        }
        for (from, block, to) in left {
            let moved = self.held.remove(&(from, block)).unwrap_or_default();
            for number in &moved {
                self.ids[*number] = to;
                self.model.leave(*number);
            }
            self.held.entry((to, block)).or_default().extend(moved);
        }
        Ok(())
    }

    fn note_splits(&mut self) {
        for (from, block, to) in self.seen.lock().unwrap().splits.drain(..) {
            let moved = self.held.remove(&(from, block)).unwrap_or_default();
            self.held.entry((to, block)).or_default().extend(moved);
        }
    }

    fn created(&mut self, number: usize, block: BlockId, id: PatchId) {
        let mut seen = self.seen.lock().unwrap();
        for (from, to) in seen.forwards.drain(..) {
            let moved = self.held.remove(&(from, block)).unwrap_or_default();
            self.held.entry((to, block)).or_default().extend(moved);
        }
        drop(seen);
        self.note_splits();
        self.held.entry((id, block)).or_default().push(number);
        if self
            .graph
            .info(id)
            .is_some_and(|i| i.kind == PatchKind::Run)
        {
            let known = self.runs.iter().position(|r| *r == id);
            let group = known.unwrap_or_else(|| {
                self.runs.push(id);
                self.runs.len() - 1
            });
            self.model.join(number, group);
        }
        self.ids.push(id);
    }

    fn create_empty(&mut self, deps: &[u16], held: bool, watched: bool) {
        let (numbers, ids) = self.pick(deps);
        let number = self.model.create_empty(&numbers, held);
        let token = watched.then_some(number as u64);
        self.ids.push(match held && !watched {
            true => self.graph.create_transaction(&ids),
            false => self.graph.create_empty(&ids, token, held),
        });
        if watched {
            self.watched.insert(number);
        }
        if held {
            self.held_empties.push(number);
        }
    }

    /// A circle must never be accepted. Hard and merged patches wait for more than their makers
    /// said, so a dependency may be refused that the model would take; with everything off it may
    /// not.
    fn depend(&mut self, empty: usize, on: usize) -> Result<(), String> {
        let exact = self.graph.optimisations() == Optimisations::NONE;
        let accepted = self
            .graph
            .add_dependency(self.ids[empty], self.ids[on])
            .map(|()| self.model.add_dependency(empty, on));
        match accepted {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(format!("a circle was accepted: {reason}")),
            Err(DependencyError::Released { .. }) if !self.model.is_held(empty) => Ok(()),
            Err(DependencyError::Circle { .. }) if !exact => Ok(()),
            Err(error) => match self.model.add_dependency(empty, on) {
                Ok(()) => Err(format!("refused: {error}")),
                Err(_) => Ok(()),
            },
        }
    }

    fn apply(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Bytes {
                block,
                offset,
                data,
                deps,
            } => {
                let offset_bytes = FIRST_BYTE + *offset;
                let change = Change::Bytes {
                    offset_bytes,
                    bytes: data,
                };
                self.create(*block, change, deps)?;
            }
            Step::Wide {
                block,
                from,
                bytes,
                deps,
            } => {
                let mut data = self.newest[*block as usize][*from as usize..].to_vec();
                for (at, value) in bytes {
                    data[(FIRST_BYTE + u32::from(*at) - *from) as usize] = *value;
                }
                let change = Change::Bytes {
                    offset_bytes: *from,
                    bytes: &data,
                };
                self.create(*block, change, deps)?;
            }
            Step::InRun {
                block,
                offset,
                data,
                run,
                after,
            } => {
                let offset_bytes = FIRST_BYTE + *offset;
                let change = Change::Bytes {
                    offset_bytes,
                    bytes: data,
                };
                self.create_in_run(*block, change, *run, *after)?;
            }
            Step::TakeFromRun { block } => self.take_from_run(BlockId(*block)),
            Step::LeaveRun { block } => self.leave_run(BlockId(*block))?,
            Step::Flip {
                block,
                word,
                mask,
                deps,
            } => {
                let (offset_bytes, mask) = (FIRST_BYTE + *word, *mask);
                self.create(*block, Change::Flip { offset_bytes, mask }, deps)?;
            }
            Step::Empty {
                deps,
                held,
                watched,
            } => self.create_empty(deps, *held, *watched),
            Step::Depend { empty, on } => {
                let on = self.ids.len().checked_sub(1 + *on as usize);
                if let (Some(empty), Some(on)) = (self.pick_held(*empty), on) {
                    self.depend(empty, on)?;
                }
            }
            Step::Watch { change } => {
                if let Some(number) = self.ids.len().checked_sub(1 + *change as usize) {
                    self.watch(number)?;
                }
            }
            Step::Release { empty } => {
                if let Some(empty) = self.pick_held(*empty) {
                    self.release(empty);
                }
            }
            Step::Discard { block } => {
                self.graph.discard(BlockId(*block));
                self.model.discard(BlockId(*block));
            }
            Step::Supersede { block, by } => {
                if let Some(by) = self.ids.len().checked_sub(1 + *by as usize) {
                    self.supersede(BlockId(*block), by);
                }
            }
            Step::Sync { targets } => self.sync(targets)?,
            Step::Settle { targets } => {
                self.settles = true;
                self.graph.settle(&self.pick(targets).1);
            }
            Step::NextFlight => {
                self.settles = true;
                self.graph.next_flight();
            }
            Step::Start { block } => {
                self.start(BlockId(*block))?;
            }
            Step::Complete { block } => self.complete(BlockId(*block)),
            Step::Stand { standing } => self.standing = *standing,
        }
        self.compare()
    }

    fn supersede(&mut self, block: BlockId, by: usize) {
        if self.graph.supersede(block, self.ids[by]) {
            self.model.supersede(block, by);
            for (from, block) in self.seen.lock().unwrap().superseded.drain(..) {
                self.held.remove(&(from, block));
            }
        }
    }

    fn compare(&mut self) -> Result<(), String> {
        for (number, id) in self.ids.iter().enumerate() {
            if self.graph.is_live(*id) == self.model.is_committed(number) {
                return Err(format!(
                    "change {number}: graph and model disagree whether it has committed"
                ));
            }
        }
        for block in 0..BLOCKS {
            if self.newest[block as usize] != self.model.newest(BlockId(block)) {
                return Err(format!("block {block}: newest bytes differ"));
            }
        }
        for token in self.take_fired()? {
            if !self.fired.insert(token as usize) {
                return Err(format!("token {token} fired twice"));
            }
        }
        for number in &self.watched {
            if self.fired.contains(number) != self.model.is_committed(*number) {
                return Err(format!(
                    "token {number}: fired before its time, or not in time"
                ));
            }
        }
        if self.invariants {
            self.graph.check_invariants()?;
            self.compare_answers()?;
        }
        Ok(())
    }

    fn release(&mut self, empty: usize) {
        self.graph.release(self.ids[empty]);
        self.model.release(empty);
    }

    fn start(&mut self, block: BlockId) -> Result<bool, String> {
        let before = match self.invariants {
            true => Some(self.before_write(block)?),
            false => None,
        };
        let version = self
            .graph
            .start_write(block, &self.newest[block.0 as usize]);
        if let Some(before) = before {
            self.after_write(&before, block, &version)?;
        }
        let writes = std::mem::take(&mut self.seen.lock().unwrap().writes);
        if version == Version::Nothing {
            return if writes.is_empty() {
                Ok(false)
            } else {
                Err("a write without a version".into())
            };
        }
        let chain = self.graph.take_chain(block);
        if let Some(wrong) = chain.iter().find(|b| !self.in_flight.contains(b)) {
            return Err(format!(
                "{block:?} is to follow {wrong:?}, which is not in flight"
            ));
        }
        for (block, patches, bytes) in writes {
            let numbers: Vec<usize> = patches
                .iter()
                .flat_map(|p| self.held.get(&(*p, block)).cloned().unwrap_or_default())
                .collect();
            self.model.write(block, &numbers, &bytes, &chain)?;
        }
        self.in_flight.insert(block);
        Ok(true)
    }

    fn complete(&mut self, block: BlockId) {
        if self.model.may_complete(block) && self.in_flight.remove(&block) {
            self.graph.complete_write(block);
            self.model.complete(block);
        }
    }

    fn complete_all(&mut self) {
        while !self.in_flight.is_empty() {
            for block in 0..BLOCKS {
                self.complete(BlockId(block));
            }
        }
    }

    /// Writes `targets` by writing nothing but what their closure says is ready.
    fn sync(&mut self, targets: &[u16]) -> Result<(), String> {
        let exact = self.graph.optimisations() == Optimisations::NONE;
        let (numbers, ids) = self.pick(targets);
        for _ in 0..1000 {
            let expected = self.model.closure(&numbers);
            let mut ready = Vec::new();
            let found = self.graph.closure(&ids, &mut ready);
            let may_be_in_flight = if exact {
                expected.may_be_in_flight
            } else {
                !self.in_flight.is_empty()
            };
            if found.live != expected.live
                || (expected.in_flight && !found.in_flight && !self.in_queue)
                || (found.in_flight && !may_be_in_flight)
            {
                return Err(format!("closure is {found:?}, expected {expected:?}"));
            }
            if !found.live {
                return Ok(());
            }
            let mut started = false;
            for block in ready {
                if !self.graph.has_ready(block) {
                    return Err(format!("{block:?} is in a closure, but not ready"));
                }
                started |= self.start(block)?;
            }
            if !started && self.in_flight.is_empty() {
                let held_up = if exact {
                    expected.held
                } else {
                    self.held_empties.iter().any(|n| self.model.is_held(*n))
                };
                return if held_up {
                    Ok(())
                } else {
                    Err("a closure is left, and nothing of it can be written".into())
                };
            }
            self.complete_all();
        }
        Err("a closure does not drain".into())
    }

    fn drain(&mut self) -> Result<(), String> {
        for empty in std::mem::take(&mut self.held_empties) {
            self.release(empty);
        }
        for round in 0.. {
            let mut started = false;
            for block in 0..BLOCKS {
                started |= self.start(BlockId(block))?;
            }
            started |= !self.in_flight.is_empty();
            self.complete_all();
            if !started {
                break;
            }
            if round > 10_000 {
                return Err("does not drain".into());
            }
        }
        if !self.model.is_drained() {
            return Err("nothing more can be written, but changes are left".into());
        }
        self.compare()?;
        let counters = self.graph.counters();
        if counters.live != 0 || counters.edges_live != 0 || counters.undo_bytes_live != 0 {
            return Err(format!("drained, but not empty: {counters:?}"));
        }
        Ok(())
    }
}

/// As [`check_all`], for a device whose queue keeps order.
pub(crate) fn check_in_queue(
    steps: &[Step],
    planted: Option<Planted>,
    invariants: bool,
) -> Result<(), String> {
    check(steps, &["none", "both"], |optimisations| {
        let mut run = Run::new(optimisations, planted, invariants);
        run.graph.order_by_queue();
        run.in_queue = true;
        run
    })
    .map_err(|reason| format!("in a queue, {reason}"))
}

/// Runs the steps on a graph and the model side by side, with every combination of switches.
pub(crate) fn check_all(
    steps: &[Step],
    planted: Option<Planted>,
    invariants: bool,
) -> Result<(), String> {
    check(steps, &["none", "hard", "merge", "both"], |optimisations| {
        Run::new(optimisations, planted, invariants)
    })
}

fn check(
    steps: &[Step],
    switches: &[&str],
    start: impl Fn(Optimisations) -> Run,
) -> Result<(), String> {
    for optimisations in switches {
        let mut run = start(optimisations.parse().unwrap());
        steps
            .iter()
            .try_for_each(|step| run.apply(step))
            .and_then(|()| run.drain())
            .map_err(|reason| format!("opt={optimisations}: {reason}"))?;
    }
    Ok(())
}
