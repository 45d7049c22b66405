//! What operations tell the reclaim while it is under way: everything that they change of what it
//! has looked at, or will.

use backstitch_layout::{Awaited, BlockNumber, InodeNumber, Step, Stop};

use crate::format::{Format, Inode};
use crate::rules::{Rule, holds};
use crate::state::UnixFs;
use crate::state::reclaim::{Directory, Reclaim, kind};
use backstitch_blocks::bitmap;
use backstitch_blocks::runs::Run;

impl<F: Format> UnixFs<F> {
    /// The reclaim that is to be told, where one is under way.
    fn told(&mut self, rule: Rule) -> Option<&mut Reclaim> {
        // Nothing is told where there is nobody.
        self.reclaim.as_deref_mut().filter(|_| holds(rule))
    }

    /// A name was added to a directory.
    pub(crate) fn track_name_added(
        &mut self,
        directory: InodeNumber,
        logical: u64,
        child: InodeNumber,
        is_directory: bool,
    ) {
        let Some(r) = self.told(Rule::ReclaimToldOfNewName) else {
            return;
        };
        r.relink(child);
        if r.is_walked(directory, logical) {
            // Link counts are bounded, and with them what is counted here.
            let counted = r.count_name(directory, child, is_directory);
            debug_assert!(counted.is_ok());
        }
    }

    /// A name was taken out of a directory.
    pub(crate) fn track_name_removed(
        &mut self,
        directory: InodeNumber,
        logical: u64,
        child: InodeNumber,
        is_directory: bool,
    ) {
        let Some(r) = self.told(Rule::ReclaimToldOfRemovedName) else {
            return;
        };
        r.relink(child);
        if r.is_walked(directory, logical) {
            r.drop_name(directory, child, is_directory);
        }
    }

    /// A directory was made.
    pub(crate) fn track_new_directory(&mut self, directory: InodeNumber, parent: InodeNumber) {
        if let Some(r) = self.told(Rule::ReclaimToldOfNewDirectory) {
            r.directories.insert(directory, Directory::made_in(parent));
        }
    }

    /// An inode was made, and with it its attribute block (0 for none).
    pub(crate) fn track_new_inode(
        &mut self,
        inode: InodeNumber,
        is_directory: bool,
        attributes: BlockNumber,
    ) {
        if let Some(r) = self.told(Rule::ReclaimToldOfNewInode) {
            let made = if is_directory {
                kind::NEW_DIRECTORY
            } else {
                kind::NEW
            };
            r.set_kind(inode, made);
            bitmap::clear(&mut r.counted, inode.index());
            r.count_attributes(inode, attributes);
        }
    }

    /// An inode lost its last name, and will be freed by the operation that took it.
    pub(crate) fn track_last_name(&mut self, inode: InodeNumber, is_directory: bool) {
        if let Some(r) = self.told(Rule::ReclaimToldOfLastName) {
            r.hold(inode, is_directory);
        }
    }

    /// An inode was freed.
    pub(crate) fn track_inode_freed(&mut self, inode: InodeNumber) {
        if let Some(r) = self.told(Rule::ReclaimToldOfFreedInode) {
            r.set_kind(inode, kind::FREE);
            r.directories.remove(&inode);
            if let Some(names) = r.names.get_mut(inode.index()) {
                *names = 0;
            }
        }
    }

    /// Blocks were allocated, unmapped or freed.
    pub(crate) fn track_blocks(&mut self, run: Run) {
        if let Some(r) = self.told(Rule::ReclaimToldOfBlocks) {
            r.touch(run);
        }
    }

    /// An inode's map was changed.
    pub(crate) fn track_map(&mut self, inode: InodeNumber) {
        if let Some(r) = self.told(Rule::ReclaimToldOfMap) {
            r.is_disturbed |= r.in_parts == Some(inode);
        }
    }

    /// An inode has another attribute block (0 for none). The old one still counts the reference.
    pub fn track_attributes(&mut self, inode: InodeNumber, old: BlockNumber, new: BlockNumber) {
        let Some(r) = self.told(Rule::ReclaimToldOfAttributes) else {
            return;
        };
        if r.has_freed() {
            return;
        }
        let counted = r.is_counted(inode);
        if old != BlockNumber::NONE && old != new {
            let first_data_block = r.first_data_block;
            let references = r.attribute_blocks.entry(old).or_default();
            references.leaving += 1;
            if counted {
                references.counted = references.counted.saturating_sub(1);
            }
            bitmap::set(&mut r.touched, (old - first_data_block) as usize);
        }
        if counted && new != BlockNumber::NONE && old != new {
            r.attribute_blocks.entry(new).or_default().counted += 1;
        }
    }

    /// An attribute block counts one reference less: one that `inode` gave up with itself, or one
    /// that was given up before.
    pub fn track_reference_dropped(&mut self, block: BlockNumber, inode: Option<InodeNumber>) {
        let Some(r) = self.told(Rule::ReclaimToldOfReference) else {
            return;
        };
        if r.has_freed() {
            return;
        }
        let counted = inode.is_none_or(|inode| r.is_counted(inode));
        let references = r.attribute_blocks.entry(block).or_default();
        match inode {
            Some(_) if counted => references.counted = references.counted.saturating_sub(1),
            Some(_) => {}
            None => references.leaving = references.leaving.saturating_sub(1),
        }
    }

    /// An attribute block was freed.
    pub fn track_attribute_block_freed(&mut self, block: BlockNumber) {
        if let Some(r) = self.told(Rule::ReclaimToldOfFreedAttributes) {
            r.attribute_blocks.remove(&block);
        }
    }

    /// Whether the names of a directory from before the crash must wait: it may have another one.
    pub(crate) fn check_settled(&mut self, directory: InodeNumber) -> Step<()> {
        match self.reclaim.as_deref_mut() {
            Some(r)
                if !r.is_settled
                    && r.kind(directory) != kind::NEW_DIRECTORY
                    && holds(Rule::DirectoriesWaitForNames) =>
            {
                r.names_come_first();
                Err(Stop::WaitFor(Awaited::Names))
            }
            _ => Ok(()),
        }
    }

    /// Whether an empty directory from before the crash must stay for now: one that counts more
    /// than its own two links may be what `..` of a directory without a name leads to, and that
    /// dies first.
    pub(crate) fn check_childless(&self, directory: InodeNumber, inode: &F::Inode) -> Step<()> {
        match self.reclaim.as_deref() {
            Some(r)
                if inode.links() > 2
                    && r.kind(directory) != kind::NEW_DIRECTORY
                    && holds(Rule::ParentsWaitForReclaim) =>
            {
                Err(Stop::WaitFor(Awaited::Reclaim))
            }
            _ => Ok(()),
        }
    }
}
