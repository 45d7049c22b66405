//! One rule is broken at a time, and the explorer must find it: a dependency of the layout is left
//! out, reversed or reported too early, or a rule of the patch graph is broken.
//!
//! `BACKSTITCH_PLANTED=part-of-a-name` picks some rules. `BACKSTITCH_NEW_EACH=n` limits the run
//! without any broken rule to `n` new states of each workload.

use std::process::Command;

use backstitch_crash::provoking::{self, Provoking};
use backstitch_crash::{
    Campaign, Fork, ForkDevice, ImageOptions, NoObserver, Observer, Operation, Results, Schedule,
    Without, Workload, generate, parse_script, script,
};
use backstitch_device::BlockDevice;
use backstitch_formats::Rule;
use backstitch_mechanisms::{JournalRule, Ordering, OrderingRule};
use backstitch_store::Optimisations;

/// Plants an error in the patch graph.
struct Graph(backstitch_patch::Planted);

impl Observer for Graph {
    fn thread_starts(&self) {
        backstitch_crash_core::planted::plant(Some(self.0));
    }
}

fn campaign(workloads: Vec<Workload>) -> Campaign {
    let variants = [Optimisations::NONE, Optimisations::BOTH]
        .into_iter()
        .flat_map(|optimisations| Schedule::ALL.map(|schedule| (optimisations, schedule)))
        .collect();
    Campaign {
        ordering: Ordering::SOFT,
        workloads,
        variants,
        image: ImageOptions::default(),
        base: None,
        seed: 1,
        torn: false,
        drive: None,
        unit_bytes: None,
        exhaustive: 400,
        samples: 100,
        whole_every: 1,
        in_use_every: 1,
        most_states: u64::MAX,
        most_states_each: u64::MAX,
        most_failures: 1,
        threads: 2,
    }
}

/// The script that shows the lack of a rule, as a campaign. What comes before an `index` is done
/// first, and then the directories of the image get an index. Crashes inside the recovery are many.
/// So for rules that show only there, the operations up to the last `sync` or deferred work are not
/// looked at.
fn provoking(rule: &Provoking) -> Campaign {
    let mut campaign = provoking_softly(rule);
    if rule.needs_torn_blocks() {
        (campaign.torn, campaign.unit_bytes) = (true, Some(512));
    }
    let ordering = match rule.needs_atomic_scopes() {
        true => Ordering::JOURNAL_ORDERED,
        false => campaign.ordering,
    };
    Campaign {
        ordering,
        ..campaign
    }
}

fn provoking_softly(rule: &Provoking) -> Campaign {
    let text = rule.script;
    let workload = |text: &str| {
        let operations = parse_script(text).expect("a script of our own");
        let prepares = |o: &Operation| matches!(o, Operation::Sync | Operation::Work);
        let prepared = operations.iter().rposition(prepares).map(|at| at + 1);
        Workload {
            name: "script".to_owned(),
            operations,
            setup: prepared.filter(|_| rule.needs_reclaim()).unwrap_or(0),
        }
    };
    if let Some((before, after)) = text.split_once("blocks; ") {
        let base = campaign(Vec::new()).after(&workload(before));
        return Campaign {
            base: Some(base.expect("it runs")),
            ..campaign(vec![workload(after)])
        };
    }
    let Some((before, rest)) = text.split_once("index ") else {
        return campaign(vec![workload(text)]);
    };
    let (_, after) = rest.split_once(';').expect("something is done with it");
    Campaign {
        base: Some(indexed(&workload(before))),
        ..campaign(vec![workload(after)])
    }
}

/// The image that a workload leaves, with indices in its directories as `e2fsck -D` makes them.
fn indexed(workload: &Workload) -> Fork {
    let image = campaign(Vec::new()).after(workload).expect("it runs");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, image.to_bytes()).unwrap();
    for _ in 0..2 {
        let status = Command::new("e2fsck").arg("-fyD").arg(&path).output();
        status.expect("e2fsck (Debian package e2fsprogs)");
    }
    Fork::new(std::fs::read(&path).unwrap(), image.block_bytes())
}

fn explored(campaign: &Campaign, observer: &dyn Observer) -> Results {
    campaign.run(observer).expect("the engine gets through")
}

fn show(campaign: &Campaign, name: &str, results: &Results) {
    let failure = &results.failures[0];
    eprintln!(
        "{name}: found in state {} of {}: {}",
        results.states,
        script(failure.operations()),
        failure.verdict()
    );
    let report = campaign.report(results, "", "crash fs");
    for block in &report.failures[0].blocks {
        eprintln!(
            "    block {}: {:?}: {}",
            block.block, block.state, block.what
        );
    }
}

fn is_picked(name: &str) -> bool {
    let picked = std::env::var("BACKSTITCH_PLANTED").unwrap_or_default();
    name.contains(&picked)
}

