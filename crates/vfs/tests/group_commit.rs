//! Group commit: callers that wait for the log share its writes, also where the log is that of a file
//! system inside another one; a long operation waits once.

use crate::support;
use std::sync::{Arc, Barrier};

use crate::support::{new_image, new_image_with_journal, new_inode, write_new};
use backstitch_device::{MemoryDevice, Record, RecordingDevice};
use backstitch_formats::usual;
use backstitch_vfs::stack::{InnerPath, Stack, StackVolume};
use backstitch_vfs::{Engine, FileType, InodeNumber, MountOptions, Ordering, SetAttributes};

const ROUNDS: usize = 30;

/// A mounted file system, the directory in which files are made, and its device.
struct Mounted {
    engine: Arc<Engine>,
    at: InodeNumber,
    device: Arc<RecordingDevice>,
}

impl Mounted {
    fn flushes(&self) -> usize {
        let records = self.device.records();
        records.iter().filter(|r| **r == Record::Flush).count()
    }
}

fn recording(image: Vec<u8>) -> Arc<RecordingDevice> {
    Arc::new(RecordingDevice::new(Arc::new(MemoryDevice::from_bytes(
        image,
    ))))
}

fn options(ordering: Ordering) -> MountOptions {
    MountOptions {
        ordering,
        // Nothing is written unless a caller waits for it.
        expire_seconds: 1e6,
        commit_seconds: 1e6,
        ..MountOptions::default()
    }
}

fn alone(ordering: Ordering) -> Mounted {
    let device = recording(new_image_with_journal(8 << 20, 256));
    let engine = Engine::mount(device.clone(), usual().layout(), &options(ordering)).unwrap();
    let at = engine.root();
    Mounted { engine, at, device }
}

/// A file system with a journal, in the file `inner` of one without.
fn inside(ordering: Ordering) -> Mounted {
    let inner = new_image_with_journal(4 << 20, 256);
    let memory = Arc::new(MemoryDevice::from_bytes(new_image(8 << 20, 64)));
    let engine = support::mount(memory.clone()).unwrap();
    write_new(&engine, engine.root(), "inner", &inner);
    let directory = new_inode(FileType::Directory);
    engine.create(engine.root(), b"mnt", &directory).unwrap();
    engine.unmount().unwrap();
    let path = |path: &str| {
        Some(InnerPath {
            volume: 0,
            path: path.as_bytes().to_vec(),
        })
    };
    let volume = |name: &str, file, at, ordering| StackVolume {
        name: name.to_owned(),
        layout: usual().layout(),
        file,
        journal: None,
        ordering,
        at,
    };
    let stack = Stack {
        volumes: vec![
            volume("outer", None, None, None),
            volume("inner", path("/inner"), path("/mnt"), Some(ordering)),
        ],
        front: 0,
    };
    let device = recording(memory.snapshot());
    let engine = Engine::mount(device.clone(), &stack, &options(Ordering::SOFT)).unwrap();
    let at = engine.lookup(engine.root(), b"mnt").unwrap().inode;
    Mounted { engine, at, device }
}

/// Flushes per round; in a round each thread makes a file at the same time.
fn flushes_per_round(mounted: &Mounted, threads: usize) -> f64 {
    let before = mounted.flushes();
    let (start, Mounted { engine, at, .. }) = (Barrier::new(threads), mounted);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let start = &start;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let name = format!("{threads} {thread} {round}");
                    start.wait();
                    let new = new_inode(FileType::Regular);
                    engine.create(*at, name.as_bytes(), &new).unwrap();
                }
            });
        }
    });
    (mounted.flushes() - before) as f64 / ROUNDS as f64
}

#[test]
fn two_who_come_at_the_same_time_share_a_commit() {
    for (what, mount) in [("alone", alone as fn(_) -> _), ("in a stack", inside)] {
        let mounted = mount(Ordering::JOURNAL_ORDERED_GROUP);
        let [one, two] = [1, 2].map(|threads| flushes_per_round(&mounted, threads));
        println!("{what}: {one} flushes a round of one caller, {two} of two");
        assert!(one >= 2.0, "{what}: a call returned before its commit");
        assert!(two < 1.4 * one, "{what}: {one} of one caller, {two} of two");
        mounted.engine.unmount().unwrap();
    }
}

#[test]
fn a_long_truncation_waits_for_the_log_once() {
    const PARTS: u64 = 20;
    let mounted = alone(Ordering::JOURNAL_ORDERED_GROUP);
    let engine = &mounted.engine;
    let file = write_new(engine, mounted.at, "long", b"");
    for part in 0..PARTS {
        // Steps of a write end at multiples of 64 MiB here.
        engine.write(file, part * (80 << 20), &[7; 5000]).unwrap();
    }
    engine.sync().unwrap();
    let before = mounted.flushes();
    let shorter = SetAttributes {
        size_bytes: Some(0),
        ..SetAttributes::default()
    };
    engine.set_attributes(file, &shorter).unwrap();
    let flushes = mounted.flushes() - before;
    assert!((2..10).contains(&flushes), "{flushes} flushes");
    engine.unmount().unwrap();
}
