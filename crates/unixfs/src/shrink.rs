//! Making files shorter (and longer without contents), and holes.

use std::slice;

use backstitch_layout::{Allocate, BlockNumber, Error, InodeNumber, Step, Stop, Timestamp, flags};
use backstitch_ordering::{BlockClass, PatchId, Volume};

use crate::contents::check_regular;
use crate::extend::NewContents;
use crate::format::{DIRECT_POINTERS, Format, Inode, InodeEditor};
use crate::map::{ChangeableMap, Cut, Owner};
use crate::rules::{Rule, holds, note_by, wait_for, wait_for_all};
use crate::state::UnixFs;
use crate::state::patches::{PatchIds, PatchList};
use crate::steps;
use backstitch_blocks::runs::{Mapped, Run};
use smallvec::SmallVec;

/// How many leaf indirect blocks one step may look at.
const LEAVES_PER_STEP: u64 = 256;

/// Zeroing a part of a mapped block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zeroing {
    block: BlockNumber,
    from: usize,
    to: usize,
}

/// At most one for each unit of a block.
pub(crate) type Zeroings = SmallVec<[Zeroing; 1]>;

impl<F: Format> UnixFs<F> {
    /// Changes a file's size. A long shrink is done in steps: [`Stop::Again`] after each but the
    /// last.
    pub(crate) fn resize(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        size: u64,
        now: Timestamp,
    ) -> Step<()> {
        check_regular(inode)?;
        if inode.flags() & flags::APPEND != 0 {
            return Err(Error::NotPermitted.into());
        }
        if size > self.format.max_file_bytes() {
            return Err(Error::FileTooLarge.into());
        }
        self.format.declare_size(v, size)?;
        if size > inode.size() {
            return self.grow(v, number, inode, size, now);
        }
        self.shrink(v, number, inode, size, now)
    }

    /// Before a file grows: a crash, or a truncation under way, may have left blocks mapped behind
    /// its end, with bytes that it was given then. They must not come to light. A step of its own,
    /// where there are any.
    pub(crate) fn drop_leftovers(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        now: Timestamp,
    ) -> Step<()> {
        let may_have_some = self.has_leaks || self.is_truncating(number);
        if !may_have_some || !holds(Rule::GrowthDropsLeftovers) {
            return Ok(());
        }
        let blocks = inode.size().div_ceil(self.block_size() as u64);
        let blocks = blocks.next_multiple_of(self.format.units_per_pointer());
        if self.changeable_map(inode).end(v, u64::MAX)? <= blocks {
            return Ok(());
        }
        self.shrink(v, number, inode, inode.size(), now)?;
        Err(Stop::Again)
    }

    /// Whether a step of a cut has been done, and there is more.
    fn is_truncating(&self, number: InodeNumber) -> bool {
        self.inodes.get(&number).is_some_and(|s| s.is_truncating)
    }

    /// A larger size, and the units that the last block needs for it. What that holds beyond the old
    /// size must be zero on the disk first.
    fn grow(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        size: u64,
        now: Timestamp,
    ) -> Step<()> {
        self.drop_leftovers(v, number, inode, now)?;
        let tail = self.gather_longer_tail(v, number, inode, size)?;
        let stale = self.gather_stale_tail(v, inode)?;
        let after = self.zero_stale_tail(v, number, stale);
        let longer = match tail {
            Some(growth) => {
                let moved = self.moved_contents(v, inode, &growth, 0, &[]);
                let contents = NewContents::data(moved.as_deref().unwrap_or(&[]), 0);
                let (_, longer) =
                    self.extend(v, number, inode, &growth, contents, size, after, now);
                longer
            }
            None => self.change_inode(v, number, &after, |e| {
                e.set_size(size);
                e.set_modified(now);
                e.set_changed(now);
            }),
        };
        self.state(number).lengthened = Some(longer);
        Ok(())
    }

    /// Finds the bytes of the last block beyond the size that are not zero.
    pub(crate) fn gather_stale_tail(
        &mut self,
        v: &mut Volume<'_>,
        inode: &F::Inode,
    ) -> Step<Zeroings> {
        let end = self.mapped_end(inode.size());
        let mut stale = self.gather_zeroing(v, inode, inode.size(), end, false)?;
        if !holds(Rule::StaleTailIsZeroed) {
            stale.clear();
        }
        Ok(stale)
    }

