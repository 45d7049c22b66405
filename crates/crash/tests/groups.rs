//! Patchgroups keep their order in every state that a crash can leave, under every mechanism. The
//! explorer would find it if they did not: it is tried with the groups taken out of the engine, and
//! with one of their rules left out at a time.

use crate::effort;
use backstitch_crash::{
    Campaign, ImageOptions, NoObserver, Observer, Operation, Results, Schedule, Without, Workload,
    parse_script,
};
use backstitch_formats::Rule as LayoutRule;
use backstitch_journal::rules::Rule as JournalRule;
use backstitch_mechanisms::Ordering;
use backstitch_ordering::rules::Rule;

use backstitch_rules::Id;
use backstitch_store::Optimisations;

/// A compressor removes its input after its output (Frost et al., §5.2).
const COMPRESSOR: &str = "creat in; write in 0 5000; creat gone; sync; engage 1; creat out; append out 1500; append out 1500; disengage 1; \
     depend 2 1; engage 2; unlink in; disengage 2";

/// Messages move from one mailbox to another, as an IMAP server does it: copy, copy, mark, expunge.
const MAILBOX: &str = "creat src; write src 0 3000; creat dst; append dst 100; sync; engage 1; append dst 1500; disengage 1; depend 2 1; \
     engage 2; append dst 1500; disengage 2; depend 3 2; engage 3; write src 40 20; disengage 3; depend 4 3; \
     engage 4; truncate src 0; disengage 4";

/// Subversion: contents before the rename that installs them, and names in the order of the calls.
const SUBVERSION: &str = "mkdir wc; creat wc/log; append wc/log 700; mkdir wc/tmp; sync; engage 1; creat wc/tmp/log; append wc/tmp/log 1800; \
     disengage 1; depend 2 1; engage 2; rename wc/tmp/log wc/log; disengage 2; depend 3 2; engage 3; mkdir wc/new; creat wc/new/f; \
     disengage 3; depend 4 3; engage 4; rename wc/new wc/done; disengage 4; depend 5 4; engage 5; unlink wc/log; disengage 5";

/// Packages are unpacked as dpkg does it, under `order`: each fsync and each rename begins a group
/// that comes after the one before it.
const UNPACKING: &str = "mkdir var; creat var/status; append var/status 300; creat lib; append lib 900; sync; engage 1; creat lib.new; \
     append lib.new 1500; disengage 1; depend 2 1; engage 2; rename lib.new lib; disengage 2; depend 3 2; engage 3; creat bin.new; \
     append bin.new 800; disengage 3; depend 4 3; engage 4; rename bin.new bin; disengage 4; depend 5 4; engage 5; \
     write var/status 100 150; disengage 5; depend 6 5; engage 6; creat doc; append doc 400; disengage 6";

/// Corner cases: a new file in a directory that no group made, overwriting in place, holes, a file
/// that was truncated before.
const CORNERS: &str = "creat a; write a 0 6000; creat b; write b 0 2500; sync; mkdir d; truncate a 1000; engage 1; creat d/f; \
     write d/f 4096 600; append a 900; disengage 1; depend 2 1; engage 2; write b 100 900; disengage 2; depend 3 1; \
     engage 3; write d/f 0 500; link b c; disengage 3; depend 4 2; depend 4 3; engage 4; unlink b; creat e; setxattr e user.x y; \
     disengage 4";

/// A file that is changed twice before it is on the disk, with other changes in between; and names
/// that it gets and loses.
const NEW_FILES: &str = "creat a; write a 0 3000; mkdir d; creat gone; link gone kept; sync; engage 1; creat f; append f 500; disengage 1; \
     depend 2 1; engage 2; write a 0 900; disengage 2; depend 3 2; engage 3; append f 700; write f 0 100; disengage 3; depend 4 3; \
     engage 4; rename f d/g; unlink gone; disengage 4; depend 5 4; engage 5; write d/g 0 300; creat h; append h 400; disengage 5; \
     depend 6 5; engage 6; rename h a; disengage 6; depend 7 6; engage 7; unlink d/g; creat i; disengage 7";

/// Files that became longer outside any group, which is not on the disk yet. What a group
/// overwrites in them must be visible before what comes after the group.
const GROWN: &str = "creat f; creat g; write g 0 500; sync; append f 3000; engage 1; write f 0 100; disengage 1; depend 2 1; engage 2; \
     creat x; disengage 2; truncate g 900; engage 3; write g 600 100; disengage 3; depend 4 3; engage 4; creat y; disengage 4";

