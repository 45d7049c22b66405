//! Order that a device's queue keeps: what a patch waits for need not be on disk before the patch
//! is sent, it need only have been sent earlier.
//!
//! Ganger and Patt call this scheduler-enforced ordering, and the lists of requests that a request
//! has to follow *chains*. With it a patch in flight holds nobody back: what depends on it may go
//! at once, in a request that names the requests before it ([`Graph::take_chain`]). A patch still
//! commits only when it is on disk: only then do ids die and tokens fire, so nothing that waits for
//! stable storage, such as the reuse of a block, happens earlier than otherwise.
//!
//! An empty patch or a run is *passed* when all of what it stands for has been sent. Dependencies
//! on what was sent or passed are no edges. They are kept here, of patches with a block by block:
//! whatever changes of the block are merged or rolled back, its next version follows them all. That
//! may be more than its patches need, and never less. No circle can come of it, since a request
//! only follows earlier ones.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::block::NIL;
use crate::graph::Graph;
use crate::patch::State;
use crate::planted::Planted;
use crate::{BlockId, Event, PatchId};

/// What was sent, and what has to follow it.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// What the next version of a block follows.
    of_block: FxHashMap<u32, Vec<PatchId>>,
    /// What an empty patch or a run follows.
    of_patch: FxHashMap<PatchId, Vec<PatchId>>,
    /// The empty patches and runs that follow a patch.
    followers: FxHashMap<PatchId, Vec<PatchId>>,
    /// Empty patches and runs that were passed.
    passed: FxHashSet<PatchId>,
    /// The blocks of a run that are, or were, in flight with it.
    sent_of_run: FxHashMap<PatchId, Vec<u32>>,
}

impl Graph {
    /// From now on order is kept by the queue of the device: patches may go behind others that are
    /// in flight. To be called before any patch is made.
    pub fn order_by_queue(&mut self) {
        debug_assert!(self.patches.is_empty(), "patches were made already");
        self.trail = Some(Box::default());
    }

    /// Whether order is kept by the queue of the device.
    pub fn is_ordered_by_queue(&self) -> bool {
        self.trail.is_some()
    }

    /// After [`start_write`](Self::start_write): the blocks in flight that this version has to
    /// follow, each once and in order.
    pub fn take_chain(&mut self, block: BlockId) -> Vec<BlockId> {
        let mut chain = Vec::new();
        let run = (self.blocks.get(block.0 as usize)).and_then(|b| b.run_in_flight());
        let run = run.map(|run| self.id_of(run));
        let Some(trail) = &mut self.trail else {
            return chain;
        };
        let mut todo = trail.of_block.remove(&block.0).unwrap_or_default();
        todo.extend(
            run.into_iter()
                .filter_map(|run| trail.of_patch.get(&run))
                .flatten(),
        );
        let mut seen = FxHashSet::default();
        while let Some(id) = todo.pop() {
            let Some(index) = self.index_of(id).filter(|_| seen.insert(id)) else {
                continue;
            };
            let p = &self.patches[index as usize];
            if p.block != NIL {
                chain.push(BlockId(p.block));
            }
            let Some(trail) = &self.trail else { break };
            if !self.planted(Planted::ChainStopsAtEmpty) {
                todo.extend(trail.of_patch.get(&id).into_iter().flatten());
            }
            let sent = trail.sent_of_run.get(&id).into_iter().flatten();
            let sent = sent.filter(|_| !self.planted(Planted::ChainForgetsRuns));
            let is_there = |b: &&u32| self.blocks[**b as usize].run_in_flight() == Some(index);
            chain.extend(sent.filter(is_there).map(|b| BlockId(*b)));
        }
        chain.retain(|before| *before != block);
        chain.sort_unstable();
        chain.dedup();
        chain
    }

    /// Where order is kept by the queue, and `before` was sent or passed, notes that `after`
    /// follows it: then no edge is needed.
    pub(crate) fn follows(&mut self, after: u32, before: u32) -> bool {
        if self.trail.is_none() {
            return false;
        }
        let is_sent = self.patches[before as usize].in_flight || self.is_passed(before);
        if is_sent {
            self.note_follower(after, before);
            if self.hook.is_some() {
                let (after, before) = (self.id_of(after), self.id_of(before));
                self.emit(&Event::Wait { after, before });
            }
        }
        is_sent
    }

    /// Whether everything that an empty patch or a run stands for was sent.
    pub(crate) fn is_passed(&self, index: u32) -> bool {
        let trail = self.trail.as_ref();
        trail.is_some_and(|trail| trail.passed.contains(&self.id_of(index)))
    }

