//! Fragments and inodes: where they are, maps on the disk, counts in memory.
//!
//! From the maps of a group follow its counts, its sums of runs, and its map of free blocks. These
//! are not kept up to date on the disk: they have no dependencies, are computed anew after a crash,
//! and are written at the unmount.

use std::ops::Range;

use backstitch_layout::{
    BlockNumber, Error, FreeSpaceReader, GroupNumber, InodeNumber, Step, Structure,
};
use backstitch_ordering::{PatchId, Volume};
use backstitch_unixfs::bitmap::Bits;
use backstitch_unixfs::format::{Picks, Purpose, Space};
use backstitch_unixfs::{Fault, PatchIds, Run, read_bits};
use smallvec::SmallVec;

use crate::format::ROOT_INODE;
use crate::format::group::full_block;
use crate::kinds;
use crate::rules::{Rule, wait_for};
use crate::state::UfsFormat;

/// A part of a run that lies in one group: the group, the first fragment counted in it, how many.
pub(crate) type Part = (usize, u32, u32);

/// A range of fragments as a run.
fn run_of(range: Range<u64>) -> Run {
    Run {
        start: BlockNumber(range.start),
        len: range.end - range.start,
    }
}

impl<const BIG: bool> Space for UfsFormat<BIG> {
    fn block_size(&self) -> u32 {
        self.sb.fragment_bytes
    }

    fn units_per_pointer(&self) -> u64 {
        self.sb.fragments_per_block.into()
    }

    fn first_data_block(&self) -> BlockNumber {
        BlockNumber(0)
    }

    fn blocks_count(&self) -> u64 {
        self.sb.fragments
    }

    fn reserved_blocks(&self) -> u64 {
        let percent = self.sb.raw.fs_minfree.clamp(0, 100) as u64;
        self.groups.data_fragments() / 100 * percent
    }

    fn overhead_blocks(&self) -> u64 {
        self.sb.fragments - self.groups.data_fragments()
    }

    fn inodes_count(&self) -> u32 {
        self.sb.inodes()
    }

    /// Inodes are numbered from 0.
    fn last_inode(&self) -> InodeNumber {
        InodeNumber(self.sb.inodes() - 1)
    }

    fn first_inode(&self) -> InodeNumber {
        ROOT_INODE + 1
    }

    fn free_blocks(&self) -> u64 {
        self.groups.free_fragments()
    }

    fn free_blocks_in_wholes(&self) -> u64 {
        self.groups.free_blocks() * self.units_per_pointer()
    }

    fn free_inodes(&self) -> u32 {
        self.groups.free_inodes()
    }

    fn groups_count(&self) -> u32 {
        self.sb.groups
    }

    fn group_of_block(&self, block: BlockNumber) -> GroupNumber {
        self.sb.group_of(block.0)
    }

    fn group_first_block(&self, group: GroupNumber) -> BlockNumber {
        BlockNumber(self.sb.group_start(group))
    }

    fn blocks_in_group(&self, group: GroupNumber) -> u32 {
        self.sb.fragments_in_group(group)
    }

    fn blocks_per_group(&self) -> u32 {
        self.sb.fragments_per_group
    }

    fn group_of_inode(&self, inode: InodeNumber) -> GroupNumber {
        self.sb.group_of_inode(inode)
    }

    fn group_first_inode(&self, group: GroupNumber) -> InodeNumber {
        InodeNumber(group.0 * self.sb.inodes_per_group)
    }

    fn inodes_per_group(&self) -> u32 {
        self.sb.inodes_per_group
    }

    fn free_inodes_in(&self, group: GroupNumber) -> u32 {
        self.groups.list[group.index()].free_inodes
    }

    fn free_in_wholes_of(&self, group: GroupNumber) -> u32 {
        self.groups.list[group.index()].free_blocks * self.sb.fragments_per_block
    }

    fn block_bits(&self, group: GroupNumber) -> Bits {
        let g = &self.groups.list[group.index()];
        self.bits(g.header, g.maps.fragments_free, g.fragments, true)
    }

    fn inode_bits(&self, group: GroupNumber) -> Bits {
        let g = &self.groups.list[group.index()];
        let inodes = self.sb.inodes_per_group;
        self.bits(g.header, g.maps.inodes_used, inodes, false)
    }

    fn inodes_per_block(&self) -> u32 {
        self.sb.fragment_bytes / self.sb.version.inode_bytes() as u32
    }

