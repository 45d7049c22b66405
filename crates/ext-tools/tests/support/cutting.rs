//! A device that remembers what it was before each batch of writes, so that a power cut within any
//! of them can be played.

use super::random::Random;
use backstitch_device::{BlockDevice, MemoryDevice, Result, WriteRequest};
use std::sync::Mutex;

/// What the device held before a batch, and the batch.
type Batch = (Vec<u8>, Vec<WriteRequest>);

/// A device in memory that remembers.
pub(crate) struct CuttingDevice {
    inner: MemoryDevice,
    batches: Mutex<Vec<Batch>>,
}

impl CuttingDevice {
    pub(crate) fn new(bytes: Vec<u8>) -> CuttingDevice {
        CuttingDevice {
            inner: MemoryDevice::from_bytes(bytes),
            batches: Mutex::default(),
        }
    }

    pub(crate) fn snapshot(&self) -> Vec<u8> {
        self.inner.snapshot()
    }

    /// A state that a cut within a random batch could have left: every unit of 1 KiB is written or
    /// not.
    pub(crate) fn cut(&self, random: &mut Random) -> Option<Vec<u8>> {
        let batches = self.batches.lock().unwrap();
        if batches.is_empty() {
            return None;
        }
        let (state, requests) = random.pick(&batches);
        let mut state = state.clone();
        for request in requests {
            let mut at = request.offset_bytes as usize;
            for buffer in &request.buffers {
                if random.below(2) == 0 {
                    state[at..at + buffer.len()].copy_from_slice(buffer);
                }
                at += buffer.len();
            }
        }
        Some(state)
    }
}

impl BlockDevice for CuttingDevice {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn name(&self) -> String {
        "cutting".into()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let mut batches = self.batches.lock().unwrap();
        batches.push((self.inner.snapshot(), batch.to_vec()));
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
}
