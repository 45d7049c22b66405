//! The reclaim: what a crash left is found and given back, while the file system is in use.
//!
//! After a crash the image is trusted as soft updates leave it: what is marked as used may not be,
//! and counts may be too high. Nothing of that does harm, so the reclaim works in the background,
//! in steps that look at a bounded number of blocks each:
//!
//! 1. *scan* the inode tables for what is in use, and of which type;
//! 2. look at the *maps* of all that is in use, whether it has a name or not: correct block counts,
//!    take out blocks beyond the size, and note all blocks that are mapped; then *free* in the
//!    bitmaps, group after group, what nobody noted;
//! 3. *walk* all directories from the root on, counting names; settle directories with two names,
//!    and correct each `..` that leads elsewhere. From then on the names are *settled*;
//! 4. once that is on the disk, take the names out of directories that nobody can reach, and then,
//!    once that is on the disk, mark everything without a name as *dead*: what it has is freed as
//!    that of any removed file is, each as soon as its end is on the disk;
//! 5. once that is on the disk, *correct* the link counts of what lives.
//!
//! The second and the third need nothing of each other. The second comes first, for it gives back
//! space; a caller that has to wait for the names has them change places.
//!
//! Blocks are freed for one reason alone: no inode in use maps them. So no fault elsewhere can make
//! the reclaim free what is in use. Whatever soft updates cannot have left is taken for corruption
//! and ends the reclaim; the image is then not called clean.
//!
//! # Cut off
//!
//! Every change is an ordinary patch, and each phase is on the disk before one begins that relies
//! on it: a crash in between leaves what any crash may leave. What was freed or corrected until
//! then stays so, and the next reclaim has less to do. What was *seen* is not kept: a crash may
//! have left more since, anywhere. So what lies before the first block that is freed is a look at
//! all inodes and their maps, and before the first nameless inode a look at all names; behind these
//! everything counts at once.
//!
//! # While in use
//!
//! Each step is one of many operations under the engine's lock, and others come between. That they
//! may rests on two facts. What a crash left stays as it is: what is marked as used is given to
//! nobody, and what cannot be reached stays out of reach. And every operation changes a count and
//! what it counts by the same amount, so that what is too much by the crash stays constant. So it
//! is enough to be told (see [`tracking`]) what operations do to the part of the file system that
//! was looked at already:
//!
//! - names that come and go in the part of a directory that was walked are counted; a directory
//!   that gets a name there is walked too (the walk misses nothing, as with the write barrier of an
//!   incremental garbage collector);
//! - blocks that are allocated, unmapped or freed are *touched*: they are the operations' business,
//!   and never freed here;
//! - inodes that are made are new, and right in everything; those that lose their last name are
//!   freed by the operation that took it.
//!
//! What would change the name of a directory from before the crash waits until the names are
//! settled: it may have two.

mod bitmaps;
mod inodes;
mod maps;
mod names;
mod tracking;

use backstitch_layout::{Error, ReclaimProgress, ReclaimStep, Result, Timestamp};
use backstitch_ordering::{PatchId, Volume};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::format::{ROOT_INODE, bitmap};
use crate::groups::Run;
use crate::layout::Ext;
use crate::rules::{Rule, holds};
use maps::Part;
use names::Directory;

/// What an inode is, beside the type codes of directory entries.
mod kind {
    /// Not in use.
    pub(super) const FREE: u8 = 0;
    /// Made since the crash.
    pub(super) const NEW: u8 = 250;
    /// The same, a directory.
    pub(super) const NEW_DIRECTORY: u8 = 251;
    /// Without names, and to be freed by the operation that took the last one as soon as nothing
    /// refers to it.
    pub(super) const HELD: u8 = 252;
    /// The same, a directory.
    pub(super) const HELD_DIRECTORY: u8 = 253;
    /// Below the first one for files.
    pub(super) const RESERVED: u8 = 255;
}

