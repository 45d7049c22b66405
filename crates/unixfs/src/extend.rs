//! Adding blocks to files and directories: which ones, and how they are linked in.
//!
//! What is pointed to is on the disk before what leads to it; how that is stated for the blocks
//! between inode and contents is the map's business (`map`).

use backstitch_layout::{BlockNumber, Error, InodeNumber, Step, Structure, Timestamp};
use backstitch_ordering::{BlockClass, PatchId, Volume};
use backstitch_store::BlockKind;
use smallvec::SmallVec;

use crate::fault::Fault;
use crate::format::{Format, Inode, InodeEditor, Picks, Purpose};
use crate::map::{ChangeableMap, Growth};
use crate::rules::{Rule, holds, implied, wait_for_all};
use crate::state::UnixFs;
use crate::state::patches::PatchIds;
use backstitch_blocks::runs::{Mapped, Run};

/// The rules that keep blocks from being used again before it is on the disk that they were freed.
const FREED_BEFORE_REUSE: [Rule; 5] = [
    Rule::BlocksFreedAfterUnmapping,
    Rule::BlocksNeverMappedOnlyIfMerged,
    Rule::InodeFreedAfterDeath,
    Rule::NeverAliveOnlyIfMerged,
    Rule::DeferredWorkWaits,
];

/// What new blocks are to hold.
#[derive(Clone, Copy)]
pub struct NewContents<'a> {
    /// The kind of the blocks.
    pub kind: BlockKind,
    /// Bytes, from the offset `within` of the first block on; the rest is zeros.
    pub bytes: &'a [u8],
    /// Where in the first block `bytes` begin.
    pub within: usize,
    /// What must be on the disk before them.
    pub after: &'a [PatchId],
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

impl<F: Format> UnixFs<F> {
    /// Picks blocks for a hole of a file, and for the indirect blocks that they need.
    ///
    /// # Errors
    /// Where blocks are missing, or there is no space.
    pub fn gather_extension(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        logical: u64,
        want: u64,
    ) -> Step<Growth> {
        let mut want = want.min(self.blocks_max().saturating_sub(logical));
        if want == 0 {
            return Err(Error::FileTooLarge.into());
        }
        let units = self.format.units_per_pointer();
        if let Some(tail) = self.gather_tail(v, number, inode, logical, want)? {
            return Ok(tail);
        }
        // A hole is filled from the beginning of its first block on.
        let end = logical + want.min(self.format.section_left(logical));
        let within = logical % units;
        let logical = logical - within;
        if within > 0
            && let Mapped::Blocks(_) = self.map_blocks(v, inode, logical, 1)?
        {
            let fault = Fault::PlaceIsTaken { logical };
            return Err(Error::corrupt(Structure::inode(number), fault).into());
        }
        want = self.units_for(inode, logical, end);
        let completes = self.gather_whole_tail(v, number, inode, logical)?;
        let goal = match &completes {
            Some(last) if last.logical + last.run.len == logical => last.run.end(),
            _ => self.goal_for(v, number, inode, logical)?,
        };
        let taken: SmallVec<[Run; 4]> = completes.iter().map(|last| last.run).collect();
        let grows = self.has_grown(number);
        let purpose = if inode.is_directory() {
            Purpose::Metadata
        } else {
            Purpose::Contents
        };
        loop {
            let mut picks = Picks(taken.clone());
            let run = self.pick_run(v, number, purpose, goal, want, grows, &picks)?;
            if run.len == 0 {
                return Err(self.no_blocks());
            }
            let map = self.changeable_map(inode);
            let needed = map.blocks_needed(v, logical, run.len)?;
            picks.0.push(run);
            let mut indirects = SmallVec::new();
            for _ in 0..needed {
                match self.pick_single(v, number, &picks)? {
                    Some(block) => {
                        picks.0.push(Run {
                            start: block,
                            len: units,
                        });
                        indirects.push(block);
                    }
                    None => break,
                }
            }
            if indirects.len() == needed {
                let moves = self.gather_moves(v, number, inode, run, logical)?;
                return Ok(Growth {
                    logical,
                    run,
                    indirects,
                    moves,
                    replaces: None,
                    completes: completes.map(Box::new),
                });
            }
            // Not enough for both: fewer contents leave more for the pointers.
            if run.len <= units {
                return Err(self.no_blocks());
            }
            want = (run.len / 2).max(units);
        }
    }

    /// Whether blocks were added to a file lately, as far as is known.
    fn has_grown(&self, number: InodeNumber) -> bool {
        self.inodes.get(&number).is_some_and(|s| s.has_grown) || self.format.has_window(number)
    }

