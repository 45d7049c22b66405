//! What was judged before: two workloads that begin alike have the same states up to where they
//! differ.

use std::collections::hash_map::Entry;

use backstitch_crash_core::operation::Operation;
use backstitch_crash_core::recovered::Recoveries;
use rustc_hash::FxHashMap;

use crate::judge::{Judge, Question};
use crate::reclaimed::Reclaims;
use backstitch_crash_workloads::Workload;

/// What is known from the previous workload under the same plan.
#[derive(Default)]
pub(crate) struct Known {
    pub(super) operations: Vec<Operation>,
    /// The operations at the beginning that were not looked at.
    pub(super) setup: usize,
    /// Operations at the beginning that need not be looked at again: those that were, and `setup`.
    pub(super) looked_at: usize,
    pub(super) states: KnownStates,
    pub(super) reclaims: Reclaims,
}

/// States that were found good, by fingerprint.
#[derive(Default)]
pub(super) struct KnownStates {
    /// As a crash left them.
    pub(super) left: FxHashMap<u128, Good>,
    /// As the replay of their journal made them.
    pub(super) recovered: FxHashMap<u128, Good>,
    /// What states show to a program. Whether the promises hold depends on nothing else.
    pub(super) shown: FxHashMap<u128, Times>,
    /// What the replay of a journal does to states. That depends on what they hold, and not on
    /// promises.
    pub(super) recoveries: Recoveries,
}

/// A state in which nothing was found wrong.
#[derive(Clone, Copy)]
pub(super) struct Good {
    pub(super) times: Times,
    /// Whether some file maps blocks beyond its end. The promises decide whether it may.
    pub(super) maps_behind: bool,
    /// The fingerprint of what it shows to a program, if that was looked at.
    pub(super) shown: Option<u128>,
}

/// The first and the last time that something was found good.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) first: Asked,
    pub(super) last: Asked,
}

impl Times {
    pub(super) fn at(now: Asked) -> Times {
        Times {
            first: now,
            last: now,
        }
    }

    /// Forgets what does not hold for a workload that has only the first `operations` operations in
    /// common with the last one. False if nothing is left.
    fn forget_behind(&mut self, operations: usize) -> bool {
        // The later promises were made by operations that this workload does not do.
        if self.last.begun > operations {
            self.last = self.first;
        }
        self.first.begun <= operations
    }
}

/// When a state was asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    /// The number of promises under which it was judged.
    pub(super) promises: u64,
    /// The number of operations that had begun.
    pub(super) begun: usize,
}

impl Known {
    /// Forgets what does not hold for a workload. Returns how many of its operations need not be
    /// looked at: those of its setup, and those that were looked at in the previous workload.
    pub(super) fn part_from(&mut self, workload: &Workload) -> usize {
        let operations = &workload.operations;
        let pairs = self.operations.iter().zip(operations);
        let common = pairs.take_while(|(before, now)| before == now).count();
        let states = &mut self.states;
        for known in [&mut states.left, &mut states.recovered] {
            known.retain(|_, good| good.times.forget_behind(common));
        }
        states.shown.retain(|_, times| times.forget_behind(common));
        // The moments of the last operation include the end of the workload, which another workload
        // does not share.
        let seen = match self.setup <= workload.setup {
            true => common
                .min(self.looked_at)
                .min(operations.len().saturating_sub(1)),
            false => 0,
        };
        self.operations = operations.clone();
        self.looked_at = operations.len();
        self.setup = workload.setup;
        workload.setup.max(seen)
    }
}

/// The question still to be answered about a state, and whether the state is new.
pub(super) fn question_of(
    known: &mut FxHashMap<u128, Good>,
    shown: &FxHashMap<u128, Times>,
    fingerprint: u128,
    now: Asked,
) -> Option<(Question, bool)> {
    match known.entry(fingerprint) {
        Entry::Occupied(known) if known.get().times.last.promises == now.promises => None,
        Entry::Occupied(mut known) => {
            let good = known.get_mut();
            good.times.last = now;
            // Another state that shows the same was judged under these promises.
            let same = good.shown.and_then(|shows| shown.get(&shows));
            if same.is_some_and(|times| times.last.promises == now.promises) {
                return None;
            }
            Some(match good.maps_behind {
                true => (Question::Consistency, false),
                false => (Question::Promises, false),
            })
        }
        Entry::Vacant(new) => {
            new.insert(Good {
                times: Times::at(now),
                maps_behind: false,
                shown: None,
            });
            Some((Question::Consistency, true))
        }
    }
}

/// Remembers the verdict on a state.
pub(super) fn note(
    known: &mut FxHashMap<u128, Good>,
    shown: &mut FxHashMap<u128, Times>,
    judge: &Judge,
    fingerprint: u128,
    now: Asked,
    is_good: bool,
) {
    if !is_good {
        known.remove(&fingerprint);
        return;
    }
    if let Some(good) = known.get_mut(&fingerprint) {
        good.maps_behind |= judge.maps_behind;
        good.shown = judge.shown;
    }
    if let Some(shows) = judge.shown {
        let times = shown.entry(shows).or_insert(Times::at(now));
        times.last = now;
    }
}
