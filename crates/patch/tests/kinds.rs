//! What becomes of a change: a patch of its own or a part of another one, with undo data or
//! without, and how much undo data.

use backstitch_patch::{
    BlockId, Change, DependencyError, Graph, Optimisations, PatchId, PatchKind, Standing, Stating,
    UndoData,
};

const BLOCK_BYTES: usize = 1024;
const HARD: Option<PatchKind> = Some(PatchKind::Hard);
const SOFT: Option<PatchKind> = Some(PatchKind::Soft);

struct Disk {
    graph: Graph,
    bytes: Vec<Vec<u8>>,
    /// How changes stand to the others of their blocks.
    standing: Standing,
}

impl Disk {
    fn new(optimisations: &str) -> Disk {
        Disk {
            graph: Graph::new(optimisations.parse().unwrap()),
            bytes: vec![vec![0xee; BLOCK_BYTES]; 200],
            standing: Standing::Together,
        }
    }

    fn change(&mut self, block: u32, change: Change<'_>, after: &[PatchId]) -> PatchId {
        let bytes = &mut self.bytes[block as usize];
        let stating = Stating {
            after,
            standing: self.standing,
        };
        let id = (self.graph).create(BlockId(block), bytes, change, stating);
        self.graph.check_invariants().unwrap();
        id
    }

    fn write(&mut self, block: u32, offset_bytes: u32, after: &[PatchId]) -> PatchId {
        self.write_bytes(block, offset_bytes, &[1; 8], after)
    }

    fn write_bytes(
        &mut self,
        block: u32,
        offset_bytes: u32,
        bytes: &[u8],
        after: &[PatchId],
    ) -> PatchId {
        let change = Change::Bytes {
            offset_bytes,
            bytes,
        };
        self.change(block, change, after)
    }

    fn flip(&mut self, block: u32, mask: u32, after: &[PatchId]) -> PatchId {
        let offset_bytes = 4;
        self.change(block, Change::Flip { offset_bytes, mask }, after)
    }

    fn in_run(&mut self, block: u32, after: &[PatchId], run: PatchId) -> PatchId {
        let change = Change::Bytes {
            offset_bytes: 0,
            bytes: &[1; 8],
        };
        let bytes = &mut self.bytes[block as usize];
        let stating = Stating {
            after,
            standing: self.standing,
        };
        let id = (self.graph).create_in_run(BlockId(block), bytes, change, stating, run);
        self.graph.check_invariants().unwrap();
        id
    }

    /// A change with undo data, though it could do without.
    fn soft(&mut self, block: u32, offset_bytes: u32, after: &[PatchId]) -> PatchId {
        self.standing = Standing::WithUndo;
        let id = self.write(block, offset_bytes, after);
        self.standing = Standing::Together;
        id
    }

    fn hold(&mut self) -> PatchId {
        self.graph.create_empty(&[], None, true)
    }

    fn kind(&self, id: PatchId) -> Option<PatchKind> {
        self.graph.info(id).map(|info| info.kind)
    }

    fn start(&mut self, block: u32) {
        let bytes = self.bytes[block as usize].clone();
        let _ = self.graph.start_write(BlockId(block), &bytes);
    }

    fn write_out(&mut self, block: u32) {
        self.start(block);
        self.graph.complete_write(BlockId(block));
    }
}

#[test]
fn changes_are_applied_to_the_bytes_of_their_block() {
    let mut bytes = [0xf0; 12];
    let flip = Change::Flip {
        offset_bytes: 4,
        mask: 0x8000_0301,
    };
    flip.apply(&mut bytes);
    assert_eq!(bytes[4..8], [0xf1, 0xf3, 0xf0, 0x70]);
    let write = Change::Bytes {
        offset_bytes: 7,
        bytes: &[1, 2],
    };
    write.apply(&mut bytes);
    let expected = [240, 240, 240, 240, 0xf1, 0xf3, 240, 1, 2, 240, 240, 240];
    assert_eq!(bytes, expected);
}

