//! Pass 1: the pointers of an inode.

use super::inodes::Scan;
use super::{CheckError, Code, Location, Source};
use backstitch_layout::{BlockNumber, InodeNumber};
use backstitch_ufs::format::Inode;
use backstitch_ufs::format::inode::{DIRECT_POINTERS, POINTERS, SF_SNAPSHOT};

/// The pointers of a snapshot to a block that it does not copy (`BLK_NOCOPY`) and to one of its own
/// (`BLK_SNAP`). Both count as holes.
const SNAPSHOT_MARKS: std::ops::RangeInclusive<u64> = 1..=2;

/// What is the same for all pointers of an inode.
struct Owner<'i> {
    number: InodeNumber,
    inode: &'i Inode,
    is_directory: bool,
    /// The number of blocks that its size asks for.
    blocks: u64,
}

impl Owner<'_> {
    fn leads_nowhere(&self, pointer: u64) -> bool {
        let is_mark = SNAPSHOT_MARKS.contains(&pointer) && self.inode.flags & SF_SNAPSHOT != 0;
        pointer == 0 || is_mark
    }
}

impl<S: Source + ?Sized> Scan<'_, '_, S> {
    /// Follows all pointers of a file, a directory or a long symbolic link.
    pub(super) fn map(
        &mut self,
        number: InodeNumber,
        inode: &Inode,
        is_directory: bool,
    ) -> Result<(), CheckError> {
        let blocks = inode.size.div_ceil(self.sb().block_bytes.into());
        let owner = Owner {
            number,
            inode,
            is_directory,
            blocks,
        };
        let mut next = 0;
        for (slot, pointer) in inode.pointers.into_iter().enumerate() {
            let depth = slot.saturating_sub(DIRECT_POINTERS - 1);
            let span = u64::from(self.sb().pointers_per_block).pow(depth as u32);
            if !owner.leads_nowhere(pointer) {
                match next < blocks {
                    true => self.pointer(&owner, slot, pointer, depth, next)?,
                    false => self.add(
                        Code::PointerPastEnd,
                        Location::inode(number).at_offset(slot),
                        || format!("pointer {slot} is past the end, to fragment {pointer}"),
                    ),
                }
            }
            next += span;
        }
        Ok(())
    }

    /// Follows one pointer, `depth` levels above contents, the first of which is block `logical`.
    fn pointer(
        &mut self,
        owner: &Owner<'_>,
        slot: usize,
        pointer: u64,
        depth: usize,
        logical: u64,
    ) -> Result<(), CheckError> {
        let per_block = self.sb().fragments_per_block;
        if depth == 0 {
            let fragments = self.fragments_of(owner, logical);
            let is_own = self.claim(owner.number, slot, pointer, fragments);
            if owner.is_directory {
                let block = u64::from(self.sb().block_bytes);
                let bytes = (owner.inode.size - logical * block).min(block) as u32;
                self.add_piece(logical, is_own.then_some(pointer), bytes);
            }
            return Ok(());
        }
        if self.claim(owner.number, slot, pointer, per_block) {
            self.indirect(owner, slot, pointer, depth, logical)?;
        }
        Ok(())
    }

    /// The number of fragments of a block: only the last of the direct ones may have fewer than a
    /// whole block.
    fn fragments_of(&self, owner: &Owner<'_>, logical: u64) -> u32 {
        let sb = self.sb();
        let is_tail = logical < DIRECT_POINTERS as u64 && logical + 1 == owner.blocks;
        if !is_tail {
            return sb.fragments_per_block;
        }
        let rest = owner.inode.size - logical * u64::from(sb.block_bytes);
        rest.div_ceil(sb.fragment_bytes.into()) as u32
    }

    /// Follows an indirect block that is nobody else's.
    fn indirect(
        &mut self,
        owner: &Owner<'_>,
        slot: usize,
        at: u64,
        depth: usize,
        logical: u64,
    ) -> Result<(), CheckError> {
        let context = self.context;
        let sb = context.sb;
        let mut scratch = Vec::new();
        let bytes = context.bytes(at, sb.block_bytes as usize, &mut scratch)?;
        let span = u64::from(sb.pointers_per_block).pow(depth as u32 - 1);
        let mut past = 0_u64;
        let mut next = logical;
        for word in bytes.chunks_exact(sb.version.pointer_bytes()) {
            let pointer = match word.len() {
                4 => u64::from(sb.order.u32(word, 0)),
                _ => sb.order.u64(word, 0),
            };
            if !owner.leads_nowhere(pointer) {
                if next < owner.blocks {
                    self.pointer(owner, slot, pointer, depth - 1, next)?;
                } else {
                    past += 1;
                }
            }
            next += span;
        }
        if past > 0 {
            let place = Location::inode(owner.number).at_block(BlockNumber(at));
            self.add(Code::SizeBelowMapped, place, || {
                format!("{past} pointers of an indirect block are past the end")
            });
        }
        Ok(())
    }

    /// Takes fragments for an inode; `false` where they do not exist or are not free for it.
    pub(super) fn claim(
        &mut self,
        number: InodeNumber,
        slot: usize,
        pointer: u64,
        fragments: u32,
    ) -> bool {
        let (own_end, per_block) = (
            self.sb().fragments,
            u64::from(self.sb().fragments_per_block),
        );
        let count = u64::from(fragments);
        self.taken += count;
        let place = Location::inode(number)
            .at_block(BlockNumber(pointer))
            .at_offset(slot);
        let in_block = pointer % per_block;
        let exists = pointer.checked_add(count).is_some_and(|end| end <= own_end);
        if !exists || in_block + count > per_block {
            self.add(Code::BlockOutOfRange, place, || match exists {
                true => format!("{count} fragments from {pointer} on are not in one block"),
                false => format!("fragment {pointer} does not exist"),
            });
            return false;
        }
        let all = || pointer..pointer + count;
        if all().any(|fragment| self.own.contains(fragment)) {
            self.add(Code::BlockInMetadata, place, || {
                format!("fragment {pointer} is the file system's own")
            });
            return false;
        }
        let mut twice = None;
        for fragment in all() {
            if !self.gathered.used.insert(fragment) {
                twice = twice.or(Some(fragment));
            }
        }
        if let Some(fragment) = twice {
            self.add(Code::BlockClaimedTwice, place, || {
                format!("fragment {fragment} is in use elsewhere")
            });
        }
        twice.is_none()
    }
}

const _: () = assert!(POINTERS == DIRECT_POINTERS + 3);
