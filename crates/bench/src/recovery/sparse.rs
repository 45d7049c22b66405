//! A device over a new image file. It does not write zeros where there are only zeros, so the image
//! stays sparse.

use std::ops::Range;

use backstitch_device::{BlockDevice, Result, WriteRequest};
use parking_lot::Mutex;

/// Bytes of the units that are compared with zeros.
const UNIT_BYTES: u64 = 4096;

/// See the module's documentation.
pub(super) struct SparseDevice<D> {
    below: D,
    /// A bit for each unit: whether it was written.
    written: Mutex<Vec<u64>>,
}

impl<D: BlockDevice> SparseDevice<D> {
    /// Over a device that holds only zeros.
    pub(super) fn over_zeros(below: D) -> SparseDevice<D> {
        let units = below.size_bytes().div_ceil(UNIT_BYTES) as usize;
        SparseDevice {
            below,
            written: Mutex::new(vec![0; units.div_ceil(64)]),
        }
    }
}

/// The units that a range touches.
fn units(offset_bytes: u64, len_bytes: u64) -> Range<usize> {
    let end = (offset_bytes + len_bytes).div_ceil(UNIT_BYTES);
    (offset_bytes / UNIT_BYTES) as usize..end as usize
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

impl<D: BlockDevice> BlockDevice for SparseDevice<D> {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.below.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let mut written = self.written.lock();
        let mut kept: Vec<WriteRequest> = Vec::new();
        for request in batch {
            let mut at = request.offset_bytes;
            for buffer in &request.buffers {
                let len = buffer.len() as u64;
                let mut of = units(at, len);
                let is_needed =
                    !is_zero(buffer) || of.clone().any(|u| written[u / 64] >> (u % 64) & 1 == 1);
                if is_needed {
                    of.by_ref().for_each(|u| written[u / 64] |= 1 << (u % 64));
                    match kept.last_mut() {
                        Some(last) if last.offset_bytes + last.len_bytes() == at => {
                            last.buffers.push(buffer.clone());
                        }
                        _ => kept.push(WriteRequest {
                            offset_bytes: at,
                            buffers: vec![buffer.clone()],
                        }),
                    }
                }
                at += len;
            }
        }
        if kept.is_empty() {
            return Ok(());
        }
        self.below.submit(&kept)
    }

    fn flush(&self) -> Result<()> {
        self.below.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_device::MemoryDevice;

    #[test]
    fn only_zeros_over_zeros_are_left_out() {
        let device = SparseDevice::over_zeros(MemoryDevice::new(1 << 16));
        let read = |offset, len| {
            let mut bytes = vec![9; len];
            device.read(offset, &mut bytes).unwrap();
            bytes
        };
        device.write(4096, &[0; 8192]).unwrap();
        assert!(device.written.lock().iter().all(|word| *word == 0));
        device.write(5000, &[7; 10]).unwrap();
        assert_eq!(read(4999, 12), [&[0][..], &[7; 10], &[0]].concat());
        // Zeros over data that was written are written.
        device.write(4096, &[0; 4096]).unwrap();
        assert_eq!(read(4096, 4096), [0; 4096]);
        // A gap in the middle of a request.
        let buffers = [[1_u8; 4096], [0; 4096], [2; 4096]].map(|b| b.to_vec().into());
        let request = WriteRequest {
            offset_bytes: 16384,
            buffers: buffers.to_vec(),
        };
        device.submit(&[request]).unwrap();
        assert_eq!(read(16384, 4096), [1; 4096]);
        assert_eq!(read(20480, 4096), [0; 4096]);
        assert_eq!(read(24576, 4096), [2; 4096]);
        assert!(device.submit(&[]).is_ok());
    }
}
