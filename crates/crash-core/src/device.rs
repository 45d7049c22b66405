//! Forks as block devices: one device, or two with the journal's. They can note what is read.

use std::ops::Range;

use backstitch_device::{BlockDevice, DeviceError, WriteRequest, check_range};
use backstitch_layout::tools::Source;
use parking_lot::Mutex;

use crate::image::Fork;
use crate::reads::Reads;

/// A fork as a device. What is submitted is stable at once: a flush does nothing.
#[derive(Debug)]
pub struct ForkDevice(Mutex<Shown>);

#[derive(Debug)]
struct Shown {
    fork: Fork,
    /// What was read; `None` where that is not noted.
    reads: Option<Reads>,
}

impl Shown {
    /// Notes the blocks of a range, whose bytes are read or partly kept.
    fn note(&mut self, offset_bytes: u64, len_bytes: u64) {
        if let Some(reads) = &mut self.reads {
            let size = self.fork.base.block_bytes as u64;
            for block in offset_bytes / size..(offset_bytes + len_bytes).div_ceil(size) {
                reads.note(&self.fork, block);
            }
        }
    }
}

impl ForkDevice {
    /// A device that holds the image.
    pub fn new(fork: Fork) -> ForkDevice {
        ForkDevice(Mutex::new(Shown { fork, reads: None }))
    }

    /// The same, that notes what is read.
    pub(crate) fn noting(fork: Fork) -> ForkDevice {
        let reads = Some(Reads::default());
        ForkDevice(Mutex::new(Shown { fork, reads }))
    }

    /// What was read, and the image as it is now. Nothing is noted any more.
    pub(crate) fn take_reads(&self) -> (Reads, Fork) {
        let mut shown = self.0.lock();
        let reads = shown.reads.take().unwrap_or_default();
        (reads, shown.fork.clone())
    }

    /// What the device holds now.
    pub fn fork(&self) -> Fork {
        self.0.lock().fork.clone()
    }

    /// The fingerprint of the image as it is now.
    pub(crate) fn fingerprint(&self) -> u128 {
        self.0.lock().fork.fingerprint()
    }

    /// The file system's device, and its journal's where that has one of its own.
    pub fn parts(&self) -> (Part<'_>, Option<Part<'_>>) {
        let (home, all) = {
            let fork = &self.0.lock().fork;
            (fork.home_bytes(), fork.all_bytes())
        };
        parts_of(self, home, all)
    }
}

/// A file system's device and its journal's, if it has one of its own, as one device: the journal's
/// comes second.
pub(crate) trait Joint: BlockDevice {
    /// Makes stable what was written between these offsets.
    fn flush_part(&self, bytes: Range<u64>) -> Result<(), DeviceError>;
}

impl Joint for ForkDevice {
    fn flush_part(&self, _bytes: Range<u64>) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The file system's device, and its journal's where that has one of its own, as two devices that
/// know nothing of each other.
pub(crate) fn parts_of(
    device: &dyn Joint,
    home_bytes: u64,
    all_bytes: u64,
) -> (Part<'_>, Option<Part<'_>>) {
    let part = |start_bytes: u64, end_bytes: u64| Part {
        device,
        start_bytes,
        len_bytes: end_bytes - start_bytes,
    };
    let other = (home_bytes < all_bytes).then(|| part(home_bytes, all_bytes));
    (part(0, home_bytes), other)
}

/// A part of a fork as a device.
pub struct Part<'d> {
    device: &'d dyn Joint,
    start_bytes: u64,
    len_bytes: u64,
}

impl BlockDevice for Part<'_> {
    fn size_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.device.atomic_unit_bytes()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn notes_reads(&self) -> bool {
        self.device.notes_reads()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let len_bytes = buffer.len() as u64;
        check_range("part of a fork", self.len_bytes, offset_bytes, len_bytes)?;
        self.device.read(self.start_bytes + offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<(), DeviceError> {
        for request in batch {
            let (offset_bytes, len_bytes) = (request.offset_bytes, request.len_bytes());
            check_range("part of a fork", self.len_bytes, offset_bytes, len_bytes)?;
            self.device.submit(&[WriteRequest {
                offset_bytes: self.start_bytes + offset_bytes,
                buffers: request.buffers.clone(),
            }])?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let end_bytes = self.start_bytes + self.len_bytes;
        self.device.flush_part(self.start_bytes..end_bytes)
    }
}

impl BlockDevice for ForkDevice {
    fn size_bytes(&self) -> u64 {
        self.0.lock().fork.size_bytes()
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.0.lock().fork.block_bytes()
    }

    fn name(&self) -> String {
        "fork".to_owned()
    }

    fn notes_reads(&self) -> bool {
        self.0.lock().reads.is_some()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let mut shown = self.0.lock();
        shown.fork.check(offset_bytes, buffer.len() as u64)?;
        shown.note(offset_bytes, buffer.len() as u64);
        shown.fork.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<(), DeviceError> {
        let mut shown = self.0.lock();
        for request in batch {
            let mut at = request.offset_bytes;
            for buffer in &request.buffers {
                let len = buffer.len() as u64;
                shown.fork.check(at, len)?;
                if buffer.len() == shown.fork.base.block_bytes && at.is_multiple_of(len) {
                    if let Some(reads) = &mut shown.reads {
                        reads.overwrite(at / len);
                    }
                    shown.fork.set_block(at / len, buffer.clone());
                } else {
                    // A block that is written in part keeps the rest of its bytes.
                    shown.note(at, len);
                    shown.fork.write(at, buffer)?;
                }
                at += len;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
