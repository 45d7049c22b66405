//! Changes under patchgroups: what hides, and what a group waits for.

use super::*;

/// A mechanism whose scopes are atomic, as a journal's, and that keeps no order in the graph.
struct Atomic;

impl MechanismKind for Atomic {
    fn name(&self) -> &'static str {
        "atomic"
    }

    fn promises(&self) -> Promises {
        Promises::leaving(CrashLeaves::WholeScopes)
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        None
    }

    fn make(&self, _: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        Ok(Box::new(Atomic))
    }
}

impl Mechanism for Atomic {
    fn kind(&self) -> Kind {
        &Atomic
    }

    fn transform(
        &mut self,
        _: &mut Store,
        _: &PatchSpec<'_>,
        dependencies: &mut Vec<PatchId>,
    ) -> Decision {
        dependencies.clear();
        Decision::IN_PLACE
    }
}

#[test]
fn what_a_group_holds_is_what_a_reader_of_the_disk_could_see() {
    for (mechanism, counts_hidden) in [
        (SOFT.make(None).unwrap(), false),
        (ASYNC.make(None).unwrap(), true),
        (Atomic.make(None).unwrap(), true),
    ] {
        let name = mechanism.kind().name();
        let mut bench = Bench::over(mechanism, BLOCK);
        assert!(!bench.volume().is_grouped() && bench.volume().engaged().is_empty());
        let [first, second] = bench.two_groups();
        assert!(bench.volume().is_grouped());
        assert_eq!(bench.volume().engaged(), [first]);
        assert_eq!(bench.groups.engaged(), 1);
        assert_eq!(bench.groups.is_blank(first), Ok(true));
        let flip = |v: &mut Volume<'_>| v.flip(BlockNumber(4), BlockClass::Metadata, 0, 1, &[]);
        let (bit, _) = bench.step(NAMES, flip);
        let hidden = |v: &mut Volume<'_>| {
            v.hidden(true, |v| {
                v.write(BlockNumber(5), BlockClass::Metadata, 0, &[1; 4], &[])
            })
        };
        let (hidden, _) = bench.step(NAMES, hidden);
        let without = |v: &mut Volume<'_>| {
            v.without_groups(|v| {
                assert!(!v.is_grouped());
                v.write(BlockNumber(6), BlockClass::Metadata, 0, &[1; 4], &[])
            })
        };
        let (without, _) = bench.step(NAMES, without);
        assert_eq!(bench.groups.is_blank(first), Ok(!counts_hidden), "{name}");
        let shown = bench.metadata(0, 0, &[]);
        let times = |v: &mut Volume<'_>| {
            v.write_implied_times(BlockNumber(7), BlockClass::Metadata, 0, &[1; 4])
        };
        let (times, _) = bench.step(NAMES, times);
        assert_eq!(bench.groups.is_blank(first), Ok(false));
        let mut targets = bench.groups.targets(bench.store.graph(), first).unwrap();
        let mut expected = vec![shown, times];
        expected.extend([bit, hidden].into_iter().filter(|_| counts_hidden));
        targets.sort_unstable();
        expected.sort_unstable();
        assert_eq!(targets, expected, "{name}");
        assert!(!targets.contains(&without));
        // Times are of the group, but nobody waits for them.
        bench.go_on_under(second, first);
        let later = bench.metadata(1, 0, &[]);
        if name != "atomic" {
            assert!(bench.comes_after(later, shown), "{name}");
            assert!(bench.volume().is_live(times), "{name}");
            assert_eq!(bench.volume().is_live(bit), !counts_hidden, "{name}");
        } else {
            assert!(!bench.comes_after(later, shown), "the log keeps the order");
        }
        assert!(bench.volume().come_after_groups(), "there is no log");
    }
}

/// Changes of an object that is made together with them show no earlier than its names.
#[test]
fn changes_of_a_new_object_hide_behind_its_names() {
    for (kind, names, is_hidden) in [
        (&SOFT as Kind, 2, true),
        (&SOFT, 1, false),
        (&SOFT, 0, false),
        (&ASYNC, 2, false),
    ] {
        let mut bench = Bench::new(kind);
        let [first, second] = bench.two_groups();
        bench.metadata(0, 0, &[]);
        bench.go_on_under(second, first);
        bench.engaged.clear();
        let made = bench.metadata(1, 0, &[]);
        let early = bench.metadata(2, 0, &[made]);
        bench.engaged = vec![second];
        let late = bench.metadata(3, 0, &[made]);
        let late_too = bench.metadata(4, 0, &[made]);
        let new = NewObject {
            made,
            names: match names {
                0 => vec![],
                1 => vec![early, late],
                _ => vec![late, late_too],
            },
        };
        let members = |bench: &Bench| bench.groups.targets(bench.store.graph(), second).unwrap();
        let before = members(&bench);
        let into =
            |v: &mut Volume<'_>| v.write_into_new(BlockNumber(1), METADATA, 16, &[1; 4], &[], &new);
        let (id, _) = bench.step(NAMES, into);
        let noted = members(&bench).len() > before.len();
        assert_eq!(noted, !is_hidden, "{kind:?}, {names} names");
        assert!(!is_hidden || bench.volume().merged(id, made));
        // Where a change does not become a part of it, nothing is hidden.
        let before = members(&bench).len();
        let elsewhere =
            |v: &mut Volume<'_>| v.write_into_new(BlockNumber(5), METADATA, 16, &[1; 4], &[], &new);
        bench.step(NAMES, elsewhere);
        assert!(members(&bench).len() > before);
        assert!(
            !bench.volume().is_contents_of_new(BlockNumber(1), &new),
            "no contents"
        );
        bench.volume().reached_by(&[early]);
        assert!(members(&bench).contains(&early));
    }
}

