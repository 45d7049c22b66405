//! Block groups: bitmaps on the disk, counters in memory.
//!
//! The counters of the superblock and the descriptors are not kept up to date on the disk: they
//! have no dependencies and are recomputed after a crash, so writing them with every allocation
//! would buy nothing. They are written when unmounting.

use backstitch_layout::{Error, FreeSpaceReader, Result};
use backstitch_ordering::{PatchId, Volume};
use smallvec::SmallVec;

use crate::format::bitmap;
use crate::kinds;
use crate::rules::{Rule, holds};
use crate::state::Ext;
use crate::state::PatchIds;
use crate::state::runs::Run;

impl Ext {
    /// Finds the runs of free blocks by the bitmaps that a device holds.
    pub(crate) fn free_space_reader(&self) -> FreeSpaceReader {
        let block_bytes = self.sb.block_size as usize;
        let groups: Vec<(u64, u64, usize)> = (self.groups.list.iter().zip(0..))
            .filter(|(group, _)| group.has_block_bitmap)
            .map(|(group, number)| {
                let first = self.sb.group_first_block(number);
                let count = self.sb.blocks_in_group(number) as usize;
                (group.block_bitmap, first, count)
            })
            .collect();
        Box::new(move |device| {
            let mut runs = Vec::new();
            let mut bits = vec![0; block_bytes];
            for (bitmap_block, first, count) in groups {
                device.read(bitmap_block * block_bytes as u64, &mut bits)?;
                let mut bit = 0;
                while let Some(free) = bitmap::find_zero(&bits, bit, count) {
                    bit = bitmap::find_set(&bits, free, count).unwrap_or(count);
                    runs.push(first + free as u64..first + bit as u64);
                }
            }
            Ok(runs)
        })
    }

    /// The bits of one group's block bitmap.
    pub(crate) fn block_bits<'v>(&self, v: &'v mut Volume<'_>, group: usize) -> Result<&'v [u8]> {
        Ok(v.read(self.groups.list[group].block_bitmap)?)
    }

    /// Whether all blocks of the run are inside the file system and none of them is a superblock,
    /// descriptor, bitmap, inode table or the journal's: what a pointer may name.
    pub(crate) fn is_data_run(&self, run: Run) -> bool {
        let Some(end) = run.start.checked_add(run.len) else {
            return false;
        };
        if run.start < self.sb.first_data_block || end > self.sb.blocks_count {
            return false;
        }
        let journal = self.journal.as_ref();
        if journal.is_some_and(|journal| journal.owns_any(run.start, run.len)) {
            return false;
        }
        let mut block = run.start;
        while block < end {
            let group = self.sb.group_of_block(block);
            let first = self.sb.group_first_block(group);
            let group_end = first + u64::from(self.sb.blocks_in_group(group));
            let part = Run {
                start: block,
                len: group_end.min(end) - block,
            };
            if self.touches_metadata(group, part) {
                return false;
            }
            block = part.end();
        }
        true
    }

    fn touches_metadata(&self, group: u32, run: Run) -> bool {
        let g = &self.groups.list[group as usize];
        if run.start >= g.data_from {
            return false;
        }
        let first = self.sb.group_first_block(group);
        let hits = |start: u64, len: u64| run.start < start + len && start < run.end();
        let supers = if self.sb.has_super(group) {
            1 + u64::from(self.sb.descriptor_blocks)
        } else {
            0
        };
        hits(first, supers)
            || hits(g.block_bitmap, 1)
            || hits(g.inode_bitmap, 1)
            || hits(g.inode_table, self.sb.inode_table_blocks.into())
    }

    /// Marks free blocks as used; the bitmaps must be in memory. Appends the patches.
    pub(crate) fn set_block_bits(&mut self, v: &mut Volume<'_>, run: Run, patches: &mut PatchIds) {
        self.track_blocks(run);
        self.noted_free.cross_off(run);
        self.flip_block_bits(v, run, patches);
        for (group, _, count) in self.parts(run) {
            self.groups.take_blocks(group, count);
        }
    }

    /// Marks used blocks as free; the bitmaps must be in memory.
    pub(crate) fn clear_block_bits(&mut self, v: &mut Volume<'_>, run: Run) {
        self.track_blocks(run);
        self.flip_block_bits(v, run, &mut PatchIds::new());
        for (group, first, count) in self.parts(run) {
            self.groups.give_blocks(group, count, first);
        }
        self.free_epoch += 1;
    }

    /// A run cut at group borders: (group, first block in the group, count).
    fn parts(&self, run: Run) -> SmallVec<[(usize, u32, u32); 2]> {
        let mut parts = SmallVec::new();
        let mut block = run.start;
        while block < run.end() {
            let group = self.sb.group_of_block(block);
            let first = (block - self.sb.group_first_block(group)) as u32;
            let count =
                (u64::from(self.sb.blocks_in_group(group) - first)).min(run.end() - block) as u32;
            parts.push((group as usize, first, count));
            block += u64::from(count);
        }
        parts
    }

