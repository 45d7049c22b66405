//! The workloads that are explored where none are named: by `crash ablate`, and in part by `crash fs`.

use crate::ace::Workload;
use crate::{generate, scripts};

/// The workloads of an ablation: short ones of every sort, some random ones, and the scripts.
pub fn workloads(seed: u64) -> Vec<Workload> {
    let mut all = generate::ace(1);
    all.extend(generate::sequences(1));
    all.extend(generate::flushed(20, seed));
    all.extend(generate::random(60, seed));
    all.extend(scripts::workloads());
    all
}
