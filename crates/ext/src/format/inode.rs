//! Inodes: 128 bytes, and further fields where the file system has larger ones.

use super::FormatError;
use super::features::{Features, INCOMPAT_EXTENTS};
use super::superblock::Superblock;
use crate::format::fault::InodeFault;
use backstitch_layout::{BlockNumber, FileType, Structure, Timestamp};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The number of pointers in an inode.
pub const POINTERS: usize = 15;
/// Pointers to data.
pub const DIRECT_POINTERS: usize = 12;
/// The pointer to the single indirect block; the double and the triple one follow.
pub const INDIRECT: usize = 12;
/// The pointer to the double indirect block.
pub const DOUBLE_INDIRECT: usize = 13;
/// The longest target that a symlink keeps in its pointers, without the terminator.
pub const FAST_SYMLINK_MAX: usize = POINTERS * 4 - 1;
/// The size of the fields that every inode has.
pub const BASE_SIZE: usize = size_of::<RawInode>();
/// The most that `i_extra_isize` is for the fields that this version knows.
pub const EXTRA_SIZE: usize = size_of::<RawInodeExtra>();

/// `i_flags`: may not be changed.
pub const FLAG_IMMUTABLE: u32 = 0x10;
/// `i_flags`: may only grow at its end.
pub const FLAG_APPEND: u32 = 0x20;
/// `i_flags`: the contents are encrypted.
pub const FLAG_ENCRYPTED: u32 = 0x800;
/// `i_flags`: a hashed directory.
pub const FLAG_INDEX: u32 = 0x1000;
/// `i_flags`: an AFS inode.
pub const FLAG_IMAGIC: u32 = 0x2000;
/// `i_flags`: `i_blocks` counts file-system blocks.
pub const FLAG_HUGE_FILE: u32 = 0x4_0000;
/// `i_flags`: mapped by extents.
pub const FLAG_EXTENTS: u32 = 0x8_0000;
/// `i_flags`: the contents are inside the inode.
pub const FLAG_INLINE_DATA: u32 = 0x1000_0000;

/// `i_flags`: names in this directory are the same in upper and lower case.
pub const FLAG_CASEFOLD: u32 = 0x4000_0000;

/// The first 128 bytes of an inode as they are on the disk, with the kernel's field names (Linux's
/// variants of `osd1`/`osd2`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub i_version: U32,
    pub i_block: [U32; POINTERS],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_faddr: U32,
    pub i_blocks_high: U16,
    pub i_file_acl_high: U16,
    pub i_uid_high: U16,
    pub i_gid_high: U16,
    pub i_checksum_lo: U16,
    pub i_reserved: U16,
}

/// The fields behind the first 128 bytes; an inode has those that lie within its first
/// `128 + i_extra_isize` bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawInodeExtra {
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

/// Where the fields of an inode lie, for those who change single fields.
pub mod offset {
    use super::{BASE_SIZE, RawInode, RawInodeExtra};
    use core::mem::offset_of;

    macro_rules! offsets {
        ($($name:ident = $field:ident $bytes:literal;)*) => {
            $(
                #[doc = concat!("`", stringify!($field), "` (", $bytes, " bytes).")]
                pub const $name: usize = offset_of!(RawInode, $field);
            )*
        };
    }
    macro_rules! extra_offsets {
        ($($name:ident = $field:ident $bytes:literal;)*) => {
            $(
                #[doc = concat!("`", stringify!($field), "` (", $bytes, " bytes), behind the first 128 bytes.")]
                pub const $name: usize = BASE_SIZE + offset_of!(RawInodeExtra, $field);
            )*
        };
    }
    offsets! {
        MODE = i_mode "2";
        UID = i_uid "2";
        SIZE = i_size_lo "4";
        ATIME = i_atime "4";
        CTIME = i_ctime "4";
        MTIME = i_mtime "4";
        DTIME = i_dtime "4";
        GID = i_gid "2";
        LINKS = i_links_count "2";
        BLOCKS = i_blocks_lo "4";
        FLAGS = i_flags "4";
        VERSION = i_version "4";
        BLOCK = i_block "60";
        GENERATION = i_generation "4";
        FILE_ACL = i_file_acl_lo "4";
        SIZE_HIGH = i_size_high "4";
        UID_HIGH = i_uid_high "2";
        GID_HIGH = i_gid_high "2";
    }
    extra_offsets! {
        EXTRA_ISIZE = i_extra_isize "2";
        CTIME_EXTRA = i_ctime_extra "4";
        MTIME_EXTRA = i_mtime_extra "4";
        ATIME_EXTRA = i_atime_extra "4";
        CRTIME = i_crtime "4";
        CRTIME_EXTRA = i_crtime_extra "4";
    }

