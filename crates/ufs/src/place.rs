//! Where new things go, as the fast file system has it: a directory where there is room around it,
//! a file's inode beside its directory's, its contents in whole blocks one behind the other, and
//! its last fragments in a block that others have begun.

use backstitch_layout::{BlockNumber, Error, GroupNumber, InodeNumber, Step, Structure};
use backstitch_ordering::Volume;
use backstitch_unixfs::bitmap::Marks;
use backstitch_unixfs::format::{Picks, Space};
use backstitch_unixfs::{Fault, Run, read_bits};

use crate::fault::InodeFault;
use crate::format::group::{FRAGMENTS_MAX, offset};
use crate::format::{ROOT_INODE, Version};
use crate::kinds;
use crate::rules::{Rule, wait_for_all};
use crate::state::UfsFormat;

/// What is looked for in a group.
#[derive(Clone, Copy)]
struct Wanted<'p> {
    /// The place to begin at, where that is in the group; else the group's rotor.
    goal: Option<BlockNumber>,
    /// Fragments: less than a block's, or a multiple of them.
    fragments: u32,
    /// Fewer than these are not worth taking.
    least: u32,
    picks: &'p Picks,
}

impl<const BIG: bool> UfsFormat<BIG> {
    /// Picks free fragments: whole blocks one behind the other, or, where fewer fragments than a
    /// block has are wanted, as many in one block. Empty where there are none.
    pub(crate) fn place_run(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        goal: BlockNumber,
        want: u64,
        picks: &Picks,
    ) -> Step<Run> {
        let per_block = self.units_per_pointer();
        let want = match want < per_block {
            true => want,
            false => want / per_block * per_block,
        };
        let want = want.min(self.sb.fragments_per_group.into()) as u32;
        let home = match goal.0 < self.sb.fragments {
            true => self.sb.group_of(goal.0),
            false => self.sb.group_of_inode(inode),
        };
        let per_block = per_block as u32;
        // A run as long as the sums of groups tell apart is worth going to another group.
        let cluster = want.min(self.sb.cluster_sums.saturating_mul(per_block));
        let least = want.min(per_block);
        let passes = [cluster, least].into_iter();
        for least in passes.skip(usize::from(cluster <= least)) {
            for group in self.groups_from(home.index()) {
                let wanted = Wanted {
                    goal: (group == home.index()).then_some(goal),
                    fragments: want,
                    least,
                    picks,
                };
                if let Some(run) = self.place_run_in(v, group, wanted)? {
                    return self.checked_free(v, run);
                }
            }
        }
        Ok(Run::EMPTY)
    }

    /// Free fragments of a group; `None` where those that lie together are too few. What is found out
    /// about the group is kept.
    fn place_run_in(
        &mut self,
        v: &mut Volume<'_>,
        group: usize,
        wanted: Wanted<'_>,
    ) -> Step<Option<Run>> {
        let (per_block, least) = (self.sb.fragments_per_block, wanted.least);
        let g = &self.groups.list[group];
        let is_too_short = least > per_block && g.longest_run < least / per_block;
        if g.free_fragments < least || is_too_short {
            return Ok(None);
        }
        match self.find_in_group(v, group, wanted)? {
            Some((at, len)) if len >= least => Ok(Some(Run {
                start: BlockNumber(self.sb.group_start(GroupNumber::at(group)) + u64::from(at)),
                len: len.into(),
            })),
            found => {
                // What is picked already may be given up yet.
                if wanted.picks.0.is_empty() {
                    // A run may go on past the place where the search began.
                    let longest = found.map_or(0, |(_, len)| len / per_block * 2);
                    self.groups.list[group].longest_run = longest;
                }
                Ok(None)
            }
        }
    }

