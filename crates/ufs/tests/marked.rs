//! Images whose superblock says something about who may write to them, or lies.

use crate::support::image::Image;
use crate::support::mounted::{compare, compare_contents, mount};
use crate::support::player::Player;
use crate::support::{Made, have_makefs, makefs, pattern, populate};
use backstitch_device::{BlockDevice, MemoryDevice, OverlayDevice};
use backstitch_layout::{FileType, NewInode, RenameMode, SetAttributes};
use backstitch_ufs::format::attributes;
use backstitch_ufs::format::superblock::{
    FLAG_JOURNAL, FLAG_MULTILABEL, FLAG_NEEDS_CHECK, FLAG_NFS4_ACLS, FLAG_SOFT_UPDATES, MAGIC_UFS2,
    offset,
};
use backstitch_ufs::format::{ByteOrder, OnDisk, RawInode2, RawSuperblock};
use backstitch_ufs::{Ufs, read_superblock};
use backstitch_vfs::{Engine, MountOptions};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// `EXTATTR_NAMESPACE_SYSTEM`
const SYSTEM: u8 = 2;

const UFS2: Made = Made {
    version: 2,
    order: "le",
    block_bytes: 8_192,
    fragment_bytes: 1_024,
};

fn in_memory(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(bytes.len());
    device.write(0, bytes).unwrap();
    Arc::new(device)
}

fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read(0, &mut bytes).unwrap();
    bytes
}

/// A tree, and an image of it.
fn made(made: Made) -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    populate(&tree);
    let path = folder.path().join("image");
    makefs(made, &path, &tree);
    let bytes = std::fs::read(&path).unwrap();
    (folder, bytes)
}

/// The image with another superblock.
fn with(bytes: &[u8], change: impl FnOnce(&mut RawSuperblock)) -> Vec<u8> {
    let sb = read_superblock(&*in_memory(bytes)).unwrap();
    let mut raw = *sb.raw.clone();
    change(&mut raw);
    let mut bytes = bytes.to_vec();
    raw.encode(sb.order, &mut bytes[sb.place as usize..]);
    bytes
}

fn file() -> NewInode<'static> {
    NewInode {
        file_type: FileType::Regular,
        permissions: 0o644,
        umask: 0,
        uid: 0,
        gid: 0,
        device_number: 0,
        target: &[],
    }
}

/// A mount that reads shows the tree; a mount that asks to write does, and says why it does not.
fn is_only_read(bytes: &[u8], tree: &Path, word: &str) {
    let device = in_memory(bytes);
    let engine = mount(device.clone(), false);
    let reason = engine.read_only_reason().unwrap();
    assert!(reason.contains(word), "{reason}");
    assert!(engine.create(engine.root(), b"new", &file()).is_err());
    compare(&engine, tree);
    engine.unmount().unwrap();
    assert!(bytes_of(&*device) == bytes, "the image was written to");
}

#[test]
fn an_image_with_a_journal_that_was_not_unmounted_is_read_and_not_written() {
    if !have_makefs() {
        return;
    }
    let (folder, bytes) = made(UFS2);
    let dirty = with(&bytes, |raw| {
        (raw.fs_clean, raw.fs_old_flags) = (0, 0x80);
        raw.fs_flags = (FLAG_JOURNAL | FLAG_SOFT_UPDATES) as i32;
    });
    let place = read_superblock(&*in_memory(&bytes)).unwrap().place as usize;
    assert_eq!(dirty[place + offset::CLEAN], 0);
    is_only_read(&dirty, &folder.path().join("tree"), "journal");
}

/// FreeBSD replays a journal whose `fs_mtime` is the superblock's, and no other.
#[test]
fn a_journal_from_before_our_mount_is_not_valid_after_it() {
    if !have_makefs() {
        return;
    }
    let (folder, bytes) = made(UFS2);
    let flags = FLAG_JOURNAL | FLAG_SOFT_UPDATES;
    let clean = with(&bytes, |raw| {
        (raw.fs_clean, raw.fs_old_flags) = (1, 0x80);
        (raw.fs_flags, raw.fs_mtime) = (flags as i32, 1_234_567);
    });
    let device = in_memory(&clean);
    let engine = mount(device.clone(), false);
    assert_eq!(engine.read_only_reason(), None);
    engine.create(engine.root(), b"new", &file()).unwrap();
    engine.sync().unwrap();
    let in_use = read_superblock(&*device).unwrap();
    assert_eq!(in_use.flags, flags | FLAG_NEEDS_CHECK);
    assert_eq!(in_use.raw.fs_clean, 0);
    assert_ne!(in_use.raw.fs_mtime, 1_234_567);
    // A crash now leaves what our record tells of, and no journal that FreeBSD would replay.
    let crashed = in_memory(&bytes_of(&*device));
    let again = mount(crashed.clone(), false);
    assert_eq!(again.read_only_reason(), None);
    again.lookup(again.root(), b"new").unwrap();
    again.unmount().unwrap();
    engine.unmount().unwrap();
    for device in [device, crashed] {
        let sb = read_superblock(&*device).unwrap();
        assert!(sb.is_clean());
        assert_eq!(sb.flags, flags);
        assert_ne!(sb.raw.fs_mtime, 1_234_567);
    }
    drop(folder);
}

