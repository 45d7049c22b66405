//! What a store counts.

/// Figures of a store since it was made, beside the graph's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Blocks in memory.
    pub blocks: u64,
    /// Bytes of buffers in memory.
    pub bytes: u64,
    /// The most bytes of buffers at once.
    pub bytes_peak: u64,
    /// The most bytes of buffers, patches, edges, undo data and what the layout keeps because of
    /// them at once.
    pub memory_bytes_peak: u64,
    /// Blocks with changes that are not on stable storage.
    pub dirty: u64,
    /// Look-ups that found their block.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Versions of blocks handed out for writing.
    pub blocks_written: u64,
    /// Of these, blocks written again only because their last version had to leave patches out.
    pub blocks_rewritten_for_rollback: u64,
    /// How often a block was passed over because it would have been written with patches left out.
    pub passed_over: u64,
    /// Requests handed out, after merging adjacent blocks into runs.
    pub write_requests: u64,
    /// Bytes handed out for writing.
    pub bytes_written: u64,
    /// Batches completed: each took one flush.
    pub flushes: u64,
}
