//! Inodes: 128 bytes in UFS1, 256 in UFS2.

use super::FormatError;
use super::fault::InodeFault;
use super::order::{ByteOrder, OnDisk, on_disk};
use super::superblock::Version;
use backstitch_layout::{FileType, Structure, Timestamp};

/// The number of pointers to data.
pub const DIRECT_POINTERS: usize = 12;
/// The number of pointers: three lead to indirect blocks.
pub const POINTERS: usize = 15;
/// The number of pointers to blocks of extended attributes.
pub const ATTRIBUTE_POINTERS: usize = 2;

/// The longest target of a symbolic link in bytes: FreeBSD's `MAXPATHLEN` without the zero.
pub const SYMLINK_MAX: usize = 1023;

/// `di_flags`: not to be dumped.
pub const UF_NODUMP: u32 = 0x1;
/// `di_flags`: the owner lets nobody change it.
pub const UF_IMMUTABLE: u32 = 0x2;
/// `di_flags`: the owner lets it grow only at its end.
pub const UF_APPEND: u32 = 0x4;
/// `di_flags`: archived.
pub const SF_ARCHIVED: u32 = 0x1_0000;
/// `di_flags`: the system lets nobody change it.
pub const SF_IMMUTABLE: u32 = 0x2_0000;
/// `di_flags`: the system lets it grow only at its end.
pub const SF_APPEND: u32 = 0x4_0000;
/// `di_flags`: a snapshot of the file system.
pub const SF_SNAPSHOT: u32 = 0x20_0000;

on_disk! {
    /// `struct ufs1_dinode`, with FreeBSD's names.
    pub struct RawInode1, 128 {
        pub di_mode: u16,
        pub di_nlink: i16,
        pub di_freelink: u32,
        pub di_size: u64,
        pub di_atime: i32,
        pub di_atimensec: i32,
        pub di_mtime: i32,
        pub di_mtimensec: i32,
        pub di_ctime: i32,
        pub di_ctimensec: i32,
        pub di_db: [u32; DIRECT_POINTERS],
        pub di_ib: [u32; 3],
        pub di_flags: u32,
        pub di_blocks: u32,
        pub di_gen: u32,
        pub di_uid: u32,
        pub di_gid: u32,
        pub di_modrev: u64,
    }
}

on_disk! {
    /// `struct ufs2_dinode`, with FreeBSD's names.
    pub struct RawInode2, 256 {
        pub di_mode: u16,
        pub di_nlink: i16,
        pub di_uid: u32,
        pub di_gid: u32,
        pub di_blksize: u32,
        pub di_size: u64,
        pub di_blocks: u64,
        pub di_atime: i64,
        pub di_mtime: i64,
        pub di_ctime: i64,
        pub di_birthtime: i64,
        pub di_mtimensec: i32,
        pub di_atimensec: i32,
        pub di_ctimensec: i32,
        pub di_birthnsec: i32,
        pub di_gen: u32,
        pub di_kernflags: u32,
        pub di_flags: u32,
        pub di_extsize: u32,
        pub di_extb: [u64; ATTRIBUTE_POINTERS],
        pub di_db: [u64; DIRECT_POINTERS],
        pub di_ib: [u64; 3],
        pub di_modrev: u64,
        pub di_freelink: u32,
        pub di_ckhash: u32,
        pub di_spare: [u32; 2],
    }
}

/// Where the fields of an inode lie, for those who change single ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Offsets {
    pub mode: usize,
    pub links: usize,
    pub uid: usize,
    pub gid: usize,
    pub size: usize,
    /// `di_blocks`: 4 bytes in UFS1, 8 in UFS2.
    pub sectors: usize,
    /// Seconds and nanoseconds of the last access: seconds have 4 bytes in UFS1, 8 in UFS2.
    pub accessed: (usize, usize),
    pub modified: (usize, usize),
    pub changed: (usize, usize),
    /// UFS2 only.
    pub created: Option<(usize, usize)>,
    pub flags: usize,
    pub generation: usize,
    /// The first pointer; each has [`Version::pointer_bytes`].
    pub pointers: usize,
    /// `di_modrev` (8 bytes).
    pub revision: usize,
    /// `di_freelink`: the next inode on the list of those without names (4 bytes).
    pub next_orphan: usize,
}

