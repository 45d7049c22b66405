//! What is at home, and when the tail moves past it.

use super::*;

/// A block that a transaction logged and a later one freed is at home once the later one is
/// committed. Until then its hold is the patch to wait for: with none, a caller that needs room in
/// the log would ask again for ever.
#[test]
pub(crate) fn what_a_closed_transaction_freed_keeps_the_tail_until_that_is_committed() {
    let mut bench = Bench::new(JournalMode::Full);
    bench.contents(20, 1, PatchId::COMMITTED);
    let earlier = bench.close();
    bench.write_out(earlier);
    bench.free(20);
    bench.metadata(0, 1, &[]);
    let later = bench.close();
    let mut targets = Vec::new();
    bench.journal.home(&bench.store, &mut targets);
    assert_eq!(targets, [later]);
    bench.write_out(later);
    let moved = bench.journal.move_tail(&mut bench.store, bench.volume, NOW);
    bench.write_out(moved.expect("the first transaction is at home"));
}

/// The room of transactions that are at home is not used again before the tail on the disk has
/// moved past them.
#[test]
pub(crate) fn room_is_given_back_once_the_tail_has_moved() {
    let mut bench = Bench::with(JournalMode::Full, 64, Features::default());
    for round in 1..3 {
        for block in 20..40 {
            bench.contents(block, round, PatchId::COMMITTED);
        }
        let closed = bench.close();
        bench.write_out(closed);
    }
    let mut originals = Vec::new();
    bench.journal.home(&bench.store, &mut originals);
    originals.into_iter().for_each(|id| bench.write_out(id));
    let tail = bench.journal.move_tail(&mut bench.store, bench.volume, NOW);
    let tail = tail.expect("something is at home");
    for block in 20..50 {
        bench.contents(block, 3, PatchId::COMMITTED);
    }
    let close = |bench: &mut Bench| {
        bench.journal.state(&bench.store);
        let (store, volume) = (&mut bench.store, bench.volume);
        bench.journal.close(store, volume, NOW, (1, 0)).is_ok()
    };
    assert!(!close(&mut bench), "the tail is not on the disk");
    bench.write_out(tail);
    assert!(close(&mut bench));
}

/// A block that the running transaction changes stays back. The other blocks of its earlier
/// transaction go home without it: the tail waits for them, and the running transaction may need
/// the room.
#[test]
pub(crate) fn what_a_transaction_changes_again_keeps_nothing_else_from_going_home() {
    let mut bench = Bench::new(JournalMode::Full);
    bench.contents(20, 1, PatchId::COMMITTED);
    bench.contents(21, 1, PatchId::COMMITTED);
    let first = bench.close();
    bench.write_out(first);
    bench.contents(20, 2, PatchId::COMMITTED);
    let mut targets = Vec::new();
    bench.journal.home(&bench.store, &mut targets);
    assert!(!targets.is_empty());
    targets.into_iter().for_each(|id| bench.write_out(id));
}

/// A caller waits for an earlier transaction's originals. A block that a later transaction changes
/// again stays back, and the others go home.
#[test]
pub(crate) fn originals_that_somebody_waits_for_are_parted_too() {
    let mut bench = Bench::new(JournalMode::Full);
    let elsewhere = bench.contents(40, 1, PatchId::COMMITTED);
    let earlier = bench.close();
    bench.write_out(earlier);
    for block in [20, 21, 22] {
        bench.contents(block, 1, PatchId::COMMITTED);
    }
    let first = bench.close();
    bench.write_out(first);
    let mut originals = Vec::new();
    bench.store.pending(bench.volume, 20, &mut originals);
    let waits = bench
        .store
        .graph_mut()
        .create_empty(&originals, None, false);
    bench.contents(20, 2, PatchId::COMMITTED);
    let mut targets = Vec::new();
    bench.journal.home(&bench.store, &mut targets);
    targets.into_iter().for_each(|id| bench.write_out(id));
    let pending = [20, 21, 22].map(|block| bench.is_pending(block));
    assert_eq!(
        (pending, bench.is_live(waits)),
        ([true, false, false], true)
    );
    assert!(!bench.is_live(elsewhere));
}

/// The tail moves past a transaction once each block is at home, or in a later transaction that is
/// committed.
#[test]
pub(crate) fn the_tail_waits_for_later_transactions_to_be_committed() {
    for frees in [false, true] {
        let mut bench = Bench::new(JournalMode::Full);
        bench.contents(20, 1, PatchId::COMMITTED);
        let first = bench.close();
        bench.write_out(first);
        let tail = |bench: &mut Bench| {
            let (store, volume) = (&mut bench.store, bench.volume);
            bench.journal.move_tail(store, volume, NOW)
        };
        assert_eq!(tail(&mut bench), None, "it is not at home");
        match frees {
            true => bench.free(20),
            false => drop(bench.contents(20, 2, PatchId::COMMITTED)),
        }
        assert_eq!(
            tail(&mut bench),
            None,
            "the later one is running, frees: {frees}"
        );
        bench.metadata(0, 1, &[]);
        let second = bench.close();
        assert_eq!(
            tail(&mut bench),
            None,
            "it is not committed, frees: {frees}"
        );
        bench.contents(30, 1, PatchId::COMMITTED);
        let third = bench.close();
        assert_eq!(
            tail(&mut bench),
            None,
            "it is not committed, frees: {frees}"
        );
        bench.write_out(second);
        assert!(tail(&mut bench).is_some());
        // While the new tail is on its way the next transaction comes home, and the tail moves on.
        let mut targets = Vec::new();
        bench.write_out(third);
        bench.journal.home(&bench.store, &mut targets);
        targets.into_iter().for_each(|id| bench.write_out(id));
        assert!(tail(&mut bench).is_some());
        let block = bench.store.peek(bench.volume, JOURNAL.0).unwrap();
        let bytes = block[..1024].try_into().unwrap();
        let sb = Superblock::parse(bytes, BLOCK as u32, JOURNAL.1, 0).unwrap();
        assert!(sb.sequence.0 >= 3, "past the first two, frees: {frees}");
    }
}
