//! New file systems with a journal, beside mke2fs; damage to the journal's superblock, found and
//! repaired.

use crate::support::{e2fsck, have, open, run_ok, sparse_file};
use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_ext::Ext2;
use backstitch_ext::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use backstitch_ext_tools::fsck::{self, Code};
use backstitch_ext_tools::mkfs::{self, Mkfs, MkfsError};
use backstitch_ext_tools::repair::{self, Mode};
use backstitch_layout::{JournalHost, JournalLocation};

const MIB: u64 = 1 << 20;

fn options(block_size: u32, journal_bytes: Option<u64>) -> Mkfs {
    Mkfs {
        device_is_zero: true,
        block_size: Some(block_size),
        journal_bytes,
        features: vec!["has_journal".to_owned()],
        ..Mkfs::new([0x5a; 16], [0xa5; 16], 1_700_000_000)
    }
}

/// The journal's superblock without its UUID, and the journal's size in blocks.
fn journal(device: &dyn BlockDevice) -> (Vec<u8>, u32) {
    let place = Ext2.place(device).unwrap().unwrap();
    let JournalLocation::Inside(map) = place.location else {
        panic!("the journal is elsewhere");
    };
    let mut bytes = vec![0; 1024];
    let at = map.block(0).unwrap().0 * u64::from(place.block_bytes);
    device.read(at, &mut bytes).unwrap();
    bytes[0x30..0x40].fill(0);
    (bytes, map.blocks())
}

fn superblock(device: &dyn BlockDevice) -> RawSuperblock {
    let mut bytes = [0; 1024];
    device.read(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    RawSuperblock::from_array(&bytes)
}

#[test]
fn journals_have_the_size_and_the_bytes_of_mke2fs() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
    let cases = [
        (2, 1024, None),
        (8, 1024, None),
        (8, 4096, None),
        (31, 1024, None),
        (33, 1024, None),
        (300, 1024, None),
        (300, 2048, None),
        (1500, 1024, None),
        (5000, 4096, None),
        (40, 1024, Some(9)),
        (400, 1024, Some(80)),
        (40, 4096, Some(4)),
    ];
    for (mebibytes, block, journal_mebibytes) in cases {
        let what = format!("{mebibytes} MiB, blocks of {block}, {journal_mebibytes:?}");
        sparse_file(&theirs, mebibytes * MIB);
        sparse_file(&ours, mebibytes * MIB);
        let (block_word, path) = (block.to_string(), theirs.to_string_lossy().into_owned());
        let size_word = journal_mebibytes.map(|size| format!("size={size}"));
        let mut words = vec!["-q", "-F", "-t", "ext3", "-b", &block_word];
        if let Some(size) = &size_word {
            words.extend(["-J", size]);
        }
        words.push(&path);
        run_ok("mke2fs", &words);
        let bytes = journal_mebibytes.map(|size| size * MIB);
        let made = mkfs::write(&options(block, bytes), &open(&ours, false));
        made.unwrap_or_else(|error| panic!("{what}: {error}"));
        let (theirs, ours_open) = (open(&theirs, true), open(&ours, true));
        assert_eq!(journal(&ours_open), journal(&theirs), "{what}");
        let (a, b) = (superblock(&ours_open), superblock(&theirs));
        assert_eq!(a.s_free_blocks_count_lo, b.s_free_blocks_count_lo, "{what}");
        assert_eq!(a.s_overhead_clusters, b.s_overhead_clusters, "{what}");
        assert_eq!(a.s_feature_compat, b.s_feature_compat, "{what}");
        assert_eq!(a.s_jnl_blocks[15..], b.s_jnl_blocks[15..], "{what}");
        drop((theirs, ours_open));
        let (status, words) = e2fsck(&ours);
        assert_eq!(status, 0, "{what}: {words}");
    }
}

#[test]
fn journals_that_cannot_be_are_refused() {
    let try_out = |mebibytes: u64, options: Mkfs| mkfs::geometry(&options, mebibytes * MIB).err();
    let too_small = try_out(1, options(1024, None));
    assert!(matches!(too_small, Some(MkfsError::TooSmall(_))));
    for bytes in [0, 1023 << 10, 6 * MIB] {
        let refused = try_out(8, options(1024, Some(bytes)));
        assert!(matches!(refused, Some(MkfsError::BadOption(_))), "{bytes}");
    }
    let without = Mkfs {
        features: Vec::new(),
        ..options(1024, Some(MIB))
    };
    assert!(matches!(try_out(8, without), Some(MkfsError::BadOption(_))));
}

#[test]
fn the_copy_in_the_superblock_helps_where_the_inode_is_damaged() {
    let device = MemoryDevice::new(8 << 20);
    let sb = mkfs::write(&options(1024, None), &device).unwrap();
    let before = journal(&device);
    let table = Ext2.place(&device).unwrap().unwrap();
    // Inode 8, in the first block of the first group's table, whose place the descriptor tells.
    let mut word = [0; 4];
    device.read(2048 + 8, &mut word).unwrap();
    let inode = u64::from(u32::from_le_bytes(word)) * 1024 + 7 * u64::from(sb.inode_size);
    device.write(inode, &[0; 128]).unwrap();
    assert_eq!(journal(&device), before);
    assert_eq!(Ext2.place(&device).unwrap().unwrap(), table);
}

