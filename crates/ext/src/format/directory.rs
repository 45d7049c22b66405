//! Directory blocks: entries one after the other, each telling how long it is.
//!
//! Entries fill a block exactly; an unused one has inode 0. A name is removed by giving its space
//! to the entry before it, or by zeroing its inode at the block's start. No entry crosses a block,
//! but one may cross a 512-byte sector.

use backstitch_layout::FileType;
use smallvec::SmallVec;
use thiserror::Error;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The size of an entry's fixed part.
pub const HEADER_SIZE: usize = size_of::<RawDirEntry>();
/// The offset of `inode` within an entry (4 bytes).
pub const OFFSET_INODE: usize = core::mem::offset_of!(RawDirEntry, inode);
/// The offset of `rec_len` within an entry (2 bytes).
pub const OFFSET_REC_LEN: usize = core::mem::offset_of!(RawDirEntry, rec_len);
/// The offset of `file_type` within an entry (1 byte).
pub const OFFSET_FILE_TYPE: usize = core::mem::offset_of!(RawDirEntry, file_type);

/// `file_type`: not told (always so without the `filetype` feature).
pub const TYPE_UNKNOWN: u8 = 0;
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

/// The space that an entry with a name of this length takes: header and name, to a multiple of
/// four.
pub const fn required_len(name_len: usize) -> usize {
    (HEADER_SIZE + name_len + 3) & !3
}

/// An entry of a block, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where in the block it starts.
    pub offset: usize,
    /// The inode that it names; 0 where the entry is unused.
    pub inode: u32,
    /// The type code, as it is on the disk.
    pub file_type: u8,
    /// The name; what is left of one where the entry is unused.
    pub name: &'a [u8],
    /// The space up to the next entry.
    pub rec_len: usize,
}

impl Entry<'_> {
    /// The space that the entry needs itself: 0 where it is unused.
    pub fn used_len(&self) -> usize {
        if self.inode == 0 {
            0
        } else {
            required_len(self.name.len())
        }
    }
}

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("directory entry at offset {offset}: {fault}")]
pub struct DirectoryError {
    /// Where in the block the entry starts.
    pub offset: usize,
    /// What is wrong.
    pub fault: EntryFault,
}

/// The ways in which an entry can be wrong.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum EntryFault {
    /// Too short for any entry.
    #[error("its length {0} is less than 12 bytes")]
    TooShort(usize),
    /// Not a multiple of four.
    #[error("its length {0} is no multiple of 4")]
    Unaligned(usize),
    /// Longer than what is left of the block.
    #[error("its length {0} leads past the block's end")]
    TooLong(usize),
    /// The name does not fit.
    #[error("its name of {name_len} bytes does not fit into its length {rec_len}")]
    NameTooLong {
        /// The name's length.
        name_len: usize,
        /// The entry's.
        rec_len: usize,
    },
    /// The inode cannot exist.
    #[error("inode {0} does not exist")]
    BadInode(u32),
}

/// The entries of one block, in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    block: &'a [u8],
    offset: usize,
    inodes_count: u32,
}

/// The entries of a directory block, unused ones included. Inodes above `inodes_count` are errors;
/// pass `u32::MAX` to leave that to the caller.
pub fn entries(block: &[u8], inodes_count: u32) -> Entries<'_> {
    Entries {
        block,
        offset: 0,
        inodes_count,
    }
}

impl<'a> Entries<'a> {
    /// Passes by the entries, up to the first that is not `unwanted` (by its inode, the space up to
    /// the next entry, and its name) or that [`next`](Iterator::next) has to look at more closely.
    /// A few instructions for each: directories are searched so.
    #[inline]
    pub(crate) fn pass(&mut self, unwanted: impl Fn(u32, usize, &[u8]) -> bool) {
        while let Some(rest) = self.block.get(self.offset..)
            && let Some((head, behind)) = rest.split_first_chunk::<HEADER_SIZE>()
        {
            let head = u64::from_le_bytes(*head);
            let (inode, rec_len) = (head as u32, usize::from((head >> 32) as u16));
            let name_len = usize::from((head >> 48) as u8);
            let is_sound = rec_len.is_multiple_of(4)
                && rec_len <= rest.len()
                && rec_len >= required_len(name_len.max(1))
                && inode <= self.inodes_count;
            if !is_sound || !unwanted(inode, rec_len, &behind[..name_len]) {
                return;
            }
            self.offset += rec_len;
        }
    }

    /// The next live entry with this name.
    pub(crate) fn find_name(&mut self, name: &[u8]) -> Result<Option<Entry<'a>>, DirectoryError> {
        loop {
            self.pass(|inode, _, other| inode == 0 || other != name);
            match self.next().transpose()? {
                Some(entry) if entry.inode == 0 || entry.name != name => {}
                found => return Ok(found),
            }
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DirectoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        if offset >= self.block.len() {
            return None;
        }
        let result = entry_at(self.block, offset, self.inodes_count);
        self.offset = match &result {
            Ok(entry) => offset + entry.rec_len,
            Err(_) => self.block.len(),
        };
        Some(result.map_err(|fault| DirectoryError { offset, fault }))
    }
}

