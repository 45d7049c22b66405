//! Small writes that follow each other become patches together, and no caller can tell.

use crate::support;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Disk, new_image, new_image_with_journal, write_new};
use backstitch_device::{BlockDevice, Loss, MemoryDevice, WriteRequest};
use backstitch_formats::usual;
use backstitch_vfs::{Engine, InodeNumber, MountOptions, Ordering};

fn disk() -> Disk {
    Disk::new(new_image(4 << 20, 64), Loss::Everything)
}

fn mount_with(disk: &Disk, options: &MountOptions) -> Arc<Engine> {
    Engine::mount(disk.fault.clone(), usual().layout(), options).unwrap()
}

fn read_all(engine: &Engine, inode: InodeNumber) -> Vec<u8> {
    support::read_all(engine, inode).unwrap()
}

/// Checks that the disk has no errors.
fn check(disk: &Disk) {
    let report = support::check(&*disk.memory);
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// The piece of a file that begins at an offset.
fn piece(offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len)
        .map(|at| (at / 7 + at) as u8)
        .collect()
}

/// Writes `pieces` pieces of `len` bytes from `from` on.
fn write_pieces(engine: &Engine, inode: InodeNumber, from: usize, len: usize, pieces: usize) {
    for i in 0..pieces {
        let at = from + i * len;
        assert_eq!(
            engine.write(inode, at as u64, &piece(at, len)).unwrap(),
            len
        );
    }
}

/// How often the engine made or extended a patch.
fn changes(engine: &Engine) -> u64 {
    let patches = engine.stats().patches;
    patches.created + patches.merged_hard + patches.merged_overlap + patches.merged_bits
}

#[test]
fn pieces_of_a_file_are_changes_of_their_blocks_once() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let file = write_new(&engine, engine.root(), "pieces", &piece(0, 100));
    let whole = write_new(&engine, engine.root(), "whole", &piece(0, 100));
    let before = changes(&engine);
    // This ends the gathering: the write follows nothing.
    engine.attributes(whole).unwrap();
    engine.write(whole, 100, &piece(100, 60_000)).unwrap();
    let of_whole = changes(&engine) - before;
    let before = changes(&engine);
    write_pieces(&engine, file, 100, 100, 600);
    assert_eq!(engine.attributes(file).unwrap().size_bytes, 60_100);
    let of_pieces = changes(&engine) - before;
    // The first piece is written at once.
    assert!(
        of_pieces < of_whole + 10,
        "{of_pieces} changes, {of_whole} of a single write"
    );
    assert_eq!(read_all(&engine, file), piece(0, 60_100));
    engine.unmount().unwrap();
    check(&disk);
}

#[test]
fn whatever_is_asked_for_sees_them() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let root = engine.root();
    let file = write_new(&engine, root, "file", &piece(0, 10));
    let mut size = 10;
    let mut grow = || {
        write_pieces(&engine, file, size, 1000, 3);
        size += 3000;
        size
    };
    let size = grow();
    assert_eq!(engine.attributes(file).unwrap().size_bytes as usize, size);
    let size = grow();
    assert_eq!(
        engine.lookup(root, b"file").unwrap().size_bytes as usize,
        size
    );
    let before = engine.statistics().unwrap().free_blocks;
    let size = grow();
    assert!(engine.statistics().unwrap().free_blocks < before);
    assert_eq!(read_all(&engine, file), piece(0, size));
    // A write elsewhere in the file, and a truncation, take effect after the gathered writes.
    let size = grow();
    engine.write(file, size as u64 - 100, &[255; 50]).unwrap();
    let mut expected = piece(0, size);
    expected[size - 100..size - 50].fill(255);
    assert_eq!(read_all(&engine, file), expected);
    let size = grow();
    let set = backstitch_vfs::SetAttributes {
        size_bytes: Some(size as u64 - 2500),
        ..Default::default()
    };
    engine.set_attributes(file, &set).unwrap();
    expected.extend(piece(expected.len(), size - expected.len()));
    expected.truncate(size - 2500);
    assert_eq!(read_all(&engine, file), expected);
    let mut copy = Vec::new();
    grow();
    engine.unlink(root, b"file").unwrap();
    engine.read(file, 0, expected.len(), &mut copy).unwrap();
    assert_eq!(copy, expected);
    engine.unmount().unwrap();
    check(&disk);
}

