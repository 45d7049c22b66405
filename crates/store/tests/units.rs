//! Order between the units of a block, where a device writes no more than those wholly or not at
//! all.

mod support;

use std::time::Duration;

use backstitch_store::{
    Batch, BlockClass, Change, Goal, Limits, PatchId, Standing, Stating, drive,
};
use support::Bench;

const BLOCK: usize = 2048;
const UNIT: usize = 512;
const NOW: Duration = Duration::ZERO;

impl Bench {
    fn new(unit: usize) -> Bench {
        let mut bench = Bench::with(Limits::default(), BLOCK, unit, 16);
        for block in 0..16 {
            assert!(bench.store.read(bench.volume, block).is_err());
        }
        drive::read_wanted(&mut bench.store, &bench.devices).unwrap();
        bench
    }

    fn put(&mut self, block: u64, at: usize, bytes: &[u8], after: &[PatchId]) -> PatchId {
        let change = Change::Bytes {
            offset_bytes: at as u32,
            bytes,
        };
        let class = BlockClass::Metadata;
        self.store
            .patch(self.volume, block, class, change, after.into(), NOW)
    }

    /// Writes a batch; returns where its requests begin and how long they are.
    fn batch(&mut self, goal: Goal<'_>) -> Vec<(u64, u64)> {
        let batch = self.store.next_batch(goal, NOW, u64::MAX);
        let places = places(&batch);
        drive::perform(&self.devices, &batch.writes).unwrap();
        self.store.complete(batch, NOW);
        places
    }

    fn on_disk(&self, block: usize, at: usize) -> u8 {
        self.memory.snapshot()[block * BLOCK + at]
    }
}

fn places(batch: &Batch) -> Vec<(u64, u64)> {
    let requests = batch.writes.iter().flat_map(|(_, requests)| requests);
    requests
        .map(|request| (request.offset_bytes, request.len_bytes()))
        .collect()
}

/// Two patches of one block, the second after the first: one write where the unit is the block, two
/// where they lie in two units.
#[test]
fn order_between_two_units_takes_two_writes() {
    for (unit, writes) in [(BLOCK, 1), (1024, 2), (UNIT, 2)] {
        let mut bench = Bench::new(unit);
        let first = bench.put(1, 1100, &[1], &[]);
        bench.put(1, 10, &[2], &[first]);
        let mut batches = 0;
        while !bench.batch(Goal::All).is_empty() {
            batches += 1;
            assert!(bench.on_disk(1, 10) == 0 || bench.on_disk(1, 1100) == 1);
        }
        assert_eq!(batches, writes, "units of {unit} bytes");
        assert_eq!((bench.on_disk(1, 10), bench.on_disk(1, 1100)), (2, 1));
        assert!(!bench.store.is_dirty());
    }
}

/// Nothing of a unit that has to wait goes to the disk with the others, and nobody copies the ones
/// that need not.
#[test]
fn a_unit_that_waits_is_left_out() {
    let mut bench = Bench::new(UNIT);
    let first = bench.put(2, 0, &[7; 16], &[]);
    bench.put(1, 0, &[1], &[]);
    bench.put(1, 600, &[2], &[first]);
    bench.put(1, 1100, &[3], &[]);
    let batch = bench.store.next_batch(Goal::All, NOW, u64::MAX);
    let block = BLOCK as u64;
    // Of block 1 the first unit and the third; block 2 as a whole, which holds nothing back.
    let expected = [(block, 512), (block + 1024, 512), (2 * block, block)];
    assert_eq!(places(&batch), expected);
    drive::perform(&bench.devices, &batch.writes).unwrap();
    bench.store.complete(batch, NOW);
    assert_eq!((bench.on_disk(1, 0), bench.on_disk(1, 600)), (1, 0));
    assert_eq!(bench.batch(Goal::All), [(block, block)]);
    assert_eq!(bench.on_disk(1, 600), 2);
}

