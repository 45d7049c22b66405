//! Steps under patchgroups.

use backstitch_store::{BlockClass, BlockKind, Change, PatchId, Stating};

use super::changes::Stated;
use super::{NewObject, Volume};
use crate::groups::{GroupId, Groups};
use crate::mechanism::PatchSpec;
use crate::number::BlockNumber;
use crate::rules::{Rule, holds};

impl<'a> Volume<'a> {
    /// Where the step changes something under patchgroups, and its volume has a log: has the
    /// running transaction come after what the groups come after on other volumes (Frost et al.,
    /// §5.1: dependencies are shifted to the commit record). False where one of those waits for
    /// that transaction, which must be closed first.
    #[must_use]
    pub fn come_after_groups(&mut self) -> bool {
        let Some((groups, engaged)) = &self.groups else {
            return true;
        };
        if self.operation.is_none() {
            return true;
        }
        let Some(log) = self.mechanism.log() else {
            return true;
        };
        let mut heads = Vec::new();
        groups.heads(self.store.graph(), engaged, &mut heads);
        log.come_after(self.store, &heads)
    }

    /// Does something that no patchgroup of the step need care for.
    pub fn without_groups<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        let groups = self.groups.take();
        let done = body(self);
        self.groups = groups;
        done
    }

    /// The same step under patchgroups, which are engaged: what it changes comes after the groups
    /// that these depend on, and before those that depend on them.
    #[must_use]
    pub fn under(mut self, groups: &'a mut Groups, engaged: &'a [GroupId]) -> Self {
        self.groups = (!engaged.is_empty()).then_some((groups, engaged));
        if self.groups.is_some() {
            // What is written under one group may wait for what was written under another one into
            // the same block.
            self.store.order_contents();
        }
        self
    }

    /// Whether the step runs under a patchgroup.
    pub fn is_grouped(&self) -> bool {
        self.groups.is_some()
    }

    /// The patchgroups that the step runs under.
    pub fn engaged(&self) -> &[GroupId] {
        self.groups.as_ref().map_or(&[], |(_, engaged)| engaged)
    }

    /// As [`write`](Self::write) of metadata that belongs to a new object. The change is hidden if
    /// it becomes a part of the patch that makes the object, and each of the object's names comes
    /// after everything that the change would have to come after: programs find the object by a
    /// name only.
    pub fn write_into_new(
        &mut self,
        block: BlockNumber,
        kind: BlockKind,
        offset_bytes: usize,
        bytes: &[u8],
        after: &[PatchId],
        new: &NewObject,
    ) -> PatchId {
        let change = Change::Bytes {
            offset_bytes: offset_bytes as u32,
            bytes,
        };
        let hides = self.names_come_after_heads(new)
            && self.would_join(PatchSpec::new(block.0, kind, change), after, new.made);
        let is_hidden = hides || self.is_hidden;
        self.hidden(is_hidden, |v| v.change(block, kind, change, after))
    }

    /// Whether a change of metadata would be a part of `made`, a patch of the same block that is
    /// neither on the disk nor on its way. Only "yes" is certain, for a change with exactly these
    /// dependencies. Always "no" unless the layout's order alone decides: scopes are not atomic, no
    /// patchgroup is engaged, and blocks need no place on another volume.
    pub fn joins(
        &mut self,
        block: BlockNumber,
        offset_bytes: usize,
        bytes: &[u8],
        after: &[PatchId],
        made: PatchId,
    ) -> bool {
        let is_layouts = self.promises.keeps_order()
            && !self.promises.scopes_are_atomic()
            && self.groups.is_none()
            && !self.store.is_on_another(self.id);
        let change = Change::Bytes {
            offset_bytes: offset_bytes as u32,
            bytes,
        };
        let spec = PatchSpec::new(block.0, BlockClass::Metadata, change);
        is_layouts && self.would_join(spec, after, made)
    }

    fn would_join(&mut self, spec: PatchSpec<'_>, after: &[PatchId], into: PatchId) -> bool {
        // Asking `transform` would put the change into the ring.
        if self.promises.orders_by_batches {
            return false;
        }
        self.scratch = self.store.take_scratch();
        self.scratch.extend_from_slice(after);
        let decision = self
            .mechanism
            .transform(self.store, &spec, &mut self.scratch);
        let stated = Stated { spec, decision };
        let stating = Stating {
            after: &self.scratch,
            standing: self.standing(&stated),
        };
        let joins = self.store.would_join(
            self.id,
            stated.spec.block,
            &stated.spec.change,
            stating,
            into,
        );
        self.store.give_scratch(std::mem::take(&mut self.scratch));
        joins
    }

    /// Whether contents written into a block of a new object are hidden: they join those that its
    /// making waits for anyhow, as in [`write_into_new`](Self::write_into_new).
    pub fn is_contents_of_new(&self, block: BlockNumber, new: &NewObject) -> bool {
        self.names_come_after_heads(new)
            && self.store.joins_contents_before(self.id, block.0, new.made)
    }

    /// Whether each of an object's names comes after everything that a change of it now would come
    /// after.
    fn names_come_after_heads(&self, new: &NewObject) -> bool {
        let Some((groups, engaged)) = &self.groups else {
            return false;
        };
        if self.promises.scopes_are_atomic() || !self.promises.keeps_order() {
            return false;
        }
        let graph = self.store.graph();
        let mut heads = Vec::new();
        groups.heads(graph, engaged, &mut heads);
        let comes_after = |name: &PatchId| heads.iter().all(|h| graph.waits_directly(*name, *h));
        let are_after = new.names.iter().all(comes_after) || !holds(Rule::NewObjectAfterGroups);
        graph.is_pending(new.made) && !new.names.is_empty() && are_after
    }

    /// What the step has changed cannot be found on the disk without these patches: they are parts
    /// of its patchgroups.
    pub fn reached_by(&mut self, of: &[PatchId]) {
        let heeded = self.heeded(of);
        let of = heeded.as_deref().unwrap_or(of);
        if let Some((groups, engaged)) = &mut self.groups
            && holds(Rule::LaterGroupsAfterReach)
        {
            let graph = self.store.graph();
            of.iter().for_each(|id| groups.note(graph, engaged, *id));
        }
    }
}
