//! Deferred work: what nothing refers to any more is freed once that is true on the disk.
//!
//! Blocks and inodes are given back only after the clearing of every pointer to them is on stable
//! storage (rule 2 of soft updates). Then clearing their bits depends on nothing, and their next
//! user needs no dependency either. What never was on the disk is given back at once.

use std::collections::VecDeque;

use backstitch_layout::{DeferredStatistics, Error, Result, Timestamp};
use backstitch_ordering::{PatchId, Volume};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::format::Inode;
use crate::groups::Run;
use crate::kinds;
use crate::layout::Ext;
use crate::map::{Owner, Unmapping};
use crate::pending::InodeState;
use crate::rules::{Rule, holds, wait_for_all};
use crate::steps;

/// How many leaf indirect blocks of a freed inode one step may look at.
const LEAVES_PER_STEP: u64 = 64;
/// Inodes with something under way after which one call gives up, or the part of all after which it
/// does.
const BUSY_PER_CALL: usize = 64;
const BUSY_PART: usize = 8;
/// Directories that are kept for their index alone, and the names in them: about 4 MiB. The last
/// one is kept however large it is.
const KEPT_MAX: usize = 1024;
const KEPT_NAMES_MAX: u64 = 1 << 18;
/// Patches until which deferred work is gathered that waits for them: more would delay what could
/// be freed earlier.
const PATCHES_PER_TOKEN: usize = 8;
/// How many items one call does.
const ITEMS_PER_CALL: usize = 256;

/// Bytes, about, of what is known of an inode, with its lists and its places in tables and queues.
const BYTES_PER_INODE: u64 = size_of::<InodeState>() as u64 + 128;

/// Something to free.
#[derive(Debug)]
pub(crate) enum Item {
    /// Blocks that nothing points to.
    Blocks(Vec<Run>),
    /// An inode without names, and everything that it has.
    Inode(DeadInode),
    /// One reference less to an attribute block.
    AttributeBlock(u64),
    /// Inodes of one group that were marked as used ahead, for nothing.
    Spares(Vec<u32>),
}

/// An inode that is being freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadInode {
    number: u32,
    /// Its blocks from here on are freed already.
    done_from: u64,
    /// How many blocks it had.
    blocks: u64,
}

/// What came of an item.
enum Progress {
    Done,
    /// This is left of it.
    Part(Item),
    /// The transaction that is being ended has no room for any of it.
    NoRoom,
}

/// What one step frees of a dead inode: its blocks from `from` on.
struct Part {
    from: u64,
    plan: Unmapping,
    owner: Owner,
}

/// Work that waits for the same few patches: one empty patch for all of it, not one for each file
/// of a tree that is removed.
#[derive(Debug, Default)]
struct Gathering {
    items: Vec<Item>,
    after: Vec<PatchId>,
}

/// The work that waits.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    waiting: FxHashMap<u64, Vec<Item>>,
    /// What comes next to `waiting`.
    gathering: Gathering,
    /// How many items there are in both.
    waiting_items: usize,
    due: VecDeque<Item>,
    /// What the transaction that is being ended has no room for.
    later: Vec<Item>,
    next_token: u64,
    done: u64,
    /// Inodes without names and references, to be freed.
    dead: VecDeque<u32>,
    /// What is not free yet but will be.
    pending_blocks: u64,
    pending_inodes: u64,
    /// Inodes of which something may still be on its way to the disk.
    idle: VecDeque<u32>,
    /// When these were looked at last: how many patches had been retired, the second, and how many
    /// inodes were left.
    looked_at_idle: (u64, i64, usize),
    /// Directories that are kept for their index, the longest kept first.
    kept: VecDeque<u32>,
    fired: Vec<u64>,
    /// Blocks of the inode table in which an inode was freed, by the first inode in them.
    freed_in: FxHashSet<u32>,
    freed_in_last: u32,
    /// Where the last call missed a block: at the first of `dead`, not of `due`.
    missed_dead: bool,
    /// Items, and inodes of `dead`, that need a block which cannot be read. What they would free is
    /// not on its way.
    aside: Vec<Item>,
    aside_dead: Vec<u32>,
}

