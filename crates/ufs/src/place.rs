//! Where new things go, as the fast file system has it: a directory where there is room around it,
//! a file's inode beside its directory's, its contents in whole blocks one behind the other, and
//! its last fragments in a block that others have begun.

use std::ops::Range;

use backstitch_layout::{BlockNumber, Error, GroupNumber, InodeNumber, Step, Stop, Structure};
use backstitch_ordering::{PatchId, Volume};
use backstitch_unixfs::format::{Picks, Purpose, Space};
use backstitch_unixfs::{Fault, Run, are_in_memory, read_bits};

use crate::fault::InodeFault;
use crate::format::group::{FRAGMENTS_MAX, offset};
use crate::format::{ROOT_INODE, Version};
use crate::free::Free;
use crate::groups::{Area, WHOLE_BLOCKS};
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
    purpose: Purpose,
    picks: &'p Picks,
}

impl<const BIG: bool> UfsFormat<BIG> {
    /// Picks free fragments: whole blocks one behind the other, or, where fewer fragments than a
    /// block has are wanted, as many in one block. Empty where there are none.
    pub(crate) fn place_run(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        purpose: Purpose,
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
                    purpose,
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

    /// Whether all that is wanted is free from a fragment of the group on. Most runs go on where the
    /// last one ended, and this looks at no more of the map than that.
    fn is_run_free(
        &self,
        v: &mut Volume<'_>,
        group: usize,
        from: u32,
        wanted: Wanted<'_>,
    ) -> Step<bool> {
        let end = from + wanted.fragments;
        if wanted.fragments < self.sb.fragments_per_block
            || end > self.groups.list[group].fragments
            || !wanted.picks.0.is_empty()
        {
            return Ok(false);
        }
        let all = self.block_bits(GroupNumber::at(group));
        let (from, end) = (from as usize, end as usize);
        let (bits, base) = all.narrowed(from, end, self.sb.fragment_bytes);
        let bytes = read_bits(v, &bits)?;
        let (from, end) = (from - base, end - base);
        Ok(bits.marks(&bytes).first_used(from, end).is_none())
    }

    /// Where less than a block is wanted: the place that a search in the whole group finds, for most
    /// such searches. Each block of the map is looked at by itself, where it is. `None` also where
    /// nothing is known of the group yet, or a block of the map is not in memory.
    fn tail_by_blocks(
        &mut self,
        v: &mut Volume<'_>,
        group: usize,
        from: u32,
        wanted: Wanted<'_>,
    ) -> Step<Option<u32>> {
        let all = self.block_bits(GroupNumber::at(group));
        if !are_in_memory(v, &all) {
            return Ok(None);
        }
        for area in areas_for(wanted.purpose) {
            let g = &mut self.groups.list[group];
            let Some(sums) = g.searched(area).fragment_sums else {
                return Ok(None);
            };
            let tightest = tightest(&sums, wanted.fragments, self.sb.fragments_per_block);
            for range in from_on(g.range_of(area), from) {
                let found = self.tail_in(v, group, (area, range), (tightest, wanted))?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// The first place in a range of an area that is in the tightest run, or a whole block if there
    /// is no such run.
    fn tail_in(
        &mut self,
        v: &mut Volume<'_>,
        group: usize,
        (area, range): (Area, Range<u32>),
        (tightest, wanted): (Option<u32>, Wanted<'_>),
    ) -> Step<Option<u32>> {
        let all = self.block_bits(GroupNumber::at(group));
        let length = tightest.map_or(WHOLE_BLOCKS, |length| length as usize);
        let known = self.groups.list[group].searched(area);
        let mut at = known.search_from(length, range.start);
        let mut found = None;
        while at < range.end && found.is_none() {
            let (bits, base) = all.narrowed(at as usize, at as usize, self.sb.fragment_bytes);
            let base = base as u32;
            let bytes = read_bits(v, &bits)?;
            let free = self.free_in(group, bytes.get(bits.first_byte..), base, wanted.picks);
            let end = (base + free.map.len() as u32 * 8).min(range.end);
            found = match tightest {
                Some(tightest) => free.tail(1 << tightest, tightest, at..end),
                None => free.blocks(wanted.fragments, at..end),
            };
            at = end;
        }
        // What is picked already may be given up yet.
        if wanted.picks.0.is_empty() {
            let per_block = self.sb.fragments_per_block;
            let end = found.map_or(range.end, |(at, _)| at - at % per_block);
            let known = self.groups.list[group].searched(area);
            known.note_without(length, range.start, end);
        }
        Ok(found.map(|(at, _)| at))
    }

    /// The free fragments of a group, of whose map there is a part that begins with a fragment.
    fn free_in<'a>(
        &self,
        group: usize,
        map: Option<&'a [u8]>,
        base: u32,
        picks: &'a Picks,
    ) -> Free<'a> {
        Free {
            map: map.unwrap_or(&[]),
            base,
            first: self.sb.group_start(GroupNumber::at(group)),
            fragments: self.groups.list[group].fragments,
            per_block: self.sb.fragments_per_block,
            picks,
        }
    }

    /// Free fragments of a group: where they begin, counted in it, and how many there are.
    fn find_in_group(
        &mut self,
        v: &mut Volume<'_>,
        group: usize,
        wanted: Wanted<'_>,
    ) -> Step<Option<(u32, u32)>> {
        let bits = self.block_bits(GroupNumber::at(group));
        let from = self.begins_at(group, wanted);
        let from = from - from % self.sb.fragments_per_block;
        if self.is_run_free(v, group, from, wanted)? {
            return Ok(Some((from, wanted.fragments)));
        }
        let is_tail = wanted.fragments < self.sb.fragments_per_block;
        if is_tail && let Some(at) = self.tail_by_blocks(v, group, from, wanted)? {
            return Ok(Some((at, wanted.fragments)));
        }
        let bytes = read_bits(v, &bits)?;
        let free = self.free_in(group, bytes.get(bits.first_byte..), 0, wanted.picks);
        if is_tail {
            let g = &mut self.groups.list[group];
            let areas = areas_for(wanted.purpose).into_iter();
            let found = areas.filter_map(|area| {
                let range = g.range_of(area);
                let sums = &mut g.searched(area).fragment_sums;
                let sums = sums.get_or_insert_with(|| free.sums(range.clone()));
                tail_in_map(&free, from_on(range, from), sums, wanted.fragments)
            });
            return Ok(found.map(|at| (at, wanted.fragments)).next());
        }
        let behind = free.blocks(wanted.fragments, from..free.fragments);
        Ok(match behind.filter(|(_, len)| *len == wanted.fragments) {
            Some(found) => Some(found),
            None => {
                let before = free.blocks(wanted.fragments, 0..from);
                [before, behind]
                    .into_iter()
                    .flatten()
                    .max_by_key(|(_, len)| *len)
            }
        })
    }

    /// Where a search in a group begins, counted in it. What is kept for metadata is only given to
    /// contents when nothing else is left: so the indirect blocks of many files lie side by side, and
    /// not between their contents.
    fn begins_at(&self, group: usize, wanted: Wanted<'_>) -> u32 {
        let number = GroupNumber::at(group);
        let first = self.sb.group_start(number);
        let data = self.sb.group_data(number);
        let counted = |place: u64| place.saturating_sub(first) as u32;
        let (g, behind_metadata) = (
            &self.groups.list[group],
            wanted.purpose == Purpose::Contents,
        );
        let contents = g.contents_begin;
        let from = match wanted.goal {
            // Nothing of it is in the group yet.
            Some(goal) if goal.0 == data && behind_metadata => contents,
            Some(goal) => counted(goal.0),
            None if wanted.fragments < self.sb.fragments_per_block => g.rotors.fragment,
            None if behind_metadata => g.rotors.block.max(contents),
            None => counted(data),
        };
        from.min(g.fragments)
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
        let Some(index) = self.first_free_inode(v, group)? else {
            self.groups.list[group].first_free_inode_hint = self.sb.inodes_per_group;
            return Ok(None);
        };
        self.initialise_inodes(v, group, index)?;
        self.groups.list[group].first_free_inode_hint = index;
        Ok(Some(self.group_first_inode(GroupNumber::at(group)) + index))
    }

    /// The first free inode of a group, counted in it. Each block of the map is looked at by itself.
    fn first_free_inode(&self, v: &mut Volume<'_>, group: usize) -> Step<Option<u32>> {
        let all = self.inode_bits(GroupNumber::at(group));
        let count = self.sb.inodes_per_group as usize;
        let mut at = self.groups.list[group].first_free_inode_hint as usize;
        while at < count {
            let (bits, base) = all.narrowed(at, at, self.sb.fragment_bytes);
            let bytes = read_bits(v, &bits)?;
            let block_bits = (bytes.len().saturating_sub(bits.first_byte)).max(1) * 8;
            let end = (base + block_bits).min(count);
            if let Some(found) = bits.marks(&bytes).first_free(at - base, end - base) {
                return Ok(Some((base + found) as u32));
            }
            at = end;
        }
        Ok(None)
    }

    /// UFS2: before an inode is used that lies within a block of the last one that was initialised,
    /// the next block of inodes is zeroed, and after that the header counts it. What uses an inode
    /// comes after both.
    ///
    /// A block that is zeros on the disk already, as on a new image, is not written: the inodes in it
    /// would wait for their bits, these for the header, and that for the zeros in the same block, so
    /// that each change of an inode would need undo data, and a rollback.
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
            let zeroed = match self.are_zeros(v, block)? {
                true => Vec::new(),
                false => self.write_zeros(v, block),
            };
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

    /// Whether a block of inodes that were never used is zeros on the disk. They are read to tell, as
    /// they would be for the first file there; after one that has other contents no more are.
    fn are_zeros(&mut self, v: &mut Volume<'_>, block: Run) -> Step<bool> {
        if self.groups.has_leftovers {
            return Ok(false);
        }
        if block.blocks().filter(|fragment| !v.want(*fragment)).count() > 0 {
            return Err(Stop::Miss);
        }
        let zeros = vec![0; self.sb.fragment_bytes as usize];
        let mut pending = Vec::new();
        let are_zeros = block.blocks().all(|fragment| {
            v.pending(fragment, &mut pending);
            pending.is_empty() && v.peek(fragment).is_some_and(|bytes| bytes[..] == zeros)
        });
        self.groups.has_leftovers = !are_zeros;
        Ok(are_zeros)
    }

    fn write_zeros(&self, v: &mut Volume<'_>, block: Run) -> Vec<PatchId> {
        let zeros = vec![0; self.sb.fragment_bytes as usize];
        let fragments = block.blocks();
        fragments
            .map(|fragment| v.initialise(fragment, kinds::INODES, &zeros, &[]))
            .collect()
    }

    /// Checks that no inode in use lies in the block that is zeroed next: a wrong count of
    /// initialised inodes must not destroy files.
    fn check_uninitialised(
        &self,
        v: &mut Volume<'_>,
        group: GroupNumber,
        initialised: u32,
    ) -> Step<()> {
        let end = initialised + self.sb.inodes_per_block;
        let is_whole =
            initialised.is_multiple_of(self.sb.inodes_per_block) && end <= self.sb.inodes_per_group;
        let (from, to) = (initialised as usize, end as usize);
        let (bits, base) = (self.inode_bits(group)).narrowed(from, to, self.sb.fragment_bytes);
        let bytes = read_bits(v, &bits)?;
        let used = bits.marks(&bytes).first_used(from - base, to - base);
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

/// The areas of a group in the order in which a place for something is looked for in them.
///
/// Last fragments go where others have begun a block, and the next directory would go there too.
/// Mixed, they would spread the directories, each of which is a read for whoever walks through the
/// tree.
fn areas_for(purpose: Purpose) -> [Area; 2] {
    match purpose {
        Purpose::Contents => [Area::Contents, Area::Metadata],
        Purpose::Metadata => [Area::Metadata, Area::Contents],
    }
}

/// The two parts of a range, that from a place on first; the whole range if the place is not in it.
fn from_on(range: Range<u32>, place: u32) -> [Range<u32>; 2] {
    let from = match range.contains(&place) {
        true => place,
        false => range.start,
    };
    [from..range.end, range.start..from]
}

/// A place for last fragments: one that others have begun, the tightest one; then a whole block.
fn tail_in_map(
    free: &Free<'_>,
    ranges: [Range<u32>; 2],
    sums: &[u32; FRAGMENTS_MAX],
    fragments: u32,
) -> Option<u32> {
    let tightest = tightest(sums, fragments, free.per_block);
    let tails = ranges.clone().map(|range| {
        let lengths = u8::MAX << fragments;
        tightest.and_then(|tightest| free.tail(lengths, tightest, range))
    });
    // Of two that are as long the first one.
    let tail = tails.into_iter().flatten().min_by_key(|(_, len)| *len);
    let mut blocks = ranges
        .into_iter()
        .filter_map(|range| free.blocks(fragments, range));
    tail.or_else(|| blocks.next()).map(|(at, _)| at)
}

/// The length of the shortest run of free fragments, in blocks that are partly used, into which so
/// many go.
fn tightest(sums: &[u32; FRAGMENTS_MAX], fragments: u32, per_block: u32) -> Option<u32> {
    (fragments..per_block).find(|length| sums[*length as usize] > 0)
}

const _: () = assert!(FRAGMENTS_MAX == u8::BITS as usize);
