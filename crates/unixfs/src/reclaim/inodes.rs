//! The inodes: which are in use, which have no name, and how many names the others count.

use backstitch_layout::{
    Changed, Error, GroupNumber, InodeNumber, ReclaimStep, Step, Stop, Structure, Timestamp,
};
use backstitch_ordering::{PatchId, Volume};

use crate::fault::Fault;
use crate::format::{Format, Inode, InodeEditor};
use crate::rules::{Rule, holds, wait_for_all};
use crate::space::read_bits;
use crate::state::UnixFs;
use crate::state::reclaim::DIRECTORY;
use crate::state::reclaim::{Phase, Reclaim, code_of, kind};

/// How many blocks of an inode table one step looks at.
const TABLE_BLOCKS_PER_STEP: usize = 32;
/// How many inodes one step changes at most.
const INODES_PER_STEP: u32 = 256;
/// Inodes without names that are marked as dead before that is on the disk and more are marked.
const KILLED_TOGETHER: u32 = 4096;
fn corrupt(number: InodeNumber, fault: Fault) -> Error {
    Error::corrupt(Structure::inode(number), fault)
}

impl<F: Format> UnixFs<F> {
    /// Notes what the inodes are, in a few blocks of a group's table. Blocks without a marked inode
    /// are passed over.
    pub(super) fn scan_inodes(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        group: GroupNumber,
        from: u64,
    ) -> Step<ReclaimStep> {
        if group.0 >= self.format.groups_count() {
            r.end_of_scan();
            if F::CLEARS_FREED {
                let next = r.phase;
                r.end_phase(v, next, Rule::ReclaimFreesAfterClearing);
            }
            return Ok(ReclaimStep::More);
        }
        let per_block = u64::from(self.format.inodes_per_block());
        let bits = self.format.inode_bits(group);
        let bytes = read_bits(v, &bits)?.into_owned();
        let marks = bits.marks(&bytes);
        let per_group = self.format.inodes_per_group() as usize;
        let (mut blocks, mut missing) = (Vec::new(), false);
        let mut at = (from * per_block) as usize;
        while blocks.len() < TABLE_BLOCKS_PER_STEP
            && let Some(found) = marks.first_used(at, per_group)
        {
            let block = found as u64 / per_block;
            let first = (block * per_block) as usize;
            at = (first + per_block as usize).min(per_group);
            let number = self.format.group_first_inode(group) + first as u32;
            missing |= !v.want(self.format.inode_place(number)?.0);
            blocks.push((first, at));
        }
        let is_over = blocks.len() < TABLE_BLOCKS_PER_STEP;
        if missing {
            return Err(Stop::Miss);
        }
        for (first, end) in blocks {
            for index in first..end {
                let number = self.format.group_first_inode(group) + index as u32;
                // What was made or lost its last name since the crash is known already.
                if r.kind(number) == kind::FREE {
                    let found = self.kind_of(v, r, number, marks.is_used(index))?;
                    r.set_kind(number, found);
                }
            }
        }
        r.phase = match is_over {
            true => Phase::Scan {
                group: group.next(),
                block: 0,
            },
            false => Phase::Scan {
                group,
                block: at as u64 / per_block,
            },
        };
        Ok(ReclaimStep::More)
    }

    /// What an inode is. Where a format clears freed inodes, one that lost its last name before the
    /// crash is cleared.
    fn kind_of(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: InodeNumber,
        is_marked: bool,
    ) -> Step<u8> {
        if number < self.format.first_inode() && number != F::ROOT_INODE {
            return Ok(kind::RESERVED);
        }
        let inode = self.read_any_inode(v, number)?;
        if inode.links() == 0 {
            // Its bit and its blocks are free once it is cleared. What its map leads to need never
            // have been written.
            let is_dead = F::CLEARS_FREED && is_marked && inode.mode() != 0;
            if is_dead && holds(Rule::ReclaimClearsDeadInodes) {
                let cleared = v.hidden(true, |v| self.edit_inode(v, number, &[], |e| e.clear()));
                r.note_change(v, cleared);
            }
            return Ok(kind::FREE);
        }
        if !is_marked {
            return Err(corrupt(number, Fault::InUseButFree).into());
        }
        if let Some(fault) = self.format.map_fault(&inode) {
            return Err(corrupt(number, Fault::ForeignMap(fault)).into());
        }
        let file_type = inode
            .file_type()
            .ok_or_else(|| corrupt(number, Fault::ModeOfNoType { mode: inode.mode() }))?;
        Ok(code_of(file_type))
    }

