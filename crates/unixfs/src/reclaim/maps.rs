//! The maps of inodes: which blocks are in use, and block counts that are wrong.

use backstitch_layout::{
    BlockNumber, Changed, Error, InodeNumber, ReclaimStep, Step, Stop, Structure,
};
use backstitch_ordering::Volume;

use crate::fault::Fault;
use crate::format::{Format, INDIRECT, Inode, InodeEditor};
use crate::map::{ChangeableMap, Owner};
use crate::rules::{Rule, wait_for_all};
use crate::state::UnixFs;
use crate::state::reclaim::{Part, Phase, Reclaim, kind};
use backstitch_blocks::runs::Run;

/// How many inodes one step looks at at most.
const INODES_PER_STEP: usize = 256;
/// How many leaf indirect blocks of a file one step looks at.
const LEAVES_PER_STEP: u64 = 64;

/// What came of looking at a part of an inode.
enum Corrected {
    /// There is more.
    UpTo(Part),
    Wholly,
}

fn corrupt(number: InodeNumber, fault: Fault) -> Error {
    Error::corrupt(Structure::inode(number), fault)
}

impl<F: Format> UnixFs<F> {
    /// Looks at the maps of inodes in use: notes what they map, and corrects how much that is.
    pub(super) fn look_at_maps(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
    ) -> Step<ReclaimStep> {
        let Phase::Map { inode: first, .. } = r.phase else {
            return Ok(ReclaimStep::More);
        };
        let is_live =
            |i: &InodeNumber| !matches!(r.kind(*i), kind::FREE | kind::NEW | kind::NEW_DIRECTORY);
        let live: Vec<InodeNumber> = first
            .through(self.format.last_inode())
            .filter(is_live)
            .take(INODES_PER_STEP)
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
                Phase::Map { inode, part } if inode == number => part,
                _ => Part::START,
            };
            let corrected = self.look_at_map(v, r, number, part)?;
            let (inode, part) = match corrected {
                Corrected::UpTo(part) => (number, part),
                Corrected::Wholly => (number + 1, Part::START),
            };
            r.phase = Phase::Map { inode, part };
            if inode == number {
                break;
            }
        }
        Ok(ReclaimStep::More)
    }

    /// Asks for the outermost indirect blocks of many inodes at once.
    fn want_maps(&mut self, v: &mut Volume<'_>, inodes: &[InodeNumber]) -> Step<()> {
        self.want_inodes(v, inodes.iter().copied())?;
        let mut missing = false;
        for number in inodes {
            let inode = self.read_any_inode(v, *number)?;
            if !inode.has_block_map(self.format.block_size()) || *number < self.format.first_inode()
            {
                continue;
            }
            for root in INDIRECT..INDIRECT + 3 {
                let block = self.checked_whole(inode.pointer(root))?;
                missing |= block != BlockNumber::NONE && !v.want(block);
            }
        }
        if missing { Err(Stop::Miss) } else { Ok(()) }
    }

    fn look_at_map(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: InodeNumber,
        part: Part,
    ) -> Step<Corrected> {
        let code = r.kind(number);
        let is_held = matches!(code, kind::HELD | kind::HELD_DIRECTORY);
        if r.was_disturbed(number) && part.from > 0 {
            return Ok(Corrected::UpTo(Part {
                again: true,
                ..Part::START
            }));
        }
        if is_held && !self.is_referenced(number) {
            // It is being freed, and what it maps may belong to others already. But it still counts
            // as a user of its attributes.
            let inode = self.read_any_inode(v, number)?;
            self.mark_attributes(r, number, &inode)?;
            r.leaving.push(number);
            return Ok(Corrected::Wholly);
        }
        let inode = self.read_any_inode(v, number)?;
        if code == kind::RESERVED {
            F::mark_reserved(self, v, r, number, &inode)?;
            return Ok(Corrected::Wholly);
        }
        self.check_symlink(number, &inode)?;
        let mut blocks = part.blocks;
        if inode.has_block_map(self.format.block_size()) {
            let map = self.changeable_map(&inode);
            let end = map.end(v, u64::MAX)?;
            let keep = inode.size().div_ceil(self.format.block_size().into());
            let mapped = keep.next_multiple_of(self.format.units_per_pointer());
            if part.from == 0 && end > mapped && !is_held {
                self.unmap_beyond(v, r, number, &inode, keep, end)?;
                return Ok(Corrected::UpTo(Part::START));
            }
            let to = part
                .from
                .saturating_add(LEAVES_PER_STEP * self.blocks_per_leaf());
            let plan = map.plan_cut(v, part.from..to, Owner::Freed)?;
            if to < end {
                mark_runs(r, number, &plan.freed, part.again)?;
                return Ok(Corrected::UpTo(Part {
                    from: to,
                    blocks: blocks + plan.count,
                    again: part.again,
                }));
            }
            // What may miss comes before anything is marked.
            self.format.declare_features(v, number, &inode)?;
            mark_runs(r, number, &plan.freed, part.again)?;
            blocks += plan.count;
        } else {
            self.format.declare_features(v, number, &inode)?;
        }
        blocks += self.mark_attributes(r, number, &inode)?;
        if !is_held {
            self.correct_sectors(v, number, &inode, blocks)?;
            r.note_links(number, &inode);
        }
        Ok(Corrected::Wholly)
    }

    /// Counts an inode's reference to its attributes, which others may share, and marks all blocks
    /// of them. Returns how many these are.
    fn mark_attributes(&self, r: &mut Reclaim, number: InodeNumber, inode: &F::Inode) -> Step<u64> {
        let block = inode.attribute_block();
        let runs = self.format.attribute_runs(number, inode)?;
        let references = r.attribute_blocks.get(&block);
        let is_shared = references.is_some_and(|references| references.counted > 0);
        mark_runs(r, number, &runs, is_shared && F::SHARES_ATTRIBUTES)?;
        r.count_attributes(number, block);
        Ok(runs.iter().map(|run| run.len).sum())
    }

    /// Checks that a symlink's target is where its size says: else its pointers mean nothing.
    fn check_symlink(&self, number: InodeNumber, inode: &F::Inode) -> Step<()> {
        let is_fast = inode.is_fast_symlink(self.format.block_size());
        if is_fast && inode.size() > self.format.fast_symlink_max() as u64 {
            return Err(corrupt(number, Fault::TargetWithoutBlock).into());
        }
        Ok(())
    }

    /// How many blocks an inode counts.
    fn correct_sectors(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        blocks: u64,
    ) -> Step<()> {
        let sectors = blocks * self.sectors_per_block();
        if sectors > F::SECTORS_MAX {
            return Err(corrupt(number, Fault::TooManyBlocks { blocks }).into());
        }
        if inode.sectors() != sectors {
            self.edit_inode(v, number, &[], |e| e.set_sectors(sectors));
            self.changed.push(Changed::Attributes(number));
        }
        Ok(())
    }

    /// Takes blocks beyond the size out of a file's map, and frees them: the crash came before its
    /// size grew.
    fn unmap_beyond(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: InodeNumber,
        inode: &F::Inode,
        keep: u64,
        end: u64,
    ) -> Step<()> {
        let n = self.blocks_per_leaf();
        let cut = keep.max(((end - 1) / n * n).saturating_sub(LEAVES_PER_STEP * n));
        let plan =
            (self.changeable_map(inode)).plan_cut(v, cut..self.blocks_max(), Owner::Lives)?;
        self.gather_freeing(v, &plan.freed)?;
        if plan.is_empty() {
            return Err(corrupt(number, Fault::BlocksPastEnd).into());
        }
        let mut after = plan.nullify_entries(&self.format, v);
        after.push(self.edit_inode(v, number, &[], |e| plan.nullify_pointers(e)));
        plan.freed.iter().for_each(|run| r.touch(*run));
        r.freed_blocks += plan.freed.iter().map(|run| run.len).sum::<u64>();
        let after = wait_for_all(Rule::ReclaimFreesAfterUnmapping, &after);
        self.defer_blocks(v, plan.freed, after);
        Ok(())
    }
}

fn mark_runs(r: &mut Reclaim, number: InodeNumber, runs: &[Run], again: bool) -> Step<()> {
    runs.iter().try_for_each(|run| r.mark(number, *run, again))
}
