//! What an explorer is told of rules about patches, and what becomes of one that is off.

use std::time::Duration;

use backstitch_ordering::rules::{self, Order, Rule};
use backstitch_ordering::{
    BlockClass, BlockNumber, MechanismKind, Operation, PatchId, Place, SOFT, Volume,
};
use backstitch_patch::{BlockId, Change, Graph, Optimisations, Standing, Stating};
use backstitch_rules::Id;
use backstitch_rules::watch::{self, Form, Passes};
use backstitch_store::{Limits, Store};

/// A change of names.
const NAMES: Operation<'static> = Operation::Remove {
    at: Place {
        directory: 2,
        name: b"name",
    },
    is_directory: false,
};

const RULE: Rule = Rule::GroupAfterEarlierGroups;
const OTHER: Rule = Rule::LaterGroupsAfterMembers;

fn write(graph: &mut Graph, block: u32, at: u32, after: &[PatchId]) -> PatchId {
    write_standing(graph, block, at, after, Standing::Together)
}

fn write_standing(
    graph: &mut Graph,
    block: u32,
    at: u32,
    after: &[PatchId],
    standing: Standing,
) -> PatchId {
    let stating = Stating { after, standing };
    let change = Change::Bytes {
        offset_bytes: at,
        bytes: &[1; 4],
    };
    graph.create(BlockId(block), &mut [0; 1024], change, stating)
}

/// A patch that was merged into another one, and the other one.
fn merged(graph: &mut Graph, block: u32) -> [PatchId; 2] {
    let into = write(graph, block, 0, &[]);
    let merged = write_standing(graph, block, 8, &[], Standing::WithUndo);
    write(graph, block, 16, &[]);
    assert!(graph.was_merged(merged) && !graph.was_merged(into));
    [merged, into]
}

/// What was counted since the last call. A rule is counted only where it was reached.
fn passes(rule: Rule) -> Passes {
    let counts = watch::take();
    counts.get(&Id::from(rule)).copied().unwrap_or_default()
}

#[test]
fn a_rule_that_is_off_waits_for_less() {
    let mut graph = Graph::new(Optimisations::BOTH);
    let all = [0, 1, 2].map(|block| write(&mut graph, block, 0, &[]));
    let left = |form: Option<Form>, of: &[PatchId]| {
        watch::begin();
        watch::switch_off(form.map(|form| (RULE.into(), form)));
        let left = rules::wait_for_all(RULE, of).to_vec();
        assert_eq!(rules::wait_for_all(OTHER, of), of, "{form:?}");
        assert_eq!(rules::note_by(OTHER, of[0]), of[0], "{form:?}");
        let one = match form {
            Some(Form::Whole) => PatchId::COMMITTED,
            _ => of[0],
        };
        assert_eq!(rules::wait_for(RULE, of[0]), one, "{form:?}");
        assert_eq!(rules::note_by(RULE, of[0]), one, "{form:?}");
        rules::forget_followed();
        left
    };
    for (form, expected) in [
        (None, &all[..]),
        (Some(Form::Whole), &[]),
        (Some(Form::First), &all[1..]),
        (Some(Form::Last), &all[..2]),
        (Some(Form::OnlyFirst), &all[..1]),
        (Some(Form::OnlyLast), &all[2..]),
        (Some(Form::Merged), &all[..]),
    ] {
        assert_eq!(left(form, &all), expected, "{form:?}");
        let single = if form == Some(Form::Whole) { 0 } else { 1 };
        assert_eq!(left(form, &all[..1]), &all[..single], "{form:?}");
    }
}

