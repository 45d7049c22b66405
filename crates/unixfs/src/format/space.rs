//! Where blocks and inodes are, and which are free.

use backstitch_blocks::bitmap::Bits;
use backstitch_layout::{BlockNumber, FreeSpaceReader, GroupNumber, InodeNumber, Step};
use backstitch_ordering::{PatchId, User, Volume};
use smallvec::SmallVec;

use crate::state::patches::PatchIds;
use backstitch_blocks::runs::Run;

/// What blocks are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Contents of files.
    Contents,
    /// Directories, indirect blocks, attribute blocks.
    Metadata,
}

/// What has been picked in this operation already, and must not be picked again.
#[derive(Debug, Default)]
pub struct Picks(pub SmallVec<[Run; 4]>);

impl Picks {
    /// The end of the picked run that a block is in.
    pub fn end_if_taken(&self, block: BlockNumber) -> Option<BlockNumber> {
        self.0.iter().find(|r| r.contains(block)).map(|r| r.end())
    }

    /// How many blocks they are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|r| r.len).sum()
    }

    /// Where the next picked run begins, behind a block.
    pub fn next_start(&self, block: BlockNumber) -> BlockNumber {
        self.0
            .iter()
            .map(|r| r.start)
            .filter(|s| *s > block)
            .min()
            .unwrap_or(BlockNumber::MAX)
    }
}

/// Where blocks and inodes are, and which are free.
///
/// Blocks and inodes lie in groups. What is picked is not marked: that comes once all of an
/// operation is known to succeed, and cannot fail.
///
/// # Blocks and fragments
/// A *block* here is what a bit stands for and what the volume reads and writes: the unit of
/// allocation. In ext a pointer leads to one block. In UFS the unit is the fragment, and a pointer
/// leads to the first of as many fragments as the file's block has. So a UFS implementation counts
/// fragments wherever this trait says block, and:
///
/// | here | UFS |
/// |---|---|
/// | [`block_size`](Self::block_size) | `fs_fsize` |
/// | [`first_data_block`](Self::first_data_block), [`blocks_count`](Self::blocks_count) | 0, `fs_size` |
/// | [`overhead_blocks`](Self::overhead_blocks), [`own_runs`](Self::own_runs) | of group 0 `[0, fs_dblkno)`, of the others `[fs_sblkno, fs_dblkno)`, and the summary area |
/// | [`blocks_per_group`](Self::blocks_per_group), [`inodes_per_group`](Self::inodes_per_group) | `fs_fpg`, `fs_ipg` |
/// | [`group_first_inode`](Self::group_first_inode) | group times `fs_ipg`: inodes 0 and 1 exist, are marked and are nobody's, so [`last_inode`](Self::last_inode) is one less than there are; the reclaim's tables begin with inode 1, so its scan has yet to pass over inode 0 |
/// | [`block_bits`](Self::block_bits) | the cylinder group's block, `cg_freeoff`, a set bit is free |
/// | [`inode_bits`](Self::inode_bits) | the same block, `cg_iusedoff`, a set bit is used |
/// | [`pick_run`](Self::pick_run) | whole blocks for contents and directories, beginning at a multiple of a block's fragments; [`pick_single`](Self::pick_single) one whole block |
/// | [`goal_of_section`](Self::goal_of_section) | the next group with room, every `fs_maxbpg` blocks |
/// | [`set_block_bits`](Self::set_block_bits), [`clear_block_bits`](Self::clear_block_bits) | fragment bits, and in the same block of the cylinder group the cluster map, `cg_frsum`, `cg_clustersum` and the counts of free blocks and fragments, which all follow from the bits: one patch, or as many as the bits have words, and counters that the reclaim corrects |
/// | [`set_inode_bit`](Self::set_inode_bit) | where the number comes within a block of `cg_initediblk`: after the next inode block, zeroed, is on the disk, and `cg_initediblk` with it |
/// | [`expect_freeing`](Self::expect_freeing) | the cylinder group's block, and that of the summary array |
///
/// The end of a file, a run of fragments shorter than a block, is planned by
/// [`Units::plan_tail`](crate::tail::Units::plan_tail): it takes what follows it, or moves, and the
/// old fragments are freed once the new pointer is on the disk (the module `tails`).
///
/// Directories are divided into units of [`EntryLayout::UNIT_BYTES`](crate::directory::EntryLayout):
/// 512 in UFS, whose entries end with a zero. Their size is a multiple of that unit, in ext of the
/// block.
pub trait Space {
    /// Bytes of a block.
    fn block_size(&self) -> u32;
    /// The blocks that a pointer leads to, a power of two: 1 where a pointer leads to one, a
    /// block's fragments in UFS. The last block of a file may have fewer.
    #[inline]
    fn units_per_pointer(&self) -> u64 {
        1
    }
    /// The first block that can be a file's.
    fn first_data_block(&self) -> BlockNumber;
    /// How many blocks there are: one more than the last one's number.
    fn blocks_count(&self) -> u64;
    /// One more than the last block's number.
    fn end_block(&self) -> BlockNumber {
        BlockNumber(self.blocks_count())
    }
    /// Free blocks that only users may take who [may use the reserve](Self::may_use_reserve).
    fn reserved_blocks(&self) -> u64;
    /// Whether a user may take the last free blocks, those that are reserved.
    fn may_use_reserve(&self, user: User) -> bool {
        user.uid == 0
    }
    /// Blocks that files can never have.
    fn overhead_blocks(&self) -> u64;
    /// How many inodes there are, free ones with them.
    fn inodes_count(&self) -> u32;
    /// The last inode's number.
    fn last_inode(&self) -> InodeNumber {
        InodeNumber(self.inodes_count())
    }
    /// The first inode that a file can have.
    fn first_inode(&self) -> InodeNumber;
    /// Free blocks, as far as is known in memory.
    fn free_blocks(&self) -> u64;
    /// Those of them that are sure to do for contents: where a pointer leads to several units, the
    /// units of wholly free blocks.
    fn free_blocks_in_wholes(&self) -> u64 {
        self.free_blocks()
    }
    /// Free inodes, as far as is known in memory.
    fn free_inodes(&self) -> u32;