/// What the next step does, and where it goes on.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Look at inode table blocks of a group, from one on.
    Scan { group: u32, block: u64 },
    /// Look at the map of an inode, from a part of it on.
    Map { inode: u32, part: Part },
    /// Reference counts of attribute blocks: of the list, from one on.
    Attributes(usize),
    /// Check that all that is in use is marked so, before anything is freed.
    Verify(u32),
    /// Free what is marked in a group but not in use.
    Free(u32),
    /// Walk the directories on the stack.
    Walk,
    /// Where there are directories with two names: note what others without a name say of who
    /// replaced them, from one on.
    Replaced(u32),
    /// Settle the directories with two names, from one on.
    Doubles(usize),
    /// Correct `..` entries: of the list, from one on.
    Parents(usize),
    /// Clear the names in an unreachable directory, from a block on.
    Orphans { inode: u32, block: u64 },
    /// Mark unreachable directories as dead: of the list, from one on.
    KillOrphans(usize),
    /// Mark inodes without names as dead, from one on.
    Kill(u32),
    /// Correct the link counts of live inodes, from one on.
    Correct(u32),
}

/// A reclaim that is under way.
pub(crate) struct Reclaim {
    phase: Phase,
    /// Where to go on once the names are settled, where somebody could not wait for that.
    postponed: Option<Phase>,
    /// Somebody waits for the names.
    are_names_first: bool,
    /// Whether every directory has one name, which its `..` agrees with.
    is_settled: bool,
    /// What each inode is, from inode 1 on: a type code, or one of [`kind`].
    kinds: Vec<u8>,
    /// Names that can be reached, of each inode.
    names: Vec<u16>,
    /// The directories that can be reached.
    directories: FxHashMap<u32, Directory>,
    /// Directories that are to be walked.
    stack: Vec<u32>,
    /// The one that is walked, and its link count.
    walking: (u32, u16),
    /// Directories with blocks that cannot be read, in which no directory has its name: they are
    /// walked once the names of directories are settled.
    aside: Vec<u32>,
    /// How many there have been.
    times_aside: u64,
    /// Where directories with more than one name have the others.
    further: FxHashMap<u32, Vec<u32>>,
    /// These directories, once all are known.
    doubles: Vec<u32>,
    /// The [marks](crate::format::replaced) of directories that were replaced as the power failed.
    marks: FxHashSet<u32>,
    /// Directories whose `..` is wrong.
    strays: Vec<u32>,
    /// Directories that cannot be reached, and where their `..` leads; later in the order in which
    /// they die.
    orphans: Vec<(u32, u32)>,
    /// The deaths of those that `..` of a directory led to it, by that directory.
    deaths: FxHashMap<u32, Vec<PatchId>>,
    /// Blocks in use: bit 0 stands for the first data block. Empty once what is not in use was
    /// freed.
    used: Vec<u8>,
    /// Blocks that operations have allocated, unmapped or freed since the crash. As long as `used`.
    touched: Vec<u8>,
    first_data_block: u64,
    /// How many inodes refer to an attribute block; all blocks that may have a wrong count are
    /// here.
    attribute_blocks: FxHashMap<u64, References>,
    attribute_list: Vec<u64>,
    /// Inodes whose attribute block is counted: bit 0 stands for inode 1.
    counted: Vec<u8>,
    /// The inode that is looked at in parts, and whether an operation has changed its map
    /// meanwhile.
    in_parts: Option<u32>,
    is_disturbed: bool,
    /// Files that had one link when their map was looked at, and no name that came or went since:
    /// bit 0 stands for inode 1.
    single: Vec<u8>,
    /// How many inodes were marked as dead since that was on the disk the last time.
    killed: u32,
    /// Inodes without names that are being freed by the operation that took the last one: nothing
    /// is freed here before they are gone.
    leaving: Vec<u32>,
    /// What was changed and must be on the disk before the next phase begins.
    changes: Vec<PatchId>,
    /// The end of a phase waits for this.
    barrier: PatchId,
    freed_blocks: u64,
    freed_inodes: u64,
}

