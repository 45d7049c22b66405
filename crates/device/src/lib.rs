//! Block devices: the bottom layer.
//!
//! A device stores bytes at offsets. It knows nothing of patches, buffers or file systems; it
//! depends on no other crate of this project.
//!
//! # Contract
//!
//! * [`BlockDevice::submit`] hands a batch of *independent* writes to the device. When it returns,
//!   later reads see them, but they may be lost in a crash, each one separately, wholly or torn at
//!   the device's [`atomic_unit_bytes`](BlockDevice::atomic_unit_bytes).
//! * [`BlockDevice::flush`] returns once everything submitted before it is on stable storage. Only
//!   then may a caller treat those writes as complete: **a completion is a promise**. A batch
//!   together with its flush is called an *epoch*.
//! * A failed flush is final: the host has forgotten what was dirty. The device latches the error
//!   and every later write or flush fails with it, until the caller rewrites what it still holds
//!   through [`BlockDevice::reset_after_failure`]. That holds for every caller: of two flushes at
//!   the same time, either both see the failure, or the one that succeeds covers nothing that was
//!   lost.
//! * Methods take `&self` and may be called from several threads; a device does its own locking.

//!
//! # The devices
//!
//! [`FileDevice`] is the real one: an image file or a raw disk. [`MappedDevice`] is memory that
//! survives. [`MemoryDevice`] never fails and forgets everything. [`RecordingDevice`] and
//! [`VolatileDevice`] stand in front of another device. The first remembers what was written and
//! flushed, so that every state that a power cut could have left can be rebuilt. The second plays a
//! drive whose write cache loses its contents when the process dies. [`OverlayDevice`] keeps what
//! is written in memory and leaves the other device alone. [`StagedDevice`] does so until it is
//! told to write; [`undo`] keeps what that overwrites. [`FaultDevice`] fails when it is told to.
//! [`SlowFlushDevice`] takes time for flushes. [`PartitionDevice`](partition::PartitionDevice) is a
//! part of another device, [`JoinedDevice`] is several devices, one behind the other.
//! [`LoggingDevice`](write_log::LoggingDevice) remembers in a file, in the format that Linux and
//! QEMU write too; see [`write_log`]. [`signature`] says which foreign formats a device holds.

mod ahead;
mod aligned;
mod buffer;
mod direct;
mod error;
mod fault;
mod file;
mod holder;
mod host;
mod joined;
mod lock;
mod mapped;
mod memory;
mod overlay;
pub mod partition;
mod recording;
pub mod signature;
mod slow;
mod staged;
pub mod undo;
mod volatile;
pub mod write_log;

pub use buffer::{Buffer, SECTOR_BYTES, Slab, Slabs};
pub use error::{DeviceError, Result};
pub use fault::{Fault, FaultCounts, FaultDevice, FaultKind, FaultLength, Loss};
pub use file::{FileDevice, OpenOptions};
pub use joined::JoinedDevice;
pub use mapped::MappedDevice;
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use recording::{Record, RecordingDevice, materialise, materialise_torn, unflushed};
pub use slow::SlowFlushDevice;
pub use staged::{StagedDevice, Staging};
pub use volatile::VolatileDevice;

/// One write of a batch: whole buffers, laid out one after the other from `offset_bytes` on.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// Where the first buffer goes, in bytes from the device's start.
    pub offset_bytes: u64,
    /// The buffers of a run of adjacent blocks, written as one request.
    pub buffers: Vec<Buffer>,
}

impl WriteRequest {
    /// The number of bytes that this request writes.
    pub fn len_bytes(&self) -> u64 {
        self.buffers.iter().map(|b| b.len() as u64).sum()
    }
}

/// Refuses a range that does not lie inside a device of `size_bytes`.
///
/// # Errors
/// [`DeviceError::OutOfRange`], with the device's `name`.
pub fn check_range(name: &str, size_bytes: u64, offset_bytes: u64, len_bytes: u64) -> Result<()> {
    match offset_bytes.checked_add(len_bytes) {
        Some(end_bytes) if end_bytes <= size_bytes => Ok(()),
        _ => Err(DeviceError::OutOfRange {
            device: name.to_owned(),
            offset_bytes,
            len_bytes,
            size_bytes,
        }),
    }
}

/// A place that stores bytes; see the crate's documentation for the contract.
pub trait BlockDevice: Send + Sync {
    /// The device's size.
    fn size_bytes(&self) -> u64;

    /// The largest aligned unit that the device promises to write wholly or not at all.
    fn atomic_unit_bytes(&self) -> u32 {
        512
    }

    /// Whether the device refuses writes.
    fn is_read_only(&self) -> bool {
        false
    }

    /// What a person calls this device (a path, for example).
    fn name(&self) -> String;

    /// Fills `buffer` from `offset_bytes` on. A read past the device's end is an error.
    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()>;

    /// As [`read`](Self::read), for contents of files, which a caller often reads from front to
    /// end. A device may read ahead here if it sees a pattern, whatever it was told of [other
    /// reads](Self::reads_are_scattered).
    fn read_contents(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.read(offset_bytes, buffer)
    }

    /// As [`read`](Self::read), if that need not wait for the device. False, with anything in
    /// `buffer`, where it would wait, where it fails, and where that is not known.
    fn read_at_once(&self, offset_bytes: u64, buffer: &mut [u8]) -> bool {
        let _ = (offset_bytes, buffer);
        false
    }

    /// Whether all that is read is noted and counts as needed: callers then read no more than they
    /// need, in however many requests.
    fn notes_reads(&self) -> bool {
        false
    }

    /// Announces that reads from now on are at scattered places: the device need not read ahead,
    /// except where it is [told to](Self::will_read).
    fn reads_are_scattered(&self) {}

    /// Announces that the bytes will probably be read soon. A device that can fetch them in the
    /// background does so; there is no answer.
    fn will_read(&self, offset_bytes: u64, len_bytes: u64) {
        let _ = (offset_bytes, len_bytes);
    }

    /// Hands a batch of independent writes to the device.
    fn submit(&self, batch: &[WriteRequest]) -> Result<()>;

    /// Makes everything submitted before stable.
    fn flush(&self) -> Result<()>;

    /// Announces that the bytes are no longer needed: they read as zeros from then on, or after a
    /// crash as before. Returns whether the device did so; a device that cannot leaves the bytes
    /// alone.
    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        let _ = (offset_bytes, len_bytes);
        Ok(false)
    }

    /// The next range from `offset_bytes` on that is not known to read as zeros; `None` where there
    /// is none.
    fn next_data(&self, offset_bytes: u64) -> Result<Option<std::ops::Range<u64>>> {
        let size_bytes = self.size_bytes();
        Ok((offset_bytes < size_bytes).then_some(offset_bytes..size_bytes))
    }

    /// Forgets a latched failure, after which the caller must rewrite everything that was not
    /// flushed.
    fn reset_after_failure(&self) {}

    /// Writes plain bytes: [`submit`](Self::submit) for code that needs no batches (mkfs, repair). A
    /// device that need not keep them writes them without a copy.
    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        self.submit(&[WriteRequest {
            offset_bytes,
            buffers: vec![Buffer::from(bytes)],
        }])
    }
}
