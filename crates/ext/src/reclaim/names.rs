//! The names: which can be reached, and how many each inode has.

use backstitch_layout::{Error, ReclaimStep, Result};
use backstitch_ordering::{BlockClass, Volume};
use rustc_hash::FxHashMap;

use super::{Phase, Reclaim, drain_unless, kind};
use crate::format::directory::{OFFSET_INODE, TYPE_UNKNOWN, entries};
use crate::format::{Inode, ROOT_INODE};
use crate::index::{Found, corrupt_directory};
use crate::layout::Ext;
use crate::planted::Planted;

/// The type code of directories.
pub(super) const DIRECTORY: u8 = 2;
/// How many blocks of a directory one step looks at.
const BLOCKS_PER_STEP: u64 = 32;

/// Where a name of a directory is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub(super) directory: u32,
    logical: u64,
    block: u64,
    offset: usize,
}

/// A directory that can be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Directory {
    /// The name by which it is reached.
    name: Name,
    /// Where its `..` leads, and where that is.
    parent: u32,
    parent_block: u64,
    parent_offset: usize,
    /// Directories that are reached through it.
    pub(super) children: u16,
}

impl Directory {
    fn new(name: Name) -> Directory {
        Directory {
            name,
            parent: 0,
            parent_block: 0,
            parent_offset: 0,
            children: 0,
        }
    }

    /// The root is its own parent, without a name.
    pub(super) fn root(number: u32) -> Directory {
        Directory::new(Name {
            directory: number,
            logical: 0,
            block: 0,
            offset: 0,
        })
    }
}

/// An entry of a directory block.
struct Seen {
    inode: u32,
    file_type: u8,
    logical: u64,
    block: u64,
    offset: usize,
}

fn corrupt(number: u32, what: impl Into<String>) -> Error {
    Error::corrupt(format!("directory {number}"), what.into())
}

impl Ext {
    /// Walks a part of the directory on top of the stack.
    pub(super) fn walk_directories(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
    ) -> Result<ReclaimStep> {
        let Some((number, from)) = r.stack.last().copied() else {
            r.phase = Phase::Doubles(0);
            return Ok(ReclaimStep::More);
        };
        if r.kind(number) != DIRECTORY {
            return Err(corrupt(number, "it is not a directory, or not in use"));
        }
        let inode = self.read_directory_inode(v, number)?;
        let (seen, to) = self.read_names(v, number, &inode, from)?;
        r.stack.pop();
        if to < self.directory_blocks(&inode) {
            r.stack.push((number, to));
        }
        if from == 0 {
            self.note_parent(r, number, &seen)?;
        }
        let first = if from == 0 { 2 } else { 0 };
        for entry in &seen[first..] {
            self.count_name(r, number, entry)?;
        }
        Ok(ReclaimStep::More)
    }

    /// The names in a part of a directory, checked as far as they can be on their own. The first two are `.` and `..`.
    fn read_names(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
        inode: &Inode,
        from: u64,
    ) -> Result<(Vec<Seen>, u64)> {
        let to = self.directory_blocks(inode).min(from + BLOCKS_PER_STEP);
        let (mut blocks, mut missing) = (Vec::new(), false);
        for logical in from..to {
            if let Some(block) = self.directory_block(v, inode, logical)? {
                missing |= !v.want(block);
                blocks.push((logical, block));
            }
        }
        if missing {
            return Err(Error::Miss);
        }
        let mut seen = Vec::new();
        for (logical, block) in blocks {
            for entry in entries(v.read(block)?, self.sb.inodes_count) {
                let entry = entry.map_err(|e| corrupt_directory(number, logical, e))?;
                if entry.inode == 0 {
                    continue;
                }
                let expected: Option<&[u8]> = match (from, seen.len()) {
                    (0, 0) => Some(b"."),
                    (0, 1) => Some(b".."),
                    _ => None,
                };
                let is_special = entry.name == b"." || entry.name == b"..";
                if expected.is_some_and(|name| name != entry.name || logical > 0)
                    || expected.is_none() && (is_special || entry.name.is_empty())
                {
                    return Err(corrupt(number, "'.' and '..' are not its first two names"));
                }
                seen.push(Seen {
                    inode: entry.inode,
                    file_type: entry.file_type,
                    logical,
                    block,
                    offset: entry.offset,
                });
            }
        }
        if from == 0 && (seen.len() < 2 || seen[0].inode != number) {
            return Err(corrupt(number, "its '.' or its '..' is missing or wrong"));
        }
        Ok((seen, to))
    }

