//! What `backstitch stats` shows.

use std::collections::BTreeMap;
use std::time::Duration;

use backstitch_layout::{DeferredStatistics, ReclaimProgress};
use backstitch_store::Store;
use serde::{Deserialize, Serialize};

/// Live figures of a mount; the keys are the command line's contract.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Stats {
    /// The mechanism.
    pub ordering: String,
    /// The unit between which order is kept: the block, or what the mount was told.
    pub atomic_unit_bytes: u32,
    /// Operations done.
    pub ops: u64,
    /// The patch graph.
    pub patches: PatchStats,
    /// Undo data.
    pub undo: UndoStats,
    /// Patches that were left out of a version written.
    pub rollbacks: u64,
    /// Versions of blocks written.
    pub blocks_written: u64,
    /// Of these, blocks written again only because of a rollback.
    pub blocks_rewritten_for_rollback: u64,
    /// Bytes read from the device since the mount.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Requests, adjacent blocks merged.
    pub write_requests: u64,
    /// Flushes.
    pub flushes: u64,
    /// Calls that had to wait for something to be on stable storage: fsyncs and their like,
    /// synchronous writes, and syncs.
    pub waits: u64,
    /// Batches that were written for them; each took a flush. Calls at the same time share them.
    pub waited_batches: u64,
    /// Writing out changes that no caller waits for.
    pub syncer: SyncerStats,
    /// Batches written again after the device had failed.
    pub write_retries: u64,
    /// Buffers.
    pub cache: CacheStats,
    /// Buffers, dependencies and deferred work together, and their bound.
    pub memory: MemoryStats,
    /// Operations that waited until something was written, by cause.
    pub stalls: StallStats,
    /// Deferred work.
    pub deferred: DeferredStats,
    /// The reclaim of what a crash left.
    pub reclaim: ReclaimStats,
    /// What the mechanism counts; which figures depends on it.
    pub mechanism: BTreeMap<String, u64>,
    /// Patchgroups.
    pub patchgroups: GroupStats,
    /// Why nothing can be changed, if so.
    pub read_only: Option<String>,
}

/// Figures of the patch graph.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct PatchStats {
    /// Alive now.
    pub live: u64,
    /// Alive at most.
    pub peak: u64,
    /// Ever created.
    pub created: u64,
    /// Of those created, empty ones: they change nothing and only carry dependencies.
    pub created_empty: u64,
    /// Of those created, hard ones: without undo data.
    pub hard: u64,
    /// Of those created, runs: the contents of several blocks.
    pub runs: u64,
    /// Changes merged into hard patches.
    pub merged_hard: u64,
    /// Changes merged into patches that they overlap.
    pub merged_overlap: u64,
    /// Flips merged into patches of other bits of the same word.
    pub merged_bits: u64,
    /// Soft patches made hard later.
    pub converted_to_hard: u64,
    /// Bytes for patches, edges and undo data now.
    pub bytes_live: u64,
    /// The same at most.
    pub bytes_peak: u64,
}

/// Figures of undo data.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct UndoStats {
    /// Held now.
    pub bytes_live: u64,
    /// Held at most.
    pub bytes_peak: u64,
    /// Ever held.
    pub bytes_total: u64,
}

/// Figures of the buffers.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct CacheStats {
    /// Blocks in memory.
    pub blocks: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// The same at most.
    pub bytes_peak: u64,
    /// Blocks with changes that are not on stable storage.
    pub dirty: u64,
    /// Look-ups that found their block.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
}

/// Figures of all memory that has one bound (`cache=`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemoryStats {
    /// The bound, with what may wait to be written.
    pub bound: u64,
    /// Buffers and what is kept with each, patches, edges, undo data and deferred work now.
    pub bytes: u64,
    /// The same at most.
    pub bytes_peak: u64,
    /// The bound on patches alive at once.
    pub patches_bound: u64,
    /// How often an operation had to wait until something was written.
    pub throttled: u64,
    /// For how long, all operations together.
    pub throttled_seconds: f64,
}