#[test]
fn soft_patches_become_hard_once_nobody_waits_for_their_block() {
    let mut disk = Disk::new("both");
    let soft = disk.soft(0, 0, &[]);
    assert_eq!(disk.kind(soft), SOFT);
    let hard = disk.write(0, 16, &[]);
    assert_eq!((disk.kind(soft), disk.kind(hard)), (HARD, HARD));
    assert!(disk.graph.is_same(soft, hard));
    // Not where somebody waits for the soft patch, nor where it is settled, nor beside a change
    // that stands apart.
    let soft = disk.soft(1, 0, &[]);
    disk.write(2, 0, &[soft]);
    disk.write(1, 16, &[]);
    assert_eq!(disk.kind(soft), SOFT);
    let soft = disk.soft(3, 0, &[]);
    disk.graph.settle(&[soft]);
    disk.write(3, 16, &[]);
    assert_eq!(disk.kind(soft), SOFT);
    let soft = disk.soft(4, 0, &[]);
    disk.standing = Standing::Apart;
    let apart = disk.write(4, 16, &[]);
    assert_eq!((disk.kind(soft), disk.kind(apart)), (SOFT, HARD));
    let apart = disk.write(5, 0, &[soft]);
    assert_eq!(disk.kind(apart), SOFT);
    for optimisations in ["none", "merge"] {
        let mut disk = Disk::new(optimisations);
        let id = disk.write(0, 0, &[]);
        assert_eq!(disk.kind(id), SOFT, "{optimisations}");
    }
}

#[test]
fn who_waits_for_a_run_needs_no_undo_data() {
    let mut disk = Disk::new("both");
    let run = disk.in_run(1, &[], PatchId::COMMITTED);
    assert_eq!(disk.in_run(2, &[], run), run);
    let pointer = disk.write(0, 0, &[run]);
    assert_eq!(disk.kind(pointer), HARD);
    // Unless the change is in one of the run's blocks.
    let after = disk.write(2, 16, &[run]);
    assert_eq!(disk.kind(after), SOFT);
    let empty = disk.graph.create_empty(&[pointer], None, false);
    let beside = disk.write(0, 32, &[empty]);
    assert!(
        disk.graph.is_same(beside, pointer),
        "it stands for the block itself"
    );
    let hold = disk.hold();
    disk.graph.add_dependency(hold, pointer).unwrap();
    let waits = disk.write(0, 48, &[hold]);
    assert_eq!(disk.kind(waits), SOFT, "more may come before it");
}

#[test]
fn what_a_hard_patch_waits_for_already_is_not_searched_again() {
    let mut disk = Disk::new("both");
    let mut deep = disk.hold();
    for _ in 0..100 {
        deep = disk.graph.create_empty(&[deep], None, false);
    }
    let first = disk.write(0, 0, &[deep]);
    disk.write(1, 0, &[first]);
    let again = disk.write(0, 16, &[deep]);
    assert!(disk.graph.is_same(first, again));
    // A dependency that is new is searched, and too long a search is given up.
    let mut other = disk.hold();
    for _ in 0..100 {
        other = disk.graph.create_empty(&[other], None, false);
    }
    let soft = disk.write(0, 32, &[other]);
    assert_eq!(disk.kind(soft), SOFT);
}

#[test]
fn a_run_takes_what_waits_for_what_it_waits_for() {
    for optimisations in ["none", "hard", "merge"] {
        let mut disk = Disk::new(optimisations);
        assert!(!disk.graph.goes_into_runs(&[]), "{optimisations}");
        let id = disk.in_run(0, &[], PatchId::COMMITTED);
        assert!(!disk.graph.is_run(id), "{optimisations}");
    }
    let mut disk = Disk::new("both");
    let (a, b) = (disk.hold(), disk.hold());
    let hard = disk.write(0, 0, &[]);
    assert!(disk.graph.goes_into_runs(&[a]) && disk.graph.goes_into_runs(&[]));
    assert!(!disk.graph.goes_into_runs(&[a, b]) && !disk.graph.goes_into_runs(&[hard]));
    for standing in [Standing::WithUndo, Standing::Apart] {
        let after = &[];
        let stating = Stating { after, standing };
        assert!(!disk.graph.goes_into_runs(stating), "{standing:?}");
    }
    let first = disk.in_run(1, &[a], PatchId::COMMITTED);
    assert_eq!(disk.in_run(2, &[a], first), first);
    let second = disk.in_run(3, &[b], first);
    assert!(second != first && disk.graph.is_run(second));
    let third = disk.in_run(4, &[], first);
    assert!(third != first && disk.graph.is_run(third));
    // A run that was written takes no further blocks.
    disk.write_out(4);
    let fourth = disk.in_run(5, &[], third);
    assert_eq!(disk.in_run(6, &[], fourth), fourth);
    disk.start(5);
    assert_ne!(disk.in_run(7, &[], fourth), fourth);
    assert!(!disk.graph.has_ready(BlockId(1)) && !disk.graph.has_ready(BlockId(3)));
    disk.graph.release(a);
    assert!(disk.graph.has_ready(BlockId(1)) && !disk.graph.has_ready(BlockId(3)));
}