    /// Where the last block of a file of this size ends, in bytes: all of its units count.
    fn mapped_end(&self, size: u64) -> u64 {
        let block = self.block_size() as u64 * self.format.units_per_pointer();
        size.next_multiple_of(block)
    }

    /// Zeroes a stale tail, and returns what must come before a larger size.
    pub(crate) fn zero_stale_tail(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        stale: Zeroings,
    ) -> PatchIds {
        let zeroed: PatchIds = self
            .inodes
            .get(&number)
            .into_iter()
            .flat_map(|state| state.tail_zeroed.iter())
            .collect();
        let mut after = PatchIds::from_slice(wait_for_all(Rule::SizeAfterZeroedTail, &zeroed));
        for zeroing in stale {
            let id = self.zero(v, zeroing, &[]);
            after.push(wait_for(Rule::SizeAfterStaleTail, id));
        }
        after
    }

    /// One step of making a file shorter. The patch of the inode with the smaller size is its
    /// commit point.
    fn shrink(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        size: u64,
        now: Timestamp,
    ) -> Step<()> {
        let bs = self.block_size() as u64;
        let keep = size.div_ceil(bs);
        let (cut, mut plan) = self.gather_cut(v, inode, keep)?;
        let is_last = cut == keep;
        // A crash may come between two steps. With a log the orphan list names the file until the
        // last step, and recovery finishes the cut: the first step sets the final size. Without
        // one nothing finishes it: each step sets the size that fits the blocks still mapped.
        let is_listed = v.scopes_are_atomic();
        let is_first = !self.is_truncating(number);
        if is_listed && is_first && !is_last {
            // The size tells how many units the last block has: it loses the others with it.
            self.plan_tail_cut(inode, keep, &mut plan)?;
        }
        let step_size = match is_last || is_listed {
            true => size,
            false => inode.size().min(cut * bs),
        };
        self.gather_freeing(v, &plan.freed)?;
        // The step that sets the final size zeroes the bytes behind it. With a log that is the
        // first step: zeros of a later one might be in no transaction, and the file be longer
        // again on the disk before they are there.
        let hides_tail = if is_listed { is_first } else { is_last };
        let tail = match hides_tail {
            // With a log zeros are written over zeros too: what comes there next follows the cut.
            true => self.gather_zeroing(v, inode, size, self.kept_end(size), is_listed)?,
            false => Zeroings::new(),
        };
        let shrunk = self.apply_unmapping(v, number, inode, plan, step_size, now);
        let state = self.state(number);
        state.shrunk = Some(shrunk);
        state.is_truncating = is_listed && !is_last && holds(Rule::LongTruncationIsListed);
        if is_last {
            self.forget_zeros_behind(number, self.kept_end(size));
        }
        for zeroing in tail {
            // Only once the size hides them, or a crash in between would show zeros where there was
            // something.
            let after = wait_for(Rule::TailZeroedAfterSize, shrunk);
            let id = self.zero(v, zeroing, &[after]);
            self.note_tail_zeroed(v, number, size, id);
            self.note_change(v, number, note_by(Rule::FsyncWaitsForZeroedTail, id));
        }
        self.state(number).goal = BlockNumber::NONE;
        self.format.drop_window(number);
        if is_last { Ok(()) } else { Err(Stop::Again) }
    }

    /// A file's tail was zeroed from `from` (bytes) on.
    fn note_tail_zeroed(
        &mut self,
        v: &Volume<'_>,
        number: InodeNumber,
        from: u64,
        zeroed: PatchId,
    ) {
        let state = self.state(number);
        state.tail_zeroed_from = match state.tail_zeroed.is_empty() {
            true => from,
            false => from.min(state.tail_zeroed_from),
        };
        state.tail_zeroed.push(v, zeroed);
    }

    /// A cut has taken the blocks from `end` (bytes) on away, with the zeros that earlier ones wrote
    /// there: what makes the file longer comes after the cut, and has a hole there.
    fn forget_zeros_behind(&mut self, number: InodeNumber, end: u64) {
        let state = self.state(number);
        if state.tail_zeroed_from >= end {
            state.tail_zeroed = PatchList::default();
        }
    }

