//! How new blocks are linked to a file through its pointers.
//!
//! What is pointed to is on the disk before what leads to it. New indirect blocks wait for nothing
//! themselves: what points to the topmost of them, the inode or an indirect block that was there
//! before, waits for everything below, so that contents and their indirect blocks can be written
//! together.

use backstitch_layout::BlockNumber;

use backstitch_ordering::{PatchId, Volume};
use smallvec::{SmallVec, smallvec};

use super::cut::write_entries;
use crate::format::{Format, InodeEditor, POINTERS};
use crate::kinds;
use crate::rules::{Rule, wait_for, wait_for_all};
use crate::state::patches::PatchIds;
use backstitch_blocks::runs::Run;

/// A run of blocks to be added to a file, and the indirect blocks that it needs.
#[derive(Debug)]
pub struct Growth {
    /// The first block in the file.
    pub logical: u64,
    /// The blocks.
    pub run: Run,
    /// New indirect blocks, in the order in which the walk over the run meets them (outermost
    /// first).
    pub(crate) indirects: SmallVec<[BlockNumber; 3]>,
    /// Indirect blocks that were there and go to new places.
    pub(crate) moves: Moves,
    /// The last units of the file, which go to the beginning of the run.
    pub(crate) replaces: Option<Run>,
    /// What was the file's last block becomes whole: units to be added to it too.
    pub(crate) completes: Option<Box<Growth>>,
}

impl Growth {
    /// How many units the file has more by it: those that go elsewhere count once.
    pub(crate) fn units_added(&self, units_per_pointer: u64) -> u64 {
        let own = self.run.len + self.indirects.len() as u64 * units_per_pointer;
        let completes = self.completes.as_deref();
        own - self.replaces.map_or(0, |old| old.len)
            + completes.map_or(0, |last| last.units_added(units_per_pointer))
    }

    /// Where a block is once the last units have gone to the run.
    pub(crate) fn place_of(&self, block: BlockNumber) -> BlockNumber {
        match self.replaces {
            Some(old) if old.contains(block) => self.run.start + (block - old.start),
            _ => block,
        }
    }
}

/// An indirect block that goes to a new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) from: BlockNumber,
    pub(crate) to: BlockNumber,
    /// The new place is marked as used already: the block was there before.
    pub(crate) is_marked: bool,
}

/// All of those on the way to a block, outermost first.
pub(crate) type Moves = SmallVec<[Moved; 1]>;

/// The way from an inode to one block: the pointer in the inode, then an index in each indirect
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// The index into the inode's pointers.
    pub(crate) root: usize,
    /// The indices into the indirect blocks, outermost first.
    pub(crate) indices: [usize; 3],
    /// How many of them there are.
    pub(crate) depth: usize,
}

impl Path {
    /// Whether both ways lead through the same indirect block at `level`.
    pub(super) fn shares(&self, other: &Path, level: usize) -> bool {
        self.root == other.root
            && self.depth == other.depth
            && self.indices[..level] == other.indices[..level]
    }
}

/// What links a run of new blocks to its file: the inode's pointers, and the indirect blocks that
/// change, new ones with all their contents, existing ones with the entries that they gain.
#[derive(Default)]
pub(crate) struct Links {
    pub(super) nodes: SmallVec<[Node; 2]>,
    /// The inode's pointers that change.
    pub(super) pointers: [Option<BlockNumber>; POINTERS],
}

pub(super) struct Node {
    block: BlockNumber,
    /// Nothing on the disk leads to it.
    pub(super) is_new: bool,
    /// Where it was before, and still has what it held.
    moved_from: Option<BlockNumber>,
    /// A path that leads here, and to which of the indirect blocks on it.
    path: Path,
    level: usize,
    /// Entries gained: from which index on, and the blocks, one after the other, that they point
    /// to.
    pub(super) entries: SmallVec<[(usize, Run); 2]>,
    /// What must be on the disk before they are: patches, and new nodes by their place in the list.
    pub(super) after: PatchIds,
    children: SmallVec<[usize; 2]>,
    /// The node that points to it, if that is one of ours; the inode otherwise.
    has_parent: bool,
}

/// Where indirect blocks go.
pub(super) struct Places<'a> {
    /// New ones.
    pub(super) fresh: &'a mut dyn Iterator<Item = BlockNumber>,
    /// Indirect blocks that were there and go elsewhere.
    pub(super) moves: &'a [Moved],
}

impl Links {
    /// The place of the leaf that a path leads through, made with every missing block above it.
    pub(super) fn leaf_for(
        &mut self,
        path: &Path,
        existing: &[BlockNumber; 3],
        places: &mut Places<'_>,
    ) -> usize {
        let mut parent: Option<usize> = None;
        for (level, block) in existing.iter().enumerate().take(path.depth) {
            let is_it = |n: &Node| n.level == level && n.path.shares(path, level);
            let at = match self.nodes.iter().position(is_it) {
                Some(at) => at,
                None => self.add(*block, places, path, level, parent),
            };
            parent = Some(at);
        }
        parent.unwrap_or(0)
    }

