//! The report of a failure shows the order that was left out: with a rule off, the missing edge
//! leads from what should have waited to what it should have waited for.
//!
//! `BACKSTITCH_PAGES=FOLDER` keeps the pages there.

use std::collections::BTreeSet;
use std::sync::Arc;

use backstitch_crash::provoking;
use backstitch_crash::{
    Campaign, ImageOptions, NoObserver, Observer, Schedule, Without, Workload, parse_script,
};
use backstitch_crash_core::report::graph::{End, Graph, How, Order, Patch};
use backstitch_crash_core::report::{BlockState, Report};
use backstitch_drives::DriveSpec;
use backstitch_formats::{ExtRule, Rule};
use backstitch_journal::rules::Rule as JournalRule;
use backstitch_mechanisms::Ordering;
use backstitch_rules::Id;
use backstitch_rules::watch::{self, Form};
use backstitch_store::Optimisations;
use backstitch_trace::{Keep, Moment, Trace, state_at};

/// Switches a rule off in this thread; dropping it switches the rule on again.
struct Off;

impl Off {
    fn new(rule: Id) -> Off {
        watch::switch_off(Some((rule, Form::Whole)));
        Off
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        watch::switch_off(None);
    }
}

fn campaign(
    ordering: Ordering,
    optimisations: Optimisations,
    workloads: Vec<Workload>,
) -> Campaign {
    Campaign {
        ordering,
        workloads,
        variants: vec![(optimisations, Schedule::Nothing)],
        image: ImageOptions::default(),
        base: None,
        seed: 1,
        torn: false,
        drive: None,
        unit_bytes: None,
        exhaustive: 400,
        samples: 100,
        whole_every: 0,
        in_use_every: 1,
        most_states: u64::MAX,
        most_states_each: u64::MAX,
        most_failures: 1,
        threads: 1,
    }
}

fn script(text: &str) -> Vec<Workload> {
    vec![Workload {
        name: "script".to_owned(),
        operations: parse_script(text).expect("a script of our own"),
        setup: 0,
    }]
}

/// The report on the first failure with a rule off, and the trace of its run.
fn failing(campaign: &Campaign, rule: Id) -> (Report, Vec<u8>) {
    failing_with(campaign, &Without(Some(rule)), Some(Off::new(rule)))
}

fn failing_with(
    campaign: &Campaign,
    observer: &dyn Observer,
    _off: Option<Off>,
) -> (Report, Vec<u8>) {
    let mut results = campaign.run(observer).expect("the engine gets through");
    let [failure] = &mut results.failures[..] else {
        panic!("{} failures", results.failures.len());
    };
    *failure = campaign.minimise(failure).expect("it fails again");
    let trace = campaign.draw(failure).expect("it fails again");
    let report = campaign.report(&results, "crash fs", "crash fs");
    (report, trace.expect("it has a moment"))
}

fn graph(report: &Report) -> &Graph {
    report.failures[0].graph.as_ref().expect("its patches")
}

/// Keeps the page of a report if that was asked for.
fn keep(name: &str, report: &Report) {
    if let Ok(folder) = std::env::var("BACKSTITCH_PAGES") {
        std::fs::write(format!("{folder}/{name}.html"), report.to_html()).unwrap();
    }
}

/// The script that was written for a rule.
fn script_of(rule: Id) -> &'static str {
    let found = provoking::ALL.iter().find(|known| known.rule == rule);
    found.expect("its script").script
}

/// Both sides of the one order that would have forbidden the state: the patch that should have
/// waited, and all patches that it should have waited for.
fn ends(graph: &Graph, expected: How) -> (&Patch, Vec<&Patch>) {
    let [
        Order {
            after,
            befores,
            how,
        },
    ] = &graph.missing[..]
    else {
        panic!("{graph:#?}");
    };
    assert_eq!(*how, expected, "{graph:#?}");
    let patch = |end: &End| match end {
        End::Patch(at) => &graph.patches[*at],
        other => panic!("{other:?}"),
    };
    (patch(after), befores.iter().map(patch).collect())
}

/// What the sides of a rule's missing edge must be: parts of their names.
struct About {
    rule: Id,
    after: (&'static str, &'static str),
    before: (&'static str, &'static str),
}