    /// Plans to cut the last part of a file, of a bounded size, behind `keep` blocks. Returns where
    /// the part begins, and the plan. It begins at the border of an indirect block, unless the
    /// transaction has no room for so much.
    fn gather_cut(&self, v: &mut Volume<'_>, inode: &F::Inode, keep: u64) -> Step<(u64, Cut)> {
        let map = self.changeable_map(inode);
        let units = self.format.units_per_pointer();
        let end = map.end(v, u64::MAX)?;
        let mut cut = keep.max(steps::begins(
            end,
            LEAVES_PER_STEP,
            self.blocks_per_leaf(),
            units,
        ));
        loop {
            let plan = map.plan_cut(v, cut..self.blocks_max(), Owner::Lives)?;
            let blocks = end.saturating_sub(cut);
            if blocks <= units || self.fits(v, &plan.freed) {
                return Ok((cut, plan));
            }
            cut = keep.max((cut + blocks / 2).next_multiple_of(units));
        }
    }

    /// Where, in bytes, the blocks end that a file keeps at this size: a last block that is a
    /// direct one keeps no more units than it needs.
    fn kept_end(&self, size: u64) -> u64 {
        let bs = self.block_size() as u64;
        let direct = bs * self.format.units_per_pointer() * DIRECT_POINTERS as u64;
        match size <= direct {
            true => size.next_multiple_of(bs),
            false => self.mapped_end(size),
        }
    }

    /// The part `from..to` (bytes, within one block of the map) of a file, where it is mapped and,
    /// unless `anyway`, not zero already.
    fn gather_zeroing(
        &mut self,
        v: &mut Volume<'_>,
        inode: &F::Inode,
        from: u64,
        to: u64,
        anyway: bool,
    ) -> Step<Zeroings> {
        let bs = self.block_size() as u64;
        let mut zeroings = Zeroings::new();
        let mut at = from;
        while at < to {
            let stop = to.min((at / bs + 1) * bs);
            let Mapped::Blocks(run) = self.map_blocks(v, inode, at / bs, 1)? else {
                break;
            };
            let (start, end) = ((at % bs) as usize, ((stop - 1) % bs + 1) as usize);
            let bytes = v.read(run.start)?;
            if anyway || bytes[start..end].iter().any(|b| *b != 0) {
                zeroings.push(Zeroing {
                    block: run.start,
                    from: start,
                    to: end,
                });
            }
            at = stop;
        }
        Ok(zeroings)
    }

    fn zero(&mut self, v: &mut Volume<'_>, zeroing: Zeroing, after: &[PatchId]) -> PatchId {
        let zeros = vec![0; zeroing.to - zeroing.from];
        v.write(zeroing.block, BlockClass::Data, zeroing.from, &zeros, after)
    }

    /// Nullifies the pointers of a plan, then sets the smaller size, then frees: each is on the
    /// disk no earlier than the one before.
    fn apply_unmapping(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        plan: Cut,
        size: u64,
        now: Timestamp,
    ) -> PatchId {
        let after = plan.nullify_entries(&self.format, v);
        let sectors = inode
            .sectors()
            .saturating_sub(plan.count * self.sectors_per_block());
        let mut before_size =
            PatchIds::from_slice(wait_for_all(Rule::SizeAfterNullification, &after));
        // What was unmapped before, by a hole, may lie behind the new end.
        let unmapped = self.inodes.get(&number).and_then(|s| s.unmapped);
        before_size.extend(unmapped.map(|id| wait_for(Rule::SizeAfterHole, id)));
        let shrunk = self.change_inode(v, number, &before_size, |e| {
            plan.nullify_pointers(e);
            e.set_sectors(sectors);
            e.set_size(size);
            e.set_modified(now);
            e.set_changed(now);
        });
        if !plan.freed.is_empty() {
            self.state(number).unmapped = Some(shrunk);
            let never = self
                .inodes
                .get(&number)
                .and_then(|s| s.made)
                .is_some_and(|made| {
                    v.merged(made, shrunk) || !holds(Rule::BlocksNeverMappedOnlyIfMerged)
                });
            // `shrunk` comes after the entries that indirect blocks lose.
            let after: &[PatchId] = match never {
                true => &[],
                false => wait_for_all(Rule::BlocksFreedAfterUnmapping, slice::from_ref(&shrunk)),
            };
            self.defer_blocks(v, plan.freed, after);
        }
        shrunk
    }

