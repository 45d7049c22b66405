//! Chooses the states of a trace to check: as many as are wanted, spread over its moments, the
//! corners first.

use rustc_hash::FxHashSet;

use backstitch_crash_core::closed::{self, Bounds, Coverage};
use backstitch_crash_core::frontier::{Frontier, Node};
use backstitch_crash_core::image::Fork;
use backstitch_store::{BlockClass, PatchKind};
use fastrand::Rng as Random;
use std::collections::BTreeMap;

use crate::error::AppResult;
use crate::options::Options;
use crate::place::{Cut, Place};
use crate::player::{Moment, play};
use crate::trace::Trace;
use crate::variant::{Variant, Variants, parts};

/// A state to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) place: Place,
}

/// The states to check, and what they were chosen from.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// Sorted by variant and moment.
    pub(crate) jobs: Vec<Job>,
    /// Sets of patches that were looked at.
    pub(crate) sets: u64,
    /// How many of these differ in their bytes or in what the program had said.
    pub(crate) distinct: u64,
    pub(crate) moments: u64,
    pub(crate) visited_moments: u64,
    /// Moments all of whose sets were looked at.
    pub(crate) whole_moments: u64,
    /// How many times everything was written back once, each time after another operation.
    pub(crate) once: usize,
    /// After how many operations that could be done.
    pub(crate) once_of: usize,
    pub(crate) coverage: BTreeMap<&'static str, u64>,
    pub(crate) refused: Vec<String>,
}

impl Choice {
    pub(crate) fn is_exhaustive(&self) -> bool {
        self.whole_moments == self.moments
            && self.jobs.len() as u64 == self.distinct
            && self.once == self.once_of
    }
}

/// The most patches of a moment of which all sets are tried.
const FEW_PATCHES: usize = 48;
/// The most sets of a moment that are looked at.
const MOST_SETS: usize = 2000;

/// The sets of one moment, the preferred ones first.
struct Group {
    variant: usize,
    moment: usize,
    sets: Vec<(u128, Cut)>,
}

/// Chooses the states to be checked.
pub(crate) fn choose(image: &Fork, trace: &Trace, options: &Options) -> AppResult<Choice> {
    let variants = Variants::new(trace, options.seed);
    let mut choice = Choice {
        once: variants.once(),
        once_of: variants.once_of,
        ..Choice::default()
    };
    let mut counts = Vec::new();
    for variant in &variants.all {
        let mut moments = 0;
        let mut count = |_: &Moment<'_>| {
            moments += 1;
            !options.is_stopped()
        };
        choice.refused = play(image, trace, options.ordering, variant, &mut count)?;
        counts.push(moments);
    }
    choice.moments = counts.iter().sum::<usize>() as u64;
    let shares = shares(&counts, variants.always, options.states as usize);
    let mut random = Random::with_seed(options.seed);
    let mut groups = Vec::new();
    for (at, variant) in variants.all.iter().enumerate() {
        let share = shares[usize::from(at >= variants.always)];
        let wanted = parts(counts[at], share, &mut random).map(|at| at + 1);
        gather(
            image,
            trace,
            options,
            (at, variant),
            &wanted.collect(),
            &mut groups,
            &mut choice,
        )?;
    }
    choice.visited_moments = groups.len() as u64;
    choice.distinct = distinct(&groups);
    pick(groups, &variants.all, options.states as usize, &mut choice);
    Ok(choice)
}

/// The most moments of each variant that are visited, for the first `always` of them and for the
/// others. If all are too many, the first ones, which are always the same, get half of the states,
/// so that a long program does not leave them without.
fn shares(counts: &[usize], always: usize, states: usize) -> [usize; 2] {
    let (first, others) = counts.split_at(always);
    match counts.iter().sum::<usize>() <= states || others.is_empty() {
        true => [share(first, states), share(others, states)],
        false => [share(first, states - states / 2), share(others, states / 2)],
    }
}

/// The most moments of each variant that are visited: all if they are few, else so many that each
/// gets a few states.
fn share(counts: &[usize], states: usize) -> usize {
    let all: usize = counts.iter().sum();
    let most = match all <= states {
        true => all,
        false => (states / 3).max(32).min(all),
    };
    let with = |share: usize| counts.iter().map(|count| share.min(*count)).sum::<usize>();
    let mut share = most.div_ceil(counts.len().max(1));
    while with(share) < most {
        share += 1;
    }
    share
}

fn gather(
    image: &Fork,
    trace: &Trace,
    options: &Options,
    (at, variant): (usize, &Variant),
    wanted: &FxHashSet<usize>,
    groups: &mut Vec<Group>,
    choice: &mut Choice,
) -> AppResult<()> {
    let last = wanted.iter().copied().max().unwrap_or(0);
    let mut visit = |moment: &Moment<'_>| {
        if wanted.contains(&moment.number) {
            let Frontier { nodes, mut states } =
                Frontier::new(&moment.mount.store, moment.mount.fork());
            count_coverage(&nodes, &mut choice.coverage);
            let seed = options.seed ^ ((at as u64) << 32) ^ moment.number as u64;
            let mut random = Random::with_seed(seed);
            let mut sets = Vec::new();
            let mut seen = FxHashSet::default();
            let mut visited = 0;
            let complete = visit_sets(&nodes, &mut random, &mut |included| {
                visited += 1;
                let fingerprint = states.fingerprint(&nodes, included);
                if seen.insert(fingerprint) {
                    sets.push((
                        with_words(fingerprint, moment.said),
                        Cut::of(&nodes, included),
                    ));
                }
            });
            choice.sets += visited;
            choice.whole_moments += u64::from(complete && states.is_complete);
            groups.push(Group {
                variant: at,
                moment: moment.number,
                sets: in_order(sets, nodes.len(), &mut random),
            });
        }
        moment.number < last && !options.is_stopped()
    };
    play(image, trace, options.ordering, variant, &mut visit).map(drop)
}