/// Operations that had to wait until something was written, by cause. Calls that ask for it (an
/// `fsync`) are not among them.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StallStats {
    /// Memory was full of changes that were not on the disk.
    pub memory: Stall,
    /// The log of the mechanism was full, or its running transaction.
    pub log: Stall,
}

/// Waits of one cause.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Stall {
    /// How many there were.
    pub count: u64,
    /// How long they took together.
    pub seconds: f64,
    /// How long the longest took.
    pub longest_seconds: f64,
}

impl Stall {
    pub(crate) fn note(&mut self, took: Duration) {
        self.seconds += took.as_secs_f64();
        self.longest_seconds = self.longest_seconds.max(took.as_secs_f64());
    }
}

/// Figures of writing out changes that no caller waits for.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct SyncerStats {
    /// The age at which a change is written.
    pub expire_seconds: f64,
    /// The age of the oldest change that is not on stable storage; 0 where there is none.
    pub oldest_seconds: f64,
    /// How often a block was passed over because it would have been written with a rollback.
    pub passed_over: u64,
}

/// Figures of patchgroups.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct GroupStats {
    /// Open now.
    pub open: u64,
    /// Engagements now, of all groups together.
    pub engaged: u64,
    /// Callers that wait to hear that a group is on stable storage.
    pub listeners: u64,
}

/// Figures of deferred work.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct DeferredStats {
    /// Items that wait.
    pub pending: u64,
    /// Items done.
    pub done: u64,
    /// Items that cannot be done, because a block that they need cannot be read.
    pub unreadable: u64,
}

/// Figures of the background reclaim after a crash.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ReclaimStats {
    /// Whether it is under way.
    pub running: bool,
    /// How much of it is done, 0 to 1.
    pub done_fraction: f64,
    /// Blocks that it freed.
    pub freed_blocks: u64,
    /// Inodes that it freed.
    pub freed_inodes: u64,
}

impl Stats {
    /// What a store has counted, with the layout's figures, at a time of the store's clock. The
    /// other figures are zero.
    pub fn of(
        store: &Store,
        deferred: DeferredStatistics,
        reclaim: ReclaimProgress,
        now: Duration,
    ) -> Stats {
        let graph = *store.graph().counters();
        let cache = store.stats();
        Stats {
            patches: PatchStats {
                live: graph.live,
                peak: graph.peak,
                created: graph.created,
                created_empty: graph.created_empty,
                hard: graph.created_hard + graph.created_runs,
                runs: graph.created_runs,
                merged_hard: graph.merged_hard,
                merged_overlap: graph.merged_overlap,
                merged_bits: graph.merged_bits,
                converted_to_hard: graph.converted_to_hard,
                bytes_live: graph.bytes_live(),
                bytes_peak: graph.bytes_peak,
            },
            undo: UndoStats {
                bytes_live: graph.undo_bytes_live,
                bytes_peak: graph.undo_bytes_peak,
                bytes_total: graph.undo_bytes_total,
            },
            rollbacks: graph.rollbacks,
            blocks_written: cache.blocks_written,
            blocks_rewritten_for_rollback: cache.blocks_rewritten_for_rollback,
            bytes_written: cache.bytes_written,
            write_requests: cache.write_requests,
            flushes: cache.flushes,
            syncer: SyncerStats {
                expire_seconds: store.limits().expire.as_secs_f64(),
                oldest_seconds: store
                    .oldest_change()
                    .map_or(0.0, |since| now.saturating_sub(since).as_secs_f64()),
                passed_over: cache.passed_over,
            },
            cache: CacheStats {
                blocks: cache.blocks,
                bytes: cache.bytes,
                bytes_peak: cache.bytes_peak,
                dirty: cache.dirty,
                hits: cache.hits,
                misses: cache.misses,
            },
            deferred: DeferredStats {
                pending: deferred.pending,
                done: deferred.done,
                unreadable: deferred.unreadable,
            },
            reclaim: ReclaimStats {
                running: reclaim.running,
                done_fraction: reclaim.done_fraction,
                freed_blocks: reclaim.freed_blocks,
                freed_inodes: reclaim.freed_inodes,
            },
            ..Stats::default()
        }
    }
}
