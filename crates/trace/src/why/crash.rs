//! Which crashes are ruled out?

use std::collections::{BTreeMap, BTreeSet};

use backstitch_store::PatchKind;
use serde_json::{Value, json};

use super::{NOT_NEEDED, document, words};
use crate::state::{Standing, State};

/// Why one patch takes another one along to the disk, or behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// It waits for the other.
    Waits,
    /// The other is on the same block and has no undo data: no version can leave it out.
    NoUndo,
    /// The other is on the same block, which is on its way with it.
    OnItsWay,
}

/// Whether a crash from this moment on can leave one patch on the disk without the other, if nothing
/// more is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can.
    Possible,
    /// The first is on the disk already, or need not be any more, and the other is not.
    SoItIs,
    /// The other is on the disk already, or need not be any more.
    IsThere,
    /// It cannot: these lead from the one to the other, each with why it takes the next along.
    Forbidden(Vec<(u64, Edge)>),
}

/// The verdict about `with` being on the disk and `without` not.
pub fn crash(state: &State, with: u64, without: u64) -> Verdict {
    let (with, without) = (state.resolved(with), state.resolved(without));
    let is_there = |number: u64| {
        let patch = state.patch(number);
        patch.is_none_or(|patch| patch.standing == Standing::Committed)
    };
    match (is_there(with), is_there(without)) {
        (_, true) => return Verdict::IsThere,
        (true, false) => return Verdict::SoItIs,
        (false, false) => {}
    }
    // Who led to whom, from `with` on, the nearest first.
    let mut from: BTreeMap<u64, (u64, Edge)> = BTreeMap::new();
    let (mut queue, mut at) = (vec![with], 0);
    let mut blocks = BTreeSet::new();
    while let Some(number) = queue.get(at).copied() {
        at += 1;
        if number == without {
            return Verdict::Forbidden(path(&from, with, without));
        }
        for (next, edge) in taken_along(state, number, &mut blocks) {
            if next != with && !from.contains_key(&next) && !is_there(next) {
                from.insert(next, (number, edge));
                queue.push(next);
            }
        }
    }
    Verdict::Possible
}

/// Patches that are on the disk whenever this one is. Of a block that is in `blocks` already, with
/// whether the patch is still in memory only, its other patches have been told of.
pub(super) fn taken_along(
    state: &State,
    number: u64,
    blocks: &mut BTreeSet<(u32, bool)>,
) -> Vec<(u64, Edge)> {
    let Some(patch) = state.patch(number) else {
        return Vec::new();
    };
    let befores = patch.befores.iter().map(|before| state.resolved(*before));
    let mut all: Vec<(u64, Edge)> = befores.map(|before| (before, Edge::Waits)).collect();
    if patch.kind == PatchKind::Run {
        return all;
    }
    let is_later = patch.standing == Standing::Uncommitted;
    let parts = patch.parts.iter().map(|part| part.block);
    let new = parts.filter(|block| blocks.insert((*block, is_later)));
    for other in new.flat_map(|block| state.patches_of(block)) {
        let edge = state.patch(other).and_then(|o| match (o.standing, o.kind) {
            (Standing::InFlight, _) => Some(Edge::OnItsWay),
            (Standing::Uncommitted, PatchKind::Hard) if is_later => Some(Edge::NoUndo),
            _ => None,
        });
        all.extend(edge.filter(|_| other != number).map(|edge| (other, edge)));
    }
    all
}

fn path(from: &BTreeMap<u64, (u64, Edge)>, with: u64, without: u64) -> Vec<(u64, Edge)> {
    let mut path = Vec::new();
    let mut at = without;
    while at != with {
        let Some((previous, edge)) = from.get(&at) else {
            break;
        };
        path.push((*previous, *edge));
        at = *previous;
    }
    path.reverse();
    path
}

impl Verdict {
    /// With at most so many patches of the way from the one to the other, and how many are left out.
    pub fn shortened(mut self, most: usize) -> (Verdict, usize) {
        let mut left_out = 0;
        if let Verdict::Forbidden(path) = &mut self {
            left_out = path.len().saturating_sub(most);
            path.truncate(most);
        }
        (self, left_out)
    }
}

/// For people.
pub fn text(state: &State, with: u64, without: u64, verdict: &Verdict) -> String {
    let is_discarded = |number| state.was_discarded(number);
    match verdict {
        Verdict::IsThere if is_discarded(without) => format!("no: p{without} {NOT_NEEDED}\n"),
        Verdict::IsThere => format!("no: p{without} is on the disk already\n"),
        Verdict::SoItIs => {
            let has = match is_discarded(with) {
                true => NOT_NEEDED,
                false => "is on the disk",
            };
            let without = words(state, without);
            format!("that is what there is: p{with} {has}, and {without} is not on the disk\n")
        }
        Verdict::Possible => format!(
            "a crash can leave {}\n  without {}: nothing leads from the one to the other\n",
            words(state, with),
            words(state, without)
        ),
        Verdict::Forbidden(path) => {
            let mut out = format!("no crash leaves p{with} without p{without}:\n");
            for (number, edge) in path {
                let edge = match edge {
                    Edge::Waits => "waits for",
                    Edge::NoUndo => "is on the same block, which cannot be written without",
                    Edge::OnItsWay => "is on the same block, which is on its way with",
                };
                out += &format!("  {}: {edge}\n", words(state, *number));
            }
            out + &format!("  {}\n", words(state, without))
        }
    }
}

/// For programs: the keys stay.
pub fn json(state: &State, with: u64, without: u64, verdict: &Verdict) -> Value {
    let (word, path) = match verdict {
        Verdict::IsThere => ("is there", &[][..]),
        Verdict::SoItIs => ("so it is", &[][..]),
        Verdict::Possible => ("possible", &[][..]),
        Verdict::Forbidden(path) => ("forbidden", &path[..]),
    };
    let path = path.iter().map(|(number, edge)| {
        let edge = match edge {
            Edge::Waits => "waits for",
            Edge::NoUndo => "no undo data",
            Edge::OnItsWay => "on its way",
        };
        json!({"patch": document(state, *number), "edge": edge})
    });
    json!({
        "with": document(state, with),
        "without": document(state, without),
        "verdict": word,
        "path": path.collect::<Vec<_>>(),
    })
}
