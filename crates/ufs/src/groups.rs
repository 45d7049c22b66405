//! What is known of cylinder groups: where their maps are, and how much is free in them.

use backstitch_layout::{BlockNumber, GroupNumber};
use backstitch_ordering::PatchId;

use crate::format::Superblock;
use crate::format::group::{
    FRAGMENTS_MAX, GroupHeader, Maps, RawSummaryCounts, Rotors, fragment_runs, full_block,
};

/// What is known of one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// The fragment with which its header begins.
    pub(crate) header: BlockNumber,
    pub(crate) maps: Maps,
    /// Fragments of the group.
    pub(crate) fragments: u32,
    /// Free fragments, those of whole free blocks included.
    pub(crate) free_fragments: u32,
    /// Blocks of which all fragments are free.
    pub(crate) free_blocks: u32,
    pub(crate) free_inodes: u32,
    pub(crate) directories: u32,
    /// The inodes that have been initialised, the first ones.
    pub(crate) initialised_inodes: u32,
    /// The patch that must be on the disk before an inode of those initialised last is used.
    pub(crate) initialised: PatchId,
    /// No run of free blocks is longer than this; `u32::MAX` where nobody has looked.
    pub(crate) longest_run: u32,
    /// Runs of free fragments within blocks that are partly used, by their length; `None` where
    /// nobody has looked. They are those of the map, whatever the header counts.
    pub(crate) fragment_sums: Option<[u32; FRAGMENTS_MAX]>,
    pub(crate) rotors: Rotors,
    /// No inode before this one (counted in the group) is free.
    pub(crate) first_free_inode_hint: u32,
    /// Directories made one after the other here, without a file in between.
    pub(crate) contiguous_directories: u32,
    /// Its counts on the disk are not those of its maps.
    pub(crate) is_stale: bool,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) list: Vec<Group>,
    /// Fragments that files can have.
    data_fragments: u64,
    free_fragments: u64,
    /// Blocks of which all fragments are free.
    free_blocks: u64,
    free_inodes: u32,
    directories: u64,
}

impl Groups {
    /// Takes the headers' counts for true.
    pub(crate) fn new(sb: &Superblock, headers: &[GroupHeader]) -> Groups {
        let mut groups = Groups {
            data_fragments: data_fragments(sb),
            ..Groups::default()
        };
        for header in headers {
            let counts = header.summary;
            let whole = u64::from(counts.free_blocks) * u64::from(sb.fragments_per_block);
            let free = (whole + u64::from(counts.free_fragments)).min(header.fragments.into());
            let free_blocks = counts
                .free_blocks
                .min(header.fragments / sb.fragments_per_block);
            let group = Group {
                header: BlockNumber(sb.group_header(header.group)),
                maps: header.maps,
                fragments: header.fragments,
                free_fragments: free as u32,
                free_blocks,
                free_inodes: counts.free_inodes.min(sb.inodes_per_group),
                directories: counts.directories.min(sb.inodes_per_group),
                initialised_inodes: header.initialised_inodes,
                initialised: PatchId::COMMITTED,
                longest_run: u32::MAX,
                fragment_sums: None,
                rotors: header.rotors,
                first_free_inode_hint: 0,
                contiguous_directories: 0,
                is_stale: false,
            };
            groups.free_fragments += u64::from(group.free_fragments);
            groups.free_blocks += u64::from(free_blocks);
            groups.free_inodes += group.free_inodes;
            groups.directories += u64::from(group.directories);
            groups.list.push(group);
        }
        groups
    }

    /// What the maps of all groups say is free, where the counts need not be true; they are written
    /// anew.
    pub(crate) fn recount(&mut self, fragments_per_block: u32, counted: &[RawSummaryCounts]) {
        (self.free_fragments, self.free_blocks, self.free_inodes) = (0, 0, 0);
        for (g, counts) in self.list.iter_mut().zip(counted) {
            g.free_fragments = counts.free_blocks * fragments_per_block + counts.free_fragments;
            g.free_blocks = counts.free_blocks;
            g.free_inodes = counts.free_inodes;
            g.fragment_sums = None;
            g.is_stale = true;
            self.free_fragments += u64::from(g.free_fragments);
            self.free_blocks += u64::from(counts.free_blocks);
            self.free_inodes += g.free_inodes;
        }
    }

