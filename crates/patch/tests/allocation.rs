//! In a steady state the graph allocates nothing. (Without the test harness, whose thread allocates
//! too when it first waits.)

use std::alloc::System;

use backstitch_patch::{BlockId, Change, Graph, Optimisations, PatchId};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const BLOCKS: u32 = 8;

struct Blocks {
    graph: Graph,
    bytes: Vec<Vec<u8>>,
    ready: Vec<BlockId>,
    fired: Vec<u64>,
    round: u32,
}

impl Blocks {
    fn new(optimisations: Optimisations) -> Blocks {
        Blocks {
            graph: Graph::new(optimisations),
            bytes: vec![vec![1; 512]; BLOCKS as usize],
            ready: Vec::new(),
            fired: Vec::new(),
            round: 0,
        }
    }

    fn create(&mut self, block: u32, change: Change<'_>, dependencies: &[PatchId]) -> PatchId {
        let bytes = &mut self.bytes[block as usize];
        self.graph
            .create(BlockId(block), bytes, change, dependencies)
    }

    fn bytes(&mut self, block: u32, offset: u32, len: usize, on: &[PatchId]) -> PatchId {
        let new = [self.round as u8; 200];
        let change = Change::Bytes {
            offset_bytes: offset,
            bytes: &new[..len],
        };
        self.create(block, change, on)
    }

    /// Every kind of patch, every kind of merge, an empty patch and a discard.
    fn round(&mut self) {
        self.round += 1;
        let bit = Change::Flip {
            offset_bytes: 8 * (self.round % 4),
            mask: 1 << (self.round % 32),
        };
        let a = self.bytes(0, 0, 4, &[]);
        let b = self.create(1, bit, &[a]);
        let c = self.bytes(0, 8, 100, &[b]);
        let d = self.bytes(0, 60, 140, &[b]);
        let e = self.create(0, bit, &[c, d]);
        let empty = self.graph.create_empty(&[a, e], Some(7), true);
        let f = self.bytes(2, 16, 60, &[empty]);
        self.bytes(3, 16, 60, &[f, b]);
        self.bytes(4, 0, 8, &[f]);
        self.graph.add_dependency(empty, d).unwrap();
        self.graph.release(empty);
        self.graph.discard(BlockId(4));
        self.ready.clear();
        self.graph.closure(&[f], &mut self.ready);
        self.drain();
        self.ready.clear();
        self.graph.take_became_ready(&mut self.ready);
        self.fired.clear();
        self.graph.take_fired(&mut self.fired);
        assert_eq!(self.fired, [7]);
    }

    fn drain(&mut self) {
        for _ in 0..20 {
            for block in (0..BLOCKS).map(BlockId) {
                self.graph.start_write(block, &self.bytes[block.0 as usize]);
                self.graph.complete_write(block);
            }
        }
        assert_eq!(self.graph.counters().live, 0);
    }
}

fn main() {
    for optimisations in ["none", "hard", "merge", "both"] {
        let mut blocks = Blocks::new(optimisations.parse().unwrap());
        (0..1000).for_each(|_| blocks.round());
        let copies = blocks.graph.counters().versions_with_rollback;
        let region = Region::new(ALLOCATOR);
        (0..1000).for_each(|_| blocks.round());
        let change = region.change();
        let copies = blocks.graph.counters().versions_with_rollback - copies;
        // A version with rollbacks is a copy of its block, which the caller takes along.
        let allocations = (change.allocations + change.reallocations) as u64;
        println!("opt={optimisations}: {allocations} allocations, {copies} copies");
        assert_eq!(allocations, copies, "{change:?}");
    }
}
