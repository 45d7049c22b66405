//! Contents: which go through the log, and which a commit record waits for.

use super::*;

/// A file is removed whose contents an earlier commit record waits for: their patches stay. Some of
/// the contents went through the log, and wait for the hold. The commit record of the transaction
/// that freed them must not wait for these.
#[test]
pub(crate) fn a_commit_record_does_not_wait_for_what_its_transaction_logged_and_freed() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let first = bench.contents(20, 1, PatchId::COMMITTED);
    bench.metadata(0, 1, &[first]);
    let earlier = bench.close();
    bench.write_out(first);
    assert!(bench.is_live(earlier), "only the contents are there");

    bench.contents(20, 2, PatchId::COMMITTED);
    let shorter = bench.metadata(0, 2, &[]);
    bench.zero(20, shorter);
    bench.metadata(0, 0, &[]);
    bench.free(20);
    let later = bench.close();
    bench.write_out(later);
}

/// A logged block is freed and given to another file in the same transaction: its new contents go
/// through the log as well.
#[test]
pub(crate) fn what_was_logged_freed_and_used_again_is_in_the_transaction() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let first = bench.contents(20, 1, PatchId::COMMITTED);
    bench.metadata(0, 1, &[first]);
    bench.close();
    bench.write_out(first);

    bench.contents(20, 2, PatchId::COMMITTED);
    let shorter = bench.metadata(0, 2, &[]);
    bench.zero(20, shorter);
    bench.metadata(0, 0, &[]);
    bench.free(20);
    let other = bench.contents(20, 3, PatchId::COMMITTED);
    bench.metadata(1, 3, &[other]);
    let later = bench.close();
    bench.write_out(later);
    let written = bench.store.peek(bench.volume, 20).unwrap();
    assert!(written.iter().all(|b| *b == 3));
}

/// A file is made and removed in one transaction, which may use its blocks again. Their next
/// contents must be on the disk before the transaction is committed.
#[test]
pub(crate) fn a_commit_record_waits_for_contents_of_blocks_freed_and_used_again() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let first = bench.contents(20, 1, PatchId::COMMITTED);
    bench.metadata(0, 1, &[first]);
    bench.metadata(0, 0, &[]);
    bench.free(20);
    let second = bench.contents(20, 2, PatchId::COMMITTED);
    bench.metadata(1, 1, &[second]);
    let closed = bench.close();
    bench.write_out(closed);
    assert!(!bench.is_live(second), "the file shows what it was given");
}

/// An overwritten block stays in the run that an earlier commit record waits for. Further blocks of
/// the file do not join that run, or an fsync of what that transaction changed would wait for them.
#[test]
pub(crate) fn contents_do_not_join_what_an_earlier_commit_record_waits_for() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let first = bench.contents(20, 1, PatchId::COMMITTED);
    bench.metadata(0, 1, &[first]);
    let earlier = bench.close();

    let again = bench.contents(20, 2, first);
    assert_eq!(again, first, "nothing of the run is on its way yet");
    let further = bench.contents(21, 2, again);
    bench.metadata(0, 2, &[further]);
    bench.write_out(earlier);
    assert!(
        bench.is_live(further),
        "the earlier transaction does not wait for it"
    );
    let later = bench.close();
    bench.write_out(later);
    assert!(!bench.is_live(further));
}

/// Blocks that an uncommitted transaction frees may get other contents meanwhile: those of one file
/// are one patch, which waits for the transaction.
#[test]
pub(crate) fn contents_of_freed_blocks_are_one_patch() {
    for mode in [JournalMode::Ordered, JournalMode::Writeback] {
        let mut bench = Bench::new(mode);
        for block in 20..24 {
            bench.contents(block, 1, PatchId::COMMITTED);
        }
        bench.metadata(0, 1, &[]);
        let first = bench.close();
        bench.write_out(first);
        bench.metadata(0, 0, &[]);
        (20..24).for_each(|block| bench.free(block));
        let freeing = bench.close();

        let mut run = PatchId::COMMITTED;
        for block in 20..24 {
            run = bench.contents(block, 2, run);
        }
        assert_eq!(
            bench.contents(20, 3, run),
            run,
            "{mode:?}: no patch of its own"
        );
        bench.metadata(1, 1, &[run]);
        let batch = bench.store.next_batch(Goal::Patches(&[run]), NOW, u64::MAX);
        let places = batch.writes.iter().flat_map(|(_, requests)| requests);
        let mut places = places.map(|r| r.offset_bytes / BLOCK as u64);
        assert!(
            places.all(|block| block >= JOURNAL.0),
            "{mode:?}: before the transaction that freed them"
        );
        bench.store.complete(batch, NOW);
        bench.write_out(freeing);
        assert!(bench.is_live(run));
        let last = bench.close();
        bench.write_out(last);
        assert_eq!(
            bench.is_live(run),
            mode == JournalMode::Writeback,
            "{mode:?}"
        );
        bench.write_out(run);
    }
}