#[test]
fn what_was_merged_counts_as_committed_where_a_rule_says_so() {
    let mut graph = Graph::new(Optimisations::BOTH);
    let [part, whole] = merged(&mut graph, 0);
    for (form, rule, is_left) in [
        (Form::Merged, RULE, false),
        (Form::Merged, OTHER, true),
        (Form::First, RULE, true),
    ] {
        watch::switch_off(Some((rule.into(), form)));
        let mut after = rules::wait_for_all(RULE, &[part]).to_vec();
        after.push(whole);
        rules::heed(&graph, &mut after, Order::Kept, &[]);
        assert_eq!(after.contains(&part), is_left, "{form:?} of {rule:?}");
        assert!(after.contains(&whole), "that was handed out by no rule");
        rules::forget_followed();
    }
    let mut store = Store::new(Limits::default(), Optimisations::BOTH);
    let id = store.add_volume(1024);
    let [part, whole] = merged(store.graph_mut(), 0);
    let mut mechanism = SOFT.make(None).unwrap();
    let volume = Volume::new(&mut store, &mut *mechanism, id, Duration::ZERO);
    for (off, live) in [
        (None, [true, true]),
        (Some((RULE, Form::Whole)), [false, false]),
        (Some((RULE, Form::Merged)), [false, true]),
        (Some((RULE, Form::First)), [true, true]),
        (Some((OTHER, Form::Whole)), [true, true]),
        (Some((OTHER, Form::Merged)), [true, true]),
    ] {
        watch::switch_off(off.map(|(rule, form)| (rule.into(), form)));
        let found = [part, whole].map(|patch| volume.is_live_by(RULE, patch));
        assert_eq!(found, live, "{off:?}");
        assert!(!volume.is_live_by(RULE, PatchId::COMMITTED));
    }
    watch::switch_off(None);
    watch::record(true);
    for patch in [part, whole, PatchId::COMMITTED] {
        volume.is_live_by(RULE, patch);
    }
    let counted = passes(RULE);
    assert_eq!(
        (counted.reached, counted.pending, counted.merged),
        (3, 2, 1)
    );
}

#[test]
fn what_is_handed_out_is_counted_where_it_is_used() {
    let mut graph = Graph::new(Optimisations::BOTH);
    let [part, whole] = merged(&mut graph, 0);
    let first = write(&mut graph, 1, 0, &[]);
    let second = write(&mut graph, 2, 0, &[first]);
    watch::record(true);
    // Each set that is handed out, what is waited for beside it, and what is counted.
    let count = |handed: &[PatchId], beside: &[PatchId], order: Order| {
        let mut after = rules::wait_for_all(RULE, handed).to_vec();
        after.extend_from_slice(beside);
        let by = rules::heed(&graph, &mut after, order, &[]);
        assert!(
            rules::heed(&graph, &mut after, order, &[]).is_empty(),
            "it is used up"
        );
        let p = passes(RULE);
        assert_eq!(by.is_empty(), p.pending == 0);
        assert_eq!((p.reached, p.is_of_patches), (1, true));
        (p.pending, p.merged, p.most, p.covered, p.essential)
    };
    assert_eq!(count(&[first], &[], Order::Kept), (1, 0, 1, 0, 1));
    assert_eq!(
        count(&[PatchId::COMMITTED], &[], Order::Kept),
        (0, 0, 0, 0, 0)
    );
    assert_eq!(count(&[first, second], &[], Order::Kept), (2, 0, 2, 0, 1));
    assert_eq!(count(&[part, whole], &[], Order::Kept), (2, 1, 1, 0, 1));
    // Something else comes after it anyway, or is the same.
    assert_eq!(count(&[first], &[second], Order::Kept), (1, 0, 1, 1, 0));
    assert_eq!(count(&[first], &[first], Order::Kept), (1, 0, 1, 1, 0));
    assert_eq!(count(&[second], &[first], Order::Kept), (1, 0, 1, 0, 1));
    assert_eq!(
        count(&[first, whole], &[second], Order::Kept),
        (2, 0, 2, 0, 1)
    );
    assert_eq!(count(&[first], &[], Order::Dropped), (0, 0, 0, 0, 0));
    assert_eq!(
        count(&[first], &[], Order::KeptForContents),
        (1, 0, 1, 0, 1)
    );
    // So it does where the patch changes bytes of what comes after it.
    let covered = |besides: &[PatchId]| {
        let mut after = vec![rules::wait_for(RULE, first)];
        rules::heed(&graph, &mut after, Order::Kept, besides);
        let p = passes(RULE);
        (p.covered, p.essential)
    };
    assert_eq!(covered(&[]), (0, 1));
    assert_eq!(covered(&[second]), (1, 0));
    assert_eq!(covered(&[whole]), (0, 1));
    // What is not used for contents after all is not counted.
    rules::wait_for(RULE, first);
    rules::heed(&graph, &mut vec![second], Order::KeptForContents, &[]);
    assert_eq!(passes(RULE).pending, 0);
    rules::wait_for(RULE, first);
    rules::forget_followed();
    assert!(rules::heed(&graph, &mut vec![first], Order::Kept, &[]).is_empty());
}