    /// The groups in the order in which a search looks into them: the first one, then by quadratic
    /// steps, then all others.
    fn groups_from(&self, home: usize) -> impl Iterator<Item = usize> + use<BIG> {
        let count = self.groups.list.len();
        let steps = std::iter::successors(Some(1_usize), |step| step.checked_mul(2));
        let near = steps.take_while(move |step| *step < count).scan(home, {
            move |at, step| {
                *at = (*at + step) % count;
                Some(*at)
            }
        });
        let all = (0..count).map(move |step| (home + step) % count);
        std::iter::once(home).chain(near).chain(all)
    }

    /// Checks that what a map shows as free is not the file system's own.
    fn checked_free(&self, v: &mut Volume<'_>, run: Run) -> Step<Run> {
        if !self.is_data_run(run) {
            let group = self.sb.group_of(run.start.0);
            let fault = Fault::OwnBlocksFree {
                start: run.start,
                end: run.end(),
            };
            return Err(Error::corrupt(Structure::BlockBitmap { group }, fault).into());
        }
        v.expect_places(run.start, run.len)?;
        Ok(run)
    }

    /// Free fragments of a group: where they begin, counted in it, and how many there are.
    fn find_in_group(
        &self,
        v: &mut Volume<'_>,
        group: usize,
        wanted: Wanted<'_>,
    ) -> Step<Option<(u32, u32)>> {
        let bits = self.block_bits(GroupNumber::at(group));
        let bytes = read_bits(v, &bits)?;
        let first = self.sb.group_start(GroupNumber::at(group));
        let free = Free {
            marks: bits.marks(&bytes),
            first,
            fragments: self.groups.list[group].fragments,
            per_block: self.sb.fragments_per_block,
            picks: wanted.picks,
        };
        let rotors = &self.groups.list[group].rotors;
        let from = match wanted.goal {
            Some(goal) => goal.0.saturating_sub(first).min(free.fragments.into()) as u32,
            None if wanted.fragments < free.per_block => rotors.fragment,
            None => rotors.block,
        };
        let from = from - from % free.per_block;
        let end = free.fragments;
        Ok(if wanted.fragments < free.per_block {
            // A place that others have begun first, the tightest one; then a whole block.
            free.tail(wanted.fragments, from..end)
                .or_else(|| free.tail(wanted.fragments, 0..from))
                .or_else(|| free.blocks(wanted.fragments, from..end))
                .or_else(|| free.blocks(wanted.fragments, 0..from))
        } else {
            let behind = free.blocks(wanted.fragments, from..end);
            match behind.filter(|(_, len)| *len == wanted.fragments) {
                Some(found) => Some(found),
                None => {
                    let before = free.blocks(wanted.fragments, 0..from);
                    [before, behind]
                        .into_iter()
                        .flatten()
                        .max_by_key(|(_, len)| *len)
                }
            }
        })
    }

    /// Picks a free inode for a name in a directory.
    pub(crate) fn place_inode(
        &mut self,
        v: &mut Volume<'_>,
        parent: InodeNumber,
        directory: bool,
    ) -> Step<Option<InodeNumber>> {
        let home = match directory {
            true => self.group_for_directory(parent),
            false => self.sb.group_of_inode(parent).index(),
        };
        for group in self.groups_from(home) {
            if let Some(inode) = self.place_inode_in(v, group)? {
                return Ok(Some(inode));
            }
        }
        Ok(None)
    }

    /// Picks a free inode of a group, and has it initialised.
    pub(crate) fn place_inode_in(
        &mut self,
        v: &mut Volume<'_>,
        group: usize,
    ) -> Step<Option<InodeNumber>> {
        if self.groups.list[group].free_inodes == 0 {
            return Ok(None);
        }
        let number = GroupNumber::at(group);
        let bits = self.inode_bits(number);
        let first = self.groups.list[group].first_free_inode_hint as usize;
        let found = {
            let bytes = read_bits(v, &bits)?;
            let count = self.sb.inodes_per_group as usize;
            bits.marks(&bytes).first_free(first, count)
        };
        let Some(index) = found else {
            self.groups.list[group].first_free_inode_hint = self.sb.inodes_per_group;
            return Ok(None);
        };
        let index = index as u32;
        self.initialise_inodes(v, group, index)?;
        self.groups.list[group].first_free_inode_hint = index;
        Ok(Some(self.group_first_inode(number) + index))
    }

