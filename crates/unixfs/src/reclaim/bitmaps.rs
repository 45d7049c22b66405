//! The bitmaps: what is marked as used but is not.

use std::borrow::Cow;

use backstitch_layout::{Error, GroupNumber, InodeNumber, ReclaimStep, Step, Stop, Structure};
use backstitch_ordering::Volume;

use crate::fault::Fault;
use crate::format::Format;
use crate::rules::{Rule, holds};
use crate::space::read_bits;
use crate::state::UnixFs;
use crate::state::reclaim::DIRECTORY;
use crate::state::reclaim::{Phase, Reclaim, kind};
use backstitch_blocks::bitmap;
use backstitch_blocks::runs::{Run, push_run};

/// How many attribute blocks one step looks at.
const ATTRIBUTE_BLOCKS_PER_STEP: usize = 64;
/// How many groups' bitmaps are asked for at once.
const GROUPS_AHEAD: u32 = 16;

/// What is known of the blocks of a group.
struct Part<'r> {
    used: Cow<'r, [u8]>,
    touched: Cow<'r, [u8]>,
    blocks: usize,
}

impl<F: Format> UnixFs<F> {
    /// Sets the reference counts of attribute blocks to what refers to them.
    pub(super) fn correct_references(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        at: usize,
    ) -> Step<ReclaimStep> {
        let to = r.attribute_list.len().min(at + ATTRIBUTE_BLOCKS_PER_STEP);
        let part = r.attribute_list[at..to].to_vec();
        let missing = part.iter().fold(false, |m, block| !v.want(*block) | m);
        if missing {
            return Err(Stop::Miss);
        }
        for block in &part {
            // It may have been freed since the list was made.
            let Some(references) = r.attribute_blocks.get(block).copied() else {
                continue;
            };
            let references = references.counted + references.leaving;
            F::correct_references(self, v, *block, references)?;
            if references == 0 {
                r.give_up(*block);
            }
        }
        r.phase = if to < r.attribute_list.len() {
            Phase::Attributes(to)
        } else {
            Phase::Verify(GroupNumber(0))
        };
        Ok(ReclaimStep::More)
    }

    fn want_bitmaps(&mut self, v: &mut Volume<'_>, group: GroupNumber) -> Step<()> {
        let to = self.format.groups_count().min(group.0 + GROUPS_AHEAD);
        for g in (group.0..to).map(GroupNumber) {
            for bits in [self.format.block_bits(g), self.format.inode_bits(g)] {
                for block in bits.block.run(bits.blocks) {
                    v.want(block);
                }
            }
        }
        read_bits(v, &self.format.block_bits(group))?;
        read_bits(v, &self.format.inode_bits(group))?;
        Ok(())
    }

    /// What is known of a group's blocks.
    fn used_part<'r>(&self, r: &'r Reclaim, group: GroupNumber) -> Part<'r> {
        let blocks = self.format.blocks_in_group(group) as usize;
        // In UFS a group may begin within a byte.
        let first = (self.format.group_first_block(group) - r.first_data_block) as usize;
        Part {
            used: bitmap::part(&r.used, first, first + blocks),
            touched: bitmap::part(&r.touched, first, first + blocks),
            blocks,
        }
    }

    /// Everything in use must be marked. Checked for all groups before anything is freed.
    pub(super) fn verify_group(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        group: GroupNumber,
    ) -> Step<ReclaimStep> {
        if group.0 >= self.format.groups_count() {
            // Blocks of inodes that operations free are not noted as used, nor as touched before
            // their freeing begins.
            let gone =
                |inode: &InodeNumber| !matches!(r.kind(*inode), kind::HELD | kind::HELD_DIRECTORY);
            if !r.leaving.iter().all(gone) && holds(Rule::ReclaimWaitsForFrees) {
                return Ok(ReclaimStep::WaitForFrees);
            }
            r.phase = Phase::Free(GroupNumber(0));
            return Ok(ReclaimStep::More);
        }
        self.want_bitmaps(v, group)?;
        let Part {
            used,
            touched,
            blocks,
        } = self.used_part(r, group);
        let first = self.format.group_first_block(group);
        let bits = self.format.block_bits(group);
        let bytes = read_bits(v, &bits)?;
        let marked = bits.marks(&bytes);
        let lost = (used.iter().zip(touched.iter()).zip(marked.used_bytes()))
            .any(|((u, t), m)| u & !t & !m != 0);
        let is_lost = |bit: &usize| {
            bitmap::test(&used, *bit) && !bitmap::test(&touched, *bit) && !marked.is_used(*bit)
        };
        if lost && let Some(bit) = (0..blocks).find(is_lost) {
            let bitmap = Structure::BlockBitmap { group };
            let block = first + bit as u64;
            return Err(Error::corrupt(bitmap, Fault::BlockInUseButFree { block }).into());
        }
        r.phase = Phase::Verify(group.next());
        Ok(ReclaimStep::More)
    }

    /// Frees what is marked in a group but not in use.
    pub(super) fn free_rest_of_group(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        group: GroupNumber,
    ) -> Step<ReclaimStep> {
        if group.0 >= self.format.groups_count() {
            let first = self.format.first_data_block();
            self.format.retain_shared(&|block| {
                let bit = (block - first) as usize;
                bitmap::test(&r.used, bit) || bitmap::test(&r.touched, bit)
            });
            r.end_of_frees();
            return Ok(ReclaimStep::More);
        }
        self.want_bitmaps(v, group)?;
        let Part {
            used,
            touched,
            blocks,
        } = self.used_part(r, group);
        let first = self.format.group_first_block(group);
        let bits = self.format.block_bits(group);
        let bytes = read_bits(v, &bits)?;
        let marked = bits.marks(&bytes);
        let mut runs: Vec<Run> = Vec::new();
        for bit in 0..blocks {
            let is_leaked =
                marked.is_used(bit) && !bitmap::test(&used, bit) && !bitmap::test(&touched, bit);
            if is_leaked {
                push_run(&mut runs, first + bit as u64, 1);
            }
        }
        let bits = self.format.inode_bits(group);
        let bytes = read_bits(v, &bits)?.into_owned();
        let inodes = bits.marks(&bytes);
        self.free_runs(v, &runs);
        r.freed_blocks += runs.iter().map(|run| run.len).sum::<u64>();
        let mut directories = 0;
        for index in 0..self.format.inodes_per_group() {
            let number = self.format.group_first_inode(group) + index;
            let code = r.kind(number);
            directories += u32::from(matches!(
                code,
                DIRECTORY | kind::NEW_DIRECTORY | kind::HELD_DIRECTORY
            ));
            if number >= self.format.first_inode()
                && self.format.is_valid_inode(number)
                && code == kind::FREE
                && inodes.is_used(index as usize)
            {
                self.clear_inode_bit(v, number, false);
                self.forget_state(number);
                self.references.forget(number);
                self.format.drop_window(number);
                r.freed_inodes += 1;
            }
        }
        self.format.set_directories(group, directories);
        r.phase = Phase::Free(group.next());
        Ok(ReclaimStep::More)
    }
}
