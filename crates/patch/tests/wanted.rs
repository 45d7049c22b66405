//! A sync that remembers what it waits for finds the same blocks as one that looks anew, round
//! after round.

use backstitch_patch::{BlockId, Change, Graph, Optimisations, PatchId};

const BLOCKS: u32 = 4;

struct Disk {
    graph: Graph,
    bytes: Vec<Vec<u8>>,
}

impl Disk {
    fn write(&mut self, block: u32, offset_bytes: u32, after: &[PatchId]) -> PatchId {
        let change = Change::Bytes {
            offset_bytes,
            bytes: &[1; 8],
        };
        let bytes = &mut self.bytes[block as usize];
        self.graph.create(BlockId(block), bytes, change, after)
    }

    fn write_out(&mut self, blocks: &[BlockId]) {
        for block in blocks {
            let bytes = &self.bytes[block.0 as usize];
            let _ = self.graph.start_write(*block, bytes);
        }
        for block in blocks {
            self.graph.complete_write(*block);
        }
    }
}

/// A chain of changes that goes back and forth between blocks, and what was changed beside it.
fn chain(links: u32) -> (Disk, Vec<PatchId>) {
    let mut disk = Disk {
        graph: Graph::new(Optimisations::BOTH),
        bytes: vec![vec![0; 4096]; BLOCKS as usize + 1],
    };
    let mut all: Vec<PatchId> = Vec::new();
    for link in 0..links {
        let after: Vec<PatchId> = all.last().copied().into_iter().collect();
        all.push(disk.write(link % 3, link % 16 * 8, &after));
    }
    (disk, all)
}

#[test]
fn what_is_remembered_finds_what_a_search_finds() {
    let (mut disk, all) = chain(2000);
    // Nobody waits for these.
    disk.write(BLOCKS - 1, 0, &[]);
    let last = all[all.len() - 1];
    disk.write(BLOCKS - 1, 64, &[last]);
    disk.graph.settle(&all);
    let (_, wanted) = disk.graph.closure_remembered(&all, &mut Vec::new());
    let mut rounds = 0;
    loop {
        let mut searched = Vec::new();
        if !disk.graph.closure(&all, &mut searched).live {
            break;
        }
        let found: Vec<BlockId> = (0..BLOCKS)
            .map(BlockId)
            .filter(|block| disk.graph.has_wanted_ready(*block, &wanted))
            .collect();
        assert_eq!(found, searched, "in round {rounds}");
        for block in (0..BLOCKS).map(BlockId) {
            let waits = |id: &PatchId| disk.graph.info(*id).unwrap().dependencies > 0;
            let waits = disk.graph.uncommitted(block).iter().any(waits) && block.0 < BLOCKS - 1;
            let said = disk.graph.has_wanted_waiting(block, &wanted);
            assert_eq!(said, waits, "{block:?} in round {rounds}");
        }
        disk.write_out(&found);
        // Changes that come meanwhile are no part of it, unless they take the place of one that is
        // on the disk.
        disk.write(BLOCKS, rounds % 512 * 8, &[]);
        rounds += 1;
    }
    assert!(rounds >= 1000, "{rounds} rounds: the chain is too short");
    assert!(disk.graph.has_ready(BlockId(BLOCKS - 1)));
}

#[test]
fn as_much_is_remembered_as_there_is() {
    for patches in 1..=130 {
        let mut disk = Disk {
            graph: Graph::new(Optimisations::NONE),
            bytes: vec![vec![0; 4096]; BLOCKS as usize],
        };
        let all: Vec<PatchId> = (0..patches).map(|at| disk.write(0, at * 8, &[])).collect();
        let only = [all[all.len() - 1]];
        let (_, wanted) = disk.graph.closure_remembered(&only, &mut Vec::new());
        assert!(
            disk.graph.has_wanted_ready(BlockId(0), &wanted),
            "{patches}"
        );
    }
}
