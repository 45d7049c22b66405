//! How many groups, inodes and reserved blocks a file system gets, as mke2fs computes it.

use super::{Mkfs, MkfsError, features, journal, log_file};
use backstitch_ext::format::features::{
    COMPAT_HAS_JOURNAL, COMPAT_RESIZE_INODE, COMPAT_SPARSE_SUPER2, RO_COMPAT_LARGE_FILE,
    RO_COMPAT_SPARSE_SUPER,
};
use backstitch_ext::format::htree::HASH_HALF_MD4;
use backstitch_ext::format::inode::EXTRA_SIZE;
use backstitch_ext::format::superblock::{
    FLAG_SIGNED_HASH, MAGIC, RawSuperblock, STATE_VALID, SUPERBLOCK_SIZE, Superblock,
};
use backstitch_ext::format::{Features, GOOD_OLD_FIRST_INODE, GOOD_OLD_INODE_SIZE};
use backstitch_layout::GroupNumber;
use zerocopy::{FromZeros, IntoBytes};

/// `s_default_mount_opts`: user attributes and ACLs.
const DEFAULT_MOUNT_OPTIONS: u32 = 0x4 | 0x8;
/// mke2fs rounds a device's size down to this.
const PAGE_BYTES: u64 = 4096;
/// A last group with fewer blocks than this besides its own structures is not worth having.
const LAST_GROUP_SPARE_BLOCKS: u64 = 50;
/// lost+found is given blocks ahead, since fsck must not have to allocate.
const LOST_AND_FOUND_BYTES: u32 = 16 * 1024;

/// The geometry of the file system that mkfs will make.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// The superblock, checked by the same code that checks a foreign one.
    pub superblock: Superblock,
    /// Its bytes, but for the free counts.
    pub(super) raw: RawSuperblock,
    /// The blocks of lost+found.
    pub(super) lost_and_found_blocks: u32,
    /// The blocks of the journal; 0 for none.
    pub(super) journal_blocks: u32,
    /// The blocks of the file that a log of ours is in; 0 for none.
    pub(super) log_blocks: u32,
    /// The length of the log behind the file system; 0 for none.
    pub(super) behind_bytes: u64,
}

/// The numbers while they are being adjusted to each other.
struct Numbers {
    block_size: u64,
    inode_size: u64,
    features: Features,
    wanted_blocks: u64,
    blocks: u64,
    blocks_per_group: u64,
    wanted_inodes: u64,
    groups: u64,
    inodes_per_group: u64,
    descriptor_blocks: u64,
    reserved_gdt_blocks: u64,
}

impl Geometry {
    pub(super) fn compute(options: &Mkfs, device_size_bytes: u64) -> Result<Geometry, MkfsError> {
        check_options(options)?;
        // Without a stated size a page that is not whole at the end is left out, as in mke2fs.
        let size = options
            .size_bytes
            .unwrap_or(device_size_bytes & !(PAGE_BYTES - 1));
        if size > device_size_bytes {
            let what = format!("{size} bytes wanted, the device has {device_size_bytes}");
            return Err(MkfsError::BadOption(what));
        }
        let size = log_file::with_log_behind(options, size);
        let behind_bytes = log_file::behind_bytes(options, size)?;
        let numbers = Numbers::compute(options, size - behind_bytes)?;
        let raw = numbers.raw_superblock(options);
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        let superblock = Superblock::parse(&bytes, device_size_bytes)?;
        let per_block = LOST_AND_FOUND_BYTES / superblock.block_size;
        let lost_and_found_blocks = per_block.clamp(2, 12);
        let journal_blocks = journal::blocks(options, &superblock)?;
        log_file::check(options, &superblock, behind_bytes)?;
        let log_blocks = log_file::blocks(options, &superblock)?;
        let mut geometry = Geometry {
            superblock,
            raw,
            lost_and_found_blocks,
            journal_blocks,
            log_blocks,
            behind_bytes,
        };
        let overhead = geometry.raw.s_overhead_clusters.get() + journal_blocks;
        geometry.raw.s_overhead_clusters = overhead.into();
        let needed = u64::from(geometry.first_files_blocks());
        let free: u64 = GroupNumber::all(geometry.superblock.groups)
            .map(|g| geometry.free_in_group(g))
            .sum();
        if free < needed {
            let what = format!("{free} free blocks, the first directories need {needed}");
            return Err(MkfsError::TooSmall(what));
        }
        Ok(geometry)
    }

