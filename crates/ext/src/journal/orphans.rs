//! The list of orphans: inodes without a name that somebody had open, and truncations that were not
//! finished.
//!
//! The superblock names the first one, each one's deletion time field the next. Orphans without
//! links are freed, with all that they hold; the others lose what they have behind their size.

use crate::fault::OrphanFault;
use std::collections::BTreeMap;

use backstitch_device::BlockDevice;
use backstitch_layout::{
    BlockNumber, Error, GroupNumber, InodeNumber, Orphans, Result, Structure, Timestamp,
};
use core::mem::offset_of;

use super::{descriptor, read_block};
use crate::format::group::{
    OFFSET_FREE_BLOCKS_COUNT, OFFSET_FREE_INODES_COUNT, OFFSET_USED_DIRS_COUNT, descriptor_location,
};
use crate::format::inode::{DIRECT_POINTERS, Inode, POINTERS, offset};
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use crate::format::xattr::RawXattrHeader;
use crate::format::{GroupDescriptor, bitmap, superblock, xattr};
use crate::image::from_format;

/// Deals with the first orphans: with as many as change about `most_blocks` blocks. Of an orphan
/// that changes more, a part is done; it stays the first one.
pub(super) fn next(
    device: &dyn BlockDevice,
    sb: &Superblock,
    now: Timestamp,
    most_blocks: usize,
) -> Result<Orphans> {
    let mut groups = Vec::new();
    for group in GroupNumber::all(sb.groups) {
        groups.push(descriptor(device, sb, group)?);
    }
    let mut edit = Edit {
        device,
        sb,
        groups,
        now,
        most_blocks: most_blocks.max(1),
        changed: BTreeMap::new(),
    };
    let mut found = Orphans::default();
    let mut next = sb.last_orphan;
    while next != InodeNumber::NONE && !edit.is_full() {
        let (after, done) = edit.orphan(next)?;
        next = after;
        match done {
            Done::Freed => found.freed += 1,
            Done::Truncated => found.truncated += 1,
            Done::Part => break,
        }
        if found.freed + found.truncated > u64::from(sb.inodes_count) {
            return Err(corrupt(next, OrphanFault::NoEnd));
        }
    }
    edit.finish(next)?;
    let changed = edit.changed.into_iter();
    found.blocks = changed.collect();
    Ok(found)
}

fn corrupt(inode: InodeNumber, fault: OrphanFault) -> Error {
    Error::corrupt(Structure::Orphan(inode), fault)
}

/// The file system with the changes so far.
struct Edit<'e> {
    device: &'e dyn BlockDevice,
    sb: &'e Superblock,
    groups: Vec<GroupDescriptor>,
    now: Timestamp,
    most_blocks: usize,
    changed: BTreeMap<BlockNumber, Vec<u8>>,
}

/// What was done with an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Freed,
    Truncated,
    /// Some of its blocks are freed, and nothing points to these any more.
    Part,
}

