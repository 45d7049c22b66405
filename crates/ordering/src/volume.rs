//! A block space with a mechanism: the only way in which layouts change blocks.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{Buffer, Slab};
use backstitch_store::{BlockClass, Change, Miss, PatchId, Standing, Store, VolumeId};

use crate::groups::{GroupId, Groups};
use crate::mechanism::{Mechanism, Operation, PatchSpec};
use crate::planted::{Planted, planted};

/// An object that is not on the disk yet.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// The patch that makes it.
    pub made: PatchId,
    /// Its names; each comes after `made`.
    pub names: Vec<PatchId>,
}

/// What a layout works on during one step: the store, the volume's mechanism, and the time.
pub struct Volume<'a> {
    pub(crate) store: &'a mut Store,
    mechanism: &'a mut dyn Mechanism,
    pub(crate) id: VolumeId,
    pub(crate) now: Duration,
    /// What the change under way comes after; lent by the store, so that no step allocates.
    scratch: Vec<PatchId>,
    /// The patchgroups that this step runs under.
    groups: Option<(&'a mut Groups, &'a [GroupId])>,
    is_hidden: bool,
    /// What the step is about; `None` where it changes nothing.
    operation: Option<Operation>,
    /// Which of several volumes of one store it is, in the tokens of what it watches.
    tag: u8,
    /// What the mechanisms of volumes on this one want on stable storage before the caller is answered.
    wanted_above: Vec<PatchId>,
}

/// Where the tag is in a token.
const TAG_SHIFT: u32 = 56;

impl<'a> Volume<'a> {
    /// A volume for one step; `now` is the time on the monotonic clock that the whole store goes by.
    pub fn new(
        store: &'a mut Store,
        mechanism: &'a mut dyn Mechanism,
        id: VolumeId,
        now: Duration,
    ) -> Self {
        Volume {
            store,
            mechanism,
            id,
            now,
            scratch: Vec::new(),
            groups: None,
            is_hidden: false,
            operation: None,
            tag: 0,
            wanted_above: Vec::new(),
        }
    }

