//! Pointers: each leads to fragments that exist and that are nobody else's.

use super::fixer::{ByInode, Fixer};
use crate::bits::Bits;
use crate::fsck::{CheckError, Location};
use backstitch_layout::{BlockNumber, GroupNumber, InodeNumber};
use backstitch_ufs::format::directory::CHUNK_BYTES;
use backstitch_ufs::format::inode::{DIRECT_POINTERS, SF_SNAPSHOT};
use backstitch_ufs::format::{Inode, Version};

/// Most blocks with two owners that are copied in one round; beyond them, pointers are cleared.
const MOST_COPIES: u32 = 4_096;
/// Most blocks that are put into the holes of one directory; a directory with more holes is cut.
const MOST_HOLES: u64 = 64;

/// A walk over the pointers of all inodes, in the order of the check.
struct Walk {
    claimed: Bits,
    copies_left: u32,
}

/// The inode at hand.
struct Owner<'i> {
    number: InodeNumber,
    inode: &'i Inode,
    blocks: u64,
    /// Whether its pointers may be changed.
    is_damaged: bool,
}

impl Fixer<'_, '_> {
    /// Pointers to what does not exist, is the file system's own, belongs to somebody else, or is
    /// past the end.
    pub(super) fn pointers(&mut self, found: &ByInode) -> Result<(), CheckError> {
        let sb = self.sb;
        let mut walk = Walk {
            claimed: Bits::new(sb.fragments),
            copies_left: MOST_COPIES,
        };
        for group in GroupNumber::all(sb.groups) {
            for fragment in sb.own_fragments(group) {
                walk.claimed.insert(fragment);
            }
        }
        for fragment in sb.summary_fragments() {
            walk.claimed.insert(fragment);
        }
        let numbers: Vec<InodeNumber> = self
            .facts
            .gathered
            .used_inodes(sb)
            .map(|(number, _)| number)
            .collect();
        for number in numbers {
            self.walk_inode(&mut walk, number, found.contains_key(&number))?;
        }
        Ok(())
    }

    fn walk_inode(
        &mut self,
        walk: &mut Walk,
        number: InodeNumber,
        is_damaged: bool,
    ) -> Result<(), CheckError> {
        let sb = self.sb;
        let mut bytes = self.inode_bytes(number)?;
        let inode = bytes.parse()?;
        if sb.version == Version::Ufs2 && !self.claim_attributes(walk, &inode) && is_damaged {
            bytes.clear_attributes();
            let what = "attributes in fragments that are not its own cleared";
            self.note(Location::inode(number), what);
        }
        if inode.has_block_map(sb.symlink_max) {
            let owner = Owner {
                number,
                inode: &inode,
                blocks: inode.size.div_ceil(sb.block_bytes.into()),
                is_damaged,
            };
            let mut next = 0;
            for (slot, pointer) in inode.pointers.into_iter().enumerate() {
                let depth = slot.saturating_sub(DIRECT_POINTERS - 1);
                let kept = self.walk_pointer(walk, &owner, pointer, depth, next)?;
                if kept != pointer {
                    bytes.set_pointer(slot, kept);
                }
                next += u64::from(sb.pointers_per_block).pow(depth as u32);
            }
        }
        if is_damaged {
            self.put_inode(number, &bytes)?;
        }
        Ok(())
    }

    /// Takes the fragments of the attributes; `false` where they are not free for it.
    fn claim_attributes(&self, walk: &mut Walk, inode: &Inode) -> bool {
        let block = u64::from(self.sb.block_bytes);
        let mut is_own = true;
        for (index, pointer) in inode.attribute_pointers.into_iter().enumerate() {
            let rest = u64::from(inode.attribute_bytes).saturating_sub(index as u64 * block);
            let fragments = rest.min(block).div_ceil(self.sb.fragment_bytes.into());
            if pointer != 0 && fragments != 0 {
                is_own &= self.is_possible(pointer, fragments)
                    && (pointer..pointer + fragments).all(|fragment| walk.claimed.insert(fragment));
            }
        }
        is_own
    }

    fn is_hole(owner: &Owner<'_>, pointer: u64) -> bool {
        pointer == 0 || (pointer <= 2 && owner.inode.flags & SF_SNAPSHOT != 0)
    }

