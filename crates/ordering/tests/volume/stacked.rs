//! A volume on another one, in a file of it.

use super::*;

/// Tokens of two volumes of one store, of which one is on the other.
#[test]
fn tokens_are_told_to_who_asked() {
    let mut bench = Bench::new(&SOFT);
    let id = bench.metadata(0, 0, &[]);
    let mut upper_mechanism = SOFT.make(None).unwrap();
    let mut lower = bench.volume();
    let upper_id = lower.add_volume();
    assert_eq!(lower.watch_one(id, 5), Some(5));
    assert_eq!(lower.watch_one(id, 6), Some(5), "who asked first is told");
    let empty = lower.empty(&[id]);
    assert_eq!(lower.watch_one(empty, 6), None);
    lower.watch(&[id], 7);
    let mut upper = lower.enter(&mut *upper_mechanism, upper_id, 3);
    assert_eq!(upper.watch_one(id, 8), None, "another volume's token");
    upper.watch(&[id], (1 << 56) - 1);
    assert!(upper.leave().is_empty());
    bench.write_out(id);
    let (mut below, mut above) = (vec![99], vec![98]);
    let mut lower = bench.volume();
    lower.take_fired(&mut below);
    below.sort_unstable();
    assert_eq!(below, [5, 7, 99]);
    lower
        .enter(&mut *upper_mechanism, upper_id, 3)
        .take_fired(&mut above);
    assert_eq!(above, [98, (1 << 56) - 1]);
    let mut bench = Bench::new(&ASYNC);
    let id = bench.metadata(0, 0, &[]);
    assert_eq!(bench.volume().watch_one(id, 5), None, "no order is kept");
}

/// A caller waits for what the mechanism of a volume on another one wants on stable storage, unless
/// nothing was changed.
#[test]
fn a_call_waits_for_the_volume_above() {
    for only_reads in [false, true] {
        let mut bench = Bench::new(&SOFT);
        let mut upper_mechanism = SYNC.make(None).unwrap();
        let mut lower = bench.volume();
        let upper_id = lower.add_volume();
        lower.place_blocks(upper_id, 0, 8, 4);
        lower.begin(NAMES);
        let mut upper = lower.enter(&mut *upper_mechanism, upper_id, 1);
        let id = upper.write(BlockNumber(0), BlockClass::Directory, 0, &[1; 4], &[]);
        if only_reads {
            upper.only_read();
        }
        let above = upper.leave();
        assert_eq!(above, if only_reads { vec![] } else { vec![id] });
        lower.answer_after(above.clone());
        let mut wait_for = Vec::new();
        lower.end(&mut wait_for);
        assert_eq!(wait_for, above);
    }
}

