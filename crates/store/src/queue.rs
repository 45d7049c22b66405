//! The queue of blocks that have something ready, oldest change first: contents of files apart from
//! everything else.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::BlockClass;

/// In which part of the queue a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Contents,
    Metadata,
}

impl Part {
    pub(crate) fn of(class: BlockClass) -> Part {
        match class {
            BlockClass::Data => Part::Contents,
            _ => Part::Metadata,
        }
    }
}

/// Blocks with something ready. Contents are asked for alone where memory fills up, so they are
/// never looked for among the rest.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    contents: BTreeSet<Place>,
    metadata: BTreeSet<Place>,
}

/// Where a block is in the queue: since when it has been dirty, in nanoseconds, and its slot.
type Place = (u64, u32);

fn place(dirtied: Duration, slot: u32) -> Place {
    // The store's clock counts from its mount: 64 bits last for 584 years.
    let nanos = u64::try_from(dirtied.as_nanos()).unwrap_or(u64::MAX);
    (nanos, slot)
}

impl Queue {
    fn part(&mut self, part: Part) -> &mut BTreeSet<Place> {
        match part {
            Part::Contents => &mut self.contents,
            Part::Metadata => &mut self.metadata,
        }
    }

    pub(crate) fn insert(&mut self, part: Part, dirtied: Duration, slot: u32) {
        self.part(part).insert(place(dirtied, slot));
    }

    pub(crate) fn remove(&mut self, part: Part, dirtied: Duration, slot: u32) {
        let was_there = self.part(part).remove(&place(dirtied, slot));
        debug_assert!(was_there, "slot {slot} is not in the queue");
    }

    /// The slots of one part, oldest change first, of those that were dirtied by `until`.
    pub(crate) fn oldest(&self, part: Part, until: Duration) -> impl Iterator<Item = u32> + '_ {
        let list = match part {
            Part::Contents => &self.contents,
            Part::Metadata => &self.metadata,
        };
        list.range(..=place(until, u32::MAX)).map(|(_, slot)| *slot)
    }

    /// All slots: contents, then the rest.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        let places = self.contents.iter().chain(&self.metadata);
        places.map(|(_, slot)| *slot)
    }
}
