//! A device that remembers every write and flush, and the states that a power cut could have left.
//!
//! The fault model: a power cut happens between two records. Everything written before the last
//! flush is there; every later write is there or not, each buffer for itself, wholly or (torn) unit
//! by unit. Two writes to the same place keep their order.

use crate::{BlockDevice, Buffer, Result, WriteRequest};
use parking_lot::Mutex;
use std::sync::Arc;

/// Something that happened to a [`RecordingDevice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// One buffer of a request was submitted. A request of several buffers leaves one record for
    /// each, since nothing keeps a drive from storing only some of them.
    Write {
        /// Where it was written.
        offset_bytes: u64,
        /// Its contents.
        bytes: Buffer,
    },
    /// A flush has succeeded.
    Flush,
    /// The test noted something (an operation's end, for example).
    Mark(String),
}

/// Passes everything on to another device and remembers the writes and flushes in their order.
pub struct RecordingDevice {
    inner: Arc<dyn BlockDevice>,
    records: Mutex<Vec<Record>>,
}

impl RecordingDevice {
    /// Starts recording what goes to `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self {
            inner,
            records: Mutex::new(Vec::new()),
        }
    }

    /// Everything recorded so far.
    pub fn records(&self) -> Vec<Record> {
        self.records.lock().clone()
    }

    /// The number of records so far: a cut that comes after everything that has happened.
    pub fn len(&self) -> usize {
        self.records.lock().len()
    }

    /// Whether nothing has been recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a remark to the records.
    pub fn mark(&self, remark: impl Into<String>) {
        self.records.lock().push(Record::Mark(remark.into()));
    }
}

impl BlockDevice for RecordingDevice {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.inner.atomic_unit_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        // The lock is held during the device's work, so that the records are in the right order: a
        // write that was submitted during a flush must not seem to be covered by it.
        let mut records = self.records.lock();
        for request in batch {
            let mut offset_bytes = request.offset_bytes;
            for buffer in &request.buffers {
                records.push(Record::Write {
                    offset_bytes,
                    bytes: buffer.clone(),
                });
                offset_bytes += buffer.len() as u64;
            }
        }
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        let mut records = self.records.lock();
        self.inner.flush()?;
        records.push(Record::Flush);
        Ok(())
    }

    fn reset_after_failure(&self) {
        self.inner.reset_after_failure();
    }
}

/// The records before `cut` that are writes and that no flush before `cut` covers: those that a
/// power cut there may lose.
pub fn unflushed(records: &[Record], cut: usize) -> impl Iterator<Item = usize> + '_ {
    let cut = cut.min(records.len());
    let first = last_flush(records, cut);
    (first..cut).filter(|&index| matches!(records[index], Record::Write { .. }))
}

/// The first record after the last flush before `cut`.
fn last_flush(records: &[Record], cut: usize) -> usize {
    records[..cut]
        .iter()
        .rposition(|record| *record == Record::Flush)
        .map_or(0, |at| at + 1)
}

/// Turns `base`, the device's bytes when recording began, into what a power cut before record `cut`
/// leaves: every write that a flush covers, and those of the [`unflushed`] ones for which `keep`
/// returns true. `keep` is called once for each.
///
/// # Panics
///
/// If a record lies outside `base`, which is then not the recorded device's.
pub fn materialise(
    base: &mut [u8],
    records: &[Record],
    cut: usize,
    keep: &mut dyn FnMut(usize) -> bool,
) {
    materialise_torn(base, records, cut, usize::MAX, &mut |index, _| keep(index));
}

/// As [`materialise`], with writes torn at multiples of `unit_bytes`: `keep` is asked for each unit
/// of each unflushed write, by the record's index and the unit's number within the record.
///
/// # Panics
///
/// As [`materialise`]; also if `unit_bytes` is zero.
pub fn materialise_torn(
    base: &mut [u8],
    records: &[Record],
    cut: usize,
    unit_bytes: usize,
    keep: &mut dyn FnMut(usize, usize) -> bool,
) {
    let cut = cut.min(records.len());
    let stable = last_flush(records, cut);
    for (index, record) in records[..cut].iter().enumerate() {
        let Record::Write {
            offset_bytes,
            bytes,
        } = record
        else {
            continue;
        };
        let mut at = *offset_bytes as usize;
        for (number, unit) in bytes.chunks(unit_bytes).enumerate() {
            if index < stable || keep(index, number) {
                base[at..at + unit.len()].copy_from_slice(unit);
            }
            at += unit.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn recorded() -> (RecordingDevice, Vec<u8>) {
        let device = RecordingDevice::new(Arc::new(MemoryDevice::new(16)));
        device.write(0, b"aa").unwrap();
        device.flush().unwrap();
        device.mark("first");
        device.write(0, b"bb").unwrap();
        device.write(4, b"cc").unwrap();
        device.flush().unwrap();
        device.write(4, b"dd").unwrap();
        (device, vec![b'.'; 6])
    }

    fn state(cut: usize, kept: &[usize]) -> Vec<u8> {
        let (device, mut base) = recorded();
        materialise(&mut base, &device.records(), cut, &mut |index| {
            kept.contains(&index)
        });
        base
    }

    #[test]
    fn remembers_what_happened_in_order() {
        let (device, _) = recorded();
        let records = device.records();
        assert_eq!(records.len(), device.len());
        assert_eq!(records[1], Record::Flush);
        assert_eq!(records[2], Record::Mark("first".into()));
        assert_eq!(
            records[6],
            Record::Write {
                offset_bytes: 4,
                bytes: Buffer::from(&b"dd"[..])
            }
        );
        let mut buffer = [0; 6];
        device.read(0, &mut buffer).unwrap();
        assert_eq!(&buffer, b"bb\0\0dd");
    }

    #[test]
    fn a_request_of_several_buffers_leaves_a_record_for_each() {
        let device = RecordingDevice::new(Arc::new(MemoryDevice::new(16)));
        let buffers = vec![Buffer::from(&b"ab"[..]), Buffer::from(&b"cd"[..])];
        device
            .submit(&[WriteRequest {
                offset_bytes: 3,
                buffers,
            }])
            .unwrap();
        let second = Record::Write {
            offset_bytes: 5,
            bytes: Buffer::from(&b"cd"[..]),
        };
        assert_eq!(device.records()[1], second);
    }

    #[test]
    fn only_unflushed_writes_can_be_lost() {
        let (device, _) = recorded();
        let records = device.records();
        assert_eq!(unflushed(&records, 5).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(unflushed(&records, 6).count(), 0);
        assert_eq!(unflushed(&records, usize::MAX).collect::<Vec<_>>(), [6]);
        assert_eq!(state(5, &[]), b"aa....");
        assert_eq!(state(5, &[4]), b"aa..cc");
        assert_eq!(state(5, &[3]), b"bb....");
        assert_eq!(state(6, &[]), b"bb..cc");
        assert_eq!(state(99, &[6]), b"bb..dd");
        assert_eq!(state(0, &[0]), b"......");
    }

    #[test]
    fn torn_writes_are_kept_unit_by_unit() {
        let device = RecordingDevice::new(Arc::new(MemoryDevice::new(16)));
        device.write(1, b"abcde").unwrap();
        let mut base = vec![b'.'; 8];
        let mut asked = Vec::new();
        materialise_torn(&mut base, &device.records(), 1, 2, &mut |index, unit| {
            asked.push((index, unit));
            unit != 1
        });
        assert_eq!(base, b".ab..e..");
        assert_eq!(asked, [(0, 0), (0, 1), (0, 2)]);
    }
}