macro_rules! offsets {
    ($raw:ident, $created:expr) => {{
        use core::mem::offset_of;
        Offsets {
            mode: offset_of!($raw, di_mode),
            links: offset_of!($raw, di_nlink),
            uid: offset_of!($raw, di_uid),
            gid: offset_of!($raw, di_gid),
            size: offset_of!($raw, di_size),
            sectors: offset_of!($raw, di_blocks),
            accessed: (offset_of!($raw, di_atime), offset_of!($raw, di_atimensec)),
            modified: (offset_of!($raw, di_mtime), offset_of!($raw, di_mtimensec)),
            changed: (offset_of!($raw, di_ctime), offset_of!($raw, di_ctimensec)),
            created: $created,
            flags: offset_of!($raw, di_flags),
            generation: offset_of!($raw, di_gen),
            pointers: offset_of!($raw, di_db),
            revision: offset_of!($raw, di_modrev),
            next_orphan: offset_of!($raw, di_freelink),
        }
    }};
}

impl Offsets {
    /// Those of a version.
    pub const fn of(version: Version) -> &'static Offsets {
        const UFS1: Offsets = offsets!(RawInode1, None);
        const UFS2: Offsets = offsets!(
            RawInode2,
            Some((
                offset_of!(RawInode2, di_birthtime),
                offset_of!(RawInode2, di_birthnsec)
            ))
        );
        match version {
            Version::Ufs1 => &UFS1,
            Version::Ufs2 => &UFS2,
        }
    }

    /// Where a pointer is.
    pub const fn pointer(&self, version: Version, index: usize) -> usize {
        self.pointers + index * version.pointer_bytes()
    }
}

/// An inode as the rest of the crate works with it. Nothing is checked but that the bytes suffice:
/// what an inode may contain depends on what it is, and a damaged one must still be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Which version's it is.
    pub version: Version,
    /// The order of its bytes.
    pub order: ByteOrder,
    /// Type and permissions.
    pub mode: u16,
    /// The number of names. More than [`LINK_MAX`](super::LINK_MAX) is a negative number.
    pub links: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The length.
    pub size: u64,
    /// What it takes on the disk, in units of 512 bytes: data, indirect and attribute blocks.
    pub sectors: u64,
    /// `di_flags`
    pub flags: u32,
    /// What changes when the number is used anew.
    pub generation: u32,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// When it was made, in UFS2.
    pub created: Option<Timestamp>,
    /// The addresses of fragments with which its blocks begin; a short symbolic link's target or a
    /// device number where there are none.
    pub pointers: [u64; POINTERS],
    /// `di_modrev`: on a directory that was to be replaced, its
    /// [mark](backstitch_unixfs::replaced).
    pub revision: u64,
    /// Bytes of extended attributes.
    pub attribute_bytes: u32,
    /// Where they are.
    pub attribute_pointers: [u64; ATTRIBUTE_POINTERS],
}

impl Inode {
    /// Reads an inode. `bytes` is all of it.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] where `bytes` are fewer than an inode has.
    pub fn parse(version: Version, order: ByteOrder, bytes: &[u8]) -> Result<Inode, FormatError> {
        let expected = version.inode_bytes();
        if bytes.len() < expected {
            let found = bytes.len();
            let fault = InodeFault::TooShort { found, expected };
            return Err(FormatError::corrupt(Structure::Sole("inode"), fault));
        }
        Ok(match version {
            Version::Ufs1 => Inode::of_raw1(order, &RawInode1::decode(order, bytes)),
            Version::Ufs2 => Inode::of_raw2(order, &RawInode2::decode(order, bytes)),
        })
    }

