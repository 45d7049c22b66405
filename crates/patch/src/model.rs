//! A slow, obviously right model of what a graph may do, with which the graph is compared.
//!
//! The model knows *changes*, as their maker stated them, never patches: merging must not be
//! visible. Each change is uncommitted, in flight, committed or (discarded) gone. Whenever the
//! graph writes a version of a block, the model checks that its bytes are exactly the block's
//! original bytes with the committed and in-flight changes applied in order of creation, and that
//! every dependency, stated or by overlap, is met at once (in-flight safety) and so also on any
//! disk (disk safety).

use std::collections::HashMap;

use crate::{BlockId, Change};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Uncommitted,
    InFlight,
    Committed,
    /// Discarded: nobody waits for it, and nobody minds whether it is there.
    Gone,
    /// What waits for it waits for this change, and nothing asks whether it is there.
    SupersededBy(usize),
}

#[derive(Clone, Debug)]
enum OwnedChange {
    Bytes(u32, Vec<u8>),
    Flip(u32, u32),
    Empty,
}

#[derive(Clone, Debug)]
struct Item {
    block: Option<BlockId>,
    change: OwnedChange,
    dependencies: Vec<usize>,
    /// Empty changes: not committed before it is released.
    held: bool,
    state: State,
    /// The changes of one group count as committed only when all of them are.
    group: Option<usize>,
}

/// What [`Model::closure`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelClosure {
    /// Something is not on disk yet.
    pub live: bool,
    /// Some of it is in flight, and is a target or waited for by another block or an empty change:
    /// the graph must report it.
    pub in_flight: bool,
    /// Some of it is in flight: the graph may report it.
    pub may_be_in_flight: bool,
    /// Some of it is a held empty change.
    pub held: bool,
}

/// The model; changes are numbered in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Model {
    items: Vec<Item>,
    original: Vec<Vec<u8>>,
    /// The blocks with a version in flight, and those whose versions it goes behind.
    chains: HashMap<BlockId, Vec<BlockId>>,
}

impl Model {
    /// A model of blocks with these contents; block `i` is `BlockId(i)`.
    pub fn new(blocks: &[Vec<u8>]) -> Model {
        Model {
            items: Vec::new(),
            original: blocks.to_vec(),
            chains: HashMap::new(),
        }
    }

    /// Records a change, and its dependency on every earlier change of the block that it overlaps.
    /// Returns its number.
    pub fn create(&mut self, block: BlockId, change: Change<'_>, dependencies: &[usize]) -> usize {
        let change = match change {
            Change::Bytes {
                offset_bytes,
                bytes,
            } => OwnedChange::Bytes(offset_bytes, bytes.to_vec()),
            Change::Flip { offset_bytes, mask } => OwnedChange::Flip(offset_bytes, mask),
        };
        let mut dependencies = dependencies.to_vec();
        for (number, item) in self.items.iter().enumerate() {
            let is_superseded = matches!(item.state, State::SupersededBy(_));
            if item.block == Some(block) && !is_superseded && overlap(&item.change, &change) {
                dependencies.push(number);
            }
        }
        self.items.push(Item {
            block: Some(block),
            change,
            dependencies,
            held: false,
            state: State::Uncommitted,
            group: None,
        });
        self.items.len() - 1
    }

    /// Puts a change into a group: what waits for one of its changes may be made to wait for all.
    pub fn join(&mut self, number: usize, group: usize) {
        self.items[number].group = Some(group);
    }

    /// Takes a change out of its group.
    pub fn leave(&mut self, number: usize) {
        self.items[number].group = None;
    }

    /// Records an empty change: committed as soon as its dependencies are, and it is not held (any
    /// more).
    pub fn create_empty(&mut self, dependencies: &[usize], held: bool) -> usize {
        let dependencies = dependencies.to_vec();
        let item = Item {
            block: None,
            change: OwnedChange::Empty,
            dependencies,
            held,
            state: State::Uncommitted,
            group: None,
        };
        self.items.push(item);
        self.settle();
        self.items.len() - 1
    }

    /// Lets a held empty change also depend on `on`, unless one of them has committed.
    ///
    /// # Errors
    /// Where that closes a circle of stated dependencies and overlaps; nothing is changed then.
    pub fn add_dependency(&mut self, empty: usize, on: usize) -> Result<(), String> {
        if self.is_committed(empty) || self.is_committed(on) {
            return Ok(());
        }
        let reached = self.reach(&[on], |_, _| {});
        if reached[empty] {
            return Err(format!("change {on} depends on empty change {empty}"));
        }
        self.items[empty].dependencies.push(on);
        Ok(())
    }

