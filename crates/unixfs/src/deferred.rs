//! Deferred work: what nothing refers to any more is freed once that is true on the disk.
//!
//! Blocks and inodes are given back only after the clearing of every pointer to them is on stable
//! storage (rule 2 of soft updates). Then clearing their bits depends on nothing, and their next
//! user needs no dependency either. What never was on the disk is given back at once.

use backstitch_layout::{BlockNumber, Error, InodeNumber, Step, Stop, Structure, Timestamp};
use backstitch_ordering::{PatchId, Volume};

use crate::fault::Fault;
use crate::format::{Format, Inode, InodeEditor};
use crate::map::{ChangeableMap, Cut, Owner};
use crate::rules::{Rule, holds, wait_for_all};
use crate::state::UnixFs;
use crate::state::deferred::{BUSY_PART, BUSY_PER_CALL, DeadInode, Gathering, Item};
use crate::state::patches::PatchIds;
use crate::steps;
use backstitch_blocks::runs::Run;

/// How many leaf indirect blocks of a freed inode one step may look at.
const LEAVES_PER_STEP: u64 = 64;
/// The most directories that are kept in memory only because their index of names took time to make,
/// and the most names in them: about 4 MiB. The one that was used last is kept however large it is.
const KEPT_MAX: usize = 1024;
const KEPT_NAMES_MAX: u64 = 1 << 18;
/// Pieces of deferred work that wait for different patches share one watch (a *token*) for all of
/// them, until it is for this many patches. A longer one would hold up what could be freed earlier.
const PATCHES_PER_TOKEN: usize = 8;
/// How many items one call does.
const ITEMS_PER_CALL: usize = 256;

/// The outcome of working on an item.
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
    plan: Cut,
    owner: Owner,
}

impl<F: Format> UnixFs<F> {
    /// Frees blocks once `after` are on the disk. Where `after` is empty they are freed at once, and
    /// their bitmaps must be in memory.
    pub(crate) fn defer_blocks(&mut self, v: &mut Volume<'_>, runs: Vec<Run>, after: &[PatchId]) {
        self.deferred.pending_blocks += runs.iter().map(|r| r.len).sum::<u64>();
        runs.iter().for_each(|run| self.track_blocks(*run));
        if !after.is_empty() {
            self.expect_freeing(v, &runs);
        }
        self.defer(v, Item::Blocks(runs), after);
    }

    /// Takes one reference from an attribute block once `after` is on the disk.
    pub fn defer_attribute_release(
        &mut self,
        v: &mut Volume<'_>,
        block: BlockNumber,
        after: PatchId,
    ) {
        self.defer(v, Item::AttributeBlock(block), &[after]);
    }

