//! Seals: what is written has the checksum of what is written, with a rollback too.

mod support;

use std::sync::Arc;
use std::time::Duration;

use backstitch_store::{
    BlockClass, BlockKind, Change, Goal, Limits, PatchId, Seal, Standing, Stating, drive,
};
use support::Bench;

const BLOCK: usize = 2048;
const NOW: Duration = Duration::ZERO;
const KIND: BlockKind = BlockKind::metadata(3);

/// Puts the sum of all other bytes, and the block's number, into the first byte.
struct Sum;

fn sum(block: u64, bytes: &[u8]) -> u8 {
    (bytes[1..].iter()).fold(block as u8, |sum, byte| sum.wrapping_add(*byte))
}

impl Seal for Sum {
    fn seal(&self, block: u64, bytes: &mut [u8]) {
        bytes[0] = sum(block, bytes);
    }
}

fn bench(unit_bytes: usize) -> Bench {
    let mut bench = Bench::with(Limits::default(), BLOCK, unit_bytes, 8);
    for block in 0..8 {
        assert!(bench.store.read(bench.volume, block).is_err());
    }
    drive::read_wanted(&mut bench.store, &bench.devices).unwrap();
    (bench.store).register_seal(bench.volume, KIND, Arc::new(Sum));
    bench
}

impl Bench {
    fn put(
        &mut self,
        block: u64,
        kind: impl Into<BlockKind>,
        at: u32,
        byte: u8,
        after: &[PatchId],
    ) -> PatchId {
        let change = Change::Bytes {
            offset_bytes: at,
            bytes: &[byte],
        };
        let stating = Stating {
            after,
            standing: Standing::Apart,
        };
        self.store
            .patch(self.volume, block, kind, change, stating, NOW)
    }

    /// Writes a batch; returns how many blocks it has.
    fn round(&mut self) -> usize {
        let batch = self.store.next_batch(Goal::All, NOW, u64::MAX);
        let blocks = batch.len();
        drive::perform(&self.devices, &batch.writes).unwrap();
        self.store.complete(batch, NOW);
        blocks
    }

    fn on_disk(&self, block: usize) -> Vec<u8> {
        self.memory.snapshot()[block * BLOCK..(block + 1) * BLOCK].to_vec()
    }
}

/// Two blocks that wait for each other's first change: each is written with a rollback, then whole.
/// Every version is sealed.
#[test]
fn a_version_with_a_rollback_has_its_own_seal() {
    for unit_bytes in [BLOCK, 512] {
        let mut bench = bench(unit_bytes);
        let a = bench.put(1, KIND, 100, 5, &[]);
        let b = bench.put(2, KIND, 100, 7, &[a]);
        bench.put(1, KIND, 1500, 11, &[b]);
        assert_eq!(
            bench.store.read(bench.volume, 1).unwrap()[0],
            0,
            "in memory there is no seal"
        );
        let newest = bench.store.for_disk(bench.volume, 1).unwrap();
        assert_eq!(newest[0], sum(1, &newest));
        let mut versions = Vec::new();
        while bench.round() > 0 {
            for block in [1, 2] {
                let bytes = bench.on_disk(block);
                let is_written = bytes.iter().any(|byte| *byte != 0);
                assert!(!is_written || bytes[0] == sum(block as u64, &bytes));
                versions.push((bytes[100], bytes[1500], bytes[0]));
            }
        }
        // 1 with its second change taken back, then 2, then all.
        assert_eq!(
            versions,
            [
                (5, 0, 6),
                (0, 0, 0),
                (5, 0, 6),
                (7, 0, 9),
                (5, 11, 17),
                (7, 0, 9)
            ]
        );
        assert_eq!(bench.on_disk(1), *newest);
    }
}

/// Blocks of other kinds are written as they are, and so is a sealed block once it is used for
/// another kind.
#[test]
fn only_its_kind_is_sealed() {
    let mut bench = bench(BLOCK);
    bench.put(1, BlockClass::Metadata, 100, 5, &[]);
    bench.put(2, KIND, 100, 5, &[]);
    assert!(bench.store.seal_of(bench.volume, 1).is_none());
    bench.round();
    assert_eq!((bench.on_disk(1)[0], bench.on_disk(2)[0]), (0, 7));
    bench.put(2, BlockClass::Data, 0, 1, &[]);
    bench.round();
    assert_eq!(bench.on_disk(2)[0], 1);
}

/// What somebody copies while it is dirty is sealed too.
#[test]
fn dirty_blocks_are_sealed() {
    let mut bench = bench(BLOCK);
    bench.put(2, KIND, 100, 5, &[]);
    let dirty: Vec<(u64, u8)> = (bench.store.dirty_blocks(bench.volume))
        .map(|(block, bytes)| (block, bytes[0]))
        .collect();
    assert_eq!(dirty, [(2, 7)]);
}
