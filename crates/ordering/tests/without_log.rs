//! The mechanisms that order writes without a log and without waiting: what they have written, and
//! when.

use std::time::Duration;

use backstitch_device::Buffer;
use backstitch_ordering::rules::Rule;
use backstitch_ordering::{
    AMOM_DELAYED, AMOM_IMMEDIATE, AMOM_PERIODIC, BlockClass, BlockNumber, INTERBUFFER, Mechanism,
    MechanismKind, Operation, PatchId, SCHEDULER, Volume, VolumeId,
};
use backstitch_rules::watch::{self, Form};
use backstitch_store::{Goal, Limits, Optimisations, Store};

const BLOCK: u32 = 1024;
const NAMES: Operation<'static> = Operation::Touch { object: 2 };
const CONTENTS: Operation<'static> = Operation::Resize {
    object: 2,
    size_bytes: 0,
};

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A volume of sixteen blocks in memory.
struct Bench {
    store: Store,
    volume: VolumeId,
    mechanism: Box<dyn Mechanism>,
}

impl Bench {
    fn new(kind: &dyn MechanismKind) -> Bench {
        let mut store = Store::new(Limits::default(), Optimisations::BOTH);
        let volume = store.add_volume(BLOCK);
        for block in 0..16 {
            let bytes: Buffer = vec![0; BLOCK as usize].into();
            store.insert(volume, block, BlockClass::Metadata, bytes);
        }
        let mechanism = kind.make(None).expect("it has no log");
        store.write_back_with_rollback(mechanism.writes_with_rollback());
        Bench {
            store,
            volume,
            mechanism,
        }
    }

    /// An operation that changes some blocks, each change after the one before it: the patches, and
    /// what its caller waits for.
    fn operation(
        &mut self,
        operation: Operation<'static>,
        blocks: &[(u64, usize)],
    ) -> (Vec<PatchId>, Vec<PatchId>) {
        let (mechanism, mut wait_for) = (&mut *self.mechanism, Vec::new());
        let mut volume = Volume::new(&mut self.store, mechanism, self.volume, Duration::ZERO);
        volume.begin(operation);
        let mut made: Vec<PatchId> = Vec::new();
        for (block, offset) in blocks {
            let after: Vec<PatchId> = made.last().copied().into_iter().collect();
            made.push(volume.write(
                BlockNumber(*block),
                BlockClass::Metadata,
                *offset,
                &[1; 4],
                &after,
            ));
        }
        volume.end(&mut wait_for);
        (made, wait_for)
    }

    /// What is issued now.
    fn tick(&mut self, now: Duration, hurry: bool) -> Vec<PatchId> {
        let mut issued = Vec::new();
        self.mechanism
            .tick(&mut self.store, now, hurry, &mut issued);
        issued
    }

    /// Writes one batch; the blocks in it.
    fn write(&mut self, goal: Goal<'_>) -> Vec<u64> {
        let batch = self.store.next_batch(goal, Duration::ZERO, u64::MAX);
        let requests = batch.writes.iter().flat_map(|(_, requests)| requests);
        let blocks = requests.flat_map(|request| {
            let first = request.offset_bytes / u64::from(BLOCK);
            (0..request.buffers.len() as u64).map(move |index| first + index)
        });
        let blocks = blocks.collect();
        self.store.complete(batch, Duration::ZERO);
        blocks
    }

    fn is_live(&self, id: PatchId) -> bool {
        self.store.graph().is_live(id)
    }
}

#[test]
fn a_scheduler_issues_metadata_at_once_and_nobody_waits() {
    let mut bench = Bench::new(&SCHEDULER);
    let (made, waits) = bench.operation(NAMES, &[(1, 0), (2, 0)]);
    assert!(waits.is_empty());
    assert_eq!(bench.mechanism.next_tick(), Some(Duration::ZERO));
    let issued = bench.tick(at(0), false);
    assert_eq!(issued, made);
    assert_eq!(bench.write(Goal::Patches(&issued)), [1]);
    assert_eq!(bench.write(Goal::Patches(&issued)), [2]);
    assert_eq!(bench.mechanism.next_tick(), None);
    // Pointers to contents are delayed, as under `sync`.
    bench.operation(CONTENTS, &[(3, 0)]);
    assert!(bench.tick(at(0), true).is_empty());
}

#[test]
fn a_scheduler_that_issues_nothing_is_told_from_one_that_does() {
    watch::switch_off(Some((Rule::RequestsAreIssued.into(), Form::Whole)));
    let mut bench = Bench::new(&SCHEDULER);
    bench.operation(NAMES, &[(1, 0)]);
    assert!(bench.tick(at(0), false).is_empty());
    watch::switch_off(None);
}