impl Item {
    /// The blocks and inodes that go free.
    fn pending(&self) -> (u64, u64) {
        match self {
            Item::Blocks(runs) => (runs.iter().map(|r| r.len).sum(), 0),
            Item::Inode(dead) => (dead.blocks, 1),
            Item::AttributeBlock(_) => (0, 0),
            Item::Spares(inodes) => (0, inodes.len() as u64),
        }
    }
}

impl Deferred {
    /// The inodes whose freeing has begun and is not at its end.
    pub(crate) fn inodes_under_way(&self) -> impl Iterator<Item = u32> + '_ {
        let waiting = self.waiting.values().flatten();
        let items = waiting
            .chain(&self.gathering.items)
            .chain(&self.due)
            .chain(&self.later)
            .chain(&self.aside);
        items.filter_map(|item| match item {
            Item::Inode(dead) => Some(dead.number),
            _ => None,
        })
    }

    /// Puts aside what missed a block; false where nothing did.
    pub(crate) fn put_aside(&mut self) -> bool {
        if self.missed_dead {
            let inode = self.dead.pop_front();
            self.aside_dead.extend(inode);
            return inode.is_some();
        }
        let Some(item) = self.due.pop_front() else {
            return false;
        };
        let (blocks, inodes) = item.pending();
        self.pending_blocks = self.pending_blocks.saturating_sub(blocks);
        self.pending_inodes = self.pending_inodes.saturating_sub(inodes);
        self.aside.push(item);
        true
    }

    /// Takes up what was put aside.
    pub(crate) fn take_up_again(&mut self) {
        self.dead.extend(self.aside_dead.drain(..));
        for item in std::mem::take(&mut self.aside) {
            let (blocks, inodes) = item.pending();
            self.pending_blocks += blocks;
            self.pending_inodes += inodes;
            self.due.push_back(item);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting_items == 0 && self.due.is_empty() && self.dead.is_empty()
    }

    /// Blocks that are on their way to being free.
    pub(crate) fn pending_blocks(&self) -> u64 {
        self.pending_blocks
    }

    /// Inodes that are on their way to being free.
    pub(crate) fn pending_inodes(&self) -> u64 {
        self.pending_inodes
    }

    pub(crate) fn statistics(&self) -> DeferredStatistics {
        DeferredStatistics {
            pending: (self.waiting_items + self.due.len() + self.later.len() + self.dead.len())
                as u64,
            done: self.done,
            unreadable: (self.aside.len() + self.aside_dead.len()) as u64,
            ready: (self.due.len() + self.dead.len()) as u64,
            bytes: (self.waiting_items + self.due.len() + self.dead.len() + self.idle.len()) as u64
                * BYTES_PER_INODE,
            index_bytes: 0,
        }
    }

    /// Whether so much was written, came in, or so much time has passed that some idle inodes can
    /// be forgotten. To look without reason costs more than most operations do.
    fn is_time_to_look(&self, retired: u64, second: i64) -> bool {
        let (retired_then, second_then, left_then) = self.looked_at_idle;
        let enough = (self.idle.len() / BUSY_PART).max(BUSY_PER_CALL);
        second != second_then
            || retired.wrapping_sub(retired_then) >= enough as u64
            || self.idle.len() >= 2 * left_then + BUSY_PER_CALL
    }

    pub(crate) fn note_idle(&mut self, inode: u32) {
        self.idle.push_back(inode);
    }

    pub(crate) fn note_kept(&mut self, directory: u32) {
        self.kept.push_back(directory);
    }

    /// An inode of the block of the table that begins with inode `first` was freed.
    pub(crate) fn note_freed_in(&mut self, first: u32) {
        if std::mem::replace(&mut self.freed_in_last, first) != first {
            self.freed_in.insert(first);
        }
    }

    /// The blocks of the table in which inodes were freed since the last call.
    pub(crate) fn take_freed_in(&mut self) -> FxHashSet<u32> {
        self.freed_in_last = 0;
        std::mem::take(&mut self.freed_in)
    }

    pub(crate) fn note_dead(&mut self, inode: u32) {
        self.dead.push_back(inode);
    }
}

