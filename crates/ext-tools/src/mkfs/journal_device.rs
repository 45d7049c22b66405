//! A journal on a device of its own: what `mke2fs -O journal_dev` makes. A superblock of ext2 says what the device is; the journal's
//! superblock comes in the block behind it, and the log in all others.

use backstitch_device::{BlockDevice, Buffer};
use backstitch_journal::format::superblock::{MIN_BLOCKS, SUPERBLOCK_BYTES};
use backstitch_journal::format::{
    ExternalJournal, Features as JournalFeatures, Superblock as JournalSuperblock,
};
use zerocopy::{FromZeros, IntoBytes};

use super::MkfsError;
use backstitch_ext::format::features::INCOMPAT_JOURNAL_DEV;
use backstitch_ext::format::superblock::{MAGIC, RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET};

/// Old records are overwritten in pieces of this size.
const ZEROS_BYTES: usize = 1 << 20;

/// How a journal's device is made.
#[derive(Clone, Debug)]
pub struct MkfsJournal {
    /// How much of the device it takes; all where `None`.
    pub size_bytes: Option<u64>,
    /// 1024, 2048 or 4096, as the file system's; 4096 where `None`.
    pub block_size: Option<u32>,
    /// The label, at most 16 bytes.
    pub label: Vec<u8>,
    /// The UUID, by which a file system names the device.
    pub uuid: [u8; 16],
    /// What the journal uses; nothing, as mke2fs has it.
    pub features: JournalFeatures,
    /// When it is made, in seconds since 1970.
    pub time_seconds: u64,
    /// The device holds nothing but zeros (a new file).
    pub device_is_zero: bool,
}

impl MkfsJournal {
    /// All of a device that may hold anything, in blocks of 4096 bytes, with nothing that mke2fs would not use.
    pub fn new(uuid: [u8; 16], time_seconds: u64) -> MkfsJournal {
        MkfsJournal {
            size_bytes: None,
            block_size: None,
            label: Vec::new(),
            uuid,
            features: JournalFeatures::default(),
            time_seconds,
            device_is_zero: false,
        }
    }

    /// Makes the journal and flushes the device. The superblock that says that there is one comes last, behind a flush.
    ///
    /// # Errors
    /// Options that cannot be had (the device is then untouched), and the device's errors.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<ExternalJournal, MkfsError> {
        let block_size = self.block_size.unwrap_or(4096);
        let blocks = self.blocks(block_size, device.size_bytes())?;
        let position = u32::from(block_size == 1024) + 1;
        let mut log = JournalSuperblock::new(block_size, blocks, position, self.uuid);
        log.set_features(self.features);
        if !self.device_is_zero {
            clear(device, u64::from(blocks) * u64::from(block_size))?;
        }
        device.write(u64::from(position) * u64::from(block_size), &log.encode())?;
        device.flush()?;
        device.write(
            SUPERBLOCK_OFFSET,
            self.superblock(block_size, blocks).as_bytes(),
        )?;
        device.flush()?;
        let made = ExternalJournal::read(device).map_err(of_journal)?;
        made.ok_or_else(|| MkfsError::BadOption("it cannot be read again".into()))
    }

    fn blocks(&self, block_size: u32, device_bytes: u64) -> Result<u32, MkfsError> {
        if !matches!(block_size, 1024 | 2048 | 4096) {
            let what = format!("a block size of {block_size}: 1024, 2048 or 4096 expected");
            return Err(MkfsError::BadOption(what));
        }
        if self.label.len() > 16 {
            return Err(MkfsError::BadOption(
                "the label has more than 16 bytes".into(),
            ));
        }
        let size = self.size_bytes.unwrap_or(device_bytes);
        if size > device_bytes {
            let what = format!("{size} bytes wanted, the device has {device_bytes}");
            return Err(MkfsError::BadOption(what));
        }
        let blocks = size / u64::from(block_size);
        if blocks < MIN_BLOCKS.into() {
            let what = format!("{blocks} blocks, a journal needs {MIN_BLOCKS}");
            return Err(MkfsError::TooSmall(what));
        }
        u32::try_from(blocks).map_err(|_| MkfsError::TooLarge(format!("{blocks} blocks")))
    }

    fn superblock(&self, block_size: u32, blocks: u32) -> RawSuperblock {
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
        raw.s_uuid = self.uuid;
        raw.s_volume_name[..self.label.len()].copy_from_slice(&self.label);
        let (low, high) = (self.time_seconds as u32, (self.time_seconds >> 32) as u8);
        (raw.s_mkfs_time, raw.s_wtime, raw.s_lastcheck) = (low.into(), low.into(), low.into());
        (raw.s_mkfs_time_hi, raw.s_wtime_hi, raw.s_lastcheck_hi) = (high, high, high);
        raw
    }
}

/// Overwrites the beginning of a device with zeros: no record of an older journal may be taken for one of the new.
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
/// Where another file system is its user (Linux mounts no file system with a shared journal), or it still holds what belongs into one; the
/// device's.
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
