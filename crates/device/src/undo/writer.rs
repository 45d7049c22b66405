//! Writing an undo file.

use super::raw::{
    COMPAT_FS_OFFSET, KEYS_MAGIC, MAGIC, OURS, RawHeader, RawKey, RawKeys, SECTORS, STATE_FINISHED,
    crc,
};
use super::{BLOCK_BYTES, KEY_UNIT_BYTES, MOST_STRETCH_BYTES, SECTOR_BYTES, SUPERBLOCK, disguised};
use crate::host::reason_of;
use crate::{BlockDevice, DeviceError, Result, StagedDevice};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use zerocopy::{FromZeros, IntoBytes};

/// Keys that a block has room for, beside its own fields.
const KEYS: usize = BLOCK_BYTES as usize / size_of::<RawKey>() - 1;

/// What was written into an undo file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The stretches of old contents.
    pub stretches: usize,
    /// Their bytes.
    pub bytes: u64,
}

fn stretches(device: &StagedDevice) -> Vec<Range<u64>> {
    device.changed(BLOCK_BYTES, MOST_STRETCH_BYTES)
}

fn file_bytes(stretches: &[Range<u64>]) -> u64 {
    let blocks = |range: &Range<u64>| (range.end - range.start).div_ceil(BLOCK_BYTES);
    let data: u64 = stretches.iter().map(blocks).sum();
    (2 + stretches.len().div_ceil(KEYS) as u64 + data) * BLOCK_BYTES
}

/// The size that the undo file of these changes will have.
pub fn needed_bytes(device: &StagedDevice) -> u64 {
    file_bytes(&stretches(device))
}

/// Writes the old contents of everything that changes on `device`, which begins at `offset_bytes`
/// of the image, to the new file at `path`. Returns when all of it is on stable storage.
///
/// # Errors
/// Where the file cannot be made, or there is no room for all of it; a file that is not whole is
/// removed. Where `below`, the device as it is, cannot be read.
pub fn write(
    path: &Path,
    device: &StagedDevice,
    below: &dyn BlockDevice,
    offset_bytes: u64,
) -> Result<Written> {
    use std::os::unix::fs::OpenOptionsExt;
    let failed = |error: std::io::Error| DeviceError::Open {
        device: path.display().to_string(),
        reason: reason_of(&error),
    };
    let mut how = std::fs::OpenOptions::new();
    let file = how.write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(failed)?;
    let mut writer = Writer {
        file,
        path,
        at: 2 * BLOCK_BYTES,
    };
    let written = writer
        .contents(&stretches(device), below)
        .and_then(|written| {
            writer.header(device, below, offset_bytes, written)?;
            Ok(written)
        });
    if written.is_err() {
        // The first error is reported, not that of the removal.
        let _ = std::fs::remove_file(path);
    }
    written
}

struct Writer<'a> {
    file: File,
    path: &'a Path,
    /// Where the next block goes.
    at: u64,
}