const SCRIPTS: [(&str, &str); 7] = [
    ("compressor", COMPRESSOR),
    ("mailbox", MAILBOX),
    ("subversion", SUBVERSION),
    ("unpacking", UNPACKING),
    ("corners", CORNERS),
    ("new files", NEW_FILES),
    ("grown", GROWN),
];

const MECHANISMS: [Ordering; 5] = [
    Ordering::SOFT,
    Ordering::SYNC,
    Ordering::JOURNAL_WRITEBACK,
    Ordering::JOURNAL_ORDERED,
    Ordering::JOURNAL_FULL,
];

/// States of each run.
const MOST: u64 = 6000;

fn explore(
    (name, script): (&str, &str),
    ordering: Ordering,
    seed: u64,
    most_states_each: u64,
    observer: &dyn Observer,
) -> Results {
    let variants = [Optimisations::NONE, Optimisations::BOTH]
        .into_iter()
        .flat_map(|optimisations| Schedule::ALL.map(|schedule| (optimisations, schedule)))
        .collect();
    let operations = parse_script(script).expect("a script of our own");
    let synced = operations.iter().position(|o| *o == Operation::Sync);
    let campaign = Campaign {
        ordering,
        workloads: vec![Workload {
            name: name.to_owned(),
            setup: synced.map_or(0, |at| at + 1),
            operations,
        }],
        variants,
        image: ImageOptions::default(),
        base: None,
        seed,
        torn: false,
        drive: None,
        unit_bytes: None,
        exhaustive: 400,
        samples: 100,
        whole_every: 64,
        in_use_every: 64,
        most_states: u64::MAX,
        most_states_each,
        most_failures: 1,
        threads: 2,
    };
    let results = campaign.run(observer).expect("the engine gets through");
    assert!(
        results.refused.is_empty(),
        "{name} under {ordering}: {:?}",
        results.refused
    );
    results
}

#[test]
fn the_order_holds_in_every_state_under_every_mechanism() {
    for ordering in MECHANISMS {
        let (mut states, mut cut) = (0, 0);
        for script in SCRIPTS {
            let results = explore(script, ordering, 1, effort::bound(MOST), &NoObserver);
            if let Some(failure) = results.failures.first() {
                panic!("{} under {ordering}: {}", script.0, failure.verdict());
            }
            states += results.states;
            cut += results.cut_short;
        }
        eprintln!("{ordering}: {states} states, {cut} runs cut short");
        assert!(states > 1000, "{ordering}: {states} states only");
    }
}

fn is_found(script: (&str, &str), ordering: Ordering, observer: &dyn Observer) -> bool {
    (1..=4).any(|seed| {
        let results = explore(script, ordering, seed, MOST, observer);
        let found = results.failures.first();
        if let Some(failure) = found {
            assert!(
                failure.verdict().contains("patchgroup"),
                "{}",
                failure.verdict()
            );
            eprintln!(
                "{} under {ordering}: state {}: {}",
                script.0,
                results.states,
                failure.verdict()
            );
        }
        found.is_some()
    })
}

#[test]
fn without_groups_each_program_loses_something() {
    for script in SCRIPTS {
        let without = Without(Some(Rule::GroupAfterEarlierGroups.id()));
        assert!(is_found(script, Ordering::SOFT, &without), "{}", script.0);
    }
    // Under these journals, contents that are overwritten in place go through the log only because
    // of the group.
    let without = Without(Some(JournalRule::GroupsThroughLog.id()));
    for ordering in [Ordering::JOURNAL_WRITEBACK, Ordering::JOURNAL_ORDERED] {
        let corners = ("corners", CORNERS);
        assert!(is_found(corners, ordering, &without), "{ordering}");
    }
}

/// Each with the script that shows it soon, which is tried first.
const RULES: [(Id, &str); 6] = [
    (Rule::GroupAfterEarlierGroups.id(), "compressor"),
    (Rule::LaterGroupsAfterMembers.id(), "compressor"),
    (Rule::OnlyHiddenIsUngrouped.id(), "compressor"),
    (Rule::LaterGroupsAfterReach.id(), "corners"),
    (Rule::NewObjectAfterGroups.id(), "corners"),
    (LayoutRule::GroupAfterShownContents.id(), "grown"),
];

#[test]
fn every_rule_left_out_is_found() {
    for (rule, shown_by) in RULES {
        let mut scripts = SCRIPTS;
        scripts.sort_by_key(|(name, _)| *name != shown_by);
        let found = scripts
            .iter()
            .any(|script| is_found(*script, Ordering::SOFT, &Without(Some(rule))));
        assert!(found, "{rule:?} was not found");
    }
}