    /// What a pointer is to be, `depth` levels above contents, the first of which is block
    /// `logical`.
    fn walk_pointer(
        &mut self,
        walk: &mut Walk,
        owner: &Owner<'_>,
        pointer: u64,
        depth: usize,
        logical: u64,
    ) -> Result<u64, CheckError> {
        if Self::is_hole(owner, pointer) {
            return Ok(pointer);
        }
        if logical >= owner.blocks {
            return Ok(self.cleared(owner, pointer, "past the end"));
        }
        let fragments = match depth {
            0 => self.fragments_of(owner, logical),
            _ => self.sb.fragments_per_block,
        };
        let count = u64::from(fragments);
        if !self.is_possible(pointer, count) {
            return Ok(self.cleared(owner, pointer, "where no contents can be"));
        }
        let mut all = pointer..pointer + count;
        if all.any(|fragment| walk.claimed.contains(fragment)) {
            return self.copied(walk, owner, pointer, (depth, fragments));
        }
        for fragment in pointer..pointer + count {
            walk.claimed.insert(fragment);
        }
        if depth > 0 {
            self.walk_indirect(walk, owner, pointer, depth, logical)?;
        }
        Ok(pointer)
    }

    fn fragments_of(&self, owner: &Owner<'_>, logical: u64) -> u32 {
        let sb = self.sb;
        if logical >= DIRECT_POINTERS as u64 || logical + 1 != owner.blocks {
            return sb.fragments_per_block;
        }
        let rest = owner.inode.size - logical * u64::from(sb.block_bytes);
        rest.div_ceil(sb.fragment_bytes.into()) as u32
    }

    fn cleared(&mut self, owner: &Owner<'_>, pointer: u64, why: &str) -> u64 {
        if !owner.is_damaged {
            return pointer;
        }
        self.count_cleared(1);
        let place = Location::inode(owner.number).at_block(BlockNumber(pointer));
        self.note(place, format!("pointer {why} cleared"));
        0
    }

    /// Copies contents that another inode claims too, so that both files can be read.
    fn copied(
        &mut self,
        walk: &mut Walk,
        owner: &Owner<'_>,
        pointer: u64,
        (depth, fragments): (usize, u32),
    ) -> Result<u64, CheckError> {
        if !owner.is_damaged {
            return Ok(pointer);
        }
        let copy = match depth == 0 && walk.copies_left > 0 {
            true => self.allocate(fragments)?,
            false => None,
        };
        let Some(copy) = copy else {
            return Ok(self.cleared(owner, pointer, "to what belongs to another inode"));
        };
        walk.copies_left -= 1;
        let bytes = self.read(pointer, (fragments * self.sb.fragment_bytes) as usize)?;
        self.write(copy, &bytes)?;
        for fragment in copy..copy + u64::from(fragments) {
            walk.claimed.insert(fragment);
        }
        let place = Location::inode(owner.number).at_block(BlockNumber(pointer));
        self.note(
            place,
            format!("belongs to another inode too: copied to {copy}"),
        );
        Ok(copy)
    }

    fn walk_indirect(
        &mut self,
        walk: &mut Walk,
        owner: &Owner<'_>,
        block: u64,
        depth: usize,
        logical: u64,
    ) -> Result<(), CheckError> {
        let sb = self.sb;
        let before = self.read(block, self.block_bytes())?;
        let mut bytes = before.clone();
        let span = u64::from(sb.pointers_per_block).pow(depth as u32 - 1);
        let mut next = logical;
        for word in bytes.chunks_exact_mut(sb.version.pointer_bytes()) {
            let pointer = match sb.version {
                Version::Ufs1 => sb.order.u32(word, 0).into(),
                Version::Ufs2 => sb.order.u64(word, 0),
            };
            let kept = self.walk_pointer(walk, owner, pointer, depth - 1, next)?;
            if kept != pointer {
                match sb.version {
                    Version::Ufs1 => word.copy_from_slice(&sb.order.bytes_of_u32(kept as u32)),
                    Version::Ufs2 => word.copy_from_slice(&sb.order.bytes_of_u64(kept)),
                }
            }
            next += span;
        }
        if bytes != before {
            self.write(block, &bytes)?;
        }
        Ok(())
    }

    /// The bytes up to the end of the last block that an inode maps, whatever its size says.
    pub(super) fn mapped_bytes(&self, inode: &Inode) -> Result<u64, CheckError> {
        let mut seen = Bits::new(self.sb.fragments);
        let (mut next, mut end) = (0, 0);
        for (slot, pointer) in inode.pointers.into_iter().enumerate() {
            let depth = slot.saturating_sub(DIRECT_POINTERS - 1);
            end = self.mapped_end(&mut seen, pointer, depth, next)?.max(end);
            next += u64::from(self.sb.pointers_per_block).pow(depth as u32);
        }
        let bytes = end.saturating_mul(self.sb.block_bytes.into());
        Ok(bytes.min(self.sb.file_bytes_max))
    }

