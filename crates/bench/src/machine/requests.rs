//! Where a batch of the store becomes requests of the drive, and where reads do.
//!
//! The writes of a batch are independent of each other: they go to the drive together, and the
//! batch is done when all of them are, and when the drive's volatile cache, if it has one, was
//! flushed after them. Until then nothing that depends on them is handed out.

use backstitch_device::{DeviceError, WriteRequest};
use backstitch_store::VolumeId;

use super::Machine;

impl Machine {
    /// Puts the writes of a batch onto stable storage.
    pub(super) async fn write_through(
        &self,
        writes: &[(VolumeId, Vec<WriteRequest>)],
    ) -> Result<(), DeviceError> {
        let requests = writes.iter().flat_map(|(_, requests)| requests);
        let ids = requests
            .filter(|request| request.len_bytes() > 0)
            .map(|request| self.device.submit_after(request, &[], None));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        self.schedule.requests(ids).await;
        let flush = self.device.submit_flush();
        self.schedule.requests(flush.into_iter().collect()).await;
        let cached = &mut self.core.borrow_mut().cached;
        for (_, requests) in writes {
            for request in requests {
                cached.keep((request.offset_bytes, request.len_bytes()));
            }
        }
        Ok(())
    }

    /// Reads ranges of bytes, all of them at once, and keeps them.
    pub(super) async fn read_ranges(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        let ids = (ranges.iter())
            .map(|(offset_bytes, len_bytes)| self.device.submit_read(*offset_bytes, *len_bytes));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        self.schedule.requests(ids).await;
        let core = &mut *self.core.borrow_mut();
        for range in ranges {
            core.bytes_read += range.1;
            core.cached.keep(*range);
        }
        Ok(())
    }
}
