//! What a crash may leave in a log, and what recovery makes of it, without a file system.

use std::sync::Arc;
use std::time::Instant;

use backstitch_device::{BlockDevice, FaultDevice, FileDevice, Loss, MemoryDevice, OpenOptions};
use backstitch_lffs::record::{ENDS_GROUP, RawOperation, RawSpan};
use backstitch_lffs::{Error, Home, LogDevice, LogMap, RecordFault, Unmounted};
use backstitch_wafs::format::LOG_OFFSET_BYTES;
use backstitch_wafs::{Wafs, host_clock};
use zerocopy::IntoBytes;

const BLOCK: u32 = 1024;
/// The log is in two runs, of which the first one lies behind the second.
const RUNS: [std::ops::Range<u64>; 2] = [200..240, 100..180];

fn made() -> (MemoryDevice, Arc<LogMap>) {
    let device = MemoryDevice::new(256 * BLOCK as usize);
    let map = Arc::new(LogMap::new(BLOCK, RUNS));
    Wafs::make(&LogDevice::new(&device, map.clone()), [5; 16], 0).unwrap();
    (device, map)
}

fn home(device: &dyn BlockDevice) -> Home<'_> {
    Home {
        device,
        block_bytes: BLOCK,
        blocks: 256,
        has_log: true,
    }
}

fn block(device: &MemoryDevice, number: usize) -> Vec<u8> {
    device.snapshot()[number * BLOCK as usize..][..BLOCK as usize].to_vec()
}

#[test]
fn a_map_leads_to_its_runs_and_back() {
    let map = LogMap::new(BLOCK, RUNS);
    assert_eq!(map.bytes(), 120 * u64::from(BLOCK));
    assert_eq!(map.block(0), Some(200));
    assert_eq!(map.block(40 * 1024 - 1), Some(239));
    assert_eq!(map.block(40 * 1024), Some(100));
    assert_eq!(map.block(120 * 1024), None);
    assert!(map.has(239) && map.has(100) && !map.has(180) && !map.has(240));
    assert_eq!(map.behind(1000).block(1024), Some(1201));
}

#[test]
fn a_group_comes_home_as_often_as_one_likes_and_is_gone_once_the_log_is_empty() {
    let (device, map) = made();
    // Zeros at the end of the block are not in the record, but come home.
    device
        .write(7 * u64::from(BLOCK), &[9; BLOCK as usize])
        .unwrap();
    let mut new = vec![3; BLOCK as usize];
    new[500..].fill(0);
    let mut log = Unmounted::open(&device, &map).unwrap();
    assert!(log.is_clean());
    log.write_alone(&[(7, new.clone()), (90, vec![4; BLOCK as usize])])
        .unwrap();
    let log = Unmounted::open(&device, &map).unwrap();
    assert!(!log.is_empty() && !log.is_clean());
    for _ in 0..2 {
        let done = log.replay(&home(&device)).unwrap();
        assert_eq!((done.groups, done.blocks, done.undone), (1, 2, 0));
        assert_eq!(block(&device, 7), new);
        assert_eq!(block(&device, 90), vec![4; BLOCK as usize]);
    }
    let mut log = Unmounted::open(&device, &map).unwrap();
    log.empty(true).unwrap();
    let log = Unmounted::open(&device, &map).unwrap();
    assert!(log.is_clean());
    assert_eq!(log.replay(&home(&device)).unwrap().records, 0);
}

