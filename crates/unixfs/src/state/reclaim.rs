//! What the reclaim has found out so far.

use backstitch_layout::{BlockNumber, Error, FileType, GroupNumber, InodeNumber, Step, Structure};
use backstitch_ordering::{PatchId, Volume};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::fault::Fault;
use crate::format::{Format, Inode};
use crate::rules::{Rule, holds};
use backstitch_blocks::bitmap;
use backstitch_blocks::runs::Run;

/// What an inode is, beside [`code_of`] its type.
pub(crate) mod kind {
    /// Not in use.
    pub(crate) const FREE: u8 = 0;
    /// Made since the crash.
    pub(crate) const NEW: u8 = 250;
    /// The same, a directory.
    pub(crate) const NEW_DIRECTORY: u8 = 251;
    /// Without names, and to be freed by the operation that took the last one as soon as nothing
    /// refers to it.
    pub(crate) const HELD: u8 = 252;
    /// The same, a directory.
    pub(crate) const HELD_DIRECTORY: u8 = 253;
    /// An inode with a lower number than any file has.
    pub(crate) const RESERVED: u8 = 255;
}

/// What the next step does, and where it goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// Look at inode table blocks of a group, from one on.
    Scan { group: GroupNumber, block: u64 },
    /// Look at the map of an inode, from a part of it on.
    Map { inode: InodeNumber, part: Part },
    /// Reference counts of attribute blocks: of the list, from one on.
    Attributes(usize),
    /// Check that all that is in use is marked so, before anything is freed.
    Verify(GroupNumber),
    /// Free what is marked in a group but not in use.
    Free(GroupNumber),
    /// Walk the directories on the stack.
    Walk,
    /// Where there are directories with two names: collect the marks of those without a name, which
    /// say who replaced them, from one on.
    Replaced(InodeNumber),
    /// Settle the directories with two names, from one on.
    Doubles(usize),
    /// Correct `..` entries: of the list, from one on.
    Parents(usize),
    /// Clear the names in an unreachable directory, from a block on.
    Orphans { inode: InodeNumber, block: u64 },
    /// Mark unreachable directories as dead: of the list, from one on.
    KillOrphans(usize),
    /// Mark inodes without names as dead, from one on.
    Kill(InodeNumber),
    /// Correct the link counts of live inodes, from one on.
    Correct(InodeNumber),
}