#[test]
fn what_fsync_waits_for_is_counted_by_the_rules_that_noted_it() {
    let mut graph = Graph::new(Optimisations::BOTH);
    let first = write(&mut graph, 1, 0, &[]);
    let second = write(&mut graph, 2, 0, &[first]);
    let third = write(&mut graph, 3, 0, &[]);
    watch::record(true);
    let count = |noted: &[(Rule, PatchId)], targets: &[PatchId]| {
        for (rule, id) in noted {
            rules::note_by(*rule, *id);
        }
        rules::heed_flush(&graph, targets);
        rules::forget_followed();
        let p = passes(RULE);
        (p.pending, p.covered, p.essential)
    };
    let none = PatchId::COMMITTED;
    assert_eq!(count(&[(RULE, first)], &[first]), (1, 0, 1));
    assert_eq!(
        count(&[(RULE, first)], &[third]),
        (1, 0, 0),
        "it waits for something else"
    );
    assert_eq!(count(&[(RULE, first)], &[first, second]), (1, 1, 0));
    assert_eq!(count(&[(RULE, first)], &[first, third]), (1, 0, 1));
    assert_eq!(count(&[(RULE, first), (OTHER, first)], &[first]), (1, 1, 0));
    assert_eq!(
        count(&[(RULE, first), (OTHER, third)], &[first, third]),
        (1, 0, 1)
    );
    assert_eq!(count(&[(RULE, none)], &[first]), (0, 0, 0));
    watch::record(false);
    assert_eq!(
        count(&[(RULE, first)], &[first]),
        (0, 0, 0),
        "nobody counts"
    );
}

/// A change comes after what a rule handed out, and is left out of a write of its block.
#[test]
fn what_is_left_out_of_a_write_is_counted() {
    let mut store = Store::new(Limits::default(), Optimisations::NONE);
    let id = store.add_volume(1024);
    for block in 0..2 {
        store.insert(id, block, BlockClass::Metadata, vec![0; 1024].into());
    }
    let mut mechanism = SOFT.make(None).unwrap();
    let rolled_back = |graph: &Graph| {
        watch::pass(RULE.into());
        rules::count_rolled_back(graph);
        passes(RULE).rolled_back
    };
    for remounted in [false, true] {
        watch::record(true);
        watch::set_remounted(remounted);
        let mut volume = Volume::new(&mut store, &mut *mechanism, id, Duration::ZERO);
        volume.begin(NAMES);
        let class = BlockClass::Metadata;
        let first = volume.write(BlockNumber(0), class, 0, &[1; 4], &[]);
        let goes = volume.write(BlockNumber(1), class, 0, &[1; 4], &[]);
        let after = rules::wait_for(RULE, first);
        let stays = volume.write(BlockNumber(1), class, 8, &[1; 4], &[after]);
        volume.end(&mut Vec::new());
        let graph = store.graph_mut();
        assert_eq!(rolled_back(graph), 0, "nothing is on its way");
        let block = graph.info(goes).and_then(|info| info.block).unwrap();
        let _ = graph.start_write(block, &[0; 1024]);
        assert!(graph.is_pending(stays) && !graph.is_pending(goes));
        let expected = u64::from(!remounted);
        assert_eq!(rolled_back(graph), expected, "remounted: {remounted}");
        graph.complete_write(block);
        let block = graph.info(first).and_then(|info| info.block).unwrap();
        let _ = graph.start_write(block, &[0; 1024]);
        assert_eq!(rolled_back(graph), 0, "its own block is not written");
        graph.complete_write(block);
        let block = graph.info(stays).and_then(|info| info.block).unwrap();
        let _ = graph.start_write(block, &[0; 1024]);
        assert_eq!(rolled_back(graph), 0, "it goes itself");
        graph.complete_write(block);
        watch::set_remounted(false);
    }
}