impl Ext {
    /// Frees blocks once `after` are on the disk. Their bitmaps must be in memory where there is
    /// nothing to wait for.
    pub(crate) fn defer_blocks(&mut self, v: &mut Volume<'_>, runs: Vec<Run>, after: &[PatchId]) {
        self.deferred.pending_blocks += runs.iter().map(|r| r.len).sum::<u64>();
        runs.iter().for_each(|run| self.track_blocks(*run));
        if !after.is_empty() {
            self.expect_freeing(v, &runs);
        }
        self.defer(v, Item::Blocks(runs), after);
    }

    /// Does `item` once `after` are on the disk; at once where they are, as far as that goes
    /// without reading.
    pub(crate) fn defer(&mut self, v: &mut Volume<'_>, item: Item, after: &[PatchId]) {
        let after = wait_for_all(Rule::DeferredWorkWaits, after);
        // Where scopes are atomic everything that was on the disk is freed together with the end of
        // its transaction, so that nothing is used again before that is there.
        let waits = match v.scopes_are_atomic() {
            true => !after.is_empty(),
            false => after.iter().any(|p| v.is_live(*p)),
        };
        if !waits {
            self.deferred.due.push_back(item);
            return;
        }
        if let Item::AttributeBlock(block) = item {
            v.expect(block);
        }
        self.deferred.waiting_items += 1;
        let mut live = after.iter().filter(|p| v.is_live(**p));
        if let (Some(one), None) = (live.next(), live.next())
            && let Some(token) = v.watch_one(*one, self.deferred.next_token)
        {
            self.deferred.next_token = self.deferred.next_token.max(token + 1);
            self.deferred.waiting.entry(token).or_default().push(item);
            return;
        }
        let gathering = &mut self.deferred.gathering;
        gathering.items.push(item);
        for patch in after.iter().filter(|p| v.is_live(**p)) {
            if !gathering.after.iter().rev().any(|p| v.merged(*p, *patch)) {
                gathering.after.push(*patch);
            }
        }
        if gathering.after.len() >= PATCHES_PER_TOKEN {
            self.end_gathering(v);
        }
    }

    /// Lets what was gathered wait for its patches.
    fn end_gathering(&mut self, v: &mut Volume<'_>) {
        let Gathering { items, mut after } = std::mem::take(&mut self.deferred.gathering);
        if items.is_empty() {
            return;
        }
        let token = self.deferred.next_token;
        self.deferred.next_token += 1;
        self.deferred.waiting.insert(token, items);
        if !holds(Rule::DeferredWorkWaitsForAll) {
            after.truncate(1);
        }
        v.watch(&after, token);
    }

    /// What this transaction had no room for is done at the end of the next one. Until then the
    /// disk lists it among the orphans.
    pub(crate) fn defer_rest(&mut self, v: &mut Volume<'_>) {
        let items = std::mem::take(&mut self.deferred.later);
        if items.is_empty() {
            return;
        }
        let token = self.deferred.next_token;
        self.deferred.next_token += 1;
        self.deferred.waiting_items += items.len();
        self.deferred.waiting.insert(token, items);
        v.watch(&[], token);
    }

