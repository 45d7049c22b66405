//! The work that waits until nothing on the disk refers to what it frees.

use std::collections::VecDeque;

use backstitch_layout::{BlockNumber, DeferredStatistics, InodeNumber};
use backstitch_ordering::PatchId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::inode::InodeState;
use backstitch_blocks::runs::Run;

/// Inodes with something under way after which one call gives up: this many, or 1/`BUSY_PART` of
/// all, whichever is more.
pub(crate) const BUSY_PER_CALL: usize = 64;
pub(crate) const BUSY_PART: usize = 8;
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
    AttributeBlock(BlockNumber),
    /// Inodes of one group that were marked as used ahead, for nothing.
    Spares(Vec<InodeNumber>),
}

/// An inode that is being freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadInode {
    pub(crate) number: InodeNumber,
    /// Its blocks from here on are freed already.
    pub(crate) done_from: u64,
    /// How many blocks it had.
    pub(crate) blocks: u64,
}

/// Work that waits for the same few patches: one empty patch for all of it, not one for each file
/// of a tree that is removed.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub(crate) items: Vec<Item>,
    pub(crate) after: Vec<PatchId>,
}

/// The work that waits.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    pub(crate) waiting: FxHashMap<u64, Vec<Item>>,
    /// What enters `waiting` next.
    pub(crate) gathering: Gathering,
    /// How many items there are in both.
    pub(crate) waiting_items: usize,
    pub(crate) due: VecDeque<Item>,
    /// What the transaction that is being ended has no room for.
    pub(crate) later: Vec<Item>,
    pub(crate) next_token: u64,
    pub(crate) done: u64,
    /// Inodes without names and references, to be freed.
    pub(crate) dead: VecDeque<InodeNumber>,
    /// Blocks and inodes that are not free yet but will be.
    pub(crate) pending_blocks: u64,
    pub(crate) pending_inodes: u64,
    /// Inodes of which something may still be on its way to the disk.
    pub(crate) idle: VecDeque<InodeNumber>,
    /// When these were looked at last: how many patches had been retired, the second, and how many
    /// inodes were left.
    pub(crate) looked_at_idle: (u64, i64, usize),
    /// Directories that are kept for their index, the longest kept first.
    pub(crate) kept: VecDeque<InodeNumber>,
    pub(crate) fired: Vec<u64>,
    /// Blocks of the inode table in which an inode was freed, by the first inode in them.
    freed_in: FxHashSet<InodeNumber>,
    freed_in_last: InodeNumber,
    /// The last call missed a block at the first of `dead`; else it was at the first of `due`.
    pub(crate) missed_dead: bool,
    /// Items, and inodes of `dead`, that need a block which cannot be read. What they would free is
    /// not on its way.
    aside: Vec<Item>,
    aside_dead: Vec<InodeNumber>,
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
    pub(crate) fn inodes_under_way(&self) -> impl Iterator<Item = InodeNumber> + '_ {
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

    /// Takes up what was put aside. Under a log it waits for a transaction's end once more: what is
    /// freed earlier could be written over before that is in the log.
    pub(crate) fn take_up_again(&mut self) {
        self.dead.extend(self.aside_dead.drain(..));
        for item in std::mem::take(&mut self.aside) {
            let (blocks, inodes) = item.pending();
            self.pending_blocks += blocks;
            self.pending_inodes += inodes;
            self.waiting_items += 1;
            self.gathering.items.push(item);
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

    /// Whether so many patches were retired, so many inodes came in or so much time has passed that
    /// some idle inodes can be forgotten. A look without reason costs more than most operations do.
    pub(crate) fn is_time_to_look(&self, retired: u64, second: i64) -> bool {
        let (retired_then, second_then, left_then) = self.looked_at_idle;
        let enough = (self.idle.len() / BUSY_PART).max(BUSY_PER_CALL);
        second != second_then
            || retired.wrapping_sub(retired_then) >= enough as u64
            || self.idle.len() >= 2 * left_then + BUSY_PER_CALL
    }

    pub(crate) fn note_idle(&mut self, inode: InodeNumber) {
        self.idle.push_back(inode);
    }

    pub(crate) fn note_kept(&mut self, directory: InodeNumber) {
        self.kept.push_back(directory);
    }

    /// An inode of the block of the table that begins with inode `first` was freed.
    pub(crate) fn note_freed_in(&mut self, first: InodeNumber) {
        if std::mem::replace(&mut self.freed_in_last, first) != first {
            self.freed_in.insert(first);
        }
    }

    /// The blocks of the table in which inodes were freed since the last call.
    pub(crate) fn take_freed_in(&mut self) -> FxHashSet<InodeNumber> {
        self.freed_in_last = InodeNumber::NONE;
        std::mem::take(&mut self.freed_in)
    }

    pub(crate) fn note_dead(&mut self, inode: InodeNumber) {
        self.dead.push_back(inode);
    }
}
