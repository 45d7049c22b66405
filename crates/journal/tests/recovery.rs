//! Recovery of journals that our own format code writes, in memory: every layout of tags and
//! checksums, logs that wrap around, crashes at every write of a recovery, and damage.

use backstitch_layout::{BlockNumber, HomeContents, JournalMap, JournalRun};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use backstitch_device::{
    BlockDevice, Buffer, DeviceError, MemoryDevice, RecordingDevice, WriteRequest, materialise,
};
use backstitch_journal::format::features::{
    COMPAT_CHECKSUM, INCOMPAT_64BIT, INCOMPAT_ASYNC_COMMIT, INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3,
    INCOMPAT_FAST_COMMIT, INCOMPAT_REVOKE,
};
use backstitch_journal::format::{Features, Sequence, Superblock};
use backstitch_journal::recovery::{Damage, Ending, Home, Outcome};
use backstitch_journal::rules::Rule;
use backstitch_journal::{Error, Journal, JournalDevice, Result, Transaction};
use backstitch_rules::watch;

const BLOCK: usize = 1024;
/// Blocks of the file system.
const HOMES: u64 = 600;
/// Blocks of the journal, which is in two parts.
const JOURNAL: u32 = 64;
const FIRST_PART: (u64, u32) = (100, 40);
const SECOND_PART: (u64, u32) = (300, 24);

fn map() -> Arc<JournalMap> {
    let run = |position, (block, blocks)| JournalRun {
        position,
        block: BlockNumber(block),
        blocks,
    };
    let runs = vec![run(0, FIRST_PART), run(FIRST_PART.1, SECOND_PART)];
    Arc::new(JournalMap::inside(runs).unwrap())
}

fn journal(device: &dyn BlockDevice) -> Result<Journal<'_>> {
    Journal::open(JournalDevice::new(device, BLOCK as u32, map()))
}

/// What is expected at home, by block.
type Homes = BTreeMap<u64, Vec<u8>>;

/// A device with a journal in it.
struct Made {
    device: MemoryDevice,
    /// What recovery must bring home.
    homes: Homes,
    transactions: u32,
}

/// A random home that is not one of the journal's own blocks.
fn random_home(random: &mut fastrand::Rng) -> u64 {
    loop {
        let block = random.u64(2..HOMES);
        if !map().is_own(BlockNumber(block)) {
            return block;
        }
    }
}

