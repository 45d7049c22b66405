//! Finds workloads by feedback: they are drawn at random or mutated, run once, and kept if they
//! come by something that no other did before.
//!
//! The caller says what a workload comes by. Candidates are made in batches of a fixed size, so
//! that the result does not depend on the number of threads that run a batch.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use fastrand::Rng as Random;
use rustc_hash::{FxHashMap, FxHashSet};

use super::mutate::Mutator;
use backstitch_crash_core::operation::{Operation, script};
use backstitch_mechanisms::Ordering;

/// The image that workloads are for. Sizes and offsets are chosen near the borders that follow from
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The size of a block.
    pub block_bytes: u64,
    /// The size of the image.
    pub size_bytes: u64,
    /// The mechanism under which it is mounted.
    pub ordering: Ordering,
}

/// What a run came by: a rule, in which way, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feature {
    /// The rule's number.
    pub rule: u16,
    /// The number of the way in which the run came by it. The caller defines these.
    pub how: u8,
    /// How often, as the number of a bucket of similar counts.
    pub bucket: u8,
}

/// A workload to be run.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its operations.
    pub operations: Vec<Operation>,
    /// How many of them, at the beginning, only prepare.
    pub setup: usize,
}

/// What a candidate covers.
#[derive(Debug)]
pub struct Covered {
    /// What it came by.
    pub features: BTreeSet<Feature>,
    /// Whether the engine failed in it. The explorer must see that.
    pub is_trouble: bool,
}

/// Candidates of a batch: all of them are made before any is run.
const BATCH: usize = 64;

/// Candidates that are tried for each workload that is asked for, and the number added to these.
const TRIES_EACH: usize = 24;
const TRIES: usize = 512;

/// The first so many candidates are drawn at random. After that one in so many is, and the others
/// are mutated.
const DRAWN_FIRST: usize = 64;
const DRAWN_EVERY: usize = 16;

/// How many features that differ only in the bucket a new kind of feature is worth.
const NEW_KIND: usize = 32;

/// How many random features are compared to find a rare one.
const RARE_OF: usize = 12;

/// Runs a batch, and returns what each candidate covers.
pub type Look<'a, E> = &'a mut dyn FnMut(&[Candidate]) -> Result<Vec<Covered>, E>;

/// Makes `count` workloads for an image. `look` runs a batch and returns what each candidate
/// covers.
///
/// # Errors
/// The first error of `look`.
pub fn guided<E>(
    count: usize,
    image: Image,
    seed: u64,
    look: Look<'_, E>,
) -> Result<Vec<Candidate>, E> {
    let mut random = Random::with_seed(seed.wrapping_mul(0x1_0000_0007));
    let mutator = Mutator::new(image);
    let mut corpus = Corpus::default();
    let tries = TRIES + count * TRIES_EACH;
    let mut tried = 0;
    while tried < tries {
        let mut batch = Vec::new();
        for number in tried..tried + BATCH {
            let is_drawn = number < DRAWN_FIRST || number % DRAWN_EVERY == 0;
            let candidate = match corpus.pick(&mut random).filter(|_| !is_drawn) {
                None => mutator.draw(&mut random),
                Some(parent) => {
                    let other = corpus.pick(&mut random).unwrap_or(parent);
                    mutator.mutate(parent, other, &mut random)
                }
            };
            if corpus.known.insert(script(&candidate.operations)) {
                batch.push(candidate);
            }
        }
        tried += BATCH;
        let covered = look(&batch)?;
        for (candidate, covered) in batch.into_iter().zip(covered) {
            corpus.offer(candidate, covered);
        }
    }
    Ok(corpus.choose(count, &mutator, &mut random))
}

/// The candidates that were kept.
#[derive(Default)]
struct Corpus {
    kept: Vec<(Candidate, Covered)>,
    /// For each feature, how many of all candidates came by it, and the indices of the kept ones
    /// that do.
    features: FxHashMap<Feature, (u64, Vec<usize>)>,
    /// The features, in a fixed order.
    list: Vec<Feature>,
    known: FxHashSet<String>,
}

