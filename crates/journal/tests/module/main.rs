//! The journal as a mechanism, alone: what a commit record waits for, with every write reported by
//! hand.

mod contents;
mod groups;
mod tail;

use contents::*;
use tail::*;

use backstitch_layout::{JournalMap, JournalRun};
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::Buffer;
use backstitch_journal::format::features::{
    COMPAT_CHECKSUM, INCOMPAT_ASYNC_COMMIT, INCOMPAT_CSUM_V3,
};
use backstitch_journal::format::{BlockKind, Features, Header, Superblock};
use backstitch_journal::rules::Rule;
use backstitch_journal::{JournalMechanism, JournalMode, Setup};
use backstitch_ordering::{
    BlockClass, BlockNumber, GroupId, Groups, Log, MechanismKind as _, Operation, PatchId, Place,
    SOFT, Volume, VolumeId,
};
use backstitch_rules::watch;
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
            block: BlockNumber(JOURNAL.0),
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

    /// Writes a file's contents, a whole block; they may join the run of `run`.
    fn contents(&mut self, block: u64, byte: u8, run: PatchId) -> PatchId {
        self.step(|v| v.write_in_run(BlockNumber(block), 0, &[byte; BLOCK], run))
    }

    /// Changes an inode after these patches. Returns the patch that the change is known by.
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

    /// Changes a block of a directory.
    fn directory(&mut self, block: u64, byte: u8) {
        let bytes = [byte; BLOCK];
        self.step(|v| v.initialise(BlockNumber(block), BlockClass::Directory, &bytes, &[]));
    }

    /// Does an operation of names. Returns what its caller is to wait for.
    fn remove(&mut self, byte: u8) -> Vec<PatchId> {
        let mut volume = Volume::new(&mut self.store, &mut self.journal, self.volume, NOW);
        volume.begin(NAMES);
        volume.write(BlockNumber(INODES), BlockClass::Metadata, 0, &[byte], &[]);
        let mut wait_for = Vec::new();
        volume.end(&mut wait_for);
        wait_for
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

    /// Closes the running transaction. Returns a patch that is stable once it is committed.
    fn close(&mut self) -> PatchId {
        self.journal.begin_close();
        let Bench {
            store,
            volume,
            journal,
        } = self;
        journal.close(store, *volume, NOW, (1, 0)).unwrap()
    }

    /// Puts a patch and what it waits for on stable storage, and nothing else.
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

    /// Writes the batches that put a patch on stable storage; hands each to `each`, with its blocks
    /// of the journal.
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

/// The features by which commit records may be written together with what they commit.
fn async_commit() -> Features {
    Features::named(&["journal_checksum", "journal_async_commit"]).expect("names of features")
}

/// Two transactions are closed before anything is written. Each takes a descriptor, a copy and a
/// commit record. A record of the second that was on the disk without the first could later be
/// taken for a transaction of the next mount.
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

/// A block that a transaction logged, freed and logged again comes home: the transaction does not
/// revoke it.
#[test]
fn what_is_logged_again_is_not_revoked() {
    let mut bench = Bench::new(JournalMode::Ordered);
    bench.directory(20, 1);
    let first = bench.close();
    bench.write_out(first);
    bench.free(20);
    bench.directory(20, 2);
    let second = bench.close();
    // Behind the descriptor, the copy and the commit record of the first one.
    let record = bench.store.peek(bench.volume, JOURNAL.0 + 4).unwrap();
    let header = Header::parse(record).expect("a record");
    assert_eq!(header.kind(), Some(BlockKind::Descriptor));
    bench.write_out(second);
}

/// A commit record that may go together with its copies leaves revoke blocks out of its checksum.
/// It waits for one that lies in several sectors.
#[test]
fn a_commit_record_waits_for_large_revoke_blocks() {
    let mut bench = Bench::with(JournalMode::Ordered, JOURNAL.1, async_commit());
    for block in 20..150 {
        bench.directory(block, 1);
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
        (async_commit(), true),
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

/// The running transaction has changed a directory's block, then removes the directory. The change
/// is not superseded: the block goes through the log like everything that a transaction changes.
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

/// With group commit a caller waits for the transaction of what it did.
#[test]
fn a_gathered_call_waits_for_its_transaction() {
    let mut bench = Bench::new(JournalMode::Ordered);
    assert_eq!(bench.remove(1), []);
    bench.journal = bench.journal.gathered();
    let wait_for = bench.remove(2);
    assert!(!wait_for.is_empty());
    let closed = bench.close();
    wait_for.into_iter().for_each(|id| bench.write_out(id));
    assert!(!bench.is_live(closed));
}

/// Each of these rules is off in turn, and the test that is about it fails.
#[test]
fn without_each_rule_a_test_fails() {
    let tests: [(Rule, fn()); 10] = [
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
        (
            Rule::AnswersOnceCommitted,
            a_gathered_call_waits_for_its_transaction,
        ),
    ];
    assert_eq!(
        watch::not_missed(&tests),
        [],
        "nothing shows that these are off"
    );
}
