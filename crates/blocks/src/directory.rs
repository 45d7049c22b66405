//! Directory blocks: entries one after the other, each telling how long it is.
//!
//! Entries fill a block exactly; an unused one has inode 0. No entry crosses a block. All formats
//! of this family have an entry's inode and its length at the same place; what else differs is an
//! [`EntryLayout`].

use backstitch_layout::{BlockNumber, FileType, InodeNumber};
use smallvec::SmallVec;
use std::marker::PhantomData;
use thiserror::Error;

/// The size of an entry's fixed part.
pub const HEADER_SIZE: usize = 8;
/// The offset of the inode's number within an entry (4 bytes).
pub const OFFSET_INODE: usize = 0;
/// The offset of an entry's length within it (2 bytes).
pub const OFFSET_REC_LEN: usize = 4;
/// The type code of an entry that does not tell its inode's type.
pub const TYPE_UNKNOWN: u8 = 0;
/// The longest name of an entry, in bytes.
pub const NAME_MAX_BYTES: usize = 255;

/// The fixed part of an entry; the name follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The inode's number; 0 where the entry is unused.
    pub inode: u32,
    /// The space up to the next entry, as it is on the disk.
    pub rec_len: u16,
    /// The length of the name in bytes.
    pub name_len: u8,
    /// The type code of the inode, where entries tell it.
    pub file_type: u8,
}

/// The shortest entry, in bytes: one with a name of one byte, in every format.
pub const ENTRY_BYTES_MIN: usize = 12;

/// How a format has the fixed part of an entry on the disk.
pub trait EntryLayout: Copy + std::fmt::Debug + 'static {
    /// The offset of the type code within an entry (1 byte).
    const OFFSET_FILE_TYPE: usize;
    /// No entry crosses a multiple of this many bytes of a block: 512 in UFS. In ext the block is
    /// the only border; that an entry stays within the device's unit is up to its writer.
    const UNIT_BYTES: usize = usize::MAX;
    /// Zeros that end a name on the disk and are not counted in its length: one in UFS.
    const TERMINATOR_BYTES: usize = 0;

    /// Decodes the fixed part of an entry.
    fn head(bytes: [u8; HEADER_SIZE]) -> Head;

    /// The bytes of a fixed part.
    fn encode_head(head: Head) -> [u8; HEADER_SIZE];

    /// The bytes of an inode's number.
    fn encode_inode(inode: InodeNumber) -> [u8; 4];

    /// The bytes of an entry's length.
    fn encode_rec_len(rec_len: usize) -> [u8; 2];

    /// Decodes the length of an entry in a block of `block_len` bytes.
    fn decode_rec_len(rec_len: u16, block_len: usize) -> usize;

    /// The type code for a type of inode.
    fn type_code(file_type: FileType) -> u8;

    /// What a type code stands for; `None` where it is not told or does not exist.
    fn type_of_code(code: u8) -> Option<FileType>;
}

/// The space that an entry with a name of this length takes: header, name and what ends it, to a
/// multiple of four.
pub const fn required_len<L: EntryLayout>(name_len: usize) -> usize {
    (HEADER_SIZE + name_len + L::TERMINATOR_BYTES + 3) & !3
}

/// An entry of a block, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where in the block it starts.
    pub offset: usize,
    /// The inode that it names; [`InodeNumber::NONE`] where the entry is unused.
    pub inode: InodeNumber,
    /// The type code, as it is on the disk.
    pub file_type: u8,
    /// The name; what is left of one where the entry is unused.
    pub name: &'a [u8],
    /// The space up to the next entry.
    pub rec_len: usize,
}

impl Entry<'_> {
    /// The space that the entry needs itself: 0 where it is unused.
    pub fn used_len<L: EntryLayout>(&self) -> usize {
        if self.inode == InodeNumber::NONE {
            0
        } else {
            required_len::<L>(self.name.len())
        }
    }
}

/// A name that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it stands for.
    pub inode: InodeNumber,
    /// The block on the disk.
    pub block: BlockNumber,
    /// Where in the block its entry begins.
    pub offset: usize,
    /// The directory's block.
    pub logical: u64,
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
    /// It goes on in the next unit of the block.
    #[error("its length {0} leads past the unit's end")]
    CrossesUnit(usize),
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
    BadInode(InodeNumber),
}

/// The entries of one block, in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a, L> {
    block: &'a [u8],
    offset: usize,
    inodes_count: u32,
    layout: PhantomData<L>,
}

/// The entries of a directory block, unused ones included. Inodes above `inodes_count` are errors;
/// pass `u32::MAX` to leave that to the caller.
pub fn entries<L: EntryLayout>(block: &[u8], inodes_count: u32) -> Entries<'_, L> {
    Entries {
        block,
        offset: 0,
        inodes_count,
        layout: PhantomData,
    }
}

