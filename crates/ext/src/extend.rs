//! Adding blocks to files and directories: which ones, and how they are linked in.
//!
//! What is pointed to is on the disk before what leads to it. New indirect blocks wait for nothing
//! themselves: what points to the topmost of them, the inode or an indirect block that was there
//! before, waits for everything below, so that contents and their indirect blocks can be written
//! together.

use std::ops::Range;

use backstitch_layout::{Error, Result, Timestamp};
use backstitch_ordering::{BlockClass, PatchId, Volume};
use backstitch_store::BlockKind;
use smallvec::{SmallVec, smallvec};

use crate::editor::InodeEditor;
use crate::format::Inode;
use crate::format::inode::DIRECT_POINTERS;
use crate::kinds;
use crate::map::{Mapped, Path};
use crate::moved::{Moved, Moves};
use crate::place::{Picks, Purpose};
use crate::rules::{Rule, holds, wait_for, wait_for_all};
use crate::state::Ext;
use crate::state::PatchIds;
use crate::state::runs::Run;

/// A run of blocks to be added to a file, and the indirect blocks that it needs.
#[derive(Debug)]
pub(crate) struct Extension {
    /// The first block in the file.
    pub(crate) logical: u64,
    pub(crate) run: Run,
    /// New indirect blocks, in the order in which the walk over the run meets them (outermost
    /// first).
    pub(crate) indirects: SmallVec<[u64; 3]>,
    /// Those that were there and go to new places.
    pub(crate) moves: Moves,
}

/// What new blocks are to hold.
#[derive(Clone, Copy)]
pub(crate) struct NewContents<'a> {
    pub(crate) kind: BlockKind,
    /// Bytes, from the offset `within` of the first block on; the rest is zeros.
    pub(crate) bytes: &'a [u8],
    pub(crate) within: usize,
    /// What must be on the disk before them.
    pub(crate) after: &'a [PatchId],
}

impl<'a> NewContents<'a> {
    /// Contents of a file.
    pub(crate) fn data(bytes: &'a [u8], within: usize) -> Self {
        NewContents {
            kind: BlockClass::Data.into(),
            bytes,
            within,
            after: &[],
        }
    }
}

impl Ext {
    /// Picks blocks for a hole of a file, and for the indirect blocks that they need.
    pub(crate) fn gather_extension(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
        inode: &Inode,
        logical: u64,
        want: u64,
    ) -> Result<Extension> {
        let mut want = want.min(self.blocks_max().saturating_sub(logical));
        if want == 0 {
            return Err(Error::FileTooLarge);
        }
        let goal = self.goal_for(v, number, inode, logical)?;
        let grows = self.has_grown(number);
        let purpose = if inode.is_directory() {
            Purpose::Metadata
        } else {
            Purpose::Contents
        };
        loop {
            let run = self.pick_run(v, number, purpose, goal, want, grows, &Picks::default())?;
            if run.len == 0 {
                return Err(self.no_blocks());
            }
            let needed = self.missing_indirects(v, inode, logical, run.len)?;
            let mut picks = Picks(smallvec![run]);
            let mut indirects = SmallVec::new();
            for _ in 0..needed {
                match self.pick_single(v, number, &picks)? {
                    Some(block) => {
                        picks.0.push(Run {
                            start: block,
                            len: 1,
                        });
                        indirects.push(block);
                    }
                    None => break,
                }
            }
            if indirects.len() == needed {
                let moves = self.gather_moves(v, number, inode, run, logical)?;
                return Ok(Extension {
                    logical,
                    run,
                    indirects,
                    moves,
                });
            }
            // Not enough for both: fewer contents leave more for the pointers.
            if run.len == 1 {
                return Err(self.no_blocks());
            }
            want = (run.len / 2).max(1);
        }
    }

    /// Whether blocks were added to a file lately, as far as is known.
    fn has_grown(&self, number: u32) -> bool {
        self.inodes.get(&number).is_some_and(|s| s.has_grown) || self.windows.is_there(number)
    }

    /// The place on the disk that would continue what is before the block.
    fn goal_for(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
        inode: &Inode,
        logical: u64,
    ) -> Result<u64> {
        if logical > 0
            && let Mapped::Blocks(run) = self.map_blocks(v, inode, logical - 1, 1)?
        {
            return Ok(run.start + 1);
        }
        let state_goal = self.inodes.get(&number).map_or(0, |s| s.goal);
        if state_goal != 0 {
            return Ok(state_goal);
        }
        Ok(self.sb.group_first_block(self.sb.group_of_inode(number)))
    }

