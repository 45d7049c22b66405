//! What operations tell the reclaim while it is under way: everything that they change of what it
//! has looked at, or will.

use backstitch_layout::{Error, Result};

use super::names::{DIRECTORY, Directory};
use super::{Reclaim, kind};
use crate::format::{Inode, ROOT_INODE, bitmap};
use crate::groups::Run;
use crate::layout::Ext;
use crate::rules::{Rule, holds};

impl Reclaim {
    /// Whether an inode is in use as a directory.
    pub(super) fn is_directory(&self, inode: u32) -> bool {
        matches!(self.kind(inode), DIRECTORY | kind::NEW_DIRECTORY)
    }

    /// Whether this part of a directory was walked: names in it are counted when they come and go.
    fn is_walked(&self, directory: u32, logical: u64) -> bool {
        self.directories
            .get(&directory)
            .is_some_and(|d| logical < d.walked)
    }

    /// Counts a name in the walked part of a directory. A directory that was not known until now is
    /// to be walked.
    pub(super) fn count_name(
        &mut self,
        directory: u32,
        child: u32,
        is_directory: bool,
    ) -> Result<()> {
        let too_many = |inode: u32| Error::corrupt(format!("inode {inode}"), "too many names");
        if !is_directory {
            let names = self.names.get_mut(child as usize - 1);
            let names = names.ok_or_else(|| too_many(child))?;
            *names = names.checked_add(1).ok_or_else(|| too_many(child))?;
            return Ok(());
        }
        if let Some(parent) = self.directories.get_mut(&directory) {
            let children = parent.children.checked_add(1);
            parent.children = children.ok_or_else(|| too_many(directory))?;
        }
        let stack = &mut self.stack;
        let known = self.directories.entry(child).or_insert_with(|| {
            stack.push(child);
            Directory::found()
        });
        if known.parent == 0 {
            known.parent = directory;
        } else {
            self.further.entry(child).or_default().push(directory);
        }
        Ok(())
    }

    /// A name in the walked part of a directory is gone.
    pub(super) fn drop_name(&mut self, directory: u32, child: u32, is_directory: bool) {
        if !is_directory {
            if let Some(names) = self.names.get_mut(child as usize - 1) {
                *names = names.saturating_sub(1);
            }
            return;
        }
        if let Some(parent) = self.directories.get_mut(&directory) {
            parent.children = parent.children.saturating_sub(1);
        }
        let Some(known) = self.directories.get_mut(&child) else {
            return;
        };
        let Some(further) = self.further.get_mut(&child) else {
            known.parent = 0;
            return;
        };
        match further.iter().rposition(|f| *f == directory) {
            Some(at) => drop(further.swap_remove(at)),
            None => known.parent = further.pop().unwrap_or(0),
        }
        if further.is_empty() {
            self.further.remove(&child);
        }
    }

    /// Whether `inner` is `outer` or below it, by the names by which directories were found.
    pub(super) fn is_inside(&self, inner: u32, outer: u32) -> bool {
        let mut at = inner;
        // They make a tree, but for what changes while it is walked.
        for _ in 0..=self.directories.len() {
            if at == outer {
                return true;
            }
            if at == ROOT_INODE {
                return false;
            }
            match self.directories.get(&at) {
                Some(directory) => at = directory.parent,
                None => return true,
            }
        }
        true
    }

    pub(super) fn set_dotdot(&mut self, directory: u32, parent: u32) {
        if let Some(known) = self.directories.get_mut(&directory) {
            known.dotdot = parent;
        }
    }

    /// Whether what nobody maps is free: then nobody looks at blocks, nor at who shares attributes,
    /// again.
    fn has_freed(&self) -> bool {
        self.touched.is_empty()
    }

    pub(super) fn touch(&mut self, run: Run) {
        if self.has_freed() {
            return;
        }
        for block in run.start..run.end() {
            bitmap::set(&mut self.touched, (block - self.first_data_block) as usize);
        }
    }

    /// From now on nothing keeps an attribute block from being freed: nobody refers to it.
    pub(super) fn give_up(&mut self, block: u64) {
        let bit = (block - self.first_data_block) as usize;
        bitmap::clear(&mut self.used, bit);
        bitmap::clear(&mut self.touched, bit);
        self.attribute_blocks.remove(&block);
    }

    fn is_counted(&self, inode: u32) -> bool {
        bitmap::test(&self.counted, inode as usize - 1)
    }

    /// Counts an inode's reference to its attribute block, unless it was.
    pub(super) fn count_attributes(&mut self, inode: u32, block: u64) {
        if self.is_counted(inode) || self.has_freed() {
            return;
        }
        bitmap::set(&mut self.counted, inode as usize - 1);
        if block != 0 {
            self.attribute_blocks.entry(block).or_default().counted += 1;
        }
    }

    /// What the link count of an inode is, whose map was looked at.
    pub(super) fn note_links(&mut self, number: u32, inode: &Inode) {
        if inode.links == 1 && !inode.is_directory() {
            bitmap::set(&mut self.single, number as usize - 1);
        }
    }

    /// A name of an inode comes or goes, and with it a link.
    fn relink(&mut self, inode: u32) {
        if let Some(byte) = self.single.get_mut((inode as usize - 1) / 8) {
            *byte &= !(1 << ((inode - 1) % 8));
        }
    }

