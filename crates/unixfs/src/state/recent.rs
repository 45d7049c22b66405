//! What is known of a directory only until patches reach the disk, found by a key at once however
//! much there is of it.

use std::collections::VecDeque;

use backstitch_ordering::{PatchId, Volume};
use rustc_hash::FxHashMap;

use crate::rules::Rule;

/// Patches by a key, each of interest until it is on stable storage. Adding and finding take the
/// same time whatever else is in here: patches leave in the order in which they came, each once.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    patches: FxHashMap<u64, PatchId>,
    order: VecDeque<(u64, PatchId)>,
}

impl Recent {
    /// How many that are on stable storage one addition lets go of: more than come in, so that they
    /// never pile up behind one that takes long.
    const LET_GO: usize = 2;

    /// Adds a patch; it takes the place of an earlier one with the same key.
    pub(crate) fn add(&mut self, v: &Volume<'_>, key: u64, patch: PatchId) {
        for _ in 0..Self::LET_GO {
            if !self.let_go_of_first(v) {
                break;
            }
        }
        if self.patches.insert(key, patch) != Some(patch) {
            self.order.push_back((key, patch));
        }
    }

    /// The patch with this key, while it is not on stable storage.
    pub(crate) fn find(&self, v: &Volume<'_>, key: u64) -> Option<PatchId> {
        self.patches.get(&key).copied().filter(|p| v.is_live(*p))
    }

    /// Whether any is not on stable storage yet: looks at all of them.
    pub(crate) fn any_live(&self, v: &Volume<'_>) -> bool {
        self.patches.values().any(|patch| v.is_live(*patch))
    }

    /// Forgets the first one if it is on stable storage; false where it is not, or there is none.
    fn let_go_of_first(&mut self, v: &Volume<'_>) -> bool {
        let Some((key, patch)) = self.order.front().copied() else {
            return false;
        };
        if v.is_live_by(Rule::RecentKeptWhileLive, patch) {
            return false;
        }
        self.order.pop_front();
        if self.patches.get(&key) == Some(&patch) {
            self.patches.remove(&key);
        }
        true
    }
}