impl<'a, L: EntryLayout> Entries<'a, L> {
    /// Skips the entries up to the first that is not `unwanted` (by its inode, the space up to the
    /// next entry, and its name) or that [`next`](Iterator::next) has to look at more closely. A
    /// few instructions for each: this is how directories are searched.
    #[inline]
    pub fn pass(&mut self, unwanted: impl Fn(InodeNumber, usize, &[u8]) -> bool) {
        while let Some(rest) = self.block.get(self.offset..)
            && let Some((head, behind)) = rest.split_first_chunk::<HEADER_SIZE>()
        {
            let head = L::head(*head);
            let (inode, rec_len) = (head.inode, usize::from(head.rec_len));
            let name_len = usize::from(head.name_len);
            let is_sound = rec_len.is_multiple_of(4)
                && rec_len <= rest.len()
                && rec_len >= required_len::<L>(name_len.max(1))
                && inode <= self.inodes_count
                && !crosses_unit::<L>(self.offset, rec_len);
            if !is_sound || !unwanted(InodeNumber(inode), rec_len, &behind[..name_len]) {
                return;
            }
            self.offset += rec_len;
        }
    }

    /// The next live entry with this name.
    ///
    /// # Errors
    /// Where there is a wrong entry before it.
    pub fn find_name(&mut self, name: &[u8]) -> Result<Option<Entry<'a>>, DirectoryError> {
        loop {
            self.pass(|inode, _, other| inode == InodeNumber::NONE || other != name);
            match self.next().transpose()? {
                Some(entry) if entry.inode == InodeNumber::NONE || entry.name != name => {}
                found => return Ok(found),
            }
        }
    }
}

impl<'a, L: EntryLayout> Iterator for Entries<'a, L> {
    type Item = Result<Entry<'a>, DirectoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        if offset >= self.block.len() {
            return None;
        }
        let result = entry_at::<L>(self.block, offset, self.inodes_count);
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
pub fn entry_at<L: EntryLayout>(
    block: &[u8],
    offset: usize,
    inodes_count: u32,
) -> Result<Entry<'_>, EntryFault> {
    let rest = block.get(offset..).unwrap_or(&[]);
    let Some((head, behind)) = rest.split_first_chunk::<HEADER_SIZE>() else {
        return Err(EntryFault::TooShort(rest.len()));
    };
    let head = L::head(*head);
    let rec_len = L::decode_rec_len(head.rec_len, block.len());
    let name_len = usize::from(head.name_len);
    if rec_len < required_len::<L>(1) {
        return Err(EntryFault::TooShort(rec_len));
    }
    if !rec_len.is_multiple_of(4) {
        return Err(EntryFault::Unaligned(rec_len));
    }
    if rec_len > rest.len() {
        return Err(EntryFault::TooLong(rec_len));
    }
    if crosses_unit::<L>(offset, rec_len) {
        return Err(EntryFault::CrossesUnit(rec_len));
    }
    if required_len::<L>(name_len) > rec_len {
        return Err(EntryFault::NameTooLong { name_len, rec_len });
    }
    let inode = head.inode;
    if inode > inodes_count {
        return Err(EntryFault::BadInode(InodeNumber(inode)));
    }
    let name = &behind[..name_len];
    Ok(Entry {
        offset,
        inode: InodeNumber(inode),
        file_type: head.file_type,
        name,
        rec_len,
    })
}

/// Whether an entry of this length, at least one byte, ends in another unit than it begins in.
fn crosses_unit<L: EntryLayout>(offset: usize, rec_len: usize) -> bool {
    // The first condition is known when this is compiled: no instruction is left for ext.
    L::UNIT_BYTES != usize::MAX && offset / L::UNIT_BYTES != (offset + rec_len - 1) / L::UNIT_BYTES
}

/// The live entry with this name. Damaged entries end the search.
pub fn find<'a, L: EntryLayout>(block: &'a [u8], name: &[u8]) -> Option<Entry<'a>> {
    entries::<L>(block, u32::MAX).find_name(name).ok().flatten()
}

/// The bytes of an entry, [`required_len`] of them, padded with zeros. `rec_len` is what the entry
/// claims.
///
/// The name must have at most [`NAME_MAX_BYTES`]; more are cut off.
pub fn encode_entry<L: EntryLayout>(
    inode: InodeNumber,
    file_type: u8,
    name: &[u8],
    rec_len: usize,
) -> SmallVec<[u8; 64]> {
    let name = &name[..name.len().min(NAME_MAX_BYTES)];
    let mut head = L::encode_head(Head {
        inode: inode.0,
        rec_len: 0,
        name_len: name.len() as u8,
        file_type,
    });
    head[OFFSET_REC_LEN..OFFSET_REC_LEN + 2].copy_from_slice(&L::encode_rec_len(rec_len));
    let mut bytes = SmallVec::new();
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(name);
    bytes.resize(required_len::<L>(name.len()), 0);
    bytes
}

/// Whether a block begins with `.`, which names this inode, and `..`: the first one of a directory.
pub fn starts_with_dots<L: EntryLayout>(block: &[u8], inode: InodeNumber) -> bool {
    let mut entries = entries::<L>(block, u32::MAX);
    let mut next = || entries.next().and_then(Result::ok);
    let is_dot = |entry: Entry<'_>| entry.inode == inode && entry.name == b".";
    next().is_some_and(is_dot) && next().is_some_and(|entry| entry.name == b"..")
}

