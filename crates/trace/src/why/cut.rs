//! Can a crash leave just these patches on the disk, and no others?

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::crash::{Edge, taken_along};
use super::{document, words};
use crate::state::{Standing, State};

/// Broken edges that are told of, and operations.
const MOST_TOLD: usize = 100;

/// A patch that is taken to be on the disk, one that is not, and why that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// It is there.
    pub with: u64,
    /// It is not.
    pub without: u64,
    /// Why it would have to be.
    pub edge: Edge,
}

/// What an operation has on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The operation in words.
    pub operation: String,
    /// Of its patches that were not on the disk before, how many are, and how many there are.
    pub there: usize,
    /// See `there`.
    pub all: usize,
}

/// A state of the disk: what is on it already, and some patches more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Those patches.
    pub with: BTreeSet<u64>,
    /// What forbids the state; where nothing does, a crash can leave it.
    pub broken: Vec<Broken>,
    /// All of them are on their way: a crash now can leave it. Otherwise one later can, if nothing
    /// more is changed.
    pub is_now: bool,
    /// The operations that are not all on the disk before, by number.
    pub operations: Vec<Left>,
}

/// The state of the disk with these patches, besides what is on it already.
pub fn cut(state: &State, patches: impl IntoIterator<Item = u64>) -> Cut {
    let is_open = |number: &u64| {
        let patch = state.patch(*number);
        patch.is_some_and(|patch| patch.standing != Standing::Committed)
    };
    let patches = patches.into_iter().map(|number| state.resolved(number));
    let with: BTreeSet<u64> = patches.filter(is_open).collect();
    let (mut broken, mut blocks) = (Vec::new(), BTreeSet::new());
    for number in &with {
        for (other, edge) in taken_along(state, *number, &mut blocks) {
            if broken.len() < MOST_TOLD && is_open(&other) && !with.contains(&other) {
                let (with, without) = (*number, other);
                broken.push(Broken {
                    with,
                    without,
                    edge,
                });
            }
        }
    }
    let is_in_flight = |number: &u64| {
        let patch = state.patch(*number);
        patch.is_some_and(|patch| patch.standing == Standing::InFlight)
    };
    Cut {
        is_now: broken.is_empty() && with.iter().all(is_in_flight),
        operations: operations(state, &with),
        with,
        broken,
    }
}

fn operations(state: &State, with: &BTreeSet<u64>) -> Vec<Left> {
    let mut counts: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for (number, patch) in state.patches() {
        if patch.standing == Standing::Committed || patch.parts.is_empty() {
            continue;
        }
        for scope in &patch.scopes {
            let (there, all) = counts.entry(*scope).or_default();
            *there += usize::from(with.contains(&number));
            *all += 1;
        }
    }
    let told = counts.into_iter().take(MOST_TOLD);
    let left = told.filter_map(|(scope, (there, all))| {
        let operation = state.scope(scope)?.label.clone();
        Some(Left {
            operation,
            there,
            all,
        })
    });
    left.collect()
}

fn edge_words(edge: Edge) -> &'static str {
    match edge {
        Edge::Waits => "waits for",
        Edge::NoUndo => "is on the same block, which cannot be written without",
        Edge::OnItsWay => "is on the same block, which is on its way with",
    }
}

/// For people.
pub fn text(state: &State, cut: &Cut) -> String {
    let mut out = match (&cut.broken[..], cut.is_now, cut.with.len()) {
        ([], _, 0) => "a crash now can leave the disk as it is, with nothing more\n".to_owned(),
        ([], true, count) => format!("a crash now can leave these {count} patches and no others\n"),
        ([], false, count) => format!(
            "a crash later can leave these {count} patches and no others, if nothing more is changed\n"
        ),
        _ => "no crash leaves these patches and no others:\n".to_owned(),
    };
    for broken in &cut.broken {
        let (with, without) = (words(state, broken.with), words(state, broken.without));
        out += &format!("  {with}: {} {without}\n", edge_words(broken.edge));
    }
    if !cut.operations.is_empty() {
        out += "\nof the operations that are not all on the disk yet:\n";
    }
    for left in &cut.operations {
        let has = match left.there {
            0 => "nothing of it more".to_owned(),
            there if there == left.all => "all of it".to_owned(),
            there => format!("{there} of {} patches", left.all),
        };
        out += &format!("  {}: {has}\n", left.operation);
    }
    out
}

/// For programs: the keys stay.
pub fn json(state: &State, cut: &Cut) -> Value {
    let broken = cut.broken.iter().map(|broken| {
        json!({
            "with": document(state, broken.with),
            "without": document(state, broken.without),
            "why": edge_words(broken.edge),
        })
    });
    let operations = cut
        .operations
        .iter()
        .map(|left| json!({"operation": left.operation, "there": left.there, "all": left.all}));
    json!({
        "with": cut.with.iter().collect::<Vec<_>>(),
        "is_possible": cut.broken.is_empty(),
        "is_now": cut.is_now,
        "broken": broken.collect::<Vec<_>>(),
        "operations": operations.collect::<Vec<_>>(),
    })
}