    /// How many groups there are.
    fn groups_count(&self) -> u32;
    /// The group of a block.
    fn group_of_block(&self, block: BlockNumber) -> GroupNumber;
    /// The first block of a group.
    fn group_first_block(&self, group: GroupNumber) -> BlockNumber;
    /// The blocks of a group.
    fn blocks_in_group(&self, group: GroupNumber) -> u32;
    /// The blocks of all groups but the last one, a multiple of eight.
    fn blocks_per_group(&self) -> u32;
    /// The group of an inode.
    fn group_of_inode(&self, inode: InodeNumber) -> GroupNumber;
    /// The first inode of a group.
    fn group_first_inode(&self, group: GroupNumber) -> InodeNumber;
    /// The inodes of a group.
    fn inodes_per_group(&self) -> u32;
    /// The free inodes of a group.
    fn free_inodes_in(&self, group: GroupNumber) -> u32;
    /// The free blocks of a group, as [`free_blocks_in_wholes`](Self::free_blocks_in_wholes).
    fn free_in_wholes_of(&self, group: GroupNumber) -> u32;
    /// Where the bits of a group's blocks are, bit 0 the first one's, and what a set one means.
    fn block_bits(&self, group: GroupNumber) -> Bits;
    /// The same for its inodes.
    fn inode_bits(&self, group: GroupNumber) -> Bits;
    /// How many inodes a block of the inode table holds.
    fn inodes_per_block(&self) -> u32;
    /// The blocks that are the format's own, run after run.
    fn own_runs(&self, visit: &mut dyn FnMut(Run));
    /// Sets the number of directories in a group.
    fn set_directories(&mut self, group: GroupNumber, directories: u32);
    /// An inode of the group that is marked as used already becomes a directory.
    fn note_directory(&mut self, group: GroupNumber);

