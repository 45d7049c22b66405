//! The journal that a file system hosts: where it is, the superblock's marks about it, and the list
//! of orphans.
//!
//! Works on plain bytes of a device, before the layout opens it. What is in the journal is none of
//! this crate's business.

mod orphans;
mod place;

use crate::fault::JournalFault;
use backstitch_device::BlockDevice;
use backstitch_layout::{
    BlockNumber, Error, GroupNumber, HomeContents, InodeNumber, JournalHost, JournalPlace, Left,
    LogNote, NotedPlace, Orphans, RecoveryMark, Result, Structure, Timestamp,
};
use backstitch_ordering::CrashRecord;
use core::mem::offset_of;
use zerocopy::{FromZeros, IntoBytes};

use crate::format::features::{INCOMPAT_RECOVER, RO_COMPAT_METADATA_CSUM};
use crate::format::group::descriptor_location;
use crate::format::log_record::{LogRecord, RawLogRecord};
use crate::format::superblock::{
    MAGIC, RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use crate::format::{GroupDescriptor, MountRecord};
use crate::image::{Ext2, from_format, read_superblock, refuse_unreadable, refuse_with};

pub use place::{BACKUP_BLOCKS, Copy, Faults, map, superblock_copy, superblock_names_journal};

impl HomeContents for Ext2 {
    /// A superblock has its magic number; any bytes can be another block's.
    fn can_hold(&self, block: u64, bytes: &[u8]) -> bool {
        let length = bytes.len() as u64;
        let is_superblock = SUPERBLOCK_OFFSET.checked_div(length) == Some(block);
        let at = (SUPERBLOCK_OFFSET % length.max(1)) as usize + offset_of!(RawSuperblock, s_magic);
        !is_superblock || bytes.get(at..at + 2) == Some(&MAGIC.to_le_bytes())
    }
}

impl JournalHost for Ext2 {
    fn journal_maker(&self) -> Option<&'static str> {
        Some("tune2fs -j")
    }

    fn place(&self, device: &dyn BlockDevice) -> Result<Option<JournalPlace>> {
        let sb = read_superblock(device)?;
        place::place(device, &sb, &read_raw(device)?)
    }

    fn damaged_places(&self, device: &dyn BlockDevice) -> Result<Vec<JournalPlace>> {
        let sb = read_superblock(device)?;
        place::damaged_places(device, &sb, &read_raw(device)?)
    }

    fn check_mountable(&self, device: &dyn BlockDevice) -> Result<()> {
        let mut sb = read_superblock(device)?;
        sb.features.incompat &= !INCOMPAT_RECOVER;
        refuse_unreadable(&sb)
    }

    fn check_replayable(&self, device: &dyn BlockDevice) -> Result<()> {
        let mut sb = read_superblock(device)?;
        sb.features.incompat &= !INCOMPAT_RECOVER;
        refuse_unreadable(&sb)?;
        refuse_with(sb.features.only_readable())
    }

    fn set_recovery(&self, device: &dyn BlockDevice, mark: RecoveryMark) -> Result<()> {
        let mut raw = read_raw(device)?;
        let incompat = raw.s_feature_incompat.get() & !INCOMPAT_RECOVER;
        let needed = if mark.needed { INCOMPAT_RECOVER } else { 0 };
        raw.s_feature_incompat = (incompat | needed).into();
        let mut state = raw.s_state.get();
        if mark.is_damaged {
            state &= !STATE_VALID;
        }
        if mark.has_errors {
            state |= STATE_ERROR;
        }
        raw.s_state = state.into();
        if !mark.needed {
            // With a journal Linux does not write the totals while mounted. The groups' own counts
            // were in the journal, and have been replayed.
            let (blocks, inodes) = free_in_groups(device)?;
            raw.s_free_blocks_count_lo = (blocks as u32).into();
            raw.s_free_blocks_count_hi = ((blocks >> 32) as u32).into();
            raw.s_free_inodes_count = (inodes as u32).into();
        }
        write_raw(device, raw)
    }

    fn next_orphans(
        &self,
        device: &dyn BlockDevice,
        now: Timestamp,
        most_blocks: usize,
    ) -> Result<Orphans> {
        let sb = read_superblock(device)?;
        let mut writable = sb.clone();
        writable.features.incompat &= !INCOMPAT_RECOVER;
        // As in Linux, the list is not trusted where the superblock says "errors".
        let is_usable =
            writable.write_support_beside_journal().is_empty() && sb.state & STATE_ERROR == 0;
        if !is_usable || sb.last_orphan == InodeNumber::NONE {
            return Ok(Orphans::default());
        }
        orphans::next(device, &sb, now, most_blocks)
    }

    fn log_note(&self, device: &dyn BlockDevice) -> Result<Option<LogNote>> {
        let sb = read_superblock(device)?;
        let find = |inode| place::log_file(device, &sb, inode);
        let place = sb
            .log
            .map(|log| NotedPlace::recorded(log.inode, log.uuid, find))
            .transpose()?;
        let is_in_use = |r: &MountRecord| {
            r.mechanism == CrashRecord::IN_LOG && r.matches(sb.mtime, sb.mount_count)
        };
        let left = match sb.state & (STATE_VALID | STATE_ERROR) {
            STATE_VALID => Left::Clean,
            0 if sb.record.as_ref().is_some_and(is_in_use) => Left::InUse,
            _ => Left::ByOthers,
        };
        Ok(Some(LogNote {
            block_bytes: sb.block_size,
            home_blocks: sb.blocks_count,
            place,
            left,
        }))
    }

    fn note_log(&self, device: &dyn BlockDevice, uuid: [u8; 16]) -> Result<()> {
        let mut raw = read_raw(device)?;
        raw.s_backstitch_log = LogRecord {
            inode: InodeNumber::NONE,
            uuid,
        }
        .encode();
        write_raw(device, raw)
    }

    fn forget_log(&self, device: &dyn BlockDevice) -> Result<()> {
        let mut raw = read_raw(device)?;
        raw.s_backstitch_log = RawLogRecord::new_zeroed();
        write_raw(device, raw)
    }

    fn log_is_home(&self, device: &dyn BlockDevice) -> Result<()> {
        let mut raw = read_raw(device)?;
        raw.s_state = (raw.s_state.get() | STATE_VALID).into();
        let (blocks, inodes) = free_in_groups(device)?;
        raw.s_free_blocks_count_lo = (blocks as u32).into();
        raw.s_free_inodes_count = (inodes as u32).into();
        write_raw(device, raw)
    }

    fn drop_orphans(&self, device: &dyn BlockDevice) -> Result<()> {
        let mut raw = read_raw(device)?;
        raw.s_last_orphan = 0.into();
        write_raw(device, raw)
    }
}

