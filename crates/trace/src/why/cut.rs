//! Can a crash leave just these patches on the disk, and no others?

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::crash::{Edge, taken_along};
use super::{document, words};
use crate::state::{Part, Standing, State};

/// Broken edges that are told of, and operations.
const MOST_TOLD: usize = 100;
/// Runs that are partly there, in one line of words.
const MOST_RUNS_IN_WORDS: usize = 4;

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

/// How much of a run is there: it is written block by block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partly {
    /// The run.
    pub patch: u64,
    /// Of its blocks that were not on the disk before, how many are, and how many there are.
    pub there: usize,
    /// See `there`.
    pub all: usize,
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
    /// Those of which some blocks are there, and others are not.
    pub partly: Vec<Partly>,
}

/// A state of the disk: what is on it already, and some patches more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Those patches.
    pub with: BTreeSet<u64>,
    /// Runs of which only some blocks are there besides.
    pub partly: Vec<Partly>,
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
    let patches: Vec<u64> = patches.into_iter().collect();
    cut_with_blocks(state, patches, [])
}

/// The same, and with what is on its way of some blocks.
pub fn cut_with_blocks(
    state: &State,
    patches: impl IntoIterator<Item = u64>,
    blocks: impl IntoIterator<Item = u32>,
) -> Cut {
    let mut with: BTreeSet<u64> = patches.into_iter().map(|of| state.resolved(of)).collect();
    with.retain(|number| is_open(state, *number));
    // Of a run a block is there; of all other patches that is the whole patch.
    let mut blocks_of: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for block in blocks {
        for number in state.in_flight_of(block) {
            blocks_of.entry(number).or_default().insert(block);
        }
    }
    let mut partly = BTreeMap::new();
    for (number, blocks) in blocks_of {
        let (there, all) = (blocks.len(), open_parts(state, number).count());
        if there >= all {
            with.insert(number);
        } else if !with.contains(&number) {
            partly.insert(
                number,
                Partly {
                    patch: number,
                    there,
                    all,
                },
            );
        }
    }
    let broken = broken(state, &with, &partly);
    let is_in_flight = |number: &u64| {
        let patch = state.patch(*number);
        patch.is_some_and(|patch| patch.standing == Standing::InFlight)
    };
    Cut {
        is_now: broken.is_empty() && with.iter().all(is_in_flight),
        operations: operations(state, &with, &partly),
        partly: partly.into_values().collect(),
        with,
        broken,
    }
}

fn is_open(state: &State, number: u64) -> bool {
    let patch = state.patch(number);
    patch.is_some_and(|patch| patch.standing != Standing::Committed)
}

fn open_parts(state: &State, number: u64) -> impl Iterator<Item = &Part> {
    let parts = state.patch(number).map_or(&[][..], |patch| &patch.parts);
    parts.iter().filter(|part| !part.is_stable)
}

/// What each of them takes along and is not there. What waits for a run waits for all of its blocks.
fn broken(state: &State, with: &BTreeSet<u64>, partly: &BTreeMap<u64, Partly>) -> Vec<Broken> {
    let (mut broken, mut blocks) = (Vec::new(), BTreeSet::new());
    for number in with.iter().chain(partly.keys()) {
        for (other, edge) in taken_along(state, *number, &mut blocks) {
            // Of a run on the same block that block alone goes along.
            let is_there =
                with.contains(&other) || (edge == Edge::OnItsWay && partly.contains_key(&other));
            if is_open(state, other) && !is_there {
                let (with, without) = (*number, other);
                broken.push(Broken {
                    with,
                    without,
                    edge,
                });
            }
            if broken.len() == MOST_TOLD {
                return broken;
            }
        }
    }
    broken
}

fn operations(state: &State, with: &BTreeSet<u64>, partly: &BTreeMap<u64, Partly>) -> Vec<Left> {
    let mut counts: BTreeMap<u64, (usize, usize, Vec<Partly>)> = BTreeMap::new();
    for (number, patch) in state.patches() {
        if patch.standing == Standing::Committed || patch.parts.is_empty() {
            continue;
        }
        for scope in &patch.scopes {
            let (there, all, parts) = counts.entry(*scope).or_default();
            *there += usize::from(with.contains(&number));
            *all += 1;
            parts.extend(partly.get(&number));
        }
    }
    let told = counts.into_iter().take(MOST_TOLD);
    let left = told.filter_map(|(scope, (there, all, mut partly))| {
        let operation = state.scope(scope)?.label.clone();
        partly.truncate(MOST_TOLD);
        Some(Left {
            operation,
            there,
            all,
            partly,
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

fn partly_words(partly: &[Partly]) -> String {
    let some = partly.iter().take(MOST_RUNS_IN_WORDS);
    let mut words: Vec<String> = some
        .map(|of| format!("{} of {} blocks of p{}", of.there, of.all, of.patch))
        .collect();
    if partly.len() > MOST_RUNS_IN_WORDS {
        words.push(format!(
            "parts of {} more",
            partly.len() - MOST_RUNS_IN_WORDS
        ));
    }
    words.join(", ")
}

/// For people.
pub fn text(state: &State, cut: &Cut) -> String {
    let what = match (cut.with.len(), &cut.partly[..]) {
        (1, []) => format!(
            "{} and no other patch",
            cut.with
                .iter()
                .map(|of| format!("p{of}"))
                .collect::<String>()
        ),
        (count, []) => format!("these {count} patches and no others"),
        (0, partly) => format!("{} and nothing else", partly_words(partly)),
        (count, partly) => format!("{count} patches, {} and nothing else", partly_words(partly)),
    };
    let mut out = match (&cut.broken[..], cut.is_now) {
        ([], _) if cut.with.is_empty() && cut.partly.is_empty() => {
            "a crash now can leave the disk as it is, with nothing more\n".to_owned()
        }
        ([], true) => format!("a crash now can leave {what}\n"),
        ([], false) => {
            format!("a crash later can leave {what}, if nothing more is changed\n")
        }
        _ => format!("no crash leaves {what}:\n"),
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
            0 if left.partly.is_empty() => "nothing of it more".to_owned(),
            there if there == left.all => "all of it".to_owned(),
            there if left.partly.is_empty() => format!("{there} of {} patches", left.all),
            there => {
                let partly = partly_words(&left.partly);
                format!("{there} of {} patches, and {partly}", left.all)
            }
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
    let partly = |of: &[Partly]| {
        let each = |of: &Partly| json!({"patch": of.patch, "there": of.there, "all": of.all});
        of.iter().take(MOST_TOLD).map(each).collect::<Vec<_>>()
    };
    let operations = cut.operations.iter().map(|left| {
        json!({
            "operation": left.operation,
            "there": left.there,
            "all": left.all,
            "partly": partly(&left.partly),
        })
    });
    json!({
        "with": cut.with.iter().collect::<Vec<_>>(),
        "partly": partly(&cut.partly),
        "is_possible": cut.broken.is_empty(),
        "is_now": cut.is_now,
        "broken": broken.collect::<Vec<_>>(),
        "operations": operations.collect::<Vec<_>>(),
    })
}