    /// Pointer `index` of `i_block` (4 bytes).
    pub const fn pointer(index: usize) -> usize {
        BLOCK + index * 4
    }
}

/// An inode as the rest of the crate works with it. Nothing is checked but that the bytes suffice:
/// what an inode may contain depends on what it is, and a damaged one must still be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Type and permissions.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The length: 64 bits for regular files, 32 for all others (as ext2 has it, where the high
    /// word was a directory's ACL).
    pub size: u64,
    /// The number of names.
    pub links: u16,
    /// What it takes on the disk, in units of 512 bytes: data, indirect and attribute blocks.
    pub sectors: u32,
    /// `i_flags`
    pub flags: u32,
    /// `i_version`: on a directory that was to be replaced, its [mark](super::replaced).
    pub version: u32,
    /// The pointers; a fast symlink's target or a device number where there are none.
    pub block: [u32; POINTERS],
    /// Differs from one use of the inode number to the next, so that an old file handle is
    /// recognised.
    pub generation: u32,
    /// The attribute block; 0 where there is none.
    pub file_acl: BlockNumber,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// When it was made, where the inode is large enough.
    pub created: Option<Timestamp>,
    /// When it was deleted, in seconds since 1970; 0 while it lives. The next orphan's number on
    /// the on-disk orphan list.
    pub dtime: u32,
    /// The bytes behind the first 128 that are fields; 0 where the inode has only 128 bytes.
    pub extra_isize: u16,
}

impl Inode {
    /// Reads an inode. `bytes` is all of it: as many bytes as the superblock's `inode_size`.
    ///
    /// # Errors
    ///
    /// [`FormatError::Corrupt`] where `bytes` are fewer than 128.
    pub fn parse(bytes: &[u8]) -> Result<Inode, FormatError> {
        let Ok((raw, rest)) = RawInode::ref_from_prefix(bytes) else {
            let fault = InodeFault::TooShort { found: bytes.len() };
            return Err(FormatError::corrupt(Structure::Sole("inode"), fault));
        };
        let mut block = [0; POINTERS];
        for (to, from) in block.iter_mut().zip(&raw.i_block) {
            *to = from.get();
        }
        let extra = Extra::parse(rest);
        let is_regular = raw.i_mode.get() & 0o170_000 == 0o100_000;
        let size_high = if is_regular {
            u64::from(raw.i_size_high.get()) << 32
        } else {
            0
        };
        Ok(Inode {
            mode: raw.i_mode.get(),
            uid: u32::from(raw.i_uid.get()) | u32::from(raw.i_uid_high.get()) << 16,
            gid: u32::from(raw.i_gid.get()) | u32::from(raw.i_gid_high.get()) << 16,
            size: u64::from(raw.i_size_lo.get()) | size_high,
            links: raw.i_links_count.get(),
            sectors: raw.i_blocks_lo.get(),
            flags: raw.i_flags.get(),
            version: raw.i_version.get(),
            block,
            generation: raw.i_generation.get(),
            file_acl: BlockNumber(raw.i_file_acl_lo.get().into()),
            accessed: decode_time(raw.i_atime.get(), extra.field(offset::ATIME_EXTRA)),
            changed: decode_time(raw.i_ctime.get(), extra.field(offset::CTIME_EXTRA)),
            modified: decode_time(raw.i_mtime.get(), extra.field(offset::MTIME_EXTRA)),
            created: extra
                .field(offset::CRTIME)
                .map(|low| decode_time(low, extra.field(offset::CRTIME_EXTRA))),
            dtime: raw.i_dtime.get(),
            extra_isize: extra.size,
        })
    }

    /// Adds what inodes have beyond 32 bits in a file system with the feature `64bit`. `bytes` is
    /// all of the inode, as in [`parse`](Self::parse).
    pub fn widen(&mut self, bytes: &[u8]) {
        if let Ok((raw, _)) = RawInode::ref_from_prefix(bytes) {
            self.file_acl.0 |= u64::from(raw.i_file_acl_high.get()) << 32;
        }
    }

