//! How much memory and how much time the store may take.

use std::time::Duration;

/// How much memory and how much time the store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Buffers, clean and dirty, what the store keeps with each, the patches, edges and undo data
    /// of the changes to them, and what the layout keeps because of them ([`Store::note_held`](crate::Store::note_held)).
    pub memory_bytes: u64,
    /// Bytes that may wait to be written before a writer of more waits too: half of `memory_bytes`
    /// at least. What it takes beyond that half, memory takes beyond `memory_bytes`.
    pub dirty_bytes: u64,
    /// Patches alive at once: more would make a sync wait for long.
    pub patches: u64,
    /// How long a change may stay in memory only.
    pub expire: Duration,
    /// The largest request that adjacent blocks are merged into.
    pub request_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory_bytes: 256 << 20,
            dirty_bytes: 0,
            patches: 512 << 10,
            expire: Duration::from_secs(30),
            request_bytes: 1 << 20,
        }
    }
}

impl Limits {
    pub(crate) fn most_dirty_bytes(&self) -> u64 {
        self.dirty_bytes.max(self.memory_bytes / 2)
    }

    /// What memory may take while as much as there may be waits to be written.
    pub fn most_bytes(&self) -> u64 {
        (self.memory_bytes - self.memory_bytes / 2).saturating_add(self.most_dirty_bytes())
    }
}
