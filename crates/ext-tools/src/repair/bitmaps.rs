//! What is marked as used, and the counters of the groups.

use super::fixer::{Fixer, put_u16};
use crate::fsck::{CheckError, Finding};
use backstitch_ext::format::{bitmap, directory, group};
use backstitch_layout::{FileType, GroupNumber};

impl Fixer<'_, '_> {
    /// Sets the bitmaps and counters of the groups with findings to what was found in use.
    pub(super) fn bitmaps(&mut self, findings: &[&Finding]) -> Result<(), CheckError> {
        for finding in findings {
            self.note(finding.location, format!("corrected: {}", finding.what));
        }
        let mut groups: Vec<GroupNumber> =
            findings.iter().filter_map(|f| f.location.group).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            self.group(group)?;
        }
        Ok(())
    }

    fn group(&mut self, group: GroupNumber) -> Result<(), CheckError> {
        let (sb, size) = (self.sb, self.block_size());
        let descriptor = self.facts.groups[group.index()];
        let first = sb.group_first_block(group);
        let blocks = sb.blocks_in_group(group) as usize;
        let mut bits = vec![0; size];
        for index in 0..blocks.div_ceil(64) {
            let word = self
                .facts
                .gathered
                .used
                .bits_from(first + index as u64 * 64);
            bits[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        pad(&mut bits, blocks);
        self.put_block(descriptor.block_bitmap, &bits)?;
        let free_blocks = bitmap::count_zeros(&bits, blocks);

        let inodes = sb.inodes_per_group as usize;
        let mut bits = vec![0; size];
        let mut directories = 0;
        let infos = self.facts.gathered.inodes[group.index()].as_deref();
        for (index, info) in infos.unwrap_or(&[]).iter().enumerate() {
            if info.is_used {
                bitmap::set(&mut bits, index);
                let is_directory = info.type_code == directory::type_code(FileType::Directory);
                directories += u16::from(is_directory);
            }
        }
        pad(&mut bits, inodes);
        self.put_block(descriptor.inode_bitmap, &bits)?;
        let free_inodes = bitmap::count_zeros(&bits, inodes);

        let (block, at) = group::descriptor_location(sb, group);
        let mut table = self.block(block)?;
        put_u16(
            &mut table,
            at + group::OFFSET_FREE_BLOCKS_COUNT,
            free_blocks as u16,
        );
        put_u16(
            &mut table,
            at + group::OFFSET_FREE_INODES_COUNT,
            free_inodes as u16,
        );
        put_u16(&mut table, at + group::OFFSET_USED_DIRS_COUNT, directories);
        self.put_block(block, &table)
    }
}

/// Sets the bits behind the end, and only those.
fn pad(bits: &mut [u8], used: usize) {
    let end = bits.len() * 8;
    bitmap::set_range(bits, used, end);
}
