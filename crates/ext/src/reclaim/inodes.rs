//! The inodes: which are in use, which have no name, and what is wrong with the others.

use backstitch_layout::{Changed, Error, FileType, InodeNumber, ReclaimStep, Result, Timestamp};
use backstitch_ordering::{BlockClass, PatchId, Volume};

use super::names::DIRECTORY;
use super::{Phase, Reclaim, kind};
use crate::format::features::COMPAT_EXT_ATTR;
use crate::format::inode::{
    DOUBLE_INDIRECT, FAST_SYMLINK_MAX, FLAG_EXTENTS, FLAG_INLINE_DATA, INDIRECT,
};
use crate::format::{Inode, RESIZE_INODE, ROOT_INODE, bitmap, directory};
use crate::groups::Run;
use crate::layout::Ext;
use crate::map::{Owner, entry_at};
use crate::planted::{Planted, unless_all};

/// How many blocks of an inode table one step looks at.
const TABLE_BLOCKS_PER_STEP: u64 = 32;
/// How many inodes one step changes at most.
const INODES_PER_STEP: u32 = 256;
/// How many leaf indirect blocks of a file one step looks at.
const LEAVES_PER_STEP: u64 = 64;

/// How far an inode has been looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// Blocks from here on are left.
    from: u64,
    /// So many were found before.
    blocks: u64,
    /// The map changed while it was looked at in parts: once more from its start.
    again: bool,
}

/// What came of looking at a part of an inode.
enum Corrected {
    /// There is more.
    UpTo(Part),
    Wholly,
}

fn corrupt(number: u32, what: impl Into<String>) -> Error {
    Error::corrupt(format!("inode {number}"), what.into())
}

impl Ext {
    /// Notes what the inodes are, in a few blocks of a group's table. Blocks without a marked inode are passed over.
    pub(super) fn scan_inodes(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        group: u32,
        from: u64,
    ) -> Result<ReclaimStep> {
        if group >= self.sb.groups {
            r.phase = Phase::Walk;
            return Ok(ReclaimStep::More);
        }
        let g = self.groups.list[group as usize];
        let per_block = u64::from(self.sb.block_size / self.sb.inode_size);
        let to = u64::from(self.sb.inode_table_blocks).min(from + TABLE_BLOCKS_PER_STEP);
        let bits = v.read_shared(g.inode_bitmap)?;
        let per_group = self.sb.inodes_per_group as usize;
        let (mut blocks, mut missing) = (Vec::new(), false);
        for block in from..to {
            let first = (block * per_block) as usize;
            let end = (first + per_block as usize).min(per_group);
            if bitmap::find_set(&bits, first, end).is_some() {
                missing |= !v.want(g.inode_table + block);
                blocks.push((first, end));
            }
        }
        if missing {
            return Err(Error::Miss);
        }
        for (first, end) in blocks {
            for index in first..end {
                let number = self.sb.group_first_inode(group) + index as u32;
                // What was made or lost its last name since the crash is known already.
                if r.kind(number) == kind::FREE {
                    let found = self.kind_of(v, number, bitmap::test(&bits, index))?;
                    r.set_kind(number, found);
                }
            }
        }
        r.phase = if to < self.sb.inode_table_blocks.into() {
            Phase::Scan { group, block: to }
        } else {
            Phase::Scan {
                group: group + 1,
                block: 0,
            }
        };
        Ok(ReclaimStep::More)
    }

    fn kind_of(&mut self, v: &mut Volume<'_>, number: u32, is_marked: bool) -> Result<u8> {
        if number < self.sb.first_inode && number != ROOT_INODE {
            return Ok(kind::RESERVED);
        }
        let inode = self.read_any_inode(v, number)?;
        if inode.links == 0 {
            return Ok(kind::FREE);
        }
        if !is_marked {
            return Err(corrupt(number, "it is in use but marked as free"));
        }
        if inode.flags & (FLAG_EXTENTS | FLAG_INLINE_DATA) != 0 {
            return Err(corrupt(number, "its contents are mapped in a foreign way"));
        }
        let file_type = inode
            .file_type()
            .ok_or_else(|| corrupt(number, format!("mode {:#o} is of no type", inode.mode)))?;
        Ok(directory::type_code(file_type))
    }

