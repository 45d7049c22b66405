//! A reclaim that is cut off keeps what it gave back: the next one has less to do, and in the end
//! nothing is left.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::crash::Machine;
use backstitch_device::MemoryDevice;
use backstitch_ext_tools::fsck::{self, Options, SliceSource};
use backstitch_ext_tools::mkfs::{self, Mkfs};
use backstitch_layout::{FileType, InodeNumber, ReclaimStep};
use backstitch_mechanisms::Ordering;
use backstitch_store::{Optimisations, drive};

const BLOCK: usize = 1024;
const FILES: usize = 96;
const FILE_BYTES: usize = 30 * BLOCK;

fn open(image: Vec<u8>) -> Machine {
    let memory = Arc::new(MemoryDevice::from_bytes(image));
    Machine::open(memory, Ordering::SOFT, BLOCK as u32, Optimisations::BOTH)
}

/// What a crash may leave of files in three groups: a third is in order, a third lost its names but
/// is there (as if the power had failed between the two), a third is freed but for its bits (open
/// when it was removed).
fn crashed() -> Vec<u8> {
    let memory = MemoryDevice::new(17 << 20);
    let mut options = Mkfs::new([7; 16], [9; 16], 1_600_000_000);
    options.block_size = Some(BLOCK as u32);
    mkfs::write(&options, &memory).unwrap();
    let mut machine = open(memory.snapshot());
    let root = machine.fs.root();
    let mut nameless = Vec::new();
    for group in 0..8 {
        let directory = machine.make_directory(root, &format!("d{group}"));
        for number in 0..FILES / 8 {
            let name = format!("f{number}");
            let file = machine.make(directory, &name);
            machine
                .write_at(file, 0, &vec![number as u8 + 1; FILE_BYTES])
                .unwrap();
            match number % 3 {
                0 => {}
                1 => nameless.push(file),
                _ => {
                    machine.drain();
                    machine.fs.hold(file);
                    machine
                        .run(|fs, v, now| fs.unlink(v, directory, name.as_bytes(), now))
                        .unwrap();
                }
            }
        }
    }
    machine.drain();
    let mut image = machine.memory.snapshot();
    for file in nameless {
        take_name(&mut image, file);
    }
    image
}

/// Clears the number in the entry that stands for an inode, as its removal does.
fn take_name(image: &mut [u8], file: InodeNumber) {
    let number = file.0.to_le_bytes();
    // Length of the name, type of a regular file, "f".
    let is_entry = |entry: &[u8]| {
        entry[..4] == number && (2..=3).contains(&entry[6]) && entry[7] == 1 && entry[8] == b'f'
    };
    let at = (0..image.len() - 12)
        .step_by(4)
        .find(|at| is_entry(&image[*at..*at + 12]))
        .unwrap();
    image[at..at + 4].fill(0);
}

/// Opens a state and reclaims for some steps, writing what can be written after each. Returns what
/// the disk holds then, unless the reclaim came to its end, and how many steps it took.
fn reclaim_for(image: Vec<u8>, steps: usize) -> (Vec<u8>, Option<usize>) {
    let mut machine = open(image);
    for step in 1..=steps {
        let done = machine.run(|fs, v, now| fs.reclaim(v, now)).unwrap();
        let mut all = Vec::new();
        machine.store.uncommitted(&mut all);
        drive::sync(&mut machine.store, &machine.devices, &all, Duration::ZERO).unwrap();
        machine.background();
        if done == ReclaimStep::Done {
            machine.drain();
            machine.run(|fs, v, now| fs.write_counters(v, now)).unwrap();
            machine.drain();
            machine.run(|fs, v, now| fs.mark_clean(v, now)).unwrap();
            machine.drain();
            return (machine.memory.snapshot(), Some(step));
        }
    }
    (machine.memory.snapshot(), None)
}

/// Free blocks and inodes as a mount counts them: by the bitmaps.
fn free(image: &[u8]) -> u64 {
    let found = open(image.to_vec()).fs.statistics();
    found.free_blocks + found.free_inodes
}

fn consistent(image: &[u8]) -> bool {
    let found = fsck::check_source(&SliceSource(image), &Options::default()).unwrap();
    found.is_consistent()
}

