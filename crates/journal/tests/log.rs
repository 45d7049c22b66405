//! The journal's log as the code that drives it sees it: how full it is, what is put off, when room
//! comes back; and the listing of a log for people.

use backstitch_layout::{HomeContents, JournalMap, JournalRun};
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, Buffer, MemoryDevice, WriteRequest};
use backstitch_journal::dump::{self, Line, LoggedBlock};
use backstitch_journal::format::superblock::SUPERBLOCK_BYTES;
use backstitch_journal::format::{Features, Sequence, Superblock};
use backstitch_journal::recovery::{Damage, Home, Revoked};
use backstitch_journal::{
    Journal, JournalDevice, JournalMechanism, JournalMode, Setup, Transaction,
};
use backstitch_ordering::{
    BlockClass, BlockNumber, Log, LogState, Mechanism, MechanismKind, Operation, PatchId, Volume,
    VolumeId,
};
use backstitch_store::{Goal, Limits, Optimisations, Store};

/// A change of contents.
const CONTENTS: Operation<'static> = Operation::Resize {
    object: 2,
    size_bytes: 0,
};

const BLOCK: usize = 1024;
const NOW: Duration = Duration::ZERO;
/// The journal's first block; what is below it is the file system's.
const JOURNAL: u64 = 5000;

struct Bench {
    store: Store,
    volume: VolumeId,
    journal: JournalMechanism,
}

impl Bench {
    /// A started journal with a log of `blocks` blocks, the superblock's included.
    fn new(blocks: u32) -> Bench {
        let mut bench = Bench::before_start(blocks, JournalMode::Ordered);
        let started = bench.journal.start(&mut bench.store, bench.volume);
        bench.write_out(started);
        bench
    }

    fn before_start(blocks: u32, mode: JournalMode) -> Bench {
        let superblock = Superblock::new(BLOCK as u32, blocks, 0, [1; 16]);
        let run = JournalRun {
            position: 0,
            block: BlockNumber(JOURNAL),
            blocks,
        };
        let map = Arc::new(JournalMap::inside(vec![run]).unwrap());
        let mut store = Store::new(Limits::default(), Optimisations::BOTH);
        let volume = store.add_volume(BLOCK as u32);
        let journal = JournalMechanism::new(Setup { superblock, map }, mode);
        Bench {
            store,
            volume,
            journal,
        }
    }