    /// Marks directories that cannot be reached as deleted: each before the one that its `..` leads to, for no `..` on the disk may
    /// stand for what is dead.
    pub(super) fn kill_orphans(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        at: usize,
        now: Timestamp,
    ) -> Result<ReclaimStep> {
        let to = r.orphans.len().min(at + INODES_PER_STEP as usize);
        let part = r.orphans[at..to].to_vec();
        self.want_inodes(v, part.iter().map(|(orphan, _)| *orphan))?;
        for (orphan, parent) in part {
            let after = r.deaths.remove(&orphan).unwrap_or_default();
            let after = unless_all(Planted::ReclaimKillsParentFirst, &after);
            let death = self.kill(v, r, orphan, after, now);
            r.deaths.entry(parent).or_default().push(death);
        }
        r.phase = if to < r.orphans.len() {
            Phase::KillOrphans(to)
        } else {
            Phase::Kill(1)
        };
        Ok(ReclaimStep::More)
    }

    /// Marks an inode that no name stands for as deleted. Where a name was taken away since the crash, that is on the disk first.
    fn kill(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: u32,
        after: &[PatchId],
        now: Timestamp,
    ) -> PatchId {
        let state = self.inodes.get(&number);
        let mut after = after.to_vec();
        after.extend(state.map_or(&[][..], |s| &s.clearings));
        r.set_kind(number, kind::FREE);
        let death = self.edit_inode(v, number, &after, |e| {
            e.set_links(0);
            e.set_dtime(now.seconds.clamp(1, u32::MAX.into()) as u32);
        });
        r.note_change(v, death);
        death
    }

    /// Marks inodes without names as deleted.
    pub(super) fn kill_inodes(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        from: u32,
        now: Timestamp,
    ) -> Result<ReclaimStep> {
        let is_dead = |i: &u32| {
            !matches!(r.kind(*i), kind::FREE | DIRECTORY | kind::NEW..) && r.names_of(*i) == 0
        };
        let dead: Vec<u32> = (from..=self.sb.inodes_count)
            .filter(is_dead)
            .take(INODES_PER_STEP as usize)
            .collect();
        self.want_inodes(v, dead.iter().copied())?;
        for number in &dead {
            if self.is_referenced(*number) || r.outlived.contains(number) {
                // It goes with the last reference, as any file without a name.
                r.hold(*number, false);
                self.free_inode(v, *number, now);
            } else {
                self.kill(v, r, *number, &[], now);
            }
        }
        match dead.last() {
            Some(last) => r.phase = Phase::Kill(last + 1),
            None => {
                let next = Phase::Correct {
                    inode: 1,
                    part: Part::default(),
                };
                r.end_phase(v, next, Planted::ReclaimCorrectsEarly);
            }
        }
        Ok(ReclaimStep::More)
    }

    pub(super) fn want_inodes(
        &mut self,
        v: &mut Volume<'_>,
        inodes: impl Iterator<Item = u32>,
    ) -> Result<()> {
        let mut missing = false;
        for number in inodes {
            let (block, _) = self.inode_place(number)?;
            missing |= !v.want(block);
        }
        if missing { Err(Error::Miss) } else { Ok(()) }
    }

    /// Corrects live inodes, and notes what they map.
    pub(super) fn correct_inodes(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        now: Timestamp,
    ) -> Result<ReclaimStep> {
        let Phase::Correct { inode: first, .. } = r.phase else {
            return Ok(ReclaimStep::More);
        };
        let is_live = |i: &u32| !matches!(r.kind(*i), kind::FREE | kind::NEW | kind::NEW_DIRECTORY);
        let live: Vec<u32> = (first..=self.sb.inodes_count)
            .filter(is_live)
            .take(INODES_PER_STEP as usize)
            .collect();
        if live.is_empty() {
            r.attribute_list = r.attribute_blocks.keys().copied().collect();
            r.attribute_list.sort_unstable();
            r.phase = Phase::Attributes(0);
            return Ok(ReclaimStep::More);
        }
        self.want_maps(v, &live)?;
        for number in live {
            let part = match r.phase {
                Phase::Correct { inode, part } if inode == number => part,
                _ => Part::default(),
            };
            let corrected = self.correct_inode(v, r, number, part, now)?;
            let (inode, part) = match corrected {
                Corrected::UpTo(part) => (number, part),
                Corrected::Wholly => (number + 1, Part::default()),
            };
            r.phase = Phase::Correct { inode, part };
            if inode == number {
                break;
            }
        }
        Ok(ReclaimStep::More)
    }