#[test]
fn an_image_with_snapshots_is_read_and_not_written() {
    if !have_makefs() {
        return;
    }
    let (folder, bytes) = made(UFS2);
    let snapshots = with(&bytes, |raw| raw.fs_snapinum[0] = 5);
    is_only_read(&snapshots, &folder.path().join("tree"), "snapshots");
}

/// An image as kernels from before UFS2 left it: the fields that came with UFS2 are zero.
fn from_before(bytes: &[u8]) -> Vec<u8> {
    with(bytes, |raw| {
        (raw.fs_maxbsize, raw.fs_sblockloc, raw.fs_spare1) = (0, 0, [-1_024, 10]);
        (raw.fs_size, raw.fs_dsize, raw.fs_csaddr, raw.fs_time) = (0, 0, 0, 0);
        (raw.fs_cstotal, raw.fs_metaspace) = (Default::default(), 0);
        (raw.fs_flags, raw.fs_old_flags) = (0, 0);
        (raw.fs_avgfilesize, raw.fs_avgfpdir) = (0, 0);
    })
}

#[test]
fn a_superblock_from_before_ufs2_is_brought_up_to_date() {
    if !have_makefs() {
        return;
    }
    for order in ["le", "be"] {
        let (folder, bytes) = made(Made {
            version: 1,
            order,
            ..UFS2
        });
        let tree = folder.path().join("tree");
        let old = from_before(&bytes);
        let device = in_memory(&old);
        let sb = read_superblock(&*device).unwrap();
        assert!(sb.is_old && sb.is_of_old_make());
        // Who only reads changes nothing.
        let engine = mount(device.clone(), true);
        compare(&engine, &tree);
        engine.unmount().unwrap();
        assert!(bytes_of(&*device) == old, "changed by reading");
        for seed in 0..2 {
            let engine = mount(device.clone(), false);
            assert_eq!(engine.read_only_reason(), None);
            let mut player = Player::new(engine.clone(), &tree, seed);
            (0..200).for_each(|_| player.step());
            compare_contents(&engine, &tree);
            engine.unmount().unwrap();
        }
        let after = read_superblock(&*device).unwrap();
        assert!(!after.is_old && after.is_of_old_make() && after.is_clean());
        let (raw, total) = (&after.raw, &after.raw.fs_cstotal);
        assert_eq!(raw.fs_size, i64::from(raw.fs_old_size));
        assert_eq!(raw.fs_time, i64::from(raw.fs_old_time));
        assert_eq!(total.cs_nbfree, i64::from(raw.fs_old_cstotal.cs_nbfree));
        let image = Image::read(bytes_of(&*device));
        crate::support::image::check_groups(&image, order);
        crate::support::image::check_inodes(&image, order);
    }
}

/// One that FreeBSD's soft updates left is brought up to date as well; one that is not to be written to stays
/// as it is, whatever the reason.
#[test]
fn a_superblock_from_before_ufs2_is_written_to_where_any_is() {
    if !have_makefs() {
        return;
    }
    let (folder, bytes) = made(Made { version: 1, ..UFS2 });
    let (tree, old) = (folder.path().join("tree"), from_before(&bytes));
    let left = with(&old, |raw| {
        (raw.fs_clean, raw.fs_old_flags) = (0, FLAG_SOFT_UPDATES as u8);
    });
    let device = in_memory(&left);
    let engine = mount(device.clone(), false);
    assert_eq!(engine.read_only_reason(), None);
    engine.create(engine.root(), b"new", &file()).unwrap();
    engine.unmount().unwrap();
    let after = read_superblock(&*device).unwrap();
    assert!(!after.is_old && !after.needs_mark() && after.is_clean());
    assert_eq!(after.flags, FLAG_SOFT_UPDATES);
    let snapshots = with(&old, |raw| raw.fs_snapinum[0] = 5);
    is_only_read(&snapshots, &tree, "before UFS2");
    let labels = with(&old, |raw| raw.fs_old_flags = FLAG_MULTILABEL as u8);
    is_only_read(&labels, &tree, "MAC labels");
    let cut_off = with(&old, |raw| raw.fs_clean = 0);
    is_only_read(&cut_off, &tree, "run fsck");
}

