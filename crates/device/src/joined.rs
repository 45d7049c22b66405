//! Several devices as one: each begins where the one before it ends.
//!
//! For code that orders blocks on several devices as a whole. A file system and its journal on
//! another device are then one space of blocks, and order between the two is order like any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{BlockDevice, Buffer, Result, WriteRequest, check_range};

struct Part {
    device: Arc<dyn BlockDevice>,
    start_bytes: u64,
    len_bytes: u64,
    /// Batches submitted, and how many of them a flush covers.
    submitted: AtomicU64,
    flushed: AtomicU64,
}

impl Part {
    fn end_bytes(&self) -> u64 {
        self.start_bytes + self.len_bytes
    }

    /// The share of a range that lies in the part: where it begins in the range and in the part,
    /// and its length.
    fn share_of(&self, offset_bytes: u64, len_bytes: u64) -> Option<(u64, u64, u64)> {
        let from = offset_bytes.max(self.start_bytes);
        let to = (offset_bytes + len_bytes).min(self.end_bytes());
        (from < to).then(|| (from - offset_bytes, from - self.start_bytes, to - from))
    }

    fn flush(&self) -> Result<()> {
        // Whatever was submitted before this is covered by any flush that begins later.
        let submitted = self.submitted.load(Ordering::Acquire);
        if self.flushed.load(Ordering::Acquire) >= submitted {
            return Ok(());
        }
        self.device.flush()?;
        self.flushed.fetch_max(submitted, Ordering::AcqRel);
        Ok(())
    }
}

/// Devices one behind the other. A flush reaches the devices that were written to since their last
/// one.
pub struct JoinedDevice {
    parts: Vec<Part>,
}

impl JoinedDevice {
    /// Joins devices. Of each, as many bytes are used as fill whole units of `unit_bytes`, so that
    /// no such unit lies on two devices.
    ///
    /// # Panics
    /// If `unit_bytes` is 0.
    pub fn new(devices: Vec<Arc<dyn BlockDevice>>, unit_bytes: u32) -> JoinedDevice {
        let unit_bytes = u64::from(unit_bytes);
        let mut start_bytes = 0;
        let parts = devices.into_iter().map(|device| {
            let len_bytes = device.size_bytes() / unit_bytes * unit_bytes;
            let part = Part {
                device,
                start_bytes,
                len_bytes,
                submitted: AtomicU64::new(0),
                flushed: AtomicU64::new(0),
            };
            start_bytes += len_bytes;
            part
        });
        JoinedDevice {
            parts: parts.collect(),
        }
    }

    fn read_with(
        &self,
        offset_bytes: u64,
        buffer: &mut [u8],
        read: impl Fn(&dyn BlockDevice, u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut rest = &mut buffer[..];
        self.split(offset_bytes, rest.len() as u64, |part, at, len| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(len as usize);
            rest = later;
            read(&*part.device, at, now)
        })
    }

    /// Calls `each` with every part that a range touches, with where it begins in the part and its
    /// length.
    fn split(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        mut each: impl FnMut(&Part, u64, u64) -> Result<()>,
    ) -> Result<()> {
        check_range(&self.name(), self.size_bytes(), offset_bytes, len_bytes)?;
        for part in &self.parts {
            if let Some((_, at, len)) = part.share_of(offset_bytes, len_bytes) {
                each(part, at, len)?;
            }
        }
        Ok(())
    }
}

/// The bytes from `skip` on of a request's buffers, `len` of them. Whole buffers are shared.
fn part_of(buffers: &[Buffer], skip: u64, len: u64) -> Vec<Buffer> {
    let (mut skip, mut len) = (skip as usize, len as usize);
    let mut taken = Vec::new();
    for buffer in buffers {
        if skip >= buffer.len() {
            skip -= buffer.len();
            continue;
        }
        let end = buffer.len().min(skip + len);
        if end > skip {
            let is_whole = end - skip == buffer.len();
            taken.push(match is_whole {
                true => buffer.clone(),
                false => Buffer::from(&buffer[skip..end]),
            });
        }
        len -= end - skip;
        skip = 0;
    }
    taken
}

impl BlockDevice for JoinedDevice {
    fn size_bytes(&self) -> u64 {
        self.parts.last().map_or(0, Part::end_bytes)
    }

    fn atomic_unit_bytes(&self) -> u32 {
        let units = self.parts.iter().map(|p| p.device.atomic_unit_bytes());
        units.min().unwrap_or(512)
    }

    fn is_read_only(&self) -> bool {
        self.parts.iter().any(|p| p.device.is_read_only())
    }

    fn name(&self) -> String {
        let names: Vec<String> = self.parts.iter().map(|p| p.device.name()).collect();
        names.join(" + ")
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_with(offset_bytes, buffer, |device, at, into| {
            device.read(at, into)
        })
    }

    fn read_contents(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_with(offset_bytes, buffer, |device, at, into| {
            device.read_contents(at, into)
        })
    }

    fn reads_are_scattered(&self) {
        for part in &self.parts {
            part.device.reads_are_scattered();
        }
    }

