//! Giving and taking back blocks and inodes: what has to be known of that besides the format's
//! bits.

use std::borrow::Cow;
use std::ops::Range;

use backstitch_layout::{BlockNumber, Error, InodeNumber, Step, Stop, Structure};
use backstitch_ordering::Volume;

use crate::fault::Fault;
use crate::format::{Format, Picks, Purpose};
use crate::rules::{Rule, holds};
use crate::state::UnixFs;
use crate::state::patches::PatchIds;
use backstitch_blocks::bitmap::Bits;
use backstitch_blocks::runs::Run;

impl<F: Format> UnixFs<F> {
    /// How many free blocks a step may take. Reserved ones are only for those who
    /// [may use them](crate::format::Space::may_use_reserve), and for what no user asked for.
    pub(crate) fn allowed_blocks(&self, v: &Volume<'_>) -> u64 {
        match v.user() {
            Some(user) if !self.format.may_use_reserve(user) => {
                (self.format.free_blocks()).saturating_sub(self.format.reserved_blocks())
            }
            _ => u64::MAX,
        }
    }

    /// As [`Space::pick_run`](crate::format::Space::pick_run), of what the step may take.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn pick_run(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        purpose: Purpose,
        goal: BlockNumber,
        want: u64,
        grows: bool,
        picks: &Picks,
    ) -> Step<Run> {
        let allowed = self.allowed_blocks(v).saturating_sub(picks.count());
        let want = match want > allowed {
            true => allowed - allowed % self.format.units_per_pointer(),
            false => want,
        };
        if want == 0 {
            return Ok(Run {
                start: goal,
                len: 0,
            });
        }
        (self.format).pick_run(v, inode, purpose, goal, want, grows, picks)
    }

    /// As [`Space::pick_single`](crate::format::Space::pick_single), of what the step may take.
    ///
    /// # Errors
    /// As there.
    pub fn pick_single(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        picks: &Picks,
    ) -> Step<Option<BlockNumber>> {
        let allowed = self.allowed_blocks(v).saturating_sub(picks.count());
        match allowed < self.format.units_per_pointer() {
            true => Ok(None),
            false => self.format.pick_single(v, inode, picks),
        }
    }

    /// Marks free blocks as used; the bitmaps must be in memory. Appends the patches.
    pub fn set_block_bits(&mut self, v: &mut Volume<'_>, run: Run, patches: &mut PatchIds) {
        self.track_blocks(run);
        self.noted_free.cross_off(run);
        self.format.set_block_bits(v, run, patches);
    }

    /// Marks used blocks as free; the bitmaps must be in memory.
    pub(crate) fn clear_block_bits(&mut self, v: &mut Volume<'_>, run: Run) {
        self.track_blocks(run);
        self.format.clear_block_bits(v, run);
        self.free_epoch += 1;
    }

    /// Marks a used inode as free; its bitmap must be in memory.
    pub(crate) fn clear_inode_bit(
        &mut self,
        v: &mut Volume<'_>,
        inode: InodeNumber,
        directory: bool,
    ) {
        self.track_inode_freed(inode);
        self.format.clear_inode_bit(v, inode, directory);
    }

    /// Whether an inode is marked as used.
    pub(crate) fn inode_is_marked(&self, v: &mut Volume<'_>, inode: InodeNumber) -> Step<bool> {
        let (bits, bit) = self.bit_of_inode(inode);
        let (bits, base) = bits.narrowed(bit, bit, self.format.block_size());
        Ok(bits.marks(&read_bits(v, &bits)?).is_used(bit - base))
    }

    /// The bits among which an inode's is, and which it is.
    pub(crate) fn bit_of_inode(&self, inode: InodeNumber) -> (Bits, usize) {
        let group = self.format.group_of_inode(inode);
        let bit = inode - self.format.group_first_inode(group);
        (self.format.inode_bits(group), bit as usize)
    }

    /// Drops what is not written yet of blocks of the inode table in which an inode was freed and
    /// none is in use any more.
    ///
    /// Not when they are freed: where files come and go one after the other the next one is made in
    /// the same block, which would have to be read again.
    ///
    /// What the disk shows of such inodes may stay. An inode's bit is cleared only where the
    /// clearing of the inode is on the disk, or where its making was merged with its clearing, and
    /// then the disk still shows what was there before it was made: an inode that was free.
    pub(crate) fn forget_unused_table_blocks(&mut self, v: &mut Volume<'_>) {
        let in_block = self.format.inodes_per_block() as usize;
        for inode in self.deferred.take_freed_in() {
            // A number that is not in the table, or a bitmap that was let go: then the block is
            // just written.
            let Ok((block, _)) = self.format.inode_place(inode) else {
                continue;
            };
            let (bits, first) = self.bit_of_inode(inode);
            let end = (first + in_block).min(self.format.inodes_per_group() as usize);
            let (bits, base) = bits.narrowed(first, end, self.format.block_size());
            let (first, end) = (first - base, end - base);
            let is_unused = |bytes: &[u8]| {
                bits.marks(bytes).first_used(first, end).is_none()
                    || !holds(Rule::TableBlockForgottenOnlyIfUnused)
            };
            if are_in_memory(v, &bits) && read_bits(v, &bits).is_ok_and(|bytes| is_unused(&bytes)) {
                v.discard(block);
            }
        }
    }

    /// An inode was freed: its block of the table may have none in use any more.
    pub(crate) fn note_freed_in_table(&mut self, v: &Volume<'_>, inode: InodeNumber) {
        // Under a journal the block is in a transaction with others, and all of them are there or
        // none.
        let is_journaled = v.scopes_are_atomic() && holds(Rule::TableBlockKeptUnderJournal);
        // Where freed inodes are cleared on the disk, what is not written yet may be the zeros of a
        // block that the group already counts as initialised.
        if !v.keeps_order() || is_journaled || F::CLEARS_FREED {
            return;
        }
        let (_, bit) = self.bit_of_inode(inode);
        let in_block = bit as u32 % self.format.inodes_per_block();
        self.deferred.note_freed_in(InodeNumber(inode.0 - in_block));
    }

    /// Notes the free blocks of a range as far as one group goes. Returns where that ends.
    pub(crate) fn note_free_blocks(&mut self, v: &mut Volume<'_>, range: Range<u64>) -> Step<u64> {
        let first = BlockNumber(range.start).max(self.format.first_data_block());
        if first >= self.format.end_block() {
            return Ok(range.end);
        }
        let group = self.format.group_of_block(first);
        let start = self.format.group_first_block(group);
        let count = self.format.blocks_in_group(group) as usize;
        let stop = BlockNumber(range.end).min(start + count as u64);
        let bits = self.format.block_bits(group);
        let bytes = read_bits(v, &bits)?;
        let marks = bits.marks(&bytes);
        let mut found = Vec::new();
        let mut bit = (first - start) as usize;
        while let Some(free) = marks.first_free(bit, count) {
            bit = marks.first_used(free, count).unwrap_or(count);
            let end = (start + bit as u64).min(stop);
            found.push((start + free as u64).0..end.0);
        }
        for run in found {
            self.noted_free.note(run);
        }
        Ok(stop.0)
    }

    /// Checks that a block of a map, or one that a map leads to, may be a file's.
    pub(crate) fn checked_pointer(&self, block: BlockNumber) -> Step<BlockNumber> {
        match block {
            BlockNumber::NONE => Ok(block),
            _ => checked_block(&self.format, block),
        }
    }

    /// The same for all the units that a pointer leads to.
    pub(crate) fn checked_whole(&self, block: BlockNumber) -> Step<BlockNumber> {
        match (block, self.format.units_per_pointer()) {
            (BlockNumber::NONE, _) => Ok(block),
            (_, 1) => checked_block(&self.format, block),
            (start, len) => Ok(self.checked_units(Run { start, len })?.start),
        }
    }

    /// Checks that units to which one pointer leads may be a file's: they lie in one block.
    pub(crate) fn checked_units(&self, run: Run) -> Step<Run> {
        let units = self.format.units_per_pointer();
        match run.start.0 % units + run.len > units {
            true => Err(no_run_of_files(run)),
            false => checked_run(&self.format, run),
        }
    }
}