    fn note_follower(&mut self, after: u32, before: u32) {
        let (id, before) = (self.id_of(after), self.id_of(before));
        let forgets = self.planted(Planted::ChainKeepsOnlyLast);
        let block = self.patches[after as usize].block;
        let Some(trail) = &mut self.trail else { return };
        let list = match block {
            NIL => {
                trail.followers.entry(before).or_default().push(id);
                trail.of_patch.entry(id).or_default()
            }
            _ => trail.of_block.entry(block).or_default(),
        };
        if forgets {
            list.clear();
        }
        if list.last() != Some(&before) {
            list.push(before);
        }
    }

    /// What an empty patch or a run follows.
    pub(crate) fn followed_by(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        let id = self.id_of(index);
        let trail = self.trail.iter();
        let list = trail.filter_map(move |trail| trail.of_patch.get(&id));
        list.flatten().filter_map(|before| self.index_of(*before))
    }

    /// Whether an empty patch or a run follows something that is not on disk.
    pub(crate) fn is_behind(&self, index: u32) -> bool {
        let Some(trail) = &self.trail else {
            return false;
        };
        let list = trail.of_patch.get(&self.id_of(index));
        let commits_early = self.planted(Planted::EmptyCommitsWhenPassed)
            && self.patches[index as usize].state == State::Empty;
        !commits_early && list.is_some_and(|list| list.iter().any(|id| self.is_live(*id)))
    }

    /// Patches of a version, and the run whose part it is, were sent: what depends on them may be
    /// sent behind them.
    pub(crate) fn pass_sent(&mut self, block: BlockId, run: Option<u32>, chosen: &[u32]) {
        if self.trail.is_none() {
            return;
        }
        if let Some(run) = run {
            let id = self.id_of(run);
            if let Some(trail) = &mut self.trail {
                trail.sent_of_run.entry(id).or_default().push(block.0);
            }
            if self.is_sent_run(run) {
                self.pass(run);
            }
        }
        for index in chosen {
            self.pass(*index);
        }
    }

    /// Whether all blocks of a run were sent, and all that it waits for.
    fn is_sent_run(&self, run: u32) -> bool {
        let p = &self.patches[run as usize];
        p.state == State::Run && p.ready && p.held && p.len == NIL && p.befores == NIL
    }

    /// What depends on a patch that was sent, or stands for patches that were, follows it from now
    /// on.
    pub(crate) fn pass(&mut self, index: u32) {
        let mut work = vec![index];
        while let Some(index) = work.pop() {
            let id = self.id_of(index);
            if self.patches[index as usize].block == NIL
                && let Some(trail) = &mut self.trail
            {
                trail.passed.insert(id);
            }
            while self.patches[index as usize].afters != NIL {
                let edge = self.patches[index as usize].afters;
                let after = self.edges[edge as usize].after;
                self.remove_edge(edge);
                self.note_follower(after, index);
                let q = &self.patches[after as usize];
                let waits = q.befores != NIL;
                match q.state {
                    State::Run => {
                        self.update_run(after);
                        if self.is_sent_run(after) {
                            work.push(after);
                        }
                    }
                    State::Empty if waits => {}
                    State::Empty if q.held && !self.planted(Planted::HeldIsPassed) => {}
                    State::Empty => work.push(after),
                    _ if !waits => self.update_ready(after),
                    _ => {}
                }
            }
        }
    }

    /// The block's part of a run became a patch of its own: it follows what the run does.
    pub(crate) fn part_follows(&mut self, run: u32, block: BlockId) {
        let run = self.id_of(run);
        if let Some(trail) = &mut self.trail
            && let Some(list) = trail.of_patch.get(&run)
        {
            let list = list.clone();
            trail.of_block.entry(block.0).or_default().extend(list);
        }
    }

    /// A patch is on disk. Appends the empty patches and runs that may commit now.
    pub(crate) fn end_trail(&mut self, id: PatchId, work: &mut Vec<u32>) {
        let Some(trail) = &mut self.trail else { return };
        trail.of_patch.remove(&id);
        trail.passed.remove(&id);
        trail.sent_of_run.remove(&id);
        for follower in trail.followers.remove(&id).unwrap_or_default() {
            let Some(index) = self.index_of(follower) else {
                continue;
            };
            let p = &self.patches[index as usize];
            let may_commit = match p.state {
                State::Empty => !p.held && p.befores == NIL && !self.is_behind(index),
                State::Run => self.run_is_done(index),
                _ => false,
            };
            if may_commit && !work.contains(&index) {
                work.push(index);
            }
        }
    }
}
