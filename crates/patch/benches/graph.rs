//! The graph's inner loop: creating and committing a patch with two dependencies, in a small graph
//! and among many others.
//!
//! The number after a name is that of blocks with a pending patch beside those worked on. The work
//! goes over as many blocks in turn, in a scattered order: what grows is what the processor's
//! caches and its table of pages no longer hold.
//!
//! `crowded_block` fills one block with soft patches that do not overlap, and writes it: per patch,
//! with so many of them.

// `criterion_group!` makes a public function without documentation.
#![allow(missing_docs)]

use backstitch_patch::{BlockId, Change, Graph, Optimisations, PatchId};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const OPERATIONS: u32 = 16;

/// How a new patch comes to be.
#[derive(Clone, Copy)]
enum Case {
    /// The block has a hard patch, which takes the change.
    MergedHard,
    /// Merging is off: a hard patch of its own.
    NotMerged,
    /// Hard patches are off too: a patch with undo data.
    Soft,
    /// As that, for one bit.
    Bits,
}

struct Bench {
    graph: Graph,
    bytes: Vec<u8>,
    case: Case,
    blocks: u32,
    next: u32,
    ready: Vec<BlockId>,
}

impl Bench {
    fn new(case: Case, blocks: u32) -> Bench {
        let (hard, merge) = match case {
            Case::MergedHard => (true, true),
            Case::NotMerged => (true, false),
            Case::Soft | Case::Bits => (false, false),
        };
        let mut bench = Bench {
            graph: Graph::new(Optimisations { hard, merge }),
            bytes: vec![1; 4096],
            case,
            blocks,
            next: 0,
            ready: Vec::new(),
        };
        // What the patches of the loop depend on is never written.
        for block in 0..blocks {
            bench.create(block, 64, &[]);
        }
        bench
    }

    fn create(&mut self, block: u32, offset_bytes: u32, on: &[PatchId]) -> PatchId {
        let change = match self.case {
            Case::Bits => Change::Flip {
                offset_bytes,
                mask: 1,
            },
            _ => Change::Bytes {
                offset_bytes,
                bytes: &[2; 8],
            },
        };
        self.graph
            .create(BlockId(block), &mut self.bytes, change, on)
    }

    /// Two patches on blocks of their own, and a number of patches that depend on both; all of it
    /// is written.
    fn round(&mut self) {
        // A prime step visits every block before any a second time.
        self.next = (self.next + 7_919) % self.blocks;
        let base = self.blocks + 3 * self.next;
        let on = [self.create(base, 0, &[]), self.create(base + 1, 0, &[])];
        for i in 0..OPERATIONS {
            self.create(base + 2, 128 * (i % 31), &on);
        }
        for block in base..base + 3 {
            self.graph.start_write(BlockId(block), &self.bytes);
            self.graph.complete_write(BlockId(block));
        }
        self.ready.clear();
        self.graph.take_became_ready(&mut self.ready);
        assert!(!self.graph.has_uncommitted(BlockId(base + 2)));
    }
}

fn graph(criterion: &mut Criterion) {
    let cases = [
        ("merged_hard", Case::MergedHard),
        ("not_merged", Case::NotMerged),
        ("soft", Case::Soft),
        ("bits", Case::Bits),
    ];
    let mut group = criterion.benchmark_group("patch_with_two_dependencies");
    // Of the patches of a round, two have no dependencies; they are counted too.
    group.throughput(Throughput::Elements(u64::from(OPERATIONS) + 2));
    for (name, case) in cases {
        for blocks in [1, 1_000, 10_000, 100_000, 1_000_000] {
            let mut bench = Bench::new(case, blocks);
            for _ in 0..blocks {
                bench.round();
            }
            group.bench_function(BenchmarkId::new(name, blocks), |b| b.iter(|| bench.round()));
        }
    }
    group.finish();
}

/// One patch that depends on two of the patches that have been pending the longest; all three are
/// written, and the two made again: nothing that a round touches was touched by the rounds before
/// it.
fn oldest(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("on_two_of_the_oldest");
    group.throughput(Throughput::Elements(3));
    for blocks in [1_000, 10_000, 100_000, 1_000_000u32] {
        let mut bench = Bench::new(Case::MergedHard, 0);
        let mut ids: Vec<PatchId> = (0..blocks).map(|b| bench.create(b, 64, &[])).collect();
        let mut next = 0;
        group.bench_function(BenchmarkId::from_parameter(blocks), |b| {
            b.iter(|| {
                next = (next + 7_919) % blocks;
                let other = (next + blocks / 2) % blocks;
                let on = [ids[next as usize], ids[other as usize]];
                bench.create(blocks + next, 0, &on);
                for block in [next, other, blocks + next] {
                    bench.graph.start_write(BlockId(block), &bench.bytes);
                    bench.graph.complete_write(BlockId(block));
                }
                for block in [next, other] {
                    ids[block as usize] = bench.create(block, 64, &[]);
                }
                bench.ready.clear();
                bench.graph.take_became_ready(&mut bench.ready);
            });
        });
    }
    group.finish();
}

fn crowded(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crowded_block");
    for patches in [16, 64, 256, 512] {
        let mut bench = Bench::new(Case::Soft, 1);
        group.throughput(Throughput::Elements(u64::from(patches)));
        group.bench_function(BenchmarkId::from_parameter(patches), |b| {
            b.iter(|| {
                (0..patches).for_each(|i| _ = bench.create(1, 4096 / patches * i, &[]));
                bench.graph.start_write(BlockId(1), &bench.bytes);
                bench.graph.complete_write(BlockId(1));
                bench.ready.clear();
                bench.graph.take_became_ready(&mut bench.ready);
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .without_plots();
    targets = graph, oldest, crowded
}
criterion_main!(benches);