/// A reclaim that is under way.
pub struct Reclaim {
    pub(crate) phase: Phase,
    /// Where to go on once the names are settled, where somebody could not wait for that.
    pub(crate) postponed: Option<Phase>,
    /// Somebody waits for the names.
    are_names_first: bool,
    /// Whether every directory has one name, which its `..` agrees with.
    pub(crate) is_settled: bool,
    /// What each inode is, from inode 1 on: the code of a type, or one of [`kind`].
    kinds: Vec<u8>,
    /// Names that can be reached, of each inode.
    pub(crate) names: Vec<u16>,
    /// The directories that can be reached.
    pub(crate) directories: FxHashMap<InodeNumber, Directory>,
    /// Directories that are to be walked.
    pub(crate) stack: Vec<InodeNumber>,
    /// The one that is walked, and its link count.
    pub(crate) walking: (InodeNumber, u16),
    /// Directories with blocks that cannot be read, in which no directory has its name: they are
    /// walked once the names of directories are settled.
    aside: Vec<InodeNumber>,
    /// How many there have been.
    pub(crate) times_aside: u64,
    /// Where directories with more than one name have the others.
    pub(crate) further: FxHashMap<InodeNumber, Vec<InodeNumber>>,
    /// These directories, once all are known.
    pub(crate) doubles: Vec<InodeNumber>,
    /// The [marks](crate::replaced) of directories that were replaced as the power failed.
    pub(crate) marks: FxHashSet<u32>,
    /// Directories whose `..` is wrong.
    pub(crate) strays: Vec<InodeNumber>,
    /// Directories that cannot be reached, and where their `..` leads; later in the order in which
    /// they die.
    pub(crate) orphans: Vec<(InodeNumber, InodeNumber)>,
    /// By directory: the deaths of those whose `..` leads to it.
    pub(crate) deaths: FxHashMap<InodeNumber, Vec<PatchId>>,
    /// Blocks in use: bit 0 stands for the first data block. Empty once what is not in use was
    /// freed.
    pub(crate) used: Vec<u8>,
    /// Blocks that operations have allocated, unmapped or freed since the crash. As long as `used`.
    pub(crate) touched: Vec<u8>,
    root: InodeNumber,
    pub(crate) first_data_block: BlockNumber,
    /// How many inodes refer to an attribute block; all blocks that may have a wrong count are
    /// here.
    pub(crate) attribute_blocks: FxHashMap<BlockNumber, References>,
    pub(crate) attribute_list: Vec<BlockNumber>,
    /// Inodes whose attribute block is counted: bit 0 stands for inode 1.
    pub(crate) counted: Vec<u8>,
    /// The inode that is looked at in parts, and whether an operation has changed its map
    /// meanwhile.
    pub(crate) in_parts: Option<InodeNumber>,
    pub(crate) is_disturbed: bool,
    /// Files that had one link when their map was looked at, and no name that came or went since:
    /// bit 0 stands for inode 1.
    single: Vec<u8>,
    /// How many inodes were marked as dead since that was on the disk the last time.
    pub(crate) killed: u32,
    /// Inodes without names that are being freed by the operation that took the last one: nothing
    /// is freed here before they are gone.
    pub(crate) leaving: Vec<InodeNumber>,
    /// What was changed and must be on the disk before the next phase begins.
    changes: Vec<PatchId>,
    /// The end of a phase waits for this.
    pub(crate) barrier: PatchId,
    pub(crate) freed_blocks: u64,
    pub(crate) freed_inodes: u64,
}

/// References to an attribute block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct References {
    /// By inodes that were counted.
    pub(crate) counted: u32,
    /// Given up, but still in the block's count until that is on the disk.
    pub(crate) leaving: u32,
}

/// How far an inode has been looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Blocks from here on are left.
    pub(crate) from: u64,
    /// Blocks that were found before.
    pub(crate) blocks: u64,
    /// The map changed while it was looked at in parts: once more from its start.
    pub(crate) again: bool,
}

impl Part {
    /// Nothing yet.
    pub(crate) const START: Part = Part {
        from: 0,
        blocks: 0,
        again: false,
    };
}

/// The code of a directory.
pub(crate) const DIRECTORY: u8 = 2;

/// The code of an inode in use.
pub(crate) fn code_of(file_type: FileType) -> u8 {
    match file_type {
        FileType::Regular => 1,
        FileType::Directory => DIRECTORY,
        FileType::CharacterDevice => 3,
        FileType::BlockDevice => 4,
        FileType::Fifo => 5,
        FileType::Socket => 6,
        FileType::Symlink => 7,
    }
}

/// A directory that can be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    /// The directory that has its name; none while that part of it has not been walked.
    pub(crate) parent: InodeNumber,
    /// Where its `..` leads; none while it has not been walked.
    pub(crate) dotdot: InodeNumber,
    /// How many of its blocks have been walked.
    pub(crate) walked: u64,
    /// Directories that have their names in those.
    pub(crate) children: u16,
}

impl Directory {
    /// One that was found by a name, and is to be walked.
    fn found() -> Directory {
        Directory {
            parent: InodeNumber::NONE,
            dotdot: InodeNumber::NONE,
            walked: 0,
            children: 0,
        }
    }

    /// The root is its own parent, without a name.
    fn root(root: InodeNumber) -> Directory {
        Directory {
            parent: root,
            ..Directory::found()
        }
    }

