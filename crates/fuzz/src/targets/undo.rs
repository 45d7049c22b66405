//! Undo files, in the format of e2fsprogs.
//!
//! The input is a file as it is, or the fields of one that gets the right checksums. The first byte
//! tells which.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use backstitch_device::MemoryDevice;
use backstitch_device::undo::raw::{
    COMPAT_FS_OFFSET, KEYS_MAGIC, MAGIC, OURS, RawHeader, RawKey, RawKeys, crc,
};
use backstitch_device::undo::{UndoError, UndoFile};
use tempfile::TempDir;
use zerocopy::{FromZeros, IntoBytes};

use crate::Input;

const BLOCK_BYTES: usize = 1024;
const DEVICE_BYTES: usize = 64 << 10;
/// The most keys of a composed file. One block has room for 63.
const MOST_KEYS: usize = 40;

/// A refused file changes nothing. What an accepted one changes is on the device.
pub fn run(bytes: &[u8]) {
    static PLACE: OnceLock<Mutex<(PathBuf, TempDir)>> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let directory = TempDir::new().expect("a temporary directory");
        Mutex::new((directory.path().join("undo"), directory))
    });
    let place = place.lock().unwrap_or_else(PoisonError::into_inner);
    let mut input = Input::new(bytes);
    let contents = match input.byte() % 2 {
        0 => input.rest().to_vec(),
        _ => composed(&mut input),
    };
    let mut file = File::create(&place.0).expect("a file of our own");
    file.write_all(&contents).expect("room for it");
    let Ok(undo) = UndoFile::open(&place.0) else {
        return;
    };
    let _ = (undo.offset_bytes(), undo.device_bytes());
    assert!(undo.stretches() * size_of::<RawKey>() <= contents.len());
    let device = MemoryDevice::from_bytes(vec![0xd5; DEVICE_BYTES]);
    let before = device.snapshot();
    let _ = undo.fits(&device);
    match undo.apply(&device) {
        Ok(()) => assert!(undo.verify().is_ok()),
        Err(UndoError::Device(error)) => panic!("written outside the device: {error}"),
        Err(_) => assert_eq!(device.snapshot(), before, "refused, and written"),
    }
}

/// A file with one block of keys. Its checksums are right, except for stretches that ask for wrong
/// ones.
fn composed(input: &mut Input<'_>) -> Vec<u8> {
    let mut header = RawHeader::new_zeroed();
    header.magic = MAGIC;
    header.block_size = (BLOCK_BYTES as u32).into();
    header.fs_block_size = (1024_u32 << (input.byte() % 4)).into();
    header.key_offset = 2.into();
    header.super_offset = u64::from(input.byte() % 4).into();
    header.state = u32::from(input.byte() % 2).into();
    let options = input.byte();
    if options & 1 != 0 {
        header.f_compat = COMPAT_FS_OFFSET.into();
        header.fs_offset = input.long().into();
    }
    if options & 2 != 0 {
        header.x_magic = OURS;
        header.x_device_bytes = (DEVICE_BYTES as u64).into();
    }
    let (mut keys, mut contents, mut count) = (Vec::new(), Vec::new(), 0_u64);
    while !input.is_empty() && keys.len() < MOST_KEYS * size_of::<RawKey>() {
        let block = match input.byte() {
            0xff => input.long(),
            block => block.into(),
        };
        let size = match input.byte() {
            0xff => input.number(),
            size => u32::from(size) * 16,
        };
        let mut bytes = vec![b'u'; (size as usize).min(DEVICE_BYTES)];
        let sum = crc(&bytes).wrapping_add(u32::from(input.byte() == 0xff));
        let key = RawKey {
            fsblk: block.into(),
            blk_crc: sum.into(),
            size: size.into(),
        };
        keys.extend_from_slice(key.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        contents.extend(bytes);
        count += 1;
    }
    header.num_keys = match options & 4 {
        0 => count.into(),
        _ => input.long().into(),
    };
    let sum = crc(&header.as_bytes()[..size_of::<RawHeader>() - 4]);
    header.header_crc = sum.into();
    let mut head = RawKeys::new_zeroed();
    head.magic = KEYS_MAGIC.into();
    let mut block = [head.as_bytes(), &keys].concat();
    block.resize(BLOCK_BYTES, 0);
    head.crc = crc(&block).into();
    block[..size_of::<RawKeys>()].copy_from_slice(head.as_bytes());
    let mut file = header.as_bytes().to_vec();
    file.resize(2 * BLOCK_BYTES, b's');
    file.extend(block);
    file.extend(contents);
    file
}
