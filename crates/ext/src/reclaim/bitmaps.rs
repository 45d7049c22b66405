//! The bitmaps: what is marked as used but is not.

use backstitch_layout::{Error, ReclaimStep, Result};
use backstitch_ordering::{BlockClass, Volume};

use super::{Phase, Reclaim, kind};
use crate::format::bitmap;
use crate::format::xattr::{OFFSET_REFCOUNT, header};
use crate::groups::{Run, push_run};
use crate::layout::Ext;

/// How many attribute blocks one step looks at.
const ATTRIBUTE_BLOCKS_PER_STEP: usize = 64;
/// How many groups' bitmaps are asked for at once.
const GROUPS_AHEAD: u32 = 16;

impl Ext {
    /// Sets the reference counts of attribute blocks to what refers to them.
    pub(super) fn correct_references(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        at: usize,
    ) -> Result<ReclaimStep> {
        let to = r.attribute_list.len().min(at + ATTRIBUTE_BLOCKS_PER_STEP);
        let part = &r.attribute_list[at..to];
        let missing = part.iter().fold(false, |m, (block, _)| !v.want(*block) | m);
        if missing {
            return Err(Error::Miss);
        }
        for (block, references) in part {
            let place = || format!("attribute block {block}");
            let count = header(v.read(*block)?)
                .map_err(|e| Error::corrupt(place(), e.to_string()))?
                .h_refcount
                .get();
            if count < *references {
                let what = format!("its count is {count}, but {references} inodes have it");
                return Err(Error::corrupt(place(), what));
            }
            if count > *references {
                let bytes = references.to_le_bytes();
                v.write(*block, BlockClass::Metadata, OFFSET_REFCOUNT, &bytes, &[]);
            }
        }
        r.phase = if to < r.attribute_list.len() {
            Phase::Attributes(to)
        } else {
            Phase::Verify(0)
        };
        Ok(ReclaimStep::More)
    }

    fn want_bitmaps(&mut self, v: &mut Volume<'_>, group: u32) -> Result<()> {
        let to = self.sb.groups.min(group + GROUPS_AHEAD);
        for g in &self.groups.list[group as usize..to as usize] {
            v.want(g.block_bitmap);
            v.want(g.inode_bitmap);
        }
        let g = &self.groups.list[group as usize];
        v.read(g.block_bitmap)?;
        v.read(g.inode_bitmap)?;
        Ok(())
    }

    /// Bits of a group's part of `used`.
    fn used_part<'r>(&self, r: &'r Reclaim, group: u32) -> (&'r [u8], usize) {
        let bytes = self.sb.blocks_per_group as usize / 8;
        let start = group as usize * bytes;
        (
            &r.used[start..start + bytes],
            self.sb.blocks_in_group(group) as usize,
        )
    }

    /// Everything in use must be marked. Checked for all groups before anything is freed.
    pub(super) fn verify_group(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        group: u32,
    ) -> Result<ReclaimStep> {
        if group >= self.sb.groups {
            r.phase = Phase::Free(0);
            return Ok(ReclaimStep::More);
        }
        self.want_bitmaps(v, group)?;
        let (used, count) = self.used_part(r, group);
        let first = self.sb.group_first_block(group);
        let marked = self.block_bits(v, group as usize)?;
        let lost = used.iter().zip(marked).any(|(u, m)| u & !m != 0);
        if lost
            && let Some(bit) =
                (0..count).find(|b| bitmap::test(used, *b) && !bitmap::test(marked, *b))
        {
            return Err(Error::corrupt(
                format!("block bitmap of group {group}"),
                format!("block {} is in use but marked as free", first + bit as u64),
            ));
        }
        r.phase = Phase::Verify(group + 1);
        Ok(ReclaimStep::More)
    }

    /// Frees what is marked in a group but not in use.
    pub(super) fn free_rest_of_group(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        group: u32,
    ) -> Result<ReclaimStep> {
        if group >= self.sb.groups {
            let used = &r.used;
            let first = self.sb.first_data_block;
            self.shared_blocks
                .retain(|_, b| bitmap::test(used, (*b - first) as usize));
            return Ok(ReclaimStep::Done);
        }
        self.want_bitmaps(v, group)?;
        let (used, count) = self.used_part(r, group);
        let first = self.sb.group_first_block(group);
        let marked = self.block_bits(v, group as usize)?;
        let mut runs: Vec<Run> = Vec::new();
        for bit in 0..count {
            if bitmap::test(marked, bit) && !bitmap::test(used, bit) {
                push_run(&mut runs, first + bit as u64, 1);
            }
        }
        let bits = v.read_shared(self.groups.list[group as usize].inode_bitmap)?;
        self.free_runs(v, &runs);
        for index in 0..self.sb.inodes_per_group {
            let number = self.sb.group_first_inode(group) + index;
            if number >= self.sb.first_inode
                && self.sb.is_valid_inode(number)
                && r.kind(number) == kind::FREE
                && bitmap::test(&bits, index as usize)
            {
                self.clear_inode_bit(v, number, false);
            }
        }
        self.groups.list[group as usize].directories = r.directories_in_group[group as usize];
        r.phase = Phase::Free(group + 1);
        Ok(ReclaimStep::More)
    }
}
