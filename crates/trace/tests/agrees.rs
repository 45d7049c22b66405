//! The state that follows from a trace is the graph that was recorded, after every step.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, MemoryDevice, WriteRequest};
use backstitch_patch::{
    BlockId, Change, Event, Graph, Hook, Optimisations, PatchId, Standing as Stand, Stating,
    Version,
};
use backstitch_store::{BlockClass, Buffer, Goal, Happening, Limits, Store, Watcher, drive};
use backstitch_trace::replay::replay;
use backstitch_trace::stats::Stats;
use backstitch_trace::{Error, Keep, Recorder, Recording, State, Trace};

const BLOCKS: u32 = 6;
const BLOCK_BYTES: usize = 64;
/// More than any trace here has.
const MOST_BYTES: usize = 64 << 20;

struct ToRecorder(Arc<Recorder>);

impl Hook for ToRecorder {
    fn event(&mut self, event: &Event<'_>) {
        self.0.happened(&Happening::Patch(event));
    }
}

/// A graph that changes at random, and the patches that its caller was told of.
struct Run {
    graph: Graph,
    blocks: Vec<Vec<u8>>,
    ids: Vec<PatchId>,
    held: Vec<PatchId>,
    in_flight: Vec<BlockId>,
    random: fastrand::Rng,
}