#[test]
fn blocks_of_a_volume_on_another_one_have_places() {
    let mut bench = Bench::new(&SOFT);
    let mut upper_mechanism = SOFT.make(None).unwrap();
    let shown_by = bench.metadata(1, 0, &[]);
    let mut lower = bench.volume();
    let upper_id = lower.add_volume();
    lower.place_blocks(upper_id, 10, 8, 2);
    assert!(lower.has_place_here(upper_id, 11) && !lower.has_place_here(upper_id, 12));
    assert_eq!(lower.place_of(upper_id, 11), Some(9));
    assert_eq!(lower.place_of(upper_id, 9), None);
    let mut upper = lower.enter(&mut *upper_mechanism, upper_id, 1);
    assert_eq!((upper.place(10), upper.place(12)), (Some(8), None));
    // A reader sees zeros; a writer asks for a place.
    let zeros = [0; BLOCK as usize];
    assert_eq!(upper.read(BlockNumber(12)).unwrap(), zeros);
    assert_eq!(**upper.peek(BlockNumber(12)).unwrap(), zeros);
    assert!(upper.want(BlockNumber(12)));
    upper.begin(CONTENTS);
    assert!(
        upper.read(BlockNumber(12)).is_err()
            && upper.read_shared(BlockNumber(13)).is_err()
            && !upper.want(BlockNumber(14))
    );
    assert!(upper.expect_places(BlockNumber(9), 2).is_err());
    assert!(upper.expect_places(BlockNumber(10), 2).is_ok());
    assert!(upper.expect_places(BlockNumber(10), 3).is_err());
    drop(upper);
    let mut wanted = lower.take_places_wanted(upper_id);
    wanted.sort_unstable();
    wanted.dedup();
    assert_eq!(wanted, [9, 12, 13, 14]);
    assert!(lower.take_places_wanted(upper_id).is_empty());
    assert!(
        lower.expect_places(BlockNumber(100), 5).is_ok(),
        "it is on a device"
    );
    // What is written into a new place counts once the place is known on the disk.
    lower.place_blocks(upper_id, 12, 12, 1);
    lower.show_blocks_by(upper_id, 12, 1, &[shown_by]);
    let mut upper = lower.enter(&mut *upper_mechanism, upper_id, 1);
    upper.begin(CONTENTS);
    let hidden = upper.write(BlockNumber(12), BlockClass::Data, 0, &[1; 4], &[]);
    let shown = upper.write(BlockNumber(10), BlockClass::Data, 0, &[1; 4], &[]);
    // It is not forgotten, because a reader of the file outside sees it.
    upper.discard(BlockNumber(12));
    upper.discard(BlockNumber(10));
    let mut pending = Vec::new();
    upper.pending(BlockNumber(12), &mut pending);
    assert_eq!(pending.len(), 1);
    upper.pending(BlockNumber(10), &mut pending);
    assert_eq!(pending.len(), 1);
    assert!(upper.is_live(hidden) && !upper.is_live(shown));
    let next = upper.write(BlockNumber(11), BlockClass::Data, 0, &[1; 4], &[hidden]);
    assert!(bench.comes_after(next, shown_by));
}

/// A hole of a file gets a place, where the disk holds what somebody removed. Nobody inside needs
/// the block any more before it was written: it is written all the same before the file outside
/// leads to it.
#[test]
fn a_new_place_is_written_before_it_shows_though_something_makes_up_for_it() {
    let mut bench = Bench::new(&SOFT);
    let mut upper_mechanism = ASYNC.make(None).unwrap();
    let zeros = |v: &mut Volume<'_>| {
        v.initialise(BlockNumber(30), BlockClass::Data, &[0; BLOCK as usize], &[])
    };
    let (zeros, _) = bench.step(CONTENTS, zeros);
    let shown_by = bench.metadata(1, 0, &[zeros]);
    let mut lower = bench.volume();
    let upper_id = lower.add_volume();
    lower.place_blocks(upper_id, 0, 8, 1);
    lower.place_blocks(upper_id, 1, 30, 1);
    lower.show_blocks_by(upper_id, 1, 1, &[shown_by]);
    let mut upper = lower.enter(&mut *upper_mechanism, upper_id, 1);
    upper.begin(NAMES);
    upper.initialise(
        BlockNumber(1),
        BlockClass::Directory,
        &[1; BLOCK as usize],
        &[],
    );
    let by = upper.write(BlockNumber(0), METADATA, 0, &[1; 4], &[]);
    upper.supersede(BlockNumber(1), by);
    drop(upper);
    let mut written = Vec::new();
    while bench.store.graph().is_live(shown_by) {
        let goal = Goal::Patches(&[shown_by]);
        let batch = bench.store.next_batch(goal, NOW, u64::MAX);
        let requests = batch.writes.iter().flat_map(|(_, requests)| requests);
        written.extend(requests.map(|r| r.offset_bytes / u64::from(BLOCK)));
        bench.store.complete(batch, NOW);
    }
    assert_eq!(written, [30, 1]);
}

#[test]
fn without_the_rule_a_new_place_shows_what_it_held() {
    let rule = Rule::NewPlaceIsNotSuperseded;
    watch::switch_off(Some((rule.into(), Form::Whole)));
    let done = std::panic::catch_unwind(
        a_new_place_is_written_before_it_shows_though_something_makes_up_for_it,
    );
    watch::switch_off(None);
    assert!(done.is_err(), "nothing shows that {rule:?} is off");
}