#[test]
fn the_missing_edge_is_the_one_that_was_left_out() {
    let rules = [
        About {
            rule: Rule::NameAfterInode.id(),
            after: ("names of inode", "create"),
            before: (": inodes", "create"),
        },
        About {
            rule: Rule::InodeAfterBit.id(),
            after: (": inodes", "create"),
            before: (": inode bitmap", "create"),
        },
        About {
            rule: Rule::PointerAfterBit.id(),
            after: (": inodes", "write"),
            before: (": block bitmap", "write"),
        },
        About {
            rule: Rule::PointerAfterContents.id(),
            after: (": inodes", "write"),
            before: ("data of inode", "write"),
        },
        About {
            rule: Rule::IndirectPointerAfterBlock.id(),
            after: (": inodes", "write"),
            before: ("pointers of inode", "write"),
        },
        About {
            rule: Rule::FreeingAfterClearings.id(),
            after: (": inodes", "remove /A/f"),
            before: ("names of inode", "remove /A/f"),
        },
        About {
            rule: ExtRule::AttributePointerAfterContents.id(),
            after: (": inodes", "set-xattr /A/f"),
            before: (": ", "set-xattr /A/f"),
        },
    ];
    for About {
        rule,
        after,
        before,
    } in rules
    {
        for optimisations in [Optimisations::BOTH, Optimisations::NONE] {
            let text = script_of(rule);
            let (report, _) = failing(&campaign(Ordering::SOFT, optimisations, script(text)), rule);
            keep(
                &format!("{text:.20}-{optimisations}").replace(['/', ';', ' '], "_"),
                &report,
            );
            let graph = graph(&report);
            let (waits, waited_for) = ends(graph, How::Missing);
            let expect = |end: &Patch, (block, operation): (&str, &str), state| {
                assert!(end.block.contains(block), "{text}: {end:?} {block}");
                assert!(
                    end.operation.contains(operation),
                    "{text}: {end:?} {operation}"
                );
                assert_eq!(end.state, state, "{text}: {end:?}");
            };
            expect(waits, after, BlockState::OnDisk);
            assert!(!waited_for.is_empty());
            waited_for
                .iter()
                .for_each(|end| expect(end, before, BlockState::Missing));
            assert!(
                graph.said.contains("nothing else would have"),
                "{text}: {}",
                graph.said
            );
            assert_eq!(graph.left_out, 0);
        }
    }
}

/// An `fsync` that does not wait: no patch is on the disk too early, but a promised one is missing.
#[test]
fn a_promise_that_was_not_waited_for_is_told() {
    let rule = Rule::FsyncWaitsForOverwrites.id();
    let campaign = campaign(Ordering::SOFT, Optimisations::BOTH, script(script_of(rule)));
    let (report, _) = failing(&campaign, rule);
    keep("promise", &report);
    let graph = graph(&report);
    let [order] = &graph.missing[..] else {
        panic!("{:#?}", graph.missing);
    };
    assert_eq!(order.after, End::Promise);
    let [End::Patch(before)] = order.befores[..] else {
        panic!("{order:?}");
    };
    let before = &graph.patches[before];
    assert!(before.block.contains("data of inode"), "{before:?}");
    assert!(before.operation.starts_with("write /"), "{before:?}");
    assert!(graph.said.contains("promise"), "{}", graph.said);
}

/// A journal's commit record must come after the contents that it commits. The journal's copies,
/// originals and order of transactions are patches like any others.
#[test]
fn the_missing_edge_of_a_journal_is_the_one_that_was_left_out() {
    let rule = JournalRule::CommitAfterContents.id();
    let text =
        "creat a; write a 0 5000; sync; unlink a; sync; creat f; sync; write f 0 3000; log-close";
    let campaign = campaign(Ordering::JOURNAL_ORDERED, Optimisations::BOTH, script(text));
    let (report, _) = failing(&campaign, rule);
    keep("journal", &report);
    let (waits, waited_for) = ends(graph(&report), How::Missing);
    assert!(waits.block.contains("journal"), "{waits:?}");
    assert!(
        waited_for.iter().all(|end| end.block.contains("data")),
        "{waited_for:?}"
    );
}

/// The trace of a failure ends at the failing moment, and has the patches that the graph shows.
#[test]
fn the_trace_ends_at_the_failing_moment_and_has_its_patches() {
    let rule = Rule::NameAfterInode.id();
    let campaign = campaign(Ordering::SOFT, Optimisations::BOTH, script(script_of(rule)));
    let (report, bytes) = failing(&campaign, rule);
    let trace = Trace::new(&bytes).unwrap();
    assert_eq!(trace.missing().unwrap(), (false, None));
    assert_eq!(trace.description["ends_with"], "crash");
    assert_eq!(trace.description["ordering"], "soft");
    let state = state_at(&trace, Moment::End, Keep::Live).unwrap();
    let pending: BTreeSet<u64> = state.patches().map(|(number, _)| number).collect();
    let graph = graph(&report);
    assert!(!graph.patches.is_empty());
    for patch in &graph.patches {
        assert!(pending.contains(&patch.number), "{patch:?} {pending:?}");
    }
    // The edges are those of the trace, unless there is an empty patch between.
    for (after, before) in &graph.edges {
        let [after, before] = [after, before].map(|at| graph.patches[*at].number);
        let direct = &state.patch(after).unwrap().befores;
        let has_empty = direct
            .iter()
            .any(|b| state.patch(*b).is_some_and(|patch| patch.parts.is_empty()));
        assert!(direct.contains(&before) || has_empty, "p{after} p{before}");
    }
}

