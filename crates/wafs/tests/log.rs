//! The life of a log without crashes: what is read back, a full log, many writers, failing devices,
//! hostile images.

use backstitch_device::{
    BlockDevice, DeviceError, Fault, FaultDevice, FaultKind, FaultLength, Loss, MappedDevice,
    MemoryDevice,
};
use backstitch_wafs::{CheckReport, Log, Lsn, Record, Wafs, WafsError, check, host_clock};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn log_on(size_bytes: usize) -> (Arc<MemoryDevice>, Wafs) {
    let device = Arc::new(MemoryDevice::new(size_bytes));
    Wafs::make(&*device, *b"sixteen bytes  .", 0).unwrap();
    let wafs = Wafs::mount(device.clone(), host_clock()).unwrap();
    (device, wafs)
}

fn payloads(records: &mut backstitch_wafs::Records<'_>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(record) = records.next().unwrap() {
        all.push(record.payload.to_vec());
    }
    all
}

#[test]
fn an_empty_log_has_no_records() {
    let (device, wafs) = log_on(1 << 16);
    assert_eq!(
        (wafs.start(), wafs.end(), wafs.last()),
        (Lsn(0), Lsn(0), None)
    );
    assert!(wafs.records(Lsn(0)).unwrap().next().unwrap().is_none());
    assert_eq!(wafs.sync_all().unwrap(), Lsn(0));
    let error = wafs.sync(Lsn(0)).unwrap_err();
    assert!(matches!(error, WafsError::NotWritten { .. }), "{error}");
    wafs.unmount().unwrap();
    let report = check(&*device).unwrap();
    assert!(report.was_unmounted && report.records == 0 && report.damage.is_empty());
}

#[test]
fn records_are_read_by_lsn_in_order_and_backwards() {
    let (device, wafs) = log_on(1 << 20);
    let texts: Vec<String> = (0..2000).map(|i| format!("record {i}")).collect();
    let lsns: Vec<Lsn> = texts
        .iter()
        .map(|t| wafs.append(t.as_bytes()).unwrap())
        .collect();
    assert!(
        payloads(&mut wafs.records(lsns[0]).unwrap())
            .iter()
            .eq(texts.iter().map(String::as_bytes))
    );
    let mut at = wafs.last();
    for (lsn, text) in lsns.iter().zip(&texts).rev() {
        assert_eq!(at, Some(*lsn));
        let mut records = wafs.records(*lsn).unwrap();
        let Record {
            previous,
            payload,
            mount,
            ..
        } = records.next().unwrap().unwrap();
        assert_eq!((payload, mount), (text.as_bytes(), 1));
        at = previous;
    }
    assert_eq!(at, None);
    // A reader sees exactly what was written.
    let reader = Log::open(&*device).unwrap();
    assert_eq!(reader.end(), wafs.end());
    let error = reader.records(Lsn(wafs.end().0 + 8)).err();
    assert!(matches!(error, Some(WafsError::NotWritten { .. })));
    let error = wafs.records(Lsn(8)).unwrap().next().unwrap_err();
    assert!(
        error.to_string().contains("no record begins here"),
        "{error}"
    );
}

#[test]
fn a_reader_follows_a_log_that_is_written_and_turns() {
    let (device, wafs) = log_on(8192 + 16_384);
    let mut reader = Log::open(&*device).unwrap();
    let mut next = reader.end();
    for i in 0..200_u32 {
        let lsn = wafs.append(&[i as u8; 700]).unwrap();
        wafs.sync(lsn).unwrap();
        reader.refresh().unwrap();
        let mut records = reader.records(next).unwrap();
        let record = records.next().unwrap().unwrap();
        assert_eq!((record.lsn, record.payload), (lsn, &[i as u8; 700][..]));
        next = record.next;
        if i % 8 == 7 {
            wafs.checkpoint(lsn).unwrap();
        }
    }
    let figures = wafs.figures();
    assert!(
        figures.turns >= 8 && figures.checkpoints == 25,
        "{figures:?}"
    );
}