    /// Lets go of a held empty change.
    pub fn release(&mut self, empty: usize) {
        self.items[empty].held = false;
        self.settle();
    }

    /// Whether an empty change is held.
    pub fn is_held(&self, number: usize) -> bool {
        self.items[number].held
    }

    /// Discards the block's changes that no write has taken up: what depends on them need not wait.
    /// Should the block be used again, what they did to its bytes counts as its earlier contents.
    pub fn discard(&mut self, block: BlockId) {
        for item in self.items.iter_mut().filter(|i| i.block == Some(block)) {
            if item.state == State::Uncommitted {
                item.state = State::Gone;
            }
        }
        self.settle();
    }

    /// The block's changes that no write has taken up need not be written, because change `by`
    /// makes up for them. What they did to the block's bytes counts as its earlier contents from
    /// now on.
    pub fn supersede(&mut self, block: BlockId, by: usize) {
        for item in self.items.iter_mut().filter(|i| i.block == Some(block)) {
            if item.state == State::Uncommitted {
                item.state = State::SupersededBy(by);
                item.dependencies = vec![by];
            }
        }
    }

    /// What stands between now and `targets` being on disk.
    pub fn closure(&self, targets: &[usize]) -> ModelClosure {
        let mut found = ModelClosure::default();
        let mut direct = targets.to_vec();
        let reached = self.reach(targets, |from, to| {
            let block = self.items[to].block;
            if block.is_none() || self.items[from].block != block {
                direct.push(to);
            }
        });
        for number in (0..self.items.len()).filter(|n| reached[*n]) {
            let in_flight = self.items[number].state == State::InFlight;
            found.live = true;
            found.may_be_in_flight |= in_flight;
            found.in_flight |= in_flight && direct.contains(&number);
            found.held |= self.items[number].held;
        }
        found
    }

    /// The changes that have not committed among `starts` and what they depend on, not looking
    /// behind those in flight.
    fn reach(&self, starts: &[usize], mut edge: impl FnMut(usize, usize)) -> Vec<bool> {
        let mut reached = vec![false; self.items.len()];
        let mut stack: Vec<usize> = starts.to_vec();
        stack.retain(|n| !self.is_committed(*n));
        while let Some(number) = stack.pop() {
            if std::mem::replace(&mut reached[number], true)
                || self.items[number].state == State::InFlight
            {
                continue;
            }
            for d in &self.items[number].dependencies {
                if !self.is_committed(*d) {
                    edge(number, *d);
                    stack.push(*d);
                }
            }
        }
        reached
    }

    /// Commits the empty changes that wait for nothing any more: what is added to them later counts
    /// for nothing.
    fn settle(&mut self) {
        loop {
            let done = (0..self.items.len()).find(|n| {
                self.items[*n].block.is_none()
                    && self.items[*n].state == State::Uncommitted
                    && self.is_committed(*n)
            });
            let Some(number) = done else {
                return;
            };
            self.items[number].state = State::Committed;
        }
    }

    /// The newest bytes of a block: every change applied.
    pub fn newest(&self, block: BlockId) -> Vec<u8> {
        self.bytes(block, |_| true)
    }

    /// The bytes of a block with every change applied but these.
    pub fn without(&self, block: BlockId, numbers: &[usize]) -> Vec<u8> {
        self.bytes_of(block, |number, _| !numbers.contains(&number))
    }

    fn bytes(&self, block: BlockId, with: impl Fn(State) -> bool) -> Vec<u8> {
        self.bytes_of(block, |_, state| with(state))
    }

    fn bytes_of(&self, block: BlockId, with: impl Fn(usize, State) -> bool) -> Vec<u8> {
        let mut bytes = self.original[block.0 as usize].clone();
        let items = self.items.iter().enumerate();
        for (_, item) in items.filter(|(n, i)| i.block == Some(block) && with(*n, i.state)) {
            match &item.change {
                OwnedChange::Bytes(offset_bytes, new) => {
                    Change::Bytes {
                        offset_bytes: *offset_bytes,
                        bytes: new,
                    }
                    .apply(&mut bytes);
                }
                OwnedChange::Flip(offset_bytes, mask) => {
                    Change::Flip {
                        offset_bytes: *offset_bytes,
                        mask: *mask,
                    }
                    .apply(&mut bytes);
                }
                OwnedChange::Empty => {}
            }
        }
        bytes
    }