#[test]
fn a_block_leaves_its_run() {
    let mut disk = Disk::new("both");
    let run = disk.in_run(1, &[], PatchId::COMMITTED);
    disk.in_run(2, &[], run);
    let own = disk
        .graph
        .leave_run(BlockId(1))
        .expect("nobody waits for it");
    assert_eq!(disk.kind(own), HARD);
    assert!(!disk.graph.is_same(own, run));
    disk.write_out(2);
    assert!(!disk.graph.is_live(run) && disk.graph.is_live(own));
    assert_eq!(disk.graph.leave_run(BlockId(1)), None, "it is in no run");
    // A block does not leave a run that somebody waits for.
    let run = disk.in_run(3, &[], PatchId::COMMITTED);
    disk.write(0, 0, &[run]);
    assert_eq!(disk.graph.leave_run(BlockId(3)), None);
    let own = disk.graph.take_from_run(BlockId(3)).unwrap();
    disk.write_out(3);
    assert!(!disk.graph.is_live(run) && !disk.graph.is_live(own));
}

/// A part that was taken out of a run, and need not be written after all, says nothing about the
/// rest.
#[test]
fn the_rest_of_a_run_goes_on_waiting() {
    let mut disk = Disk::new("both");
    let hold = disk.hold();
    let run = disk.in_run(1, &[hold], PatchId::COMMITTED);
    disk.in_run(2, &[hold], run);
    disk.graph.take_from_run(BlockId(1)).unwrap();
    disk.graph.discard(BlockId(1));
    disk.graph.check_invariants().unwrap();
    assert!(
        !disk.graph.has_ready(BlockId(2)),
        "the hold is not released"
    );
    disk.graph.release(hold);
    assert!(disk.graph.has_ready(BlockId(2)));
}

#[test]
fn flips_of_all_bits_of_a_patch_join_it_whatever_they_wait_for() {
    let mut disk = Disk::new("merge");
    let [x, y] = [1, 2].map(|block| disk.write(block, 0, &[]));
    let first = disk.flip(0, 1, &[]);
    let again = disk.flip(0, 1, &[x]);
    assert!(disk.graph.is_same(first, again));
    // A flip of one bit joins a patch of several only where it brings nothing new to wait for.
    let both = disk.flip(3, 3, &[x]);
    let one = disk.flip(3, 1, &[both, x]);
    assert!(disk.graph.is_same(both, one));
    let other = disk.flip(3, 1, &[y]);
    assert!(!disk.graph.is_same(both, other));
    let all = disk.flip(4, 3, &[x]);
    let more = disk.flip(4, 7, &[y]);
    assert!(disk.graph.is_same(all, more));
}

