//! Changing a directory block: where a name can go, and what its entry's bytes are.
//!
//! A name is removed by clearing its entry's inode, four bytes of its own, and never by letting the entry before swallow it: the
//! length that would then be written counts on every change to the lengths behind it, and on the disk one of those might be
//! missing. Unused entries are joined when a new name needs their space; the patch of that name then covers the heads of all
//! entries that it swallows, so that it comes after whatever is pending on them.

use crate::format::DirectoryError;
use crate::format::directory::{
    HEADER_SIZE, OFFSET_INODE, OFFSET_REC_LEN, encode_entry, encode_rec_len, entries, required_len,
};

/// Where a new entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Where the new entry starts.
    pub(crate) offset: usize,
    /// Up to where it reaches.
    pub(crate) end: usize,
    /// The used entry that gives up its tail, if it starts in one.
    pub(crate) shortened: Option<usize>,
    /// The end of the head of the last entry that it swallows.
    pub(crate) swallowed_to: usize,
}

impl Gap {
    fn len(&self) -> usize {
        self.end - self.offset
    }
}

/// The gaps of a block: the tail of a used entry and the unused entries behind it.
fn gaps(bytes: &[u8]) -> impl Iterator<Item = Result<Gap, DirectoryError>> + '_ {
    let mut found = entries(bytes, u32::MAX).peekable();
    std::iter::from_fn(move || {
        loop {
            let entry = match found.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let used = entry.used_len();
            let mut gap = Gap {
                offset: entry.offset + used,
                end: entry.offset + entry.rec_len,
                shortened: (used > 0).then_some(entry.offset),
                swallowed_to: 0,
            };
            if gap.len() == 0 {
                continue;
            }
            while let Some(Ok(next)) = found.peek()
                && next.inode == 0
            {
                gap.end = next.offset + next.rec_len;
                gap.swallowed_to = next.offset + HEADER_SIZE;
                found.next();
            }
            return Some(Ok(gap));
        }
    })
}

/// The first gap for a name of this length, if possible one that swallows nothing.
pub(crate) fn find_gap(bytes: &[u8], name_len: usize) -> Result<Option<Gap>, DirectoryError> {
    let needed = required_len(name_len);
    let mut swallowing = None;
    for gap in gaps(bytes) {
        let gap = gap?;
        if gap.len() < needed {
            continue;
        }
        if gap.swallowed_to == 0 {
            return Ok(Some(gap));
        }
        swallowing.get_or_insert(gap);
    }
    Ok(swallowing)
}

/// The largest gap of a block.
pub(crate) fn largest_gap(bytes: &[u8]) -> usize {
    gaps(bytes)
        .map_while(Result::ok)
        .map(|gap| gap.len())
        .max()
        .unwrap_or(0)
}

/// The bytes that a new entry changes, and where they start.
pub(crate) fn entry_bytes(
    block: &[u8],
    gap: &Gap,
    inode: u32,
    kind: u8,
    name: &[u8],
) -> (usize, Vec<u8>) {
    let from = gap.shortened.map_or(gap.offset, |at| at + OFFSET_REC_LEN);
    let entry = encode_entry(inode, kind, name, gap.len());
    let to = (gap.offset + entry.len()).max(gap.swallowed_to);
    let mut bytes = block[from..to].to_vec();
    if let Some(at) = gap.shortened {
        bytes[..2].copy_from_slice(&encode_rec_len(gap.offset - at).to_le_bytes());
    }
    bytes[gap.offset - from..gap.offset - from + entry.len()].copy_from_slice(&entry);
    (from, bytes)
}

/// Several changes to a block that are to be one patch. It covers everything that was touched, also where the bytes happen to stay
/// the same: what is pending there must come before it.
pub(crate) struct BlockEdit {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl BlockEdit {
    pub(crate) fn new(block: &[u8]) -> BlockEdit {
        BlockEdit {
            bytes: block.to_vec(),
            from: block.len(),
            to: 0,
        }
    }

    /// Replaces bytes.
    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.from = self.from.min(offset);
        self.to = self.to.max(offset + bytes.len());
    }

    /// Clears the entry at an offset.
    pub(crate) fn clear_entry(&mut self, offset: usize) {
        self.put(offset + OFFSET_INODE, &[0; 4]);
    }

    /// Adds an entry. Returns where it is; `None` where there is no gap.
    pub(crate) fn add_entry(&mut self, inode: u32, kind: u8, name: &[u8]) -> Option<usize> {
        let gap = find_gap(&self.bytes, name.len()).ok()??;
        let (from, new) = entry_bytes(&self.bytes, &gap, inode, kind, name);
        self.put(from, &new);
        Some(gap.offset)
    }

    /// Where the patch starts, and its bytes.
    pub(crate) fn patch(&self) -> (usize, &[u8]) {
        (self.from, &self.bytes[self.from..self.to])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::directory::{empty_block, find};

    #[test]
    fn unused_entries_are_joined_for_a_long_name() {
        let mut edit = BlockEdit::new(&empty_block(156));
        let mut places = Vec::new();
        for (i, name) in [b"aaa", b"bbb", b"ccc", b"ddd"].iter().enumerate() {
            places.push(edit.add_entry(12 + i as u32, 1, *name).unwrap());
        }
        edit.add_entry(99, 1, &[b'z'; 100]).unwrap();
        edit.clear_entry(places[1]);
        edit.clear_entry(places[2]);
        edit.add_entry(50, 1, &[b'n'; 16]).unwrap();
        let block = &edit.bytes;
        assert_eq!(find(block, &[b'n'; 16]).unwrap().inode, 50);
        assert_eq!(find(block, b"ddd").unwrap().inode, 15);
        assert!(find(block, b"bbb").is_none() && find(block, b"ccc").is_none());
    }

    #[test]
    fn a_patch_covers_the_heads_that_it_swallows() {
        let mut edit = BlockEdit::new(&empty_block(156));
        edit.add_entry(12, 1, b"aaa").unwrap();
        let second = edit.add_entry(13, 1, b"bbb").unwrap();
        let third = edit.add_entry(14, 1, b"ccc").unwrap();
        edit.add_entry(15, 1, &[b'z'; 100]).unwrap();
        edit.clear_entry(second);
        edit.clear_entry(third);
        let block = &edit.bytes;
        let gap = find_gap(block, 5).unwrap().unwrap();
        let (from, bytes) = entry_bytes(block, &gap, 16, 1, b"eeeee");
        assert_eq!((from, from + bytes.len()), (second, third + HEADER_SIZE));
    }
}
