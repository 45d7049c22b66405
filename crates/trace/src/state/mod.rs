//! The graph at a moment, which follows from the records up to there: what it holds, and what can be
//! asked of it. [`apply`] has what each record does to it, [`chunk`] how it begins a trace itself.

mod apply;
mod chunk;
mod paged;

pub(crate) use paged::Paged;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backstitch_store::PatchKind;

use crate::areas::{Area, Areas};
use crate::file::Trace;
use crate::names::Names;
use crate::record::{Change, Place};

/// Ranges and operations of a patch that are remembered one by one.
const MOST_REMEMBERED: usize = 32;

/// Discarded patches that a recording without an end remembers.
const MOST_DISCARDED: usize = 1 << 16;

/// What costs as much to copy as one patch: blocks in a list, numbers in a list, and entries of maps
/// that a copy shares with the original until a page of them is changed.
const BLOCKS_IN_A_THING: usize = 32;
/// See `BLOCKS_IN_A_THING`.
const NUMBERS_IN_A_THING: usize = 16;
/// See `BLOCKS_IN_A_THING`.
const SHARED_IN_A_THING: usize = 16;

/// What a state remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Patches that are not on stable storage, and the operations that they belong to.
    Live,
    /// Every patch.
    Everything,
}

/// Where a patch is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In memory only.
    Uncommitted,
    /// A version of its block with it is on its way to the device.
    InFlight,
    /// On stable storage.
    Committed,
}

/// What a patch has to do with one block. Only a run has more than one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The block.
    pub block: u32,
    /// A version of it with the patch is on its way.
    pub is_in_flight: bool,
    /// It is on stable storage: of a run whose other blocks are not, where the state keeps everything.
    pub is_stable: bool,
    /// The version of the block that is on its way was put together without the patch: it was rolled
    /// back there.
    pub is_rolled_back: bool,
}

/// A patch.
#[derive(Clone, Debug)]
pub struct Patch {
    /// What it is made of.
    pub kind: PatchKind,
    /// Where it is on its way.
    pub standing: Standing,
    /// Its blocks that are not on stable storage (all of them, where the state keeps everything).
    pub parts: Vec<Part>,
    /// What its changes do to its block; the first ones.
    pub changes: Vec<Change>,
    /// How many changes it holds.
    pub changes_count: u64,
    /// What it directly waits for, or waited for.
    pub befores: BTreeSet<u64>,
    /// What directly waits for it.
    pub afters: BTreeSet<u64>,
    /// The operations that its changes belong to; the first ones.
    pub scopes: Vec<u64>,
    /// An empty patch that waits to be released.
    pub is_held: bool,
    /// When it was made.
    pub made: Duration,
    /// The record that made it.
    pub made_at: u64,
    /// It has been made known; not only named.
    pub is_known: bool,
    /// It counts as on stable storage although nothing of it was written, for it need not be.
    pub was_discarded: bool,
}

/// An operation that changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// A word for it.
    pub word: String,
    /// What it is about, in words: paths.
    pub label: String,
    /// The objects that it names, and the one that it made.
    pub objects: Vec<u64>,
    /// The paths that it names.
    pub paths: Vec<String>,
    /// When it began.
    pub began: Duration,
    /// Live patches that it has changes in.
    live: u64,
}

/// A block with patches.
#[derive(Clone, Debug, Default)]
struct Block {
    /// Those that are not on stable storage.
    patches: BTreeSet<u64>,
}

/// The graph at a moment of a trace; see the module's documentation.
/// A copy shares what has not changed. Nothing that it is told makes it fail: what a damaged trace says of patches that there are none of counts for nothing.
#[derive(Clone, Debug)]
pub struct State {
    keep: Keep,
    /// The time of the moment.
    pub time: Duration,
    /// Records applied.
    pub records: u64,
    pub(crate) patches: BTreeMap<u64, Arc<Patch>>,
    forwards: BTreeMap<u64, u64>,
    newest: u64,
    places: Paged<Place>,
    blocks: BTreeMap<u32, Arc<Block>>,
    scopes: BTreeMap<u64, Arc<Scope>>,
    scope: Option<u64>,
    names: Names,
    areas: Areas,
    /// What was written since the last batch; of each batch on its way, its blocks.
    written: Vec<u32>,
    batches: BTreeMap<u64, Vec<u32>>,
    waits: BTreeMap<u64, Vec<u64>>,
    /// Patches on stable storage whose commit the trace has not told of yet. Counted where only live
    /// patches are kept.
    arrived: usize,
    /// Of the patches that were forgotten: those that were discarded.
    discarded: Paged<()>,
    /// The patch of the last commit was discarded.
    pub(crate) has_discarded: bool,
    /// How many events are missing at the trace's end, where any are.
    pub lost: Option<u64>,
    /// The file ends before the recording did. Known at its end.
    pub is_cut: bool,
    /// Versions of which the trace says that other patches were rolled back than the state knows.
    pub mismatches: u64,
}

