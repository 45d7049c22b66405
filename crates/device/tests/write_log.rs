//! The write log: what is written is read back, what a device does is in its log, and no log makes
//! the reader panic.

use backstitch_device::write_log::{
    Entry, EntryFlags, LogError, LogReader, LogWriter, LoggingDevice, MARK_MAX_BYTES,
};
use backstitch_device::{BlockDevice, FileDevice, MemoryDevice, WriteRequest};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("writes.log");
    (dir, path)
}

fn entries(path: &Path) -> Result<Vec<Entry>, LogError> {
    LogReader::open(path)?.collect()
}

fn data(path: &Path, entry: &Entry) -> Vec<u8> {
    let mut bytes = vec![0; entry.len_bytes as usize];
    let log = LogReader::open(path).unwrap();
    log.read_data(entry, 0, &mut bytes).unwrap();
    bytes
}

/// A log of every kind of entry.
fn sample(path: &Path) {
    let mut log = LogWriter::create(path).unwrap();
    log.write(4096, &[1; 1024], EntryFlags::default()).unwrap();
    log.flush().unwrap();
    log.mark("synced é").unwrap();
    log.discard(1 << 30, 1 << 20).unwrap();
    let flags = EntryFlags(EntryFlags::FUA.0 | EntryFlags::FLUSH.0 | EntryFlags::METADATA.0);
    log.write(0, &[2; 512], flags).unwrap();
    log.mark("").unwrap();
}

#[test]
fn reads_what_was_written() {
    let (_dir, path) = scratch();
    sample(&path);
    let found = entries(&path).unwrap();
    let shape: Vec<_> = found
        .iter()
        .map(|e| (e.offset_bytes, e.len_bytes, e.flags.0, e.mark.as_deref()))
        .collect();
    assert_eq!(
        shape,
        [
            (4096, 1024, 0, None),
            (0, 0, 1, None),
            (0, 0, 8, Some("synced é")),
            (1 << 30, 1 << 20, 4, None),
            (0, 512, 19, None),
            (0, 0, 8, Some("")),
        ]
    );
    assert_eq!(data(&path, &found[0]), [1; 1024]);
    assert_eq!(data(&path, &found[4]), [2; 512]);
    let mut log = LogReader::open(&path).unwrap();
    assert_eq!((log.entries(), log.sector_bytes()), (6, 512));
    assert_eq!(log.by_ref().count(), 6);
    assert_eq!(log.rest_bytes(), 0);
    assert!(log.read_data(&found[1], 0, &mut [0]).is_err());
    assert!(log.read_data(&found[0], 1000, &mut [0; 25]).is_err());
}

#[test]
fn long_marks_are_cut_between_characters() {
    let (_dir, path) = scratch();
    let mut log = LogWriter::create(&path).unwrap();
    log.mark(&"é".repeat(400)).unwrap();
    drop(log);
    let found = entries(&path).unwrap();
    let mark = found[0].mark.as_ref().unwrap();
    assert_eq!(*mark, "é".repeat(MARK_MAX_BYTES / 2));
}