    /// How many indirect blocks a run of new blocks needs that do not exist.
    fn missing_indirects(
        &self,
        v: &mut Volume<'_>,
        inode: &Inode,
        logical: u64,
        len: u64,
    ) -> Result<usize> {
        let mut missing = 0;
        let mut previous: Option<Path> = None;
        for at in self.leaf_starts(logical, len) {
            let Some(path) = self.path_of(at) else { break };
            let (indirects, _) = self.resolve(v, inode, &path)?;
            for (level, indirect) in indirects.iter().enumerate().take(path.depth) {
                if *indirect == 0 && !previous.is_some_and(|p| p.shares(&path, level)) {
                    missing += 1;
                }
            }
            previous = Some(path);
        }
        Ok(missing)
    }

    /// The blocks of a range at which another leaf of the tree begins, and the first.
    pub(crate) fn leaf_starts(&self, logical: u64, len: u64) -> impl Iterator<Item = u64> + use<> {
        let n = self.pointers_per_block();
        let direct = DIRECT_POINTERS as u64;
        let end = logical + len;
        let mut next = Some(logical);
        std::iter::from_fn(move || {
            let at = next?;
            let following = if at < direct {
                direct
            } else {
                direct + ((at - direct) / n + 1) * n
            };
            next = (following < end).then_some(following);
            Some(at)
        })
    }

