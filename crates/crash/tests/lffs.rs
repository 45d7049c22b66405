//! The systems that log operations: what a power cut leaves is as they promise, and rules of theirs
//! are found to be needed.

use std::sync::atomic::Ordering::Relaxed;

use backstitch_crash::{
    Campaign, Foreign, Results, Without, Workload, generate, script, scripts, standard,
};
use backstitch_mechanisms::{LffsRule as Rule, Ordering};

const MECHANISMS: [Ordering; 5] = [
    Ordering::LFFS_FILE,
    Ordering::LFFS_WAFS_1ASYNC,
    Ordering::LFFS_WAFS_1SYNC,
    Ordering::LFFS_WAFS_2ASYNC,
    Ordering::LFFS_WAFS_2SYNC,
];

/// What is found, or why the engine does not get through.
fn explored(
    ordering: Ordering,
    workloads: Vec<Workload>,
    most_states_each: u64,
    torn: bool,
    without: Option<Rule>,
) -> Result<Results, String> {
    let campaign = Campaign {
        workloads,
        exhaustive: 400,
        samples: 50,
        in_use_every: 16,
        most_states_each,
        torn,
        ..standard::campaign(ordering, 1, 2)
    };
    let results = campaign.run(&Without(without.map(Rule::id)));
    results.map_err(|error| error.to_string())
}

fn passes(ordering: Ordering, workloads: Vec<Workload>, most_states_each: u64, torn: bool) {
    let results = explored(ordering, workloads, most_states_each, torn, None);
    let results = results.expect("the engine gets through");
    if let Some(failure) = results.failures.first() {
        let script = script(failure.operations());
        panic!("{ordering}: {script}: {}", failure.verdict());
    }
    assert!(results.distinct > 1000, "{} states", results.distinct);
}

#[test]
fn no_power_cut_leaves_what_they_do_not_promise() {
    for ordering in MECHANISMS {
        let mut workloads: Vec<Workload> = generate::ace(1).into_iter().step_by(3).collect();
        workloads.extend(generate::random(12, 3));
        passes(ordering, workloads, 40, false);
    }
}

/// What is brought home is in order to another checker too.
#[test]
fn e2fsck_finds_nothing() {
    let foreign = Foreign::new(40, 0).unwrap();
    for ordering in [Ordering::LFFS_FILE, Ordering::LFFS_WAFS_1ASYNC] {
        let campaign = Campaign {
            workloads: generate::random(12, 9),
            most_states_each: 100,
            ..standard::campaign(ordering, 1, 2)
        };
        let results = campaign.run(&foreign).expect("the engine gets through");
        let failure = results.failures.first().map(|failure| failure.verdict());
        assert_eq!(failure, None, "{ordering}");
    }
    let checked = foreign.checked.load(Relaxed);
    assert!(checked > 100, "{checked} states");
}

#[test]
fn nor_does_one_that_tears_blocks() {
    let some = scripts::workloads().into_iter().step_by(5).collect();
    passes(Ordering::LFFS_FILE, some, 60, true);
}

#[test]
fn rules_of_theirs_are_needed() {
    // With the bound on the states of a workload at which each is found soon.
    let rules = [
        (Rule::HomeAfterRecords, 150),
        (Rule::HoldAfterRecords, 150),
        (Rule::GroupAfterEarlierGroup, 150),
        (Rule::ReuseAfterFreeingGroup, 150),
        (Rule::RecordsAreWhole, 150),
        (Rule::OnlyWholeGroupsCount, 30),
        (Rule::LastRecordCounts, 30),
        (Rule::AtHomeOnlyIfLogged, 30),
        (Rule::StartAfterHomes, 30),
        (Rule::HomesAreFlushed, 30),
    ];
    let mut unseen = Vec::new();
    for (rule, most_states) in rules {
        let mut workloads = scripts::workloads();
        workloads.extend(generate::random(20, 5));
        let results = explored(
            Ordering::LFFS_FILE,
            workloads,
            most_states,
            false,
            Some(rule),
        );
        if results.is_ok_and(|results| results.failures.is_empty()) {
            unseen.push(rule);
        }
    }
    assert!(unseen.is_empty(), "{unseen:?}");
}
