//! The mechanism alone, with every write reported by hand: what keeps the log's start where it is,
//! and what a group waits for.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{Buffer, MemoryDevice};
use backstitch_lffs::rules::Rule;
use backstitch_lffs::{Home, LffsMechanism, LogDevice, LogMap, Setup, Unmounted, Variant};
use backstitch_ordering::{
    BlockClass, BlockNumber, Log, Operation, PatchId, Place, Volume, VolumeId,
};
use backstitch_rules::watch;
use backstitch_store::{Change, Goal, Limits, Optimisations, Store};
use backstitch_wafs::Wafs;

/// A change of names.
const NAMES: Operation<'static> = Operation::Remove {
    at: Place {
        directory: 2,
        name: b"name",
    },
    is_directory: false,
};
const BLOCK: usize = 1024;
const NOW: Duration = Duration::ZERO;
/// Below these are the file system's blocks; the first eight of them are the log's superblocks.
const LOG: std::ops::Range<u64> = 100..172;

/// A store with one volume, whose log is in it.
struct Bench {
    store: Store,
    volume: VolumeId,
    log: LffsMechanism,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(Variant::File)
    }

    fn with(variant: Variant) -> Bench {
        let device = MemoryDevice::new(LOG.end as usize * BLOCK);
        Wafs::make(&LogDevice::new(&device, map()), [5; 16], 0).unwrap();
        Bench::on(&device, variant)
    }

    /// Mounted, with nothing in the log.
    fn on(device: &MemoryDevice, variant: Variant) -> Bench {
        let pen = Unmounted::open(device, &map()).unwrap().into_pen();
        let setup = Setup {
            pen,
            map: map(),
            is_inside: true,
        };
        let mut log = LffsMechanism::new(setup, variant);
        let mut store = Store::new(Limits::default(), Optimisations::BOTH);
        let volume = store.add_volume(BLOCK as u32);
        let bytes = device.snapshot();
        for block in 0..LOG.end {
            let bytes: Buffer = bytes[block as usize * BLOCK..][..BLOCK].to_vec().into();
            store.insert(volume, block, BlockClass::Metadata, bytes);
        }
        let started = log.start(&mut store, volume);
        let mut bench = Bench { store, volume, log };
        bench.write_out(started);
        bench
    }

    /// Changes a byte of a block, in an operation of its own. Returns what its caller waits for.
    fn change(&mut self, block: u64, at: usize, byte: u8) -> Vec<PatchId> {
        let mut wait_for = Vec::new();
        let mut volume = Volume::new(&mut self.store, &mut self.log, self.volume, NOW);
        volume.begin(NAMES);
        let class = BlockClass::Directory;
        volume.write(BlockNumber(block), class, at, &[byte], &[]);
        volume.end(&mut wait_for);
        wait_for
    }

    fn close(&mut self) -> PatchId {
        self.try_close().expect("there is room")
    }

    /// Closes the running group. Returns a patch that is stable once its records are.
    fn try_close(&mut self) -> Option<PatchId> {
        self.log.state(&self.store);
        self.log.begin_close();
        (self.log.close(&mut self.store, self.volume, NOW, (1, 0))).ok()
    }

    /// Puts a patch and what it waits for on stable storage, as far as nothing is held back.
    fn write_out(&mut self, target: PatchId) {
        loop {
            let goal = Goal::Patches(&[target]);
            let batch = self.store.next_batch(goal, NOW, u64::MAX);
            if batch.is_empty() {
                return;
            }
            self.store.complete(batch, NOW);
        }
    }

    /// Brings home what keeps the start where it is, except for what the running group holds back.
    fn bring_home(&mut self) {
        let running = self.log.state(&self.store).running;
        let mut keeps = Vec::new();
        self.log.home(&self.store, &mut keeps);
        keeps.retain(|id| Some(*id) != running);
        keeps.into_iter().for_each(|id| self.write_out(id));
    }

    fn move_start(&mut self) -> Option<PatchId> {
        self.log.move_tail(&mut self.store, self.volume, NOW)
    }

    fn is_live(&self, id: PatchId) -> bool {
        self.store.graph().is_live(id)
    }

    fn is_pending(&mut self, block: u64) -> bool {
        let mut pending = Vec::new();
        self.store.pending(self.volume, block, &mut pending);
        !pending.is_empty()
    }

    /// The log as it is in memory, and a file system of zeros.
    fn written(&self) -> Vec<u8> {
        let mut bytes = vec![0; LOG.end as usize * BLOCK];
        for block in LOG {
            let known = self
                .store
                .peek(self.volume, block)
                .expect("it was put there");
            bytes[block as usize * BLOCK..][..BLOCK].copy_from_slice(known);
        }
        bytes
    }
}

fn map() -> Arc<LogMap> {
    Arc::new(LogMap::new(BLOCK as u32, [LOG]))
}

/// Replays the log of a device. Returns the number of groups.
fn replayed(device: &MemoryDevice) -> u64 {
    let home = Home {
        device,
        block_bytes: BLOCK as u32,
        blocks: LOG.end,
        has_log: true,
    };
    let mut log = Unmounted::open(device, &map()).unwrap();
    let done = log.replay(&home).unwrap();
    log.empty(true).unwrap();
    done.groups
}

