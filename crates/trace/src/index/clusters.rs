//! The graph at a moment where it has too many patches to be drawn one by one.

use std::collections::{BTreeMap, BTreeSet};

use backstitch_store::PatchKind;
use serde_json::{Value, json};

use crate::graph::{
    By, Drawing, Drawn, Wanted, block_of, block_text, change_text, drawn, is_heavy, label,
    operation_of, taken,
};
use crate::record::Change;
use crate::state::{Patch, State};

/// Patches that are drawn one by one.
const MOST_PATCHES: usize = 1_000;
/// What waits for what, drawn.
const MOST_EDGES: usize = 10_000;
/// Clusters that are drawn, and ways between them.
const MOST_CLUSTERS: usize = 300;
/// See `MOST_CLUSTERS`.
const MOST_WAYS: usize = 1_500;
/// Patches of a block that are told of.
const MOST_OF_A_BLOCK: usize = 300;

/// What is put together.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    /// One of its patches.
    patch: u64,
    /// By how they stand, as in [`Drawn::ALL`].
    counts: [usize; 5],
}

/// The graph of a state for programs: the keys stay. All patches where these are few enough,
/// otherwise clusters of them; `only` is one of those, whose patches are drawn, with what they wait
/// for directly and what waits for them.
pub fn graph(state: &State, by: By, wanted: &Wanted, only: Option<u64>) -> Value {
    if only.is_none() && wanted.is_all() && state.patches_count() > MOST_PATCHES {
        return together(state, by, |_| true);
    }
    let mut taken = taken(state, wanted);
    let mut left_out = 0;
    if let Some(only) = only {
        (taken, left_out) = with_neighbours(state, by, only, &taken);
    }
    if taken.len() <= MOST_PATCHES {
        let mut drawing = Drawing::of_these(state, by, &taken);
        let edges_left_out = drawing.edges.len().saturating_sub(MOST_EDGES);
        drawing.edges.truncate(MOST_EDGES);
        let mut document = drawing.json();
        document["edges_left_out"] = edges_left_out.into();
        document["patches_left_out"] = left_out.into();
        return document;
    }
    together(state, by, |number| taken.contains(&number))
}

/// The patches that are taken, put together.
fn together(state: &State, by: By, is_taken: impl Fn(u64) -> bool) -> Value {
    let (clusters, ways) = gathered(state, by, is_taken);
    let all = clusters.len();
    let mut largest: Vec<(Option<u64>, Cluster)> = clusters.into_iter().collect();
    largest.sort_by_key(|(_, cluster)| std::cmp::Reverse(cluster.counts.iter().sum::<usize>()));
    let (shown, rest) = largest.split_at(all.min(MOST_CLUSTERS));
    let keys: BTreeSet<Option<u64>> = shown.iter().map(|(key, _)| *key).collect();
    let rest: usize = rest.iter().flat_map(|(_, cluster)| cluster.counts).sum();
    let clusters = shown.iter().map(|(key, cluster)| {
        let counts = Drawn::ALL.iter().zip(cluster.counts);
        let counts = counts.map(|(drawn, count)| (drawn.word().to_owned(), count.into()));
        json!({
            "cluster": key,
            "name": name(state, by, cluster.patch),
            "counts": Value::Object(counts.collect()),
        })
    });
    let ways = ways
        .into_iter()
        .filter(|((from, to), _)| keys.contains(from) && keys.contains(to));
    let ways = ways
        .take(MOST_WAYS)
        .map(|((from, to), count)| json!({"after": from, "before": to, "count": count}));
    json!({
        "clusters": clusters.collect::<Vec<_>>(),
        "ways": ways.collect::<Vec<_>>(),
        "clusters_left_out": all - keys.len(),
        "patches_left_out": rest,
    })
}

type Ways = BTreeMap<(Option<u64>, Option<u64>), usize>;

fn gathered(
    state: &State,
    by: By,
    is_taken: impl Fn(u64) -> bool,
) -> (BTreeMap<Option<u64>, Cluster>, Ways) {
    let ready = state.ready();
    let mut clusters: BTreeMap<Option<u64>, Cluster> = BTreeMap::new();
    let mut ways = Ways::new();
    for (number, patch) in state.patches() {
        if !is_taken(number) {
            continue;
        }
        let key = key(by, patch);
        let cluster = clusters.entry(key).or_insert(Cluster {
            patch: number,
            counts: [0; 5],
        });
        let stands = drawn(&ready, number, patch);
        let place = Drawn::ALL.iter().position(|drawn| *drawn == stands);
        cluster.counts[place.unwrap_or(0)] += 1;
        for before in &patch.befores {
            if let Some(before) = state.patch(*before) {
                let to = self::key(by, before);
                if to != key {
                    *ways.entry((key, to)).or_default() += 1;
                }
            }
        }
    }
    (clusters, ways)
}