fn random_transaction(random: &mut fastrand::Rng, homes: &[u64]) -> Transaction {
    let mut transaction = Transaction {
        time: (1_700_000_000, random.u32(..1_000_000_000)),
        ..Transaction::default()
    };
    for _ in 0..random.usize(0..6) {
        let home = homes[random.usize(..homes.len())];
        if transaction.copies.iter().any(|(known, _)| *known == home) {
            continue;
        }
        let mut bytes = vec![random.u8(..); BLOCK];
        if random.u8(..4) == 0 {
            bytes[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
        }
        transaction.copies.push((home, bytes));
    }
    for _ in 0..random.usize(0..3) {
        transaction.revokes.push(homes[random.usize(..homes.len())]);
    }
    transaction
}

/// Fills a journal with complete transactions, from a random place on, and then part of one.
fn make(random: &mut fastrand::Rng, features: Features) -> Made {
    let device = MemoryDevice::new(HOMES as usize * BLOCK);
    let view = JournalDevice::new(&device, BLOCK as u32, map());
    let mut sb = Superblock::new(BLOCK as u32, JOURNAL, 0, random.u128(..).to_le_bytes());
    sb.set_features(features);
    // Old bytes, none of which may be taken for records.
    for position in 1..JOURNAL {
        let old: Buffer = vec![random.u8(..); BLOCK].into();
        view.write(&[(position, old)]).unwrap();
    }
    let start = random.u32(1..JOURNAL);
    let mut sequence = Sequence(u32::MAX - 2);
    sb.set_tail(start, sequence);
    let write = |position, block: Buffer| view.write(&[(position, block)]).unwrap();
    write(0, Buffer::from(&sb.encode()[..]));
    let pool: Vec<u64> = (0..8).map(|_| random_home(random)).collect();
    let (mut at, mut used, mut transactions) = (0, 0, 0);
    let mut history: Vec<(u64, Sequence, Vec<u8>)> = Vec::new();
    let mut revoked: BTreeMap<u64, Sequence> = BTreeMap::new();
    loop {
        let transaction = random_transaction(random, &pool);
        let log = transaction.encode(&sb, sequence);
        let is_last = used + log.len() as u32 >= sb.log_blocks();
        let kept = if is_last { log.len() / 2 } else { log.len() };
        for block in log.into_iter().take(kept) {
            if used < sb.log_blocks() {
                write(sb.advance(start, at), block);
            }
            at += 1;
            used += 1;
        }
        if is_last {
            break;
        }
        for (home, bytes) in transaction.copies {
            history.push((home, sequence, bytes));
        }
        for home in transaction.revokes {
            revoked.insert(home, sequence);
        }
        sequence = sequence.next();
        transactions += 1;
    }
    let mut homes = Homes::new();
    for (home, sequence, bytes) in history {
        if revoked
            .get(&home)
            .is_none_or(|last| sequence.is_after(*last))
        {
            homes.insert(home, bytes);
        }
    }
    Made {
        device,
        homes,
        transactions,
    }
}

/// A file system whose blocks can hold anything.
struct Anything;

impl HomeContents for Anything {
    fn can_hold(&self, _: u64, _: &[u8]) -> bool {
        true
    }
}

fn recover(device: &dyn BlockDevice, damage: Damage) -> Result<Outcome> {
    let home = Home {
        device,
        blocks: HOMES,
        contents: &Anything,
    };
    journal(device)?.recover(&home, damage)
}

/// The file system's bytes, without the journal.
fn check_homes(made: &Made, before: &[u8], after: &[u8], what: &str) {
    for block in 0..HOMES {
        if map().is_own(BlockNumber(block)) {
            continue;
        }
        let range = block as usize * BLOCK..(block as usize + 1) * BLOCK;
        let expected = match made.homes.get(&block) {
            Some(bytes) => &bytes[..],
            None => &before[range.clone()],
        };
        assert!(after[range] == *expected, "{what}: block {block}");
    }
}

fn variants() -> Vec<Features> {
    let mut list = Vec::new();
    for wide in [0, INCOMPAT_64BIT] {
        for checksums in [0, INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3] {
            list.push(Features {
                incompat: INCOMPAT_REVOKE | wide | checksums,
                ..Features::default()
            });
        }
        list.push(Features {
            compat: COMPAT_CHECKSUM,
            incompat: INCOMPAT_REVOKE | INCOMPAT_ASYNC_COMMIT | wide,
            ..Features::default()
        });
    }
    list
}

#[test]
fn every_variant_is_replayed_around_the_end() {
    for (index, features) in variants().into_iter().enumerate() {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed * 100 + index as u64);
            let made = make(&mut random, features);
            let before = made.device.snapshot();
            let outcome = recover(&made.device, Damage::Refuse).unwrap();
            let what = format!("{features:?}, seed {seed}");
            assert_eq!(outcome.transactions, made.transactions, "{what}");
            assert_eq!(outcome.blocks, made.homes.len() as u64, "{what}");
            check_homes(&made, &before, &made.device.snapshot(), &what);
            let after = journal(&made.device).unwrap();
            assert!(after.superblock().is_empty());
            let expected = Sequence((u32::MAX - 2).wrapping_add(made.transactions + 1));
            assert_eq!(after.superblock().sequence, expected, "{what}");
        }
    }
}

#[test]
fn a_crash_at_any_write_of_a_recovery_recovers() {
    for (index, features) in variants().into_iter().enumerate() {
        let mut random = fastrand::Rng::with_seed(index as u64);
        let made = make(&mut random, features);
        let before = made.device.snapshot();
        let recording = RecordingDevice::new(Arc::new(MemoryDevice::from_bytes(before.clone())));
        recover(&recording, Damage::Refuse).unwrap();
        let records = recording.records();
        assert!(records.len() > 3);
        for cut in 0..=records.len() {
            for seed in 0..4 {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut bytes = before.clone();
                // The first two: nothing and everything of what was not flushed.
                materialise(&mut bytes, &records, cut, &mut |_| match seed {
                    0 => false,
                    1 => true,
                    _ => random.bool(),
                });
                let device = MemoryDevice::from_bytes(bytes);
                recover(&device, Damage::Refuse).unwrap();
                let what = format!("{features:?}, cut {cut}, seed {seed}");
                check_homes(&made, &before, &device.snapshot(), &what);
            }
        }
    }
}

