//! The journal as a mechanism, alone: what a commit record waits for, with every write reported by
//! hand.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::Buffer;
use backstitch_journal::format::features::{
    COMPAT_CHECKSUM, INCOMPAT_ASYNC_COMMIT, INCOMPAT_CSUM_V3,
};
use backstitch_journal::format::{BlockKind, Features, Header, Superblock};
use backstitch_journal::rules::Rule;
use backstitch_journal::{JournalMap, JournalMechanism, JournalMode, JournalRun, Setup};
use backstitch_ordering::{
    BlockClass, BlockNumber, GroupId, Groups, Log, MechanismKind as _, Operation, PatchId, Place,
    SOFT, Volume, VolumeId,
};
use backstitch_rules::watch::{self, Form};
use backstitch_store::{Change, Goal, Limits, Optimisations, Store};

/// A change of names.
const NAMES: Operation<'static> = Operation::Remove {
    at: Place {
        directory: 2,
        name: b"name",
    },
    is_directory: false,
};
/// A change of contents.
const CONTENTS: Operation<'static> = Operation::Resize {
    object: 2,
    size_bytes: 0,
};

const BLOCK: usize = 1024;
const NOW: Duration = Duration::ZERO;
/// The journal's blocks; what is below them is the file system's.
const JOURNAL: (u64, u32) = (1000, 1024);
/// A block of the inode table, say.
const INODES: u64 = 7;

/// A store with one volume under a journal.
struct Bench {
    store: Store,
    volume: VolumeId,
    journal: JournalMechanism,
}

impl Bench {
    fn new(mode: JournalMode) -> Bench {
        Bench::with(mode, JOURNAL.1, Features::default())
    }

    /// With a log of `blocks` blocks, the superblock's included.
    fn with(mode: JournalMode, blocks: u32, features: Features) -> Bench {
        let mut superblock = Superblock::new(BLOCK as u32, blocks, 0, [1; 16]);
        superblock.set_features(features);
        let run = JournalRun {
            position: 0,
            block: JOURNAL.0,
            blocks,
        };
        let map = Arc::new(JournalMap::inside(vec![run]).unwrap());
        let mut store = Store::new(Limits::default(), Optimisations::BOTH);
        let volume = store.add_volume(BLOCK as u32);
        let zeros: Buffer = vec![0; BLOCK].into();
        store.insert(volume, INODES, BlockClass::Metadata, zeros);
        let mut journal = JournalMechanism::new(Setup { superblock, map }, mode);
        let started = journal.start(&mut store, volume);
        let mut bench = Bench {
            store,
            volume,
            journal,
        };
        bench.write_out(started);
        bench
    }

