//! The workloads that are explored unless others are named: by `crash ablate`, and in part by
//! `crash fs`.

use backstitch_crash_core::formatted::ImageOptions;
use backstitch_crash_core::schedule::Schedule;
use backstitch_mechanisms::Ordering;
use backstitch_store::Optimisations;

use crate::campaign::Campaign;
use backstitch_crash_workloads::Workload;
use backstitch_crash_workloads::{generate, scripts};

/// How many are taken of ACE's workloads, and of our own with one operation. The rest differ from
/// these only in names, and show no more.
const OF_EACH: usize = 120;

/// The workloads of an ablation: short ones of every sort, some random ones, the cases and the
/// scripts. Workloads found by feedback are not among them, for two reasons: they are found for one
/// image, and an ablation has several; and when a rule is added or removed, other workloads are
/// found, so another one would show a rule.
pub fn workloads(seed: u64) -> Vec<Workload> {
    let mut all = Vec::new();
    for mut short in [generate::ace(1), generate::sequences(1)] {
        generate::shuffle(&mut short, seed);
        short.truncate(OF_EACH);
        all.append(&mut short);
    }
    all.extend(generate::flushed(20, seed));
    all.extend(generate::random(40, seed));
    all.extend(generate::cases());
    all.extend(scripts::workloads());
    all
}

/// A campaign without workloads, as `crash fs` makes it when it is given no options.
pub fn campaign(ordering: Ordering, seed: u64, threads: usize) -> Campaign {
    let variants = [Optimisations::BOTH, Optimisations::NONE]
        .into_iter()
        .flat_map(|opt| Schedule::ALL.map(|schedule| (opt, schedule)));
    Campaign {
        ordering,
        workloads: Vec::new(),
        variants: variants.collect(),
        image: ImageOptions::default(),
        base: None,
        seed,
        torn: false,
        drive: None,
        unit_bytes: None,
        exhaustive: 20_000,
        samples: 1000,
        whole_every: 64,
        in_use_every: 64,
        most_states: u64::MAX,
        most_states_each: u64::MAX,
        most_failures: 1,
        threads,
    }
}