    /// Asks for the outermost indirect blocks of many inodes at once.
    fn want_maps(&mut self, v: &mut Volume<'_>, inodes: &[u32]) -> Result<()> {
        self.want_inodes(v, inodes.iter().copied())?;
        let mut missing = false;
        for number in inodes {
            let inode = self.read_any_inode(v, *number)?;
            if !inode.has_block_map(self.sb.block_size) || *number < self.sb.first_inode {
                continue;
            }
            for root in INDIRECT..INDIRECT + 3 {
                let block = self.checked_pointer(inode.block[root])?;
                missing |= block != 0 && !v.want(block);
            }
        }
        if missing { Err(Error::Miss) } else { Ok(()) }
    }

    fn correct_inode(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: u32,
        part: Part,
        now: Timestamp,
    ) -> Result<Corrected> {
        let code = r.kind(number);
        let is_held = matches!(code, kind::HELD | kind::HELD_DIRECTORY);
        if r.was_disturbed(number) && part.from > 0 {
            return Ok(Corrected::UpTo(Part {
                again: true,
                ..Part::default()
            }));
        }
        if is_held && !self.is_referenced(number) {
            // It is being freed, and what it maps may belong to others already. But it still counts as a user of its attributes.
            let inode = self.read_any_inode(v, number)?;
            mark_attributes(r, number, &inode)?;
            r.leaving.push(number);
            return Ok(Corrected::Wholly);
        }
        let inode = self.read_any_inode(v, number)?;
        if code == kind::RESERVED {
            self.mark_reserved(v, r, number, &inode)?;
            return Ok(Corrected::Wholly);
        }
        self.check_symlink(number, &inode)?;
        let mut blocks = part.blocks;
        if inode.has_block_map(self.sb.block_size) {
            let end = self.mapped_end(v, &inode, u64::MAX)?;
            let keep = inode.size.div_ceil(self.sb.block_size.into());
            if part.from == 0 && end > keep && !is_held {
                self.unmap_beyond(v, r, number, &inode, keep, end)?;
                return Ok(Corrected::UpTo(Part::default()));
            }
            let to = part
                .from
                .saturating_add(LEAVES_PER_STEP * self.pointers_per_block());
            let plan = self.gather_unmapping(v, &inode, part.from..to, Owner::Freed)?;
            if to < end {
                mark_runs(r, number, &plan.freed, part.again)?;
                return Ok(Corrected::UpTo(Part {
                    from: to,
                    blocks: blocks + plan.count,
                    again: part.again,
                }));
            }
            // What may miss comes before anything is marked.
            self.gather_corrections(v, number, &inode)?;
            mark_runs(r, number, &plan.freed, part.again)?;
            blocks += plan.count;
        } else {
            self.gather_corrections(v, number, &inode)?;
        }
        mark_attributes(r, number, &inode)?;
        blocks += u64::from(inode.file_acl != 0);
        if !is_held {
            if r.names_of(number) == 0 && code != DIRECTORY {
                // It lost its last name after the others without one were found.
                r.hold(number, false);
                self.free_inode(v, number, now);
            } else {
                self.correct_counts(v, r, number, &inode, blocks)?;
            }
        }
        Ok(Corrected::Wholly)
    }

    /// A symlink's target is where its size says, or nobody knows what its pointers are.
    fn check_symlink(&self, number: u32, inode: &Inode) -> Result<()> {
        let is_fast = inode.is_fast_symlink(self.sb.block_size);
        if is_fast && inode.size > FAST_SYMLINK_MAX as u64 {
            return Err(corrupt(number, "a symlink whose target has no block"));
        }
        Ok(())
    }

    /// Features that the superblock has to name: the crash may have come before it did.
    fn gather_corrections(&mut self, v: &mut Volume<'_>, number: u32, inode: &Inode) -> Result<()> {
        if inode.file_type() == Some(FileType::Regular) {
            self.gather_large_file(v, inode.size)?;
        }
        if inode.file_acl != 0 {
            self.checked_attribute_block(number, inode.file_acl)?;
            self.gather_compat_feature(v, COMPAT_EXT_ATTR)?;
        }
        Ok(())
    }

    /// Link count and block count. A link count that is too low is not what soft updates leave: somebody could free what has a name.
    fn correct_counts(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: u32,
        inode: &Inode,
        blocks: u64,
    ) -> Result<()> {
        let links = match r.directories.get(&number) {
            Some(directory) => directory.children.saturating_add(2),
            None => r.names_of(number),
        };
        if inode.links < links {
            let what = format!(
                "its link count is {}, but it has {links} links",
                inode.links
            );
            return Err(corrupt(number, what));
        }
        let sectors = blocks * u64::from(self.sectors_per_block());
        let sectors = u32::try_from(sectors)
            .map_err(|_| corrupt(number, format!("{blocks} blocks are too many")))?;
        if (inode.links, inode.sectors) != (links, sectors) {
            self.edit_inode(v, number, &[], |e| {
                e.set_links(links);
                e.set_sectors(sectors);
            });
            self.changed.push(Changed::Attributes(InodeNumber(number)));
        }
        Ok(())
    }