/// Makes states with the same bytes different if the program has said more.
fn with_words(fingerprint: u128, said: usize) -> u128 {
    fingerprint.wrapping_add((said as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// Visits all sets if there are few patches, else none, all, some corners and some random sets.
/// True if they were all.
fn visit_sets(nodes: &[Node], random: &mut Random, emit: &mut dyn FnMut(&[bool])) -> bool {
    if nodes.len() <= FEW_PATCHES {
        let mut emitted = 0;
        let bounds = Bounds {
            exhaustive: 256,
            samples: 64,
        };
        let coverage = closed::visit(nodes, bounds, random, &mut |included| {
            emitted += 1;
            if emitted <= MOST_SETS {
                emit(included);
            }
        });
        return coverage != Coverage::Sampled && emitted <= MOST_SETS;
    }
    let mut show = |cut: Cut| {
        if let Some(included) = cut.included(nodes) {
            emit(&included);
        }
    };
    show(Cut::But(Vec::new()));
    show(Cut::Only(Vec::new()));
    let some = |random: &mut Random, count: usize| -> Vec<u32> {
        (0..count)
            .map(|_| random.usize(..nodes.len()) as u32)
            .collect()
    };
    for _ in 0..16 {
        show(Cut::But(some(random, 1)));
        show(Cut::Only(some(random, 1)));
    }
    for _ in 0..8 {
        let count = 2 + random.usize(..14);
        show(Cut::But(some(random, count)));
        let count = 2 + random.usize(..14);
        show(Cut::Only(some(random, count)));
    }
    false
}

/// Sorts the sets: corners, which are the first of the list, stay first. Both parts are shuffled,
/// so that their first few are of all kinds.
fn in_order(mut sets: Vec<(u128, Cut)>, patches: usize, random: &mut Random) -> Vec<(u128, Cut)> {
    let corners = sets.len().min(2 * patches + 2);
    let (corners, others) = sets.split_at_mut(corners);
    for part in [corners, others] {
        random.shuffle(part);
    }
    sets
}

fn distinct(groups: &[Group]) -> u64 {
    let all: FxHashSet<u128> = groups
        .iter()
        .flat_map(|group| group.sets.iter().map(|(key, _)| *key))
        .collect();
    all.len() as u64
}

/// Picks one state of each moment, then another one of each, until there are enough.
fn pick(groups: Vec<Group>, variants: &[Variant], most: usize, choice: &mut Choice) {
    let mut taken = FxHashSet::default();
    let mut lists: Vec<_> = groups
        .into_iter()
        .map(|g| (g.variant, g.moment, g.sets.into_iter()))
        .collect();
    let mut picked = Vec::new();
    let mut going = true;
    while going && picked.len() < most {
        going = false;
        for (variant, moment, sets) in &mut lists {
            let next = sets.find(|(key, _)| taken.insert(*key));
            let Some((_, cut)) = next.filter(|_| picked.len() < most) else {
                continue;
            };
            going = true;
            picked.push((*variant, *moment, cut));
        }
    }
    picked.sort_by_key(|(variant, moment, _)| (*variant, *moment));
    choice.jobs = picked
        .into_iter()
        .map(|(variant, moment, cut)| Job {
            place: Place {
                variant: variants[variant],
                moment,
                cut,
            },
        })
        .collect();
}

fn count_coverage(nodes: &[Node], coverage: &mut BTreeMap<&'static str, u64>) {
    for node in nodes {
        let name = match (node.class, node.kind) {
            (BlockClass::Data, PatchKind::Hard) => "patches_in_memory_data_without_undo_data",
            (BlockClass::Data, _) => "patches_in_memory_data_with_undo_data",
            (_, PatchKind::Bits) => "patches_in_memory_bits_of_a_bitmap",
            (BlockClass::Directory, PatchKind::Hard) => "patches_in_memory_names_without_undo_data",
            (BlockClass::Directory, _) => "patches_in_memory_names_with_undo_data",
            (_, PatchKind::Hard) => "patches_in_memory_metadata_without_undo_data",
            (_, _) => "patches_in_memory_metadata_with_undo_data",
        };
        *coverage.entry(name).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_variant_does_not_need_the_others_get() {
        assert_eq!(share(&[10, 20, 30], 100), 30);
        assert_eq!(share(&[10, 500, 500], 300), 45);
        assert_eq!(share(&[0, 0], 100), 0);
        assert_eq!(share(&[4, 5], 1), 5);
    }

    #[test]
    fn the_first_variants_keep_half_of_the_states() {
        assert_eq!(shares(&[10, 20, 30], 2, 100), [20, 30]);
        assert_eq!(shares(&[30, 30, 90, 90], 2, 120), [30, 16]);
        assert_eq!(shares(&[300, 300], 2, 300), [50, 0]);
    }
}
