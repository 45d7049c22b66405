//! The list of orphans: inodes without a name that somebody had open, and truncations that were not
//! finished.
//!
//! It is where FreeBSD has its own of inodes without names, which it keeps for the journal of its
//! soft updates: `fs_sujfree` names the first one, `di_freelink` of each the next. Orphans without
//! links are freed, with all that they hold; the others lose what they have behind their size. How
//! many fragments the last block has, the size always tells: the first step of a truncation frees
//! those behind the new end in the block that stays (`unixfs/src/shrink.rs`).

use std::collections::{BTreeMap, BTreeSet};

use backstitch_device::BlockDevice;
use backstitch_layout::{BlockNumber, Error, GroupNumber, InodeNumber, Orphans, Result, Structure};

use crate::counts::{group_parts, total_parts};
use crate::fault::OrphanFault;
use crate::format::group::{Derived, RawSummaryCounts};
use crate::format::inode::{ATTRIBUTE_POINTERS, DIRECT_POINTERS, Offsets, POINTERS};
use crate::format::superblock::offset;
use crate::format::{
    CylinderGroup, GroupHeader, Inode, OnDisk, ROOT_INODE, RawSummary, RawSummaryTotal,
    SECTOR_BYTES, Superblock, Version,
};
use crate::image::from_format;

use super::place::{is_data, pointer, read};

/// The first orphans: as many as change about `most_blocks` fragments. Of one that changes more, a
/// part; it stays the first one.
pub(super) fn next(
    device: &dyn BlockDevice,
    sb: &Superblock,
    most_blocks: usize,
) -> Result<Orphans> {
    let mut edit = Edit {
        device,
        sb,
        most_blocks: most_blocks.max(1),
        changed: BTreeMap::new(),
        groups: BTreeMap::new(),
    };
    let mut found = Orphans::default();
    let mut seen = BTreeSet::new();
    let mut next = InodeNumber(sb.raw.fs_sujfree as u32);
    while next != InodeNumber::NONE && !edit.is_full() {
        if !seen.insert(next) {
            return Err(corrupt(next, OrphanFault::NoEnd));
        }
        let (after, done) = edit.orphan(next)?;
        next = after;
        match done {
            Done::Freed => found.freed += 1,
            Done::Truncated => found.truncated += 1,
            Done::Part => break,
        }
    }
    edit.finish(next)?;
    let changed = edit.changed.into_iter();
    found.blocks = changed
        .map(|(fragment, bytes)| (BlockNumber(fragment), bytes))
        .collect();
    Ok(found)
}

fn corrupt(inode: InodeNumber, fault: OrphanFault) -> Error {
    Error::corrupt(Structure::Orphan(inode), fault)
}

/// The file system with the changes so far.
struct Edit<'e> {
    device: &'e dyn BlockDevice,
    sb: &'e Superblock,
    most_blocks: usize,
    /// By fragment.
    changed: BTreeMap<u64, Vec<u8>>,
    /// The groups in which something was freed.
    groups: BTreeMap<GroupNumber, Group>,
}

struct Group {
    header: GroupHeader,
    /// Directories that were freed.
    directories_gone: u32,
}

/// What was done with an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Freed,
    Truncated,
    /// Some of its blocks are freed, and nothing points to these any more.
    Part,
}

/// What a pointer leads to: below how many levels of indirect blocks, which of the file's blocks are
/// to stay there, and how many fragments a block at the bottom has.
#[derive(Clone, Copy)]
struct Tree {
    depth: u32,
    kept: u64,
    fragments: u64,
}