    fn flip_block_bits(&mut self, v: &mut Volume<'_>, run: Run, patches: &mut PatchIds) {
        for (group, first, count) in self.parts(run) {
            let bitmap_block = self.groups.list[group].block_bitmap;
            let (mut bit, end) = (first, first + count);
            while bit < end {
                let in_word = (end - bit).min(32 - bit % 32);
                let mask = (u32::MAX >> (32 - in_word)) << (bit % 32);
                let id = v.flip(
                    bitmap_block,
                    kinds::BITMAP,
                    (bit / 32 * 4) as usize,
                    mask,
                    &[],
                );
                if patches.last() != Some(&id) {
                    patches.push(id);
                }
                bit += in_word;
            }
        }
    }

    /// Checks that all blocks of a run are marked as used, reading the bitmaps.
    pub(crate) fn check_blocks_used(&mut self, v: &mut Volume<'_>, run: Run) -> Result<()> {
        for (group, first, count) in self.parts(run) {
            let bits = self.block_bits(v, group)?;
            if bitmap::find_zero(bits, first as usize, (first + count) as usize).is_some() {
                return Err(Error::corrupt(
                    format!("block bitmap of group {group}"),
                    format!(
                        "blocks {}..{} are in use but some are marked as free",
                        run.start,
                        run.end()
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Marks a free inode as used; its bitmap must be in memory.
    pub(crate) fn set_inode_bit(
        &mut self,
        v: &mut Volume<'_>,
        inode: u32,
        directory: bool,
    ) -> PatchId {
        let group = self.sb.group_of_inode(inode) as usize;
        self.groups.take_inode(group, directory);
        self.flip_inode_bit(v, inode)
    }

    /// Marks a used inode as free; its bitmap must be in memory.
    pub(crate) fn clear_inode_bit(&mut self, v: &mut Volume<'_>, inode: u32, directory: bool) {
        let group = self.sb.group_of_inode(inode) as usize;
        self.groups
            .give_inode(group, self.sb.index_in_group(inode), directory);
        self.track_inode_freed(inode);
        self.flip_inode_bit(v, inode);
    }

    fn flip_inode_bit(&mut self, v: &mut Volume<'_>, inode: u32) -> PatchId {
        let group = self.sb.group_of_inode(inode) as usize;
        let bit = self.sb.index_in_group(inode);
        let block = self.groups.list[group].inode_bitmap;
        v.flip(
            block,
            kinds::BITMAP,
            (bit / 32 * 4) as usize,
            1 << (bit % 32),
            &[],
        )
    }

    /// Whether an inode is marked as used.
    pub(crate) fn inode_is_marked(&self, v: &mut Volume<'_>, inode: u32) -> Result<bool> {
        let group = self.sb.group_of_inode(inode) as usize;
        let bits = v.read(self.groups.list[group].inode_bitmap)?;
        Ok(bitmap::test(bits, self.sb.index_in_group(inode) as usize))
    }

    /// Drops what is not written yet of blocks of the inode table in which an inode was freed and
    /// none is in use any more.
    ///
    /// Not when they are freed: where files come and go one after the other the next one is made in
    /// the same block, which would have to be read again.
    ///
    /// What the disk shows of such inodes may stay. An inode's bit is cleared only where the
    /// clearing of the inode is on the disk, or where its making was merged with its clearing, and
    /// then the disk still shows what was there before it was made: an inode that was free.
    pub(crate) fn forget_unused_table_blocks(&mut self, v: &mut Volume<'_>) {
        let in_block = (self.sb.block_size / self.sb.inode_size) as usize;
        for inode in self.deferred.take_freed_in() {
            // A number that is not in the table, or a bitmap that was let go: then the block is
            // written, no more.
            let Ok((block, _)) = self.inode_place(inode) else {
                continue;
            };
            let group = self.sb.group_of_inode(inode) as usize;
            let first = self.sb.index_in_group(inode) as usize;
            let end = (first + in_block).min(self.sb.inodes_per_group as usize);
            let bits = v.peek(self.groups.list[group].inode_bitmap);
            let is_unused = |bits: &[u8]| {
                bitmap::find_set(bits, first, end).is_none()
                    || !holds(Rule::TableBlockForgottenOnlyIfUnused)
            };
            if bits.is_some_and(|bits| is_unused(bits)) {
                v.discard(block);
            }
        }
    }

    /// An inode was freed: its block of the table may have none in use any more.
    pub(crate) fn note_freed_in_table(&mut self, v: &Volume<'_>, inode: u32) {
        // Under a journal the block is in a transaction with others, and all of them are there or
        // none.
        let is_journaled = v.scopes_are_atomic() && holds(Rule::TableBlockKeptUnderJournal);
        if !v.keeps_order() || is_journaled {
            return;
        }
        let in_block = self.sb.block_size / self.sb.inode_size;
        let first = inode - self.sb.index_in_group(inode) % in_block;
        self.deferred.note_freed_in(first);
    }
}
