//! The image as the repair has it so far: the device, and in front of it what has changed.
//!
//! Nothing is written until all is decided. Then the changes go out in the batches in which they
//! were made, each stable before the next one begins.

use super::source::Source;
use backstitch_device::{BlockDevice, Buffer, DeviceError, WriteRequest};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// A device with changes in front of it.
pub struct Overlay<'d> {
    device: &'d dyn BlockDevice,
    unit_bytes: usize,
    units: FxHashMap<u64, Buffer>,
    /// Changed since the last barrier.
    dirty: BTreeSet<u64>,
    batches: Vec<Vec<(u64, Buffer)>>,
}

impl<'d> Overlay<'d> {
    /// No changes yet. They are kept and written in units of `unit_bytes`, which should be what the
    /// layout's smallest structure takes; the device's size is a multiple of it.
    pub fn new(device: &'d dyn BlockDevice, unit_bytes: usize) -> Overlay<'d> {
        Overlay {
            device,
            unit_bytes,
            units: FxHashMap::default(),
            dirty: BTreeSet::new(),
            batches: Vec::new(),
        }
    }

    fn unit(&self) -> u64 {
        self.unit_bytes as u64
    }

    /// A copy, for trying something out.
    pub fn fork(&self) -> Overlay<'d> {
        Overlay {
            device: self.device,
            unit_bytes: self.unit_bytes,
            units: self.units.clone(),
            dirty: self.dirty.clone(),
            batches: self.batches.clone(),
        }
    }

    /// `length` bytes from `offset` on.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = Vec::new();
        self.bytes(offset, length, &mut bytes)?;
        Ok(bytes)
    }

    /// Changes bytes, in memory. Those that are the same already are no change.
    ///
    /// # Errors
    /// Those of the device, which is read around the change.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let first = offset / self.unit();
        let end = (offset + bytes.len() as u64).div_ceil(self.unit());
        let start = first * self.unit();
        let mut whole = self.read(start, (end - first) as usize * self.unit_bytes)?;
        let from = (offset - start) as usize;
        if whole[from..from + bytes.len()] == *bytes {
            return Ok(());
        }
        whole[from..from + bytes.len()].copy_from_slice(bytes);
        for (unit, chunk) in (first..end).zip(whole.chunks_exact(self.unit_bytes)) {
            self.units.insert(unit, Buffer::from(chunk));
            self.dirty.insert(unit);
        }
        Ok(())
    }

    /// Whatever is changed from here on goes to the device after everything before.
    pub fn barrier(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        let batch: Vec<_> = dirty
            .into_iter()
            .filter_map(|unit| Some((unit, self.units.get(&unit)?.clone())))
            .collect();
        if !batch.is_empty() {
            self.batches.push(batch);
        }
    }

    /// Whether anything was changed.
    pub fn is_changed(&self) -> bool {
        !self.units.is_empty()
    }

    /// Writes all batches, flushing after each.
    ///
    /// # Errors
    /// Those of the device.
    pub fn commit(mut self) -> Result<(), DeviceError> {
        self.barrier();
        for batch in &self.batches {
            let mut requests: Vec<WriteRequest> = Vec::new();
            for (unit, bytes) in batch {
                let offset_bytes = unit * self.unit();
                match requests.last_mut() {
                    Some(last) if last.offset_bytes + last.len_bytes() == offset_bytes => {
                        last.buffers.push(bytes.clone());
                    }
                    _ => requests.push(WriteRequest {
                        offset_bytes,
                        buffers: vec![bytes.clone()],
                    }),
                }
            }
            self.device.submit(&requests)?;
            self.device.flush()?;
        }
        Ok(())
    }
}

impl Source for Overlay<'_> {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn bytes<'a>(
        &'a self,
        offset: u64,
        length: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], DeviceError> {
        scratch.resize(length, 0);
        self.device.read(offset, scratch)?;
        let end = offset + length as u64;
        for unit in offset / self.unit()..end.div_ceil(self.unit()) {
            let Some(changed) = self.units.get(&unit) else {
                continue;
            };
            let start = unit * self.unit();
            let (from, to) = (start.max(offset), (start + self.unit()).min(end));
            scratch[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&changed[(from - start) as usize..(to - start) as usize]);
        }
        Ok(scratch)
    }
}