    fn mapped_end(
        &self,
        seen: &mut Bits,
        pointer: u64,
        depth: usize,
        logical: u64,
    ) -> Result<u64, CheckError> {
        let fragments = match depth {
            0 => 1,
            _ => u64::from(self.sb.fragments_per_block),
        };
        if pointer == 0 || !self.is_possible(pointer, fragments) || !seen.insert(pointer) {
            return Ok(0);
        }
        if depth == 0 {
            return Ok(logical + 1);
        }
        let bytes = self.read(pointer, self.block_bytes())?;
        let span = u64::from(self.sb.pointers_per_block).pow(depth as u32 - 1);
        let (mut next, mut end) = (logical, 0);
        for word in bytes.chunks_exact(self.sb.version.pointer_bytes()) {
            let pointer = match self.sb.version {
                Version::Ufs1 => self.sb.order.u32(word, 0).into(),
                Version::Ufs2 => self.sb.order.u64(word, 0),
            };
            end = self.mapped_end(seen, pointer, depth - 1, next)?.max(end);
            next += span;
        }
        Ok(end)
    }

    /// Directories without a block, or in which one is missing.
    pub(super) fn holes(&mut self, found: &ByInode) -> Result<(), CheckError> {
        for number in found.keys() {
            let inode = self.inode(*number)?;
            let block = u64::from(self.sb.block_bytes);
            let mapped = self.mapped_bytes(&inode)? / block;
            let pieces: Vec<u64> = self
                .directory_blocks(*number)
                .map(|piece| piece.logical)
                .collect();
            let missing = mapped.saturating_sub(pieces.len() as u64);
            let size = if mapped == 0 {
                0
            } else if missing > MOST_HOLES || mapped > DIRECT_POINTERS as u64 && missing > 0 {
                let first = (0..).zip(&pieces).find(|(at, logical)| at != *logical);
                first.map_or(pieces.len() as u64, |(at, _)| at) * block
            } else {
                inode.size.min(mapped * block)
            };
            match size {
                0 => self.begin_directory(*number)?,
                size => self.fill_holes(*number, size)?,
            }
        }
        Ok(())
    }

    /// Gives a directory without any block its first one.
    fn begin_directory(&mut self, number: InodeNumber) -> Result<(), CheckError> {
        let Some(block) = self.allocate(self.sb.fragments_per_block)? else {
            return Ok(());
        };
        let mut inode = self.inode_bytes(number)?;
        let parent = self.parent_of(number);
        let contents = self.empty_directory(number, parent, self.block_bytes());
        self.write(block, &contents)?;
        inode.set_size(self.sb.block_bytes.into());
        inode.set_pointer(0, block);
        self.put_inode(number, &inode)?;
        self.note(
            Location::inode(number),
            "a directory without a block got one",
        );
        Ok(())
    }

    /// Cuts a directory to a size, and puts empty blocks where its direct pointers lead nowhere.
    fn fill_holes(&mut self, number: InodeNumber, size: u64) -> Result<(), CheckError> {
        let mut bytes = self.inode_bytes(number)?;
        let inode = bytes.parse()?;
        let block = u64::from(self.sb.block_bytes);
        bytes.set_size(size);
        let blocks = size.div_ceil(block).min(DIRECT_POINTERS as u64) as usize;
        for slot in (0..blocks).filter(|slot| inode.pointers[*slot] == 0) {
            let rest = (size - slot as u64 * block).min(block);
            let fragments = rest.div_ceil(self.sb.fragment_bytes.into()) as u32;
            let Some(at) = self.allocate(fragments)? else {
                return Ok(());
            };
            let mut empty = vec![0; (fragments * self.sb.fragment_bytes) as usize];
            for chunk in empty.chunks_exact_mut(CHUNK_BYTES) {
                crate::entries::fill(self.sb.order, chunk, &[]);
            }
            self.write(at, &empty)?;
            bytes.set_pointer(slot, at);
        }
        self.put_inode(number, &bytes)?;
        let what = format!("a directory with holes: {size} bytes without any now");
        self.note(Location::inode(number), what);
        Ok(())
    }
}
