//! New files that somebody will flush: mail, editors and databases wait for each file that they
//! make.
//!
//! By the rules of soft updates a new file takes three rounds of writing, each with a flush: the
//! bits and the contents, the inode, the name. Where files are flushed as soon as they are made,
//! two do:
//!
//! - Some inodes are marked as used *ahead*, in the same round as a flush that goes to the disk
//!   anyway. A new file gets one of these, and its inode has no bit to wait for. What is marked and
//!   not in use is what a crash may leave at any time.
//! - What leads from the inode to its first contents is kept *apart* from what makes the inode. So
//!   the empty inode goes to the disk beside the contents, and in the second round its pointers
//!   beside its name.
//!
//! Programs that make files without flushing them get neither: for each file there would be one
//! more patch, with undo data, for nothing.

use std::collections::VecDeque;

use backstitch_layout::{FileType, InodeNumber, Timestamp};
use backstitch_ordering::{PatchId, Volume};

use crate::format::Format;
use crate::space::are_in_memory;
use crate::state::UnixFs;
use crate::state::inode::InodeState;
use crate::state::spares::Spare;

/// The most inodes of a group that are marked ahead, and no more than one for `FREE_PER_SPARE` free
/// ones; new ones are marked when a quarter is left.
const SPARES_MAX: u32 = 32;
const FREE_PER_SPARE: u32 = 8;
/// The most groups in which some are.
const GROUPS_MAX: usize = 16;

impl<F: Format> UnixFs<F> {
    /// The inode that is marked ahead for a file where a new one of this name goes.
    pub(crate) fn spare_for(
        &self,
        directory: InodeNumber,
        name: &[u8],
        file_type: FileType,
    ) -> Option<Spare> {
        let is_wanted = file_type == FileType::Regular && self.spares.expected.holds();
        if !is_wanted || self.spares.groups.is_empty() {
            return None;
        }
        let home = self.format.group_of_inode(directory);
        let group = self.format.group_for_file(home, name);
        self.spares.of_group(group)?.front().copied()
    }

    /// A file was made: marks inodes ahead for the next ones. The block of the map that holds its
    /// bit is in memory, or it is left for the next time.
    pub(crate) fn note_made(&mut self, v: &mut Volume<'_>, inode: InodeNumber, now: Timestamp) {
        let is_expected = self.spares.expected.holds();
        self.spares.expected.note_done(now);
        if !is_expected {
            return;
        }
        let group = self.format.group_of_inode(inode);
        let left = self.spares.of_group(group).map_or(0, VecDeque::len);
        let is_room = left > 0 || self.spares.groups.len() < GROUPS_MAX;
        let most = SPARES_MAX.min(self.format.free_inodes_in(group) / FREE_PER_SPARE) as usize;
        // The next ones are beside it. A group's map may have other blocks, which nobody reads.
        let (bits, bit) = self.bit_of_inode(inode);
        let (bits, _) = bits.narrowed(bit, bit, self.format.block_size());
        if 4 * left >= most || !is_room || !self.can_look_ahead(v) || !are_in_memory(v, &bits) {
            return;
        }
        for _ in left..most {
            let Ok(Some(inode)) = self.format.free_inode_in(v, group, false) else {
                return;
            };
            let marked = self.format.set_inode_bit(v, inode, false);
            self.spares
                .of_group_mut(group)
                .push_back(Spare { inode, marked });
        }
    }

    /// A file is flushed, and so, probably, will be the next one that is made, or the next append,
    /// as this was. With a new file, all that is marked ahead in its group is flushed too.
    pub(crate) fn note_flushed(
        &mut self,
        v: &Volume<'_>,
        inode: InodeNumber,
        targets: &mut Vec<PatchId>,
    ) {
        let Some(state) = self.inodes.get_mut(&inode) else {
            return;
        };
        let is_new = state.made.is_some_and(|made| v.is_live(made));
        let is_appended = std::mem::take(&mut state.is_appended);
        if v.scopes_are_atomic() || !v.keeps_order() {
            return;
        }
        if is_appended {
            self.left_places.expected.note_flushed();
        }
        if !is_new {
            return;
        }
        self.spares.expected.note_flushed();
        let spares = self.spares.of_group(self.format.group_of_inode(inode));
        for spare in spares.into_iter().flatten() {
            if targets.last() != Some(&spare.marked) {
                targets.push(spare.marked);
            }
        }
    }

    /// Whether anything may be kept ready. Not under a patchgroup, for which a new file is one with
    /// its contents, nor while the reclaim looks for what is marked and not in use.
    pub(crate) fn can_look_ahead(&self, v: &Volume<'_>) -> bool {
        v.keeps_order()
            && !v.scopes_are_atomic()
            && !v.is_grouped()
            && self.reclaim.is_none()
            && !self.has_leaks
    }

    /// Whether what is waited for and what can wait are to stand apart in blocks of the inode
    /// table.
    pub(crate) fn keeps_apart(&self, v: &Volume<'_>) -> bool {
        self.spares.expected.holds() && self.can_look_ahead(v)
    }

    /// Whether what leads from a file to contents is to stand apart from what makes its inode,
    /// which is not on the disk yet.
    pub(crate) fn keeps_contents_apart(&self, v: &Volume<'_>, inode: InodeNumber) -> bool {
        let is_new_file = |state: &InodeState| {
            state.reach.is_none() && state.made.is_some_and(|made| v.is_pending(made))
        };
        self.keeps_apart(v) && self.inodes.get(&inode).is_some_and(|s| is_new_file(s))
    }

    /// The patch by which a file leads to contents, where it stands apart from the patch that made
    /// the file, and is not on the disk yet.
    pub(crate) fn contents_apart(&self, v: &Volume<'_>, inode: InodeNumber) -> Option<PatchId> {
        let state = self.inodes.get(&inode)?;
        state.apart.filter(|apart| v.is_live(*apart))
    }

    /// Notes the patch of an inode that leads to more contents, if it stands apart or comes after
    /// one that does, or if another patch makes the inode and is in memory only.
    pub(crate) fn note_contents_apart(
        &mut self,
        v: &Volume<'_>,
        inode: InodeNumber,
        id: PatchId,
        is_apart: bool,
    ) {
        let made = self.inodes.get(&inode).and_then(|state| state.made);
        let is_other = made.is_some_and(|made| v.is_pending(made) && !v.merged(made, id));
        if is_apart || is_other || self.contents_apart(v, inode).is_some() {
            self.state(inode).apart = Some(id);
        }
    }

    /// Frees, with all that is deferred, what is kept ready for nothing or was asked back.
    pub(crate) fn give_back(&mut self, v: &mut Volume<'_>, now: Timestamp) {
        let is_asked = std::mem::take(&mut self.spares.is_asked_back);
        if self.read_only.is_some() {
            return;
        }
        self.give_places_back(v, now);
        if is_asked || self.spares.expected.is_over(now) {
            for (_, spares) in std::mem::take(&mut self.spares.groups) {
                self.defer_spares(spares.iter().map(|spare| spare.inode).collect());
            }
        }
    }
}
