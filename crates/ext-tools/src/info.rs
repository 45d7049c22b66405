//! What a superblock says, for people.

use backstitch_device::BlockDevice;
use backstitch_ext::format::not_ext2;
use backstitch_ext::format::superblock::{
    STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use backstitch_layout::tools::{CheckError, Info, LastMount, State};

/// Reads what a device holds. Features that we can neither read nor write are named, not refused.
///
/// # Errors
/// [`CheckError::Format`] where it is none or cannot be believed, [`CheckError::Device`] where
/// reading fails.
pub fn read(device: &dyn BlockDevice) -> Result<Info, CheckError> {
    if device.size_bytes() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Err(not_ext2(format!(
            "{} bytes are too short for a superblock",
            device.size_bytes()
        ))
        .into());
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(of(&Superblock::parse(&bytes, device.size_bytes())?))
}

/// What a superblock says.
pub fn of(sb: &Superblock) -> Info {
    Info {
        type_name: sb.type_name(),
        revision: sb.revision,
        label: sb.label.clone(),
        uuid: sb.uuid,
        state: match (sb.state & STATE_VALID != 0, sb.state & STATE_ERROR != 0) {
            (_, true) => State::Errors,
            (true, false) => State::Clean,
            (false, false) => State::Dirty,
        },
        record: sb.record.map(|record| LastMount {
            mechanism: record.mechanism,
            mounted_seconds: record.mount_time_seconds,
            atomic_unit_bytes: record.atomic_unit_bytes,
        }),
        features: sb.features.names(),
        unreadable_features: sb.read_support(),
        unwritable_features: sb.write_support(),
        journal_inode: Some(sb.journal_inode.0).filter(|inode| *inode != 0),
        block_bytes: sb.block_size,
        whole_block_bytes: None,
        blocks: sb.blocks_count,
        free_blocks: sb.free_blocks_count,
        reserved_blocks: sb.r_blocks_count,
        inode_bytes: sb.inode_size,
        inodes: sb.inodes_count,
        free_inodes: sb.free_inodes_count,
        groups: sb.groups,
        blocks_per_group: sb.blocks_per_group,
        inodes_per_group: sb.inodes_per_group,
        max_file_bytes: sb.max_file_size(),
        made_seconds: sb.mkfs_time.into(),
        mounted_seconds: sb.mtime.into(),
        written_seconds: sb.wtime.into(),
        checked_seconds: sb.lastcheck.into(),
        mounts: sb.mount_count,
        max_mounts: (u16::try_from(sb.max_mount_count).ok()).filter(|mounts| *mounts > 0),
        last_mounted_at: sb.last_mounted.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::{Mkfs, write};
    use backstitch_device::MemoryDevice;
    use backstitch_layout::FormatError;
    use backstitch_layout::tools::uuid_text;

    #[test]
    fn a_new_image_is_described() {
        let device = MemoryDevice::new(8 << 20);
        let mut options = Mkfs::new([0xab; 16], [2; 16], 1_700_000_000);
        options.label = b"backup".to_vec();
        write(&options, &device).unwrap();
        let info = read(&device).unwrap();
        assert_eq!((info.type_name, &*info.label), ("ext2", &b"backup"[..]));
        assert_eq!(
            uuid_text(&info.uuid),
            "abababab-abab-abab-abab-abababababab"
        );
        assert_eq!((info.state, info.groups), (State::Clean, 1));
        assert_eq!((info.max_mounts, info.record), (None, None));
        assert_eq!((info.block_bytes, info.size_bytes()), (1024, 8 << 20));
    }

    #[test]
    fn nothing_is_not_described() {
        let error = read(&MemoryDevice::new(1 << 20)).unwrap_err();
        assert!(matches!(
            error,
            CheckError::Format(FormatError::NotAFileSystem { .. })
        ));
        assert!(read(&MemoryDevice::new(100)).is_err());
    }
}
