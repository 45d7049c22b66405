//! Our mkfs beside the real one: same geometry, and e2fsck has nothing to say.

use crate::support::{e2fsck, have, open, run, run_ok, sparse_file};
use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_ext::format::features::INCOMPAT_FLEX_BG;
use backstitch_ext::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use backstitch_ext::format::{GroupDescriptor, group};
use backstitch_ext_tools::mkfs::{self, Mkfs, MkfsError};
use backstitch_layout::{BlockNumber, GroupNumber};
use std::path::Path;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn options() -> Mkfs {
    Mkfs {
        device_is_zero: true,
        ..Mkfs::new([0x5a; 16], [0xa5; 16], 1_700_000_000)
    }
}

/// Makes one with ours on a sparse file.
fn make(path: &Path, size: u64, options: &Mkfs) -> Result<Superblock, MkfsError> {
    sparse_file(path, size);
    mkfs::write(options, &open(path, false))
}

fn raw_superblock(device: &dyn BlockDevice) -> RawSuperblock {
    let mut bytes = [0; 1024];
    device.read(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    RawSuperblock::from_array(&bytes)
}

/// Superblock and descriptors, checked.
fn read(path: &Path) -> (RawSuperblock, Superblock, Vec<GroupDescriptor>) {
    let device = open(path, true);
    let mut bytes = [0; 1024];
    device.read(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    let sb = Superblock::parse(&bytes, device.size_bytes()).unwrap();
    let mut table = vec![0; (sb.descriptor_blocks * sb.block_size) as usize];
    let start = sb.block_offset(group::descriptor_table_block(&sb));
    device.read(start, &mut table).unwrap();
    let groups = group::parse_table(&sb, &table).unwrap();
    (raw_superblock(&device), sb, groups)
}

/// The numbers that say how an image is laid out, by name.
fn geometry(raw: &RawSuperblock) -> Vec<(&'static str, u64)> {
    vec![
        ("inodes", raw.s_inodes_count.get().into()),
        ("blocks", raw.s_blocks_count_lo.get().into()),
        ("reserved", raw.s_r_blocks_count_lo.get().into()),
        ("free blocks", raw.s_free_blocks_count_lo.get().into()),
        ("free inodes", raw.s_free_inodes_count.get().into()),
        ("first data block", raw.s_first_data_block.get().into()),
        ("block size", raw.s_log_block_size.get().into()),
        ("cluster size", raw.s_log_cluster_size.get().into()),
        ("blocks per group", raw.s_blocks_per_group.get().into()),
        ("clusters per group", raw.s_clusters_per_group.get().into()),
        ("inodes per group", raw.s_inodes_per_group.get().into()),
        ("max mounts", raw.s_max_mnt_count.get().into()),
        ("state", raw.s_state.get().into()),
        ("errors", raw.s_errors.get().into()),
        ("check interval", raw.s_checkinterval.get().into()),
        ("creator", raw.s_creator_os.get().into()),
        ("revision", raw.s_rev_level.get().into()),
        ("first inode", raw.s_first_ino.get().into()),
        ("inode size", raw.s_inode_size.get().into()),
        ("compat", raw.s_feature_compat.get().into()),
        ("incompat", raw.s_feature_incompat.get().into()),
        ("ro_compat", raw.s_feature_ro_compat.get().into()),
        ("reserved gdt", raw.s_reserved_gdt_blocks.get().into()),
        ("hash", raw.s_def_hash_version.into()),
        ("mount options", raw.s_default_mount_opts.get().into()),
        ("min extra", raw.s_min_extra_isize.get().into()),
        ("want extra", raw.s_want_extra_isize.get().into()),
        ("flags", raw.s_flags.get().into()),
        ("overhead", raw.s_overhead_clusters.get().into()),
    ]
}

/// Makes the same with both and compares superblock and descriptors; e2fsck checks ours.
fn compare(folder: &Path, size: u64, arguments: &[&str], options: &Mkfs) {
    let (theirs, ours) = (folder.join("theirs"), folder.join("ours"));
    sparse_file(&theirs, size);
    let what = format!("{size} bytes, {arguments:?}");
    let path = theirs.to_string_lossy().into_owned();
    let mut all = vec!["-q", "-F", "-t", "ext2"];
    all.extend(arguments);
    all.push(&path);
    run_ok("mke2fs", &all);
    make(&ours, size, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let (raw_theirs, _, groups_theirs) = read(&theirs);
    let (raw_ours, _, groups_ours) = read(&ours);
    assert_eq!(geometry(&raw_ours), geometry(&raw_theirs), "{what}");
    assert_eq!(groups_ours, groups_theirs, "{what}");
    let (status, words) = e2fsck(&ours);
    assert_eq!(status, 0, "{what}: {words}");
}

#[test]
fn default_geometry_is_mke2fs_for_many_sizes() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sizes = [
        512 * KIB,
        MIB,
        2 * MIB,
        3 * MIB - KIB,
        3 * MIB,
        8 * MIB,
        9 * MIB,
        16 * MIB,
        20 * MIB,
        33 * MIB + 5 * KIB,
        100 * MIB,
        256 * MIB,
        300 * MIB,
        511 * MIB,
        512 * MIB,
        600 * MIB,
        GIB,
        4 * GIB,
        10 * GIB + 3 * MIB,
    ];
    for size in sizes {
        compare(folder.path(), size, &[], &options());
    }
}

#[test]
fn geometry_is_mke2fs_for_all_options() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for block_size in [1024, 2048, 4096] {
        for size in [8 * MIB, 40 * MIB, 200 * MIB] {
            let options = Mkfs {
                block_size: Some(block_size),
                ..options()
            };
            compare(
                folder.path(),
                size,
                &["-b", &block_size.to_string()],
                &options,
            );
        }
    }
    for inode_size in [128, 256, 512, 1024] {
        let options = Mkfs {
            inode_size: Some(inode_size),
            ..options()
        };
        compare(
            folder.path(),
            20 * MIB,
            &["-I", &inode_size.to_string()],
            &options,
        );
    }
}

#[test]
fn geometry_is_mke2fs_for_all_inode_counts_and_revisions() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for ratio in [1024, 2048, 65536, 1 << 18] {
        let options = Mkfs {
            bytes_per_inode: Some(ratio),
            inode_size: Some(128),
            ..options()
        };
        let arguments = ["-I", "128", "-i", &ratio.to_string()];
        compare(folder.path(), 64 * MIB, &arguments, &options);
    }
    for count in [100, 5000, 77777] {
        let options = Mkfs {
            inodes: Some(count),
            inode_size: Some(128),
            reserved_percent: 0,
            ..options()
        };
        let arguments = ["-I", "128", "-m", "0", "-N", &count.to_string()];
        compare(folder.path(), 64 * MIB, &arguments, &options);
    }
    for (size, count) in [(8 * MIB, 4096), (20 * MIB, 1024), (64 * MIB, 8000)] {
        let options = Mkfs {
            blocks_per_group: Some(count),
            ..options()
        };
        let count = count.to_string();
        compare(folder.path(), size, &["-g", &count], &options);
    }
    let reserved = Mkfs {
        reserved_percent: 0,
        ..options()
    };
    compare(folder.path(), 20 * MIB, &["-m", "0"], &reserved);
    let old = Mkfs {
        revision: 0,
        ..options()
    };
    compare(folder.path(), 20 * MIB, &["-r", "0"], &old);
}

