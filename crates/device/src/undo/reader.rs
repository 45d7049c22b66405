//! Reading an undo file, and putting back what it holds.

use super::raw::{
    COMPAT_FS_OFFSET, KEYS_MAGIC, MAGIC, OURS, RawHeader, RawKey, RawKeys, STATE_FINISHED, crc,
};
use super::{MOST_STRETCH_BLOCKS, SECTOR_BYTES, SUPERBLOCK, disguised};
use crate::host::reason_of;
use crate::{BlockDevice, DeviceError};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use zerocopy::{FromBytes, IntoBytes};

/// Block sizes that e2fsprogs accepts.
const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 1024..=1 << 20;
/// The most keys that are read: more would take too much memory.
const MOST_KEYS: u64 = 1 << 24;

/// Why an undo file cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum UndoError {
    /// It cannot be read.
    #[error("{0}")]
    Io(String),
    /// It is something else.
    #[error("not an undo file: {0}")]
    NotOne(String),
    /// It is damaged.
    #[error("the undo file is damaged: {0}")]
    Corrupt(String),
    /// It was not written to its end.
    #[error("the undo file is not finished: what wrote it was cut off")]
    Unfinished,
    /// It does not belong to the device's present contents.
    #[error("the undo file is not for this file system as it is now: {0}")]
    OtherState(String),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A stretch of old contents.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Where it lay on the device.
    offset_bytes: u64,
    /// Where it is in the file.
    at: u64,
    len_bytes: usize,
    crc: u32,
}

/// An undo file, whose header and keys are sound.
#[derive(Debug)]
pub struct UndoFile {
    file: File,
    header: RawHeader,
    stretches: Vec<Stretch>,
}

impl UndoFile {
    /// Reads header and keys.
    ///
    /// # Errors
    /// [`UndoError::NotOne`], [`UndoError::Corrupt`], [`UndoError::Io`].
    pub fn open(path: &Path) -> Result<UndoFile, UndoError> {
        let io = |error: std::io::Error| UndoError::Io(reason_of(&error));
        let file = File::open(path).map_err(io)?;
        let mut bytes = [0; size_of::<RawHeader>()];
        if file.read_exact_at(&mut bytes, 0).is_err() {
            return Err(UndoError::NotOne("it is shorter than a header".to_owned()));
        }
        let header: RawHeader = zerocopy::transmute!(bytes);
        if header.magic != MAGIC {
            return Err(UndoError::NotOne("its magic is missing".to_owned()));
        }
        if header.header_crc.get() != crc(&bytes[..bytes.len() - 4]) {
            return Err(UndoError::Corrupt("the header's checksum".to_owned()));
        }
        let unknown = header.f_incompat.get() | header.f_rocompat.get();
        if unknown != 0 {
            return Err(UndoError::NotOne(format!(
                "it has features that are not known ({unknown:#x})"
            )));
        }
        let (block, unit) = (header.block_size.get(), header.fs_block_size.get());
        let is_size = |size: u32| BLOCK_SIZES.contains(&size) && size.is_power_of_two();
        if !is_size(block) || !is_size(unit) || header.num_keys.get() > MOST_KEYS {
            return Err(UndoError::Corrupt("sizes that cannot be".to_owned()));
        }
        let mut undo = UndoFile {
            file,
            header,
            stretches: Vec::new(),
        };
        undo.read_keys()?;
        Ok(undo)
    }