    /// What the inode is; `None` where the mode says nothing that exists.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.mode.into())
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
    }

    /// Whether the field at this [`offset`] is within the inode's extra fields.
    pub fn has_extra_field(&self, offset: usize) -> bool {
        offset + 4 <= BASE_SIZE + usize::from(self.extra_isize)
    }

    /// Whether a symlink's target lies in the pointers: it takes no blocks but its attributes'.
    pub fn is_fast_symlink(&self, block_size: u32) -> bool {
        let attribute_sectors = if self.file_acl != BlockNumber::NONE {
            block_size / 512
        } else {
            0
        };
        self.file_type() == Some(FileType::Symlink) && self.sectors == attribute_sectors
    }

    /// The bytes of the pointers: a fast symlink's target, padded with zeros.
    pub fn inline_bytes(&self) -> [u8; POINTERS * 4] {
        let mut bytes = [0; POINTERS * 4];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(self.block) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Whether the pointers are the root of an extent tree. In an image without the feature the flag
    /// means nothing.
    pub fn has_extents(&self, features: &Features) -> bool {
        self.flags & FLAG_EXTENTS != 0 && features.has_incompat(INCOMPAT_EXTENTS)
    }

    /// Whether the pointers are pointers: regular files, directories and slow symlinks.
    pub fn has_block_map(&self, block_size: u32) -> bool {
        match self.file_type() {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => !self.is_fast_symlink(block_size),
            _ => false,
        }
    }

    /// The device number of a device inode, in the encoding of Linux's `stat` (12 bits major, 20
    /// bits minor). The inode has it in its first pointer (8 bits each), or in that encoding in its
    /// second.
    pub fn device_number(&self) -> u32 {
        if self.block[0] == 0 {
            return self.block[1];
        }
        let (major, minor) = ((self.block[0] >> 8) & 0xff, self.block[0] & 0xff);
        make_device(major, minor)
    }
}

/// A device number in the encoding of Linux's `stat`.
pub fn make_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The first two pointers of a device inode: the old encoding where both numbers fit into 8 bits,
/// as the kernel does.
pub fn encode_device(device_number: u32) -> [u32; 2] {
    let (major, minor) = (
        (device_number >> 8) & 0xfff,
        (device_number & 0xff) | ((device_number >> 12) & 0xf_ff00),
    );
    if major < 256 && minor < 256 {
        [major << 8 | minor, 0]
    } else {
        [0, device_number]
    }
}

/// The earliest second that an inode can store.
pub const MIN_SECONDS: i64 = i32::MIN as i64;
/// The latest second without extra fields: 2038-01-19.
pub const MAX_SECONDS_SHORT: i64 = i32::MAX as i64;
/// The latest second with extra fields: 2446-05-10.
pub const MAX_SECONDS_LONG: i64 = i32::MAX as i64 + (3 << 32);
/// The last second that checkers do not mistake: they take the times from here to 2378-04-22 for
/// times before 1970 (see [`misdated_times`]). It is in 2310-04-04.
pub const LAST_BEFORE_MISDATED: i64 = i32::MAX as i64 + (2 << 32);

/// A time as the inode has it: the low word, signed, and the extra word with two more bits of
/// seconds and the nanoseconds.
pub fn decode_time(low: u32, extra: Option<u32>) -> Timestamp {
    let seconds = i64::from(low as i32);
    match extra {
        None => Timestamp {
            seconds,
            nanoseconds: 0,
        },
        Some(extra) => Timestamp {
            seconds: seconds + (i64::from(extra & 3) << 32),
            // 30 bits can hold more nanoseconds than a second has.
            nanoseconds: (extra >> 2).min(999_999_999),
        },
    }
}