#[test]
fn undo_data_are_as_long_as_they_must_be() {
    let mut disk = Disk::new("merge");
    let held = |disk: &Disk| disk.graph.counters().undo_bytes_live;
    disk.write_bytes(0, 0, &[1; 100], &[]);
    assert_eq!(held(&disk), 100);
    // The patch grows by 20 bytes, and only their undo data is new.
    disk.write_bytes(0, 90, &[2; 30], &[]);
    assert_eq!(
        (held(&disk), disk.graph.counters().undo_bytes_total),
        (120, 120)
    );
    disk.write_out(0);
    assert_eq!(
        (held(&disk), disk.graph.counters().undo_bytes_peak),
        (0, 120)
    );
    disk.write_bytes(1, 0, &[1; 5], &[]);
    assert_eq!(held(&disk), 8, "in the patch");
    disk.bytes[2].fill(0);
    disk.write_bytes(2, 0, &[1; 500], &[]);
    assert_eq!(held(&disk), 8, "zeros take nothing");
    disk.bytes[3][50..].fill(0);
    disk.write_bytes(3, 0, &[1; 500], &[]);
    assert_eq!(held(&disk), 8 + 50, "nor do they at the end");

    // Where a long change makes few bytes differ, only these are kept, each piece with its place.
    for (bytes, kept) in [(127, 127), (128, 5), (129, 5), (1023, 5), (1024, 1024)] {
        let mut disk = Disk::new("merge");
        let mut new = vec![0xee; bytes];
        new[3] = 7;
        disk.write_bytes(0, 0, &new, &[]);
        assert_eq!(held(&disk), kept, "{bytes} bytes");
    }
    // Two that are near each other are kept as one piece.
    for (second, kept) in [(4, 6), (7, 9), (8, 10), (9, 10)] {
        let mut disk = Disk::new("merge");
        let mut new = vec![0xee; 200];
        (new[3], new[second]) = (7, 7);
        disk.write_bytes(0, 0, &new, &[]);
        assert_eq!(held(&disk), kept, "bytes 3 and {second}");
    }
    let mut disk = Disk::new("none");
    let mut new = vec![0xee; 200];
    new[3] = 7;
    disk.write_bytes(0, 0, &new, &[]);
    assert_eq!(held(&disk), 200, "kept as they are");
    // A change of a whole block keeps its difference only, behind one that keeps all old bytes.
    let mut disk = Disk::new("hard");
    let hold = disk.hold();
    disk.standing = Standing::WithUndo;
    let mut new = vec![0xdd; BLOCK_BYTES];
    disk.write_bytes(0, 0, &new, &[hold]);
    new[9] = 1;
    disk.write_bytes(0, 0, &new, &[hold]);
    assert_eq!(held(&disk), BLOCK_BYTES as u64 + 5);
}

#[test]
fn depth_counts_blocks() {
    let mut disk = Disk::new("none");
    assert_eq!(disk.graph.depth(PatchId::COMMITTED), 0);
    let mut last = disk.write(0, 0, &[]);
    assert_eq!(disk.graph.depth(last), 0);
    for block in 1..200 {
        let below = disk.write(block, 0, &[last]);
        last = disk.write(block, 8, &[below]);
        assert_eq!(disk.graph.depth(last) as u32, block);
    }
    for round in 0..100 {
        last = disk.write(round % 2, 16 + 8 * round, &[last]);
        assert_eq!(disk.graph.depth(last) as u32, (200 + round).min(254));
    }
    // A transaction counts as nothing, and so does what is on its way.
    let transaction = disk.graph.create_transaction(&[last]);
    assert_eq!(disk.graph.depth(transaction), 0);
    let after = disk.write(7, 64, &[transaction]);
    assert_eq!(disk.graph.depth(after), 0);
    let mut disk = Disk::new("none");
    let first = disk.write(0, 0, &[]);
    let second = disk.write(1, 0, &[first]);
    disk.write_out(0);
    assert_eq!(disk.graph.depth(second), 1, "as it was known");
    disk.start(1);
    assert_eq!(disk.graph.depth(second), 0);
}

/// A block keeps its settled patch when other patches of it are written.
#[test]
fn a_settled_patch_stays_settled() {
    for block in [0, 63, 64, 199] {
        let mut disk = Disk::new("both");
        disk.standing = Standing::WithUndo;
        let other = disk.write(1, 0, &[]);
        let settled = disk.write(block, 0, &[other]);
        let written = disk.write(block, 16, &[]);
        let (hold, later) = (disk.hold(), disk.hold());
        disk.write(block, 32, &[hold]);
        disk.graph.settle(&[settled]);
        disk.start(block);
        disk.graph.complete_write(BlockId(block));
        assert!(!disk.graph.is_live(written) && disk.graph.is_live(settled));
        let grown = disk.write(block, 4, &[later]);
        assert!(!disk.graph.is_same(grown, settled), "block {block}");
    }
}