#[test]
fn a_full_log_says_so_and_a_checkpoint_makes_room() {
    let (device, wafs) = log_on(8192 + 16_384);
    let mut lsns = Vec::new();
    let full = loop {
        match wafs.append(&[7; 1000]) {
            Ok(lsn) => lsns.push(lsn),
            Err(error) => break error,
        }
    };
    let WafsError::Full {
        needed_bytes,
        free_bytes,
    } = full
    else {
        panic!("{full}")
    };
    assert_eq!((needed_bytes, lsns.len()), (1040, 15));
    assert_eq!(free_bytes, wafs.free_bytes());
    // A smaller record still fits, to the last byte.
    wafs.append(&vec![1; free_bytes as usize - 40]).unwrap();
    assert_eq!(wafs.free_bytes(), 0);
    assert!(matches!(wafs.append(&[]), Err(WafsError::Full { .. })));
    wafs.checkpoint(lsns[5]).unwrap();
    wafs.append(&[7; 1000]).unwrap();
    let gone = wafs.checkpoint(lsns[4]).unwrap_err();
    assert!(matches!(gone, WafsError::Gone { .. }), "{gone}");
    assert!(matches!(wafs.records(lsns[0]), Err(WafsError::Gone { .. })));
    let middle = wafs.checkpoint(Lsn(lsns[6].0 + 8)).unwrap_err();
    assert!(matches!(middle, WafsError::NotARecord { .. }), "{middle}");
    wafs.checkpoint(wafs.end()).unwrap();
    assert_eq!(wafs.last(), None);
    wafs.unmount().unwrap();
    let report = check(&*device).unwrap();
    assert!(report.start == report.end && report.damage.is_empty());
}

#[test]
fn records_that_are_too_long_and_devices_that_are_too_small_are_refused() {
    let (_, wafs) = log_on(8192 + 16_384);
    let most = wafs.longest_payload() as usize;
    assert_eq!(most, 4096 - 40);
    wafs.append(&vec![0; most]).unwrap();
    let error = wafs.append(&vec![0; most + 1]).unwrap_err();
    assert!(matches!(error, WafsError::TooLong { .. }), "{error}");
    let small = MemoryDevice::new(8192 + 16_383);
    let error = Wafs::make(&small, [0; 16], 0).unwrap_err();
    assert!(error.to_string().contains("at least 24576"), "{error}");
}

#[test]
fn an_interrupted_mount_is_recovered_and_counted() {
    let (device, wafs) = log_on(1 << 20);
    wafs.append(b"one").unwrap();
    let second = wafs.append(b"two").unwrap();
    wafs.sync(second).unwrap();
    wafs.append(b"never written").unwrap();
    drop(wafs);
    let wafs = Wafs::mount(device.clone(), host_clock()).unwrap();
    let recovered = wafs.recovered();
    assert!(recovered.was_in_use);
    assert_eq!((recovered.records, recovered.bytes), (2, 96));
    wafs.append(b"three").unwrap();
    wafs.unmount().unwrap();
    let wafs = Wafs::mount(device, host_clock()).unwrap();
    assert_eq!(wafs.recovered(), Default::default());
    let all = payloads(&mut wafs.records(Lsn(0)).unwrap());
    assert_eq!(all, [&b"one"[..], b"two", b"three"]);
}