    fn add(
        &mut self,
        existing: BlockNumber,
        places: &mut Places<'_>,
        path: &Path,
        level: usize,
        parent: Option<usize>,
    ) -> usize {
        let moved = places.moves.iter().find(|moved| moved.from == existing);
        let is_new = existing == BlockNumber::NONE || moved.is_some();
        let block = match moved {
            Some(moved) => moved.to,
            // The gather phase picked as many blocks as the walk meets missing ones.
            None if is_new => places.fresh.next().unwrap_or_default(),
            None => existing,
        };
        let at = self.nodes.len();
        self.nodes.push(Node {
            block,
            is_new,
            moved_from: moved.map(|moved| moved.from),
            path: *path,
            level,
            entries: SmallVec::new(),
            after: PatchIds::new(),
            children: SmallVec::new(),
            has_parent: is_new && parent.is_some(),
        });
        if is_new {
            match parent {
                Some(parent) => {
                    let entry = (path.indices[level - 1], Run::one(block));
                    self.nodes[parent].entries.push(entry);
                    self.nodes[parent].children.push(at);
                }
                None => self.pointers[path.root] = Some(block),
            }
        }
        at
    }

    /// Sets the inode's pointers.
    pub(crate) fn set_pointers(&self, e: &mut impl InodeEditor) {
        for (index, pointer) in self.pointers.iter().enumerate() {
            if let Some(pointer) = pointer {
                e.set_pointer(index, *pointer);
            }
        }
    }

    /// Whether indirect blocks gain entries, and all of them were there: the patch of a new one is
    /// not known before it is made, so it could not be asked beforehand what becomes of a change
    /// that waits for it.
    pub(crate) fn only_changes_existing(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|n| !n.is_new)
    }

    /// Whether the blocks are behind indirect blocks that were there, be it elsewhere.
    pub(crate) fn is_behind_existing(&self) -> bool {
        let was_there = |n: &Node| !n.is_new || n.moved_from.is_some();
        !self.nodes.is_empty() && self.nodes.iter().all(was_there)
    }

    /// Appends what the inode's change is to come after where nothing on the disk leads to the
    /// file: all that the entries point to. Earlier changes of the blocks that gain entries need
    /// not be among these: a change of the inode followed each, which is part of what makes the
    /// inode, or lies between that and this change.
    pub(crate) fn awaited(&self, bits: &[PatchId], into: &mut PatchIds) {
        into.extend_from_slice(bits);
        for node in &self.nodes {
            into.extend_from_slice(&node.after);
        }
    }

    /// Writes all nodes; a pointer to a new one waits for everything below it. Where the file
    /// `is_unborn` its inode waits for that, and no indirect block does.
    pub(crate) fn write(
        &self,
        format: &impl Format,
        v: &mut Volume<'_>,
        bits: &[PatchId],
        before_inode: &mut PatchIds,
        is_unborn: bool,
    ) {
        let units = format.units_per_pointer() as usize;
        // Of each new node: what a pointer to it waits for.
        let mut below: SmallVec<[PatchIds; 2]> = smallvec![PatchIds::new(); self.nodes.len()];
        // What entries of a file that is not on the disk yet lead to.
        let mut led_to = PatchIds::new();
        // A node is made after the one that points to it: backwards, children come first.
        for (at, node) in self.nodes.iter().enumerate().rev() {
            if node.entries.is_empty() {
                continue;
            }
            let mut after = node.after.clone();
            // What leads to the topmost new block waits for the bits of all; so does the inode of a
            // file that is not on the disk yet.
            if !node.is_new && !is_unborn {
                let rule = match node.path.depth {
                    1 => Rule::IndirectEntryAfterBit,
                    _ => Rule::DeepEntryAfterBit,
                };
                after.extend_from_slice(wait_for_all(rule, bits));
            }
            for child in &node.children {
                let below = std::mem::take(&mut below[*child]);
                after.extend_from_slice(wait_for_all(Rule::EntryAfterBelow, &below));
            }
            if !node.is_new {
                if is_unborn {
                    led_to.append(&mut after);
                }
                for (index, blocks) in &node.entries {
                    let bytes = format.encode_pointers(*blocks);
                    let at = index * format.pointer_bytes();
                    write_entries(format, v, node.block, at, &bytes, &after, |id| {
                        before_inode.push(wait_for(Rule::SizeAfterIndirectEntry, id));
                    });
                }
                continue;
            }
            let mut contents = match node.moved_from.and_then(|from| v.peek(from)) {
                Some(before) => before.to_vec(),
                None => vec![0; format.block_size() as usize * units],
            };
            for (index, blocks) in &node.entries {
                let bytes = format.encode_pointers(*blocks);
                let at = index * format.pointer_bytes();
                contents[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            let parts = contents.chunks(format.block_size() as usize);
            let made = node.block.run(units as u64).zip(parts);
            let rule = match node.has_parent {
                true => Rule::IndirectEntryAfterBlock,
                false => Rule::IndirectPointerAfterBlock,
            };
            let made: PatchIds = made
                .map(|(unit, part)| wait_for(rule, v.initialise(unit, kinds::INDIRECT, part, &[])))
                .collect();
            if node.has_parent {
                after.extend_from_slice(&made);
                below[at] = after;
            } else {
                before_inode.extend_from_slice(&made);
                before_inode
                    .extend_from_slice(wait_for_all(Rule::IndirectPointerAfterBelow, &after));
            }
        }
        if is_unborn {
            before_inode.extend_from_slice(wait_for_all(Rule::UnbornInodeAfterEntries, &led_to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies behind them may be the same directory's too.
    #[test]
    fn only_the_last_units_go_to_the_run() {
        let run = |start, len| Run {
            start: BlockNumber(start),
            len,
        };
        let growth = Growth {
            run: run(90, 4),
            replaces: Some(run(20, 3)),
            logical: 0,
            indirects: SmallVec::new(),
            moves: Moves::new(),
            completes: None,
        };
        let places = [19, 20, 22, 23].map(|block| growth.place_of(BlockNumber(block)).0);
        assert_eq!(places, [19, 90, 92, 23]);
    }
}