/// A crash may leave any of the sectors that were being written.
#[test]
fn a_crash_while_a_superblock_is_brought_up_to_date_leaves_the_tree() {
    if !have_makefs() {
        return;
    }
    let (folder, bytes) = made(Made { version: 1, ..UFS2 });
    let old = from_before(&bytes);
    let sb = read_superblock(&*in_memory(&old)).unwrap();
    let mut before = old.clone();
    for step in sb.upgrade().unwrap() {
        let mut after = before.clone();
        step.encode(sb.order, &mut after[sb.place as usize..]);
        for arrived in 0..8_usize {
            let mut torn = before.clone();
            for sector in (0..3).filter(|sector| arrived >> sector & 1 == 1) {
                let at = sb.place as usize + sector * 512;
                torn[at..at + 512].copy_from_slice(&after[at..at + 512]);
            }
            let device = in_memory(&torn);
            let engine = mount(device.clone(), false);
            assert_eq!(engine.read_only_reason(), None, "{arrived:03b}");
            compare(&engine, &folder.path().join("tree"));
            engine.create(engine.root(), b"new", &file()).unwrap();
            engine.unmount().unwrap();
            let sb = read_superblock(&*device).unwrap();
            let is_unfinished = sb.is_old || sb.needs_mark();
            assert!(sb.is_clean() && !is_unfinished, "{arrived:03b}");
        }
        before = after;
    }
}

/// Access lists are attributes of the system's; a mount of ours keeps them byte for byte, whatever
/// happens to their file. Nothing here writes attributes: they are made of a file's contents.
#[test]
fn access_lists_are_kept_and_shown() {
    if !have_makefs() {
        return;
    }
    let (_folder, bytes) = made(UFS2);
    let names = ["nfs4.acl", "posix1e.acl_access"];
    let values = [pattern(3, 3_048), pattern(4, 392)];
    let order = ByteOrder::Little;
    let lists = names.iter().zip(&values);
    let encoded: Vec<u8> = lists
        .flat_map(|(name, value)| attributes::encode(order, SYSTEM, name.as_bytes(), value))
        .collect();
    let device = in_memory(&with(&bytes, |raw| {
        raw.fs_old_flags = 0x80;
        raw.fs_flags = FLAG_NFS4_ACLS as i32;
    }));
    let engine = mount(device.clone(), false);
    let root = engine.root();
    let inode = engine.create(root, b"round 0", &file()).unwrap().inode;
    engine.write(inode, 0, &encoded).unwrap();
    engine.unmount().unwrap();
    let sb = read_superblock(&*device).unwrap();
    let (fragment, within) = sb.inode_place(inode);
    let at = fragment * u64::from(sb.fragment_bytes) + within as u64;
    let mut raw = vec![0; RawInode2::SIZE];
    device.read(at, &mut raw).unwrap();
    let mut raw = RawInode2::decode(order, &raw);
    (raw.di_extsize, raw.di_extb[0]) = (encoded.len() as u32, raw.di_db[0]);
    (raw.di_size, raw.di_db[0]) = (0, 0);
    device.write(at, &raw.to_bytes(order)).unwrap();
    for round in 0..3_u64 {
        let engine = mount(device.clone(), false);
        let name = format!("round {round}");
        let found = engine.lookup(root, name.as_bytes()).unwrap();
        let listed = engine.list_xattrs(found.inode).unwrap();
        for (name, value) in names.iter().zip(&values) {
            let name = format!("trusted.freebsd.{name}");
            let shown = engine.get_xattr(found.inode, name.as_bytes()).unwrap();
            assert!(shown == *value, "{name}, {round}");
            let mut all = listed.split(|byte| *byte == 0);
            assert!(all.any(|listed| listed == name.as_bytes()), "{name}");
        }
        let set = SetAttributes {
            permissions: Some(0o600 + round as u16),
            size_bytes: Some(found.size_bytes + 7_000),
            ..SetAttributes::default()
        };
        engine.set_attributes(found.inode, &set).unwrap();
        engine.write(found.inode, 100, &[1; 9_000]).unwrap();
        let next = format!("round {}", round + 1);
        let (from, to) = (name.as_bytes(), next.as_bytes());
        let replace = RenameMode::Replace;
        engine.rename(root, from, root, to, replace).unwrap();
        engine.unmount().unwrap();
    }
    assert_eq!(read_superblock(&*device).unwrap().flags, FLAG_NFS4_ACLS);
}

