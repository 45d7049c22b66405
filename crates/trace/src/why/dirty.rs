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

/// Patches that are not on stable storage, not found, and may be wanted all the same: of which the
/// trace does not have all operations.
pub fn untold(state: &State, wanted: &Wanted) -> usize {
    if !wanted.is_by_operation() {
        return 0;
    }
    let others = state.patches().filter(|(number, patch)| {
        !patch.parts.is_empty()
            && patch.standing != Standing::Committed
            && patch.may_be_of_others()
            && !wanted.is_met_by(state, *number, patch)
    });
    others.count()
}

/// The patches that are wanted and not on stable storage, those with the longest chains first.
pub fn dirty(state: &State, wanted: &Wanted) -> Vec<Dirty> {
    let mut all = longest(state, wanted, usize::MAX).1;
    all.sort_by_key(|dirty| std::cmp::Reverse((dirty.rounds, dirty.chain.len())));
    all
}

/// How many patches are wanted and not on stable storage, and of at most so many of those that need
/// the most rounds the chains.
pub fn longest(state: &State, wanted: &Wanted, most: usize) -> (usize, Vec<Dirty>) {
    let mut rounds = Rounds::new(state);
    let mut all: Vec<(u32, u64)> = state
        .patches()
        .filter(|(number, patch)| wanted.is_met_by(state, *number, patch))
        .filter(|(_, patch)| patch.standing != Standing::Committed)
        .map(|(number, _)| (rounds.of(number), number))
        .collect();
    if all.len() > most {
        all.sort_by_key(|(rounds, _)| std::cmp::Reverse(*rounds));
    }
    let dirty = all.iter().take(most).map(|(of, number)| Dirty {
        rounds: *of,
        chain: rounds.chain(*number),
    });
    (all.len(), dirty.collect())
}

/// For people: the longest chains, those that are part of one already left out.
pub fn text(state: &State, all: &[Dirty], untold: usize) -> String {
    text_of(state, all.len(), all, untold)
}

/// The same where `all` are not all, but there are `count`.
pub fn text_of(state: &State, count: usize, all: &[Dirty], untold: usize) -> String {
    let rest = match untold {
        0 => String::new(),
        untold => format!(
            "{untold} more patches are not on the disk, of which the trace does not tell all operations\n"
        ),
    };
    if all.is_empty() {
        return match untold {
            0 => "all of it is on the disk\n".to_owned(),
            _ => format!("all that the trace tells of it is on the disk\n{rest}"),
        };
    }
    let most = all.first().map_or(0, |dirty| dirty.rounds);
    let mut out = format!(
        "{count} patches are not on the disk; {} of writing until they can be\n",
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
    if untold > 0 {
        out += "\n";
    }
    out + &rest
}

/// For programs: the keys stay.
pub fn json(state: &State, all: &[Dirty], untold: usize) -> Value {
    let patches = all.iter().map(|dirty| {
        let chain = dirty.chain.iter().map(|patch| document(state, *patch));
        json!({"rounds": dirty.rounds, "chain": chain.collect::<Vec<_>>()})
    });
    json!({"dirty": patches.collect::<Vec<_>>(), "untold": untold})
}

pub(super) fn rounds_text(rounds: u32) -> String {
    match rounds {
        1 => "1 round".to_owned(),
        rounds => format!("{rounds} rounds"),
    }
}
