//! Changes of several devices that are worked out before any of them is made.
//!
//! Writes to a [`StagedDevice`] stay in memory, in front of the device below; reads see them.
//! [`Staging::commit`] then writes all of them in their order, over all devices, with the same
//! flushes in between: a power cut leaves what it could have left without the staging. Until then
//! nothing has changed, and all changes are known: the old contents can be kept
//! ([`undo`](crate::undo)), and a repair that fails costs nothing.
//!
//! The commit point of the whole is not here: it is that of the changes themselves.

use crate::{BlockDevice, OverlayDevice, Result, WriteRequest};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// A step of the changes; the number is the device's.
enum Step {
    Write(usize, Vec<WriteRequest>),
    Flush(usize),
}

/// Changes that are not made yet.
#[derive(Default)]
pub struct Staging {
    steps: Mutex<Vec<Step>>,
    below: Mutex<Vec<Arc<dyn BlockDevice>>>,
}

impl Staging {
    /// No changes yet, and no devices.
    pub fn new() -> Arc<Staging> {
        Arc::default()
    }

    /// A device with its changes in front of it.
    pub fn device(self: &Arc<Staging>, below: Arc<dyn BlockDevice>) -> Arc<StagedDevice> {
        let mut known = self.below.lock();
        known.push(below.clone());
        Arc::new(StagedDevice {
            number: known.len() - 1,
            overlay: OverlayDevice::new(below),
            staging: self.clone(),
        })
    }

    /// Makes the changes. Afterwards none are left to make, even if this fails.
    ///
    /// # Errors
    /// A device's error; the changes before it are made.
    pub fn commit(&self) -> Result<()> {
        let below = self.below.lock();
        for step in std::mem::take(&mut *self.steps.lock()) {
            match step {
                Step::Write(number, batch) => below[number].submit(&batch)?,
                Step::Flush(number) => below[number].flush()?,
            }
        }
        Ok(())
    }
}

/// A device with changes in front of it that are to be made later.
pub struct StagedDevice {
    number: usize,
    overlay: OverlayDevice,
    staging: Arc<Staging>,
}

impl StagedDevice {
    /// The ranges that change, in units of `unit_bytes` from the device's start, in order, none
    /// longer than `most_bytes`.
    pub fn changed(&self, unit_bytes: u64, most_bytes: u64) -> Vec<Range<u64>> {
        let mut units = BTreeSet::new();
        self.each_write(|offset, bytes| {
            let end = (offset + bytes.len() as u64).div_ceil(unit_bytes);
            units.extend(offset / unit_bytes..end);
        });
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for unit in units {
            let start = unit * unit_bytes;
            let end = (start + unit_bytes).min(self.size_bytes());
            match ranges.last_mut() {
                Some(last) if last.end == start && end - last.start <= most_bytes => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }

    /// Whether nothing changes.
    pub fn is_unchanged(&self) -> bool {
        let steps = self.staging.steps.lock();
        let mut steps = steps.iter();
        !steps.any(|step| matches!(step, Step::Write(number, _) if *number == self.number))
    }

    /// Calls `visit` with each write to this device in order: offset and bytes.
    pub fn each_write(&self, mut visit: impl FnMut(u64, &[u8])) {
        for step in &*self.staging.steps.lock() {
            let Step::Write(number, batch) = step else {
                continue;
            };
            for request in batch.iter().filter(|_| *number == self.number) {
                let mut at = request.offset_bytes;
                for buffer in &request.buffers {
                    visit(at, buffer);
                    at += buffer.len() as u64;
                }
            }
        }
    }
}

impl BlockDevice for StagedDevice {
    fn size_bytes(&self) -> u64 {
        self.overlay.size_bytes()
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.overlay.atomic_unit_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.overlay.is_read_only()
    }

    fn name(&self) -> String {
        self.overlay.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.overlay.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let mut steps = self.staging.steps.lock();
        self.overlay.submit(batch)?;
        steps.push(Step::Write(self.number, batch.to_vec()));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.staging.steps.lock().push(Step::Flush(self.number));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDevice, Record, RecordingDevice};

    #[test]
    fn nothing_happens_before_the_commit_and_then_the_same_in_the_same_order() {
        let memory = || Arc::new(MemoryDevice::new(1 << 16));
        let (first, second) = (memory(), memory());
        let recorded = |below: &Arc<MemoryDevice>| Arc::new(RecordingDevice::new(below.clone()));
        let (staged, plain) = (recorded(&first), recorded(&second));
        let staging = Staging::new();
        let device = staging.device(staged.clone());
        assert!(device.is_unchanged());
        for target in [&*device as &dyn BlockDevice, &*plain] {
            target.write(5000, &[1; 3000]).unwrap();
            target.flush().unwrap();
            target.write(5000, &[2; 10]).unwrap();
            target.write(40_000, &[3; 1]).unwrap();
            target.flush().unwrap();
        }
        assert!(staged.is_empty() && !device.is_unchanged());
        let mut seen = [0; 20];
        device.read(4995, &mut seen).unwrap();
        assert_eq!(seen[5..15], [2; 10]);
        assert_eq!((seen[4], seen[15]), (0, 1));
        let changed = [4096..8192, 36_864..40_960];
        assert_eq!(device.changed(4096, 1 << 20), changed);
        assert_eq!(device.changed(1024, 2048).len(), 3);
        staging.commit().unwrap();
        assert_eq!(staged.records(), plain.records());
        assert!(staged.records().contains(&Record::Flush));
        assert_eq!(first.snapshot(), second.snapshot());
    }
}