/// The low and the extra word of a time; `has_extra` states whether the inode has the extra word. A
/// time out of range becomes the nearest one in range; without the extra word the nanoseconds are
/// dropped (as the kernel does). A time from 2310 to 2378 becomes [`LAST_BEFORE_MISDATED`]: a
/// checker would take it for one before 1970, and move it by four centuries.
pub fn encode_time(time: Timestamp, has_extra: bool) -> (u32, u32) {
    let last = if has_extra {
        MAX_SECONDS_LONG
    } else {
        MAX_SECONDS_SHORT
    };
    let seconds = match time.seconds.clamp(MIN_SECONDS, last) {
        misdated if (LAST_BEFORE_MISDATED + 1..3 << 32).contains(&misdated) => LAST_BEFORE_MISDATED,
        seconds => seconds,
    };
    let nanoseconds = if seconds == time.seconds {
        time.nanoseconds
    } else {
        0
    };
    let epoch = ((seconds - i64::from(seconds as i32)) >> 32) as u32 & 3;
    (
        seconds as u32,
        if has_extra {
            nanoseconds << 2 | epoch
        } else {
            0
        },
    )
}

/// The bits of a time's extra word that belong to its seconds.
pub const EPOCH_MASK: u8 = 3;

/// The offsets of the extra words of times that old kernels wrote wrongly: times before 1970, with
/// the high bits of the years 2310 to 2378. Looks at all of the inode, as e2fsck does, unless
/// attributes have no room behind the extra fields.
pub fn misdated_times(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    const TIMES: [(usize, usize); 4] = [
        (offset::ATIME, offset::ATIME_EXTRA),
        (offset::CTIME, offset::CTIME_EXTRA),
        (offset::MTIME, offset::MTIME_EXTRA),
        (offset::CRTIME, offset::CRTIME_EXTRA),
    ];
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let size = word(offset::EXTRA_ISIZE).unwrap_or(0) as u16;
    let has_room = BASE_SIZE + usize::from(size) + 4 < bytes.len();
    let is_misdated = move |(low, high): &(usize, usize)| {
        let mask = u32::from(EPOCH_MASK);
        has_room
            && word(*low).is_some_and(|low| low >> 31 == 1)
            && word(*high).is_some_and(|high| high & mask == mask)
    };
    TIMES.into_iter().filter(is_misdated).map(|(_, high)| high)
}

/// The `i_extra_isize` of a new inode: what the superblock wants, but at least the fields that we
/// know; 0 where inodes have 128 bytes.
pub fn new_extra_isize(sb: &Superblock) -> u16 {
    let room = (sb.inode_size as usize).saturating_sub(BASE_SIZE);
    if room == 0 {
        return 0;
    }
    let wanted = usize::from(sb.want_extra_isize.max(sb.min_extra_isize)).max(EXTRA_SIZE);
    // The size must be a multiple of four and inside the inode; another wish of the superblock is
    // not followed.
    (if wanted % 4 == 0 {
        wanted.min(room)
    } else {
        EXTRA_SIZE
    }) as u16
}

/// The extra fields of one inode.
struct Extra<'a> {
    bytes: &'a [u8],
    size: u16,
}

