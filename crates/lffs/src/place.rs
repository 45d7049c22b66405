//! Where a log lies: blocks of a volume, and the same blocks as a device of their own.

use std::ops::Range;
use std::sync::Arc;

use backstitch_device::{BlockDevice, Buffer, DeviceError, WriteRequest};

/// The blocks of a log, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMap {
    block_bytes: u32,
    /// Runs of blocks of the volume, each with its place in the log, counted in blocks.
    runs: Vec<(u64, Range<u64>)>,
    blocks: u64,
}

impl LogMap {
    /// A log that lies in these runs of blocks, one behind the other.
    pub fn new(block_bytes: u32, runs: impl IntoIterator<Item = Range<u64>>) -> LogMap {
        let mut map = LogMap {
            block_bytes,
            runs: Vec::new(),
            blocks: 0,
        };
        for run in runs.into_iter().filter(|run| !run.is_empty()) {
            let at = map.blocks;
            map.blocks += run.end - run.start;
            map.runs.push((at, run));
        }
        map
    }

    /// The same blocks on a device that has `blocks` other ones before them.
    #[must_use]
    pub fn behind(&self, blocks: u64) -> LogMap {
        let moved = |(_, run): &(u64, Range<u64>)| run.start + blocks..run.end + blocks;
        LogMap::new(self.block_bytes, self.runs.iter().map(moved))
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The length of all of them.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }

    /// The runs.
    pub fn runs(&self) -> impl Iterator<Item = &Range<u64>> {
        self.runs.iter().map(|(_, run)| run)
    }

    /// The block that byte `offset_bytes` of the log is in; `None` behind its end.
    pub fn block(&self, offset_bytes: u64) -> Option<u64> {
        let position = offset_bytes / u64::from(self.block_bytes);
        let index = self.runs.partition_point(|(at, _)| *at <= position);
        let (at, run) = self.runs.get(index.checked_sub(1)?)?;
        Some(run.start + (position - at)).filter(|block| run.contains(block))
    }

    /// Whether a block of the volume is one of the log's.
    pub fn has(&self, block: u64) -> bool {
        self.runs().any(|run| run.contains(&block))
    }
}

/// A log as a device of its own.
pub struct LogDevice<'d> {
    below: &'d dyn BlockDevice,
    map: Arc<LogMap>,
}

impl<'d> LogDevice<'d> {
    /// The log that lies in these blocks of a device.
    pub fn new(below: &'d dyn BlockDevice, map: Arc<LogMap>) -> LogDevice<'d> {
        LogDevice { below, map }
    }

    /// Cuts a range at the borders of runs: where each part lies below, and its length.
    fn parts(&self, offset_bytes: u64, len_bytes: u64) -> Result<Vec<(u64, u64)>, DeviceError> {
        let block_bytes = u64::from(self.map.block_bytes);
        let (mut at, mut left) = (offset_bytes, len_bytes);
        let mut parts: Vec<(u64, u64)> = Vec::new();
        while left > 0 {
            let block = self.map.block(at).ok_or_else(|| DeviceError::OutOfRange {
                device: self.name(),
                offset_bytes,
                len_bytes,
                size_bytes: self.size_bytes(),
            })?;
            let skip = at % block_bytes;
            let len = left.min(block_bytes - skip);
            let there = block * block_bytes + skip;
            match parts.last_mut() {
                Some((start, length)) if *start + *length == there => *length += len,
                _ => parts.push((there, len)),
            }
            (at, left) = (at + len, left - len);
        }
        Ok(parts)
    }

    fn read_parts(
        &self,
        offset_bytes: u64,
        buffer: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut rest = buffer;
        for (there, len) in self.parts(offset_bytes, rest.len() as u64)? {
            let (part, behind) = rest.split_at_mut(len as usize);
            read(there, part)?;
            rest = behind;
        }
        Ok(())
    }
}

impl BlockDevice for LogDevice<'_> {
    fn size_bytes(&self) -> u64 {
        self.map.bytes()
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn name(&self) -> String {
        format!("the log in {}", self.below.name())
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.read_parts(offset_bytes, buffer, |there, part| {
            self.below.read(there, part)
        })
    }

    fn read_contents(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.read_parts(offset_bytes, buffer, |there, part| {
            self.below.read_contents(there, part)
        })
    }

    fn notes_reads(&self) -> bool {
        self.below.notes_reads()
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<(), DeviceError> {
        let mut requests = Vec::new();
        for request in batch {
            let bytes: Vec<u8> = request
                .buffers
                .iter()
                .flat_map(|b| b.iter().copied())
                .collect();
            let mut rest = &bytes[..];
            for (there, len) in self.parts(request.offset_bytes, bytes.len() as u64)? {
                let (part, behind) = rest.split_at(len as usize);
                requests.push(WriteRequest {
                    offset_bytes: there,
                    buffers: vec![Buffer::from(part)],
                });
                rest = behind;
            }
        }
        self.below.submit(&requests)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.below.flush()
    }
}
