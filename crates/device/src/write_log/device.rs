//! A device that logs what goes through it.

use super::raw::SECTOR_MIN_BYTES;
use super::{EntryFlags, LogError, LogWriter};
use crate::{BlockDevice, DeviceError, Result, WriteRequest};
use parking_lot::Mutex;
use std::sync::Arc;

const SECTOR: u64 = SECTOR_MIN_BYTES as u64;

/// Passes everything on to another device and writes a log of it.
///
/// A request is logged when the device below has taken it, so that the log never holds more than
/// the device does. Requests are handled one at a time: a write that was submitted during a flush
/// must not seem to be covered by it. When the log cannot be written, the request fails, and so
/// does every later one: a log with a gap would be worse than none.
pub struct LoggingDevice {
    inner: Arc<dyn BlockDevice>,
    log: Mutex<State>,
}

struct State {
    writer: LogWriter,
    failure: Option<String>,
}

impl LoggingDevice {
    /// Starts logging what goes to `inner`, whose contents are the log's base.
    pub fn new(inner: Arc<dyn BlockDevice>, writer: LogWriter) -> Self {
        let failure = None;
        Self {
            inner,
            log: Mutex::new(State { writer, failure }),
        }
    }

    /// How many entries the log has.
    pub fn entries(&self) -> u64 {
        self.log.lock().writer.entries()
    }

    /// Adds a remark to the log.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Flush`] if the log cannot be written, or could not be before.
    pub fn mark(&self, text: &str) -> Result<()> {
        let mut state = self.log.lock();
        state.check(&self.inner.name())?;
        let done = state.writer.mark(text);
        state.latch(&self.inner.name(), done)
    }

    /// Makes the log's superblock count every entry: at the end of a recording, whose last writes
    /// no flush may follow.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Flush`] if the log cannot be written, or could not be before.
    pub fn count(&self) -> Result<()> {
        let mut state = self.log.lock();
        state.check(&self.inner.name())?;
        let done = state.writer.count();
        state.latch(&self.inner.name(), done)
    }

    /// Adds a request to the log as whole sectors.
    fn log_write(&self, state: &mut State, request: &WriteRequest) -> Result<()> {
        let len = request.len_bytes();
        if !len.is_multiple_of(SECTOR) || !request.offset_bytes.is_multiple_of(SECTOR) {
            return self.log_sectors_of(state, request.offset_bytes, len);
        }
        if len == 0 {
            return Ok(());
        }
        let data = request.buffers.concat();
        let done = (state.writer).write(request.offset_bytes, &data, EntryFlags::default());
        state.latch(&self.inner.name(), done)
    }

    /// Adds a write of the sectors that hold these bytes to the log. The device below has the bytes
    /// already, and so the sectors are read from there.
    fn log_sectors_of(&self, state: &mut State, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        if len_bytes == 0 {
            return Ok(());
        }
        let start = offset_bytes / SECTOR * SECTOR;
        let end = (offset_bytes + len_bytes).next_multiple_of(SECTOR);
        let mut data = vec![0; (end - start) as usize];
        // A device may end with part of a sector.
        let there = end.min(self.inner.size_bytes()) - start;
        self.inner.read(start, &mut data[..there as usize])?;
        let done = state.writer.write(start, &data, EntryFlags::default());
        state.latch(&self.inner.name(), done)
    }
}

impl State {
    fn check(&self, device: &str) -> Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(reason) => Err(DeviceError::Flush {
                device: device.to_owned(),
                reason: reason.clone(),
            }),
        }
    }

    fn latch(&mut self, device: &str, done: std::result::Result<(), LogError>) -> Result<()> {
        if let Err(error) = done {
            self.failure = Some(format!("its log is no longer written: {error}"));
        }
        self.check(device)
    }
}

impl BlockDevice for LoggingDevice {
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
        self.inner.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let mut state = self.log.lock();
        state.check(&self.inner.name())?;
        self.inner.submit(batch)?;
        batch
            .iter()
            .try_for_each(|request| self.log_write(&mut state, request))
    }

    fn flush(&self) -> Result<()> {
        let mut state = self.log.lock();
        state.check(&self.inner.name())?;
        self.inner.flush()?;
        let done = state.writer.flush();
        state.latch(&self.inner.name(), done)
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        let mut state = self.log.lock();
        state.check(&self.inner.name())?;
        if !self.inner.discard(offset_bytes, len_bytes)? {
            return Ok(false);
        }
        // The log can state whole sectors only. Parts of sectors at the ends became zeros too, and are
        // logged as writes.
        let range_end = offset_bytes + len_bytes;
        let whole = offset_bytes.next_multiple_of(SECTOR).min(range_end);
        let end = (range_end / SECTOR * SECTOR).max(whole);
        self.log_sectors_of(&mut state, offset_bytes, whole - offset_bytes)?;
        if whole < end {
            let done = state.writer.discard(whole, end - whole);
            state.latch(&self.inner.name(), done)?;
        }
        self.log_sectors_of(&mut state, end, range_end - end)?;
        Ok(true)
    }

    fn reset_after_failure(&self) {
        self.inner.reset_after_failure();
    }
}
