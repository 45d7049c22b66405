//! Where new things go: directories apart from each other, a directory's inodes and contents
//! together, a file's contents in runs.

use std::ops::Range;

use backstitch_layout::{BlockNumber, Error, GroupNumber, InodeNumber, Step, Structure};
use backstitch_ordering::Volume;
use backstitch_unixfs::format::{Picks, Purpose, Space};
use backstitch_unixfs::{Fault, Run, bitmap};

use crate::format::ROOT_INODE;
use crate::groups::RUN_CLASSES;
use crate::state::ExtFormat;

/// The smallest and the largest reservation behind a growing file.
const WINDOW_BLOCKS: (u64, u64) = (8, 1024);
/// How many groups a search for a long run looks into before it takes a short one.
const GROUPS_FOR_LONG_RUN: usize = 8;
/// How many runs a search looks at in one group before it is content with one that is long enough
/// for now.
const RUNS_FOR_LONG_ONE: u32 = 16;
/// In a group with at least this many inodes a part of them, the first ones, is left to directories
/// while there are others. A directory's inode waits for the directory's first block, whose names
/// wait for the inodes of files: in one block of the table with these, one of the two blocks has to
/// be written twice.
const INODES_FOR_DIRECTORIES: (u32, u32) = (1024, 16);
/// In a group with at least this many blocks a part of them, the first ones behind the inode table,
/// is left to directories and to indirect and attribute blocks while there are others. These are
/// written at other times than contents: between them they would cut the contents of many files,
/// which otherwise are one run, into pieces.
const BLOCKS_FOR_METADATA: (u64, u64) = (4096, 32);

/// A search for free blocks.
struct Search {
    /// The file that they are for; 0 where they are for none that has space reserved.
    inode: InodeNumber,
    purpose: Purpose,
    /// The block to begin at.
    goal: BlockNumber,
    /// How many are needed now.
    need: u64,
    /// How many would be best.
    wish: u64,
    /// Whether space that is reserved for other files, and for contents also the blocks kept for
    /// metadata, is left out.
    keeps_out: bool,
}

impl ExtFormat {
    /// Picks free blocks: one run of at most `want` blocks, at `goal` or as near as can be. `grows`
    /// says that the file has grown before, and space after the run is worth reserving. Empty where
    /// nothing is free.
    pub(crate) fn place_run(
        &mut self,
        v: &mut Volume<'_>,
        (inode, grows): (InodeNumber, bool),
        purpose: Purpose,
        goal: BlockNumber,
        want: u64,
        picks: &Picks,
    ) -> Step<Run> {
        if let Some(window) = self.windows.of(inode) {
            let run = self.free_run_at(v, window.start, want.min(window.len), inode, picks)?;
            if run.len > 0 {
                self.check_free_run(run)?;
                v.expect_places(run.start, run.len)?;
                return Ok(run);
            }
        }
        let wish = if grows {
            want + self.window_length(want)
        } else {
            want
        };
        let run = self.search_run(v, inode, purpose, goal, (want, wish), picks)?;
        let len = run.len.min(want);
        v.expect_places(run.start, len)?;
        Ok(Run {
            start: run.start,
            len,
        })
    }

    fn window_length(&self, want: u64) -> u64 {
        (want * 4).clamp(WINDOW_BLOCKS.0, WINDOW_BLOCKS.1)
    }

    /// The run was taken for `inode`: what lies behind it is reserved if the file grows.
    pub(crate) fn reserve_behind(&mut self, inode: InodeNumber, run: Run, grows: bool) {
        let window = self.windows.of(inode);
        match window {
            Some(w) if w.start == run.start && w.len > run.len => {
                self.windows.set(
                    inode,
                    Run {
                        start: run.end(),
                        len: w.len - run.len,
                    },
                );
            }
            _ if grows => {
                let group = self.sb.group_of_block(run.end() - 1);
                let group_end =
                    self.sb.group_first_block(group) + u64::from(self.sb.blocks_in_group(group));
                let end = group_end.min(self.windows.next_foreign_start(run.end(), inode));
                let len = self
                    .window_length(run.len)
                    .min(end.saturating_sub(run.end()));
                self.windows.set(
                    inode,
                    Run {
                        start: run.end(),
                        len,
                    },
                );
            }
            _ => self.windows.drop_of(inode),
        }
    }

