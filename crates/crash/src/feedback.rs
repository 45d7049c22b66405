//! Finding workloads by feedback, and counting the rules that workloads come by.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstitch_crash_core::image::Fork;
use backstitch_rules::watch::{Counts, Passes};

use crate::campaign::{Campaign, CampaignError};
use crate::scout::{Seen, look};
use backstitch_crash_workloads::Workload;
use backstitch_crash_workloads::generate::guided::{Candidate, Covered, Feature, Image, guided};

impl Campaign {
    /// Finds `count` workloads that come by rules in different ways, under the campaign's
    /// mechanism, image and variants: workloads are drawn at random and mutated, run once, and kept
    /// if they cover something new. The same seed gives the same workloads, on any number of
    /// threads.
    ///
    /// # Errors
    /// Where the image cannot be made.
    pub fn guided(&self, count: usize) -> Result<Vec<Workload>, CampaignError> {
        let start = self.start()?;
        let image = Image {
            block_bytes: start.block_bytes().into(),
            size_bytes: start.home_bytes(),
            ordering: self.ordering,
        };
        let mut tried = 0;
        let mut look = |batch: &[Candidate]| {
            let seen = self.look_at_all(&start, batch, tried);
            tried += batch.len();
            Ok::<_, CampaignError>(seen.iter().map(covered).collect())
        };
        let chosen = guided(count, image, self.seed, &mut look)?;
        let named = |(number, candidate): (usize, Candidate)| Workload {
            name: format!("guided:{}/{}", self.seed, number + 1),
            operations: candidate.operations,
            setup: candidate.setup,
        };
        Ok(chosen.into_iter().enumerate().map(named).collect())
    }

    /// The rules that the campaign's workloads come by, when each runs once under each variant.
    /// Nothing is explored.
    ///
    /// # Errors
    /// Where the image cannot be made.
    pub fn passes(&self) -> Result<Counts, CampaignError> {
        let start = self.start()?;
        let mut all = Counts::default();
        for variant in 0..self.variants.len() {
            let of = |workload: &Workload| Candidate {
                operations: workload.operations.clone(),
                setup: workload.setup,
            };
            let batch: Vec<Candidate> = self.workloads.iter().map(of).collect();
            for seen in self.look_at_each(&start, &batch, |_| variant) {
                for (rule, passes) in &seen.counts {
                    all.entry(*rule).or_default().add(passes);
                }
            }
        }
        Ok(all)
    }

    /// Runs each candidate under one of the variants, in turn.
    fn look_at_all(&self, start: &Fork, batch: &[Candidate], first: usize) -> Vec<Seen> {
        self.look_at_each(start, batch, |at| (first + at) % self.variants.len())
    }

    fn look_at_each(
        &self,
        start: &Fork,
        batch: &[Candidate],
        variant: impl Fn(usize) -> usize + Sync,
    ) -> Vec<Seen> {
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.threads.clamp(1, batch.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(Candidate { operations, setup }) = batch.get(at) else {
                            return;
                        };
                        let seen = look(start, operations, *setup, &self.plan(variant(at)));
                        if let Ok(mut found) = found.lock() {
                            found.push((at, seen));
                        }
                    }
                });
            }
        });
        let mut found = found.into_inner().unwrap_or_default();
        found.sort_by_key(|(at, _)| *at);
        found.into_iter().map(|(_, seen)| seen).collect()
    }
}

/// What a run covers, for comparison with others.
fn covered(seen: &Seen) -> Covered {
    let mut features = BTreeSet::new();
    for (rule, passes) in &seen.counts {
        let counts = ways(passes).into_iter().zip(0..);
        for (count, how) in counts.filter(|(count, _)| *count > 0) {
            features.insert(Feature {
                rule: rule.0,
                how,
                bucket: bucket(count),
            });
        }
    }
    Covered {
        features,
        is_trouble: seen.trouble.is_some(),
    }
}

/// How often a run came by a rule, in each way that is told apart.
fn ways(passes: &Passes) -> [u64; 6] {
    [
        passes.reached,
        passes.pending,
        passes.rolled_back,
        passes.remounted,
        passes.merged,
        // A single patch adds nothing to what `pending` says.
        passes.most.saturating_sub(1),
    ]
}

/// The bucket of a count: 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127, more.
fn bucket(count: u64) -> u8 {
    match count {
        0..=3 => count as u8,
        4..=7 => 4,
        8..=15 => 5,
        16..=31 => 6,
        32..=127 => 7,
        _ => 8,
    }
}