#[test]
fn entries_that_nobody_counted_are_not_read() {
    let (_dir, path) = scratch();
    sample(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[16] = 2;
    std::fs::write(&path, &bytes).unwrap();
    let mut log = LogReader::open(&path).unwrap();
    assert_eq!(log.by_ref().count(), 2);
    assert_eq!(log.rest_bytes(), bytes.len() as u64 - 512 - 1536 - 512);
}

/// Changes bytes of a good log and returns what the reader reports.
fn broken(change: impl Fn(&mut Vec<u8>)) -> String {
    let (_dir, path) = scratch();
    sample(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    entries(&path).unwrap_err().to_string()
}

#[test]
fn says_what_is_wrong_with_a_log() {
    let has = |text: String, part: &str| assert!(text.contains(part), "{text} lacks {part}");
    has(broken(|b| b.truncate(100)), "it has 100 bytes");
    has(broken(|b| b[0] = 1), "its magic is");
    has(broken(|b| b[8] = 2), "version 2, not 1");
    has(broken(|b| b[25] = 3), "sectors of 768 bytes");
    has(
        broken(|b| b[16] = 200),
        "but its superblock counts 200 entries",
    );
    has(broken(|b| b[528] = 0x40), "its flags 0x40 are not known");
    has(
        broken(|b| b[520] = 0),
        "entry 0 at byte 512 of the log: it is empty",
    );
    has(broken(|b| b[527] = 0xff), "is no possible one");
    has(broken(|b| b[525] = 0x40), "inside its");
    has(broken(|b| b[2560 + 25] = 9), "a mark of");
    let missing = LogReader::open(Path::new("/nowhere/at.all")).unwrap_err();
    has(missing.to_string(), "cannot open");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(
        places in prop::collection::vec((0_usize..5000, any::<u8>()), 1..8),
        cut in 0_usize..6000,
    ) {
        let (_dir, path) = scratch();
        sample(&path);
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in places {
            let len = bytes.len();
            bytes[at % len] = byte;
        }
        bytes.truncate(cut);
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(log) = LogReader::open(&path) {
            let entries: Vec<_> = log.collect();
            prop_assert!(entries.len() <= bytes.len() / 512);
        }
    }
}

fn logged(size: usize) -> (tempfile::TempDir, PathBuf, Arc<MemoryDevice>, LoggingDevice) {
    let (dir, path) = scratch();
    let memory = Arc::new(MemoryDevice::new(size));
    let device = LoggingDevice::new(memory.clone(), LogWriter::create(&path).unwrap());
    (dir, path, memory, device)
}

#[test]
fn a_device_logs_what_it_is_told() {
    let (_dir, path, memory, device) = logged(8192);
    let buffers = vec![backstitch_device::Buffer::from([1; 512]), [2; 512].into()];
    let request = WriteRequest {
        offset_bytes: 1024,
        buffers,
    };
    device.submit(&[request]).unwrap();
    device.flush().unwrap();
    device.mark("after the first flush").unwrap();
    device.write(1030, b"part").unwrap();
    assert!(!device.discard(0, 512).unwrap(), "memory cannot discard");
    assert_eq!(device.entries(), 4);
    assert!(device.write(8192, b"x").is_err(), "past the end");
    assert_eq!(
        entries(&path).unwrap().len(),
        3,
        "the last one is not counted yet"
    );
    device.count().unwrap();
    assert_eq!(entries(&path).unwrap().len(), 4);
    device.flush().unwrap();
    let found = entries(&path).unwrap();
    assert_eq!(found.len(), 5);
    assert_eq!(
        data(&path, &found[0])[500..524],
        memory.snapshot()[1524..1548]
    );
    assert_eq!(found[1].flags, EntryFlags::FLUSH);
    assert_eq!(found[2].mark.as_deref(), Some("after the first flush"));
    assert_eq!((found[3].offset_bytes, found[3].len_bytes), (1024, 512));
    assert_eq!(
        data(&path, &found[3])[..12],
        *b"\x01\x01\x01\x01\x01\x01part\x01\x01"
    );
}

#[test]
fn a_device_that_ends_within_a_sector_is_logged_with_zeros() {
    let (_dir, path, _memory, device) = logged(700);
    device.write(600, &[7; 100]).unwrap();
    device.flush().unwrap();
    let found = entries(&path).unwrap();
    assert_eq!((found[0].offset_bytes, found[0].len_bytes), (512, 512));
    let bytes = data(&path, &found[0]);
    assert_eq!((bytes[88..188].to_vec(), bytes[188]), (vec![7; 100], 0));
}

#[test]
fn discards_are_logged_where_the_device_takes_them() {
    let (dir, path) = scratch();
    let file = FileDevice::create(&dir.path().join("disk.img"), 1 << 16).unwrap();
    let device = LoggingDevice::new(Arc::new(file), LogWriter::create(&path).unwrap());
    if !device.discard(4096, 8192).unwrap() {
        return; // The host's file system cannot.
    }
    drop(device);
    let found = entries(&path).unwrap();
    assert_eq!(found[0].flags, EntryFlags::DISCARD);
    assert_eq!((found[0].offset_bytes, found[0].len_bytes), (4096, 8192));
}

/// A log can state the discard of whole sectors only.
#[test]
fn the_ends_of_a_discard_within_sectors_are_logged_as_writes() {
    let (dir, path) = scratch();
    let file = FileDevice::create(&dir.path().join("disk.img"), 1 << 16).unwrap();
    let device = LoggingDevice::new(Arc::new(file), LogWriter::create(&path).unwrap());
    device.write(0, &[7; 16384]).unwrap();
    for (offset_bytes, len_bytes) in [(100, 1000), (4000, 8300), (13000, 40), (13300, 48)] {
        if !device.discard(offset_bytes, len_bytes).unwrap() {
            return; // The host's file system cannot.
        }
    }
    let mut there = vec![0; 16384];
    device.read(0, &mut there).unwrap();
    drop(device);
    let mut replayed = vec![0; 16384];
    for entry in entries(&path).unwrap() {
        let at = entry.offset_bytes as usize;
        let range = &mut replayed[at..at + entry.len_bytes as usize];
        match entry.flags.contains(EntryFlags::DISCARD) {
            true => range.fill(0),
            false => range.copy_from_slice(&data(&path, &entry)),
        }
    }
    assert!(replayed == there);
    assert_eq!(
        (there[99], there[100], there[1099], there[1100]),
        (7, 0, 0, 7)
    );
}
