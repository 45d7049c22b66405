//! A device that fails when it is told to, played in front of another device.
//!
//! # The fault model
//!
//! * One read, write request or flush fails, the n-th since the device was made; either it alone,
//!   or the device **is gone** from then on and everything fails until it [comes
//!   back](FaultDevice::comes_back).
//! * A failed read may have filled a part of the buffer (a short read). It changes nothing and is
//!   not latched: the next one may succeed.
//! * A [spoilt](FaultDevice::spoil) range fails every read that touches it, as a bad sector does,
//!   until it is written to.
//! * A failed write request has stored its first half, in whole [atomic
//!   units](BlockDevice::atomic_unit_bytes), and nothing of the requests after it in the batch.
//! * After a failed write or flush nobody knows what of the writes since the last good flush is
//!   there: the host has dropped them from its memory, or has not. [`Loss`] says what becomes of
//!   them. It happens at the failure, so that a caller who merely flushes again finds out.
//! * A failed write or flush is latched, as the contract has it: writes and flushes fail until
//!   [`reset_after_failure`](BlockDevice::reset_after_failure).

use crate::{BlockDevice, DeviceError, Result, WriteRequest, check_range};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// What is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A call of [`BlockDevice::read`].
    Read,
    /// A request of a batch.
    Write,
    /// A call of [`BlockDevice::flush`].
    Flush,
}

/// For how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultLength {
    /// Once: the same again succeeds.
    Once,
    /// Everything fails from then on: the device is gone.
    Gone,
}

/// What becomes of the writes since the last good flush when a write or a flush fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// They are there.
    Nothing,
    /// Every second one is lost.
    #[default]
    Half,
    /// They are all lost.
    Everything,
}

/// One failure to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Of what.
    pub kind: FaultKind,
    /// Which one since the device was made; the first is 1.
    pub number: u64,
    /// For how long.
    pub length: FaultLength,
}

/// The requests to a [`FaultDevice`] so far, failures included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Reads.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// The failures among them: injected ones, reads of spoilt places, requests while the device
    /// was gone.
    pub failures: u64,
}

/// A write that no flush covers yet.
struct Unflushed {
    offset_bytes: u64,
    /// What was there before.
    old: Vec<u8>,
}

#[derive(Default)]
struct State {
    counts: FaultCounts,
    fault: Option<Fault>,
    gone: bool,
    latched: Option<DeviceError>,
    unflushed: Vec<Unflushed>,
    spoilt: Vec<Range<u64>>,
}

/// Passes everything on to another device until something is to fail; see the module's head for how
/// it fails.
pub struct FaultDevice {
    inner: Arc<dyn BlockDevice>,
    loss: Loss,
    state: Mutex<State>,
}

/// The words of the errors.
const REASON: &str = "injected failure";

