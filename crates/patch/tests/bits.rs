//! Flips of one word: one patch where that makes nobody wait longer, several where it would.

use backstitch_patch::{BlockId, Change, Graph, Optimisations, PatchId, PatchKind};

const BITMAP: BlockId = BlockId(0);
const INODE: BlockId = BlockId(1);
const OTHER: BlockId = BlockId(2);

struct Blocks {
    graph: Graph,
    bytes: Vec<Vec<u8>>,
}

impl Blocks {
    /// A bitmap block, and an inode's block that waits for it: a flip that waits for the inode
    /// cannot be hard.
    fn new() -> Blocks {
        let mut blocks = Blocks {
            graph: Graph::new(Optimisations::BOTH),
            bytes: vec![vec![0; 64]; 3],
        };
        let first = blocks.flip(1, &[]);
        blocks.write(INODE, 0, &[first]);
        blocks
    }

    fn flip(&mut self, mask: u32, dependencies: &[PatchId]) -> PatchId {
        let bytes = &mut self.bytes[BITMAP.0 as usize];
        let offset_bytes = 0;
        let change = Change::Flip { offset_bytes, mask };
        self.graph.create(BITMAP, bytes, change, dependencies)
    }

    fn write(&mut self, block: BlockId, offset_bytes: u32, dependencies: &[PatchId]) -> PatchId {
        let bytes = &mut self.bytes[block.0 as usize];
        let change = Change::Bytes {
            offset_bytes,
            bytes: &[1; 4],
        };
        self.graph.create(block, bytes, change, dependencies)
    }

    /// A change of the inode's block that depends on the bitmap block, so that flips that wait for
    /// it must be soft.
    fn pointer(&mut self) -> PatchId {
        let inode = self.graph.uncommitted(INODE)[0];
        assert_eq!(self.graph.info(inode).unwrap().kind, PatchKind::Hard);
        inode
    }
}

#[test]
fn flips_that_wait_for_the_same_are_one_patch() {
    let mut blocks = Blocks::new();
    let cleared = blocks.pointer();
    let a = blocks.flip(2, &[cleared]);
    let b = blocks.flip(4, &[cleared]);
    assert_eq!(blocks.graph.info(a).unwrap().kind, PatchKind::Bits);
    assert!(blocks.graph.is_same(a, b));
    assert_eq!(blocks.graph.counters().merged_bits, 1);
    blocks.graph.check_invariants().unwrap();
}

#[test]
fn flips_that_wait_for_different_things_are_kept_apart() {
    let mut blocks = Blocks::new();
    let cleared = blocks.pointer();
    let other = blocks.write(OTHER, 0, &[cleared]);
    let a = blocks.flip(2, &[cleared]);
    let b = blocks.flip(4, &[other]);
    let c = blocks.flip(8, &[cleared, other]);
    assert!(!blocks.graph.is_same(a, b) && !blocks.graph.is_same(a, c));
    assert!(!blocks.graph.is_same(b, c));
    // Each of them joins the earlier flip that waits for the same.
    let (d, e) = (
        blocks.flip(16, &[other]),
        blocks.flip(32, &[other, cleared]),
    );
    assert!(blocks.graph.is_same(b, d) && blocks.graph.is_same(c, e));
    blocks.graph.check_invariants().unwrap();
}

/// Freeing one block must not make the pointers to its neighbours wait for the inode that was
/// cleared.
#[test]
fn a_bit_flipped_back_does_not_hold_up_the_others_of_its_patch() {
    let mut blocks = Blocks::new();
    let cleared = blocks.pointer();
    let other = blocks.write(OTHER, 0, &[cleared]);
    let a = blocks.flip(2, &[cleared]);
    let b = blocks.flip(4, &[cleared]);
    let waits_for = blocks.graph.dependencies(a);
    let back = blocks.flip(2, &[other]);
    assert!(blocks.graph.is_same(a, b) && !blocks.graph.is_same(a, back));
    assert_eq!(blocks.graph.dependencies(a), waits_for);
    // A flip of all bits of the patch would join it, but this one overlaps `back` as well.
    let all = blocks.flip(6, &[cleared]);
    assert!(!blocks.graph.is_same(all, a), "it overlaps two patches");
    blocks.graph.check_invariants().unwrap();
}

/// Of the flips of one bit the newest comes after all others: a new one need not wait for each of
/// them, nor be compared with each.
#[test]
fn a_flip_of_the_same_bits_waits_for_the_newest_only() {
    const FLIPS: u64 = 200;
    let mut graph = Graph::new(Optimisations::NONE);
    let mut bytes = vec![0; 64];
    let hold = graph.create_transaction(&[]);
    for number in 0..FLIPS {
        // Others of the same zone lie between them.
        for (offset_bytes, mask) in [(0, 6), (4, 1 << (number % 32))] {
            let change = Change::Flip { offset_bytes, mask };
            graph.create(BITMAP, &mut bytes, change, &[hold]);
        }
    }
    // Each waits for the transaction, and for one other at most.
    let edges = graph.counters().edges_live;
    assert!(edges <= 4 * FLIPS, "{edges} edges");
    graph.check_invariants().unwrap();
}