impl Run {
    fn new(optimisations: Optimisations, seed: u64) -> Run {
        Run {
            graph: Graph::new(optimisations),
            blocks: vec![vec![0; BLOCK_BYTES]; BLOCKS as usize],
            ids: Vec::new(),
            held: Vec::new(),
            in_flight: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn some(&mut self) -> Vec<PatchId> {
        let count = self.random.usize(0..3).min(self.ids.len());
        let last = self.ids.len();
        let back = |r: &mut fastrand::Rng| r.usize(1..=last.min(12));
        (0..count)
            .map(|_| self.ids[last - back(&mut self.random)])
            .collect()
    }

    fn change(&mut self) {
        let block = self.random.u32(0..BLOCKS);
        let after = self.some();
        let bytes = &mut self.blocks[block as usize];
        let data = [self.random.u8(..); 4];
        let offset_bytes = self.random.u32(0..8) * 4;
        let change = match self.random.bool() {
            true => Change::Bytes {
                offset_bytes,
                bytes: &data,
            },
            false => Change::Flip {
                offset_bytes,
                mask: 1 << self.random.u32(0..6),
            },
        };
        let standing = match self.random.u8(0..6) {
            0 => Stand::WithUndo,
            1 => Stand::Apart,
            _ => Stand::Together,
        };
        let stating = Stating {
            after: &after,
            standing,
        };
        let id = match self.random.u8(0..4) {
            0 => {
                let run = self.ids.last().copied().unwrap_or(PatchId::COMMITTED);
                let stating = Stating {
                    after: &[],
                    standing,
                };
                (self.graph).create_in_run(BlockId(block), bytes, change, stating, run)
            }
            _ => self.graph.create(BlockId(block), bytes, change, stating),
        };
        self.ids.push(id);
    }

    fn step(&mut self) {
        let block = BlockId(self.random.u32(0..BLOCKS));
        match self.random.u8(0..20) {
            0 => {
                let of = self.some();
                let is_held = self.random.bool();
                let id = self.graph.create_empty(&of, None, is_held);
                self.ids.push(id);
                self.held.extend(is_held.then_some(id));
            }
            1 => {
                if let (Some(empty), Some(on)) = (self.held.last(), self.ids.last()) {
                    let _ = self.graph.add_dependency(*empty, *on);
                }
            }
            2 => {
                if let Some(empty) = self.held.pop() {
                    self.graph.release(empty);
                }
            }
            3 => drop(self.graph.take_from_run(block)),
            4 => drop(self.graph.leave_run(block)),
            5 => {
                if let Some(by) = self.ids.last().copied() {
                    self.graph.supersede(block, by);
                }
            }
            6 => self.graph.discard(block),
            7 => {
                let of = self.some();
                self.graph.settle(&of);
            }
            8..=10 => {
                let bytes = self.blocks[block.0 as usize].clone();
                if self.graph.start_write(block, &bytes) != Version::Nothing {
                    self.in_flight.push(block);
                }
            }
            11 | 12 => {
                if !self.in_flight.is_empty() {
                    let at = self.random.usize(0..self.in_flight.len());
                    let block = self.in_flight.swap_remove(at);
                    self.graph.complete_write(block);
                }
            }
            _ => self.change(),
        }
    }
}

impl Run {
    /// Puts everything onto the disk.
    fn drain(&mut self) {
        for empty in std::mem::take(&mut self.held) {
            self.graph.release(empty);
        }
        for _ in 0..10_000 {
            for block in self.in_flight.drain(..) {
                self.graph.complete_write(block);
            }
            if self.graph.counters().live == 0 {
                return;
            }
            for block in (0..BLOCKS).map(BlockId) {
                let bytes = &self.blocks[block.0 as usize];
                if self.graph.start_write(block, bytes) != Version::Nothing {
                    self.in_flight.push(block);
                }
            }
        }
        panic!("{} patches are left", self.graph.counters().live);
    }
}

fn state_of(recorder: &Recorder) -> State {
    let bytes = recorder.finish();
    let trace = Trace::new(&bytes).unwrap();
    let mut state = State::of(&trace, Keep::Live);
    let (mut records, mut list) = (trace.records(), Vec::new());
    while let Some((_, record)) = records.next(&mut list).unwrap() {
        state.apply(&record);
    }
    state
}

/// What the graph has is what the state has.
fn compare(run: &Run, recorder: &Recorder, context: &str) {
    let numbers: Vec<(PatchId, u64)> = run
        .ids
        .iter()
        .filter(|id| run.graph.is_live(**id))
        .map(|id| {
            (
                *id,
                recorder.number_of(*id).expect("a live patch was recorded"),
            )
        })
        .collect();
    let number_of = |id: PatchId| recorder.number_of(id);
    let wanted: Vec<BTreeSet<u64>> = numbers
        .iter()
        .map(|(id, _)| {
            let befores = run.graph.dependencies(*id);
            befores
                .iter()
                .filter_map(|(id, _)| number_of(*id))
                .collect()
        })
        .collect();
    let state = state_of(recorder);
    assert_eq!(state.mismatches, 0, "{context}");
    for ((id, number), wanted) in numbers.iter().zip(&wanted) {
        let patch = state.patch(*number);
        let patch = patch.unwrap_or_else(|| panic!("{context}: p{number} is not there"));
        let found: BTreeSet<u64> = patch.befores.iter().map(|b| state.resolved(*b)).collect();
        let wanted: BTreeSet<u64> = wanted.iter().map(|b| state.resolved(*b)).collect();
        let info = run.graph.info(*id).unwrap();
        assert_eq!(found, wanted, "{context}: p{number}, {info:?}");
        assert_eq!(patch.kind, info.kind, "{context}: p{number}");
    }
    if run.graph.counters().live == 0 {
        let left: Vec<_> = state.patches().collect();
        assert!(left.is_empty(), "{context}: {left:?}");
    }
    // Blocks agree on whether anything is not written.
    for block in 0..BLOCKS {
        let left = state.left_out(block, &[]).len() as u32;
        let counted = run.graph.uncommitted_count(BlockId(block));
        assert_eq!(left, counted, "{context}: block {block}");
    }
}

fn record(optimisations: Optimisations, seed: u64, before: usize, steps: usize, ring: bool) {
    let context = format!("{optimisations:?}, seed {seed}, {before} steps before {steps}, {ring}");
    let mut run = Run::new(optimisations, seed);
    for _ in 0..before {
        run.step();
    }
    let recording = Recording::default();
    let recorder = Arc::new(match ring {
        // Each chunk but the last is dropped.
        true => Recorder::of_the_last(&recording, 1),
        false => Recorder::in_memory(&recording, MOST_BYTES),
    });
    let mut hook = ToRecorder(recorder.clone());
    run.graph.announce(&mut hook);
    run.graph.set_hook(Some(Box::new(hook)));
    for _ in 0..steps {
        run.step();
    }
    if seed % 4 == 3 {
        run.drain();
    }
    compare(&run, &recorder, &context);
}

#[test]
fn a_trace_from_the_beginning_gives_the_graph() {
    for seed in 0..400 {
        for optimisations in [Optimisations::BOTH, Optimisations::NONE] {
            record(optimisations, seed, 0, 1 + seed as usize % 120, false);
        }
    }
}

#[test]
fn a_recorder_that_comes_later_is_told_what_there_is() {
    for seed in 0..400 {
        for optimisations in [Optimisations::BOTH, Optimisations::NONE] {
            record(
                optimisations,
                seed,
                10 + seed as usize % 90,
                seed as usize % 60,
                false,
            );
        }
    }
}

#[test]
fn what_falls_out_of_a_ring_is_made_up_for_by_its_state() {
    for seed in 0..3 {
        record(Optimisations::BOTH, seed, 0, 60_000, true);
    }
}

#[test]
fn equal_runs_give_equal_traces() {
    let trace = |seed| {
        let mut run = Run::new(Optimisations::BOTH, seed);
        let recorder = Arc::new(Recorder::in_memory(&Recording::default(), MOST_BYTES));
        let hook = ToRecorder(recorder.clone());
        run.graph.set_hook(Some(Box::new(hook)));
        for _ in 0..2_000 {
            run.step();
        }
        recorder.finish()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

/// Blocks of a store in memory change at random, in units of `unit_bytes`, and are written: the trace of
/// that, and the device before and after it.
fn store_run(seed: u64, unit_bytes: u32, with_contents: bool) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    const BLOCKS: u64 = 24;
    const BLOCK_BYTES: usize = 2048;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut store = Store::new(Limits::default(), Optimisations::BOTH);
    let volume = store.add_volume_with_units(BLOCK_BYTES as u32, unit_bytes);
    let memory = Arc::new(MemoryDevice::new(BLOCKS as usize * BLOCK_BYTES));
    let devices: Vec<Arc<dyn BlockDevice>> = vec![memory.clone()];
    for block in 0..BLOCKS {
        let zeros = Buffer::zeroed(BLOCK_BYTES);
        store.insert(volume, block, BlockClass::Metadata, zeros);
    }
    let before = memory.snapshot();
    let recording = Recording {
        with_contents,
        ..Recording::default()
    };
    let recorder = Arc::new(Recorder::in_memory(&recording, MOST_BYTES));
    store.watch(Some(recorder.clone()));
    let mut ids = vec![PatchId::COMMITTED];
    let mut now = Duration::ZERO;
    for _ in 0..600 {
        now += Duration::from_millis(random.u64(0..50));
        let data = vec![random.u8(..); random.usize(1..40)];
        let change = Change::Bytes {
            offset_bytes: random.u32(0..2000),
            bytes: &data,
        };
        let after = [ids[random.usize(0..ids.len())], ids[ids.len() - 1]];
        let block = random.u64(0..BLOCKS);
        let class = match block % 3 {
            0 => BlockClass::Directory,
            _ => BlockClass::Metadata,
        };
        ids.push(store.patch(volume, block, class, change, (&after).into(), now));
        if random.u8(0..20) == 0 {
            let goal = match random.bool() {
                true => Goal::All,
                false => Goal::Patches(&ids[ids.len() - 1..]),
            };
            let batch = store.next_batch(goal, now, 8 << 10);
            drive::perform(&devices, &batch.writes).unwrap();
            store.complete(batch, now);
        }
    }
    drive::write_out(&mut store, &devices, Goal::All, now).unwrap();
    assert!(!store.is_dirty());
    (recorder.finish(), before, memory.snapshot())
}

#[test]
fn what_a_store_wrote_is_replayed_to_the_same_bytes() {
    for seed in 0..20 {
        for unit_bytes in [2048, 512] {
            let (bytes, before, after) = store_run(seed, unit_bytes, true);
            let trace = Trace::new(&bytes).unwrap();
            let again = MemoryDevice::from_bytes(before);
            let done = replay(&trace, |volume, offset_bytes, bytes| {
                assert_eq!(volume, 0);
                let buffers = vec![bytes.into()];
                let request = WriteRequest {
                    offset_bytes,
                    buffers,
                };
                again.submit(&[request]).map_err(|error| error.to_string())
            })
            .unwrap();
            assert!(done.batches > 0 && done.left_out == 0, "seed {seed}");
            assert!(again.snapshot() == after, "seed {seed}");
        }
    }
}

#[test]
fn the_state_of_a_store_knows_what_was_rolled_back() {
    let mut rolled_back = 0;
    for seed in 0..20 {
        for unit_bytes in [2048, 512] {
            let (bytes, ..) = store_run(seed, unit_bytes, false);
            let trace = Trace::new(&bytes).unwrap();
            let mut state = State::of(&trace, Keep::Live);
            let (mut records, mut list) = (trace.records(), Vec::new());
            while let Some((_, record)) = records.next(&mut list).unwrap() {
                state.apply(&record);
            }
            assert_eq!(state.mismatches, 0, "seed {seed}");
            assert_eq!(
                state.patches().count(),
                0,
                "seed {seed}: all is on the disk"
            );
            assert_eq!(state.batches_in_flight().count(), 0);
            let stats = Stats::of(&trace).unwrap();
            let patches: u64 = stats.rollbacks.values().sum();
            rolled_back += patches;
            assert_eq!(patches > 0, stats.versions_with_rollback > 0, "seed {seed}");
            assert_eq!(replay(&trace, |_, _, _| Ok(())), Err(Error::NoContents));
        }
    }
    assert!(rolled_back > 100, "{rolled_back}");
}

#[test]
fn equal_runs_of_a_store_give_equal_traces() {
    assert!(store_run(1, 512, true).0 == store_run(1, 512, true).0);
    assert!(store_run(1, 512, true).0 != store_run(2, 512, true).0);
}

#[test]
fn a_file_gets_what_memory_gets() {
    let path = std::env::temp_dir().join(format!("backstitch-trace-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    let recording = Recording::default();
    let recorders = [
        Arc::new(Recorder::in_memory(&recording, MOST_BYTES)),
        Arc::new(Recorder::into_writer(&recording, file).unwrap()),
    ];
    for recorder in &recorders {
        let mut run = Run::new(Optimisations::BOTH, 5);
        run.graph
            .set_hook(Some(Box::new(ToRecorder(recorder.clone()))));
        for _ in 0..20_000 {
            run.step();
        }
    }
    let length = recorders[1].finish_writing().unwrap().bytes;
    let written = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(written.len() as u64, length);
    assert!(written == recorders[0].finish());
}
