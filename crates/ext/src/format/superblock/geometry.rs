//! The checks of a superblock's numbers, in the order in which they depend on each other.

use super::{REVISION_DYNAMIC, RawSuperblock, Superblock};
use crate::format::FormatError;
use crate::format::fault::SuperblockFault;
use crate::format::features::{self, Features};
use crate::format::{GOOD_OLD_FIRST_INODE, GOOD_OLD_INODE_SIZE};
use backstitch_layout::{BlockNumber, InodeNumber, Structure};
use zerocopy::little_endian::U32;

/// The numbers that everything else is computed from.
pub(super) struct Geometry {
    block_size_bits: u32,
    blocks_count: u64,
    r_blocks_count: u64,
    groups: u32,
    inode_size: u32,
    first_inode: InodeNumber,
    desc_size: u32,
    descriptor_blocks: u32,
    inode_table_blocks: u32,
}

fn corrupt(fault: SuperblockFault) -> FormatError {
    FormatError::corrupt(Structure::SUPERBLOCK, fault)
}

fn bounds(field: &'static str, found: u64, low: u64, high: u64) -> Result<(), FormatError> {
    if (low..=high).contains(&found) {
        return Ok(());
    }
    Err(corrupt(SuperblockFault::OutOfBounds {
        field,
        found,
        low,
        high,
    }))
}

fn wide(low: U32, high: U32, is_wide: bool) -> u64 {
    u64::from(low.get())
        | if is_wide {
            u64::from(high.get()) << 32
        } else {
            0
        }
}

impl Geometry {
    pub(super) fn parse(raw: &RawSuperblock, features: Features) -> Result<Geometry, FormatError> {
        bounds("s_log_block_size", raw.s_log_block_size.get().into(), 0, 6)?;
        let block_size_bits = 10 + raw.s_log_block_size.get();
        let block_size = 1_u64 << block_size_bits;
        let bigalloc = features.has_ro_compat(features::RO_COMPAT_BIGALLOC);
        let is_wide = features.has_incompat(features::INCOMPAT_64BIT);
        if !bigalloc && raw.s_log_cluster_size != raw.s_log_block_size {
            let found = raw.s_log_cluster_size.get();
            return Err(corrupt(SuperblockFault::ClusterIsNotBlock { found }));
        }
        let [block_log, cluster_log] =
            [raw.s_log_block_size, raw.s_log_cluster_size].map(|log| u64::from(log.get()));
        bounds("s_log_cluster_size", cluster_log, block_log, block_log + 20)?;
        let cluster_bits = cluster_log - block_log;
        let blocks_count = wide(raw.s_blocks_count_lo, raw.s_blocks_count_hi, is_wide);
        bounds(
            "s_blocks_count",
            blocks_count,
            1,
            u64::MAX >> block_size_bits,
        )?;
        let r_blocks_count = wide(raw.s_r_blocks_count_lo, raw.s_r_blocks_count_hi, is_wide);
        bounds("s_r_blocks_count", r_blocks_count, 0, blocks_count)?;
        let expected_first = u64::from(block_size == 1024 && !bigalloc);
        let first = u64::from(raw.s_first_data_block.get());
        bounds("s_first_data_block", first, expected_first, expected_first)?;
        bounds("s_blocks_count", blocks_count, first + 1, u64::MAX)?;
        let bits = block_size * 8;
        let blocks_per_group = u64::from(raw.s_blocks_per_group.get());
        bounds(
            "s_blocks_per_group",
            blocks_per_group,
            8,
            bits << cluster_bits,
        )?;
        if !blocks_per_group.is_multiple_of(8) {
            return Err(corrupt(SuperblockFault::GroupEndsWithinByte {
                found: blocks_per_group,
            }));
        }
        let groups = (blocks_count - first).div_ceil(blocks_per_group);
        bounds("number of groups", groups, 1, u64::from(u32::MAX))?;
        let mut geometry = Geometry {
            block_size_bits,
            blocks_count,
            r_blocks_count,
            groups: groups as u32,
            inode_size: GOOD_OLD_INODE_SIZE.into(),
            first_inode: GOOD_OLD_FIRST_INODE,
            desc_size: 32,
            descriptor_blocks: 0,
            inode_table_blocks: 0,
        };
        geometry.parse_inodes(raw, block_size)?;
        geometry.parse_descriptors(raw, block_size, is_wide)?;
        Ok(geometry)
    }

