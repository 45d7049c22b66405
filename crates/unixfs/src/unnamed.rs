//! Files that are made without a name (`O_TMPFILE`), and get one later or never.
//!
//! On the disk such a file is what one is whose last name went while a program had it open: in use,
//! without links. Nothing leads to it, so a crash leaves no more of it than the reclaim frees, and
//! where scopes are atomic the list of orphans has it.
//!
//! Its first name is the commit point of all that was done to it before: after a crash that name is
//! missing, or shows the file as it was when it got the name, or later.

use backstitch_layout::{Error, FileType, InodeNumber, NewInode, Step, Timestamp};
use backstitch_ordering::{PatchId, Volume};

use crate::format::{Format, InodeEditor, Picks};
use crate::rules::{Rule, holds, wait_for_all};
use crate::state::UnixFs;
use crate::state::patches::PatchIds;

impl<F: Format> UnixFs<F> {
    /// Makes a file without a name, as one that is made in `directory`. It is freed unless a caller
    /// refers to it or gives it a name in the same step.
    pub(crate) fn make_unnamed(
        &mut self,
        v: &mut Volume<'_>,
        directory: InodeNumber,
        new: &NewInode<'_>,
        now: Timestamp,
    ) -> Step<InodeNumber> {
        if new.file_type != FileType::Regular {
            return Err(Error::Invalid.into());
        }
        let parent = self.read_parent(v, directory)?;
        let plan = self.gather_inode(v, directory, &parent, b"", new, Picks::default())?;
        let number = plan.number;
        self.apply_inode(v, directory, &parent, plan, now);
        let state = self.state(number);
        state.is_unnamed = true;
        if holds(Rule::UnnamedCountsAsFreed) {
            state.freed = state.made;
            state.never_alive = true;
        }
        self.deferred.note_dead(number);
        self.note_made(v, number, now);
        Ok(number)
    }

    /// Whether a file was made without a name, and has had none since.
    pub(crate) fn is_unnamed(&self, inode: InodeNumber) -> bool {
        self.inodes.get(&inode).is_some_and(|s| s.is_unnamed)
    }

    /// A file without a name is about to get one: it counts it, and is not freed any more. Appends
    /// what the name must come after, but for the count, which is returned.
    pub(crate) fn count_first_name(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        after: &mut PatchIds,
        now: Timestamp,
    ) -> PatchId {
        // The list of orphans goes on in the same field; what leaves the list clears it.
        let is_listed = self.orphans.contains(&number);
        let counted = self.change_inode(v, number, &[], |e| {
            e.set_links(1);
            if !is_listed {
                e.set_deleted(None);
            }
            e.set_changed(now);
        });
        let state = self.state(number);
        state.is_unnamed = false;
        if holds(Rule::NamedIsNotFreed) {
            state.freed = None;
        }
        state.never_alive = false;
        let changes: PatchIds = state.changes.iter().filter(|id| v.is_live(*id)).collect();
        after.extend_from_slice(wait_for_all(Rule::FirstNameAfterChanges, &changes));
        // While it counted as freed nobody looked whether it could be forgotten.
        if !std::mem::replace(&mut state.is_idle, true) {
            self.deferred.note_idle(number);
        }
        counted
    }
}
