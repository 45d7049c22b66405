//! Creating patches: hard where possible, merged where possible, with undo data otherwise.

use std::ops::ControlFlow;

use crate::block::{NIL, Zones};
use crate::graph::LOOK;
use crate::graph::{Graph, Standing, Stating};
use crate::patch::{Patch, PatchId, State};
use crate::planted::Planted;
use crate::search::{SEARCH_LIMIT, Target};
use crate::{BlockId, Event};

/// What a patch does to its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Writes `bytes` from `offset_bytes` on.
    Bytes {
        /// The first byte, counted from the block's start.
        offset_bytes: u32,
        /// The new bytes.
        bytes: &'a [u8],
    },
    /// Flips the bits of `mask` in the little-endian 32-bit word at `offset_bytes` (a multiple of
    /// 4). Flips of different bits are independent of each other.
    Flip {
        /// The word's first byte.
        offset_bytes: u32,
        /// The bits to flip.
        mask: u32,
    },
}

impl Change<'_> {
    /// The first byte that it changes, and the one behind the last.
    pub fn range(&self) -> (u32, u32) {
        match *self {
            Change::Bytes {
                offset_bytes,
                bytes,
            } => (offset_bytes, offset_bytes + bytes.len() as u32),
            Change::Flip { offset_bytes, .. } => (offset_bytes, offset_bytes + 4),
        }
    }

    /// Applies the change to a block's bytes.
    pub fn apply(&self, block: &mut [u8]) {
        match *self {
            Change::Bytes {
                offset_bytes,
                bytes,
            } => {
                block[offset_bytes as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            Change::Flip { offset_bytes, mask } => flip(block, offset_bytes, mask),
        }
    }
}

pub(crate) fn flip(block: &mut [u8], offset: u32, mask: u32) {
    for (byte, bits) in block[offset as usize..][..4]
        .iter_mut()
        .zip(mask.to_le_bytes())
    {
        *byte ^= bits;
    }
}

/// Blocks that the chain of dependencies of a hard patch may lead through. A hard patch cannot be
/// rolled back, so its block, with everything else that changed in it, is not written before all
/// blocks of the chain are. Without a limit chains join, from directory to directory, until one
/// leads through every block of the inode table, and each of these costs a write and a flush.
/// Contents of files, bitmaps and the deepest pointers stay below the limit.
const DEPTH_OF_HARD: u8 = 2;

/// How a change overlaps the soft patches of its block.
#[derive(Clone, Copy, Default)]
struct Overlap {
    /// At least one of them overlaps it.
    any: bool,
    /// The overlapping patch, where there is just one.
    only: Option<u32>,
    /// It is a flip, nothing overlaps it, and there are flips of other bits of its word.
    same_word: bool,
}

/// What stands in the way of making a new patch hard.
enum Hardness {
    /// Nothing; the block's soft patches can become hard with it.
    WithSofts,
    /// Nothing, but the block's soft patches must stay as they are.
    Alone,
    No,
}

impl Graph {
    /// Changes a block: applies `change` to `bytes` (the block's newest bytes) and records it as a
    /// patch that is on disk no earlier than each patch in `stating.after`. Returns the patch that
    /// now holds the change, possibly one that existed.
    ///
    /// Dead ids among the dependencies count for nothing. Overlaps with earlier patches of the
    /// block need not be stated.
    ///
    /// # Panics
    /// Where the change does not lie inside `bytes`.
    pub fn create<'a>(
        &mut self,
        block: BlockId,
        bytes: &mut [u8],
        change: Change<'_>,
        stating: impl Into<Stating<'a>>,
    ) -> PatchId {
        let Stating {
            after: dependencies,
            standing,
        } = stating.into();
        assert!(
            change.range().1 as usize <= bytes.len(),
            "a change must lie inside its block"
        );
        self.block_mut(block);
        let mut deps = std::mem::take(&mut self.chosen);
        deps.clear();
        deps.extend(dependencies.iter().filter_map(|d| self.index_of(*d)));
        let (index, merged) = self.place(block, bytes, change, &mut deps, standing);
        self.chosen = deps;
        change.apply(bytes);
        self.update_ready(index);
        self.counters.note_peak();
        let id = self.id_of(index);
        if self.hook.is_some() {
            self.tell_change(index, merged, block, change, dependencies);
        }
        id
    }

    #[cold]
    fn tell_change(
        &mut self,
        index: u32,
        merged: bool,
        block: BlockId,
        change: Change<'_>,
        dependencies: &[PatchId],
    ) {
        let id = self.id_of(index);
        let kind = self.kind_of(index);
        self.emit(&if merged {
            Event::Merge {
                into: id,
                kind,
                block,
                change,
                dependencies,
            }
        } else {
            Event::Create {
                id,
                kind,
                block: Some(block),
                change: Some(change),
                held: false,
                dependencies,
            }
        });
    }

    /// Whether [`create`](Self::create) would have the change be a part of `into`, a patch of the
    /// same block that is neither on the disk nor on its way, so that the two reach the disk
    /// together or not at all. Only "yes" is certain: for a block with a settled patch, or with a
    /// part in a run, the answer is always "no".
    pub fn would_join(
        &mut self,
        block: BlockId,
        change: &Change<'_>,
        stating: Stating<'_>,
        into: PatchId,
    ) -> bool {
        let is_in_block = |p: &Patch| p.block == block.0 && !p.in_flight;
        let target = self.index_of(into);
        let Some(target) = target.filter(|t| is_in_block(&self.patches[*t as usize])) else {
            return false;
        };
        if self.run_of(block.0).is_some() || self.has_settled(block.0) {
            return false;
        }
        let mut deps = std::mem::take(&mut self.chosen);
        deps.clear();
        deps.extend(stating.after.iter().filter_map(|d| self.index_of(*d)));
        let overlap = self.overlapped_softs(block, change);
        let standing = stating.standing;
        // As `place` decides.
        let joins = match self.hardness(block, &mut deps, standing) {
            Hardness::WithSofts => true,
            Hardness::Alone if !overlap.any => self.patches[target as usize].state == State::Hard,
            Hardness::Alone | Hardness::No => {
                self.optimisations.merge
                    && overlap.only == Some(target)
                    && self.may_wait_for(target, &deps, standing)
                    && self.can_merge_into(target, change, &deps)
            }
        };
        self.chosen = deps;
        joins
    }

    /// Whether `after` is on the disk no earlier than `before`, as far as a short look at its
    /// direct dependencies tells: only "yes" is certain.
    pub fn waits_directly(&self, after: PatchId, before: PatchId) -> bool {
        match (self.index_of(after), self.index_of(before)) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(a), Some(b)) => a == b || self.has_edge_among_newest(a, b, LOOK),
        }
    }

    /// Whether a further change of the block without dependencies would be a part of what `after`
    /// waits for: of the run that the block belongs to, with nothing else pending on it.
    pub fn joins_contents_before(&self, after: PatchId, block: BlockId) -> bool {
        let Some(b) = self.blocks.get(block.0 as usize) else {
            return false;
        };
        match (self.index_of(after), b.run()) {
            (Some(after), Some(run)) if b.first == NIL => {
                self.has_edge_among_newest(after, run, LOOK)
            }
            _ => false,
        }
    }

    /// Finds or makes the patch for a change; true where it is one that existed.
    fn place(
        &mut self,
        block: BlockId,
        bytes: &[u8],
        change: Change<'_>,
        deps: &mut Vec<u32>,
        standing: Standing,
    ) -> (u32, bool) {
        let overlap = self.overlapped_softs(block, &change);
        match self.hardness(block, deps, standing) {
            Hardness::WithSofts => {
                self.collapse_softs(block);
                return self.place_hard(block, deps);
            }
            Hardness::Alone if self.planted(Planted::ConvertDespiteExternal) => {
                self.collapse_softs(block);
                return self.place_hard(block, deps);
            }
            Hardness::Alone if !overlap.any => return self.place_hard(block, deps),
            Hardness::Alone | Hardness::No => {}
        }
        if self.optimisations.merge {
            if let Some(target) = overlap.only
                && self.may_wait_for(target, deps, standing)
                && self.can_merge_into(target, &change, deps)
            {
                self.merge_into_soft(target, bytes, change, deps);
                return (target, true);
            }
            if let Change::Flip { offset_bytes, mask } = change
                && overlap.same_word
                && let Some(target) = self.same_word_and_dependencies(block, offset_bytes, deps)
            {
                self.merge_bits(target, mask);
                return (target, true);
            }
        }
        let soft = self.place_soft(block, bytes, change, deps, overlap.any);
        (soft, false)
    }

    /// Whether `target` may be made to wait for `deps`, the dependencies of a change with this
    /// standing.
    fn may_wait_for(&self, target: u32, deps: &[u32], standing: Standing) -> bool {
        standing != Standing::Apart || !self.brings_more_to_wait_for(target, deps)
    }

    /// How the change overlaps the block's soft patches. A look at the block's zones answers for
    /// most changes. Only where the zones meet are patches compared, and of a crowded block only
    /// those of the same zones.
    fn overlapped_softs(&self, block: BlockId, change: &Change<'_>) -> Overlap {
        let b = &self.blocks[block.0 as usize];
        let mut found = Overlap::default();
        if !b.zones.meets(Zones::of(change.range())) {
            return found;
        }
        self.for_each_near(block.0, change.range(), |index| {
            let p = &self.patches[index as usize];
            if self.overlaps(index, change) {
                found.only = if found.any { None } else { Some(index) };
                if std::mem::replace(&mut found.any, true) {
                    // Two are enough: which further ones there are makes no difference.
                    return ControlFlow::Break(());
                }
            } else if p.state == State::Bits {
                found.same_word |= matches!(change, Change::Flip { offset_bytes, .. } if *offset_bytes == p.offset);
            }
            ControlFlow::Continue(())
        });
        if found.any {
            found.same_word = false;
        }
        found
    }

    pub(crate) fn overlaps(&self, index: u32, change: &Change<'_>) -> bool {
        let p = &self.patches[index as usize];
        let (start, end) = change.range();
        match (p.state, change) {
            (State::Bits, Change::Flip { offset_bytes, mask }) => {
                p.offset == *offset_bytes && p.covered() & mask != 0
            }
            (State::Bits, Change::Bytes { .. }) => p.offset < end && start < p.offset + 4,
            (State::Soft, _) => p.offset < end && start < p.offset + p.len,
            _ => false,
        }
    }

    /// Asks whether the change can go without undo data, and leaves in `deps` what the patch is to
    /// depend on then: an empty patch that stands for patches of this very block is replaced by
    /// what else it stands for.
    fn hardness(&mut self, block: BlockId, deps: &mut Vec<u32>, standing: Standing) -> Hardness {
        let stays_soft = match standing {
            Standing::Together => false,
            Standing::WithUndo => true,
            Standing::Apart => !deps.is_empty(),
        };
        if !self.optimisations.hard || stays_soft {
            return Hardness::No;
        }
        if deps
            .iter()
            .any(|d| self.depth_on(block.0, *d) > DEPTH_OF_HARD)
        {
            return Hardness::No;
        }
        let b = &self.blocks[block.0 as usize];
        let run_is_waited_for = b
            .run()
            .is_some_and(|run| self.patches[run as usize].afters != NIL);
        let nobody_waits_for_this_block =
            (b.external == 0 && !run_is_waited_for) || self.planted(Planted::HardDespiteExternal);
        let is_settled = self.has_settled(block.0);
        if is_settled && self.brings_more_to_wait_for(self.blocks[block.0 as usize].hard, deps) {
            return Hardness::No;
        }
        let softs_convert = nobody_waits_for_this_block
            && !is_settled
            && standing != Standing::Apart
            && !self.has_deep_soft(block.0);
        let mut i = 0;
        while i < deps.len() {
            let d = &self.patches[deps[i] as usize];
            if d.state == State::Run && self.run_involves(deps[i], block) {
                return Hardness::No;
            }
            if d.state == State::Empty && d.afters == NIL && self.stands_for_block(deps[i], block) {
                if d.held {
                    return Hardness::No;
                }
                let empty = deps.swap_remove(i);
                deps.extend(self.before_indices(empty));
                deps.extend(self.followed_by(empty));
                continue;
            }
            let soft_here = d.block == block.0 && !d.in_flight && d.state != State::Hard;
            if soft_here && !softs_convert {
                return Hardness::No;
            }
            i += 1;
        }
        if softs_convert {
            return Hardness::WithSofts;
        }
        if nobody_waits_for_this_block {
            return Hardness::Alone;
        }
        let hard = self.blocks[block.0 as usize].hard;
        let ignored = self.planted(Planted::HardIgnoresSearch);
        if !self.leads_to(deps, hard, hard, Target::Block(block.0)) || ignored {
            Hardness::Alone
        } else {
            Hardness::No
        }
    }

    /// Whether a soft patch of the block lies too deep to become hard.
    fn has_deep_soft(&self, block: u32) -> bool {
        let mut index = self.blocks[block as usize].first;
        while index != NIL {
            let p = &self.patches[index as usize];
            if p.state != State::Hard && p.depth > DEPTH_OF_HARD {
                return true;
            }
            index = p.next_in_block;
        }
        false
    }

    /// Whether `deps` may lead to `target`. Dependencies that `joined` has already, as far as a
    /// short look shows, are not searched: the graph is acyclic, so they lead neither to `joined`
    /// nor to anything that lies on top of it. This matters for a growing file: its every write
    /// depends on the same indirect block, and on more behind that than a search gets through.
    /// `below` never leads to `target` either.
    pub(crate) fn leads_to(
        &mut self,
        deps: &[u32],
        joined: u32,
        below: u32,
        target: Target,
    ) -> bool {
        // Most changes wait for new contents, which wait for nothing themselves.
        if deps.iter().all(|d| self.is_dead_end(*d, target)) {
            return false;
        }
        let mut starts = std::mem::take(&mut self.starts);
        starts.clear();
        starts.extend(deps.iter().filter(|d| {
            let known = **d == joined || **d == below;
            !known && (joined == NIL || !self.has_edge_among_newest(joined, **d, LOOK))
        }));
        let found = !starts.is_empty() && self.may_reach(&starts, target, SEARCH_LIMIT);
        self.starts = starts;
        found
    }

    pub(crate) fn stands_for_block(&self, empty: u32, block: BlockId) -> bool {
        let run = self.blocks[block.0 as usize].run();
        self.before_indices(empty).any(|b| {
            let p = &self.patches[b as usize];
            (p.block == block.0 && !p.in_flight) || Some(b) == run
        })
    }
}
