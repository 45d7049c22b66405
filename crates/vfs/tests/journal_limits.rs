//! Limits of a journal. It cannot hold more than its blocks: operations then wait, and never fail.
//! Features that this version does not write are refused by name.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::support::{Scratch, new_inode, torn_parts};
use backstitch_device::{MemoryDevice, Record, RecordingDevice, materialise_torn};
use backstitch_formats::usual;
use backstitch_vfs::{
    Allocate, Engine, FileType, InodeNumber, MountOptions, Ordering, SetAttributes,
};

/// The smallest journal that there is.
const JOURNAL_BLOCKS: usize = 1024;
/// Files that each writer makes.
const FILES: usize = 1400;
const BLOCK: usize = 1024;

fn tool(name: &str, arguments: &[&str], image: &Path) -> (Option<i32>, String) {
    let done = Command::new(name).args(arguments).arg(image).output();
    let done = done.unwrap_or_else(|error| panic!("{name}: {error}"));
    let said = [done.stdout, done.stderr].concat();
    (
        done.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// An image of ext3 of 24 MiB with the smallest journal.
fn ext3(scratch: &Scratch, more: &[&str]) -> PathBuf {
    let path = scratch.file("disk.img");
    std::fs::File::create(&path)
        .unwrap()
        .set_len(24 << 20)
        .unwrap();
    let arguments = [
        &["-q", "-F", "-t", "ext3", "-b", "1024", "-J", "size=1"],
        more,
    ]
    .concat();
    let (code, said) = tool("mke2fs", &arguments, &path);
    assert_eq!(code, Some(0), "{said}");
    path
}

/// Only their size ends transactions: every wait is for room.
fn options(mode: &str) -> MountOptions {
    MountOptions {
        ordering: mode.parse::<Ordering>().unwrap(),
        commit_seconds: 1e6,
        expire_seconds: 1e6,
        ..MountOptions::default()
    }
}

/// The blocks of the journal, which mke2fs puts in one piece, except for its indirect blocks.
fn journal_blocks(image: &Path) -> Vec<u64> {
    let (_, said) = tool("debugfs", &["-R", "blocks <8>"], image);
    let numbers = said.split_ascii_whitespace().filter_map(|n| n.parse().ok());
    let blocks: Vec<u64> = numbers.collect();
    assert!(blocks.len() >= JOURNAL_BLOCKS, "{said}");
    blocks
}

/// A long name: four of them fill a block, so that an index soon has two levels, and splits go
/// through both.
fn name(number: usize) -> Vec<u8> {
    let hash = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{hash:016x}{}", "n".repeat(200)).into_bytes()
}

fn make(engine: &Engine, directory: InodeNumber, name: &[u8]) -> InodeNumber {
    let made = engine.create(directory, name, &new_inode(FileType::Regular));
    let inode = made.unwrap().inode;
    engine.forget(inode, 1);
    inode
}

/// Makes files whose removal changes and revokes more blocks than a transaction holds, a deep
/// index, and many other things.
fn fill_the_journal(engine: &Engine, writer: usize) {
    let root = engine.root();
    let top = format!("writer {writer}").into_bytes();
    let top = engine
        .create(root, &top, &new_inode(FileType::Directory))
        .unwrap()
        .inode;
    // Each block of it has an indirect block of its own.
    let sparse = make(engine, top, b"sparse");
    for part in 0..200_u64 {
        engine
            .write(sparse, part * 256 * BLOCK as u64, &[1; 100])
            .unwrap();
    }
    let large = make(engine, top, b"large");
    engine.write(large, 0, &vec![2; 3 << 20]).unwrap();
    let zeros = make(engine, top, b"zeros");
    let grows = Allocate::Reserve { keep_size: false };
    engine.allocate(zeros, grows, 0, 2 << 20).unwrap();
    for number in 0..FILES {
        let file = make(engine, top, &name(number));
        if number % 7 == 0 {
            engine.write(file, 0, &[3; 3000]).unwrap();
        }
    }
    for (file, size_bytes) in [
        (sparse, 100 * 256 * BLOCK as u64 + 5),
        (large, 7),
        (sparse, 0),
    ] {
        let shorter = SetAttributes {
            size_bytes: Some(size_bytes),
            ..SetAttributes::default()
        };
        engine.set_attributes(file, &shorter).unwrap();
    }
    for number in (0..FILES).step_by(3) {
        engine.unlink(top, &name(number)).unwrap();
    }
    engine.unlink(top, b"large").unwrap();
}

/// How many blocks were written into the journal.
fn written_into(records: &[Record], journal: &[u64]) -> usize {
    let journal: HashSet<u64> = journal.iter().copied().collect();
    let places = records.iter().filter_map(|record| match record {
        Record::Write { offset_bytes, .. } => Some(offset_bytes / BLOCK as u64),
        _ => None,
    });
    places.filter(|block| journal.contains(block)).count()
}

fn full_journal(mode: &str, writers: usize) {
    let scratch = Scratch::new(&format!("full-{mode}"));
    let path = ext3(&scratch, &[]);
    let journal = journal_blocks(&path);
    let image = std::fs::read(&path).unwrap();
    let memory = Arc::new(MemoryDevice::from_bytes(image.clone()));
    let recording = Arc::new(RecordingDevice::new(memory.clone()));
    let engine = Engine::mount(recording.clone(), usual().layout(), &options(mode)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let engine = &engine;
            scope.spawn(move || fill_the_journal(engine, writer));
        }
    });
    assert_eq!(engine.read_only_reason(), None);
    let records = recording.records();
    let times = written_into(&records, &journal) / JOURNAL_BLOCKS;
    assert!(
        times >= 3,
        "{mode}: the journal was filled {times} times only"
    );
    engine.unmount().unwrap();
    drop(engine);
    let check = |bytes: &[u8], arguments: &[&str], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        let (code, said) = tool("e2fsck", arguments, &path);
        let is_replay = said.contains("recovering journal");
        assert!(
            code == Some(0) || is_replay && code == Some(1),
            "{mode}, {what}: {said}"
        );
        let (code, said) = tool("e2fsck", &["-fn"], &path);
        assert_eq!(code, Some(0), "{mode}, {what}: {said}");
    };
    check(&memory.snapshot(), &["-fn"], "at the end");
    let mut torn = torn_parts(0x2545_f491_4f6c_dd1d);
    for part in 1..6 {
        let cut = records.len() * part / 6;
        let mut bytes = image.clone();
        materialise_torn(&mut bytes, &records, cut, 4096, &mut torn);
        check(&bytes, &["-p"], &format!("cut {cut} of {}", records.len()));
    }
}