impl Edit<'_> {
    /// Whether no more is to be freed in this transaction. Each group's maps and counts are written
    /// at its end.
    fn is_full(&self) -> bool {
        let of_group = self.sb.group_bytes.div_ceil(self.sb.fragment_bytes) as usize + 1;
        self.changed.len() + self.groups.len() * of_group >= self.most_blocks
    }

    fn fragment_bytes(&self) -> usize {
        self.sb.fragment_bytes as usize
    }

    /// Bytes from a fragment on, as they are now.
    fn look(&self, fragment: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut found = read(self.device, self.sb, fragment, bytes)?;
        for (index, part) in found.chunks_mut(self.fragment_bytes()).enumerate() {
            if let Some(changed) = self.changed.get(&(fragment + index as u64)) {
                part.copy_from_slice(&changed[..part.len()]);
            }
        }
        Ok(found)
    }

    /// Changes bytes that begin `at` bytes behind the start of a fragment, in this one or later.
    fn put(&mut self, fragment: u64, at: usize, bytes: &[u8]) -> Result<()> {
        let whole = self.fragment_bytes();
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let (fragment, within) = (fragment + (at / whole) as u64, at % whole);
            let (here, behind) = rest.split_at(rest.len().min(whole - within));
            let mut new = self.look(fragment, whole)?;
            new[within..within + here.len()].copy_from_slice(here);
            self.changed.insert(fragment, new);
            (at, rest) = (at + here.len(), behind);
        }
        Ok(())
    }

    /// A group in which something is to be freed.
    fn group(&mut self, group: GroupNumber) -> Result<&mut Group> {
        if !self.groups.contains_key(&group) {
            let bytes = self.look(self.sb.group_header(group), self.sb.group_bytes as usize)?;
            let known = Group {
                header: GroupHeader::parse(self.sb, group, &bytes).map_err(from_format)?,
                directories_gone: 0,
            };
            self.groups.insert(group, known);
        }
        match self.groups.get_mut(&group) {
            Some(known) => Ok(known),
            None => Err(Error::corrupt(
                Structure::Descriptor { group },
                OrphanFault::NoSuchInode,
            )),
        }
    }

    /// Flips bits of a group's map that begins at this byte of the group's block; whether all of
    /// them said what they must have said before.
    fn flip(
        &mut self,
        group: GroupNumber,
        map: usize,
        bits: std::ops::Range<u64>,
        before: bool,
    ) -> Result<bool> {
        let (header, whole) = (self.sb.group_header(group), self.fragment_bytes());
        let first = map + bits.start as usize / 8;
        let end = map + bits.end.div_ceil(8) as usize;
        let start = first / whole * whole;
        let mut bytes = self.look(header + (start / whole) as u64, end - start)?;
        for bit in bits {
            let byte = &mut bytes[map + bit as usize / 8 - start];
            let mask = 1 << (bit % 8);
            if (*byte & mask != 0) != before {
                return Ok(false);
            }
            *byte ^= mask;
        }
        self.put(header, first, &bytes[first - start..])?;
        Ok(true)
    }

    /// Deals with one orphan. Gives the next one to deal with, and what was done with this one.
    fn orphan(&mut self, number: InodeNumber) -> Result<(InodeNumber, Done)> {
        let sb = self.sb;
        if number <= ROOT_INODE || number.0 >= sb.inodes() {
            return Err(corrupt(number, OrphanFault::NoSuchInode));
        }
        let (fragment, at) = sb.inode_place(number);
        let bytes = self.look(fragment, self.fragment_bytes())?;
        let mut bytes = bytes[at..at + sb.version.inode_bytes()].to_vec();
        let inode = Inode::parse(sb.version, sb.order, &bytes).map_err(from_format)?;
        if inode.mode == 0 {
            return Err(corrupt(number, OrphanFault::Free));
        }
        let next = sb.order.u32(&bytes, Offsets::of(sb.version).next_orphan);
        let mut done = match inode.links {
            0 => Done::Freed,
            _ => Done::Truncated,
        };
        let mut freed = 0;
        if inode.has_block_map(sb.symlink_max) {
            let kept = match done {
                Done::Freed => 0,
                _ => inode.size.div_ceil(sb.block_bytes.into()),
            };
            if !self.truncate(number, &inode, kept, &mut bytes, &mut freed)? {
                done = Done::Part;
            }
        }
        match done {
            Done::Freed => {
                self.free_attributes(number, &inode)?;
                self.free_inode(number, &inode, &mut bytes)?;
            }
            _ => {
                let sectors = freed * u64::from(sb.fragment_bytes) / SECTOR_BYTES;
                let left = inode.sectors.saturating_sub(sectors);
                self.put_wide(&mut bytes, Offsets::of(sb.version).sectors, left);
            }
        }
        if done == Done::Truncated {
            let at = Offsets::of(sb.version).next_orphan;
            bytes[at..at + 4].fill(0);
        }
        self.put(fragment, at, &bytes)?;
        let next = match done {
            Done::Part => number,
            _ => InodeNumber(next),
        };
        Ok((next, done))
    }

    /// A number of four bytes in UFS1, of eight in UFS2.
    fn put_wide(&self, bytes: &mut [u8], at: usize, value: u64) {
        match self.sb.version {
            Version::Ufs1 => {
                bytes[at..at + 4].copy_from_slice(&self.sb.order.bytes_of_u32(value as u32));
            }
            Version::Ufs2 => bytes[at..at + 8].copy_from_slice(&self.sb.order.bytes_of_u64(value)),
        }
    }

    /// Frees a file's blocks from `kept` on, as far as there is room, and counts their fragments.
    /// Says whether those were all.
    fn truncate(
        &mut self,
        number: InodeNumber,
        inode: &Inode,
        kept: u64,
        bytes: &mut [u8],
        freed: &mut u64,
    ) -> Result<bool> {
        let pointers = u64::from(self.sb.pointers_per_block);
        let (mut first, mut is_whole) = (0, true);
        for index in 0..POINTERS {
            let depth = index.saturating_sub(DIRECT_POINTERS - 1) as u32;
            let span = pointers.saturating_pow(depth);
            let block = inode.pointers[index];
            if first + span > kept && block != 0 {
                let tree = Tree {
                    depth,
                    kept: kept.saturating_sub(first),
                    fragments: self.fragments_of(inode, index),
                };
                let is_gone = self.free_tree(number, block, tree, freed)?;
                is_whole &= is_gone || tree.kept > 0 && !self.is_full();
                if is_gone {
                    let at = Offsets::of(self.sb.version).pointer(self.sb.version, index);
                    self.put_wide(bytes, at, 0);
                }
            }
            first += span;
        }
        Ok(is_whole)
    }

    /// The fragments of the block that a pointer of an inode leads to: as many as the size needs
    /// where a direct one leads to the last block.
    fn fragments_of(&self, inode: &Inode, index: usize) -> u64 {
        let whole = u64::from(self.sb.fragments_per_block);
        let end = inode.size.div_ceil(self.sb.fragment_bytes.into());
        match end / whole == index as u64 && index < DIRECT_POINTERS && end % whole > 0 {
            true => end % whole,
            false => whole,
        }
    }

    /// Frees what is below a pointer, but for the blocks that are kept there, and as far as there is
    /// room; the block pointed to as well where nothing is left below. Says whether that is gone.
    fn free_tree(
        &mut self,
        number: InodeNumber,
        block: u64,
        tree: Tree,
        freed: &mut u64,
    ) -> Result<bool> {
        let mut stays = tree.kept > 0 || tree.depth == 0 && self.is_full();
        let mut fragments = tree.fragments;
        if tree.depth > 0 {
            fragments = self.sb.fragments_per_block.into();
            self.check_claim(number, block, fragments)?;
            let span = u64::from(self.sb.pointers_per_block).saturating_pow(tree.depth - 1);
            let bytes = self.look(block, self.sb.block_bytes as usize)?;
            let mut gone = Vec::new();
            for slot in 0..self.sb.pointers_per_block as usize {
                let below = pointer(self.sb, &bytes, slot);
                let first = slot as u64 * span;
                if below == 0 || first + span <= tree.kept {
                    continue;
                }
                if self.is_full() {
                    stays = true;
                    break;
                }
                let tree = Tree {
                    depth: tree.depth - 1,
                    kept: tree.kept.saturating_sub(first),
                    fragments,
                };
                match self.free_tree(number, below, tree, freed)? {
                    true => gone.push(slot),
                    false => stays = true,
                }
            }
            let width = self.sb.version.pointer_bytes();
            for slot in gone.into_iter().filter(|_| stays) {
                self.put(block, slot * width, &vec![0; width])?;
            }
        }
        if !stays {
            self.free_fragments(number, block, fragments)?;
            *freed += fragments;
        }
        Ok(!stays)
    }

    /// Refuses fragments that no inode can have.
    fn check_claim(&self, number: InodeNumber, first: u64, count: u64) -> Result<()> {
        match is_data(self.sb, first, count) {
            true => Ok(()),
            false => {
                let fragment = BlockNumber(first);
                Err(corrupt(number, OrphanFault::Claims { fragment }))
            }
        }
    }

    fn free_fragments(&mut self, number: InodeNumber, first: u64, count: u64) -> Result<()> {
        self.check_claim(number, first, count)?;
        let group = self.sb.group_of(first);
        let map = self.group(group)?.header.maps.fragments_free;
        let index = first - self.sb.group_start(group);
        if !self.flip(group, map, index..index + count, false)? {
            let fragment = BlockNumber(first);
            return Err(corrupt(number, OrphanFault::FragmentFree { fragment }));
        }
        // What they hold is of no use to anybody, and it must not come home after they have been
        // given away.
        for fragment in first..first + count {
            self.changed.remove(&fragment);
        }
        Ok(())
    }

    /// An inode's attributes are its own, and go with it.
    fn free_attributes(&mut self, number: InodeNumber, inode: &Inode) -> Result<()> {
        let block = u64::from(self.sb.block_bytes);
        for index in 0..ATTRIBUTE_POINTERS {
            let left = u64::from(inode.attribute_bytes).saturating_sub(index as u64 * block);
            let count = left.min(block).div_ceil(self.sb.fragment_bytes.into());
            if count > 0 {
                self.free_fragments(number, inode.attribute_pointers[index], count)?;
            }
        }
        Ok(())
    }

    /// Marks an inode as free: all is zero but for the generation.
    fn free_inode(&mut self, number: InodeNumber, inode: &Inode, bytes: &mut [u8]) -> Result<()> {
        let group = self.sb.group_of_inode(number);
        let known = self.group(group)?;
        known.directories_gone += u32::from(inode.is_directory());
        let map = known.header.maps.inodes_used;
        let index = u64::from(number.0 % self.sb.inodes_per_group);
        if !self.flip(group, map, index..index + 1, true)? {
            return Err(corrupt(number, OrphanFault::Free));
        }
        let at = Offsets::of(self.sb.version).generation;
        let generation = bytes[at..at + 4].to_vec();
        bytes.fill(0);
        bytes[at..at + 4].copy_from_slice(&generation);
        Ok(())
    }

    /// What is counted, and the list's new head.
    fn finish(&mut self, head: InodeNumber) -> Result<()> {
        let groups: Vec<_> = self.groups.keys().copied().collect();
        for group in groups {
            self.count(group)?;
        }
        let order = self.sb.order;
        let summary = self.look(self.sb.summary_at, self.sb.summary_bytes as usize)?;
        let mut total = RawSummaryTotal::default();
        for group in summary
            .chunks_exact(RawSummary::SIZE)
            .take(self.sb.groups as usize)
        {
            total.add(&RawSummary::decode(order, group));
        }
        let mut parts = total_parts(self.sb, &total);
        parts.push((offset::ORPHANS, order.bytes_of_u32(head.0).to_vec()));
        let fragment_bytes = u64::from(self.sb.fragment_bytes);
        let first = self.sb.place / fragment_bytes;
        let base = (self.sb.place % fragment_bytes) as usize;
        for (at, bytes) in parts {
            self.put(first, base + at, &bytes)?;
        }
        Ok(())
    }

    /// What follows from a group's maps, in its block and in the summary array.
    fn count(&mut self, group: GroupNumber) -> Result<()> {
        let (sb, header) = (self.sb, self.sb.group_header(group));
        let bytes = self.look(header, sb.group_bytes as usize)?;
        let cg = CylinderGroup::parse(sb, group, &bytes).map_err(from_format)?;
        let used = (0..sb.inodes_per_group).filter(|index| cg.is_inode_used(*index));
        let used = used.count() as u32;
        let derived = Derived::of(sb, cg.fragment_map(), cg.fragments);
        let gone = self.group(group)?.directories_gone;
        let counts = RawSummaryCounts {
            directories: cg.summary.directories.saturating_sub(gone),
            free_blocks: derived.free_blocks,
            free_inodes: sb.inodes_per_group - used,
            free_fragments: derived.free_fragments,
        };
        for (at, new) in group_parts(sb, &cg.maps, &derived, counts) {
            if bytes[at..at + new.len()] != new {
                self.put(header, at, &new)?;
            }
        }
        let summary = RawSummary::from(counts).to_bytes(sb.order);
        self.put(sb.summary_at, group.index() * RawSummary::SIZE, &summary)
    }
}
