//! Tables over a trace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::names::printable;
use crate::record::{Record, class_word};
use crate::state::{Keep, Standing, State};
use crate::{Error, Trace};

/// Of the operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfOperation {
    /// How many there were.
    pub operations: u64,
    /// Patches made in them.
    pub created: u64,
    /// Changes that became a part of a patch that there was.
    pub merged: u64,
}

/// Of numbers of which there were many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    sorted: Vec<u64>,
}

impl Spread {
    fn of(mut values: Vec<u64>) -> Spread {
        values.sort_unstable();
        Spread { sorted: values }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The value that this part of them does not exceed; 0 where there are none.
    pub fn at(&self, part: f64) -> u64 {
        let last = self.sorted.len().saturating_sub(1);
        let index = (last as f64 * part).round() as usize;
        self.sorted.get(index).copied().unwrap_or(0)
    }
}

/// What a trace comes to.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Records in it.
    pub records: u64,
    /// How long it lasted.
    pub time: Duration,
    /// By the operation's word. Patches made outside of operations are under `(none)`.
    pub operations: BTreeMap<String, OfOperation>,
    /// Versions of blocks written.
    pub versions: u64,
    /// Of these, with patches rolled back.
    pub versions_with_rollback: u64,
    /// Patches rolled back, by what they waited for: the class of their block, and of the other.
    pub rollbacks: BTreeMap<String, u64>,
    /// Batches, by what they were for.
    pub batches: BTreeMap<String, u64>,
    /// Batches on stable storage between the begin and the end of each wait.
    pub rounds: Spread,
    /// Milliseconds between the making of a patch with a block and its being on stable storage.
    pub age_ms: Spread,
    /// Patches that committed without having been written.
    pub discarded: u64,
    /// How many events are missing at the trace's end, where any are.
    pub lost: Option<u64>,
    /// The file ends before the recording did.
    pub is_cut: bool,
}

