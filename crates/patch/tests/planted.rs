//! The model test finds errors: every one that can be planted, and none where none is.

use crate::support;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use backstitch_patch::Planted;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Random cases within which every planted error must be found.
const CASES: u32 = 3000;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The number of the first case that finds something, and what: always the same for the same error.
fn first_failure(planted: Option<Planted>, invariants: bool) -> Option<(u32, String)> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    QUIET.set(true);
    let found = (1..=CASES).find_map(|case| {
        let steps = support::steps().new_tree(&mut runner).unwrap().current();
        let run = || {
            support::check_all(&steps, planted, invariants)?;
            support::check_in_queue(&steps, planted, invariants)
        };
        let result = catch_unwind(AssertUnwindSafe(run));
        result
            .unwrap_or_else(|_| Err("panicked".into()))
            .err()
            .map(|reason| (case, reason))
    });
    QUIET.set(false);
    found
}

/// Errors that cost nothing but merges that would be allowed: no write is wrong, only the graph's
/// books are.
const ONLY_BOOKS: &[Planted] = &[Planted::ExternalNotDecremented];

#[test]
fn every_planted_error_is_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !QUIET.get() {
            hook(info);
        }
    }));
    let mut missed = Vec::new();
    for planted in Planted::ALL {
        match first_failure(Some(planted), ONLY_BOOKS.contains(&planted)) {
            Some((case, reason)) => println!("{planted:?}: case {case}: {reason}"),
            None => missed.push(planted),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn without_a_planted_error_nothing_is_found() {
    assert_eq!(first_failure(None, true), None);
}
