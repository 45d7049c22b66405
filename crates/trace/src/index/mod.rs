//! A trace that can be looked at at any of its moments without being read from its beginning, and what
//! happened when in it.
//!
//! Records are counted here from 0 in the order in which they are read. That is not the number that
//! `show` prints where the recording kept its end only; see [`Index::number_of`].

mod clusters;
mod line;
mod tail;

pub use clusters::{block, graph};
pub use line::{Kind, Line, Span};
pub use tail::{Bounds, Snapshot, Tail};

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::file::Records;
use crate::graph::Wanted;
use crate::show::{Filter, Lines};
use crate::state::{Keep, State};
use crate::{Error, Trace};

/// How many states are kept to begin from. They are half as dense whenever there are too many.
#[derive(Clone, Copy, Debug)]
pub struct Density {
    /// States at most, besides the one before the first record.
    pub most: usize,
    /// Records between the first of them.
    pub first_distance: u64,
    /// What all of them together may hold: patches, names and so on.
    pub most_weight: usize,
}

impl Default for Density {
    fn default() -> Density {
        Density {
            most: 24,
            first_distance: 8192,
            most_weight: 4 << 20,
        }
    }
}

/// Records after each of which it is said how many patches were not on the disk.
const MOST_COUNTED: u64 = 4096;
/// A state that was walked to from further away than twice this leaves a copy this far before it:
/// steps back begin there.
const NEAR: u64 = 256;
/// The states that were asked for last.
const MOST_RECENT: usize = 4;

/// A place to begin from: the state before the record that follows.
#[derive(Clone)]
struct Place<'t> {
    /// Records before it.
    passed: u64,
    /// The number of the one before it.
    number: u64,
    records: Records<'t>,
    state: State,
}

impl Place<'_> {
    /// Applies the next record; false where there is none that can be read.
    fn step(&mut self, list: &mut Vec<u64>) -> bool {
        match self.records.next(list) {
            Ok(Some((number, record))) => {
                self.state.apply(&record);
                (self.passed, self.number) = (self.passed + 1, number);
                true
            }
            Ok(None) | Err(_) => false,
        }
    }
}

/// An indexed trace.
pub struct Index<'t> {
    trace: Trace<'t>,
    checkpoints: Vec<Place<'t>>,
    recent: VecDeque<Place<'t>>,
    /// The copy that the last walk from far away has left; see `NEAR`.
    before: Option<Place<'t>>,
    walked: u64,
    line: Line,
    records: u64,
    seconds: f64,
    lost: Option<u64>,
    is_cut: bool,
    damage: Option<Error>,
}

impl<'t> Index<'t> {
    /// Reads a trace once. Where it is damaged, what is before that can be looked at.
    pub fn of(trace: Trace<'t>) -> Index<'t> {
        Index::with(trace, Density::default())
    }

    /// The same, with another number of states to begin from.
    pub fn with(trace: Trace<'t>, density: Density) -> Index<'t> {
        let mut at = Place {
            passed: 0,
            number: 0,
            records: trace.records(),
            state: State::of(&trace, Keep::Live),
        };
        let mut checkpoints = Checkpoints::new(at.clone(), density);
        let (mut list, mut line) = (Vec::new(), Line::default());
        let mut damage = None;
        loop {
            checkpoints.offer(&at);
            match at.records.next(&mut list) {
                Ok(Some((number, record))) => {
                    at.state.apply(&record);
                    line.note(at.passed, &record, &at.state);
                    (at.passed, at.number) = (at.passed + 1, number);
                }
                Ok(None) => break,
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            }
        }
        line.finish(at.passed);
        Index {
            trace,
            checkpoints: checkpoints.places,
            recent: VecDeque::new(),
            before: None,
            walked: 0,
            line,
            records: at.passed,
            seconds: at.state.time.as_secs_f64(),
            lost: at.state.lost,
            is_cut: at.records.is_cut(),
            damage,
        }
    }

    /// The trace.
    pub fn trace(&self) -> &Trace<'t> {
        &self.trace
    }

    /// What happened when.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// How many records there are that can be read.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The number of a record, or of the last one where there are fewer.
    pub fn number_of(&mut self, record: u64) -> u64 {
        self.state_after(record);
        self.recent.back().map_or(0, |place| place.number)
    }

    /// How many records have been applied since the trace was read, to get to states that were asked
    /// for.
    pub fn walked(&self) -> u64 {
        self.walked
    }

    /// The records before which there are states to begin from.
    pub fn checkpoints(&self) -> impl Iterator<Item = u64> {
        self.checkpoints.iter().map(|place| place.passed)
    }

    /// How long after the mount the last record is.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// How many events at least are missing at its end, where any are.
    pub fn lost_events(&self) -> Option<u64> {
        self.lost
    }

    /// Whether the file ends before the recording did.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Why the rest cannot be read, where it cannot.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// The state after a record, or after the last one where there are fewer.
    pub fn state_after(&mut self, record: u64) -> &State {
        let wanted = record.saturating_add(1).min(self.records);
        let mut place = self.nearest(wanted);
        let mut list = Vec::new();
        self.walked += wanted - place.passed;
        let is_far = wanted - place.passed > 2 * NEAR;
        while place.passed < wanted {
            if is_far && wanted - place.passed == NEAR {
                self.before = Some(place.clone());
            }
            if !place.step(&mut list) {
                break;
            }
        }
        self.recent.push_back(place);
        while self.recent.len() > MOST_RECENT {
            self.recent.pop_front();
        }
        &self.recent[self.recent.len() - 1].state
    }

    /// The nearest place at or before this many records. The place itself is taken out of the recent
    /// ones; of another one it is a copy.
    fn nearest(&mut self, wanted: u64) -> Place<'t> {
        let after = (self.checkpoints).partition_point(|place| place.passed <= wanted);
        let checkpoint = &self.checkpoints[after.saturating_sub(1)];
        let before = self.before.as_ref();
        let before = before.filter(|place| (checkpoint.passed..=wanted).contains(&place.passed));
        let checkpoint = before.unwrap_or(checkpoint);
        let recent = self.recent.iter().enumerate();
        let recent = recent.filter(|(_, place)| place.passed <= wanted);
        match recent.max_by_key(|(_, place)| place.passed) {
            Some((at, place)) if place.passed >= checkpoint.passed => {
                // A step on needs no copy; a step back needs the place itself again.
                match wanted - place.passed {
                    0..=1 => self.recent.remove(at).unwrap_or_else(|| checkpoint.clone()),
                    _ => place.clone(),
                }
            }
            _ => checkpoint.clone(),
        }
    }

