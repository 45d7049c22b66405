//! How much one step of a long operation takes on.
//!
//! A step is bounded by what it looks at, so that others get their turn, and where scopes are
//! atomic by what it changes: a transaction has room for its blocks. What a step frees changes a
//! bitmap in each group in which it lies, at the transaction's end at the latest.

use backstitch_layout::GroupNumber;
pub(crate) use backstitch_layout::steps::are_forgetful;
use backstitch_layout::steps::are_small;
use backstitch_ordering::Volume;

use crate::format::Format;
use crate::state::UnixFs;
use backstitch_blocks::runs::Run;

/// What a step changes besides bitmaps: the inode, indirect blocks, a bitmap of inodes, descriptors
/// of groups, an attribute block.
const BESIDES: usize = 12;

/// Where a step begins that unmaps a file's last blocks, which end at `end`, in `leaves` leaf
/// indirect blocks that map `pointers` blocks each. At the border of a pointer's `units`.
pub(crate) fn begins(end: u64, leaves: u64, pointers: u64, units: u64) -> u64 {
    match are_small() {
        true => end.saturating_sub(1) / units * units,
        false => (end.saturating_sub(1) / pointers * pointers).saturating_sub(leaves * pointers),
    }
}

impl<F: Format> UnixFs<F> {
    /// Whether these blocks can be freed in one step.
    pub(crate) fn fits(&self, v: &Volume<'_>, freed: &[Run]) -> bool {
        let room = v.room();
        if room == usize::MAX {
            return true;
        }
        let mut groups: Vec<GroupNumber> = Vec::new();
        for run in freed {
            self.groups_of(*run, |group| {
                if groups.last() != Some(&group) {
                    groups.push(group);
                }
            });
        }
        groups.sort_unstable();
        groups.dedup();
        groups.len() * self.format.blocks_of_freeing() + BESIDES <= room
    }

    /// The most blocks of contents that one step writes: all of them may go through a journal, with
    /// pointers to them, bits, the inode, and the block that was the last one before.
    pub(crate) fn contents_in_step(&self, v: &Volume<'_>) -> u64 {
        match v.room() {
            usize::MAX => u64::MAX,
            room => {
                let tail = match self.format.units_per_pointer() as usize {
                    1 => 0,
                    units => units,
                };
                (room - room / 8).saturating_sub(BESIDES + tail).max(1) as u64
            }
        }
    }

    /// The transaction keeps a place for what freeing these blocks will change.
    pub(crate) fn expect_freeing(&self, v: &mut Volume<'_>, freed: &[Run]) {
        for run in freed {
            self.groups_of(*run, |group| self.format.expect_freeing(v, group));
        }
    }

    fn groups_of(&self, run: Run, visit: impl FnMut(GroupNumber)) {
        let last = run.start + run.len.saturating_sub(1);
        let [first, last] = [run.start, last].map(|block| self.format.group_of_block(block).0);
        (first..=last).map(GroupNumber).for_each(visit);
    }
}