/// Contents of one file are one patch. Where one block of them goes through the log after all, the
/// commit record waits for the others.
#[test]
pub(crate) fn contents_that_go_through_the_log_leave_the_others_of_their_file() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let run = bench.contents(20, 1, PatchId::COMMITTED);
    assert_eq!(bench.contents(21, 1, run), run);
    assert_eq!(bench.contents(22, 1, run), run);
    let other = bench.contents(30, 1, PatchId::COMMITTED);
    let shorter = bench.metadata(0, 1, &[run, other]);
    bench.zero(20, shorter);
    let closed = bench.close();
    bench.write_out(closed);
    let pending = [20, 21, 22, 30].map(|block| bench.is_pending(block));
    assert_eq!(pending, [true, false, false, false]);
    assert!(!bench.is_live(other));
}

/// Under `writeback`, a change is known by a patch that comes after the contents that the change
/// comes after; the commit record does not wait for these.
#[test]
pub(crate) fn what_a_change_is_known_by_comes_after_contents_under_writeback() {
    let mut bench = Bench::new(JournalMode::Writeback);
    let plain = bench.metadata(0, 1, &[]);
    let [first, second] = [20, 30].map(|block| bench.contents(block, 1, PatchId::COMMITTED));
    let known = bench.metadata(1, 1, &[first]);
    assert_ne!(known, plain);
    assert_eq!(bench.metadata(2, 1, &[first]), known, "the same contents");
    assert_eq!(
        bench.metadata(3, 1, &[known]),
        known,
        "what is known already"
    );
    assert_eq!(bench.metadata(4, 1, &[plain]), plain, "no contents");
    let both = bench.metadata(5, 1, &[known, second, PatchId::COMMITTED]);
    let also = bench.metadata(6, 1, &[second, first, first]);
    assert_eq!(bench.metadata(7, 1, &[plain, first, second]), also);
    let closed = bench.close();
    assert_eq!(closed, plain);
    bench.write_out(closed);
    assert!(bench.is_live(first) && bench.is_live(second));
    bench.write_out(known);
    assert!(!bench.is_live(first) && bench.is_live(second));
    bench.write_out(also);
    assert!(!bench.is_live(second) && !bench.is_live(both));
    // Patches on stable storage are no longer waited for; an earlier transaction's names are not
    // either.
    let running = bench.metadata(0, 2, &[]);
    assert_eq!(bench.metadata(1, 2, &[first, known, closed]), running);
    let again = bench.contents(20, 2, PatchId::COMMITTED);
    assert_ne!(bench.metadata(1, 2, &[again]), running);
    for mode in [JournalMode::Ordered, JournalMode::Full] {
        let mut bench = Bench::new(mode);
        let contents = bench.contents(20, 1, PatchId::COMMITTED);
        let known = bench.metadata(0, 1, &[contents]);
        assert_eq!(known, bench.close(), "{mode:?}");
    }
}

