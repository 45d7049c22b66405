//! The rules of mechanisms, patchgroups and volumes on other volumes, and the calls by which a
//! layout states a rule about patches: see [`backstitch_rules`].
//!
//! A layout says what it waits for by [`wait_for`] and [`wait_for_all`], which normally return
//! their argument. Where rules are watched, the patches that were handed out are followed to where
//! they are used, to learn whether they were pending and what they held back.

use std::cell::RefCell;

use backstitch_patch::{Graph, PatchId};
pub(crate) use backstitch_rules::holds;
use backstitch_rules::watch::{self, Form};
use backstitch_rules::{Id, are_watched};

backstitch_rules::registry! {
    "ordering", 512;

    Dependency {
        /// What is made under a group does not wait for the groups before it.
        GroupAfterEarlierGroups,
        /// What is made under a group is not waited for by the groups after it.
        LaterGroupsAfterMembers,
        /// Contents that show at once are taken for hidden ones.
        OnlyHiddenIsUngrouped,
        /// A change counts as there although no name leads to it yet.
        LaterGroupsAfterReach,
        /// Volumes on other volumes lose the order that is stated in them, as behind a driver that
        /// knows blocks only.
        UpperVolumesKeepOrder,
        /// What is written into a block that has just got its place counts as there before anything
        /// on the disk leads to the place.
        ContentsCountOncePlaced,
        /// A change of a new file under a group is written with the file, whose name does not wait
        /// for the earlier groups: a crash shows the change without what those changed.
        NewObjectAfterGroups,
        /// Under `scheduler` a request goes without what it must follow.
        RequestAfterPredecessors,
        /// Under `amom` a change is written before its batch is begun.
        BatchAfterGate,
        /// Under `amom` a change goes into the batch of what it comes after.
        BatchBehindPredecessors,
    }
    Fsync {
        /// Under `sync` a call returns before what it changed of the metadata is on the disk.
        SyncAnswersOnceStable,
        /// A group was synced, but times that moved along with what was done under it are as
        /// before.
        GroupSyncIncludesTimes,
    }
    Condition {
        /// A volume in a file frees a block that has just got its place in the file: its zeros are
        /// dropped with its other changes, and the file shows what the disk held at that place
        /// before.
        NewPlaceIsNotForgotten,
        /// A volume in a file removes a directory with a block that has just got its place in the
        /// file: the zeros are dropped with the names, and the file shows what the disk held at
        /// that place before.
        NewPlaceIsNotSuperseded,
        /// Under `amom` a change joins its block in the ring though what it comes after is behind
        /// that.
        HitOnlyBehindPredecessors,
        /// Under `amom` a change joins a batch that is being written.
        NobodyJoinsABegunBatch,
        /// Under `amom` a batch is begun when only a part of the one before is on stable storage.
        SensorWaitsForAll,
        /// Under `amom` names are dropped with the directory that is removed, and the directory is
        /// in a later batch: their batch waits for that one, that one for theirs, and neither is
        /// written.
        BatchesAreNotSuperseded,
        /// Under `interbuffer` a circle of blocks stays: none of them is ever written.
        CircleIsBroken,
        /// Under `interbuffer` blocks that nobody waits for go with a rollback.
        WrittenWithoutRollback,
        /// Under `scheduler` what was changed is not issued.
        RequestsAreIssued,
    }
}

thread_local! {
    /// Patches that were handed out and not used yet.
    static HANDED: RefCell<Vec<Handed>> = const { RefCell::new(Vec::new()) };
    /// Changes that `fsync` is to wait for.
    static NOTED: RefCell<Vec<(Id, PatchId)>> = const { RefCell::new(Vec::new()) };
    /// Patches that were made after those that a rule handed out.
    static STATED: RefCell<Vec<(Id, PatchId)>> = const { RefCell::new(Vec::new()) };
}

/// A patch that was handed out to be waited for.
#[derive(Clone, Copy, Debug)]
struct Handed {
    rule: Id,
    id: PatchId,
    /// Its index among the patches that were handed out together, and how many these were.
    place: (usize, usize),
}

