//! The papers' systems that order writes without a log: what a power cut leaves is as they promise,
//! and each of their rules is found to be needed.

use crate::effort;
use backstitch_crash::{Campaign, Results, Without, Workload, generate, script, standard};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::rules::Rule;

const MECHANISMS: [Ordering; 5] = [
    Ordering::SCHEDULER,
    Ordering::INTERBUFFER,
    Ordering::AMOM_IMMEDIATE,
    Ordering::AMOM_DELAYED,
    Ordering::AMOM_PERIODIC,
];

/// The results, or the engine's error.
fn explored(
    ordering: Ordering,
    workloads: Vec<Workload>,
    most_states_each: u64,
    without: Option<Rule>,
) -> Result<Results, String> {
    let campaign = Campaign {
        workloads,
        exhaustive: 400,
        samples: 50,
        in_use_every: 16,
        most_states_each,
        ..standard::campaign(ordering, 1, 2)
    };
    let results = campaign.run(&Without(without.map(Rule::id)));
    results.map_err(|error| error.to_string())
}

#[test]
fn no_power_cut_leaves_what_they_do_not_promise() {
    for (number, ordering) in MECHANISMS.into_iter().enumerate() {
        let mut workloads = generate::ace(1);
        workloads.extend(generate::random(12, 3));
        let workloads = effort::part(workloads, number);
        let results = explored(ordering, workloads, 40, None).expect("the engine gets through");
        if let Some(failure) = results.failures.first() {
            let script = script(failure.operations());
            panic!("{ordering}: {script}: {}", failure.verdict());
        }
        assert!(results.distinct > 1000, "{} states", results.distinct);
    }
}

#[test]
fn each_of_their_rules_is_needed() {
    let rules = [
        (Ordering::SCHEDULER, Rule::RequestAfterPredecessors),
        (Ordering::AMOM_DELAYED, Rule::BatchAfterGate),
        (Ordering::AMOM_DELAYED, Rule::BatchBehindPredecessors),
        (Ordering::AMOM_DELAYED, Rule::HitOnlyBehindPredecessors),
        (Ordering::AMOM_DELAYED, Rule::NobodyJoinsABegunBatch),
        (Ordering::AMOM_DELAYED, Rule::SensorWaitsForAll),
    ];
    for (ordering, rule) in rules {
        let mut workloads = generate::ace(1);
        workloads.extend(generate::cases());
        let found = match explored(ordering, workloads, 2000, Some(rule)) {
            Ok(results) => !results.failures.is_empty(),
            // Two batches of the ring wait for each other.
            Err(error) => error.contains("cannot be written"),
        };
        assert!(found, "{ordering}: nothing shows the absence of {rule:?}");
    }
}
