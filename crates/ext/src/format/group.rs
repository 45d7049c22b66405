//! Group descriptors: where each group's bitmaps and inode table are, and how much of it is free.
//!
//! The table starts in the block after the superblock's, and has a copy behind every copy of the
//! superblock.

use super::FormatError;
use super::features::{
    INCOMPAT_64BIT, INCOMPAT_FLEX_BG, RO_COMPAT_GDT_CSUM, RO_COMPAT_METADATA_CSUM,
};
use super::superblock::Superblock;
use crate::format::fault::DescriptorFault;
use backstitch_layout::{BlockNumber, GroupNumber, InodeNumber, Structure};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The size of a descriptor without `64bit`.
pub const DESCRIPTOR_SIZE: usize = size_of::<RawGroupDescriptor>();
/// The offset of `bg_free_blocks_count_lo` within a descriptor (2 bytes).
pub const OFFSET_FREE_BLOCKS_COUNT: usize =
    core::mem::offset_of!(RawGroupDescriptor, bg_free_blocks_count_lo);
/// The offset of `bg_free_inodes_count_lo` within a descriptor (2 bytes).
pub const OFFSET_FREE_INODES_COUNT: usize =
    core::mem::offset_of!(RawGroupDescriptor, bg_free_inodes_count_lo);
/// The offset of `bg_used_dirs_count_lo` within a descriptor (2 bytes).
pub const OFFSET_USED_DIRS_COUNT: usize =
    core::mem::offset_of!(RawGroupDescriptor, bg_used_dirs_count_lo);

/// The offset of `bg_flags` in a descriptor (2 bytes).
pub const OFFSET_FLAGS: usize = core::mem::offset_of!(RawGroupDescriptor, bg_flags);
/// The offset of `bg_itable_unused_lo` in a descriptor (2 bytes).
pub const OFFSET_UNUSED_INODES: usize =
    core::mem::offset_of!(RawGroupDescriptor, bg_itable_unused_lo);
/// `bg_flags`: the inode table and bitmap were never written; of no meaning without checksums.
pub const FLAG_INODES_UNINITIALISED: u16 = 0x1;
/// `bg_flags`: the block bitmap was never written; of no meaning without checksums.
pub const FLAG_BLOCKS_UNINITIALISED: u16 = 0x2;
/// `bg_flags`: both.
pub const FLAGS_UNINITIALISED: u16 = FLAG_INODES_UNINITIALISED | FLAG_BLOCKS_UNINITIALISED;
/// `bg_flags`: the inode table was written with zeros. mke2fs sets it also where the other flags
/// mean nothing.
pub const FLAG_INODE_TABLE_ZEROED: u16 = 0x4;

/// A descriptor as it is on the disk, with the kernel's field names.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawGroupDescriptor {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
}

/// What follows the first 32 bytes where the file system has the feature `64bit`: the high halves.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawGroupDescriptorHigh {
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

/// A descriptor whose blocks are known to be inside the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDescriptor {
    /// The block of the block bitmap.
    pub block_bitmap: BlockNumber,
    /// The block of the inode bitmap.
    pub inode_bitmap: BlockNumber,
    /// The first block of the inode table.
    pub inode_table: BlockNumber,
    /// Free blocks, as the descriptor has it: not to be trusted.
    pub free_blocks: u32,
    /// Free inodes, as the descriptor has it: not to be trusted.
    pub free_inodes: u32,
    /// Directories, as the descriptor has it: not to be trusted.
    pub used_directories: u32,
    /// `bg_flags`: of no meaning in ext2.
    pub flags: u16,
    /// `bg_itable_unused`: of no meaning in ext2.
    pub unused_inodes: u16,
}

impl GroupDescriptor {
    /// Checks one descriptor: the bitmaps and the table must lie inside the group (inside the file
    /// system under `flex_bg`), behind the group's own superblock and descriptors, and must not
    /// overlap.
    pub fn parse(
        sb: &Superblock,
        group: GroupNumber,
        bytes: &[u8],
    ) -> Result<GroupDescriptor, FormatError> {
        let structure = Structure::Descriptor { group };
        let Some(descriptor) = GroupDescriptor::unchecked(sb, bytes) else {
            return Err(FormatError::corrupt(
                structure,
                DescriptorFault::TableTooShort,
            ));
        };
        match descriptor.misplaced(sb, group) {
            None => Ok(descriptor),
            Some(fault) => Err(FormatError::corrupt(structure, fault)),
        }
    }

    /// The fields, of both halves where the file system has them, without any check; `None` where
    /// there are too few bytes.
    pub fn unchecked(sb: &Superblock, bytes: &[u8]) -> Option<GroupDescriptor> {
        let (raw, rest) = RawGroupDescriptor::read_from_prefix(bytes).ok()?;
        let mut descriptor = GroupDescriptor::from_raw(&raw);
        if sb.features.has_incompat(INCOMPAT_64BIT) {
            let (high, _) = RawGroupDescriptorHigh::read_from_prefix(rest).ok()?;
            descriptor.widen(&high);
        }
        Some(descriptor)
    }

