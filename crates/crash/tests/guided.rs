//! Workloads found by feedback are the same for the same seed, reach more rules than random ones,
//! and do not fail.

use crate::effort;
use backstitch_crash::{Campaign, NoObserver, Workload, generate, standard};

use backstitch_mechanisms::Ordering;
use backstitch_rules::watch::Passes;

const ORDERED: Ordering = Ordering::JOURNAL_ORDERED;

fn guided(ordering: Ordering, count: usize, threads: usize) -> Vec<Workload> {
    let campaign = standard::campaign(ordering, 1, threads);
    campaign.guided(count).expect("the image can be made")
}

/// How many rules were reached, how many with something pending, and how many in a rollback.
fn reach(ordering: Ordering, workloads: Vec<Workload>) -> [usize; 3] {
    let campaign = Campaign {
        workloads,
        ..standard::campaign(ordering, 1, 2)
    };
    let counts = campaign.passes().expect("the image can be made");
    let count = |is: fn(&Passes) -> bool| counts.values().filter(|passes| is(passes)).count();
    [
        count(|passes| passes.reached > 0),
        count(|passes| passes.pending > 0),
        count(|passes| passes.rolled_back > 0),
    ]
}

#[test]
fn the_same_on_any_number_of_threads() {
    for ordering in [Ordering::SOFT, ORDERED] {
        let one = guided(ordering, 12, 1);
        assert_eq!(one.len(), 12);
        assert_eq!(one, guided(ordering, 12, 3));
        let other = standard::campaign(ordering, 2, 2).guided(12).unwrap();
        assert_ne!(one[0].operations, other[0].operations);
    }
}

#[test]
fn they_come_by_more_than_random_ones() {
    for ordering in [Ordering::SOFT, ORDERED] {
        let [reached, pending, rolled_back] = reach(ordering, guided(ordering, 20, 2));
        let random = reach(ordering, generate::random(20, 1));
        // Feedback must reach more rules; by how much depends on which rules there are.
        assert!(reached >= random[0] + 10, "{reached}, random {random:?}");
        assert!(pending > random[1], "{pending}, random {random:?}");
        assert!(rolled_back >= random[2], "{rolled_back}, random {random:?}");
    }
}

#[test]
fn nothing_fails_in_them() {
    for ordering in [Ordering::SOFT, ORDERED] {
        let campaign = Campaign {
            workloads: effort::part(guided(ordering, 24, 2), 0),
            exhaustive: 200,
            samples: 60,
            whole_every: 16,
            in_use_every: 4,
            most_states_each: 100,
            ..standard::campaign(ordering, 1, 2)
        };
        let results = campaign.run(&NoObserver).expect("the engine gets through");
        let failures: Vec<_> = results
            .failures
            .iter()
            .map(|f| (f.verdict(), f.operations()))
            .collect();
        assert!(failures.is_empty(), "{failures:?}");
        assert!(results.distinct > 500, "{} states", results.distinct);
    }
}