impl Stats {
    /// Goes through a trace.
    ///
    /// # Errors
    /// Where it is damaged.
    pub fn of(trace: &Trace<'_>) -> Result<Stats, Error> {
        let mut stats = Stats::default();
        let mut state = State::of(trace, Keep::Live);
        let mut waits: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut rounds, mut ages) = (Vec::new(), Vec::new());
        // How old these are nobody knows.
        let mut present = BTreeSet::new();
        let (mut records, mut list) = (trace.records(), Vec::new());
        while let Some((_, record)) = records.next(&mut list)? {
            match record {
                Record::Begin { word, .. } => {
                    let word = String::from_utf8_lossy(word).into_owned();
                    stats.operations.entry(word).or_default().operations += 1;
                }
                Record::Create { .. } => stats.under(&state).created += 1,
                Record::Merge { .. } => stats.under(&state).merged += 1,
                Record::Write { block, patches, .. } => stats.note_write(&state, block, patches),
                Record::Batch { goal, .. } => {
                    let goal = String::from_utf8_lossy(goal).into_owned();
                    *stats.batches.entry(goal).or_default() += 1;
                }
                Record::Flushed { .. } => waits.values_mut().for_each(|rounds| *rounds += 1),
                Record::Awaited { ticket, .. } => drop(waits.insert(ticket, 0)),
                Record::Reached { ticket } => rounds.extend(waits.remove(&ticket)),
                Record::Present { patch, .. } => {
                    present.insert(patch);
                }
                Record::Commit { patch: number } => {
                    let is_old = present.remove(&number);
                    if let Some(patch) = state.patch(number).filter(|p| !p.parts.is_empty()) {
                        match patch.standing {
                            Standing::Uncommitted => stats.discarded += 1,
                            _ if is_old => {}
                            _ => {
                                let age = state.time.saturating_sub(patch.made);
                                ages.push(age.as_millis() as u64);
                            }
                        }
                    }
                }
                _ => {}
            }
            state.apply(&record);
        }
        stats.records = state.records;
        stats.time = state.time;
        (stats.lost, stats.is_cut) = (state.lost, records.is_cut());
        (stats.rounds, stats.age_ms) = (Spread::of(rounds), Spread::of(ages));
        Ok(stats)
    }

    fn under(&mut self, state: &State) -> &mut OfOperation {
        let scope = state.scope_under_way().and_then(|scope| state.scope(scope));
        let word = scope.map_or("(none)", |scope| &scope.word);
        self.operations.entry(word.to_owned()).or_default()
    }

    fn note_write(&mut self, state: &State, block: u32, patches: &[u64]) {
        self.versions += 1;
        let left_out = state.left_out(block, patches);
        self.versions_with_rollback += u64::from(!left_out.is_empty());
        for number in left_out {
            let cause = cause(state, block, number);
            *self.rollbacks.entry(cause).or_default() += 1;
        }
    }

    /// For programs: the keys stay.
    pub fn json(&self) -> Value {
        let spread = |spread: &Spread| {
            json!({
                "count": spread.count(),
                "median": spread.at(0.5),
                "p90": spread.at(0.9),
                "most": spread.at(1.0),
            })
        };
        let operations = self.operations.iter().map(|(word, of)| {
            let row = json!({
                "operations": of.operations,
                "created": of.created,
                "merged": of.merged,
            });
            (word.clone(), row)
        });
        json!({
            "records": self.records,
            "seconds": self.time.as_secs_f64(),
            "operations": operations.collect::<serde_json::Map<_, _>>(),
            "versions": self.versions,
            "versions_with_rollback": self.versions_with_rollback,
            "rollbacks": self.rollbacks,
            "batches": self.batches,
            "rounds_of_a_wait": spread(&self.rounds),
            "age_ms": spread(&self.age_ms),
            "discarded": self.discarded,
            "lost_events": self.lost,
            "is_cut_off": self.is_cut,
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = format!(
            "{} records in {:.3} s\n\n{:<16} {:>12} {:>12} {:>12} {:>12}\n",
            self.records,
            self.time.as_secs_f64(),
            "operation",
            "number",
            "patches",
            "merged",
            "patches each"
        );
        for (word, of) in &self.operations {
            let each = match of.operations {
                0 => String::new(),
                operations => format!("{:.2}", of.created as f64 / operations as f64),
            };
            out += &format!(
                "{:<16} {:>12} {:>12} {:>12} {each:>12}\n",
                printable(word),
                of.operations,
                of.created,
                of.merged
            );
        }
        out += &format!(
            "\n{:<40} {:>12}\n{:<40} {:>12}\n",
            "versions of blocks written",
            self.versions,
            "  of them with a rollback",
            self.versions_with_rollback
        );
        for (cause, count) in &self.rollbacks {
            out += &format!("  patches rolled back: {cause:<18} {count:>12}\n");
        }
        for (goal, count) in &self.batches {
            let goal = printable(goal);
            out += &format!("batches for: {goal:<27} {count:>12}\n");
        }
        out += &format!(
            "{:<40} {:>12}\n\n{:<28} {:>8} {:>8} {:>8} {:>8}\n",
            "patches that were never written",
            self.discarded,
            "",
            "number",
            "median",
            "90 %",
            "most"
        );
        for (title, spread) in [
            ("batches in a wait", &self.rounds),
            ("age at the write, ms", &self.age_ms),
        ] {
            out += &format!(
                "{title:<28} {:>8} {:>8} {:>8} {:>8}\n",
                spread.count(),
                spread.at(0.5),
                spread.at(0.9),
                spread.at(1.0)
            );
        }
        out
    }
}

/// Why a patch was left out of a version: what the first of those that it waits for is.
fn cause(state: &State, block: u32, number: u64) -> String {
    let class = |block: u32| {
        state
            .place(block)
            .map_or("?", |place| class_word(place.class))
    };
    let own = class(block);
    let mut at = number;
    // Through patches of the block itself, and empty ones, to what is elsewhere.
    for _ in 0..64 {
        let Some(patch) = state.patch(at) else {
            break;
        };
        let elsewhere = |number: &&u64| {
            let other = state.patch(**number);
            other.is_some_and(|other| other.parts.iter().any(|part| part.block != block))
        };
        if let Some(other) = patch.befores.iter().find(elsewhere) {
            let part = state.patch(*other).and_then(|other| other.parts.first());
            let other = part.map_or("?", |part| class(part.block));
            return format!("{own} after {other}");
        }
        match patch.befores.first() {
            Some(next) => at = *next,
            None => break,
        }
    }
    match state.patch(at).is_some_and(|patch| patch.is_held) {
        true => format!("{own} after a transaction"),
        false => format!("{own} after its own block"),
    }
}