    /// The fields of the first half without any check.
    pub fn from_raw(raw: &RawGroupDescriptor) -> GroupDescriptor {
        GroupDescriptor {
            block_bitmap: BlockNumber(raw.bg_block_bitmap_lo.get().into()),
            inode_bitmap: BlockNumber(raw.bg_inode_bitmap_lo.get().into()),
            inode_table: BlockNumber(raw.bg_inode_table_lo.get().into()),
            free_blocks: raw.bg_free_blocks_count_lo.get().into(),
            free_inodes: raw.bg_free_inodes_count_lo.get().into(),
            used_directories: raw.bg_used_dirs_count_lo.get().into(),
            flags: raw.bg_flags.get(),
            unused_inodes: raw.bg_itable_unused_lo.get(),
        }
    }

    /// Adds the high halves.
    fn widen(&mut self, high: &RawGroupDescriptorHigh) {
        let block = |half: U32| u64::from(half.get()) << 32;
        let count = |half: U16| u32::from(half.get()) << 16;
        self.block_bitmap.0 |= block(high.bg_block_bitmap_hi);
        self.inode_bitmap.0 |= block(high.bg_inode_bitmap_hi);
        self.inode_table.0 |= block(high.bg_inode_table_hi);
        self.free_blocks |= count(high.bg_free_blocks_count_hi);
        self.free_inodes |= count(high.bg_free_inodes_count_hi);
        self.used_directories |= count(high.bg_used_dirs_count_hi);
    }

    /// Whether the block bitmap was written. Where groups have no checksums the flag that says
    /// otherwise means nothing.
    pub fn has_block_bitmap(&self, sb: &Superblock) -> bool {
        const CHECKSUMS: u32 = RO_COMPAT_GDT_CSUM | RO_COMPAT_METADATA_CSUM;
        sb.features.ro_compat & CHECKSUMS == 0 || self.flags & FLAG_BLOCKS_UNINITIALISED == 0
    }

    /// What is wrong about the places that the descriptor names; `None` where they are fine.
    pub fn misplaced(&self, sb: &Superblock, group: GroupNumber) -> Option<DescriptorFault> {
        let (first, end) = if sb.features.has_incompat(INCOMPAT_FLEX_BG) {
            // Anywhere but where the superblock is.
            (sb.first_data_block + 1, sb.end_block())
        } else {
            let first = sb.group_first_block(group);
            let own = u64::from(sb.super_blocks_in_group(group));
            (first + own, first + u64::from(sb.blocks_in_group(group)))
        };
        let table_blocks = u64::from(sb.inode_table_blocks);
        let places = [
            ("block bitmap", self.block_bitmap, 1),
            ("inode bitmap", self.inode_bitmap, 1),
            ("inode table", self.inode_table, table_blocks),
        ];
        for (structure, block, length) in places {
            if block < first || block.checked_add(length).is_none_or(|behind| behind > end) {
                return Some(DescriptorFault::Misplaced {
                    structure,
                    block,
                    first,
                    last: end - 1,
                });
            }
        }
        let table = self.inode_table..self.inode_table + table_blocks;
        if self.block_bitmap == self.inode_bitmap
            || table.contains(&self.block_bitmap)
            || table.contains(&self.inode_bitmap)
        {
            return Some(DescriptorFault::Overlap);
        }
        None
    }

    /// The block and the offset therein of an inode of this group.
    pub fn inode_location(&self, sb: &Superblock, inode: InodeNumber) -> (BlockNumber, usize) {
        let (block, offset) = sb.inode_position(inode);
        (self.inode_table + block, offset)
    }
}

/// The first block of the primary descriptor table.
pub fn descriptor_table_block(sb: &Superblock) -> BlockNumber {
    sb.first_data_block + 1
}

/// The block and the offset therein of a group's primary descriptor.
pub fn descriptor_location(sb: &Superblock, group: GroupNumber) -> (BlockNumber, usize) {
    let byte = u64::from(group.0) * u64::from(sb.desc_size);
    let block = descriptor_table_block(sb) + (byte >> sb.block_size_bits);
    (block, (byte % u64::from(sb.block_size)) as usize)
}

/// Checks the whole table. `bytes` are its blocks, [`Superblock::descriptor_blocks`] in all.
///
/// # Errors
///
/// [`FormatError::Corrupt`] for the first descriptor that is wrong.
pub fn parse_table(sb: &Superblock, bytes: &[u8]) -> Result<Vec<GroupDescriptor>, FormatError> {
    GroupNumber::all(sb.groups)
        .map(|group| {
            let start = group.index() * sb.desc_size as usize;
            GroupDescriptor::parse(sb, group, bytes.get(start..).unwrap_or(&[]))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!(DESCRIPTOR_SIZE, 32);
        assert_eq!(offset_of!(RawGroupDescriptor, bg_inode_table_lo), 8);
        assert_eq!(OFFSET_FREE_BLOCKS_COUNT, 12);
        assert_eq!(OFFSET_FREE_INODES_COUNT, 14);
        assert_eq!(OFFSET_USED_DIRS_COUNT, 16);
        assert_eq!(offset_of!(RawGroupDescriptor, bg_checksum), 30);
        assert_eq!(size_of::<RawGroupDescriptorHigh>(), DESCRIPTOR_SIZE);
        assert_eq!(
            offset_of!(RawGroupDescriptorHigh, bg_free_blocks_count_hi),
            12
        );
    }
}
