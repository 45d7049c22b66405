//! The drives of a machine: the file system's, and its log's if that has one of its own.
//!
//! To the engine both are one space of bytes, in which the log's comes second, as with
//! [`JoinedDevice`](backstitch_device::JoinedDevice). Each drive has its own queue, head and cache.
//! They share the clock.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{Result, WriteRequest};
use backstitch_drives::{Flag, RequestId, SimulatedDevice, VirtualClock};

/// A request to one of the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    /// Index of the drive in [`Drives::all`].
    drive: usize,
    id: RequestId,
}

struct Drive {
    device: Arc<SimulatedDevice>,
    /// The offset of the drive in the joint space.
    start_bytes: u64,
}

/// See the module's documentation.
pub(super) struct Drives {
    all: Vec<Drive>,
    clock: Arc<VirtualClock>,
}

impl Drives {
    /// The file system's drive, followed, after its last whole block, by the log's.
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

    /// The clock of all drives.
    pub(super) fn clock(&self) -> &Arc<VirtualClock> {
        &self.clock
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// The drive of an offset, and the offset on it.
    fn place(&self, offset_bytes: u64) -> (usize, u64) {
        let drive = self
            .all
            .iter()
            .rposition(|d| d.start_bytes <= offset_bytes)
            .unwrap_or(0);
        (drive, offset_bytes - self.all[drive].start_bytes)
    }

    /// Submits a write that comes after others of the same drive, without waiting; a flag orders it
    /// among the others there. It becomes two where it crosses the end of a drive.
    ///
    /// # Errors
    /// If it is not inside them.
    pub(super) fn submit_after(
        &self,
        request: &WriteRequest,
        before: &[Asked],
        flag: Option<Flag>,
        into: &mut Vec<Asked>,
    ) -> Result<()> {
        for (drive, part) in self.parts(request) {
            let before: Vec<RequestId> = (before.iter())
                .filter(|asked| asked.drive == drive)
                .map(|asked| asked.id)
                .collect();
            let id = (self.all[drive].device).submit_after(&part, &before, flag)?;
            into.push(Asked { drive, id });
        }
        Ok(())
    }

    /// The parts of a write by drive. Its buffers are whole blocks, each on one drive.
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

    /// Submits a read of one drive, without waiting.
    ///
    /// # Errors
    /// If it is not inside the drive.
    pub(super) fn submit_read(&self, offset_bytes: u64, len_bytes: u64) -> Result<Asked> {
        let (drive, offset_bytes) = self.place(offset_bytes);
        let id = (self.all[drive].device).submit_read(offset_bytes, len_bytes)?;
        Ok(Asked { drive, id })
    }

    /// Submits a flush to each drive that has a volatile cache and was written to, without waiting.
    pub(super) fn submit_flush(&self) -> Vec<Asked> {
        let flushes = self.all.iter().enumerate().filter_map(|(drive, of)| {
            let id = of.device.submit_flush()?;
            Some(Asked { drive, id })
        });
        flushes.collect()
    }

    /// Whether any drive has a volatile cache.
    pub(super) fn have_cache(&self) -> bool {
        self.all.iter().any(|drive| drive.device.has_cache())
    }

    /// Whether a write is on the medium by now.
    pub(super) fn is_stable(&self, asked: Asked) -> bool {
        self.all[asked.drive].device.is_stable(asked.id)
    }

    /// The time of the next event of any drive, if nothing is submitted before.
    pub(super) fn next_event_ns(&self) -> Option<u64> {
        let events = self.all.iter();
        events.filter_map(|d| d.device.next_event_ns()).min()
    }

    /// Requests done since the last call, for each drive in the order in which they were done.
    pub(super) fn take_done(&self) -> Vec<Asked> {
        let mut done = Vec::new();
        for (drive, of) in self.all.iter().enumerate() {
            let ids = of.device.take_done().into_iter().map(|done| done.id);
            done.extend(ids.map(|id| Asked { drive, id }));
        }
        done
    }

    /// Copies what a read would return, without taking time: for bytes that the host has in memory.
    ///
    /// # Errors
    /// If it is not inside one drive.
    pub(super) fn peek(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let (drive, offset_bytes) = self.place(offset_bytes);
        self.all[drive].device.peek(offset_bytes, buffer)
    }
}