    fn will_read(&self, offset_bytes: u64, len_bytes: u64) {
        // It is a hint only: a range that goes too far is no error.
        let _ = self.split(offset_bytes, len_bytes, |part, at, len| {
            part.device.will_read(at, len);
            Ok(())
        });
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let mut shares: Vec<Vec<WriteRequest>> = vec![Vec::new(); self.parts.len()];
        for request in batch {
            let (start, len) = (request.offset_bytes, request.len_bytes());
            check_range(&self.name(), self.size_bytes(), start, len)?;
            for (part, share) in self.parts.iter().zip(&mut shares) {
                if let Some((skip, offset_bytes, len)) = part.share_of(start, len) {
                    share.push(WriteRequest {
                        offset_bytes,
                        buffers: part_of(&request.buffers, skip, len),
                    });
                }
            }
        }
        for (part, share) in self.parts.iter().zip(&shares) {
            if !share.is_empty() {
                let result = part.device.submit(share);
                // Also after an error: some of it may have been stored.
                part.submitted.fetch_add(1, Ordering::AcqRel);
                result?;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.parts.iter().try_for_each(Part::flush)
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        let mut done = true;
        self.split(offset_bytes, len_bytes, |part, at, len| {
            done &= part.device.discard(at, len)?;
            Ok(())
        })?;
        Ok(done)
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<std::ops::Range<u64>>> {
        for part in &self.parts {
            if offset_bytes >= part.end_bytes() {
                continue;
            }
            let from = offset_bytes.saturating_sub(part.start_bytes);
            if let Some(data) = part.device.next_data(from)?
                && data.start < part.len_bytes
            {
                let end = data.end.min(part.len_bytes);
                return Ok(Some(data.start + part.start_bytes..end + part.start_bytes));
            }
        }
        Ok(None)
    }

    fn reset_after_failure(&self) {
        for part in &self.parts {
            part.device.reset_after_failure();
            // Writes that a flush had covered may be written again: the next flush must reach the
            // device.
            // written again.
            part.submitted.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, FaultDevice, FaultKind, FaultLength, Loss, MemoryDevice, RecordingDevice};

    fn two() -> (Arc<MemoryDevice>, Arc<MemoryDevice>, JoinedDevice) {
        let first = Arc::new(MemoryDevice::new(3 * 512 + 100));
        let second = Arc::new(MemoryDevice::new(2 * 512));
        let joined = JoinedDevice::new(vec![first.clone(), second.clone()], 512);
        (first, second, joined)
    }

    #[test]
    fn reads_and_writes_cross_the_border() {
        let (first, second, joined) = two();
        assert_eq!(joined.size_bytes(), 5 * 512);
        let buffers: Vec<Buffer> = (1..=4).map(|n| Buffer::from([n; 512])).collect();
        let request = WriteRequest {
            offset_bytes: 512,
            buffers,
        };
        joined.submit(&[request]).unwrap();
        let mut bytes = vec![0; 5 * 512];
        joined.read(0, &mut bytes).unwrap();
        let expected: Vec<u8> = [0, 1, 2, 3, 4].iter().flat_map(|n| [*n; 512]).collect();
        assert_eq!(bytes, expected);
        let mut part = vec![0; 512];
        first.read(1024, &mut part).unwrap();
        assert_eq!(part, [2; 512]);
        second.read(512, &mut part).unwrap();
        assert_eq!(part, [4; 512]);
        // Nor in whole buffers.
        joined.write(3 * 512 - 10, &[9; 20]).unwrap();
        first.read(1024, &mut part).unwrap();
        assert_eq!((part[501], part[502]), (2, 9));
        second.read(0, &mut part).unwrap();
        assert_eq!((part[9], part[10]), (9, 3));
        assert!(joined.write(5 * 512 - 1, &[0; 2]).is_err());
        assert!(joined.read(5 * 512, &mut part).is_err());
    }

    #[test]
    fn only_what_was_written_is_flushed() {
        let devices: Vec<Arc<RecordingDevice>> = (0..2)
            .map(|_| Arc::new(RecordingDevice::new(Arc::new(MemoryDevice::new(1024)))))
            .collect();
        let joined = JoinedDevice::new(devices.iter().map(|d| d.clone() as _).collect(), 512);
        let flushes = || {
            let count = |d: &Arc<RecordingDevice>| {
                let records = d.records();
                let is_flush = |r: &&crate::Record| matches!(r, crate::Record::Flush);
                records.iter().filter(is_flush).count()
            };
            (count(&devices[0]), count(&devices[1]))
        };
        joined.flush().unwrap();
        assert_eq!(flushes(), (0, 0));
        joined.write(0, &[1; 512]).unwrap();
        joined.flush().unwrap();
        assert_eq!(flushes(), (1, 0));
        joined.write(1024, &[1; 512]).unwrap();
        joined.flush().unwrap();
        joined.flush().unwrap();
        assert_eq!(flushes(), (1, 1));
    }

    #[test]
    fn a_failed_flush_is_no_flush() {
        let below = Arc::new(MemoryDevice::new(1024));
        let faulty = Arc::new(FaultDevice::new(below, Loss::Everything));
        let joined = JoinedDevice::new(vec![faulty.clone()], 512);
        faulty.inject(Fault {
            kind: FaultKind::Flush,
            number: 1,
            length: FaultLength::Once,
        });
        joined.write(0, &[1; 512]).unwrap();
        assert!(joined.flush().is_err());
        assert!(joined.flush().is_err(), "it stays failed until it is reset");
        joined.reset_after_failure();
        joined.write(0, &[1; 512]).unwrap();
        joined.flush().unwrap();
    }
}
