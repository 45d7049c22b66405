//! A journal's blocks on their device.

use std::sync::Arc;

use backstitch_device::{BlockDevice, Buffer, WriteRequest};
use backstitch_layout::JournalMap;

use crate::{Error, Fault, Result};

/// A journal's blocks on a device.
#[derive(Clone)]
pub struct JournalDevice<'d> {
    device: &'d dyn BlockDevice,
    block_bytes: u32,
    map: Arc<JournalMap>,
}

impl<'d> JournalDevice<'d> {
    /// Blocks of `block_bytes` on `device`, where `map` says.
    pub fn new(device: &'d dyn BlockDevice, block_bytes: u32, map: Arc<JournalMap>) -> Self {
        JournalDevice {
            device,
            block_bytes,
            map,
        }
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Where the blocks are.
    pub fn map(&self) -> &JournalMap {
        &self.map
    }

    fn offset_bytes(&self, position: u32) -> Result<u64> {
        let block = self.map.block(position);
        block
            .and_then(|block| block.0.checked_mul(self.block_bytes.into()))
            .ok_or_else(|| Error::corrupt(position, Fault::NoPlace))
    }

    /// Fills `buffer`, of a block's size or less, with the beginning of a block.
    ///
    /// # Errors
    /// The device's, and [`Error::Corrupt`] past the journal's end.
    pub fn read(&self, position: u32, buffer: &mut [u8]) -> Result<()> {
        Ok(self.device.read(self.offset_bytes(position)?, buffer)?)
    }

    /// Writes blocks, or the beginning of one. Nothing is stable before [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, blocks: &[(u32, Buffer)]) -> Result<()> {
        let mut requests: Vec<WriteRequest> = Vec::new();
        for (position, bytes) in blocks {
            let offset_bytes = self.offset_bytes(*position)?;
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
        Ok(self.device.submit(&requests)?)
    }

    /// Makes everything written before stable.
    ///
    /// # Errors
    /// The device's.
    pub fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }
}