    /// The blocks that a group's own structures take: superblock, descriptors, bitmaps, inode
    /// table.
    pub fn overhead_of_group(&self, group: GroupNumber) -> u64 {
        let sb = &self.superblock;
        u64::from(sb.super_blocks_in_group(group)) + 2 + u64::from(sb.inode_table_blocks)
    }

    /// The blocks of a group that files can have.
    pub(super) fn free_in_group(&self, group: GroupNumber) -> u64 {
        u64::from(self.superblock.blocks_in_group(group))
            .saturating_sub(self.overhead_of_group(group))
    }

    /// The blocks of the root directory, lost+found, the resize inode's tree, the journal and the
    /// log.
    fn first_files_blocks(&self) -> u32 {
        let journal = journal::all_blocks(self.journal_blocks, self.superblock.block_size);
        let log = journal::all_blocks(self.log_blocks, self.superblock.block_size);
        1 + self.lost_and_found_blocks + u32::from(self.has_resize_inode()) + journal + log
    }

    /// Whether there is a resize inode. With the feature there is one even if no block is reserved,
    /// as in mke2fs.
    pub(super) fn has_resize_inode(&self) -> bool {
        self.superblock.features.has_compat(COMPAT_RESIZE_INODE)
    }
}

/// Blocks in a group: as stated, or as many as a bitmap block has bits.
fn blocks_per_group(options: &Mkfs, block_size: u64) -> Result<u64, MkfsError> {
    let most = block_size * 8;
    match options.blocks_per_group.map(u64::from) {
        None => Ok(most),
        Some(count) if (256..=most).contains(&count) && count % 8 == 0 => Ok(count),
        Some(_) => Err(MkfsError::BadOption(format!(
            "blocks per group must be a multiple of 8 from 256 to {most}"
        ))),
    }
}

/// Refuses options that contradict themselves or each other.
fn check_options(options: &Mkfs) -> Result<(), MkfsError> {
    let bad = |what: &str| Err(MkfsError::BadOption(what.to_owned()));
    let features = features(options)?;
    let beside_journal = Features {
        compat: features.compat & !COMPAT_HAS_JOURNAL,
        ..features
    };
    let unsupported = beside_journal.unwritable();
    if !unsupported.is_empty() {
        return Err(MkfsError::Unsupported(unsupported.join(", ")));
    }
    if options.revision > 1 {
        return bad("the revision must be 0 or 1");
    }
    if options.revision == 0 && features != Features::default() {
        return bad("revision 0 has no features");
    }
    if options.revision == 0 && options.inode_size.is_some_and(|size| size != 128) {
        return bad("revision 0 has inodes of 128 bytes");
    }
    let has_sparse = features.has_ro_compat(RO_COMPAT_SPARSE_SUPER)
        && !features.has_compat(COMPAT_SPARSE_SUPER2);
    if features.has_compat(COMPAT_RESIZE_INODE) && !has_sparse {
        return bad("resize_inode needs sparse_super");
    }
    if options.label.len() > 16 {
        return bad("a label has at most 16 bytes");
    }
    if options.reserved_percent > 50 {
        return bad("at most 50 percent can be reserved");
    }
    if options
        .bytes_per_inode
        .is_some_and(|bytes| !(1024..=64 << 20).contains(&bytes))
    {
        return bad("bytes per inode must be 1 KiB to 64 MiB");
    }
    match options.block_size {
        None | Some(1024 | 2048 | 4096) => Ok(()),
        Some(_) => bad("the block size must be 1024, 2048 or 4096"),
    }
}

/// mke2fs.conf's inode ratio for a size.
fn default_bytes_per_inode(size_bytes: u64) -> u64 {
    const MEGABYTE: u64 = 1 << 20;
    match size_bytes / MEGABYTE {
        0..3 => 8192,
        3..512 => 4096,
        512..0x40_0000 => 16384,
        0x40_0000..0x100_0000 => 32768,
        _ => 65536,
    }
}