#[test]
fn operations_wait_for_a_full_journal_with_ordered_contents() {
    full_journal("journal=ordered", 3);
}

#[test]
fn operations_wait_for_a_full_journal_with_contents_at_any_time() {
    full_journal("journal=writeback", 3);
}

#[test]
fn operations_wait_for_a_full_journal_with_contents_in_it() {
    full_journal("journal=full", 2);
}

/// Mounts an image; returns why it is read-only, or why it is not mounted at all.
fn refusal(image: Vec<u8>, ordering: &str) -> String {
    let device = Arc::new(MemoryDevice::from_bytes(image.clone()));
    let said = match Engine::mount(device.clone(), usual().layout(), &options(ordering)) {
        Ok(engine) => {
            let reason = engine.read_only_reason();
            let made = engine.create(engine.root(), b"new", &new_inode(FileType::Regular));
            assert!(made.is_err(), "{reason:?}");
            engine.unmount().unwrap();
            reason.expect("a reason")
        }
        Err(error) => error.to_string(),
    };
    assert!(
        device.snapshot() == image,
        "{ordering}: something was written: {said}"
    );
    said
}

#[test]
fn what_is_not_written_is_refused_by_name() {
    let scratch = Scratch::new("refused");
    let fast = std::fs::read(ext3(&scratch, &["-O", "fast_commit"])).unwrap();
    let path = ext3(&scratch, &[]);
    let journal = journal_blocks(&path)[0] as usize * BLOCK;
    let plain = std::fs::read(&path).unwrap();
    let with = |feature: &str| {
        std::fs::write(&path, &plain).unwrap();
        let request = format!("feature {feature}");
        let (_, said) = tool("debugfs", &["-w", "-R", &request], &path);
        let image = std::fs::read(&path).unwrap();
        assert!(image != plain, "{said}");
        image
    };
    // The words of features in the journal's superblock: compat, incompat, ro_compat; big-endian.
    let in_journal = |word: usize, bit: u32| {
        let mut image = plain.clone();
        let at = journal + 0x24 + 4 * word;
        image[at..at + 4].copy_from_slice(&(1_u32 << bit).to_be_bytes());
        image
    };
    for (image, named) in [
        (fast, "fast_commit"),
        (with("FEATURE_I31"), "FEATURE_I31"),
        (with("FEATURE_R31"), "FEATURE_R31"),
        (in_journal(1, 5), "fast_commit"),
        (in_journal(1, 31), "FEATURE_I31"),
        (in_journal(2, 30), "FEATURE_R30"),
        (in_journal(0, 29), "FEATURE_C29"),
    ] {
        for ordering in ["soft", "journal=ordered"] {
            let said = refusal(image.clone(), ordering);
            assert!(said.contains(named), "{named}, {ordering}: {said}");
        }
    }
}
