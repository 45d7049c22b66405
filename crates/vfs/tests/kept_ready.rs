//! Inodes and blocks that are marked ahead for programs that fsync often: they are in no other
//! operation's way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Disk, check, mount, new_image, new_inode, read_all, write_new};
use backstitch_device::{Loss, SlowFlushDevice};
use backstitch_vfs::{Engine, FileType, InodeNumber, RenameMode, SetAttributes};

/// How often the other thread repeats its operation if it is not stopped.
const MOST_TIMES: usize = 1000;

/// A file that grows behind its indirect block, and is fsynced often enough for that block to move
/// to new places.
struct Log {
    inode: InodeNumber,
    end: u64,
}

impl Log {
    fn new(engine: &Engine) -> Log {
        let inode = write_new(engine, engine.root(), "log", &[1; 13 << 10]);
        engine.fsync(inode, false).unwrap();
        let mut log = Log {
            inode,
            end: 13 << 10,
        };
        (0..3).for_each(|_| log.append(engine));
        log
    }

    fn append(&mut self, engine: &Engine) {
        engine.write(self.inode, self.end, &[3; 100]).unwrap();
        engine.fsync(self.inode, true).unwrap();
        self.end += 1 << 10;
    }
}

fn create_flushed(engine: &Engine, directory: InodeNumber, name: &str, bytes: &[u8]) {
    let file = write_new(engine, directory, name, bytes);
    engine.fsync(file, false).unwrap();
    engine.forget(file, 1);
}

/// Makes as many inodes as possible. Returns how many.
fn fill_inodes(engine: &Engine, file_type: FileType) -> u64 {
    let new = new_inode(file_type);
    let mut made = 0;
    while let Ok(attributes) = engine.create(
        engine.root(),
        format!("{file_type:?} {made}").as_bytes(),
        &new,
    ) {
        engine.forget(attributes.inode, 1);
        made += 1;
    }
    made
}

fn fill_blocks(engine: &Engine, file: InodeNumber) -> u64 {
    let mut end = 0;
    while (engine.write(file, end, &[4; 1 << 10])).is_ok_and(|written| written > 0) {
        end += 1 << 10;
    }
    end
}

/// Repeats `again` in another thread while `body` runs. `body` must come to its end first.
fn beside(mut again: impl FnMut() + Send, body: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let times = (0..MOST_TIMES).take_while(|_| !done.load(Ordering::Relaxed));
            times.map(|_| again()).count()
        });
        body();
        done.store(true, Ordering::Relaxed);
        other.join().unwrap()
    });
    assert!(times < MOST_TIMES, "it waited for the other one");
}

/// The last inode and the last block can be had by any operation. For directories the groups keep a
/// count, which must be right.
#[test]
fn it_is_there_for_all_when_nothing_else_is_left() {
    for file_type in [FileType::Regular, FileType::Directory] {
        let disk = Disk::new(new_image(2 << 20, 64), Loss::Half);
        let engine = disk.mount().unwrap();
        let mut log = Log::new(&engine);
        for n in 0..3 {
            create_flushed(&engine, engine.root(), &format!("flushed {n}"), &[2; 100]);
            log.append(&engine);
        }
        let free = engine.statistics().unwrap().free_inodes;
        assert_eq!(fill_inodes(&engine, file_type), free);
        let free = engine.statistics().unwrap().free_blocks;
        let file = engine.lookup(engine.root(), b"flushed 0").unwrap().inode;
        let end = fill_blocks(&engine, file);
        // All free blocks were written, except for the indirect ones.
        let indirect = (end >> 10).div_ceil(256) + 1;
        assert!(
            (end >> 10) + indirect >= free,
            "{end} bytes in {free} blocks"
        );
        engine.unmount().unwrap();
        assert!(check(&*disk.memory).is_clean());
    }
}

/// A disk whose flushes take as long as a fast drive's, so that other calls come during one.
fn mount_slow(disk: &Disk) -> Arc<Engine> {
    let slow = SlowFlushDevice::new(disk.fault.clone(), Duration::from_millis(1));
    mount(Arc::new(slow)).unwrap()
}

