//! A crowded block: many soft patches, found by where in it they lie.

use backstitch_patch::{BlockId, Change, Graph, PatchId};

struct Random(u32);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % end
    }
}

/// Changes of all sizes at all places. The graph's books say whether each comes after what it
/// overlaps, and the lists hold what they should.
#[test]
fn a_crowd_knows_what_overlaps() {
    // The last one has no lists.
    for (seed, block_bytes) in [(1, 1024), (2, 2048), (3, 4096), (4, 4096), (5, 8192)] {
        for optimisations in ["none", "merge", "both"] {
            let mut random = Random(seed);
            let mut graph = Graph::new(optimisations.parse().unwrap());
            let mut bytes = vec![0_u8; block_bytes as usize];
            let mut others = vec![vec![0_u8; 64]; 8];
            for round in 0..160 {
                let len = match random.below(6) {
                    0 => 1 + random.below(block_bytes / 2),
                    1 => 128,
                    _ => 1 + random.below(32),
                };
                let at = random.below(block_bytes - len + 1);
                let at = if random.below(4) == 0 {
                    at / 128 * 128
                } else {
                    at
                };
                let new = vec![round as u8 + 1; len as usize];
                let mut change = Change::Bytes {
                    offset_bytes: at,
                    bytes: &new,
                };
                if random.below(4) == 0 {
                    change = Change::Flip {
                        offset_bytes: random.below(block_bytes / 4) * 4,
                        mask: 1 << random.below(32),
                    };
                }
                // Many wait for a block that waits for this one, and so need undo data.
                let other = random.below(8);
                let on = Change::Bytes {
                    offset_bytes: 8 * (round % 8),
                    bytes: &[round as u8; 8],
                };
                let after: Vec<PatchId> = match random.below(3) {
                    0 => vec![],
                    _ => {
                        let into = &mut others[other as usize];
                        vec![graph.create(BlockId(1 + other), into, on, &[])]
                    }
                };
                let id = graph.create(BlockId(0), &mut bytes, change, &after);
                if random.below(2) == 0 {
                    let into = &mut others[other as usize];
                    graph.create(BlockId(1 + other), into, on, &[id]);
                }
                graph.check_invariants().unwrap_or_else(|error| {
                    panic!("{block_bytes} bytes, {optimisations}, round {round}: {error}")
                });
                if random.below(40) == 0 {
                    let other = 1 + random.below(8);
                    let _ = graph.start_write(BlockId(other), &others[other as usize - 1]);
                    graph.complete_write(BlockId(other));
                }
                if random.below(40) == 0 {
                    let _ = graph.start_write(BlockId(0), &bytes);
                    graph.complete_write(BlockId(0));
                    graph.check_invariants().unwrap();
                }
            }
            // Everything can be written in the end.
            for _ in 0..1000 {
                for block in 0..9 {
                    let bytes = match block {
                        0 => &bytes,
                        _ => &others[block - 1],
                    };
                    let _ = graph.start_write(BlockId(block as u32), bytes);
                    graph.complete_write(BlockId(block as u32));
                }
                graph.check_invariants().unwrap();
                if graph.counters().live == 0 {
                    break;
                }
            }
            assert_eq!(graph.counters().live, 0, "{block_bytes}, {optimisations}");
        }
    }
}
