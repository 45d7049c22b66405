//! Directory blocks: entries one after the other, each telling how long it is.
//!
//! Entries fill a block exactly; an unused one has inode 0. A name is removed by giving its space
//! to the entry before it, or by zeroing its inode at the block's start. No entry crosses a block,
//! but one may cross a 512-byte sector. What is common to formats of this family is
//! [`backstitch_unixfs::directory`]; here is how ext has the fixed part of an entry.

use backstitch_layout::{FileType, InodeNumber};
use backstitch_unixfs::directory::{self as common, EntryLayout, Head};
use smallvec::SmallVec;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use common::{
    DirectoryError, Entry, EntryFault, HEADER_SIZE, NAME_MAX_BYTES, OFFSET_INODE, OFFSET_REC_LEN,
    TYPE_UNKNOWN,
};

/// The offset of `file_type` within an entry (1 byte).
pub const OFFSET_FILE_TYPE: usize = core::mem::offset_of!(RawDirEntry, file_type);

/// The largest `file_type`.
pub const TYPE_MAX: u8 = 7;

/// An entry's fixed part as it is on the disk; the name follows. Without the `filetype` feature
/// `file_type` is the high byte of the name's length and therefore 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawDirEntry {
    pub inode: U32,
    pub rec_len: U16,
    pub name_len: u8,
    pub file_type: u8,
}

/// Entries as ext has them.
#[derive(Clone, Copy, Debug)]
pub struct ExtEntries;

/// The space that an entry with a name of this length takes: header and name, to a multiple of
/// four.
pub const fn required_len(name_len: usize) -> usize {
    common::required_len::<ExtEntries>(name_len)
}

/// The entries of one block.
pub type Entries<'a> = common::Entries<'a, ExtEntries>;

impl EntryLayout for ExtEntries {
    const OFFSET_FILE_TYPE: usize = OFFSET_FILE_TYPE;

    #[inline]
    fn head(bytes: [u8; HEADER_SIZE]) -> Head {
        let head = u64::from_le_bytes(bytes);
        Head {
            inode: head as u32,
            rec_len: (head >> 32) as u16,
            name_len: (head >> 48) as u8,
            file_type: (head >> 56) as u8,
        }
    }

    fn encode_head(head: Head) -> [u8; HEADER_SIZE] {
        let raw = RawDirEntry {
            inode: head.inode.into(),
            rec_len: head.rec_len.into(),
            name_len: head.name_len,
            file_type: head.file_type,
        };
        let mut bytes = [0; HEADER_SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    fn encode_inode(inode: InodeNumber) -> [u8; 4] {
        inode.0.to_le_bytes()
    }

    fn encode_rec_len(rec_len: usize) -> [u8; 2] {
        encode_rec_len(rec_len).to_le_bytes()
    }

    /// 64 KiB does not fit into 16 bits; it is written as 65535 or 0.
    fn decode_rec_len(rec_len: u16, block_len: usize) -> usize {
        match rec_len {
            0 | u16::MAX if block_len == 65536 => block_len,
            _ => rec_len.into(),
        }
    }

    fn type_code(file_type: FileType) -> u8 {
        type_code(file_type)
    }

    fn type_of_code(code: u8) -> Option<FileType> {
        type_of_code(code)
    }
}

/// The type code of an entry.
pub fn type_code(file_type: FileType) -> u8 {
    match file_type {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::CharacterDevice => 3,
        FileType::BlockDevice => 4,
        FileType::Fifo => 5,
        FileType::Socket => 6,
        FileType::Symlink => 7,
    }
}

/// The type of a code; `None` where it is not told or does not exist.
pub fn type_of_code(code: u8) -> Option<FileType> {
    Some(match code {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::CharacterDevice,
        4 => FileType::BlockDevice,
        5 => FileType::Fifo,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => return None,
    })
}

/// The entries of a directory block, unused ones included. Inodes above `inodes_count` are errors;
/// pass `u32::MAX` to leave that to the caller.
pub fn entries(block: &[u8], inodes_count: u32) -> Entries<'_> {
    common::entries(block, inodes_count)
}

/// The entry at an offset of a block.
///
/// # Errors
/// Where there cannot be one.
pub fn entry_at(block: &[u8], offset: usize, inodes_count: u32) -> Result<Entry<'_>, EntryFault> {
    common::entry_at::<ExtEntries>(block, offset, inodes_count)
}

/// The live entry with this name. Damaged entries end the search.
pub fn find<'a>(block: &'a [u8], name: &[u8]) -> Option<Entry<'a>> {
    common::find::<ExtEntries>(block, name)
}

