//! The drives of a machine: the file system's, and that of its log where this has one of its own.
//!
//! To the engine both are one space of bytes, the log's behind the file system's, as
//! [`JoinedDevice`](backstitch_device::JoinedDevice) has them. Each drive has its own queue, head and
//! cache; they share the clock.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{Result, WriteRequest};
use backstitch_drives::{RequestId, SimulatedDevice, VirtualClock};

/// A request of one of the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    /// Which drive: the place in [`Drives::all`].
    drive: usize,
    id: RequestId,
}

struct Drive {
    device: Arc<SimulatedDevice>,
    /// Where it begins in the space of both.
    start_bytes: u64,
}

/// See the module's documentation.
pub(super) struct Drives {
    all: Vec<Drive>,
    clock: Arc<VirtualClock>,
}

impl Drives {
    /// The file system's drive, with its log's behind its last whole block.
    pub(super) fn new(
        home: Arc<SimulatedDevice>,
        log: Option<Arc<SimulatedDevice>>,
        block_bytes: u32,
    ) -> Drives {
        use backstitch_device::BlockDevice;
        let clock = home.clock().clone();
        let block_bytes = u64::from(block_bytes);
        let end_bytes = home.size_bytes() / block_bytes * block_bytes;
        let drive = |device: Arc<SimulatedDevice>, start_bytes| {
            debug_assert!(Arc::ptr_eq(device.clock(), &clock), "drives share a clock");
            device.note_done();
            Drive {
                device,
                start_bytes,
            }
        };
        let home = drive(home, 0);
        let log = log.map(|log| drive(log, end_bytes));
        Drives {
            all: [home].into_iter().chain(log).collect(),
            clock,
        }
    }

    /// The time of all of them.
    pub(super) fn clock(&self) -> &Arc<VirtualClock> {
        &self.clock
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// The drive that a byte is on, and where on it.
    fn place(&self, offset_bytes: u64) -> (usize, u64) {
        let drive = self
            .all
            .iter()
            .rposition(|d| d.start_bytes <= offset_bytes)
            .unwrap_or(0);
        (drive, offset_bytes - self.all[drive].start_bytes)
    }

    /// Hands over a write behind others of the same drive, without waiting; it becomes two where it
    /// reaches over the end of a drive.
    ///
    /// # Errors
    /// Where it does not lie inside them.
    pub(super) fn submit_after(
        &self,
        request: &WriteRequest,
        before: &[Asked],
        into: &mut Vec<Asked>,
    ) -> Result<()> {
        for (drive, part) in self.parts(request) {
            let before: Vec<RequestId> = (before.iter())
                .filter(|asked| asked.drive == drive)
                .map(|asked| asked.id)
                .collect();
            let id = (self.all[drive].device).submit_after(&part, &before, None)?;
            into.push(Asked { drive, id });
        }
        Ok(())
    }

    /// What each drive has of a write. Its buffers are whole blocks, each on one drive.
    fn parts(&self, request: &WriteRequest) -> Vec<(usize, WriteRequest)> {
        let mut parts: Vec<(usize, WriteRequest)> = Vec::new();
        let mut at = request.offset_bytes;
        for buffer in request.buffers.iter().filter(|buffer| !buffer.is_empty()) {
            let (drive, offset_bytes) = self.place(at);
            at += buffer.len() as u64;
            match parts.last_mut() {
                Some((last, part)) if *last == drive => part.buffers.push(buffer.clone()),
                _ => {
                    let part = WriteRequest {
                        offset_bytes,
                        buffers: vec![buffer.clone()],
                    };
                    parts.push((drive, part));
                }
            }
        }
        parts
    }

    /// Asks for bytes of one drive, without waiting.
    ///
    /// # Errors
    /// Where they do not lie inside it.
    pub(super) fn submit_read(&self, offset_bytes: u64, len_bytes: u64) -> Result<Asked> {
        let (drive, offset_bytes) = self.place(offset_bytes);
        let id = (self.all[drive].device).submit_read(offset_bytes, len_bytes)?;
        Ok(Asked { drive, id })
    }

    /// Asks the drives with a volatile cache that was written to for a flush of it, without waiting.
    pub(super) fn submit_flush(&self) -> Vec<Asked> {
        let flushes = self.all.iter().enumerate().filter_map(|(drive, of)| {
            let id = of.device.submit_flush()?;
            Some(Asked { drive, id })
        });
        flushes.collect()
    }

    /// Whether a write is on the medium by now.
    pub(super) fn is_stable(&self, asked: Asked) -> bool {
        self.all[asked.drive].device.is_stable(asked.id)
    }

    /// When something happens in any of them next, if nothing is submitted before.
    pub(super) fn next_event_ns(&self) -> Option<u64> {
        let events = self.all.iter();
        events.filter_map(|d| d.device.next_event_ns()).min()
    }

    /// What was done since the last call: of each drive in that order.
    pub(super) fn take_done(&self) -> Vec<Asked> {
        let mut done = Vec::new();
        for (drive, of) in self.all.iter().enumerate() {
            let ids = of.device.take_done().into_iter().map(|done| done.id);
            done.extend(ids.map(|id| Asked { drive, id }));
        }
        done
    }

    /// What a reader would see, in no time: for what the host has in memory.
    ///
    /// # Errors
    /// Where it does not lie inside one drive.
    pub(super) fn peek(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let (drive, offset_bytes) = self.place(offset_bytes);
        self.all[drive].device.peek(offset_bytes, buffer)
    }
}
