//! The map of ext2, ext3 and UFS: the tree of direct, indirect, double and triple indirect pointers.

use std::ops::Range;

use backstitch_layout::{BlockNumber, Step, Stop};
use backstitch_ordering::{PatchId, Volume};

use super::block_map::{BlockMap, ChangeableMap};
use super::cut::{Cut, Entries, Owner};
use super::growth::{Growth, Links, Path, Places};
use crate::format::{DIRECT_POINTERS, Format, INDIRECT, Inode};
use crate::rules::{Rule, wait_for_all};
use crate::space::checked_run;
use crate::state::UnixFs;
use crate::state::patches::PatchIds;
use backstitch_blocks::runs::{Mapped, Run, push_run};

/// The pointers of an inode, and what is below them.
pub(crate) struct Pointers<'m, F: Format> {
    pub(crate) fs: &'m UnixFs<F>,
    pub(crate) inode: &'m F::Inode,
}

impl<F: Format> BlockMap for Pointers<'_, F> {
    fn map(&self, v: &mut Volume<'_>, logical: u64, max: u64) -> Step<Mapped> {
        let (fs, inode) = (self.fs, self.inode);
        let units = fs.format.units_per_pointer();
        let Some(path) = fs.path_of(logical / units) else {
            return Ok(Mapped::Hole(max));
        };
        if path.depth == 0 {
            let pointers = (path.root..DIRECT_POINTERS).map(|root| inode.pointer(root));
            let end = fs.tail_end(inode);
            return fs.run_of(pointers, logical, max, end);
        }
        let (indirects, block) = fs.resolve(v, inode, &path)?;
        let n = fs.pointers_per_block();
        if block == BlockNumber::NONE
            && let Some(missing) = (0..path.depth).find(|l| indirects[*l] == BlockNumber::NONE)
        {
            // Nothing is mapped as far as the missing indirect block (or the missing root) reaches.
            let below: u64 = n.pow((path.depth - missing) as u32);
            let within = path.indices[missing..path.depth]
                .iter()
                .fold(0, |at, index| at * n + *index as u64);
            let hole = (below - within) * units - logical % units;
            return Ok(Mapped::Hole(hole.min(max)));
        }
        let leaf = indirects[path.depth - 1];
        let (part, index) = fs.entry_place(leaf, path.indices[path.depth - 1]);
        let bytes = v.read(part)?;
        let pointers = (index..fs.pointers_per_unit()).map(|i| fs.format.pointer_at(bytes, i));
        fs.run_of(pointers, logical, max, None)
    }
}

impl<F: Format> UnixFs<F> {
    /// Pointers in an indirect block.
    pub(crate) fn pointers_per_block(&self) -> u64 {
        self.pointers_per_unit() as u64 * self.format.units_per_pointer()
    }

    /// Pointers in one of the units that an indirect block has.
    fn pointers_per_unit(&self) -> usize {
        self.block_size() / self.format.pointer_bytes()
    }

    /// Where an entry of an indirect block is: the unit, and its place among those there.
    fn entry_place(&self, indirect: BlockNumber, index: usize) -> (BlockNumber, usize) {
        if self.format.units_per_pointer() == 1 {
            return (indirect, index);
        }
        let here = self.pointers_per_unit();
        (indirect + (index / here) as u64, index % here)
    }

    /// Where a file ends whose last block, a direct one, has only as many units as its size needs;
    /// `None` where each block has all of its units.
    pub(crate) fn tail_end(&self, inode: &F::Inode) -> Option<u64> {
        let units = self.format.units_per_pointer();
        let end = inode.size().div_ceil(self.block_size() as u64);
        (units > 1 && !end.is_multiple_of(units) && end <= units * DIRECT_POINTERS as u64)
            .then_some(end)
    }

    /// The run that a pointer leads to, which is the file's `pointer`th.
    fn run_at(&self, inode: &F::Inode, pointer: u64, start: BlockNumber) -> Run {
        let units = self.format.units_per_pointer();
        let len = match self.tail_end(inode) {
            Some(end) if end / units == pointer => end % units,
            _ => units,
        };
        Run { start, len }
    }