    /// One that was just made: every name in it was counted.
    pub(crate) fn made_in(parent: InodeNumber) -> Directory {
        Directory {
            dotdot: parent,
            walked: u64::MAX,
            ..Directory::found()
        }
    }
}
impl Reclaim {
    pub(crate) fn new<F: Format>(format: &F) -> Reclaim {
        let inodes = format.inodes_count() as usize;
        let bits = u64::from(format.groups_count()) * u64::from(format.blocks_per_group());
        let mut reclaim = Reclaim {
            phase: Phase::Scan {
                group: GroupNumber(0),
                block: 0,
            },
            postponed: None,
            are_names_first: false,
            is_settled: false,
            kinds: vec![kind::FREE; inodes],
            names: vec![0; inodes],
            directories: FxHashMap::default(),
            stack: vec![F::ROOT_INODE],
            walking: (InodeNumber::NONE, 0),
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
            root: F::ROOT_INODE,
            first_data_block: format.first_data_block(),
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
        reclaim
            .directories
            .insert(F::ROOT_INODE, Directory::root(F::ROOT_INODE));
        format.own_runs(&mut |run| reclaim.mark_again(run));
        reclaim
    }

    pub(crate) fn kind(&self, inode: InodeNumber) -> u8 {
        let index = inode.index();
        self.kinds.get(index).copied().unwrap_or(kind::FREE)
    }

    pub(crate) fn set_kind(&mut self, inode: InodeNumber, kind: u8) {
        if let Some(place) = self.kinds.get_mut(inode.index()) {
            *place = kind;
        }
    }

    pub(crate) fn names_of(&self, inode: InodeNumber) -> u16 {
        let index = inode.index();
        self.names.get(index).copied().unwrap_or(0)
    }

    /// Marks what may be marked already.
    pub fn mark_again(&mut self, run: Run) {
        for block in run.blocks() {
            bitmap::set(&mut self.used, (block - self.first_data_block) as usize);
        }
    }

    /// Marks blocks of an inode, but for those that operations have touched: they may have changed
    /// hands. That no other block belongs to two is what everything here relies on; blocks of an
    /// inode that is looked at `again` are marked already.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for one that belongs to something else too.
    pub fn mark(&mut self, inode: InodeNumber, run: Run, again: bool) -> Step<()> {
        for block in run.blocks() {
            let bit = (block - self.first_data_block) as usize;
            if bitmap::test(&self.touched, bit) {
                continue;
            }
            if bitmap::test(&self.used, bit) && !again {
                return Err(Error::corrupt(
                    Structure::inode(inode),
                    Fault::BlockTakenTwice { block },
                )
                .into());
            }
            bitmap::set(&mut self.used, bit);
        }
        Ok(())
    }

    /// All that nobody maps was freed.
    pub(crate) fn end_of_frees(&mut self) {
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
    pub(crate) fn after_maps_and_names(&mut self) -> Phase {
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
    pub(crate) fn names_come_first(&mut self) {
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
    pub(crate) fn end_of_scan(&mut self) {
        self.phase = Phase::MAPS;
        if self.are_names_first {
            self.names_come_first();
        }
    }

    /// Remembers a change that the next phase relies on.
    pub fn note_change(&mut self, v: &mut Volume<'_>, id: PatchId) {
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
    pub(crate) fn end_phase(&mut self, v: &mut Volume<'_>, next: Phase, rule: Rule) {
        self.phase = next;
        let changes = std::mem::take(&mut self.changes);
        if holds(rule) {
            self.barrier = v.empty(&changes);
        }
    }

    /// How much is done. The phases are weighed by what they read.
    pub(crate) fn done_fraction(&self, (groups, inodes): (u32, u32)) -> f64 {
        const SCAN: f64 = 0.2;
        const MAPS: f64 = 0.4;
        const NAMES: f64 = 0.3;
        let part = |at: u64, of: u64| at as f64 / of.max(1) as f64;
        let (groups, inodes) = (u64::from(groups), u64::from(inodes));
        let of_maps = |phase: Phase| match phase {
            Phase::Map { inode, .. } => 0.8 * part(inode.0.into(), inodes),
            Phase::Attributes(_) => 0.8,
            Phase::Verify(group) => 0.8 + 0.1 * part(group.0.into(), groups),
            Phase::Free(group) => 0.9 + 0.1 * part(group.0.into(), groups),
            _ => 1.0,
        };
        let maps = SCAN + MAPS * of_maps(self.postponed.unwrap_or(self.phase));
        match self.phase {
            Phase::Scan { group, .. } => SCAN * part(group.0.into(), groups),
            Phase::Walk => {
                let open = self.stack.len() as u64;
                let known = self.directories.len() as u64;
                maps + NAMES * part(known.saturating_sub(open), known)
            }
            Phase::Map { .. } | Phase::Attributes(_) | Phase::Verify(_) | Phase::Free(_) => {
                maps + if self.is_settled { NAMES } else { 0.0 }
            }
            Phase::Replaced(_) | Phase::Doubles(_) | Phase::Parents(_) => maps + NAMES,
            Phase::Orphans { inode, .. } => 0.9 + 0.02 * part(inode.0.into(), inodes),
            Phase::KillOrphans(_) => 0.92,
            Phase::Kill(inode) => 0.92 + 0.03 * part(inode.0.into(), inodes),
            Phase::Correct(inode) => 0.95 + 0.05 * part(inode.0.into(), inodes),
        }
    }

    /// Directories whose `..` is wrong, which are corrected next. Not those that have their name,
    /// or `..`, where nobody has looked yet.
    pub(crate) fn find_strays(&mut self) {
        let all = self.directories.iter();
        let wrong = all.filter(|(number, d)| {
            **number != self.root
                && d.parent != InodeNumber::NONE
                && d.dotdot != InodeNumber::NONE
                && d.dotdot != d.parent
        });
        self.strays = wrong.map(|(number, _)| *number).collect();
        self.strays.sort_unstable();
        self.phase = Phase::Parents(0);
    }

    /// Whether an inode is in use as a directory.
    pub(crate) fn is_directory(&self, inode: InodeNumber) -> bool {
        matches!(self.kind(inode), DIRECTORY | kind::NEW_DIRECTORY)
    }

    /// Whether this part of a directory was walked: names in it are counted when they come and go.
    pub(crate) fn is_walked(&self, directory: InodeNumber, logical: u64) -> bool {
        self.directories
            .get(&directory)
            .is_some_and(|d| logical < d.walked)
    }

    /// Counts a name in the walked part of a directory. A directory that was not known until now is
    /// to be walked.
    pub(crate) fn count_name(
        &mut self,
        directory: InodeNumber,
        child: InodeNumber,
        is_directory: bool,
    ) -> Step<()> {
        let too_many =
            |inode: InodeNumber| Error::corrupt(Structure::inode(inode), Fault::TooManyNames);
        if !is_directory {
            let names = self.names.get_mut(child.index());
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
        if known.parent == InodeNumber::NONE {
            known.parent = directory;
        } else {
            self.further.entry(child).or_default().push(directory);
        }
        Ok(())
    }

    /// A name in the walked part of a directory is gone.
    pub(crate) fn drop_name(
        &mut self,
        directory: InodeNumber,
        child: InodeNumber,
        is_directory: bool,
    ) {
        if !is_directory {
            if let Some(names) = self.names.get_mut(child.index()) {
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
            known.parent = InodeNumber::NONE;
            return;
        };
        match further.iter().rposition(|f| *f == directory) {
            Some(at) => drop(further.swap_remove(at)),
            None => known.parent = further.pop().unwrap_or_default(),
        }
        if further.is_empty() {
            self.further.remove(&child);
        }
    }

    /// Whether `inner` is `outer` or below it, by the names by which directories were found.
    pub(crate) fn is_inside(&self, inner: InodeNumber, outer: InodeNumber) -> bool {
        let mut at = inner;
        // They make a tree, but for what changes while it is walked.
        for _ in 0..=self.directories.len() {
            if at == outer {
                return true;
            }
            if at == self.root {
                return false;
            }
            match self.directories.get(&at) {
                Some(directory) => at = directory.parent,
                None => return true,
            }
        }
        true
    }

    pub(crate) fn set_dotdot(&mut self, directory: InodeNumber, parent: InodeNumber) {
        if let Some(known) = self.directories.get_mut(&directory) {
            known.dotdot = parent;
        }
    }

    /// Whether all blocks that nothing maps are free: from then on neither blocks nor the sharing
    /// of attributes are looked at.
    pub(crate) fn has_freed(&self) -> bool {
        self.touched.is_empty()
    }

    pub(crate) fn touch(&mut self, run: Run) {
        if self.has_freed() {
            return;
        }
        for block in run.blocks() {
            bitmap::set(&mut self.touched, (block - self.first_data_block) as usize);
        }
    }

    /// From now on nothing keeps an attribute block from being freed: nobody refers to it.
    pub(crate) fn give_up(&mut self, block: BlockNumber) {
        let bit = (block - self.first_data_block) as usize;
        bitmap::clear(&mut self.used, bit);
        bitmap::clear(&mut self.touched, bit);
        self.attribute_blocks.remove(&block);
    }

    pub(crate) fn is_counted(&self, inode: InodeNumber) -> bool {
        bitmap::test(&self.counted, inode.index())
    }

    /// Counts an inode's reference to its attribute block, unless it was.
    pub(crate) fn count_attributes(&mut self, inode: InodeNumber, block: BlockNumber) {
        if self.is_counted(inode) || self.has_freed() {
            return;
        }
        bitmap::set(&mut self.counted, inode.index());
        if block != BlockNumber::NONE {
            self.attribute_blocks.entry(block).or_default().counted += 1;
        }
    }

    /// Notes the link count of an inode whose map was looked at.
    pub(crate) fn note_links(&mut self, number: InodeNumber, inode: &impl Inode) {
        if inode.links() == 1 && !inode.is_directory() {
            bitmap::set(&mut self.single, number.index());
        }
    }

    /// A name of an inode comes or goes, and with it a link.
    pub(crate) fn relink(&mut self, inode: InodeNumber) {
        if let Some(byte) = self.single.get_mut((inode.index()) / 8) {
            *byte &= !(1 << (inode.index() % 8));
        }
    }

    /// Whether the link count of an inode may be another one than that of its names.
    pub(crate) fn may_count_wrong(&self, inode: InodeNumber) -> bool {
        let is_from_before = !matches!(self.kind(inode), kind::FREE | kind::NEW..);
        let is_right = self.names_of(inode) == 1 && bitmap::test(&self.single, inode.index());
        is_from_before && !is_right
    }

    /// Whether the inode that is looked at in parts has changed since the last one; asked once a
    /// part.
    pub(crate) fn was_disturbed(&mut self, inode: InodeNumber) -> bool {
        let is_it = self.in_parts.replace(inode) == Some(inode);
        std::mem::take(&mut self.is_disturbed) && is_it
    }

    /// Notes that an operation frees the inode.
    pub(crate) fn hold(&mut self, inode: InodeNumber, is_directory: bool) {
        let held = match is_directory {
            true => kind::HELD_DIRECTORY,
            false => kind::HELD,
        };
        self.set_kind(inode, held);
        if is_directory {
            self.directories.remove(&inode);
            self.further.remove(&inode);
        }
    }
}

impl Phase {
    /// What comes once it is known what every inode is.
    const MAPS: Phase = Phase::Map {
        inode: InodeNumber::FIRST,
        part: Part::START,
    };
    /// What comes once all blocks that nobody maps are free and the names are settled.
    pub(crate) const ORPHANS: Phase = Phase::Orphans {
        inode: InodeNumber::FIRST,
        block: 0,
    };
}