#[test]
fn an_operation_that_is_on_the_disk_has_what_came_before_it_with_it() {
    let image = new_image_with_journal(8 << 20, 64);
    let options = MountOptions {
        ordering: Ordering::JOURNAL_FULL,
        ..MountOptions::default()
    };
    let disk = Disk::new(image, Loss::Everything);
    let engine = mount_with(&disk, &options);
    let file = write_new(&engine, engine.root(), "before", &piece(0, 10));
    write_pieces(&engine, file, 10, 500, 20);
    let after = write_new(&engine, engine.root(), "after", &[1]);
    engine.fsync(after, false).unwrap();
    let crashed = disk.memory.snapshot();
    drop(engine);
    let disk = Disk::new(crashed, Loss::Everything);
    let engine = mount_with(&disk, &options);
    let file = engine.lookup(engine.root(), b"before").unwrap().inode;
    assert_eq!(read_all(&engine, file), piece(0, 10_010));
    engine.unmount().unwrap();
}

#[test]
fn fsync_sync_and_the_writer_put_them_on_the_disk() {
    type End = fn(&Engine, InodeNumber);
    let wait: End = |engine, _| {
        let asked = Instant::now();
        while engine.stats().blocks_written < 90 {
            assert!(asked.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(300));
    };
    let fsync: End = |engine, file| engine.fsync(file, true).unwrap();
    let sync: End = |engine, _| engine.sync().unwrap();
    for end in [fsync, sync, wait] {
        let options = MountOptions {
            expire_seconds: 0.1,
            ..MountOptions::default()
        };
        let disk = disk();
        let engine = mount_with(&disk, &options);
        let file = write_new(&engine, engine.root(), "file", &piece(0, 10));
        write_pieces(&engine, file, 10, 1000, 90);
        end(&engine, file);
        let crashed = disk.memory.snapshot();
        drop(engine);
        let engine = mount_with(
            &Disk::new(crashed, Loss::Everything),
            &MountOptions::default(),
        );
        let file = engine.lookup(engine.root(), b"file").unwrap().inode;
        assert_eq!(read_all(&engine, file), piece(0, 90_010));
    }
}

#[test]
fn a_full_disk_is_an_error_of_the_write_that_has_no_place() {
    let disk = Disk::new(new_image(2 << 20, 64), Loss::Everything);
    let engine = disk.mount().unwrap();
    let file = write_new(&engine, engine.root(), "file", &piece(0, 10));
    let mut size = 10;
    let error = loop {
        match engine.write(file, size as u64, &piece(size, 700)) {
            Ok(written) => size += written,
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), 28, "{error}");
    assert!(size > 1 << 20);
    engine.fsync(file, false).unwrap();
    assert!(read_all(&engine, file) == piece(0, size));
    engine.unmount().unwrap();
    check(&disk);
}

/// A disk with a file of 20 KiB and another one of 100 bytes; and the place of the first file's
/// indirect block.
fn disk_with_an_indirect_block() -> (Disk, Range<u64>) {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let root = engine.root();
    write_new(&engine, root, "file", &piece(0, 20 << 10));
    write_new(&engine, root, "other", &piece(0, 100));
    engine.unmount().unwrap();
    // The indirect block is the only one that holds pointers, to the file's blocks 12 to 19, which
    // are adjacent.
    let image = disk.memory.snapshot();
    let pointers = |block: &[u8]| -> Vec<u32> {
        let words = block.chunks_exact(4).take(9);
        words
            .map(|w| u32::from_le_bytes(w.try_into().unwrap()))
            .collect()
    };
    let is_list = |p: &[u32]| {
        p[0] > 0 && p[..8].windows(2).all(|w| w[1] == w[0].wrapping_add(1)) && p[8] == 0
    };
    let mut blocks = image.chunks_exact(1024);
    let indirect = blocks.position(|b| is_list(&pointers(b))).unwrap() as u64;
    (disk, indirect * 1024..(indirect + 1) * 1024)
}

#[test]
fn what_has_no_place_for_a_block_cannot_be_read_is_told_by_fsync() {
    let (disk, indirect) = disk_with_an_indirect_block();
    disk.fault.spoil(indirect);
    let engine = disk.mount().unwrap();
    let [file, other] =
        ["file", "other"].map(|name| engine.lookup(engine.root(), name.as_bytes()).unwrap().inode);
    for block in [10, 11, 12, 13] {
        // The first one is written at once. Those behind the last direct block cannot be placed.
        engine.write(file, block << 10, &[9; 1024]).unwrap();
    }
    assert_eq!(engine.fsync(file, false).unwrap_err().errno(), 5);
    engine.fsync(file, false).unwrap();
    // Other files are not affected.
    engine.write(other, 100, &[4; 100]).unwrap();
    engine.fsync(other, false).unwrap();
    let mut found = Vec::new();
    engine.read(file, 10 << 10, 2048, &mut found).unwrap();
    assert_eq!(found, [9; 2048]);
}

/// Keeps the reader of a range waiting.
struct Stalling {
    memory: Arc<MemoryDevice>,
    /// The range, and whether a reader has come.
    stalled: Mutex<(Range<u64>, bool)>,
    changed: Condvar,
}

impl Stalling {
    /// Waits until a thread reads the range.
    fn wait_for_reader(&self) {
        let stalled = self.stalled.lock().unwrap();
        drop(self.changed.wait_while(stalled, |s| !s.1).unwrap());
    }

    /// From now on no reader waits.
    fn let_go(&self) {
        self.stalled.lock().unwrap().0 = 0..0;
        self.changed.notify_all();
    }
}

impl BlockDevice for Stalling {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn name(&self) -> String {
        self.memory.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> backstitch_device::Result<()> {
        let mut stalled = self.stalled.lock().unwrap();
        while stalled.0.contains(&offset_bytes) {
            stalled.1 = true;
            self.changed.notify_all();
            stalled = self.changed.wait(stalled).unwrap();
        }
        drop(stalled);
        self.memory.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> backstitch_device::Result<()> {
        self.memory.submit(batch)
    }

    fn flush(&self) -> backstitch_device::Result<()> {
        self.memory.flush()
    }
}

#[test]
fn somebody_who_waits_for_a_block_leaves_others_theirs() {
    let (disk, indirect) = disk_with_an_indirect_block();
    let device = Arc::new(Stalling {
        memory: disk.memory.clone(),
        stalled: Mutex::new((indirect.clone(), false)),
        changed: Condvar::new(),
    });
    let engine = Engine::mount(device.clone(), usual().layout(), &MountOptions::default()).unwrap();
    let [file, other] =
        ["file", "other"].map(|name| engine.lookup(engine.root(), name.as_bytes()).unwrap().inode);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| engine.write(file, 15 << 10, &[9; 2048]).unwrap());
        device.wait_for_reader();
        write_pieces(&engine, other, 100, 100, 5);
        device.let_go();
        assert_eq!(slow.join().unwrap(), 2048);
    });
    write_pieces(&engine, other, 600, 100, 5);
    assert!(read_all(&engine, other) == piece(0, 1100));
    let mut expected = piece(0, 20 << 10);
    expected[15 << 10..17 << 10].fill(9);
    assert!(read_all(&engine, file) == expected);
    engine.unmount().unwrap();
    check(&disk);
}
