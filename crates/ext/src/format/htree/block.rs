//! Index blocks: validated views of them, and what changes their bytes.
//!
//! Nothing here is believed before it was checked: a view exists only where its count and its limit
//! are possible, so that no number in it leads out of the block. Whether the *blocks* that entries
//! lead to exist is for the code that knows the directory.

use thiserror::Error;
use zerocopy::FromBytes;

use super::{
    BLOCK_MASK, ENTRY_SIZE, HASH_TEA, NODE_ENTRIES_OFFSET, ROOT_INFO_OFFSET, RawCountLimit,
    RawIndexEntry, RawRootInfo,
};
use crate::format::directory::{OFFSET_REC_LEN, encode_rec_len};

/// The size of the root's own fields.
const ROOT_INFO_SIZE: usize = size_of::<RawRootInfo>();
/// Where the entries of the root start.
pub const ROOT_ENTRIES_OFFSET: usize = ROOT_INFO_OFFSET + ROOT_INFO_SIZE;
/// The space of `.` in a root; `..` follows.
const DOT_SIZE: usize = 12;
/// The flags of a root that a reader must know.
const INCOMPATIBLE_ROOT_FLAGS: u8 = 0x1;

/// Why an index cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IndexFault {
    /// The first block does not look like a root.
    #[error("its first block is no index root")]
    NoRoot,
    /// A hash that we cannot compute (SipHash needs a key).
    #[error("hash version {0} is not one that we compute")]
    HashVersion(u8),
    /// Flags that a reader must know.
    #[error("unknown flags {0:#x}")]
    Flags(u8),
    /// Deeper than the file system may have it.
    #[error("{levels} levels of at most {most}")]
    Levels {
        /// Found.
        levels: u8,
        /// Possible.
        most: u8,
    },
    /// A block that should be an index block does not look like one.
    #[error("block {0} is no index block")]
    NoNode(u64),
    /// Impossible numbers of entries.
    #[error("{count} of {limit} entries in block {logical}, where {expected} fit")]
    Entries {
        /// The directory's block.
        logical: u64,
        /// Entries.
        count: usize,
        /// How many are said to fit.
        limit: usize,
        /// How many do.
        expected: usize,
    },
    /// An entry leads out of the directory, to its root or to a hole.
    #[error("an entry of block {logical} leads to block {block}, which no entry can lead to")]
    Block {
        /// The block that has the entry.
        logical: u64,
        /// Where it leads.
        block: u64,
    },
    /// Hashes are not in order.
    #[error("entries out of order in block {0}")]
    Order(u64),
    /// A block of the directory is reached on two ways, or on none.
    #[error("block {0} is not reached exactly once")]
    NotOnce(u64),
    /// A name's hash is not among those that lead to its block.
    #[error("block {0} has a name that the index does not lead to")]
    Misplaced(u64),
}

/// What a root says of the whole index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// `hash_version`, as it is on the disk.
    pub hash_version: u8,
    /// Levels below the root's own.
    pub levels: u8,
}

impl Root {
    /// The root in a directory's first block.
    ///
    /// # Errors
    /// Where it is none that we can use.
    pub fn parse(block: &[u8], most_levels: u8) -> Result<Root, IndexFault> {
        let rec_len = |at: usize| {
            let bytes = block.get(at + OFFSET_REC_LEN..at + OFFSET_REC_LEN + 2);
            bytes.map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])))
        };
        let info = block.get(ROOT_INFO_OFFSET..).unwrap_or(&[]);
        let Ok((info, _)) = RawRootInfo::ref_from_prefix(info) else {
            return Err(IndexFault::NoRoot);
        };
        if rec_len(0) != DOT_SIZE
            || rec_len(DOT_SIZE) != block.len() - DOT_SIZE
            || info.reserved_zero.get() != 0
            || usize::from(info.info_length) != ROOT_INFO_SIZE
        {
            return Err(IndexFault::NoRoot);
        }
        if info.hash_version > HASH_TEA {
            return Err(IndexFault::HashVersion(info.hash_version));
        }
        if info.unused_flags & INCOMPATIBLE_ROOT_FLAGS != 0 {
            return Err(IndexFault::Flags(info.unused_flags));
        }
        if info.indirect_levels > most_levels {
            return Err(IndexFault::Levels {
                levels: info.indirect_levels,
                most: most_levels,
            });
        }
        Ok(Root {
            hash_version: info.hash_version,
            levels: info.indirect_levels,
        })
    }
}

