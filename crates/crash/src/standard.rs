//! The workloads that are explored where none are named: by `crash ablate`, and in part by `crash fs`.

use crate::ace::Workload;
use crate::{generate, scripts};

/// Of ACE's workloads and of our own of one operation, so many: those that differ from them by a name only show no more.
const OF_EACH: usize = 120;

/// The workloads of an ablation: short ones of every sort, some random ones, the cases and the scripts.
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