    pub(crate) fn data_fragments(&self) -> u64 {
        self.data_fragments
    }

    pub(crate) fn free_fragments(&self) -> u64 {
        self.free_fragments
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    pub(crate) fn take_blocks(&mut self, group: usize, count: u32) {
        let g = &mut self.list[group];
        g.free_blocks = g.free_blocks.saturating_sub(count);
        self.free_blocks = self.free_blocks.saturating_sub(count.into());
    }

    pub(crate) fn give_blocks(&mut self, group: usize, count: u32) {
        let g = &mut self.list[group];
        g.free_blocks += count;
        if count > 0 {
            g.longest_run = u32::MAX;
        }
        self.free_blocks += u64::from(count);
    }

    /// The free fragments of a block, a bit for each, were some and are others now.
    pub(crate) fn note_fragments(&mut self, group: usize, per_block: u32, was: u8, is: u8) {
        let Some(sums) = &mut self.list[group].fragment_sums else {
            return;
        };
        let in_part = |free: &u8| *free != full_block(per_block);
        for (_, length) in Some(was)
            .filter(in_part)
            .into_iter()
            .flat_map(fragment_runs)
        {
            let sum = &mut sums[length as usize];
            *sum = sum.saturating_sub(1);
        }
        for (_, length) in Some(is).filter(in_part).into_iter().flat_map(fragment_runs) {
            sums[length as usize] += 1;
        }
    }

    pub(crate) fn free_inodes(&self) -> u32 {
        self.free_inodes
    }

    pub(crate) fn directories(&self) -> u64 {
        self.directories
    }

    pub(crate) fn take_fragments(&mut self, group: usize, count: u32) {
        let g = &mut self.list[group];
        g.free_fragments = g.free_fragments.saturating_sub(count);
        g.is_stale = true;
        self.free_fragments = self.free_fragments.saturating_sub(count.into());
    }

    pub(crate) fn give_fragments(&mut self, group: usize, count: u32) {
        let g = &mut self.list[group];
        g.free_fragments += count;
        g.is_stale = true;
        self.free_fragments += u64::from(count);
    }

    pub(crate) fn take_inode(&mut self, group: usize, directory: bool) {
        self.free_inodes = self.free_inodes.saturating_sub(1);
        let g = &mut self.list[group];
        g.free_inodes = g.free_inodes.saturating_sub(1);
        g.is_stale = true;
        // As FreeBSD counts: a file takes one off.
        g.contiguous_directories = match directory {
            true => g.contiguous_directories + 1,
            false => g.contiguous_directories.saturating_sub(1),
        };
        if directory {
            self.note_directory(group);
        }
    }

    pub(crate) fn give_inode(&mut self, group: usize, index: u32, directory: bool) {
        self.free_inodes += 1;
        let g = &mut self.list[group];
        g.free_inodes += 1;
        g.is_stale = true;
        g.first_free_inode_hint = g.first_free_inode_hint.min(index);
        // After a crash the group may count fewer directories than it has; the sum is of what the
        // groups count.
        if directory && g.directories > 0 {
            g.directories -= 1;
            self.directories -= 1;
        }
    }

    /// An inode of the group that is marked as used already becomes a directory.
    pub(crate) fn note_directory(&mut self, group: usize) {
        self.list[group].directories += 1;
        self.list[group].is_stale = true;
        self.directories += 1;
    }

    /// A group has so many directories.
    pub(crate) fn set_directories(&mut self, group: GroupNumber, directories: u32) {
        let g = &mut self.list[group.index()];
        self.directories = self.directories - u64::from(g.directories) + u64::from(directories);
        g.is_stale |= g.directories != directories;
        g.directories = directories;
    }
}

/// Those behind each group's own, without the summary's.
fn data_fragments(sb: &Superblock) -> u64 {
    let groups = GroupNumber::all(sb.groups);
    let own = groups.map(|group| sb.own_fragments(group));
    let own: u64 = own.map(|own| own.end - own.start).sum();
    let summary = sb.summary_fragments();
    (sb.fragments).saturating_sub(own + (summary.end - summary.start))
}