#[test]
fn one_flush_serves_many_writers() {
    /// Flushes slowly, and counts.
    struct Slow(MemoryDevice, AtomicU64);
    impl BlockDevice for Slow {
        fn size_bytes(&self) -> u64 {
            self.0.size_bytes()
        }
        fn name(&self) -> String {
            "slow".into()
        }
        fn read(&self, at: u64, buffer: &mut [u8]) -> backstitch_device::Result<()> {
            self.0.read(at, buffer)
        }
        fn submit(
            &self,
            batch: &[backstitch_device::WriteRequest],
        ) -> backstitch_device::Result<()> {
            self.0.submit(batch)
        }
        fn flush(&self) -> backstitch_device::Result<()> {
            std::thread::sleep(std::time::Duration::from_millis(2));
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }
    let device = Arc::new(Slow(MemoryDevice::new(1 << 22), AtomicU64::new(0)));
    Wafs::make(&*device, [1; 16], 0).unwrap();
    let wafs = Wafs::mount(device.clone(), host_clock()).unwrap();
    let before = device.1.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for writer in 0..8_u8 {
            let wafs = &wafs;
            scope.spawn(move || {
                for i in 0..50_u8 {
                    let lsn = wafs.append(&[writer, i]).unwrap();
                    wafs.sync(lsn).unwrap();
                    assert!(wafs.stable() > lsn);
                }
            });
        }
    });
    let flushes = device.1.load(Ordering::Relaxed) - before;
    assert!(flushes < 200, "400 records took {flushes} flushes");
    // Each writer's records are in that writer's order.
    let all = payloads(&mut wafs.records(Lsn(0)).unwrap());
    assert_eq!(all.len(), 400);
    for writer in 0..8 {
        let his = all.iter().filter(|payload| payload[0] == writer);
        assert!(his.map(|payload| payload[1]).eq(0..50));
    }
}

#[test]
fn many_writers_fill_memory_faster_than_the_device_takes_it() {
    let (device, wafs) = log_on(64 << 20);
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let wafs = &wafs;
            scope.spawn(move || {
                let payload = vec![writer; 50_000];
                for _ in 0..250 {
                    wafs.append(&payload).unwrap();
                }
            });
        }
    });
    let end = wafs.sync_all().unwrap();
    let report = check(&*device).unwrap();
    assert_eq!(
        (report.end, report.records, report.damage.len()),
        (end, 1000, 0)
    );
}

#[test]
fn nothing_is_acknowledged_after_a_failure() {
    for (kind, loss) in [
        (FaultKind::Write, Loss::Half),
        (FaultKind::Flush, Loss::Half),
        (FaultKind::Flush, Loss::Everything),
    ] {
        let inner = Arc::new(MemoryDevice::new(1 << 20));
        Wafs::make(&*inner, [1; 16], 0).unwrap();
        let device = Arc::new(FaultDevice::new(inner.clone(), loss));
        let wafs = Wafs::mount(device.clone(), host_clock()).unwrap();
        let good = wafs.append(b"good").unwrap();
        wafs.sync(good).unwrap();
        let counts = device.counts();
        let number = match kind {
            FaultKind::Write => counts.writes + 1,
            _ => counts.flushes + 1,
        };
        let length = FaultLength::Once;
        device.inject(Fault {
            kind,
            number,
            length,
        });
        let bad = wafs.append(b"bad").unwrap();
        for _ in 0..2 {
            assert!(
                matches!(wafs.sync(bad), Err(WafsError::Device(_))),
                "{kind:?}"
            );
        }
        wafs.sync(good).unwrap();
        assert!(wafs.append(b"more").is_err() && wafs.checkpoint(good).is_err());
        assert!(wafs.unmount().is_err());
        let report = check(&*inner).unwrap();
        assert!(
            report.damage.is_empty() && report.records >= 1,
            "{report:?}"
        );
    }
}

#[test]
fn a_mapped_file_is_a_log_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nvram");
    std::fs::write(&path, vec![0; 1 << 16]).unwrap();
    let device = Arc::new(MappedDevice::open(&path).unwrap());
    Wafs::make(&*device, [3; 16], 0).unwrap();
    let wafs = Wafs::mount(device, host_clock()).unwrap();
    let lsn = wafs.append(b"kept").unwrap();
    wafs.sync(lsn).unwrap();
    drop(wafs);
    let device = MappedDevice::open(&path).unwrap();
    let CheckReport {
        records, damage, ..
    } = check(&device).unwrap();
    assert_eq!((records, damage.len()), (1, 0));
}

