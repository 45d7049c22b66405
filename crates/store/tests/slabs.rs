//! Blocks that are parts of slabs: written without a copy, never changed under anybody, and counted
//! as what they keep in memory.

mod support;

use std::sync::Arc;
use std::time::Duration;

use backstitch_store::{Batch, BlockClass, Change, Goal, InRun, Limits, PatchId, Slab, drive};
use support::Bench;

const BLOCK_BYTES: usize = 1024;
const SLAB_BLOCKS: usize = 16;
const BLOCKS: u64 = 4096;

impl Bench {
    fn new(limits: Limits) -> Bench {
        Bench::with(limits, BLOCK_BYTES, BLOCK_BYTES, BLOCKS)
    }

    /// Writes a slab's worth of blocks from `first` on, each full of `byte`, and returns the slab.
    fn write_slab(&mut self, first: u64, byte: u8) -> Arc<Slab> {
        let mut slab = self.store.slabs().take(SLAB_BLOCKS * BLOCK_BYTES);
        slab.fill(byte);
        let slab = Arc::new(slab);
        let mut run = PatchId::COMMITTED;
        for (block, contents) in (first..).zip(slab.chunks(BLOCK_BYTES)) {
            let slab = Some(&slab);
            run = self.write_in_run(block, 0, contents, InRun { run, slab });
        }
        slab
    }

    fn write(&mut self, block: u64, offset_bytes: u32, bytes: &[u8], run: PatchId) -> PatchId {
        self.write_in_run(block, offset_bytes, bytes, run.into())
    }

    fn write_in_run(
        &mut self,
        block: u64,
        offset_bytes: u32,
        bytes: &[u8],
        run: InRun<'_>,
    ) -> PatchId {
        let change = Change::Bytes {
            offset_bytes,
            bytes,
        };
        let (class, now) = (BlockClass::Data, Duration::ZERO);
        self.store
            .patch_in_run(self.volume, block, class, change, (&[]).into(), run, now)
    }

    fn place(&self, block: u64) -> *const u8 {
        self.store.peek(self.volume, block).unwrap().as_ptr()
    }

    fn next_batch(&mut self) -> Batch {
        self.store.next_batch(Goal::All, Duration::ZERO, 1 << 30)
    }

    fn finish(&mut self, batch: Batch) {
        drive::perform(&self.devices, &batch.writes).unwrap();
        self.store.complete(batch, Duration::ZERO);
    }

    fn on_disk(&self, block: u64) -> u8 {
        self.memory.snapshot()[block as usize * BLOCK_BYTES]
    }
}

#[test]
fn blocks_take_their_part_and_one_that_changes_leaves_it() {
    let mut bench = Bench::new(Limits::default());
    let slab = bench.write_slab(100, 1);
    let part = |block: usize| slab[(block - 100) * BLOCK_BYTES..].as_ptr();
    for block in 100..100 + SLAB_BLOCKS {
        assert_eq!(bench.place(block as u64), part(block));
    }
    // All that is in blocks counts once.
    assert_eq!(bench.store.slabs().held_bytes(), bench.store.stats().bytes);
    let before = bench.store.memory_bytes();
    bench.write(103, 5, &[9], PatchId::COMMITTED);
    assert_ne!(bench.place(103), part(103));
    assert_eq!(bench.store.memory_bytes(), before + BLOCK_BYTES as u64);
    // Blocks that are given whole once more are parts of another slab.
    let second = bench.write_slab(100, 2);
    let batch = bench.next_batch();
    bench.finish(batch);
    assert!((100..116).all(|block| bench.on_disk(block) == slab[0].max(2)));
    let third = bench.write_slab(100, 3);
    assert_eq!(bench.place(103), third[3 * BLOCK_BYTES..].as_ptr());
    assert!(slab.iter().all(|byte| *byte == 1) && second.iter().all(|byte| *byte == 2));
}

#[test]
fn what_is_on_its_way_to_the_disk_does_not_change() {
    let mut bench = Bench::new(Limits::default());
    drop(bench.write_slab(0, 1));
    let batch = bench.next_batch();
    bench.write(0, 0, &[9], PatchId::COMMITTED);
    drop(bench.write_slab(4, 2));
    bench.finish(batch);
    assert!((0..16).all(|block| bench.on_disk(block) == 1));
    let batch = bench.next_batch();
    bench.finish(batch);
    assert_eq!((bench.on_disk(0), bench.on_disk(1)), (9, 1));
    assert!((4..20).all(|block| bench.on_disk(block) == 2));
}

#[test]
fn a_slab_that_one_block_keeps_counts_whole_and_is_left_for_room() {
    let limits = Limits {
        memory_bytes: 1 << 20,
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    let most = limits.memory_bytes + limits.memory_bytes / 8;
    let slab_bytes = (SLAB_BLOCKS * BLOCK_BYTES) as u64;
    for round in 0..BLOCKS / SLAB_BLOCKS as u64 {
        let first = round * SLAB_BLOCKS as u64;
        drop(bench.write_slab(first, 1));
        let batch = bench.next_batch();
        bench.finish(batch);
        // All but one leave the slab.
        for block in first + 1..first + SLAB_BLOCKS as u64 {
            bench.write(block, 0, &[2], PatchId::COMMITTED);
        }
        let held = bench.store.slabs().held_bytes();
        assert!(held + bench.store.stats().bytes - held / 16 <= bench.store.memory_bytes());
        let batch = bench.next_batch();
        bench.finish(batch);
        bench.store.trim();
        // A round comes into memory before anybody looks.
        assert!(bench.store.memory_bytes() <= most);
        assert!(bench.store.slabs().held_bytes() <= most, "round {round}");
    }
    assert!(
        bench.store.slabs().held_bytes() >= slab_bytes,
        "some are left"
    );
    assert!(bench.store.stats().blocks > 256, "not all had to leave");
}