impl Numbers {
    fn compute(options: &Mkfs, size_bytes: u64) -> Result<Numbers, MkfsError> {
        let is_small = size_bytes < 512 << 20;
        let block_size =
            u64::from(
                options
                    .block_size
                    .unwrap_or(if is_small { 1024 } else { 4096 }),
            );
        let default_inode_size = if options.revision == 0 {
            GOOD_OLD_INODE_SIZE
        } else {
            256
        };
        let inode_size = u64::from(options.inode_size.unwrap_or(default_inode_size.into()));
        if !inode_size.is_power_of_two() || !(128..=block_size).contains(&inode_size) {
            let what = "the inode size must be a power of two from 128 to the block size";
            return Err(MkfsError::BadOption(what.into()));
        }
        let blocks = size_bytes / block_size;
        if blocks > u64::from(u32::MAX) {
            return Err(MkfsError::TooLarge(format!("ext2: {blocks} blocks")));
        }
        let ratio = options
            .bytes_per_inode
            .unwrap_or(default_bytes_per_inode(size_bytes));
        let by_ratio = blocks * block_size / ratio.max(block_size);
        let wanted_inodes = options.inodes.map_or(by_ratio, u64::from);
        if wanted_inodes * inode_size >= (blocks * block_size).max(1) {
            let what = format!("{wanted_inodes} inodes do not fit");
            return Err(MkfsError::BadOption(what));
        }
        let mut numbers = Numbers {
            block_size,
            inode_size,
            features: features(options)?,
            wanted_blocks: blocks,
            blocks,
            blocks_per_group: blocks_per_group(options, block_size)?,
            wanted_inodes: wanted_inodes.max(u64::from(GOOD_OLD_FIRST_INODE.0) + 1),
            groups: 0,
            inodes_per_group: 0,
            descriptor_blocks: 0,
            reserved_gdt_blocks: 0,
        };
        while !numbers.settle()? {}
        Ok(numbers)
    }

    fn first_data_block(&self) -> u64 {
        u64::from(self.block_size == 1024)
    }

    fn inode_table_blocks(&self) -> u64 {
        (self.inodes_per_group * self.inode_size).div_ceil(self.block_size)
    }

    /// Computes everything from the numbers of blocks and of blocks per group. `false` where one of
    /// the two had to be changed: the caller then calls it again.
    fn settle(&mut self) -> Result<bool, MkfsError> {
        let usable = self.blocks.saturating_sub(self.first_data_block());
        self.groups = usable.div_ceil(self.blocks_per_group);
        if self.groups == 0 {
            return Err(MkfsError::TooSmall(format!("{} blocks", self.blocks)));
        }
        self.descriptor_blocks = (self.groups * 32).div_ceil(self.block_size);
        if !self.settle_inodes() {
            return Ok(false);
        }
        if self.inodes_per_group * self.groups > u64::from(u32::MAX) {
            return Err(MkfsError::TooLarge(format!(
                "ext2: {} inodes",
                self.wanted_inodes
            )));
        }
        self.settle_reserved();
        let table = self.inode_table_blocks();
        let with_super = 1 + self.descriptor_blocks + self.reserved_gdt_blocks;
        if with_super + 2 + table > self.blocks_per_group {
            let what = format!("{} inodes leave no room in a group", self.wanted_inodes);
            return Err(MkfsError::BadOption(what));
        }
        let last_has_super = self.has_super(self.groups - 1);
        let overhead = 2 + table + if last_has_super { with_super } else { 0 };
        let rest = usable % self.blocks_per_group;
        if rest == 0 {
            return Ok(true);
        }
        if self.groups == 1 && rest < overhead {
            let what = format!("{rest} blocks, its own structures need {overhead}");
            return Err(MkfsError::TooSmall(what));
        }
        if self.groups > 1 && rest < overhead + LAST_GROUP_SPARE_BLOCKS {
            self.blocks -= rest;
            return Ok(false);
        }
        Ok(true)
    }

    /// Inodes per group: a multiple of 8 that fills the blocks of the table.
    fn settle_inodes(&mut self) -> bool {
        let bits = self.block_size * 8;
        let per_block = self.block_size / self.inode_size;
        let mut per_group = self.wanted_inodes.div_ceil(self.groups);
        if per_group > bits && self.blocks_per_group >= 256 {
            self.blocks_per_group -= 8;
            // A last group that was too small before may now be worth having.
            self.blocks = self.wanted_blocks;
            return false;
        }
        per_group = per_group.min((1 << 16) - per_block).min(bits);
        per_group = per_group.next_multiple_of(per_block) & !7;
        // Enough for lost+found: mke2fs rounds small tables down, and then finds no inode for it.
        let least = (u64::from(GOOD_OLD_FIRST_INODE.0) + 1).div_ceil(self.groups);
        self.inodes_per_group = per_group.max(least.next_multiple_of(8)).min(bits);
        true
    }

    /// Descriptor blocks kept so that the file system can grow to 1024 times its size.
    fn settle_reserved(&mut self) {
        self.reserved_gdt_blocks = 0;
        if !self.features.has_compat(COMPAT_RESIZE_INODE) {
            return;
        }
        let largest = (self.blocks * 1024).min(u64::from(u32::MAX));
        let groups = (largest - self.first_data_block()).div_ceil(self.blocks_per_group);
        let table = groups.div_ceil(self.block_size / 32);
        let reserved = table.saturating_sub(self.descriptor_blocks);
        self.reserved_gdt_blocks = reserved.min(self.block_size / 4);
    }