    fn own_runs(&self, visit: &mut dyn FnMut(Run)) {
        for group in GroupNumber::all(self.sb.groups) {
            let own = self.sb.own_fragments(group);
            visit(run_of(own));
        }
        visit(run_of(self.sb.summary_fragments()));
    }

    fn set_directories(&mut self, group: GroupNumber, directories: u32) {
        self.groups.set_directories(group, directories);
    }

    fn note_directory(&mut self, group: GroupNumber) {
        self.groups.note_directory(group.index());
    }

    /// Fragments inside the file system, of which none is a group's own or the summary's.
    fn is_data_run(&self, run: Run) -> bool {
        let end = run.start.checked_add(run.len);
        if end.is_none_or(|end| end.0 > self.sb.fragments) {
            return false;
        }
        let touches = |own: Range<u64>| run.start.0 < own.end && own.start < run.end().0;
        !touches(self.sb.summary_fragments())
            && self
                .parts(run)
                .iter()
                .all(|(group, _, _)| !touches(self.sb.own_fragments(GroupNumber::at(*group))))
    }

    fn goal_near(&self, inode: InodeNumber) -> BlockNumber {
        BlockNumber(self.sb.group_data(self.sb.group_of_inode(inode)))
    }

    fn goal_of_section(
        &mut self,
        inode: InodeNumber,
        logical: u64,
        before: Option<BlockNumber>,
    ) -> Option<BlockNumber> {
        self.place_section(inode, logical, before)
    }

    fn section_left(&self, logical: u64) -> u64 {
        self.left_of_section(logical)
    }

    /// The end of what is kept for metadata, for a fragment that lies before it in its group.
    fn directories_end(&self, block: BlockNumber) -> Option<BlockNumber> {
        let group = self.sb.group_of(block.0);
        let contents = self.groups.list.get(group.index())?.contents_begin;
        let end = BlockNumber(self.sb.group_start(group) + u64::from(contents));
        (block < end).then_some(end)
    }

    fn pick_run(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        purpose: Purpose,
        goal: BlockNumber,
        want: u64,
        _grows: bool,
        picks: &Picks,
    ) -> Step<Run> {
        self.place_run(v, inode, purpose, goal, want, picks)
    }

    fn pick_single(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        picks: &Picks,
    ) -> Step<Option<BlockNumber>> {
        let goal = self.goal_near(inode);
        let block = self.units_per_pointer();
        let run = self.place_run(v, inode, Purpose::Metadata, goal, block, picks)?;
        Ok((run.len == block).then_some(run.start))
    }

    /// Nothing is reserved: whole blocks follow each other, and the last fragments move.
    fn note_taken(&mut self, _inode: InodeNumber, _run: Run, _grows: bool) {}

    fn has_window(&self, inode: InodeNumber) -> bool {
        self.windows.is_there(inode)
    }

    fn drop_window(&mut self, inode: InodeNumber) {
        self.windows.drop_of(inode);
    }

    fn set_block_bits(&mut self, v: &mut Volume<'_>, run: Run, patches: &mut PatchIds) {
        for part in self.parts(run) {
            self.groups
                .take_blocks(part.0, self.whole_free_blocks(v, part));
        }
        let before = self.cut_blocks(v, run);
        self.flip_fragment_bits(v, run, patches);
        self.note_fragments(v, &before);
        for (group, first, count) in self.parts(run) {
            self.groups.take_fragments(group, count);
            let rotors = &mut self.groups.list[group].rotors;
            match count.checked_sub(self.sb.fragments_per_block) {
                Some(before_last) => rotors.block = first + before_last,
                None => rotors.fragment = first,
            }
            self.expect_counts(v, group);
        }
    }

    fn clear_block_bits(&mut self, v: &mut Volume<'_>, run: Run) {
        let before = self.cut_blocks(v, run);
        self.flip_fragment_bits(v, run, &mut PatchIds::new());
        self.note_fragments(v, &before);
        for part @ (group, _, count) in self.parts(run) {
            self.groups.give_fragments(group, count);
            self.groups
                .give_blocks(group, self.whole_free_blocks(v, part));
        }
    }

    fn check_blocks_used(&self, v: &mut Volume<'_>, run: Run) -> Step<()> {
        for (group, first, count) in self.parts(run) {
            let group = GroupNumber::at(group);
            let all = self.block_bits(group);
            let (first, end) = (first as usize, (first + count) as usize);
            let (bits, base) = all.narrowed(first, end, self.sb.fragment_bytes);
            let bytes = read_bits(v, &bits)?;
            let (first, end) = (first - base, end - base);
            if bits.marks(&bytes).first_free(first, end).is_some() {
                let fault = Fault::RunInUseButFree {
                    start: run.start,
                    end: run.end(),
                };
                return Err(Error::corrupt(Structure::BlockBitmap { group }, fault).into());
            }
        }
        Ok(())
    }