    /// Whether the link count of an inode may be another one than that of its names.
    pub(super) fn may_count_wrong(&self, inode: u32) -> bool {
        let is_from_before = !matches!(self.kind(inode), kind::FREE | kind::NEW..);
        let is_right = self.names_of(inode) == 1 && bitmap::test(&self.single, inode as usize - 1);
        is_from_before && !is_right
    }

    /// Whether the inode that is looked at in parts has changed since the last one; asked once a
    /// part.
    pub(super) fn was_disturbed(&mut self, inode: u32) -> bool {
        let is_it = self.in_parts.replace(inode) == Some(inode);
        std::mem::take(&mut self.is_disturbed) && is_it
    }
}

impl Ext {
    /// The reclaim that is to be told, where one is under way.
    fn told(&mut self, rule: Rule) -> Option<&mut Reclaim> {
        // Nothing is told where there is nobody.
        self.reclaim.as_deref_mut().filter(|_| holds(rule))
    }

    /// A name was added to a directory.
    pub(crate) fn track_name_added(
        &mut self,
        directory: u32,
        logical: u64,
        child: u32,
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
        directory: u32,
        logical: u64,
        child: u32,
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
    pub(crate) fn track_new_directory(&mut self, directory: u32, parent: u32) {
        if let Some(r) = self.told(Rule::ReclaimToldOfNewDirectory) {
            r.directories.insert(directory, Directory::made_in(parent));
        }
    }

    /// An inode was made, and with it its attribute block (0 for none).
    pub(crate) fn track_new_inode(&mut self, inode: u32, is_directory: bool, attributes: u64) {
        if let Some(r) = self.told(Rule::ReclaimToldOfNewInode) {
            let made = if is_directory {
                kind::NEW_DIRECTORY
            } else {
                kind::NEW
            };
            r.set_kind(inode, made);
            bitmap::clear(&mut r.counted, inode as usize - 1);
            r.count_attributes(inode, attributes);
        }
    }

    /// An inode lost its last name, and will be freed by the operation that took it.
    pub(crate) fn track_last_name(&mut self, inode: u32, is_directory: bool) {
        if let Some(r) = self.told(Rule::ReclaimToldOfLastName) {
            r.hold(inode, is_directory);
        }
    }

    /// An inode was freed.
    pub(crate) fn track_inode_freed(&mut self, inode: u32) {
        if let Some(r) = self.told(Rule::ReclaimToldOfFreedInode) {
            r.set_kind(inode, kind::FREE);
            r.directories.remove(&inode);
            if let Some(names) = r.names.get_mut(inode as usize - 1) {
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
    pub(crate) fn track_map(&mut self, inode: u32) {
        if let Some(r) = self.told(Rule::ReclaimToldOfMap) {
            r.is_disturbed |= r.in_parts == Some(inode);
        }
    }

    /// An inode has another attribute block (0 for none). The old one still counts the reference.
    pub(crate) fn track_attributes(&mut self, inode: u32, old: u64, new: u64) {
        let Some(r) = self.told(Rule::ReclaimToldOfAttributes) else {
            return;
        };
        if r.has_freed() {
            return;
        }
        let counted = r.is_counted(inode);
        if old != 0 && old != new {
            let first_data_block = r.first_data_block;
            let references = r.attribute_blocks.entry(old).or_default();
            references.leaving += 1;
            if counted {
                references.counted = references.counted.saturating_sub(1);
            }
            bitmap::set(&mut r.touched, (old - first_data_block) as usize);
        }
        if counted && new != 0 && old != new {
            r.attribute_blocks.entry(new).or_default().counted += 1;
        }
    }

    /// An attribute block counts one reference less: one that `inode` gave up with itself, or one
    /// that was given up before.
    pub(crate) fn track_reference_dropped(&mut self, block: u64, inode: Option<u32>) {
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
    pub(crate) fn track_attribute_block_freed(&mut self, block: u64) {
        if let Some(r) = self.told(Rule::ReclaimToldOfFreedAttributes) {
            r.attribute_blocks.remove(&block);
        }
    }

    /// Whether the names of a directory from before the crash must wait: it may have another one.
    pub(crate) fn check_settled(&mut self, directory: u32) -> Result<()> {
        match self.reclaim.as_deref_mut() {
            Some(r)
                if !r.is_settled
                    && r.kind(directory) != kind::NEW_DIRECTORY
                    && holds(Rule::DirectoriesWaitForNames) =>
            {
                r.names_come_first();
                Err(Error::WaitForNames)
            }
            _ => Ok(()),
        }
    }

    /// Whether an empty directory from before the crash must stay for now: one that counts more
    /// than its own two links may be what `..` of a directory without a name leads to, and that
    /// dies first.
    pub(crate) fn check_childless(&self, directory: u32, inode: &Inode) -> Result<()> {
        match self.reclaim.as_deref() {
            Some(r)
                if inode.links > 2
                    && r.kind(directory) != kind::NEW_DIRECTORY
                    && holds(Rule::ParentsWaitForReclaim) =>
            {
                Err(Error::WaitForReclaim)
            }
            _ => Ok(()),
        }
    }
}

impl Reclaim {
    /// Others free the inode.
    pub(super) fn hold(&mut self, inode: u32, is_directory: bool) {
        let held = if is_directory {
            kind::HELD_DIRECTORY
        } else {
            kind::HELD
        };
        self.set_kind(inode, held);
        if is_directory {
            self.directories.remove(&inode);
            self.further.remove(&inode);
        }
    }
}