    fn step<T>(&mut self, body: impl FnOnce(&mut Volume<'_>) -> T) -> T {
        let mut volume = Volume::new(&mut self.store, &mut self.journal, self.volume, NOW);
        volume.begin(CONTENTS);
        let done = body(&mut volume);
        volume.end(&mut Vec::new());
        done
    }

    /// Gives whole blocks other contents, which go through the log.
    fn change(&mut self, first: u64, count: u64, byte: u8) {
        for block in first..first + count {
            self.step(|v| {
                v.initialise(
                    BlockNumber(block),
                    BlockClass::Metadata,
                    &[byte; BLOCK],
                    &[],
                )
            });
        }
    }

    fn try_close(&mut self) -> Option<PatchId> {
        self.journal.begin_close();
        let (store, volume) = (&mut self.store, self.volume);
        self.journal.close(store, volume, NOW, (1, 0)).ok()
    }

    fn close(&mut self) -> PatchId {
        self.try_close().expect("there is room")
    }

    fn state(&mut self) -> LogState {
        self.journal.state(&self.store)
    }

    fn write_out(&mut self, target: PatchId) {
        loop {
            let goal = Goal::Patches(&[target]);
            let batch = self.store.next_batch(goal, NOW, u64::MAX);
            if batch.is_empty() {
                break;
            }
            self.store.complete(batch, NOW);
        }
        assert!(!self.store.graph().is_live(target));
    }

    fn home(&mut self) -> Vec<PatchId> {
        let mut targets = Vec::new();
        self.journal.home(&self.store, &mut targets);
        targets
    }

    fn move_tail(&mut self) -> Option<PatchId> {
        self.journal.move_tail(&mut self.store, self.volume, NOW)
    }

    /// Writes everything that keeps the tail where it is, and moves the tail.
    fn bring_home(&mut self) {
        for target in self.home() {
            self.write_out(target);
        }
        let tail = self.move_tail().expect("something is at home");
        self.write_out(tail);
    }

    /// The superblock as it is in memory.
    fn superblock(&self) -> Superblock {
        parse(self.store.peek(self.volume, JOURNAL).unwrap())
    }
}

fn parse(block: &[u8]) -> Superblock {
    assert_eq!(block.len(), BLOCK);
    let bytes: &[u8; SUPERBLOCK_BYTES] = block[..SUPERBLOCK_BYTES].try_into().unwrap();
    Superblock::parse(bytes, BLOCK as u32, 1 << 20, 0).unwrap()
}

#[test]
fn a_journal_is_a_mechanism_from_its_start_to_its_stop() {
    for (mode, name) in [
        (JournalMode::Writeback, "journal=writeback"),
        (JournalMode::Ordered, "journal=ordered"),
        (JournalMode::Full, "journal=full"),
    ] {
        let mut bench = Bench::before_start(1024, mode);
        assert_eq!(
            (mode.name(), mode.kind().name(), mode.crash_record()),
            (name, name, None)
        );
        assert_eq!(bench.journal.kind().name(), name);
        assert!(mode.promises().scopes_are_atomic() && bench.journal.log().is_some());
        assert_eq!(bench.journal.room(), usize::MAX);
        assert!(!bench.journal.watch(1), "nothing is put off yet");
        assert!(!bench.state().is_dirty);
        let started = bench.journal.start(&mut bench.store, bench.volume);
        bench.write_out(started);
        assert_eq!(bench.journal.room(), 1023 / 8);
        assert!(bench.journal.watch(77) && bench.state().is_dirty);
        let mut fired = Vec::new();
        bench.journal.take_fired(&mut fired);
        assert!(fired.is_empty(), "until the transaction ends");
        bench.journal.begin_close();
        bench.journal.take_fired(&mut fired);
        bench.journal.take_fired(&mut fired);
        assert_eq!(fired, [77]);
        let closed = bench.close();
        bench.write_out(closed);
        assert!(bench.journal.watch(78));
        bench.journal.take_fired(&mut fired);
        assert_eq!(fired, [77], "until the next one ends");
        bench.journal.stop();
        assert_eq!(bench.journal.room(), usize::MAX);
        assert!(!bench.journal.watch(79) && !bench.state().is_dirty);
        // After `stop` changes go past the log.
        bench.change(1, 1, 1);
        assert!(bench.state().running.is_none());
        assert!(bench.journal.forget(1));
    }
    let bench = Bench::new(1 << 14);
    assert_eq!(bench.journal.room(), 1024, "of a large log");
}

#[test]
fn a_transaction_that_only_frees_is_to_be_ended() {
    for mode in [
        JournalMode::Writeback,
        JournalMode::Ordered,
        JournalMode::Full,
    ] {
        let mut bench = Bench::before_start(1024, mode);
        let started = bench.journal.start(&mut bench.store, bench.volume);
        bench.write_out(started);
        bench.journal.forget(9);
        assert!(bench.state().is_dirty);
        let closed = bench.close();
        bench.write_out(closed);
        assert!(!bench.state().is_dirty);
    }
}

#[test]
fn what_is_put_off_waits_again_where_a_transaction_goes_on_after_all() {
    let mut bench = Bench::new(1024);
    bench.journal.begin_close();
    bench.journal.cancel_close();
    assert!(bench.journal.watch(7));
    let mut fired = Vec::new();
    bench.journal.take_fired(&mut fired);
    assert!(fired.is_empty(), "until the transaction ends");
    assert_eq!(bench.journal.room(), 1023 / 8, "of an operation");
    bench.journal.begin_close();
    bench.journal.take_fired(&mut fired);
    assert_eq!(fired, [7]);
}

/// Tags take 8 bytes: 124 in a descriptor. Records of revocations take 4: 252 in a block.
#[test]
fn a_transaction_ends_before_its_room_does() {
    let mut bench = Bench::new(1024);
    let state = |bench: &mut Bench| {
        let state = bench.state();
        (state.is_large, state.is_full, state.is_filling)
    };
    assert_eq!(state(&mut bench), (false, false, false));
    let expect = |bench: &mut Bench, to: u64| (0..to).for_each(|b| bench.journal.expect(b));
    expect(&mut bench, 341);
    assert_eq!(state(&mut bench), (false, false, false));
    expect(&mut bench, 342);
    assert_eq!(state(&mut bench), (true, false, false), "more than a third");
    // Twice 127 more blocks are reserved, with a revocation each: 2 revoke blocks, 1011 copies, 9
    // descriptors and 1 commit block are 1023.
    expect(&mut bench, 757);
    assert_eq!(state(&mut bench), (true, false, false));
    expect(&mut bench, 758);
    assert_eq!(state(&mut bench), (true, true, false));
    // A block that was expected and is changed counts once.
    bench.change(0, 10, 1);
    expect(&mut bench, 758);
    bench.journal.begin_close();
    // 63 more blocks are reserved, with a revocation each: 1 revoke block, 821 copies, 7
    // descriptors and 1 commit block.
    assert_eq!(bench.journal.room(), 1023 - 830);
    bench.close();
    assert_eq!(bench.journal.room(), 127);
    let mut bench = Bench::new(1024);
    bench.change(0, 758, 1);
    assert_eq!(state(&mut bench), (true, true, false));
}

#[test]
fn a_log_is_filling_once_half_of_it_is_in_use() {
    for (copies, is_filling) in [(505, false), (506, true)] {
        let mut bench = Bench::new(1024);
        bench.change(0, copies, 1);
        assert!(bench.state().is_dirty && bench.state().running.is_some());
        let closed = bench.close();
        let state = bench.state();
        assert_eq!(
            (state.is_filling, state.commits, state.last),
            (is_filling, 1, closed)
        );
        assert!(!state.is_dirty && state.running.is_none());
    }
    let mut bench = Bench::new(1024);
    bench.change(0, 1, 1);
    bench.close();
    bench.step(|v| v.discard(BlockNumber(0)));
    assert!(bench.state().is_dirty, "a revocation");
}

#[test]
fn a_transaction_takes_all_the_room_there_is_and_no_more() {
    for (copies, fits) in [(61, true), (62, false)] {
        let mut bench = Bench::new(64);
        bench.change(0, copies, 1);
        assert_eq!(bench.try_close().is_some(), fits, "{copies} copies");
    }
    let mut bench = Bench::new(64);
    for round in 0..3 {
        bench.change(0, 19, round + 1);
        bench.close();
    }
    bench.change(0, 1, 9);
    assert!(bench.try_close().is_none(), "63 blocks are in use");
    let before = bench.superblock();
    assert_eq!((before.start, before.sequence), (1, Sequence(1)));
}

/// Transactions of many sizes go around a small log many times; some change the same blocks, some
/// free them.
#[test]
fn a_log_goes_around_without_end() {
    let mut bench = Bench::new(64);
    let mut position = 0;
    let mut sequence = 1;
    for round in 0..120_u64 {
        // Transactions at home behind the tail take no room: two of up to 26 blocks always fit.
        for part in 0..2 {
            let copies = 1 + (round * 7 + part * 5) % 20;
            bench.change(round % 3 * 10, copies, round as u8);
            let mut revokes = 0;
            if round % 5 == 4 && part == 1 {
                bench.step(|v| v.discard(BlockNumber(round % 3 * 10)));
                // The first of the two transactions logged the block.
                revokes = 1;
            }
            let copies = copies - revokes;
            let closed = bench.close();
            position += copies + 2 + revokes;
            if copies == 0 {
                position -= 1;
            }
            sequence += 1;
            assert_eq!(bench.state().commits, round * 2 + part + 1);
            assert!(bench.move_tail().is_none(), "nothing is at home");
            bench.write_out(closed);
        }
        for target in bench.home() {
            bench.write_out(target);
        }
        // The freed block's original is never written; the block counts as at home once the later
        // transaction is committed.
        let tail = bench.move_tail().expect("something is at home");
        assert_eq!(bench.move_tail(), Some(tail), "it is on its way already");
        bench.write_out(tail);
        while !bench.home().is_empty() {
            bench.bring_home();
        }
        let sb = bench.superblock();
        assert_eq!(sb.sequence, Sequence(sequence), "round {round}");
        assert_eq!(u64::from(sb.start), 1 + position % 63, "round {round}");
        assert!(!bench.state().is_filling);
        assert!(bench.move_tail().is_none(), "nothing is left");
    }
    // A copy of the volume between two transactions has an empty log.
    let (block, bytes) = bench.journal.emptied().unwrap();
    let empty = parse(&bytes);
    assert_eq!(
        (block, empty.start, empty.sequence),
        (JOURNAL, 0, Sequence(sequence))
    );
    let finished = bench.journal.finish(&mut bench.store, bench.volume, NOW);
    bench.write_out(finished);
    let sb = bench.superblock();
    assert_eq!((sb.start, sb.sequence), (0, Sequence(sequence)));
}

#[test]
fn what_keeps_the_tail_is_the_older_half() {
    let mut bench = Bench::new(1024);
    let mut closed = Vec::new();
    for transaction in 0..4 {
        bench.change(transaction * 100, 50, 1);
        closed.push(bench.close());
    }
    bench.write_out(closed[3]);
    let targets = bench.home();
    let live = |bench: &Bench| -> Vec<bool> {
        let is_live = |block: u64| {
            let mut pending = Vec::new();
            bench.store.pending(bench.volume, block, &mut pending);
            !pending.is_empty()
        };
        (0..4).map(|t| is_live(t * 100)).collect()
    };
    assert_eq!(live(&bench), [true; 4]);
    for target in targets {
        bench.write_out(target);
    }
    assert_eq!(live(&bench), [false, false, true, true]);
    // A block that the running transaction changes stays back until that is committed, and so does
    // one that a later transaction changed.
    bench.change(200, 1, 2);
    bench.bring_home();
    let later = bench.close();
    let targets = bench.home();
    assert!(targets.contains(&later));
    for target in targets {
        bench.write_out(target);
    }
    assert!(bench.move_tail().is_some());
}

#[test]
fn who_waits_for_the_running_transaction_is_known() {
    let mut bench = Bench::new(1024);
    bench.change(0, 1, 1);
    let closed = bench.close();
    let store = &bench.store;
    assert!(
        !bench.journal.waits_for_running(store, closed),
        "nothing is running"
    );
    bench.change(1, 1, 1);
    let running = bench.state().running.unwrap();
    let of = bench
        .store
        .graph_mut()
        .create_empty(&[running, closed], None, false);
    let (store, journal) = (&bench.store, &bench.journal);
    assert!(journal.waits_for_running(store, running) && journal.waits_for_running(store, of));
    assert!(
        !journal.waits_for_running(store, closed),
        "it is in the log"
    );
    let mut pending = Vec::new();
    bench.store.pending(bench.volume, JOURNAL + 1, &mut pending);
    assert!(
        !bench.journal.waits_for_running(&bench.store, pending[0]),
        "a change"
    );
    let _ = running;
    let second = bench.close();
    assert!(!bench.journal.waits_for_running(&bench.store, second));
    assert!(
        bench
            .journal
            .come_after(&mut bench.store, &[closed, second, PatchId::COMMITTED])
    );
}

/// A device with a journal of 16 blocks from its first block on.
fn device(features: Features, transactions: &[Transaction], start: u32) -> MemoryDevice {
    let device = MemoryDevice::new(100 * BLOCK);
    let put = |position: u32, block: &[u8]| {
        let request = WriteRequest {
            offset_bytes: u64::from(position) * BLOCK as u64,
            buffers: vec![Buffer::from(block)],
        };
        device.submit(&[request]).unwrap();
    };
    let mut sb = Superblock::new(BLOCK as u32, 16, 0, [7; 16]);
    sb.set_features(features);
    if !transactions.is_empty() {
        sb.set_tail(start, Sequence(5));
    }
    put(0, &sb.encode());
    let (mut at, mut sequence) = (0, Sequence(5));
    for transaction in transactions {
        for block in transaction.encode(&sb, sequence) {
            put(sb.advance(start, at), &block);
            at += 1;
        }
        sequence = sequence.next();
    }
    device
}

fn open(device: &MemoryDevice) -> Journal<'_> {
    let run = JournalRun {
        position: 0,
        block: BlockNumber(0),
        blocks: 16,
    };
    let map = Arc::new(JournalMap::inside(vec![run]).unwrap());
    Journal::open(JournalDevice::new(device, BLOCK as u32, map)).unwrap()
}

