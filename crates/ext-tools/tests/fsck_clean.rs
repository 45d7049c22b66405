//! Our check finds nothing on images in which e2fsck finds nothing.

use crate::support::{debugfs, e2fsck, filled_image, have, open, run, source_tree, sparse_file};
use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_ext::format::{MountRecord, superblock};
use backstitch_ext_tools::fsck::{self, Options, Report};
use backstitch_ext_tools::mkfs::{self, Mkfs};
use backstitch_ordering::CrashRecord;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn check(image: &Path) -> Report {
    fsck::check(&open(image, true), &Options::default()).unwrap()
}

fn assert_clean(image: &Path, what: &str) -> Report {
    let (status, words) = e2fsck(image);
    assert_eq!(status, 0, "{what}: {words}");
    let report = check(image);
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
    assert!(report.notes.is_empty(), "{what}: {:#?}", report.notes);
    report
}

#[test]
fn images_of_mke2fs_in_all_variants() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    source_tree(&tree, 400);
    let variants: &[&[&str]] = &[
        &[],
        &["-b", "1024"],
        &["-b", "2048"],
        &["-b", "4096"],
        &["-I", "128"],
        &["-I", "512"],
        &["-r", "0"],
        &["-g", "1024"],
        &["-b", "1024", "-g", "2048", "-N", "5000"],
        &["-O", "none"],
        &["-O", "none,filetype"],
        &["-O", "none,sparse_super"],
        &["-O", "none,large_file,ext_attr"],
        &["-O", "none,dir_index,filetype,ext_attr"],
        &["-O", "^resize_inode"],
        &["-O", "^dir_index"],
        &["-O", "^filetype"],
        &["-O", "^large_file"],
        &["-O", "^ext_attr"],
        &["-O", "sparse_super2,^resize_inode"],
        &["-O", "has_journal"],
    ];
    for arguments in variants {
        filled_image(&image, 24 * MIB, arguments, &tree);
        let report = assert_clean(&image, &format!("{arguments:?}"));
        assert_eq!(report.summary.directories, 7, "{arguments:?}");
        let summary = report.summary;
        assert!(summary.regular_files >= 404, "{arguments:?}: {summary:?}");
        assert_eq!(report.summary.symlinks, 2);
        assert_eq!(report.summary.special_files, 3);
    }
}

#[test]
fn hashed_directories_of_every_kind() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    source_tree(&tree, 3000);
    filled_image(&image, 24 * MIB, &["-b", "1024"], &tree);
    for flags in ["1", "2"] {
        for hash in ["legacy", "half_md4", "tea"] {
            let set = format!("set_super_value def_hash_version {hash}");
            debugfs(&image, &[&set, &format!("set_super_value flags {flags}")]);
            run("e2fsck", &["-fyD", &image.to_string_lossy()]);
            let words = debugfs(&image, &["htree_dump /many"]);
            assert!(words.contains("Indirect levels: 1"), "no deep index");
            assert_clean(&image, &format!("{hash}, flags {flags}"));
        }
    }
}

#[test]
fn free_space_is_what_dumpe2fs_says() {
    if !have("dumpe2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    source_tree(&tree, 400);
    filled_image(&image, 40 * MIB, &["-b", "4096"], &tree);
    let report = check(&image);
    let output = run("dumpe2fs", &["-h", &image.to_string_lossy()]);
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let field = |name: &str| -> u64 {
        let line = words.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().last().unwrap().parse().unwrap()
    };
    let summary = report.summary;
    assert_eq!(
        field("Block count:") - field("Free blocks:"),
        summary.used_blocks
    );
    assert_eq!(
        field("Inode count:") - field("Free inodes:"),
        summary.used_inodes
    );
}

#[test]
fn images_that_were_resized() {
    if !have("resize2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    source_tree(&tree, 400);
    filled_image(&image, 24 * MIB, &["-b", "1024", "-g", "1024"], &tree);
    for size in ["60M", "300M", "50M"] {
        let output = run("resize2fs", &["-f", &image.to_string_lossy(), size]);
        assert!(output.status.success(), "{output:?}");
        assert_clean(&image, size);
    }
}

#[test]
fn our_mkfs_in_memory_whatever_the_threads() {
    for (block_size, size) in [(1024, 64 << 10), (1024, 40 << 20), (4096, 64 << 20)] {
        let device = MemoryDevice::new(size);
        let options = Mkfs {
            block_size: Some(block_size),
            ..Mkfs::new([1; 16], [2; 16], 1 << 30)
        };
        mkfs::write(&options, &device).unwrap();
        let one = Options {
            threads: Some(1),
            ..Options::default()
        };
        let many = Options {
            threads: Some(4),
            ..Options::default()
        };
        let report = fsck::check(&device, &one).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        let other = fsck::check(&device, &many).unwrap();
        assert!(other.is_clean(), "{:#?}", other.findings);
        assert_eq!(report.summary, other.summary);
        let bytes = device.snapshot();
        let slice = fsck::check_source(&fsck::SliceSource(&bytes), &one).unwrap();
        assert_eq!(slice.summary, report.summary);
    }
}

#[test]
fn our_record_in_the_superblock_does_not_disturb_e2fsck() {
    if !have("e2fsck", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    sparse_file(&image, 8 * MIB);
    let uuid = [7; 16];
    {
        let device = open(&image, false);
        mkfs::write(&Mkfs::new(uuid, [2; 16], 1 << 30), &device).unwrap();
        let record = MountRecord {
            mechanism: CrashRecord::SOFT,
            mount_count: 1,
            mount_time_seconds: 1 << 30,
            atomic_unit_bytes: 4096,
        };
        let place = superblock::SUPERBLOCK_OFFSET + superblock::OFFSET_RECORD as u64;
        device.write(place, &record.encode(&uuid)).unwrap();
        device.flush().unwrap();
    }
    assert_clean(&image, "with the record");
    // e2fsck and debugfs write the superblock back with the record in it.
    debugfs(&image, &["set_super_value mnt_count 3"]);
    run("e2fsck", &["-fy", &image.to_string_lossy()]);
    let mut bytes = [0; 1024];
    open(&image, true)
        .read(superblock::SUPERBLOCK_OFFSET, &mut bytes)
        .unwrap();
    let sb = superblock::Superblock::parse(&bytes, 8 * MIB).unwrap();
    assert_eq!(
        sb.record.map(|record| record.mechanism),
        Some(CrashRecord::SOFT)
    );
}

#[test]
fn a_dirty_flag_is_a_note_and_no_fault() {
    if !have("e2fsck", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    sparse_file(&image, 8 * MIB);
    let mkfs = Mkfs::new([1; 16], [2; 16], 1 << 30);
    mkfs::write(&mkfs, &open(&image, false)).unwrap();
    debugfs(&image, &["set_super_value state 0"]);
    assert_eq!(e2fsck(&image).0, 0);
    let report = check(&image);
    assert!(report.is_clean());
    assert_eq!(report.exit_status(), 0);
    assert_eq!(report.notes[0].code, fsck::Code::NotUnmounted);
}