#[test]
fn geometry_is_mke2fs_for_all_features() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "filetype",
        "sparse_super",
        "large_file",
        "resize_inode",
        "dir_index",
        "ext_attr",
    ];
    for mask in 0..1 << names.len() {
        let mut argument = "none".to_owned();
        for (index, name) in names.iter().enumerate() {
            if mask & (1 << index) != 0 {
                argument = format!("{argument},{name}");
            }
        }
        let is_possible = !argument.contains("resize_inode") || argument.contains("sparse_super");
        for block_size in [1024, 4096] {
            let options = Mkfs {
                features: argument.split(',').map(str::to_owned).collect(),
                block_size: Some(block_size),
                ..options()
            };
            if is_possible {
                let arguments = ["-b", &block_size.to_string(), "-O", &argument];
                compare(folder.path(), 24 * MIB, &arguments, &options);
            } else {
                let error = mkfs::geometry(&options, 24 * MIB).unwrap_err();
                assert!(matches!(error, MkfsError::BadOption(_)), "{error}");
            }
        }
    }
}

#[test]
fn tiny_and_odd_sizes_are_clean_or_refused() {
    if !have("e2fsck", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut made = 0;
    for kib in (1..120).chain([8190, 8193, 8200, 8300, 16500, 24600]) {
        for block_size in [1024, 2048, 4096] {
            let options = Mkfs {
                block_size: Some(block_size),
                ..options()
            };
            match make(&path, kib * KIB, &options) {
                Ok(_) => {
                    let (status, words) = e2fsck(&path);
                    assert_eq!(status, 0, "{kib} KiB, blocks of {block_size}: {words}");
                    made += 1;
                }
                Err(error) => {
                    let is_small =
                        matches!(error, MkfsError::TooSmall(_) | MkfsError::BadOption(_));
                    assert!(is_small && kib < 120, "{kib} KiB, {block_size}: {error}");
                    assert!(kib < 64 || block_size > 1024, "64 KiB must do: {error}");
                }
            }
        }
    }
    assert!(made > 150, "{made}");
    // So few inodes that the first files are in two groups.
    let few = Mkfs {
        bytes_per_inode: Some(1 << 20),
        inode_size: Some(128),
        ..options()
    };
    make(&path, 64 * MIB, &few).unwrap();
    let (status, words) = e2fsck(&path);
    assert_eq!(status, 0, "{words}");
}

#[test]
fn a_terabyte_is_made_quickly_on_a_sparse_file() {
    if !have("dumpe2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let size = 1024 * GIB;
    let sb = make(&path, size, &options()).unwrap();
    assert_eq!(sb.blocks_count, size / 4096);
    let output = run_ok("dumpe2fs", &["-h", &path.to_string_lossy()]);
    assert!(
        output.contains(&format!("Block count:              {}", size / 4096)),
        "{output}"
    );
    // Larger ones differ in their numbers only.
    let largest = mkfs::geometry(&options(), 16 * 1024 * GIB - 4096).unwrap();
    assert_eq!(largest.superblock.blocks_count, u64::from(u32::MAX));
    let error = mkfs::geometry(&options(), 16 * 1024 * GIB).unwrap_err();
    assert!(matches!(error, MkfsError::TooLarge(_)), "{error}");
}

#[test]
fn nothing_is_left_of_what_was_there() {
    // On a device full of ones every block that matters is written: what fsck reads is the same as
    // on a new one.
    if !have("e2fsck", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    for (block_size, size) in [(1024, 20 * MIB), (4096, 40 * MIB)] {
        let device = MemoryDevice::from_bytes(vec![0xff; size as usize]);
        let options = Mkfs {
            block_size: Some(block_size),
            device_is_zero: false,
            ..options()
        };
        mkfs::write(&options, &device).unwrap();
        std::fs::write(&path, device.snapshot()).unwrap();
        let (status, words) = e2fsck(&path);
        assert_eq!(status, 0, "{words}");
    }
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let make = || {
        let device = MemoryDevice::new(8 << 20);
        mkfs::write(&options(), &device).unwrap();
        device.snapshot()
    };
    assert!(make() == make());
}

#[test]
fn bad_options_touch_nothing() {
    let device = MemoryDevice::from_bytes(vec![7; 1 << 20]);
    let tries = [
        Mkfs {
            block_size: Some(512),
            ..options()
        },
        Mkfs {
            inode_size: Some(192),
            ..options()
        },
        Mkfs {
            size_bytes: Some(2 << 20),
            ..options()
        },
        Mkfs {
            label: vec![b'x'; 17],
            ..options()
        },
        Mkfs {
            revision: 0,
            features: vec!["filetype".to_owned()],
            ..options()
        },
        Mkfs {
            features: vec!["has_journal".to_owned()],
            ..options()
        },
        Mkfs {
            inodes: Some(1 << 20),
            ..options()
        },
        Mkfs {
            size_bytes: Some(0),
            ..options()
        },
        Mkfs {
            reserved_percent: 51,
            ..options()
        },
    ];
    for options in tries {
        assert!(mkfs::write(&options, &device).is_err(), "{options:?}");
        assert!(device.snapshot().iter().all(|byte| *byte == 7));
    }
}

#[test]
fn the_kernel_mounts_and_fills_it() {
    if !Path::new("/dev/loop-control").exists() || !have("mount", "mount") {
        eprintln!("skipped: no loop devices here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, mount) = (folder.path().join("image"), folder.path().join("mount"));
    std::fs::create_dir(&mount).unwrap();
    let (image_name, mount_name) = (image.to_string_lossy(), mount.to_string_lossy());
    for (block_size, size) in [
        (1024, 64 * KIB),
        (1024, 20 * MIB),
        (2048, 20 * MIB),
        (4096, GIB),
    ] {
        let options = Mkfs {
            block_size: Some(block_size),
            ..options()
        };
        make(&image, size, &options).unwrap();
        let mounted = run(
            "mount",
            &["-t", "ext2", "-o", "loop", &image_name, &mount_name],
        );
        if !mounted.status.success() {
            eprintln!("skipped: {}", String::from_utf8_lossy(&mounted.stderr));
            return;
        }
        let filled = std::fs::create_dir(mount.join("d"))
            .and_then(|()| std::fs::write(mount.join("d/f"), vec![7; 20_000]));
        run_ok("umount", &[&mount_name]);
        filled.unwrap();
        let (status, words) = e2fsck(&image);
        assert_eq!(status, 0, "blocks of {block_size}: {words}");
    }
}

#[test]
fn nothing_lies_where_the_superblock_is() {
    let device = MemoryDevice::new(8 << 20);
    let mkfs = Mkfs {
        block_size: Some(4096),
        ..Mkfs::new([7; 16], [9; 16], 1_700_000_000)
    };
    let mut sb = mkfs::write(&mkfs, &device).unwrap();
    let table = &device.snapshot()[4096..];
    for features in [0, INCOMPAT_FLEX_BG] {
        sb.features.incompat |= features;
        let sound = GroupDescriptor::parse(&sb, GroupNumber(0), table).unwrap();
        let misplaced = [
            GroupDescriptor {
                block_bitmap: BlockNumber::NONE,
                ..sound
            },
            GroupDescriptor {
                inode_bitmap: BlockNumber::NONE,
                ..sound
            },
            GroupDescriptor {
                inode_table: BlockNumber::NONE,
                ..sound
            },
        ];
        for descriptor in misplaced {
            let what = descriptor
                .misplaced(&sb, GroupNumber(0))
                .expect("block 0")
                .to_string();
            assert!(what.contains(" at 0, must be within"), "{what}");
        }
    }
}