/// The entries of an index block, in place.
#[derive(Clone, Copy, Debug)]
pub struct IndexEntries<'a> {
    table: &'a [u8],
    count: usize,
    limit: usize,
}

impl<'a> IndexEntries<'a> {
    /// The entries of a root, or of another index block.
    ///
    /// Where the block is no index block, or its counts are impossible.
    pub fn parse(
        block: &'a [u8],
        logical: u64,
        tail_bytes: usize,
    ) -> Result<IndexEntries<'a>, IndexFault> {
        let start = if logical == 0 {
            ROOT_ENTRIES_OFFSET
        } else if is_unused(block) {
            NODE_ENTRIES_OFFSET
        } else {
            return Err(IndexFault::NoNode(logical));
        };
        let table = block.get(start..).unwrap_or(&[]);
        let Ok((raw, _)) = RawCountLimit::ref_from_prefix(table) else {
            return Err(IndexFault::NoNode(logical));
        };
        let (count, limit) = (usize::from(raw.count.get()), usize::from(raw.limit.get()));
        let expected = table.len().saturating_sub(tail_bytes) / ENTRY_SIZE;
        if limit != expected || count == 0 || count > limit {
            return Err(IndexFault::Entries {
                logical,
                count,
                limit,
                expected,
            });
        }
        Ok(IndexEntries {
            table,
            count,
            limit,
        })
    }

    /// How many there are; at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many fit.
    pub fn limit(&self) -> usize {
        self.limit
    }

    fn raw(&self, index: usize) -> Option<&'a RawIndexEntry> {
        let bytes = self.table.get(index * ENTRY_SIZE..)?;
        RawIndexEntry::ref_from_prefix(bytes)
            .ok()
            .map(|(raw, _)| raw)
    }

    /// The lowest hash of an entry. Its lowest bit says that the block before has names with that
    /// hash, too. The first entry stores none: it takes all hashes below the second one's.
    pub fn hash(&self, index: usize) -> u32 {
        if index == 0 {
            return 0;
        }
        self.raw(index).map_or(u32::MAX, |raw| raw.hash.get())
    }

    /// The directory's block that an entry leads to.
    pub fn block(&self, index: usize) -> u64 {
        self.raw(index)
            .map_or(0, |raw| u64::from(raw.block.get() & BLOCK_MASK))
    }

    /// The last entry whose hash is not above this one.
    pub fn find(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.hash(middle) > hash {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low - 1
    }

    /// All of them: hash and block.
    pub fn list(&self) -> Vec<(u32, u64)> {
        (0..self.count)
            .map(|i| (self.hash(i), self.block(i)))
            .collect()
    }
}

/// Whether a directory block is one unused entry without a name: an index block, or a block that
/// never held a name.
pub fn is_unused(block: &[u8]) -> bool {
    let length = block.get(OFFSET_REC_LEN..OFFSET_REC_LEN + 2);
    let fills = length.is_some_and(|l| {
        let length = usize::from(u16::from_le_bytes([l[0], l[1]]));
        // Blocks of 64 KiB do not fit into the field.
        length == block.len() || block.len() > usize::from(u16::MAX) && matches!(length, 0 | 65535)
    });
    fills && block[..4] == [0; 4] && block[6..8] == [0; 2]
}

/// An index block that is being changed.
pub struct IndexBlock {
    bytes: Vec<u8>,
    start: usize,
}

impl IndexBlock {
    /// A copy of one, as it is.
    pub fn of(block: &[u8], logical: u64) -> IndexBlock {
        IndexBlock {
            bytes: block.to_vec(),
            start: if logical == 0 {
                ROOT_ENTRIES_OFFSET
            } else {
                NODE_ENTRIES_OFFSET
            },
        }
    }

    /// A new one with these entries, of which the first one's hash is left out; they must fit.
    pub fn new(block_bytes: usize, entries: &[(u32, u64)]) -> IndexBlock {
        let mut bytes = vec![0; block_bytes];
        bytes[OFFSET_REC_LEN..OFFSET_REC_LEN + 2]
            .copy_from_slice(&encode_rec_len(block_bytes).to_le_bytes());
        let mut block = IndexBlock {
            bytes,
            start: NODE_ENTRIES_OFFSET,
        };
        block.set_entries(entries);
        block
    }

