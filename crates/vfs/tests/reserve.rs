//! Blocks that are reserved: what asks for a user takes all others and none of them, by whatever
//! operation; root, and what asks for nobody, take them.

use std::sync::Arc;

use crate::support::{Disk, new_image, new_inode, options, read_all, write_new};
use backstitch_device::{Loss, MemoryDevice};
use backstitch_formats::{Layout, named, usual};
use backstitch_layout::tools::{CheckOptions, DeviceSource, Mkfs};
use backstitch_mechanisms::Ordering;
use backstitch_vfs::{
    Allocate, Engine, FileType, InodeNumber, NewInode, Result, SetXattrMode, User,
};

const NO_SPACE: i32 = 28;
const USER: Option<User> = Some(User { uid: 1, gid: 1 });
const ROOT: Option<User> = Some(User { uid: 0, gid: 0 });

fn mount(disk: &Disk, layout: Layout) -> Arc<Engine> {
    let device = disk.fault.clone();
    Engine::mount(device, layout.layout(), &options(Ordering::SOFT)).unwrap()
}

#[track_caller]
fn unmount_and_check(engine: &Engine, disk: &Disk, layout: Layout) {
    engine.unmount().unwrap();
    let source = DeviceSource(&*disk.memory);
    let report = layout.check(&source, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

fn ext2() -> Vec<u8> {
    new_image(3 << 20, 128)
}

fn ufs2() -> Vec<u8> {
    let device = MemoryDevice::new(4 << 20);
    let (layout, _) = named("ufs2").unwrap();
    let mkfs = Mkfs {
        block_size: Some(4096),
        fragment_size: Some(512),
        ..Mkfs::new([7; 16], [9; 16], 1_700_000_000)
    };
    layout.make(&mkfs, &device).unwrap();
    device.snapshot()
}

/// Writes pieces of `len` bytes for the user until there is no space: into one file, then the rest
/// into files of one unit each. Returns the file, and how long it is.
fn fill(engine: &Engine, len: usize) -> (InodeNumber, u64) {
    let (root, new) = (engine.root(), new_inode(FileType::Regular));
    let file = engine.create(root, b"big", &new).unwrap().inode;
    let data = vec![7; len];
    let mut size = 0;
    loop {
        match engine.for_user(USER).write(file, size, &data) {
            Ok(written) => size += written as u64,
            Err(error) => break assert_eq!(error.errno(), NO_SPACE),
        }
    }
    for number in 0..64 {
        let name = format!("small{number}");
        let small = engine.create(root, name.as_bytes(), &new).unwrap().inode;
        if let Err(error) = engine.for_user(USER).write(small, 0, &[7; 512]) {
            assert_eq!(error.errno(), NO_SPACE);
            return (file, size);
        }
    }
    panic!("much was left: {:?}", engine.statistics());
}

#[test]
fn a_user_takes_all_others_and_no_more() {
    for (name, image) in [("ext2", ext2()), ("ufs2", ufs2())] {
        let (layout, _) = named(name).unwrap();
        // Small ones are gathered; of a long one a part fits.
        for len in [500, 100_000] {
            let disk = Disk::new(image.clone(), Loss::Nothing);
            let engine = mount(&disk, layout);
            let before = engine.statistics().unwrap();
            let reserve = before.free_blocks - before.available_blocks;
            assert!(reserve > 100, "{name}: {reserve}");
            let (file, size) = fill(&engine, len);
            let left = engine.statistics().unwrap();
            assert_eq!(left.free_blocks, reserve, "{name}, {len}");
            assert_eq!(engine.attributes(file).unwrap().size_bytes, size);
            engine.fsync(file, false).unwrap();
            let found = read_all(&engine, file).unwrap();
            assert!(found.iter().all(|byte| *byte == 7), "{name}, {len}");
            let more = [8; 10_000];
            for user in [ROOT, None] {
                let at = engine.attributes(file).unwrap().size_bytes;
                let written = engine.for_user(user).write(file, at, &more).unwrap();
                assert_eq!(written, more.len(), "{name}, {user:?}");
            }
            assert!(engine.statistics().unwrap().free_blocks < reserve);
            unmount_and_check(&engine, &disk, layout);
        }
    }
}

/// An operation that takes a block.
type Taking<'a> = (
    &'a str,
    &'a dyn Fn(&Arc<Engine>, Option<User>) -> Result<()>,
);

#[test]
fn every_operation_that_takes_a_block_is_refused() {
    let long = [b'x'; 500];
    let symlink = NewInode {
        target: &long,
        ..new_inode(FileType::Symlink)
    };
    let reserve = Allocate::Reserve { keep_size: false };
    let operations: &[Taking<'_>] = &[
        ("mkdir", &|e, user| {
            let new = new_inode(FileType::Directory);
            e.for_user(user).create(e.root(), b"d", &new).map(drop)
        }),
        ("symlink", &|e, user| {
            let made = e.for_user(user).create(e.root(), b"l", &symlink);
            made.map(drop)
        }),
        ("allocate", &|e, user| {
            let file = e.lookup(e.root(), b"empty")?.inode;
            e.for_user(user).allocate(file, reserve, 0, 5000)
        }),
        ("copy_range", &|e, user| {
            let from = e.lookup(e.root(), b"big")?.inode;
            let to = e.lookup(e.root(), b"empty")?.inode;
            let copied = e.for_user(user).copy_range(from, 0, to, 9000, 5000);
            copied.map(drop)
        }),
        ("set_xattr", &|e, user| {
            let file = e.lookup(e.root(), b"empty")?.inode;
            let any = SetXattrMode::Any;
            e.for_user(user).set_xattr(file, b"user.a", &[1; 500], any)
        }),
        ("link", &|e, user| {
            let file = e.lookup(e.root(), b"big")?.inode;
            // More names than the directory's block has room for.
            for number in 0..8 {
                let name = format!("{number:0200}");
                e.for_user(user).link(file, e.root(), name.as_bytes())?;
            }
            Ok(())
        }),
        ("rename", &|e, user| {
            let directory = e.lookup(e.root(), b"full")?.inode;
            let mode = backstitch_vfs::RenameMode::Replace;
            let name = [b'n'; 200];
            (e.for_user(user)).rename(e.root(), b"empty", directory, &name, mode)
        }),
    ];
    let disk = Disk::new(ext2(), Loss::Nothing);
    let engine = mount(&disk, usual());
    write_new(&engine, engine.root(), "empty", b"");
    let new = new_inode(FileType::Directory);
    let full = engine.create(engine.root(), b"full", &new).unwrap().inode;
    for number in 0..4 {
        write_new(&engine, full, &format!("{number:0220}"), b"");
    }
    fill(&engine, 50_000);
    for (name, operation) in operations {
        let before = engine.statistics().unwrap().free_blocks;
        let refused = operation(&engine, USER).expect_err(name);
        assert_eq!(refused.errno(), NO_SPACE, "{name}");
        assert_eq!(engine.statistics().unwrap().free_blocks, before, "{name}");
    }
    for (name, operation) in operations {
        if *name == "link" {
            continue; // Some of its names are there already.
        }
        let before = engine.statistics().unwrap().free_blocks;
        operation(&engine, ROOT).expect(name);
        assert!(engine.statistics().unwrap().free_blocks < before, "{name}");
    }
    unmount_and_check(&engine, &disk, usual());
}