/// References to an attribute block.
#[derive(Clone, Copy, Debug, Default)]
struct References {
    /// By inodes that were counted.
    counted: u32,
    /// Given up, but still in the block's count until that is on the disk.
    leaving: u32,
}

impl Reclaim {
    pub(crate) fn new(fs: &Ext) -> Reclaim {
        let inodes = fs.sb.inodes_count as usize;
        let bits = u64::from(fs.sb.groups) * u64::from(fs.sb.blocks_per_group);
        let mut reclaim = Reclaim {
            phase: Phase::Scan { group: 0, block: 0 },
            postponed: None,
            are_names_first: false,
            is_settled: false,
            kinds: vec![kind::FREE; inodes],
            names: vec![0; inodes],
            directories: FxHashMap::default(),
            stack: vec![ROOT_INODE],
            walking: (0, 0),
            aside: Vec::new(),
            times_aside: 0,
            further: FxHashMap::default(),
            doubles: Vec::new(),
            marks: FxHashSet::default(),
            strays: Vec::new(),
            orphans: Vec::new(),
            deaths: FxHashMap::default(),
            used: vec![0; bits.div_ceil(8) as usize],
            touched: vec![0; bits.div_ceil(8) as usize],
            first_data_block: fs.sb.first_data_block,
            attribute_blocks: FxHashMap::default(),
            attribute_list: Vec::new(),
            counted: vec![0; inodes.div_ceil(8)],
            in_parts: None,
            is_disturbed: false,
            single: vec![0; inodes.div_ceil(8)],
            killed: 0,
            leaving: Vec::new(),
            changes: Vec::new(),
            barrier: PatchId::COMMITTED,
            freed_blocks: 0,
            freed_inodes: 0,
        };
        reclaim.directories.insert(ROOT_INODE, Directory::root());
        reclaim.mark_metadata(fs);
        reclaim
    }

    fn kind(&self, inode: u32) -> u8 {
        let index = (inode as usize).wrapping_sub(1);
        self.kinds.get(index).copied().unwrap_or(kind::FREE)
    }

    fn set_kind(&mut self, inode: u32, kind: u8) {
        if let Some(place) = self.kinds.get_mut((inode as usize).wrapping_sub(1)) {
            *place = kind;
        }
    }

    fn names_of(&self, inode: u32) -> u16 {
        let index = (inode as usize).wrapping_sub(1);
        self.names.get(index).copied().unwrap_or(0)
    }

    /// Superblocks, descriptors and those kept for more of them, bitmaps, inode tables.
    fn mark_metadata(&mut self, fs: &Ext) {
        for (index, g) in fs.groups.list.iter().enumerate() {
            let group = index as u32;
            let supers = u64::from(fs.sb.super_blocks_in_group(group));
            self.mark_again(fs, fs.sb.group_first_block(group), supers);
            self.mark_again(fs, g.block_bitmap, 1);
            self.mark_again(fs, g.inode_bitmap, 1);
            self.mark_again(fs, g.inode_table, fs.sb.inode_table_blocks.into());
        }
    }

    /// Marks what may be marked already.
    fn mark_again(&mut self, fs: &Ext, start: u64, len: u64) {
        for block in start..start + len {
            bitmap::set(&mut self.used, (block - fs.sb.first_data_block) as usize);
        }
    }

    /// Marks blocks of an inode, but for those that operations have touched: they may have changed
    /// hands. That no other block belongs to two is what everything here relies on; blocks of an
    /// inode that is looked at `again` are marked already.
    fn mark(&mut self, inode: u32, run: Run, again: bool) -> Result<()> {
        for block in run.start..run.end() {
            let bit = (block - self.first_data_block) as usize;
            if bitmap::test(&self.touched, bit) {
                continue;
            }
            if bitmap::test(&self.used, bit) && !again {
                return Err(Error::corrupt(
                    format!("inode {inode}"),
                    format!("block {block} belongs to something else too"),
                ));
            }
            bitmap::set(&mut self.used, bit);
        }
        Ok(())
    }