/// A change that lies in several units is on the disk when all of its parts are, and what waits for
/// it waits for all of them.
#[test]
fn a_change_of_several_units_is_waited_for_as_a_whole() {
    let mut bench = Bench::new(UNIT);
    let other = bench.put(3, 0, &[9], &[]);
    let waits = bench.put(1, 1030, &[4], &[other]);
    let long = bench.put(1, 500, &[5; 1000], &[]);
    let after = bench.put(2, 0, &[6], &[long]);
    assert!(bench.store.graph().is_live(long) && bench.store.graph().is_live(waits));
    while !bench.batch(Goal::Patches(&[after])).is_empty() {
        let there = [500, 512, 1023, 1024, 1499].map(|at| bench.on_disk(1, at) == 5);
        assert!(bench.on_disk(2, 0) == 0 || there == [true; 5]);
    }
    assert_eq!((bench.on_disk(2, 0), bench.on_disk(3, 0)), (6, 9));
    assert!(!bench.store.graph().is_live(long));
}

/// Bits are flipped in the unit that they lie in.
#[test]
fn bits_of_the_last_unit() {
    let mut bench = Bench::new(UNIT);
    let change = Change::Flip {
        offset_bytes: BLOCK as u32 - 4,
        mask: 0x8000_0001,
    };
    let (volume, class) = (bench.volume, BlockClass::Metadata);
    bench
        .store
        .patch(volume, 5, class, change, (&[]).into(), NOW);
    bench.batch(Goal::All);
    assert_eq!(bench.on_disk(5, BLOCK - 4), 1);
    assert_eq!(bench.on_disk(5, BLOCK - 1), 0x80);
}

/// Contents of files are one unit: a file of many blocks is one patch whatever the unit is, and a
/// block that is given away and used for something else gets units again.
#[test]
fn contents_are_one_unit() {
    let mut bench = Bench::new(UNIT);
    let (volume, contents) = (bench.volume, [1; BLOCK]);
    let mut run = PatchId::COMMITTED;
    for block in 8..12 {
        let (class, now) = (BlockClass::Data, NOW);
        let change = Change::Bytes {
            offset_bytes: 0,
            bytes: &contents,
        };
        run = bench
            .store
            .patch_in_run(volume, block, class, change, (&[]).into(), run.into(), now);
    }
    assert_eq!(bench.store.graph().counters().live, 1);
    bench.store.discard(volume, 8);
    let class = BlockClass::Directory;
    bench
        .store
        .initialise(volume, 8, class, &[2; BLOCK], (&[run]).into(), NOW);
    // One for each unit, and one that stands for them.
    assert_eq!(bench.store.graph().counters().live, 1 + 4 + 1);
    while !bench.batch(Goal::All).is_empty() {}
    assert_eq!((bench.on_disk(8, BLOCK - 1), bench.on_disk(9, 0)), (2, 1));
    assert!(!bench.store.is_dirty());
}

/// Once somebody orders contents they have units too.
#[test]
fn contents_that_are_ordered_have_units() {
    for ordered in [false, true] {
        let mut bench = Bench::new(UNIT);
        if ordered {
            bench.store.order_contents();
        }
        let (volume, class) = (bench.volume, BlockClass::Data);
        let change = |at, bytes| Change::Bytes {
            offset_bytes: at,
            bytes,
        };
        let store = &mut bench.store;
        let first = store.patch(volume, 1, class, change(1100, &[1]), (&[]).into(), NOW);
        store.patch(volume, 1, class, change(10, &[2]), (&[first]).into(), NOW);
        let mut batches = 0;
        while !bench.batch(Goal::All).is_empty() {
            batches += 1;
        }
        assert_eq!(batches, 1 + usize::from(ordered));
    }
}

