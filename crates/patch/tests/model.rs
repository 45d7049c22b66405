//! The graph against the reference model, with every combination of switches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use backstitch_patch::model::Model;
use backstitch_patch::{BlockId, Change, Event, Graph, Hook, Optimisations, PatchId, Version};
use proptest::prelude::*;

const BLOCKS: u32 = 5;
const BLOCK_BYTES: usize = 24;

#[derive(Clone, Debug)]
enum Step {
    Bytes {
        block: u32,
        offset: u32,
        data: Vec<u8>,
        deps: Vec<u16>,
    },
    Flip {
        block: u32,
        word: u32,
        mask: u32,
        deps: Vec<u16>,
    },
    Empty {
        deps: Vec<u16>,
    },
    Start {
        block: u32,
    },
    Complete {
        block: u32,
    },
}

fn deps() -> impl Strategy<Value = Vec<u16>> {
    // Small numbers mean recent changes: those are where cycles come from.
    prop::collection::vec(prop_oneof![3 => 0u16..6, 1 => 0u16..40], 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..BLOCKS, 0u32..20, prop::collection::vec(any::<u8>(), 1..5), deps())
            .prop_map(|(block, offset, data, deps)| Step::Bytes { block, offset, data, deps }),
        3 => (0..BLOCKS, 0u32..6, 0u32..3, 1u32..8, deps())
            .prop_map(|(block, word, shift, mask, deps)| Step::Flip { block, word: word * 4, mask: mask << shift, deps }),
        1 => deps().prop_map(|deps| Step::Empty { deps }),
        2 => (0..BLOCKS).prop_map(|block| Step::Start { block }),
        2 => (0..BLOCKS).prop_map(|block| Step::Complete { block }),
    ]
}

#[derive(Default)]
struct Seen {
    forwards: Vec<(PatchId, PatchId)>,
    writes: Vec<(BlockId, Vec<PatchId>, Vec<u8>)>,
}

struct Recorder(Arc<Mutex<Seen>>);

impl Hook for Recorder {
    fn event(&mut self, event: &Event<'_>) {
        let mut seen = self.0.lock().unwrap();
        match event {
            Event::Forward { from, to } => seen.forwards.push((*from, *to)),
            Event::Write {
                block,
                patches,
                bytes,
            } => {
                seen.writes.push((*block, patches.to_vec(), bytes.to_vec()));
            }
            _ => {}
        }
    }
}

struct Run {
    graph: Graph,
    model: Model,
    newest: Vec<Vec<u8>>,
    /// Of each change: the patch that its maker was told of.
    ids: Vec<PatchId>,
    /// Of each patch: the changes that it holds.
    held: HashMap<PatchId, Vec<usize>>,
    in_flight: HashMap<BlockId, ()>,
    seen: Arc<Mutex<Seen>>,
}

