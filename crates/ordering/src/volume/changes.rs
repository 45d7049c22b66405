//! Changes of blocks: each becomes a patch that comes after what the layout and the mechanism say.

use backstitch_store::{
    BlockClass, BlockKind, Change, InRun, PatchId, PatchKind, Standing, Stating,
};

use super::Volume;
use crate::mechanism::{Decision, PatchSpec};
use crate::number::BlockNumber;
use crate::rules::{self, Order, Rule, holds};

/// A patch that is about to be made, and what the mechanism decided about it.
pub(super) struct Stated<'a> {
    pub(super) spec: PatchSpec<'a>,
    pub(super) decision: Decision,
}

impl Volume<'_> {
    /// Writes bytes into a block in memory.
    pub fn write(
        &mut self,
        block: BlockNumber,
        kind: impl Into<BlockKind>,
        offset_bytes: usize,
        bytes: &[u8],
        after: &[PatchId],
    ) -> PatchId {
        self.change(
            block,
            kind,
            Change::Bytes {
                offset_bytes: offset_bytes as u32,
                bytes,
            },
            after,
        )
    }

    /// As [`write`](Self::write) of metadata, apart from what else is pending on the block: neither
    /// waits for what the other waits for. That costs undo data, which pays where somebody will
    /// soon wait for one of them.
    pub fn write_apart(
        &mut self,
        block: BlockNumber,
        kind: impl Into<BlockKind>,
        offset_bytes: usize,
        bytes: &[u8],
        after: &[PatchId],
    ) -> PatchId {
        let change = Change::Bytes {
            offset_bytes: offset_bytes as u32,
            bytes,
        };
        let spec = PatchSpec {
            is_apart: true,
            ..PatchSpec::new(block.0, kind, change)
        };
        self.change_as(spec, after)
    }

    /// Flips bits of a block in memory.
    pub fn flip(
        &mut self,
        block: BlockNumber,
        kind: impl Into<BlockKind>,
        offset_bytes: usize,
        mask: u32,
        after: &[PatchId],
    ) -> PatchId {
        self.change(
            block,
            kind,
            Change::Flip {
                offset_bytes: offset_bytes as u32,
                mask,
            },
            after,
        )
    }

    /// As [`write`](Self::write) of metadata, for times that move along with something else.
    pub fn write_implied_times(
        &mut self,
        block: BlockNumber,
        kind: impl Into<BlockKind>,
        offset_bytes: usize,
        bytes: &[u8],
    ) -> PatchId {
        let change = Change::Bytes {
            offset_bytes: offset_bytes as u32,
            bytes,
        };
        let spec = PatchSpec {
            is_implied_times: true,
            ..PatchSpec::new(block.0, kind, change)
        };
        self.change_as(spec, &[])
    }

    pub(super) fn change(
        &mut self,
        block: BlockNumber,
        kind: impl Into<BlockKind>,
        change: Change<'_>,
        after: &[PatchId],
    ) -> PatchId {
        self.change_as(PatchSpec::new(block.0, kind, change), after)
    }

    fn change_as(&mut self, spec: PatchSpec<'_>, after: &[PatchId]) -> PatchId {
        let stated = self.state_dependencies(spec, after);
        let id = match self.run_of(&stated, None) {
            Some(run) => self.patch_in_run(&stated, run),
            None => self.patch_alone(&stated),
        };
        self.created(&stated, id)
    }

    /// The run that the change is to join.
    fn run_of(&mut self, stated: &Stated<'_>, offered: Option<PatchId>) -> Option<PatchId> {
        let Stated { spec, decision } = stated;
        let found = self
            .mechanism
            .run(self.store, decision, offered, &self.scratch)?;
        // Others wait for what is written into a block that has just got its place.
        let is_new = self.store.shown_by(self.id, spec.block).is_some();
        (!is_new || !self.promises.scopes_are_atomic()).then_some(found)
    }

    fn patch_alone(&mut self, stated: &Stated<'_>) -> PatchId {
        let (id, now, standing) = (self.id, self.now, self.standing(stated));
        let stating = Stating {
            after: &self.scratch,
            standing,
        };
        let spec = &stated.spec;
        self.store
            .patch(id, spec.block, spec.kind, spec.change, stating, now)
    }

    fn patch_in_run(&mut self, stated: &Stated<'_>, run: PatchId) -> PatchId {
        let (id, now, standing) = (self.id, self.now, self.standing(stated));
        let stating = Stating {
            after: &self.scratch,
            standing,
        };
        let spec = &stated.spec;
        let run = InRun {
            run,
            slab: self.slab.as_ref(),
        };
        self.store
            .patch_in_run(id, spec.block, spec.kind, spec.change, stating, run, now)
    }

    /// A patch was made. Returns what the layout is to know it by.
    fn created(&mut self, stated: &Stated<'_>, id: PatchId) -> PatchId {
        let Stated { spec, decision } = stated;
        self.store.give_scratch(std::mem::take(&mut self.scratch));
        if !self.stated_by.is_empty() {
            rules::note_stated(&std::mem::take(&mut self.stated_by), id);
        }
        let id = match self.store.shown_by(self.id, spec.block) {
            // Nobody finds it on the disk before the place is known there.
            Some(shown_by)
                if self.promises.keeps_order() && holds(Rule::ContentsCountOncePlaced) =>
            {
                self.store
                    .graph_mut()
                    .create_empty(&[id, shown_by], None, false)
            }
            _ => id,
        };
        self.mechanism.created(self.store, spec, decision, id);
        let id = decision.known_by.unwrap_or(id);
        if spec.is_grouped
            && let Some((groups, engaged)) = &mut self.groups
        {
            match spec.is_implied_times {
                true => groups.note_times(self.store.graph(), engaged, id),
                false => groups.note(self.store.graph(), engaged, id),
            }
        }
        id
    }

    /// Gives a block that was just allocated its contents; it need not be in memory.
    pub fn initialise(
        &mut self,
        block: BlockNumber,
        kind: impl Into<BlockKind>,
        contents: &[u8],
        after: &[PatchId],
    ) -> PatchId {
        self.initialise_in_run(block, kind, contents, after, None)
    }

    /// Writes contents of a file that wait for nothing, from `offset_bytes` of the block on. What
    /// points to them waits for all that was written under the same `run`, so that one patch will
    /// do for them; see `Graph::create_in_run`. A block that is given whole need not be in memory.
    pub fn write_in_run(
        &mut self,
        block: BlockNumber,
        offset_bytes: usize,
        contents: &[u8],
        run: PatchId,
    ) -> PatchId {
        let class = BlockClass::Data;
        if contents.len() == self.block_bytes() as usize {
            return self.initialise_in_run(block, class, contents, &[], Some(run));
        }
        let change = Change::Bytes {
            offset_bytes: offset_bytes as u32,
            bytes: contents,
        };
        let stated = self.state_dependencies(PatchSpec::new(block.0, class, change), &[]);
        let id = match self.run_of(&stated, Some(run)) {
            Some(run) => self.patch_in_run(&stated, run),
            None => self.patch_alone(&stated),
        };
        self.created(&stated, id)
    }

    fn initialise_in_run(
        &mut self,
        block: BlockNumber,
        kind: impl Into<BlockKind>,
        contents: &[u8],
        after: &[PatchId],
        offered: Option<PatchId>,
    ) -> PatchId {
        let kind = kind.into();
        let change = Change::Bytes {
            offset_bytes: 0,
            bytes: contents,
        };
        let stated = self.state_dependencies(PatchSpec::new(block.0, kind, change), after);
        let id = match self.run_of(&stated, offered) {
            Some(run) => self.patch_in_run(&stated, run),
            None => {
                let standing = self.standing(&stated);
                let (id, now) = (self.id, self.now);
                let stating = Stating {
                    after: &self.scratch,
                    standing,
                };
                (self.store).initialise(id, block.0, kind, contents, stating, now)
            }
        };
        self.created(&stated, id)
    }

    /// The patches that this one comes after even if nothing is stated, since both change some
    /// byte. Empty where rules are not counted.
    fn overlapped_by(&self, spec: &PatchSpec<'_>) -> Vec<PatchId> {
        let mut overlapped = Vec::new();
        if !backstitch_rules::watch::records() || matches!(spec.change, Change::Flip { .. }) {
            return overlapped;
        }
        let (start, end) = spec.change.range();
        self.store.pending(self.id, spec.block, &mut overlapped);
        let graph = self.store.graph();
        overlapped.retain(|id| {
            graph.info(*id).is_some_and(|info| {
                let theirs = info.offset_bytes..info.offset_bytes + info.len_bytes;
                info.kind == PatchKind::Soft && theirs.start < end && start < theirs.end
            })
        });
        overlapped
    }

    /// Works out what a patch is to come after, and has the mechanism decide about it.
    fn state_dependencies<'s>(&mut self, spec: PatchSpec<'s>, after: &[PatchId]) -> Stated<'s> {
        // A reader of the disk sees nothing of a change of bits alone.
        let shows = !matches!(spec.change, Change::Flip { .. });
        let is_atomic = self.promises.scopes_are_atomic();
        let is_hidden = self.is_hidden || !shows || !holds(Rule::OnlyHiddenIsUngrouped);
        // What makes hidden patches show comes after them only where the layout's order is kept.
        let counts = !is_hidden || is_atomic || !self.promises.keeps_order();
        let spec = PatchSpec {
            is_grouped: self.groups.is_some() && counts,
            is_hidden,
            ..spec
        };
        self.scratch = self.store.take_scratch();
        if self.tag == 0 || holds(Rule::UpperVolumesKeepOrder) {
            self.scratch.extend_from_slice(after);
        }
        if backstitch_rules::are_watched() {
            let order = match (is_atomic, spec.kind.class) {
                (false, _) => Order::Kept,
                (true, BlockClass::Data) => Order::KeptForContents,
                (true, _) => Order::Dropped,
            };
            let besides = self.overlapped_by(&spec);
            let after = &mut self.scratch;
            self.stated_by = rules::heed(self.store.graph(), after, order, &besides);
        }
        // A mechanism that keeps order gets that of the groups together with the layout's. Behind
        // one that keeps none, the order of the groups is added to what it decided.
        let keeps_order = self.promises.keeps_order();
        let is_ordered = spec.is_grouped && !is_atomic;
        if is_ordered && keeps_order {
            self.come_after_heads();
        }
        let decision = self
            .mechanism
            .transform(self.store, &spec, &mut self.scratch);
        if is_ordered && !keeps_order {
            self.come_after_heads();
        }
        Stated { spec, decision }
    }

    /// The change under way comes after what the groups that are engaged come after.
    fn come_after_heads(&mut self) {
        if let Some((groups, engaged)) = &self.groups {
            groups.heads(self.store.graph(), engaged, &mut self.scratch);
        }
    }

    /// How the patch is to stand to others of its block.
    pub(super) fn standing(&self, stated: &Stated<'_>) -> Standing {
        let Stated { spec, decision } = stated;
        let is_apart = spec.is_apart || decision.is_apart;
        match (is_apart, self.mechanism.keeps_undo(spec)) {
            (true, _) => Standing::Apart,
            (false, true) => Standing::WithUndo,
            (false, false) => Standing::Together,
        }
    }

    /// A block was freed, and nothing on the disk can point to it: what is not written of it need
    /// not be, unless the mechanism says otherwise.
    pub fn discard(&mut self, block: BlockNumber) {
        // Inside, the block is free. In the file outside it is a block like any other: what is
        // written there must be on the disk before the file's new pointer to it.
        let is_new = self.store.shown_by(self.id, block.0).is_some();
        if self.mechanism.forget(block.0) && !(is_new && holds(Rule::NewPlaceIsNotForgotten)) {
            self.store.discard(self.id, block.0);
        }
    }

    /// What a directory block has not written yet need not be, because `by` makes up for it: what
    /// waits for it waits for `by` instead (see `Graph::supersede`). Nothing happens where that
    /// cannot be, or where the block is something else. (Under a journal it never can be: `by` is
    /// the transaction's hold, which is no change of a block.)
    pub fn supersede(&mut self, block: BlockNumber, by: PatchId) {
        // As with `discard`. Where order is kept, `by` comes after the pointer to the new place,
        // which comes after what is in it, and the graph refuses. Without order it would not.
        let is_new = self.store.shown_by(self.id, block.0).is_some();
        let keeps = self.promises.orders_by_batches && holds(Rule::BatchesAreNotSuperseded);
        if !(keeps || is_new && holds(Rule::NewPlaceIsNotSuperseded)) {
            let class = BlockClass::Directory;
            self.store.supersede(self.id, block.0, class, by);
        }
    }
}