    /// Adds blocks to a file or directory. Returns the patch of the first block and the one of the
    /// inode.
    ///
    /// The patch of the inode, its pointers and its size, is the commit point.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn extend(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
        inode: &Inode,
        extension: &Extension,
        contents: NewContents<'_>,
        end: u64,
        mut before_inode: PatchIds,
        now: Timestamp,
    ) -> (PatchId, PatchId) {
        let run = extension.run;
        let mut bits = PatchIds::new();
        self.set_block_bits(v, run, &mut bits);
        for block in &extension.indirects {
            self.set_block_bits(
                v,
                Run {
                    start: *block,
                    len: 1,
                },
                &mut bits,
            );
        }
        self.mark_moves(v, &extension.moves, &mut bits);
        let data = v.hidden(true, |v| self.write_new_blocks(v, number, run, contents));
        before_inode.extend_from_slice(wait_for_all(Rule::PointerAfterBit, &bits));
        let mut pointers = [None; DIRECT_POINTERS + 3];
        let tree = self.link_run(v, inode, extension, &data, &mut before_inode, &mut pointers);
        let last = inode.size.div_ceil(self.block_size() as u64).checked_sub(1);
        let fills_end = end <= inode.size
            && last.is_some_and(|last| {
                (extension.logical..extension.logical + run.len).contains(&last)
            });
        let grown = run.len + extension.indirects.len() as u64;
        let sectors = inode
            .sectors
            .saturating_add((grown * u64::from(self.sectors_per_block())) as u32);
        let edit = |e: &mut InodeEditor| {
            for (index, pointer) in pointers.iter().enumerate() {
                if let Some(pointer) = pointer {
                    e.set_pointer(index, *pointer);
                }
            }
            e.set_sectors(sectors);
            if end > inode.size {
                e.set_size(end);
            }
            e.set_modified(now);
            e.set_changed(now);
        };
        // Of a file that is not on the disk, what indirect blocks point to need not be there before
        // they are: everything is there before the inode.
        let is_apart = self.keeps_contents_apart(v, number);
        let is_unborn = !is_apart
            && tree.only_changes_existing()
            && (!holds(Rule::UnbornMeansNotOnDisk) || {
                let mut after = before_inode.clone();
                tree.awaited(&bits, &mut after);
                self.is_unborn_with(v, number, &after, edit)
            });
        let is_append = end > inode.size && tree.is_behind_existing();
        // Nor does anybody look at pointers behind the end.
        let start = extension.logical * self.block_size() as u64;
        let is_hidden = self.is_behind_end(v, number, inode, start);
        v.hidden(is_hidden, |v| {
            tree.write(v, self.block_size(), &bits, &mut before_inode, is_unborn);
        });
        let id = self.change_inode_apart(v, number, is_apart, &before_inode, edit);
        self.note_contents_apart(v, number, id, is_apart);
        let grows = self.has_grown(number);
        let state = self.state(number);
        debug_assert!(
            !is_unborn
                || !holds(Rule::UnbornMeansNotOnDisk)
                || state.made.is_some_and(|made| v.merged(made, id)),
            "inode {number} changes apart from what its indirect blocks rely on"
        );
        state.goal = run.end();
        state.has_grown = true;
        if fills_end {
            state.end_filled = Some(id);
        }
        if is_append {
            state.is_appended = true;
            self.left_places.expected.note_done(now);
        }
        self.note_moves(v, number, &extension.moves, id);
        self.note_taken(number, run, grows);
        (data[0], id)
    }

    /// Contents of new blocks: the patch of each.
    fn write_new_blocks(
        &mut self,
        v: &mut Volume<'_>,
        number: u32,
        run: Run,
        contents: NewContents<'_>,
    ) -> PatchIds {
        let bs = self.block_size();
        let NewContents {
            kind,
            bytes,
            within,
            after,
        } = contents;
        let joins = kind.class == BlockClass::Data && after.is_empty();
        let mut write = |ext: &mut Ext, block, contents: &[u8]| {
            if joins {
                ext.write_contents(v, number, block, 0, contents)
            } else {
                v.initialise(block, kind, contents, after)
            }
        };
        let mut patches = PatchIds::new();
        let mut partial = std::mem::take(&mut self.partial_block);
        for i in 0..run.len as usize {
            // The part of `bytes` that falls into this block.
            let (block_start, block_end) = (i * bs, (i + 1) * bs);
            let from = block_start.max(within);
            let to = block_end.min(within + bytes.len());
            let block = run.start + i as u64;
            let id = if from == block_start && to == block_end {
                write(self, block, &bytes[from - within..to - within])
            } else {
                partial.clear();
                if from < to {
                    partial.resize(from - block_start, 0);
                    partial.extend_from_slice(&bytes[from - within..to - within]);
                }
                partial.resize(bs, 0);
                write(self, block, &partial)
            };
            patches.push(id);
        }
        self.partial_block = partial;
        patches
    }

    /// The pointers to a run of new blocks: those in the inode go into `pointers`, those in
    /// indirect blocks are returned, to be written. Appends to `before_inode` what the inode's
    /// change must wait for because of the former.
    fn link_run(
        &mut self,
        v: &mut Volume<'_>,
        inode: &Inode,
        extension: &Extension,
        data: &[PatchId],
        before_inode: &mut PatchIds,
        pointers: &mut [Option<u32>; DIRECT_POINTERS + 3],
    ) -> Tree {
        let mut fresh = extension.indirects.iter().copied();
        let mut tree = Tree::default();
        let end = extension.logical + extension.run.len;
        let mut starts = self
            .leaf_starts(extension.logical, extension.run.len)
            .peekable();
        while let Some(at) = starts.next() {
            let Some(path) = self.path_of(at) else { break };
            let leaf_end = starts.peek().copied().unwrap_or(end);
            let offset = (at - extension.logical) as usize;
            let count = (leaf_end - at) as usize;
            let physical = (extension.run.start + offset as u64) as u32;
            if path.depth == 0 {
                for k in 0..count {
                    pointers[path.root + k] = Some(physical + k as u32);
                }
                let data = &data[offset..offset + count];
                before_inode.extend_from_slice(wait_for_all(Rule::PointerAfterContents, data));
                continue;
            }
            // The gather phase looked all of these blocks up.
            let Ok((existing, _)) = self.resolve(v, inode, &path) else {
                continue;
            };
            let mut places = Places {
                fresh: &mut fresh,
                moves: &extension.moves,
                pointers: &mut *pointers,
            };
            let leaf = tree.leaf_for(&path, &existing, &mut places);
            let data = &data[offset..offset + count];
            let rule = match (tree.nodes[leaf].is_new, path.depth) {
                (true, _) => Rule::NewLeafAfterContents,
                (_, 1) => Rule::IndirectEntryAfterContents,
                _ => Rule::DeepEntryAfterContents,
            };
            let after = wait_for_all(rule, data);
            let index = path.indices[path.depth - 1];
            let blocks = physical..physical + count as u32;
            tree.nodes[leaf].entries.push((index, blocks));
            tree.nodes[leaf].after.extend_from_slice(after);
        }
        tree
    }
}

