//! The names: which can be reached, and how many each inode has.

use std::collections::BTreeSet;

use backstitch_layout::{
    BlockNumber, Changed, Error, InodeNumber, ReclaimStep, Step, Stop, Structure,
};
use backstitch_ordering::{PatchId, Volume};
use rustc_hash::FxHashMap;

use crate::fault::Fault;
use crate::format::{Format, Inode};
use crate::index::corrupt_directory;
use crate::rules::{Rule, holds, note_by, wait_for};
use crate::state::UnixFs;
use crate::state::reclaim::{DIRECTORY, Phase, Reclaim, code_of, kind};
use backstitch_blocks::directory::Found;
use backstitch_blocks::directory::{EntryLayout, OFFSET_INODE, TYPE_UNKNOWN, entries};
use backstitch_blocks::replaced::{Place, name_to_keep};

/// How many blocks of a directory one step looks at.
const BLOCKS_PER_STEP: u64 = 32;
/// How many inodes of directories without a name one step looks at.
const INODES_PER_STEP: usize = 256;

/// An entry of a directory block.
struct Seen {
    inode: InodeNumber,
    file_type: u8,
    logical: u64,
    block: BlockNumber,
    offset: usize,
}

/// A name of a directory that has several.
struct NameOf {
    /// The directory that has it.
    holder: InodeNumber,
    found: Found,
    name: Vec<u8>,
}

fn corrupt(number: InodeNumber, fault: Fault) -> Error {
    Error::corrupt(Structure::directory(number), fault)
}

impl<F: Format> UnixFs<F> {
    /// Walks a part of the directory on top of the stack.
    pub(super) fn walk_directories(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
    ) -> Step<ReclaimStep> {
        let Some(number) = r.stack.last().copied() else {
            if r.is_settled {
                return self.end_of_asides(r);
            }
            r.doubles = r.further.keys().copied().collect();
            r.doubles.sort_unstable();
            r.phase = match r.doubles.is_empty() {
                true => Phase::Doubles(0),
                false => Phase::Replaced(InodeNumber::FIRST),
            };
            return Ok(ReclaimStep::More);
        };
        // It may have been removed since it was found, and its number may stand for another one.
        let Some(from) = r.directories.get(&number).map(|d| d.walked) else {
            r.stack.pop();
            return Ok(ReclaimStep::More);
        };
        if from == u64::MAX {
            r.stack.pop();
            return Ok(ReclaimStep::More);
        }
        if r.kind(number) != DIRECTORY {
            return Err(corrupt(number, Fault::NotADirectory).into());
        }
        let inode = self.read_directory_inode(v, number)?;
        r.walking = (number, inode.links());
        let (seen, to) = self.read_names(v, number, &inode, from)?;
        let ends = to >= self.directory_blocks(&inode);
        if let Some(directory) = r.directories.get_mut(&number) {
            // What it gets later is counted when it comes.
            directory.walked = if ends { u64::MAX } else { to };
            if from == 0 {
                directory.dotdot = seen[1].inode;
            }
        }
        if ends {
            r.stack.pop();
        }
        let first = if from == 0 { 2 } else { 0 };
        for entry in &seen[first..] {
            self.check_name(r, number, entry)?;
            r.count_name(number, entry.inode, r.is_directory(entry.inode))?;
        }
        Ok(ReclaimStep::More)
    }

    /// The directories that could not be read at first have been walked.
    fn end_of_asides(&self, r: &mut Reclaim) -> Step<ReclaimStep> {
        if let Some(child) = r.further.keys().next() {
            return Err(corrupt(*child, Fault::SecondNameNotCounted).into());
        }
        r.find_strays();
        Ok(ReclaimStep::More)
    }

