//! What an image is: the summary that `backstitch info` shows.

use backstitch_device::{BlockDevice, DeviceError};
use backstitch_ext::format::FormatError;
use backstitch_ext::format::superblock::{
    STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use serde::Serialize;
use thiserror::Error;

/// Everything worth knowing about an image. Sizes are in bytes, times in seconds since 1970.
#[derive(Clone, Debug, Serialize)]
pub struct ImageInfo {
    /// `ext2`, `ext3` or `ext4`, by its features.
    #[serde(rename = "type")]
    pub type_name: &'static str,
    /// 0 or 1.
    pub revision: u32,
    /// The label; bytes that are no UTF-8 are replaced.
    pub label: String,
    /// The UUID, as it is usually written.
    pub uuid: String,
    /// Where it was mounted last, as far as it is known.
    pub last_mounted: String,
    /// The features by their mke2fs names.
    pub features: Vec<String>,
    /// Those that keep us from reading it.
    pub unreadable_features: Vec<String>,
    /// Those that keep us from writing it.
    pub unwritable_features: Vec<String>,
    /// `clean`, `not clean`, either `with errors`.
    pub state: String,
    /// How it is laid out.
    pub geometry: Geometry,
    /// What is free, as the superblock has it.
    pub free: Free,
    /// Times and mounts.
    pub history: History,
    /// The journal's inode; `None` where there is none.
    pub journal_inode: Option<u32>,
    /// What our last mount left in the superblock; `None` where there was none.
    pub record: Option<RecordInfo>,
    /// What the device promises to write wholly or not at all.
    pub atomic_unit_bytes: u32,
}

/// How an image is laid out.
#[derive(Clone, Debug, Serialize)]
pub struct Geometry {
    /// The size of the file system.
    pub size_bytes: u64,
    /// The size of the device.
    pub device_bytes: u64,
    /// The size of a block.
    pub block_bytes: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks kept for root.
    pub reserved_blocks: u64,
    /// Inodes in all.
    pub inodes: u32,
    /// The size of an inode.
    pub inode_bytes: u32,
    /// The number of groups.
    pub groups: u32,
    /// Blocks per group.
    pub blocks_per_group: u32,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// Descriptor blocks kept for growing.
    pub reserved_descriptor_blocks: u32,
    /// The largest file.
    pub max_file_bytes: u64,
}

/// What is free.
#[derive(Clone, Debug, Serialize)]
pub struct Free {
    /// Free bytes, the ones kept for root included.
    pub bytes: u64,
    /// Free blocks.
    pub blocks: u64,
    /// Free inodes.
    pub inodes: u32,
}

/// Times and mounts.
#[derive(Clone, Debug, Serialize)]
pub struct History {
    /// When it was made.
    pub created_seconds: u32,
    /// When it was mounted last; 0 for never.
    pub mounted_seconds: u32,
    /// When it was written last.
    pub written_seconds: u32,
    /// When it was checked last.
    pub checked_seconds: u32,
    /// Mounts since the last check.
    pub mounts: u16,
    /// Mounts after which it wants to be checked; `None` for never.
    pub max_mounts: Option<u16>,
}

/// Our record in the superblock.
#[derive(Clone, Debug, Serialize)]
pub struct RecordInfo {
    /// The mechanism, as `--ordering` takes it.
    pub mechanism: &'static str,
    /// When it was mounted.
    pub mounted_seconds: u64,
    /// Whether that was the last mount of all: only then does the record say what a crash may have left.
    pub is_current: bool,
    /// The unit that the mechanism took for atomic.
    pub atomic_unit_bytes: u32,
}

/// Why there is nothing to show.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InfoError {
    /// Not a file system, or a superblock that cannot be believed.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Reads a device's superblock.
///
/// # Errors
///
/// [`InfoError::Format`] where it is none or cannot be believed, [`InfoError::Device`] where reading fails.
pub fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock, InfoError> {
    if device.size_bytes() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        let what = format!("only {} bytes", device.size_bytes());
        return Err(FormatError::NotAFileSystem { what }.into());
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(Superblock::parse(&bytes, device.size_bytes())?)
}

impl ImageInfo {
    /// Reads what a device holds. Features that we can neither read nor write are named, not refused.
    ///
    /// # Errors
    ///
    /// As [`read_superblock`].
    pub fn read(device: &dyn BlockDevice) -> Result<ImageInfo, InfoError> {
        let sb = read_superblock(device)?;
        Ok(ImageInfo::of(
            &sb,
            device.size_bytes(),
            device.atomic_unit_bytes(),
        ))
    }

    /// What a superblock says.
    pub fn of(sb: &Superblock, device_bytes: u64, atomic_unit_bytes: u32) -> ImageInfo {
        ImageInfo {
            type_name: sb.type_name(),
            revision: sb.revision,
            label: String::from_utf8_lossy(&sb.label).into_owned(),
            uuid: format_uuid(&sb.uuid),
            last_mounted: String::from_utf8_lossy(&sb.last_mounted).into_owned(),
            features: sb.features.names(),
            unreadable_features: sb.read_support(),
            unwritable_features: sb.write_support(),
            state: state(sb),
            geometry: Geometry::of(sb, device_bytes),
            free: Free {
                bytes: sb.free_blocks_count.saturating_mul(sb.block_size.into()),
                blocks: sb.free_blocks_count,
                inodes: sb.free_inodes_count,
            },
            history: History {
                created_seconds: sb.mkfs_time,
                mounted_seconds: sb.mtime,
                written_seconds: sb.wtime,
                checked_seconds: sb.lastcheck,
                mounts: sb.mount_count,
                max_mounts: u16::try_from(sb.max_mount_count)
                    .ok()
                    .filter(|mounts| *mounts > 0),
            },
            journal_inode: Some(sb.journal_inode).filter(|inode| *inode != 0),
            record: sb.record.map(|record| RecordInfo {
                mechanism: record.mechanism.name(),
                mounted_seconds: record.mount_time_seconds,
                is_current: record.matches(sb.mtime, sb.mount_count),
                atomic_unit_bytes: record.atomic_unit_bytes,
            }),
            atomic_unit_bytes,
        }
    }
}

impl Geometry {
    fn of(sb: &Superblock, device_bytes: u64) -> Geometry {
        Geometry {
            size_bytes: sb.blocks_count << sb.block_size_bits,
            device_bytes,
            block_bytes: sb.block_size,
            blocks: sb.blocks_count,
            reserved_blocks: sb.r_blocks_count,
            inodes: sb.inodes_count,
            inode_bytes: sb.inode_size,
            groups: sb.groups,
            blocks_per_group: sb.blocks_per_group,
            inodes_per_group: sb.inodes_per_group,
            reserved_descriptor_blocks: sb.reserved_gdt_blocks,
            max_file_bytes: sb.max_file_size(),
        }
    }
}

fn state(sb: &Superblock) -> String {
    let clean = if sb.state & STATE_VALID != 0 {
        "clean"
    } else {
        "not clean"
    };
    let errors = if sb.state & STATE_ERROR != 0 {
        " with errors"
    } else {
        ""
    };
    format!("{clean}{errors}")
}

/// A UUID in groups of 8, 4, 4, 4 and 12 digits.
pub fn format_uuid(uuid: &[u8; 16]) -> String {
    let digits: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [
        &digits[0..4],
        &digits[4..6],
        &digits[6..8],
        &digits[8..10],
        &digits[10..],
    ]
    .map(|group| group.concat())
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::Mkfs;
    use backstitch_device::MemoryDevice;

    #[test]
    fn a_new_image_is_described() {
        let device = MemoryDevice::new(8 << 20);
        let mut options = Mkfs::new([0xab; 16], [2; 16], 1_700_000_000);
        options.label = b"backup".to_vec();
        options.write(&device).unwrap();
        let info = ImageInfo::read(&device).unwrap();
        assert_eq!((info.type_name, info.label.as_str()), ("ext2", "backup"));
        assert_eq!(info.uuid, "abababab-abab-abab-abab-abababababab");
        assert_eq!((info.state.as_str(), info.geometry.groups), ("clean", 1));
        assert_eq!(info.history.max_mounts, None);
        let json = serde_json::to_value(&info).unwrap();
        assert_eq!(json["type"], "ext2");
        assert_eq!(json["geometry"]["block_bytes"], 1024);
        assert_eq!(json["record"], serde_json::Value::Null);
    }

    #[test]
    fn nothing_is_not_described() {
        let error = ImageInfo::read(&MemoryDevice::new(1 << 20)).unwrap_err();
        assert!(matches!(
            error,
            InfoError::Format(FormatError::NotAFileSystem { .. })
        ));
        assert!(ImageInfo::read(&MemoryDevice::new(100)).is_err());
    }
}
