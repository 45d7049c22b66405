//! What the store writes, when, and what it keeps in memory.

mod support;

use std::time::Duration;

use backstitch_store::{BlockClass, Change, Goal, Limits, Miss, PatchId, drive};
use support::Bench;

const BLOCK_BYTES: u32 = 512;
const BLOCKS: u64 = 256;

impl Bench {
    fn new(limits: Limits) -> Bench {
        let block_bytes = BLOCK_BYTES as usize;
        Bench::with(limits, block_bytes, block_bytes, BLOCKS)
    }

    fn load(&mut self, block: u64) {
        if self.store.read(self.volume, block).is_err() {
            drive::read_wanted(&mut self.store, &self.devices).unwrap();
        }
    }

    /// Writes one byte of a block at a moment.
    fn put(&mut self, block: u64, at: u32, byte: u8, after: &[PatchId], now: Duration) -> PatchId {
        self.put_as(BlockClass::Metadata, block, at, byte, after, now)
    }

    fn put_as(
        &mut self,
        class: BlockClass,
        block: u64,
        at: u32,
        byte: u8,
        after: &[PatchId],
        now: Duration,
    ) -> PatchId {
        self.load(block);
        let change = Change::Bytes {
            offset_bytes: at,
            bytes: &[byte],
        };
        self.store
            .patch(self.volume, block, class, change, after.into(), now)
    }

    fn on_disk(&self, block: u64, at: usize) -> u8 {
        self.memory.snapshot()[block as usize * BLOCK_BYTES as usize + at]
    }

    /// Writes one batch; returns the blocks in it.
    fn batch(&mut self, goal: Goal<'_>, now: Duration) -> Vec<u64> {
        self.batch_of(goal, now, u64::MAX)
    }