/// The free blocks and inodes that the group descriptors count.
fn free_in_groups(device: &dyn BlockDevice) -> Result<(u64, u64)> {
    let sb = read_superblock(device)?;
    let (mut blocks, mut inodes) = (0, 0);
    for group in GroupNumber::all(sb.groups) {
        let (block, at) = descriptor_location(&sb, group);
        let bytes = read_block(device, &sb, block)?;
        let bytes = bytes.get(at..).unwrap_or_default();
        let counted = GroupDescriptor::unchecked(&sb, bytes);
        blocks += counted.map_or(0, |g| u64::from(g.free_blocks));
        inodes += counted.map_or(0, |g| u64::from(g.free_inodes));
    }
    Ok((blocks, inodes))
}

fn read_raw(device: &dyn BlockDevice) -> Result<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(RawSuperblock::from_array(&bytes))
}

/// Writes the superblock, with its checksum where it has one, and flushes.
fn write_raw(device: &dyn BlockDevice, mut raw: RawSuperblock) -> Result<()> {
    if raw.s_feature_ro_compat.get() & RO_COMPAT_METADATA_CSUM != 0 {
        let covered = SUPERBLOCK_SIZE - size_of_val(&raw.s_checksum);
        raw.s_checksum = (!crc32c::crc32c(&raw.as_bytes()[..covered])).into();
    }
    device.write(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    Ok(device.flush()?)
}

/// A block, whole.
fn read_block(device: &dyn BlockDevice, sb: &Superblock, block: BlockNumber) -> Result<Vec<u8>> {
    // No pointer leads to block 0, but it may hold the superblock, which journals have copies of.
    if !sb.has_block(block) {
        return Err(Error::corrupt(
            Structure::JOURNAL,
            JournalFault::NoSuchBlock { block },
        ));
    }
    let mut bytes = vec![0; sb.block_size as usize];
    device.read(block.offset_bytes(sb.block_size.into()), &mut bytes)?;
    Ok(bytes)
}

/// A group's descriptor.
fn descriptor(
    device: &dyn BlockDevice,
    sb: &Superblock,
    group: GroupNumber,
) -> Result<GroupDescriptor> {
    let (block, offset) = descriptor_location(sb, group);
    let bytes = read_block(device, sb, block)?;
    let bytes = bytes.get(offset..).unwrap_or_default();
    GroupDescriptor::parse(sb, group, bytes).map_err(from_format)
}