    /// Whether all blocks of the run may be a file's: what a pointer may name.
    fn is_data_run(&self, run: Run) -> bool;
    /// The place that is near to an inode.
    fn goal_near(&self, inode: InodeNumber) -> BlockNumber;
    /// Where a file goes on at its block `logical`, if not behind the block before that, which is
    /// at `before`, or in a hole. A format may keep a file from filling the group that it is in.
    fn goal_of_section(
        &mut self,
        _inode: InodeNumber,
        _logical: u64,
        _before: Option<BlockNumber>,
    ) -> Option<BlockNumber> {
        None
    }
    /// How many blocks of a file, from `logical` on, may lie one behind the other before
    /// [`goal_of_section`](Self::goal_of_section) is to be asked again.
    fn section_left(&self, _logical: u64) -> u64 {
        u64::MAX
    }
    /// If the block lies in a part of its group that is kept for directories: where that part ends.
    /// A reader of one directory there also reads the others ahead.
    fn directories_end(&self, block: BlockNumber) -> Option<BlockNumber>;
    /// Picks free blocks: one run of at most `want` blocks, at `goal` or as near as can be. `grows`
    /// says that the file has grown before, and space after the run is worth reserving. Empty where
    /// nothing is free.
    ///
    /// # Errors
    /// Where a bitmap is missing, or contradicts what is known.
    #[allow(clippy::too_many_arguments)]
    fn pick_run(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        purpose: Purpose,
        goal: BlockNumber,
        want: u64,
        grows: bool,
        picks: &Picks,
    ) -> Step<Run>;
    /// Picks one free block for an indirect or attribute block.
    ///
    /// # Errors
    /// As [`pick_run`](Self::pick_run).
    fn pick_single(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        picks: &Picks,
    ) -> Step<Option<BlockNumber>>;
    /// The run that was picked was taken for `inode`. `grows` as in [`pick_run`](Self::pick_run): then
    /// the space behind it may be reserved in memory for the file.
    fn note_taken(&mut self, inode: InodeNumber, run: Run, grows: bool);
    /// Whether space is reserved for an inode.
    fn has_window(&self, inode: InodeNumber) -> bool;
    /// Nothing is reserved for an inode any more.
    fn drop_window(&mut self, inode: InodeNumber);
    /// Marks free blocks as used; their bitmaps are in memory. Appends the patches.
    fn set_block_bits(&mut self, v: &mut Volume<'_>, run: Run, patches: &mut PatchIds);
    /// Marks used blocks as free; their bitmaps are in memory.
    fn clear_block_bits(&mut self, v: &mut Volume<'_>, run: Run);
    /// Checks that all blocks of a run are marked as used.
    ///
    /// # Errors
    /// [`Corrupt`](backstitch_layout::Error::Corrupt) where one is not.
    fn check_blocks_used(&self, v: &mut Volume<'_>, run: Run) -> Step<()>;
    /// Blocks of a group will be freed: calls `v.expect` for each block that this will change, so
    /// that a running transaction keeps a place for it (without transactions that does nothing).
    fn expect_freeing(&self, v: &mut Volume<'_>, group: GroupNumber);

    /// The most blocks that change as blocks of a group are freed, besides those that
    /// every operation changes.
    fn blocks_of_freeing(&self) -> usize {
        1
    }

    /// Picks a free inode for a name in a directory; `None` where there is none.
    ///
    /// # Errors
    /// Where a bitmap is missing.
    fn pick_inode(
        &mut self,
        v: &mut Volume<'_>,
        parent: InodeNumber,
        name: &[u8],
        directory: bool,
    ) -> Step<Option<InodeNumber>>;
    /// Picks a free inode of a group.
    ///
    /// # Errors
    /// Where its bitmap is missing.
    fn free_inode_in(
        &mut self,
        v: &mut Volume<'_>,
        group: GroupNumber,
        directory: bool,
    ) -> Step<Option<InodeNumber>>;
    /// The group into which a file of this name goes, of a directory in group `home`.
    fn group_for_file(&self, home: GroupNumber, name: &[u8]) -> GroupNumber;
    /// Marks a free inode as used; its bitmap is in memory.
    fn set_inode_bit(&mut self, v: &mut Volume<'_>, inode: InodeNumber, directory: bool)
    -> PatchId;
    /// Marks a used inode as free; its bitmap is in memory.
    fn clear_inode_bit(&mut self, v: &mut Volume<'_>, inode: InodeNumber, directory: bool);

    /// Finds the runs of free blocks by the bitmaps that a device holds.
    fn free_space_reader(&self) -> FreeSpaceReader;
}
