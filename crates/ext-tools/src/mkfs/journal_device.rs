//! A journal on a device of its own: what `mke2fs -O journal_dev` makes. A superblock of ext2 says
//! what the device is; the journal's superblock comes in the block behind it, and the log in all
//! others.

use backstitch_device::{BlockDevice, Buffer};
use backstitch_journal::format::superblock::{MIN_BLOCKS, SUPERBLOCK_BYTES};
use backstitch_journal::format::{ExternalJournal, Superblock as JournalSuperblock};
use zerocopy::{FromZeros, IntoBytes};

use super::journal::features;
use super::{MkfsError, MkfsJournal};
use backstitch_ext::format::features::INCOMPAT_JOURNAL_DEV;
use backstitch_ext::format::superblock::{MAGIC, RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET};
use backstitch_layout::tools::MadeJournal;

/// Old records are overwritten in pieces of this size.
const ZEROS_BYTES: usize = 1 << 20;

/// Makes the journal and flushes the device. The superblock that says that there is one comes last,
/// behind a flush.
///
/// # Errors
/// Options that cannot be had (the device is then untouched), and the device's errors.
pub fn write(wanted: &MkfsJournal, device: &dyn BlockDevice) -> Result<MadeJournal, MkfsError> {
    let block_size = wanted.block_size.unwrap_or(4096);
    let blocks = blocks(wanted, block_size, device.size_bytes())?;
    let position = u32::from(block_size == 1024) + 1;
    let mut log = JournalSuperblock::new(block_size, blocks, position, wanted.uuid);
    log.set_features(features(wanted.features)?);
    if !wanted.device_is_zero {
        clear(device, u64::from(blocks) * u64::from(block_size))?;
    }
    device.write(u64::from(position) * u64::from(block_size), &log.encode())?;
    device.flush()?;
    device.write(
        SUPERBLOCK_OFFSET,
        superblock(wanted, block_size, blocks).as_bytes(),
    )?;
    device.flush()?;
    let made = ExternalJournal::read(device).map_err(of_journal)?;
    let made = made.ok_or_else(|| MkfsError::BadOption("it cannot be read again".into()))?;
    Ok(MadeJournal {
        block_bytes: made.block_bytes,
        blocks: made.blocks,
        uuid: made.uuid,
    })
}

fn blocks(wanted: &MkfsJournal, block_size: u32, device_bytes: u64) -> Result<u32, MkfsError> {
    if !matches!(block_size, 1024 | 2048 | 4096) {
        let what = format!("a block size of {block_size}: 1024, 2048 or 4096 expected");
        return Err(MkfsError::BadOption(what));
    }
    if wanted.label.len() > 16 {
        return Err(MkfsError::BadOption(
            "the label has more than 16 bytes".into(),
        ));
    }
    let size = wanted.size_bytes.unwrap_or(device_bytes);
    if size > device_bytes {
        let what = format!("{size} bytes wanted, the device has {device_bytes}");
        return Err(MkfsError::BadOption(what));
    }
    let blocks = size / u64::from(block_size);
    if blocks < MIN_BLOCKS.into() {
        let what = format!("{blocks} blocks, a journal needs {MIN_BLOCKS}");
        return Err(MkfsError::TooSmall(what));
    }
    u32::try_from(blocks).map_err(|_| MkfsError::TooLarge(format!("ext2: {blocks} blocks")))
}

fn superblock(wanted: &MkfsJournal, block_size: u32, blocks: u32) -> RawSuperblock {
    let mut raw = RawSuperblock::new_zeroed();
    let log_block_size = block_size.trailing_zeros() - 10;
    raw.s_blocks_count_lo = blocks.into();
    raw.s_first_data_block = u32::from(block_size == 1024).into();
    raw.s_log_block_size = log_block_size.into();
    raw.s_log_cluster_size = log_block_size.into();
    raw.s_blocks_per_group = (block_size * 8).into();
    raw.s_clusters_per_group = (block_size * 8).into();
    raw.s_max_mnt_count = u16::MAX.into();
    raw.s_magic = MAGIC.into();
    raw.s_state = STATE_VALID.into();
    raw.s_errors = 1.into();
    raw.s_rev_level = 1.into();
    raw.s_first_ino = 11.into();
    raw.s_inode_size = 256.into();
    raw.s_feature_incompat = INCOMPAT_JOURNAL_DEV.into();
    raw.s_uuid = wanted.uuid;
    raw.s_volume_name[..wanted.label.len()].copy_from_slice(&wanted.label);
    let (low, high) = (
        wanted.time_seconds as u32,
        (wanted.time_seconds >> 32) as u8,
    );
    (raw.s_mkfs_time, raw.s_wtime, raw.s_lastcheck) = (low.into(), low.into(), low.into());
    (raw.s_mkfs_time_hi, raw.s_wtime_hi, raw.s_lastcheck_hi) = (high, high, high);
    raw
}

/// Overwrites the beginning of a device with zeros: no record of an older journal may be taken for
/// one of the new.
fn clear(device: &dyn BlockDevice, len_bytes: u64) -> Result<(), MkfsError> {
    let zeros = Buffer::zeroed(ZEROS_BYTES);
    let mut at = 0;
    while at < len_bytes {
        let piece = (len_bytes - at).min(ZEROS_BYTES as u64);
        device.write(at, &zeros[..piece as usize])?;
        at += piece;
    }
    Ok(())
}

/// Notes a file system as the user of a journal's device.
///
/// # Errors
/// Where the device holds no journal, or that of another file system (Linux mounts no file system
/// with a shared journal), or one that is not empty; the device's errors.
pub fn attach_journal(device: &dyn BlockDevice, file_system: [u8; 16]) -> Result<(), MkfsError> {
    let bad = |what: &str| Err(MkfsError::BadOption(format!("{}: {what}", device.name())));
    let Some(journal) = ExternalJournal::read(device).map_err(of_journal)? else {
        return bad("it holds no journal");
    };
    let position = journal.map.superblock();
    let offset_bytes = u64::from(position) * u64::from(journal.block_bytes);
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read(offset_bytes, &mut bytes)?;
    let log = JournalSuperblock::parse(&bytes, journal.block_bytes, journal.blocks, position);
    let mut log = log.map_err(of_journal)?;
    if log.users == [file_system] {
        return Ok(());
    }
    if !log.users.is_empty() {
        return bad("it is another file system's journal");
    }
    if !log.is_empty() {
        return bad("it is not empty: a file system still needs what it holds");
    }
    log.set_user(file_system);
    device.write(offset_bytes, &log.encode())?;
    Ok(device.flush()?)
}

fn of_journal(error: backstitch_journal::Error) -> MkfsError {
    match error {
        backstitch_journal::Error::Device(error) => error.into(),
        other => MkfsError::BadOption(other.to_string()),
    }
}