    fn batch_of(&mut self, goal: Goal<'_>, now: Duration, max_bytes: u64) -> Vec<u64> {
        let batch = self.store.next_batch(goal, now, max_bytes);
        let blocks = batch
            .writes
            .iter()
            .flat_map(|(_, requests)| requests)
            .flat_map(|r| {
                let first = r.offset_bytes / u64::from(BLOCK_BYTES);
                first..first + r.buffers.len() as u64
            })
            .collect();
        drive::perform(&self.devices, &batch.writes).unwrap();
        self.store.complete(batch, now);
        blocks
    }
}

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn a_change_stays_in_memory_until_it_expires() {
    let limits = Limits {
        expire: at(1000),
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    bench.put(3, 0, 1, &[], at(0));
    bench.put(9, 0, 1, &[], at(600));
    assert!(bench.batch(Goal::Expired, at(999)).is_empty());
    assert_eq!(bench.batch(Goal::Expired, at(1000)), [3]);
    assert_eq!(bench.batch(Goal::Expired, at(1600)), [9]);
    assert!(!bench.store.is_dirty());
}

#[test]
fn where_memory_fills_up_contents_go_alone_until_the_rest_expires() {
    let limits = Limits {
        expire: at(1000),
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    let eight = 8 * u64::from(BLOCK_BYTES);
    bench.put(100, 0, 1, &[], at(0));
    let contents = |bench: &mut Bench, blocks: std::ops::Range<u64>, now| {
        for block in blocks {
            bench.put_as(BlockClass::Data, block, 0, 1, &[], now);
        }
    };
    // As many as make up a quarter of a batch: the older block of metadata stays.
    contents(&mut bench, 0..2, at(10));
    assert_eq!(bench.batch_of(Goal::Oldest, at(10), eight), [0, 1]);
    // Fewer: it goes along.
    contents(&mut bench, 2..3, at(20));
    assert_eq!(bench.batch_of(Goal::Oldest, at(20), eight), [2, 100]);
    // However many contents there are, what has expired goes.
    bench.put(101, 0, 1, &[], at(30));
    contents(&mut bench, 3..40, at(40));
    assert_eq!(bench.batch_of(Goal::Oldest, at(1029), eight).len(), 8);
    let last = bench.batch_of(Goal::Oldest, at(1030), eight);
    assert!(last.contains(&101) && last.len() == 8, "{last:?}");
    // A block that is something else now leaves the part of the queue that it is in.
    bench.put(30, 0, 2, &[], at(1040));
    assert!(bench.batch(Goal::All, at(1040)).contains(&30));
    assert!(!bench.store.is_dirty());
}

#[test]
fn creators_wait_for_patches_to_retire_however_small_they_are() {
    let limits = Limits {
        patches: 20,
        expire: at(1_000_000),
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    let mut seen = Vec::new();
    for block in 0..21 {
        bench.put(block, 0, 1, &[], at(0));
        let store = &bench.store;
        seen.push((
            store.is_filling(),
            store.is_nearly_crowded(),
            store.is_crowded(),
        ));
    }
    // Write-back begins at half of the bound, and each change waits above it.
    let first = |of: fn(&(bool, bool, bool)) -> bool| seen.iter().position(of).map(|at| at + 1);
    assert_eq!(first(|s| s.0), Some(11));
    assert_eq!(first(|s| s.1), Some(16));
    assert_eq!(first(|s| s.2), Some(21));
    let two = 2 * u64::from(BLOCK_BYTES);
    assert_eq!(bench.batch_of(Goal::Oldest, at(0), two), [0, 1]);
    assert!(!bench.store.is_crowded());
}

#[test]
fn adjacent_blocks_are_one_request_up_to_its_bound() {
    let limits = Limits {
        request_bytes: u64::from(BLOCK_BYTES) * 4,
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    for block in [7, 3, 4, 5, 6, 20] {
        bench.put(block, 0, 1, &[], at(0));
    }
    let batch = bench.store.next_batch(Goal::All, at(0), u64::MAX);
    let requests: Vec<(u64, usize)> = batch.writes[0]
        .1
        .iter()
        .map(|r| (r.offset_bytes / u64::from(BLOCK_BYTES), r.buffers.len()))
        .collect();
    assert_eq!(requests, [(3, 4), (7, 1), (20, 1)]);
}

#[test]
fn a_wish_writes_its_closure_and_nothing_else() {
    let mut bench = Bench::new(Limits::default());
    let first = bench.put(1, 0, 1, &[], at(0));
    let second = bench.put(2, 0, 1, &[first], at(0));
    bench.put(8, 0, 1, &[], at(0));
    let wanted = bench.put(3, 0, 1, &[second], at(0));
    bench.put(9, 0, 1, &[wanted], at(0));
    let mut order = Vec::new();
    loop {
        let blocks = bench.batch(Goal::Patches(&[wanted]), at(0));
        if blocks.is_empty() {
            break;
        }
        order.push(blocks);
    }
    assert_eq!(order, [vec![1], vec![2], vec![3]]);
    assert!(bench.store.is_dirty());
    assert_eq!((bench.on_disk(8, 0), bench.on_disk(9, 0)), (0, 0));
}

/// A circle of blocks: one of them can only be written with a part of its changes.
fn circle(bench: &mut Bench) -> PatchId {
    let first = bench.put(1, 0, 1, &[], at(0));
    let across = bench.put(2, 0, 1, &[first], at(0));
    bench.put(1, 1, 1, &[across], at(0))
}

#[test]
fn a_block_that_would_be_rolled_back_is_passed_over_twice() {
    let mut bench = Bench::new(Limits::default());
    circle(&mut bench);
    assert!(bench.batch(Goal::Oldest, at(0)).is_empty());
    assert!(bench.batch(Goal::Oldest, at(0)).is_empty());
    assert_eq!(bench.batch(Goal::Oldest, at(0)), [1]);
    assert_eq!((bench.on_disk(1, 0), bench.on_disk(1, 1)), (1, 0));
    assert_eq!(bench.store.graph().counters().rollbacks, 1);
    assert_eq!(bench.batch(Goal::Oldest, at(0)), [2]);
    assert_eq!(bench.batch(Goal::Oldest, at(0)), [1]);
    assert_eq!((bench.on_disk(1, 0), bench.on_disk(1, 1)), (1, 1));
    assert_eq!(bench.store.stats().blocks_rewritten_for_rollback, 1);
}

#[test]
fn a_rollback_that_waiting_does_not_spare_is_done_at_once_where_somebody_waits() {
    let mut bench = Bench::new(Limits::default());
    let wanted = circle(&mut bench);
    bench.put(3, 0, 1, &[], at(0));
    assert_eq!(bench.batch(Goal::All, at(0)), [1, 3]);
    assert_eq!((bench.on_disk(1, 0), bench.on_disk(1, 1)), (1, 0));
    assert_eq!(bench.batch(Goal::Patches(&[wanted]), at(0)), [2]);
    assert_eq!(bench.batch(Goal::Patches(&[wanted]), at(0)), [1]);
    assert_eq!((bench.on_disk(1, 0), bench.on_disk(1, 1)), (1, 1));
}

#[test]
fn readers_see_the_newest_bytes_while_an_older_version_is_on_its_way() {
    let mut bench = Bench::new(Limits::default());
    bench.put(1, 0, 1, &[], at(0));
    let batch = bench.store.next_batch(Goal::All, at(0), u64::MAX);
    bench.put(1, 0, 2, &[], at(0));
    assert_eq!(bench.store.read(bench.volume, 1).unwrap()[0], 2);
    assert!(
        bench
            .store
            .next_batch(Goal::All, at(0), u64::MAX)
            .is_empty(),
        "a second version in flight"
    );
    drive::perform(&bench.devices, &batch.writes).unwrap();
    assert_eq!(bench.on_disk(1, 0), 1);
    bench.store.complete(batch, at(0));
    assert_eq!(bench.batch(Goal::All, at(0)), [1]);
    assert_eq!(bench.on_disk(1, 0), 2);
}

#[test]
fn what_was_read_before_a_change_came_and_went_is_thrown_away() {
    let mut bench = Bench::new(Limits::default());
    let (volume, block) = (bench.volume, 5);
    assert_eq!(bench.store.read(volume, block), Err(Miss { volume, block }));
    let wanted = bench.store.take_wanted();
    assert_eq!(wanted, [(volume, block)]);
    let old = drive::read_block(&*bench.devices[0], BLOCK_BYTES, block).unwrap();
    // Meanwhile the block gets contents, reaches the disk and leaves memory.
    let contents = vec![7; BLOCK_BYTES as usize];
    let class = BlockClass::Data;
    bench
        .store
        .initialise(volume, block, class, &contents, (&[]).into(), at(0));
    bench.batch(Goal::All, at(0));
    bench.store.discard(volume, block);
    bench.store.insert(volume, block, class, old);
    assert!(bench.store.peek(volume, block).is_none(), "an old version");
    bench.load(block);
    assert_eq!(bench.store.read(volume, block).unwrap()[0], 7);
}

#[test]
fn where_changes_hold_much_memory_metadata_goes_too() {
    let block = u64::from(BLOCK_BYTES);
    let limits = Limits {
        memory_bytes: block * 64,
        expire: at(1_000),
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    let dirty = |bench: &mut Bench, first: u64| {
        bench.put(100, 0, 1, &[], at(0));
        for block in first..first + 8 {
            bench.put_as(BlockClass::Data, block, 0, 1, &[], at(0));
        }
    };
    dirty(&mut bench, 0);
    let eight = 8 * block;
    assert_eq!(bench.batch_of(Goal::Oldest, at(1), eight).last(), Some(&7));
    dirty(&mut bench, 10);
    bench.store.note_held(limits.memory_bytes / 8 + 1, 0);
    assert_eq!(
        bench.batch_of(Goal::Oldest, at(2), eight).last(),
        Some(&100)
    );
    // Blocks that are to reach an age first are not written early because much is held.
    dirty(&mut bench, 20);
    assert!(bench.batch_of(Goal::Expired, at(3), eight).is_empty());
}

#[test]
fn changes_have_an_eighth_of_memory_before_they_count_as_dirty() {
    let block = u64::from(BLOCK_BYTES);
    let limits = Limits {
        memory_bytes: block * 64,
        expire: at(1_000),
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    bench.store.note_held(block * (8 + 16), 0);
    assert!(!bench.store.is_filling());
    bench.store.note_held(block * (8 + 16) + 1, 0);
    assert!(bench.store.is_filling() && !bench.store.is_crowded());
    bench.store.note_held(block * (8 + 32) + 1, 0);
    assert!(bench.store.is_crowded());
}

#[test]
fn clean_blocks_leave_and_dirty_ones_stay() {
    let limits = Limits {
        memory_bytes: u64::from(BLOCK_BYTES) * 32,
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    for block in 0..8 {
        bench.put(block, 0, 1, &[], at(0));
    }
    for block in 8..BLOCKS {
        bench.load(block);
        bench.store.trim();
        assert!(bench.store.stats().bytes <= limits.memory_bytes);
    }
    assert!((0..8).all(|b| bench.store.peek(bench.volume, b).is_some()));
    assert_eq!(bench.store.stats().dirty, 8);
}

#[test]
fn what_waits_may_have_memory_of_its_own() {
    let block = u64::from(BLOCK_BYTES);
    let limits = Limits {
        memory_bytes: block * 32,
        dirty_bytes: block * 80,
        expire: at(1_000_000),
        ..Limits::default()
    };
    assert_eq!(limits.most_bytes(), block * (16 + 80));
    let mut bench = Bench::new(limits);
    let (mut filling, mut nearly, mut crowded) = (None, None, None);
    let mut count = 0;
    while crowded.is_none() {
        bench.put(count, 0, 1, &[], at(0));
        bench.store.trim();
        count += 1;
        // All of it waits: blocks, their patches, and what the cache takes for each.
        let waiting = bench.store.memory_bytes();
        assert!(waiting > count * block + bench.store.graph().counters().bytes_live());
        for (seen, is) in [
            (&mut filling, bench.store.is_filling()),
            (&mut nearly, bench.store.is_nearly_crowded()),
            (&mut crowded, bench.store.is_crowded()),
        ] {
            if is {
                seen.get_or_insert(waiting);
            }
        }
        assert!(bench.store.memory_bytes() <= limits.most_bytes() + block);
    }
    // Changes have an eighth of memory for themselves before they count.
    let step = 2 * block + limits.memory_bytes / 8;
    let about = |seen: Option<u64>, of| (block * of..block * of + step).contains(&seen.unwrap());
    assert!(about(filling, 40) && about(nearly, 60) && about(crowded, 80));
    assert!(bench.store.memory_bytes() > limits.memory_bytes);
    // Besides, blocks that are only read have most of the room that they have otherwise. Once all
    // is written, memory is within its limit again.
    let first_clean = count;
    for block in first_clean..BLOCKS {
        bench.load(block);
        bench.store.trim();
        assert!(bench.store.memory_bytes() <= limits.most_bytes() + BLOCK_BYTES as u64);
    }
    while !bench.batch(Goal::All, at(0)).is_empty() {}
    bench.store.trim();
    assert!(bench.store.memory_bytes() <= limits.memory_bytes);
}

#[test]
fn blocks_stay_what_they_are_where_the_store_shrinks() {
    let mut bench = Bench::new(Limits {
        expire: at(1_000_000),
        ..Limits::default()
    });
    let volume = bench.volume;
    let rest = [3, 20, 90, 200];
    let byte = |bench: &Bench, block| bench.store.peek(volume, block).map(|bytes| bytes[0]);
    for round in 0..3_u8 {
        for block in 0..BLOCKS {
            bench.put(block, 0, block as u8 ^ round, &[], at(0));
        }
        bench.batch(Goal::All, at(0));
        // One is changed again: it stays where it is, and what lies before it.
        bench.put(rest[usize::from(round)], 1, 7, &[], at(0));
        for block in (0..BLOCKS).filter(|block| !rest.contains(block)) {
            bench.store.discard(volume, block);
        }
        bench.store.shrink();
        for block in 0..BLOCKS {
            let left = rest.contains(&block).then_some(block as u8 ^ round);
            assert_eq!(byte(&bench, block), left, "block {block}");
        }
        assert_eq!(bench.store.stats().blocks, rest.len() as u64);
        assert_eq!(bench.store.stats().dirty, 1);
        // What has moved is changed and written as before.
        let first = bench.put(rest[3], 2, 9 + round, &[], at(0));
        bench.put(rest[0], 2, 9 + round, &[first], at(0));
        while !bench.batch(Goal::All, at(0)).is_empty() {}
        bench.store.graph().check_invariants().unwrap();
        for block in rest {
            assert_eq!(bench.on_disk(block, 0), block as u8 ^ round);
        }
        assert_eq!(bench.on_disk(rest[3], 2), 9 + round);
    }
    bench.store.shrink();
    assert_eq!(byte(&bench, rest[1]), Some(rest[1] as u8 ^ 2));
}

#[test]
fn a_long_stream_is_written_early() {
    let block = u64::from(BLOCK_BYTES);
    let limits = Limits {
        memory_bytes: block * 64,
        dirty_bytes: block * 160,
        expire: at(1_000_000),
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    for block in 0..32 {
        bench.put(block, 0, 1, &[], at(0));
    }
    assert!(!bench.store.is_filling());
    bench.store.note_streaming(true);
    assert!(bench.store.is_filling());
    assert!(!bench.store.is_nearly_crowded());
    bench.store.note_streaming(false);
    assert!(!bench.store.is_filling());
}

#[test]
fn what_nothing_refers_to_is_not_written() {
    let mut bench = Bench::new(Limits::default());
    let dropped = bench.put(1, 0, 1, &[], at(0));
    let dependent = bench.put(2, 0, 1, &[dropped], at(0));
    bench.store.discard(bench.volume, 1);
    assert!(!bench.store.graph().is_live(dropped));
    assert_eq!(bench.batch(Goal::Patches(&[dependent]), at(0)), [2]);
    assert!(!bench.store.is_dirty());
    assert_eq!(bench.on_disk(1, 0), 0);
}

#[test]
fn nobody_joins_readers_whose_bytes_may_be_stale() {
    let mut bench = Bench::new(Limits::default());
    let (volume, zeros) = (bench.volume, || vec![0_u8; BLOCK_BYTES as usize].into());
    let miss = |bench: &mut Bench| {
        assert!(bench.store.read(volume, 5).is_err());
        bench.store.take_wanted()
    };
    assert_eq!(miss(&mut bench), [(volume, 5)]);
    // While it is read, the block comes into memory and leaves again.
    assert_eq!(miss(&mut bench), [(volume, 5)]);
    bench.store.insert(volume, 5, BlockClass::Metadata, zeros());
    bench.store.discard(volume, 5);
    // What the first reader has may be old. No further read begins before the first is done.
    assert_eq!(miss(&mut bench), []);
    bench.store.insert(volume, 5, BlockClass::Metadata, zeros());
    assert!(bench.store.peek(volume, 5).is_none());
    assert_eq!(miss(&mut bench), [(volume, 5)]);
    bench.store.insert(volume, 5, BlockClass::Metadata, zeros());
    assert!(bench.store.peek(volume, 5).is_some());
}

/// Random changes with random dependencies, under every goal: in the end the disk holds the newest
/// bytes.
#[test]
fn everything_reaches_the_disk_in_the_end() {
    let mut bench = Bench::new(Limits {
        memory_bytes: u64::from(BLOCK_BYTES) * 24,
        ..Limits::default()
    });
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 8) % below
    };
    let mut recent: Vec<PatchId> = Vec::new();
    let mut expected = vec![0; (BLOCKS * u64::from(BLOCK_BYTES)) as usize];
    for step in 0..20_000 {
        let (block, place, byte) = (random(40), random(16), random(255) as u8 + 1);
        let after: Vec<PatchId> = (0..random(3))
            .filter_map(|_| {
                let back = random(8) as usize + 1;
                recent.len().checked_sub(back).map(|i| recent[i])
            })
            .collect();
        recent.push(bench.put(block, place as u32, byte, &after, at(step)));
        expected[(block * u64::from(BLOCK_BYTES) + place) as usize] = byte;
        match random(12) {
            0 => drop(bench.batch(Goal::Oldest, at(step))),
            1 => drop(bench.batch(Goal::All, at(step))),
            2 => {
                let wish = recent[recent.len() - 1 - random(3).min(step) as usize];
                while !bench.batch(Goal::Patches(&[wish]), at(step)).is_empty() {}
                assert!(!bench.store.graph().is_live(wish));
            }
            _ => {}
        }
        bench.store.trim();
    }
    let mut rounds = 0;
    while !bench.batch(Goal::All, at(0)).is_empty() {
        rounds += 1;
        assert!(rounds < 1000, "the disk is never up to date");
    }
    assert!(!bench.store.is_dirty());
    assert_eq!(bench.memory.snapshot(), expected);
}

/// Where the device's queue keeps order, a block that follows another one of its batch is handed out
/// after it, though it lies before it, and in a request of its own though it lies beside it.
#[test]
fn what_follows_in_a_batch_is_handed_out_later() {
    let mut bench = Bench::new(Limits::default());
    bench.store.order_by_queue();
    let at = |millis| Duration::from_millis(millis);
    let first = bench.put(9, 0, 1, &[], at(0));
    // Both are ready by themselves, and take along what is ready once the first one is taken up.
    bench.put(8, 0, 1, &[], at(1));
    let second = bench.put(8, 1, 1, &[first], at(1));
    bench.put(7, 0, 1, &[], at(2));
    bench.put(7, 1, 1, &[second], at(2));
    let batch = bench.store.next_batch(Goal::All, at(3), u64::MAX);
    let parts = bench.store.split(batch);
    let places = parts.iter().map(|part| {
        let requests = part.writes.iter().flat_map(|(_, requests)| requests);
        requests.map(|r| r.offset_bytes / 512).collect::<Vec<_>>()
    });
    assert_eq!(places.collect::<Vec<_>>(), [[9], [8], [7]]);
    for at in 0..parts.len() {
        let follows: Vec<_> = parts[at].follows().collect();
        let before = at.checked_sub(1).map(|before| parts[before].units());
        assert_eq!(follows, before.unwrap_or_default());
    }
    for part in parts {
        bench.store.complete(part, at(4));
    }
    assert!(!bench.store.is_dirty());
}