    /// The most blocks that a file can map.
    pub(crate) fn blocks_max(&self) -> u64 {
        self.pointers_max() * self.format.units_per_pointer()
    }

    /// The most pointers to a file's blocks.
    fn pointers_max(&self) -> u64 {
        let n = self.pointers_per_block();
        DIRECT_POINTERS as u64 + n + n * n + n * n * n
    }

    /// The blocks that one leaf of the tree maps.
    pub(crate) fn blocks_per_leaf(&self) -> u64 {
        self.pointers_per_block() * self.format.units_per_pointer()
    }

    /// The way to a pointer, counted from the file's first one.
    pub(crate) fn path_of(&self, pointer: u64) -> Option<Path> {
        let n = self.pointers_per_block();
        let mut rest = pointer;
        if rest < DIRECT_POINTERS as u64 {
            return Some(Path {
                root: rest as usize,
                indices: [0; 3],
                depth: 0,
            });
        }
        rest -= DIRECT_POINTERS as u64;
        if rest < n {
            return Some(Path {
                root: INDIRECT,
                indices: [rest as usize, 0, 0],
                depth: 1,
            });
        }
        rest -= n;
        if rest < n * n {
            return Some(Path {
                root: INDIRECT + 1,
                indices: [(rest / n) as usize, (rest % n) as usize, 0],
                depth: 2,
            });
        }
        rest -= n * n;
        if rest < n * n * n {
            let indices = [
                (rest / (n * n)) as usize,
                (rest / n % n) as usize,
                (rest % n) as usize,
            ];
            return Some(Path {
                root: INDIRECT + 2,
                indices,
                depth: 3,
            });
        }
        None
    }

    /// The blocks of a range at which another leaf of the tree begins, and the first.
    pub(crate) fn leaf_starts(&self, logical: u64, len: u64) -> impl Iterator<Item = u64> + use<F> {
        let n = self.blocks_per_leaf();
        let direct = DIRECT_POINTERS as u64 * self.format.units_per_pointer();
        let end = logical + len;
        let mut next = Some(logical);
        std::iter::from_fn(move || {
            let at = next?;
            let following = if at < direct {
                direct
            } else {
                direct + ((at - direct) / n + 1) * n
            };
            next = (following < end).then_some(following);
            Some(at)
        })
    }

    fn entry(&self, v: &mut Volume<'_>, indirect: BlockNumber, index: usize) -> Step<BlockNumber> {
        let (unit, index) = self.entry_place(indirect, index);
        let bytes = v.read(unit)?;
        self.checked_whole(self.format.pointer_at(bytes, index))
    }

    /// The indirect blocks on the way to a block, as far as they exist (0 from the first missing
    /// one on), and the block.
    pub(crate) fn resolve(
        &self,
        v: &mut Volume<'_>,
        inode: &F::Inode,
        path: &Path,
    ) -> Step<([BlockNumber; 3], BlockNumber)> {
        let mut indirects = [BlockNumber::NONE; 3];
        let root = inode.pointer(path.root);
        let mut block = match path.depth {
            0 => self.checked_pointer(root)?,
            _ => self.checked_whole(root)?,
        };
        for level in 0..path.depth {
            if block == BlockNumber::NONE {
                return Ok((indirects, BlockNumber::NONE));
            }
            indirects[level] = block;
            block = self.entry(v, block, path.indices[level])?;
        }
        Ok((indirects, block))
    }