    /// All that nobody maps was freed.
    fn end_of_frees(&mut self) {
        self.used = Vec::new();
        self.touched = Vec::new();
        self.attribute_blocks = FxHashMap::default();
        self.attribute_list = Vec::new();
        self.phase = match self.is_settled {
            true => self.after_maps_and_names(),
            false => Phase::Walk,
        };
    }

    /// What comes once all blocks that nobody maps are free and the names of directories are
    /// settled.
    fn after_maps_and_names(&mut self) -> Phase {
        if self.aside.is_empty() {
            return Phase::ORPHANS;
        }
        self.stack = std::mem::take(&mut self.aside);
        Phase::Walk
    }

    /// A block of the directory that is walked cannot be read. Where it has no links but its own
    /// two, no directory has a name in it: a name is on the disk no earlier than the link that its
    /// directory's `..` counts, and that link no longer than the name. (It does not help that all
    /// that it counts were found: a move within it adds a name and no link.) Then the names of all
    /// directories are settled without it.
    pub(crate) fn put_aside(&mut self) -> bool {
        let (number, links) = self.walking;
        let is_walked = matches!(self.phase, Phase::Walk) && self.stack.last() == Some(&number);
        let Some(directory) = self.directories.get(&number).filter(|_| is_walked) else {
            return false;
        };
        if self.is_settled || directory.walked == u64::MAX || links != 2 {
            return false;
        }
        self.stack.pop();
        self.aside.push(number);
        self.times_aside += 1;
        true
    }

    /// Somebody waits for the names: once the scan is over they come first.
    fn names_come_first(&mut self) {
        self.are_names_first = true;
        let is_in_maps = matches!(
            self.phase,
            Phase::Map { .. } | Phase::Attributes(_) | Phase::Verify(_) | Phase::Free(_)
        );
        if !self.is_settled && is_in_maps {
            self.postponed = Some(std::mem::replace(&mut self.phase, Phase::Walk));
        }
    }

    /// It is known what every inode is.
    fn end_of_scan(&mut self) {
        self.phase = Phase::MAPS;
        if self.are_names_first {
            self.names_come_first();
        }
    }

    /// Remembers a change that the next phase relies on.
    fn note_change(&mut self, v: &mut Volume<'_>, id: PatchId) {
        /// How many changes one empty patch stands for.
        const CHANGES_TOGETHER: usize = 64;
        if self.changes.last() != Some(&id) && v.is_live(id) {
            self.changes.push(id);
        }
        if self.changes.len() >= CHANGES_TOGETHER {
            let all = v.empty(&self.changes);
            self.changes.clear();
            self.changes.push(all);
        }
    }

    /// A phase ends: what was changed is on the disk before the next one begins, by a rule.
    fn end_phase(&mut self, v: &mut Volume<'_>, next: Phase, rule: Rule) {
        self.phase = next;
        let changes = std::mem::take(&mut self.changes);
        if holds(rule) {
            self.barrier = v.empty(&changes);
        }
    }

    /// How much is done. The phases are weighed by what they read.
    fn done_fraction(&self, fs: &Ext) -> f64 {
        const SCAN: f64 = 0.2;
        const MAPS: f64 = 0.4;
        const NAMES: f64 = 0.3;
        let part = |at: u64, of: u64| at as f64 / of.max(1) as f64;
        let (groups, inodes) = (u64::from(fs.sb.groups), u64::from(fs.sb.inodes_count));
        let of_maps = |phase: Phase| match phase {
            Phase::Map { inode, .. } => 0.8 * part(inode.into(), inodes),
            Phase::Attributes(_) => 0.8,
            Phase::Verify(group) => 0.8 + 0.1 * part(group.into(), groups),
            Phase::Free(group) => 0.9 + 0.1 * part(group.into(), groups),
            _ => 1.0,
        };
        let maps = SCAN + MAPS * of_maps(self.postponed.unwrap_or(self.phase));
        match self.phase {
            Phase::Scan { group, .. } => SCAN * part(group.into(), groups),
            Phase::Walk => {
                let open = self.stack.len() as u64;
                let known = self.directories.len() as u64;
                maps + NAMES * part(known.saturating_sub(open), known)
            }
            Phase::Map { .. } | Phase::Attributes(_) | Phase::Verify(_) | Phase::Free(_) => {
                maps + if self.is_settled { NAMES } else { 0.0 }
            }
            Phase::Replaced(_) | Phase::Doubles(_) | Phase::Parents(_) => maps + NAMES,
            Phase::Orphans { inode, .. } => 0.9 + 0.02 * part(inode.into(), inodes),
            Phase::KillOrphans(_) => 0.92,
            Phase::Kill(inode) => 0.92 + 0.03 * part(inode.into(), inodes),
            Phase::Correct(inode) => 0.95 + 0.05 * part(inode.into(), inodes),
        }
    }
}