    fn of_raw1(order: ByteOrder, raw: &RawInode1) -> Inode {
        let time = |seconds: i32, nanoseconds| timestamp(seconds.into(), nanoseconds);
        let mut pointers = [0; POINTERS];
        for (to, from) in pointers.iter_mut().zip(raw.di_db.iter().chain(&raw.di_ib)) {
            *to = u64::from(*from);
        }
        Inode {
            version: Version::Ufs1,
            order,
            mode: raw.di_mode,
            links: raw.di_nlink as u16,
            uid: raw.di_uid,
            gid: raw.di_gid,
            size: raw.di_size,
            sectors: raw.di_blocks.into(),
            flags: raw.di_flags,
            generation: raw.di_gen,
            accessed: time(raw.di_atime, raw.di_atimensec),
            modified: time(raw.di_mtime, raw.di_mtimensec),
            changed: time(raw.di_ctime, raw.di_ctimensec),
            created: None,
            pointers,
            revision: raw.di_modrev,
            attribute_bytes: 0,
            attribute_pointers: [0; ATTRIBUTE_POINTERS],
        }
    }

    fn of_raw2(order: ByteOrder, raw: &RawInode2) -> Inode {
        let mut pointers = [0; POINTERS];
        for (to, from) in pointers.iter_mut().zip(raw.di_db.iter().chain(&raw.di_ib)) {
            *to = *from;
        }
        Inode {
            version: Version::Ufs2,
            order,
            mode: raw.di_mode,
            links: raw.di_nlink as u16,
            uid: raw.di_uid,
            gid: raw.di_gid,
            size: raw.di_size,
            sectors: raw.di_blocks,
            flags: raw.di_flags,
            generation: raw.di_gen,
            accessed: timestamp(raw.di_atime, raw.di_atimensec),
            modified: timestamp(raw.di_mtime, raw.di_mtimensec),
            changed: timestamp(raw.di_ctime, raw.di_ctimensec),
            created: Some(timestamp(raw.di_birthtime, raw.di_birthnsec)),
            pointers,
            revision: raw.di_modrev,
            attribute_bytes: raw.di_extsize,
            attribute_pointers: raw.di_extb,
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

    /// Whether a symbolic link's target lies in the pointers: `symlink_max` is
    /// [`Superblock::symlink_max`](super::Superblock::symlink_max).
    pub fn is_fast_symlink(&self, symlink_max: u32) -> bool {
        self.file_type() == Some(FileType::Symlink) && self.size < u64::from(symlink_max)
    }

    /// Whether the pointers are pointers: those of files, directories and long symbolic links.
    pub fn has_block_map(&self, symlink_max: u32) -> bool {
        match self.file_type() {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => !self.is_fast_symlink(symlink_max),
            _ => false,
        }
    }

    /// The bytes of the pointers: a short symbolic link's target, padded with zeros.
    pub fn inline_bytes(&self) -> Vec<u8> {
        let each = self.pointers.iter();
        match self.version {
            Version::Ufs1 => each
                .flat_map(|pointer| self.order.bytes_of_u32(*pointer as u32))
                .collect(),
            Version::Ufs2 => each
                .flat_map(|pointer| self.order.bytes_of_u64(*pointer))
                .collect(),
        }
    }

    /// The device number of a device, in the encoding of Linux's `stat` (12 bits major, 20 minor).
    pub fn device_number(&self) -> u32 {
        let (major, minor) = split_device(self.pointers[0]);
        (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
    }
}

/// Major and minor number of a device as FreeBSD has them in the first pointer: 8 bits of each in
/// the lowest 16 bits, the others above (`major(3)`).
fn split_device(device: u64) -> (u32, u32) {
    let major = (device >> 32 & 0xffff_ff00) | (device >> 8 & 0xff);
    let minor = (device >> 24 & 0xff00) | (device & 0xffff_00ff);
    (major as u32, minor as u32)
}

/// The first pointer of a device: the inverse of [`Inode::device_number`], for numbers in the
/// encoding of Linux's `stat`.
pub fn encode_device(device_number: u32) -> u64 {
    let major = u64::from(device_number >> 8 & 0xfff);
    let minor = u64::from((device_number & 0xff) | (device_number >> 12 & 0xf_ff00));
    (major & 0xffff_ff00) << 32
        | (major & 0xff) << 8
        | (minor & 0xff00) << 24
        | (minor & 0xffff_00ff)
}

/// Whether the first pointer has room for a device number: the four bytes of UFS1 have none for
/// majors above 255, nor for minors in which one of the bits 8 to 15 is set.
pub fn holds_device(version: Version, device_number: u32) -> bool {
    version == Version::Ufs2 || encode_device(device_number) <= u32::MAX.into()
}

fn timestamp(seconds: i64, nanoseconds: i32) -> Timestamp {
    Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or(0).min(999_999_999),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_both_versions_are_where_they_are_read() {
        for (version, order) in [
            (Version::Ufs1, ByteOrder::Little),
            (Version::Ufs1, ByteOrder::Big),
            (Version::Ufs2, ByteOrder::Little),
            (Version::Ufs2, ByteOrder::Big),
        ] {
            let at = Offsets::of(version);
            let mut bytes = vec![0; version.inode_bytes()];
            let mut put = |at: usize, value: u32| {
                bytes[at..at + 4].copy_from_slice(&order.bytes_of_u32(value));
            };
            put(at.uid, 11);
            put(at.gid, 12);
            put(at.flags, 13);
            put(at.generation, 14);
            put(at.changed.1, 15);
            // The low half of a number of eight bytes.
            let half = match order {
                ByteOrder::Little => 0,
                ByteOrder::Big => 4,
            };
            let wide = |at: usize| match version {
                Version::Ufs1 => at,
                Version::Ufs2 => at + half,
            };
            put(at.size + half, 16);
            put(wide(at.sectors), 17);
            put(wide(at.accessed.0), 18);
            put(wide(at.pointer(version, 14)), 19);
            let inode = Inode::parse(version, order, &bytes).unwrap();
            let ids = (inode.uid, inode.gid, inode.flags, inode.generation);
            assert_eq!(ids, (11, 12, 13, 14));
            assert_eq!(inode.changed.nanoseconds, 15);
            assert_eq!((inode.size, inode.sectors), (16, 17));
            assert_eq!((inode.accessed.seconds, inode.pointers[14]), (18, 19));
            assert_eq!(
                inode.inline_bytes(),
                bytes[at.pointers..at.pointer(version, POINTERS)]
            );
            assert!(Inode::parse(version, order, &bytes[1..]).is_err());
        }
    }

    #[test]
    fn device_numbers_are_read_as_written() {
        let device = |major: u32, minor: u32| {
            (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
        };
        assert_eq!(encode_device(device(1, 3)), 0x103);
        for number in [
            device(1, 3),
            device(0xfff, 0xf_ffff),
            device(259, 70_000),
            0,
        ] {
            assert_eq!(split_device(encode_device(number)).0, number >> 8 & 0xfff);
            let mut inode = Inode::parse(Version::Ufs2, ByteOrder::Big, &[0; 256]).unwrap();
            inode.pointers[0] = encode_device(number);
            assert_eq!(inode.device_number(), number);
            assert!(holds_device(Version::Ufs2, number));
        }
        for (number, is_held) in [
            (device(255, 0xf_00ff), true),
            (device(256, 0), false),
            (device(1, 0x100), false),
        ] {
            assert_eq!(holds_device(Version::Ufs1, number), is_held);
        }
    }
}
