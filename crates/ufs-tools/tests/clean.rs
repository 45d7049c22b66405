//! Our check finds nothing on images that `makefs` made, on a FreeBSD disk, and on our own.

use crate::support::{VARIANTS, have, makefs, source_tree};
use backstitch_device::MemoryDevice;
use backstitch_ufs_tools::fsck::{self, Options, Report, SliceSource};
use backstitch_ufs_tools::mkfs::{self, Mkfs};

fn assert_clean(bytes: &[u8], what: &str) -> Report {
    let report = fsck::check_source(&SliceSource(bytes), &Options::default()).unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
    assert!(report.notes.is_empty(), "{what}: {:#?}", report.notes);
    report
}

#[test]
fn images_of_makefs() {
    if !have("makefs", "makefs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    source_tree(folder.path(), 300);
    for made in VARIANTS {
        let bytes = makefs(made, "40m", folder.path());
        let report = assert_clean(&bytes, &format!("{made:?}"));
        let summary = report.summary;
        assert_eq!((summary.directories, summary.symlinks), (6, 2), "{made:?}");
        assert_eq!((summary.regular_files, summary.special_files), (305, 1));
    }
}

fn ours(features: &[&str], change: impl Fn(&mut Mkfs), size_bytes: usize) -> Vec<u8> {
    let device = MemoryDevice::new(size_bytes);
    let mut mkfs = Mkfs::new([7; 16], [2; 16], 1_700_000_000);
    mkfs.features = features.iter().map(|name| (*name).to_owned()).collect();
    change(&mut mkfs);
    mkfs::write(&mkfs, &device).unwrap();
    device.snapshot()
}

#[test]
fn our_own_images_of_all_geometries() {
    for features in [
        &["ufs1"][..],
        &["ufs2"],
        &["ufs1", "big_endian"],
        &["big_endian"],
    ] {
        for block in [4_096, 8_192, 16_384, 32_768, 65_536] {
            for per_block in [1, 2, 4, 8] {
                for size in [4 << 20, (9 << 20) + 512, 70 << 20] {
                    let bytes = ours(
                        features,
                        |mkfs| {
                            mkfs.block_size = Some(block);
                            mkfs.fragment_size = Some(block / per_block);
                        },
                        size,
                    );
                    let what = format!("{features:?} {block}/{per_block} {size}");
                    let report = assert_clean(&bytes, &what);
                    assert_eq!(report.summary.used_inodes, 1, "{what}");
                }
            }
        }
    }
}

#[test]
fn many_groups_and_few_inodes() {
    for features in [&["ufs1"][..], &["ufs2"]] {
        let change = |mkfs: &mut Mkfs| {
            mkfs.block_size = Some(4_096);
            mkfs.blocks_per_group = Some(256);
            mkfs.bytes_per_inode = Some(64 << 10);
        };
        let bytes = ours(features, change, 64 << 20);
        let report = assert_clean(&bytes, &format!("{features:?}"));
        assert!(report.summary.inodes < 3_000, "{:?}", report.summary);
    }
}
