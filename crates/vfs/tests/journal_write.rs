//! The journal as a mechanism: cut at any write, replayed by e2fsck and by us, nothing is left to
//! repair.

use crate::support;
use backstitch_mechanisms::one_flush_features;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::workload::{OnError, Workload};
use crate::support::{Scratch, torn_parts};
use backstitch_device::{
    BlockDevice, MemoryDevice, Record, RecordingDevice, SlowFlushDevice, WriteRequest,
    materialise_torn,
};
use backstitch_formats::usual;
use backstitch_layout::tools::Mkfs;
use backstitch_vfs::{Engine, FileType, MountOptions, Ordering, SetAttributes};

/// An ext3 image as mke2fs makes it.
fn ext3(scratch: &Scratch, options: &[&str], blocks: &str) -> Vec<u8> {
    let path = scratch.file("fresh.img");
    let _ = std::fs::remove_file(&path);
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext3"])
        .args(options)
        .arg(&path)
        .arg(blocks)
        .output()
        .expect("mke2fs is there");
    assert!(made.status.success(), "{made:?}");
    std::fs::read(&path).unwrap()
}

/// Has e2fsck replay the journal and repair the image. Returns what it reports beyond the replay.
fn e2fsck(path: &Path) -> Vec<String> {
    let done = Command::new("e2fsck")
        .arg("-fy")
        .arg(path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let usual = [
        "recovering journal",
        "Pass ",
        "FILE SYSTEM WAS MODIFIED",
        "files (",
        // Expected: that is what the orphan list is for.
        "Clearing orphaned inode",
        "Truncating orphaned inode",
    ];
    let mut found: Vec<String> = said
        .lines()
        .filter(|line| !line.trim().is_empty() && !usual.iter().any(|u| line.contains(u)))
        .map(str::to_owned)
        .collect();
    if !matches!(done.status.code(), Some(0 | 1)) {
        found.push(format!("{done:?}"));
    }
    found
}

fn options(ordering: Ordering) -> MountOptions {
    MountOptions {
        ordering,
        commit_seconds: 0.05,
        cache_bytes: 8 << 20,
        ..MountOptions::default()
    }
}

/// Cuts a run at many places; every image must be whole after e2fsck's replay, and after ours.
fn cut_everywhere(name: &str, ordering: &str, mkfs: &[&str], cuts: usize) {
    let image = ext3(&Scratch::new(name), mkfs, "24m");
    cut_image_everywhere(name, ordering, image, cuts);
}

/// The same on this image.
fn cut_image_everywhere(name: &str, ordering: &str, image: Vec<u8>, cuts: usize) {
    let scratch = Scratch::new(name);
    let ordering: Ordering = ordering.parse().unwrap();
    let memory = Arc::new(MemoryDevice::from_bytes(image.clone()));
    let recording = Arc::new(RecordingDevice::new(memory));
    let engine = Engine::mount(recording.clone(), usual().layout(), &options(ordering)).unwrap();
    let mut workload = Workload::new(OnError::NoSpace);
    workload.run(&engine);
    engine.sync().unwrap();
    engine.unmount().unwrap();
    let records = recording.records();
    let mut torn = torn_parts(0x9e37_79b9_7f4a_7c15);
    let mut replayed = 0;
    for index in 0..=cuts {
        let cut = if index == cuts {
            records.len()
        } else {
            index * records.len() / cuts
        };
        let mut bytes = image.clone();
        materialise_torn(&mut bytes, &records, cut, 4096, &mut torn);
        let path = scratch.file("cut.img");
        std::fs::write(&path, &bytes).unwrap();
        let found = e2fsck(&path);
        assert!(
            found.is_empty(),
            "{name}, cut {cut} of {}: {found:?}",
            records.len()
        );
        // And after our replay: mounting recovers, and e2fsck finds nothing then.
        let memory = Arc::new(MemoryDevice::from_bytes(bytes));
        let engine = Engine::mount(memory.clone(), usual().layout(), &options(ordering)).unwrap();
        assert_eq!(engine.read_only_reason(), None);
        replayed += usize::from(
            engine
                .recovery()
                .actions
                .iter()
                .any(|a| a.contains("replayed")),
        );
        engine.unmount().unwrap();
        std::fs::write(&path, memory.snapshot()).unwrap();
        let found = e2fsck(&path);
        assert!(found.is_empty(), "{name}, recovered, cut {cut}: {found:?}");
    }
    assert!(
        replayed > cuts / 2,
        "{replayed} of {cuts} cuts left something to replay"
    );
}

#[test]
fn nothing_is_left_to_repair_with_ordered_contents() {
    cut_everywhere(
        "ordered",
        "journal=ordered",
        &["-b", "1024", "-J", "size=1"],
        60,
    );
}

#[test]
fn nothing_is_left_to_repair_with_contents_at_any_time() {
    cut_everywhere("writeback", "journal=writeback", &["-b", "4096"], 25);
}

#[test]
fn nothing_is_left_to_repair_with_contents_in_the_journal() {
    cut_everywhere("full", "journal=full", &["-b", "1024", "-J", "size=4"], 25);
}

#[test]
fn a_run_without_a_cut_leaves_an_empty_journal() {
    let scratch = Scratch::new("whole");
    let image = ext3(&scratch, &["-b", "1024", "-J", "size=1"], "24m");
    let memory = Arc::new(MemoryDevice::from_bytes(image));
    let ordering: Ordering = "journal=ordered".parse().unwrap();
    let engine = Engine::mount(memory.clone(), usual().layout(), &options(ordering)).unwrap();
    let mut workload = Workload::new(OnError::NoSpace);
    for _ in 0..4 {
        workload.run(&engine);
    }
    engine.unmount().unwrap();
    let path = scratch.file("whole.img");
    std::fs::write(&path, memory.snapshot()).unwrap();
    let checked = Command::new("e2fsck")
        .arg("-fn")
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

/// An ext3 image whose commit records may be written together with what they commit.
fn ext3_at_once(size_bytes: usize, block_bytes: u32) -> Vec<u8> {
    let mut mkfs = Mkfs {
        block_size: Some(block_bytes),
        journal_bytes: Some(1024 * u64::from(block_bytes)),
        journal_features: one_flush_features(),
        ..Mkfs::new([3; 16], [5; 16], 1_600_000_000)
    };
    mkfs.features.push("has_journal".to_owned());
    let device = MemoryDevice::new(size_bytes);
    usual().make(&mkfs, &device).unwrap();
    device.snapshot()
}

/// Device flushes per fsync in each mode, with commit records written together with what they
/// commit: for a file with new contents, and for one that lost its contents.
fn flushes_at_once(mode: &str) -> (f64, f64) {
    const EACH: usize = 20;
    let memory = Arc::new(MemoryDevice::from_bytes(ext3_at_once(32 << 20, 4096)));
    let recording = Arc::new(RecordingDevice::new(memory.clone()));
    let wanted = MountOptions {
        ordering: mode.parse().unwrap(),
        ..MountOptions::default()
    };
    let engine = Engine::mount(recording.clone(), usual().layout(), &wanted).unwrap();
    let count = || {
        let records = recording.records();
        records.iter().filter(|r| **r == Record::Flush).count()
    };
    let mut counts = Vec::new();
    let new = support::new_inode(FileType::Regular);
    let began = count();
    for number in 0..EACH {
        let name = format!("{number}");
        let made = engine.create(engine.root(), name.as_bytes(), &new).unwrap();
        engine.write(made.inode, 0, &[7; 4096]).unwrap();
        engine.fsync(made.inode, false).unwrap();
    }
    counts.push((count() - began) as f64 / EACH as f64);
    let began = count();
    let shorter = SetAttributes {
        size_bytes: Some(0),
        ..Default::default()
    };
    for number in 0..EACH {
        let name = format!("{number}");
        let found = engine.lookup(engine.root(), name.as_bytes()).unwrap();
        engine.set_attributes(found.inode, &shorter).unwrap();
        engine.fsync(found.inode, false).unwrap();
    }
    counts.push((count() - began) as f64 / EACH as f64);
    engine.unmount().unwrap();
    (counts[0], counts[1])
}

/// A commit record with a checksum of its transaction needs no flush before it. New contents under
/// `ordered` do: they must be on the disk before the transaction.
#[test]
fn a_commit_record_with_a_checksum_takes_one_flush() {
    let of = ["journal=ordered", "journal=writeback", "journal=full"].map(flushes_at_once);
    println!("flushes per fsync, new contents and without: {of:?}");
    let is = |found: f64, expected: f64| (found - expected).abs() < 0.15;
    assert!(is(of[0].0, 2.0) && is(of[0].1, 1.0), "ordered: {:?}", of[0]);
    assert!(
        is(of[1].0, 1.0) && is(of[1].1, 1.0),
        "writeback: {:?}",
        of[1]
    );
    assert!(is(of[2].0, 1.0) && is(of[2].1, 1.0), "full: {:?}", of[2]);
}

#[test]
fn nothing_is_left_to_repair_where_commit_records_go_with_what_they_commit() {
    for (mode, cuts) in [
        ("journal=ordered", 15),
        ("journal=writeback", 10),
        ("journal=full", 15),
    ] {
        let name = format!("at-once-{}", &mode[8..]);
        cut_image_everywhere(&name, mode, ext3_at_once(24 << 20, 1024), cuts);
    }
}

/// A device that syncs the file system during its reads: the engine's lock is not held then.
struct Meddling {
    below: Arc<dyn BlockDevice>,
    with: Mutex<Option<Arc<Engine>>>,
}

impl BlockDevice for Meddling {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> backstitch_device::Result<()> {
        // No sync during the sync's own reads.
        let engine = self.with.lock().unwrap().take();
        if let Some(engine) = engine {
            engine.sync().unwrap();
            *self.with.lock().unwrap() = Some(engine);
        }
        self.below.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> backstitch_device::Result<()> {
        self.below.submit(batch)
    }

    fn flush(&self) -> backstitch_device::Result<()> {
        self.below.flush()
    }
}

/// A long truncation, with transactions that end between its steps: the list of orphans has the
/// inode with its new size, and the recovery finishes the truncation.
#[test]
fn a_truncation_under_way_is_on_the_list_of_orphans() {
    const PARTS: u64 = 20;
    let scratch = Scratch::new("truncation");
    let memory = Arc::new(MemoryDevice::from_bytes(ext3(
        &scratch,
        &["-b", "1024", "-J", "size=1"],
        "24m",
    )));
    let wanted = MountOptions {
        commit_seconds: 1e6,
        ..options("journal=ordered".parse().unwrap())
    };
    let engine = Engine::mount(memory.clone(), usual().layout(), &wanted).unwrap();
    let new = support::new_inode(FileType::Regular);
    let file = engine.create(engine.root(), b"f", &new).unwrap().inode;
    for part in 0..PARTS {
        // Steps of a write end at multiples of 64 MiB here.
        engine.write(file, part * (80 << 20), &[7; 5000]).unwrap();
    }
    engine.unmount().unwrap();
    let image = memory.snapshot();
    // Nothing is in memory now, and each step has to read.
    let recording = Arc::new(RecordingDevice::new(memory));
    let device = Arc::new(Meddling {
        below: recording.clone(),
        with: Mutex::new(None),
    });
    let engine = Engine::mount(device.clone(), usual().layout(), &wanted).unwrap();
    let began = recording.len();
    *device.with.lock().unwrap() = Some(engine.clone());
    let shorter = SetAttributes {
        size_bytes: Some(4000),
        ..SetAttributes::default()
    };
    engine.set_attributes(file, &shorter).unwrap();
    engine.sync().unwrap();
    *device.with.lock().unwrap() = None;
    let records = recording.records();
    let (mut under_way, path) = (0, scratch.file("cut.img"));
    let flushes = (began..records.len()).filter(|at| records[*at] == Record::Flush);
    for (index, cut) in flushes.enumerate().filter(|(index, _)| index % 3 == 0) {
        let mut bytes = image.clone();
        materialise_torn(&mut bytes, &records, cut, 4096, &mut |_, _| false);
        let crashed = Arc::new(MemoryDevice::from_bytes(bytes.clone()));
        let ours = Engine::mount(crashed, usual().layout(), &wanted).unwrap();
        let actions = ours.recovery().actions.join("; ");
        let found = ours.lookup(ours.root(), b"f").unwrap();
        assert!([4000, (((PARTS - 1) * 80) << 20) + 5000].contains(&found.size_bytes));
        if actions.contains("finished 1 truncations") {
            under_way += 1;
            assert_eq!((found.size_bytes, found.sectors), (4000, 8), "{actions}");
            if index % 2 == 0 {
                std::fs::write(&path, bytes).unwrap();
                assert_eq!(e2fsck(&path), Vec::<String>::new(), "cut {cut}");
            }
        }
    }
    assert!(under_way > 5, "{under_way}");
    engine.unmount().unwrap();
}

/// Device flushes per fsync when `writers` threads write new files of 4 kB and sync each.
fn flushes_per_fsync(writers: usize, each: usize) -> f64 {
    let scratch = Scratch::new(&format!("flushes-{writers}"));
    let image = ext3(&scratch, &["-b", "4096"], "64m");
    let memory = Arc::new(MemoryDevice::from_bytes(image));
    let recording = Arc::new(RecordingDevice::new(memory.clone()));
    // As long as a fast drive's.
    let device = SlowFlushDevice::new(recording.clone(), Duration::from_millis(2));
    let wanted = MountOptions {
        ordering: "journal=ordered".parse().unwrap(),
        ..MountOptions::default()
    };
    let engine = Engine::mount(Arc::new(device), usual().layout(), &wanted).unwrap();
    let count = || {
        recording
            .records()
            .iter()
            .filter(|r| **r == Record::Flush)
            .count()
    };
    let before = count();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let engine = &engine;
            scope.spawn(move || {
                for number in 0..each {
                    let name = format!("{writer}-{number}");
                    let new = support::new_inode(FileType::Regular);
                    let made = engine.create(engine.root(), name.as_bytes(), &new).unwrap();
                    engine.write(made.inode, 0, &[7; 4096]).unwrap();
                    engine.fsync(made.inode, false).unwrap();
                    engine.forget(made.inode, 1);
                }
            });
        }
    });
    let flushes = count() - before;
    engine.unmount().unwrap();
    let path = scratch.file("end.img");
    std::fs::write(&path, memory.snapshot()).unwrap();
    let checked = Command::new("e2fsck")
        .arg("-fn")
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    flushes as f64 / (writers * each) as f64
}

