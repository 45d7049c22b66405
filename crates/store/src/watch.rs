//! What happens in a store, for recorders: the events of its graph, where blocks are, and the
//! batches. Layers above the store tell their own events through it ([`Store::tell`]).
//!
//! Without a watcher each place that would tell one costs the test of an option. A watcher is
//! called under whatever lock its caller holds: it does no I/O and does not wait.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::WriteRequest;
use backstitch_patch::{BlockId, Event, Hook, PatchId};

use crate::batch::Batch;
use crate::kind::{BlockClass, VolumeId};
use crate::store::Store;

/// Sees what happens, in the order in which it happens.
pub trait Watcher: Send + Sync {
    /// Called after it happened, before the caller goes on.
    fn happened(&self, what: &Happening<'_>);
}

/// Where one of the graph's blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The volume.
    pub volume: VolumeId,
    /// Where it begins there.
    pub offset_bytes: u64,
    /// Its size.
    pub len_bytes: u32,
    /// What it holds.
    pub class: BlockClass,
}

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope<'a> {
    /// A word for it: `create`, `rename`.
    pub word: &'static str,
    /// The objects that it names by their numbers: the directory of each name, or the object.
    pub objects: &'a [u64],
    /// The names, each in the directory at the same place of `objects`.
    pub names: &'a [&'a [u8]],
    /// Where in the object, and how much; 0 where it is not about a range.
    pub range_bytes: (u64, u64),
}

/// Something that happened.
#[derive(Debug)]
pub enum Happening<'a> {
    /// In the graph.
    Patch(&'a Event<'a>),
    /// One of the graph's blocks is this block from now on. May repeat what was told before.
    Place(BlockId, Placement),
    /// An operation begins, at this time: what is changed until it ends belongs to it.
    Begin(Duration, Scope<'a>),
    /// It ends.
    End,
    /// The operation made the object with this number.
    Made(u64),
    /// A batch is put together, at this time. The graph has told of each version before.
    Batch {
        /// When.
        now: Duration,
        /// Its number.
        number: u64,
        /// What it is to bring nearer, in a word.
        goal: &'static str,
        /// What goes to each volume, as it will be on the disk.
        writes: &'a [(VolumeId, Vec<WriteRequest>)],
    },
    /// The batch with this number is on stable storage.
    Flushed(Duration, u64),
    /// The batch with this number failed: nobody knows what of it is on stable storage.
    Failed(u64),
    /// Somebody waits for these patches to be on stable storage, under this ticket.
    Awaited(Duration, u64, &'a [PatchId]),
    /// Nobody waits under this ticket any more.
    Reached(u64),
}

/// Passes the graph's events on.
struct OfGraph(Arc<dyn Watcher>);

impl Hook for OfGraph {
    fn event(&mut self, event: &Event<'_>) {
        self.0.happened(&Happening::Patch(event));
    }
}

impl Store {
    /// Sets the watcher that is told what happens, or none. It is told first of the blocks with
    /// changes that are not on stable storage, and of these changes.
    pub fn watch(&mut self, watcher: Option<Arc<dyn Watcher>>) {
        self.watcher = watcher;
        self.watchers += 1;
        let Some(watcher) = &self.watcher else {
            self.graph.set_hook(None);
            return;
        };
        let mut of_graph = OfGraph(watcher.clone());
        for at in 0..self.dirty.len() {
            self.tell_place(self.dirty[at]);
        }
        self.graph.announce(&mut of_graph);
        self.graph.set_hook(Some(Box::new(of_graph)));
    }

    /// Whether there is a watcher.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watcher.is_some()
    }

    /// Tells the watcher, where there is one.
    #[inline]
    pub fn tell<'h>(&self, what: impl FnOnce() -> Happening<'h>) {
        if let Some(watcher) = &self.watcher {
            watcher.happened(&what());
        }
    }

    /// Tells the watcher that a batch failed: nobody knows what of it is on stable storage.
    pub fn tell_failed(&self, batch: &Batch) {
        self.tell(|| Happening::Failed(batch.number));
    }

    /// Tells the watcher where the units of a slot are, if it has not been told.
    #[inline]
    pub(crate) fn tell_place(&mut self, index: u32) {
        if self.watcher.is_some() && self.slots[index as usize].told_to != self.watchers {
            self.tell_places(index);
        }
    }

    #[cold]
    fn tell_places(&mut self, index: u32) {
        self.slots[index as usize].told_to = self.watchers;
        let slot = &self.slots[index as usize];
        let block_bytes = slot.data.len() as u64;
        for unit in self.units(index) {
            let range = self.range_of(unit);
            let placement = Placement {
                volume: slot.key.volume,
                offset_bytes: slot.key.block * block_bytes + range.start as u64,
                len_bytes: range.len() as u32,
                class: slot.class,
            };
            self.tell(|| Happening::Place(unit, placement));
        }
    }
}
