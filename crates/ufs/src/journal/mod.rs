//! The log of operations that a file system hosts: where it is, the superblock's marks about it, and
//! the list of orphans.
//!
//! Works on plain bytes of a device, before the layout opens it. What is in the log is none of this
//! crate's business. A journal that the format knows is FreeBSD's own, which nothing here reads.
//!
//! A log that was brought home leaves a file system as an unmount does: the groups' counts came with
//! the last transaction, unlike after a crash under a mechanism without a log.

mod orphans;
mod place;

use backstitch_device::BlockDevice;
use backstitch_layout::{
    Error, HomeContents, InodeNumber, JournalHost, JournalPlace, Left, LogNote, NotedPlace,
    Orphans, RecoveryMark, Result, Timestamp,
};
use backstitch_ordering::CrashRecord;

use crate::format::log_record::{LOG_RECORD_AT, LOG_RECORD_BYTES, has_room};
use crate::format::record::{RECORD_AT, RECORD_BYTES};
use crate::format::superblock::offset;
use crate::format::{LogRecord, Superblock};
use crate::image::{Ufs, read_superblock, refuse_unreadable};

impl HomeContents for Ufs {
    /// Where a superblock is depends on what the device says: nothing is known of blocks.
    fn can_hold(&self, _block: u64, _bytes: &[u8]) -> bool {
        true
    }
}

impl JournalHost for Ufs {
    fn place(&self, _device: &dyn BlockDevice) -> Result<Option<JournalPlace>> {
        Ok(None)
    }

    fn damaged_places(&self, _device: &dyn BlockDevice) -> Result<Vec<JournalPlace>> {
        Ok(Vec::new())
    }

    fn check_mountable(&self, device: &dyn BlockDevice) -> Result<()> {
        refuse_unreadable(&read_superblock(device)?)
    }

    /// There is no journal that a mark could be about.
    fn set_recovery(&self, _device: &dyn BlockDevice, _mark: RecoveryMark) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn next_orphans(
        &self,
        device: &dyn BlockDevice,
        _now: Timestamp,
        most_blocks: usize,
    ) -> Result<Orphans> {
        let sb = read_superblock(device)?;
        if !sb.write_support().is_empty() || sb.raw.fs_sujfree == 0 {
            return Ok(Orphans::default());
        }
        orphans::next(device, &sb, most_blocks)
    }

    fn log_note(&self, device: &dyn BlockDevice) -> Result<Option<LogNote>> {
        let sb = read_superblock(device)?;
        let find = |inode| place::log_file(device, &sb, inode);
        let place = sb
            .log
            .map(|log| NotedPlace::recorded(log.inode, log.uuid, find))
            .transpose()?;
        let is_in_log = sb
            .record
            .is_some_and(|r| r.mechanism == CrashRecord::IN_LOG);
        let left = match sb.raw.fs_clean {
            0 if is_in_log => Left::InUse,
            _ if sb.is_clean() => Left::Clean,
            _ => Left::ByOthers,
        };
        Ok(Some(LogNote {
            block_bytes: sb.fragment_bytes,
            home_blocks: sb.fragments,
            place,
            left,
        }))
    }

    fn note_log(&self, device: &dyn BlockDevice, uuid: [u8; 16]) -> Result<()> {
        let sb = read_superblock(device)?;
        let record = LogRecord {
            inode: InodeNumber::NONE,
            uuid,
        };
        put_log_record(device, &sb, &record.encode(sb.order))
    }

    fn forget_log(&self, device: &dyn BlockDevice) -> Result<()> {
        let sb = read_superblock(device)?;
        put_log_record(device, &sb, &[0; LOG_RECORD_BYTES])
    }

    /// As an unmount says it: the clean mark first, and after it the record and the marks of the
    /// mount, which are in another sector.
    fn log_is_home(&self, device: &dyn BlockDevice) -> Result<()> {
        let sb = read_superblock(device)?;
        put(device, &sb, offset::CLEAN, &[1])?;
        let mut bytes = vec![0; RECORD_AT + RECORD_BYTES - offset::FLAGS];
        device.read(sb.place + offset::FLAGS as u64, &mut bytes)?;
        let flags = sb.order.bytes_of_u32(sb.flags_at_rest());
        bytes[..flags.len()].copy_from_slice(&flags);
        bytes[RECORD_AT - offset::FLAGS..].fill(0);
        put(device, &sb, offset::FLAGS, &bytes)
    }

    fn drop_orphans(&self, device: &dyn BlockDevice) -> Result<()> {
        put(device, &read_superblock(device)?, offset::ORPHANS, &[0; 4])
    }
}

/// Writes bytes of the superblock, and flushes.
fn put(device: &dyn BlockDevice, sb: &Superblock, at: usize, bytes: &[u8]) -> Result<()> {
    device.write(sb.place + at as u64, bytes)?;
    Ok(device.flush()?)
}

fn put_log_record(device: &dyn BlockDevice, sb: &Superblock, bytes: &[u8]) -> Result<()> {
    match has_room(&sb.raw) {
        true => put(device, sb, LOG_RECORD_AT, bytes),
        false => Err(Error::NotSupported),
    }
}