/// For a moment with many patches, those near the missing order are drawn.
#[test]
fn of_many_patches_those_around_the_missing_edge_are_shown() {
    let rule = Rule::NameAfterInode.id();
    let mut text = (0..40).map(|n| format!("mkdir d{n}; ")).collect::<String>();
    text += "creat d0/f";
    let mut workloads = script(&text);
    workloads[0].setup = 40;
    let campaign = campaign(Ordering::SOFT, Optimisations::NONE, workloads);
    let _off = Off::new(rule);
    let mut results = campaign.run(&Without(Some(rule))).unwrap();
    let failure = &mut results.failures[0];
    // Not minimised: as it was found, with all that the workload did.
    campaign.draw(failure).unwrap();
    let report = campaign.report(&results, "crash fs", "crash fs");
    keep("many", &report);
    let graph = graph(&report);
    let (waits, waited_for) = ends(graph, How::Missing);
    assert!(waits.block.contains("names of inode"), "{waits:?}");
    assert_eq!(waited_for[0].what, "inode 129");
    // Shown are the inode, its block with the block's bit, its names, its own bit, and what waits
    // for these.
    assert!(graph.patches.len() < 12, "{graph:#?}");
    assert!(graph.left_out > 100, "{}", graph.left_out);
    assert!(
        report
            .to_html()
            .contains("patches of the moment are not shown")
    );
}

/// A link count that goes up and down again is one patch. Without the rule it makes the new name
/// wait for the removal of the old one, instead of the other way round.
#[test]
fn an_order_that_is_the_wrong_way_round_is_told() {
    let rule = Rule::OldNameAfterNew.id();
    let campaign = campaign(Ordering::SOFT, Optimisations::BOTH, script(script_of(rule)));
    let (report, _) = failing(&campaign, rule);
    keep("reversed", &report);
    let (waits, waited_for) = ends(graph(&report), How::Reversed);
    assert_eq!(waits.what, "bytes 24–27", "the old name is cleared");
    assert_eq!(waited_for.len(), 1);
    assert!(
        waited_for[0].block.contains("names of inode"),
        "{waited_for:?}"
    );
}

/// Under a mechanism without order, the drive's medium may have any part of what was sent. The
/// missing order is then one of blocks, since each is written as a whole.
#[test]
fn of_a_batch_on_its_way_the_missing_order_is_one_of_blocks() {
    let drive = DriveSpec::preset("viking").expect("a drive of ours");
    let campaign = Campaign {
        drive: Some(Arc::new(drive)),
        ..campaign(
            Ordering::ASYNC,
            Optimisations::BOTH,
            script("mkdir A; sync"),
        )
    };
    let (report, _) = failing_with(&campaign, &NoObserver, None);
    keep("batch", &report);
    let graph = graph(&report);
    assert!(!graph.missing.is_empty(), "{graph:#?}");
    let state = |end: &End| {
        let End::Block(block) = end else {
            panic!("{end:?}");
        };
        let of_it = graph.patches.iter().filter(|patch| patch.block == *block);
        let states: Vec<BlockState> = of_it.map(|patch| patch.state).collect();
        assert!(
            !states.is_empty(),
            "{block} is not in the graph: {graph:#?}"
        );
        states[0]
    };
    for order in &graph.missing {
        assert_eq!(state(&order.after), BlockState::OnDisk);
        let befores = order.befores.iter();
        befores.for_each(|before| assert_eq!(state(before), BlockState::Missing));
    }
}

/// Plants an error in the patch graph.
struct Planted(backstitch_patch::Planted);

impl Observer for Planted {
    fn thread_starts(&self) {
        backstitch_crash_core::planted::plant(Some(self.0));
    }
}

/// Plants an error in the graph, runs a script that writes everything after each operation, and
/// returns the report and the trace.
fn broken(planted: backstitch_patch::Planted, text: &str) -> (Report, Option<Vec<u8>>) {
    let campaign = Campaign {
        variants: vec![(Optimisations::BOTH, Schedule::Everything)],
        ..campaign(Ordering::SOFT, Optimisations::BOTH, script(text))
    };
    backstitch_crash_core::planted::plant(Some(planted));
    let mut results = campaign.run(&Planted(planted)).unwrap();
    let failure = &mut results.failures[0];
    *failure = campaign.minimise(failure).unwrap();
    let trace = campaign.draw(failure).unwrap();
    backstitch_crash_core::planted::plant(None);
    (campaign.report(&results, "crash fs", "crash fs"), trace)
}

/// The store writes what must wait although the edge is there.
#[test]
fn an_edge_that_the_store_did_not_keep_is_told() {
    let (report, _) = broken(backstitch_patch::Planted::ReadyTooEarly, "mkdir A");
    keep("not-kept", &report);
    let graph = graph(&report);
    assert!(!graph.missing.is_empty(), "{graph:#?}");
    let is_kept = |order: &Order| order.how != How::NotKept;
    assert!(!graph.missing.iter().any(is_kept), "{graph:#?}");
}

/// If the engine itself fails there is no moment to draw. Its failure is minimised and reported all
/// the same.
#[test]
fn an_engine_that_fails_has_no_graph() {
    let text = "mkdir A; creat A/f; write A/f 0 3000; mkdir A/d; rename A/f A/d/g";
    let (report, trace) = broken(backstitch_patch::Planted::GoesAlongTooEarly, text);
    let failure = &report.failures[0];
    assert!(
        failure.verdict.starts_with("engine: "),
        "{}",
        failure.verdict
    );
    assert!(failure.graph.is_none() && trace.is_none());
}