#[test]
fn a_torn_group_does_not_count_and_nothing_of_it_ever_does() {
    let (device, map) = made();
    let before = device.snapshot();
    let mut log = Unmounted::open(&device, &map).unwrap();
    log.write_alone(&[(7, vec![3; 1024]), (8, vec![4; 1024]), (9, vec![5; 1024])])
        .unwrap();
    let written = device.snapshot();
    let blocks: Vec<u64> = RUNS.into_iter().flatten().collect();
    // A mount's superblock is on the disk before its records are.
    let records = blocks
        .iter()
        .filter(|b| map.block(8192) <= Some(**b) || **b < 200);
    let mut torn = 0;
    for lost in records {
        let at = *lost as usize * BLOCK as usize;
        let mut state = written.clone();
        if state[at..at + 1024] == before[at..at + 1024] {
            continue;
        }
        state[at..at + 1024].copy_from_slice(&before[at..at + 1024]);
        torn += 1;
        let device = MemoryDevice::from_bytes(state);
        let mut log = Unmounted::open(&device, &map).unwrap();
        let done = log.replay(&home(&device)).unwrap();
        assert_eq!((done.groups, done.blocks), (0, 0));
        assert_eq!(block(&device, 7), vec![0; 1024]);
        // The records left behind do not continue what is written next.
        log.write_alone(&[(10, vec![6; 1024])]).unwrap();
        let log = Unmounted::open(&device, &map).unwrap();
        let done = log.replay(&home(&device)).unwrap();
        assert_eq!((done.groups, done.blocks), (1, 1));
        assert_eq!(block(&device, 9), vec![0; 1024]);
    }
    assert!(torn >= 3, "{torn}");
}

#[test]
fn what_a_log_says_of_blocks_that_are_not_its_files_systems_is_refused() {
    for (number, fault) in [
        (256, RecordFault::NoSuchBlock(256)),
        (150, RecordFault::OwnBlock(150)),
    ] {
        let (device, map) = made();
        let mut log = Unmounted::open(&device, &map).unwrap();
        log.write_alone(&[(number, vec![3; 1024])]).unwrap();
        let before = device.snapshot();
        let error = log.replay(&home(&device)).unwrap_err();
        assert!(
            matches!(error, Error::Record { fault: found, .. } if found == fault),
            "{error}"
        );
        assert!(device.snapshot() == before, "something was written");
    }
}

/// Each span may change another block, which recovery would hold in memory.
#[test]
fn a_record_of_more_spans_than_are_made_is_refused() {
    for (spans, is_refused) in [(2048_u32, false), (2049, true)] {
        let log = Arc::new(MemoryDevice::new(1 << 20));
        Wafs::make(&*log, [5; 16], 0).unwrap();
        let wafs = Wafs::mount(log.clone(), host_clock()).unwrap();
        let head = RawOperation {
            kind: 1,
            flags: ENDS_GROUP,
            name_bytes: 0.into(),
            spans: spans.into(),
            freed: 0.into(),
            unused: 0.into(),
            object: 0.into(),
        };
        let mut payload = head.as_bytes().to_vec();
        for number in 0..spans {
            let span = RawSpan {
                block: u64::from(number % 256).into(),
                offset_bytes: 0.into(),
                flags: 0.into(),
                len_bytes: 0.into(),
            };
            payload.extend_from_slice(span.as_bytes());
        }
        wafs.append(&payload).unwrap();
        wafs.sync_all().unwrap();
        drop(wafs);
        let device = MemoryDevice::new(256 * BLOCK as usize);
        let whole = std::iter::once(0..log.size_bytes() / u64::from(BLOCK));
        let unmounted = Unmounted::open(&*log, &Arc::new(LogMap::new(BLOCK, whole))).unwrap();
        let home = Home {
            has_log: false,
            ..home(&device)
        };
        let replayed = unmounted.replay(&home);
        match is_refused {
            false => assert_eq!(replayed.unwrap().blocks, 256),
            true => assert!(matches!(
                replayed.unwrap_err(),
                Error::Record {
                    fault: RecordFault::TooManySpans(2049),
                    ..
                }
            )),
        }
    }
}