/// It would be read as zeros without end.
#[test]
fn a_size_that_no_file_has_is_damage() {
    if !have_makefs() {
        return;
    }
    let (_folder, bytes) = made(UFS2);
    let device = in_memory(&bytes);
    let engine = mount(device.clone(), true);
    let inode = engine.lookup(engine.root(), b"file7").unwrap().inode;
    engine.unmount().unwrap();
    let sb = read_superblock(&*device).unwrap();
    let (fragment, within) = sb.inode_place(inode);
    let at = fragment * u64::from(sb.fragment_bytes) + within as u64;
    let at = at + std::mem::offset_of!(RawInode2, di_size) as u64;
    device.write(at, &(1_u64 << 60).to_le_bytes()).unwrap();
    let engine = mount(device, true);
    let error = engine.lookup(engine.root(), b"file7").unwrap_err();
    assert!(error.to_string().contains("size"), "{error}");
    engine.lookup(engine.root(), b"file8").unwrap();
    engine.unmount().unwrap();
}

/// With blocks of 64 KiB, `makefs` has the superblock of a UFS2 at 8192 and the first group's copy at
/// 65536, where another UFS2 has its superblock.
#[test]
fn a_copy_is_not_taken_for_the_superblock() {
    if !have_makefs() {
        return;
    }
    for order in ["le", "be"] {
        let (folder, bytes) = made(Made {
            block_bytes: 65_536,
            fragment_bytes: 8_192,
            order,
            ..UFS2
        });
        let device = in_memory(&bytes);
        let sb = read_superblock(&*device).unwrap();
        assert_eq!(sb.place, 8_192);
        let copy = RawSuperblock::decode(sb.order, &bytes[65_536..]);
        assert_eq!(copy.fs_magic, MAGIC_UFS2);
        let tree = folder.path().join("tree");
        for seed in 0..3 {
            let engine = mount(device.clone(), false);
            assert_eq!(engine.read_only_reason(), None);
            let mut player = Player::new(engine.clone(), &tree, seed);
            (0..100).for_each(|_| player.step());
            engine.sync().unwrap();
            let in_use = bytes_of(&*device);
            assert_eq!(in_use[8_192 + offset::CLEAN], 0);
            compare_contents(&engine, &tree);
            engine.unmount().unwrap();
        }
        let after = bytes_of(&*device);
        assert_eq!(after[8_192 + offset::CLEAN], 1);
        assert!(after[65_536..65_536 + 1_376] == bytes[65_536..65_536 + 1_376]);
        let image = Image::read(after);
        crate::support::image::check_groups(&image, order);
        crate::support::image::check_inodes(&image, order);
    }
}

/// Where a number of the superblock is wrong a mount refuses it, or writes where it may: what was
/// written is there in the next mount, and so is what was there before.
#[test]
fn no_number_of_the_superblock_leads_a_mount_astray() {
    if !have_makefs() {
        return;
    }
    let mut mounted = 0;
    for version in [1, 2] {
        let (_folder, bytes) = made(Made { version, ..UFS2 });
        let place = read_superblock(&*in_memory(&bytes)).unwrap().place as usize;
        let fields = (0..1_376).step_by(4).filter(|at| !(212..680).contains(at));
        let good = in_memory(&bytes);
        for at in fields {
            let value: u32 = [16, 1_000][at / 4 % 2];
            let damaged = Arc::new(OverlayDevice::new(good.clone()));
            let at_byte = (place + at) as u64;
            damaged.write(at_byte, &u32::to_le_bytes(value)).unwrap();
            mounted += u32::from(is_used(damaged, &format!("UFS{version}: {value} at {at}")));
        }
    }
    assert!(mounted > 120, "only {mounted} were mounted");
}

/// Whether a mount writes to the image, which it must then have done well.
fn is_used(device: Arc<dyn BlockDevice>, what: &str) -> bool {
    let Ok(engine) = Engine::mount(device.clone(), &Ufs, &MountOptions::default()) else {
        return false;
    };
    let root = engine.root();
    let contents = pattern(1, 30_000);
    let written = (engine.create(root, b"new", &file())).and_then(|made| {
        engine.write(made.inode, 0, &contents)?;
        engine.forget(made.inode, 1);
        engine.sync()
    });
    if written.is_err() || engine.read_only_reason().is_some() {
        let _ = engine.unmount();
        return false;
    }
    engine.unmount().unwrap();
    let engine = Engine::mount(device, &Ufs, &MountOptions::default())
        .unwrap_or_else(|error| panic!("{what}: the image is lost: {error}"));
    for (name, expected) in [
        ("new", &contents),
        ("large", &pattern(99, 3_000_001)),
        ("file8", &pattern(8, 40_000)),
    ] {
        let mut found = Vec::new();
        let read = (engine.lookup(root, name.as_bytes()))
            .and_then(|inode| engine.read(inode.inode, 0, expected.len() + 1, &mut found));
        assert!(read.is_ok() && found == *expected, "{what}: {name} is lost");
    }
    engine.unmount().unwrap();
    true
}
