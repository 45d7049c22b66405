//! What is known of block groups: where their bitmaps and tables are, and how much is free in them.

use crate::format::{GroupDescriptor, Superblock};
use backstitch_layout::{BlockNumber, GroupNumber};

/// Classes of runs of free blocks by their length, 1, 2, 4, …: the last class has all that are
/// longer, too.
pub(crate) const RUN_CLASSES: usize = 7;

/// What is known of one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) block_bitmap: BlockNumber,
    pub(crate) inode_bitmap: BlockNumber,
    pub(crate) inode_table: BlockNumber,
    /// The block bitmap was written: it tells what is free.
    pub(crate) has_block_bitmap: bool,
    /// From here on to the group's end no block is a superblock, descriptor, bitmap or inode table
    /// of the group.
    pub(crate) data_from: BlockNumber,
    pub(crate) free_blocks: u32,
    pub(crate) free_inodes: u32,
    pub(crate) directories: u32,
    /// No block before this one (counted in the group) is free.
    pub(crate) first_free_hint: u32,
    /// Of class k: no run of 2^k free blocks begins between the blocks kept for metadata and the
    /// block at `[k]` (counted in the group).
    pub(crate) first_run_hints: [u32; RUN_CLASSES],
    /// No inode before this one (counted in the group) is free.
    pub(crate) first_free_inode_hint: u32,
    /// No inode between those kept for directories and this one is free.
    pub(crate) first_free_file_hint: u32,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) list: Vec<Group>,
    free_blocks: u64,
    free_inodes: u32,
    directories: u64,
    overhead_blocks: u64,
}

/// See [`Group::data_from`]. What lies in other groups does not count.
fn data_from(sb: &Superblock, group: GroupNumber, d: &GroupDescriptor) -> BlockNumber {
    let first = sb.group_first_block(group);
    let end = first + u64::from(sb.blocks_in_group(group));
    let supers = match sb.has_super(group) {
        true => 1 + u64::from(sb.descriptor_blocks),
        false => 0,
    };
    let own = [
        (first, supers),
        (d.block_bitmap, 1),
        (d.inode_bitmap, 1),
        (d.inode_table, sb.inode_table_blocks.into()),
    ];
    let ends = own.iter().filter(|(start, len)| *len > 0 && *start < end);
    let ends = ends.map(|(start, len)| (*start + *len).clamp(first, end));
    ends.max().unwrap_or(first)
}

impl Groups {
    /// Takes the descriptors' counters for true.
    pub(crate) fn new(sb: &Superblock, descriptors: &[GroupDescriptor]) -> Groups {
        let mut groups = Groups {
            overhead_blocks: overhead(sb),
            ..Groups::default()
        };
        for (index, d) in descriptors.iter().enumerate() {
            let free_blocks = d
                .free_blocks
                .min(sb.blocks_in_group(GroupNumber::at(index)));
            let free_inodes = d.free_inodes.min(sb.inodes_per_group);
            groups.free_blocks += u64::from(free_blocks);
            groups.free_inodes += free_inodes;
            groups.directories += u64::from(d.used_directories);
            groups.list.push(Group {
                block_bitmap: d.block_bitmap,
                inode_bitmap: d.inode_bitmap,
                inode_table: d.inode_table,
                has_block_bitmap: d.has_block_bitmap(sb),
                data_from: data_from(sb, GroupNumber::at(index), d),
                free_blocks,
                free_inodes,
                directories: d.used_directories,
                first_free_hint: 0,
                first_run_hints: [0; RUN_CLASSES],
                first_free_inode_hint: 0,
                first_free_file_hint: 0,
            });
        }
        groups
    }

    /// Sets a group's counters to what its bitmaps say.
    pub(crate) fn recount(&mut self, group: usize, free_blocks: u32, free_inodes: u32) {
        let g = &mut self.list[group];
        self.free_blocks = self.free_blocks - u64::from(g.free_blocks) + u64::from(free_blocks);
        self.free_inodes = self.free_inodes - g.free_inodes + free_inodes;
        g.free_blocks = free_blocks;
        g.free_inodes = free_inodes;
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    pub(crate) fn free_inodes(&self) -> u32 {
        self.free_inodes
    }

    /// Blocks that files can never have: superblocks, descriptors, bitmaps, inode tables.
    pub(crate) fn overhead_blocks(&self) -> u64 {
        self.overhead_blocks
    }

    pub(crate) fn directories(&self) -> u64 {
        self.directories
    }

    pub(crate) fn take_blocks(&mut self, group: usize, count: u32) {
        let g = &mut self.list[group];
        g.free_blocks = g.free_blocks.saturating_sub(count);
        self.free_blocks = self.free_blocks.saturating_sub(count.into());
    }

    pub(crate) fn give_blocks(&mut self, group: usize, count: u32, first: u32) {
        let g = &mut self.list[group];
        g.free_blocks += count;
        g.first_free_hint = g.first_free_hint.min(first);
        for (class, hint) in g.first_run_hints.iter_mut().enumerate() {
            // Together with blocks that were free before, these may form a run of this class. It
            // begins less than its length before them: otherwise it was a run of the class already.
            *hint = (*hint).min(first.saturating_sub((1 << class) - 1));
        }
        self.free_blocks += u64::from(count);
    }

    pub(crate) fn take_inode(&mut self, group: usize, directory: bool) {
        self.directories += u64::from(directory);
        let g = &mut self.list[group];
        g.free_inodes = g.free_inodes.saturating_sub(1);
        g.directories += u32::from(directory);
        self.free_inodes = self.free_inodes.saturating_sub(1);
    }

    /// An inode of the group that is already marked as used turns out to be a directory.
    pub(crate) fn note_directory(&mut self, group: usize) {
        self.directories += 1;
        self.list[group].directories += 1;
    }

    pub(crate) fn give_inode(&mut self, group: usize, index: u32, directory: bool) {
        self.directories = self.directories.saturating_sub(directory.into());
        let g = &mut self.list[group];
        g.free_inodes += 1;
        g.first_free_inode_hint = g.first_free_inode_hint.min(index);
        g.first_free_file_hint = g.first_free_file_hint.min(index);
        g.directories = g.directories.saturating_sub(directory.into());
        self.free_inodes += 1;
    }
}

/// What `statfs` leaves out: the kernel's ext2 counts the superblock backups, descriptors, bitmaps
/// and inode tables.
fn overhead(sb: &Superblock) -> u64 {
    let per_group = 2 + u64::from(sb.inode_table_blocks);
    let backups: u64 = GroupNumber::all(sb.groups)
        .filter(|g| sb.has_super(*g))
        .map(|_| 1 + u64::from(sb.descriptor_blocks))
        .sum();
    sb.first_data_block.0 + backups + u64::from(sb.groups) * per_group
}