    fn expect_freeing(&self, v: &mut Volume<'_>, group: GroupNumber) {
        let bits = self.group_blocks(group);
        for fragment in bits.block.run(bits.blocks) {
            v.expect(fragment);
        }
        v.expect(self.summary_place(group.index()).0);
    }

    fn blocks_of_freeing(&self) -> usize {
        self.group_blocks(GroupNumber(0)).blocks as usize + 1
    }

    fn pick_inode(
        &mut self,
        v: &mut Volume<'_>,
        parent: InodeNumber,
        _name: &[u8],
        directory: bool,
    ) -> Step<Option<InodeNumber>> {
        self.place_inode(v, parent, directory)
    }

    fn free_inode_in(
        &mut self,
        v: &mut Volume<'_>,
        group: GroupNumber,
        _directory: bool,
    ) -> Step<Option<InodeNumber>> {
        self.place_inode_in(v, group.index())
    }

    /// A file's inode goes beside its directory's.
    fn group_for_file(&self, home: GroupNumber, _name: &[u8]) -> GroupNumber {
        home
    }

    fn set_inode_bit(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        directory: bool,
    ) -> PatchId {
        let group = self.sb.group_of_inode(inode).index();
        self.groups.take_inode(group, directory);
        self.groups.list[group].rotors.inode = inode.0 % self.sb.inodes_per_group;
        self.expect_counts(v, group);
        self.flip_inode_bit(v, inode)
    }

    fn clear_inode_bit(&mut self, v: &mut Volume<'_>, inode: InodeNumber, directory: bool) {
        let group = self.sb.group_of_inode(inode).index();
        let index = inode.0 % self.sb.inodes_per_group;
        self.groups.give_inode(group, index, directory);
        self.expect_counts(v, group);
        self.flip_inode_bit(v, inode);
    }

    fn free_space_reader(&self) -> FreeSpaceReader {
        let fragment_bytes = u64::from(self.sb.fragment_bytes);
        let groups: Vec<_> = GroupNumber::all(self.sb.groups)
            .map(|group| {
                let first = self.sb.group_start(group);
                let count = self.sb.fragments_in_group(group) as usize;
                (self.block_bits(group), first, count)
            })
            .collect();
        Box::new(move |device| {
            let mut runs = Vec::new();
            for (bits, first, count) in groups {
                let mut bytes = vec![0; (bits.blocks * fragment_bytes) as usize];
                device.read(bits.block.offset_bytes(fragment_bytes), &mut bytes)?;
                let marks = bits.marks(&bytes);
                let mut bit = 0;
                while let Some(free) = marks.first_free(bit, count) {
                    bit = marks.first_used(free, count).unwrap_or(count);
                    runs.push(first + free as u64..first + bit as u64);
                }
            }
            Ok(runs)
        })
    }
}

impl<const BIG: bool> UfsFormat<BIG> {
    /// That many bits, from a byte of a group's block on.
    fn bits(&self, header: BlockNumber, byte: usize, count: u32, set_is_free: bool) -> Bits {
        let fragment = self.sb.fragment_bytes as usize;
        let first_byte = byte % fragment;
        let bytes = (count as usize).div_ceil(8);
        Bits {
            block: header + (byte / fragment) as u64,
            blocks: ((first_byte + bytes).div_ceil(fragment)).max(1) as u64,
            first_byte,
            set_is_free,
        }
    }

    /// A run cut at the borders of groups.
    pub(crate) fn parts(&self, run: Run) -> SmallVec<[Part; 2]> {
        let mut parts = SmallVec::new();
        let mut at = run.start;
        while at < run.end() {
            let group = self.sb.group_of(at.0);
            let first = (at.0 - self.sb.group_start(group)) as u32;
            let left = self.sb.fragments_in_group(group).saturating_sub(first);
            let count = u64::from(left).min(run.end() - at) as u32;
            // Past the last group there are none.
            if count == 0 {
                break;
            }
            parts.push((group.index(), first, count));
            at += u64::from(count);
        }
        parts
    }