    /// Whether a change has committed, with all of its group (an empty one: whether all that it
    /// stands for has).
    pub fn is_committed(&self, number: usize) -> bool {
        let item = &self.items[number];
        match (item.block, item.group) {
            (None, _) => {
                let mut all = item.dependencies.iter();
                item.state == State::Committed || (!item.held && all.all(|d| self.is_committed(*d)))
            }
            (_, None) => self.is_met(number, &[]),
            (_, group) => (0..self.items.len())
                .filter(|n| self.items[*n].group == group)
                .all(|n| self.is_met(n, &[])),
        }
    }

    /// Whether a change is as good as on disk for a write that goes with or behind the versions in
    /// flight of these blocks.
    fn is_met(&self, number: usize, with: &[BlockId]) -> bool {
        let item = &self.items[number];
        match item.block {
            None => {
                let mut all = item.dependencies.iter();
                item.state == State::Committed || (!item.held && all.all(|d| self.is_met(*d, with)))
            }
            Some(block) => {
                matches!(item.state, State::Committed | State::Gone)
                    || (item.state == State::InFlight && with.contains(&block))
                    || matches!(item.state, State::SupersededBy(by) if self.is_met(by, with))
            }
        }
    }

    /// The graph writes a version of `block` that holds, for the first time, the changes `numbers`.
    /// In a queue that keeps order it goes behind the versions in flight of the blocks `chain`.
    ///
    /// # Errors
    /// In words, where that breaks a rule.
    pub fn write(
        &mut self,
        block: BlockId,
        numbers: &[usize],
        bytes: &[u8],
        chain: &[BlockId],
    ) -> Result<(), String> {
        if self
            .items
            .iter()
            .any(|i| i.block == Some(block) && i.state == State::InFlight)
        {
            return Err(format!("{block:?}: a second version in flight"));
        }
        for number in numbers {
            let item = &mut self.items[*number];
            if item.block != Some(block) || item.state != State::Uncommitted {
                return Err(format!(
                    "change {number} is not an uncommitted one of {block:?}"
                ));
            }
            item.state = State::InFlight;
        }
        self.chains.insert(block, chain.to_vec());
        let mut with = vec![block];
        let mut looked_at = 0;
        while let Some(of) = with.get(looked_at).copied() {
            let behind = self.chains.get(&of).into_iter().flatten();
            let behind: Vec<BlockId> = behind.filter(|b| !with.contains(b)).copied().collect();
            with.extend(behind);
            looked_at += 1;
        }
        for number in numbers {
            for d in &self.items[*number].dependencies {
                if !self.is_met(*d, &with) {
                    return Err(format!(
                        "change {number} is written before change {d}, which it depends on"
                    ));
                }
            }
        }
        let expected = self.bytes(block, |state| state != State::Uncommitted);
        if expected != bytes {
            return Err(format!("{block:?}: wrote {bytes:?}, expected {expected:?}"));
        }
        Ok(())
    }

    /// Whether the version of `block` in flight goes behind none that is in flight still.
    pub fn may_complete(&self, block: BlockId) -> bool {
        self.chains.get(&block).is_none_or(Vec::is_empty)
    }

    /// The version of `block` in flight is on the disk.
    pub fn complete(&mut self, block: BlockId) {
        self.chains.remove(&block);
        for behind in self.chains.values_mut() {
            behind.retain(|b| *b != block);
        }
        for item in self.items.iter_mut().filter(|i| i.block == Some(block)) {
            if item.state == State::InFlight {
                item.state = State::Committed;
            }
        }
        self.settle();
    }

    /// Whether every change has committed.
    pub fn is_drained(&self) -> bool {
        self.items
            .iter()
            .all(|i| i.block.is_none() || !matches!(i.state, State::Uncommitted | State::InFlight))
    }
}

fn overlap(a: &OwnedChange, b: &OwnedChange) -> bool {
    match (a, b) {
        (OwnedChange::Flip(word_a, mask_a), OwnedChange::Flip(word_b, mask_b)) => {
            word_a == word_b && mask_a & mask_b != 0
        }
        _ => match (range(a), range(b)) {
            (Some((start_a, end_a)), Some((start_b, end_b))) => start_a < end_b && start_b < end_a,
            _ => false,
        },
    }
}

fn range(change: &OwnedChange) -> Option<(u32, u32)> {
    match change {
        OwnedChange::Bytes(offset, bytes) => Some((*offset, offset + bytes.len() as u32)),
        OwnedChange::Flip(offset, _) => Some((*offset, offset + 4)),
        OwnedChange::Empty => None,
    }
}