/// What was superseded in one unit is not written along with another one.
#[test]
fn a_superseded_unit_stays_behind() {
    let mut bench = Bench::new(UNIT);
    let (volume, class) = (bench.volume, BlockClass::Directory);
    let waited_for = bench.put(4, 0, &[1], &[]);
    let change = |at, byte| Change::Bytes {
        offset_bytes: at,
        bytes: byte,
    };
    let cleared = bench.store.patch(
        volume,
        1,
        class,
        change(0, &[8]),
        (&[waited_for]).into(),
        NOW,
    );
    let freed = bench.put(2, 0, &[2], &[cleared]);
    // This patch has undo data, so it is not the one hard patch of its unit: it cannot be
    // superseded.
    let stating = Stating {
        after: &[],
        standing: Standing::WithUndo,
    };
    bench
        .store
        .patch(volume, 1, class, change(600, &[3]), stating, NOW);
    bench.store.supersede(volume, 1, class, freed);
    assert!(bench.store.graph().is_same(cleared, freed));
    assert_eq!(bench.store.peek(volume, 1).unwrap()[0], 8);
    while !bench.batch(Goal::All).is_empty() {}
    assert_eq!((bench.on_disk(1, 0), bench.on_disk(1, 600)), (0, 3));
    assert_eq!((bench.on_disk(2, 0), bench.on_disk(4, 0)), (2, 1));
    assert!(!bench.store.is_dirty());
}

/// Random patches with random dependencies: after every batch, of which any units may have arrived,
/// no patch is on the disk without what it depends on.
#[test]
fn torn_batches_keep_every_dependency() {
    for seed in 0..200 {
        let mut random = Random(seed * 2 + 1);
        let mut bench = Bench::new(UNIT);
        // Each patch has bytes of its own.
        let mut patches: Vec<(PatchId, usize, Vec<usize>)> = Vec::new();
        for round in 0..6 {
            for _ in 0..12 {
                let place = patches.len();
                let (block, at) = (1 + place % 3, (place * 613) % (BLOCK - 8) / 8 * 8);
                if patches.iter().any(|(_, p, _)| *p == block * BLOCK + at) {
                    continue;
                }
                let befores: Vec<usize> = (0..place).filter(|_| random.below(8) == 0).collect();
                let after: Vec<PatchId> = befores.iter().map(|b| patches[*b].0).collect();
                let id = bench.put(block as u64, at, &[1], &after);
                patches.push((id, block * BLOCK + at, befores));
            }
            for _ in 0..random.below(4) + 5 * u64::from(round == 5) {
                let batch = bench.store.next_batch(Goal::All, NOW, u64::MAX);
                let disk = bench.memory.snapshot();
                for _ in 0..20 {
                    let state = torn(&disk, &batch, &mut random);
                    check(&state, &patches);
                }
                drive::perform(&bench.devices, &batch.writes).unwrap();
                bench.store.complete(batch, NOW);
            }
        }
        while !bench.batch(Goal::All).is_empty() {}
        let disk = bench.memory.snapshot();
        assert!(patches.iter().all(|(_, at, _)| disk[*at] == 1));
    }
}

fn check(state: &[u8], patches: &[(PatchId, usize, Vec<usize>)]) {
    for (_, at, befores) in patches.iter().filter(|(_, at, _)| state[*at] == 1) {
        for before in befores {
            assert_eq!(
                state[patches[*before].1], 1,
                "{at} without what it waits for"
            );
        }
    }
}

/// The disk with some units of a batch.
fn torn(disk: &[u8], batch: &Batch, random: &mut Random) -> Vec<u8> {
    let mut state = disk.to_vec();
    for request in batch.writes.iter().flat_map(|(_, requests)| requests) {
        let bytes: Vec<u8> = request.buffers.iter().flat_map(|b| b.to_vec()).collect();
        let start = request.offset_bytes as usize;
        for (unit, bytes) in bytes.chunks(UNIT).enumerate() {
            if random.below(2) == 0 {
                state[start + unit * UNIT..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
    state
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}
