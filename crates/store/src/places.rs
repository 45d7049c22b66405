//! Where the blocks of a volume on another one are.

use std::collections::BTreeMap;

use backstitch_device::Buffer;
use backstitch_patch::PatchId;
use rustc_hash::FxHashMap;

use crate::kind::VolumeId;

/// Where the blocks of a volume are.
pub(crate) struct Space {
    /// The volume that they lie in.
    pub(crate) on: VolumeId,
    /// Runs by their first block: where the run begins in `on`, and its length in blocks.
    pub(crate) runs: BTreeMap<u64, (u64, u64)>,
    /// By block: the patch that must be on stable storage before the block's contents can be found
    /// on the disk.
    pub(crate) shown: FxHashMap<u64, PatchId>,
    /// Blocks without a place that somebody wants to change.
    pub(crate) wanted: Vec<u64>,
    pub(crate) zeros: Buffer,
}

impl Space {
    pub(crate) fn place(&self, block: u64) -> Option<u64> {
        let (first, (there, count)) = self.runs.range(..=block).next_back()?;
        (block - first < *count).then(|| there + (block - first))
    }
}
