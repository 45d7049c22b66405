//! What the graph counts as it goes; every figure is one addition on a path that is taken anyway.

/// Figures of a graph since it was made. `live` figures are now, `peak` the largest value seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Patches alive now, empty ones included.
    pub live: u64,
    /// The most patches alive at once.
    pub peak: u64,
    /// Patches created, empty ones included, merged ones not.
    pub created: u64,
    /// Of these, empty patches.
    pub created_empty: u64,
    /// Of these, patches created hard (without undo data).
    pub created_hard: u64,
    /// Of these, runs (the contents of several blocks).
    pub created_runs: u64,
    /// Blocks that are part of a run and not on disk now.
    pub run_blocks_live: u64,
    /// Changes merged into a block's hard patch instead of becoming a patch.
    pub merged_hard: u64,
    /// Changes merged into a soft patch that they overlap.
    pub merged_overlap: u64,
    /// Flips merged into a patch of other bits of the same word that waits for the same.
    pub merged_bits: u64,
    /// Soft patches made hard because nothing can force them back any more.
    pub converted_to_hard: u64,
    /// Undo bytes held now.
    pub undo_bytes_live: u64,
    /// The most undo bytes held at once.
    pub undo_bytes_peak: u64,
    /// Undo bytes ever allocated.
    pub undo_bytes_total: u64,
    /// Dependency edges alive now.
    pub edges_live: u64,
    /// The most bytes held for patches, edges and undo data at once.
    pub bytes_peak: u64,
    /// Patches left out of a version that was written (rolled back in the copy).
    pub rollbacks: u64,
    /// Versions of blocks that were written with at least one patch rolled back.
    pub versions_with_rollback: u64,
    /// Versions of blocks that were written.
    pub versions: u64,
}

impl Counters {
    /// Bytes held for dependencies now: patches, edges, undo data.
    pub fn bytes_live(&self) -> u64 {
        self.live * crate::patch::PATCH_BYTES
            + self.edges_live * crate::patch::EDGE_BYTES
            + self.run_blocks_live * crate::patch::RUN_BLOCK_BYTES
            + self.undo_bytes_live
    }

    pub(crate) fn note_peak(&mut self) {
        self.peak = self.peak.max(self.live);
        self.undo_bytes_peak = self.undo_bytes_peak.max(self.undo_bytes_live);
        self.bytes_peak = self.bytes_peak.max(self.bytes_live());
    }
}
