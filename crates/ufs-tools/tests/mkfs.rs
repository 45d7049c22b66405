//! What mkfs makes: the geometry, what foreign readers say of it, and what is refused.

use crate::support::{have, run_ok};
use backstitch_device::MemoryDevice;
use backstitch_layout::tools::MkfsError;
use backstitch_ufs::format::superblock::SUPERBLOCK_BYTES;
use backstitch_ufs::format::{Superblock, Version};
use backstitch_ufs_tools::info;
use backstitch_ufs_tools::mkfs::{self, Mkfs};

fn wanted(features: &[&str]) -> Mkfs {
    let mut mkfs = Mkfs::new(*b"0123456789abcdef", [2; 16], 1_700_000_000);
    mkfs.features = features.iter().map(|name| (*name).to_owned()).collect();
    mkfs
}

/// What newfs(8) of FreeBSD 10 prints: megabytes, blocks and inodes of each of four groups, and the
/// sectors with copies of the superblock.
const NEWFS: [(usize, u32, u32, [u64; 4]); 2] = [
    (64, 513, 2_176, [192, 33_024, 65_856, 98_688]),
    (1_024, 8_193, 32_896, [192, 524_544, 1_048_896, 1_573_248]),
];

#[test]
fn the_usual_geometry_is_that_of_newfs() {
    for (mebibytes, blocks, inodes, copies) in NEWFS {
        let device = MemoryDevice::new(mebibytes << 20);
        let mut mkfs = wanted(&[]);
        mkfs.device_is_zero = true;
        let sb = mkfs::write(&mkfs, &device).unwrap();
        assert_eq!((sb.version, sb.place), (Version::Ufs2, 65_536));
        assert_eq!((sb.block_bytes, sb.fragment_bytes), (32_768, 4_096));
        assert_eq!(
            (sb.fragments_per_group / 8, sb.inodes_per_group),
            (blocks, inodes)
        );
        let groups = backstitch_layout::GroupNumber::all(sb.groups);
        let found: Vec<u64> = groups.map(|group| sb.superblock_copy(group) * 8).collect();
        assert_eq!(found, copies);
        assert_eq!(sb.cluster_sums, 4);
    }
}

#[test]
fn ufs1_limits_its_groups_by_their_inodes() {
    let device = MemoryDevice::new(2 << 30);
    let mut mkfs = wanted(&["ufs1"]);
    mkfs.bytes_per_inode = Some(4_096);
    mkfs.device_is_zero = true;
    let sb = mkfs::write(&mkfs, &device).unwrap();
    assert_eq!((sb.version, sb.place), (Version::Ufs1, 8_192));
    assert!(sb.inodes_per_group <= 0x7fff && sb.inodes_per_group > 0x7000);
}

#[test]
fn every_group_has_a_copy_of_the_superblock() {
    for features in [&["ufs1"][..], &["ufs2", "big_endian"]] {
        let device = MemoryDevice::new(32 << 20);
        let sb = mkfs::write(&wanted(features), &device).unwrap();
        let bytes = device.snapshot();
        for group in backstitch_layout::GroupNumber::all(sb.groups) {
            let at = (sb.superblock_copy(group) * u64::from(sb.fragment_bytes)) as usize;
            let copy = &bytes[at..at + SUPERBLOCK_BYTES];
            let copy = Superblock::parse(copy, sb.place, 32 << 20).unwrap();
            assert_eq!(copy, sb);
        }
    }
}

#[test]
fn sleuthkit_reads_what_is_made() {
    if !have("fsstat", "sleuthkit") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for (features, kind) in [
        (&["ufs1"][..], "UFS 1"),
        (&["ufs2"], "UFS 2"),
        (&["ufs1", "big_endian"], "UFS 1"),
        (&["ufs2", "big_endian"], "UFS 2"),
    ] {
        let device = MemoryDevice::new(32 << 20);
        let mut mkfs = wanted(features);
        mkfs.label = b"backup".to_vec();
        let sb = mkfs::write(&mkfs, &device).unwrap();
        std::fs::write(&image, device.snapshot()).unwrap();
        let name = image.to_string_lossy();
        let said = run_ok("fsstat", &[&name]);
        assert!(said.contains(kind), "{features:?}: {said}");
        let groups = format!("Number of Cylinder Groups: {}", sb.groups);
        assert!(said.contains(&groups), "{said}");
        let listed = run_ok("istat", &[&name, "2"]);
        assert!(listed.contains("Allocated"), "{listed}");
    }
}

#[test]
fn info_tells_what_was_asked_for() {
    let device = MemoryDevice::new(16 << 20);
    let mut mkfs = wanted(&["ufs1", "big_endian", "acls"]);
    mkfs.label = b"backup".to_vec();
    mkfs.fragment_size = Some(1_024);
    mkfs::write(&mkfs, &device).unwrap();
    let info = info::read(&device).unwrap();
    assert_eq!((info.type_name, &*info.label), ("ufs1", &b"backup"[..]));
    assert_eq!(info.uuid, *b"0123456789abcdef");
    assert_eq!(info.features, ["big_endian", "soft_updates", "acls"]);
    assert_eq!(
        (info.block_bytes, info.whole_block_bytes),
        (1_024, Some(8_192))
    );
    assert_eq!((info.size_bytes(), info.inode_bytes), (16 << 20, 128));
    assert!(info.free_blocks < info.blocks && info.free_inodes == info.inodes - 3);
    assert!(info::read(&MemoryDevice::new(1 << 20)).is_err());
    assert!(info::read(&MemoryDevice::new(100)).is_err());
}