#[test]
fn what_is_no_log_is_told_from_one_that_is_damaged() {
    let error = Log::open(&MemoryDevice::new(100)).err().unwrap();
    assert!(matches!(error, WafsError::NotALog { .. }), "{error}");
    let error = Log::open(&MemoryDevice::new(1 << 16)).err().unwrap();
    assert!(error.to_string().contains("wafs mkfs"), "{error}");
    let (device, wafs) = log_on(1 << 16);
    let lsn = wafs.append(b"one").unwrap();
    wafs.append(b"two").unwrap();
    wafs.unmount().unwrap();
    let whole = device.snapshot();
    let damaged = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        MemoryDevice::from_bytes(bytes)
    };
    // A byte of an acknowledged payload: the check reports it, and so does a reader.
    let device = damaged(8192 + lsn.0 as usize + 41);
    let report = check(&device).unwrap();
    assert_eq!((report.records, report.damage.len()), (0, 1), "{report:?}");
    let log = Log::open(&device).unwrap();
    let error = log.records(lsn).unwrap().next().unwrap_err();
    assert!(error.to_string().contains("payload is damaged"), "{error}");
    // A byte of the newer superblock: the older one describes the log before the unmount.
    let device = MemoryDevice::from_bytes(whole.clone());
    let newer = Log::open(&device).unwrap();
    let block = newer.superblock().block();
    let device = damaged(block as usize * 4096 + 40);
    let report = check(&device).unwrap();
    assert_eq!((report.records, report.damage.len()), (2, 1), "{report:?}");
    let mut bytes = whole.clone();
    bytes[40] ^= 1;
    bytes[4096 + 40] ^= 1;
    let error = Log::open(&MemoryDevice::from_bytes(bytes)).err().unwrap();
    assert!(matches!(error, WafsError::Superblocks { .. }), "{error}");
    // A later version.
    let mut bytes = whole;
    for block in [0, 4096] {
        bytes[block + 8] = 9;
        bytes[block + 12..block + 16].fill(0);
        let checksum = crc32c::crc32c(&bytes[block..block + 512]);
        bytes[block + 12..block + 16].copy_from_slice(&checksum.to_le_bytes());
    }
    let error = Log::open(&MemoryDevice::from_bytes(bytes)).err().unwrap();
    assert!(error.to_string().contains("version 9"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Random bytes of the superblocks and of the log are changed; in half of the cases the
    /// checksums are made right again. Every call returns a result or an error, and nothing is
    /// written outside the device.
    #[test]
    fn an_image_that_means_harm_is_survived(
        changes in prop::collection::vec((0..8192 + 600_usize, any::<u8>()), 1..20),
        mends in any::<bool>(),
    ) {
        let (device, wafs) = log_on(8192 + 16_384);
        for i in 0..8_u8 {
            wafs.append(&[i; 30]).unwrap();
        }
        wafs.sync_all().unwrap();
        drop(wafs);
        let mut bytes = device.snapshot();
        changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        for block in [0, 4096] {
            if mends {
                bytes[block + 12..block + 16].fill(0);
                let checksum = crc32c::crc32c(&bytes[block..block + 512]);
                bytes[block + 12..block + 16].copy_from_slice(&checksum.to_le_bytes());
            }
        }
        let device = Arc::new(MemoryDevice::from_bytes(bytes));
        let _ = check(&*device);
        if let Ok(wafs) = Wafs::mount(device, host_clock()) {
            while let Ok(lsn) = wafs.append(&[1; 100]) {
                prop_assert!(wafs.sync(lsn).is_ok());
            }
            let _ = wafs.checkpoint(wafs.end());
            let _ = wafs.append(&[2; 100]);
            let unmounted = wafs.unmount();
            let is_outside = matches!(unmounted, Err(WafsError::Device(DeviceError::OutOfRange { .. })));
            prop_assert!(!is_outside, "{:?}", unmounted);
        }
    }
}