    /// Takes blocks beyond the size out of a file's map, and frees them: the crash came before its size grew.
    fn unmap_beyond(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: u32,
        inode: &Inode,
        keep: u64,
        end: u64,
    ) -> Result<()> {
        let n = self.pointers_per_block();
        let cut = keep.max(((end - 1) / n * n).saturating_sub(LEAVES_PER_STEP * n));
        let plan = self.gather_unmapping(v, inode, cut..self.blocks_max(), Owner::Lives)?;
        self.gather_freeing(v, &plan.freed)?;
        if plan.entries.is_empty() && plan.roots.is_empty() {
            return Err(corrupt(
                number,
                "blocks beyond its size cannot be taken out",
            ));
        }
        let mut after = Vec::new();
        for (block, first, count) in &plan.entries {
            let zeros = vec![0; count * 4];
            after.push(v.write(*block, BlockClass::Metadata, first * 4, &zeros, &[]));
        }
        after.push(self.edit_inode(v, number, &[], |e| {
            for root in &plan.roots {
                e.set_pointer(*root, 0);
            }
        }));
        plan.freed.iter().for_each(|run| r.touch(*run));
        r.freed_blocks += plan.freed.iter().map(|run| run.len).sum::<u64>();
        let after = unless_all(Planted::ReclaimFreesEarly, &after);
        self.defer_blocks(v, plan.freed, after);
        Ok(())
    }

    /// What the inodes below the first one for files map. They have no names, and nothing in them is corrected.
    fn mark_reserved(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: u32,
        inode: &Inode,
    ) -> Result<()> {
        if number == RESIZE_INODE {
            return self.mark_resize_tree(v, r, inode);
        }
        if inode.block.iter().all(|pointer| *pointer == 0) {
            return Ok(());
        }
        if !matches!(inode.file_type(), None | Some(FileType::Regular)) {
            return Err(corrupt(
                number,
                "a reserved inode of a type that it cannot have",
            ));
        }
        let plan = self.gather_unmapping(v, inode, 0..self.blocks_max(), Owner::Freed)?;
        mark_runs(r, number, &plan.freed, false)
    }

    /// The resize inode maps the blocks kept for descriptors, which are marked already, by a block of its own.
    fn mark_resize_tree(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        inode: &Inode,
    ) -> Result<()> {
        let tree = u64::from(inode.block[DOUBLE_INDIRECT]);
        if tree == 0 {
            return Ok(());
        }
        let pointers = self.pointers_per_block() as usize;
        let checked = |block: u64| {
            if self.sb.is_valid_block(block) {
                Ok(block)
            } else {
                Err(corrupt(
                    RESIZE_INODE,
                    format!("block {block} does not exist"),
                ))
            }
        };
        let mut all = vec![checked(tree)?];
        let children: Vec<u32> = {
            let bytes = v.read(tree)?;
            (0..pointers).map(|i| entry_at(bytes, i)).collect()
        };
        for child in children.into_iter().filter(|c| *c != 0) {
            all.push(checked(child.into())?);
        }
        let mut missing = false;
        for child in &all[1..] {
            missing |= !v.want(*child);
        }
        if missing {
            return Err(Error::Miss);
        }
        let first_level: Vec<u64> = all[1..].into();
        for child in first_level {
            let bytes = v.read(child)?;
            let below: Vec<u32> = (0..pointers).map(|i| entry_at(bytes, i)).collect();
            for block in below.into_iter().filter(|b| *b != 0) {
                all.push(checked(block.into())?);
            }
        }
        for block in all {
            r.mark_again(self, block, 1);
        }
        Ok(())
    }
}

fn mark_runs(r: &mut Reclaim, number: u32, runs: &[Run], again: bool) -> Result<()> {
    runs.iter().try_for_each(|run| r.mark(number, *run, again))
}

/// Counts an inode's reference to its attribute block, which others may share, and marks that.
fn mark_attributes(r: &mut Reclaim, number: u32, inode: &Inode) -> Result<()> {
    let block = inode.file_acl;
    if block != 0 {
        let references = r.attribute_blocks.get(&block);
        let again = references.is_some_and(|references| references.counted > 0);
        r.mark(
            number,
            Run {
                start: block,
                len: 1,
            },
            again,
        )?;
    }
    r.count_attributes(number, block);
    Ok(())
}
