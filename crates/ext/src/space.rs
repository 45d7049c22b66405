//! Blocks and inodes: where they are, bitmaps on the disk, counters in memory.
//!
//! The counters of the superblock and the descriptors are not kept up to date on the disk: they
//! have no dependencies and are recomputed after a crash, so writing them with every allocation
//! would buy nothing. They are written when unmounting.

use backstitch_layout::{
    BlockNumber, Error, FreeSpaceReader, GroupNumber, InodeNumber, Step, Structure,
};
use backstitch_ordering::{PatchId, User, Volume};
use backstitch_unixfs::bitmap::Bits;
use backstitch_unixfs::format::{Picks, Purpose, Space};
use backstitch_unixfs::{Fault, PatchIds, Run, bitmap};
use smallvec::SmallVec;

use crate::format::group::descriptor_location;
use crate::kinds;
use crate::state::ExtFormat;

impl Space for ExtFormat {
    fn block_size(&self) -> u32 {
        self.sb.block_size
    }

    fn first_data_block(&self) -> BlockNumber {
        self.sb.first_data_block
    }

    fn blocks_count(&self) -> u64 {
        self.sb.blocks_count
    }

    fn reserved_blocks(&self) -> u64 {
        self.sb.r_blocks_count
    }

    /// Root, the user that the superblock names, and the group where that is not root's.
    fn may_use_reserve(&self, user: User) -> bool {
        let group = u32::from(self.sb.reserved_gid);
        user.uid == 0
            || user.uid == u32::from(self.sb.reserved_uid)
            || group != 0 && user.gid == group
    }

    fn overhead_blocks(&self) -> u64 {
        self.groups.overhead_blocks()
    }

    fn inodes_count(&self) -> u32 {
        self.sb.inodes_count
    }

    fn first_inode(&self) -> InodeNumber {
        self.sb.first_inode
    }

    fn free_blocks(&self) -> u64 {
        self.groups.free_blocks()
    }

    fn free_inodes(&self) -> u32 {
        self.groups.free_inodes()
    }

    fn groups_count(&self) -> u32 {
        self.sb.groups
    }

    fn group_of_block(&self, block: BlockNumber) -> GroupNumber {
        self.sb.group_of_block(block)
    }

    fn group_first_block(&self, group: GroupNumber) -> BlockNumber {
        self.sb.group_first_block(group)
    }

    fn blocks_in_group(&self, group: GroupNumber) -> u32 {
        self.sb.blocks_in_group(group)
    }

    fn blocks_per_group(&self) -> u32 {
        self.sb.blocks_per_group
    }

    fn group_of_inode(&self, inode: InodeNumber) -> GroupNumber {
        self.sb.group_of_inode(inode)
    }

    fn group_first_inode(&self, group: GroupNumber) -> InodeNumber {
        self.sb.group_first_inode(group)
    }

    fn inodes_per_group(&self) -> u32 {
        self.sb.inodes_per_group
    }

    fn free_inodes_in(&self, group: GroupNumber) -> u32 {
        self.groups.list[group.index()].free_inodes
    }

    fn free_in_wholes_of(&self, group: GroupNumber) -> u32 {
        self.groups.list[group.index()].free_blocks
    }

    fn block_bits(&self, group: GroupNumber) -> Bits {
        Bits::alone(self.groups.list[group.index()].block_bitmap)
    }

    fn inode_bits(&self, group: GroupNumber) -> Bits {
        Bits::alone(self.groups.list[group.index()].inode_bitmap)
    }

    fn inodes_per_block(&self) -> u32 {
        self.sb.block_size / self.sb.inode_size
    }

    /// Superblocks, descriptors and those kept for more of them, bitmaps, inode tables.
    fn own_runs(&self, visit: &mut dyn FnMut(Run)) {
        for (group, g) in GroupNumber::all(self.sb.groups).zip(&self.groups.list) {
            let supers = u64::from(self.sb.super_blocks_in_group(group));
            visit(Run {
                start: self.sb.group_first_block(group),
                len: supers,
            });
            visit(Run::one(g.block_bitmap));
            visit(Run::one(g.inode_bitmap));
            visit(Run {
                start: g.inode_table,
                len: self.sb.inode_table_blocks.into(),
            });
        }
    }

    fn set_directories(&mut self, group: GroupNumber, directories: u32) {
        self.groups.list[group.index()].directories = directories;
    }

    fn note_directory(&mut self, group: GroupNumber) {
        self.groups.note_directory(group.index());
    }