#[test]
fn an_fsync_takes_two_flushes_and_eight_writers_share_them() {
    let alone = flushes_per_fsync(1, 50);
    let shared = flushes_per_fsync(8, 50);
    println!("flushes per fsync: {alone} alone, {shared} with eight writers");
    assert!((1.9..2.1).contains(&alone), "{alone}");
    assert!(shared < 0.4, "{shared}");
}

/// An orphan's inode is freed and made anew in one transaction.
#[test]
fn an_inode_that_left_the_list_of_orphans_may_be_had_again() {
    let scratch = Scratch::new("journal-orphan-again");
    let memory = Arc::new(MemoryDevice::from_bytes(ext3(
        &scratch,
        &["-b", "1024"],
        "24m",
    )));
    let options = MountOptions {
        ordering: "journal=ordered".parse().unwrap(),
        commit_seconds: 1e6,
        ..MountOptions::default()
    };
    let engine = Engine::mount(memory.clone(), usual().layout(), &options).unwrap();
    for round in 0..20 {
        // The file is made, opened and removed in one transaction: its inode gets to the disk
        // without ever having had a name there.
        let new = support::new_inode(FileType::Regular);
        let open = engine.create(engine.root(), b"open", &new).unwrap().inode;
        engine.unlink(engine.root(), b"open").unwrap();
        engine.sync().unwrap();
        engine.forget(open, 1);
        // It is closed, and in the same transaction other files are made.
        for number in 0..20 {
            std::thread::sleep(Duration::from_micros(200));
            let name = format!("f{round}-{number}");
            support::write_new(&engine, engine.root(), &name, b"contents");
        }
        engine.sync().unwrap();
    }
    engine.unmount().unwrap();
    let path = scratch.file("after.img");
    std::fs::write(&path, memory.snapshot()).unwrap();
    assert_eq!(e2fsck(&path), Vec::<String>::new());
}