    /// A root in place of a directory's first block, whose `.` and `..` it keeps.
    pub fn new_root(first_block: &[u8], hash_version: u8, leaf: u64) -> IndexBlock {
        let mut bytes = vec![0; first_block.len()];
        bytes[..ROOT_INFO_OFFSET].copy_from_slice(&first_block[..ROOT_INFO_OFFSET]);
        let rest = encode_rec_len(first_block.len() - DOT_SIZE).to_le_bytes();
        bytes[DOT_SIZE + OFFSET_REC_LEN..DOT_SIZE + OFFSET_REC_LEN + 2].copy_from_slice(&rest);
        bytes[ROOT_INFO_OFFSET + 4] = hash_version;
        bytes[ROOT_INFO_OFFSET + 5] = ROOT_INFO_SIZE as u8;
        let mut block = IndexBlock {
            bytes,
            start: ROOT_ENTRIES_OFFSET,
        };
        block.set_entries(&[(0, leaf)]);
        block
    }

    /// Of a root: one level more.
    pub fn add_level(&mut self) {
        self.bytes[ROOT_INFO_OFFSET + 6] += 1;
    }

    fn limit(&self) -> usize {
        (self.bytes.len() - self.start) / ENTRY_SIZE
    }

    /// Replaces all entries. The first one's hash is left out. They must fit.
    pub fn set_entries(&mut self, entries: &[(u32, u64)]) {
        let limit = self.limit();
        assert!(entries.len() <= limit, "the entries fit");
        let numbers = RawCountLimit {
            limit: (limit as u16).into(),
            count: (entries.len() as u16).into(),
        };
        for (index, (hash, block)) in entries.iter().enumerate() {
            let at = self.start + index * ENTRY_SIZE;
            let entry = RawIndexEntry {
                hash: (*hash).into(),
                block: (*block as u32).into(),
            };
            self.bytes[at..at + ENTRY_SIZE].copy_from_slice(zerocopy::IntoBytes::as_bytes(&entry));
        }
        self.bytes[self.start..self.start + 4]
            .copy_from_slice(zerocopy::IntoBytes::as_bytes(&numbers));
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::directory::new_directory_block;
    use backstitch_layout::InodeNumber;

    #[test]
    fn what_is_written_is_read() {
        let first = new_directory_block(1024, InodeNumber(12), InodeNumber(2), 2);
        let mut root = IndexBlock::new_root(&first, 1, 1);
        assert_eq!(
            Root::parse(root.bytes(), 1).unwrap(),
            Root {
                hash_version: 1,
                levels: 0
            }
        );
        let list = [(0, 1), (10, 7), (11, 3), (40, 2)];
        root.set_entries(&list);
        root.add_level();
        let entries = IndexEntries::parse(root.bytes(), 0, 0).unwrap();
        assert_eq!((entries.limit(), entries.list()), (124, list.to_vec()));
        let places: Vec<usize> = [0, 9, 10, 11, 39, 40, u32::MAX]
            .map(|hash| entries.find(hash))
            .to_vec();
        assert_eq!(places, [0, 0, 1, 2, 2, 3, 3]);
        let node = IndexBlock::new(1024, &list);
        let entries = IndexEntries::parse(node.bytes(), 5, 0).unwrap();
        assert_eq!((entries.limit(), entries.list()), (127, list.to_vec()));
        assert_eq!(
            Root::parse(root.bytes(), 0),
            Err(IndexFault::Levels { levels: 1, most: 0 })
        );
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let mut bytes = IndexBlock::new(1024, &[(0, 1)]).bytes().to_vec();
        for (limit, count) in [(127, 0), (127, 128), (126, 1), (65535, 65535)] {
            bytes[8..10].copy_from_slice(&u16::to_le_bytes(limit));
            bytes[10..12].copy_from_slice(&u16::to_le_bytes(count));
            assert!(
                IndexEntries::parse(&bytes, 3, 0).is_err(),
                "{limit} {count}"
            );
        }
        assert!(IndexEntries::parse(&[], 0, 0).is_err());
        assert!(Root::parse(&[0; 30], 1).is_err());
    }
}