impl Handed {
    /// Whether it is not waited for where the rule is off in this form.
    fn is_left_out(&self, graph: &Graph, form: Form) -> bool {
        let (index, several) = self.place;
        match form {
            Form::Merged => graph.was_merged(self.id),
            form => !form.kept(several).contains(&index),
        }
    }
}

/// The most patches that are followed until they are on the disk.
const STATED_MAX: usize = 4096;

/// A patch to wait for, by a rule.
#[inline(always)]
pub fn wait_for(rule: impl Into<Id>, patch: PatchId) -> PatchId {
    match are_watched() {
        false => patch,
        true => watched(rule.into(), &[patch])
            .first()
            .copied()
            .unwrap_or(PatchId::COMMITTED),
    }
}

/// As [`wait_for`], where a mechanism states the dependency itself: what is pending is known at
/// once.
#[inline(always)]
pub fn wait_for_now(graph: &Graph, rule: impl Into<Id>, patch: PatchId) -> PatchId {
    match are_watched() {
        false => patch,
        true => watched_now(graph, rule.into(), patch),
    }
}

#[cold]
fn watched_now(graph: &Graph, rule: Id, patch: PatchId) -> PatchId {
    watch::count(rule, |passes| passes.is_of_patches = true);
    match is_live_watched(graph, rule, patch) {
        true => patch,
        false => PatchId::COMMITTED,
    }
}

/// Patches to wait for, by a rule.
#[inline(always)]
pub fn wait_for_all(rule: impl Into<Id>, patches: &[PatchId]) -> &[PatchId] {
    match are_watched() {
        false => patches,
        true => watched(rule.into(), patches),
    }
}

/// A change that `fsync` waits for, by a rule.
#[inline(always)]
pub fn note_by(rule: impl Into<Id>, patch: PatchId) -> PatchId {
    match are_watched() {
        false => patch,
        true => noted(rule.into(), patch),
    }
}

#[cold]
fn noted(rule: Id, patch: PatchId) -> PatchId {
    watch::pass(rule);
    watch::count(rule, |passes| {
        passes.pending += u64::from(patch != PatchId::COMMITTED);
        passes.is_of_patches = true;
    });
    if watch::records() && patch != PatchId::COMMITTED {
        NOTED.with_borrow_mut(|noted| remember(noted, [(rule, patch)]));
    }
    match watch::off() {
        Some((off, Form::Whole)) if off == rule => PatchId::COMMITTED,
        _ => patch,
    }
}

#[cold]
fn watched(rule: Id, patches: &[PatchId]) -> &[PatchId] {
    watch::pass(rule);
    let form = watch::off()
        .filter(|(off, _)| *off == rule)
        .map(|(_, form)| form);
    let left = form.map_or(patches, |form| &patches[form.kept(patches.len())]);
    if watch::records() {
        watch::count(rule, |passes| {
            passes.is_of_patches = true;
        });
    }
    if watch::records() || form == Some(Form::Merged) {
        HANDED.with_borrow_mut(|handed| {
            let places = patches.iter().enumerate();
            let pending = places.filter(|(_, id)| **id != PatchId::COMMITTED);
            handed.extend(pending.map(|(index, id)| Handed {
                rule,
                id: *id,
                place: (index, patches.len()),
            }));
        });
    }
    left
}

/// What a mechanism does with the order that a layout states by what was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It is kept.
    Kept,
    /// It is kept where it is stated for contents, as a journal does: what was handed out for other
    /// changes is not counted.
    KeptForContents,
    /// It is dropped: something else takes its place.
    Dropped,
}

impl Order {
    /// Whether it counts that a patch is waited for.
    fn counts(self, graph: &Graph, id: PatchId) -> bool {
        self != Order::Dropped && graph.is_live(id)
    }
}

