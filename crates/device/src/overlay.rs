//! A device that is not changed: what is written stays in memory, in front of it.
//!
//! For recovering an image that must not be changed: the same code runs, and the image keeps its
//! bytes.

use crate::{BlockDevice, Result, WriteRequest, check_range};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The unit in which changes are kept.
const UNIT_BYTES: u64 = 4096;

/// Another device with changes in front of it, which are dropped with this one.
pub struct OverlayDevice {
    below: Arc<dyn BlockDevice>,
    changed: RwLock<BTreeMap<u64, Box<[u8]>>>,
}

impl OverlayDevice {
    /// Shows `below` as it is, until something is written.
    pub fn new(below: Arc<dyn BlockDevice>) -> Self {
        let changed = RwLock::default();
        OverlayDevice { below, changed }
    }

    /// How many bytes are held in memory.
    pub fn held_bytes(&self) -> u64 {
        self.changed
            .read()
            .values()
            .map(|unit| unit.len() as u64)
            .sum()
    }

    fn write_into(
        &self,
        changed: &mut BTreeMap<u64, Box<[u8]>>,
        at: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let end = at + bytes.len() as u64;
        let mut from = at;
        while from < end {
            let start = from / UNIT_BYTES * UNIT_BYTES;
            let stop = end.min(start + UNIT_BYTES);
            let part = &bytes[(from - at) as usize..(stop - at) as usize];
            let unit = match changed.entry(start) {
                std::collections::btree_map::Entry::Occupied(unit) => unit.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => {
                    let length = UNIT_BYTES.min(self.below.size_bytes() - start);
                    let mut unit = vec![0; length as usize].into_boxed_slice();
                    self.below.read(start, &mut unit)?;
                    free.insert(unit)
                }
            };
            let offset = (from - start) as usize;
            unit[offset..offset + part.len()].copy_from_slice(part);
            from = stop;
        }
        Ok(())
    }
}

impl BlockDevice for OverlayDevice {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.below.atomic_unit_bytes()
    }

    /// As the device below: callers ask about that, not about the memory.
    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.below.read(offset_bytes, buffer)?;
        let end = offset_bytes + buffer.len() as u64;
        let first = offset_bytes / UNIT_BYTES * UNIT_BYTES;
        for (start, unit) in self.changed.read().range(first..end) {
            let (from, to) = (offset_bytes.max(*start), end.min(start + unit.len() as u64));
            if from < to {
                buffer[(from - offset_bytes) as usize..(to - offset_bytes) as usize]
                    .copy_from_slice(&unit[(from - start) as usize..(to - start) as usize]);
            }
        }
        Ok(())
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let mut changed = self.changed.write();
        for request in batch {
            let (mut at, length) = (request.offset_bytes, request.len_bytes());
            check_range(&self.name(), self.size_bytes(), at, length)?;
            for buffer in &request.buffers {
                self.write_into(&mut changed, at, buffer)?;
                at += buffer.len() as u64;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn changes_are_seen_and_the_device_stays_as_it_was() {
        let below = Arc::new(MemoryDevice::from_bytes(
            (0..10_000).map(|n| n as u8).collect(),
        ));
        let before = below.snapshot();
        let overlay = OverlayDevice::new(below.clone());
        let mut model = before.clone();
        for (at, length) in [(4090, 20), (0, 1), (9_999, 1), (100, 9_000), (8191, 2)] {
            let bytes = vec![at as u8 ^ 0x5a; length];
            overlay.write(at as u64, &bytes).unwrap();
            model[at..at + length].copy_from_slice(&bytes);
            let mut all = vec![0; 10_000];
            overlay.read(0, &mut all).unwrap();
            assert_eq!(all, model);
            let mut part = vec![0; 300];
            overlay.read(4000, &mut part).unwrap();
            assert_eq!(part, model[4000..4300]);
        }
        overlay.flush().unwrap();
        assert_eq!(below.snapshot(), before);
        assert_eq!(overlay.held_bytes(), 10_000);
        assert!(overlay.write(9_999, &[0; 2]).is_err());
    }
}