#[test]
fn a_circle_of_blocks_is_broken_before_the_operation_returns() {
    let mut bench = Bench::new(&INTERBUFFER);
    let (_, waits) = bench.operation(NAMES, &[(1, 0), (2, 0)]);
    assert!(waits.is_empty(), "block after block");
    let (made, waits) = bench.operation(NAMES, &[(2, 8), (1, 8)]);
    assert_eq!(waits, [made[0]], "what the second change comes after");
    while bench.is_live(waits[0]) {
        assert!(!bench.write(Goal::Patches(&waits)).is_empty());
    }
    // What is left needs no rollback.
    let before = bench.store.graph().counters().rollbacks;
    while !bench.write(Goal::All).is_empty() {}
    assert!(!bench.store.is_dirty());
    assert_eq!(bench.store.graph().counters().rollbacks, before);
}

#[test]
fn a_circle_that_is_not_broken_keeps_its_blocks_from_the_disk() {
    watch::switch_off(Some((Rule::CircleIsBroken.into(), Form::Whole)));
    let mut bench = Bench::new(&INTERBUFFER);
    bench.operation(NAMES, &[(1, 0), (2, 0)]);
    let (_, waits) = bench.operation(NAMES, &[(2, 8), (1, 8)]);
    assert!(waits.is_empty());
    assert!(bench.write(Goal::All).is_empty());
    assert!(bench.store.is_dirty());
    watch::switch_off(None);
}

#[test]
fn with_rollbacks_in_write_back_blocks_are_not_ordered_as_wholes() {
    watch::switch_off(Some((Rule::WrittenWithoutRollback.into(), Form::Whole)));
    let mut bench = Bench::new(&INTERBUFFER);
    watch::switch_off(Some((Rule::CircleIsBroken.into(), Form::Whole)));
    bench.operation(NAMES, &[(1, 0), (2, 0)]);
    bench.operation(NAMES, &[(2, 8), (1, 8)]);
    while !bench.write(Goal::All).is_empty() {}
    assert!(!bench.store.is_dirty());
    assert!(bench.store.graph().counters().rollbacks > 0);
    watch::switch_off(None);
}

/// Figure 7: two directories made in one parent have their elements in common.
#[test]
fn related_operations_share_the_elements_of_the_ring() {
    let mut bench = Bench::new(&AMOM_DELAYED);
    // A directory's block, its inode, the parent's block, the parent's inode.
    let (first, waits) = bench.operation(NAMES, &[(1, 0), (2, 0), (3, 0), (4, 0)]);
    bench.operation(NAMES, &[(5, 0), (6, 0), (3, 8), (4, 8)]);
    assert!(waits.is_empty());
    let figures = bench.mechanism.figures();
    let figure = |name| figures.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
    assert_eq!(figure("elements"), Some(6));
    assert_eq!(figure("hits"), Some(2));
    assert_eq!(figure("ring_length"), Some(4));
    // Nothing is written before its batch is begun, and each batch with all of it.
    assert!(bench.write(Goal::All).is_empty());
    for (number, blocks) in (0..).zip([[1, 5], [2, 6]]) {
        bench.tick(at(number), true);
        let mut written = bench.write(Goal::All);
        written.sort_unstable();
        assert_eq!(written, blocks);
    }
    for (number, block) in (2..).zip([3, 4]) {
        bench.tick(at(number), true);
        assert_eq!(bench.write(Goal::All), [block]);
    }
    assert!(!bench.is_live(first[3]) && !bench.store.is_dirty());
    // The daemon was busy until the last one: four batches in four steps, with six blocks.
    bench.tick(at(4), true);
    let figures = bench.mechanism.figures();
    let figure = |name| figures.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
    let busy = at(4).as_millis() as u64;
    assert_eq!(figure("busy_milliseconds"), Some(busy));
    assert_eq!(figure("blocks_by_second"), Some(6_000 / busy));
    assert_eq!(figure("ring_length"), Some(0));
}

#[test]
fn a_block_that_what_comes_before_it_is_behind_of_gets_a_second_element() {
    let mut bench = Bench::new(&AMOM_IMMEDIATE);
    bench.operation(NAMES, &[(1, 0), (2, 0)]);
    let (made, _) = bench.operation(NAMES, &[(2, 8), (1, 8)]);
    for block in [1, 2, 1] {
        assert!(bench.is_live(made[1]));
        bench.tick(at(0), false);
        assert_eq!(bench.write(Goal::All), [block]);
    }
    assert!(!bench.store.is_dirty());
}

#[test]
fn the_next_batch_is_begun_when_the_policy_says() {
    let begun_at = |kind: &dyn MechanismKind| -> [u64; 2] {
        let mut bench = Bench::new(kind);
        let mut now = 50;
        bench.operation(NAMES, &[(1, 0), (2, 0)]);
        [(); 2].map(|()| {
            while bench.tick(at(now), false).is_empty() {
                now += 10;
            }
            // The device takes 20 ms, and until then nothing more is begun.
            now += 20;
            assert!(bench.tick(at(now + 10_000), true).is_empty());
            bench.write(Goal::All);
            now - 20
        })
    };
    assert_eq!(begun_at(&AMOM_IMMEDIATE), [50, 70]);
    assert_eq!(begun_at(&AMOM_DELAYED), [1050, 2070]);
    assert_eq!(begun_at(&AMOM_PERIODIC), [3000, 6000]);
}