    /// Picks one free block for an indirect or attribute block: near, but not where contents are
    /// about to go. Of the blocks kept for metadata these blocks take the second half, directories
    /// the first one. They can be written before directories; mixed with these each would be a
    /// request of its own.
    pub(crate) fn place_single(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        picks: &Picks,
    ) -> Step<Option<BlockNumber>> {
        // The search is for no inode, so that the reservations of all files are left out.
        let kept = self.metadata_blocks(self.sb.group_of_inode(inode).index());
        let goal = kept.end - (kept.end - kept.start) / 2;
        let run = self.search_run(v, InodeNumber::NONE, Purpose::Metadata, goal, (1, 1), picks)?;
        v.expect_places(run.start, run.len)?;
        Ok((run.len > 0).then_some(run.start))
    }

    /// The longest free run from `goal` on, up to `wish` blocks; of the groups looked at, the first
    /// that has it all, else the longest. Other files' windows, and for contents the blocks kept
    /// for metadata, are taken only when nothing else is left.
    fn search_run(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        purpose: Purpose,
        goal: BlockNumber,
        (need, wish): (u64, u64),
        picks: &Picks,
    ) -> Step<Run> {
        let goal = goal.clamp(self.sb.first_data_block, self.sb.end_block() - 1);
        let first_group = self.sb.group_of_block(goal).index();
        for keeps_out in [true, false] {
            // The search leaves out groups that have no run of this length, and with them their
            // shorter runs. So it is repeated for shorter ones.
            let mut wish = wish;
            loop {
                let search = Search {
                    inode,
                    purpose,
                    goal,
                    need,
                    wish,
                    keeps_out,
                };
                let best = self.search_groups(v, &search, first_group, picks)?;
                if best.len > 0 {
                    self.check_free_run(best)?;
                    return Ok(best);
                }
                if wish <= 1 {
                    break;
                }
                wish /= 2;
            }
        }
        Ok(Run::EMPTY)
    }

    /// Makes sure that a run which the bitmap calls free is not metadata or the journal's: writing
    /// there would destroy it.
    fn check_free_run(&self, run: Run) -> Step<()> {
        if self.is_data_run(run) {
            return Ok(());
        }
        let group = self.sb.group_of_block(run.start);
        Err(Error::corrupt(
            Structure::BlockBitmap { group },
            Fault::OwnBlocksFree {
                start: run.start,
                end: run.end(),
            },
        )
        .into())
    }

    /// The best run of some groups, or of all of them where one block is enough.
    fn search_groups(
        &mut self,
        v: &mut Volume<'_>,
        search: &Search,
        first_group: usize,
        picks: &Picks,
    ) -> Step<Run> {
        let groups = self.groups.list.len();
        let mut best = Run::EMPTY;
        let mut looked_into = 0;
        for step in 0..=groups {
            let group = (first_group + step) % groups;
            if self.groups.list[group].free_blocks == 0 {
                continue;
            }
            let mut from = if step == 0 {
                search.goal
            } else {
                self.sb.group_first_block(GroupNumber::at(group))
            };
            if search.keeps_out && search.purpose == Purpose::Contents {
                from = from.max(self.contents_start(group));
            }
            let run = self.search_group(v, group, from, search, picks)?;
            if run.len > best.len {
                best = run;
            }
            looked_into += 1;
            let enough = best.len > 0 || search.wish > 1;
            let good = best.len >= search.need.min(search.wish);
            if good || (enough && looked_into >= GROUPS_FOR_LONG_RUN) {
                break;
            }
        }
        Ok(best)
    }

