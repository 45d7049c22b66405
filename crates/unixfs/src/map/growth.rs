//! How new blocks are linked to a file through its pointers.
//!
//! What is pointed to is on the disk before what leads to it. New indirect blocks wait for nothing
//! themselves: what points to the topmost of them, the inode or an indirect block that was there
//! before, waits for everything below, so that contents and their indirect blocks can be written
//! together.

use std::ops::Range;

use backstitch_ordering::{PatchId, Volume};
use smallvec::{SmallVec, smallvec};

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
    pub(crate) indirects: SmallVec<[u64; 3]>,
    /// Those that were there and go to new places.
    pub(crate) moves: Moves,
}

/// An indirect block that goes to a new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// It is marked as used: the block was there before.
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
    pub(super) pointers: [Option<u64>; POINTERS],
}

pub(super) struct Node {
    block: u64,
    /// Nothing on the disk leads to it.
    pub(super) is_new: bool,
    /// Where it was before, and still has what it held.
    moved_from: Option<u64>,
    /// A path that leads here, and to which of the indirect blocks on it.
    path: Path,
    level: usize,
    /// Entries gained: from which index on, and the blocks, one after the other, that they point
    /// to.
    pub(super) entries: SmallVec<[(usize, Range<u64>); 2]>,
    /// What must be on the disk before they are: patches, and new nodes by their place in the list.
    pub(super) after: PatchIds,
    children: SmallVec<[usize; 2]>,
    /// The node that points to it, if that is one of ours; the inode otherwise.
    has_parent: bool,
}

/// Where indirect blocks go.
pub(super) struct Places<'a> {
    /// New ones.
    pub(super) fresh: &'a mut dyn Iterator<Item = u64>,
    /// Those that were there and go elsewhere.
    pub(super) moves: &'a [Moved],
}

impl Links {
    /// The place of the leaf that a path leads through, made with every missing block above it.
    pub(super) fn leaf_for(
        &mut self,
        path: &Path,
        existing: &[u64; 3],
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
        existing: u64,
        places: &mut Places<'_>,
        path: &Path,
        level: usize,
        parent: Option<usize>,
    ) -> usize {
        let moved = places.moves.iter().find(|moved| moved.from == existing);
        let is_new = existing == 0 || moved.is_some();
        let block = match moved {
            Some(moved) => moved.to,
            // The gather phase picked as many blocks as the walk meets missing ones.
            None if is_new => places.fresh.next().unwrap_or(0),
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
                    let entry = (path.indices[level - 1], block..block + 1);
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
    /// file: all that the entries point to. What is pending on the blocks that gain them was
    /// followed by a change of the inode each time: it is a part of what makes the inode, or stands
    /// between that and this one.
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
        // Of each new node: what a pointer to it waits for.
        let mut below: SmallVec<[PatchIds; 2]> = smallvec![PatchIds::new(); self.nodes.len()];
        // A node is made after the one that points to it: backwards, children come first.
        for (at, node) in self.nodes.iter().enumerate().rev() {
            if node.entries.is_empty() {
                continue;
            }
            let mut after = node.after.clone();
            if !node.is_new {
                // What leads to the topmost new block waits for the bits of all.
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
                    let entries = std::mem::take(&mut after);
                    let entries = wait_for_all(Rule::UnbornInodeAfterEntries, &entries);
                    before_inode.extend_from_slice(entries);
                }
                for (index, blocks) in &node.entries {
                    let bytes = format.encode_pointers(blocks);
                    let at = index * format.pointer_bytes();
                    let id = v.write(node.block, kinds::INDIRECT, at, &bytes, &after);
                    before_inode.push(wait_for(Rule::SizeAfterIndirectEntry, id));
                }
                continue;
            }
            let mut contents = match node.moved_from.and_then(|from| v.peek(from)) {
                Some(before) => before.to_vec(),
                None => vec![0; format.block_size() as usize],
            };
            for (index, blocks) in &node.entries {
                let bytes = format.encode_pointers(blocks);
                let at = index * format.pointer_bytes();
                contents[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            let id = v.initialise(node.block, kinds::INDIRECT, &contents, &[]);
            if node.has_parent {
                after.push(wait_for(Rule::IndirectEntryAfterBlock, id));
                below[at] = after;
            } else {
                before_inode.push(wait_for(Rule::IndirectPointerAfterBlock, id));
                before_inode
                    .extend_from_slice(wait_for_all(Rule::IndirectPointerAfterBelow, &after));
            }
        }
    }
}
