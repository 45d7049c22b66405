//! A device over memory that survives: a file that is mapped.

#![allow(
    unsafe_code,
    reason = "mapping a file is unsafe, for what another process does to it changes the memory; the \
              file is locked against every other opener of ours. In memory a log takes 1.3 to 1.5 \
              times as many synced records a second as through `pwrite` and `fdatasync` (records of \
              100 bytes and 4 KiB on tmpfs, `cargo run --release -p backstitch-wafs --example speed`)"
)]

use crate::{BlockDevice, DeviceError, FileDevice, OpenOptions, Result, WriteRequest, check_range};
use memmap2::{MmapMut, MmapOptions};
use parking_lot::{Mutex, RwLock};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// A file that is mapped into memory. Writes are copies, without a system call. What was written
/// survives the process from then on, and the machine from the next flush on. A flush asks the host
/// to write back (`msync`), which has nothing to do on memory that survives by itself.
///
/// Words of eight bytes are written wholly or not at all, nothing longer.
pub struct MappedDevice {
    /// Keeps the lock on the file.
    file: FileDevice,
    bytes: RwLock<MmapMut>,
    /// The range that was written since the last flush began.
    written: Mutex<Range<usize>>,
    /// Held during a flush. The error of a failed one, after which nothing is written or flushed.
    flushing: Mutex<Option<DeviceError>>,
}

impl MappedDevice {
    /// Maps a file for reading and writing, and locks it as [`FileDevice::open`] does. It must not
    /// be cut while it is mapped.
    ///
    /// # Errors
    /// As [`FileDevice::open`], and where the host cannot map it.
    pub fn open(path: &Path) -> Result<MappedDevice> {
        let file = FileDevice::open(path, OpenOptions::default())?;
        let cannot = |error: std::io::Error| DeviceError::Open {
            device: file.name(),
            reason: error.to_string(),
        };
        let mapped = File::options().read(true).write(true).open(path);
        let mapped = mapped.map_err(cannot)?;
        // SAFETY: the lock keeps off all other programs of ours. That others must leave the file
        // alone is said above, as for any image in use.
        let bytes = unsafe { MmapOptions::new().populate().map_mut(&mapped) }.map_err(cannot)?;
        Ok(MappedDevice {
            file,
            bytes: RwLock::new(bytes),
            written: Mutex::new(0..0),
            flushing: Mutex::new(None),
        })
    }

    fn check(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        check_range(&self.name(), self.size_bytes(), offset_bytes, len_bytes)
    }
}

impl BlockDevice for MappedDevice {
    fn size_bytes(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    fn atomic_unit_bytes(&self) -> u32 {
        8
    }

    fn name(&self) -> String {
        self.file.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(offset_bytes, buffer.len() as u64)?;
        let start = offset_bytes as usize;
        buffer.copy_from_slice(&self.bytes.read()[start..start + buffer.len()]);
        Ok(())
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        for request in batch {
            self.check(request.offset_bytes, request.len_bytes())?;
        }
        if let Some(failure) = self.flushing.try_lock().and_then(|held| held.clone()) {
            return Err(failure);
        }
        let mut bytes = self.bytes.write();
        for request in batch {
            let start = request.offset_bytes as usize;
            let mut at = start;
            for buffer in &request.buffers {
                bytes[at..at + buffer.len()].copy_from_slice(buffer);
                at += buffer.len();
            }
            let mut written = self.written.lock();
            *written = match written.is_empty() {
                true => start..at,
                false => written.start.min(start)..written.end.max(at),
            };
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut failure = self.flushing.lock();
        failure.clone().map_or(Ok(()), Err)?;
        let written = std::mem::replace(&mut *self.written.lock(), 0..0);
        if written.is_empty() {
            return Ok(());
        }
        let flushed = (self.bytes.read()).flush_range(written.start, written.len());
        flushed.map_err(|error| {
            let error = DeviceError::Flush {
                device: self.name(),
                reason: error.to_string(),
            };
            failure.insert(error).clone()
        })
    }

    fn reset_after_failure(&self) {
        *self.flushing.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_in_the_file_and_nobody_else_opens_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nvram");
        std::fs::write(&path, vec![0; 8192]).unwrap();
        let device = MappedDevice::open(&path).unwrap();
        device.write(4090, b"across a page").unwrap();
        device.flush().unwrap();
        let mut found = [0; 13];
        device.read(4090, &mut found).unwrap();
        assert_eq!(&found, b"across a page");
        assert_eq!(&std::fs::read(&path).unwrap()[4090..4103], b"across a page");
        assert!(matches!(
            MappedDevice::open(&path).err(),
            Some(DeviceError::Busy { .. })
        ));
        assert!(device.write(8190, b"past the end").is_err());
        assert!(device.read(8192, &mut found).is_err());
        drop(device);
        let again = MappedDevice::open(&path).unwrap();
        again.read(4090, &mut found).unwrap();
        assert_eq!(&found, b"across a page");
    }

    #[test]
    fn a_file_that_cannot_be_mapped_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let missing = MappedDevice::open(&dir.path().join("missing")).err();
        assert!(matches!(missing, Some(DeviceError::Open { .. })));
    }
}