impl Path {
    /// Whether both ways lead through the same indirect block at `level`.
    fn shares(&self, other: &Path, level: usize) -> bool {
        self.root == other.root
            && self.depth == other.depth
            && self.indices[..level] == other.indices[..level]
    }
}

/// Indirect blocks that a run changes: new ones with all their contents, existing ones with the
/// entries that they gain.
#[derive(Default)]
struct Tree {
    nodes: SmallVec<[Node; 2]>,
}

struct Node {
    block: u64,
    /// Nothing on the disk leads to it.
    is_new: bool,
    /// Where it was before, and still has what it held.
    moved_from: Option<u64>,
    /// A path that leads here, and to which of the indirect blocks on it.
    path: Path,
    level: usize,
    /// Entries gained: from which index on, and the blocks, one after the other, that they point
    /// to.
    entries: SmallVec<[(usize, Range<u32>); 2]>,
    /// What must be on the disk before they are: patches, and new nodes by their place in the list.
    after: PatchIds,
    children: SmallVec<[usize; 2]>,
    /// The node that points to it, if that is one of ours; the inode otherwise.
    has_parent: bool,
}

/// Where indirect blocks go.
struct Places<'a> {
    /// New ones.
    fresh: &'a mut dyn Iterator<Item = u64>,
    /// Those that were there and go elsewhere.
    moves: &'a [Moved],
    /// The inode's pointers to them.
    pointers: &'a mut [Option<u32>; DIRECT_POINTERS + 3],
}

impl Tree {
    /// The place of the leaf that a path leads through, made with every missing block above it.
    fn leaf_for(&mut self, path: &Path, existing: &[u64; 3], places: &mut Places<'_>) -> usize {
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
                    let entry = (path.indices[level - 1], block as u32..block as u32 + 1);
                    self.nodes[parent].entries.push(entry);
                    self.nodes[parent].children.push(at);
                }
                None => places.pointers[path.root] = Some(block as u32),
            }
        }
        at
    }

    /// Whether indirect blocks gain entries, and all of them were there: the patch of a new one is
    /// not known before it is made, so it could not be asked beforehand what becomes of a change
    /// that waits for it.
    fn only_changes_existing(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|n| !n.is_new)
    }

    /// Whether the blocks are behind indirect blocks that were there, be it elsewhere.
    fn is_behind_existing(&self) -> bool {
        let was_there = |n: &Node| !n.is_new || n.moved_from.is_some();
        !self.nodes.is_empty() && self.nodes.iter().all(was_there)
    }

    /// Appends what the inode's change is to come after where nothing on the disk leads to the
    /// file: all that the entries point to. What is pending on the blocks that gain them was
    /// followed by a change of the inode each time: it is a part of what makes the inode, or stands
    /// between that and this one.
    fn awaited(&self, bits: &[PatchId], into: &mut PatchIds) {
        into.extend_from_slice(bits);
        for node in &self.nodes {
            into.extend_from_slice(&node.after);
        }
    }

    /// Writes all nodes; a pointer to a new one waits for everything below it. Where the file
    /// `is_unborn` its inode waits for that, and no indirect block does.
    fn write(
        self,
        v: &mut Volume<'_>,
        block_size: usize,
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
                    let bytes = pointers_to(blocks);
                    let id = v.write(node.block, kinds::INDIRECT, index * 4, &bytes, &after);
                    before_inode.push(wait_for(Rule::SizeAfterIndirectEntry, id));
                }
                continue;
            }
            let mut contents = match node.moved_from.and_then(|from| v.peek(from)) {
                Some(before) => before.to_vec(),
                None => vec![0; block_size],
            };
            for (index, blocks) in &node.entries {
                let bytes = pointers_to(blocks);
                contents[index * 4..index * 4 + bytes.len()].copy_from_slice(&bytes);
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

/// The entries of an indirect block that point to blocks one after the other.
fn pointers_to(blocks: &Range<u32>) -> SmallVec<[u8; 64]> {
    blocks.clone().flat_map(u32::to_le_bytes).collect()
}