impl Patch {
    /// Whether there can be operations that it belongs to, and `scopes` does not have: it was there
    /// when the recording began, or has more of them than are remembered.
    pub(crate) fn may_be_of_others(&self) -> bool {
        self.scopes.is_empty() || self.scopes.len() >= MOST_REMEMBERED
    }
}

impl State {
    /// Before the first record.
    pub fn new(keep: Keep) -> State {
        State {
            keep,
            time: Duration::ZERO,
            records: 0,
            patches: BTreeMap::new(),
            forwards: BTreeMap::new(),
            newest: 0,
            places: Paged::new(),
            blocks: BTreeMap::new(),
            scopes: BTreeMap::new(),
            scope: None,
            names: Names::new(None),
            areas: Areas::default(),
            written: Vec::new(),
            batches: BTreeMap::new(),
            waits: BTreeMap::new(),
            arrived: 0,
            discarded: Paged::new(),
            has_discarded: false,
            lost: None,
            is_cut: false,
            mismatches: 0,
        }
    }

    /// Before the first record of this trace.
    pub fn of(trace: &Trace<'_>, keep: Keep) -> State {
        if let Some(start) = trace.start() {
            return State {
                keep,
                ..start.clone()
            };
        }
        State {
            names: Names::new(trace.description["root"].as_u64()),
            areas: Areas::of(&trace.description),
            ..State::new(keep)
        }
    }

    /// As [`new`](Self::new), without what paths objects have.
    pub(crate) fn without_names(keep: Keep) -> State {
        State {
            names: Names::none(),
            ..State::new(keep)
        }
    }

    /// The patches that it remembers, by number.
    pub fn patches(&self) -> impl Iterator<Item = (u64, &Patch)> {
        self.patches
            .iter()
            .map(|(number, patch)| (*number, &**patch))
    }

    /// A patch that it remembers; what was merged into another one is that.
    pub fn patch(&self, number: u64) -> Option<&Patch> {
        self.patches.get(&self.resolved(number)).map(Arc::as_ref)
    }

    /// A patch that it remembers under this very number.
    fn patch_there(&self, number: u64) -> Option<&Patch> {
        self.patches.get(&number).map(Arc::as_ref)
    }

    /// Whether a patch counts as on stable storage although nothing of it was written, for it need not
    /// be.
    pub fn was_discarded(&self, number: u64) -> bool {
        match self.patch(number) {
            Some(patch) => patch.was_discarded,
            None => self.discarded.get(self.resolved(number)).is_some(),
        }
    }

    /// The largest number of a patch so far.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The patch that a number stands for now.
    pub fn resolved(&self, mut number: u64) -> u64 {
        // A made-up trace may lead in a circle.
        for _ in 0..64 {
            match self.forwards.get(&number) {
                Some(to) => number = *to,
                None => break,
            }
        }
        number
    }

    /// Where a block is.
    pub fn place(&self, block: u32) -> Option<&Place> {
        self.places.get(u64::from(block))
    }

    /// What a block is in, as far as the trace's description says so.
    pub(crate) fn area(&self, block: u32) -> Option<(&Place, &Area)> {
        let place = self.place(block)?;
        Some((place, self.areas.at(place)?))
    }

