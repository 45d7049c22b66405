//! Extended attributes: in a block of their own that inodes may share, or behind the fields of a
//! large inode.
//!
//! # The block
//!
//! A header of 32 bytes, then entries upwards, four zero bytes after the last one, and values
//! downwards from the block's end, each padded to four bytes. Entries are sorted by name index,
//! then name length, then name. Inodes with the same attributes share a block, found by its hash,
//! counted in its header.
//!
//! # The inode
//!
//! Behind `128 + i_extra_isize` bytes: the same magic number, then entries and values as above,
//! offsets counted from the first entry; unsorted, without hash. ext2 only has the block; images
//! that ext4 or e2fsprogs wrote have both.

use super::inode::BASE_SIZE;
use std::cmp::Ordering;
use thiserror::Error;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_magic`, in blocks and in inodes.
pub const XATTR_MAGIC: u32 = 0xea02_0000;
/// The most inodes that share a block, as the kernel limits it.
pub const REFCOUNT_MAX: u32 = 1024;
/// The size of a block's header.
pub const HEADER_SIZE: usize = size_of::<RawXattrHeader>();
/// The size of an entry without its name.
pub const ENTRY_SIZE: usize = size_of::<RawXattrEntry>();
/// The offset of `h_refcount` within the block (4 bytes).
pub const OFFSET_REFCOUNT: usize = core::mem::offset_of!(RawXattrHeader, h_refcount);
/// The offset of `h_hash` within the block (4 bytes).
pub const OFFSET_HASH: usize = core::mem::offset_of!(RawXattrHeader, h_hash);

/// `e_name_index`: `user.`
pub const INDEX_USER: u8 = 1;
/// `e_name_index`: `system.posix_acl_access`, without a name.
pub const INDEX_POSIX_ACL_ACCESS: u8 = 2;
/// `e_name_index`: `system.posix_acl_default`, without a name.
pub const INDEX_POSIX_ACL_DEFAULT: u8 = 3;
/// `e_name_index`: `trusted.`
pub const INDEX_TRUSTED: u8 = 4;
/// `e_name_index`: `security.`
pub const INDEX_SECURITY: u8 = 6;
/// `e_name_index`: `system.`
pub const INDEX_SYSTEM: u8 = 7;

/// The prefixes by index. The two whole names come before the prefix that they start with.
const PREFIXES: &[(u8, &[u8])] = &[
    (INDEX_USER, b"user."),
    (INDEX_POSIX_ACL_ACCESS, b"system.posix_acl_access"),
    (INDEX_POSIX_ACL_DEFAULT, b"system.posix_acl_default"),
    (INDEX_TRUSTED, b"trusted."),
    (INDEX_SECURITY, b"security."),
    (INDEX_SYSTEM, b"system."),
];

/// The header of an attribute block as it is on the disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawXattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_blocks: U32,
    pub h_hash: U32,
    pub h_checksum: U32,
    pub h_reserved: [U32; 3],
}

/// An attribute's entry as it is on the disk; the name follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawXattrEntry {
    pub e_name_len: u8,
    pub e_name_index: u8,
    pub e_value_offs: U16,
    pub e_value_inum: U32,
    pub e_value_size: U32,
    pub e_hash: U32,
}

/// An attribute, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Where its entry starts, in the block or in the inode.
    pub offset: usize,
    /// Which prefix it has.
    pub name_index: u8,
    /// The name without the prefix.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Where the value starts, in the block or in the inode.
    pub value_offset: usize,
    /// `e_hash`, as it is on the disk.
    pub hash: u32,
    /// The value with its padding, which the hash covers.
    padded: &'a [u8],
}

impl Attribute<'_> {
    /// The name with its prefix, as `getxattr` wants it; `None` where the prefix is unknown.
    pub fn full_name(&self) -> Option<Vec<u8>> {
        full_name(self.name_index, self.name)
    }

    /// Whether `e_hash` is right, with the characters of the name as unsigned or as signed: Linux
    /// did both over time.
    pub fn has_valid_hash(&self) -> bool {
        self.hash == entry_hash(self.name, self.padded)
            || self.hash == entry_hash_signed(self.name, self.padded)
    }
}

/// What is wrong with attributes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum XattrError {
    /// The block does not start as one.
    #[error("magic number {XATTR_MAGIC:#x} expected, {0:#x} found")]
    BadMagic(u32),
    /// An attribute block always has one block.
    #[error("h_blocks is {0}, not 1")]
    BadBlocks(u32),
    /// An entry or its name leads past the end, or there is no end.
    #[error("entry at offset {0} leads past the end")]
    EntryTooLong(usize),
    /// A value lies outside.
    #[error(
        "value of the entry at offset {offset}: {size} bytes from {value_offset} on are outside"
    )]
    BadValue {
        /// The entry's offset.
        offset: usize,
        /// The value's offset.
        value_offset: usize,
        /// The value's size.
        size: u32,
    },
    /// The value is said to be in an inode (`ea_inode`), which we cannot read.
    #[error("value of the entry at offset {0} is in another inode")]
    ValueElsewhere(usize),
}

/// The attributes of one block or inode, in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    /// The bytes; offsets of entries count from their start.
    bytes: &'a [u8],
    /// Value offsets count from here.
    value_base: usize,
    offset: usize,
}

/// The attributes of an attribute block.
///
/// # Errors
///
/// Where it is none: [`XattrError::BadMagic`], [`XattrError::BadBlocks`].
pub fn block_attributes(block: &[u8]) -> Result<Attributes<'_>, XattrError> {
    let header = header(block)?;
    match header.h_blocks.get() {
        1 => Ok(Attributes {
            bytes: block,
            value_base: 0,
            offset: HEADER_SIZE,
        }),
        other => Err(XattrError::BadBlocks(other)),
    }
}

/// The header of an attribute block.
///
/// # Errors
///
/// [`XattrError::BadMagic`]
pub fn header(block: &[u8]) -> Result<&RawXattrHeader, XattrError> {
    let Ok((header, _)) = RawXattrHeader::ref_from_prefix(block) else {
        return Err(XattrError::EntryTooLong(0));
    };
    match header.h_magic.get() {
        XATTR_MAGIC => Ok(header),
        other => Err(XattrError::BadMagic(other)),
    }
}

/// Where an inode's own attributes start: at their magic number, behind the extra fields. `None`
/// where there are none. `inode` is all of it, `extra_isize` as [`Inode`](super::Inode) has it.
pub fn inline_start(inode: &[u8], extra_isize: u16) -> Option<usize> {
    let start = BASE_SIZE + usize::from(extra_isize);
    let has_room = start + 4 < inode.len();
    let magic = inode.get(start..start + 4)?;
    (has_room && magic == XATTR_MAGIC.to_le_bytes()).then_some(start)
}

/// The attributes inside an inode; `None` where it has none.
pub fn inode_attributes(inode: &[u8], extra_isize: u16) -> Option<Attributes<'_>> {
    let start = inline_start(inode, extra_isize)?;
    Some(Attributes {
        bytes: inode,
        value_base: start + 4,
        offset: start + 4,
    })
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, XattrError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        if offset >= self.bytes.len() {
            return None;
        }
        let result = self.attribute_at(offset);
        self.offset = match &result {
            Ok(Some(attribute)) => offset + entry_len(attribute.name.len()),
            _ => self.bytes.len(),
        };
        result.transpose()
    }
}

impl<'a> Attributes<'a> {
    /// Where the four zero bytes after the last entry start; `None` where an entry is damaged or
    /// the zeros are missing.
    pub fn end(mut self) -> Option<usize> {
        loop {
            let offset = self.offset;
            self.offset = match self.attribute_at(offset) {
                Ok(Some(attribute)) => offset + entry_len(attribute.name.len()),
                Ok(None) => return Some(offset),
                Err(_) => return None,
            };
        }
    }

    /// The attribute at an offset; `None` at the end mark.
    fn attribute_at(&self, offset: usize) -> Result<Option<Attribute<'a>>, XattrError> {
        let rest = self.bytes.get(offset..).unwrap_or(&[]);
        match rest.get(..4) {
            None => return Err(XattrError::EntryTooLong(offset)),
            Some([0, 0, 0, 0]) => return Ok(None),
            Some(_) => {}
        }
        let Ok((raw, behind)) = RawXattrEntry::ref_from_prefix(rest) else {
            return Err(XattrError::EntryTooLong(offset));
        };
        let name_len = usize::from(raw.e_name_len);
        let Some(name) = behind.get(..name_len) else {
            return Err(XattrError::EntryTooLong(offset));
        };
        if raw.e_value_inum.get() != 0 {
            return Err(XattrError::ValueElsewhere(offset));
        }
        let size = raw.e_value_size.get();
        let value_offset = self.value_base + usize::from(raw.e_value_offs.get());
        let end = value_offset.checked_add(size as usize);
        let value = match (size, end) {
            (0, _) => &[][..],
            (_, Some(end)) if end <= self.bytes.len() && value_offset > offset => {
                &self.bytes[value_offset..end]
            }
            _ => {
                return Err(XattrError::BadValue {
                    offset,
                    value_offset,
                    size,
                });
            }
        };
        let padded_end = value_offset + value_len(value.len());
        let padded = self.bytes.get(value_offset..padded_end).unwrap_or(value);
        Ok(Some(Attribute {
            offset,
            name_index: raw.e_name_index,
            name,
            value,
            value_offset,
            hash: raw.e_hash.get(),
            padded: if value.is_empty() { value } else { padded },
        }))
    }
}

/// The space of an entry with a name of this length.
pub const fn entry_len(name_len: usize) -> usize {
    (ENTRY_SIZE + name_len).next_multiple_of(4)
}

/// The space of a value.
pub const fn value_len(size: usize) -> usize {
    size.next_multiple_of(4)
}

/// The order of entries in a block.
pub fn compare(index: u8, name: &[u8], other_index: u8, other_name: &[u8]) -> Ordering {
    (index, name.len(), name).cmp(&(other_index, other_name.len(), other_name))
}

/// Splits `user.x` into index and rest; `None` where no index stands for the prefix, or where
/// nothing follows it.
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(index, prefix)| {
        let rest = full.strip_prefix(*prefix)?;
        let is_whole_name = matches!(*index, INDEX_POSIX_ACL_ACCESS | INDEX_POSIX_ACL_DEFAULT);
        (is_whole_name == rest.is_empty()).then_some((*index, rest))
    })
}

/// The prefix and the name together; `None` where the index is unknown.
pub fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    let (_, prefix) = PREFIXES.iter().find(|(known, _)| *known == index)?;
    Some([prefix, name].concat())
}

/// `e_hash` of an attribute: five bits per character of the name, sixteen per word of the value.
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash_of(name.iter().map(|byte| u32::from(*byte)), value)
}

/// The same with the name's characters as signed: what Linux on x86 wrote before 6.2.
pub fn entry_hash_signed(name: &[u8], value: &[u8]) -> u32 {
    hash_of(name.iter().map(|byte| i32::from(*byte as i8) as u32), value)
}

fn hash_of(name: impl Iterator<Item = u32>, value: &[u8]) -> u32 {
    let hash = name.fold(0_u32, |hash, character| hash.rotate_left(5) ^ character);
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// `h_hash` of a block: sixteen bits per entry's hash; 0 (not to be shared) where an entry has
/// none.
pub fn block_hash(entry_hashes: impl IntoIterator<Item = u32>) -> u32 {
    let mut hash = 0_u32;
    for entry in entry_hashes {
        if entry == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ entry;
    }
    hash
}

/// An attribute block with these attributes (index, name without prefix, value) and this reference
/// count; `None` where they do not fit. The attributes may come in any order.
pub fn build_block(
    block_size: usize,
    attributes: &[(u8, &[u8], &[u8])],
    refcount: u32,
) -> Option<Vec<u8>> {
    let mut sorted: Vec<_> = attributes.iter().collect();
    sorted.sort_by(|a, b| compare(a.0, a.1, b.0, b.1));
    let needed: usize = sorted
        .iter()
        .map(|(_, name, value)| entry_len(name.len()) + value_len(value.len()))
        .sum();
    if HEADER_SIZE + needed + 4 > block_size {
        return None;
    }
    let mut block = vec![0; block_size];
    let (mut offset, mut value_offset) = (HEADER_SIZE, block_size);
    for (index, name, value) in &sorted {
        value_offset -= value_len(value.len());
        let raw = RawXattrEntry {
            e_name_len: u8::try_from(name.len()).ok()?,
            e_name_index: *index,
            e_value_offs: if value.is_empty() {
                0
            } else {
                value_offset as u16
            }
            .into(),
            e_value_inum: U32::new(0),
            e_value_size: (value.len() as u32).into(),
            e_hash: entry_hash(name, value).into(),
        };
        block[offset..offset + ENTRY_SIZE].copy_from_slice(raw.as_bytes());
        block[offset + ENTRY_SIZE..][..name.len()].copy_from_slice(name);
        block[value_offset..][..value.len()].copy_from_slice(value);
        offset += entry_len(name.len());
    }
    let header = RawXattrHeader {
        h_magic: XATTR_MAGIC.into(),
        h_refcount: refcount.into(),
        h_blocks: 1.into(),
        h_hash: block_hash(
            sorted
                .iter()
                .map(|(_, name, value)| entry_hash(name, value)),
        )
        .into(),
        h_checksum: U32::new(0),
        h_reserved: [U32::new(0); 3],
    };
    block[..HEADER_SIZE].copy_from_slice(header.as_bytes());
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!((HEADER_SIZE, ENTRY_SIZE), (32, 16));
        assert_eq!((OFFSET_REFCOUNT, OFFSET_HASH), (4, 12));
    }

    #[test]
    fn a_built_block_reads_back_sorted() {
        let attributes: [(u8, &[u8], &[u8]); 4] = [
            (INDEX_SECURITY, b"selinux", b"label"),
            (INDEX_USER, b"zz", b"long value of 23 bytes."),
            (INDEX_USER, b"abc", b""),
            (INDEX_USER, b"aa", b"1234"),
        ];
        let block = build_block(1024, &attributes, 3).unwrap();
        let found: Vec<_> = block_attributes(&block)
            .unwrap()
            .map(|attribute| attribute.unwrap())
            .collect();
        let names: Vec<_> = found
            .iter()
            .map(|a| String::from_utf8(a.full_name().unwrap()).unwrap())
            .collect();
        assert_eq!(
            names,
            ["user.aa", "user.zz", "user.abc", "security.selinux"]
        );
        assert_eq!(found[1].value, b"long value of 23 bytes.");
        assert!(found.iter().all(Attribute::has_valid_hash));
        assert_eq!(header(&block).unwrap().h_refcount.get(), 3);
        let used: usize = names.len() * ENTRY_SIZE + 4 + 4 + 4 + 8;
        assert_eq!(
            block_attributes(&block).unwrap().end(),
            Some(HEADER_SIZE + used)
        );
        assert_eq!(build_block(128, &attributes, 1), None);
    }

    #[test]
    fn damage_is_found() {
        let good = build_block(1024, &[(INDEX_USER, b"a", b"value")], 1).unwrap();
        let with = |offset: usize, byte: u8| {
            let mut block = good.clone();
            block[offset] = byte;
            block_attributes(&block)
                .and_then(|mut attributes| attributes.next().unwrap())
                .err()
        };
        assert!(matches!(with(0, 1), Some(XattrError::BadMagic(_))));
        assert_eq!(with(8, 2), Some(XattrError::BadBlocks(2)));
        assert!(matches!(with(34, 255), Some(XattrError::BadValue { .. })));
        assert!(matches!(with(43, 255), Some(XattrError::BadValue { .. })));
        assert_eq!(with(36, 1), Some(XattrError::ValueElsewhere(32)));
        let endless = vec![0xff; 64];
        assert!(matches!(
            block_attributes(&endless),
            Err(XattrError::BadMagic(_))
        ));
        let cut = &good[..48];
        let mut attributes = block_attributes(cut).unwrap();
        assert_eq!(attributes.next(), Some(Err(XattrError::EntryTooLong(32))));
        assert_eq!(attributes.next(), None);
    }

    #[test]
    fn names_split_and_join() {
        assert_eq!(split_name(b"user.x"), Some((INDEX_USER, &b"x"[..])));
        assert_eq!(
            split_name(b"system.posix_acl_access"),
            Some((INDEX_POSIX_ACL_ACCESS, &b""[..]))
        );
        assert_eq!(
            split_name(b"system.other"),
            Some((INDEX_SYSTEM, &b"other"[..]))
        );
        assert_eq!(split_name(b"user."), None);
        assert_eq!(split_name(b"other.x"), None);
        assert_eq!(
            full_name(INDEX_POSIX_ACL_DEFAULT, b"").unwrap(),
            b"system.posix_acl_default"
        );
        assert_eq!(full_name(99, b"x"), None);
    }

    #[test]
    fn signed_and_unsigned_hashes_differ_beyond_ascii() {
        assert_eq!(entry_hash(b"abc", b"v"), entry_hash_signed(b"abc", b"v"));
        assert_ne!(
            entry_hash(b"\xc3\xa4", b"v"),
            entry_hash_signed(b"\xc3\xa4", b"v")
        );
    }
}