impl Run {
    fn new(optimisations: Optimisations) -> Run {
        let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|i| vec![i as u8; BLOCK_BYTES]).collect();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut graph = Graph::new(optimisations);
        graph.set_hook(Some(Box::new(Recorder(seen.clone()))));
        Run {
            graph,
            model: Model::new(&blocks),
            newest: blocks,
            ids: Vec::new(),
            held: HashMap::new(),
            in_flight: HashMap::new(),
            seen,
        }
    }

    fn pick(&self, deps: &[u16]) -> (Vec<usize>, Vec<PatchId>) {
        let numbers: Vec<usize> = deps
            .iter()
            .filter_map(|d| self.ids.len().checked_sub(1 + *d as usize))
            .collect();
        let ids = numbers.iter().map(|n| self.ids[*n]).collect();
        (numbers, ids)
    }

    fn create(&mut self, block: u32, change: Change<'_>, deps: &[u16]) {
        let (numbers, ids) = self.pick(deps);
        let number = self.model.create(BlockId(block), change, &numbers);
        let id = self.graph.create(
            BlockId(block),
            &mut self.newest[block as usize],
            change,
            &ids,
        );
        for (from, to) in self.seen.lock().unwrap().forwards.drain(..) {
            let moved = self.held.remove(&from).unwrap_or_default();
            self.held.entry(to).or_default().extend(moved);
        }
        self.held.entry(id).or_default().push(number);
        self.ids.push(id);
    }

    fn apply(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Bytes {
                block,
                offset,
                data,
                deps,
            } => {
                self.create(
                    *block,
                    Change::Bytes {
                        offset_bytes: *offset,
                        bytes: data,
                    },
                    deps,
                );
            }
            Step::Flip {
                block,
                word,
                mask,
                deps,
            } => {
                self.create(
                    *block,
                    Change::Flip {
                        offset_bytes: *word,
                        mask: *mask,
                    },
                    deps,
                );
            }
            Step::Empty { deps } => {
                let (numbers, ids) = self.pick(deps);
                self.model.create_empty(&numbers);
                let id = self.graph.create_empty(&ids, None, false);
                self.ids.push(id);
            }
            Step::Start { block } => {
                self.start(BlockId(*block))?;
            }
            Step::Complete { block } => self.complete(BlockId(*block)),
        }
        for (number, id) in self.ids.iter().enumerate() {
            if self.graph.is_live(*id) == self.model.is_committed(number) {
                return Err(format!(
                    "change {number}: graph and model disagree whether it has committed"
                ));
            }
        }
        for block in 0..BLOCKS {
            if self.newest[block as usize] != self.model.newest(BlockId(block)) {
                return Err(format!("block {block}: newest bytes differ"));
            }
        }
        Ok(())
    }

    fn start(&mut self, block: BlockId) -> Result<bool, String> {
        let version = self
            .graph
            .start_write(block, &self.newest[block.0 as usize]);
        let writes = std::mem::take(&mut self.seen.lock().unwrap().writes);
        if version == Version::Nothing {
            return if writes.is_empty() {
                Ok(false)
            } else {
                Err("a write without a version".into())
            };
        }
        for (block, patches, bytes) in writes {
            let numbers: Vec<usize> = patches
                .iter()
                .flat_map(|p| self.held.get(p).cloned().unwrap_or_default())
                .collect();
            self.model.write(block, &numbers, &bytes)?;
        }
        self.in_flight.insert(block, ());
        Ok(true)
    }

    fn complete(&mut self, block: BlockId) {
        if self.in_flight.remove(&block).is_some() {
            self.graph.complete_write(block);
            self.model.complete(block);
        }
    }

    fn drain(&mut self) -> Result<(), String> {
        for round in 0.. {
            let mut started = false;
            for block in 0..BLOCKS {
                started |= self.start(BlockId(block))?;
            }
            started |= !self.in_flight.is_empty();
            for block in 0..BLOCKS {
                self.complete(BlockId(block));
            }
            if !started {
                break;
            }
            if round > 10_000 {
                return Err("does not drain".into());
            }
        }
        if !self.model.is_drained() {
            return Err("nothing more can be written, but changes are left".into());
        }
        let counters = self.graph.counters();
        if counters.live != 0 || counters.edges_live != 0 || counters.undo_bytes_live != 0 {
            return Err(format!("drained, but not empty: {counters:?}"));
        }
        Ok(())
    }
}

fn check(steps: &[Step], optimisations: Optimisations) -> Result<(), String> {
    let mut run = Run::new(optimisations);
    for step in steps {
        run.apply(step)?;
    }
    run.drain()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn graph_and_model_agree(steps in prop::collection::vec(step(), 1..120)) {
        for hard in [false, true] {
            for merge in [false, true] {
                if let Err(reason) = check(&steps, Optimisations { hard, merge }) {
                    return Err(TestCaseError::fail(format!("hard {hard} merge {merge}: {reason}")));
                }
            }
        }
    }
}