#[test]
fn contents_of_a_new_object_hide_where_its_making_waits_for_them() {
    let mut bench = Bench::new(&SOFT);
    let [first, second] = bench.two_groups();
    bench.metadata(0, 0, &[]);
    bench.go_on_under(second, first);
    bench.engaged.clear();
    let write = |v: &mut Volume<'_>| {
        v.write_in_run(BlockNumber(20), 0, &[1; BLOCK as usize], PatchId::COMMITTED)
    };
    let (contents, _) = bench.step(CONTENTS, write);
    let made = bench.metadata(1, 0, &[contents]);
    bench.engaged = vec![second];
    let name = bench.metadata(2, 0, &[made]);
    let new = NewObject {
        made,
        names: vec![name],
    };
    assert!(bench.volume().is_contents_of_new(BlockNumber(20), &new));
    assert!(!bench.volume().is_contents_of_new(BlockNumber(21), &new));
    bench.engaged.clear();
    assert!(
        !bench.volume().is_contents_of_new(BlockNumber(20), &new),
        "no group"
    );
}

/// "Yes" only where the layout's order alone decides.
#[test]
fn a_change_joins_the_patch_that_made_the_object() {
    for (mechanism, is_grouped, joins) in [
        (SOFT.make(None).unwrap(), false, true),
        (SOFT.make(None).unwrap(), true, false),
        (ASYNC.make(None).unwrap(), false, false),
        (Box::new(Atomic), false, false),
    ] {
        let name = mechanism.kind().name();
        let mut bench = Bench::over(mechanism, BLOCK);
        let made = bench.metadata(1, 0, &[]);
        if is_grouped {
            let group = bench.groups.create().unwrap();
            bench.groups.engage(bench.store.graph_mut(), group).unwrap();
            bench.engaged = vec![group];
        }
        let asked = bench.volume().joins(BlockNumber(1), 16, &[1; 4], &[], made);
        assert_eq!(asked, joins, "{name}, grouped: {is_grouped}");
        assert!(
            !bench.volume().joins(BlockNumber(2), 16, &[1; 4], &[], made),
            "another block"
        );
    }
    let mut bench = Bench::new(&SOFT);
    let mut mechanism = SOFT.make(None).unwrap();
    let made = bench.metadata(1, 0, &[]);
    let mut lower = bench.volume();
    let upper_id = lower.add_volume();
    lower.place_blocks(upper_id, 0, 1, 1);
    let mut upper = lower.enter(&mut *mechanism, upper_id, 1);
    assert!(
        !upper.joins(BlockNumber(0), 16, &[1; 4], &[], made),
        "blocks need places"
    );
}

#[test]
fn a_group_comes_after_a_bounded_number_of_others() {
    const MOST: u64 = 1 << 12;
    let mut bench = Bench::new(&SOFT);
    let after = bench.groups.create().unwrap();
    let hold = bench.store.graph_mut().create_empty(&[], None, true);
    for n in 0..=MOST {
        let before = bench.groups.create().unwrap();
        let graph = bench.store.graph_mut();
        bench.groups.engage(graph, before).unwrap();
        let member = graph.create_empty(&[hold], None, false);
        bench.engaged = vec![before];
        bench.volume().reached_by(&[member]);
        bench.groups.disengage(before).unwrap();
        let graph = bench.store.graph_mut();
        let taken = bench.groups.depend(graph, after, before);
        let expected = if n < MOST {
            Ok(())
        } else {
            Err(GroupError::TooMany)
        };
        assert_eq!(taken, expected, "{n}");
    }
    // They are one patch from then on, and nothing once they are on stable storage.
    let graph = bench.store.graph_mut();
    bench.groups.engage(graph, after).unwrap();
    let mut heads = Vec::new();
    bench.groups.heads(graph, &[after], &mut heads);
    assert_eq!(heads.len(), 1);
    assert_eq!(graph.dependencies(heads[0]).len() as u64, MOST);
    graph.release(hold);
    heads.clear();
    bench.groups.heads(graph, &[after], &mut heads);
    assert!(heads.is_empty());
}
