//! How much memory and how much time the store may take.

use std::time::Duration;

/// Changes to blocks have 1/`CHANGES_PART` of memory for themselves, at the cost of clean blocks.
/// Only beyond that do they take the room of dirty blocks: otherwise a mechanism with dependencies
/// would write back smaller batches than one without, and more often.
const CHANGES_PART: u64 = 8;

/// How much memory and how much time the store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Buffers, clean and dirty, what the store keeps with each, the patches, edges and undo data
    /// of the changes to them, and what the layout keeps because of them ([`Store::note_held`](crate::Store::note_held)).
    pub memory_bytes: u64,
    /// Bytes that may wait to be written before a writer of more waits too: half of `memory_bytes`
    /// at least. Anything above that half comes on top of `memory_bytes`.
    pub dirty_bytes: u64,
    /// Bytes that changes may hold (patches, edges, undo data, what the layout keeps because of
    /// them) before they take the room of blocks: an eighth of `memory_bytes` at least. Anything
    /// above that eighth comes on top of `memory_bytes`.
    pub changes_bytes: u64,
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
            changes_bytes: 0,
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

    /// Bytes of `memory_bytes` that changes have for themselves.
    pub(crate) fn changes_within_bytes(&self) -> u64 {
        self.memory_bytes / CHANGES_PART
    }

    /// Bytes that changes may hold in all before they take the room of blocks.
    pub(crate) fn most_changes_bytes(&self) -> u64 {
        self.changes_bytes.max(self.changes_within_bytes())
    }

    /// Bytes that memory may take while as much as is allowed waits to be written.
    pub fn most_bytes(&self) -> u64 {
        (self.memory_bytes - self.memory_bytes / 2)
            .saturating_add(self.most_dirty_bytes())
            .saturating_add(self.most_changes_bytes() - self.changes_within_bytes())
    }
}
