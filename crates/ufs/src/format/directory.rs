//! Entries of directories: a number, a length, a type, the name's length, the name and a zero.
//!
//! A directory is divided into chunks of 512 bytes that no entry crosses, and is a whole number of
//! them long. A name is removed by giving its space to the entry before it, or by zeroing its
//! inode at the chunk's start.

use super::order::{ByteOrder, OnDisk, on_disk};
use backstitch_blocks::directory::{EntryLayout, HEADER_SIZE, Head};
use backstitch_layout::{FileType, InodeNumber};

/// The bytes of a chunk (`DIRBLKSIZ`).
pub const CHUNK_BYTES: usize = 512;

on_disk! {
    /// The fixed part of `struct direct`; the name and a zero follow.
    pub struct RawEntry, 8 {
        pub d_ino: u32,
        pub d_reclen: u16,
        pub d_type: u8,
        pub d_namlen: u8,
    }
}

/// Entries as UFS has them, of numbers with the highest byte first where `BIG`.
#[derive(Clone, Copy, Debug)]
pub struct UfsEntries<const BIG: bool>;

impl<const BIG: bool> UfsEntries<BIG> {
    /// The order of an entry's bytes.
    pub const ORDER: ByteOrder = match BIG {
        false => ByteOrder::Little,
        true => ByteOrder::Big,
    };
}

impl<const BIG: bool> EntryLayout for UfsEntries<BIG> {
    const OFFSET_FILE_TYPE: usize = core::mem::offset_of!(RawEntry, d_type);
    const UNIT_BYTES: usize = CHUNK_BYTES;
    const TERMINATOR_BYTES: usize = 1;

    #[inline]
    fn head(bytes: [u8; HEADER_SIZE]) -> Head {
        let raw = RawEntry::decode(Self::ORDER, &bytes);
        Head {
            inode: raw.d_ino,
            rec_len: raw.d_reclen,
            name_len: raw.d_namlen,
            file_type: raw.d_type,
        }
    }

    fn encode_head(head: Head) -> [u8; HEADER_SIZE] {
        let raw = RawEntry {
            d_ino: head.inode,
            d_reclen: head.rec_len,
            d_type: head.file_type,
            d_namlen: head.name_len,
        };
        let mut bytes = [0; HEADER_SIZE];
        raw.encode(Self::ORDER, &mut bytes);
        bytes
    }

    fn encode_inode(inode: InodeNumber) -> [u8; 4] {
        Self::ORDER.bytes_of_u32(inode.0)
    }

    fn encode_rec_len(rec_len: usize) -> [u8; 2] {
        Self::ORDER.bytes_of_u16(rec_len as u16)
    }

    fn decode_rec_len(rec_len: u16, _block_len: usize) -> usize {
        rec_len.into()
    }

    fn type_code(file_type: FileType) -> u8 {
        type_code(file_type)
    }

    fn type_of_code(code: u8) -> Option<FileType> {
        type_of_code(code)
    }
}

/// The type code of an entry: the type bits of the mode, as BSD's `d_type`.
pub fn type_code(file_type: FileType) -> u8 {
    (file_type.mode_bits() >> 12) as u8
}

/// The type of a code; `None` where it is not told or does not exist.
pub fn type_of_code(code: u8) -> Option<FileType> {
    FileType::from_mode(u32::from(code) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_blocks::directory::{encode_entry, entries, new_directory_block};

    fn first_chunk<const BIG: bool>() {
        let code = type_code(FileType::Directory);
        assert_eq!((code, type_of_code(code)), (4, Some(FileType::Directory)));
        let block =
            new_directory_block::<UfsEntries<BIG>>(1024, InodeNumber(7), InodeNumber(2), code);
        let all: Vec<_> = entries::<UfsEntries<BIG>>(&block, 100)
            .map(|entry| entry.map(|e| (e.inode.0, e.name.to_vec(), e.offset, e.rec_len)))
            .collect::<Result<_, _>>()
            .unwrap();
        let expected = [
            (7, b".".to_vec(), 0, 12),
            (2, b"..".to_vec(), 12, 500),
            (0, Vec::new(), 512, 512),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_new_directory_has_its_dots_in_the_first_chunk() {
        first_chunk::<false>();
        first_chunk::<true>();
    }

    #[test]
    fn a_name_ends_with_a_zero() {
        let entry = encode_entry::<UfsEntries<true>>(InodeNumber(258), 8, b"abcd", 16);
        assert_eq!(
            entry[..],
            [0, 0, 1, 2, 0, 16, 8, 4, b'a', b'b', b'c', b'd', 0, 0, 0, 0]
        );
        let entry = encode_entry::<UfsEntries<false>>(InodeNumber(258), 8, b"abc", 12);
        assert_eq!(entry[..], [2, 1, 0, 0, 12, 0, 8, 3, b'a', b'b', b'c', 0]);
    }
}
