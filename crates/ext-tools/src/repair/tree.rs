//! The tree of directories: which directory contains what.

use super::fixer::{ByInode, Fixer, put_u16, put_u32};
use crate::fsck::{CheckError, Finding, Location};
use backstitch_ext::format::ROOT_INODE;
use backstitch_ext::format::directory::{OFFSET_INODE, entries};
use backstitch_ext::format::inode::offset;
use backstitch_ext::format::replaced::{Place, name_to_keep};
use backstitch_layout::InodeNumber;
use backstitch_layout::tools::tree::{Directories, NameRepairs};
use std::collections::BTreeSet;

impl Fixer<'_, '_> {
    /// The directories that can be reached from the root, by their places.
    fn reachable(&self) -> Vec<bool> {
        let facts = self.facts;
        facts.names.reachable(&facts.gathered, ROOT_INODE)
    }

    fn is_reachable(&self, is_reached: &[bool], directory: InodeNumber) -> bool {
        let index = self.facts.gathered.directory_index(directory);
        index.is_some_and(|index| is_reached[index])
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
                    if let Some(parent) = self.parents_of(directory).first() {
                        self.set_dot_dot(directory, *parent)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The directories that name this one.
    pub(super) fn parents_of(&self, directory: InodeNumber) -> Vec<InodeNumber> {
        let Some(index) = self.facts.gathered.directory_index(directory) else {
            return Vec::new();
        };
        let names = self.facts.names.of(index).iter();
        names.map(|(_, parent)| *parent).collect()
    }

    /// Keeps one name of a directory. Names that can be reached come first; of those the name that
    /// another directory had before, by [its mark](backstitch_ext::format::replaced), else the name
    /// that `..` agrees with.
    ///
    /// If a directory was being moved into one whose own name never reached the disk, `..` leads to
    /// a directory that cannot be reached. It is set back first. Before that the old parent's link
    /// count is raised again, so that no crash in between leaves a count too low.
    fn settle_names(
        &mut self,
        directory: InodeNumber,
        is_reached: &[bool],
    ) -> Result<(), CheckError> {
        let index = self.facts.gathered.directory_index(directory);
        let dot_dot = index.map_or(InodeNumber::NONE, |index| self.facts.names.parents[index]);
        let all = self.places_of(directory)?;
        let mut names: Vec<Place> = all.clone();
        names.retain(|name| self.is_reachable(is_reached, name.directory));
        if names.is_empty() {
            names = all;
        }
        let agreed = names.iter().find(|name| name.directory == dot_dot).copied();
        let Some(kept) = self
            .marked_name(directory, &names, is_reached)?
            .or(agreed)
            .or(names.first().copied())
        else {
            return Ok(());
        };
        if kept.directory != dot_dot {
            let mut bytes = self.inode_bytes(kept.directory)?;
            let links = u16::from_le_bytes([bytes[offset::LINKS], bytes[offset::LINKS + 1]]);
            put_u16(&mut bytes, offset::LINKS, links.saturating_add(1));
            self.put_inode(kept.directory, &bytes)?;
            self.image.barrier();
            self.set_dot_dot(directory, kept.directory)?;
            self.image.barrier();
        }
        self.remove_names(directory, Some(kept))
    }

    /// The name of a directory that belonged to a directory which it replaced, and which cannot be
    /// reached any more.
    fn marked_name(
        &self,
        directory: InodeNumber,
        names: &[Place],
        is_reached: &[bool],
    ) -> Result<Option<Place>, CheckError> {
        let mut marks = BTreeSet::new();
        for (index, other) in self.facts.gathered.directories.iter().enumerate() {
            if !is_reached[index] {
                marks.insert(self.inode(other.inode)?.version);
            }
        }
        let generation = self.inode(directory)?.generation;
        let is_marked = |mark| marks.contains(&mark);
        Ok(name_to_keep(directory, generation, names, is_marked))
    }

    /// Where a directory has its names.
    fn places_of(&self, directory: InodeNumber) -> Result<Vec<Place>, CheckError> {
        let mut places = Vec::new();
        let parents: BTreeSet<InodeNumber> = self.parents_of(directory).into_iter().collect();
        for parent in parents {
            for (logical, block) in self.directory_blocks(parent) {
                let bytes = self.block(block)?;
                places.extend(
                    names_in(&bytes, logical)
                        .filter(|(_, inode, _)| *inode == directory)
                        .map(|(at, ..)| Place {
                            directory: parent,
                            position_bytes: (logical << self.sb.block_size_bits) + at as u64,
                        }),
                );
            }
        }
        Ok(places)
    }

    /// Removes the names of a directory, but the one `kept`.
    fn remove_names(
        &mut self,
        directory: InodeNumber,
        kept: Option<Place>,
    ) -> Result<(), CheckError> {
        let parents: BTreeSet<InodeNumber> = self.parents_of(directory).into_iter().collect();
        for parent in parents {
            self.remove_entries(parent, &|inode, _, place| {
                inode == directory && kept != Some(place)
            })?;
        }
        Ok(())
    }

    /// Clears the entries of a directory other than `.` and `..` that `is_wanted` names; returns
    /// how many.
    pub(super) fn remove_entries(
        &mut self,
        directory: InodeNumber,
        is_wanted: &dyn Fn(InodeNumber, &[u8], Place) -> bool,
    ) -> Result<usize, CheckError> {
        let mut removed = Vec::new();
        for (logical, block) in self.directory_blocks(directory) {
            let mut bytes = self.block(block)?;
            let before = bytes.clone();
            for (at, inode, name) in names_in(&before, logical) {
                let place = Place {
                    directory,
                    position_bytes: (logical << self.sb.block_size_bits) + at as u64,
                };
                if is_wanted(inode, name, place) {
                    put_u32(&mut bytes, at + OFFSET_INODE, 0);
                    let name = name.escape_ascii();
                    let what = format!("name \"{name}\" of inode {inode} removed");
                    removed.push((block, what));
                }
            }
            if bytes != before {
                self.put_block(block, &bytes)?;
            }
        }
        let count = removed.len();
        for (block, what) in removed {
            self.note(Location::inode(directory).at_block(block), what);
        }
        Ok(count)
    }

    /// Changes the inode of `..`.
    fn set_dot_dot(
        &mut self,
        directory: InodeNumber,
        parent: InodeNumber,
    ) -> Result<(), CheckError> {
        let Some((0, block)) = self.directory_blocks(directory).first().copied() else {
            return Ok(());
        };
        let mut bytes = self.block(block)?;
        let second = entries(&bytes, u32::MAX).map_while(Result::ok).nth(1);
        let Some(at) = second.map(|entry| entry.offset) else {
            return Ok(());
        };
        put_u32(&mut bytes, at + OFFSET_INODE, parent.0);
        self.put_block(block, &bytes)?;
        self.note(Location::inode(directory), format!(".. is {parent} now"));
        Ok(())
    }

    /// Inodes without a name: freed where the image is trusted, else put into `lost+found`.
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
                removed += self.remove_entries(directory.inode, &|_, _, _| true)?;
            }
        }
        if removed > 0 {
            return Ok(());
        }
        self.free_unnamed(found)
    }

    /// Frees inodes without a name, directories from the innermost ones out, so that no `..` ever
    /// leads to a free inode.
    fn free_unnamed(&mut self, found: &ByInode) -> Result<(), CheckError> {
        let facts = self.facts;
        for layer in facts.names.from_within(&facts.gathered, found) {
            for number in layer {
                let mut bytes = self.inode_bytes(number)?;
                self.clear(&mut bytes);
                self.put_inode(number, &bytes)?;
                self.note(Location::inode(number), "freed: it has no name");
            }
            self.image.barrier();
        }
        Ok(())
    }
}

/// The names in a directory's block except `.` and `..`: offset, inode and name of each.
fn names_in(bytes: &[u8], logical: u64) -> impl Iterator<Item = (usize, InodeNumber, &[u8])> {
    let skipped = if logical == 0 { 2 } else { 0 };
    let all = entries(bytes, u32::MAX).map_while(Result::ok).skip(skipped);
    let used = all.filter(|entry| entry.inode != InodeNumber::NONE);
    used.map(|entry| (entry.offset, entry.inode, entry.name))
}