    /// Blocks inside the file system of which none is a superblock, descriptor, bitmap, inode table
    /// or the journal's.
    fn is_data_run(&self, run: Run) -> bool {
        let Some(end) = run.start.checked_add(run.len) else {
            return false;
        };
        if run.start < self.sb.first_data_block || end > self.sb.end_block() {
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

    fn goal_near(&self, inode: InodeNumber) -> BlockNumber {
        self.sb.group_first_block(self.sb.group_of_inode(inode))
    }

    /// The end of the blocks kept for metadata, for a block that lies before it in its group.
    fn directories_end(&self, block: BlockNumber) -> Option<BlockNumber> {
        let end = self.contents_start(self.sb.group_of_block(block).index());
        (block < end).then_some(end)
    }

    fn pick_run(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        purpose: Purpose,
        goal: BlockNumber,
        want: u64,
        grows: bool,
        picks: &Picks,
    ) -> Step<Run> {
        self.place_run(v, (inode, grows), purpose, goal, want, picks)
    }

    fn pick_single(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        picks: &Picks,
    ) -> Step<Option<BlockNumber>> {
        self.place_single(v, inode, picks)
    }

    fn note_taken(&mut self, inode: InodeNumber, run: Run, grows: bool) {
        self.reserve_behind(inode, run, grows);
    }

    fn has_window(&self, inode: InodeNumber) -> bool {
        self.windows.is_there(inode)
    }

    fn drop_window(&mut self, inode: InodeNumber) {
        self.windows.drop_of(inode);
    }

    fn set_block_bits(&mut self, v: &mut Volume<'_>, run: Run, patches: &mut PatchIds) {
        self.flip_block_bits(v, run, patches);
        for (group, _, count) in self.parts(run) {
            self.groups.take_blocks(group, count);
        }
    }

    fn clear_block_bits(&mut self, v: &mut Volume<'_>, run: Run) {
        self.flip_block_bits(v, run, &mut PatchIds::new());
        for (group, first, count) in self.parts(run) {
            self.groups.give_blocks(group, count, first);
        }
    }

    fn check_blocks_used(&self, v: &mut Volume<'_>, run: Run) -> Step<()> {
        for (group, first, count) in self.parts(run) {
            let bits = v.read(self.groups.list[group].block_bitmap)?;
            if bitmap::find_zero(bits, first as usize, (first + count) as usize).is_some() {
                let fault = Fault::RunInUseButFree {
                    start: run.start,
                    end: run.end(),
                };
                let group = GroupNumber::at(group);
                return Err(Error::corrupt(Structure::BlockBitmap { group }, fault).into());
            }
        }
        Ok(())
    }

    fn expect_freeing(&self, v: &mut Volume<'_>, group: GroupNumber) {
        v.expect(self.groups.list[group.index()].block_bitmap);
        v.expect(descriptor_location(&self.sb, group).0);
    }

    fn pick_inode(
        &mut self,
        v: &mut Volume<'_>,
        parent: InodeNumber,
        name: &[u8],
        directory: bool,
    ) -> Step<Option<InodeNumber>> {
        self.place_inode(v, parent, name, directory)
    }

    fn free_inode_in(
        &mut self,
        v: &mut Volume<'_>,
        group: GroupNumber,
        directory: bool,
    ) -> Step<Option<InodeNumber>> {
        self.place_inode_in(v, group.index(), directory)
    }

    fn group_for_file(&self, home: GroupNumber, name: &[u8]) -> GroupNumber {
        GroupNumber::at(self.place_file(home.index(), name))
    }

    fn set_inode_bit(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        directory: bool,
    ) -> PatchId {
        let group = self.sb.group_of_inode(inode).index();
        self.groups.take_inode(group, directory);
        self.flip_inode_bit(v, inode)
    }

    fn clear_inode_bit(&mut self, v: &mut Volume<'_>, inode: InodeNumber, directory: bool) {
        let group = self.sb.group_of_inode(inode).index();
        self.groups
            .give_inode(group, self.sb.index_in_group(inode), directory);
        self.flip_inode_bit(v, inode);
    }

    fn free_space_reader(&self) -> FreeSpaceReader {
        let block_bytes = self.sb.block_size as usize;
        let groups: Vec<(BlockNumber, BlockNumber, usize)> = (self
            .groups
            .list
            .iter()
            .zip(GroupNumber::all(self.sb.groups)))
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
                device.read(bitmap_block.offset_bytes(block_bytes as u64), &mut bits)?;
                let mut bit = 0;
                while let Some(free) = bitmap::find_zero(&bits, bit, count) {
                    bit = bitmap::find_set(&bits, free, count).unwrap_or(count);
                    runs.push(first.0 + free as u64..first.0 + bit as u64);
                }
            }
            Ok(runs)
        })
    }
}

impl ExtFormat {
    fn touches_metadata(&self, group: GroupNumber, run: Run) -> bool {
        let g = &self.groups.list[group.index()];
        if run.start >= g.data_from {
            return false;
        }
        let first = self.sb.group_first_block(group);
        let hits = |start: BlockNumber, len: u64| run.start < start + len && start < run.end();
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

    /// A run cut at group borders: (group, first block in the group, count).
    fn parts(&self, run: Run) -> SmallVec<[(usize, u32, u32); 2]> {
        let mut parts = SmallVec::new();
        let mut block = run.start;
        while block < run.end() {
            let group = self.sb.group_of_block(block);
            let first = (block - self.sb.group_first_block(group)) as u32;
            let count =
                (u64::from(self.sb.blocks_in_group(group) - first)).min(run.end() - block) as u32;
            parts.push((group.index(), first, count));
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

    fn flip_inode_bit(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> PatchId {
        let group = self.sb.group_of_inode(inode).index();
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
}