    /// The first free run of a group from `from` on that is long enough, else the longest one
    /// there. Skips the beginning of the group, where by its hints no run is long enough.
    fn search_group(
        &mut self,
        v: &mut Volume<'_>,
        group: usize,
        from: BlockNumber,
        search: &Search,
        picks: &Picks,
    ) -> Step<Run> {
        let first = self.sb.group_first_block(GroupNumber::at(group));
        let end = self.sb.blocks_in_group(GroupNumber::at(group)) as usize;
        let contents = (self.contents_start(group) - first) as usize;
        let is_contents = from >= first + contents as u64;
        let class = match is_contents {
            true => (search.wish.max(1).ilog2() as usize).min(RUN_CLASSES - 1),
            false => 0,
        };
        let g = &self.groups.list[group];
        let known = match is_contents {
            true => contents.max(g.first_run_hints[class] as usize),
            false => g.first_free_hint as usize,
        };
        let from_bit = from.saturating_sub(first) as usize;
        let mut bit = from_bit.max(known);
        let mut best = Run::EMPTY;
        if bit >= end {
            return Ok(best);
        }
        let keeping_out = search.keeps_out.then_some(search.inode);
        let mut others = self.windows.pass(first + bit as u64, keeping_out);
        let bits = v.read(g.block_bitmap)?;
        // The start of the first run that may be of the class. A run that is partly reserved or
        // picked counts: later it may be longer than what the search sees of it now.
        let mut first_of_class = None;
        let mut seen_to = end;
        let mut runs = 0;
        while let Some(free) = bitmap::find_zero(bits, bit, end) {
            let block = first + free as u64;
            let taken = others.foreign_end(block);
            if let Some(skip_to) = taken.or_else(|| picks.end_if_taken(block)) {
                first_of_class.get_or_insert(free);
                bit = (skip_to - first) as usize;
                continue;
            }
            let limit = others
                .next_foreign_start()
                .min(picks.next_start(block))
                .min(block + search.wish)
                .min(first + end as u64);
            let limit = (limit - first) as usize;
            let run_end = bitmap::find_set(bits, free, limit).unwrap_or(limit);
            let len = (run_end - free) as u64;
            if len >= 1 << class || run_end == limit {
                first_of_class.get_or_insert(free);
            }
            if len > best.len {
                best = Run { start: block, len };
            }
            runs += 1;
            let continues = block == search.goal && len >= search.need;
            let looked_enough = runs >= RUNS_FOR_LONG_ONE && best.len >= search.need;
            if len >= search.wish || continues || looked_enough {
                seen_to = run_end;
                break;
            }
            bit = run_end.max(free + 1);
        }
        // A hint may only be raised by a search that began at it or before: others did not see what
        // lies between.
        if from_bit <= known {
            let g = &mut self.groups.list[group];
            let hint = match is_contents {
                true => &mut g.first_run_hints[class],
                false => &mut g.first_free_hint,
            };
            *hint = first_of_class.unwrap_or(seen_to) as u32;
        }
        Ok(best)
    }

    /// The first block of a group that contents of files get while there are others.
    pub(crate) fn contents_start(&self, group: usize) -> BlockNumber {
        self.metadata_blocks(group).end
    }

    /// The blocks of a group that are kept for metadata; none where the group is small.
    fn metadata_blocks(&self, group: usize) -> Range<BlockNumber> {
        let first = self.sb.group_first_block(GroupNumber::at(group));
        let blocks = u64::from(self.sb.blocks_in_group(GroupNumber::at(group)));
        let (least, part) = BLOCKS_FOR_METADATA;
        if blocks < least {
            return first..first;
        }
        let table_end = self.groups.list[group].inode_table + u64::from(self.sb.inode_table_blocks);
        // The table may be in another group.
        let start = if (first..first + blocks / 2).contains(&table_end) {
            table_end
        } else {
            first
        };
        start..start + blocks / part
    }

    /// How much of `want` blocks from `start` on is free.
    fn free_run_at(
        &mut self,
        v: &mut Volume<'_>,
        start: BlockNumber,
        want: u64,
        inode: InodeNumber,
        picks: &Picks,
    ) -> Step<Run> {
        let group = self.sb.group_of_block(start).index();
        let first = self.sb.group_first_block(GroupNumber::at(group));
        let end = first + u64::from(self.sb.blocks_in_group(GroupNumber::at(group)));
        let limit = (start + want)
            .min(end)
            .min(picks.next_start(start))
            .min(self.windows.next_foreign_start(start, inode));
        if picks.end_if_taken(start).is_some() || limit <= start {
            return Ok(Run { start, len: 0 });
        }
        let bits = v.read(self.groups.list[group].block_bitmap)?;
        let from = (start - first) as usize;
        let to = (limit - first) as usize;
        let used = bitmap::find_set(bits, from, to).unwrap_or(to);
        Ok(Run {
            start,
            len: (used - from) as u64,
        })
    }

    /// Picks a free inode; `None` where there is none.
    pub(crate) fn place_inode(
        &mut self,
        v: &mut Volume<'_>,
        parent: InodeNumber,
        name: &[u8],
        directory: bool,
    ) -> Step<Option<InodeNumber>> {
        if self.groups.free_inodes() == 0 {
            return Ok(None);
        }
        let groups = self.groups.list.len();
        let home = self.sb.group_of_inode(parent).index();
        let first = if directory {
            self.group_for_directory(parent, home, name)
        } else {
            self.place_file(home, name)
        };
        for step in 0..groups {
            let group = (first + step) % groups;
            if self.groups.list[group].free_inodes == 0 {
                continue;
            }
            if let Some(inode) = self.place_inode_in(v, group, directory)? {
                return Ok(Some(inode));
            }
        }
        Ok(None)
    }