#[test]
fn no_free_inode_is_told_while_a_log_goes_on() {
    let disk = Disk::new(new_image(8 << 20, 64), Loss::Half);
    let engine = mount_slow(&disk);
    let mut log = Log::new(&engine);
    fill_inodes(&engine, FileType::Regular);
    beside(
        || log.append(&engine),
        || {
            let new = new_inode(FileType::Regular);
            let error = engine.create(engine.root(), b"one more", &new).unwrap_err();
            assert_eq!(error.errno(), 28, "{error}");
        },
    );
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

#[test]
fn no_free_block_is_told_while_files_are_made() {
    let disk = Disk::new(new_image(4 << 20, MOST_TIMES as u32 + 100), Loss::Half);
    let engine = mount_slow(&disk);
    let root = engine.root();
    let directory = engine.create(root, b"mail", &new_inode(FileType::Directory));
    let directory = directory.unwrap().inode;
    // The directory gets room for all the names before the test.
    let names: Vec<String> = (0..MOST_TIMES).map(|n| format!("{n:08}")).collect();
    let new = new_inode(FileType::Regular);
    for name in &names {
        engine.create(directory, name.as_bytes(), &new).unwrap();
    }
    for name in &names {
        engine.unlink(directory, name.as_bytes()).unwrap();
    }
    engine.sync().unwrap();
    let large = write_new(&engine, root, "large", &[]);
    let mut left = names.iter();
    beside(
        || {
            if let Some(name) = left.next() {
                create_flushed(&engine, directory, name, &[]);
            }
        },
        || assert!(fill_blocks(&engine, large) > 0),
    );
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).is_clean());
}

/// What is marked ahead and cannot be given back is put aside; everything else goes on.
#[test]
fn a_bitmap_that_cannot_be_read_keeps_nothing_else_waiting() {
    let disk = Disk::new(new_image(8 << 20, 256), Loss::Everything);
    let engine = disk.mount().unwrap();
    let root = engine.root();
    let short = write_new(&engine, root, "short", &[5; 40_000]);
    for n in 0..3 {
        create_flushed(&engine, root, &format!("flushed {n}"), &[2; 100]);
    }
    // Larger than memory, so that the bitmap has to be read again.
    let large = write_new(&engine, root, "large", &[6; 3 << 20]);
    engine.fsync(large, false).unwrap();
    let image = disk.memory.snapshot();
    let bitmap = u32::from_le_bytes(image[2052..2056].try_into().unwrap());
    let at = u64::from(bitmap) * 1024;
    disk.fault.spoil(at..at + 1024);

    let before = engine.statistics().unwrap().free_blocks;
    let empty = SetAttributes {
        size_bytes: Some(0),
        ..SetAttributes::default()
    };
    engine.set_attributes(short, &empty).unwrap();
    engine.sync().unwrap();
    let stats = engine.stats();
    assert_eq!((stats.deferred.unreadable, stats.deferred.pending), (1, 0));
    assert_eq!(stats.read_only, None);
    let freed = engine.statistics().unwrap().free_blocks - before;
    assert!(freed >= 40, "{freed} blocks");
    engine.write(short, 0, &[7; 40_000]).unwrap();
    assert_eq!(engine.unmount().unwrap_err().errno(), 5);
    drop(engine);
    assert!(check(&*disk.memory).is_consistent());
}

/// A program that renames a new file expects its contents under the new name, fsynced or not.
#[test]
fn a_new_file_has_its_contents_under_its_next_name() {
    for mode in [RenameMode::Replace, RenameMode::Exchange] {
        let disk = Disk::new(new_image(4 << 20, 256), Loss::Everything);
        let engine = disk.mount().unwrap();
        let root = engine.root();
        for n in 0..3 {
            create_flushed(&engine, root, &format!("flushed {n}"), &[2; 100]);
        }
        create_flushed(&engine, root, "conf", &[1; 3000]);
        let new = write_new(&engine, root, "conf.new", &[2; 500]);
        // In its first block, and in further ones.
        engine.write(new, 500, &[2; 300]).unwrap();
        engine.write(new, 800, &[2; 2200]).unwrap();
        engine
            .rename(root, b"conf.new", root, b"conf", mode)
            .unwrap();
        // Writes the names, and only what these need.
        engine.fsync(root, false).unwrap();
        drop(engine);
        let engine = mount(disk.memory.clone()).unwrap();
        let conf = engine.lookup(root, b"conf").unwrap().inode;
        assert!(read_all(&engine, conf).unwrap() == [2; 3000], "{mode:?}");
    }
}