fn no_run_of_files(run: Run) -> Stop {
    let fault = Fault::NoRunOfFiles {
        start: run.start,
        end: run.start.checked_add(run.len).unwrap_or(BlockNumber::MAX),
    };
    Error::corrupt(Structure::BLOCK_MAP, fault).into()
}

/// The blocks of a group's bits, one behind the other.
///
/// # Errors
/// Where one is missing: then all of them are asked for.
pub fn read_bits<'v>(v: &'v mut Volume<'_>, bits: &Bits) -> Step<Cow<'v, [u8]>> {
    if bits.blocks == 1 {
        return Ok(Cow::Borrowed(v.read(bits.block)?));
    }
    let blocks = bits.block.run(bits.blocks);
    let missing = blocks.clone().filter(|block| !v.want(*block)).count();
    if missing > 0 {
        return Err(Stop::Miss);
    }
    let mut bytes = Vec::new();
    for block in blocks {
        bytes.extend_from_slice(v.read(block)?);
    }
    Ok(Cow::Owned(bytes))
}

/// Whether all blocks of a group's bits are in memory.
pub fn are_in_memory(v: &Volume<'_>, bits: &Bits) -> bool {
    bits.block
        .run(bits.blocks)
        .all(|block| v.peek(block).is_some())
}

/// Checks that a block of a map, or one that a map leads to, may be a file's.
///
/// # Errors
/// [`Error::Corrupt`] for any other.
pub fn checked_block(format: &impl Format, block: BlockNumber) -> Step<BlockNumber> {
    if format.is_data_run(Run::one(block)) {
        return Ok(block);
    }
    Err(Error::corrupt(Structure::BLOCK_MAP, Fault::NoBlockOfFiles { block }).into())
}

/// Checks that all blocks of a run may be a file's.
///
/// # Errors
/// [`Error::Corrupt`] where one of them cannot be a file's.
pub fn checked_run(format: &impl Format, run: Run) -> Step<Run> {
    if format.is_data_run(run) {
        return Ok(run);
    }
    Err(no_run_of_files(run))
}