    /// The names in a part of a directory, checked as far as they can be on their own. The first
    /// two are `.` and `..`.
    fn read_names(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        from: u64,
    ) -> Step<(Vec<Seen>, u64)> {
        let to = self.directory_blocks(inode).min(from + BLOCKS_PER_STEP);
        let (mut blocks, mut missing) = (Vec::new(), false);
        for logical in from..to {
            if let Some(block) = self.directory_block(v, inode, logical)? {
                missing |= !v.want(block);
                blocks.push((logical, block));
            }
        }
        if missing {
            return Err(Stop::Miss);
        }
        let mut seen = Vec::new();
        for (logical, block) in blocks {
            let bytes = self.entries_part(inode, logical, v.read(block)?);
            for entry in entries::<F::Entries>(bytes, self.format.inodes_count()) {
                let entry = entry.map_err(|e| corrupt_directory(number, logical, e))?;
                if entry.inode == InodeNumber::NONE {
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
                    return Err(corrupt(number, Fault::DotsNotFirst).into());
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
            return Err(corrupt(number, Fault::DotsWrong).into());
        }
        Ok((seen, to))
    }

    /// Checks that a name stands for what is in use, and says of which type that is.
    fn check_name(&self, r: &Reclaim, number: InodeNumber, entry: &Seen) -> Step<()> {
        let child = entry.inode;
        let code = r.kind(child);
        if matches!(
            code,
            kind::FREE | kind::HELD | kind::HELD_DIRECTORY | kind::RESERVED
        ) || child == F::ROOT_INODE
        {
            let fault = Fault::NameOfUnnameable { inode: child };
            return Err(corrupt(number, fault).into());
        }
        let is_new = matches!(code, kind::NEW | kind::NEW_DIRECTORY);
        if self.format.has_file_types()
            && entry.file_type != TYPE_UNKNOWN
            && F::Entries::type_of_code(entry.file_type).map(code_of) != Some(code)
            && !is_new
        {
            let fault = Fault::NameOfOtherType { inode: child };
            return Err(corrupt(number, fault).into());
        }
        Ok(())
    }

    /// Settles a directory with several names, which a move leaves: one stays. That is the one that
    /// another directory had before, if that one's mark says so; else the one that `..` agrees
    /// with, unless that would cut the directory off from the root.
    pub(super) fn settle_double(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        at: usize,
    ) -> Step<ReclaimStep> {
        let Some(child) = r.doubles.get(at).copied() else {
            r.find_strays();
            return Ok(ReclaimStep::More);
        };
        let Some((directory, further)) = r.directories.get(&child).zip(r.further.get(&child))
        else {
            r.phase = Phase::Doubles(at + 1);
            return Ok(ReclaimStep::More);
        };
        let (parent, mut dotdot) = (directory.parent, directory.dotdot);
        let further = further.clone();
        let mut holders = further.clone();
        if dotdot == InodeNumber::NONE {
            // It was put aside.
            let inode = self.read_directory_inode(v, child)?;
            dotdot = self.find_dotdot(v, child, &inode)?.inode;
            r.set_dotdot(child, dotdot);
        }
        holders.push(parent);
        let agreed = if further.contains(&dotdot) && !r.is_inside(dotdot, child) {
            dotdot
        } else {
            parent
        };
        let names = self.names_of(v, &holders, child)?;
        let kept = self.marked_name(v, r, child, &names)?;
        let kept = kept.or_else(|| names.iter().position(|n| n.holder == agreed));
        let mut after = Vec::new();
        if let Some(holder) = kept.map(|at| names[at].holder)
            && holders.contains(&dotdot)
            && holder != dotdot
        {
            // The name that `..` agrees with stays until `..` agrees with the one that is kept.
            let led = self.lead_dotdot(v, r, child, holder)?;
            after.push(wait_for(Rule::ReclaimClearsAfterDotDot, led));
        }
        for (_, name) in names.iter().enumerate().filter(|(n, _)| Some(*n) != kept) {
            self.clear_second_name(v, r, name, &after);
            r.drop_name(name.holder, child, true);
        }
        r.phase = Phase::Doubles(at + 1);
        Ok(ReclaimStep::More)
    }

    /// Which of a directory's names another directory had that was replaced, by its mark.
    fn marked_name(
        &mut self,
        v: &mut Volume<'_>,
        r: &Reclaim,
        child: InodeNumber,
        names: &[NameOf],
    ) -> Step<Option<usize>> {
        let generation = self.read_directory_inode(v, child)?.generation();
        let places: Vec<Place> = names
            .iter()
            .map(|name| self.place_of(name.holder, &name.found))
            .collect();
        let is_marked = |mark| r.marks.contains(&mark) && holds(Rule::ReclaimHeedsMarks);
        let kept = name_to_keep(child, generation, &places, is_marked);
        let kept = kept.and_then(|kept| places.iter().position(|place| *place == kept));
        Ok(kept.filter(|at| !r.is_inside(names[*at].holder, child)))
    }

    /// Collects the marks of directories that cannot be reached.
    pub(super) fn note_marks(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        from: InodeNumber,
    ) -> Step<ReclaimStep> {
        let is_orphan = |i: &InodeNumber| r.kind(*i) == DIRECTORY && !r.directories.contains_key(i);
        let part: Vec<InodeNumber> = from
            .through(self.format.last_inode())
            .filter(is_orphan)
            .take(INODES_PER_STEP)
            .collect();
        self.want_inodes(v, part.iter().copied())?;
        for number in &part {
            let mark = self.read_any_inode(v, *number)?.mark();
            r.marks.extend((mark != 0).then_some(mark));
        }
        r.phase = match part.last() {
            Some(last) => Phase::Replaced(*last + 1),
            None => Phase::Doubles(0),
        };
        Ok(ReclaimStep::More)
    }

    /// All names that a directory has in others.
    fn names_of(
        &mut self,
        v: &mut Volume<'_>,
        holders: &[InodeNumber],
        child: InodeNumber,
    ) -> Step<Vec<NameOf>> {
        let mut all = Vec::new();
        let once: BTreeSet<InodeNumber> = holders.iter().copied().collect();
        for holder in once {
            let inode = self.read_directory_inode(v, holder)?;
            let names = self.find_by_inode(v, holder, &inode, child)?;
            if names.is_empty() {
                let fault = Fault::NameGone { inode: child };
                return Err(corrupt(holder, fault).into());
            }
            all.extend(names.into_iter().map(|(found, name)| NameOf {
                holder,
                found,
                name,
            }));
        }
        Ok(all)
    }

    /// Takes a directory's name out of another one.
    fn clear_second_name(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        name: &NameOf,
        after: &[PatchId],
    ) {
        let (holder, child) = (name.holder, name.found.inode);
        // The name that stays is on the disk: nothing moves a directory from before the crash
        // before the names are settled.
        let cleared = self.clear_name(v, holder, &name.found, after);
        self.index_removed(holder, &name.name, &name.found);
        for inode in [holder, child] {
            // A program that syncs it does not see the name come back.
            let noted = note_by(Rule::FsyncOfDirectoryWaitsForRemoval, cleared);
            self.note_change(v, inode, noted);
        }
        if holds(Rule::ReclaimedNameIsRemoval) {
            self.note_removal(v, holder, &name.name, cleared);
        }
        if holds(Rule::ReclaimedNameIsClearing) {
            self.note_clearing(v, child, None, cleared);
        }
        self.changed.push(Changed::Name {
            directory: holder,
            name: name.name.clone(),
        });
        r.note_change(v, cleared);
    }

    /// Makes a `..` lead to the directory by which the directory is reached. (It leads elsewhere
    /// where a move was cut short and the new parent cannot be reached itself.)
    pub(super) fn correct_parent(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        at: usize,
    ) -> Step<ReclaimStep> {
        let Some(number) = r.strays.get(at).copied() else {
            // A name that `..` agrees with stays until `..` is corrected, even where nobody can
            // reach it.
            let again = std::mem::replace(&mut r.is_settled, true);
            let next = match r.postponed.take() {
                _ if again => Phase::ORPHANS,
                Some(maps) => maps,
                None => r.after_maps_and_names(),
            };
            r.end_phase(v, next, Rule::ReclaimOrphansAfterParents);
            return Ok(ReclaimStep::More);
        };
        // A directory made since then may have been removed again.
        let parent = r.directories.get(&number).map(|d| d.parent);
        if let Some(parent) = parent.filter(|parent| *parent != InodeNumber::NONE) {
            self.lead_dotdot(v, r, number, parent)?;
        }
        r.phase = Phase::Parents(at + 1);
        Ok(ReclaimStep::More)
    }

    /// Makes a `..` lead to `parent`, if it does not.
    fn lead_dotdot(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: InodeNumber,
        parent: InodeNumber,
    ) -> Step<PatchId> {
        let inode = self.read_directory_inode(v, number)?;
        let dotdot = self.find_dotdot(v, number, &inode)?;
        r.set_dotdot(number, parent);
        if dotdot.inode == parent {
            // The move has seen to that.
            return Ok(PatchId::COMMITTED);
        }
        let place = (dotdot.block, dotdot.offset + OFFSET_INODE);
        let parent = F::Entries::encode_inode(parent);
        let id = self.change_entry(v, number, place, &parent, &[]);
        r.note_change(v, id);
        Ok(id)
    }

    /// Takes a part of the names out of a directory that cannot be reached: what they stand for is
    /// about to die, and no name on the disk may stand for what is dead.
    pub(super) fn clear_orphan(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        inode: InodeNumber,
        block: u64,
    ) -> Step<ReclaimStep> {
        let is_orphan = |i: &InodeNumber| r.kind(*i) == DIRECTORY && !r.directories.contains_key(i);
        let Some(number) = inode.through(self.format.last_inode()).find(is_orphan) else {
            r.orphans = children_first(&r.orphans);
            r.end_phase(v, Phase::KillOrphans(0), Rule::ReclaimKillsAfterClearings);
            return Ok(ReclaimStep::More);
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
            let cleared = self.clear_name(v, number, &found, &[]);
            r.note_change(v, cleared);
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
fn children_first(orphans: &[(InodeNumber, InodeNumber)]) -> Vec<(InodeNumber, InodeNumber)> {
    let parents: FxHashMap<InodeNumber, InodeNumber> = orphans.iter().copied().collect();
    let mut depths: FxHashMap<InodeNumber, u32> = FxHashMap::default();
    for (orphan, _) in orphans {
        let (mut path, mut at) = (Vec::new(), *orphan);
        // Ends at what has its depth, what is no orphan, and (on a damaged image) where a cycle
        // closes.
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