#[test]
fn the_log_goes_around_many_times() {
    let (device, map) = made();
    for round in 0..200_u64 {
        let mut log = Unmounted::open(&device, &map).unwrap();
        let bytes = vec![round as u8; 1024];
        log.write_alone(&[(round % 90, bytes.clone()), (91, bytes.clone())])
            .unwrap();
        let done = Unmounted::open(&device, &map)
            .unwrap()
            .replay(&home(&device))
            .unwrap();
        assert_eq!((done.groups, done.blocks), (1, 2), "round {round}");
        assert_eq!(block(&device, 91), bytes);
    }
}

/// A short log, in which the longest record of other logs would be longer than readers take.
#[test]
fn what_is_written_into_a_short_log_comes_back() {
    let (device, map) = made();
    let blocks: Vec<(u64, Vec<u8>)> = (10..70).map(|b| (b, vec![b as u8; 1024])).collect();
    let mut log = Unmounted::open(&device, &map).unwrap();
    log.write_alone(&blocks).unwrap();
    let log = Unmounted::open(&device, &map).unwrap();
    let done = log.replay(&home(&device)).unwrap();
    assert_eq!((done.groups, done.blocks, done.undone), (1, 60, 0));
    assert!(done.records > 1);
    for (number, bytes) in blocks {
        assert_eq!(block(&device, number as usize), bytes);
    }
}

/// A group with more spans than are applied before blocks are written.
#[test]
fn a_long_group_comes_home_in_parts() {
    const BLOCKS: u64 = 9000;
    let device = MemoryDevice::new((BLOCKS as usize + 512) * BLOCK as usize);
    let map = Arc::new(LogMap::new(BLOCK, std::iter::once(BLOCKS..BLOCKS + 512)));
    Wafs::make(&LogDevice::new(&device, map.clone()), [5; 16], 0).unwrap();
    let new = |number: u64| {
        let mut bytes = vec![0; BLOCK as usize];
        bytes[..8].copy_from_slice(&(number + 1).to_le_bytes());
        bytes
    };
    let blocks: Vec<(u64, Vec<u8>)> = (0..BLOCKS).map(|b| (b, new(b))).collect();
    let mut log = Unmounted::open(&device, &map).unwrap();
    log.write_alone(&blocks).unwrap();
    let home = Home {
        blocks: BLOCKS + 512,
        ..home(&device)
    };
    let done = log.replay(&home).unwrap();
    assert_eq!((done.groups, done.blocks), (1, BLOCKS));
    let after = device.snapshot();
    let is_home = |(at, bytes): (&[u8], &(u64, Vec<u8>))| at == bytes.1;
    assert!(after.chunks(BLOCK as usize).zip(&blocks).all(is_home));
}

/// Adjacent blocks are read together, blocks that the log gives as a whole are not read, and the
/// log is read once.
#[test]
fn a_recovery_takes_few_requests() {
    let (device, map) = made();
    let mut log = Unmounted::open(&device, &map).unwrap();
    // The records give whole blocks: nothing at home is needed.
    let blocks: Vec<(u64, Vec<u8>)> = (0..40).map(|b| (b, vec![b as u8 + 1; 1024])).collect();
    log.write_alone(&blocks).unwrap();
    let counting = FaultDevice::new(Arc::new(device), Loss::Nothing);
    let log = Unmounted::open(&counting, &map).unwrap();
    let before = counting.counts().reads;
    let home = home(&counting);
    assert_eq!(log.replay(&home).unwrap().blocks, 40);
    // The log is in two runs.
    let reads = counting.counts().reads - before;
    assert!(reads <= 2, "{reads} requests");
}

#[test]
fn a_log_with_another_name_is_empty_and_goes_on() {
    let (device, map) = made();
    let mut log = Unmounted::open(&device, &map).unwrap();
    log.write_alone(&[(7, vec![3; 1024])]).unwrap();
    log.empty(true).unwrap();
    let mut names = vec![log.uuid()];
    for _ in 0..3 {
        names.push(log.rename().unwrap());
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 4);
    let mut log = Unmounted::open(&device, &map).unwrap();
    assert!(log.is_clean() && names.contains(&log.uuid()));
    log.write_alone(&[(8, vec![4; 1024])]).unwrap();
    let log = Unmounted::open(&device, &map).unwrap();
    assert_eq!(log.replay(&home(&device)).unwrap().groups, 1);
}