    /// UFS2: before an inode is used that lies within a block of the last one that was initialised,
    /// the next block of inodes is zeroed, and after that the header counts it. What uses an inode
    /// comes after both.
    fn initialise_inodes(&mut self, v: &mut Volume<'_>, group: usize, index: u32) -> Step<()> {
        let per_block = self.sb.inodes_per_block;
        if self.sb.version == Version::Ufs1 {
            return Ok(());
        }
        let header = self.groups.list[group].header;
        let number = GroupNumber::at(group);
        while let initialised = self.groups.list[group].initialised_inodes
            && index + per_block > initialised
            && initialised < self.sb.inodes_per_group
        {
            v.read(header)?;
            self.check_uninitialised(v, number, initialised)?;
            let inode = self.group_first_inode(number) + initialised;
            let (fragment, _) = self.sb.inode_place(inode);
            let block = Run {
                start: BlockNumber(fragment),
                len: self.units_per_pointer(),
            };
            v.expect_places(block.start, block.len)?;
            let zeros = vec![0; self.sb.fragment_bytes as usize];
            let zeroed: Vec<_> = block
                .blocks()
                .map(|fragment| v.initialise(fragment, kinds::INODES, &zeros, &[]))
                .collect();
            let more = initialised + per_block;
            let bytes = self.sb.order.bytes_of_u32(more);
            let at = offset::INITIALISED_INODES;
            let zeroed = wait_for_all(Rule::InitialisedAfterZeros, &zeroed);
            let counted = v.write(header, kinds::GROUP, at, &bytes, zeroed);
            let g = &mut self.groups.list[group];
            (g.initialised_inodes, g.initialised) = (more, counted);
        }
        Ok(())
    }

    /// Checks that no inode in use lies in the block that is zeroed next: a wrong count of
    /// initialised inodes must not destroy files.
    fn check_uninitialised(
        &self,
        v: &mut Volume<'_>,
        group: GroupNumber,
        initialised: u32,
    ) -> Step<()> {
        let bits = self.inode_bits(group);
        let end = initialised + self.sb.inodes_per_block;
        let bytes = read_bits(v, &bits)?;
        let is_whole =
            initialised.is_multiple_of(self.sb.inodes_per_block) && end <= self.sb.inodes_per_group;
        let used = bits
            .marks(&bytes)
            .first_used(initialised as usize, end as usize);
        match is_whole && used.is_none() {
            true => Ok(()),
            false => {
                let fault = InodeFault::InitialisedWrong { initialised };
                Err(Error::corrupt(Structure::Descriptor { group }, fault).into())
            }
        }
    }

    /// The group of a new directory: near its parent, as long as groups there have room for it and
    /// what it will hold; those in the root directory far from each other.
    fn group_for_directory(&self, parent: InodeNumber) -> usize {
        let groups = &self.groups.list;
        let count = groups.len();
        let home = self.sb.group_of_inode(parent).index();
        let average = |total: u64| (total / count as u64) as u32;
        let free_inodes = average(self.groups.free_inodes().into());
        let directories = average(self.groups.directories());
        let free_fragments = average(self.groups.free_fragments());
        let ring = |from: usize| (0..count).map(move |step| (from + step) % count);
        if parent == ROOT_INODE {
            // Anywhere, but always the same for the same state: so a replay goes the same way.
            let turn = (self.groups.directories() as u32).wrapping_mul(0x9e37_79b9) as usize;
            let roomy = ring(turn % count).filter(|g| groups[*g].free_inodes >= free_inodes);
            return roomy.min_by_key(|g| groups[*g].directories).unwrap_or(home);
        }
        let most_directories = directories + self.sb.inodes_per_group / 16;
        let least_inodes = (free_inodes - free_inodes / 4).max(1);
        let least_fragments = free_fragments - free_fragments / 4;
        let most_contiguous = self.most_contiguous_directories(free_fragments, directories);
        let has_room = |g: &usize| {
            let g = &groups[*g];
            g.directories < most_directories
                && g.free_inodes >= least_inodes
                && g.free_fragments >= least_fragments
                && g.contiguous_directories < most_contiguous
        };
        let any = |g: &usize| groups[*g].free_inodes >= free_inodes.max(1);
        (ring(home).find(has_room))
            .or_else(|| ring(home).find(any))
            .unwrap_or(home)
    }

