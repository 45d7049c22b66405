//! Long operations between whose steps transactions may end: truncations and removals, here of one
//! block in each step.
//!
//! The list of orphans names what is under way, and recovery completes it. If something is not
//! listed, the explorer must find that.

use backstitch_crash::{
    Campaign, ImageOptions, NoObserver, Observer, Results, Schedule, Workload, parse_script,
};
use backstitch_formats::Rule;
use backstitch_layout::steps::{self, Steps};

use backstitch_mechanisms::Ordering;
use backstitch_rules::watch::{self, Form};
use backstitch_store::Optimisations;

/// Sets the size of the steps of operations, in every thread that explores.
struct Cut(Steps);

/// The same, with the rule off that lists what is under way.
struct Unlisted;

impl Observer for Unlisted {
    fn thread_starts(&self) {
        steps::set(Steps::Small);
        let rule = Rule::LongTruncationIsListed;
        watch::switch_off(Some((rule.into(), Form::Whole)));
    }
}

impl Observer for Cut {
    fn thread_starts(&self) {
        steps::set(self.0);
    }
}

/// Files with indirect blocks, and one with a hole up to a double indirect one. They are truncated,
/// grow again, and are removed.
const SCRIPT: &str = "creat f; write f 0 16000; sync; truncate f 1500; fsync f; append f 3000; mkdir A; creat A/g; \
     write A/g 275000 3000; write A/g 12000 2000; sync; truncate A/g 12100; creat h; write h 0 15000; fsync h; unlink h; \
     truncate A/g 0; unlink f; sync; unlink A/g; creat k; write k 0 9000; fsync k";

fn explore(mode: Ordering, observer: &dyn Observer) -> Results {
    let variants = Schedule::ALL
        .into_iter()
        .map(|schedule| (Optimisations::BOTH, schedule))
        .collect();
    let campaign = Campaign {
        ordering: mode,
        workloads: vec![Workload {
            name: "script".to_owned(),
            operations: parse_script(SCRIPT).expect("a script of our own"),
            setup: 0,
        }],
        variants,
        image: ImageOptions::default(),
        base: None,
        seed: 1,
        torn: false,
        drive: None,
        unit_bytes: None,
        exhaustive: 400,
        samples: 50,
        whole_every: 64,
        in_use_every: 64,
        most_states: u64::MAX,
        most_states_each: 40_000,
        most_failures: 1,
        threads: 2,
    };
    campaign.run(observer).unwrap()
}

#[test]
fn a_crash_between_the_steps_leaves_nothing() {
    for mode in [
        Ordering::JOURNAL_ORDERED,
        Ordering::JOURNAL_WRITEBACK,
        Ordering::JOURNAL_FULL,
    ] {
        let usual = explore(mode, &NoObserver);
        let small = explore(mode, &Cut(Steps::Small));
        for results in [&usual, &small] {
            if let Some(failure) = results.failures.first() {
                panic!("{mode:?}: {}", failure.verdict());
            }
        }
        eprintln!("{mode:?}: {} and {} states", usual.states, small.states);
    }
}

#[test]
fn steps_that_are_not_listed_are_found() {
    let results = explore(Ordering::JOURNAL_ORDERED, &Unlisted);
    let failure = results.failures.first();
    eprintln!("{}", failure.expect("a failure").verdict());
}
