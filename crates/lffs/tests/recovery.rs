//! What a crash may leave in a log, and what recovery makes of it, without a file system.

use std::sync::Arc;

use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_lffs::{Error, Home, LogDevice, LogMap, RecordFault, Unmounted};
use backstitch_wafs::Wafs;

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
    // Zeros at the end are not in the record, and come home all the same.
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
    // The superblock of a mount is there before its records are.
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
        // What is written next is not followed by what is left.
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

/// A log in which the longest record of any would be longer than readers take.
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

/// Of more spans than are applied before something is written.
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
