//! A directory that takes an empty one's name: what recovery must find to know which of its two
//! names is the new one. See [`replaced`].

use backstitch_layout::InodeNumber;
use backstitch_ordering::{PatchId, Volume};

use crate::format::{Format, Inode, InodeEditor};
use crate::rules::{Rule, wait_for};
use crate::state::UnixFs;
use backstitch_blocks::directory::Found;
use backstitch_blocks::replaced::{self, Place};

impl<F: Format> UnixFs<F> {
    /// Where a name is, as marks have it.
    pub(crate) fn place_of(&self, directory: InodeNumber, name: &Found) -> Place {
        let block_size = u64::from(self.format.block_size());
        Place {
            directory,
            position_bytes: name.logical * block_size + name.offset as u64,
        }
    }

    /// Marks a directory that is about to be replaced by the one that moves between two places.
    /// Returns what the new name must come after; nothing where no crash leaves half a move.
    pub(crate) fn mark_replaced(
        &mut self,
        v: &mut Volume<'_>,
        (moved, inode): (InodeNumber, &F::Inode),
        (from, to): (Place, Place),
        replaced: InodeNumber,
    ) -> Option<PatchId> {
        if v.scopes_are_atomic() || !v.keeps_order() {
            return None;
        }
        let mark = replaced::mark(moved, inode.generation(), from, to);
        let marked = self.change_inode(v, replaced, &[], |e| e.set_mark(mark));
        Some(wait_for(Rule::ReplacingAfterMark, marked))
    }

    /// The replaced directory stays, and its mark with it, until the old name of the one that moved
    /// is gone (`old_gone`). Not where its own name never was on the disk: then nobody knows of it.
    pub(crate) fn keep_mark(
        &mut self,
        v: &Volume<'_>,
        found: &Found,
        new_name: PatchId,
        old_gone: PatchId,
    ) {
        let state = self.state(found.inode);
        let pending = state
            .names
            .iter()
            .find(|n| (n.block, n.offset) == (found.block, found.offset));
        if pending.is_none_or(|n| !v.merged(n.name, new_name)) {
            let after = wait_for(Rule::MarkUntilOldNameGone, old_gone);
            state.clearings.push(after);
        }
    }

    /// Before the directory that moved takes another directory's name again, the one that it
    /// replaced must be gone, and its mark with it.
    pub(crate) fn note_mark_gone(
        &mut self,
        v: &mut Volume<'_>,
        moved: InodeNumber,
        replaced: InodeNumber,
    ) {
        let Some(freed) = self.state(replaced).freed else {
            return;
        };
        let freed = [wait_for(Rule::MovingAgainAfterMark, freed)];
        let heeded = v.heeded(&freed);
        for freed in heeded.as_deref().unwrap_or(&freed) {
            self.note_clearing(v, moved, None, *freed);
        }
    }
}