#[test]
fn orphans_do_not_fit_into_a_log_that_is_too_short() {
    let device = MemoryDevice::new(256 * BLOCK as usize);
    let map = Arc::new(LogMap::new(BLOCK, std::iter::once(100..140)));
    Wafs::make(&LogDevice::new(&device, map.clone()), [5; 16], 0).unwrap();
    let mut log = Unmounted::open(&device, &map).unwrap();
    let error = log.write_alone(&[(7, vec![3; 1024])]).unwrap_err();
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
}

/// The figures of docs/MEASUREMENTS.md: `cargo test --release -p backstitch-lffs recovery::figures --
/// --ignored --nocapture`.
#[test]
#[ignore = "prints figures, and writes 192 MiB"]
fn figures() {
    const LOG_BYTES: u64 = 64 << 20;
    const BLOCK: u64 = 4096;
    /// Blocks of the file system. The changed ones are in its first quarter, as the inode tables
    /// and bitmaps of a new file system are.
    const BLOCKS: u64 = 128 << 8;
    let directory = std::env::temp_dir();
    let file = |name: &str, size_bytes| {
        let path = directory.join(format!("backstitch-{name}-{}", std::process::id()));
        std::fs::File::create(&path)
            .and_then(|file| file.set_len(size_bytes))
            .unwrap();
        (
            FileDevice::open(&path, OpenOptions::default()).unwrap(),
            path,
        )
    };
    let (log, log_path) = file("figures-log", LOG_BYTES + LOG_OFFSET_BYTES);
    let (home, home_path) = file("figures-home", BLOCKS * BLOCK);
    let log = Arc::new(log);
    Wafs::make(&*log, [5; 16], 0).unwrap();
    let wafs = Wafs::mount(log.clone(), host_clock()).unwrap();
    let mut records = 0_u64;
    loop {
        // As when a file is made: a few bytes in each of three blocks.
        let mut payload = RawOperation {
            kind: 1,
            flags: if records % 100 == 99 { ENDS_GROUP } else { 0 },
            name_bytes: 0.into(),
            spans: 3.into(),
            freed: 0.into(),
            unused: 0.into(),
            object: records.into(),
        }
        .as_bytes()
        .to_vec();
        for (part, len_bytes) in [(0, 32), (1, 4), (2, 100)] {
            let head = RawSpan {
                block: ((records / 32) % (BLOCKS / 12) + part * (BLOCKS / 12)).into(),
                offset_bytes: ((records % 32 * 100) as u16).into(),
                flags: 0.into(),
                len_bytes: len_bytes.into(),
            };
            payload.extend_from_slice(head.as_bytes());
            payload.resize(payload.len() + len_bytes as usize, records as u8);
        }
        if wafs.append(&payload).is_err() {
            break;
        }
        records += 1;
    }
    wafs.sync_all().unwrap();
    drop(wafs);
    let map = Arc::new(LogMap::new(
        BLOCK as u32,
        std::iter::once(0..log.size_bytes() / BLOCK),
    ));
    for _ in 0..3 {
        let started = Instant::now();
        let log = Unmounted::open(&*log, &map).unwrap();
        let opened = started.elapsed();
        let home = Home {
            device: &home,
            block_bytes: BLOCK as u32,
            blocks: BLOCKS,
            has_log: false,
        };
        let outcome = log.replay(&home).unwrap();
        println!(
            "{records} records: found in {opened:?}, home after {:?}: {outcome:?}",
            started.elapsed()
        );
    }
    std::fs::remove_file(log_path).unwrap();
    std::fs::remove_file(home_path).unwrap();
}