#[test]
fn a_damaged_journal_does_no_harm() {
    let rounds = 500;
    for (index, features) in variants().into_iter().enumerate() {
        let mut random = fastrand::Rng::with_seed(7000 + index as u64);
        let made = make(&mut random, features);
        let before = made.device.snapshot();
        for _ in 0..rounds {
            let mut bytes = before.clone();
            for _ in 0..random.u32(1..4) {
                flip(&mut random, &mut bytes);
            }
            let damaged = bytes.clone();
            let device = MemoryDevice::from_bytes(bytes);
            let damage = if random.bool() {
                Damage::Refuse
            } else {
                Damage::Skip
            };
            let done = recover(&device, damage);
            let after = device.snapshot();
            if done.is_err() {
                assert!(after == damaged, "written in spite of {done:?}");
            }
            // Whatever was written, the log's own blocks are unchanged, except for the superblock.
            for position in 1..JOURNAL {
                let at = map().block(position).unwrap().0 as usize * BLOCK;
                assert!(after[at..at + BLOCK] == damaged[at..at + BLOCK]);
            }
        }
    }
}

/// Damages a bit of the superblock, of a header, of the first tags, or anywhere.
fn flip(random: &mut fastrand::Rng, bytes: &mut [u8]) {
    let position = random.u32(..JOURNAL);
    let position = if random.u8(..6) == 0 { 0 } else { position };
    let span = if random.bool() { 96 } else { BLOCK };
    let at = map().block(position).unwrap().0 as usize * BLOCK + random.usize(..span);
    match random.u8(..3) {
        0 => bytes[at] = random.u8(..),
        1 => bytes[at] = if random.bool() { 0 } else { 0xff },
        _ => bytes[at] ^= 1 << random.u8(..8),
    }
}

#[test]
fn block_checksums_find_all_damage_of_copies() {
    for incompat in [INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3] {
        let features = Features {
            incompat,
            ..Features::default()
        };
        let device = MemoryDevice::new(HOMES as usize * BLOCK);
        let view = JournalDevice::new(&device, BLOCK as u32, map());
        let mut sb = Superblock::new(BLOCK as u32, JOURNAL, 0, [3; 16]);
        sb.set_features(features);
        view.write(&[(0, Buffer::from(&sb.encode()[..]))]).unwrap();
        let transaction = Transaction {
            copies: vec![(5, vec![1; BLOCK]), (6, vec![2; BLOCK])],
            ..Transaction::default()
        };
        let mut made = journal(&device).unwrap();
        made.write_alone(&transaction).unwrap();
        // The first copy is behind the descriptor.
        let at = map().block(2).unwrap().0 * BLOCK as u64 + 500;
        device.write(at, &[9]).unwrap();
        let before = device.snapshot();
        let refused = recover(&device, Damage::Refuse).unwrap_err();
        assert!(refused.to_string().contains("block 5"), "{refused}");
        assert_eq!(device.snapshot(), before);
        let outcome = recover(&device, Damage::Skip).unwrap();
        assert_eq!((outcome.skipped, outcome.blocks), (1, 1));
        assert!(outcome.is_damaged());
        let after = device.snapshot();
        assert_eq!((after[5 * BLOCK], after[6 * BLOCK]), (0, 2));
    }
}