/// A later record of a block has other bytes of it. The start does not move past the earlier record
/// until the block is at home.
#[test]
fn what_a_later_group_changes_keeps_the_start_until_it_is_at_home() {
    let mut bench = Bench::new();
    for at in 0..2 {
        bench.change(20, at, 1);
        let closed = bench.close();
        bench.write_out(closed);
        assert!(!bench.is_live(closed));
    }
    assert!(bench.is_pending(20));
    assert_eq!(bench.move_start(), None, "it is not at home");
    bench.bring_home();
    assert!(bench.move_start().is_some());
}

/// Groups fill the log. There is room again once a superblock with a later start is on the disk.
#[test]
fn room_is_given_back_once_the_start_has_moved() {
    let mut bench = Bench::new();
    let mut is_full = false;
    for round in 0..100 {
        bench.change(20 + round % 50, 0, round as u8 + 1);
        match bench.try_close() {
            Some(closed) => bench.write_out(closed),
            None => {
                is_full = true;
                break;
            }
        }
    }
    assert!(is_full);
    bench.bring_home();
    let moved = bench.move_start().expect("something is at home");
    assert_eq!(bench.try_close(), None, "the start is not on the disk");
    bench.write_out(moved);
    assert!(bench.try_close().is_some());
}

/// What a group comes after on another volume is stable before any of the group's records.
#[test]
fn a_group_waits_for_what_it_comes_after_elsewhere() {
    let mut bench = Bench::new();
    let elsewhere = bench.store.add_volume(BLOCK as u32);
    let zeros: Buffer = vec![0; BLOCK].into();
    (bench.store).insert(elsewhere, 0, BlockClass::Metadata, zeros);
    let change = Change::Bytes {
        offset_bytes: 0,
        bytes: &[1],
    };
    let class = BlockClass::Metadata;
    let before = (bench.store).patch(elsewhere, 0, class, change, (&[]).into(), NOW);
    bench.change(20, 0, 1);
    assert!(bench.log.come_after(&mut bench.store, &[before]));
    let closed = bench.close();
    bench.write_out(closed);
    assert_eq!(
        (bench.is_live(closed), bench.is_live(before)),
        (false, false)
    );
}

/// A crash leaves a group behind a missing one. The next mount writes a group of the same length in
/// place of the missing one; the old group behind it still does not count.
#[test]
fn what_a_crash_left_behind_the_end_never_counts() {
    let mut bench = Bench::new();
    let mut written = bench.written();
    let mut lost = 0;
    for group in 0..3 {
        bench.change(20 + group, 0, 1);
        let closed = bench.close();
        bench.write_out(closed);
        let now = bench.written();
        let first = written.iter().zip(&now).position(|(was, is)| was != is);
        if group == 1 {
            lost = first.expect("records were written") / BLOCK;
        }
        written = now;
    }
    written[lost * BLOCK..][..BLOCK].fill(0);
    let device = MemoryDevice::from_bytes(written);
    assert_eq!(replayed(&device), 1, "the second one is missing");
    let mut bench = Bench::on(&device, Variant::File);
    bench.change(30, 0, 1);
    let closed = bench.close();
    bench.write_out(closed);
    let device = MemoryDevice::from_bytes(bench.written());
    assert_eq!(replayed(&device), 1, "there is no third one");
    let bytes = device.snapshot();
    assert_eq!((bytes[30 * BLOCK], bytes[22 * BLOCK]), (1, 0));
}

/// Under the synchronous variants a caller waits for the records of what it did.
#[test]
fn a_synchronous_call_waits_for_its_records() {
    let mut bench = Bench::with(Variant::OneSync);
    let wait_for = bench.change(20, 0, 1);
    assert!(!wait_for.is_empty());
    let closed = bench.close();
    wait_for.into_iter().for_each(|id| bench.write_out(id));
    assert!(!bench.is_live(closed));
    assert_eq!(Bench::new().change(20, 0, 1), []);
}

/// Each of these rules is off in turn, and the test that is about it fails.
#[test]
fn without_each_rule_a_test_fails() {
    let tests: [(Rule, fn()); 5] = [
        (
            Rule::StartAfterLaterGroup,
            what_a_later_group_changes_keeps_the_start_until_it_is_at_home,
        ),
        (
            Rule::RoomIsFreeOnceStartMoved,
            room_is_given_back_once_the_start_has_moved,
        ),
        (
            Rule::RecordsAfterOtherVolumes,
            a_group_waits_for_what_it_comes_after_elsewhere,
        ),
        (
            Rule::MountsAreNumbered,
            what_a_crash_left_behind_the_end_never_counts,
        ),
        (
            Rule::AnswersOnceLogged,
            a_synchronous_call_waits_for_its_records,
        ),
    ];
    assert_eq!(
        watch::not_missed(&tests),
        [],
        "nothing shows that these are off"
    );
}