#[test]
fn every_rule_of_the_layout_that_is_off_is_found() {
    let mut missed = Vec::new();
    let here = |rule: &&Provoking| {
        is_picked(&rule.name()) && !rule.needs_much_use() && !rule.is_for_ablation()
    };
    for rule in provoking::ALL.iter().filter(here) {
        let mut campaign = provoking(rule);
        campaign.whole_every = u64::from(rule.needs_reclaim());
        let mut results = explored(&campaign, &Without(Some(rule.rule)));
        if results.failures.is_empty() && campaign.whole_every == 0 {
            // Some of them show only once what the crash left is reclaimed.
            campaign.whole_every = 1;
            results = explored(&campaign, &Without(Some(rule.rule)));
        }
        match results.failures.is_empty() {
            true => missed.push(format!("{} ({} states)", &rule.name(), results.states)),
            false => show(&campaign, &rule.name(), &results),
        }
    }
    assert!(missed.is_empty(), "not found: {}", missed.join(", "));
}

/// An ablation has no directories with an index that another program made and that we do not keep.
#[test]
fn a_name_that_a_foreign_index_does_not_lead_to_is_found() {
    let about = |known: &&Provoking| known.rule == Rule::NameAfterIndexFlag.id();
    let rule = provoking::ALL.iter().find(about).expect("its script");
    let results = explored(&provoking(rule), &Without(Some(rule.rule)));
    assert!(!results.failures.is_empty(), "{} states", results.states);
}

/// A file that loses its block, and is given others.
const CUT_AND_WRITTEN: &str = "creat f; write f 0 1024; sync; truncate f 0; write f 0 3000";

/// Rules whose absence the judge once did not notice, each with a mechanism and a script that shows
/// it.
const LET_PASS: &[(Ordering, Provoking)] = &[
    // What is written next is in a block that the file had all along and has not lost yet.
    (
        Ordering::JOURNAL_WRITEBACK,
        Provoking {
            rule: JournalRule::ReuseAfterFreeing.id(),
            script: CUT_AND_WRITTEN,
        },
    ),
    (
        Ordering::LFFS_FILE,
        Provoking {
            rule: Rule::BlocksFreedAfterUnmapping.id(),
            script: CUT_AND_WRITTEN,
        },
    ),
    // The call right before the crash of a script has returned.
    (
        Ordering::SYNC,
        Provoking {
            rule: OrderingRule::SyncAnswersOnceStable.id(),
            script: "creat f; cut",
        },
    ),
];

#[test]
fn what_the_judge_let_pass_is_found() {
    for (ordering, rule) in LET_PASS.iter().filter(|(_, rule)| is_picked(&rule.name())) {
        let campaign = Campaign {
            ordering: *ordering,
            whole_every: 0,
            ..provoking_softly(rule)
        };
        let results = explored(&campaign, &Without(Some(rule.rule)));
        assert!(!results.failures.is_empty(), "{}", rule.name());
        show(&campaign, &rule.name(), &results);
        let results = explored(&campaign, &NoObserver);
        assert!(results.failures.is_empty(), "{}: all rules", rule.name());
    }
}

#[test]
fn nothing_is_found_where_every_rule_holds() {
    // There are millions of them, which take minutes.
    let most = std::env::var("BACKSTITCH_NEW_EACH").map_or(Ok(500), |text| text.parse());
    let most_states_each = most.expect("a number of new states of each run");
    let (mut states, mut distinct) = (0, 0);
    let here = |rule: &&Provoking| is_picked(&rule.name()) && !rule.needs_much_use();
    for rule in provoking::ALL.iter().filter(here) {
        let campaign = Campaign {
            whole_every: 16,
            in_use_every: 16,
            most_states_each,
            ..provoking(rule)
        };
        let results = explored(&campaign, &NoObserver);
        (states, distinct) = (states + results.states, distinct + results.distinct);
        if !results.failures.is_empty() {
            show(&campaign, &rule.name(), &results);
            panic!("{}: found without an error", &rule.name());
        }
    }
    eprintln!("{states} states, {distinct} of them different");
}

/// Of the graph's rules, those that show on the disk soon: a forgotten overlap, and patches without
/// undo data that must have some. Breaking any of the others makes the graph stand still, lose
/// memory or fail an assertion of its own; the model test covers all of them.
const RULES: &[backstitch_patch::Planted] = &[
    backstitch_patch::Planted::OverlapLeftOut,
    backstitch_patch::Planted::HardIgnoresSearch,
    backstitch_patch::Planted::HardDespiteExternal,
];

#[test]
fn broken_rules_of_the_graph_are_found() {
    let mut missed = Vec::new();
    let named = |rule: &&backstitch_patch::Planted| is_picked(&format!("{rule:?}"));
    for rule in RULES.iter().filter(named) {
        let mut workloads = generate::sequences(1);
        workloads.extend(generate::random(60, 5));
        let campaign = Campaign {
            whole_every: 0,
            ..campaign(workloads)
        };
        let results = explored(&campaign, &Graph(*rule));
        match results.failures.is_empty() {
            true => missed.push(format!("{rule:?} ({} states)", results.states)),
            false => show(&campaign, &format!("{rule:?}"), &results),
        }
    }
    assert!(missed.is_empty(), "not found: {}", missed.join(", "));
}

#[test]
fn what_a_workload_leaves_can_be_mounted() {
    let workload = &generate::sequences(1)[0];
    let image = campaign(Vec::new()).after(workload).unwrap();
    let device = ForkDevice::new(image);
    let source = backstitch_layout::tools::DeviceSource(&device);
    let report = backstitch_formats::usual()
        .check(&source, &Default::default())
        .unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    assert!(device.size_bytes() > 0);
}
