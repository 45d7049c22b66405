//! The image as the repair has it so far: the device, and in front of it what has changed.
//!
//! Nothing is written until all is decided. Then the changes go out in the batches in which they
//! were made, each stable before the next one begins.

use crate::fsck::Source;
use backstitch_device::{BlockDevice, Buffer, DeviceError, WriteRequest};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The unit in which changes are kept: no block is smaller, and the superblock is one.
const UNIT: usize = 1024;

/// A device with changes in front of it.
pub(super) struct Overlay<'d> {
    device: &'d dyn BlockDevice,
    units: FxHashMap<u64, Buffer>,
    /// Changed since the last barrier.
    dirty: BTreeSet<u64>,
    batches: Vec<Vec<(u64, Buffer)>>,
}

impl<'d> Overlay<'d> {
    pub(super) fn new(device: &'d dyn BlockDevice) -> Overlay<'d> {
        Overlay {
            device,
            units: FxHashMap::default(),
            dirty: BTreeSet::new(),
            batches: Vec::new(),
        }
    }

    /// A copy, for trying something out.
    pub(super) fn fork(&self) -> Overlay<'d> {
        Overlay {
            device: self.device,
            units: self.units.clone(),
            dirty: self.dirty.clone(),
            batches: self.batches.clone(),
        }
    }

    /// `length` bytes from `offset` on.
    pub(super) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = Vec::new();
        self.bytes(offset, length, &mut bytes)?;
        Ok(bytes)
    }

    /// Changes bytes, in memory. Those that are the same already are no change.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let first = offset / UNIT as u64;
        let end = (offset + bytes.len() as u64).div_ceil(UNIT as u64);
        let start = first * UNIT as u64;
        let mut whole = self.read(start, (end - first) as usize * UNIT)?;
        let from = (offset - start) as usize;
        if whole[from..from + bytes.len()] == *bytes {
            return Ok(());
        }
        whole[from..from + bytes.len()].copy_from_slice(bytes);
        for (unit, chunk) in (first..end).zip(whole.chunks_exact(UNIT)) {
            self.units.insert(unit, Buffer::from(chunk));
            self.dirty.insert(unit);
        }
        Ok(())
    }

    /// Whatever is changed from here on goes to the device after everything before.
    pub(super) fn barrier(&mut self) {
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
    pub(super) fn is_changed(&self) -> bool {
        !self.units.is_empty()
    }

    /// Writes all batches, flushing after each.
    pub(super) fn commit(mut self) -> Result<(), DeviceError> {
        self.barrier();
        for batch in &self.batches {
            let mut requests: Vec<WriteRequest> = Vec::new();
            for (unit, bytes) in batch {
                let offset_bytes = unit * UNIT as u64;
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
        for unit in offset / UNIT as u64..end.div_ceil(UNIT as u64) {
            let Some(changed) = self.units.get(&unit) else {
                continue;
            };
            let start = unit * UNIT as u64;
            let (from, to) = (start.max(offset), (start + UNIT as u64).min(end));
            scratch[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&changed[(from - start) as usize..(to - start) as usize]);
        }
        Ok(scratch)
    }
}