/// A patch is about to be made after the patches of `after`. Takes out those that a
/// half-switched-off rule does not wait for, and counts those that are pending, as far as the order
/// is kept. Returns the rules that handed out any pending one. The patch comes after `besides`
/// whatever is stated. Patches that were handed out and are not in `after` stay: they are for a
/// later change of the same scope.
#[cold]
pub fn heed(graph: &Graph, after: &mut Vec<PatchId>, order: Order, besides: &[PatchId]) -> Vec<Id> {
    let is_used = |one: &Handed| after.contains(&one.id);
    let (used, later): (Vec<Handed>, Vec<Handed>) = HANDED.take().into_iter().partition(is_used);
    HANDED.set(later);
    let handed: Vec<Handed> = (used.into_iter())
        .filter(|one| order.counts(graph, one.id))
        .collect();
    if handed.is_empty() {
        return Vec::new();
    }
    let half_off = watch::off()
        .filter(|(_, form)| *form == Form::Merged)
        .map(|(rule, _)| rule);
    // By rule: its patches, merged ones once.
    let mut by: Vec<(Id, Vec<PatchId>)> = Vec::new();
    for Handed { rule, id, .. } in handed.iter().copied() {
        let merged = graph.was_merged(id);
        let at = by
            .iter()
            .position(|(known, _)| *known == rule)
            .unwrap_or(by.len());
        if at == by.len() {
            by.push((rule, Vec::new()));
        }
        let different = &mut by[at].1;
        if !different.iter().any(|known| graph.is_same(*known, id)) {
            different.push(id);
        }
        watch::count(rule, |passes| {
            passes.pending += 1;
            passes.merged += u64::from(merged);
            passes.most = passes.most.max(different.len() as u64);
        });
        if merged && half_off == Some(rule) {
            after.retain(|a| *a != id);
        }
    }
    if watch::records() {
        let rules = by.iter().map(|(rule, _)| *rule);
        let waited_for = [after, besides].concat();
        rules.for_each(|rule| count_covered_of(graph, rule, &handed, &waited_for));
    }
    by.into_iter().map(|(rule, _)| rule).collect()
}

/// A patch was made after what these rules handed out.
#[cold]
pub(crate) fn note_stated(by: &[Id], id: PatchId) {
    if watch::is_remounted() {
        // Only patches of the life before the crash are followed.
        return;
    }
    let stated_by = by.iter().map(|rule| (*rule, id));
    STATED.with_borrow_mut(|stated| remember(stated, stated_by));
}

fn remember(list: &mut Vec<(Id, PatchId)>, more: impl IntoIterator<Item = (Id, PatchId)>) {
    if list.len() >= STATED_MAX {
        list.drain(..STATED_MAX / 2);
    }
    list.extend(more);
}

/// A caller of `fsync` is about to wait for these patches: counts for each rule that noted some of
/// them whether they would be waited for without it.
#[cold]
pub fn heed_flush(graph: &Graph, targets: &[PatchId]) {
    if !watch::records() {
        return;
    }
    let noted: Vec<(Id, PatchId)> = NOTED.with_borrow_mut(|noted| {
        noted.retain(|(_, id)| graph.is_live(*id));
        let is_waited_for =
            |(_, id): &&(Id, PatchId)| targets.iter().any(|t| graph.is_same(*t, *id));
        noted.iter().filter(is_waited_for).copied().collect()
    });
    let mut rules: Vec<Id> = noted.iter().map(|(rule, _)| *rule).collect();
    rules.sort_unstable();
    rules.dedup();
    for rule in rules {
        // What other rules noted too is waited for without this one.
        let is_of_it_alone = |id: PatchId| {
            let mut by = noted.iter().filter(|(_, other)| graph.is_same(*other, id));
            by.all(|(other, _)| *other == rule)
        };
        let (alone, others): (Vec<PatchId>, Vec<PatchId>) = targets
            .iter()
            .filter(|id| graph.is_live(**id))
            .partition(|id| {
                noted.iter().any(|(_, other)| graph.is_same(*other, **id)) && is_of_it_alone(**id)
            });
        let mut by_it = alone.iter();
        count_covered(rule, by_it.all(|id| comes_after(graph, &others, *id)));
    }
}