    /// The same step on another volume of the same store, with a mechanism of its own: one whose blocks are contents of a file here, or
    /// in another such volume. `tag` tells the volumes of a store apart; it is not 0. The step ends with [`leave`](Self::leave).
    pub fn enter<'b>(
        &'b mut self,
        mechanism: &'b mut dyn Mechanism,
        id: VolumeId,
        tag: u8,
    ) -> Volume<'b> {
        if let Some(operation) = self.operation {
            mechanism.begin(operation);
        }
        let groups = self.groups.as_mut();
        Volume {
            store: self.store,
            mechanism,
            id,
            now: self.now,
            scratch: Vec::new(),
            groups: groups.map(|(groups, engaged)| (&mut **groups, *engaged)),
            is_hidden: false,
            operation: self.operation,
            tag,
            wanted_above: Vec::new(),
        }
    }

    /// Ends a step on a volume that was [entered](Self::enter). What is returned is to be given to
    /// [`answer_after`](Self::answer_after) of the one that it was entered from.
    #[must_use]
    pub fn leave(mut self) -> Vec<PatchId> {
        let mut wait_for = std::mem::take(&mut self.wanted_above);
        if self.operation.is_some() {
            self.mechanism.end(&mut wait_for);
        }
        wait_for
    }

    /// These must be on stable storage too before the caller of the operation is answered.
    pub fn answer_after(&mut self, mut patches: Vec<PatchId>) {
        self.wanted_above.append(&mut patches);
    }

    /// Where the step changes something under patchgroups, and its volume has a log: has the running transaction come after what the
    /// groups come after on other volumes (Frost et al., §5.1: dependencies are shifted to the commit record). False where that
    /// transaction must be closed first, for some of it waits for that.
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

    /// The same step under patchgroups, which are engaged: what it changes comes after the groups that these depend on, and before
    /// those that depend on them.
    #[must_use]
    pub fn under(mut self, groups: &'a mut Groups, engaged: &'a [GroupId]) -> Self {
        self.groups = (!engaged.is_empty()).then_some((groups, engaged));
        if self.groups.is_some() {
            // What is written under one group may wait for what was written under another one into the same block.
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

    /// Has what is written be parts of a slab that it lies in, where it can be; see `Store::lend`.
    pub fn lend(&mut self, slab: Option<Arc<Slab>>) {
        self.store.lend(slab);
    }

    /// From now on nothing on the disk leads to what is written (or something does again): what will make it show comes after it.
    /// So no patchgroup need care for it. Returns what it was before.
    pub fn hide(&mut self, is_hidden: bool) -> bool {
        std::mem::replace(&mut self.is_hidden, is_hidden)
    }

    /// As [`write`](Self::write) of metadata that belongs to a new object. Where the change becomes a part of the patch that makes the
    /// object, and whoever finds that by one of its names finds everything that the change would have to come after, it is hidden.
    pub fn write_into_new(
        &mut self,
        block: u64,
        offset_bytes: usize,
        bytes: &[u8],
        after: &[PatchId],
        new: &NewObject,
    ) -> PatchId {
        let class = BlockClass::Metadata;
        let change = Change::Bytes {
            offset_bytes: offset_bytes as u32,
            bytes,
        };
        let hides = self.names_come_after_heads(new)
            && self.would_join(PatchSpec::new(block, class), change, after, new.made);
        let before = self.hide(hides || self.is_hidden);
        let id = self.change(block, class, change, after);
        self.hide(before);
        id
    }

    /// Whether a change of metadata would be a part of `made`, a patch of the same block that is neither on the disk nor on its way.
    /// Only "yes" is certain, of a change with exactly these dependencies; asked where the layout's order alone decides, that is where scopes
    /// are not atomic, no patchgroup is engaged and blocks need no place on another volume.
    pub fn joins(
        &mut self,
        block: u64,
        offset_bytes: usize,
        bytes: &[u8],
        after: &[PatchId],
        made: PatchId,
    ) -> bool {
        let is_layouts = self.mechanism.keeps_order()
            && !self.mechanism.scopes_are_atomic()
            && self.groups.is_none()
            && !self.store.is_on_another(self.id);
        let change = Change::Bytes {
            offset_bytes: offset_bytes as u32,
            bytes,
        };
        let spec = PatchSpec::new(block, BlockClass::Metadata);
        is_layouts && self.would_join(spec, change, after, made)
    }

    fn would_join(
        &mut self,
        spec: PatchSpec,
        change: Change<'_>,
        after: &[PatchId],
        into: PatchId,
    ) -> bool {
        self.scratch = self.store.take_scratch();
        self.scratch.extend_from_slice(after);
        self.mechanism
            .transform(self.store, &spec, &mut self.scratch);
        self.stand(&spec);
        let joins = self
            .store
            .would_join(self.id, spec.block, &change, &self.scratch, into);
        self.store.give_scratch(std::mem::take(&mut self.scratch));
        joins
    }

    /// Whether contents written into a block of a new object are hidden: they join those that its making waits for anyhow, as in
    /// [`write_into_new`](Self::write_into_new).
    pub fn is_contents_of_new(&self, block: u64, new: &NewObject) -> bool {
        self.names_come_after_heads(new)
            && self.store.joins_contents_before(self.id, block, new.made)
    }

    /// Whether each of an object's names comes after everything that a change of it now would come after.
    fn names_come_after_heads(&self, new: &NewObject) -> bool {
        let Some((groups, engaged)) = &self.groups else {
            return false;
        };
        if self.mechanism.scopes_are_atomic() || !self.mechanism.keeps_order() {
            return false;
        }
        let graph = self.store.graph();
        let mut heads = Vec::new();
        groups.heads(graph, engaged, &mut heads);
        let comes_after = |name: &PatchId| heads.iter().all(|h| graph.waits_directly(*name, *h));
        let are_after = new.names.iter().all(comes_after) || planted(Planted::NewObjectEarly);
        graph.is_pending(new.made) && !new.names.is_empty() && are_after
    }

    /// Without these, what the step has changed cannot be found: its patchgroups are not on stable storage before they are.
    pub fn reached_by(&mut self, of: &[PatchId]) {
        if let Some((groups, engaged)) = &mut self.groups
            && !planted(Planted::ReachLeftOut)
        {
            let graph = self.store.graph();
            of.iter().for_each(|id| groups.note(graph, engaged, *id));
        }
    }

    /// Opens the scope of an operation: everything changed until [`end`](Self::end) belongs to it.
    pub fn begin(&mut self, operation: Operation) {
        self.operation = Some(operation);
        self.mechanism.begin(operation);
    }

    /// Closes the scope; appends what must be on stable storage before the caller may be answered.
    pub fn end(&mut self, wait_for: &mut Vec<PatchId>) {
        self.mechanism.end(wait_for);
        wait_for.append(&mut self.wanted_above);
    }

    /// The step turned out to change nothing: blocks without a place need none.
    pub fn only_read(&mut self) {
        self.operation = None;
    }

    /// What the next mount is told about crashes under this mechanism.
    pub fn crash_record(&self) -> Option<u32> {
        self.mechanism.crash_record()
    }

    /// The block size.
    pub fn block_bytes(&self) -> u32 {
        self.store.block_bytes(self.id)
    }

    /// What reaches the disk wholly or not at all: the block, or a part of it (a sector). A change that lies in several is several
    /// patches, in no order; what [`write`](Self::write) returns then stands for all of them, and is never [`merged`](Self::merged).
    pub fn atomic_bytes(&self) -> usize {
        self.store.unit_bytes(self.id) as usize
    }

    /// Whether a range of a block lies in one atomic unit.
    pub fn is_atomic(&self, range: Range<usize>) -> bool {
        let unit = self.atomic_bytes();
        range.is_empty() || range.start / unit == (range.end - 1) / unit
    }

    /// Appends whatever is pending on a block: for what must come after all of it, not only after what it overlaps.
    pub fn pending(&mut self, block: u64, into: &mut Vec<PatchId>) {
        self.store.pending(self.id, block, into);
        into.extend(self.store.shown_by(self.id, block));
    }

    /// A block's newest bytes.
    ///
    /// # Errors
    /// [`Miss`]: the block is noted as wanted.
    #[inline]
    pub fn read(&mut self, block: u64) -> Result<&[u8], Miss> {
        if self.store.is_hole(self.id, block) {
            return self.read_hole(block).map(|zeros| &**zeros);
        }
        self.store.read(self.id, block)
    }

    /// A block without a place. An operation that may change it needs it to have one.
    #[cold]
    fn read_hole(&mut self, block: u64) -> Result<&Buffer, Miss> {
        if self.operation.is_some() {
            self.store.want_place(self.id, block);
            let volume = self.id;
            return Err(Miss { volume, block });
        }
        Ok(self.store.zeros(self.id))
    }

    /// The blocks are about to be given contents as a whole, without being looked up. Only on a volume that is on another one can they
    /// have no place yet.
    ///
    /// # Errors
    /// [`Miss`]: a place is wanted for them.
    pub fn expect_places(&mut self, first: u64, count: u64) -> Result<(), Miss> {
        let mut missing = Ok(());
        if !self.store.is_on_another(self.id) {
            return missing;
        }
        for block in first..first + count {
            if self.store.is_hole(self.id, block) {
                self.store.want_place(self.id, block);
                let volume = self.id;
                missing = Err(Miss { volume, block });
            }
        }
        missing
    }

    /// A block's newest bytes, shared.
    ///
    /// # Errors
    /// [`Miss`]: the block is noted as wanted.
    pub fn read_shared(&mut self, block: u64) -> Result<Buffer, Miss> {
        if self.store.is_hole(self.id, block) {
            return self.read_hole(block).cloned();
        }
        self.store.read_shared(self.id, block)
    }

    /// The block if it is in memory, asking for nothing.
    pub fn peek(&self, block: u64) -> Option<&Buffer> {
        if self.store.is_hole(self.id, block) {
            return Some(self.store.zeros(self.id));
        }
        self.store.peek(self.id, block)
    }

    /// Notes that the block will be wanted; says whether it is there already.
    pub fn want(&mut self, block: u64) -> bool {
        if self.store.is_hole(self.id, block) {
            return self.read_hole(block).is_ok();
        }
        self.store.want(self.id, block)
    }

    /// Notes blocks that will probably be wanted soon after what is missing now; see `Store::want_soon`.
    pub fn want_soon(&mut self, first: u64, count: u64) {
        self.store.want_soon(self.id, first, count);
    }

    /// Writes bytes into a block in memory.
    pub fn write(
        &mut self,
        block: u64,
        class: BlockClass,
        offset_bytes: usize,
        bytes: &[u8],
        after: &[PatchId],
    ) -> PatchId {
        self.change(
            block,
            class,
            Change::Bytes {
                offset_bytes: offset_bytes as u32,
                bytes,
            },
            after,
        )
    }

    /// As [`write`](Self::write) of metadata, apart from what else is pending on the block: neither waits for what the other waits for. It
    /// takes undo data, and is worth them where somebody will soon wait for some of it.
    pub fn write_apart(
        &mut self,
        block: u64,
        offset_bytes: usize,
        bytes: &[u8],
        after: &[PatchId],
    ) -> PatchId {
        let spec = PatchSpec {
            is_apart: true,
            ..PatchSpec::new(block, BlockClass::Metadata)
        };
        let change = Change::Bytes {
            offset_bytes: offset_bytes as u32,
            bytes,
        };
        self.change_as(spec, change, after)
    }

    /// Flips bits of a block in memory.
    pub fn flip(
        &mut self,
        block: u64,
        class: BlockClass,
        offset_bytes: usize,
        mask: u32,
        after: &[PatchId],
    ) -> PatchId {
        self.change(
            block,
            class,
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
        block: u64,
        offset_bytes: usize,
        bytes: &[u8],
    ) -> PatchId {
        let offset_bytes = offset_bytes as u32;
        let spec = PatchSpec {
            is_implied_times: true,
            ..PatchSpec::new(block, BlockClass::Metadata)
        };
        let change = Change::Bytes {
            offset_bytes,
            bytes,
        };
        self.change_as(spec, change, &[])
    }

    fn change(
        &mut self,
        block: u64,
        class: BlockClass,
        change: Change<'_>,
        after: &[PatchId],
    ) -> PatchId {
        self.change_as(PatchSpec::new(block, class), change, after)
    }

    fn change_as(&mut self, spec: PatchSpec, change: Change<'_>, after: &[PatchId]) -> PatchId {
        let PatchSpec { block, class, .. } = spec;
        let shows = !matches!(change, Change::Flip { .. });
        let spec = self.state_dependencies(spec, shows, after);
        let id = match self.run_of(&spec, None) {
            Some(run) => self.patch_in_run(&spec, change, run),
            None => (self.store).patch(self.id, block, class, change, &self.scratch, self.now),
        };
        self.created(&spec, id)
    }

    /// The run that the change is to join.
    fn run_of(&mut self, spec: &PatchSpec, offered: Option<PatchId>) -> Option<PatchId> {
        let found = self
            .mechanism
            .run(self.store, spec, offered, &self.scratch)?;
        // Where a block without a place gets one, others wait for what is written into it.
        let is_new = self.store.shown_by(self.id, spec.block).is_some();
        (!is_new || !self.mechanism.scopes_are_atomic()).then_some(found)
    }

    fn patch_in_run(&mut self, spec: &PatchSpec, change: Change<'_>, run: PatchId) -> PatchId {
        let (id, after, now) = (self.id, &self.scratch, self.now);
        self.store
            .patch_in_run(id, spec.block, spec.class, change, after, run, now)
    }

    /// A patch was made: what the layout is to know it by.
    fn created(&mut self, spec: &PatchSpec, id: PatchId) -> PatchId {
        self.store.give_scratch(std::mem::take(&mut self.scratch));
        let id = match self.store.shown_by(self.id, spec.block) {
            // Nobody finds it on the disk before the place is known there.
            Some(shown_by) if self.mechanism.keeps_order() && !planted(Planted::PlaceLeftOut) => {
                self.store
                    .graph_mut()
                    .create_empty(&[id, shown_by], None, false)
            }
            _ => id,
        };
        let id = self.mechanism.created(spec, id);
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
        block: u64,
        class: BlockClass,
        contents: &[u8],
        after: &[PatchId],
    ) -> PatchId {
        self.initialise_in_run(block, class, contents, after, None)
    }

    /// Writes contents of a file that wait for nothing, from `offset_bytes` of the block on. Whoever points to them waits for all
    /// that was written under the same `run`, so that one patch will do for them; see `Graph::create_in_run`. A block that is given
    /// whole need not be in memory.
    pub fn write_in_run(
        &mut self,
        block: u64,
        offset_bytes: usize,
        contents: &[u8],
        run: PatchId,
    ) -> PatchId {
        let class = BlockClass::Data;
        if contents.len() == self.block_bytes() as usize {
            return self.initialise_in_run(block, class, contents, &[], Some(run));
        }
        let spec = self.state_dependencies(PatchSpec::new(block, class), true, &[]);
        let change = Change::Bytes {
            offset_bytes: offset_bytes as u32,
            bytes: contents,
        };
        let id = match self.run_of(&spec, Some(run)) {
            Some(run) => self.patch_in_run(&spec, change, run),
            None => (self.store).patch(self.id, block, class, change, &self.scratch, self.now),
        };
        self.created(&spec, id)
    }

    fn initialise_in_run(
        &mut self,
        block: u64,
        class: BlockClass,
        contents: &[u8],
        after: &[PatchId],
        offered: Option<PatchId>,
    ) -> PatchId {
        let spec = self.state_dependencies(PatchSpec::new(block, class), true, after);
        let change = Change::Bytes {
            offset_bytes: 0,
            bytes: contents,
        };
        let id = match self.run_of(&spec, offered) {
            Some(run) => self.patch_in_run(&spec, change, run),
            None => {
                let (id, after, now) = (self.id, &self.scratch, self.now);
                self.store
                    .initialise(id, block, class, contents, after, now)
            }
        };
        self.created(&spec, id)
    }

    /// Works out what a patch is to come after; `shows` says whether a reader of the disk could see it.
    fn state_dependencies(&mut self, spec: PatchSpec, shows: bool, after: &[PatchId]) -> PatchSpec {
        let is_atomic = self.mechanism.scopes_are_atomic();
        let is_hidden = self.is_hidden || !shows || planted(Planted::EverythingHidden);
        // What makes hidden patches show comes after them only where the layout's order is kept.
        let counts = !is_hidden || is_atomic || !self.mechanism.keeps_order();
        let spec = PatchSpec {
            is_grouped: self.groups.is_some() && counts,
            is_hidden,
            ..spec
        };
        self.scratch = self.store.take_scratch();
        if self.tag == 0 || !planted(Planted::OrderLeftBehind) {
            self.scratch.extend_from_slice(after);
        }
        self.mechanism
            .transform(self.store, &spec, &mut self.scratch);
        if spec.is_grouped
            && !is_atomic
            && let Some((groups, engaged)) = &self.groups
        {
            groups.heads(self.store.graph(), engaged, &mut self.scratch);
        }
        self.stand(&spec);
        spec
    }

    /// How the patch is to stand to others of its block.
    fn stand(&mut self, spec: &PatchSpec) {
        let standing = match (spec.is_apart, self.mechanism.keeps_undo(spec)) {
            (true, _) => Standing::Apart,
            (false, true) => Standing::WithUndo,
            (false, false) => Standing::Together,
        };
        self.store.graph_mut().set_standing(standing);
    }

    /// An empty patch for a set of patches; dead at once where the mechanism keeps no order.
    pub fn empty(&mut self, of: &[PatchId]) -> PatchId {
        if self.mechanism.keeps_order() {
            self.store.graph_mut().create_empty(of, None, false)
        } else {
            PatchId::COMMITTED
        }
    }

    /// Asks for `token` (of less than 56 bits) to be reported once all of `of` are on stable storage (at once where the mechanism keeps
    /// no order, and where scopes are atomic when their transaction ends).
    pub fn watch(&mut self, of: &[PatchId], token: u64) {
        if self.mechanism.watch(token) {
            return;
        }
        let keeps_order = self.mechanism.keeps_order();
        let of = if keeps_order { of } else { &[] };
        let token = Some(self.tagged(token));
        self.store.graph_mut().create_empty(of, token, false);
    }

    /// As [`watch`](Self::watch) for one patch, where that takes no empty patch: the token that will be reported, `token` or the
    /// one that was asked for earlier. `None` where it would take one.
    pub fn watch_one(&mut self, on: PatchId, token: u64) -> Option<u64> {
        if !self.mechanism.keeps_order() {
            return None;
        }
        let token = self.tagged(token);
        let watched = self.store.graph_mut().watch(on, token)?;
        // Another volume's token is reported to that.
        self.untagged(watched)
    }

    fn tagged(&self, token: u64) -> u64 {
        debug_assert_eq!(token >> TAG_SHIFT, 0, "tokens have 56 bits");
        token | u64::from(self.tag) << TAG_SHIFT
    }

    fn untagged(&self, token: u64) -> Option<u64> {
        (token >> TAG_SHIFT == u64::from(self.tag)).then_some(token & ((1 << TAG_SHIFT) - 1))
    }

    /// The tokens that have come true since the last call.
    pub fn take_fired(&mut self, into: &mut Vec<u64>) {
        let start = into.len();
        let graph = self.store.graph_mut();
        let tag = u64::from(self.tag);
        graph.take_fired_where(into, |token| token >> TAG_SHIFT == tag);
        for token in &mut into[start..] {
            *token &= (1 << TAG_SHIFT) - 1;
        }
        self.mechanism.take_fired(into);
    }

    /// A block was freed, and nothing on the disk can point to it: what is not written of it need not be, unless the mechanism says
    /// otherwise.
    pub fn discard(&mut self, block: u64) {
        // A block whose place is new must be there before it shows: to whoever looks at the file outside it is no free block.
        if self.mechanism.forget(block) && self.store.shown_by(self.id, block).is_none() {
            self.store.discard(self.id, block);
        }
    }

    /// What a directory block has not written yet need not be, for `by` makes up for it: whoever waits for it waits for `by` instead
    /// (see `Graph::supersede`). Nothing happens where that cannot be, or where the block is something else.
    pub fn supersede(&mut self, block: u64, by: PatchId) {
        let is_new = self.store.shown_by(self.id, block).is_some();
        if self.mechanism.keeps_order() && !self.mechanism.scopes_are_atomic() && !is_new {
            let class = BlockClass::Directory;
            self.store.supersede(self.id, block, class, by);
        }
    }

    /// Whether the mechanism keeps dependencies: where not, what was waited for need not be on stable storage.
    pub fn keeps_order(&self) -> bool {
        self.mechanism.keeps_order()
    }

    /// Whether what a scope changes reaches the disk as a whole or not at all.
    pub fn scopes_are_atomic(&self) -> bool {
        self.mechanism.scopes_are_atomic()
    }

    /// So many blocks the scope under way may change, or what is put off until the end of a transaction, while one is being ended.
    /// No bound where scopes are not atomic.
    pub fn room(&self) -> usize {
        self.mechanism.room()
    }

    /// What was put off with [`watch`](Self::watch) will change this block: where scopes are atomic its place is kept.
    pub fn expect(&mut self, block: u64) {
        self.mechanism.expect(block);
    }

    /// How many patches have been made and are no more: what is known because of patches changes with it.
    pub fn retired(&self) -> u64 {
        let counters = self.store.graph().counters();
        counters.created - counters.live
    }

    /// Whether the patch has yet to reach stable storage.
    pub fn is_live(&self, id: PatchId) -> bool {
        self.store.graph().is_live(id)
    }

    /// Whether the patch is neither on stable storage nor on its way.
    pub fn is_pending(&self, id: PatchId) -> bool {
        self.store.graph().is_pending(id)
    }

    /// Whether both ids stand for one patch that is neither on stable storage nor on its way: the two changes reach the disk
    /// together or not at all.
    pub fn merged(&self, a: PatchId, b: PatchId) -> bool {
        self.store.graph().is_pending(a) && self.store.graph().is_same(a, b)
    }
}
