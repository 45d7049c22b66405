//! The rules of mechanisms, patchgroups and volumes on others, and how a layout states one about patches: see [`backstitch_rules`].
//!
//! A layout says what it waits for by [`wait_for`] and [`wait_for_all`]. In normal life these give back what they are given. Where
//! rules are watched, what was handed out is followed to where it is used: so it is known whether it was pending, and what it held back.

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
        /// Volumes on other volumes lose the order that is stated in them, as behind a driver that knows blocks only.
        UpperVolumesKeepOrder,
        /// What is written into a block that has just got its place counts as there before anything on the disk leads to the place.
        ContentsCountOncePlaced,
        /// What is done to a new file is taken to show no earlier than the groups before it, whenever the file was made.
        NewObjectAfterGroups,
    }
    Fsync {
        /// Under `sync` a call returns before what it changed of the metadata is on the disk.
        SyncAnswersOnceStable,
        /// A group was synced, but times that moved along with what was done under it are as before.
        GroupSyncIncludesTimes,
    }
    Condition {
        /// A block whose place is new is forgotten with what it is to hold.
        NewPlaceIsNotForgotten,
        /// Removals in a directory that a journal holds, or whose place is new, count as made up for.
        SupersedeOnlyBySoftOrder,
    }
}

thread_local! {
    /// What was handed out since it was used last.
    static HANDED: RefCell<Vec<(Id, PatchId)>> = const { RefCell::new(Vec::new()) };
    /// Patches that were made after what was handed out.
    static STATED: RefCell<Vec<(Id, PatchId)>> = const { RefCell::new(Vec::new()) };
}

/// So many patches are followed until they are on the disk.
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
    let several = patches.len() > 1;
    let left = match form {
        Some(Form::Whole) => &[],
        Some(Form::First) if several => &patches[1..],
        Some(Form::Last) if several => &patches[..patches.len() - 1],
        Some(Form::OnlyFirst) if several => &patches[..1],
        Some(Form::OnlyLast) if several => &patches[patches.len() - 1..],
        _ => patches,
    };
    if watch::records() {
        watch::count(rule, |passes| {
            passes.is_of_patches = true;
        });
    }
    if watch::records() || form == Some(Form::Merged) {
        HANDED.with_borrow_mut(|handed| {
            handed.extend(
                patches
                    .iter()
                    .filter(|p| **p != PatchId::COMMITTED)
                    .map(|p| (rule, *p)),
            );
        });
    }
    left
}

/// What was handed out is about to be used by what comes after these patches: takes out what a rule that is half off does not wait for,
/// and counts what is pending, unless it `matters` not. Returns the rules that something pending was handed out by.
#[cold]
pub fn heed(graph: &Graph, after: &mut Vec<PatchId>, matters: bool) -> Vec<Id> {
    let handed = HANDED.take();
    if handed.is_empty() {
        return Vec::new();
    }
    let half_off = watch::off()
        .filter(|(_, form)| *form == Form::Merged)
        .map(|(rule, _)| rule);
    // By the rule: the patches that are different ones still.
    let mut by: Vec<(Id, Vec<PatchId>)> = Vec::new();
    for (rule, id) in handed {
        if !graph.is_live(id) || !matters {
            continue;
        }
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
    by.into_iter().map(|(rule, _)| rule).collect()
}

/// A patch was made after what these rules handed out.
#[cold]
pub(crate) fn note_stated(by: &[Id], id: PatchId) {
    if watch::is_remounted() {
        // Those of the life before are followed.
        return;
    }
    STATED.with_borrow_mut(|stated| {
        if stated.len() >= STATED_MAX {
            stated.drain(..STATED_MAX / 2);
        }
        stated.extend(by.iter().map(|rule| (*rule, id)));
    });
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

/// Forgets what this thread follows: another store comes.
pub fn forget_followed() {
    HANDED.take();
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
