//! Images that share what they have in common: a fork costs the blocks in which it differs.

use std::sync::Arc;

use backstitch_device::{BlockDevice, DeviceError, WriteRequest, check_range};
use backstitch_ext::fsck::Source;
use backstitch_ext::mkfs::{Mkfs, MkfsError};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use twox_hash::XxHash3_128;

/// The bytes that forks have in common.
#[derive(Debug)]
struct Base {
    bytes: Vec<u8>,
    block_bytes: usize,
    /// Which blocks are nothing but zeros.
    zero: Vec<bool>,
}

/// An image as a base, shared, and the blocks that differ from it.
#[derive(Clone, Debug)]
pub struct Fork {
    base: Arc<Base>,
    changed: FxHashMap<u64, Arc<[u8]>>,
}

impl Fork {
    /// An image of its own.
    ///
    /// # Panics
    /// If the image is not a whole number of blocks.
    pub fn new(bytes: Vec<u8>, block_bytes: u32) -> Fork {
        let block_bytes = block_bytes as usize;
        assert_eq!(bytes.len() % block_bytes, 0, "an image is made of blocks");
        let zero = bytes
            .chunks(block_bytes)
            .map(|block| block.iter().all(|b| *b == 0))
            .collect();
        Fork {
            base: Arc::new(Base {
                bytes,
                block_bytes,
                zero,
            }),
            changed: FxHashMap::default(),
        }
    }

    /// A new file system in an image of its own.
    ///
    /// # Errors
    /// Where no file system can be made with these options.
    pub(crate) fn formatted(
        mkfs: &Mkfs,
        size_bytes: u64,
        block_bytes: u32,
    ) -> Result<Fork, MkfsError> {
        let device = ForkDevice::new(Fork::new(vec![0; size_bytes as usize], block_bytes));
        mkfs.write(&device)?;
        // A base of its own, so that what mkfs wrote does not count as changed in every fork.
        Ok(Fork::new(device.fork().to_bytes(), block_bytes))
    }

    /// Which sectors of 512 bytes a block has, a bit for each.
    pub(crate) fn all_sectors(&self) -> u64 {
        (1 << (self.base.block_bytes / 512)) - 1
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> u32 {
        self.base.block_bytes as u32
    }

    /// A block's bytes.
    pub fn block(&self, block: u64) -> &[u8] {
        match self.changed.get(&block) {
            Some(bytes) => bytes,
            None => self.base_block(block),
        }
    }

    fn base_block(&self, block: u64) -> &[u8] {
        let start = block as usize * self.base.block_bytes;
        &self.base.bytes[start..start + self.base.block_bytes]
    }

    /// Gives a block other bytes.
    pub fn set_block(&mut self, block: u64, bytes: Arc<[u8]>) {
        debug_assert_eq!(bytes.len(), self.base.block_bytes);
        self.changed.insert(block, bytes);
    }

    /// What identifies the image among the forks of its base: the sum of what each changed block adds.
    pub fn fingerprint(&self) -> u128 {
        self.changed.iter().fold(0u128, |sum, (block, bytes)| {
            sum.wrapping_add(self.fingerprint_of(*block, bytes))
        })
    }

    /// What a block with these bytes adds to the [`fingerprint`](Self::fingerprint): nothing where the base has the same.
    pub fn fingerprint_of(&self, block: u64, bytes: &[u8]) -> u128 {
        if self.base_block(block) == bytes {
            return 0;
        }
        XxHash3_128::oneshot_with_seed(block, bytes)
    }

    /// The whole image.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.base.bytes.clone();
        for (block, changed) in &self.changed {
            let start = *block as usize * self.base.block_bytes;
            bytes[start..start + changed.len()].copy_from_slice(changed);
        }
        bytes
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range("fork", self.base.bytes.len() as u64, offset, len)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, into.len() as u64)?;
        let size = self.base.block_bytes;
        let (mut block, mut skip) = (offset / size as u64, offset as usize % size);
        let mut rest = into;
        while !rest.is_empty() {
            let count = rest.len().min(size - skip);
            rest[..count].copy_from_slice(&self.block(block)[skip..skip + count]);
            rest = &mut rest[count..];
            (block, skip) = (block + 1, 0);
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, bytes.len() as u64)?;
        let size = self.base.block_bytes;
        let (mut block, mut skip) = (offset / size as u64, offset as usize % size);
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = rest.len().min(size - skip);
            let new = if count == size {
                Arc::from(&rest[..count])
            } else {
                let mut old = self.block(block).to_vec();
                old[skip..skip + count].copy_from_slice(&rest[..count]);
                Arc::from(old)
            };
            self.changed.insert(block, new);
            rest = &rest[count..];
            (block, skip) = (block + 1, 0);
        }
        Ok(())
    }
}

impl Source for Fork {
    fn size_bytes(&self) -> u64 {
        self.base.bytes.len() as u64
    }

    fn bytes<'a>(
        &'a self,
        offset: u64,
        length: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], DeviceError> {
        self.check(offset, length as u64)?;
        let size = self.base.block_bytes;
        let (block, skip) = (offset / size as u64, offset as usize % size);
        if skip + length <= size {
            return Ok(&self.block(block)[skip..skip + length]);
        }
        scratch.resize(length, 0);
        self.read(offset, scratch)?;
        Ok(scratch)
    }

    fn is_known_zero(&self, offset: u64, length: usize) -> bool {
        let size = self.base.block_bytes as u64;
        let end = (offset + length as u64).div_ceil(size);
        (offset / size..end).all(|block| {
            self.base
                .zero
                .get(block as usize)
                .is_some_and(|zero| *zero && !self.changed.contains_key(&block))
        })
    }

    fn run_bytes(&self) -> usize {
        self.base.block_bytes
    }
}

/// A fork as a device. What is submitted is at once as stable as it will ever be.
#[derive(Debug)]
pub struct ForkDevice(Mutex<Fork>);

impl ForkDevice {
    /// A device that holds the image.
    pub fn new(fork: Fork) -> ForkDevice {
        ForkDevice(Mutex::new(fork))
    }

    /// What the device holds now.
    pub fn fork(&self) -> Fork {
        self.0.lock().clone()
    }
}

impl BlockDevice for ForkDevice {
    fn size_bytes(&self) -> u64 {
        self.0.lock().size_bytes()
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.0.lock().block_bytes()
    }

    fn name(&self) -> String {
        "fork".to_owned()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.0.lock().read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<(), DeviceError> {
        let mut fork = self.0.lock();
        for request in batch {
            let mut at = request.offset_bytes;
            for buffer in &request.buffers {
                if buffer.len() == fork.base.block_bytes && at.is_multiple_of(buffer.len() as u64) {
                    fork.check(at, buffer.len() as u64)?;
                    fork.changed
                        .insert(at / buffer.len() as u64, buffer.clone());
                } else {
                    fork.write(at, buffer)?;
                }
                at += buffer.len() as u64;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