    /// The mapping that pointers state, of which the first one leads to the block with unit
    /// `logical`. The block with the file's last unit has no units behind `end`.
    fn run_of(
        &self,
        mut pointers: impl Iterator<Item = BlockNumber>,
        logical: u64,
        max: u64,
        end: Option<u64>,
    ) -> Step<Mapped> {
        let units = self.format.units_per_pointer();
        let within = logical % units;
        let Some(first) = pointers.next() else {
            return Ok(Mapped::Hole(1));
        };
        let mut len = units - within;
        let rest = pointers.take(max.saturating_sub(len).div_ceil(units) as usize);
        if first == BlockNumber::NONE {
            len += rest.take_while(|p| *p == BlockNumber::NONE).count() as u64 * units;
            return Ok(Mapped::Hole(len));
        }
        let mut next = first;
        for pointer in rest {
            next = BlockNumber(next.0.wrapping_add(units));
            if pointer != next {
                break;
            }
            len += units;
        }
        if let Some(end) = end
            && let block_end = end.next_multiple_of(units)
            && logical < block_end
        {
            match end.checked_sub(logical) {
                Some(left) if left > 0 => len = len.min(left),
                _ => return Ok(Mapped::Hole(block_end - logical)),
            }
        }
        let start = BlockNumber(first.0.wrapping_add(within));
        let run = Run { start, len };
        Ok(Mapped::Blocks(checked_run(&self.format, run)?))
    }
}

impl<F: Format> ChangeableMap for Pointers<'_, F> {
    fn blocks_needed(&self, v: &mut Volume<'_>, logical: u64, len: u64) -> Step<usize> {
        let (fs, inode) = (self.fs, self.inode);
        let mut missing = 0;
        let mut previous: Option<Path> = None;
        let units = fs.format.units_per_pointer();
        for at in fs.leaf_starts(logical, len) {
            let Some(path) = fs.path_of(at / units) else {
                break;
            };
            let (indirects, _) = fs.resolve(v, inode, &path)?;
            for (level, indirect) in indirects.iter().enumerate().take(path.depth) {
                if *indirect == BlockNumber::NONE
                    && !previous.is_some_and(|p| p.shares(&path, level))
                {
                    missing += 1;
                }
            }
            previous = Some(path);
        }
        Ok(missing)
    }

    fn link(
        &self,
        v: &mut Volume<'_>,
        growth: &Growth,
        data: &[PatchId],
        before_inode: &mut PatchIds,
    ) -> Links {
        let (fs, inode) = (self.fs, self.inode);
        let mut fresh = growth.indirects.iter().copied();
        let mut links = Links::default();
        let end = growth.logical + growth.run.len;
        let units = fs.format.units_per_pointer();
        let mut starts = fs.leaf_starts(growth.logical, growth.run.len).peekable();
        while let Some(at) = starts.next() {
            let Some(path) = fs.path_of(at / units) else {
                break;
            };
            let leaf_end = starts.peek().copied().unwrap_or(end);
            let offset = (at - growth.logical) as usize;
            let count = (leaf_end - at) as usize;
            let physical = growth.run.start + offset as u64;
            if path.depth == 0 {
                // Units that continue the file's last block are reached by that block's pointer.
                if at.is_multiple_of(units) {
                    for k in (0..count).step_by(units as usize) {
                        let root = path.root + k / units as usize;
                        links.pointers[root] = Some(physical + k as u64);
                    }
                }
                let data = &data[offset..offset + count];
                before_inode.extend_from_slice(wait_for_all(Rule::PointerAfterContents, data));
                continue;
            }
            // The gather phase looked all of these blocks up.
            let Ok((existing, _)) = fs.resolve(v, inode, &path) else {
                continue;
            };
            let mut places = Places {
                fresh: &mut fresh,
                moves: &growth.moves,
            };
            let leaf = links.leaf_for(&path, &existing, &mut places);
            let data = &data[offset..offset + count];
            let rule = match (links.nodes[leaf].is_new, path.depth) {
                (true, _) => Rule::NewLeafAfterContents,
                (_, 1) => Rule::IndirectEntryAfterContents,
                _ => Rule::DeepEntryAfterContents,
            };
            let after = wait_for_all(rule, data);
            let index = path.indices[path.depth - 1];
            let blocks = Run {
                start: physical,
                len: count as u64,
            };
            links.nodes[leaf].entries.push((index, blocks));
            links.nodes[leaf].after.extend_from_slice(after);
        }
        links
    }

    fn end(&self, v: &mut Volume<'_>, below: u64) -> Step<u64> {
        let (fs, inode) = (self.fs, self.inode);
        let n = fs.pointers_per_block();
        let units = fs.format.units_per_pointer();
        let below = below.div_ceil(units);
        let mut base = fs.pointers_max();
        for depth in (1..=3).rev() {
            base -= n.pow(depth as u32);
            if base >= below {
                continue;
            }
            let block = fs.checked_whole(inode.pointer(INDIRECT + depth - 1))?;
            if block != BlockNumber::NONE {
                // An empty tree maps nothing, but its blocks are there to be freed.
                let last = fs.last_in_tree(v, block, depth, base, below)?;
                return Ok((last.unwrap_or(base) + 1) * units);
            }
        }
        let mut direct = (0..DIRECT_POINTERS).rev();
        let last = direct.find(|i| inode.pointer(*i) != BlockNumber::NONE && (*i as u64) < below);
        Ok(last.map_or(0, |i| {
            let run = fs.run_at(inode, i as u64, inode.pointer(i));
            i as u64 * units + run.len
        }))
    }

    fn plan_cut(&self, v: &mut Volume<'_>, part: Range<u64>, owner: Owner) -> Step<Cut> {
        let (fs, inode) = (self.fs, self.inode);
        let mut plan = Cut::default();
        let units = fs.format.units_per_pointer();
        if owner == Owner::Lives && !part.start.is_multiple_of(units) {
            fs.plan_tail_cut(inode, part.start, &mut plan)?;
        }
        let part = part.start.div_ceil(units)..part.end.div_ceil(units);
        fs.for_each_tree(|root, depth, base, span| {
            if inode.pointer(root) == BlockNumber::NONE
                || base + span <= part.start
                || base >= part.end
            {
                return Ok(());
            }
            let block = fs.checked_pointer(inode.pointer(root))?;
            if depth == 0 {
                let run = fs.run_at(inode, base, block);
                let run = if units > 1 {
                    fs.checked_units(run)?
                } else {
                    run
                };
                push_run(&mut plan.freed, run.start, run.len);
                plan.count += run.len;
                if owner == Owner::Lives {
                    plan.roots.push(root);
                }
                return Ok(());
            }
            let block = fs.checked_whole(block)?;
            if fs.walk_tree(v, block, depth, base, &part, owner, &mut plan)?
                && owner == Owner::Lives
            {
                plan.roots.push(root);
            }
            Ok(())
        })?;
        Ok(plan)
    }
}

