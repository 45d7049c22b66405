//! Turns batches of the store, and reads, into requests to the drives.
//!
//! The writes of a batch are independent of each other. They are submitted together. The batch is
//! done when all of them are, and when the drive's volatile cache, if it has one, was flushed after
//! that. Until then nothing that depends on them is handed out.
//!
//! If the mechanism leaves its order to the drive's queue, each request names those that it has to
//! follow ([`chains`](super::chains)), or requests carry one of the flags of Ganger and Patt
//! ([`QueueOrder`]). With flags, and on a drive with a volatile cache, a batch counts as done once
//! the drive has it, and the next one comes after it; with chains on such a drive each of its
//! requests names all of this one. A caller that waits for stable storage waits until the queue is
//! empty.

use backstitch_device::{DeviceError, WriteRequest};
use backstitch_drives::Flag;
use backstitch_store::VolumeId;

use super::Machine;
use super::drives::Asked;
use crate::disk::QueueOrder;

/// Requests in the queue at which the host waits before it adds more.
pub(super) const MOST_QUEUED: usize = 128;

/// Writes that count as done, in the order of submission.
#[derive(Default)]
pub(super) struct Queue {
    /// Those that are not on the medium yet.
    waiting: Vec<Asked>,
    /// Those of the last batch.
    last: Vec<Asked>,
}

impl Machine {
    /// Writes a batch. On return it is on stable storage, or in a queue that keeps order.
    pub(super) async fn write_batch(
        &self,
        writes: &[(VolumeId, Vec<WriteRequest>)],
    ) -> Result<(), DeviceError> {
        match self.is_ordered_by_queue {
            true => self.queue(writes).await,
            false => self.write_through(writes).await,
        }
    }

    /// Submits the writes of a batch, to come after those of the batch before.
    async fn queue(&self, writes: &[(VolumeId, Vec<WriteRequest>)]) -> Result<(), DeviceError> {
        self.wait_for_queue(MOST_QUEUED).await;
        {
            let queue = &mut self.core.borrow_mut().queue;
            let before = std::mem::take(&mut queue.last);
            let requests = writes.iter().flat_map(|(_, requests)| requests);
            let mut requests = requests
                .filter(|request| request.len_bytes() > 0)
                .peekable();
            while let Some(request) = requests.next() {
                let is_last = requests.peek().is_none();
                let (before, flag) = match self.queue_order {
                    QueueOrder::Chain => (&before[..], None),
                    QueueOrder::Flag(flag) => {
                        let is_flagged = is_last || flag == Flag::Part;
                        (&[][..], is_flagged.then_some(flag))
                    }
                };
                self.drives
                    .submit_after(request, before, flag, &mut queue.last)?;
            }
            queue.waiting.extend_from_slice(&queue.last);
            if queue.last.is_empty() {
                queue.last = before;
            }
        }
        self.keep(writes);
        Ok(())
    }

    /// Waits until everything that counts as done is on stable storage.
    pub(super) async fn settle(&self) {
        if !self.is_ordered_by_queue || self.has_chains {
            return;
        }
        self.schedule.requests(self.drives.submit_flush()).await;
        self.wait_for_queue(1).await;
    }

    /// Waits until fewer than `most` of the requests that count as done are not on the medium.
    async fn wait_for_queue(&self, most: usize) {
        loop {
            {
                let waiting = &mut self.core.borrow_mut().queue.waiting;
                waiting.retain(|id| !self.drives.is_stable(*id));
                if waiting.len() < most {
                    return;
                }
            }
            match self.drives.next_event_ns() {
                Some(at_ns) => self.schedule.until(at_ns).await,
                // They are in a cache that was not flushed.
                None => self.schedule.requests(self.drives.submit_flush()).await,
            }
        }
    }

    /// Puts the writes of a batch onto stable storage.
    async fn write_through(
        &self,
        writes: &[(VolumeId, Vec<WriteRequest>)],
    ) -> Result<(), DeviceError> {
        let requests = writes.iter().flat_map(|(_, requests)| requests);
        let mut asked = Vec::new();
        for request in requests.filter(|request| request.len_bytes() > 0) {
            self.drives.submit_after(request, &[], None, &mut asked)?;
        }
        self.schedule.requests(asked).await;
        self.schedule.requests(self.drives.submit_flush()).await;
        self.keep(writes);
        Ok(())
    }

    /// Adds what was written to the host's cache.
    pub(super) fn keep(&self, writes: &[(VolumeId, Vec<WriteRequest>)]) {
        let cached = &mut self.core.borrow_mut().cached;
        for request in writes.iter().flat_map(|(_, requests)| requests) {
            cached.keep((request.offset_bytes, request.len_bytes()));
        }
    }

    /// Reads ranges of bytes at the same time, and adds them to the host's cache.
    pub(super) async fn read_ranges(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        let ids = (ranges.iter())
            .map(|(offset_bytes, len_bytes)| self.drives.submit_read(*offset_bytes, *len_bytes));
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
