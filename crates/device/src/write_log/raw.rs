//! The bytes of a log, with the kernel's field names.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `magic`.
pub const MAGIC: u64 = 0x006a_7366_7773_6872;
/// `version`, the only one there is.
pub const VERSION: u64 = 1;
/// The smallest sector that a log can have, and the one that we write.
pub const SECTOR_MIN_BYTES: u32 = 512;
/// The largest sector that a log can have; QEMU's own bound.
pub const SECTOR_MAX_BYTES: u32 = 8 << 20;

/// The start of a log's first sector.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawSuper {
    pub magic: U64,
    pub version: U64,
    pub nr_entries: U64,
    pub sectorsize: U32,
}

/// The start of an entry's first sector.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawEntry {
    pub sector: U64,
    pub nr_sectors: U64,
    pub flags: U64,
    pub data_len: U64,
}

/// The bytes of a header, behind which a mark's text begins.
pub const ENTRY_BYTES: u64 = size_of::<RawEntry>() as u64;
