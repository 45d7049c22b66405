//! The graph against the reference model, with every combination of switches.
//!
//! Every run takes another seed and prints it; `SEED=…` repeats a run. `STEPS=…` (or
//! `PROPTEST_CASES=…`) asks for more than the 20,000 steps that a change must survive;
//! `scripts/soak.sh` asks for a million.

use crate::support;
use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

const FEWEST_STEPS: u64 = 20_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn graph_and_model_agree() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("SEED").unwrap_or(now.as_nanos() as u64);
    println!("SEED={seed}");
    let wanted = number("STEPS").unwrap_or(0).max(FEWEST_STEPS);
    let cases = number("PROPTEST_CASES").unwrap_or(400) as u32;
    let mut taken = 0;
    let mut round = 0;
    while taken < wanted {
        let mut runner = TestRunner::new(ProptestConfig {
            cases,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(seed.wrapping_add(round)),
            ..ProptestConfig::default()
        });
        let count = Cell::new(0);
        let result = runner.run(&support::steps(), |steps| {
            count.set(count.get() + 4 * steps.len() as u64);
            (support::check_all(&steps, None, true))
                .and_then(|()| support::check_in_queue(&steps, None, true))
                .map_err(TestCaseError::fail)
        });
        if let Err(error) = result {
            panic!("SEED={seed}: {error}");
        }
        taken += count.get();
        round += 1;
    }
    println!("{taken} steps, a quarter with each combination of switches, SEED={seed}");
}
