//! A block space with a mechanism: the only way in which layouts change blocks.

mod changes;
mod groups;
mod reading;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::Slab;
use backstitch_store::{BlockKind, Happening, PatchId, Seal, Store, VolumeId};

use crate::groups::{GroupId, Groups};
use crate::kind::{CrashRecord, Promises};
use crate::mechanism::Mechanism;
use crate::number::BlockNumber;
use crate::operation::Operation;
use crate::rules;

/// An object that is not on the disk yet.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// The patch that makes it.
    pub made: PatchId,
    /// Its names; each comes after `made`.
    pub names: Vec<PatchId>,
}

/// The user that an operation is done for. Groups other than the first one are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The user's first group.
    pub gid: u32,
}

/// What a layout works on during one step: the store, the volume's mechanism, and the time.
pub struct Volume<'a> {
    pub(crate) store: &'a mut Store,
    mechanism: &'a mut dyn Mechanism,
    /// The mechanism's.
    promises: Promises,
    pub(crate) id: VolumeId,
    pub(crate) now: Duration,
    /// What the change under way comes after; lent by the store, so that no step allocates.
    scratch: Vec<PatchId>,
    /// The patchgroups that this step runs under.
    groups: Option<(&'a mut Groups, &'a [GroupId])>,
    is_hidden: bool,
    /// The slab that the bytes of contents are parts of.
    slab: Option<Arc<Slab>>,
    /// What the step is about; `None` where it changes nothing.
    operation: Option<Operation<'a>>,
    /// Whom the step is done for; `None` where no user asked for it.
    user: Option<User>,
    /// Which of several volumes of one store it is, in the tokens of what it watches.
    tag: u8,
    /// What the mechanisms of volumes on this one want on stable storage before the caller is
    /// answered.
    wanted_above: Vec<PatchId>,
    /// Where rules are watched: those by which the change under way comes after something.
    stated_by: Vec<backstitch_rules::Id>,
}

/// Where the tag is in a token.
const TAG_SHIFT: u32 = 56;

impl<'a> Volume<'a> {
    /// A volume for one step; `now` is the time on the monotonic clock that the whole store goes
    /// by.
    pub fn new(
        store: &'a mut Store,
        mechanism: &'a mut dyn Mechanism,
        id: VolumeId,
        now: Duration,
    ) -> Self {
        Volume {
            store,
            promises: mechanism.kind().promises(),
            mechanism,
            id,
            now,
            scratch: Vec::new(),
            groups: None,
            is_hidden: false,
            slab: None,
            operation: None,
            user: None,
            tag: 0,
            wanted_above: Vec::new(),
            stated_by: Vec::new(),
        }
    }

    /// The same step on another volume of the same store, with a mechanism of its own: one whose
    /// blocks are contents of a file here, or in another such volume. `tag` tells the volumes of a
    /// store apart; it is not 0. The step ends with [`leave`](Self::leave).
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
            promises: mechanism.kind().promises(),
            mechanism,
            id,
            now: self.now,
            scratch: Vec::new(),
            groups: groups.map(|(groups, engaged)| (&mut **groups, *engaged)),
            is_hidden: false,
            slab: self.slab.clone(),
            operation: self.operation,
            user: self.user,
            tag,
            wanted_above: Vec::new(),
            stated_by: Vec::new(),
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

    /// The bytes of contents that `body` writes lie in a slab, and blocks become parts of it where
    /// they can; see [`InRun::slab`](backstitch_store::InRun::slab).
    pub fn lending<T>(&mut self, slab: &Arc<Slab>, body: impl FnOnce(&mut Self) -> T) -> T {
        self.slab = Some(slab.clone());
        let result = body(self);
        self.slab = None;
        result
    }