impl<F: Format> UnixFs<F> {
    fn for_each_tree(&self, mut visit: impl FnMut(usize, usize, u64, u64) -> Step<()>) -> Step<()> {
        let n = self.pointers_per_block();
        for root in 0..DIRECT_POINTERS {
            visit(root, 0, root as u64, 1)?;
        }
        let mut base = DIRECT_POINTERS as u64;
        for depth in 1..=3 {
            let span = n.pow(depth as u32);
            visit(INDIRECT + depth - 1, depth, base, span)?;
            base += span;
        }
        Ok(())
    }

    /// Adds to a plan the units behind `end`, where a file is to end within a direct block.
    pub(crate) fn plan_tail_cut(&self, inode: &F::Inode, end: u64, plan: &mut Cut) -> Step<()> {
        let units = self.format.units_per_pointer();
        let (pointer, keep) = (end / units, end % units);
        if keep == 0 || pointer >= DIRECT_POINTERS as u64 {
            return Ok(());
        }
        let start = inode.pointer(pointer as usize);
        let run = self.run_at(inode, pointer, start);
        if start != BlockNumber::NONE && run.len > keep {
            self.checked_units(run)?;
            plan.freed.push(Run {
                start: start + keep,
                len: run.len - keep,
            });
            plan.count += run.len - keep;
        }
        Ok(())
    }