impl Corpus {
    /// Keeps a candidate if it covers something that none before did.
    fn offer(&mut self, candidate: Candidate, covered: Covered) {
        let mut is_new = covered.is_trouble;
        for feature in &covered.features {
            let (count, _) = self.features.entry(*feature).or_insert_with(|| {
                self.list.push(*feature);
                (0, Vec::new())
            });
            *count += 1;
            is_new |= *count == 1;
        }
        if !is_new {
            return;
        }
        let place = self.kept.len();
        for feature in &covered.features {
            if let Some((_, by)) = self.features.get_mut(feature) {
                by.push(place);
            }
        }
        self.kept.push((candidate, covered));
    }

    /// A candidate to mutate. Every other time it is one that covers something rare.
    fn pick(&self, random: &mut Random) -> Option<&Candidate> {
        if self.kept.is_empty() {
            return None;
        }
        let mut place = random.usize(..self.kept.len());
        if random.bool() && !self.list.is_empty() {
            let some = (0..RARE_OF).map(|_| self.list[random.usize(..self.list.len())]);
            let rarest = some.min_by_key(|feature| (self.features[feature].0, *feature));
            let by = rarest.map_or(&[][..], |feature| &self.features[&feature].1);
            if !by.is_empty() {
                place = by[random.usize(..by.len())];
            }
        }
        Some(&self.kept[place].0)
    }

    /// Chooses `count` candidates: first those in which the engine failed, then always the one that
    /// adds most to those chosen. When none adds anything, a new round begins with the rest.
    fn choose(&self, count: usize, mutator: &Mutator, random: &mut Random) -> Vec<Candidate> {
        let (trouble, mut left): (Vec<usize>, Vec<usize>) =
            (0..self.kept.len()).partition(|place| self.kept[*place].1.is_trouble);
        let mut chosen = trouble;
        while chosen.len() < count && !left.is_empty() {
            let before = chosen.len();
            self.choose_among(&mut left, count, &mut chosen);
            if chosen.len() == before {
                break;
            }
        }
        chosen.truncate(count);
        let mut chosen: Vec<Candidate> = chosen.iter().map(|at| self.kept[*at].0.clone()).collect();
        // Fills up with random workloads if not enough different ones were found.
        while chosen.len() < count {
            chosen.push(mutator.draw(random));
        }
        chosen
    }

    /// One round: moves candidates that add something to the others of the round from `left` to
    /// `chosen`.
    fn choose_among(&self, left: &mut Vec<usize>, count: usize, chosen: &mut Vec<usize>) {
        let mut covered = FxHashSet::default();
        let mut kinds = FxHashSet::default();
        // A candidate's worth only falls as others are chosen. So if the top of the heap has not
        // lost any, it is the best one.
        let worth = |at: usize, covered: &FxHashSet<Feature>, kinds: &FxHashSet<(u16, u8)>| {
            let (candidate, seen) = &self.kept[at];
            let new = seen.features.iter().filter(|f| !covered.contains(f));
            let worth: usize = new
                .map(|f| match kinds.contains(&(f.rule, f.how)) {
                    true => 1,
                    false => NEW_KIND,
                })
                .sum();
            // Of candidates with the same worth the shortest comes first, then the earliest.
            (worth, Reverse(candidate.operations.len()), Reverse(at))
        };
        let mut heap: BinaryHeap<_> = left.iter().map(|at| worth(*at, &covered, &kinds)).collect();
        while let Some(top) = heap.pop() {
            let Reverse(at) = top.2;
            let now = worth(at, &covered, &kinds);
            if now.0 == 0 || chosen.len() >= count {
                continue;
            }
            if heap.peek().is_some_and(|next| *next > now) {
                heap.push(now);
                continue;
            }
            let features = &self.kept[at].1.features;
            covered.extend(features.iter().copied());
            kinds.extend(features.iter().map(|f| (f.rule, f.how)));
            chosen.push(at);
            left.retain(|other| *other != at);
        }
    }
}