    /// Does `item` once `after` are on the disk; at once where they are, as far as that goes
    /// without reading.
    pub(crate) fn defer(&mut self, v: &mut Volume<'_>, item: Item, after: &[PatchId]) {
        let after = wait_for_all(Rule::DeferredWorkWaits, after);
        let heeded = v.heeded(after);
        let after = heeded.as_deref().unwrap_or(after);
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

    /// Gives up one reference to an inode. The last one of a nameless inode starts freeing it.
    pub(crate) fn drop_reference(&mut self, inode: InodeNumber) {
        if !self.references.release(inode) {
            return;
        }
        match self.inodes.get_mut(&inode) {
            Some(state) if state.freed.is_some() => self.deferred.note_dead(inode),
            Some(state) => {
                // Queued once: a program that looks at a file again and again leaves no more than
                // one entry.
                if !std::mem::replace(&mut state.is_idle, true) {
                    self.deferred.note_idle(inode);
                }
            }
            None => self.format.drop_window(inode),
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
    pub(crate) fn defer_spares(&mut self, inodes: Vec<InodeNumber>) {
        self.deferred.pending_inodes += inodes.len() as u64;
        self.deferred.due.push_back(Item::Spares(inodes));
    }

    /// Does what has become due. True where there was anything.
    pub(crate) fn do_deferred(&mut self, v: &mut Volume<'_>, now: Timestamp) -> Step<bool> {
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
    pub(crate) fn free_ready_items(&mut self, v: &mut Volume<'_>) -> Step<bool> {
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
                Err(Stop::Miss) => {
                    self.deferred.due.push_front(item);
                    return Err(Stop::Miss);
                }
                Err(error) => return Err(error),
            }
            worked = true;
        }
        Ok(worked)
    }

    /// Starts freeing inodes that have neither names nor references.
    fn take_up_dead(&mut self, v: &mut Volume<'_>) -> Step<bool> {
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
            let never_alive = state.never_alive;
            let clearings = std::mem::take(&mut state.clearings);
            self.give_places_of(v, number);
            let cleared = self.clear_dead(v, number, &inode, freed, &clearings);
            // The disk may still show what an inode had that was never alive, unless the clearing
            // joined the patch that freed it.
            let never_alive = never_alive
                && (cleared == freed
                    || v.merged(freed, cleared)
                    || !holds(Rule::NeverAliveOnlyIfCleared))
                || !holds(Rule::InodeFreedAfterDeath);
            let freed = cleared;
            let after = if never_alive { None } else { Some(freed) };
            let blocks = inode.sectors() / self.sectors_per_block();
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

    /// Has a dead inode cleared once it is dead on the disk, or has no name there, where freed
    /// inodes are cleared, and keeps what it had. Returns what its frees wait for. Where scopes are
    /// atomic it is cleared in the scope that frees the last of what it has: until then the disk
    /// lists it.
    fn clear_dead(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        freed: PatchId,
        clearings: &[PatchId],
    ) -> PatchId {
        if !F::CLEARS_FREED || v.scopes_are_atomic() {
            return freed;
        }
        self.cleared.insert(number, inode.clone());
        let mut after = PatchIds::new();
        after.extend_from_slice(wait_for_all(Rule::FreeingAfterClearings, clearings));
        after.push(freed);
        let is_apart = self.keeps_apart(v);
        // No name leads to it any more.
        v.hidden(true, |v| {
            self.edit_inode_apart(v, number, is_apart, &after, |e| e.clear())
        })
    }

    /// An inode that has neither names nor references, as it was before it was cleared.
    ///
    /// # Errors
    /// Where its block is missing, or it cannot exist.
    pub fn read_dead_inode(&mut self, v: &mut Volume<'_>, number: InodeNumber) -> Step<F::Inode> {
        match self.cleared.get(&number) {
            Some(inode) => Ok(inode.clone()),
            None => self.read_any_inode(v, number),
        }
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
        let names_of = |fs: &Self, directory: &InodeNumber| {
            let state = fs.inodes.get(directory).filter(|s| s.is_kept);
            let index = state.and_then(|s| s.index.as_ref());
            index.map_or(0, |index| index.names())
        };
        // Summed anew: the indexes grow while they are kept.
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
    fn do_item(&mut self, v: &mut Volume<'_>, item: &Item) -> Step<Progress> {
        match item {
            Item::Blocks(runs) => {
                self.gather_freeing(v, runs)?;
                self.free_runs(v, runs);
                let count: u64 = runs.iter().map(|r| r.len).sum();
                self.deferred.pending_blocks = self.deferred.pending_blocks.saturating_sub(count);
                Ok(Progress::Done)
            }
            Item::AttributeBlock(block) => {
                F::release_attribute_block(self, v, *block, None)?;
                Ok(Progress::Done)
            }
            Item::Inode(dead) => self.free_part_of_inode(v, *dead),
            Item::Spares(inodes) => {
                for inode in inodes {
                    if !self.inode_is_marked(v, *inode)? {
                        return Err(
                            Error::corrupt(Structure::inode(*inode), Fault::FreedByOthers).into(),
                        );
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

    /// Frees blocks that nothing on the disk leads to.
    pub fn free_runs(&mut self, v: &mut Volume<'_>, runs: &[Run]) {
        for run in runs {
            for block in run.blocks() {
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
    fn free_part_of_inode(&mut self, v: &mut Volume<'_>, dead: DeadInode) -> Step<Progress> {
        let DeadInode {
            number,
            done_from,
            blocks,
        } = dead;
        let inode = self.read_dead_inode(v, number)?;
        // Everything that may miss comes before the first bit is cleared.
        let attribute_block = inode.attribute_block();
        if attribute_block != BlockNumber::NONE {
            F::gather_attribute_release(self, v, attribute_block, Some(number))?;
        }
        if !self.inode_is_marked(v, number)? {
            return Err(Error::corrupt(Structure::inode(number), Fault::InUseButFree).into());
        }
        let mut left = blocks;
        // Without sectors it has no blocks: nothing to look for.
        if inode.sectors() > 0 && inode.has_block_map(self.format.block_size()) && done_from > 0 {
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
        if attribute_block != BlockNumber::NONE {
            F::release_attribute_block(self, v, attribute_block, Some(number))?;
        }
        self.cleared.remove(&number);
        if F::CLEARS_FREED && v.scopes_are_atomic() {
            v.hidden(true, |v| self.edit_inode(v, number, &[], |e| e.clear()));
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
        self.format.drop_window(number);
        Ok(Progress::Done)
    }

    /// The last blocks of a dead inode, as many as one step frees; `None` where the transaction has
    /// no room for any. Where scopes are atomic and these are not all of its blocks, the pointers
    /// are nullified too: a transaction may end behind each step, and the replay of it goes on from
    /// what the inode says.
    fn gather_part_of_dead(
        &self,
        v: &mut Volume<'_>,
        inode: &F::Inode,
        done_from: u64,
    ) -> Step<Option<Part>> {
        let map = self.changeable_map(inode);
        let end = map.end(v, done_from)?;
        let units = self.format.units_per_pointer();
        let mut from = steps::begins(end, LEAVES_PER_STEP, self.blocks_per_leaf(), units);
        if from == 0 || !v.scopes_are_atomic() {
            let owner = Owner::Freed;
            let plan = map.plan_cut(v, from..done_from, owner)?;
            if self.fits(v, &plan.freed) {
                return Ok(Some(Part { from, plan, owner }));
            }
        }
        loop {
            let owner = Owner::Lives;
            let plan = map.plan_cut(v, from..done_from, owner)?;
            if self.fits(v, &plan.freed) {
                return Ok(Some(Part { from, plan, owner }));
            }
            let blocks = end.saturating_sub(from);
            if blocks <= units {
                return Ok(None);
            }
            from = (from + blocks / 2).next_multiple_of(units);
        }
    }

    /// Nullifies the pointers to a part of a dead inode's blocks.
    fn unmap_part_of_dead(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        plan: &Cut,
    ) {
        plan.nullify_entries(&self.format, v);
        let sectors = plan.count * self.sectors_per_block();
        self.edit_inode(v, number, &[], |e| {
            plan.nullify_pointers(e);
            e.set_sectors(inode.sectors().saturating_sub(sectors));
        });
    }
}
