//! Patchgroups through the engine: what they cost, how callers hear of them, and that they leave
//! nothing behind.

use crate::support;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::support::gate::{Gate, Held};
use crate::support::{Disk, after, check, new_image, new_inode, read_all, write_new};
use backstitch_device::{BlockDevice, FaultKind, FaultLength, Loss, MemoryDevice};
use backstitch_formats::usual;
use backstitch_mechanisms::Ordering;
use backstitch_vfs::{Engine, Error, FileType, GroupError, InodeNumber, MountOptions, NewInode};

fn disk() -> Disk {
    Disk::new(new_image(8 << 20, 512), Loss::Everything)
}

fn append(engine: &Engine, inode: InodeNumber, data: &[u8]) {
    let end = engine.attributes(inode).unwrap().size_bytes;
    assert_eq!(engine.write(inode, end, data).unwrap(), data.len());
}

#[test]
fn a_chain_of_appends_costs_no_more_than_one() {
    let disk = disk();
    // With enough memory nothing is written before it is asked for.
    let options = MountOptions {
        cache_bytes: MountOptions::default().cache_bytes,
        ..support::options(Ordering::SOFT)
    };
    let engine = Engine::mount(disk.fault.clone(), usual().layout(), &options).unwrap();
    let root = engine.root();
    let file = write_new(&engine, root, "mbox", &[1; 100]);
    engine.sync().unwrap();
    let before = disk.fault.counts();
    let mut last = None;
    for message in 0..100_u8 {
        let data = [message; 700];
        last = Some(after(&engine, last, || append(&engine, file, &data)));
    }
    engine.group_sync(last.unwrap()).unwrap();
    let flushes = disk.fault.counts().flushes - before.flushes;
    // Contents and pointers behind the end, then the inode.
    assert!(flushes <= 3, "{flushes} flushes for a chain of 100 groups");
    engine.group_close(last.unwrap());
    let stats = engine.stats().patchgroups;
    assert_eq!((stats.open, stats.engaged, stats.listeners), (0, 0, 0));
    assert_eq!(read_all(&engine, file).unwrap().len(), 100 + 100 * 700);
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).findings.is_empty());
}

#[test]
fn what_is_done_later_waits_for_what_was_done_before() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let root = engine.root();
    write_new(&engine, root, "in", &[1; 3000]);
    engine.sync().unwrap();
    let first = after(&engine, None, || {
        write_new(&engine, root, "out", &[2; 3000]);
    });
    let second = after(&engine, Some(first), || engine.unlink(root, b"in").unwrap());
    // The sync is for the file's name only: all of the other file comes with it.
    engine.group_sync(second).unwrap();
    assert!(engine.group_is_durable(second).unwrap());
    let image = Disk::new(disk.memory.snapshot(), Loss::Everything);
    let recovered = image.mount().unwrap();
    assert!(recovered.lookup(recovered.root(), b"in").is_err());
    let out = recovered.lookup(recovered.root(), b"out").unwrap();
    assert_eq!(read_all(&recovered, out.inode).unwrap(), [2; 3000]);
}

#[test]
fn those_who_listen_hear_when_it_is_there_or_will_never_be() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let root = engine.root();
    let group = after(&engine, None, || {
        write_new(&engine, root, "a", &[1; 3000]);
    });
    assert!(!engine.group_is_durable(group).unwrap());
    let (told, heard) = mpsc::channel();
    engine
        .group_listen(group, move || told.send(()).unwrap())
        .unwrap();
    let waiting = {
        let engine = engine.clone();
        std::thread::spawn(move || engine.group_wait(group))
    };
    assert!(heard.recv_timeout(Duration::from_millis(20)).is_err());
    engine.sync().unwrap();
    heard.recv_timeout(Duration::from_secs(20)).unwrap();
    waiting.join().unwrap().unwrap();
    assert!(engine.group_is_durable(group).unwrap());

    // Listeners of a group that is closed, and of one whose device fails.
    let count = Arc::new(AtomicU32::new(0));
    let counts = || {
        let count = count.clone();
        move || {
            count.fetch_add(1, SeqCst);
        }
    };
    let closed = after(&engine, None, || {
        write_new(&engine, root, "b", &[1; 3000]);
    });
    engine.group_listen(closed, counts()).unwrap();
    engine.group_close(closed);
    assert_eq!(count.load(SeqCst), 1);
    let lost = after(&engine, None, || {
        write_new(&engine, root, "c", &[1; 3000]);
    });
    engine.group_listen(lost, counts()).unwrap();
    disk.fault.inject(backstitch_device::Fault {
        kind: FaultKind::Flush,
        number: disk.fault.counts().flushes + 1,
        length: FaultLength::Gone,
    });
    assert_eq!(engine.group_sync(lost).unwrap_err().errno(), 5);
    assert_eq!(engine.group_is_durable(lost).unwrap_err().errno(), 5);
    assert_eq!(engine.group_wait(lost).unwrap_err().errno(), 5);
    assert_eq!(count.load(SeqCst), 2);
}