/// The first block of a new directory: `.` and `..`. The codes are [`TYPE_UNKNOWN`] where
/// entries tell no types.
pub fn new_directory_block<L: EntryLayout>(
    block_size: usize,
    inode: InodeNumber,
    parent: InodeNumber,
    directory_code: u8,
) -> Vec<u8> {
    let first = required_len::<L>(1);
    let mut block = encode_entry::<L>(inode, directory_code, b".", first).into_vec();
    block.extend(encode_entry::<L>(
        parent,
        directory_code,
        b"..",
        block_size - first,
    ));
    block.resize(block_size, 0);
    cut_at_units::<L>(&mut block, first, L::UNIT_BYTES);
    block
}

/// A directory block without names: one unused entry, or one for each unit of the layout.
pub fn empty_block<L: EntryLayout>(block_size: usize) -> Vec<u8> {
    let mut block = encode_entry::<L>(InodeNumber::NONE, TYPE_UNKNOWN, b"", block_size).into_vec();
    block.resize(block_size, 0);
    cut_at_units::<L>(&mut block, 0, L::UNIT_BYTES);
    block
}

/// Ends the entry at `offset`, the last one of a block, with its unit, and gives each unit behind it
/// an unused entry.
pub(crate) fn cut_at_units<L: EntryLayout>(block: &mut [u8], offset: usize, unit: usize) {
    let border = (offset / unit).saturating_add(1).saturating_mul(unit);
    if border >= block.len() {
        return;
    }
    let at = offset + OFFSET_REC_LEN;
    block[at..at + 2].copy_from_slice(&L::encode_rec_len(border - offset));
    for start in (border..block.len()).step_by(unit) {
        let len = unit.min(block.len() - start);
        block[start..start + HEADER_SIZE].copy_from_slice(&unused_head::<L>(len));
    }
}

/// The head of an unused entry of this length.
pub fn unused_head<L: EntryLayout>(len: usize) -> [u8; HEADER_SIZE] {
    let mut head = [0; HEADER_SIZE];
    head[OFFSET_REC_LEN..OFFSET_REC_LEN + 2].copy_from_slice(&L::encode_rec_len(len));
    head
}

#[cfg(test)]
mod tests {
    use super::testing::Little;
    use super::*;

    #[test]
    fn an_entry_that_crosses_a_unit_is_wrong_where_none_may() {
        let mut block = vec![0; 1024];
        let mut put = |at: usize, inode, name: &[u8], rec_len| {
            let bytes = encode_entry::<Little>(InodeNumber(inode), TYPE_UNKNOWN, name, rec_len);
            block[at..at + bytes.len()].copy_from_slice(&bytes);
        };
        put(0, 12, b"a", 500);
        put(500, 13, b"b", 524);
        assert!(entries::<Little>(&block, u32::MAX).all(|entry| entry.is_ok()));
        let found: Vec<_> = entries::<Little<512>>(&block, u32::MAX).collect();
        assert_eq!(found[0].map(|entry| entry.inode), Ok(InodeNumber(12)));
        let fault = EntryFault::CrossesUnit(524);
        assert_eq!(found[1], Err(DirectoryError { offset: 500, fault }));
        assert_eq!(found.len(), 2);
        // The search for a name passes over entries without looking at all of each.
        let searched = entries::<Little<512>>(&block, u32::MAX).find_name(b"c");
        assert_eq!(searched, Err(DirectoryError { offset: 500, fault }));
    }
}

/// Entries for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Little-endian, with a type behind the name's length.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Little<const UNIT: usize = { usize::MAX }>;

    impl<const UNIT: usize> EntryLayout for Little<UNIT> {
        const UNIT_BYTES: usize = UNIT;
        const OFFSET_FILE_TYPE: usize = 7;

        fn head(bytes: [u8; HEADER_SIZE]) -> Head {
            let [a, b, c, d, e, f, name_len, file_type] = bytes;
            Head {
                inode: u32::from_le_bytes([a, b, c, d]),
                rec_len: u16::from_le_bytes([e, f]),
                name_len,
                file_type,
            }
        }

        fn encode_head(head: Head) -> [u8; HEADER_SIZE] {
            let mut bytes = [0; HEADER_SIZE];
            bytes[..4].copy_from_slice(&head.inode.to_le_bytes());
            bytes[4..6].copy_from_slice(&head.rec_len.to_le_bytes());
            bytes[6..].copy_from_slice(&[head.name_len, head.file_type]);
            bytes
        }

        fn encode_inode(inode: InodeNumber) -> [u8; 4] {
            inode.0.to_le_bytes()
        }

        fn encode_rec_len(rec_len: usize) -> [u8; 2] {
            (rec_len as u16).to_le_bytes()
        }

        fn decode_rec_len(rec_len: u16, _block_len: usize) -> usize {
            rec_len.into()
        }

        fn type_code(_file_type: FileType) -> u8 {
            TYPE_UNKNOWN
        }

        fn type_of_code(_code: u8) -> Option<FileType> {
            None
        }
    }
}
