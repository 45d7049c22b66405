//! What a superblock says, for people.

use crate::{fsck, mkfs};
use backstitch_device::BlockDevice;
use backstitch_layout::tools::{CheckError, DeviceSource, Info, LastMount, State};
use backstitch_ordering::CrashRecord;
use backstitch_ufs::format::superblock::FLAG_NEEDS_CHECK;
use backstitch_ufs::format::{Superblock, Version};

/// Reads what a device holds.
///
/// # Errors
/// [`CheckError::Format`] where it is none or cannot be believed, [`CheckError::Device`] where
/// reading fails.
pub fn read(device: &dyn BlockDevice) -> Result<Info, CheckError> {
    Ok(of(&fsck::superblock::find(&DeviceSource(device))?))
}

/// Whether a log of ours has what the last mount did.
fn is_in_log(sb: &Superblock) -> bool {
    sb.record
        .is_some_and(|record| record.mechanism == CrashRecord::IN_LOG)
}

/// What a superblock says.
pub fn of(sb: &Superblock) -> Info {
    let raw = &sb.raw;
    let total = sb.summary_total();
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let (blocks, fragments, inodes) = (
        positive(total.cs_nbfree),
        positive(total.cs_nffree),
        positive(total.cs_nifree),
    );
    let until_zero = |bytes: &[u8]| -> Vec<u8> {
        bytes
            .iter()
            .copied()
            .take_while(|byte| *byte != 0)
            .collect()
    };
    let data = match sb.is_old {
        true => i64::from(raw.fs_old_dsize),
        false => raw.fs_dsize,
    };
    let mut unwritable = sb.write_support();
    if sb.has_dirty_journal() {
        unwritable.push("a journal that was not replayed".to_owned());
    }
    Info {
        type_name: sb.version.name(),
        revision: match sb.version {
            Version::Ufs1 => 1,
            Version::Ufs2 => 2,
        },
        label: sb.label().to_vec(),
        uuid: mkfs::uuid(raw),
        state: if sb.is_clean() {
            State::Clean
        } else if sb.flags & FLAG_NEEDS_CHECK != 0 && !sb.is_left_in_order() && !is_in_log(sb) {
            State::Errors
        } else {
            State::Dirty
        },
        record: sb.record.map(|record| LastMount {
            mechanism: record.mechanism,
            mounted_seconds: record.mount_time_seconds.max(0) as u64,
            atomic_unit_bytes: record.atomic_unit_bytes,
        }),
        features: mkfs::feature_names(sb),
        unreadable_features: sb.read_support(),
        unwritable_features: unwritable,
        journal_inode: None,
        block_bytes: sb.fragment_bytes,
        whole_block_bytes: Some(sb.block_bytes),
        blocks: sb.fragments,
        free_blocks: blocks
            .saturating_mul(sb.fragments_per_block.into())
            .saturating_add(fragments),
        reserved_blocks: positive(data) / 100 * positive(raw.fs_minfree.into()),
        inode_bytes: sb.version.inode_bytes() as u32,
        inodes: sb.inodes(),
        free_inodes: u32::try_from(inodes).unwrap_or(u32::MAX),
        groups: sb.groups,
        blocks_per_group: sb.fragments_per_group,
        inodes_per_group: sb.inodes_per_group,
        max_file_bytes: sb.file_bytes_max,
        made_seconds: 0,
        mounted_seconds: positive(raw.fs_mtime),
        written_seconds: match sb.version {
            Version::Ufs1 => positive(raw.fs_old_time.into()),
            Version::Ufs2 => positive(raw.fs_time),
        },
        checked_seconds: 0,
        mounts: 0,
        max_mounts: None,
        last_mounted_at: until_zero(&raw.fs_fsmnt),
    }
}
