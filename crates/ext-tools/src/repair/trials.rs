//! What may be put in place of a superblock or of descriptors that cannot be believed.

use super::Log;
use super::prepare::{descriptor, usual};
use super::superblock::{parse, put, raw};
use crate::fsck::{CheckError, Location, Source};
use backstitch_ext::format::GOOD_OLD_FIRST_INODE;
use backstitch_ext::format::features::{
    COMPAT_ORPHAN_FILE, INCOMPAT_FILETYPE, RO_COMPAT_BIGALLOC, RO_COMPAT_ORPHAN_PRESENT,
};
use backstitch_ext::format::group::{GroupDescriptor, descriptor_location, descriptor_table_block};
use backstitch_ext::format::inode::BASE_SIZE;
use backstitch_ext::format::superblock::{
    OS_HURD, OS_LINUX, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use backstitch_layout::GroupNumber;
use backstitch_layout::tools::Overlay;
use zerocopy::{FromBytes, IntoBytes};

/// Something to try instead of the superblock and the descriptors as they are.
pub(super) enum Trial {
    /// The first inode for files that every tool chooses.
    FirstInode,
    /// The first data block, which the size of a block gives.
    FirstDataBlock,
    /// The number of inodes that the number of groups and that of inodes in each of them give.
    InodeCount,
    /// The number of inodes in each group that the number of groups and that of all inodes give.
    InodesPerGroup,
    /// The number of blocks kept for descriptors that the place of the first bitmap gives.
    ReservedBlocks,
    /// Revision 1, where fields that only this revision has are filled in.
    Revision,
    /// No clusters, where the feature is set but a cluster is one block, and a group has as many
    /// clusters as blocks.
    ClustersOfOneBlock,
    /// No orphan file, where the feature says that it lists some but there is no such file.
    NoOrphanFile,
    /// Linux as the creator, where the superblock names the Hurd together with a feature that the
    /// Hurd lacks.
    Creator,
    /// Bitmaps and inode tables where mke2fs puts them.
    UsualPlaces,
    /// A guess for blocks of this size: fields that follow from others and from the device. With
    /// `true` the number of inodes is kept, else that of inodes in each group.
    Computed(u32, bool),
    /// The backup at this place; with `true` its descriptors as well.
    Backup(u64, bool),
    /// The same without its descriptors, and with the number of blocks kept for descriptors that
    /// the place of the first bitmap gives.
    BackupBesideReserved(u64),
}

impl Trial {
    /// Those that follow from the superblock's other fields.
    pub(super) const OF_OTHER_FIELDS: [Trial; 9] = [
        Trial::FirstInode,
        Trial::FirstDataBlock,
        Trial::InodeCount,
        Trial::InodesPerGroup,
        Trial::ReservedBlocks,
        Trial::Revision,
        Trial::ClustersOfOneBlock,
        Trial::NoOrphanFile,
        Trial::Creator,
    ];

    /// Puts it in place; `false` where it would change nothing.
    pub(super) fn make(&self, image: &mut Overlay<'_>, log: &mut Log) -> Result<bool, CheckError> {
        match self {
            Trial::Backup(at, with_descriptors) => {
                take(image, log, *at, *with_descriptors)?;
                Ok(true)
            }
            Trial::BackupBesideReserved(at) => {
                take(image, log, *at, false)?;
                count_reserved_blocks(image, log)
            }
            Trial::Computed(log_block_size, by_count) => {
                compute(image, log, *log_block_size, *by_count)
            }
            Trial::InodeCount => count_inodes(image, log, false),
            Trial::InodesPerGroup => count_inodes(image, log, true),
            Trial::ReservedBlocks => count_reserved_blocks(image, log),
            Trial::UsualPlaces => take_usual_places(image, log),
            Trial::FirstInode
            | Trial::FirstDataBlock
            | Trial::Revision
            | Trial::ClustersOfOneBlock
            | Trial::NoOrphanFile
            | Trial::Creator => {
                let mut raw = raw(image)?;
                let Some(what) = self.change(&mut raw) else {
                    return Ok(false);
                };
                put(image, &raw)?;
                log.add(Location::FILE_SYSTEM, what);
                Ok(true)
            }
        }
    }

    /// Changes one field of a superblock, and says what it is now. `None` where there is no reason
    /// for the change, and for trials of more than one field.
    fn change(&self, raw: &mut RawSuperblock) -> Option<String> {
        let features = raw.s_feature_ro_compat.get();
        let what = match self {
            Trial::FirstInode if raw.s_first_ino.get() != GOOD_OLD_FIRST_INODE.0 => {
                raw.s_first_ino = GOOD_OLD_FIRST_INODE.0.into();
                "the first inode for files is 11"
            }
            Trial::FirstDataBlock => {
                let has_clusters = features & RO_COMPAT_BIGALLOC != 0;
                let first = u32::from(raw.s_log_block_size.get() == 0 && !has_clusters);
                if raw.s_first_data_block.get() == first {
                    return None;
                }
                raw.s_first_data_block = first.into();
                return Some(format!("the first data block is {first}"));
            }
            Trial::Revision => {
                let size = raw.s_inode_size.get();
                let is_filled = raw.s_first_ino.get() == GOOD_OLD_FIRST_INODE.0
                    && size.is_power_of_two()
                    && usize::from(size) >= BASE_SIZE;
                if raw.s_rev_level.get() == 1 || !is_filled {
                    return None;
                }
                raw.s_rev_level = 1.into();
                "the revision is 1 now"
            }
            Trial::ClustersOfOneBlock => {
                let are_blocks = raw.s_log_cluster_size == raw.s_log_block_size
                    && raw.s_clusters_per_group == raw.s_blocks_per_group;
                if features & RO_COMPAT_BIGALLOC == 0 || !are_blocks {
                    return None;
                }
                raw.s_feature_ro_compat = (features & !RO_COMPAT_BIGALLOC).into();
                "feature bigalloc taken away: a cluster is a block"
            }
            Trial::NoOrphanFile => {
                let has_file = raw.s_feature_compat.get() & COMPAT_ORPHAN_FILE != 0;
                if has_file || features & RO_COMPAT_ORPHAN_PRESENT == 0 {
                    return None;
                }
                raw.s_feature_ro_compat = (features & !RO_COMPAT_ORPHAN_PRESENT).into();
                "feature orphan_present taken away"
            }
            Trial::Creator => {
                let has_types = raw.s_feature_incompat.get() & INCOMPAT_FILETYPE != 0;
                if raw.s_creator_os.get() != OS_HURD || !has_types {
                    return None;
                }
                raw.s_creator_os = OS_LINUX.into();
                "not made by the Hurd, as its features tell"
            }
            _ => return None,
        };
        Some(what.to_owned())
    }
}

/// Puts bitmaps and inode table of every group where mke2fs puts them.
fn take_usual_places(image: &mut Overlay<'_>, log: &mut Log) -> Result<bool, CheckError> {
    let Ok(sb) = parse(image) else {
        return Ok(false);
    };
    let mut moved = 0;
    for group in GroupNumber::all(sb.groups) {
        let (block, at) = descriptor_location(&sb, group);
        let place = sb.block_offset(block) + at as u64;
        let own = descriptor(image, place);
        let usual = usual(&sb, group, own);
        if own.as_bytes() != usual.as_bytes() {
            image.write(place, usual.as_bytes())?;
            moved += 1;
        }
    }
    if moved > 0 {
        let what = format!("bitmaps and inode tables of {moved} groups are where mke2fs puts them");
        log.add(Location::FILE_SYSTEM, what);
    }
    Ok(moved > 0)
}

/// Makes the number of inodes and that of inodes in a group agree, where nothing else is wrong with
/// them: `by_count` keeps the first, else the second is kept.
fn count_inodes(
    image: &mut Overlay<'_>,
    log: &mut Log,
    by_count: bool,
) -> Result<bool, CheckError> {
    let mut raw = raw(image)?;
    let first = raw.s_first_data_block.get();
    let data = u64::from(raw.s_blocks_count_lo.get()).saturating_sub(first.into());
    let groups = data.div_ceil(u64::from(raw.s_blocks_per_group.get()).max(1));
    let (all, per_group) = (raw.s_inodes_count.get(), raw.s_inodes_per_group.get());
    let Ok(groups @ 1..) = u32::try_from(groups) else {
        return Ok(false);
    };
    let counted = match by_count {
        true => all.is_multiple_of(groups).then_some((all, all / groups)),
        false => per_group.checked_mul(groups).map(|all| (all, per_group)),
    };
    let Some(counted) = counted.filter(|counted| *counted != (all, per_group)) else {
        return Ok(false);
    };
    // Inode tables fill whole blocks.
    let table = u64::from(counted.1) * u64::from(raw.s_inode_size.get());
    if raw.s_rev_level.get() > 0 && !table.is_multiple_of(1024 << raw.s_log_block_size.get().min(6))
    {
        return Ok(false);
    }
    raw.s_inodes_count = counted.0.into();
    raw.s_inodes_per_group = counted.1.into();
    put(image, &raw)?;
    if parse(image).is_err() {
        return Ok(false);
    }
    let what = format!("counts {} inodes, {} in a group now", counted.0, counted.1);
    log.add(Location::FILE_SYSTEM, what);
    Ok(true)
}

/// Makes the blocks kept for descriptors end where the first group's bitmaps and inode table begin.
fn count_reserved_blocks(image: &mut Overlay<'_>, log: &mut Log) -> Result<bool, CheckError> {
    let mut raw = raw(image)?;
    let told = raw.s_reserved_gdt_blocks.get();
    raw.s_reserved_gdt_blocks = 0.into();
    put(image, &raw)?;
    let Ok(sb) = parse(image) else {
        return Ok(false);
    };
    let (block, at) = descriptor_location(&sb, GroupNumber(0));
    let place = sb.block_offset(block) + at as u64;
    let first = GroupDescriptor::from_raw(&descriptor(image, place));
    let begin = first
        .block_bitmap
        .min(first.inode_bitmap)
        .min(first.inode_table);
    let described = sb.first_data_block + u64::from(sb.super_blocks_in_group(GroupNumber(0)));
    let reserved = begin
        .0
        .checked_sub(described.0)
        .and_then(|count| u16::try_from(count).ok());
    let Some(reserved) = reserved.filter(|count| *count != told) else {
        return Ok(false);
    };
    raw.s_reserved_gdt_blocks = reserved.into();
    put(image, &raw)?;
    let what = format!("{reserved} blocks are kept for descriptors now, not {told}");
    log.add(Location::FILE_SYSTEM, what);
    Ok(true)
}

/// Computes the fields that others give, and keeps the rest.
fn compute(
    image: &mut Overlay<'_>,
    log: &mut Log,
    log_block_size: u32,
    by_count: bool,
) -> Result<bool, CheckError> {
    let mut raw = raw(image)?;
    let before = raw;
    let block_size = 1024 << log_block_size;
    raw.s_log_block_size = log_block_size.into();
    raw.s_log_cluster_size = log_block_size.into();
    raw.s_first_data_block = u32::from(log_block_size == 0).into();
    let per_group = raw.s_blocks_per_group.get();
    if per_group == 0 || per_group > block_size * 8 || !per_group.is_multiple_of(8) {
        raw.s_blocks_per_group = (block_size * 8).into();
    }
    raw.s_clusters_per_group = raw.s_blocks_per_group;
    let there = image.size_bytes() / u64::from(block_size);
    if u64::from(raw.s_blocks_count_lo.get()) > there {
        raw.s_blocks_count_lo = (there as u32).into();
    }
    let blocks = raw.s_blocks_count_lo.get();
    if raw.s_r_blocks_count_lo.get() > blocks / 2 {
        raw.s_r_blocks_count_lo = (blocks / 20).into();
    }
    let data = blocks.saturating_sub(raw.s_first_data_block.get());
    let groups = data.div_ceil(raw.s_blocks_per_group.get()).max(1);
    let inodes = raw.s_inodes_per_group.get();
    if by_count || inodes == 0 || inodes > block_size * 8 {
        raw.s_inodes_per_group = (raw.s_inodes_count.get() / groups).into();
    }
    let inodes = raw.s_inodes_per_group.get().saturating_mul(groups);
    raw.s_inodes_count = inodes.into();
    if raw.as_bytes() == before.as_bytes() {
        return Ok(false);
    }
    put(image, &raw)?;
    log.add(
        Location::FILE_SYSTEM,
        "geometry guessed from the superblock's other fields and the size of the device",
    );
    Ok(true)
}

/// Puts a backup in place.
fn take(
    image: &mut Overlay<'_>,
    log: &mut Log,
    at: u64,
    with_descriptors: bool,
) -> Result<(), CheckError> {
    let bytes = image.read(at, SUPERBLOCK_SIZE)?;
    let Ok(mut raw) = RawSuperblock::read_from_bytes(&bytes) else {
        return Ok(());
    };
    raw.s_block_group_nr = 0.into();
    image.write(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    let sb = parse(image)?;
    let block = at >> sb.block_size_bits;
    log.add(
        Location::FILE_SYSTEM,
        format!("superblock taken from its backup in block {block}"),
    );
    if with_descriptors {
        let length = (sb.descriptor_blocks << sb.block_size_bits) as usize;
        let table = image.read((block + 1) << sb.block_size_bits, length)?;
        image.write(sb.block_offset(descriptor_table_block(&sb)), &table)?;
        log.add(Location::FILE_SYSTEM, "descriptors taken from their backup");
    }
    Ok(())
}