    fn note_parent(&self, r: &mut Reclaim, number: u32, seen: &[Seen]) -> Result<()> {
        let directory = r
            .directories
            .get_mut(&number)
            .ok_or_else(|| corrupt(number, "it is walked but was never found"))?;
        directory.parent = seen[1].inode;
        directory.parent_block = seen[1].block;
        directory.parent_offset = seen[1].offset;
        Ok(())
    }

    fn count_name(&self, r: &mut Reclaim, number: u32, entry: &Seen) -> Result<()> {
        let child = entry.inode;
        let code = r.kind(child);
        if matches!(code, kind::FREE | kind::HELD | kind::RESERVED) || child == ROOT_INODE {
            let what = format!("a name stands for inode {child}, which no name may stand for");
            return Err(corrupt(number, what));
        }
        if self.has_file_types() && entry.file_type != TYPE_UNKNOWN && entry.file_type != code {
            let what = format!("a name says that inode {child} is of another type");
            return Err(corrupt(number, what));
        }
        let names = &mut r.names[child as usize - 1];
        *names = names
            .checked_add(1)
            .ok_or_else(|| Error::corrupt(format!("inode {child}"), "too many names"))?;
        if code != DIRECTORY {
            return Ok(());
        }
        let name = Name {
            directory: number,
            logical: entry.logical,
            block: entry.block,
            offset: entry.offset,
        };
        if r.directories.contains_key(&child) {
            r.doubles.push((child, name));
            return Ok(());
        }
        r.directories.insert(child, Directory::new(name));
        r.stack.push((child, 0));
        add_child(r, number, 1)
    }

    /// A directory with two names, which a move leaves: the one that `..` agrees with stays, unless that would cut the directory
    /// off from the root.
    pub(super) fn settle_double(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        at: usize,
    ) -> Result<ReclaimStep> {
        let Some((child, other)) = r.doubles.get(at).copied() else {
            r.strays = r
                .directories
                .iter()
                .filter(|(_, d)| d.parent != d.name.directory)
                .map(|(number, _)| *number)
                .collect();
            r.strays.sort_unstable();
            r.phase = Phase::Parents(0);
            return Ok(ReclaimStep::More);
        };
        let directory = r.directories[&child];
        let other_is_right = directory.parent == other.directory
            && directory.parent != directory.name.directory
            && !is_inside(r, other.directory, child);
        let gone = if other_is_right {
            directory.name
        } else {
            other
        };
        self.clear_double(v, child, &gone)?;
        r.names[child as usize - 1] -= 1;
        if other_is_right {
            add_child(r, other.directory, 1)?;
            add_child(r, gone.directory, -1)?;
            r.directories.entry(child).and_modify(|d| d.name = other);
        }
        r.phase = Phase::Doubles(at + 1);
        Ok(ReclaimStep::More)
    }

    fn clear_double(&mut self, v: &mut Volume<'_>, child: u32, name: &Name) -> Result<()> {
        let bytes = v.read(name.block)?;
        let text = entries(bytes, self.sb.inodes_count)
            .map_while(std::result::Result::ok)
            .find(|e| e.offset == name.offset && e.inode == child)
            .map(|e| e.name.to_vec())
            .ok_or_else(|| corrupt(name.directory, "a name has changed meanwhile"))?;
        let found = Found {
            inode: child,
            block: name.block,
            offset: name.offset,
            logical: name.logical,
        };
        let cleared = self.clear_name(v, &found, &[]);
        self.index_removed(v, name.directory, &text, name.logical, name.block);
        self.note_removal(v, name.directory, &text, cleared);
        Ok(())
    }

