//! Images with a log of operations: what mkfs makes and refuses, damage around the log, and images
//! that another ordering left.

use std::sync::Arc;
use std::time::Duration;

use crate::crash::Machine;
use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_ext::Ext2;
use backstitch_ext::format::{FIRST_LOG_INODE, GroupDescriptor, group};
use backstitch_ext_tools::mkfs::{self, Mkfs, MkfsError};
use backstitch_layout::{
    Error, GroupNumber, JournalHost, LayoutKind, Left, LogDamage, LogKind, LogSite, NotedPlace,
    OpenRequest, Stop, Timestamp,
};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::Volume;
use backstitch_store::{Limits, Optimisations, Store, drive};

const SIZE_BYTES: usize = 4 << 20;
const NOW: Timestamp = Timestamp {
    seconds: 1_700_000_000,
    nanoseconds: 0,
};

fn options(features: &[&str]) -> Mkfs {
    Mkfs {
        block_size: Some(1024),
        features: features.iter().map(|name| (*name).to_owned()).collect(),
        ..Mkfs::new([7; 16], [9; 16], 1_600_000_000)
    }
}

fn site(device: &MemoryDevice) -> LogSite<'_> {
    LogSite {
        device,
        log_device: None,
        host: Some(&Ext2),
    }
}

fn kind(ordering: Ordering) -> &'static dyn LogKind {
    ordering.log_kind().unwrap()
}

#[test]
fn a_log_that_no_mount_could_write_is_refused() {
    let device = MemoryDevice::new(SIZE_BYTES);
    let short = Some(64 << 10);
    let refused = [
        (options(&["has_journal", "wafs_log"]), "a journal or a log"),
        (options(&["has_journal", "lffs_log"]), "a journal or a log"),
        (
            Mkfs {
                journal_bytes: short,
                ..options(&["wafs_log"])
            },
            "too short",
        ),
        (
            Mkfs {
                journal_bytes: short,
                ..options(&["lffs_log"])
            },
            "too short",
        ),
    ];
    for (options, why) in refused {
        let error = mkfs::write(&options, &device).unwrap_err();
        let MkfsError::BadOption(what) = error else {
            panic!("{error}");
        };
        assert!(what.contains(why), "{what}");
    }
    assert!(device.snapshot().iter().all(|byte| *byte == 0));
}

#[test]
fn the_shortest_log_and_odd_sizes_can_be_written() {
    for (feature, ordering) in [
        ("lffs_log", Ordering::LFFS_FILE),
        ("wafs_log", Ordering::LFFS_WAFS_1ASYNC),
    ] {
        for block_size in [1024, 4096] {
            for odd in [0, 512, 1024, 4095] {
                let device = MemoryDevice::from_bytes(vec![0xa5; SIZE_BYTES + odd]);
                let options = Mkfs {
                    block_size: Some(block_size),
                    size_bytes: Some((SIZE_BYTES + odd) as u64),
                    journal_bytes: Some(8192 + 64 * u64::from(block_size)),
                    ..options(&[feature])
                };
                mkfs::write(&options, &device).unwrap();
                let found = kind(ordering).find(site(&device)).unwrap();
                assert_eq!(found.err(), None, "{feature}, {block_size}, {odd}");
            }
        }
        let device = MemoryDevice::new(SIZE_BYTES);
        mkfs::write(&options(&[feature]), &device).unwrap();
        let found = kind(ordering).find(site(&device)).unwrap();
        assert_eq!(found.err(), None, "{feature}, no size");
    }
}

/// Where the inode of the log's file is.
fn inode_offset(device: &MemoryDevice, sb: &backstitch_ext::format::Superblock) -> u64 {
    let mut table = vec![0; sb.block_size as usize];
    let at = sb.block_offset(group::descriptor_table_block(sb));
    device.read(at, &mut table).unwrap();
    let first = GroupDescriptor::parse(sb, GroupNumber(0), &table).unwrap();
    let index = u64::from(FIRST_LOG_INODE.0 - 1);
    sb.block_offset(first.inode_table) + index * u64::from(sb.inode_size)
}

#[test]
fn a_log_file_that_is_damaged_keeps_nobody_out_who_needs_no_log() {
    let device = MemoryDevice::new(SIZE_BYTES);
    let sb = mkfs::write(&options(&["lffs_log"]), &device).unwrap();
    device.write(inode_offset(&device, &sb), &[0; 128]).unwrap();
    let note = Ext2.log_note(&device).unwrap().unwrap();
    assert!(matches!(note.place, Some(NotedPlace::Lost(_))));
    let log = kind(Ordering::LFFS_FILE);
    assert!(log.find(site(&device)).unwrap().is_err());
    let recover = |damage| log.recover(site(&device), NOW, damage).unwrap().unwrap();
    assert_eq!(recover(LogDamage::Refuse).actions.len(), 1);
    let note = Ext2.log_note(&device).unwrap().unwrap();
    assert!(note.place.is_some(), "only a repair changes it");
    assert_eq!(recover(LogDamage::GiveUp).actions.len(), 1);
    let note = Ext2.log_note(&device).unwrap().unwrap();
    assert_eq!((note.place, note.left), (None, Left::Clean));
}

#[test]
fn leaks_of_another_ordering_are_not_forgotten_by_way_of_a_log() {
    let memory = Arc::new(MemoryDevice::new(SIZE_BYTES));
    mkfs::write(&options(&["wafs_log"]), &*memory).unwrap();
    let mut machine = Machine::open(memory, Ordering::SOFT, 1024, Optimisations::NONE);
    let root = machine.fs.root();
    machine.make_directory(root, "directory");
    let mut changes = Vec::new();
    machine.store.uncommitted(&mut changes);
    // The first change waits for nothing.
    let (store, devices) = (&mut machine.store, &machine.devices);
    drive::sync(store, devices, &changes[..1], Duration::ZERO).unwrap();
    let left = Arc::new(MemoryDevice::from_bytes(machine.memory.snapshot()));

    let log = kind(Ordering::LFFS_WAFS_1ASYNC);
    let place = log
        .find(site(&left))
        .unwrap()
        .expect("the log is there")
        .place;
    let mut mechanism = Ordering::LFFS_WAFS_1ASYNC.make(Some(place)).unwrap();
    let mut store = Store::new(Limits::default(), Optimisations::BOTH);
    let volume = store.add_volume(1024);
    let request = OpenRequest {
        read_only: false,
        now: NOW,
        without_journal: false,
        journaled: false,
        unwritable_journal: None,
    };
    let devices: Vec<Arc<dyn BlockDevice>> = vec![left.clone()];
    let why = loop {
        let mut v = Volume::new(&mut store, &mut *mechanism, volume, Duration::ZERO);
        match Ext2.open(&mut v, &*left, &request) {
            Err(Stop::Miss) => drop(drive::read_wanted(&mut store, &devices).unwrap()),
            Err(Stop::Failed(Error::Unsupported(why))) => break why,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it is mounted"),
        }
    };
    assert!(why.contains("leaks"), "{why}");
}