    fn has_super(&self, group: u64) -> bool {
        let is_power = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        !self.features.has_ro_compat(RO_COMPAT_SPARSE_SUPER)
            || group <= 1
            || is_power(3)
            || is_power(5)
            || is_power(7)
    }

    /// The superblock of a new file system; the free counts are still to come.
    fn raw_superblock(&self, options: &Mkfs) -> RawSuperblock {
        let mut raw = RawSuperblock::new_zeroed();
        let log_block_size = self.block_size.trailing_zeros() - 10;
        raw.s_inodes_count = ((self.inodes_per_group * self.groups) as u32).into();
        raw.s_blocks_count_lo = (self.blocks as u32).into();
        let reserved = self.blocks * u64::from(options.reserved_percent) / 100;
        raw.s_r_blocks_count_lo = (reserved as u32).into();
        raw.s_first_data_block = (self.first_data_block() as u32).into();
        raw.s_log_block_size = log_block_size.into();
        raw.s_log_cluster_size = log_block_size.into();
        raw.s_blocks_per_group = (self.blocks_per_group as u32).into();
        raw.s_clusters_per_group = (self.blocks_per_group as u32).into();
        raw.s_inodes_per_group = (self.inodes_per_group as u32).into();
        raw.s_max_mnt_count = u16::MAX.into();
        raw.s_magic = MAGIC.into();
        raw.s_state = STATE_VALID.into();
        raw.s_errors = 1.into();
        raw.s_rev_level = options.revision.into();
        raw.s_uuid = options.uuid;
        raw.s_volume_name[..options.label.len()].copy_from_slice(&options.label);
        raw.s_reserved_gdt_blocks = (self.reserved_gdt_blocks as u16).into();
        for (word, bytes) in raw
            .s_hash_seed
            .iter_mut()
            .zip(options.hash_seed.chunks_exact(4))
        {
            *word = u32::from_le_bytes(bytes.try_into().unwrap_or([0; 4])).into();
        }
        raw.s_journal_uuid = options.journal_uuid.unwrap_or_default();
        raw.s_def_hash_version = HASH_HALF_MD4;
        raw.s_flags = FLAG_SIGNED_HASH.into();
        self.set_revision_fields(&mut raw, options);
        set_times(&mut raw, options.time_seconds);
        raw.s_overhead_clusters = (self.overhead() as u32).into();
        raw
    }

    fn set_revision_fields(&self, raw: &mut RawSuperblock, options: &Mkfs) {
        // Revision 0 has neither field, but e2fsprogs fills them.
        raw.s_first_ino = GOOD_OLD_FIRST_INODE.0.into();
        raw.s_inode_size = (self.inode_size as u16).into();
        if options.revision == 0 {
            return;
        }
        raw.s_default_mount_opts = DEFAULT_MOUNT_OPTIONS.into();
        raw.s_feature_compat = self.features.compat.into();
        raw.s_feature_incompat = self.features.incompat.into();
        let mut ro_compat = self.features.ro_compat;
        // The resize inode's size has more than 32 bits once blocks have 4096 bytes.
        if self.features.has_compat(COMPAT_RESIZE_INODE) && self.block_size >= 4096 {
            ro_compat |= RO_COMPAT_LARGE_FILE;
        }
        raw.s_feature_ro_compat = ro_compat.into();
        if self.inode_size > GOOD_OLD_INODE_SIZE.into() {
            raw.s_min_extra_isize = (EXTRA_SIZE as u16).into();
            raw.s_want_extra_isize = (EXTRA_SIZE as u16).into();
        }
    }

    /// The blocks that are not for files.
    fn overhead(&self) -> u64 {
        let with_super = (0..self.groups)
            .filter(|group| self.has_super(*group))
            .count() as u64;
        self.first_data_block()
            + self.groups * (2 + self.inode_table_blocks())
            + with_super * (1 + self.descriptor_blocks + self.reserved_gdt_blocks)
    }
}

/// Made, written and checked now.
fn set_times(raw: &mut RawSuperblock, seconds: u64) {
    let (low, high) = (seconds as u32, (seconds >> 32) as u8);
    raw.s_mkfs_time = low.into();
    raw.s_wtime = low.into();
    raw.s_lastcheck = low.into();
    (raw.s_mkfs_time_hi, raw.s_wtime_hi, raw.s_lastcheck_hi) = (high, high, high);
}