/// Contents go through the log where a promise about them is kept by a commit record only.
#[test]
pub(crate) fn contents_under_a_group_go_through_the_log() {
    for (mode, is_grouped, is_hidden, is_logged) in [
        (JournalMode::Ordered, false, false, false),
        (JournalMode::Ordered, true, false, true),
        (JournalMode::Ordered, true, true, false),
        (JournalMode::Writeback, false, true, false),
        (JournalMode::Writeback, true, true, true),
        (JournalMode::Full, false, true, true),
    ] {
        let mut bench = Bench::new(mode);
        let mut groups = Groups::default();
        let group = groups.create().unwrap();
        groups.engage(bench.store.graph_mut(), group).unwrap();
        let engaged = [group];
        let engaged = if is_grouped { &engaged[..] } else { &[] };
        let volume = Volume::new(&mut bench.store, &mut bench.journal, bench.volume, NOW);
        let mut volume = volume.under(&mut groups, engaged);
        volume.begin(CONTENTS);
        volume.hidden(is_hidden, |v| {
            v.write_in_run(BlockNumber(20), 0, &[1; BLOCK], PatchId::COMMITTED)
        });
        volume.end(&mut Vec::new());
        let found = bench.journal.state(&bench.store).running.is_some();
        assert_eq!(found, is_logged, "{mode:?}, {is_grouped}, {is_hidden}");
    }
}

/// A closed, uncommitted transaction shows a file, and its commit record waits for the file's
/// contents. They are kept, though the file is removed since.
#[test]
pub(crate) fn contents_that_a_commit_record_waits_for_are_kept_until_then() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let first = bench.contents(20, 1, PatchId::COMMITTED);
    bench.metadata(0, 1, &[first]);
    let earlier = bench.close();
    bench.metadata(0, 0, &[]);
    bench.free(20);
    assert!(bench.is_live(first) && bench.is_pending(20));
    bench.write_out(earlier);
    assert!(!bench.is_live(first));
    // Contents that no commit record waits for go with the file.
    let second = bench.contents(21, 1, PatchId::COMMITTED);
    bench.free(21);
    assert!(!bench.is_live(second));
}

/// A block is freed, used and freed again before its first freeing is committed. Its next contents
/// come after the second freeing.
#[test]
pub(crate) fn contents_of_a_block_freed_twice_come_after_the_later_freeing() {
    let mut bench = Bench::new(JournalMode::Ordered);
    bench.free(20);
    bench.metadata(0, 1, &[]);
    let first = bench.close();
    bench.free(20);
    bench.metadata(0, 2, &[]);
    let second = bench.close();
    bench.write_out(first);
    bench.journal.state(&bench.store);
    let contents = bench.contents(20, 1, PatchId::COMMITTED);
    assert!(bench.is_live(second));
    bench.write_out(contents);
    assert!(!bench.is_live(second));
    bench.journal.state(&bench.store);
    // Once that is committed, they wait for nothing.
    bench.metadata(0, 3, &[]);
    let third = bench.close();
    let contents = bench.contents(20, 2, PatchId::COMMITTED);
    bench.write_out(contents);
    assert!(bench.is_live(third));
}

/// A later transaction's commit record waits for contents of the same block: they are kept when the
/// first one is committed.
#[test]
pub(crate) fn contents_that_two_commit_records_wait_for_are_kept_for_the_later_one() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let first = bench.contents(20, 1, PatchId::COMMITTED);
    bench.metadata(0, 1, &[first]);
    let earlier = bench.close();
    let batch = bench
        .store
        .next_batch(Goal::Patches(&[first]), NOW, u64::MAX);
    let second = bench.contents(20, 2, PatchId::COMMITTED);
    bench.metadata(0, 2, &[second]);
    bench.close();
    bench.store.complete(batch, NOW);
    bench.write_out(earlier);
    assert!(bench.is_live(second));
    bench.journal.state(&bench.store);
    bench.free(20);
    assert!(bench.is_live(second));
}

/// Contents of a block of which the log has a copy go through the log: a replay would bring the
/// older ones home.
#[test]
pub(crate) fn contents_of_a_logged_block_go_through_the_log() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let first = bench.contents(20, 1, PatchId::COMMITTED);
    let shorter = bench.metadata(0, 1, &[first]);
    bench.zero(20, shorter);
    let closed = bench.close();
    bench.write_out(closed);
    let is_logged = |bench: &mut Bench| bench.journal.state(&bench.store).running.is_some();
    bench.contents(21, 2, PatchId::COMMITTED);
    assert!(!is_logged(&mut bench));
    bench.contents(20, 2, PatchId::COMMITTED);
    assert!(is_logged(&mut bench));
}
