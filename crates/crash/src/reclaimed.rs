//! What recovery and reclaim make of a state, and what crashes inside them leave, computed once for
//! all states that they treat alike.
//!
//! The reclaim is a function of the blocks that it reads. It reads neither contents of files nor
//! what nothing refers to. So it runs over a device that notes what is read, and its changes are
//! stored as differences from the state with which it began. A state with the same bytes in the
//! blocks that were read gets the same changes, whatever else it holds. These changes are applied
//! to each state, and each result is judged by itself, once for the same promises: that two states
//! have the same verdict is never assumed.

use std::rc::Rc;

use backstitch_crash_core::closed::{self, Bounds, Coverage};
use backstitch_crash_core::frontier::Frontier;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Watcher};
use backstitch_crash_core::reads::{ByReads, Reads};
use backstitch_device::Buffer;
use backstitch_store::Batch;
use fastrand::Rng as Random;
use rustc_hash::{FxHashMap, FxHashSet};

/// Bounds for the sets of patches that are tried at each moment.
pub(crate) const INSIDE: Bounds = Bounds {
    exhaustive: 64,
    samples: 16,
};

/// Runs that are remembered at once. One takes about 50 KB.
const MOST_RUNS: usize = 4096;

/// States that are remembered at once. One takes 40 bytes.
const MOST_STATES: usize = 4 << 20;

/// How a state differs from the one that a reclaim began with.
#[derive(Debug)]
pub(crate) struct Change {
    /// The blocks that differ, each with what it adds to the fingerprint.
    blocks: Vec<(u64, Buffer, u128)>,
    /// By how much the fingerprints differ.
    adds: u128,
}

impl Change {
    fn between(start: &Fork, state: &Fork) -> Change {
        let mut adds = 0u128;
        let mut blocks = Vec::new();
        for (block, bytes) in state.changed_blocks() {
            let before = start.changed_block(block);
            if before.is_some_and(|before| before.is_same(bytes)) {
                continue;
            }
            let after = state.adds(block);
            adds = adds.wrapping_add(after).wrapping_sub(start.adds(block));
            blocks.push((block, bytes.clone(), after));
        }
        Change { blocks, adds }
    }

    /// The state that the change makes of `start`.
    pub(crate) fn of(&self, start: &Fork) -> Fork {
        let mut state = start.clone();
        for (block, bytes, adds) in &self.blocks {
            state.set_known(*block, bytes.clone(), *adds);
        }
        state
    }

    /// The fingerprint of that state, given the one of `start`.
    pub(crate) fn fingerprint(&self, start: u128) -> u128 {
        start.wrapping_add(self.adds)
    }
}

/// The result of recovery and reclaim.
#[derive(Debug)]
pub(crate) struct Reclaimed {
    /// The states that crashes inside leave, each once.
    pub(crate) cuts: Vec<Change>,
    /// The state after the unmount, or why it failed.
    pub(crate) end: Result<Change, String>,
    /// Moments at which not every set of patches was tried.
    pub(crate) sampled: u64,
}

/// Collects the states that a crash would leave.
struct Cutter<'s> {
    start: &'s Fork,
    seen: FxHashSet<u128>,
    cuts: Vec<Change>,
    sampled: u64,
}

impl Watcher for Cutter<'_> {
    fn in_flight(&mut self, _mount: &Mount, _batch: &Batch) {}

    fn at_rest(&mut self, mount: &Mount) {
        let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
        let mut random = Random::with_seed(nodes.len() as u64);
        let coverage = closed::visit(&nodes, INSIDE, &mut random, &mut |included| {
            if self.seen.insert(states.fingerprint(&nodes, included)) {
                let state = states.fork(&nodes, included);
                self.cuts.push(Change::between(self.start, &state));
            }
        });
        let sampled = coverage != Coverage::Everything || !states.is_complete;
        self.sampled += u64::from(sampled);
    }
}

/// Reclaims a state to the end. Also returns what was read, unless the state could not be opened.
fn reclaim(start: &Fork, engine: Engine) -> (Option<Reads>, Reclaimed) {
    let mut cutter = Cutter {
        start,
        seen: FxHashSet::default(),
        cuts: Vec::new(),
        sampled: 0,
    };
    let opened = Mount::open_noting(start.clone(), engine, &mut cutter);
    let (reads, end) = match opened {
        Err(error) => (None, Err(format!("reclaim: {error}"))),
        Ok(mut mount) => {
            let ended = mount.unmount(&mut cutter);
            let (reads, left) = mount.take_reads();
            let end = match (ended, mount.fs.read_only_reason()) {
                (Err(error), _) => Err(format!("reclaim: {error}")),
                (Ok(()), Some(reason)) => Err(format!("reclaim: {reason}")),
                (Ok(()), None) => Ok(Change::between(start, &left)),
            };
            (Some(reads), end)
        }
    };
    let reclaimed = Reclaimed {
        cuts: cutter.cuts,
        end,
        sampled: cutter.sampled,
    };
    let reads = reads.map(|mut reads| {
        // A block that is changed in part keeps the rest, so the result depends on it even if
        // nobody read it.
        let end = reclaimed.end.as_ref().ok();
        let changes = reclaimed.cuts.iter().chain(end);
        let mut changed: Vec<u64> = changes
            .flat_map(|change| change.blocks.iter().map(|(block, ..)| *block))
            .collect();
        changed.sort_unstable();
        changed.dedup();
        changed.iter().for_each(|block| reads.also(start, *block));
        reads
    });
    (reads, reclaimed)
}

/// What still has to be asked about a state to which changes were applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// Nothing.
    Nothing,
    /// Whether the promises hold; the rest is known.
    Promises,
    /// Everything.
    All,
}