    /// One reference to an inode less. The last one of an inode without names starts freeing it.
    pub(crate) fn drop_reference(&mut self, inode: u32) {
        if !self.references.release(inode) {
            return;
        }
        match self.inodes.get_mut(&inode) {
            Some(state) if state.freed.is_some() => self.deferred.note_dead(inode),
            Some(state) => {
                // Once: a program that looks at a file again and again leaves no more than one
                // entry.
                if !std::mem::replace(&mut state.is_idle, true) {
                    self.deferred.note_idle(inode);
                }
            }
            None => self.windows.drop_of(inode),
        }
    }

    pub(crate) fn drop_all_references(&mut self) {
        for inode in self.references.take_all() {
            if self.inodes.get(&inode).is_some_and(|s| s.freed.is_some()) {
                self.deferred.note_dead(inode);
            }
        }
    }

    /// Frees inodes of one group that were marked ahead.
    pub(crate) fn defer_spares(&mut self, inodes: Vec<u32>) {
        self.deferred.pending_inodes += inodes.len() as u64;
        self.deferred.due.push_back(Item::Spares(inodes));
    }

    /// Does what has become due. True where there was anything.
    pub(crate) fn do_deferred(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Result<bool> {
        self.give_back(v, now);
        self.forget_unused_table_blocks(v);
        self.end_gathering(v);
        let mut fired = std::mem::take(&mut self.deferred.fired);
        v.take_fired(&mut fired);
        for token in fired.drain(..) {
            let items = self.deferred.waiting.remove(&token).unwrap_or_default();
            self.deferred.waiting_items -= items.len();
            self.deferred.due.extend(items);
        }
        self.deferred.fired = fired;
        if self.deferred.is_time_to_look(v.retired(), now.seconds) || steps::are_forgetful() {
            self.look_at_idle(v);
            self.deferred.looked_at_idle = (v.retired(), now.seconds, self.deferred.idle.len());
        }
        self.free_ready_items(v)
    }

    /// Frees what waits for nothing, a bounded part of it. True where there was anything.
    pub(crate) fn free_ready_items(&mut self, v: &mut Volume<'_>) -> Result<bool> {
        self.deferred.missed_dead = true;
        let mut worked = self.take_up_dead(v)?;
        self.deferred.missed_dead = false;
        for _ in 0..ITEMS_PER_CALL {
            let Some(item) = self.deferred.due.pop_front() else {
                break;
            };
            match self.do_item(v, &item) {
                Ok(Progress::Done) => self.deferred.done += 1,
                Ok(Progress::Part(rest)) => self.deferred.due.push_front(rest),
                Ok(Progress::NoRoom) => self.deferred.later.push(item),
                Err(Error::Miss) => {
                    self.deferred.due.push_front(item);
                    return Err(Error::Miss);
                }
                Err(error) => return Err(error),
            }
            worked = true;
        }
        Ok(worked)
    }

    /// Starts freeing inodes that have neither names nor references.
    fn take_up_dead(&mut self, v: &mut Volume<'_>) -> Result<bool> {
        let mut any = false;
        while let Some(number) = self.deferred.dead.front().copied() {
            let inode = self.read_any_inode(v, number)?;
            self.deferred.dead.pop_front();
            if self.is_referenced(number) {
                continue;
            }
            let Some(state) = self.inodes.get_mut(&number) else {
                continue;
            };
            let Some(freed) = state.freed.take() else {
                continue;
            };
            let never_alive = state.never_alive || !holds(Rule::InodeFreedAfterDeath);
            self.give_places_of(v, number);
            let after = if never_alive { None } else { Some(freed) };
            let blocks = u64::from(inode.sectors / self.sectors_per_block());
            self.deferred.pending_blocks += blocks;
            self.deferred.pending_inodes += 1;
            let dead = DeadInode {
                number,
                done_from: self.blocks_max(),
                blocks,
            };
            self.defer(v, Item::Inode(dead), after.as_slice());
            any = true;
        }
        Ok(any)
    }

    /// Forgets what is known of inodes with nothing under way.
    fn look_at_idle(&mut self, v: &mut Volume<'_>) {
        let mut busy = 0;
        let most_busy = BUSY_PER_CALL.max(self.deferred.idle.len() / BUSY_PART);
        for _ in 0..self.deferred.idle.len() {
            if busy == most_busy {
                break;
            }
            let Some(inode) = self.deferred.idle.pop_front() else {
                break;
            };
            let Some(state) = self.inodes.get_mut(&inode) else {
                continue;
            };
            state.is_idle = false;
            if state.freed.is_some() {
                continue;
            }
            if self.forget_if_idle(v, inode) {
                continue;
            }
            if let Some(state) = self.inodes.get_mut(&inode) {
                state.is_idle = true;
            }
            self.deferred.note_idle(inode);
            busy += 1;
        }
        self.bound_kept();
    }

    /// Lets go of directories that are kept for their index, where there are too many.
    fn bound_kept(&mut self) {
        let names_of = |fs: &Ext, directory: &u32| {
            let state = fs.inodes.get(directory).filter(|s| s.is_kept);
            let index = state.and_then(|s| s.index.as_ref());
            index.map_or(0, |index| index.names())
        };
        // They grow while they are kept.
        let all = self.deferred.kept.iter();
        let mut names: u64 = all.map(|directory| names_of(self, directory)).sum();
        while self.deferred.kept.len() > KEPT_MAX
            || names > KEPT_NAMES_MAX && self.deferred.kept.len() > 1
        {
            let Some(directory) = self.deferred.kept.pop_front() else {
                return;
            };
            names = names.saturating_sub(names_of(self, &directory));
            // It may have been forgotten since, or even made anew; then it will have its index
            // again when it needs it.
            let Some(state) = self.inodes.get_mut(&directory) else {
                continue;
            };
            state.is_kept = false;
            self.index_bytes -= state.index.take().map_or(0, |index| index.bytes());
            if state.freed.is_none() && !std::mem::replace(&mut state.is_idle, true) {
                self.deferred.note_idle(directory);
            }
        }
    }

    /// Does one item, or a part of it.
    fn do_item(&mut self, v: &mut Volume<'_>, item: &Item) -> Result<Progress> {
        match item {
            Item::Blocks(runs) => {
                self.gather_freeing(v, runs)?;
                self.free_runs(v, runs);
                let count: u64 = runs.iter().map(|r| r.len).sum();
                self.deferred.pending_blocks = self.deferred.pending_blocks.saturating_sub(count);
                Ok(Progress::Done)
            }
            Item::AttributeBlock(block) => {
                self.release_attribute_block(v, *block, None)?;
                Ok(Progress::Done)
            }
            Item::Inode(dead) => self.free_part_of_inode(v, *dead),
            Item::Spares(inodes) => {
                for inode in inodes {
                    if !self.inode_is_marked(v, *inode)? {
                        return Err(Error::corrupt(
                            format!("inode {inode}"),
                            "it was marked as used and is marked as free",
                        ));
                    }
                }
                for inode in inodes {
                    self.clear_inode_bit(v, *inode, false);
                    self.note_freed_in_table(v, *inode);
                }
                let count = inodes.len() as u64;
                self.deferred.pending_inodes = self.deferred.pending_inodes.saturating_sub(count);
                Ok(Progress::Done)
            }
        }
    }

    pub(crate) fn free_runs(&mut self, v: &mut Volume<'_>, runs: &[Run]) {
        for run in runs {
            for block in run.start..run.end() {
                v.discard(block);
            }
            self.clear_block_bits(v, *run);
            if let Some(freed) = &mut self.freed {
                freed.add(*run);
            }
        }
    }

    /// Frees an inode's blocks from the end on, a bounded part at a time, then its attributes, then
    /// the inode itself.
    fn free_part_of_inode(&mut self, v: &mut Volume<'_>, dead: DeadInode) -> Result<Progress> {
        let DeadInode {
            number,
            done_from,
            blocks,
        } = dead;
        let inode = self.read_any_inode(v, number)?;
        // Everything that may miss comes before the first bit is cleared.
        if inode.file_acl != 0 {
            self.gather_attribute_release(v, inode.file_acl)?;
        }
        if !self.inode_is_marked(v, number)? {
            return Err(Error::corrupt(
                format!("inode {number}"),
                "it is in use but marked as free",
            ));
        }
        let mut left = blocks;
        // Without sectors it has no blocks: nothing to look for.
        if inode.sectors > 0 && inode.has_block_map(self.sb.block_size) && done_from > 0 {
            let Some(part) = self.gather_part_of_dead(v, &inode, done_from)? else {
                return Ok(Progress::NoRoom);
            };
            let Part { from, plan, owner } = part;
            self.gather_freeing(v, &plan.freed)?;
            if owner == Owner::Lives {
                self.unmap_part_of_dead(v, number, &inode, &plan);
            }
            self.free_runs(v, &plan.freed);
            let freed = plan.count.min(blocks);
            left -= freed;
            self.deferred.pending_blocks = self.deferred.pending_blocks.saturating_sub(freed);
            if from > 0 {
                return Ok(Progress::Part(Item::Inode(DeadInode {
                    number,
                    done_from: from,
                    blocks: left,
                })));
            }
        } else if !self.fits(v, &[]) {
            return Ok(Progress::NoRoom);
        }
        if inode.file_acl != 0 {
            self.release_attribute_block(v, inode.file_acl, Some(number))?;
        }
        self.clear_inode_bit(v, number, inode.is_directory());
        self.note_freed_in_table(v, number);
        self.deferred.pending_blocks = self.deferred.pending_blocks.saturating_sub(left);
        self.deferred.pending_inodes = self.deferred.pending_inodes.saturating_sub(1);
        self.forget_state(number);
        // Where files come and go one after the other it is the last in the queue.
        if self.deferred.idle.back() == Some(&number) {
            self.deferred.idle.pop_back();
        }
        self.windows.drop_of(number);
        Ok(Progress::Done)
    }

    /// The last blocks of a dead inode, as many as one step frees; `None` where the transaction has
    /// no room for any. Where scopes are atomic and it is not all in one, the pointers are
    /// nullified too: a transaction may end behind each step, and the replay of it goes on from
    /// what the inode says.
    fn gather_part_of_dead(
        &self,
        v: &mut Volume<'_>,
        inode: &Inode,
        done_from: u64,
    ) -> Result<Option<Part>> {
        let end = self.mapped_end(v, inode, done_from)?;
        let mut from = steps::begins(end, LEAVES_PER_STEP, self.pointers_per_block());
        if from == 0 || !v.scopes_are_atomic() {
            let owner = Owner::Freed;
            let plan = self.gather_unmapping(v, inode, from..done_from, owner)?;
            if self.fits(v, &plan.freed) {
                return Ok(Some(Part { from, plan, owner }));
            }
        }
        loop {
            let owner = Owner::Lives;
            let plan = self.gather_unmapping(v, inode, from..done_from, owner)?;
            if self.fits(v, &plan.freed) {
                return Ok(Some(Part { from, plan, owner }));
            }
            let blocks = end.saturating_sub(from);
            if blocks <= 1 {
                return Ok(None);
            }
            from += blocks / 2;
        }
    }

    /// Nullifies the pointers to a part of a dead inode's blocks.
    fn unmap_part_of_dead(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
        inode: &Inode,
        plan: &Unmapping,
    ) {
        for (block, first, count) in &plan.entries {
            let zeros = vec![0; count * 4];
            v.write(*block, kinds::INDIRECT, first * 4, &zeros, &[]);
        }
        let sectors = plan.count * u64::from(self.sectors_per_block());
        self.edit_inode(v, number, &[], |e| {
            for root in &plan.roots {
                e.set_pointer(*root, 0);
            }
            e.set_sectors(inode.sectors.saturating_sub(sectors as u32));
        });
    }
}