#[test]
fn a_group_is_for_the_operations_it_was_engaged_for() {
    let disk = disk();
    let engine = disk.mount().unwrap();
    let root = engine.root();
    let first = after(&engine, None, || {
        write_new(&engine, root, "a", &[1; 3000]);
    });
    let group = engine.group_create().unwrap();
    engine.group_depend(group, first).unwrap();
    assert_eq!(
        engine.group_engage(first).unwrap_err(),
        Error::Group(GroupError::Sealed)
    );
    engine.group_engage(group).unwrap();
    // Operations of another thread, and of this one outside the group, wait for nothing.
    let before = disk.fault.counts();
    let other = engine.clone();
    std::thread::spawn(move || {
        write_new(&other, root, "b", &[1; 3000]);
    })
    .join()
    .unwrap();
    assert_eq!(disk.fault.counts().flushes, before.flushes);
    engine.group_sync(group).unwrap();
    let image = Disk::new(disk.memory.snapshot(), Loss::Everything);
    let recovered = image.mount().unwrap();
    assert!(recovered.lookup(recovered.root(), b"a").is_ok());
    engine.group_close(group);
    engine.group_close(first);
    assert_eq!(engine.stats().patchgroups.open, 0);
    assert_eq!(engine.stats().patchgroups.engaged, 0);
    engine.unmount().unwrap();
    assert_eq!(disk.memory.size_bytes(), 8 << 20);
}

/// Writes into two files in turn until it is told to stop. Each write has a group of its own, which
/// comes after the one before.
fn chain_without_end(engine: &Engine, files: [InodeNumber; 2], is_over: &AtomicBool) {
    let mut last = None;
    let mut turns = files.into_iter().cycle();
    while let Some(file) = turns.next()
        && !is_over.load(Relaxed)
    {
        last = Some(after(engine, last, || {
            assert_eq!(engine.write(file, 0, b"mine").unwrap(), 4);
        }));
    }
    // The last group is not closed.
}

#[test]
fn an_endless_chain_of_groups_holds_up_nobody_else() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let memory = Arc::new(MemoryDevice::from_bytes(new_image(8 << 20, 512)));
    let device = Gate::new(memory.clone(), Held::Flushes, false);
    let engine = support::mount(device.clone()).unwrap();
    let root = engine.root();
    let files = ["a", "b"].map(|name| write_new(&engine, root, name, &[1; 100]));
    engine.sync().unwrap();
    device.set(true);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| chain_without_end(&engine, files, &is_over));
        // Nothing reaches the disk, so the chain fills its share of memory and waits.
        let since = std::time::Instant::now();
        while engine.stats().memory.throttled == 0 {
            assert!(since.elapsed() < PATIENCE, "the chain waits for nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (done, others_work) = mpsc::channel();
        let (engine, device, is_over) = (&engine, &device, &is_over);
        scope.spawn(move || {
            // These are in the same block of the inode table, the same bitmaps, the same directory.
            let mine = (0..50).map(|i| write_new(engine, root, &format!("c{i}"), &[2; 700]));
            let mine: Vec<InodeNumber> = mine.collect();
            done.send(engine.stats().memory.throttled).unwrap();
            for file in mine {
                engine.fsync(file, false).unwrap();
            }
            done.send(0).unwrap();
        });
        let made = others_work.recv_timeout(PATIENCE);
        device.set(false);
        let synced = others_work.recv_timeout(PATIENCE);
        is_over.store(true, Relaxed);
        assert_eq!(made, Ok(1), "only the chain has waited");
        assert_eq!(synced, Ok(0), "what others want on the disk gets there");
    });
    engine.sync().unwrap();
    let stats = engine.stats();
    assert_eq!((stats.patches.live, stats.patchgroups.engaged), (0, 0));
    engine.unmount().unwrap();
    assert!(check(&*memory).findings.is_empty());
}

/// A chain of groups that changes, in turn, the names of a directory and a file elsewhere.
fn chain_through_names(engine: &Engine, directory: InodeNumber, links: u32) {
    let own = engine.lookup(engine.root(), b"own").unwrap().inode;
    let mut last = None;
    for link in 0..links {
        last = Some(after(engine, last, || {
            write_new(engine, directory, &format!("link{link}"), b"");
        }));
        last = Some(after(engine, last, || {
            engine.write(own, 0, &link.to_le_bytes()).unwrap();
        }));
    }
    // The last group is never closed.
}

#[test]
fn a_name_beside_those_of_a_long_chain_waits_for_little_of_it_where_others_may_write() {
    let disk = Disk::new(new_image(8 << 20, 1024), Loss::Everything);
    let options = MountOptions {
        cache_bytes: MountOptions::default().cache_bytes,
        ..support::options(Ordering::SOFT)
    };
    let engine = Engine::mount(disk.fault.clone(), usual().layout(), &options).unwrap();
    let root = engine.root();
    write_new(&engine, root, "own", &[1; 1024]);
    for (name, permissions, is_shared) in [("tmp", 0o1777, true), ("home", 0o755, false)] {
        let new = NewInode {
            permissions,
            ..new_inode(FileType::Directory)
        };
        let directory = engine.create(root, name.as_bytes(), &new).unwrap().inode;
        engine.sync().unwrap();
        let before = disk.fault.counts().flushes;
        chain_through_names(&engine, directory, 300);
        let while_it_was_made = disk.fault.counts().flushes - before;
        // In a directory that only its owner can write to nothing waits.
        assert_eq!(while_it_was_made > 0, is_shared, "{name}");
        let before = disk.fault.counts().flushes;
        let mine = write_new(&engine, directory, "mine", &[2; 700]);
        engine.fsync(mine, false).unwrap();
        let flushes = disk.fault.counts().flushes - before;
        assert_eq!(flushes < 80, is_shared, "{name}: {flushes} flushes");
    }
    engine.unmount().unwrap();
    assert!(check(&*disk.memory).findings.is_empty());
}
