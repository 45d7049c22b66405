//! How long a file stays in one group.
//!
//! A large file would fill its group, and leave the other files of its directory no room near their
//! inodes. So it goes on in another group with each *section*: `fs_maxbpg` blocks, counted anew in
//! each indirect block. All that the first indirect block leads to is one section with what is before
//! it, in the inode's group. (As FreeBSD's `ffs_blkpref` has it.)

use backstitch_layout::{BlockNumber, GroupNumber, InodeNumber};
use backstitch_unixfs::format::Space;

use crate::format::inode::DIRECT_POINTERS;
use crate::state::UfsFormat;

impl<const BIG: bool> UfsFormat<BIG> {
    /// Blocks of a section; `None` where a file may stay where it is.
    fn blocks_in_section(&self) -> Option<u64> {
        u64::try_from(self.sb.raw.fs_maxbpg)
            .ok()
            .filter(|blocks| *blocks > 0)
    }

    /// The blocks of a file's first section.
    fn first_section(&self) -> u64 {
        DIRECT_POINTERS as u64 + u64::from(self.sb.pointers_per_block)
    }

    /// See [`Space::goal_of_section`]: at the beginning of a section, and behind a hole. `None` in the
    /// first section.
    pub(crate) fn place_section(
        &mut self,
        inode: InodeNumber,
        logical: u64,
        before: Option<BlockNumber>,
    ) -> Option<BlockNumber> {
        let section = self.blocks_in_section()?;
        let block = logical / self.units_per_pointer();
        let behind_direct = block.checked_sub(DIRECT_POINTERS as u64)?;
        let index = behind_direct % u64::from(self.sb.pointers_per_block);
        if block < self.first_section() || index % section != 0 && before.is_some() {
            return None;
        }
        let count = self.groups.list.len() as u64;
        let start = match before.filter(|_| index > 0) {
            Some(before) => u64::from(self.sb.group_of(before.0).0) + 1,
            None => u64::from(self.sb.group_of_inode(inode).0) + block / section,
        };
        let average = self.groups.free_blocks() / count;
        let mut groups = (0..count).map(|step| ((start + step) % count) as usize);
        let found =
            groups.find(|group| u64::from(self.groups.list[*group].free_blocks) >= average)?;
        self.sb.raw.fs_cgrotor = found as i32;
        Some(BlockNumber(self.sb.group_data(GroupNumber::at(found))))
    }

    /// See [`Space::section_left`].
    pub(crate) fn left_of_section(&self, logical: u64) -> u64 {
        let Some(section) = self.blocks_in_section() else {
            return u64::MAX;
        };
        let units = self.units_per_pointer();
        let block = logical / units;
        let end = match block.checked_sub(DIRECT_POINTERS as u64) {
            Some(behind_direct) if block >= self.first_section() => {
                let pointers = u64::from(self.sb.pointers_per_block);
                let index = behind_direct % pointers;
                let left = (section - index % section).min(pointers - index);
                block + left
            }
            _ => self.first_section(),
        };
        end * units - logical
    }
}