/// What was synced is there after a crash that keeps nothing but what was flushed, in every mode.
#[test]
fn what_was_synced_is_there() {
    for mode in ["journal=writeback", "journal=ordered", "journal=full"] {
        let scratch = Scratch::new(&format!("synced-{}", &mode[8..]));
        let image = ext3(&scratch, &["-b", "1024", "-J", "size=1"], "24m");
        let memory = Arc::new(MemoryDevice::from_bytes(image.clone()));
        let recording = Arc::new(RecordingDevice::new(memory));
        let wanted = options(mode.parse().unwrap());
        let engine = Engine::mount(recording.clone(), usual().layout(), &wanted).unwrap();
        let new = support::new_inode(FileType::Regular);
        // The second one has indirect blocks.
        let sizes = [("small", 3000), ("large", 600_000)];
        for (name, size) in sizes {
            let made = engine.create(engine.root(), name.as_bytes(), &new).unwrap();
            engine.write(made.inode, 0, &vec![7; size]).unwrap();
            engine.fsync(made.inode, true).unwrap();
        }
        let records = recording.records();
        let mut bytes = image;
        materialise_torn(&mut bytes, &records, records.len(), 4096, &mut |_, _| false);
        let crashed = Arc::new(MemoryDevice::from_bytes(bytes));
        let engine = Engine::mount(crashed, usual().layout(), &wanted).unwrap();
        for (name, size) in sizes {
            let found = engine.lookup(engine.root(), name.as_bytes()).unwrap();
            let mut contents = Vec::new();
            engine
                .read(found.inode, 0, size + 1, &mut contents)
                .unwrap();
            assert!(contents == vec![7; size], "{mode}, {name}");
        }
    }
}