#[test]
fn the_names_of_the_optimisations() {
    for (name, hard, merge) in [
        ("none", false, false),
        ("hard", true, false),
        ("merge", false, true),
        ("both", true, true),
    ] {
        let read: Optimisations = name.parse().unwrap();
        assert_eq!(read, Optimisations { hard, merge });
        assert_eq!(read.to_string(), name);
    }
    assert!("soft".parse::<Optimisations>().is_err());
}

/// Chains through more than two blocks end in patches with undo data, and these stay as they are.
#[test]
fn what_lies_deep_needs_undo_data() {
    let mut disk = Disk::new("both");
    let first = disk.write(0, 0, &[]);
    let second = disk.write(1, 0, &[first]);
    let third = disk.write(2, 0, &[second]);
    let fourth = disk.write(3, 0, &[third]);
    let kinds = [first, second, third, fourth].map(|id| disk.kind(id));
    assert_eq!(kinds, [HARD, HARD, HARD, SOFT]);
    let near = disk.soft(4, 0, &[second]);
    disk.write(4, 16, &[]);
    let far = disk.soft(5, 0, &[third]);
    disk.write(5, 16, &[]);
    assert_eq!([near, far].map(|id| disk.kind(id)), [HARD, SOFT]);
}

#[test]
fn tokens_have_64_bits() {
    for optimisations in [Optimisations::BOTH, Optimisations::NONE] {
        assert_eq!(Graph::new(optimisations).optimisations(), optimisations);
    }
    let mut disk = Disk::new("both");
    let hard = disk.write(0, 0, &[]);
    let (token, other) = (0x8123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
    assert_eq!(disk.graph.watch(hard, token), Some(token));
    assert_eq!(disk.graph.watch(hard, other), Some(token));
    disk.graph.create_empty(&[hard], Some(other), false);
    assert_eq!(
        disk.graph.create_empty(&[], None, false),
        PatchId::COMMITTED
    );
    disk.write_out(0);
    let mut fired = Vec::new();
    disk.graph.take_fired(&mut fired);
    fired.sort_unstable();
    assert_eq!(fired, [token, other]);
}

#[test]
fn what_was_made_and_merged_is_counted() {
    let mut disk = Disk::new("both");
    let hold = disk.hold();
    disk.graph.create_empty(&[hold], None, false);
    let run = disk.in_run(1, &[], PatchId::COMMITTED);
    disk.in_run(2, &[], run);
    disk.graph.take_from_run(BlockId(1));
    disk.write(0, 0, &[]);
    disk.write(0, 16, &[]);
    disk.write(0, 32, &[]);
    disk.soft(3, 0, &[hold]);
    disk.start(2);
    disk.graph.take_from_run(BlockId(2));
    let c = disk.graph.counters();
    let made = [c.created, c.created_empty, c.created_hard, c.created_runs];
    // Two empty ones, a run and two parts of it, a hard one, a soft one.
    assert_eq!(made, [7, 2, 3, 1]);
    let merged = [
        c.merged_hard,
        c.merged_overlap,
        c.merged_bits,
        c.converted_to_hard,
    ];
    assert_eq!(merged, [2, 0, 0, 0]);
    assert_eq!(
        [c.versions, c.versions_with_rollback, c.rollbacks],
        [1, 0, 0]
    );
}

#[test]
fn a_change_that_another_makes_up_for_is_not_written() {
    let mut disk = Disk::new("both");
    let supersede = |disk: &mut Disk, block, by| {
        let done = disk.graph.supersede(BlockId(block), by);
        disk.graph.check_invariants().unwrap();
        done
    };
    let other = disk.write(9, 0, &[]);
    let removed = disk.write(0, 0, &[]);
    let waits = disk.write(5, 0, &[removed]);
    let by = disk.write(1, 0, &[other, removed]);
    assert!(supersede(&mut disk, 0, by));
    assert!(disk.graph.is_same(removed, by) && !disk.graph.has_uncommitted(BlockId(0)));
    assert!(disk.graph.waits_directly(waits, by));
    // Somebody asked about one of them.
    for watches_removed in [true, false] {
        let removed = disk.write(0, 0, &[]);
        let by = disk.write(6 + u32::from(watches_removed), 0, &[]);
        let watched = if watches_removed { removed } else { by };
        assert_eq!(disk.graph.watch(watched, 7), Some(7));
        assert!(supersede(&mut disk, 0, by), "{watches_removed}");
        assert_eq!(disk.graph.watch(by, 8), Some(7), "its token went along");
    }
    // Not in a circle; not by a patch of the same block, one with undo data, or one on its way; and
    // not where the block has two patches.
    let removed = disk.write(0, 0, &[]);
    let between = disk.graph.create_empty(&[removed], None, false);
    let by = disk.write(2, 0, &[between]);
    assert!(!supersede(&mut disk, 0, by) && !supersede(&mut disk, 0, removed));
    let soft = disk.soft(3, 0, &[]);
    assert!(!supersede(&mut disk, 0, soft));
    let started = disk.write(4, 0, &[]);
    disk.start(4);
    assert!(!supersede(&mut disk, 0, started) && !supersede(&mut disk, 0, PatchId::COMMITTED));
    disk.soft(0, 16, &[]);
    assert!(!supersede(&mut disk, 0, other) && !supersede(&mut disk, 199, other));
    for optimisations in ["hard", "merge", "none"] {
        let mut disk = Disk::new(optimisations);
        disk.write(0, 0, &[]);
        let by = disk.write(1, 0, &[]);
        assert!(!supersede(&mut disk, 0, by), "{optimisations}");
    }
}

#[test]
fn a_change_that_the_bytes_show_already_joins_a_run() {
    let mut disk = Disk::new("both");
    let change = Change::Bytes {
        offset_bytes: 0,
        bytes: &[1; 8],
    };
    let graph = &mut disk.graph;
    let run = graph.create_in_run_as_given(BlockId(0), change, (&[]).into(), PatchId::COMMITTED);
    let run = run.expect("nothing is pending on its block");
    assert_eq!(
        graph.create_in_run_as_given(BlockId(1), change, (&[]).into(), run),
        Some(run)
    );
    assert_eq!(
        graph.create_in_run_as_given(BlockId(1), change, (&[]).into(), run),
        None
    );
    assert_eq!(graph.run_at(BlockId(1)), Some(run));
}

#[test]
fn a_released_patch_takes_no_further_dependency() {
    let mut disk = Disk::new("both");
    let (first, second) = (disk.write(0, 0, &[]), disk.write(1, 0, &[]));
    let empty = disk.graph.create_empty(&[first], None, true);
    assert_eq!(disk.graph.add_dependency(empty, second), Ok(()));
    let third = disk.write(2, 0, &[]);
    disk.graph.release(empty);
    for released in [empty, first] {
        let refused = Err(DependencyError::Released { empty: released });
        assert_eq!(disk.graph.add_dependency(released, third), refused);
    }
    assert!(!disk.graph.waits_directly(empty, third));
}

#[test]
fn a_snapshot_says_how_what_is_pending_is_taken_back() {
    let mut disk = Disk::new("none");
    disk.write(0, 0, &[]);
    disk.flip(1, 3, &[]);
    disk.hold();
    let undo_of = |disk: &Disk| -> Vec<UndoData> {
        let snapshot = disk.graph.snapshot();
        snapshot.into_iter().map(|shown| shown.undo).collect()
    };
    let old = (0, vec![0xee; 8].into_boxed_slice());
    let flip = UndoData::Flip {
        offset_bytes: 4,
        mask: 3,
    };
    let bytes = UndoData::Bytes([old].into());
    assert_eq!(undo_of(&disk), [bytes, flip, UndoData::None]);
    // What is on its way is in every later version of its block.
    disk.start(0);
    disk.start(1);
    assert_eq!(undo_of(&disk), [const { UndoData::None }; 3]);
}
