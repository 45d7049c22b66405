//! The superblock: 1024 bytes at byte 1024, whatever the block size, with backups at the start of
//! some groups.

use super::FormatError;
use super::features::{self, Features};
use super::log_record::LogRecord;
use super::record::MountRecord;
use backstitch_layout::{BlockNumber, GroupNumber, InodeNumber};
use geometry::Geometry;

mod geometry;
mod raw;
#[cfg(test)]
mod tests;

pub use raw::RawSuperblock;

/// `s_magic`
pub const MAGIC: u16 = 0xef53;
/// Where the primary superblock starts on the device.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Its size.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// `s_state`: cleanly unmounted.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were met.
pub const STATE_ERROR: u16 = 2;
/// `s_flags`: directory hashes treat characters as signed.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: directory hashes treat characters as unsigned.
pub const FLAG_UNSIGNED_HASH: u32 = 2;
/// `s_creator_os`: Linux.
pub const OS_LINUX: u32 = 0;
/// `s_creator_os`: GNU Hurd, whose inodes keep a translator where Linux keeps high bits.
pub const OS_HURD: u32 = 1;
/// `s_rev_level` with inode sizes and features.
pub const REVISION_DYNAMIC: u32 = 1;

/// Where a field of the superblock lies: `field_offset!(s_free_blocks_count_lo)`.
macro_rules! field {
    ($(#[$doc:meta] $name:ident = $field:ident;)*) => {
        $(#[$doc] pub const $name: usize = core::mem::offset_of!(RawSuperblock, $field);)*
    };
}

field! {
    /// The offset of `s_free_blocks_count_lo` within the superblock (4 bytes).
    OFFSET_FREE_BLOCKS_COUNT = s_free_blocks_count_lo;
    /// The offset of `s_free_inodes_count` within the superblock (4 bytes).
    OFFSET_FREE_INODES_COUNT = s_free_inodes_count;
    /// The offset of `s_mtime` within the superblock (4 bytes).
    OFFSET_MTIME = s_mtime;
    /// The offset of `s_wtime` within the superblock (4 bytes).
    OFFSET_WTIME = s_wtime;
    /// The offset of `s_mnt_count` within the superblock (2 bytes).
    OFFSET_MNT_COUNT = s_mnt_count;
    /// The offset of `s_state` within the superblock (2 bytes).
    OFFSET_STATE = s_state;
    /// The offset of `s_last_mounted` within the superblock (64 bytes).
    OFFSET_LAST_MOUNTED = s_last_mounted;
    /// The offset of `s_feature_compat` within the superblock (4 bytes).
    OFFSET_FEATURE_COMPAT = s_feature_compat;
    /// The offset of `s_feature_incompat` within the superblock (4 bytes).
    OFFSET_FEATURE_INCOMPAT = s_feature_incompat;
    /// The offset of `s_last_orphan` within the superblock (4 bytes).
    OFFSET_LAST_ORPHAN = s_last_orphan;
    /// The offset of `s_feature_ro_compat` within the superblock (4 bytes).
    OFFSET_FEATURE_RO_COMPAT = s_feature_ro_compat;
    /// The offset of our [record](super::record) within the superblock.
    OFFSET_RECORD = s_backstitch;
}

/// A superblock whose geometry has been checked: every computation on these fields stays within the
/// device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// 1024 … 65536, a power of two.
    pub block_size: u32,
    /// `log2(block_size)`
    pub block_size_bits: u32,
    /// Blocks in all, the ones before `first_data_block` included.
    pub blocks_count: u64,
    /// Inodes in all: `inodes_per_group * groups`.
    pub inodes_count: u32,
    /// Blocks kept for root.
    pub r_blocks_count: u64,
    /// Free blocks, as the superblock has it: not to be trusted.
    pub free_blocks_count: u64,
    /// Free inodes, as the superblock has it: not to be trusted.
    pub free_inodes_count: u32,
    /// The block that group 0 starts with: 1 where blocks have 1024 bytes, else 0.
    pub first_data_block: BlockNumber,
    /// Blocks in every group but the last one.
    pub blocks_per_group: u32,
    /// Inodes in every group.
    pub inodes_per_group: u32,
    /// Bytes per inode in the table, a power of two.
    pub inode_size: u32,
    /// The first inode that is not reserved.
    pub first_inode: InodeNumber,
    /// The number of groups, at least 1.
    pub groups: u32,
    /// Bytes per group descriptor.
    pub desc_size: u32,
    /// The blocks that the descriptor table takes.
    pub descriptor_blocks: u32,
    /// The blocks that each group's inode table takes.
    pub inode_table_blocks: u32,
    /// What the file system uses.
    pub features: Features,
    /// Blocks kept after the descriptor table for growing it.
    pub reserved_gdt_blocks: u32,
    /// The groups that have a backup under `sparse_super2`.
    pub backup_groups: [u32; 2],
    /// The directory hash that new indexes use (see [`htree`](super::htree)).
    pub default_hash: u8,
    /// The seed of directory hashes.
    pub hash_seed: [u32; 4],
    /// `s_flags`: signed or unsigned hashes.
    pub flags: u32,
    /// `s_state`
    pub state: u16,
    /// `s_errors`: what to do about errors (1 continue, 2 read-only, 3 panic).
    pub errors: u16,
    /// The last mount, in seconds since 1970 (low 32 bits).
    pub mtime: u32,
    /// The last write.
    pub wtime: u32,
    /// The last check.
    pub lastcheck: u32,
    /// When it was made.
    pub mkfs_time: u32,
    /// Mounts since the last check.
    pub mount_count: u16,
    /// Mounts after which to check; negative: never.
    pub max_mount_count: i16,
    /// The label, as bytes, without the padding.
    pub label: Vec<u8>,
    /// Where it was mounted last, without the padding.
    pub last_mounted: Vec<u8>,
    /// The UUID.
    pub uuid: [u8; 16],
    /// Which system made it.
    pub creator_os: u32,
    /// 0 or 1.
    pub revision: u32,
    /// The user who may use the reserved blocks.
    pub reserved_uid: u16,
    /// The group who may.
    pub reserved_gid: u16,
    /// The head of the on-disk list of orphans; 0 where there is none.
    pub last_orphan: InodeNumber,
    /// The journal's inode; 0 where there is none.
    pub journal_inode: InodeNumber,
    /// The extra bytes that every inode has.
    pub min_extra_isize: u16,
    /// The extra bytes that new inodes should have.
    pub want_extra_isize: u16,
    /// Which mechanism of ours mounted it last.
    pub record: Option<MountRecord>,
    /// Where a log of ours lies.
    pub log: Option<LogRecord>,
}

impl Superblock {
    /// The name that people give an image with these features.
    pub fn type_name(&self) -> &'static str {
        const EXT4_INCOMPAT: u32 = !(features::INCOMPAT_FILETYPE
            | features::INCOMPAT_RECOVER
            | features::INCOMPAT_META_BG);
        const EXT2_RO_COMPAT: u32 = features::RO_COMPAT_SPARSE_SUPER
            | features::RO_COMPAT_LARGE_FILE
            | features::RO_COMPAT_BTREE_DIR;
        let is_ext4 = self.revision == REVISION_DYNAMIC
            && (self.features.incompat & EXT4_INCOMPAT != 0
                || self.features.ro_compat & !EXT2_RO_COMPAT != 0);
        match (
            is_ext4,
            self.features.has_compat(features::COMPAT_HAS_JOURNAL),
        ) {
            (true, _) => "ext4",
            (false, true) => "ext3",
            (false, false) => "ext2",
        }
    }

    /// Checks a superblock against itself and against the device it came from.
    ///
    /// # Errors
    ///
    /// [`FormatError::NotAFileSystem`] without the magic number, [`FormatError::Incompatible`] for
    /// a revision or a kind of device that has another structure, [`FormatError::Corrupt`] for
    /// numbers that cannot be. Features that we cannot read do *not* fail here, so that they can be
    /// named: see [`read_support`](Self::read_support).
    pub fn parse(
        bytes: &[u8; SUPERBLOCK_SIZE],
        device_size_bytes: u64,
    ) -> Result<Superblock, FormatError> {
        let raw = RawSuperblock::from_array(bytes);
        if raw.s_magic.get() != MAGIC {
            let found = raw.s_magic.get();
            let what = format!("magic number {MAGIC:#06x} expected, {found:#06x} found");
            return Err(super::not_ext2(what));
        }
        if raw.s_rev_level.get() > REVISION_DYNAMIC {
            let features = format!("revision {}", raw.s_rev_level.get());
            return Err(FormatError::Incompatible { features });
        }
        let features = raw.features();
        if features.has_incompat(features::INCOMPAT_JOURNAL_DEV) {
            return Err(FormatError::Incompatible {
                features: "journal_dev: it is another file system's journal".into(),
            });
        }
        let geometry = Geometry::parse(&raw, features)?;
        geometry.check_device(device_size_bytes)?;
        Ok(geometry.into_superblock(&raw, features))
    }

    /// The names of the features that keep us from reading; empty where we can.
    pub fn read_support(&self) -> Vec<String> {
        let mut names = self.features.unreadable();
        if self.creator_os == OS_HURD {
            names.push("hurd".into());
        }
        names
    }

    /// The names of the features that keep us from writing; empty where we can.
    pub fn write_support(&self) -> Vec<String> {
        let mut names = self.features.unwritable();
        if self.creator_os == OS_HURD {
            names.push("hurd".into());
        }
        if self.block_size > 4096 {
            names.push(format!("block size {}", self.block_size));
        }
        names
    }

    /// As [`write_support`](Self::write_support), but a journal that needs no recovery does not
    /// count: a tool that changes the file system while it is not mounted may leave an empty
    /// journal alone.
    pub fn write_support_beside_journal(&self) -> Vec<String> {
        let mut sb = self.clone();
        sb.features.compat &= !features::COMPAT_HAS_JOURNAL;
        sb.write_support()
    }

    /// One more than the last block's number.
    pub fn end_block(&self) -> BlockNumber {
        BlockNumber(self.blocks_count)
    }

    /// Where a block begins on the device, in bytes.
    pub fn block_offset(&self, block: BlockNumber) -> u64 {
        block.offset_bytes(self.block_size.into())
    }

    /// The group of a block. The block must be in `first_data_block..blocks_count`.
    pub fn group_of_block(&self, block: BlockNumber) -> GroupNumber {
        let distance = block.saturating_sub(self.first_data_block);
        GroupNumber((distance / u64::from(self.blocks_per_group)) as u32)
    }

    /// The first block of a group.
    pub fn group_first_block(&self, group: GroupNumber) -> BlockNumber {
        self.first_data_block + u64::from(group.0) * u64::from(self.blocks_per_group)
    }

    /// The number of blocks in a group; only the last one can have fewer than `blocks_per_group`.
    pub fn blocks_in_group(&self, group: GroupNumber) -> u32 {
        let rest = self
            .end_block()
            .saturating_sub(self.group_first_block(group));
        rest.min(u64::from(self.blocks_per_group)) as u32
    }

    /// The group of an inode. Inode 0 does not exist; it counts to group 0.
    pub fn group_of_inode(&self, inode: InodeNumber) -> GroupNumber {
        GroupNumber(inode.0.saturating_sub(1) / self.inodes_per_group)
    }

    /// An inode's place within its group.
    pub fn index_in_group(&self, inode: InodeNumber) -> u32 {
        inode.0.saturating_sub(1) % self.inodes_per_group
    }

    /// The first inode of a group.
    pub fn group_first_inode(&self, group: GroupNumber) -> InodeNumber {
        InodeNumber(group.0 * self.inodes_per_group + 1)
    }

    /// Whether the number is an inode's.
    pub fn is_valid_inode(&self, inode: InodeNumber) -> bool {
        (InodeNumber::FIRST..=InodeNumber(self.inodes_count)).contains(&inode)
    }

    /// Whether the block is one of the file system's. That can be block 0, which holds the
    /// superblock where blocks are larger than 1 KiB.
    pub fn has_block(&self, block: BlockNumber) -> bool {
        (self.first_data_block..self.end_block()).contains(&block)
    }

    /// Whether a pointer can lead to this block. Never to block 0: a pointer of 0 means "none".
    pub fn is_valid_pointer(&self, block: BlockNumber) -> bool {
        block != BlockNumber::NONE && self.has_block(block)
    }

    /// Whether a group starts with a superblock and the descriptor table.
    ///
    /// Without `sparse_super` (always so in revision 0) every group does; with it groups 0, 1 and
    /// the powers of 3, 5 and 7; with `sparse_super2` group 0 and the two that the superblock
    /// names.
    pub fn has_super(&self, group: GroupNumber) -> bool {
        if group.0 == 0 {
            return true;
        }
        if self.features.has_compat(features::COMPAT_SPARSE_SUPER2) {
            return self.backup_groups.contains(&group.0);
        }
        if group.0 == 1
            || !self
                .features
                .has_ro_compat(features::RO_COMPAT_SPARSE_SUPER)
        {
            return true;
        }
        [3, 5, 7].iter().any(|base| is_power_of(group.0, *base))
    }

    /// The blocks at a group's start that hold the superblock, the descriptors and the ones kept
    /// for growing them; 0 where the group has no backup.
    pub fn super_blocks_in_group(&self, group: GroupNumber) -> u32 {
        if self.has_super(group) {
            1 + self.descriptor_blocks + self.reserved_gdt_blocks
        } else {
            0
        }
    }

    /// Where an inode lies: its block counted from the start of its group's inode table, and its
    /// offset therein.
    pub fn inode_position(&self, inode: InodeNumber) -> (u64, usize) {
        let bytes = u64::from(self.index_in_group(inode)) * u64::from(self.inode_size);
        (
            bytes >> self.block_size_bits,
            (bytes % u64::from(self.block_size)) as usize,
        )
    }

    /// The largest file that an inode with 15 pointers can map, limited by its block count of 32
    /// bits in sectors.
    pub fn max_file_size(&self) -> u64 {
        let pointers = u64::from(self.block_size / 4);
        let mapped = 12 + pointers + pointers.pow(2) + pointers.pow(3);
        // The tree's own blocks count as sectors too, and all of them must fit into i_blocks.
        let sectors_per_block = u64::from(self.block_size / 512);
        let data_limit = max_data_blocks(u64::from(u32::MAX) / sectors_per_block, pointers);
        mapped
            .min(data_limit)
            .saturating_mul(u64::from(self.block_size))
    }
}

/// The most data blocks of a file that takes at most `blocks` blocks, its indirect blocks included.
fn max_data_blocks(blocks: u64, pointers: u64) -> u64 {
    let tree = |data: u64| {
        let single = data.saturating_sub(12);
        let double = single.saturating_sub(pointers);
        let triple = double.saturating_sub(pointers * pointers);
        let middle = triple.div_ceil(pointers * pointers) + u64::from(double > 0);
        single.div_ceil(pointers) + middle + u64::from(triple > 0)
    };
    // data + tree(data) grows with data: the largest fitting one by bisection.
    let (mut low, mut high) = (0, blocks);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if middle + tree(middle) <= blocks {
            low = middle
        } else {
            high = middle - 1
        }
    }
    low
}

/// Whether `number` is `base` to some power ≥ 1.
fn is_power_of(mut number: u32, base: u32) -> bool {
    while number > base && number.is_multiple_of(base) {
        number /= base;
    }
    number == base
}