/// A file whose blocks are in more groups than the log can hold bitmaps of at a time. It is freed
/// in several transactions, by us and by the recovery, and after a crash in between it is on the
/// list.
#[test]
#[ignore = "300 MB and 20 seconds: make soak runs it"]
fn a_file_that_one_transaction_cannot_free_goes_in_several() {
    let scratch = Scratch::new("groups");
    // A group has 256 blocks of 1 KiB, the log 1024.
    let made = [
        "-b",
        "1024",
        "-g",
        "256",
        "-N",
        "16000",
        "-J",
        "size=1",
        "-O",
        "^resize_inode",
    ];
    let image = ext3(&scratch, &made, "300m");
    let memory = Arc::new(MemoryDevice::from_bytes(image));
    let wanted = MountOptions {
        commit_seconds: 1e6,
        cache_bytes: 64 << 20,
        ..options("journal=writeback".parse().unwrap())
    };
    let engine = Engine::mount(memory.clone(), usual().layout(), &wanted).unwrap();
    let new = support::new_inode(FileType::Regular);
    let file = engine.create(engine.root(), b"f", &new).unwrap().inode;
    let piece = vec![7; 1 << 20];
    for part in 0..240_u64 {
        engine.write(file, part << 20, &piece).unwrap();
    }
    engine.forget(file, 1);
    engine.unmount().unwrap();
    let base = memory.snapshot();
    let recording = Arc::new(RecordingDevice::new(memory.clone()));
    let engine = Engine::mount(recording.clone(), usual().layout(), &wanted).unwrap();
    // Removed while it is open.
    let file = engine.lookup(engine.root(), b"f").unwrap().inode;
    engine.unlink(engine.root(), b"f").unwrap();
    engine.sync().unwrap();
    let open = recording.len();
    engine.forget(file, 1);
    engine.sync().unwrap();
    let first = recording.len();
    engine.unmount().unwrap();
    let records = recording.records();
    let mut freed = 0;
    let path = scratch.file("cut.img");
    for cut in [open, first, records.len()] {
        let mut bytes = base.clone();
        materialise_torn(&mut bytes, &records, cut, 4096, &mut |_, _| false);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(e2fsck(&path), Vec::<String>::new(), "cut {cut}");
        let crashed = Arc::new(MemoryDevice::from_bytes(bytes));
        let ours = Engine::mount(crashed, usual().layout(), &wanted).unwrap();
        freed += usize::from(
            ours.recovery()
                .actions
                .join("; ")
                .contains("freed 1 orphans"),
        );
    }
    assert_eq!(engine.read_only_reason(), None);
    assert_eq!(freed, 2);
}