/// The entry at an offset of a block.
///
/// # Errors
/// Where there cannot be one.
pub fn entry_at(block: &[u8], offset: usize, inodes_count: u32) -> Result<Entry<'_>, EntryFault> {
    let rest = block.get(offset..).unwrap_or(&[]);
    let Ok((raw, behind)) = RawDirEntry::ref_from_prefix(rest) else {
        return Err(EntryFault::TooShort(rest.len()));
    };
    let rec_len = decode_rec_len(raw.rec_len.get(), block.len());
    let name_len = usize::from(raw.name_len);
    if rec_len < required_len(1) {
        return Err(EntryFault::TooShort(rec_len));
    }
    if !rec_len.is_multiple_of(4) {
        return Err(EntryFault::Unaligned(rec_len));
    }
    if rec_len > rest.len() {
        return Err(EntryFault::TooLong(rec_len));
    }
    if required_len(name_len) > rec_len {
        return Err(EntryFault::NameTooLong { name_len, rec_len });
    }
    let inode = raw.inode.get();
    if inode > inodes_count {
        return Err(EntryFault::BadInode(inode));
    }
    let name = &behind[..name_len];
    Ok(Entry {
        offset,
        inode,
        file_type: raw.file_type,
        name,
        rec_len,
    })
}

/// 64 KiB does not fit into 16 bits; it is written as 65535 or 0.
fn decode_rec_len(rec_len: u16, block_len: usize) -> usize {
    match rec_len {
        0 | u16::MAX if block_len == 65536 => block_len,
        _ => rec_len.into(),
    }
}

/// The live entry with this name. Damaged entries end the search.
pub fn find<'a>(block: &'a [u8], name: &[u8]) -> Option<Entry<'a>> {
    entries(block, u32::MAX).find_name(name).ok().flatten()
}

/// The bytes of an entry, [`required_len`] of them, padded with zeros. `rec_len` is what the entry
/// claims.
///
/// The name must have at most [`NAME_MAX_BYTES`](super::NAME_MAX_BYTES); more are cut off.
pub fn encode_entry(inode: u32, file_type: u8, name: &[u8], rec_len: usize) -> SmallVec<[u8; 64]> {
    let name = &name[..name.len().min(super::NAME_MAX_BYTES)];
    let raw = RawDirEntry {
        inode: inode.into(),
        rec_len: encode_rec_len(rec_len).into(),
        name_len: name.len() as u8,
        file_type,
    };
    let mut bytes = SmallVec::new();
    bytes.extend_from_slice(raw.as_bytes());
    bytes.extend_from_slice(name);
    bytes.resize(required_len(name.len()), 0);
    bytes
}

/// `rec_len` on the disk.
pub fn encode_rec_len(rec_len: usize) -> u16 {
    u16::try_from(rec_len).unwrap_or(u16::MAX)
}

/// Whether a block begins with `.`, which names this inode, and `..`: the first one of a directory.
pub fn starts_with_dots(block: &[u8], inode: u32) -> bool {
    let mut entries = entries(block, u32::MAX);
    let mut next = || entries.next().and_then(Result::ok);
    let is_dot = |entry: Entry<'_>| entry.inode == inode && entry.name == b".";
    next().is_some_and(is_dot) && next().is_some_and(|entry| entry.name == b"..")
}

/// The first block of a new directory: `.` and `..`. The codes are [`TYPE_UNKNOWN`] where the file
/// system has no `filetype`.
pub fn new_directory_block(
    block_size: usize,
    inode: u32,
    parent: u32,
    directory_code: u8,
) -> Vec<u8> {
    let first = required_len(1);
    let mut block = encode_entry(inode, directory_code, b".", first).into_vec();
    block.extend(encode_entry(
        parent,
        directory_code,
        b"..",
        block_size - first,
    ));
    block.resize(block_size, 0);
    block
}

/// A directory block without names: one unused entry.
pub fn empty_block(block_size: usize) -> Vec<u8> {
    let mut block = encode_entry(0, TYPE_UNKNOWN, b"", block_size).into_vec();
    block.resize(block_size, 0);
    block
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
        let block = new_directory_block(1024, 12, 2, 2);
        let found: Vec<_> = entries(&block, 100).map(|entry| entry.unwrap()).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].inode, found[0].name, found[0].rec_len),
            (12, &b"."[..], 12)
        );
        assert_eq!(
            (found[1].inode, found[1].name, found[1].rec_len),
            (2, &b".."[..], 1012)
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
                    let entry = encode_entry(inode * 40, 1, &std::vec![letter; len], space);
                    block[at..at + entry.len()].copy_from_slice(&entry);
                    at += space;
                }
            }
            if let Some((at, byte)) = damage {
                block[at] = byte;
            }
            let name = std::vec![wanted.0; wanted.1];
            let close = entries(&block, 100)
                .find(|e| e.is_err() || e.is_ok_and(|e| e.inode != 0 && e.name == name))
                .transpose();
            prop_assert_eq!(entries(&block, 100).find_name(&name), close);
        }
    }

    #[test]
    fn every_fault_is_found_once() {
        let good = new_directory_block(1024, 12, 2, 2);
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
        assert_eq!(with(12, &[101]), [EntryFault::BadInode(101)]);
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