    /// The patches of a block that are not on stable storage.
    pub fn patches_of(&self, block: u32) -> impl Iterator<Item = u64> + '_ {
        let here = self.blocks.get(&block);
        here.into_iter().flat_map(|b| b.patches.iter().copied())
    }

    /// The operation with this number, as long as it is remembered.
    pub fn scope(&self, number: u64) -> Option<&Scope> {
        self.scopes.get(&number).map(Arc::as_ref)
    }

    /// The number of the operation under way.
    pub fn scope_under_way(&self) -> Option<u64> {
        self.scope
    }

    /// Batches on their way.
    pub fn batches_in_flight(&self) -> impl Iterator<Item = u64> + '_ {
        self.batches.keys().copied()
    }

    /// What is waited for, by ticket.
    pub fn waits(&self) -> impl Iterator<Item = (u64, &[u64])> {
        self.waits.iter().map(|(ticket, of)| (*ticket, &of[..]))
    }

    /// The path of an object, as far as the trace tells.
    pub fn path(&self, object: u64) -> String {
        self.names.path(object)
    }

    /// Whether a patch could be written now: what it waits for is on stable storage, or goes along
    /// with it, for it is of the same block and could be written itself.
    pub fn is_ready(&self, number: u64) -> bool {
        // Each patch once: there can be very many ways to the same one.
        let (mut seen, mut stack) = (BTreeSet::new(), vec![self.resolved(number)]);
        while let Some(number) = stack.pop() {
            if !seen.insert(number) {
                continue;
            }
            let Some(patch) = self.patches.get(&number) else {
                continue;
            };
            if patch.standing != Standing::Uncommitted || patch.is_held {
                return false;
            }
            let home = patch.parts.first().map(|part| part.block);
            for before in &patch.befores {
                let before = self.resolved(*before);
                let Some(other) = self.patches.get(&before) else {
                    continue;
                };
                let is_here = home.is_some() && other.parts.iter().any(|p| Some(p.block) == home);
                if other.standing == Standing::Committed {
                    continue;
                }
                if !is_here || other.kind == PatchKind::Run {
                    return false;
                }
                stack.push(before);
            }
        }
        true
    }

    /// Those that [`is_ready`](Self::is_ready) says yes of, in one pass over all.
    pub fn ready(&self) -> BTreeSet<u64> {
        let mut ready = BTreeSet::new();
        let mut waiting = Vec::new();
        // Of each patch: those of its own block that wait for it.
        let mut along: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (number, patch) in &self.patches {
            if patch.standing != Standing::Uncommitted || patch.is_held {
                waiting.push(*number);
                continue;
            }
            ready.insert(*number);
            let home = patch.parts.first().map(|part| part.block);
            for before in &patch.befores {
                let before = self.resolved(*before);
                let Some(other) = self.patches.get(&before) else {
                    continue;
                };
                if other.standing == Standing::Committed {
                    continue;
                }
                let is_here = home.is_some() && other.parts.iter().any(|p| Some(p.block) == home);
                match is_here && other.kind != PatchKind::Run {
                    true => along.entry(before).or_default().push(*number),
                    false => waiting.push(*number),
                }
            }
        }
        // Whatever waits for one that is not ready is not either.
        while let Some(number) = waiting.pop() {
            ready.remove(&number);
            waiting.extend(along.remove(&number).unwrap_or_default());
        }
        ready
    }

    /// Forgets of patches that were discarded long ago that they were, so that what is remembered of
    /// a recording without an end has a bound.
    pub(crate) fn forget_long_discarded(&mut self) {
        self.discarded.leave_last(MOST_DISCARDED);
    }

    /// How many patches it remembers.
    pub fn patches_count(&self) -> usize {
        self.patches.len()
    }

    /// How many of them are not on stable storage, where only live patches are kept.
    pub fn pending_count(&self) -> usize {
        self.patches.len() - self.arrived
    }

    /// A flush has brought patches to stable storage, and the commits of some of them are yet to come.
    pub(crate) fn is_arriving(&self) -> bool {
        self.arrived > 0
    }

    /// How much it remembers: what a copy of it costs, roughly, in things of some hundred bytes.
    pub(crate) fn weight(&self) -> usize {
        let own = self.patches.len() + self.forwards.len() + self.scopes.len();
        let in_batches: usize = self.batches.values().map(Vec::len).sum();
        let in_waits: usize = self.waits.values().map(Vec::len).sum();
        let lists =
            (self.written.len() + in_batches) / BLOCKS_IN_A_THING + in_waits / NUMBERS_IN_A_THING;
        let shared = self.places.len() + self.names.len() + self.discarded.len();
        own + self.batches.len() + self.waits.len() + lists + shared / SHARED_IN_A_THING
    }

    /// Blocks on their way to the device, each with the number of its batch. Those that were put into
    /// the batch to come have none, nor those of which the trace does not tell: they were on their way
    /// when the recording began, or their batch failed, after which nobody knows what is there.
    pub fn blocks_in_flight(&self) -> impl Iterator<Item = (Option<u64>, u32)> + '_ {
        let batches = self.batches.iter();
        let sent: BTreeMap<u32, u64> = batches
            .flat_map(|(batch, of)| of.iter().map(|block| (*block, *batch)))
            .collect();
        let patches = self.patches.values();
        let moving = patches.filter(|patch| patch.standing != Standing::Committed);
        let parts = moving.flat_map(|patch| &patch.parts);
        let parts = parts.filter(|part| part.is_in_flight);
        let moving: BTreeSet<u32> = parts.map(|part| part.block).collect();
        moving
            .into_iter()
            .map(move |block| (sent.get(&block).copied(), block))
    }

    /// The patches of a block that are on their way with it.
    pub fn in_flight_of(&self, block: u32) -> impl Iterator<Item = u64> + '_ {
        self.patches_of(block).filter(move |number| {
            let is_moving = |part: &Part| part.block == block && part.is_in_flight;
            self.patch_there(*number).is_some_and(|patch| {
                patch.standing != Standing::Committed && patch.parts.iter().any(is_moving)
            })
        })
    }

    /// Uncommitted patches of a block that a write with these would leave out.
    pub fn left_out(&self, block: u32, written: &[u64]) -> Vec<u64> {
        let Some(b) = self.blocks.get(&block) else {
            return Vec::new();
        };
        let stays = |number: &u64| {
            let is_uncommitted = |patch: &Patch| {
                let part = patch.parts.iter().find(|part| part.block == block);
                part.is_some_and(|part| !part.is_in_flight)
            };
            !written.contains(number) && self.patch_there(*number).is_some_and(is_uncommitted)
        };
        b.patches.iter().copied().filter(stays).collect()
    }
}