impl FaultDevice {
    /// Puts a device that works in front of `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>, loss: Loss) -> Self {
        Self {
            inner,
            loss,
            state: Mutex::new(State::default()),
        }
    }

    /// Injects a failure. It replaces an earlier one that has not happened yet.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().fault = Some(fault);
    }

    /// The device vanishes now.
    pub fn vanish(&self) {
        let mut state = self.state.lock();
        state.gone = true;
        self.lose(&mut state);
    }

    /// A device that is gone answers again. What it lost stays lost, and a latched failure stays
    /// latched.
    pub fn comes_back(&self) {
        self.state.lock().gone = false;
    }

    /// Makes these bytes unreadable until all of them have been written in one request.
    pub fn spoil(&self, bytes: Range<u64>) {
        self.state.lock().spoilt.push(bytes);
    }

    /// The requests so far.
    pub fn counts(&self) -> FaultCounts {
        self.state.lock().counts
    }

    /// The device behind.
    pub fn inner(&self) -> &Arc<dyn BlockDevice> {
        &self.inner
    }

    /// Whether this one fails: the `number`-th of its kind.
    fn fails(&self, state: &mut State, kind: FaultKind, number: u64) -> bool {
        let due = state
            .fault
            .is_some_and(|fault| fault.kind == kind && fault.number == number);
        if due && let Some(fault) = state.fault.take() {
            state.gone = fault.length == FaultLength::Gone;
        }
        let fails = due || state.gone;
        state.counts.failures += u64::from(fails);
        fails
    }

    /// Undoes the writes that the failure loses, newest first, so that the oldest bytes remain.
    fn lose(&self, state: &mut State) {
        let step = match self.loss {
            Loss::Nothing => return state.unflushed.clear(),
            Loss::Half => 2,
            Loss::Everything => 1,
        };
        for (index, write) in state.unflushed.drain(..).enumerate().rev() {
            if index % step == 0 {
                // The range was written to before, so the device behind has it.
                let _ = self.inner.write(write.offset_bytes, &write.old);
            }
        }
    }

    /// Passes on the first `len_bytes` of a request.
    fn store(&self, state: &mut State, request: &WriteRequest, len_bytes: u64) -> Result<()> {
        let mut offset_bytes = request.offset_bytes;
        let mut left = len_bytes as usize;
        for buffer in &request.buffers {
            let part = &buffer[..buffer.len().min(left)];
            if part.is_empty() {
                continue;
            }
            let mut old = vec![0; part.len()];
            self.inner.read(offset_bytes, &mut old)?;
            self.inner.write(offset_bytes, part)?;
            state.unflushed.push(Unflushed { offset_bytes, old });
            let end = offset_bytes + part.len() as u64;
            state
                .spoilt
                .retain(|range| range.start < offset_bytes || end < range.end);
            offset_bytes = end;
            left -= part.len();
        }
        Ok(())
    }

    fn check_latched(state: &mut State) -> Result<()> {
        match &state.latched {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

impl BlockDevice for FaultDevice {
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
        let len_bytes = buffer.len() as u64;
        check_range(&self.name(), self.size_bytes(), offset_bytes, len_bytes)?;
        let mut state = self.state.lock();
        state.counts.reads += 1;
        let number = state.counts.reads;
        let end = offset_bytes + len_bytes;
        let spoilt = state
            .spoilt
            .iter()
            .any(|range| range.start < end && offset_bytes < range.end);
        state.counts.failures += u64::from(spoilt);
        if !spoilt && !self.fails(&mut state, FaultKind::Read, number) {
            return self.inner.read(offset_bytes, buffer);
        }
        if !state.gone && !spoilt {
            let half = buffer.len() / 2;
            self.inner.read(offset_bytes, &mut buffer[..half])?;
        }
        Err(DeviceError::Read {
            device: self.name(),
            offset_bytes,
            len_bytes,
            reason: REASON.to_owned(),
        })
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let mut state = self.state.lock();
        Self::check_latched(&mut state)?;
        for request in batch {
            let len_bytes = request.len_bytes();
            check_range(
                &self.name(),
                self.size_bytes(),
                request.offset_bytes,
                len_bytes,
            )?;
            state.counts.writes += 1;
            let number = state.counts.writes;
            if !self.fails(&mut state, FaultKind::Write, number) {
                self.store(&mut state, request, len_bytes)?;
                continue;
            }
            if !state.gone {
                let unit = u64::from(self.atomic_unit_bytes());
                self.store(&mut state, request, len_bytes / 2 / unit * unit)?;
            }
            self.lose(&mut state);
            let error = DeviceError::Write {
                device: self.name(),
                offset_bytes: request.offset_bytes,
                len_bytes,
                reason: REASON.to_owned(),
            };
            state.latched = Some(error.clone());
            return Err(error);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        // The lock is held during the flush, which does not cover a later write.
        let mut state = self.state.lock();
        Self::check_latched(&mut state)?;
        state.counts.flushes += 1;
        let number = state.counts.flushes;
        if self.fails(&mut state, FaultKind::Flush, number) {
            self.lose(&mut state);
            let error = DeviceError::Flush {
                device: self.name(),
                reason: REASON.to_owned(),
            };
            state.latched = Some(error.clone());
            return Err(error);
        }
        self.inner.flush()?;
        state.unflushed.clear();
        Ok(())
    }

    fn reset_after_failure(&self) {
        self.state.lock().latched = None;
        self.inner.reset_after_failure();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, MemoryDevice};

    fn device(loss: Loss) -> FaultDevice {
        FaultDevice::new(Arc::new(MemoryDevice::new(8192)), loss)
    }

    fn fault(kind: FaultKind, number: u64, length: FaultLength) -> Fault {
        Fault {
            kind,
            number,
            length,
        }
    }

    fn byte(device: &FaultDevice, at: u64) -> u8 {
        let mut buffer = [0];
        device.inner().read(at, &mut buffer).unwrap();
        buffer[0]
    }

    #[test]
    fn a_read_fails_once_and_is_short() {
        let device = device(Loss::Half);
        device.write(0, &[7; 1024]).unwrap();
        device.inject(fault(FaultKind::Read, 2, FaultLength::Once));
        let mut buffer = [0; 1024];
        device.read(0, &mut buffer).unwrap();
        buffer.fill(0);
        assert!(matches!(
            device.read(0, &mut buffer),
            Err(DeviceError::Read { .. })
        ));
        assert_eq!((buffer[511], buffer[512]), (7, 0));
        device.read(0, &mut buffer).unwrap();
        assert_eq!(buffer, [7; 1024]);
        device.write(0, b"still writable").unwrap();
        assert_eq!(device.counts().reads, 3);
        assert_eq!(device.counts().failures, 1);
    }

    #[test]
    fn a_spoilt_range_cannot_be_read_until_it_is_written() {
        let device = device(Loss::Half);
        device.write(0, &[7; 2048]).unwrap();
        device.spoil(512..1024);
        let readable = |offset, len| device.read(offset, &mut vec![0; len]).is_ok();
        assert!(readable(0, 512) && readable(1024, 1024));
        assert!(!readable(0, 513) && !readable(1023, 1) && !readable(0, 2048));
        device.write(512, &[8; 511]).unwrap();
        assert!(!readable(0, 2048));
        device.write(0, &[8; 1024]).unwrap();
        assert!(readable(0, 2048));
    }

    #[test]
    fn a_failed_write_is_torn_and_latched_until_reset() {
        let device = device(Loss::Nothing);
        device.inject(fault(FaultKind::Write, 2, FaultLength::Once));
        let request = |offset_bytes| WriteRequest {
            offset_bytes,
            buffers: vec![Buffer::from([1; 1024])],
        };
        let batch = [request(0), request(2048), request(4096)];
        let error = device.submit(&batch).unwrap_err();
        assert!(
            error.to_string().contains("1024 bytes at 2048 failed"),
            "{error}"
        );
        let there = [0, 1023, 2048, 2559, 2560, 4096].map(|at| byte(&device, at));
        assert_eq!(there, [1, 1, 1, 1, 0, 0]);
        assert_eq!(device.write(0, b"a").unwrap_err(), error);
        assert_eq!(device.flush().unwrap_err(), error);
        device.reset_after_failure();
        device.submit(&batch).unwrap();
        device.flush().unwrap();
        assert_eq!(byte(&device, 4096), 1);
    }

    #[test]
    fn a_failed_flush_loses_what_no_flush_covered() {
        for (loss, left) in [
            (Loss::Nothing, [2, 3]),
            (Loss::Half, [1, 3]),
            (Loss::Everything, [1, 0]),
        ] {
            let device = device(loss);
            device.write(0, &[1; 512]).unwrap();
            device.flush().unwrap();
            device.write(0, &[2; 512]).unwrap();
            device.write(512, &[3; 512]).unwrap();
            device.inject(fault(FaultKind::Flush, 2, FaultLength::Once));
            assert!(matches!(device.flush(), Err(DeviceError::Flush { .. })));
            assert_eq!([byte(&device, 0), byte(&device, 512)], left, "{loss:?}");
            device.reset_after_failure();
            device.flush().unwrap();
        }
    }

    #[test]
    fn a_device_that_is_gone_fails_until_it_comes_back() {
        let device = device(Loss::Everything);
        device.write(0, &[1; 512]).unwrap();
        device.inject(fault(FaultKind::Write, 2, FaultLength::Gone));
        assert!(device.write(512, &[1; 512]).is_err());
        assert!(device.read(0, &mut [0]).is_err());
        device.reset_after_failure();
        assert!(device.write(512, &[1; 512]).is_err());
        device.comes_back();
        assert!(device.read(0, &mut [0]).is_ok());
        assert!(device.flush().is_err(), "the failure was not latched");
        device.reset_after_failure();
        device.write(512, &[1; 512]).unwrap();
        device.flush().unwrap();
        assert_eq!([byte(&device, 0), byte(&device, 512)], [0, 1]);
        device.vanish();
        assert!(device.flush().is_err());
    }
}