    /// The place on the disk that would continue what is before the block.
    fn goal_for(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        logical: u64,
    ) -> Step<BlockNumber> {
        let before = match logical {
            0 => None,
            _ => match self.map_blocks(v, inode, logical - 1, 1)? {
                Mapped::Blocks(run) => Some(run.start),
                Mapped::Hole(_) => None,
            },
        };
        if let Some(goal) = self.format.goal_of_section(number, logical, before) {
            return Ok(goal);
        }
        if let Some(before) = before {
            return Ok(before + 1);
        }
        let state_goal = self
            .inodes
            .get(&number)
            .map_or(BlockNumber::NONE, |s| s.goal);
        if state_goal != BlockNumber::NONE {
            return Ok(state_goal);
        }
        Ok(self.format.goal_near(number))
    }

    /// Adds blocks to a file or directory. Returns the patch of the first block that it did not
    /// have before and the one of the inode.
    ///
    /// The patch of the inode, its pointers and its size, is the commit point.
    #[allow(clippy::too_many_arguments)]
    pub fn extend(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &F::Inode,
        extension: &Growth,
        contents: NewContents<'_>,
        end: u64,
        mut before_inode: PatchIds,
        now: Timestamp,
    ) -> (PatchId, PatchId) {
        let run = extension.run;
        let mut bits = PatchIds::new();
        self.set_block_bits(v, run, &mut bits);
        let units = self.format.units_per_pointer();
        for block in &extension.indirects {
            let run = Run {
                start: *block,
                len: units,
            };
            self.set_block_bits(v, run, &mut bits);
        }
        self.mark_moves(v, &extension.moves, &mut bits);
        let completes = extension.completes.as_deref();
        let completed = completes
            .map(|last| self.complete_tail(v, number, inode, last, &mut bits, &mut before_inode));
        let data = v.hidden(true, |v| self.write_new_blocks(v, number, run, contents));
        before_inode.extend_from_slice(wait_for_all(Rule::PointerAfterBit, &bits));
        let map = self.changeable_map(inode);
        let links = map.link(v, extension, &data, &mut before_inode);
        let last = inode
            .size()
            .div_ceil(self.block_size() as u64)
            .checked_sub(1);
        let fills_end = end <= inode.size()
            && last.is_some_and(|last| {
                (extension.logical..extension.logical + run.len).contains(&last)
            });
        let sectors = inode
            .sectors()
            .saturating_add(extension.units_added(units) * self.sectors_per_block());
        let edit = |e: &mut F::Editor| {
            if let Some(completed) = &completed {
                completed.set_pointers(e);
            }
            links.set_pointers(e);
            e.set_sectors(sectors);
            if end > inode.size() {
                e.set_size(end);
            }
            e.set_modified(now);
            e.set_changed(now);
        };
        // In a file that is not on the disk, indirect blocks need not wait for what they point to:
        // the inode waits for all of it.
        let is_apart = self.keeps_contents_apart(v, number);
        let is_unborn = !is_apart
            && links.only_changes_existing()
            && (!holds(Rule::UnbornMeansNotOnDisk) || {
                let mut after = before_inode.clone();
                links.awaited(&bits, &mut after);
                self.is_unborn_with(v, number, &after, edit)
            });
        let is_append = end > inode.size() && links.is_behind_existing();
        // Nobody looks at pointers behind the file's end either.
        let start = extension.logical * self.block_size() as u64;
        let is_hidden = self.is_behind_end(v, number, inode, start);
        v.hidden(is_hidden, |v| {
            links.write(&self.format, v, &bits, &mut before_inode, is_unborn);
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
        state.extended = Some(id);
        if fills_end {
            state.end_filled = Some(id);
        }
        if is_append {
            state.is_appended = true;
            self.left_places.expected.note_done(now);
        }
        self.note_moves(v, number, &extension.moves, id);
        self.free_left_units(v, extension, id);
        self.format.note_taken(number, run, grows);
        let moved = extension.replaces.map_or(0, |old| old.len);
        (data[moved as usize], id)
    }

    /// What a file's last units leave is freed once the pointer to their new place is on the disk.
    fn free_left_units(&mut self, v: &mut Volume<'_>, extension: &Growth, pointer: PatchId) {
        let completed = extension.completes.as_deref();
        let completed = completed.and_then(|last| last.replaces);
        let left: Vec<Run> = extension.replaces.into_iter().chain(completed).collect();
        if !left.is_empty() {
            let rule = Rule::BlocksFreedAfterUnmapping;
            let pointer = wait_for_all(rule, std::slice::from_ref(&pointer));
            self.defer_blocks(v, left, pointer);
        }
    }

    /// Writes the contents of new blocks; returns the patch of each.
    pub(crate) fn write_new_blocks(
        &mut self,
        v: &mut Volume<'_>,
        number: InodeNumber,
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
        let mut write = |fs: &mut Self, block, contents: &[u8]| {
            if joins {
                fs.write_contents(v, number, block, 0, contents)
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
        // Where contents go with the transaction, blocks may be used again before it is on the disk
        // that they were freed.
        if v.scopes_hold_contents() {
            for rule in FREED_BEFORE_REUSE {
                implied(rule, || {
                    patches.iter().all(|id| v.goes_with_transaction(*id))
                });
            }
        }
        patches
    }
}
