//! Who contains what.

use super::fixer::{ByInode, Fixer};
use crate::entries;
use crate::fsck::{CheckError, Finding, Location};
use backstitch_blocks::directory::OFFSET_INODE;
use backstitch_layout::InodeNumber;
use backstitch_layout::tools::tree::{Directories, NameRepairs};
use backstitch_ufs::format::{LINK_MAX, ROOT_INODE};
use std::collections::BTreeSet;

impl Fixer<'_, '_> {
    /// The directories that can be reached from the root, by their places.
    fn reachable(&self) -> Vec<bool> {
        let facts = self.facts;
        facts.names.reachable(&facts.gathered, ROOT_INODE)
    }

    /// Names and `..` of directories, one kind of damage a round.
    pub(super) fn names(&mut self, findings: &[&Finding]) -> Result<(), CheckError> {
        match NameRepairs::of(findings) {
            NameRepairs::Many(directories) => {
                let is_reached = self.reachable();
                for directory in directories {
                    self.settle_names(directory, &is_reached)?;
                }
            }
            NameRepairs::Cycles(directories) => {
                for directory in directories {
                    self.remove_names(directory, None)?;
                }
            }
            NameRepairs::DotDots(directories) => {
                for directory in directories {
                    let parent = self.parent_of(directory);
                    self.set_dot_dot(directory, parent)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps one name of a directory: one that can be reached, of those the one that `..` agrees
    /// with.
    ///
    /// Where `..` leads elsewhere it is led to the kept name's directory first, and before that this
    /// counts it, so that no crash in between leaves a count too low.
    fn settle_names(
        &mut self,
        directory: InodeNumber,
        is_reached: &[bool],
    ) -> Result<(), CheckError> {
        let gathered = &self.facts.gathered;
        let Some(index) = gathered.directory_index(directory) else {
            return Ok(());
        };
        let dot_dot = self.facts.names.parents[index];
        let all: Vec<InodeNumber> = self
            .facts
            .names
            .of(index)
            .iter()
            .map(|(_, parent)| *parent)
            .collect();
        let is_reachable = |parent: &InodeNumber| {
            let place = gathered.directory_index(*parent);
            place.is_some_and(|place| is_reached[place])
        };
        let mut parents: Vec<InodeNumber> = all.iter().copied().filter(is_reachable).collect();
        if parents.is_empty() {
            parents = all;
        }
        let agreed = parents.iter().find(|parent| **parent == dot_dot);
        let Some(kept) = agreed.or(parents.first()).copied() else {
            return Ok(());
        };
        if kept != dot_dot {
            let mut inode = self.inode_bytes(kept)?;
            let links = inode.parse()?.links;
            inode.set_links(links.saturating_add(1).min(LINK_MAX));
            self.put_inode(kept, &inode)?;
            self.image.barrier();
            self.set_dot_dot(directory, kept)?;
            self.image.barrier();
        }
        self.remove_names(directory, Some(kept))
    }

    /// Removes the names of a directory, but the first in the directory `kept`.
    fn remove_names(
        &mut self,
        directory: InodeNumber,
        kept: Option<InodeNumber>,
    ) -> Result<(), CheckError> {
        let Some(index) = self.facts.gathered.directory_index(directory) else {
            return Ok(());
        };
        let names = self.facts.names.of(index).iter();
        let parents: BTreeSet<InodeNumber> = names.map(|(_, parent)| *parent).collect();
        for parent in parents {
            let mut may_keep = kept == Some(parent);
            self.remove_entries(parent, |inode, _| {
                inode == directory && !std::mem::take(&mut may_keep)
            })?;
        }
        Ok(())
    }

    /// Leads `..` elsewhere.
    fn set_dot_dot(
        &mut self,
        directory: InodeNumber,
        parent: InodeNumber,
    ) -> Result<(), CheckError> {
        let Some(chunk) = self.chunks(directory).into_iter().find(|chunk| chunk.2) else {
            return Ok(());
        };
        let mut bytes = self.read_chunk(chunk)?;
        let second = entries::entries(self.sb.order, &bytes)
            .map_while(Result::ok)
            .nth(1);
        let Some(at) = second.map(|entry| entry.offset) else {
            return Ok(());
        };
        let field = &mut bytes[at + OFFSET_INODE..][..4];
        field.copy_from_slice(&self.sb.order.bytes_of_u32(parent.0));
        self.write_chunk(chunk, &bytes)?;
        self.note(Location::inode(directory), format!(".. is {parent} now"));
        Ok(())
    }

    /// What has no name: cleared where the image is trusted, and otherwise put into `lost+found`.
    pub(super) fn unconnected(&mut self, found: &ByInode) -> Result<(), CheckError> {
        if !self.is_trusted {
            return self.reconnect(found);
        }
        // First the names in directories that nobody can reach, at every depth, so that no count is
        // ever too low.
        let is_reached = self.reachable();
        let mut removed = 0;
        for (index, directory) in self.facts.gathered.directories.iter().enumerate() {
            if !is_reached[index] {
                removed += self.remove_entries(directory.inode, |_, _| true)?;
            }
        }
        if removed > 0 {
            return Ok(());
        }
        self.free_unnamed(found)
    }

    /// Frees what has no name; directories from the innermost ones out, so that no `..` ever leads
    /// to what is free already.
    fn free_unnamed(&mut self, found: &ByInode) -> Result<(), CheckError> {
        let facts = self.facts;
        for layer in facts.names.from_within(&facts.gathered, found) {
            for number in layer {
                let mut inode = self.inode_bytes(number)?;
                inode.clear();
                self.put_inode(number, &inode)?;
                self.note(Location::inode(number), "freed: it has no name");
            }
            self.image.barrier();
        }
        Ok(())
    }

    /// Clears the inodes that had lost their last name when a mount with order was cut off.
    pub(super) fn clear_dead(&mut self) -> Result<(), CheckError> {
        let facts = self.facts;
        let used = facts.gathered.used_inodes(&facts.sb);
        for (number, _) in used.filter(|(_, info)| info.is_dead && info.names.get() == 0) {
            let mut inode = self.inode_bytes(number)?;
            inode.clear();
            self.put_inode(number, &inode)?;
            self.note(Location::inode(number), "freed: it has no name");
        }
        self.image.barrier();
        Ok(())
    }
}