    /// What [`Line::page`] says. Where so few records are asked for that it knows little of each, how
    /// many patches were not on the disk is said after each record.
    pub fn page(&mut self, from: u64, to: u64, most: usize) -> Value {
        let mut page = self.line.page(from, to, most);
        let to = to.min(self.records.saturating_sub(1));
        let count = to.saturating_sub(from).saturating_add(1);
        if from <= to && self.line.distance() > 1 && count <= MOST_COUNTED {
            self.state_after(from);
            let mut place = self.nearest(from + 1);
            let (mut counts, mut list) = (Vec::new(), Vec::new());
            loop {
                counts.push(json!([place.passed - 1, place.state.pending_count()]));
                if place.passed > to || !place.step(&mut list) {
                    break;
                }
            }
            page["not_on_disk"] = counts.into();
        }
        page
    }

    /// Whether an operation up to this record is about what is wanted. It may read all of the trace up
    /// to there.
    pub fn is_known(&self, wanted: &Wanted, record: u64) -> bool {
        let mut place = self.checkpoints[0].clone();
        let mut list = Vec::new();
        while place.passed <= record && place.step(&mut list) {
            if wanted.is_under_way(&place.state) {
                return true;
            }
        }
        false
    }

    /// The records up to this one, at most so many, in words: each with its place and its number.
    pub fn words(&mut self, record: u64, most: u64) -> Vec<(u64, u64, String)> {
        let first = record.saturating_add(1).saturating_sub(most);
        if first > 0 {
            self.state_after(first - 1);
        }
        let mut place = self.nearest(first);
        if self.recent.len() < MOST_RECENT {
            self.recent.push_back(place.clone());
        }
        let (mut out, mut list) = (Vec::new(), Vec::new());
        let mut lines = Lines::new(Filter::default());
        while place.passed <= record {
            let Ok(Some((number, next))) = place.records.next(&mut list) else {
                break;
            };
            place.state.apply(&next);
            if let Some(line) = lines.line(number, &next, &place.state) {
                out.push((place.passed, number, line.text));
            }
            place.passed += 1;
        }
        out
    }
}

/// Checkpoints that are being made.
struct Checkpoints<'t> {
    places: Vec<Place<'t>>,
    density: Density,
    distance: u64,
    weight: usize,
}

impl<'t> Checkpoints<'t> {
    fn new(first: Place<'t>, density: Density) -> Checkpoints<'t> {
        Checkpoints {
            places: vec![first],
            density,
            distance: density.first_distance.max(1),
            weight: 0,
        }
    }

    /// Keeps a place if it is far enough from the last one.
    fn offer(&mut self, place: &Place<'t>) {
        if place.passed == 0 || !place.passed.is_multiple_of(self.distance) {
            return;
        }
        self.places.push(place.clone());
        self.weight += place.state.weight();
        while self.places.len() > 1
            && (self.places.len() - 1 > self.density.most || self.weight > self.density.most_weight)
        {
            self.distance *= 2;
            let distance = self.distance;
            self.places.retain(|place| place.passed % distance == 0);
            let weights = self.places.iter().map(|place| place.state.weight());
            self.weight = weights.sum();
        }
    }
}