impl Edit<'_> {
    /// Whether no more blocks are to be freed in this transaction.
    fn is_full(&self) -> bool {
        self.changed.len() >= self.most_blocks
    }

    /// A block's bytes as they are now.
    fn look(&self, block: BlockNumber) -> Result<Vec<u8>> {
        match self.changed.get(&block) {
            Some(bytes) => Ok(bytes.clone()),
            None => read_block(self.device, self.sb, block),
        }
    }

    /// A block's bytes, to be changed.
    fn block(&mut self, block: BlockNumber) -> Result<&mut Vec<u8>> {
        use std::collections::btree_map::Entry;
        match self.changed.entry(block) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(free) => Ok(free.insert(read_block(self.device, self.sb, block)?)),
        }
    }

    fn put(&mut self, block: BlockNumber, at: usize, bytes: &[u8]) -> Result<()> {
        self.block(block)?[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Deals with one orphan. Gives the next one to deal with, and what was done with this one.
    fn orphan(&mut self, number: InodeNumber) -> Result<(InodeNumber, Done)> {
        if number < self.sb.first_inode || !self.sb.is_valid_inode(number) {
            return Err(corrupt(number, OrphanFault::NoSuchInode));
        }
        let group = self.sb.group_of_inode(number);
        let index = self.sb.index_in_group(number) as usize;
        let descriptor = self.groups[group.index()];
        if !bitmap::test(&self.look(descriptor.inode_bitmap)?, index) {
            return Err(corrupt(number, OrphanFault::Free));
        }
        let (block, at) = descriptor.inode_location(self.sb, number);
        let bytes = self.look(block)?;
        let mut bytes = bytes[at..at + self.sb.inode_size as usize].to_vec();
        let inode = Inode::parse(&bytes).map_err(from_format)?;
        let mut done = match inode.links {
            0 => Done::Freed,
            _ => Done::Truncated,
        };
        let kept = match done {
            Done::Freed => 0,
            _ => inode.size.div_ceil(self.sb.block_size.into()),
        };
        let mut freed = 0;
        if inode.has_block_map(self.sb.block_size) {
            let is_whole;
            (freed, is_whole) = self.truncate(number, &inode, kept, &mut bytes)?;
            if !is_whole {
                done = Done::Part;
            }
        }
        match done {
            Done::Freed => {
                freed += self.drop_attributes(number, &inode)?;
                self.free_inode(&inode, group, index, &mut bytes)?;
            }
            Done::Truncated => {
                if inode.has_block_map(self.sb.block_size) {
                    self.clear_tail(number, &inode)?;
                }
                bytes[offset::DTIME..offset::DTIME + 4].fill(0);
            }
            Done::Part => {}
        }
        let sectors =
            u64::from(inode.sectors).saturating_sub(freed * u64::from(self.sb.block_size / 512));
        bytes[offset::BLOCKS..offset::BLOCKS + 4].copy_from_slice(&(sectors as u32).to_le_bytes());
        self.put(block, at, &bytes)?;
        let next = if done == Done::Part {
            number
        } else {
            InodeNumber(inode.dtime)
        };
        Ok((next, done))
    }

    /// Frees a file's blocks from `kept` on. Returns how many it freed, and whether none are left.
    fn truncate(
        &mut self,
        number: InodeNumber,
        inode: &Inode,
        kept: u64,
        bytes: &mut [u8],
    ) -> Result<(u64, bool)> {
        let pointers = u64::from(self.sb.block_size / 4);
        let (mut first, mut freed, mut is_whole) = (0, 0, true);
        for index in 0..POINTERS {
            let depth = index.saturating_sub(DIRECT_POINTERS - 1) as u32;
            let span = pointers.pow(depth);
            if first + span > kept && inode.block[index] != 0 {
                let block = BlockNumber(inode.block[index].into());
                let kept = kept.saturating_sub(first);
                let is_gone = self.free_tree(number, block, depth, kept, &mut freed)?;
                is_whole &= is_gone || kept > 0 && !self.is_full();
                if is_gone {
                    let at = offset::pointer(index);
                    bytes[at..at + 4].fill(0);
                }
            }
            first += span;
        }
        Ok((freed, is_whole))
    }

    /// Frees the blocks below a pointer except the first `kept` of the file's blocks there, as far
    /// as the transaction has room. Frees the block pointed to as well where nothing is left below,
    /// and returns whether it did.
    fn free_tree(
        &mut self,
        number: InodeNumber,
        block: BlockNumber,
        depth: u32,
        kept: u64,
        freed: &mut u64,
    ) -> Result<bool> {
        let mut stays = kept > 0 || depth == 0 && self.is_full();
        if depth > 0 {
            self.check_claim(number, block)?;
            let mut gone = Vec::new();
            let span = u64::from(self.sb.block_size / 4).pow(depth - 1);
            let bytes = self.look(block)?;
            for (slot, pointer) in bytes.chunks_exact(4).enumerate() {
                let below = u32::from_le_bytes([pointer[0], pointer[1], pointer[2], pointer[3]]);
                let first = slot as u64 * span;
                if below == 0 || first + span <= kept {
                    continue;
                }
                let kept = kept.saturating_sub(first);
                match self.free_tree(number, BlockNumber(below.into()), depth - 1, kept, freed)? {
                    true => gone.push(slot),
                    false => stays = true,
                }
            }
            for slot in gone.into_iter().filter(|_| stays) {
                self.put(block, slot * 4, &[0; 4])?;
            }
        }
        if !stays {
            self.free_block(number, block)?;
            *freed += 1;
        }
        Ok(!stays)
    }

    /// Refuses a block that no inode can have.
    fn check_claim(&self, number: InodeNumber, block: BlockNumber) -> Result<()> {
        match self.sb.is_valid_pointer(block) && !self.is_metadata(block) {
            true => Ok(()),
            false => Err(corrupt(number, OrphanFault::ClaimsBlock { block })),
        }
    }

    fn free_block(&mut self, number: InodeNumber, block: BlockNumber) -> Result<()> {
        self.check_claim(number, block)?;
        let group = self.sb.group_of_block(block);
        let index = (block - self.sb.group_first_block(group)) as usize;
        let bits = self.block(self.groups[group.index()].block_bitmap)?;
        if !bitmap::test(bits, index) {
            return Err(corrupt(number, OrphanFault::BlockFree { block }));
        }
        bitmap::clear(bits, index);
        // Nobody needs the block's contents any more, and a copy must not be written home after
        // another file has got the block.
        self.changed.remove(&block);
        self.count(group, OFFSET_FREE_BLOCKS_COUNT, true)
    }

    /// Whether a block belongs to the file system itself.
    fn is_metadata(&self, block: BlockNumber) -> bool {
        let group = self.sb.group_of_block(block);
        let own =
            self.sb.group_first_block(group) + u64::from(self.sb.super_blocks_in_group(group));
        let descriptor = &self.groups[group.index()];
        let table =
            descriptor.inode_table..descriptor.inode_table + u64::from(self.sb.inode_table_blocks);
        block < own
            || block == descriptor.block_bitmap
            || block == descriptor.inode_bitmap
            || table.contains(&block)
    }

    /// Adds or subtracts one in a counter of a descriptor.
    fn count(&mut self, group: GroupNumber, counter: usize, up: bool) -> Result<()> {
        let (block, at) = descriptor_location(self.sb, group);
        let bytes = self.block(block)?;
        let place = at + counter..at + counter + 2;
        let old = u16::from_le_bytes([bytes[place.start], bytes[place.start + 1]]);
        let new = if up {
            old.wrapping_add(1)
        } else {
            old.saturating_sub(1)
        };
        bytes[place].copy_from_slice(&new.to_le_bytes());
        Ok(())
    }

    /// Drops the inode's reference to its attribute block, and frees the block with its last one.
    /// Returns how many blocks the inode loses.
    fn drop_attributes(&mut self, number: InodeNumber, inode: &Inode) -> Result<u64> {
        let block = inode.file_acl;
        if block == BlockNumber::NONE {
            return Ok(0);
        }
        let bytes = self.look(block)?;
        let header = xattr::header(&bytes);
        let users = header.map_err(|_| corrupt(number, OrphanFault::AttributesDamaged))?;
        match users.h_refcount.get() {
            0 | 1 => self.free_block(number, block)?,
            users => {
                let at = offset_of!(RawXattrHeader, h_refcount);
                self.put(block, at, &(users - 1).to_le_bytes())?;
            }
        }
        Ok(1)
    }

    /// Marks an inode as free, with the fields as Linux leaves them.
    fn free_inode(
        &mut self,
        inode: &Inode,
        group: GroupNumber,
        index: usize,
        bytes: &mut [u8],
    ) -> Result<()> {
        bitmap::clear(self.block(self.groups[group.index()].inode_bitmap)?, index);
        self.count(group, OFFSET_FREE_INODES_COUNT, true)?;
        if inode.is_directory() {
            self.count(group, OFFSET_USED_DIRS_COUNT, false)?;
        }
        let now = u32::try_from(self.now.seconds)
            .unwrap_or(u32::MAX)
            .max(self.sb.inodes_count);
        bytes[offset::DTIME..offset::DTIME + 4].copy_from_slice(&now.to_le_bytes());
        bytes[offset::SIZE..offset::SIZE + 4].fill(0);
        bytes[offset::SIZE_HIGH..offset::SIZE_HIGH + 4].fill(0);
        bytes[offset::FILE_ACL..offset::FILE_ACL + 4].fill(0);
        if inode
            .file_type()
            .is_some_and(|_| inode.has_block_map(self.sb.block_size))
        {
            bytes[offset::BLOCK..offset::BLOCK + POINTERS * 4].fill(0);
        }
        Ok(())
    }

    /// Zeros what the last block has behind the size: it would show when the file grows again.
    fn clear_tail(&mut self, number: InodeNumber, inode: &Inode) -> Result<()> {
        let from = (inode.size % u64::from(self.sb.block_size)) as usize;
        if from == 0 || inode.is_directory() {
            return Ok(());
        }
        let Some(block) = self.find(inode, inode.size >> self.sb.block_size_bits)? else {
            return Ok(());
        };
        self.check_claim(number, block)?;
        if self.look(block)?[from..].iter().any(|byte| *byte != 0) {
            self.block(block)?[from..].fill(0);
        }
        Ok(())
    }

    /// Where a file's block is.
    fn find(&self, inode: &Inode, mut at: u64) -> Result<Option<BlockNumber>> {
        let pointers = u64::from(self.sb.block_size / 4);
        if at < DIRECT_POINTERS as u64 {
            let block = BlockNumber(inode.block[at as usize].into());
            return Ok(Some(block).filter(|block| *block != BlockNumber::NONE));
        }
        at -= DIRECT_POINTERS as u64;
        for depth in 1..=3_u32 {
            let span = pointers.pow(depth);
            if at >= span {
                at -= span;
                continue;
            }
            let root = inode.block[DIRECT_POINTERS - 1 + depth as usize];
            let mut block = BlockNumber(root.into());
            for level in (0..depth).rev() {
                if block == BlockNumber::NONE {
                    return Ok(None);
                }
                let slot = (at / pointers.pow(level) % pointers) as usize * 4;
                let bytes = self.look(block)?;
                let pointer = [
                    bytes[slot],
                    bytes[slot + 1],
                    bytes[slot + 2],
                    bytes[slot + 3],
                ];
                block = BlockNumber(u32::from_le_bytes(pointer).into());
            }
            return Ok(Some(block).filter(|block| *block != BlockNumber::NONE));
        }
        Ok(None)
    }

    /// The superblock: the list's new head, and what is free.
    fn finish(&mut self, head: InodeNumber) -> Result<()> {
        let (mut free_blocks, mut free_inodes) = (0_u64, 0_u64);
        for group in GroupNumber::all(self.sb.groups) {
            let (block, at) = descriptor_location(self.sb, group);
            let bytes = self.look(block)?;
            let counter = |offset: usize| {
                u64::from(u16::from_le_bytes([
                    bytes[at + offset],
                    bytes[at + offset + 1],
                ]))
            };
            free_blocks += counter(OFFSET_FREE_BLOCKS_COUNT);
            free_inodes += counter(OFFSET_FREE_INODES_COUNT);
        }
        let block = BlockNumber(SUPERBLOCK_OFFSET >> self.sb.block_size_bits);
        let base = (SUPERBLOCK_OFFSET % u64::from(self.sb.block_size)) as usize;
        let fields = [
            (offset_of!(RawSuperblock, s_last_orphan), head.0),
            (superblock::OFFSET_FREE_BLOCKS_COUNT, free_blocks as u32),
            (superblock::OFFSET_FREE_INODES_COUNT, free_inodes as u32),
        ];
        for (at, value) in fields {
            self.put(block, base + at, &value.to_le_bytes())?;
        }
        Ok(())
    }
}