#[test]
fn a_damaged_superblock_of_the_journal_is_found_and_made_anew() {
    let device = MemoryDevice::new(8 << 20);
    mkfs::write(&options(1024, None), &device).unwrap();
    let check = || fsck::check(&device, &fsck::Options::default()).unwrap();
    assert!(check().is_clean() && check().notes.is_empty());
    let whole = journal(&device);
    let place = Ext2.place(&device).unwrap().unwrap();
    let JournalLocation::Inside(map) = place.location else {
        panic!("the journal is elsewhere");
    };
    let at = map.block(0).unwrap().0 * 1024;
    device.write(at, &[0; 20]).unwrap();
    let codes: Vec<Code> = check()
        .findings
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert_eq!(codes, [Code::JournalInvalid]);
    repaired(&device);
    let (made, blocks) = journal(&device);
    // The numbers of transactions begin elsewhere, so that old records do not count as this
    // journal's.
    let differing: Vec<usize> = (0..1024).filter(|at| made[*at] != whole.0[*at]).collect();
    assert!(
        differing.iter().all(|at| (24..28).contains(at)),
        "{differing:?}"
    );
    assert!(!differing.is_empty() && blocks == whole.1);
}

/// Repairs, which must settle all there is.
fn repaired(device: &MemoryDevice) {
    let options = repair::Options {
        mode: Mode::All,
        guess_geometry: false,
        now_seconds: 1_800_000_000,
        check: fsck::Options::default(),
    };
    let outcome = repair::repair(device, &options).unwrap();
    assert!(outcome.is_clean(), "{:?}", outcome.after);
    let again = fsck::check(device, &fsck::Options::default()).unwrap();
    assert!(again.is_clean(), "{:?}", again.findings);
}

fn codes(device: &MemoryDevice) -> Vec<Code> {
    let report = fsck::check(device, &fsck::Options::default()).unwrap();
    report.findings.iter().map(|finding| finding.code).collect()
}

/// Where inode 8 is: in the first block of the first group's table, whose place the descriptor
/// tells.
fn journal_inode(device: &MemoryDevice, inode_size: u32) -> u64 {
    let mut word = [0; 4];
    device.read(2048 + 8, &mut word).unwrap();
    u64::from(u32::from_le_bytes(word)) * 1024 + 7 * u64::from(inode_size)
}

#[test]
fn fields_of_the_journal_that_e2fsck_objects_to_are_found_and_put_right() {
    for (at, value) in [(64, 7_u32), (44, 8)] {
        let device = MemoryDevice::new(8 << 20);
        mkfs::write(&options(1024, None), &device).unwrap();
        let whole = journal(&device);
        let JournalLocation::Inside(map) = Ext2.place(&device).unwrap().unwrap().location else {
            panic!("the journal is elsewhere");
        };
        let start = map.block(0).unwrap().0 * 1024;
        device.write(start + at, &value.to_be_bytes()).unwrap();
        assert_eq!(codes(&device), [Code::JournalInvalid]);
        repaired(&device);
        let (made, _) = journal(&device);
        assert_eq!((&made[..24], &made[28..]), (&whole.0[..24], &whole.0[28..]));
    }
}

#[test]
fn what_the_journal_lacks_is_restored_or_filled() {
    let device = MemoryDevice::new(8 << 20);
    let sb = mkfs::write(&options(1024, None), &device).unwrap();
    let whole = Ext2.place(&device).unwrap();
    let inode = journal_inode(&device, sb.inode_size);
    let before = device.snapshot();
    // A direct pointer, the mode, everything: the superblock has a copy.
    for (at, length) in [(40 + 12, 4), (0, 2), (0, 128)] {
        let device = MemoryDevice::from_bytes(before.clone());
        device.write(inode + at, &vec![0; length]).unwrap();
        assert!(!codes(&device).is_empty());
        repaired(&device);
        assert_eq!(
            Ext2.place(&device).unwrap(),
            whole,
            "{length} bytes at {at}"
        );
    }
    // A pointer in an indirect block, then all of them: the superblock has no copy of these.
    let mut word = [0; 4];
    device.read(inode + 40 + 48, &mut word).unwrap();
    let indirect = u64::from(u32::from_le_bytes(word)) * 1024;
    for (at, length) in [(20, 4), (0, 1024)] {
        let device = MemoryDevice::from_bytes(before.clone());
        device.write(indirect + at, &vec![0; length]).unwrap();
        assert!(codes(&device).contains(&Code::JournalInvalid));
        assert!(Ext2.place(&device).is_err());
        repaired(&device);
        let JournalLocation::Inside(map) = Ext2.place(&device).unwrap().unwrap().location else {
            panic!("the journal is elsewhere");
        };
        assert_eq!(map.blocks(), 1024);
    }
}