    /// Makes a `..` lead to the directory by which the directory is reached. (It leads elsewhere where a move was cut short and the
    /// new parent cannot be reached itself.)
    pub(super) fn correct_parent(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        at: usize,
    ) -> Result<ReclaimStep> {
        let Some(number) = r.strays.get(at) else {
            r.phase = Phase::Orphans { inode: 1, block: 0 };
            if r.strays.is_empty() {
                return Ok(ReclaimStep::More);
            }
            // A name that `..` agrees with stays until `..` is corrected, even where nobody can reach it.
            return Ok(drain_unless(Planted::ReclaimClearsBeforeParents));
        };
        let directory = r.directories[number];
        v.read(directory.parent_block)?;
        v.write(
            directory.parent_block,
            BlockClass::Directory,
            directory.parent_offset + OFFSET_INODE,
            &directory.name.directory.to_le_bytes(),
            &[],
        );
        r.phase = Phase::Parents(at + 1);
        Ok(ReclaimStep::More)
    }

    /// Takes a part of the names out of a directory that cannot be reached: what they stand for is about to die, and no name on the
    /// disk may stand for what is dead.
    pub(super) fn clear_orphan(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        inode: u32,
        block: u64,
    ) -> Result<ReclaimStep> {
        let is_orphan = |i: &u32| r.kind(*i) == DIRECTORY && !r.directories.contains_key(i);
        let Some(number) = (inode..=self.sb.inodes_count).find(is_orphan) else {
            r.orphans = children_first(&r.orphans);
            r.phase = Phase::KillOrphans(0);
            return Ok(drain_unless(Planted::ReclaimKillsEarly));
        };
        let from = if number == inode { block } else { 0 };
        let orphan = self.read_directory_inode(v, number)?;
        let (seen, to) = self.read_names(v, number, &orphan, from)?;
        let first = if from == 0 { 2 } else { 0 };
        for entry in &seen[first..] {
            let found = Found {
                inode: entry.inode,
                block: entry.block,
                offset: entry.offset,
                logical: entry.logical,
            };
            self.clear_name(v, &found, &[]);
        }
        if from == 0 {
            r.orphans.push((number, seen[1].inode));
        }
        r.phase = if to < self.directory_blocks(&orphan) {
            Phase::Orphans {
                inode: number,
                block: to,
            }
        } else {
            Phase::Orphans {
                inode: number + 1,
                block: 0,
            }
        };
        Ok(ReclaimStep::More)
    }
}

/// Orders directories such that each comes before the one that its `..` leads to.
fn children_first(orphans: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let parents: FxHashMap<u32, u32> = orphans.iter().copied().collect();
    let mut depths: FxHashMap<u32, u32> = FxHashMap::default();
    for (orphan, _) in orphans {
        let (mut path, mut at) = (Vec::new(), *orphan);
        // Ends at what has its depth, what is no orphan, and (on a damaged image) where a cycle closes.
        while !depths.contains_key(&at)
            && let Some(parent) = parents.get(&at)
        {
            depths.insert(at, 0);
            path.push(at);
            at = *parent;
        }
        let mut depth = depths.get(&at).copied().unwrap_or(0);
        for number in path.into_iter().rev() {
            depth += 1;
            depths.insert(number, depth);
        }
    }
    let mut ordered = orphans.to_vec();
    ordered.sort_by_key(|(orphan, _)| std::cmp::Reverse(depths[orphan]));
    ordered
}

fn add_child(r: &mut Reclaim, directory: u32, by: i16) -> Result<()> {
    let found = r
        .directories
        .get_mut(&directory)
        .and_then(|d| Some((d.children.checked_add_signed(by)?, d)));
    let Some((children, d)) = found else {
        return Err(corrupt(directory, "too many directories in it"));
    };
    d.children = children;
    Ok(())
}

/// Whether `inner` is `outer` or below it. The names by which directories are reached always make a tree.
fn is_inside(r: &Reclaim, inner: u32, outer: u32) -> bool {
    let mut at = inner;
    while at != outer {
        if at == ROOT_INODE {
            return false;
        }
        match r.directories.get(&at) {
            Some(directory) => at = directory.name.directory,
            None => return true,
        }
    }
    true
}
