//! Nobody waits for ever for a patch that keeps being merged into.

use backstitch_patch::{BlockId, Change, Graph, PatchId};

/// The block of inodes; contents are in the blocks from 1 on.
const INODES: BlockId = BlockId(0);
/// How long the other file goes on growing.
const STEPS: u32 = 60;
/// Rounds of writing after which a change is on the disk: four in which contents may go while their
/// inode takes on more of them, and those of a sync.
const ROUNDS: u32 = 4 + 3;
/// The same where somebody waits: a round that is under way, the contents, then what waits for
/// them.
const ROUNDS_OF_A_SYNC: u32 = 3;

struct Disk {
    graph: Graph,
    inodes: Vec<u8>,
}

impl Disk {
    /// A block of contents, and the size of the file at `offset_bytes` that shows it.
    fn grow(&mut self, step: u32, offset_bytes: u32) -> PatchId {
        let mut contents = vec![0; 64];
        let change = Change::Bytes {
            offset_bytes: 0,
            bytes: &[step as u8; 64],
        };
        let contents = self
            .graph
            .create(BlockId(1 + step), &mut contents, change, &[]);
        let empty = self.graph.create_empty(&[contents], None, false);
        self.change(step, offset_bytes, &[empty])
    }

    fn change(&mut self, step: u32, offset_bytes: u32, dependencies: &[PatchId]) -> PatchId {
        let change = Change::Bytes {
            offset_bytes,
            bytes: &[step as u8; 8],
        };
        self.graph
            .create(INODES, &mut self.inodes, change, dependencies)
    }

    /// Starts writing whatever is ready.
    fn start(&mut self) -> Vec<BlockId> {
        let ready: Vec<BlockId> = (0..=STEPS)
            .map(BlockId)
            .filter(|block| self.graph.has_ready(*block))
            .collect();
        self.graph.next_flight();
        for block in &ready {
            let bytes = if *block == INODES {
                &self.inodes
            } else {
                &vec![0; 64]
            };
            let _ = self.graph.start_write(*block, bytes);
        }
        ready
    }
}

/// A file grows in every step, while a write is under way. In every third step another inode of the
/// same block changes, which waits for nothing; with `sync` somebody waits for that change.
fn nothing_is_kept_off_the_disk(optimisations: &str, rounds: u32, sync: bool) {
    let mut disk = Disk {
        graph: Graph::new(optimisations.parse().unwrap()),
        inodes: vec![0; 1024],
    };
    let mut made: Vec<(u32, PatchId)> = Vec::new();
    let mut in_flight = Vec::new();
    for step in 0..STEPS {
        let size = disk.grow(step, 0);
        if step % 3 == 0 {
            let other = disk.change(step, 512, &[]);
            if sync {
                disk.graph.settle(&[other]);
            } else {
                made.push((step, size));
            }
            made.push((step, other));
        }
        for block in in_flight.drain(..) {
            disk.graph.complete_write(block);
        }
        in_flight = disk.start();
        for (since, patch) in &made {
            assert!(
                step - since < rounds || !disk.graph.is_live(*patch),
                "{optimisations}: at step {step} what was done at step {since} is not on the disk"
            );
        }
    }
}

#[test]
fn a_neighbour_that_grows_keeps_nothing_off_the_disk() {
    for optimisations in ["both", "merge", "hard", "none"] {
        nothing_is_kept_off_the_disk(optimisations, ROUNDS, false);
    }
}

#[test]
fn a_neighbour_that_grows_keeps_no_sync_waiting() {
    for optimisations in ["both", "merge", "hard", "none"] {
        nothing_is_kept_off_the_disk(optimisations, ROUNDS_OF_A_SYNC, true);
    }
}
