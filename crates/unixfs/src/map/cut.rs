//! A part of a file that is mapped to nothing: the plan, and how it is carried out.

use backstitch_layout::BlockNumber;
use backstitch_ordering::{PatchId, Volume};

use crate::format::{Format, InodeEditor};
use crate::kinds;
use backstitch_blocks::runs::Run;

/// What has to change so that a part of a file is mapped to nothing.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// Pointers of the inode to nullify.
    pub(super) roots: Vec<usize>,
    /// Entries of indirect blocks to nullify.
    pub(super) entries: Vec<Entries>,
    /// What nothing points to then, contents and indirect blocks: free once that is on the disk.
    pub(crate) freed: Vec<Run>,
    /// How many blocks that is.
    pub(crate) count: u64,
}

/// Entries of an indirect block, one after the other.
#[derive(Debug)]
pub(super) struct Entries {
    pub(super) block: BlockNumber,
    pub(super) first: usize,
    pub(super) count: usize,
}

/// What becomes of an inode some of whose blocks are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It lives on without them: pointers to them are nullified, and an indirect block goes with
    /// the last block that it maps.
    Lives,
    /// It was freed, and its pointers stay. Its blocks go part by part: an indirect block goes with
    /// the part that has the first block which it can map.
    Freed,
}

/// Writes entries of an indirect block, from its byte `at` on: one patch in each of its units.
pub(super) fn write_entries(
    format: &impl Format,
    v: &mut Volume<'_>,
    block: BlockNumber,
    at: usize,
    bytes: &[u8],
    after: &[PatchId],
    mut visit: impl FnMut(PatchId),
) {
    let unit_bytes = format.block_size() as usize;
    let (mut at, mut rest) = (at, bytes);
    while !rest.is_empty() {
        let (unit, within) = (block + (at / unit_bytes) as u64, at % unit_bytes);
        let (here, behind) = rest.split_at(rest.len().min(unit_bytes - within));
        visit(v.write(unit, kinds::INDIRECT, within, here, after));
        (at, rest) = (at + here.len(), behind);
    }
}

impl Cut {
    /// Whether no pointer changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.roots.is_empty()
    }

    /// Nullifies entries of indirect blocks. Returns the patches.
    pub(crate) fn nullify_entries(&self, format: &impl Format, v: &mut Volume<'_>) -> Vec<PatchId> {
        let pointer_bytes = format.pointer_bytes();
        let mut patches = Vec::new();
        for entries in &self.entries {
            let zeros = vec![0; entries.count * pointer_bytes];
            let at = entries.first * pointer_bytes;
            write_entries(format, v, entries.block, at, &zeros, &[], |id| {
                patches.push(id);
            });
        }
        patches
    }

    /// Nullifies pointers of the inode.
    pub(crate) fn nullify_pointers(&self, e: &mut impl InodeEditor) {
        for root in &self.roots {
            e.set_pointer(*root, BlockNumber::NONE);
        }
    }
}