    /// The blocks that a part of a run touches and of which all fragments are free. The maps are in
    /// memory.
    fn whole_free_blocks(&self, v: &Volume<'_>, (group, first, len): Part) -> u32 {
        let per_block = self.sb.fragments_per_block;
        let blocks = first / per_block..(first + len).div_ceil(per_block);
        let is_free =
            |block: &u32| self.free_in_block(v, group, block * per_block) == full_block(per_block);
        blocks.filter(is_free).count() as u32
    }

    /// The free fragments of the block that begins there, a bit for each. The maps are in memory.
    fn free_in_block(&self, v: &Volume<'_>, group: usize, start: u32) -> u8 {
        let fragment = self.sb.fragment_bytes as usize;
        let bits = self.block_bits(GroupNumber::at(group));
        // A block's bits are in one byte.
        let byte = bits.first_byte + start as usize / 8;
        let map = v.peek(bits.block + (byte / fragment) as u64);
        let byte = map.map_or(0, |map| map[byte % fragment]);
        byte >> (start % 8) & full_block(self.sb.fragments_per_block)
    }

    /// The blocks that a run has in part, the first and the last ones of its parts, with their free
    /// fragments.
    fn cut_blocks(&self, v: &Volume<'_>, run: Run) -> SmallVec<[(usize, u32, u8); 2]> {
        let per_block = self.sb.fragments_per_block;
        let mut cut = SmallVec::new();
        for (group, first, len) in self.parts(run) {
            let end = first + len;
            let [from, to] = [first, end].map(|at| at - at % per_block);
            if first > from || end < from + per_block {
                cut.push((group, from, self.free_in_block(v, group, from)));
            }
            if end > to && to > from {
                cut.push((group, to, self.free_in_block(v, group, to)));
            }
        }
        cut
    }

    /// What [`cut_blocks`](Self::cut_blocks) told has changed.
    fn note_fragments(&mut self, v: &Volume<'_>, before: &[(usize, u32, u8)]) {
        for (group, start, was) in before {
            let is = self.free_in_block(v, *group, *start);
            let per_block = self.sb.fragments_per_block;
            (self.groups).note_fragments(*group, *start, per_block, (*was, is));
        }
    }

    /// A group's counts will be written at the end of the transaction, if there is one.
    fn expect_counts(&self, v: &mut Volume<'_>, group: usize) {
        if v.scopes_are_atomic() {
            self.expect_freeing(v, GroupNumber::at(group));
        }
    }

    fn flip_fragment_bits(&mut self, v: &mut Volume<'_>, run: Run, patches: &mut PatchIds) {
        for (group, first, count) in self.parts(run) {
            let bits = self.block_bits(GroupNumber::at(group));
            self.flip_bits(v, &bits, first, count, &[], patches);
        }
    }

    fn flip_inode_bit(&mut self, v: &mut Volume<'_>, inode: InodeNumber) -> PatchId {
        let group = self.sb.group_of_inode(inode);
        let bits = self.inode_bits(group);
        let initialised = self.groups.list[group.index()].initialised;
        let after = [wait_for(Rule::InodeBitAfterInitialised, initialised)];
        let mut patches = PatchIds::new();
        let index = inode.0 % self.sb.inodes_per_group;
        self.flip_bits(v, &bits, index, 1, &after, &mut patches);
        patches[0]
    }

    /// Flips `count` bits from `first` on, a word of four bytes at a time: a word does not cross a
    /// fragment.
    fn flip_bits(
        &self,
        v: &mut Volume<'_>,
        bits: &Bits,
        first: u32,
        count: u32,
        after: &[PatchId],
        patches: &mut PatchIds,
    ) {
        let fragment_bits = u64::from(self.sb.fragment_bytes) * 8;
        let mut bit = bits.first_byte as u64 * 8 + u64::from(first);
        let end = bit + u64::from(count);
        while bit < end {
            let in_word = (end - bit).min(32 - bit % 32) as u32;
            let mask = (u32::MAX >> (32 - in_word)) << (bit % 32);
            let block = bits.block + bit / fragment_bits;
            let offset = (bit % fragment_bits / 32 * 4) as usize;
            let id = v.flip(block, kinds::GROUP, offset, mask, after);
            if patches.last() != Some(&id) {
                patches.push(id);
            }
            bit += u64::from(in_word);
        }
    }

    /// Where a group's counts are in the summary array: the fragment and the offset there.
    pub(crate) fn summary_place(&self, group: usize) -> (BlockNumber, usize) {
        let byte = group * 16;
        let fragment = self.sb.fragment_bytes as usize;
        (
            BlockNumber(self.sb.summary_at + (byte / fragment) as u64),
            byte % fragment,
        )
    }
}
