//! The inodes: which are in use, which have no name, and what is wrong with the others.

use backstitch_layout::{Error, FileType, ReclaimStep, Result, Timestamp};
use backstitch_ordering::{BlockClass, PatchId, Volume};

use super::names::DIRECTORY;
use super::{Phase, Reclaim, drain_unless, kind};
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

/// How far an inode has been corrected.
enum Corrected {
    /// There is more: blocks from here on, and so many before.
    UpTo(u64, u64),
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
                let found = self.kind_of(v, number, bitmap::test(&bits, index))?;
                r.set_kind(number, found);
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
            let held = |s: &crate::inodes::InodeState| s.references > 0 || s.freed.is_some();
            return Ok(if self.inodes.get(&number).is_some_and(held) {
                kind::HELD
            } else {
                kind::FREE
            });
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

    fn kill(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: u32,
        after: &[PatchId],
        now: Timestamp,
    ) -> PatchId {
        r.set_kind(number, kind::FREE);
        self.edit_inode(v, number, after, |e| {
            e.set_links(0);
            e.set_dtime(now.seconds.clamp(1, u32::MAX.into()) as u32);
        })
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
            !matches!(r.kind(*i), kind::FREE | kind::HELD | kind::RESERVED)
                && r.names_of(*i) == 0
                && *i != ROOT_INODE
        };
        let dead: Vec<u32> = (from..=self.sb.inodes_count)
            .filter(is_dead)
            .take(INODES_PER_STEP as usize)
            .collect();
        self.want_inodes(v, dead.iter().copied())?;
        for number in &dead {
            self.kill(v, r, *number, &[], now);
        }
        match dead.last() {
            Some(last) => {
                r.phase = Phase::Kill(last + 1);
                Ok(ReclaimStep::More)
            }
            None => {
                r.phase = Phase::Correct {
                    inode: 1,
                    from: 0,
                    blocks: 0,
                };
                Ok(drain_unless(Planted::ReclaimCorrectsEarly))
            }
        }
    }

    fn want_inodes(&mut self, v: &mut Volume<'_>, inodes: impl Iterator<Item = u32>) -> Result<()> {
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
    ) -> Result<ReclaimStep> {
        let Phase::Correct { inode: first, .. } = r.phase else {
            return Ok(ReclaimStep::More);
        };
        let live: Vec<u32> = (first..=self.sb.inodes_count)
            .filter(|i| r.kind(*i) != kind::FREE)
            .take(INODES_PER_STEP as usize)
            .collect();
        if live.is_empty() {
            r.attribute_list = r.attribute_blocks.iter().map(|(b, n)| (*b, *n)).collect();
            r.attribute_list.sort_unstable();
            r.phase = Phase::Attributes(0);
            return Ok(drain_unless(Planted::ReclaimFreesEarly));
        }
        self.want_maps(v, &live)?;
        for number in live {
            let (mut from, mut blocks) = (0, 0);
            if let Phase::Correct {
                inode,
                from: f,
                blocks: b,
            } = r.phase
                && inode == number
            {
                (from, blocks) = (f, b);
            }
            if let Corrected::UpTo(from, blocks) = self.correct_inode(v, r, number, from, blocks)? {
                r.phase = Phase::Correct {
                    inode: number,
                    from,
                    blocks,
                };
                return Ok(ReclaimStep::More);
            }
            r.phase = Phase::Correct {
                inode: number + 1,
                from: 0,
                blocks: 0,
            };
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
        from: u64,
        blocks: u64,
    ) -> Result<Corrected> {
        let inode = self.read_any_inode(v, number)?;
        let code = r.kind(number);
        if code == kind::RESERVED {
            self.mark_reserved(v, r, number, &inode)?;
            return Ok(Corrected::Wholly);
        }
        self.check_symlink(number, &inode)?;
        let mut blocks = blocks;
        if inode.has_block_map(self.sb.block_size) {
            let end = self.mapped_end(v, &inode, u64::MAX)?;
            let keep = inode.size.div_ceil(self.sb.block_size.into());
            if from == 0 && end > keep && code != kind::HELD {
                self.unmap_beyond(v, number, &inode, keep, end)?;
                return Ok(Corrected::UpTo(0, 0));
            }
            let to = from.saturating_add(LEAVES_PER_STEP * self.pointers_per_block());
            let plan = self.gather_unmapping(v, &inode, from..to, Owner::Freed)?;
            if to < end {
                self.mark_runs(r, number, &plan.freed)?;
                return Ok(Corrected::UpTo(to, blocks + plan.count));
            }
            // What may miss comes before anything is marked.
            self.gather_corrections(v, number, &inode)?;
            self.mark_runs(r, number, &plan.freed)?;
            blocks += plan.count;
        } else {
            self.gather_corrections(v, number, &inode)?;
        }
        if inode.file_acl != 0 {
            self.mark_attribute_block(r, number, inode.file_acl)?;
            blocks += 1;
        }
        if code != kind::HELD {
            self.correct_counts(v, r, number, &inode, blocks)?;
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

    fn mark_runs(&self, r: &mut Reclaim, number: u32, runs: &[Run]) -> Result<()> {
        runs.iter().try_for_each(|run| r.mark(self, number, *run))
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

    fn mark_attribute_block(&self, r: &mut Reclaim, number: u32, block: u64) -> Result<()> {
        let references = r.attribute_blocks.entry(block).or_insert(0);
        *references += 1;
        if *references > 1 {
            return Ok(());
        }
        r.mark(
            self,
            number,
            Run {
                start: block,
                len: 1,
            },
        )
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
        self.edit_inode(v, number, &[], |e| {
            e.set_links(links);
            e.set_sectors(sectors);
        });
        if r.kind(number) == DIRECTORY {
            r.directories_in_group[self.sb.group_of_inode(number) as usize] += 1;
        }
        Ok(())
    }

    /// Takes blocks beyond the size out of a file's map: the crash came before its size grew. They are freed with the rest.
    fn unmap_beyond(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
        inode: &Inode,
        keep: u64,
        end: u64,
    ) -> Result<()> {
        let n = self.pointers_per_block();
        let cut = keep.max(((end - 1) / n * n).saturating_sub(LEAVES_PER_STEP * n));
        let plan = self.gather_unmapping(v, inode, cut..self.blocks_max(), Owner::Lives)?;
        for (block, first, count) in &plan.entries {
            let zeros = vec![0; count * 4];
            v.write(*block, BlockClass::Metadata, first * 4, &zeros, &[]);
        }
        self.edit_inode(v, number, &[], |e| {
            for root in &plan.roots {
                e.set_pointer(*root, 0);
            }
        });
        if plan.entries.is_empty() && plan.roots.is_empty() {
            return Err(corrupt(
                number,
                "blocks beyond its size cannot be taken out",
            ));
        }
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
        self.mark_runs(r, number, &plan.freed)
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
