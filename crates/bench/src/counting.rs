//! A device that counts what is read from the one behind it: the engine counts what it writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backstitch_device::{BlockDevice, Result, WriteRequest};

/// Passes everything on and counts bytes read.
pub(crate) struct CountingDevice {
    inner: Arc<dyn BlockDevice>,
    bytes_read: AtomicU64,
}

impl CountingDevice {
    pub(crate) fn new(inner: Arc<dyn BlockDevice>) -> CountingDevice {
        CountingDevice {
            inner,
            bytes_read: AtomicU64::new(0),
        }
    }

    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}

impl BlockDevice for CountingDevice {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.inner.atomic_unit_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.bytes_read
            .fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.inner.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn reset_after_failure(&self) {
        self.inner.reset_after_failure();
    }
}