    /// One step of `fallocate`.
    pub(crate) fn allocate_step(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        how: Allocate,
        offset: u64,
        len: u64,
        now: Timestamp,
    ) -> Step<()> {
        let inode = self.read_inode(v, number)?;
        check_regular(&inode)?;
        let only_adds = matches!(how, Allocate::Reserve { .. });
        if inode.flags() & flags::IMMUTABLE != 0
            || (inode.flags() & flags::APPEND != 0 && !only_adds)
        {
            return Err(Error::NotPermitted.into());
        }
        let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        if len == 0 {
            return Err(Error::Invalid.into());
        }
        if end > self.format.max_file_bytes() {
            return Err(Error::FileTooLarge.into());
        }
        if let Allocate::Reserve { keep_size: false } | Allocate::ZeroRange { keep_size: false } =
            how
        {
            self.format.declare_size(v, end)?;
        }
        match how {
            Allocate::PunchHole => {
                self.punch(v, number, &inode, offset, end.min(inode.size()), now)
            }
            Allocate::ZeroRange { keep_size } => {
                self.punch(v, number, &inode, offset, end.min(inode.size()), now)?;
                if !keep_size && end > inode.size() {
                    // The hole took sectors and pointers from it.
                    let inode = self.read_inode(v, number)?;
                    self.grow(v, number, &inode, end, now)
                } else {
                    Ok(())
                }
            }
            Allocate::Reserve { keep_size } => {
                // Blocks behind the end of a file have no place in this format: a checker takes
                // them for damage.
                let end = if keep_size {
                    end.min(inode.size())
                } else {
                    end
                };
                self.reserve_step(v, number, &inode, offset, end, now)
            }
        }
    }

    /// Makes a hole of what lies in `from..to`: whole blocks are unmapped, parts of blocks zeroed.
    fn punch(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        from: u64,
        to: u64,
        now: Timestamp,
    ) -> Step<()> {
        if from >= to {
            // As in the kernel, the file counts as modified wherever the hole is.
            self.change_inode(v, number, &[], |e| {
                e.set_modified(now);
                e.set_changed(now);
            });
            return Ok(());
        }
        let bs = self.block_size() as u64;
        // The last block of the file goes whole: nothing of it is behind the hole.
        let units = self.format.units_per_pointer();
        let block = bs * units;
        let last = if to >= inode.size() && self.tail_end(inode).is_none() {
            to.div_ceil(block) * units
        } else {
            to / block * units
        };
        let first = from.div_ceil(block) * units;
        let head = self.gather_zeroing(v, inode, from, to.min(first * bs), false)?;
        let tail = if last >= first && to > last * bs {
            self.gather_zeroing(v, inode, last * bs, to, false)?
        } else {
            Zeroings::new()
        };
        let (mapped, mut end) = self.part_to_unmap(v, inode, first, last)?;
        let map = self.changeable_map(inode);
        let mut plan = map.plan_cut(v, first..end, Owner::Lives)?;
        while end > mapped + units && !self.fits(v, &plan.freed) {
            end = (mapped + (end - mapped) / 2).next_multiple_of(units);
            plan = map.plan_cut(v, first..end, Owner::Lives)?;
        }
        self.gather_freeing(v, &plan.freed)?;
        for zeroing in head.into_iter().chain(tail) {
            let id = self.zero(v, zeroing, &[]);
            self.note_change(v, number, note_by(Rule::FsyncWaitsForPunchedZeros, id));
        }
        self.apply_unmapping(v, number, inode, plan, inode.size(), now);
        if end < last { Err(Stop::Again) } else { Ok(()) }
    }

    /// A part of `first..last` from its start on, long enough to hold something mapped, and of a
    /// bounded number of indirect blocks that are: the first mapped block, and where the part ends.
    /// It always starts at `first`, so that indirect blocks that map nothing go too.
    fn part_to_unmap(
        &mut self,
        v: &mut Volume<'_>,
        inode: &F::Inode,
        first: u64,
        last: u64,
    ) -> Step<(u64, u64)> {
        let mut at = first;
        while at < last {
            match self.map_blocks(v, inode, at, last - at)? {
                Mapped::Hole(len) => at += len,
                Mapped::Blocks(_) => break,
            }
        }
        let border = at.saturating_add(LEAVES_PER_STEP * self.blocks_per_leaf());
        Ok((at, border.min(last).max(first)))
    }

    /// Checks that blocks about to be freed are marked as used, and brings their bitmaps into
    /// memory.
    ///
    /// # Errors
    /// Where bitmaps are missing, or say that one of the blocks is free.
    pub fn gather_freeing(&mut self, v: &mut Volume<'_>, runs: &[Run]) -> Step<()> {
        let mut missing = false;
        for run in runs {
            match self.format.check_blocks_used(v, *run) {
                Err(Stop::Miss) => missing = true,
                other => other?,
            }
        }
        if missing { Err(Stop::Miss) } else { Ok(()) }
    }
}