/// The promises under which a state was found good: the workload's number, and how many promises it
/// had made.
type Promises = (u32, u64);

/// The reclaims of all states of one base, and the verdicts on their results.
#[derive(Debug, Default)]
pub(crate) struct Reclaims {
    /// The base.
    base: Option<Fork>,
    runs: ByReads<Reclaimed>,
    /// Good states that a crash left, and whether a file of theirs maps blocks beyond its end. The
    /// promises decide whether it may.
    left: FxHashMap<u128, (Promises, bool)>,
    /// Good states after a reclaim.
    ended: FxHashMap<u128, Promises>,
    workload: u32,
}

impl Reclaims {
    /// Notes that the promises are those of another workload from now on.
    pub(crate) fn next_workload(&mut self) {
        self.workload += 1;
    }

    /// The result for a state, and whether it was known from another one.
    pub(crate) fn of(&mut self, start: &Fork, engine: Engine) -> (Rc<Reclaimed>, bool) {
        if !self
            .base
            .as_ref()
            .is_some_and(|base| base.has_base_of(start))
        {
            *self = Reclaims {
                base: Some(start.base_fork()),
                workload: self.workload,
                ..Reclaims::default()
            };
        }
        if let Some(known) = self.runs.get(start) {
            return (known, true);
        }
        if self.runs.count() >= MOST_RUNS {
            self.runs = ByReads::default();
        }
        let (reads, reclaimed) = reclaim(start, engine);
        let reclaimed = match reads {
            Some(reads) => self.runs.insert(reads, reclaimed),
            None => Rc::new(reclaimed),
        };
        (reclaimed, false)
    }

    /// What still has to be asked about a state that a crash left.
    pub(crate) fn open_of_left(&self, fingerprint: u128, promises: u64) -> Open {
        match self.left.get(&fingerprint) {
            None => Open::All,
            Some((known, _)) if *known == (self.workload, promises) => Open::Nothing,
            Some((_, true)) => Open::All,
            Some((_, false)) => Open::Promises,
        }
    }

    /// Notes that a state that a crash left is good.
    pub(crate) fn note_left(&mut self, fingerprint: u128, promises: u64, maps_behind: bool) {
        if self.left.len() >= MOST_STATES {
            self.left.clear();
        }
        let promises = (self.workload, promises);
        self.left.insert(fingerprint, (promises, maps_behind));
    }

    /// What still has to be asked about a state after a reclaim.
    pub(crate) fn open_of_ended(&self, fingerprint: u128, promises: u64) -> Open {
        match self.ended.get(&fingerprint) {
            None => Open::All,
            Some(known) if *known == (self.workload, promises) => Open::Nothing,
            Some(_) => Open::Promises,
        }
    }

    /// Notes that a state after a reclaim is good.
    pub(crate) fn note_ended(&mut self, fingerprint: u128, promises: u64) {
        if self.ended.len() >= MOST_STATES {
            self.ended.clear();
        }
        self.ended.insert(fingerprint, (self.workload, promises));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use backstitch_crash_core::formatted::ImageOptions;
    use backstitch_crash_core::mount::Nobody;
    use backstitch_crash_core::operation::parse_script;
    use backstitch_mechanisms::Ordering;
    use backstitch_store::Optimisations;

    /// Collects some of the states that crashes at the moments of a run leave.
    struct Left(Vec<Fork>);

    impl Watcher for Left {
        fn in_flight(&mut self, _mount: &Mount, _batch: &Batch) {}

        fn at_rest(&mut self, mount: &Mount) {
            let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
            let bounds = Bounds {
                exhaustive: 40,
                samples: 40,
            };
            closed::visit(&nodes, bounds, &mut Random::with_seed(5), &mut |included| {
                self.0.push(states.fork(&nodes, included));
            });
        }
    }

    /// A result taken from another state equals that of the state's own reclaim.
    #[test]
    fn what_is_taken_from_another_state_is_what_its_own_reclaim_does() {
        let text = "mkdir A; creat A/f; sync; mkdir B; write A/f 0 9000; creat B/g; write B/g 3000 20000; rename A/f B/h; \
             overwrite B/g 4000 2000; unlink B/g";
        let engine = Engine {
            ordering: Ordering::SOFT,
            optimisations: Optimisations::NONE,
            unit_bytes: None,
        };
        let image = ImageOptions::default().make().unwrap();
        let mut machine = Machine::new(image, engine, &mut Nobody).unwrap();
        let mut left = Left(Vec::new());
        for operation in parse_script(text).unwrap() {
            machine.apply(&operation, &mut left).unwrap();
            left.at_rest(&machine.mount);
        }
        left.0.dedup_by_key(|state| state.fingerprint());
        let mut reclaims = Reclaims::default();
        let mut compared = 0;
        let mut ends = FxHashSet::default();
        for state in &left.0 {
            let (found, was_known) = reclaims.of(state, engine);
            ends.insert(found.end.as_ref().unwrap().of(state).fingerprint());
            if !was_known || compared == 40 {
                continue;
            }
            compared += 1;
            let (_, own) = reclaim(state, engine);
            let start = state.fingerprint();
            let states = |reclaimed: &Reclaimed| -> FxHashSet<u128> {
                let ends = reclaimed.end.iter();
                let changes = reclaimed.cuts.iter().chain(ends);
                let forks = changes.map(|change| (change.of(state), change.fingerprint(start)));
                forks
                    .map(|(fork, fingerprint)| {
                        assert_eq!(fork.fingerprint(), fingerprint);
                        fingerprint
                    })
                    .collect()
            };
            assert_eq!(states(&found), states(&own));
        }
        assert!(compared > 20, "{compared} of {} states", left.0.len());
        // The states differ in blocks that the reclaim does not read.
        assert!(ends.len() > 20, "{} ends", ends.len());
    }
}
