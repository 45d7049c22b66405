//! The structures of an undo file, byte by byte; `docs/FORMAT.md` explains each field.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `magic` of the file.
pub const MAGIC: [u8; 8] = *b"E2UNDO02";
/// `magic` of a block of keys.
pub const KEYS_MAGIC: u32 = 0xcade_cade;
/// `state`: the file is whole.
pub const STATE_FINISHED: u32 = 1;
/// `f_compat`: `fs_offset` is filled.
pub const COMPAT_FS_OFFSET: u32 = 1;
/// `x_magic`: the fields behind it are ours.
pub const OURS: [u8; 8] = *b"BKSTCH01";
/// How many sectors of the superblock are remembered.
pub const SECTORS: usize = 100;

/// The first 512 bytes of the file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // docs/FORMAT.md has them.
pub struct RawHeader {
    pub magic: [u8; 8],
    pub num_keys: U64,
    pub super_offset: U64,
    pub key_offset: U64,
    pub block_size: U32,
    pub fs_block_size: U32,
    pub sb_crc: U32,
    pub state: U32,
    pub f_compat: U32,
    pub f_incompat: U32,
    pub f_rocompat: U32,
    pub pad32: U32,
    pub fs_offset: U64,
    pub x_magic: [u8; 8],
    pub x_device_bytes: U64,
    pub x_sectors: [U32; SECTORS],
    pub x_padding: [u8; 20],
    pub header_crc: U32,
}

/// The start of a block of keys, which come right behind it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // docs/FORMAT.md has them.
pub struct RawKeys {
    pub magic: U32,
    pub crc: U32,
    pub reserved: U64,
}

/// A stretch of old contents.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // docs/FORMAT.md has them.
pub struct RawKey {
    pub fsblk: U64,
    pub blk_crc: U32,
    pub size: U32,
}

/// CRC-32C as ext2's tools use it: begun with ones, not inverted at the end.
pub fn crc(bytes: &[u8]) -> u32 {
    !crc32c::crc32c(bytes)
}
