//! A snapshot of a file system in use: it shows one moment, whatever goes on meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use backstitch_device::{Fault, FaultDevice, FaultKind, FaultLength, Loss, MemoryDevice};

use crate::support::{
    Disk, check, mount, mount_under, new_image, new_image_with_journal, new_inode, read_all,
    write_new,
};
use backstitch_mechanisms::Ordering;
use backstitch_vfs::{Engine, FileType, InodeNumber, RenameMode};

const SIZE_BYTES: usize = 12 << 20;
const WRITERS: usize = 3;

/// A writer in a directory of its own. Each step builds on all before, so that the directory shows
/// which step was the last.
struct Writer {
    directory: InodeNumber,
    /// Steps that have returned.
    done: AtomicU64,
}

impl Writer {
    fn new(engine: &Engine, number: usize) -> Writer {
        let new = new_inode(FileType::Directory);
        let name = format!("writer{number}");
        let made = engine.create(engine.root(), name.as_bytes(), &new).unwrap();
        write_new(engine, made.inode, "log", b"");
        Writer {
            directory: made.inode,
            done: AtomicU64::new(0),
        }
    }

    /// One step: a line at the end of the log, a new file, the removal of an earlier one, and at
    /// every second step a rename.
    fn step(&self, engine: &Engine) {
        let step = self.done.load(SeqCst) + 1;
        let log = engine.lookup(self.directory, b"log").unwrap();
        let line = format!("{step:07}\n");
        engine
            .write(log.inode, log.size_bytes, line.as_bytes())
            .unwrap();
        engine.forget(log.inode, 1);
        let made = write_new(
            engine,
            self.directory,
            &format!("f{step}"),
            &[step as u8; 3000],
        );
        engine.forget(made, 1);
        if step > 4 {
            let gone = format!("f{}", step - 4);
            engine.unlink(self.directory, gone.as_bytes()).unwrap();
        }
        if step.is_multiple_of(2) {
            let (from, to) = (format!("f{step}"), format!("g{}", step % 6));
            let (at, mode) = (self.directory, RenameMode::Replace);
            engine
                .rename(at, from.as_bytes(), at, to.as_bytes(), mode)
                .unwrap();
            let again = write_new(engine, at, &from, &[step as u8; 10]);
            engine.forget(again, 1);
        }
        self.done.store(step, SeqCst);
    }
}

/// The last step that a directory in a copy shows. Checks that it shows all steps up to that: lines
/// without a gap, and the files that the steps before left.
fn shown(engine: &Engine, number: usize) -> u64 {
    let name = format!("writer{number}");
    let directory = engine.lookup(engine.root(), name.as_bytes()).unwrap().inode;
    let log = engine.lookup(directory, b"log").unwrap().inode;
    let text = String::from_utf8(read_all(engine, log).unwrap()).unwrap();
    let mut last: u64 = 0;
    for line in text.lines() {
        last += 1;
        assert_eq!(line, format!("{last:07}"), "writer {number}");
    }
    // The last line's step may have been under way: nothing is promised of the rest of it, nor of
    // its removal.
    for step in last.saturating_sub(3).max(1)..last {
        let file = engine
            .lookup(directory, format!("f{step}").as_bytes())
            .unwrap_or_else(|e| panic!("writer {number}, step {step} of {last}: {e}"));
        let found = read_all(engine, file.inode).unwrap();
        let len = if step.is_multiple_of(2) { 10 } else { 3000 };
        assert_eq!(found, vec![step as u8; len], "writer {number}, step {step}");
    }
    assert!(
        engine
            .lookup(directory, format!("f{}", last + 1).as_bytes())
            .is_err()
    );
    last
}

/// Recovers a copy, as the command does, and returns the last step of each writer in it.
fn recovered(copy: &Arc<MemoryDevice>, ordering: Ordering) -> Vec<u64> {
    let engine = mount_under(copy.clone(), ordering).unwrap();
    assert_eq!(engine.read_only_reason(), None);
    assert!(engine.recovery().needed);
    let seen = (0..WRITERS).map(|n| shown(&engine, n)).collect();
    engine.unmount().unwrap();
    assert!(check(&**copy).is_clean(), "{:?}", check(&**copy).findings);
    seen
}

/// Runs `work` beside the writers.
fn with_writers(engine: &Engine, work: impl FnOnce(&[Writer])) {
    let writers: Vec<Writer> = (0..WRITERS).map(|n| Writer::new(engine, n)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in &writers {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    writer.step(engine);
                    if writer.done.load(SeqCst) % 50 == 0 {
                        engine.sync().unwrap();
                    }
                }
            });
        }
        // Stops the writers even if `work` panics.
        let _stop = Stop(&stop);
        work(&writers);
    });
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn done(writers: &[Writer]) -> Vec<u64> {
    writers.iter().map(|w| w.done.load(SeqCst)).collect()
}

#[test]
fn it_shows_one_moment_while_writers_go_on() {
    one_moment(new_image(SIZE_BYTES, 512), Ordering::SOFT);
}

#[test]
fn it_shows_one_moment_of_a_mount_with_a_journal() {
    for mode in [Ordering::JOURNAL_ORDERED, Ordering::JOURNAL_FULL] {
        let image = new_image_with_journal(SIZE_BYTES, 512);
        one_moment(image, mode);
    }
}