    /// How many directories may be made in a group without files in between: as many as the group
    /// has room for, with the contents expected of each.
    fn most_contiguous_directories(&self, free_fragments: u32, directories: u32) -> u32 {
        let fragment = u64::from(self.sb.fragment_bytes);
        let free = u64::from(free_fragments) * fragment;
        let group = u64::from(self.sb.fragments_per_group) * fragment;
        let raw = &self.sb.raw;
        let expected = u64::from(raw.fs_avgfilesize) * u64::from(raw.fs_avgfpdir);
        let now = (group.saturating_sub(free)).checked_div(directories.into());
        let each = expected.max(now.unwrap_or(0)).max(1);
        let by_files = self.sb.inodes_per_group / raw.fs_avgfpdir.max(1);
        (free / each).min(255).min(by_files.into()).max(1) as u32
    }
}

/// The free fragments of a group, but for those that are picked already.
struct Free<'a> {
    marks: Marks<'a>,
    /// The group's first fragment.
    first: u64,
    fragments: u32,
    per_block: u32,
    picks: &'a Picks,
}

impl Free<'_> {
    /// The free fragments of a block, a bit for each.
    fn of_block(&self, start: u32) -> u8 {
        let is_free = |at: u32| {
            at < self.fragments
                && !self.marks.is_used(at as usize)
                && self
                    .picks
                    .end_if_taken(BlockNumber(self.first + u64::from(at)))
                    .is_none()
        };
        (0..self.per_block).fold(0, |bits, k| bits | u8::from(is_free(start + k)) << k)
    }

    /// Fewer fragments than a block has, in a block of which others are used: of the runs that are
    /// long enough the first one of the shortest length.
    fn tail(&self, want: u32, range: std::ops::Range<u32>) -> Option<(u32, u32)> {
        let whole = crate::format::group::full_block(self.per_block);
        let mut best: Option<(u32, u32)> = None;
        let mut at = range.start as usize;
        while let Some(free) = self.marks.first_free(at, range.end as usize) {
            let start = free as u32 / self.per_block * self.per_block;
            at = (start + self.per_block) as usize;
            let bits = self.of_block(start);
            if bits == whole {
                continue;
            }
            for (offset, len) in crate::format::group::fragment_runs(bits) {
                if len >= want && best.is_none_or(|(_, best)| len < best) {
                    best = Some((start + offset, len));
                }
            }
            if best.is_some_and(|(_, len)| len == want) {
                break;
            }
        }
        best.map(|(at, _)| (at, want))
    }

    /// Whole blocks one behind the other: the first run that is as long as is wanted, else the
    /// longest. Where less than a block is wanted, the beginning of one.
    fn blocks(&self, want: u32, range: std::ops::Range<u32>) -> Option<(u32, u32)> {
        let whole = crate::format::group::full_block(self.per_block);
        let mut best: Option<(u32, u32)> = None;
        let mut at = range.start as usize;
        while let Some(free) = self.marks.first_free(at, range.end as usize) {
            let start = (free as u32).next_multiple_of(self.per_block);
            let mut end = start;
            while end - start < want && end < range.end && self.of_block(end) == whole {
                end += self.per_block;
            }
            let len = (end - start).min(want);
            if len == want {
                return Some((start, len));
            }
            if best.is_none_or(|(_, best)| len > best) && len > 0 {
                best = Some((start, len));
            }
            at = (end + self.per_block) as usize;
        }
        best
    }
}

const _: () = assert!(FRAGMENTS_MAX == u8::BITS as usize);