    fn bytes(&self, at: u64, length: usize) -> Result<Vec<u8>, UndoError> {
        // Checked before memory is allocated: a damaged file may claim half a gigabyte.
        let end = at.checked_add(length as u64);
        let has = self.file.metadata().map(|metadata| metadata.len());
        let has = has.map_err(|error| UndoError::Io(reason_of(&error)))?;
        if end.is_none_or(|end| end > has) {
            return Err(UndoError::Corrupt("it ends too early".to_owned()));
        }
        let mut bytes = vec![0; length];
        match self.file.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(UndoError::Corrupt("it ends too early".to_owned()))
            }
            Err(error) => Err(UndoError::Io(reason_of(&error))),
        }
    }

    fn read_keys(&mut self) -> Result<(), UndoError> {
        let corrupt = |what: String| UndoError::Corrupt(what);
        let block = u64::from(self.header.block_size.get());
        let unit = u64::from(self.header.fs_block_size.get());
        let per_block = block as usize / size_of::<RawKey>() - 1;
        let far = || corrupt("keys that lie too far away".to_owned());
        let mut at = self
            .header
            .key_offset
            .get()
            .checked_mul(block)
            .ok_or_else(far)?;
        let mut left = self.header.num_keys.get() as usize;
        while left > 0 {
            let mut keys = self.bytes(at, block as usize)?;
            let (mut head, _) = RawKeys::read_from_prefix(&keys).map_err(|_| far())?;
            let expected = head.crc.get();
            head.crc = 0.into();
            keys[..size_of::<RawKeys>()].copy_from_slice(head.as_bytes());
            if head.magic.get() != KEYS_MAGIC || crc(&keys) != expected {
                return Err(corrupt(format!("the keys at byte {at}")));
            }
            at += block;
            let raw = keys[size_of::<RawKeys>()..].chunks_exact(size_of::<RawKey>());
            for key in raw.take(left.min(per_block)) {
                let key = RawKey::read_from_bytes(key).map_err(|_| far())?;
                let size = u64::from(key.size.get());
                if size == 0 || size > MOST_STRETCH_BLOCKS * block {
                    return Err(corrupt(format!("a stretch of {size} bytes")));
                }
                self.stretches.push(Stretch {
                    offset_bytes: key.fsblk.get().checked_mul(unit).ok_or_else(far)?,
                    at,
                    len_bytes: size as usize,
                    crc: key.blk_crc.get(),
                });
                at += size.next_multiple_of(block);
            }
            left = left.saturating_sub(per_block);
        }
        Ok(())
    }

    /// How many stretches it holds.
    pub fn stretches(&self) -> usize {
        self.stretches.len()
    }

    /// The bytes of all stretches.
    pub fn total_bytes(&self) -> u64 {
        let lengths = self
            .stretches
            .iter()
            .map(|stretch| stretch.len_bytes as u64);
        lengths.sum()
    }

    /// Where the file system began in the image.
    pub fn offset_bytes(&self) -> u64 {
        match self.header.f_compat.get() & COMPAT_FS_OFFSET {
            0 => 0,
            _ => self.header.fs_offset.get(),
        }
    }

    /// The size of the device then, if the file has it: ours do.
    pub fn device_bytes(&self) -> Option<u64> {
        (self.header.x_magic == OURS).then(|| self.header.x_device_bytes.get())
    }

    fn contents(&self, stretch: &Stretch) -> Result<Vec<u8>, UndoError> {
        let bytes = self.bytes(stretch.at, stretch.len_bytes)?;
        match crc(&bytes) == stretch.crc {
            true => Ok(bytes),
            false => Err(UndoError::Corrupt(format!(
                "the contents for byte {}",
                stretch.offset_bytes
            ))),
        }
    }

    /// Reads everything and checks it; changes nothing.
    ///
    /// # Errors
    /// [`UndoError::Corrupt`], [`UndoError::Io`].
    pub fn verify(&self) -> Result<(), UndoError> {
        let mut stretches = self.stretches.iter();
        stretches.try_for_each(|stretch| self.contents(stretch).map(drop))
    }

    /// Whether this file undoes the device's present state: the superblock is as the changes left
    /// it, or as it was at some point of them.
    ///
    /// # Errors
    /// [`UndoError::Unfinished`], [`UndoError::OtherState`], [`UndoError::Corrupt`] where its copy
    /// of the superblock is.
    pub fn fits(&self, device: &dyn BlockDevice) -> Result<(), UndoError> {
        if self.header.state.get() & STATE_FINISHED == 0 {
            return Err(UndoError::Unfinished);
        }
        let size = device.size_bytes();
        if let Some(was) = self.device_bytes().filter(|was| *was != size) {
            return Err(UndoError::OtherState(format!(
                "it has {size} bytes, and had {was}"
            )));
        }
        if size < SUPERBLOCK.end {
            return Ok(());
        }
        let mut now = [0; 1024];
        device.read(SUPERBLOCK.start, &mut now)?;
        let block = u64::from(self.header.block_size.get());
        let at = self.header.super_offset.get().saturating_mul(block);
        let mut copy = [0; 1024];
        copy.copy_from_slice(&self.bytes(at, now.len())?);
        let copy = disguised(copy);
        if crc(&copy) != self.header.sb_crc.get() {
            return Err(UndoError::Corrupt("the copy of the superblock".to_owned()));
        }
        let known = self.header.x_sectors.map(|sector| sector.get());
        let mut sectors = now.chunks(SECTOR_BYTES).map(crc);
        let is_between = self.header.x_magic == OURS && sectors.all(|crc| known.contains(&crc));
        match copy == now || is_between {
            true => Ok(()),
            false => Err(UndoError::OtherState(
                "its superblock was changed since, or is another one's".to_owned(),
            )),
        }
    }

    /// Puts the old contents back, and flushes. After a power cut in between it can be called
    /// again.
    ///
    /// # Errors
    /// As [`verify`](Self::verify), and [`UndoError::OtherState`] where old contents lie behind the
    /// device's end, before anything is written; the device's.
    pub fn apply(&self, device: &dyn BlockDevice) -> Result<(), UndoError> {
        self.verify()?;
        let size = device.size_bytes();
        for stretch in &self.stretches {
            let end = stretch.offset_bytes.checked_add(stretch.len_bytes as u64);
            if end.is_none_or(|end| end > size) {
                let at = stretch.offset_bytes;
                return Err(UndoError::OtherState(format!(
                    "it has {size} bytes, and had contents at byte {at}"
                )));
            }
        }
        for stretch in &self.stretches {
            let contents = self.contents(stretch)?;
            device.write(stretch.offset_bytes, &contents)?;
        }
        Ok(device.flush()?)
    }
}
