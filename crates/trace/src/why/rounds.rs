//! In how many rounds of writing a patch can be on stable storage.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use backstitch_store::PatchKind;

use crate::state::{Patch, Standing, State};

/// Rounds for each patch that was asked about, and for what it waits for.
///
/// A round is a batch: it brings what is ready to the disk. A patch goes along with one of its own
/// block that it waits for, and takes one round more than one of another block. A block that is on
/// its way is written again no earlier than in the next round.
pub(super) struct Rounds<'s> {
    state: &'s State,
    /// Of a patch: its rounds, and which of those that it waits for is the reason.
    known: BTreeMap<u64, (u32, Option<u64>)>,
}

impl<'s> Rounds<'s> {
    pub(super) fn new(state: &'s State) -> Rounds<'s> {
        Rounds {
            state,
            known: BTreeMap::new(),
        }
    }

    /// How many rounds there are until this patch is on stable storage; 0 where it is.
    pub(super) fn of(&mut self, number: u64) -> u32 {
        let mut stack = vec![(number, false)];
        while let Some((number, is_second)) = stack.pop() {
            let Some(patch) = self.state.patch(number) else {
                continue;
            };
            if is_second {
                let found = self.beyond_befores(patch);
                self.known.insert(number, found);
            } else if let Entry::Vacant(unknown) = self.known.entry(number) {
                // So that a circle, which only a made-up trace has, ends.
                unknown.insert((0, None));
                stack.push((number, true));
                if patch.standing == Standing::Uncommitted {
                    let befores = patch.befores.iter();
                    stack.extend(befores.map(|before| (self.state.resolved(*before), false)));
                }
            }
        }
        self.known.get(&number).map_or(0, |(rounds, _)| *rounds)
    }

    fn beyond_befores(&self, patch: &Patch) -> (u32, Option<u64>) {
        match patch.standing {
            Standing::Committed => return (0, None),
            Standing::InFlight => return (1, None),
            Standing::Uncommitted => {}
        }
        let mut most = (1, None);
        for before in &patch.befores {
            let before = self.state.resolved(*before);
            let rounds = self.known.get(&before).map_or(0, |(rounds, _)| *rounds);
            let rounds = match self.goes_along(patch, before) {
                true => rounds,
                false if rounds == 0 => 0,
                false => rounds + 1,
            };
            // One that goes along is the reason too, if there is no better one.
            if rounds > most.0 || (rounds == most.0 && most.1.is_none() && rounds > 0) {
                most = (rounds, Some(before));
            }
        }
        most
    }

    /// Whether `patch` can be written together with `before`.
    fn goes_along(&self, patch: &Patch, before: u64) -> bool {
        let home = patch.parts.first().map(|part| part.block);
        self.state.patch(before).is_some_and(|before| {
            before.standing == Standing::Uncommitted
                && before.kind != PatchKind::Run
                && match home {
                    Some(home) => before.parts.iter().any(|part| part.block == home),
                    // What has no block takes no round of its own.
                    None => true,
                }
        })
    }

    /// The patch, what it waits for longest, what that waits for longest, and so on.
    pub(super) fn chain(&mut self, number: u64) -> Vec<u64> {
        self.of(number);
        let (mut chain, mut seen) = (vec![number], BTreeSet::from([number]));
        let mut at = number;
        while let Some((_, Some(next))) = self.known.get(&at) {
            if !seen.insert(*next) {
                break;
            }
            chain.push(*next);
            at = *next;
        }
        chain
    }
}