/// Counts whether everything that was handed out by a rule is waited for without it: with the rule
/// off as a whole, and in each other form.
fn count_covered_of(graph: &Graph, rule: Id, handed: &[Handed], after: &[PatchId]) {
    let by_it = |form: Form| {
        let by_it = handed.iter().filter(move |one| one.rule == rule);
        by_it.filter(move |one| one.is_left_out(graph, form))
    };
    let is_covered = |form: Form| {
        let mut others = after.to_vec();
        let left_out: Vec<PatchId> = by_it(form).map(|one| one.id).collect();
        for id in &left_out {
            if let Some(at) = others.iter().position(|other| other == id) {
                others.swap_remove(at);
            }
        }
        let is_any = !left_out.is_empty();
        is_any.then(|| left_out.iter().all(|id| comes_after(graph, &others, *id)))
    };
    if let Some(is_covered) = is_covered(Form::Whole) {
        count_covered(rule, is_covered);
    }
    for (number, form) in Form::HALF.into_iter().enumerate() {
        let Some(is_covered) = is_covered(form) else {
            continue;
        };
        watch::count(rule, |passes| match is_covered {
            true => passes.half_covered[number] += 1,
            false => passes.half_essential[number] += 1,
        });
    }
}

/// Counts whether what is waited for by a rule is waited for without it.
fn count_covered(rule: Id, is_covered: bool) {
    watch::count(rule, |passes| match is_covered {
        true => passes.covered += 1,
        false => passes.essential += 1,
    });
}

/// Whether one of these patches is that one, or comes after it, directly or not.
fn comes_after(graph: &Graph, patches: &[PatchId], before: PatchId) -> bool {
    let mut stack: Vec<PatchId> = patches.to_vec();
    let mut seen: Vec<PatchId> = Vec::new();
    while let Some(id) = stack.pop() {
        if graph.is_same(id, before) {
            return true;
        }
        if !graph.is_live(id) || seen.contains(&id) {
            continue;
        }
        seen.push(id);
        stack.extend(graph.dependencies(id).into_iter().map(|(id, _)| id));
    }
    false
}

/// Counts the rules by which something is left out of the writes that are on their way.
pub fn count_rolled_back(graph: &Graph) {
    STATED.with_borrow_mut(|stated| {
        stated.retain(|(_, id)| graph.is_live(*id));
        for (rule, id) in stated {
            let block = graph.info(*id).and_then(|info| info.block);
            if graph.is_pending(*id) && block.is_some_and(|block| graph.is_in_flight(block)) {
                watch::count(*rule, |passes| passes.rolled_back += 1);
            }
        }
    });
}

/// A scope ends: forgets what was handed out in it and was not used.
#[cold]
pub fn forget_handed() {
    HANDED.take();
}

/// Forgets all patches that this thread follows, before another store is used.
pub fn forget_followed() {
    HANDED.take();
    NOTED.take();
    STATED.take();
}

/// Whether a patch has yet to reach stable storage, where a rule is about just that.
#[inline(always)]
pub(crate) fn is_live_by(graph: &Graph, rule: impl Into<Id>, id: PatchId) -> bool {
    match are_watched() {
        false => graph.is_live(id),
        true => is_live_watched(graph, rule.into(), id),
    }
}

#[cold]
fn is_live_watched(graph: &Graph, rule: Id, id: PatchId) -> bool {
    watch::pass(rule);
    let live = graph.is_live(id);
    let merged = live && graph.was_merged(id);
    watch::count(rule, |passes| {
        passes.pending += u64::from(live);
        passes.merged += u64::from(merged);
    });
    match watch::off() {
        Some((off, Form::Whole)) if off == rule => false,
        Some((off, Form::Merged)) if off == rule => live && !merged,
        _ => live,
    }
}