fn is_clean(image: &[u8]) -> bool {
    let found = fsck::check_source(&SliceSource(image), &Options::default()).unwrap();
    found.is_clean()
}

fn assert_clean(image: &[u8]) {
    assert!(is_clean(image));
    if Command::new("e2fsck").arg("-V").output().is_err() {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    let output = Command::new("e2fsck")
        .arg("-fn")
        .arg(file.path())
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{report}");
}

#[test]
fn a_reclaim_cut_in_half_has_given_back_half() {
    let image = crashed();
    let (whole, steps) = reclaim_for(image.clone(), usize::MAX);
    let steps = steps.unwrap();
    assert_clean(&whole);
    let (before, after) = (free(&image), free(&whole));
    let leaked = after - before;
    assert!(leaked > (FILES * FILE_BYTES / BLOCK) as u64 / 2, "{leaked}");
    let mut last = 0;
    let mut halfway = 0;
    for cut in (0..steps).step_by(steps.div_ceil(8)) {
        let (state, done) = reclaim_for(image.clone(), cut);
        assert_eq!(done, None);
        assert!(consistent(&state), "cut after {cut} steps of {steps}");
        let back = free(&state) - before;
        assert!(back >= last, "{back} after {cut} steps, {last} before");
        last = back;
        if cut <= steps / 2 {
            halfway = back;
        }
        // Begun again, it gives back the rest and nothing else.
        let (state, done) = reclaim_for(state, usize::MAX);
        assert!(done.is_some());
        assert!(is_clean(&state));
        assert_eq!(free(&state), after);
    }
    let part = halfway as f64 / leaked as f64;
    eprintln!(
        "{steps} steps; half of them gave back {:.0} %",
        part * 100.0
    );
    assert!(part >= 0.45, "{part}");
}

#[test]
fn a_reclaim_that_is_cut_again_and_again_comes_to_its_end() {
    let (whole, steps) = reclaim_for(crashed(), usize::MAX);
    // Each cut comes a little later: a reclaim keeps what it gave back, but not what it has seen.
    let mut state = crashed();
    let mut seen = vec![free(&state)];
    for cut in 1.. {
        let (next, done) = reclaim_for(state, cut * steps.unwrap() / 12);
        state = next;
        if done.is_some() {
            break;
        }
        assert!(consistent(&state), "{cut}");
        seen.push(free(&state));
    }
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(seen.len() > 6 && seen[seen.len() - 2] > seen[0], "{seen:?}");
    assert_clean(&state);
    assert_eq!(free(&state), free(&whole));
}

#[test]
fn whoever_waits_for_the_names_does_not_wait_for_the_blocks() {
    let mut machine = open(crashed());
    let root = machine.fs.root();
    let d0 = machine.run(|fs, v, _| fs.lookup(v, root, b"d0")).unwrap();
    let d1 = machine.run(|fs, v, _| fs.lookup(v, root, b"d1")).unwrap();
    // The scan, and a part of the maps.
    for _ in 0..6 {
        machine.run(|fs, v, now| fs.reclaim(v, now)).unwrap();
        machine.drain();
    }
    machine.move_to(root, "d0", d1);
    let progress = machine.fs.reclaim_progress();
    assert!(progress.is_settled && progress.running, "{progress:?}");
    assert_eq!(progress.freed_blocks, 0, "{progress:?}");
    machine.reclaim_until(|progress| !progress.running);
    machine.drain();
    assert_eq!(machine.run(|fs, v, _| fs.lookup(v, d1, b"d0")).unwrap(), d0);
    let kind = machine
        .run(|fs, v, _| fs.attributes(v, d0))
        .unwrap()
        .file_type;
    assert_eq!(kind, FileType::Directory);
    assert!(machine.fs.reclaim_progress().freed_blocks > 0);
    machine.run(|fs, v, now| fs.write_counters(v, now)).unwrap();
    machine.drain();
    machine.run(|fs, v, now| fs.mark_clean(v, now)).unwrap();
    machine.drain();
    assert_clean(&machine.memory.snapshot());
}