fn lines(journal: &Journal<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    dump::lines(journal, &mut |line| lines.push(line)).unwrap();
    lines
}

fn copies(homes: &[u64]) -> Transaction {
    Transaction {
        copies: homes.iter().map(|home| (*home, vec![1; BLOCK])).collect(),
        revokes: Vec::new(),
        time: (8, 9),
    }
}

#[test]
fn a_log_is_listed_record_by_record() {
    let features = Features::default();
    let start = |position| Line::Start {
        position,
        sequence: if position == 0 { 1 } else { 5 },
    };
    assert_eq!(lines(&open(&device(features, &[], 0))), [start(0)]);
    let mut second = copies(&[40]);
    second.revokes = vec![50, 51];
    let device_of = device(features, &[copies(&[30, 31]), second], 14);
    let copy = |block, position, flags| LoggedBlock {
        block,
        position,
        flags,
    };
    let commit = |position, sequence| Line::Commit {
        position,
        sequence,
        seconds: 8,
        nanoseconds: 9,
    };
    let expected = [
        start(14),
        Line::Descriptor {
            position: 14,
            sequence: 5,
            copies: vec![copy(30, 15, 0), copy(31, 1, 10)],
        },
        commit(2, 5),
        Line::Revoke {
            position: 3,
            sequence: 6,
            blocks: vec![50, 51],
        },
        Line::Descriptor {
            position: 4,
            sequence: 6,
            copies: vec![copy(40, 5, 8)],
        },
        commit(6, 6),
        Line::NoMagic { position: 7 },
    ];
    let journal = open(&device_of);
    assert_eq!(lines(&journal), expected);
    let text: String = expected.iter().map(Line::to_string).collect();
    for part in [
        "Journal starts at block 14, transaction 5\n",
        "Found expected sequence 5, type 1 (descriptor block) at block 14\n",
        "Found expected sequence 5, type 2 (commit block) at block 2\n",
        "Found expected sequence 6, type 5 (revoke table) at block 3\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // The log has fifteen blocks: it is listed once around.
    let full = device(
        features,
        &[
            copies(&[30, 31, 32]),
            copies(&[33, 34]),
            copies(&[35, 36, 37, 38]),
        ],
        3,
    );
    let listed = lines(&open(&full));
    assert_eq!((listed.len(), listed.last()), (8, Some(&Line::Around)));
    let mut other = copies(&[30, 31, 32]).encode(open(&full).superblock(), Sequence(5));
    other.truncate(5);
    assert_eq!(other.len(), 5);
    let older = device(features, &[copies(&[30, 31, 32])], 3);
    let request = WriteRequest {
        offset_bytes: 8 * BLOCK as u64,
        buffers: vec![other[0].clone()],
    };
    older.submit(&[request]).unwrap();
    let end = Line::OtherSequence {
        position: 8,
        sequence: 5,
        expected: 6,
    };
    assert_eq!(lines(&open(&older)).last(), Some(&end));
}

struct Unlike(u64);

impl HomeContents for Unlike {
    fn can_hold(&self, block: u64, _: &[u8]) -> bool {
        block != self.0
    }
}

/// In a damaged log copies are left out that their homes cannot hold; a log without damage is
/// believed.
#[test]
fn copies_that_cannot_be_are_left_out_of_a_damaged_log() {
    for (damage, skipped, is_home) in [(Damage::Refuse, 0, true), (Damage::Skip, 1, false)] {
        let device = device(Features::default(), &[copies(&[30, 31])], 1);
        let mut journal = open(&device);
        let home = Home {
            device: &device,
            blocks: 100,
            contents: &Unlike(31),
        };
        let outcome = journal.recover(&home, damage).unwrap();
        assert_eq!((outcome.skipped, outcome.blocks), (skipped, 2 - skipped));
        assert_eq!(outcome.is_damaged(), skipped > 0);
        let mut bytes = vec![0; BLOCK];
        device.read(31 * BLOCK as u64, &mut bytes).unwrap();
        assert_eq!(bytes[5] == 1, is_home);
    }
}

/// Transactions left from an earlier round of the log are no part of it, even if they are whole.
#[test]
fn transactions_of_an_earlier_round_are_not_replayed() {
    let disk = device(Features::default(), &[copies(&[30])], 3);
    for sequence in [3, 4, 7] {
        let old = copies(&[31]).encode(open(&disk).superblock(), Sequence(sequence));
        for (position, block) in (6..).zip(old) {
            let request = WriteRequest {
                offset_bytes: position * BLOCK as u64,
                buffers: vec![block],
            };
            disk.submit(&[request]).unwrap();
        }
        let scan = open(&disk).scan(100).unwrap();
        assert_eq!(
            (scan.end, scan.copies.len()),
            (Sequence(6), 1),
            "{sequence}"
        );
    }
}

/// With `Skip`, one copy without a home is left out, and a log with a revoke block that is too long
/// ends before that transaction.
#[test]
fn damage_costs_no_more_than_it_must() {
    let revoking = |homes: &[u64], revokes: &[u64]| Transaction {
        revokes: revokes.to_vec(),
        ..copies(homes)
    };
    let all = [
        revoking(&[30], &[40]),
        revoking(&[31, 500], &[41, 42]),
        revoking(&[32], &[43]),
    ];
    let disk = device(Features::default(), &all, 1);
    let home = Home {
        device: &disk,
        blocks: 100,
        contents: &Unlike(0),
    };
    assert!(open(&disk).scan(100).is_err());
    let scan = open(&disk).scan_with(100, Damage::Skip).unwrap();
    let revoked = Revoked::read(&open(&disk), &scan).unwrap();
    assert_eq!((revoked.len(), revoked.is_empty()), (4, false));
    assert!(Revoked::default().is_empty());
    // The second transaction begins at block 5; its revoke block says how long it is behind the
    // header.
    let request = WriteRequest {
        offset_bytes: 5 * BLOCK as u64 + 12,
        buffers: vec![Buffer::from(&2000_u32.to_be_bytes()[..])],
    };
    let outcome = open(&disk).recover(&home, Damage::Skip).unwrap();
    assert_eq!(
        (outcome.transactions, outcome.blocks, outcome.skipped),
        (3, 3, 1)
    );
    assert_eq!(outcome.cut_short, None);
    let disk = device(Features::default(), &all, 1);
    disk.submit(&[request]).unwrap();
    let home = Home {
        device: &disk,
        ..home
    };
    let outcome = open(&disk).recover(&home, Damage::Skip).unwrap();
    assert_eq!((outcome.transactions, outcome.blocks), (1, 1));
    assert!(outcome.cut_short.is_some());
}

/// The room of a transaction is free once the tail has moved past it, and no more than that.
#[test]
fn the_tail_frees_what_it_moves_past() {
    for (copies, fits) in [(1, true), (2, false)] {
        let mut bench = Bench::new(64);
        bench.change(0, 1, 1);
        let first = bench.close();
        bench.change(10, 58, 1);
        bench.close();
        bench.write_out(first);
        let mut originals = Vec::new();
        bench.store.pending(bench.volume, 0, &mut originals);
        originals.into_iter().for_each(|id| bench.write_out(id));
        let tail = bench.move_tail().expect("the first one is at home");
        bench.write_out(tail);
        bench.state();
        bench.change(0, copies, 2);
        assert_eq!(bench.try_close().is_some(), fits, "{copies} copies");
    }
}