impl Writer<'_> {
    fn failed(&self, error: std::io::Error) -> DeviceError {
        DeviceError::Write {
            device: self.path.display().to_string(),
            offset_bytes: self.at,
            len_bytes: BLOCK_BYTES,
            reason: reason_of(&error),
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, at)
            .map_err(|error| self.failed(error))
    }

    /// Writes keys and old contents; they are on stable storage when this returns.
    fn contents(&mut self, stretches: &[Range<u64>], below: &dyn BlockDevice) -> Result<Written> {
        let length = file_bytes(stretches);
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, length) {
            Ok(()) => {}
            // A lack of space then shows during the writes, which is early enough.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(self.failed(error.into())),
        }
        for part in stretches.chunks(KEYS) {
            let keys_at = self.at;
            self.at += BLOCK_BYTES;
            let mut keys = vec![0; size_of::<RawKeys>()];
            for range in part {
                let mut old = vec![0; (range.end - range.start) as usize];
                below.read(range.start, &mut old)?;
                self.put(self.at, &old)?;
                self.at += (old.len() as u64).next_multiple_of(BLOCK_BYTES);
                let key = RawKey {
                    fsblk: (range.start / KEY_UNIT_BYTES).into(),
                    blk_crc: crc(&old).into(),
                    size: (old.len() as u32).into(),
                };
                keys.extend_from_slice(key.as_bytes());
            }
            keys.resize(BLOCK_BYTES as usize, 0);
            let mut head = RawKeys {
                magic: KEYS_MAGIC.into(),
                crc: 0.into(),
                reserved: 0.into(),
            };
            keys[..size_of::<RawKeys>()].copy_from_slice(head.as_bytes());
            head.crc = crc(&keys).into();
            keys[..size_of::<RawKeys>()].copy_from_slice(head.as_bytes());
            self.put(keys_at, &keys)?;
        }
        let synced = self
            .file
            .set_len(length)
            .and_then(|()| self.file.sync_all());
        synced.map_err(|error| self.failed(error))?;
        Ok(Written {
            stretches: stretches.len(),
            bytes: stretches.iter().map(|range| range.end - range.start).sum(),
        })
    }

    /// Writes the superblock and the header, which makes the file valid; then flushes the name.
    ///
    /// The header is the commit point of the file.
    fn header(
        &self,
        device: &StagedDevice,
        below: &dyn BlockDevice,
        offset_bytes: u64,
        written: Written,
    ) -> Result<()> {
        let mut header = RawHeader::new_zeroed();
        header.magic = MAGIC;
        header.num_keys = (written.stretches as u64).into();
        header.super_offset = 1.into();
        header.key_offset = 2.into();
        header.block_size = (BLOCK_BYTES as u32).into();
        header.fs_block_size = (KEY_UNIT_BYTES as u32).into();
        header.state = STATE_FINISHED.into();
        if offset_bytes > 0 {
            header.f_compat = COMPAT_FS_OFFSET.into();
            header.fs_offset = offset_bytes.into();
        }
        header.x_magic = OURS;
        header.x_device_bytes = device.size_bytes().into();
        if device.size_bytes() >= SUPERBLOCK.end {
            let mut superblock = [0; 1024];
            device.read(SUPERBLOCK.start, &mut superblock)?;
            header.sb_crc = crc(&superblock).into();
            let sectors = superblock_sectors(device, below)?;
            for (known, sector) in header.x_sectors.iter_mut().zip(sectors) {
                *known = sector.into();
            }
            self.put(BLOCK_BYTES, &disguised(superblock))?;
        }
        let bytes = header.as_bytes();
        header.header_crc = crc(&bytes[..bytes.len() - 4]).into();
        let synced = |error| self.failed(error);
        self.file.sync_all().map_err(synced)?;
        self.put(0, header.as_bytes())?;
        self.file.sync_all().map_err(synced)?;
        let parent = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let parent = File::open(parent.unwrap_or(Path::new(".")));
        parent.and_then(|dir| dir.sync_all()).map_err(synced)
    }
}

/// Checksums of every sector of the superblock, as it is now and at each point of the changes.
fn superblock_sectors(device: &StagedDevice, below: &dyn BlockDevice) -> Result<Vec<u32>> {
    let mut superblock = [0; (SUPERBLOCK.end - SUPERBLOCK.start) as usize];
    below.read(SUPERBLOCK.start, &mut superblock)?;
    let mut known = Vec::new();
    let mut note = |superblock: &[u8]| {
        for sector in superblock.chunks(SECTOR_BYTES).map(crc) {
            if !known.contains(&sector) && known.len() < SECTORS {
                known.push(sector);
            }
        }
    };
    note(&superblock);
    device.each_write(|offset, bytes| {
        let end = offset + bytes.len() as u64;
        let (from, to) = (offset.max(SUPERBLOCK.start), end.min(SUPERBLOCK.end));
        if from < to {
            let target = (from - SUPERBLOCK.start) as usize..(to - SUPERBLOCK.start) as usize;
            let source = (from - offset) as usize..(to - offset) as usize;
            superblock[target].copy_from_slice(&bytes[source]);
            note(&superblock);
        }
    });
    Ok(known)
}