    pub(crate) fn place_inode_in(
        &mut self,
        v: &mut Volume<'_>,
        group: usize,
        directory: bool,
    ) -> Step<Option<InodeNumber>> {
        let first_for_files = self.first_inode_for_files();
        let reserved = if group == 0 {
            self.sb.first_inode.index() as u32
        } else {
            0
        };
        let g = &mut self.groups.list[group];
        let end = self.sb.inodes_per_group as usize;
        let bits = v.read(g.inode_bitmap)?;
        let mut found = None;
        if !directory {
            let from = g.first_free_file_hint.max(first_for_files).max(reserved);
            found = bitmap::find_zero(bits, from as usize, end);
            g.first_free_file_hint = found.unwrap_or(end) as u32;
        }
        if found.is_none() {
            let from = g.first_free_inode_hint.max(reserved) as usize;
            found = bitmap::find_zero(bits, from, end);
            g.first_free_inode_hint = found.unwrap_or(end) as u32;
        }
        let inode =
            found.map(|index| self.sb.group_first_inode(GroupNumber::at(group)) + index as u32);
        Ok(inode.filter(|i| self.sb.is_valid_inode(*i)))
    }

    /// The first inode of a group (counted in it) that files get while there are others, at the
    /// beginning of a block.
    fn first_inode_for_files(&self) -> u32 {
        let (least, part) = INODES_FOR_DIRECTORIES;
        if self.sb.inodes_per_group < least {
            return 0;
        }
        let in_block = self.sb.block_size / self.sb.inode_size;
        (self.sb.inodes_per_group / part).next_multiple_of(in_block.max(1))
    }

    /// A file goes where its directory is; where that is full, to groups at doubling distances, as
    /// FFS does it.
    pub(crate) fn place_file(&self, home: usize, name: &[u8]) -> usize {
        let groups = self.groups.list.len();
        let good =
            |g: usize| self.groups.list[g].free_inodes > 0 && self.groups.list[g].free_blocks > 0;
        if good(home) {
            return home;
        }
        let mut group = (home + name_hash(name)) % groups;
        let mut step = 1;
        while step < groups {
            group = (group + step) % groups;
            if good(group) {
                return group;
            }
            step *= 2;
        }
        home
    }

    /// Orlov's allocator: directories of the root are spread over groups that are emptier than the
    /// average; others stay near their parent while there is room for them and what they will hold.
    fn group_for_directory(&self, parent: InodeNumber, home: usize, name: &[u8]) -> usize {
        let list = &self.groups.list;
        let count = list.len() as u64;
        let average_inodes = u64::from(self.groups.free_inodes()) / count;
        let average_blocks = self.groups.free_blocks() / count;
        if parent == ROOT_INODE {
            let start = name_hash(name) % list.len();
            let emptiest = (0..list.len())
                .map(|i| (start + i) % list.len())
                .filter(|g| {
                    u64::from(list[*g].free_inodes) >= average_inodes
                        && u64::from(list[*g].free_blocks) >= average_blocks
                })
                .min_by_key(|g| list[*g].directories);
            return emptiest.unwrap_or(home);
        }
        let directories = self.groups.directories() / count;
        let most_directories = directories + u64::from(self.sb.inodes_per_group) / 16;
        let fewest_inodes = average_inodes.saturating_sub(u64::from(self.sb.inodes_per_group) / 4);
        let fewest_blocks = average_blocks.saturating_sub(u64::from(self.sb.blocks_per_group) / 4);
        (0..list.len())
            .map(|i| (home + i) % list.len())
            .find(|g| {
                let g = &list[*g];
                u64::from(g.directories) < most_directories
                    && g.free_inodes > 0
                    && u64::from(g.free_inodes) >= fewest_inodes
                    && u64::from(g.free_blocks) >= fewest_blocks
            })
            .unwrap_or(home)
    }
}

/// Spreads names over groups.
fn name_hash(name: &[u8]) -> usize {
    name.iter()
        .fold(5381usize, |h, b| h.wrapping_mul(33) ^ usize::from(*b))
}
