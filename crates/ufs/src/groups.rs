//! What is known of cylinder groups: where their maps are, and how much is free in them.

use std::ops::Range;

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
    /// What begins here, counted in the group, and what comes before it are looked through each for
    /// itself: contents of files, and what is kept for metadata.
    pub(crate) contents_begin: u32,
    /// What is known of the two areas, by [`Area`].
    pub(crate) areas: [Searched; 2],
    pub(crate) rotors: Rotors,
    /// No inode before this one (counted in the group) is free.
    pub(crate) first_free_inode_hint: u32,
    /// Directories made one after the other here, without a file in between.
    pub(crate) contiguous_directories: u32,
    /// Its counts on the disk are not those of its maps.
    pub(crate) is_stale: bool,
}

/// Stands for whole free blocks among the lengths of runs.
pub(crate) const WHOLE_BLOCKS: usize = 0;

/// A part of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    /// What is kept for directories and indirect blocks, and the group's own before it.
    Metadata,
    /// The rest.
    Contents,
}

/// What searches have found out of an area.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Searched {
    /// Runs of free fragments within blocks that are partly used, by their length; `None` where
    /// nobody has looked. They are those of the map, whatever the header counts.
    pub(crate) fragment_sums: Option<[u32; FRAGMENTS_MAX]>,
    /// For each of these lengths, fragments between which no such run begins; with 0 for whole free
    /// blocks. So a search need not go over what others have been over. Kept as long as the sums are.
    without: [(u32, u32); FRAGMENTS_MAX],
}

impl Group {
    /// The fragments of an area, counted in the group.
    pub(crate) fn range_of(&self, area: Area) -> Range<u32> {
        match area {
            Area::Metadata => 0..self.contents_begin,
            Area::Contents => self.contents_begin..self.fragments,
        }
    }

    /// What is known of an area.
    pub(crate) fn searched(&mut self, area: Area) -> &mut Searched {
        &mut self.areas[area as usize]
    }
}

impl Searched {
    /// Where a search for runs of this length that begins at `from` can begin as well.
    pub(crate) fn search_from(&self, length: usize, from: u32) -> u32 {
        match self.without[length] {
            (start, end) if (start..end).contains(&from) => end,
            _ => from,
        }
    }

    /// From `from` to `end` no run of this length begins.
    pub(crate) fn note_without(&mut self, length: usize, from: u32, end: u32) {
        let known = &mut self.without[length];
        *known = match (known.0..=known.1).contains(&from) {
            true => (known.0, known.1.max(end)),
            false => (from, end),
        };
    }
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
    /// Inodes that were never used have been found to be other than zeros.
    pub(crate) has_leftovers: bool,
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
                contents_begin: sb.contents_begin(header.group).min(header.fragments),
                areas: Default::default(),
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
            g.areas = Default::default();
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
            for area in &mut g.areas {
                area.without[WHOLE_BLOCKS] = Default::default();
            }
        }
        self.free_blocks += u64::from(count);
    }

    /// The free fragments of the block that begins at `start`, a bit for each, were some and are
    /// others now.
    pub(crate) fn note_fragments(
        &mut self,
        group: usize,
        start: u32,
        per_block: u32,
        (was, is): (u8, u8),
    ) {
        let g = &mut self.list[group];
        let area = match start < g.contents_begin {
            true => Area::Metadata,
            false => Area::Contents,
        };
        let known = g.searched(area);
        let Some(sums) = &mut known.fragment_sums else {
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
            let (from, end) = &mut known.without[length as usize];
            if (*from..*end).contains(&start) {
                *end = start;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const PER_BLOCK: u32 = 8;

    fn group() -> Groups {
        let group = Group {
            header: BlockNumber(0),
            maps: Maps::default(),
            fragments: 800,
            free_fragments: 0,
            free_blocks: 0,
            free_inodes: 0,
            directories: 0,
            initialised_inodes: 0,
            initialised: PatchId::COMMITTED,
            longest_run: u32::MAX,
            contents_begin: 0,
            areas: [Searched {
                fragment_sums: Some(Default::default()),
                ..Searched::default()
            }; 2],
            rotors: Rotors::default(),
            first_free_inode_hint: 0,
            contiguous_directories: 0,
            is_stale: false,
        };
        Groups {
            list: vec![group],
            ..Groups::default()
        }
    }

    /// A search passes over what others found to be without such runs, until there is one.
    #[test]
    fn what_was_searched_is_passed_over_until_it_changes() {
        let mut groups = group();
        let at = |groups: &Groups, from| groups.list[0].areas[1].search_from(3, from);
        groups.list[0].areas[1].note_without(3, 80, 160);
        groups.list[0].areas[1].note_without(3, 160, 240);
        assert_eq!(
            [72, 80, 160, 232, 240].map(|from| at(&groups, from)),
            [72, 240, 240, 240, 240]
        );
        // Runs of another length, and one in front of it, change nothing.
        groups.note_fragments(0, 96, PER_BLOCK, (0, 0b11));
        groups.note_fragments(0, 72, PER_BLOCK, (0, 0b111));
        assert_eq!(at(&groups, 80), 240);
        groups.note_fragments(0, 160, PER_BLOCK, (0, 0b1110_0000));
        assert_eq!([80, 168].map(|from| at(&groups, from)), [160, 168]);
        // Known from elsewhere on: what was known before is forgotten.
        groups.list[0].areas[1].note_without(3, 400, 480);
        assert_eq!([80, 400].map(|from| at(&groups, from)), [80, 480]);
        groups.list[0].areas[1].note_without(WHOLE_BLOCKS, 0, 80);
        assert_eq!(groups.list[0].areas[1].search_from(WHOLE_BLOCKS, 8), 80);
        groups.give_blocks(0, 1);
        assert_eq!(groups.list[0].areas[1].search_from(WHOLE_BLOCKS, 8), 8);
    }
}
