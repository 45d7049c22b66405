//! The systems that log operations: what a power cut leaves is as they promise, and each of some
//! rules is found to be needed.

use std::sync::atomic::Ordering::Relaxed;

use crate::effort;
use backstitch_crash::{
    Campaign, Foreign, ImageOptions, Observer, Results, Without, Workload, generate, parse_script,
    script, scripts, standard,
};
use backstitch_layout::steps::{self, Steps};
use backstitch_mechanisms::{LffsRule as Rule, Ordering};

const MECHANISMS: [Ordering; 5] = [
    Ordering::LFFS_FILE,
    Ordering::LFFS_WAFS_1ASYNC,
    Ordering::LFFS_WAFS_1SYNC,
    Ordering::LFFS_WAFS_2ASYNC,
    Ordering::LFFS_WAFS_2SYNC,
];

/// UFS1 and UFS2, with both sizes of fragments; a block has eight.
const UFS: [(&str, u32); 2] = [("ufs1", 512), ("ufs2", 1024)];

fn ufs((kind, fragment_bytes): (&str, u32)) -> ImageOptions {
    ImageOptions {
        layout: kind.parse().expect("a type that is registered"),
        block_bytes: fragment_bytes,
        ..ImageOptions::default()
    }
}

/// The results, or the engine's error.
fn explored(
    ordering: Ordering,
    image: ImageOptions,
    workloads: Vec<Workload>,
    most_states_each: u64,
    torn: bool,
    observer: &dyn Observer,
) -> Result<Results, String> {
    let campaign = Campaign {
        workloads,
        image,
        exhaustive: 400,
        samples: 50,
        in_use_every: 16,
        most_states_each,
        torn,
        ..standard::campaign(ordering, 1, 2)
    };
    campaign.run(observer).map_err(|error| error.to_string())
}

fn passes(
    ordering: Ordering,
    image: ImageOptions,
    workloads: Vec<Workload>,
    most_states_each: u64,
    torn: bool,
) {
    let all = &Without(None);
    let results = explored(ordering, image, workloads, most_states_each, torn, all);
    let results = results.expect("the engine gets through");
    if let Some(failure) = results.failures.first() {
        let script = script(failure.operations());
        panic!("{ordering}: {script}: {}", failure.verdict());
    }
    let least = effort::bound(1000);
    assert!(results.distinct > least, "{} states", results.distinct);
}

#[test]
fn no_power_cut_leaves_what_they_do_not_promise() {
    for (number, ordering) in MECHANISMS.into_iter().enumerate() {
        let mut workloads: Vec<Workload> = generate::ace(1).into_iter().step_by(3).collect();
        workloads.extend(generate::random(12, 3));
        let workloads = effort::part(workloads, number);
        passes(ordering, ImageOptions::default(), workloads, 40, false);
    }
}

/// Another checker finds nothing wrong either in what is brought home.
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
    passes(Ordering::LFFS_FILE, ImageOptions::default(), some, 60, true);
}

fn scripted(text: &str) -> Workload {
    Workload {
        name: "script".to_owned(),
        operations: parse_script(text).expect("a script of our own"),
        setup: 0,
    }
}

#[test]
fn nor_does_one_on_ufs() {
    for of in UFS {
        for (number, ordering) in MECHANISMS.into_iter().enumerate() {
            let mut workloads: Vec<Workload> = generate::ace(1).into_iter().step_by(9).collect();
            workloads.extend(generate::random(4, 3));
            let mut workloads = effort::part(workloads, number);
            // What was the last block becomes whole as the file gets another one, in one step.
            workloads.push(scripted(
                "creat f; write f 12288 1000; sync; write f 22288 3000; sync; truncate f 40000",
            ));
            passes(ordering, ufs(of), workloads, 40, false);
        }
    }
}

/// Limits long operations to small steps, in every thread that explores.
struct SmallSteps;

impl Observer for SmallSteps {
    fn thread_starts(&self) {
        steps::set(Steps::Small);
    }
}

/// Files with indirect blocks and with fragments at their ends. They are truncated, grow again, and
/// are removed.
const STEPS: &str = "creat f; write f 0 60500; sync; truncate f 1500; fsync f; append f 3000; mkdir A; creat A/g; \
     write A/g 275000 3000; write A/g 12000 2000; sync; truncate A/g 12100; creat h; write h 0 45200; fsync h; unlink h; \
     truncate A/g 0; unlink f; sync; unlink A/g; creat k; write k 0 9000; fsync k";

#[test]
fn steps_that_a_group_comes_between_come_to_their_end_on_ufs() {
    for of in UFS {
        let found = explored(
            Ordering::LFFS_FILE,
            ufs(of),
            vec![scripted(STEPS)],
            5_000,
            false,
            &SmallSteps,
        );
        let found = found.expect("the engine gets through");
        let failure = found.failures.first().map(|failure| failure.verdict());
        assert_eq!(failure, None, "{of:?}");
        assert!(found.distinct > 1000, "{of:?}: {} states", found.distinct);
    }
}

#[test]
fn rules_of_theirs_are_needed() {
    // Each with a bound on the states of a workload at which it is found soon.
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
        for image in [ImageOptions::default(), ufs(UFS[1])] {
            let mut workloads = scripts::workloads();
            workloads.extend(generate::random(20, 5));
            let without = Without(Some(rule.id()));
            let results = explored(
                Ordering::LFFS_FILE,
                image,
                workloads,
                most_states,
                false,
                &without,
            );
            if results.is_ok_and(|results| results.failures.is_empty()) {
                unseen.push((rule, image.layout));
            }
        }
    }
    assert!(unseen.is_empty(), "{unseen:?}");
}