#[test]
fn a_torn_commit_ends_the_log() {
    for features in variants() {
        let checksums = features.has_block_checksums() || features.has_compat(COMPAT_CHECKSUM);
        let device = MemoryDevice::new(HOMES as usize * BLOCK);
        let view = JournalDevice::new(&device, BLOCK as u32, map());
        let mut sb = Superblock::new(BLOCK as u32, JOURNAL, 0, [3; 16]);
        sb.set_features(features);
        sb.set_tail(1, Sequence(10));
        view.write(&[(0, Buffer::from(&sb.encode()[..]))]).unwrap();
        let transaction = |home: u64| Transaction {
            copies: vec![(home, vec![home as u8; BLOCK])],
            revokes: Vec::new(),
            time: (5, 0),
        };
        let mut log = transaction(5).encode(&sb, Sequence(10));
        log.extend(transaction(6).encode(&sb, Sequence(11)));
        let mut torn = log[5].to_vec();
        torn[16] ^= 1;
        log[5] = torn.into();
        let blocks: Vec<_> = (1..).zip(log).collect();
        view.write(&blocks).unwrap();
        let outcome = recover(&device, Damage::Refuse).unwrap();
        let expected = match checksums {
            true => (1, Ending::Checksum),
            false => (2, Ending::Commit),
        };
        assert_eq!((outcome.transactions, outcome.ending), expected);
    }
}

