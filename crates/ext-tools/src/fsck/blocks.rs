//! Pass 1, the pointers of one inode: every block that it takes, through up to three levels.

use super::CheckError;
use super::state::{BlockSet, Context, DirectoryBlock};
use backstitch_ext::format::inode::{DIRECT_POINTERS, Inode};
use backstitch_layout::tools::Source;
use backstitch_layout::tools::{Code, Findings, Location};
use backstitch_layout::{BlockNumber, InodeNumber};

/// Bad pointers of one inode are reported one by one up to here, and then as a number.
const REPORTED_POINTERS: u64 = 8;

/// What an inode's pointers are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A regular file's data.
    Data,
    /// A directory's entries.
    Directory,
    /// A symlink's target: one block.
    Target,
    /// The list of bad blocks, which may lie anywhere.
    BadBlocks,
}

/// What walking an inode's pointers has found.
pub(super) struct Walk {
    pub(super) inode: InodeNumber,
    purpose: Purpose,
    /// The blocks taken, indirect ones included.
    pub(super) blocks: u64,
    /// One more than the last logical block that is mapped; 0 where none is.
    pub(super) end: u64,
    bad_pointers: u64,
}

impl Walk {
    pub(super) fn new(inode: InodeNumber, purpose: Purpose) -> Walk {
        Walk {
            inode,
            purpose,
            blocks: 0,
            end: 0,
            bad_pointers: 0,
        }
    }
}

/// Where a walk leaves what it finds.
pub(super) struct Walker<'w, 'c, S: Source + ?Sized> {
    pub(super) context: &'w Context<'c, S>,
    /// The blocks in use so far, those of the file system itself from the start.
    pub(super) used: &'w mut BlockSet,
    pub(super) findings: &'w mut Findings,
    /// The blocks of directories, in logical order for each.
    pub(super) directory_blocks: &'w mut Vec<DirectoryBlock>,
    /// A buffer for each level of indirection.
    pub(super) scratch: &'w mut [Vec<u8>; 4],
}

impl<S: Source + ?Sized> Walker<'_, '_, S> {
    /// Follows all pointers of an inode.
    pub(super) fn walk(&mut self, walk: &mut Walk, inode: &Inode) -> Result<(), CheckError> {
        for (logical, pointer) in inode.block.iter().take(DIRECT_POINTERS).enumerate() {
            if *pointer != 0 {
                self.data_block(walk, *pointer, logical as u64);
            }
        }
        let pointers = u64::from(self.context.sb.block_size / 4);
        let (mut logical, mut span) = (DIRECT_POINTERS as u64, pointers);
        for (level, pointer) in inode.block[DIRECT_POINTERS..].iter().enumerate() {
            if *pointer != 0 {
                self.indirect_block(walk, *pointer, level, logical)?;
            }
            logical += span;
            span *= pointers;
        }
        if walk.bad_pointers > REPORTED_POINTERS {
            let more = walk.bad_pointers - REPORTED_POINTERS;
            self.findings
                .add(Code::BlockOutOfRange, Location::inode(walk.inode), || {
                    format!("{more} more pointers are wrong")
                });
        }
        Ok(())
    }

    /// An indirect block and all below it. `level` 0 points to data; `logical` is the first block
    /// that it maps.
    fn indirect_block(
        &mut self,
        walk: &mut Walk,
        pointer: u32,
        level: usize,
        logical: u64,
    ) -> Result<(), CheckError> {
        let block = BlockNumber(pointer.into());
        if !self.is_in_range(walk, block) {
            return Ok(());
        }
        walk.blocks += 1;
        if !self.claim(walk, block) {
            // Another pointer has claimed it. That one has been followed, if the block is an
            // indirect one.
            return Ok(());
        }
        let pointers = u64::from(self.context.sb.block_size / 4);
        let span = pointers.pow(level as u32);
        let mut scratch = std::mem::take(&mut self.scratch[level]);
        let bytes = self.context.block(block, &mut scratch)?;
        for (index, chunk) in bytes.chunks_exact(4).enumerate() {
            let below = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
            let logical = logical + index as u64 * span;
            match (below, level) {
                (0, _) => {}
                (_, 0) => self.data_block(walk, below, logical),
                _ => self.indirect_block(walk, below, level - 1, logical)?,
            }
        }
        self.scratch[level] = scratch;
        Ok(())
    }

    fn data_block(&mut self, walk: &mut Walk, pointer: u32, logical: u64) {
        let block = BlockNumber(pointer.into());
        if !self.is_in_range(walk, block) || !self.is_possible(walk, block, logical) {
            return;
        }
        walk.blocks += 1;
        walk.end = walk.end.max(logical + 1);
        let is_new = self.claim(walk, block);
        if walk.purpose == Purpose::Directory {
            let block = if is_new { pointer } else { 0 };
            self.directory_blocks.push(DirectoryBlock {
                logical: logical as u32,
                block,
            });
        }
    }

    /// Whether the pointer leads into the file system.
    fn is_in_range(&mut self, walk: &mut Walk, block: BlockNumber) -> bool {
        if self.context.sb.is_valid_pointer(block) {
            return true;
        }
        self.bad_pointer(walk, Code::BlockOutOfRange, block, || {
            format!("pointer to block {block}, which does not exist")
        });
        false
    }

    /// Whether an inode of this purpose can have a block there.
    fn is_possible(&mut self, walk: &mut Walk, block: BlockNumber, logical: u64) -> bool {
        let shift = self.context.sb.block_size_bits - 10;
        let is_possible = match walk.purpose {
            Purpose::Data => walk.blocks + 1 < 1 << (31 - shift),
            Purpose::Directory => logical <= 1 << (21 - shift),
            Purpose::Target => logical == 0,
            Purpose::BadBlocks => true,
        };
        if !is_possible {
            self.bad_pointer(walk, Code::SizeInvalid, block, || {
                format!("logical block {logical} is more than it can have")
            });
        }
        is_possible
    }

    /// Takes a block; `false` where it was taken already.
    fn claim(&mut self, walk: &mut Walk, block: BlockNumber) -> bool {
        if self.used.insert(block) {
            return true;
        }
        if self.context.is_metadata(block) {
            self.bad_pointer(walk, Code::BlockInMetadata, block, || {
                format!("pointer to block {block}, which belongs to the file system itself")
            });
        } else {
            self.bad_pointer(walk, Code::BlockClaimedTwice, block, || {
                format!("block {block} is claimed by another pointer too")
            });
        }
        false
    }

    fn bad_pointer(
        &mut self,
        walk: &mut Walk,
        code: Code,
        block: BlockNumber,
        what: impl FnOnce() -> String,
    ) {
        walk.bad_pointers += 1;
        if walk.bad_pointers <= REPORTED_POINTERS {
            self.findings
                .add(code, Location::inode(walk.inode).at_block(block), what);
        }
    }
}