fn name(state: &State, by: By, patch: u64) -> String {
    match (state.patch(patch), by) {
        (Some(patch), By::Block) => block_of(state, patch),
        (Some(patch), By::Operation) => operation_of(state, patch),
        (None, _) => String::new(),
    }
}

fn key(by: By, patch: &Patch) -> Option<u64> {
    match by {
        By::Block => patch.parts.first().map(|part| u64::from(part.block)),
        By::Operation => patch.scopes.first().copied(),
    }
}

/// The patches of a cluster and those next to them, as many as can be drawn, and how many of them are
/// left out.
fn with_neighbours(
    state: &State,
    by: By,
    only: u64,
    all: &BTreeSet<u64>,
) -> (BTreeSet<u64>, usize) {
    let of = all.iter().copied().filter(|number| {
        let patch = state.patch(*number);
        patch.is_some_and(|patch| key(by, patch) == Some(only))
    });
    let members: Vec<u64> = of.collect();
    let (drawn, rest) = members.split_at(members.len().min(MOST_PATCHES / 2));
    let mut taken: BTreeSet<u64> = drawn.iter().copied().collect();
    let mut left_out: BTreeSet<u64> = rest.iter().copied().collect();
    let near = drawn.iter().filter_map(|number| state.patch(*number));
    let near = near.flat_map(|patch| patch.befores.iter().chain(&patch.afters));
    for number in near.map(|number| state.resolved(*number)) {
        if !all.contains(&number) || taken.contains(&number) {
            continue;
        }
        match taken.len() < MOST_PATCHES {
            true => taken.insert(number),
            false => left_out.insert(number),
        };
    }
    left_out.retain(|number| !taken.contains(number));
    (taken, left_out.len())
}

/// What the patches that are not on the disk change in a block, for programs: the keys stay.
pub fn block(state: &State, block: u32) -> Value {
    let (ready, place) = (state.ready(), state.place(block));
    let all = state.patches_of(block);
    let patches = all.filter_map(|number| Some((number, state.patch(number)?)));
    let mut count = 0;
    let mut told = Vec::new();
    for (number, patch) in patches {
        count += 1;
        if told.len() == MOST_OF_A_BLOCK {
            continue;
        }
        // The changes of a run are in different blocks, and of which one each is nobody knows.
        let (changes, left_out) = match patch.kind {
            PatchKind::Run => (&[][..], 0),
            _ => (
                &patch.changes[..],
                patch
                    .changes_count
                    .saturating_sub(patch.changes.len() as u64),
            ),
        };
        told.push(json!({
            "patch": number,
            "change": label(state, patch),
            "standing": drawn(&ready, number, patch).word(),
            "operation": operation_of(state, patch),
            "is_whole_block": is_heavy(patch.kind) && changes.is_empty(),
            "ranges": changes.iter().filter_map(range).collect::<Vec<_>>(),
            "ranges_left_out": left_out,
        }));
    }
    json!({
        "block": block,
        "name": block_text(state, block),
        "number": place.map(|at| at.offset_bytes / u64::from(at.len_bytes.max(1))),
        "len_bytes": place.map_or(0, |at| at.len_bytes),
        "patches": told,
        "patches_count": count,
    })
}

/// Where a change is: its first byte, how many, and words for it.
fn range(change: &Change) -> Option<Value> {
    let (offset_bytes, len_bytes) = match change {
        Change::Nothing => return None,
        Change::Bytes {
            offset_bytes,
            len_bytes,
        } => (*offset_bytes, *len_bytes),
        Change::Flip { offset_bytes, mask } => {
            let first = offset_bytes.saturating_add(mask.trailing_zeros() / 8);
            let last = offset_bytes.saturating_add((31 - mask.leading_zeros().min(31)) / 8);
            (first, last.saturating_sub(first) + 1)
        }
    };
    Some(json!([offset_bytes, len_bytes, change_text(change)]))
}