#[test]
fn what_cannot_be_replayed_completely_is_named() {
    let device = MemoryDevice::new(HOMES as usize * BLOCK);
    let view = JournalDevice::new(&device, BLOCK as u32, map());
    let put = |incompat: u32| {
        let mut sb = Superblock::new(BLOCK as u32, JOURNAL, 0, [3; 16]);
        sb.set_features(Features {
            incompat,
            ..Features::default()
        });
        let mut bytes = sb.encode();
        // Fast commits in the last 4 blocks.
        bytes[0x54..0x58].copy_from_slice(&4_u32.to_be_bytes());
        view.write(&[(0, Buffer::from(&bytes[..]))]).unwrap();
    };
    put(1 << 20);
    let refused = recover(&device, Damage::Skip).unwrap_err();
    assert!(matches!(&refused, Error::Incompatible { features } if features == "FEATURE_I20"));
    put(INCOMPAT_FAST_COMMIT);
    let mut made = journal(&device).unwrap();
    assert_eq!(made.superblock().end, JOURNAL - 4);
    let refused = made.write_alone(&Transaction::default()).unwrap_err();
    assert!(refused.to_string().contains("fast_commit"), "{refused}");
    // A log that is not empty, and fast commits behind its end.
    made.write_tail(1, Sequence(7)).unwrap();
    let mut head = [0; BLOCK];
    head[..12].copy_from_slice(&[9, 0, 8, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
    view.write(&[(JOURNAL - 4, Buffer::from(&head[..]))])
        .unwrap();
    let refused = recover(&device, Damage::Skip).unwrap_err();
    assert!(refused.to_string().contains("fast commits"), "{refused}");
    head[8] = 6;
    view.write(&[(JOURNAL - 4, Buffer::from(&head[..]))])
        .unwrap();
    assert_eq!(recover(&device, Damage::Refuse).unwrap().transactions, 0);
}

#[test]
fn a_log_full_of_one_transaction_ends() {
    // Descriptors without a commit block between them, all of the same transaction: a scan without
    // a limit would go around for ever.
    let device = MemoryDevice::new(HOMES as usize * BLOCK);
    let view = JournalDevice::new(&device, BLOCK as u32, map());
    let mut sb = Superblock::new(BLOCK as u32, JOURNAL, 0, [3; 16]);
    sb.set_tail(9, Sequence(1));
    view.write(&[(0, Buffer::from(&sb.encode()[..]))]).unwrap();
    let revokes = Transaction {
        revokes: vec![5],
        ..Transaction::default()
    };
    let block = revokes.encode(&sb, Sequence(1))[0].clone();
    for position in 1..JOURNAL {
        view.write(&[(position, block.clone())]).unwrap();
    }
    // Many times the reads of one scan.
    let device = Limited {
        device,
        reads: AtomicU32::new(100 * JOURNAL),
    };
    let outcome = recover(&device, Damage::Refuse).unwrap();
    assert_eq!(
        (outcome.transactions, outcome.ending),
        (0, Ending::Unfinished)
    );
}

/// A device that fails after a number of reads.
struct Limited {
    device: MemoryDevice,
    reads: AtomicU32,
}

impl BlockDevice for Limited {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.device.atomic_unit_bytes()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> std::result::Result<(), DeviceError> {
        if self.reads.fetch_sub(1, Relaxed) == 0 {
            return Err(DeviceError::Read {
                device: self.name(),
                offset_bytes,
                len_bytes: buffer.len() as u64,
                reason: "read too often".to_owned(),
            });
        }
        self.device.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> std::result::Result<(), DeviceError> {
        self.device.submit(batch)
    }

    fn flush(&self) -> std::result::Result<(), DeviceError> {
        self.device.flush()
    }
}

/// A file's contents look like a log. Their copy in the log, behind the last transaction, is not
/// taken for the next transaction.
#[test]
fn contents_that_look_like_records_are_none() {
    let device = MemoryDevice::new(HOMES as usize * BLOCK);
    let view = JournalDevice::new(&device, BLOCK as u32, map());
    let sb = Superblock::new(BLOCK as u32, JOURNAL, 0, [3; 16]);
    view.write(&[(0, Buffer::from(&sb.encode()[..]))]).unwrap();
    // A recovery skips one number.
    let next = Sequence(sb.sequence.0 + 2);
    let forged = Transaction {
        copies: vec![(50, vec![9; BLOCK])],
        ..Transaction::default()
    };
    let forged = forged.encode(&sb, next.next());
    // The descriptor, the copy of block 5, and then, in the third block of the log, what looks like
    // a transaction.
    let mut copies = vec![(5, vec![1; BLOCK])];
    copies.extend((6..).zip(forged.iter().map(|block| block.to_vec())));
    let first = Transaction {
        copies,
        ..Transaction::default()
    };
    journal(&device).unwrap().write_alone(&first).unwrap();
    recover(&device, Damage::Refuse).unwrap();
    let mut made = journal(&device).unwrap();
    assert_eq!(made.superblock().sequence, next);
    // It takes two blocks: the next record would be the forged one.
    let second = Transaction {
        revokes: vec![60],
        ..Transaction::default()
    };
    made.write_alone(&second).unwrap();
    let outcome = recover(&device, Damage::Refuse).unwrap();
    assert_eq!(outcome.transactions, 1);
    assert_eq!(device.snapshot()[50 * BLOCK], 0, "a forged copy came home");
}

/// Each rule of the recovery is off in turn, and the test that is about it fails.
#[test]
fn without_each_rule_a_test_fails() {
    let tests: [(Rule, fn()); 10] = [
        (
            Rule::LastRevocationCounts,
            every_variant_is_replayed_around_the_end,
        ),
        (
            Rule::RevokesAreHeeded,
            every_variant_is_replayed_around_the_end,
        ),
        (
            Rule::RevokesCountForOlderCopies,
            every_variant_is_replayed_around_the_end,
        ),
        (
            Rule::NewestCopyComesHome,
            every_variant_is_replayed_around_the_end,
        ),
        (
            Rule::CopiesAreUnescaped,
            every_variant_is_replayed_around_the_end,
        ),
        (
            Rule::CopiesAreEscaped,
            contents_that_look_like_records_are_none,
        ),
        (
            Rule::CopyChecksumIsChecked,
            block_checksums_find_all_damage_of_copies,
        ),
        (Rule::CommitChecksumIsChecked, a_torn_commit_ends_the_log),
        (Rule::LogEndsOnceAround, a_log_full_of_one_transaction_ends),
        (
            Rule::HomeIsFlushedBeforeTail,
            a_crash_at_any_write_of_a_recovery_recovers,
        ),
    ];
    assert_eq!(
        watch::not_missed(&tests),
        [],
        "nothing shows that these are off"
    );
}

#[test]
fn what_would_change_the_journal_itself_is_not_written() {
    let device = MemoryDevice::new(HOMES as usize * BLOCK);
    let view = JournalDevice::new(&device, BLOCK as u32, map());
    let sb = Superblock::new(BLOCK as u32, JOURNAL, 0, [3; 16]);
    view.write(&[(0, Buffer::from(&sb.encode()[..]))]).unwrap();
    let before = device.snapshot();
    let copy = |block: u64| (block, vec![7; BLOCK]);
    let transaction = Transaction {
        copies: vec![copy(5), copy(SECOND_PART.0 + 3)],
        ..Transaction::default()
    };
    let refused = journal(&device).unwrap().write_alone(&transaction);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert!(device.snapshot() == before);
}
