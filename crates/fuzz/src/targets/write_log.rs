//! A log of a device's writes, in the format of Linux (dm-log-writes) and QEMU.
//!
//! The input is a log as it is, or the fields of its entries. The first byte tells which.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use backstitch_crash_device::Recording;
use backstitch_device::write_log::LogReader;
use tempfile::TempDir;

use crate::Input;

const SECTOR_BYTES: usize = 512;
const BASE_BYTES: u64 = 64 << 10;
/// The most moments that are explored.
const MOMENTS: usize = 200;

/// The files that the readers need, made once.
struct Files {
    log: PathBuf,
    base: PathBuf,
    _directory: TempDir,
}

impl Files {
    fn new() -> Files {
        let directory = TempDir::new().expect("a temporary directory");
        let (log, base) = (directory.path().join("log"), directory.path().join("base"));
        let file = File::create(&base).expect("a file in it");
        file.set_len(BASE_BYTES).expect("a sparse file");
        Files {
            log,
            base,
            _directory: directory,
        }
    }
}

/// Entries are inside the log, and in the order of their numbers.
pub fn run(bytes: &[u8]) {
    static FILES: OnceLock<Mutex<Files>> = OnceLock::new();
    let files = FILES.get_or_init(|| Mutex::new(Files::new()));
    let files = files.lock().unwrap_or_else(PoisonError::into_inner);
    let mut input = Input::new(bytes);
    let log = match input.byte() % 2 {
        0 => input.rest().to_vec(),
        _ => composed(&mut input),
    };
    let mut file = File::create(&files.log).expect("a file of our own");
    file.write_all(&log).expect("room for it");
    read(&files.log, log.len() as u64);
    record(&files.base, &files.log);
}

/// A log with its sectors in the right places and the input's values in them.
fn composed(input: &mut Input<'_>) -> Vec<u8> {
    let counted = input.byte();
    let mut log = vec![0; SECTOR_BYTES];
    let mut entries = 0_u64;
    while !input.is_empty() && entries < 64 {
        let (sector, sectors) = (u64::from(input.word()), u64::from(input.byte() % 16));
        let (flags, length) = (u64::from(input.byte()), u64::from(input.word()));
        let (sector, sectors) = match input.byte() {
            0xff => (input.long(), input.long()),
            _ => (sector, sectors),
        };
        let mut head = [sector, sectors, flags, length]
            .map(u64::to_le_bytes)
            .concat();
        head.extend(input.bytes(usize::from(length as u8 % 16)));
        head.resize(SECTOR_BYTES, b'm');
        log.extend(head);
        if flags & 4 == 0 && sectors < 16 {
            log.resize(log.len() + sectors as usize * SECTOR_BYTES, b'd');
        }
        entries += 1;
    }
    let counted = match counted {
        0xff => u64::MAX,
        _ => entries.saturating_sub(u64::from(counted % 4)),
    };
    let magic = 0x006a_7366_7773_6872_u64;
    let head = [magic, 1, counted].map(u64::to_le_bytes).concat();
    log[..24].copy_from_slice(&head);
    log[24..28].copy_from_slice(&(SECTOR_BYTES as u32).to_le_bytes());
    log
}

fn read(path: &Path, length: u64) {
    let Ok(mut log) = LogReader::open(path) else {
        return;
    };
    let mut found = Vec::new();
    while let Some(Ok(entry)) = log.next() {
        assert_eq!(entry.number, found.len() as u64);
        assert!(entry.offset_bytes.checked_add(entry.len_bytes).is_some());
        if entry.has_data() {
            assert!(entry.data_at_bytes + entry.len_bytes <= length);
        }
        found.push(entry);
    }
    assert!(log.next().is_none() && log.rest_bytes() <= length);
    for entry in found.iter().filter(|entry| entry.has_data()) {
        let mut last = [0];
        let read = log.read_data(entry, entry.len_bytes - 1, &mut last);
        read.expect("the data of an entry that was checked");
        assert!(log.read_data(entry, entry.len_bytes, &mut last).is_err());
    }
}

fn record(base: &Path, log: &Path) {
    let Ok(recording) = Recording::open(base, log) else {
        return;
    };
    assert!(recording.flushes() as u64 <= recording.entries());
    let moments = recording.moments();
    for moment in moments.iter().take(MOMENTS) {
        let again = recording.moment_at(moment.cut, moment.in_flight);
        assert!(again.is_some());
        let optional = recording.optional(moment);
        let segments = recording.segments(moment, &optional);
        assert_eq!(segments.len(), optional.len());
        assert!(segments.is_sorted());
        assert!(
            optional
                .iter()
                .all(|index| *index < recording.changes().len())
        );
    }
}