    /// Marks directories that cannot be reached as deleted: each before the one that its `..` leads
    /// to, since no `..` on the disk may stand for what is dead.
    pub(super) fn kill_orphans(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        at: usize,
        now: Timestamp,
    ) -> Step<ReclaimStep> {
        let to = r.orphans.len().min(at + INODES_PER_STEP as usize);
        let part = r.orphans[at..to].to_vec();
        self.want_inodes(v, part.iter().map(|(orphan, _)| *orphan))?;
        for (orphan, parent) in part {
            let after = r.deaths.remove(&orphan).unwrap_or_default();
            let after = wait_for_all(Rule::ReclaimKillsChildrenFirst, &after);
            self.state(orphan).clearings.extend_from_slice(after);
            let death = self.kill(v, r, orphan, now)?;
            r.deaths.entry(parent).or_default().push(death);
        }
        r.phase = if to < r.orphans.len() {
            Phase::KillOrphans(to)
        } else {
            Phase::Kill(InodeNumber::FIRST)
        };
        Ok(ReclaimStep::More)
    }

    /// Treats an inode that no name stands for as one that lost its last name: it goes with the
    /// last reference, or at once.
    fn kill(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: InodeNumber,
        now: Timestamp,
    ) -> Step<PatchId> {
        let inode = self.read_any_inode(v, number)?;
        r.hold(number, inode.is_directory());
        let death = self.free_inode(v, number, now);
        r.note_change(v, death);
        r.freed_inodes += 1;
        r.freed_blocks += inode.sectors() / self.sectors_per_block();
        Ok(death)
    }

    /// Marks inodes without names as deleted.
    pub(super) fn kill_inodes(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        from: InodeNumber,
        now: Timestamp,
    ) -> Step<ReclaimStep> {
        let is_dead = |i: &InodeNumber| {
            !matches!(r.kind(*i), kind::FREE | DIRECTORY | kind::NEW..) && r.names_of(*i) == 0
        };
        let dead: Vec<InodeNumber> = from
            .through(self.format.last_inode())
            .filter(is_dead)
            .take(INODES_PER_STEP as usize)
            .collect();
        self.want_inodes(v, dead.iter().copied())?;
        for number in &dead {
            self.kill(v, r, *number, now)?;
        }
        r.killed += dead.len() as u32;
        match dead.last() {
            None => r.end_phase(
                v,
                Phase::Correct(InodeNumber::FIRST),
                Rule::ReclaimCorrectsAfterDeaths,
            ),
            // What they have is free once they are dead on the disk.
            Some(last) if r.killed >= KILLED_TOGETHER => {
                r.killed = 0;
                r.end_phase(v, Phase::Kill(*last + 1), Rule::ReclaimCorrectsAfterDeaths);
            }
            Some(last) => r.phase = Phase::Kill(*last + 1),
        }
        Ok(ReclaimStep::More)
    }

    pub(super) fn want_inodes(
        &mut self,
        v: &mut Volume<'_>,
        inodes: impl Iterator<Item = InodeNumber>,
    ) -> Step<()> {
        let mut missing = false;
        for number in inodes {
            let (block, _) = self.format.inode_place(number)?;
            missing |= !v.want(block);
        }
        if missing { Err(Stop::Miss) } else { Ok(()) }
    }

    /// Corrects the link counts of live inodes, from one on. A count that is too low is not what
    /// soft updates leave: somebody could free what has a name.
    pub(super) fn correct_links(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        from: InodeNumber,
        now: Timestamp,
    ) -> Step<ReclaimStep> {
        let live: Vec<InodeNumber> = from
            .through(self.format.last_inode())
            .filter(|i| r.may_count_wrong(*i))
            .take(INODES_PER_STEP as usize)
            .collect();
        self.want_inodes(v, live.iter().copied())?;
        for number in &live {
            self.correct_links_of(v, r, *number, now)?;
        }
        match live.last() {
            Some(last) => r.phase = Phase::Correct(*last + 1),
            None => return Ok(ReclaimStep::Done),
        }
        Ok(ReclaimStep::More)
    }

    fn correct_links_of(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        number: InodeNumber,
        now: Timestamp,
    ) -> Step<()> {
        let directory = r.directories.get(&number);
        let links = directory.map_or(r.names_of(number), |d| d.children.saturating_add(2));
        if links == 0 {
            // It lost its last name after the others without one were found.
            r.hold(number, false);
            self.free_inode(v, number, now);
            return Ok(());
        }
        let found = self.read_any_inode(v, number)?.links();
        if found < links {
            return Err(corrupt(number, Fault::LinksTooLow { found, links }).into());
        }
        if found > links {
            self.edit_inode(v, number, &[], |e| e.set_links(links));
            self.changed.push(Changed::Attributes(number));
        }
        Ok(())
    }
}