    /// Visits a block and what is below it. Returns whether it goes.
    #[allow(clippy::too_many_arguments)]
    fn walk_tree(
        &self,
        v: &mut Volume<'_>,
        block: BlockNumber,
        depth: usize,
        base: u64,
        part: &Range<u64>,
        owner: Owner,
        plan: &mut Cut,
    ) -> Step<bool> {
        let mut goes = true;
        if depth > 0 {
            let n = self.pointers_per_block();
            let child_span = n.pow(depth as u32 - 1);
            let first = (part.start.saturating_sub(base) / child_span).min(n) as usize;
            let end = part.end.saturating_sub(base);
            let last = end.div_ceil(child_span).min(n) as usize;
            let (entries, others) = self.entries_of(v, block, first..last)?;
            let mut gone = Vec::new();
            let mut stay = others;
            let mut missing = false;
            for (index, entry) in (first..last).zip(entries) {
                if entry == BlockNumber::NONE {
                    continue;
                }
                let child = self.checked_whole(entry)?;
                let child_base = base + index as u64 * child_span;
                match self.walk_tree(v, child, depth - 1, child_base, part, owner, plan) {
                    // Ask for all the indirect blocks of this level before giving up.
                    Err(Stop::Miss) => missing = true,
                    Ok(true) => push_entry(&mut gone, block, index),
                    Ok(false) => stay = true,
                    Err(other) => return Err(other),
                }
            }
            if missing {
                return Err(Stop::Miss);
            }
            goes = match owner {
                Owner::Lives => !stay,
                Owner::Freed => part.contains(&base),
            };
            if owner == Owner::Lives && !goes {
                plan.entries.append(&mut gone);
            }
        }
        if goes {
            let units = self.format.units_per_pointer();
            push_run(&mut plan.freed, block, units);
            plan.count += units;
        }
        Ok(goes)
    }

    /// The entries of a part of an indirect block, and whether any of its other ones is mapped.
    fn entries_of(
        &self,
        v: &mut Volume<'_>,
        block: BlockNumber,
        part: Range<usize>,
    ) -> Step<(Vec<BlockNumber>, bool)> {
        let mut found = (Vec::with_capacity(part.len()), false);
        let here = self.pointers_per_unit();
        for unit in 0..self.format.units_per_pointer() {
            let bytes = v.read(block + unit)?;
            for index in 0..here {
                let entry = self.format.pointer_at(bytes, index);
                match part.contains(&(unit as usize * here + index)) {
                    true => found.0.push(entry),
                    false => found.1 |= entry != BlockNumber::NONE,
                }
            }
        }
        Ok(found)
    }

    fn last_in_tree(
        &self,
        v: &mut Volume<'_>,
        block: BlockNumber,
        depth: usize,
        base: u64,
        below: u64,
    ) -> Step<Option<u64>> {
        if depth == 0 {
            return Ok(Some(base));
        }
        let n = self.pointers_per_block();
        let span = n.pow(depth as u32 - 1);
        let mut index = (below - base).div_ceil(span).min(n) as usize;
        while index > 0 {
            let (unit, at) = self.entry_place(block, index - 1);
            let bytes = v.read(unit)?;
            let mut before = (0..=at).rev().map(|at| self.format.pointer_at(bytes, at));
            let Some(behind) = before.position(|entry| entry != BlockNumber::NONE) else {
                index -= at + 1;
                continue;
            };
            let entry = self.format.pointer_at(bytes, at - behind);
            let child_base = base + (index - 1 - behind) as u64 * span;
            let child = self.checked_whole(entry)?;
            // An empty indirect block still counts: it has to be freed with what it could map.
            return Ok(Some(
                self.last_in_tree(v, child, depth - 1, child_base, below)?
                    .unwrap_or(child_base),
            ));
        }
        Ok(None)
    }
}

fn push_entry(entries: &mut Vec<Entries>, block: BlockNumber, index: usize) {
    match entries.last_mut() {
        Some(last) if last.block == block && last.first + last.count == index => last.count += 1,
        _ => entries.push(Entries {
            block,
            first: index,
            count: 1,
        }),
    }
}