    fn step<T>(&mut self, body: impl FnOnce(&mut Volume<'_>) -> T) -> T {
        let mut volume = Volume::new(&mut self.store, &mut self.journal, self.volume, NOW);
        volume.begin(CONTENTS);
        let done = body(&mut volume);
        volume.end(&mut Vec::new());
        done
    }

    /// A file's contents in a whole block, with those written under `run`.
    fn contents(&mut self, block: u64, byte: u8, run: PatchId) -> PatchId {
        self.step(|v| v.write_in_run(BlockNumber(block), 0, &[byte; BLOCK], run))
    }

    /// A change of an inode, which everything that is known of may have led to; what it is known
    /// by.
    fn metadata(&mut self, at: usize, byte: u8, after: &[PatchId]) -> PatchId {
        self.step(|v| {
            v.write(
                BlockNumber(INODES),
                BlockClass::Metadata,
                at,
                &[byte],
                after,
            )
        })
    }

    /// Zeroes the end of a block of contents, after a change of the same transaction.
    fn zero(&mut self, block: u64, after: PatchId) {
        self.step(|v| {
            v.write(
                BlockNumber(block),
                BlockClass::Data,
                100,
                &[0; 100],
                &[after],
            )
        });
    }

    fn free(&mut self, block: u64) {
        self.step(|v| v.discard(BlockNumber(block)));
    }

    /// Ends the running transaction; what is on stable storage once it is.
    fn close(&mut self) -> PatchId {
        self.journal.begin_close();
        let Bench {
            store,
            volume,
            journal,
        } = self;
        journal.close(store, *volume, NOW, (1, 0)).unwrap()
    }

    /// Puts this and what it waits for on stable storage, and nothing else.
    fn write_out(&mut self, target: PatchId) {
        loop {
            let batch = self
                .store
                .next_batch(Goal::Patches(&[target]), NOW, u64::MAX);
            if batch.is_empty() {
                break;
            }
            self.store.complete(batch, NOW);
        }
        assert!(!self.is_live(target), "nobody keeps it from being written");
    }

    /// The batches that put this on stable storage, each with the blocks of the journal that are in
    /// it.
    fn batches_to(&mut self, target: PatchId, mut each: impl FnMut(&Bench, &[u64])) {
        loop {
            let batch = self
                .store
                .next_batch(Goal::Patches(&[target]), NOW, u64::MAX);
            if batch.is_empty() {
                return;
            }
            let requests = batch.writes.iter().flat_map(|(_, requests)| requests);
            let mut blocks: Vec<u64> = Vec::new();
            for request in requests {
                let first = request.offset_bytes / BLOCK as u64;
                let bytes: usize = request.buffers.iter().map(|buffer| buffer.len()).sum();
                blocks.extend(first..first + (bytes / BLOCK) as u64);
            }
            blocks.retain(|block| *block >= JOURNAL.0);
            each(self, &blocks);
            self.store.complete(batch, NOW);
        }
    }

    fn is_live(&self, id: PatchId) -> bool {
        self.store.graph().is_live(id)
    }

    /// Whether something of the block is not on stable storage.
    fn is_pending(&mut self, block: u64) -> bool {
        let mut pending = Vec::new();
        self.store.pending(self.volume, block, &mut pending);
        !pending.is_empty()
    }
}

/// Contents that an earlier commit record waits for stay where they are when the file goes. Some of
/// them went through the log, and wait for the hold: the commit record of the transaction that
/// freed them must not wait for them.
#[test]
fn a_commit_record_does_not_wait_for_what_its_transaction_logged_and_freed() {
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

/// The same block given to another file before the transaction ends holds contents that go through
/// the log like those before them.
#[test]
fn what_was_logged_freed_and_used_again_is_in_the_transaction() {
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

/// A file that is made and removed in one transaction leaves blocks that this transaction may use
/// again: what is there then must be on the disk before the transaction shows it.
#[test]
fn a_commit_record_waits_for_contents_of_blocks_freed_and_used_again() {
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

/// An overwritten block stays a part of the run that an earlier commit record waits for. Further
/// blocks of the file are not of that run: an fsync of what that transaction holds would wait for
/// them.
#[test]
fn contents_do_not_join_what_an_earlier_commit_record_waits_for() {
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

/// What a transaction that is not committed frees may be given other contents meanwhile: those of
/// one file are one patch, which waits for it.
#[test]
fn contents_of_freed_blocks_are_one_patch() {
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

/// A block that a transaction logged and a later one freed is at home once that one is committed.
/// Until then its hold is what to wait for: with nothing to wait for, a caller that needs room in
/// the log would ask for ever.
#[test]
fn what_a_closed_transaction_freed_keeps_the_tail_until_that_is_committed() {
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

/// What a step does under a patchgroup, on a volume under a journal beside one without a log.
struct Grouped {
    bench: Bench,
    elsewhere: VolumeId,
    groups: Groups,
}

impl Grouped {
    fn new() -> Grouped {
        let mut bench = Bench::new(JournalMode::Ordered);
        let elsewhere = bench.store.add_volume(BLOCK as u32);
        for block in 0..3 {
            let zeros: Buffer = vec![0; BLOCK].into();
            (bench.store).insert(elsewhere, block, BlockClass::Metadata, zeros);
        }
        Grouped {
            bench,
            elsewhere,
            groups: Groups::default(),
        }
    }

    /// A new group after `earlier`, which is engaged.
    fn group_after(&mut self, earlier: Option<GroupId>) -> GroupId {
        let group = self.groups.create().unwrap();
        let graph = self.bench.store.graph_mut();
        if let Some(earlier) = earlier {
            self.groups.depend(graph, group, earlier).unwrap();
        }
        self.groups.engage(graph, group).unwrap();
        group
    }

    fn change_elsewhere(&mut self, block: u64, group: GroupId) -> PatchId {
        let mut soft = SOFT.make(None).unwrap();
        let store = &mut self.bench.store;
        let volume = Volume::new(store, &mut *soft, self.elsewhere, NOW);
        let engaged = [group];
        let mut volume = volume.under(&mut self.groups, &engaged);
        volume.begin(NAMES);
        let id = volume.write(BlockNumber(block), BlockClass::Metadata, 0, &[1], &[]);
        volume.end(&mut Vec::new());
        self.groups.disengage(group).unwrap();
        id
    }

    /// Whether the running transaction may have what is done under the group; then something is.
    fn change_here(&mut self, at: usize, group: GroupId) -> bool {
        let Bench {
            store,
            volume,
            journal,
        } = &mut self.bench;
        let engaged = [group];
        let volume = Volume::new(store, journal, *volume, NOW);
        let mut volume = volume.under(&mut self.groups, &engaged);
        volume.begin(NAMES);
        let may = volume.come_after_groups();
        if may {
            volume.write(BlockNumber(INODES), BlockClass::Metadata, at, &[1], &[]);
        }
        volume.end(&mut Vec::new());
        may
    }
}

#[test]
fn a_step_under_a_group_has_its_transaction_come_after_the_earlier_groups() {
    let mut grouped = Grouped::new();
    let first = grouped.group_after(None);
    let there = grouped.change_elsewhere(0, first);
    let second = grouped.group_after(Some(first));
    assert!(grouped.change_here(0, second));
    grouped.groups.disengage(second).unwrap();
    // What waits for the running transaction cannot be waited for by it.
    let third = grouped.group_after(Some(second));
    grouped.change_elsewhere(1, third);
    let fourth = grouped.group_after(Some(third));
    assert!(!grouped.change_here(1, fourth));
    let closed = grouped.bench.close();
    grouped.bench.write_out(closed);
    assert!(!grouped.bench.is_live(there));
    assert!(grouped.change_here(1, fourth));
}

/// Programs that go back and forth between a volume without a log and this one, in groups one after
/// the other. A group's tail stands for both; the transaction that has its part of it waits for the
/// other part, and is closed only where that waits for the transaction.
#[test]
fn a_transaction_waits_for_what_a_group_of_its_own_did_elsewhere() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let elsewhere = bench.store.add_volume(BLOCK as u32);
    for block in 0..3 {
        let zeros: Buffer = vec![0; BLOCK].into();
        bench
            .store
            .insert(elsewhere, block, BlockClass::Metadata, zeros);
    }
    let change = |bench: &mut Bench, block: u64, after: &[PatchId]| {
        let change = Change::Bytes {
            offset_bytes: 0,
            bytes: &[1],
        };
        let class = BlockClass::Metadata;
        bench
            .store
            .patch(elsewhere, block, class, change, after.into(), NOW)
    };
    let here = bench.metadata(0, 1, &[]);
    let there = change(&mut bench, 0, &[]);
    let tail = bench
        .store
        .graph_mut()
        .create_empty(&[here, there], None, false);
    // The next group comes after it, here (again and again) and there.
    for _ in 0..3 {
        assert!(bench.journal.come_after(&mut bench.store, &[tail]));
    }
    let next = bench.metadata(1, 1, &[]);
    assert_eq!(next, here, "the same transaction");
    let next_there = change(&mut bench, 1, &[tail]);
    let next_tail = bench
        .store
        .graph_mut()
        .create_empty(&[next, next_there], None, false);
    // What the third comes after waits for the transaction, however often somebody asks.
    for _ in 0..2 {
        assert!(!bench.journal.come_after(&mut bench.store, &[next_tail]));
    }
    let first = bench.close();
    assert!(bench.journal.come_after(&mut bench.store, &[next_tail]));
    bench.metadata(2, 1, &[]);
    let second = bench.close();

    bench.write_out(first);
    assert!(!bench.is_live(there) && bench.is_live(next_there));
    bench.write_out(second);
    assert!(!bench.is_live(next_there));
}

/// Two transactions are closed before anything is written. The first takes a descriptor, a copy and
/// the commit record, and so does the second: a record of it that was there without the first would
/// be taken for one of the next life's transactions.
#[test]
fn a_commit_record_waits_for_the_one_before_it() {
    let mut bench = Bench::new(JournalMode::Ordered);
    bench.metadata(0, 1, &[]);
    let first = bench.close();
    bench.metadata(1, 1, &[]);
    let second = bench.close();
    let commit = JOURNAL.0 + 6;
    let mut seen = false;
    bench.batches_to(second, |bench, blocks| {
        if blocks.contains(&commit) {
            assert!(!bench.is_live(first), "the first one is not committed yet");
            seen = true;
        }
    });
    assert!(seen && !bench.is_live(second));
}

/// What a transaction logged, freed and logged again comes home: it is not among what the
/// transaction revokes.
#[test]
fn what_is_logged_again_is_not_revoked() {
    let mut bench = Bench::new(JournalMode::Full);
    bench.contents(20, 1, PatchId::COMMITTED);
    let first = bench.close();
    bench.write_out(first);
    bench.free(20);
    bench.contents(20, 2, PatchId::COMMITTED);
    let second = bench.close();
    // Behind the descriptor, the copy and the commit record of the first one.
    let record = bench.store.peek(bench.volume, JOURNAL.0 + 4).unwrap();
    let header = Header::parse(record).expect("a record");
    assert_eq!(header.kind(), Some(BlockKind::Descriptor));
    bench.write_out(second);
}

/// The room of transactions that are at home is not given to others before the tail on the disk has
/// moved past them.
#[test]
fn room_is_given_back_once_the_tail_has_moved() {
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

/// A block that the running transaction changes stays back. The others of its earlier transaction
/// go home without it: the tail waits for them, and the running transaction may need the room.
#[test]
fn what_a_transaction_changes_again_keeps_nothing_else_from_going_home() {
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

/// A commit record that goes with what it commits leaves revoke blocks out of its checksum. One
/// that lies in several sectors it waits for.
#[test]
fn a_commit_record_waits_for_large_revoke_blocks() {
    let mut bench = Bench::with(JournalMode::Full, JOURNAL.1, Features::ASYNC_COMMIT);
    for block in 20..150 {
        bench.contents(block, 1, PatchId::COMMITTED);
    }
    let first = bench.close();
    bench.write_out(first);
    (20..150).for_each(|block| bench.free(block));
    bench.metadata(0, 1, &[]);
    let second = bench.close();
    // The first one takes two descriptors, 130 copies and a commit record.
    let revokes = JOURNAL.0 + 1 + 133;
    let record = bench.store.peek(bench.volume, revokes).unwrap();
    let kind = Header::parse(record).and_then(|header| header.kind());
    assert_eq!(kind, Some(BlockKind::Revoke));
    let mut seen = false;
    bench.batches_to(second, |_, blocks| {
        let (has_revokes, has_commit) =
            (blocks.contains(&revokes), blocks.contains(&(revokes + 3)));
        assert!(
            !(has_revokes && has_commit),
            "both are on their way at once"
        );
        seen |= has_commit;
    });
    assert!(seen && !bench.is_live(second));
}

/// Contents of one file are one patch. Where one block of them goes through the log after all, the
/// commit record waits for the others.
#[test]
fn contents_that_go_through_the_log_leave_the_others_of_their_file() {
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

/// Somebody waits for what an earlier transaction changed. What a later one changes again of it
/// stays back, and the rest goes home.
#[test]
fn originals_that_somebody_waits_for_are_parted_too() {
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
fn the_tail_waits_for_later_transactions_to_be_committed() {
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
        // While that is on its way the next one comes home, and the tail moves on.
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

/// What waits for a change under `writeback` waits for the contents that it comes after, which the
/// commit record does not.
#[test]
fn what_a_change_is_known_by_comes_after_contents_under_writeback() {
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
    // What is on stable storage is no longer waited for, nor earlier transactions by name.
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

/// Contents go through the log where something is promised of them that a commit record alone can
/// keep.
#[test]
fn contents_under_a_group_go_through_the_log() {
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

/// A commit record goes with the copies only where its checksum tells whether all of them are
/// there.
#[test]
fn a_commit_record_waits_for_what_it_commits() {
    let of = |compat, incompat| Features {
        compat,
        incompat,
        ro_compat: 0,
    };
    for (features, at_once) in [
        (Features::default(), false),
        (Features::ASYNC_COMMIT, true),
        (of(COMPAT_CHECKSUM, 0), false),
        (of(0, INCOMPAT_ASYNC_COMMIT), false),
        (
            of(COMPAT_CHECKSUM, INCOMPAT_ASYNC_COMMIT | INCOMPAT_CSUM_V3),
            false,
        ),
    ] {
        let mut bench = Bench::with(JournalMode::Full, JOURNAL.1, features);
        bench.contents(20, 1, PatchId::COMMITTED);
        bench.contents(21, 1, PatchId::COMMITTED);
        let closed = bench.close();
        let mut batches = Vec::new();
        bench.batches_to(closed, |_, blocks| batches.push(blocks.to_vec()));
        batches.retain(|blocks| !blocks.is_empty());
        let records: Vec<u64> = (1..4).map(|at| JOURNAL.0 + at).collect();
        let commit = JOURNAL.0 + 4;
        let expected = match at_once {
            true => vec![[&records[..], &[commit]].concat()],
            false => vec![records, vec![commit]],
        };
        assert_eq!(batches, expected, "{features:?}");
    }
}

/// A transaction that is not committed shows a file whose contents its commit record waits for,
/// though the file is gone since.
#[test]
fn contents_that_a_commit_record_waits_for_are_kept_until_then() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let first = bench.contents(20, 1, PatchId::COMMITTED);
    bench.metadata(0, 1, &[first]);
    let earlier = bench.close();
    bench.metadata(0, 0, &[]);
    bench.free(20);
    assert!(bench.is_live(first) && bench.is_pending(20));
    bench.write_out(earlier);
    assert!(!bench.is_live(first));
    // What nothing waits for goes with the file.
    let second = bench.contents(21, 1, PatchId::COMMITTED);
    bench.free(21);
    assert!(!bench.is_live(second));
}

/// A block that is freed again before its first freeing is committed holds contents that come after
/// the second one.
#[test]
fn contents_of_a_block_freed_twice_come_after_the_later_freeing() {
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
    // Once that is committed they come after nothing.
    bench.metadata(0, 3, &[]);
    let third = bench.close();
    let contents = bench.contents(20, 2, PatchId::COMMITTED);
    bench.write_out(contents);
    assert!(bench.is_live(third));
}

/// A later transaction's commit record waits for contents of the same block: they are kept when the
/// first one is committed.
#[test]
fn contents_that_two_commit_records_wait_for_are_kept_for_the_later_one() {
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
fn contents_of_a_logged_block_go_through_the_log() {
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

/// A directory whose block the running transaction has changed is removed in it. That makes up for
/// nothing: the block goes through the log like all that a transaction changes.
#[test]
fn what_a_transaction_changed_is_not_made_up_for_by_the_transaction() {
    let mut bench = Bench::new(JournalMode::Ordered);
    bench.step(|v| v.initialise(BlockNumber(20), BlockClass::Directory, &[1; BLOCK], &[]));
    let by = bench.metadata(0, 1, &[]);
    bench.step(|v| v.supersede(BlockNumber(20), by));
    let closed = bench.close();
    bench.write_out(closed);
    assert!(bench.is_pending(20), "it has yet to go home");
    // Behind the superblock and the descriptor are the copies, in the order of their blocks.
    let copy = bench.store.peek(bench.volume, JOURNAL.0 + 3).unwrap();
    assert!(copy.iter().all(|byte| *byte == 1));
}

/// Each of these rules is off in turn, and the test that is about it fails.
#[test]
fn without_each_rule_a_test_fails() {
    let tests: [(Rule, fn()); 9] = [
        (
            Rule::FreedCountAsLogged,
            a_commit_record_does_not_wait_for_what_its_transaction_logged_and_freed,
        ),
        (
            Rule::CommitAfterReusedContents,
            a_commit_record_waits_for_contents_of_blocks_freed_and_used_again,
        ),
        (
            Rule::RunsBelongToOneTransaction,
            contents_do_not_join_what_an_earlier_commit_record_waits_for,
        ),
        (
            Rule::TailAfterFreeingCommit,
            what_a_closed_transaction_freed_keeps_the_tail_until_that_is_committed,
        ),
        (
            Rule::CommitAfterEarlierCommit,
            a_commit_record_waits_for_the_one_before_it,
        ),
        (
            Rule::LoggingTakesRevokeBack,
            what_is_logged_again_is_not_revoked,
        ),
        (
            Rule::SpaceIsFreeOnceTailMoved,
            room_is_given_back_once_the_tail_has_moved,
        ),
        (
            Rule::OriginalsArePartedFromRuns,
            what_a_transaction_changes_again_keeps_nothing_else_from_going_home,
        ),
        (
            Rule::CommitAfterRevokeBlocks,
            a_commit_record_waits_for_large_revoke_blocks,
        ),
    ];
    for (rule, test) in tests {
        watch::switch_off(Some((rule.into(), Form::Whole)));
        let done = std::panic::catch_unwind(test);
        watch::switch_off(None);
        assert!(done.is_err(), "nothing shows that {rule:?} is off");
    }
}