/// The bytes of an entry, [`required_len`] of them, padded with zeros. `rec_len` is what the entry
/// claims.
///
/// The name must have at most [`NAME_MAX_BYTES`]; more are cut off.
pub fn encode_entry(
    inode: InodeNumber,
    file_type: u8,
    name: &[u8],
    rec_len: usize,
) -> SmallVec<[u8; 64]> {
    common::encode_entry::<ExtEntries>(inode, file_type, name, rec_len)
}

/// `rec_len` on the disk.
pub fn encode_rec_len(rec_len: usize) -> u16 {
    u16::try_from(rec_len).unwrap_or(u16::MAX)
}

/// Whether a block begins with `.`, which names this inode, and `..`: the first one of a directory.
pub fn starts_with_dots(block: &[u8], inode: InodeNumber) -> bool {
    common::starts_with_dots::<ExtEntries>(block, inode)
}

/// The first block of a new directory: `.` and `..`. The codes are [`TYPE_UNKNOWN`] where the file
/// system has no `filetype`.
pub fn new_directory_block(
    block_size: usize,
    inode: InodeNumber,
    parent: InodeNumber,
    directory_code: u8,
) -> Vec<u8> {
    common::new_directory_block::<ExtEntries>(block_size, inode, parent, directory_code)
}

/// A directory block without names: one unused entry.
pub fn empty_block(block_size: usize) -> Vec<u8> {
    common::empty_block::<ExtEntries>(block_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    fn faults(block: &[u8]) -> Vec<EntryFault> {
        entries(block, 100)
            .filter_map(|entry| entry.err().map(|error| error.fault))
            .collect()
    }

    #[test]
    fn a_new_directory_has_two_names() {
        let block = new_directory_block(1024, InodeNumber(12), InodeNumber(2), 2);
        let found: Vec<_> = entries(&block, 100).map(|entry| entry.unwrap()).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].inode, found[0].name, found[0].rec_len),
            (InodeNumber(12), &b"."[..], 12)
        );
        assert_eq!(
            (found[1].inode, found[1].name, found[1].rec_len),
            (InodeNumber(2), &b".."[..], 1012)
        );
        assert_eq!(find(&block, b"..").unwrap().offset, 12);
        assert_eq!(find(&block, b"x"), None);
    }

    proptest! {
        /// What is passed by quickly is what was looked at closely before, also where the block is
        /// damaged.
        #[test]
        fn a_search_finds_what_a_look_at_every_entry_does(
            parts in vec((b'a'..b'd', 1usize..4, 0usize..4, 0u32..3), 40),
            damage in option::of((0usize..512, any::<u8>())),
            wanted in (b'a'..b'd', 1usize..4),
        ) {
            let mut block = empty_block(512);
            let mut at = 0;
            for (letter, len, gap, inode) in parts {
                if at < 512 {
                    let space = match (512 - at, required_len(len) + gap * 4) {
                        (rest, wanted) if rest < wanted + required_len(3) => rest,
                        (_, wanted) => wanted,
                    };
                    let entry = encode_entry(InodeNumber(inode * 40), 1, &std::vec![letter; len], space);
                    block[at..at + entry.len()].copy_from_slice(&entry);
                    at += space;
                }
            }
            if let Some((at, byte)) = damage {
                block[at] = byte;
            }
            let name = std::vec![wanted.0; wanted.1];
            let close = entries(&block, 100)
                .find(|e| e.is_err() || e.is_ok_and(|e| e.inode != InodeNumber::NONE && e.name == name))
                .transpose();
            prop_assert_eq!(entries(&block, 100).find_name(&name), close);
        }
    }

    #[test]
    fn every_fault_is_found_once() {
        let good = new_directory_block(1024, InodeNumber(12), InodeNumber(2), 2);
        assert_eq!(faults(&good), []);
        let with = |offset: usize, bytes: &[u8]| {
            let mut block = good.clone();
            block[offset..offset + bytes.len()].copy_from_slice(bytes);
            faults(&block)
        };
        assert_eq!(with(4, &[0]), [EntryFault::TooShort(0)]);
        assert_eq!(with(4, &[13]), [EntryFault::Unaligned(13)]);
        assert_eq!(with(17, &[0xff]), [EntryFault::TooLong(0xfff4)]);
        assert_eq!(
            with(6, &[9]),
            [EntryFault::NameTooLong {
                name_len: 9,
                rec_len: 12
            }]
        );
        assert_eq!(with(12, &[101]), [EntryFault::BadInode(InodeNumber(101))]);
        assert_eq!(faults(&good[..1020]), [EntryFault::TooLong(1012)]);
        assert_eq!(faults(&good[..16]), [EntryFault::TooShort(4)]);
    }

    #[test]
    fn type_codes_round_trip() {
        for code in 1..=TYPE_MAX {
            assert_eq!(type_code(type_of_code(code).unwrap()), code);
        }
        assert_eq!(type_of_code(TYPE_UNKNOWN), None);
    }
}
