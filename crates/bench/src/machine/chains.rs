//! Chains: requests to a drive without a volatile cache that name those which they have to follow
//! (Ganger and Patt, "Metadata update performance in file systems", OSDI 1994).
//!
//! What depends on a write in the queue is handed out too, and goes behind it, while what depends on
//! nothing goes wherever the drive likes. Each request is reported done when it is on the medium, so
//! a caller that waits for stable storage waits for its own requests only.

use std::rc::Rc;

use backstitch_store::{Batch, BlockId};
use rustc_hash::FxHashMap;

use super::Machine;
use super::drives::Asked;
use super::requests::MOST_QUEUED;
use super::schedule::Event;

/// The parts of batches that are in the queue, a request each, or several with the same block.
#[derive(Default)]
pub(super) struct Chains {
    /// The part that each request is of, by number.
    parts: FxHashMap<Asked, u64>,
    /// The parts, with their requests that are not done.
    open: FxHashMap<u64, (Batch, Vec<Asked>)>,
    /// The part that writes each of the graph's blocks.
    of_block: FxHashMap<BlockId, u64>,
    next: u64,
}

impl Chains {
    /// The requests that a part has to follow.
    fn before(&self, part: &Batch) -> Vec<Asked> {
        let numbers = part.follows().filter_map(|block| self.of_block.get(&block));
        let open = numbers.filter_map(|number| self.open.get(number));
        open.flat_map(|(_, asked)| asked.iter().copied()).collect()
    }

    fn add(&mut self, part: Batch, asked: Vec<Asked>) {
        let blocks = part.units().iter().map(|block| (*block, self.next));
        self.of_block.extend(blocks);
        self.parts.extend(asked.iter().map(|id| (*id, self.next)));
        self.open.insert(self.next, (part, asked));
        self.next += 1;
    }

    /// The part that is done now that this request is.
    fn done(&mut self, id: Asked) -> Option<Batch> {
        let number = self.parts.remove(&id)?;
        let (_, asked) = self.open.get_mut(&number)?;
        asked.retain(|other| *other != id);
        if !asked.is_empty() {
            return None;
        }
        let (part, _) = self.open.remove(&number)?;
        for block in part.units() {
            self.of_block.remove(block);
        }
        Some(part)
    }
}

/// Reports requests that are done, as long as the machine runs.
pub(super) async fn report_done(machine: Rc<Machine>) {
    loop {
        for id in machine.schedule.take_done() {
            machine.report(id);
        }
        machine.schedule.event(Event::Done).await;
    }
}

impl Machine {
    /// Puts a batch into the drive's queue, each request behind those that it has to follow.
    pub(super) async fn queue_in_chains(&self, batch: Batch) {
        while self.core.borrow().chains.open.len() >= MOST_QUEUED {
            self.schedule.event(Event::News).await;
        }
        let core = &mut *self.core.borrow_mut();
        for part in core.session.split(batch) {
            let before = core.chains.before(&part);
            let mut asked = Vec::new();
            let mut requests = part.writes.iter().flat_map(|(_, requests)| requests);
            let submitted = requests.try_for_each(|request| {
                (self.drives).submit_after(request, &before, None, &mut asked)
            });
            match submitted {
                Ok(()) => {
                    self.schedule.note(&asked);
                    core.chains.add(part, asked);
                }
                Err(error) => core.session.written(part, Err(error), self.now()),
            }
        }
    }

    fn report(&self, id: Asked) {
        let Some(part) = self.core.borrow_mut().chains.done(id) else {
            return;
        };
        self.keep(&part.writes);
        self.written(part, Ok(()));
    }
}
