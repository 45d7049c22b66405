//! How much of a log is read, and in how many requests.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use backstitch_device::{BlockDevice, MemoryDevice, Result, WriteRequest};
use backstitch_wafs::{Log, Lsn, Wafs, host_clock};

/// Where the log begins, behind the superblocks.
const LOG: u64 = backstitch_wafs::format::LOG_OFFSET_BYTES;

/// Notes what is read of the log.
struct Noting {
    below: Arc<MemoryDevice>,
    is_announced: bool,
    reads: Mutex<Vec<Range<u64>>>,
}

impl Noting {
    fn new(below: &Arc<MemoryDevice>, is_announced: bool) -> Noting {
        Noting {
            below: below.clone(),
            is_announced,
            reads: Mutex::default(),
        }
    }

    /// The requests, their bytes, and the end of what was read.
    fn take(&self) -> (usize, u64, u64) {
        let reads = std::mem::take(&mut *self.reads.lock().unwrap());
        let bytes = reads.iter().map(|read| read.end - read.start).sum();
        let end = reads.iter().map(|read| read.end).max();
        (reads.len(), bytes, end.unwrap_or(0))
    }
}

impl BlockDevice for Noting {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn name(&self) -> String {
        "noting".into()
    }

    fn notes_reads(&self) -> bool {
        self.is_announced
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        if let Some(at) = offset_bytes.checked_sub(LOG) {
            let end = at + buffer.len() as u64;
            self.reads.lock().unwrap().push(at..end);
        }
        self.below.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        self.below.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.below.flush()
    }
}

/// A log of 16 MiB with this many records of 200 bytes, as a crash leaves it; and its end.
fn crashed(records: usize) -> (Arc<MemoryDevice>, u64) {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    Wafs::make(&*device, [1; 16], 0).unwrap();
    let wafs = Wafs::mount(device.clone(), host_clock()).unwrap();
    for record in 0..records {
        wafs.append(&[record as u8; 160]).unwrap();
    }
    let end = wafs.sync_all().unwrap();
    (device, end.0)
}

#[test]
fn the_end_is_found_with_few_requests_and_little_is_read_behind_it() {
    for records in [0, 1, 30, 1000, 50_000] {
        let (device, end) = crashed(records);
        assert_eq!(end, records as u64 * 200);
        let device = Noting::new(&device, false);
        let log = Log::open(&device).unwrap();
        assert_eq!(log.end(), Lsn(end));
        let (requests, bytes, last) = device.take();
        println!("{records} records, {end} bytes: {requests} requests, {bytes} bytes to {last}");
        // At most twice what is in use, in whole blocks, and never more than a piece of 1 MiB
        // ahead.
        let most = (2 * end).min(end + (1 << 20)) + 2 * 4096;
        assert!(last <= most && bytes <= most, "{bytes} bytes to {last}");
        assert!(requests <= 12 + (end >> 20) as usize, "{requests} requests");
        let found = log.found_behind_superblock();
        assert_eq!(found, records as u64);
    }
}

#[test]
fn nothing_is_read_in_vain_where_reads_are_noted() {
    let (device, end) = crashed(1000);
    let device = Noting::new(&device, true);
    let log = Log::open(&device).unwrap();
    assert_eq!(log.end(), Lsn(end));
    // Up to the header of a record that is not there.
    assert_eq!(device.take().2, end + 40);
}

#[test]
fn kept_records_are_read_once() {
    let (device, end) = crashed(20_000);
    let device = Noting::new(&device, false);
    let log = Log::open(&device).unwrap();
    device.take();
    let mut records = log.kept_records(Lsn(0)).unwrap();
    for _ in 0..3 {
        let mut count = 0;
        while let Some(record) = records.next().unwrap() {
            assert_eq!(record.payload, [count as u8; 160]);
            count += 1;
        }
        assert_eq!(count, 20_000);
        records.rewind();
    }
    assert_eq!(device.take(), (1, end, end));
    let as_found = Log::as_found(&device, *log.superblock(), log.end());
    assert_eq!(as_found.start(), log.start());
    assert!(as_found.records(Lsn(0)).unwrap().next().unwrap().is_some());
}