    fn parse_inodes(&mut self, raw: &RawSuperblock, block_size: u64) -> Result<(), FormatError> {
        if raw.s_rev_level.get() == REVISION_DYNAMIC {
            self.inode_size = raw.s_inode_size.get().into();
            self.first_inode = InodeNumber(raw.s_first_ino.get());
        }
        bounds("s_inode_size", self.inode_size.into(), 128, block_size)?;
        if !self.inode_size.is_power_of_two() {
            return Err(corrupt(SuperblockFault::NoPowerOfTwo {
                field: "s_inode_size",
                found: self.inode_size,
            }));
        }
        let per_group = u64::from(raw.s_inodes_per_group.get());
        bounds("s_inodes_per_group", per_group, 1, block_size * 8)?;
        let inodes = per_group * u64::from(self.groups);
        let found = u64::from(raw.s_inodes_count.get());
        if found != inodes {
            return Err(corrupt(SuperblockFault::InodesCount {
                found,
                expected: inodes,
            }));
        }
        let first_inode = u64::from(self.first_inode.0);
        bounds(
            "s_first_ino",
            first_inode,
            GOOD_OLD_FIRST_INODE.0.into(),
            inodes,
        )?;
        self.inode_table_blocks =
            (per_group * u64::from(self.inode_size)).div_ceil(block_size) as u32;
        let blocks_per_group = u64::from(raw.s_blocks_per_group.get());
        bounds(
            "inode table's blocks",
            self.inode_table_blocks.into(),
            1,
            blocks_per_group,
        )
    }

    fn parse_descriptors(
        &mut self,
        raw: &RawSuperblock,
        block_size: u64,
        is_wide: bool,
    ) -> Result<(), FormatError> {
        if is_wide {
            self.desc_size = raw.s_desc_size.get().into();
            bounds("s_desc_size", self.desc_size.into(), 64, 1024)?;
            if !self.desc_size.is_power_of_two() {
                return Err(corrupt(SuperblockFault::NoPowerOfTwo {
                    field: "s_desc_size",
                    found: self.desc_size,
                }));
            }
        }
        let table = (u64::from(self.groups) * u64::from(self.desc_size)).div_ceil(block_size);
        self.descriptor_blocks = table as u32;
        let reserved = u64::from(raw.s_reserved_gdt_blocks.get());
        bounds("s_reserved_gdt_blocks", reserved, 0, block_size / 4)?;
        if raw.features().has_incompat(features::INCOMPAT_META_BG) {
            return Ok(());
        }
        let group_blocks = self.blocks_count - u64::from(raw.s_first_data_block.get());
        let limit = group_blocks.min(u64::from(raw.s_blocks_per_group.get()));
        bounds("descriptor blocks", 1 + table + reserved, 1, limit)
    }

    pub(super) fn check_device(&self, device_size_bytes: u64) -> Result<(), FormatError> {
        let bytes = self.blocks_count << self.block_size_bits;
        if bytes <= device_size_bytes {
            return Ok(());
        }
        Err(corrupt(SuperblockFault::LongerThanDevice {
            blocks: self.blocks_count,
            block_bytes: 1 << self.block_size_bits,
            device_bytes: device_size_bytes,
        }))
    }

    pub(super) fn into_superblock(self, raw: &RawSuperblock, features: Features) -> Superblock {
        let is_wide = features.has_incompat(features::INCOMPAT_64BIT);
        Superblock {
            block_size: 1 << self.block_size_bits,
            block_size_bits: self.block_size_bits,
            blocks_count: self.blocks_count,
            inodes_count: raw.s_inodes_count.get(),
            r_blocks_count: self.r_blocks_count,
            free_blocks_count: wide(
                raw.s_free_blocks_count_lo,
                raw.s_free_blocks_count_hi,
                is_wide,
            ),
            free_inodes_count: raw.s_free_inodes_count.get(),
            first_data_block: BlockNumber(raw.s_first_data_block.get().into()),
            blocks_per_group: raw.s_blocks_per_group.get(),
            inodes_per_group: raw.s_inodes_per_group.get(),
            inode_size: self.inode_size,
            first_inode: self.first_inode,
            groups: self.groups,
            desc_size: self.desc_size,
            descriptor_blocks: self.descriptor_blocks,
            inode_table_blocks: self.inode_table_blocks,
            features,
            reserved_gdt_blocks: raw.s_reserved_gdt_blocks.get().into(),
            backup_groups: raw.s_backup_bgs.map(|group| group.get()),
            default_hash: raw.s_def_hash_version,
            hash_seed: raw.s_hash_seed.map(|word| word.get()),
            flags: raw.s_flags.get(),
            state: raw.s_state.get(),
            errors: raw.s_errors.get(),
            mtime: raw.s_mtime.get(),
            wtime: raw.s_wtime.get(),
            lastcheck: raw.s_lastcheck.get(),
            mkfs_time: raw.s_mkfs_time.get(),
            mount_count: raw.s_mnt_count.get(),
            max_mount_count: raw.s_max_mnt_count.get() as i16,
            label: until_zero(&raw.s_volume_name),
            last_mounted: until_zero(&raw.s_last_mounted),
            uuid: raw.s_uuid,
            creator_os: raw.s_creator_os.get(),
            revision: raw.s_rev_level.get(),
            reserved_uid: raw.s_def_resuid.get(),
            reserved_gid: raw.s_def_resgid.get(),
            last_orphan: InodeNumber(raw.s_last_orphan.get()),
            journal_inode: InodeNumber(raw.s_journal_inum.get()),
            min_extra_isize: raw.s_min_extra_isize.get(),
            want_extra_isize: raw.s_want_extra_isize.get(),
            record: raw.record(),
        }
    }
}

/// A padded string's bytes.
fn until_zero(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .copied()
        .take_while(|byte| *byte != 0)
        .collect()
}