    /// What `body` writes is hidden (or is not): nothing on the disk leads to it, and what will
    /// make it show comes after it. So no patchgroup need care for it.
    pub fn hidden<T>(&mut self, is_hidden: bool, body: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.is_hidden, is_hidden);
        let result = body(self);
        self.is_hidden = before;
        result
    }

    /// Opens the scope of an operation: everything changed until [`end`](Self::end) belongs to it.
    pub fn begin(&mut self, operation: Operation<'a>) {
        self.operation = Some(operation);
        operation.tell(self.store, self.now);
        self.mechanism.begin(operation);
    }

    /// The step is done for a user, who may not take the space that is kept for root.
    pub fn set_user(&mut self, user: Option<User>) {
        self.user = user;
    }

    /// Whom the step is done for; `None` where no user asked for it: it may take all space.
    pub fn user(&self) -> Option<User> {
        self.user
    }

    /// Tells the store's watcher that the operation made the object with this number.
    pub fn tell_made(&self, object: u64) {
        self.store.tell(|| Happening::Made(object));
    }

    /// Closes the scope; appends what must be on stable storage before the caller may be answered.
    pub fn end(&mut self, wait_for: &mut Vec<PatchId>) {
        if backstitch_rules::are_watched() {
            rules::heed(self.store.graph(), wait_for, self.order(), &[]);
            rules::forget_handed();
        }
        self.mechanism.end(wait_for);
        self.store.tell(|| Happening::End);
        wait_for.append(&mut self.wanted_above);
    }

    /// The step turned out to change nothing: blocks without a place need none.
    pub fn only_read(&mut self) {
        self.operation = None;
    }

    /// What the next mount is told about crashes under this mechanism.
    pub fn crash_record(&self) -> Option<CrashRecord> {
        self.mechanism.kind().crash_record()
    }

    /// From now on blocks of this kind are sealed as they are written; see `Store::register_seal`.
    pub fn register_seal(&mut self, kind: BlockKind, seal: Arc<dyn Seal>) {
        self.store.register_seal(self.id, kind, seal);
    }

    /// The block size.
    pub fn block_bytes(&self) -> u32 {
        self.store.block_bytes(self.id)
    }

    /// What reaches the disk wholly or not at all: the block, or a part of it (a sector). A change
    /// that lies in several is several patches, in no order; what [`write`](Self::write) returns
    /// then stands for all of them, and is never [`merged`](Self::merged).
    pub fn atomic_bytes(&self) -> usize {
        self.store.unit_bytes(self.id) as usize
    }

    /// Whether a range of a block lies in one atomic unit.
    pub fn is_atomic(&self, range: Range<usize>) -> bool {
        let unit = self.atomic_bytes();
        range.is_empty() || range.start / unit == (range.end - 1) / unit
    }

    /// An empty patch for a set of patches; dead at once where the mechanism keeps no order.
    pub fn empty(&mut self, of: &[PatchId]) -> PatchId {
        let heeded = self.heeded(of);
        let of = heeded.as_deref().unwrap_or(of);
        if self.promises.keeps_order() {
            self.store.graph_mut().create_empty(of, None, false)
        } else {
            PatchId::COMMITTED
        }
    }

    /// Asks for `token` (of less than 56 bits) to be reported once all of `of` are on stable
    /// storage (at once where the mechanism keeps no order, and where scopes are atomic when their
    /// transaction ends).
    pub fn watch(&mut self, of: &[PatchId], token: u64) {
        let heeded = self.heeded(of);
        let of = heeded.as_deref().unwrap_or(of);
        if self.mechanism.watch(token) {
            return;
        }
        let keeps_order = self.promises.keeps_order();
        let of = if keeps_order { of } else { &[] };
        let token = Some(self.tagged(token));
        self.store.graph_mut().create_empty(of, token, false);
    }

    /// As [`watch`](Self::watch) for one patch, where that takes no empty patch: the token that
    /// will be reported, `token` or the one that was asked for earlier. `None` where it would take
    /// one.
    pub fn watch_one(&mut self, on: PatchId, token: u64) -> Option<u64> {
        if !self.promises.keeps_order() {
            return None;
        }
        let token = self.tagged(token);
        let watched = self.store.graph_mut().watch(on, token)?;
        // Another volume's token is reported to that.
        self.untagged(watched)
    }

    /// Where rules are watched: `of` without what a rule that is off leaves out. Callers of
    /// [`watch_one`](Self::watch_one), and those that wait later, ask for this as soon as they
    /// state what they wait for.
    pub fn heeded(&self, of: &[PatchId]) -> Option<Vec<PatchId>> {
        backstitch_rules::are_watched().then(|| {
            let mut of = of.to_vec();
            rules::heed(self.store.graph(), &mut of, self.order(), &[]);
            of
        })
    }

    /// As [`heeded`](Self::heeded), of what a mount returns that every later change comes after.
    pub fn heeded_first(&self, first: Vec<PatchId>) -> Vec<PatchId> {
        self.heeded(&first).unwrap_or(first)
    }

    /// What becomes of the order that is stated for what is not contents.
    fn order(&self) -> rules::Order {
        match self.scopes_are_atomic() {
            true => rules::Order::Dropped,
            false => rules::Order::Kept,
        }
    }

    /// As [`is_live`](Self::is_live), where a rule is about just that.
    #[inline(always)]
    pub fn is_live_by(&self, rule: impl Into<backstitch_rules::Id>, id: PatchId) -> bool {
        rules::is_live_by(self.store.graph(), rule, id)
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

    /// Whether the mechanism keeps dependencies: where not, what was waited for need not be on
    /// stable storage.
    pub fn keeps_order(&self) -> bool {
        self.promises.keeps_order()
    }

    /// Whether what a scope changes reaches the disk as a whole or not at all.
    pub fn scopes_are_atomic(&self) -> bool {
        self.promises.scopes_are_atomic()
    }

    /// Whether what a scope writes into files is a part of it as well.
    pub fn scopes_hold_contents(&self) -> bool {
        self.promises.scopes_hold_contents
    }

    /// Whether a change is there only together with the transaction under way.
    pub fn goes_with_transaction(&mut self, id: PatchId) -> bool {
        let log = self.mechanism.log();
        log.is_some_and(|log| log.waits_for_running(self.store, id))
    }

    /// Whether a change is part of a transaction, the one under way or an earlier one: there no
    /// later than what is changed from here on.
    pub fn is_in_log(&mut self, id: PatchId) -> bool {
        let log = self.mechanism.log();
        log.is_some_and(|log| log.is_of(self.store, id))
    }

    /// Whether what an operation changed of the metadata is on stable storage when its caller is
    /// answered.
    pub fn answers_once_stable(&self) -> bool {
        self.promises.answers_once_stable
    }

    /// Whether the caller of the operation under way is answered once the change is on stable
    /// storage, and not before.
    pub fn is_answered_for(&self, id: PatchId) -> bool {
        self.mechanism.answers_for(id)
    }

    /// Whether order is kept between this volume and those that lie in its files.
    pub fn spans_volumes(&self) -> bool {
        self.promises.spans_volumes()
    }

    /// Blocks that the scope under way may change, or what is put off until the end of a
    /// transaction, while one is being ended. No bound where scopes are not atomic.
    pub fn room(&self) -> usize {
        self.mechanism.room()
    }

    /// What was put off with [`watch`](Self::watch) will change this block: where scopes are atomic
    /// its place is kept.
    pub fn expect(&mut self, block: BlockNumber) {
        self.mechanism.expect(block.0);
    }

    /// How many patches have ended so far. What is derived from live patches changes with this
    /// number.
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

    /// Whether both ids stand for one patch that is neither on stable storage nor on its way: the
    /// two changes reach the disk together or not at all.
    pub fn merged(&self, a: PatchId, b: PatchId) -> bool {
        self.store.graph().is_pending(a) && self.store.graph().is_same(a, b)
    }
}
