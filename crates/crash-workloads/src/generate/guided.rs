//! Workloads found by feedback: they are drawn and mutated, run once, and kept where they come by
//! something that none before did.
//!
//! What comes by is for the caller to say. Candidates are made in batches of a fixed size, so that
//! the result is the same however many threads look at a batch.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use fastrand::Rng as Random;
use rustc_hash::{FxHashMap, FxHashSet};

use super::mutate::Mutator;
use backstitch_crash_core::operation::{Operation, script};
use backstitch_mechanisms::Ordering;

/// What a workload is for: sizes and offsets are near the borders that these numbers make.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The size of a block.
    pub block_bytes: u64,
    /// The size of the image.
    pub size_bytes: u64,
    /// The mechanism that it is mounted with.
    pub ordering: Ordering,
}

/// What a run came by: a rule, how it was come by, and how often, in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feature {
    /// The rule's number.
    pub rule: u16,
    /// How it was come by: whoever looks numbers the ways.
    pub how: u8,
    /// How often: a number for all counts that are alike.
    pub bucket: u8,
}

/// A workload to be looked at.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What it does.
    pub operations: Vec<Operation>,
    /// How many of them only prepare.
    pub setup: usize,
}

/// What was seen of a candidate.
#[derive(Debug)]
pub struct Covered {
    /// What it came by.
    pub features: BTreeSet<Feature>,
    /// The engine did not get through it: the explorer has to see that.
    pub is_trouble: bool,
}

/// Candidates that are made before any of them is looked at.
const BATCH: usize = 64;

/// Candidates that are tried for each workload that is wanted, and in any case.
const TRIES_EACH: usize = 24;
const TRIES: usize = 512;

/// Candidates at the beginning that are drawn, not mutated, and later the candidates for each that
/// is drawn.
const DRAWN_FIRST: usize = 64;
const DRAWN_EVERY: usize = 16;

/// New buckets that a feature of a new kind is worth.
const NEW_KIND: usize = 32;

/// Features among which the rarest one is looked for.
const RARE_OF: usize = 12;

/// Says what each of a batch covers.
pub type Look<'a, E> = &'a mut dyn FnMut(&[Candidate]) -> Result<Vec<Covered>, E>;

/// Makes `count` workloads for an image. `look` says what each of a batch covers.
///
/// # Errors
/// Those of `look`.
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

/// What was kept.
#[derive(Default)]
struct Corpus {
    kept: Vec<(Candidate, Covered)>,
    /// How many of all candidates came by a feature, and the kept ones that do.
    features: FxHashMap<Feature, (u64, Vec<usize>)>,
    /// The same in an order.
    list: Vec<Feature>,
    known: FxHashSet<String>,
}

impl Corpus {
    /// Keeps a candidate that covers what none did.
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

    /// A candidate to go on from: in every other case one that covers something rare.
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

    /// As many as are wanted: first what the engine does not get through, then each time what adds
    /// most to those before; once nothing adds anything, the same again with the others.
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
        // Where not as many different ones were found.
        while chosen.len() < count {
            chosen.push(mutator.draw(random));
        }
        chosen
    }

    /// Moves those from `left` to `chosen` that add something to those of this round.
    fn choose_among(&self, left: &mut Vec<usize>, count: usize, chosen: &mut Vec<usize>) {
        let mut covered = FxHashSet::default();
        let mut kinds = FxHashSet::default();
        // What one adds only becomes less: what is on top and still adds as much adds most.
        let worth = |at: usize, covered: &FxHashSet<Feature>, kinds: &FxHashSet<(u16, u8)>| {
            let (candidate, seen) = &self.kept[at];
            let new = seen.features.iter().filter(|f| !covered.contains(f));
            let worth: usize = new
                .map(|f| match kinds.contains(&(f.rule, f.how)) {
                    true => 1,
                    false => NEW_KIND,
                })
                .sum();
            // Of those that add as much the shortest, and the first.
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
