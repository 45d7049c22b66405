//! A file of a file system that is being opened, as a device.

use backstitch_device::{BlockDevice, DeviceError, Result, WriteRequest, check_range};

/// A run of blocks of the file: the file's first block, its block on the device (`None` for a
/// hole), and its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) there: Option<u64>,
    pub(super) count: u64,
}

/// The blocks of a file, straight on the device below the whole stack. For reading and writing
/// before any of the file's blocks is in memory.
pub(super) struct FileDevice<'d> {
    pub(super) device: &'d dyn BlockDevice,
    pub(super) name: String,
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    /// In order, without gaps.
    pub(super) runs: Vec<Run>,
    pub(super) is_read_only: bool,
}

impl FileDevice<'_> {
    /// Calls `each` with every contiguous piece of a range: where it is on the device, and its
    /// length.
    fn split(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        mut each: impl FnMut(Option<u64>, u64) -> Result<()>,
    ) -> Result<()> {
        check_range(&self.name, self.size_bytes(), offset_bytes, len_bytes)?;
        let (mut at, end) = (offset_bytes, offset_bytes + len_bytes);
        while at < end {
            let block = at / self.block_bytes;
            let index = self.runs.partition_point(|run| run.first <= block);
            let run = self.runs[index - 1];
            let stop = end.min((run.first + run.count) * self.block_bytes);
            let within = at - run.first * self.block_bytes;
            each(
                run.there.map(|there| there * self.block_bytes + within),
                stop - at,
            )?;
            at = stop;
        }
        Ok(())
    }
}

impl BlockDevice for FileDevice<'_> {
    fn size_bytes(&self) -> u64 {
        self.blocks * self.block_bytes
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.device.atomic_unit_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let mut rest = &mut buffer[..];
        self.split(offset_bytes, rest.len() as u64, |there, len| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(len as usize);
            rest = later;
            match there {
                Some(there) => self.device.read(there, now),
                None => {
                    now.fill(0);
                    Ok(())
                }
            }
        })
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        if self.is_read_only {
            let device = self.name.clone();
            return Err(DeviceError::ReadOnly { device });
        }
        for request in batch {
            let bytes: Vec<u8> = request.buffers.concat();
            let mut rest = &bytes[..];
            self.split(request.offset_bytes, bytes.len() as u64, |there, len| {
                let (now, later) = rest.split_at(len as usize);
                rest = later;
                match there {
                    Some(there) => self.device.write(there, now),
                    None => Err(DeviceError::Write {
                        device: self.name.clone(),
                        offset_bytes: request.offset_bytes,
                        len_bytes: bytes.len() as u64,
                        reason: "a hole of the file that holds it".to_owned(),
                    }),
                }
            })?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }
}