fn one_moment(image: Vec<u8>, ordering: Ordering) {
    let disk = Disk::new(image, Loss::Half);
    let engine = mount_under(disk.fault.clone(), ordering).unwrap();
    with_writers(&engine, |writers| {
        let wait_for_steps = |more: u64| {
            let goal = writers[0].done.load(SeqCst) + more;
            let started = Instant::now();
            while writers[0].done.load(SeqCst) < goal {
                assert!(started.elapsed().as_secs() < 20, "the writers are stuck");
                std::thread::sleep(Duration::from_micros(100));
            }
        };
        for _ in 0..8 {
            wait_for_steps(60);
            let copy = Arc::new(MemoryDevice::new(SIZE_BYTES));
            let before = done(writers);
            let mut moment_is_over = None;
            engine
                .snapshot(copy.clone(), &mut |_| {
                    moment_is_over.get_or_insert_with(|| done(writers));
                    // Many steps are done while the copy is made.
                    wait_for_steps(3);
                    true
                })
                .unwrap();
            let after = moment_is_over.unwrap();
            let seen = recovered(&copy, ordering);
            for number in 0..WRITERS {
                let range = before[number]..=after[number] + 1;
                assert!(range.contains(&seen[number]), "{range:?}: {seen:?}");
            }
            assert!(done(writers)[0] > seen[0] + 3, "nothing happened meanwhile");
        }
    });
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

#[test]
fn files_without_names_are_not_in_it() {
    let disk = Disk::new(new_image(SIZE_BYTES, 512), Loss::Half);
    let engine = disk.mount().unwrap();
    let kept = write_new(&engine, engine.root(), "kept", &[1; 5000]);
    write_new(&engine, engine.root(), "open", &[2; 50_000]);
    engine.sync().unwrap();
    // The file is still open: its reference stays.
    engine.unlink(engine.root(), b"open").unwrap();
    let copy = Arc::new(MemoryDevice::new(SIZE_BYTES));
    engine.snapshot(copy.clone(), &mut |_| true).unwrap();
    engine.write(kept, 0, &[9; 5000]).unwrap();
    engine.sync().unwrap();
    let copied = mount(copy.clone()).unwrap();
    let found = copied.lookup(copied.root(), b"kept").unwrap().inode;
    assert_eq!(read_all(&copied, found).unwrap(), [1; 5000]);
    assert!(copied.lookup(copied.root(), b"open").is_err());
    copied.unmount().unwrap();
    assert!(check(&*copy).is_clean());
    let free = |engine: &Engine| engine.statistics().unwrap().free_blocks;
    engine.unmount().unwrap();
    let [one, other] = [mount(copy).unwrap(), disk.mount().unwrap()];
    assert_eq!(free(&one), free(&other), "the space of what had no name");
}

#[test]
fn free_blocks_are_not_copied() {
    let disk = Disk::new(new_image(SIZE_BYTES, 512), Loss::Half);
    let engine = disk.mount().unwrap();
    let file = write_new(&engine, engine.root(), "large", &[0xaa; 4 << 20]);
    engine.forget(file, 1);
    engine.sync().unwrap();
    engine.unlink(engine.root(), b"large").unwrap();
    engine.sync().unwrap();
    engine.sync().unwrap();
    let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == 0xaa).count();
    assert!(count(&disk.memory.snapshot()) >= 4 << 20);
    let copy = Arc::new(MemoryDevice::new(SIZE_BYTES));
    engine.snapshot(copy.clone(), &mut |_| true).unwrap();
    assert!(
        count(&copy.snapshot()) < 10_000,
        "{}",
        count(&copy.snapshot())
    );
    engine.unmount().unwrap();
}

#[test]
fn a_copy_that_fails_harms_nobody() {
    let disk = Disk::new(new_image(SIZE_BYTES, 512), Loss::Half);
    let engine = disk.mount().unwrap();
    // Zeros are left out, so this alone takes 32 writes, however far the writers have come.
    let mut stripes = [0; 64 * 4096];
    for stripe in stripes.chunks_mut(2 * 4096) {
        stripe[4096..].fill(7);
    }
    write_new(&engine, engine.root(), "stripes", &stripes);
    engine.sync().unwrap();
    let small = Arc::new(MemoryDevice::new(SIZE_BYTES / 2));
    assert!(engine.snapshot(small, &mut |_| true).is_err());
    with_writers(&engine, |writers| {
        for number in [1, 2, 5, 20] {
            let out = FaultDevice::new(Arc::new(MemoryDevice::new(SIZE_BYTES)), Loss::Half);
            out.inject(Fault {
                kind: FaultKind::Write,
                number,
                length: FaultLength::Gone,
            });
            let failed = engine.snapshot(Arc::new(out), &mut |_| true);
            assert!(
                failed.unwrap_err().to_string().contains("injected"),
                "{number}"
            );
        }
        let copy = Arc::new(MemoryDevice::new(SIZE_BYTES));
        let stopped = engine.snapshot(copy.clone(), &mut |_| false);
        assert!(stopped.unwrap_err().to_string().contains("has ended"));
        let other = Arc::new(MemoryDevice::new(SIZE_BYTES));
        engine
            .snapshot(copy, &mut |_| {
                let second = engine.snapshot(other.clone(), &mut |_| true);
                assert!(second.unwrap_err().to_string().contains("another snapshot"));
                true
            })
            .unwrap();
        let started = Instant::now();
        while done(writers)[0] == 0 {
            assert!(started.elapsed().as_secs() < 20, "the writers are stuck");
            std::thread::sleep(Duration::from_micros(100));
        }
    });
    assert_eq!(engine.read_only_reason(), None);
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
    let after = engine.snapshot(Arc::new(MemoryDevice::new(SIZE_BYTES)), &mut |_| true);
    assert!(after.unwrap_err().to_string().contains("unmounted"));
}
