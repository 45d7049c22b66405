//! Undo files of repairs: a power cut anywhere in the middle, and the file restores every byte.

use backstitch_device::undo::{UndoError, UndoFile, write};
use backstitch_device::{MemoryDevice, Record, RecordingDevice, Staging, materialise_torn};
use backstitch_ext_tools::fsck;
use backstitch_ext_tools::mkfs::{self, Mkfs};
use backstitch_ext_tools::repair::{Mode, Options, repair};
use std::path::Path;
use std::sync::Arc;

const SIZE: usize = 8 << 20;

fn options() -> Options {
    Options {
        mode: Mode::All,
        guess_geometry: false,
        now_seconds: 1_300_000_000,
        check: fsck::Options::default(),
    }
}

/// An image whose bitmaps, descriptors, superblock and half of an inode table are damaged.
fn damaged() -> Vec<u8> {
    let device = MemoryDevice::new(SIZE);
    let mkfs = Mkfs {
        block_size: Some(1024),
        ..Mkfs::new([7; 16], [8; 16], 1_200_000_000)
    };
    mkfs::write(&mkfs, &device).unwrap();
    let mut bytes = device.snapshot();
    // Free blocks and inodes, the bitmaps, an inode that is half one.
    bytes[1024 + 12..1024 + 20].fill(3);
    let block = |n: usize, bytes: &[u8]| {
        let at = 2048 + n;
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize * 1024
    };
    let (blocks, inodes, table) = (block(0, &bytes), block(4, &bytes), block(8, &bytes));
    bytes[blocks..blocks + 200].fill(0x55);
    bytes[inodes..inodes + 30].fill(0xaa);
    let inode_bytes = 256;
    for inode in [13, 14, 20] {
        let at = table + inode * inode_bytes;
        bytes[at..at + 2].copy_from_slice(&0o100_644_u16.to_le_bytes());
        bytes[at + 26] = 1;
        bytes[at + 40..at + 44].copy_from_slice(&7000_u32.to_le_bytes());
    }
    bytes
}

/// A repair with its undo file, and all that came to the device.
fn repaired(file: &Path) -> (Vec<u8>, Vec<Record>, Vec<u8>) {
    let before = damaged();
    let memory = Arc::new(MemoryDevice::from_bytes(before.clone()));
    let recording = Arc::new(RecordingDevice::new(memory.clone()));
    let staging = Staging::new();
    let device = staging.device(recording.clone());
    let outcome = repair(&*device, &options()).unwrap();
    assert!(outcome.is_clean() && !outcome.repairs.is_empty());
    let written = write(file, &device, &*recording, 0).unwrap();
    assert!(written.bytes > 0);
    assert!(
        recording.is_empty(),
        "written before the undo file was whole"
    );
    staging.commit().unwrap();
    (before, recording.records(), memory.snapshot())
}

#[test]
fn a_cut_at_every_write_is_undone_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("undo");
    let (before, records, after) = repaired(&file);
    assert!(before != after && records.len() > 8, "{}", records.len());
    let undo = UndoFile::open(&file).unwrap();
    let mut random = 1_u64;
    let mut next = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        random >> 33
    };
    for cut in 0..=records.len() {
        // Of what was not flushed: nothing, everything, or parts, torn at sectors.
        for part in 0..6 {
            let mut state = before.clone();
            materialise_torn(&mut state, &records, cut, 512, &mut |_, _| match part {
                0 => false,
                1 => true,
                _ => next() % 2 == 0,
            });
            let device = MemoryDevice::from_bytes(state);
            undo.fits(&device)
                .unwrap_or_else(|why| panic!("cut {cut}, {part}: {why}"));
            undo.apply(&device).unwrap();
            assert!(device.snapshot() == before, "cut {cut}, {part}");
        }
    }
    // And a cut in the middle of the undoing: it is run again.
    let memory = Arc::new(MemoryDevice::from_bytes(after.clone()));
    let recording = RecordingDevice::new(memory);
    undo.apply(&recording).unwrap();
    let records = recording.records();
    for cut in 0..=records.len() {
        let mut state = after.clone();
        materialise_torn(&mut state, &records, cut, 512, &mut |_, _| next() % 2 == 0);
        let device = MemoryDevice::from_bytes(state);
        undo.fits(&device).unwrap();
        undo.apply(&device).unwrap();
        assert!(device.snapshot() == before, "the undoing cut at {cut}");
    }
}

#[test]
fn another_state_and_a_damaged_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("undo");
    let (before, _, after) = repaired(&file);
    let undo = UndoFile::open(&file).unwrap();
    // Mounted and changed since; another size.
    let mut changed = after.clone();
    changed[1024 + 0x34] ^= 1;
    let device = MemoryDevice::from_bytes(changed);
    assert!(matches!(undo.fits(&device), Err(UndoError::OtherState(_))));
    let longer = MemoryDevice::new(SIZE + 1024);
    assert!(matches!(undo.fits(&longer), Err(UndoError::OtherState(_))));
    // Every byte of the file that means something is covered by a checksum.
    let bytes = std::fs::read(&file).unwrap();
    let broken = dir.path().join("broken");
    for at in [
        0,
        8,
        32,
        100,
        500,
        2 * 4096 + 3,
        2 * 4096 + 20,
        3 * 4096,
        3 * 4096 + 1000,
    ] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        std::fs::write(&broken, bytes).unwrap();
        let read = UndoFile::open(&broken).and_then(|undo| undo.verify());
        assert!(read.is_err(), "byte {at}");
    }
    for length in [0, 100, 512, 4096, bytes.len() - 4096] {
        std::fs::write(&broken, &bytes[..length]).unwrap();
        let read = UndoFile::open(&broken).and_then(|undo| undo.verify());
        assert!(read.is_err(), "{length} bytes");
    }
    let device = MemoryDevice::from_bytes(after);
    undo.apply(&device).unwrap();
    assert!(device.snapshot() == before);
}

#[test]
fn nothing_is_written_where_the_undo_file_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(MemoryDevice::from_bytes(damaged()));
    let staging = Staging::new();
    let device = staging.device(memory.clone());
    repair(&*device, &options()).unwrap();
    let there = dir.path().join("there");
    std::fs::write(&there, "kept").unwrap();
    assert!(write(&there, &device, &*memory, 0).is_err());
    assert_eq!(std::fs::read(&there).unwrap(), b"kept");
    let nowhere = dir.path().join("none/undo");
    assert!(write(&nowhere, &device, &*memory, 0).is_err());
    assert!(memory.snapshot() == damaged());
}
