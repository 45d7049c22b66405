//! Rings and their memory, before there are threads that serve them.

use super::places::Plan;
use super::{Headers, Ring};
use io_uring::IoUring;
use memmap2::MmapMut;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;

/// Requests that one thread's ring holds: its own, and a little room.
const RING_ENTRIES: u32 = 2;

/// Descriptors that stay free for what a mount opens besides its rings.
const SPARE_DESCRIPTORS: usize = 32;

/// All that the system has to grant for one thread's part of the connection.
pub(crate) struct Prepared {
    pub(super) queue: u16,
    pub(super) ring: Ring,
    pub(super) headers: MmapMut,
    pub(super) payload: MmapMut,
}

impl Prepared {
    fn new(queue: u16, payload_bytes: usize) -> io::Result<Prepared> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            // The thread that enables it becomes the one that may use it.
            .setup_r_disabled()
            .build(RING_ENTRIES)?;
        Ok(Prepared {
            queue,
            ring,
            headers: MmapMut::map_anon(size_of::<Headers>())?,
            payload: MmapMut::map_anon(payload_bytes)?,
        })
    }

    /// The queue that it is for.
    pub(crate) fn queue(&self) -> u16 {
        self.queue
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("queue", &self.queue)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// Everything that `plan` takes, one for each of its threads. To be asked for before the kernel is told
/// that requests are to come by rings: once told, it hands out requests only when the rings of all
/// processors are there.
///
/// # Errors
///
/// The system's: io_uring is forbidden here, or there is no memory, or no descriptors, for so many rings.
pub(crate) fn prepare(plan: &Plan, payload_bytes: usize) -> io::Result<Vec<Prepared>> {
    let spare = (0..SPARE_DESCRIPTORS).map(|_| eventfd(0, EventfdFlags::CLOEXEC));
    let _spare = spare.collect::<Result<Vec<_>, _>>()?;
    let queues = plan.queues().iter();
    queues
        .map(|queue| Prepared::new(*queue, payload_bytes))
        .collect()
}