#[test]
fn what_cannot_be_had_is_refused_and_nothing_is_written() {
    let refused = |change: &dyn Fn(&mut Mkfs), bytes| {
        let mut mkfs = wanted(&["ufs2"]);
        change(&mut mkfs);
        let device = MemoryDevice::new(bytes);
        let error = mkfs::write(&mkfs, &device).unwrap_err();
        assert!(mkfs::planned_inodes(&mkfs, bytes as u64).is_err());
        assert!(device.snapshot().iter().all(|byte| *byte == 0));
        error
    };
    let bad: &[&dyn Fn(&mut Mkfs)] = &[
        &|mkfs| mkfs.block_size = Some(1_024),
        &|mkfs| mkfs.block_size = Some(131_072),
        &|mkfs| mkfs.block_size = Some(12_288),
        &|mkfs| mkfs.fragment_size = Some(256),
        &|mkfs| {
            mkfs.block_size = Some(65_536);
            mkfs.fragment_size = Some(4_096);
        },
        &|mkfs| mkfs.inode_size = Some(128),
        &|mkfs| mkfs.label = vec![b'x'; 32],
        &|mkfs| mkfs.reserved_percent = 51,
        &|mkfs| mkfs.inodes = Some(0),
        &|mkfs| mkfs.inodes = Some(1_000_000),
        &|mkfs| mkfs.bytes_per_inode = Some(0),
        &|mkfs| mkfs.size_bytes = Some(32 << 20),
        &|mkfs| mkfs.features = vec!["acls".to_owned(), "nfs4acls".to_owned()],
    ];
    for (index, change) in bad.iter().enumerate() {
        let error = refused(change, 16 << 20);
        assert!(matches!(error, MkfsError::BadOption(_)), "{index}: {error}");
    }
    let error = refused(&|mkfs| mkfs.features = vec!["extents".to_owned()], 16 << 20);
    assert!(matches!(error, MkfsError::Unsupported(_)), "{error}");
    let error = refused(&|mkfs| mkfs.journal_bytes = Some(1 << 20), 16 << 20);
    assert!(matches!(error, MkfsError::Unsupported(_)), "{error}");
    for bytes in [0, 4_096, 100_000, 250_000] {
        let error = refused(&|_| (), bytes);
        assert!(matches!(error, MkfsError::TooSmall(_)), "{bytes}: {error}");
    }
}

/// Whatever the size: a sound file system, or the least size that gives one.
#[test]
fn small_file_systems_are_made_or_refused_with_the_least_size() {
    let sizes = [
        (4_096, 512),
        (4_096, 4_096),
        (8_192, 1_024),
        (65_536, 8_192),
    ];
    for version in ["ufs1", "ufs2"] {
        for (block, fragment) in sizes {
            let what = format!("{version}, {block}/{fragment}");
            let mut mkfs = wanted(&[version]);
            (mkfs.block_size, mkfs.fragment_size) = (Some(block), Some(fragment));
            let made = |bytes: usize| {
                let device = MemoryDevice::new(bytes);
                mkfs::write(&mkfs, &device).map(|_| {
                    let bytes = device.snapshot();
                    let source = backstitch_ufs_tools::fsck::SliceSource(&bytes);
                    let options = Default::default();
                    let report = backstitch_ufs_tools::fsck::check_source(&source, &options);
                    assert!(report.is_ok_and(|report| report.is_clean()), "{what}");
                })
            };
            let step = block as usize * 3;
            let mut least = 0;
            for bytes in (step..step + 96 * step).step_by(step) {
                let error = match made(bytes) {
                    Ok(()) => continue,
                    Err(MkfsError::TooSmall(words)) => words,
                    Err(error) => panic!("{what}, {bytes} bytes: {error}"),
                };
                let words: Vec<&str> = error.split(' ').collect();
                least = words[4].parse().unwrap();
                assert!(bytes < least, "{what}, {bytes} bytes: {error}");
            }
            assert!(least > 0, "{what}");
            made(least).unwrap();
        }
    }
}

#[test]
fn the_same_options_give_the_same_bytes_on_any_device() {
    let made = |fill: u8| {
        let device = MemoryDevice::from_bytes(vec![fill; 16 << 20]);
        mkfs::write(&wanted(&[]), &device).unwrap();
        device.snapshot()
    };
    let (zeros, garbage) = (made(0), made(0xa5));
    let report = |bytes: &[u8]| {
        let source = backstitch_ufs_tools::fsck::SliceSource(bytes);
        backstitch_ufs_tools::fsck::check_source(&source, &Default::default()).unwrap()
    };
    assert!(
        report(&garbage).is_clean(),
        "{:#?}",
        report(&garbage).findings
    );
    let start = 65_536 + SUPERBLOCK_BYTES;
    assert_eq!(zeros[..start], garbage[..start]);
}