impl Phase {
    /// What comes once it is known what every inode is.
    const MAPS: Phase = Phase::Map {
        inode: 1,
        part: Part::START,
    };
    /// What comes once all blocks that nobody maps are free and the names are settled.
    const ORPHANS: Phase = Phase::Orphans { inode: 1, block: 0 };
}

impl Ext {
    /// One step of the reclaim.
    pub(crate) fn reclaim_step(
        &mut self,
        v: &mut Volume<'_>,
        now: Timestamp,
    ) -> Result<ReclaimStep> {
        // Out of its place, so that it and the file system can be changed side by side. What it
        // changes itself it need not be told.
        let Some(mut state) = self.reclaim.take() else {
            return Ok(ReclaimStep::Done);
        };
        if self.read_only.is_some() {
            return Ok(ReclaimStep::Done);
        }
        if v.is_live(state.barrier) {
            let barrier = state.barrier;
            self.reclaim = Some(state);
            return Ok(ReclaimStep::Wait(barrier));
        }
        let step = self.reclaim_part(v, &mut state, now);
        match &step {
            Ok(ReclaimStep::Done) => {
                self.has_leaks = false;
                self.reclaimed = (state.freed_blocks, state.freed_inodes);
            }
            Ok(_) | Err(Error::Miss) => self.reclaim = Some(state),
            Err(_) => {}
        }
        step
    }

    pub(crate) fn show_reclaim(&self) -> ReclaimProgress {
        let (freed_blocks, freed_inodes) = match &self.reclaim {
            Some(state) => (state.freed_blocks, state.freed_inodes),
            None => self.reclaimed,
        };
        ReclaimProgress {
            running: self.reclaim.is_some(),
            is_settled: self.reclaim.as_ref().is_none_or(|r| r.is_settled),
            done_fraction: match &self.reclaim {
                Some(state) => state.done_fraction(self),
                None if self.has_leaks => 0.0,
                None => 1.0,
            },
            freed_blocks,
            freed_inodes,
            put_aside: self.reclaim.as_ref().map_or(0, |r| r.times_aside),
        }
    }

    fn reclaim_part(
        &mut self,
        v: &mut Volume<'_>,
        r: &mut Reclaim,
        now: Timestamp,
    ) -> Result<ReclaimStep> {
        match r.phase {
            Phase::Scan { group, block } => self.scan_inodes(v, r, group, block),
            Phase::Map { .. } => self.look_at_maps(v, r),
            Phase::Walk => self.walk_directories(v, r),
            Phase::Replaced(inode) => self.note_marks(v, r, inode),
            Phase::Doubles(at) => self.settle_double(v, r, at),
            Phase::Parents(at) => self.correct_parent(v, r, at),
            Phase::Orphans { inode, block } => self.clear_orphan(v, r, inode, block),
            Phase::KillOrphans(at) => self.kill_orphans(v, r, at, now),
            Phase::Kill(inode) => self.kill_inodes(v, r, inode, now),
            Phase::Correct(inode) => self.correct_links(v, r, inode, now),
            Phase::Attributes(at) => self.correct_references(v, r, at),
            Phase::Verify(group) => self.verify_group(v, r, group),
            Phase::Free(group) => self.free_rest_of_group(v, r, group),
        }
    }
}
