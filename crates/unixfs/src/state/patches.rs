//! Lists of patches: what something waits for.

use backstitch_ordering::{PatchId, Volume};
use smallvec::SmallVec;

use crate::rules::Rule;

/// Patches that something waits for, or that it is made of: rarely more than a few, and no
/// operation is to allocate for them.
pub type PatchIds = SmallVec<[PatchId; 6]>;

/// Patches that somebody may want to wait for. What has committed leaves as the list grows.
#[derive(Debug, Default)]
pub(crate) struct PatchList {
    ids: SmallVec<[PatchId; 2]>,
    prune_at: usize,
}

impl PatchList {
    pub(crate) fn push(&mut self, v: &Volume<'_>, id: PatchId) {
        if self.ids.last() == Some(&id) || id == PatchId::COMMITTED {
            return;
        }
        if self.ids.len() >= self.prune_at.max(16) {
            self.ids
                .retain(|id| v.is_live_by(Rule::ChangesKeptWhileLive, *id));
            self.prune_at = self.ids.len() * 2;
        }
        self.ids.push(id);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(crate) fn any_live(&self, v: &Volume<'_>) -> bool {
        self.ids.iter().any(|id| v.is_live(*id))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = PatchId> + '_ {
        self.ids.iter().copied()
    }
}
