//! Chains of blocks: hard patches must not join those of different directories to one that leads
//! through the whole disk.

use backstitch_patch::{BlockId, Change, Graph, Optimisations, PatchId, PatchKind};

/// Blocks in a row. In each a "directory" is made that waits for one in the block before, and then
/// a "file" that waits for nothing.
const BLOCKS: u32 = 40;

struct Disk {
    graph: Graph,
    bytes: Vec<Vec<u8>>,
}

impl Disk {
    fn write(&mut self, block: u32, offset_bytes: u32, dependencies: &[PatchId]) -> PatchId {
        let change = Change::Bytes {
            offset_bytes,
            bytes: &[1; 8],
        };
        let bytes = &mut self.bytes[block as usize];
        self.graph
            .create(BlockId(block), bytes, change, dependencies)
    }

    /// Writes whatever can be written, in rounds without rollback where that is possible. Returns
    /// how many rounds it took.
    fn drain(&mut self, blocks: u32) -> usize {
        for round in 0.. {
            let ready = (0..blocks)
                .map(BlockId)
                .filter(|b| self.graph.has_ready(*b));
            let ready: Vec<BlockId> = ready.collect();
            if ready.is_empty() {
                return round;
            }
            for block in &ready {
                let _ = self
                    .graph
                    .start_write(*block, &self.bytes[block.0 as usize]);
            }
            for block in &ready {
                self.graph.complete_write(*block);
            }
        }
        unreachable!("a graph drains")
    }
}

/// Directory `k` (in block `k`) is made in a directory of block `k - 1` that waits for nothing
/// itself: the parents are different ones.
fn made() -> Disk {
    let mut disk = Disk {
        graph: Graph::new(Optimisations::BOTH),
        bytes: vec![vec![0; 64]; 2 * BLOCKS as usize],
    };
    for block in 0..BLOCKS {
        let parent = block.checked_sub(1).map(|b| disk.write(b, 32, &[]));
        let directory = disk.write(block, 0, parent.as_slice());
        let file = disk.write(block, 16, &[]);
        // Their names, in other blocks.
        disk.write(BLOCKS + block, 0, &[directory]);
        disk.write(BLOCKS + block, 16, &[file]);
    }
    disk.graph.check_invariants().expect("the graph is sound");
    disk
}

#[test]
fn unrelated_directories_do_not_join_to_one_chain() {
    let mut disk = made();
    let softs = (0..BLOCKS)
        .flat_map(|block| disk.graph.uncommitted(BlockId(block)))
        .filter(|p| disk.graph.info(*p).unwrap().kind == PatchKind::Soft)
        .count();
    assert!(softs > 0, "everything became hard");
    let rounds = disk.drain(2 * BLOCKS);
    assert!(rounds <= 8, "{rounds} rounds for chains of two blocks");
    assert_eq!(disk.graph.counters().live, 0);
    assert!(disk.bytes[0..BLOCKS as usize].iter().all(|b| b[0] == 1));
}

#[test]
fn a_later_change_of_the_block_does_not_make_a_deep_patch_hard() {
    let mut disk = Disk {
        graph: Graph::new(Optimisations::BOTH),
        bytes: vec![vec![0; 64]; 12],
    };
    let mut last = disk.write(0, 0, &[]);
    for block in 1..12 {
        last = disk.write(block, 0, &[last]);
    }
    assert_eq!(disk.graph.info(last).unwrap().kind, PatchKind::Soft);
    let later = disk.write(11, 32, &[]);
    assert_eq!(disk.graph.info(later).unwrap().kind, PatchKind::Hard);
    assert_eq!(disk.graph.info(last).unwrap().kind, PatchKind::Soft);
    let both = disk.write(11, 48, &[last]);
    assert_eq!(disk.graph.info(both).unwrap().kind, PatchKind::Soft);
    disk.graph.check_invariants().expect("the graph is sound");
    assert_eq!(disk.drain(12), 12);
}

#[test]
fn changes_of_a_transaction_are_hard_however_many_come_before_it() {
    const TRANSACTIONS: u32 = 12;
    let mut disk = Disk {
        graph: Graph::new(Optimisations::BOTH),
        bytes: vec![vec![0; 64]; TRANSACTIONS as usize + 3],
    };
    let mut last = PatchId::COMMITTED;
    for number in 0..TRANSACTIONS {
        let hold = disk.graph.create_transaction(&[last]);
        for (block, at) in [(0, 0), (0, 32), (1, 8 * (number % 8))] {
            let changed = disk.write(block, at, &[hold]);
            let kind = disk.graph.info(changed).unwrap().kind;
            assert_eq!(kind, PatchKind::Hard, "transaction {number}");
            // It stays so where somebody waits for an earlier change, as the log's tail does.
            disk.graph.settle(&[changed]);
        }
        // The commit record, which the transaction waits for.
        let commit = disk.write(2 + number, 0, &[last]);
        disk.graph.add_dependency(hold, commit).unwrap();
        disk.graph.release(hold);
        last = hold;
    }
    disk.graph.check_invariants().expect("the graph is sound");
    assert_eq!(disk.drain(TRANSACTIONS + 2), TRANSACTIONS as usize + 1);
    assert_eq!(disk.graph.counters().live, 0);
}
