//! Why is this not on the disk?

use serde_json::{Value, json};

use super::rounds::Rounds;
use super::{chain_text, document};
use crate::graph::Wanted;
use crate::state::{Standing, State};

/// A patch that is not on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirty {
    /// Rounds of writing until it can be there.
    pub rounds: u32,
    /// It, and what it waits for: the longest chain there is.
    pub chain: Vec<u64>,
}

/// The patches that are wanted and not on stable storage, those with the longest chains first.
pub fn dirty(state: &State, wanted: &Wanted) -> Vec<Dirty> {
    let mut rounds = Rounds::new(state);
    let mut all: Vec<Dirty> = state
        .patches()
        .filter(|(number, patch)| wanted.is_met_by(state, *number, patch))
        .filter(|(_, patch)| patch.standing != Standing::Committed)
        .map(|(number, _)| Dirty {
            rounds: rounds.of(number),
            chain: rounds.chain(number),
        })
        .collect();
    all.sort_by_key(|dirty| std::cmp::Reverse((dirty.rounds, dirty.chain.len())));
    all
}

/// For people: the longest chains, those that are part of one already left out.
pub fn text(state: &State, all: &[Dirty]) -> String {
    if all.is_empty() {
        return "all of it is on the disk\n".to_owned();
    }
    let most = all.first().map_or(0, |dirty| dirty.rounds);
    let mut out = format!(
        "{} patches are not on the disk; {} of writing until they can be\n",
        all.len(),
        rounds_text(most)
    );
    let mut told = std::collections::BTreeSet::new();
    for dirty in all {
        let first = dirty.chain.first().copied().unwrap_or(0);
        if !told.insert(first) {
            continue;
        }
        out += &format!("\n{}:\n", rounds_text(dirty.rounds));
        out += &chain_text(state, &dirty.chain, "  ");
        told.extend(&dirty.chain);
    }
    out
}

/// For programs: the keys stay.
pub fn json(state: &State, all: &[Dirty]) -> Value {
    let patches = all.iter().map(|dirty| {
        let chain = dirty.chain.iter().map(|patch| document(state, *patch));
        json!({"rounds": dirty.rounds, "chain": chain.collect::<Vec<_>>()})
    });
    json!({"dirty": patches.collect::<Vec<_>>()})
}

pub(super) fn rounds_text(rounds: u32) -> String {
    match rounds {
        1 => "1 round".to_owned(),
        rounds => format!("{rounds} rounds"),
    }
}