impl<'a> Extra<'a> {
    /// `i_extra_isize` counts only where it is possible: at least its own four bytes, and within
    /// the inode.
    fn parse(rest: &'a [u8]) -> Extra<'a> {
        let size = match rest {
            [low, high, ..] => u16::from_le_bytes([*low, *high]),
            _ => 0,
        };
        let is_possible = size >= 4 && size % 4 == 0 && usize::from(size) <= rest.len();
        let size = if is_possible { size } else { 0 };
        Extra {
            bytes: &rest[..size.into()],
            size,
        }
    }

    /// The field at this offset within the inode; `None` where the inode has no such field.
    fn field(&self, offset: usize) -> Option<u32> {
        let start = offset - BASE_SIZE;
        let bytes = self.bytes.get(start..start + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!((BASE_SIZE, EXTRA_SIZE), (128, 32));
        assert_eq!(
            (offset::DTIME, offset::LINKS, offset::BLOCKS),
            (0x14, 0x1a, 0x1c)
        );
        assert_eq!(
            (offset::FLAGS, offset::BLOCK, offset::GENERATION),
            (0x20, 0x28, 0x64)
        );
        assert_eq!((offset::FILE_ACL, offset::SIZE_HIGH), (0x68, 0x6c));
        assert_eq!((offset::UID_HIGH, offset::GID_HIGH), (0x78, 0x7a));
        assert_eq!((offset::EXTRA_ISIZE, offset::CTIME_EXTRA), (0x80, 0x84));
        assert_eq!((offset::CRTIME, offset::CRTIME_EXTRA), (0x90, 0x94));
        assert_eq!(offset::pointer(14), 0x60);
    }

    #[test]
    fn times_survive_within_their_range() {
        for seconds in [
            MIN_SECONDS,
            -1,
            0,
            1,
            MAX_SECONDS_SHORT,
            MAX_SECONDS_SHORT + 1,
        ] {
            let time = Timestamp {
                seconds,
                nanoseconds: 999_999_999,
            };
            let (low, extra) = encode_time(time, true);
            assert_eq!(decode_time(low, Some(extra)), time);
        }
        let late = Timestamp {
            seconds: MAX_SECONDS_LONG,
            nanoseconds: 5,
        };
        let (low, extra) = encode_time(late, true);
        assert_eq!(decode_time(low, Some(extra)), late);
        let later = Timestamp {
            seconds: MAX_SECONDS_LONG + 1,
            nanoseconds: 5,
        };
        let (low, extra) = encode_time(later, true);
        assert_eq!(decode_time(low, Some(extra)).seconds, MAX_SECONDS_LONG);
        for (seconds, stored) in [
            (LAST_BEFORE_MISDATED, LAST_BEFORE_MISDATED),
            (LAST_BEFORE_MISDATED + 1, LAST_BEFORE_MISDATED),
            ((3 << 32) - 1, LAST_BEFORE_MISDATED),
            (3 << 32, 3 << 32),
        ] {
            let time = Timestamp {
                seconds,
                nanoseconds: 0,
            };
            let (low, extra) = encode_time(time, true);
            assert_eq!(decode_time(low, Some(extra)).seconds, stored);
            let mut inode = [0; 256];
            inode[offset::EXTRA_ISIZE] = 32;
            inode[offset::MTIME..][..4].copy_from_slice(&low.to_le_bytes());
            inode[offset::MTIME_EXTRA..][..4].copy_from_slice(&extra.to_le_bytes());
            assert_eq!(misdated_times(&inode).count(), 0);
        }
        let (low, extra) = encode_time(late, false);
        assert_eq!((low as i32, extra), (i32::MAX, 0));
        assert_eq!(decode_time(u32::MAX, None).seconds, -1);
    }

    #[test]
    fn device_numbers_in_both_encodings() {
        let mut inode = Inode::parse(&[0; 128]).unwrap();
        for (major, minor) in [(1, 3), (8, 255), (259, 7), (8, 256), (4095, 0xf_ffff)] {
            let number = make_device(major, minor);
            let [first, second] = encode_device(number);
            (inode.block[0], inode.block[1]) = (first, second);
            assert_eq!(inode.device_number(), number, "{major}:{minor}");
            assert_eq!(first != 0, major < 256 && minor < 256);
        }
    }

    #[test]
    fn extra_fields_only_where_the_inode_has_them() {
        let mut bytes = [0; 256];
        bytes[offset::CTIME_EXTRA] = 4;
        bytes[offset::CRTIME] = 9;
        assert_eq!(Inode::parse(&bytes).unwrap().changed.nanoseconds, 0);
        bytes[offset::EXTRA_ISIZE] = 8;
        let inode = Inode::parse(&bytes).unwrap();
        assert_eq!((inode.changed.nanoseconds, inode.created), (1, None));
        assert!(inode.has_extra_field(offset::CTIME_EXTRA));
        assert!(!inode.has_extra_field(offset::MTIME_EXTRA));
        bytes[offset::EXTRA_ISIZE] = 32;
        assert_eq!(Inode::parse(&bytes).unwrap().created.unwrap().seconds, 9);
        bytes[offset::EXTRA_ISIZE] = 129;
        assert_eq!(Inode::parse(&bytes).unwrap().extra_isize, 0);
        assert!(Inode::parse(&bytes[..127]).is_err());
    }

    #[test]
    fn size_has_64_bits_for_regular_files_only() {
        let mut bytes = [0; 128];
        bytes[offset::SIZE] = 1;
        bytes[offset::SIZE_HIGH] = 1;
        bytes[offset::MODE + 1] = 0o100_000_u16.to_le_bytes()[1];
        assert_eq!(Inode::parse(&bytes).unwrap().size, (1 << 32) + 1);
        bytes[offset::MODE + 1] = 0o040_000_u16.to_le_bytes()[1];
        assert_eq!(Inode::parse(&bytes).unwrap().size, 1);
    }
}
