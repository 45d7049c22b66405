//! The superblock's own fields, the resize inode, and the marks at the end.

use super::Log;
use super::fixer::{Fixer, put_u16, put_u32};
use super::prepare::descriptor;
use crate::fsck::superblock::unknown_features;
use crate::fsck::{CheckError, Code, Facts, Finding, Location, Report};
use backstitch_ext::format::features::{
    COMPAT_HAS_JOURNAL, COMPAT_RESIZE_INODE, RO_COMPAT_LARGE_FILE,
};
use backstitch_ext::format::group::{
    self, RawGroupDescriptor, descriptor_location, descriptor_table_block,
};
use backstitch_ext::format::inode::{DIRECT_POINTERS, DOUBLE_INDIRECT, offset};
use backstitch_ext::format::superblock::{
    RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use backstitch_ext::format::{FormatError, JOURNAL_INODE, RESIZE_INODE, Superblock};
use backstitch_ext::journal::superblock_copy;
use backstitch_layout::tools::Overlay;
use backstitch_layout::{BlockNumber, FileType, GroupNumber, InodeNumber};
use core::mem::offset_of;
use rustc_hash::FxHashSet;
use zerocopy::IntoBytes;

/// The superblock as it is.
pub(super) fn raw(image: &Overlay<'_>) -> Result<RawSuperblock, CheckError> {
    Ok(RawSuperblock::from_array(&bytes(image)?))
}

fn bytes(image: &Overlay<'_>) -> Result<[u8; SUPERBLOCK_SIZE], CheckError> {
    let read = image.read(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
    let mut bytes = [0; SUPERBLOCK_SIZE];
    bytes.copy_from_slice(&read);
    Ok(bytes)
}

/// The superblock, of an image that this version can repair: all that it can check, also where it
/// cannot be mounted for writing.
pub(super) fn parse(image: &Overlay<'_>) -> Result<Superblock, CheckError> {
    use crate::fsck::Source;
    let sb = Superblock::parse(&bytes(image)?, image.size_bytes())?;
    let unknown = unknown_features(&sb);
    if unknown.is_empty() {
        return Ok(sb);
    }
    let features = unknown.join(", ");
    Err(FormatError::Incompatible { features }.into())
}

pub(super) fn put(image: &mut Overlay<'_>, raw: &RawSuperblock) -> Result<(), CheckError> {
    Ok(image.write(SUPERBLOCK_OFFSET, raw.as_bytes())?)
}

/// Clears fields that name inodes from `first` on as quota files; returns whether there were any.
/// Images with the quota feature are not repaired, so nothing keeps quotas there.
fn clear_quota_inodes(raw: &mut RawSuperblock, first: InodeNumber) -> bool {
    let fields = [
        &mut raw.s_usr_quota_inum,
        &mut raw.s_grp_quota_inum,
        &mut raw.s_prj_quota_inum,
    ];
    let mut are_cleared = false;
    for field in fields {
        if field.get() >= first.0 {
            *field = 0.into();
            are_cleared = true;
        }
    }
    are_cleared
}

/// Marks the image as damaged, before anything else is written: if the repair is interrupted, no
/// system trusts it.
pub(super) fn mark_damaged(image: &mut Overlay<'_>) -> Result<(), CheckError> {
    let mut raw = raw(image)?;
    let state = raw.s_state.get() & !STATE_VALID | STATE_ERROR;
    raw.s_state = state.into();
    put(image, &raw)?;
    image.barrier();
    Ok(())
}

/// Whether [`finish`] repairs what a note of this kind reports.
pub(super) fn is_settled(code: Code) -> bool {
    matches!(
        code,
        Code::FreeBlocksWrong
            | Code::FreeInodesWrong
            | Code::BackupDiffers
            | Code::NotUnmounted
            | Code::ErrorsRecorded
    )
}

/// Clears the marks of bitmaps and inode tables that were never written, which mean nothing without
/// checksums of the descriptors; images with those are not repaired.
pub(super) fn clear_uninitialised(
    image: &mut Overlay<'_>,
    log: &mut Log,
    sb: &Superblock,
) -> Result<(), CheckError> {
    for group in GroupNumber::all(sb.groups) {
        let (block, at) = descriptor_location(sb, group);
        let place = sb.block_offset(block) + at as u64;
        let mut own = descriptor(image, place);
        let flags = own.bg_flags.get() & !group::FLAGS_UNINITIALISED;
        if (flags, 0) != (own.bg_flags.get(), own.bg_itable_unused_lo.get()) {
            own.bg_flags = flags.into();
            own.bg_itable_unused_lo = 0.into();
            image.write(place, own.as_bytes())?;
            log.add(Location::group(group), "flags cleared");
        }
    }
    Ok(())
}

/// The totals, the backups, and at last the clean mark.
pub(super) fn finish(
    image: &mut Overlay<'_>,
    log: &mut Log,
    facts: &Facts,
    report: &Report,
    now_seconds: u32,
) -> Result<(), CheckError> {
    let notes = |code| report.notes.iter().any(|note| note.code == code);
    let mut raw = raw(image)?;
    if notes(Code::FreeBlocksWrong) || notes(Code::FreeInodesWrong) {
        let blocks: u32 = facts.groups.iter().map(|group| group.free_blocks).sum();
        let inodes: u32 = facts.groups.iter().map(|group| group.free_inodes).sum();
        raw.s_free_blocks_count_lo = blocks.into();
        raw.s_free_inodes_count = inodes.into();
        let what = format!("counts {blocks} free blocks and {inodes} free inodes now");
        log.add(Location::FILE_SYSTEM, what);
    }
    if clear_quota_inodes(&mut raw, facts.sb.first_inode) {
        log.add(Location::FILE_SYSTEM, "inodes of quotas forgotten");
    }
    if raw.s_last_orphan.get() != 0 {
        raw.s_last_orphan = 0.into();
        log.add(Location::FILE_SYSTEM, "list of orphans emptied");
    }
    put(image, &raw)?;
    if notes(Code::BackupDiffers) {
        write_backups(image, &facts.sb)?;
        log.add(Location::FILE_SYSTEM, "backups written anew");
    }
    image.barrier();
    let state = raw.s_state.get();
    if state & STATE_VALID == 0 || state & STATE_ERROR != 0 {
        log.add(Location::FILE_SYSTEM, "marked as clean");
    } else if log.list.is_empty() {
        return Ok(());
    }
    raw.s_state = (state & !STATE_ERROR | STATE_VALID).into();
    raw.s_lastcheck = now_seconds.into();
    raw.s_mnt_count = 0.into();
    put(image, &raw)?;
    image.barrier();
    Ok(())
}

/// Copies superblock and descriptors to every group that has a backup.
fn write_backups(image: &mut Overlay<'_>, sb: &Superblock) -> Result<(), CheckError> {
    let mut raw = raw(image)?;
    let size = sb.block_size as usize;
    let start = sb.block_offset(descriptor_table_block(sb));
    let table = image.read(start, sb.descriptor_blocks as usize * size)?;
    for group in GroupNumber::all(sb.groups)
        .skip(1)
        .filter(|group| sb.has_super(*group))
    {
        let first = sb.block_offset(sb.group_first_block(group));
        raw.s_block_group_nr = (group.0 as u16).into();
        image.write(first, raw.as_bytes())?;
        image.write(first + size as u64, &table)?;
    }
    Ok(())
}

impl Fixer<'_, '_> {
    pub(super) fn superblock(&mut self, findings: &[&Finding]) -> Result<(), CheckError> {
        let has = |code| findings.iter().any(|finding| finding.code == code);
        if has(Code::SuperblockField) {
            self.superblock_fields()?;
        }
        if has(Code::LargeFileFeatureMissing) {
            let mut raw = raw(self.image)?;
            let features = raw.s_feature_ro_compat.get() | RO_COMPAT_LARGE_FILE;
            raw.s_feature_ro_compat = features.into();
            put(self.image, &raw)?;
            self.note(Location::FILE_SYSTEM, "feature large_file set");
        }
        if has(Code::ResizeInodeInvalid) {
            self.resize_inode()?;
        }
        for finding in findings {
            if let (Code::DescriptorFlags, Some(group)) = (finding.code, finding.location.group) {
                self.descriptor_flags(group)?;
            }
        }
        Ok(())
    }

    fn superblock_fields(&mut self) -> Result<(), CheckError> {
        let mut raw = raw(self.image)?;
        let before = raw;
        let sb = self.sb;
        if sb.r_blocks_count > sb.blocks_count / 2 {
            raw.s_r_blocks_count_lo = ((sb.blocks_count / 20) as u32).into();
            raw.s_r_blocks_count_hi = 0.into();
        }
        raw.s_clusters_per_group = raw.s_blocks_per_group;
        let desc_size = raw.s_desc_size.get();
        if desc_size != 0 && (!desc_size.is_power_of_two() || desc_size > 1024) {
            raw.s_desc_size = 0.into();
        }
        if raw.s_log_groups_per_flex > 31 {
            raw.s_log_groups_per_flex = 0;
        }
        clear_quota_inodes(&mut raw, sb.first_inode);
        if !sb.features.has_compat(COMPAT_RESIZE_INODE) {
            raw.s_reserved_gdt_blocks = 0.into();
        }
        self.journal_fields(&mut raw)?;
        if raw.as_bytes() != before.as_bytes() {
            put(self.image, &raw)?;
            self.note(Location::FILE_SYSTEM, "superblock fields set right");
        }
        Ok(())
    }

    /// Makes the superblock name the journal in its inode, or none.
    fn journal_fields(&self, raw: &mut RawSuperblock) -> Result<(), CheckError> {
        let has_journal = self.sb.features.has_compat(COMPAT_HAS_JOURNAL);
        if has_journal && raw.s_journal_inum.get() == 0 && raw.s_journal_uuid != [0; 16] {
            return Ok(());
        }
        let inode = self.inode(JOURNAL_INODE)?;
        let has_copy = superblock_copy(raw).is_some();
        let is_regular = inode.file_type() == Some(FileType::Regular) && inode.block[0] != 0;
        let is_there = is_regular || has_copy;
        raw.s_journal_uuid = [0; 16];
        if has_journal && is_there {
            raw.s_journal_inum = JOURNAL_INODE.0.into();
        } else {
            let features = raw.s_feature_compat.get() & !COMPAT_HAS_JOURNAL;
            raw.s_feature_compat = features.into();
            raw.s_journal_inum = 0.into();
        }
        Ok(())
    }

    /// Clears flags and count of a descriptor: all of the inode table is written.
    fn descriptor_flags(&mut self, group: GroupNumber) -> Result<(), CheckError> {
        let (block, at) = descriptor_location(self.sb, group);
        let mut table = self.block(block)?;
        put_u16(&mut table, at + offset_of!(RawGroupDescriptor, bg_flags), 0);
        put_u16(
            &mut table,
            at + offset_of!(RawGroupDescriptor, bg_itable_unused_lo),
            0,
        );
        self.put_block(block, &table)?;
        self.note(Location::group(group), "flags cleared");
        Ok(())
    }

    /// Makes the resize inode and the blocks that it maps anew; without the feature, empties it.
    pub(super) fn resize_inode(&mut self) -> Result<(), CheckError> {
        let sb = self.sb;
        let mut bytes = self.inode_bytes(RESIZE_INODE)?;
        let old = super::fixer::get_u32(&bytes, offset::pointer(DOUBLE_INDIRECT));
        let old = BlockNumber(old.into());
        bytes[offset::BLOCK..offset::BLOCK + 60].fill(0);
        if !sb.features.has_compat(COMPAT_RESIZE_INODE) {
            for field in [offset::BLOCKS, offset::SIZE, offset::SIZE_HIGH] {
                put_u32(&mut bytes, field, 0);
            }
            self.put_inode(RESIZE_INODE, &bytes)?;
            self.note(Location::inode(RESIZE_INODE), "emptied");
            return Ok(());
        }
        // The old root of the tree is kept where no other structure uses the block.
        let is_tree =
            sb.is_valid_pointer(old) && !self.is_metadata(old) && !self.is_contents(old)?;
        let tree = if is_tree { Some(old) } else { self.allocate()? };
        let Some(tree) = tree else {
            return Ok(());
        };
        let per_block = sb.block_size / 4;
        let backups: Vec<u64> = GroupNumber::all(sb.groups)
            .skip(1)
            .filter(|group| sb.has_super(*group))
            .take(per_block as usize)
            .map(|group| u64::from(group.0) * u64::from(sb.blocks_per_group))
            .collect();
        let mut root = vec![0; self.block_size()];
        for index in 0..sb.reserved_gdt_blocks {
            let number = sb.descriptor_blocks + index;
            let block = sb.first_data_block + 1 + u64::from(number);
            put_u32(&mut root, (number % per_block) as usize * 4, block.0 as u32);
            let mut copies = vec![0; self.block_size()];
            for (slot, distance) in backups.iter().enumerate() {
                put_u32(&mut copies, slot * 4, (block + *distance).0 as u32);
            }
            self.put_block(block, &copies)?;
        }
        self.put_block(tree, &root)?;
        let blocks = 1 + sb.reserved_gdt_blocks * (1 + backups.len() as u32);
        let mapped = DIRECT_POINTERS as u64 + u64::from(per_block) * u64::from(per_block + 1);
        let size = mapped << sb.block_size_bits;
        put_u16(&mut bytes, offset::MODE, 0o100_600);
        put_u16(&mut bytes, offset::LINKS, 1);
        put_u32(&mut bytes, offset::DTIME, 0);
        put_u32(&mut bytes, offset::BLOCKS, blocks * (sb.block_size / 512));
        put_u32(&mut bytes, offset::SIZE, size as u32);
        put_u32(&mut bytes, offset::SIZE_HIGH, (size >> 32) as u32);
        put_u32(&mut bytes, offset::FLAGS, 0);
        put_u32(&mut bytes, offset::pointer(DOUBLE_INDIRECT), tree.0 as u32);
        self.put_inode(RESIZE_INODE, &bytes)?;
        self.note(Location::inode(RESIZE_INODE), "made anew");
        Ok(())
    }

    /// Whether another inode than the resize inode has this block.
    fn is_contents(&mut self, block: BlockNumber) -> Result<bool, CheckError> {
        if self.facts.gathered.xattr_blocks.contains_key(&block) {
            return Ok(true);
        }
        let mut seen = FxHashSet::default();
        for number in self.used_inodes() {
            if number != RESIZE_INODE && self.has_block(number, block, &mut seen)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
