//! A device in memory: for tests, for the crash explorer, and for `mkfs` into nothing.

use crate::{BlockDevice, Result, WriteRequest, check_range};
use parking_lot::RwLock;

/// A device in memory. Everything submitted is at once as stable as it will ever be.
#[derive(Debug)]
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
    size_bytes: u64,
}

impl MemoryDevice {
    /// A device of `size_bytes` zeros.
    pub fn new(size_bytes: usize) -> Self {
        Self::from_bytes(vec![0; size_bytes])
    }

    /// A device that holds `bytes`.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let size_bytes = bytes.len() as u64;
        Self {
            bytes: RwLock::new(bytes),
            size_bytes,
        }
    }

    /// A copy of everything the device holds.
    pub fn snapshot(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

impl BlockDevice for MemoryDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        check_range("memory", self.size_bytes, offset_bytes, buffer.len() as u64)?;
        let start = offset_bytes as usize;
        buffer.copy_from_slice(&self.bytes.read()[start..start + buffer.len()]);
        Ok(())
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let mut bytes = self.bytes.write();
        for request in batch {
            check_range(
                "memory",
                self.size_bytes,
                request.offset_bytes,
                request.len_bytes(),
            )?;
            let mut at = request.offset_bytes as usize;
            for buffer in &request.buffers {
                bytes[at..at + buffer.len()].copy_from_slice(buffer);
                at += buffer.len();
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
    use crate::{Buffer, DeviceError};

    #[test]
    fn keeps_what_was_written() {
        let device = MemoryDevice::new(4096);
        device.write(1000, b"abc").unwrap();
        let mut buffer = [0; 5];
        device.read(999, &mut buffer).unwrap();
        assert_eq!(&buffer, b"\0abc\0");
        assert_eq!(&device.snapshot()[1000..1003], b"abc");
    }

    #[test]
    fn lays_buffers_out_one_after_the_other() {
        let device = MemoryDevice::new(16);
        let buffers = vec![Buffer::from(&b"ab"[..]), Buffer::from(&b"cde"[..])];
        device
            .submit(&[WriteRequest {
                offset_bytes: 3,
                buffers,
            }])
            .unwrap();
        assert_eq!(&device.snapshot()[2..9], b"\0abcde\0");
    }

    #[test]
    fn refuses_what_reaches_past_the_end() {
        let device = MemoryDevice::new(10);
        let expected = DeviceError::OutOfRange {
            device: "memory".into(),
            offset_bytes: 8,
            len_bytes: 3,
            size_bytes: 10,
        };
        assert_eq!(device.write(8, b"abc"), Err(expected.clone()));
        assert_eq!(device.read(8, &mut [0; 3]), Err(expected));
        assert!(device.read(u64::MAX, &mut [0; 3]).is_err());
    }
}
