//! A device that takes a fixed time for each flush, for measurements that then do not depend on
//! this host's disk.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::{BlockDevice, Result, WriteRequest};

/// Stands in front of another device and makes each flush take longer.
pub struct SlowFlushDevice {
    below: Arc<dyn BlockDevice>,
    flush: Duration,
}

impl SlowFlushDevice {
    /// Each flush of `below` takes `flush` longer.
    pub fn new(below: Arc<dyn BlockDevice>, flush: Duration) -> SlowFlushDevice {
        SlowFlushDevice { below, flush }
    }
}

impl BlockDevice for SlowFlushDevice {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.below.atomic_unit_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.below.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        self.below.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        std::thread::sleep(self.flush);
        self.below.flush()
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        self.below.discard(offset_bytes, len_bytes)
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        self.below.next_data(offset_bytes)
    }

    fn reset_after_failure(&self) {
        self.below.reset_after_failure();
    }
}
