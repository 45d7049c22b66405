//! Changing a directory block: where a name can go, and what its entry's bytes are.
//!
//! A name is removed by clearing its entry's inode, four bytes of its own, and never by letting the
//! entry before swallow it: the length that would then be written relies on every change to the
//! lengths behind it, and one of those might be missing on the disk. Unused entries are joined when
//! a new name needs their space; the patch of that name then covers the heads of all entries that
//! it swallows, so that it comes after whatever is pending on them.
//!
//! # Units
//!
//! Where the device writes less than a block wholly or not at all, an entry that we make lies in
//! one unit (a sector), as in FFS: the space at a unit's end that is too short for it stays with
//! the entry before. Unused entries are joined within one unit only. Blocks that we make have an
//! entry at the start of each unit, used or not, so that no later change concerns two of them.
//! Others (of `mke2fs`, the kernel, a mount whose unit was the block) get theirs when a name first
//! needs a place behind a border: see `Gap::is_apart`.

use std::marker::PhantomData;

use backstitch_layout::{BlockNumber, InodeNumber};
use smallvec::SmallVec;

use crate::directory::{
    DirectoryError, ENTRY_BYTES_MIN, EntryLayout, HEADER_SIZE, OFFSET_INODE, OFFSET_REC_LEN,
    cut_at_units, encode_entry, entries, required_len,
};

/// Where a new entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where the new entry starts.
    pub offset: usize,
    /// Up to where it reaches.
    pub end: usize,
    /// The used entry that gives up its tail, if it starts in one.
    pub shortened: Option<usize>,
    /// The end of the head of the last entry that it swallows.
    pub swallowed_to: usize,
}

/// Where a new name can go.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The directory's block.
    pub logical: u64,
    /// The same, on the disk.
    pub block: BlockNumber,
    /// Where in the block.
    pub gap: Gap,
}

impl Gap {
    fn len(&self) -> usize {
        self.end - self.offset
    }

    /// How long an entry in one unit can be that starts where the gap does.
    fn room(&self, unit: usize) -> usize {
        self.end.min((self.offset / unit + 1) * unit) - self.offset
    }

    /// Whether the entry that gives up its tail has its head, or a part of it, in another unit. The
    /// tail must become an unused entry first, step by step: its head, then the shorter length of
    /// the entry before, then the name.
    pub fn is_apart(&self, unit: usize) -> bool {
        self.shortened
            .is_some_and(|at| at / unit != self.offset / unit)
    }

    /// The same space once its head is written as that of an unused entry.
    pub fn as_unused(self) -> Gap {
        Gap {
            shortened: None,
            ..self
        }
    }

    /// Whether an unused entry behind the gap can be joined to it: all that changes then lies in
    /// one unit.
    fn can_join(&self, next: usize, unit: usize) -> bool {
        let here = self.offset / unit;
        next / unit == here && (next + HEADER_SIZE - 1) / unit == here && !self.is_apart(unit)
    }

    /// The places for an entry in a gap: where it starts, and the borders of units in it.
    fn places(self, unit: usize) -> impl Iterator<Item = Gap> {
        // The entry before a border keeps the space up to it: the last one that would have been
        // swallowed, the used one, or the unused one that starts the gap.
        let (before, least) = match (self.swallowed_to, self.shortened) {
            (0, Some(at)) => (at, self.offset),
            (0, None) => (self.offset, self.offset + ENTRY_BYTES_MIN),
            (to, _) => (to - HEADER_SIZE, to - HEADER_SIZE + ENTRY_BYTES_MIN),
        };
        let first = least.next_multiple_of(unit).max(self.offset + 1);
        let borders = (first.next_multiple_of(unit)..self.end).step_by(unit);
        std::iter::once(self).chain(borders.map(move |offset| Gap {
            offset,
            shortened: Some(before),
            swallowed_to: 0,
            ..self
        }))
    }
}

/// The gaps of a block: the tail of a used entry and the unused entries behind it.
fn gaps<L: EntryLayout>(
    bytes: &[u8],
    unit: usize,
) -> impl Iterator<Item = Result<Gap, DirectoryError>> + '_ {
    let mut found = entries::<L>(bytes, u32::MAX);
    std::iter::from_fn(move || {
        loop {
            found.pass(|inode, len, name| {
                inode != InodeNumber::NONE && len == required_len::<L>(name.len())
            });
            let entry = match found.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let used = entry.used_len::<L>();
            let mut gap = Gap {
                offset: entry.offset + used,
                end: entry.offset + entry.rec_len,
                shortened: (used > 0).then_some(entry.offset),
                swallowed_to: 0,
            };
            if gap.len() == 0 {
                continue;
            }
            let mut behind = found.clone();
            while let Some(Ok(next)) = behind.next()
                && next.inode == InodeNumber::NONE
                && gap.can_join(next.offset, unit)
            {
                gap.end = next.offset + next.rec_len;
                gap.swallowed_to = next.offset + HEADER_SIZE;
                found = behind.clone();
            }
            return Some(Ok(gap));
        }
    })
}

/// The first place for a name of this length, if possible one that swallows nothing and is not
/// apart.
///
/// # Errors
/// Where there is a wrong entry before it.
pub fn find_gap<L: EntryLayout>(
    bytes: &[u8],
    name_len: usize,
    unit: usize,
) -> Result<Option<Gap>, DirectoryError> {
    let needed = required_len::<L>(name_len);
    let mut second_best = None;
    for gap in gaps::<L>(bytes, unit) {
        for place in gap?.places(unit).filter(|place| place.room(unit) >= needed) {
            if place.swallowed_to == 0 && !place.is_apart(unit) {
                return Ok(Some(place));
            }
            second_best.get_or_insert(place);
        }
    }
    Ok(second_best)
}

/// The longest entry that a block has a place for.
pub fn largest_gap<L: EntryLayout>(bytes: &[u8], unit: usize) -> usize {
    gaps::<L>(bytes, unit)
        .map_while(Result::ok)
        .flat_map(|gap| gap.places(unit))
        .map(|place| place.room(unit))
        .max()
        .unwrap_or(0)
}

/// Cuts what the last entry of a new block holds beyond its unit into an unused entry for each
/// unit.
pub fn cut_into_units<L: EntryLayout>(block: &mut [u8], unit: usize) {
    let last = entries::<L>(block, u32::MAX).map_while(Result::ok).last();
    if let Some(offset) = last.map(|entry| entry.offset) {
        cut_at_units::<L>(block, offset, unit);
    }
}

/// The bytes of an entry with a name of usual length.
type EntryBytes = SmallVec<[u8; 64]>;

/// The bytes that a new entry changes, and where they start.
pub fn entry_bytes<L: EntryLayout>(
    block: &[u8],
    gap: &Gap,
    inode: InodeNumber,
    kind: u8,
    name: &[u8],
) -> (usize, EntryBytes) {
    let from = gap.shortened.map_or(gap.offset, |at| at + OFFSET_REC_LEN);
    let entry = encode_entry::<L>(inode, kind, name, gap.len());
    let to = (gap.offset + entry.len()).max(gap.swallowed_to);
    let mut bytes = EntryBytes::from_slice(&block[from..to]);
    if let Some(at) = gap.shortened {
        bytes[..2].copy_from_slice(&L::encode_rec_len(gap.offset - at));
    }
    bytes[gap.offset - from..gap.offset - from + entry.len()].copy_from_slice(&entry);
    (from, bytes)
}

/// Several changes to a block that are to be one patch. It covers everything that was touched, also
/// where the bytes happen to stay the same: what is pending there must come before it.
pub struct BlockEdit<L> {
    bytes: Vec<u8>,
    unit: usize,
    from: usize,
    to: usize,
    /// Some of it must be done in steps.
    is_apart: bool,
    layout: PhantomData<L>,
}

impl<L: EntryLayout> BlockEdit<L> {
    /// An edit of a block of which `unit` bytes are written wholly or not at all.
    pub fn new(block: &[u8], unit: usize) -> BlockEdit<L> {
        BlockEdit {
            bytes: block.to_vec(),
            unit,
            from: block.len(),
            to: 0,
            is_apart: false,
            layout: PhantomData,
        }
    }

    /// Replaces bytes.
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.from = self.from.min(offset);
        self.to = self.to.max(offset + bytes.len());
    }

    /// Clears the entry at an offset.
    pub fn clear_entry(&mut self, offset: usize) {
        self.put(offset + OFFSET_INODE, &[0; 4]);
    }

    /// Adds an entry. Returns where it is; `None` where there is no gap.
    pub fn add_entry(&mut self, inode: InodeNumber, kind: u8, name: &[u8]) -> Option<usize> {
        let gap = find_gap::<L>(&self.bytes, name.len(), self.unit).ok()??;
        self.is_apart |= gap.is_apart(self.unit);
        let (from, new) = entry_bytes::<L>(&self.bytes, &gap, inode, kind, name);
        self.put(from, &new);
        Some(gap.offset)
    }

    /// Whether all of it lies in one unit, so that one patch will do.
    pub fn is_atomic(&self) -> bool {
        !self.is_apart && self.from < self.to && self.from / self.unit == (self.to - 1) / self.unit
    }

    /// Where the patch starts, and its bytes.
    pub fn patch(&self) -> (usize, &[u8]) {
        (self.from, &self.bytes[self.from..self.to])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::Little;
    use crate::directory::{empty_block, find, new_directory_block, unused_head};

    type Edit = BlockEdit<Little>;

    #[test]
    fn unused_entries_are_joined_for_a_long_name() {
        let mut edit = Edit::new(&empty_block::<Little>(156), 156);
        let mut places = Vec::new();
        for (i, name) in [b"aaa", b"bbb", b"ccc", b"ddd"].iter().enumerate() {
            places.push(
                edit.add_entry(InodeNumber(12 + i as u32), 1, *name)
                    .unwrap(),
            );
        }
        edit.add_entry(InodeNumber(99), 1, &[b'z'; 100]).unwrap();
        edit.clear_entry(places[1]);
        edit.clear_entry(places[2]);
        edit.add_entry(InodeNumber(50), 1, &[b'n'; 16]).unwrap();
        let block = &edit.bytes;
        assert_eq!(
            find::<Little>(block, &[b'n'; 16]).unwrap().inode,
            InodeNumber(50)
        );
        assert_eq!(
            find::<Little>(block, b"ddd").unwrap().inode,
            InodeNumber(15)
        );
        assert!(find::<Little>(block, b"bbb").is_none() && find::<Little>(block, b"ccc").is_none());
    }

    #[test]
    fn a_patch_covers_the_heads_that_it_swallows() {
        let mut edit = Edit::new(&empty_block::<Little>(156), 156);
        edit.add_entry(InodeNumber(12), 1, b"aaa").unwrap();
        let second = edit.add_entry(InodeNumber(13), 1, b"bbb").unwrap();
        let third = edit.add_entry(InodeNumber(14), 1, b"ccc").unwrap();
        edit.add_entry(InodeNumber(15), 1, &[b'z'; 100]).unwrap();
        edit.clear_entry(second);
        edit.clear_entry(third);
        let block = &edit.bytes;
        let gap = find_gap::<Little>(block, 5, 156).unwrap().unwrap();
        let (from, bytes) = entry_bytes::<Little>(block, &gap, InodeNumber(16), 1, b"eeeee");
        assert_eq!((from, from + bytes.len()), (second, third + HEADER_SIZE));
    }

    /// Every place for every length lies in one unit, joins nothing of another one, and says where
    /// what is left of it goes.
    #[test]
    fn places_lie_in_one_unit() {
        const UNIT: usize = 512;
        let mut block = new_directory_block::<Little>(2048, InodeNumber(12), InodeNumber(2), 2);
        cut_into_units::<Little>(&mut block, UNIT);
        let found: Vec<_> = entries::<Little>(&block, u32::MAX)
            .map(|e| e.unwrap())
            .collect();
        let starts: Vec<usize> = found.iter().map(|e| e.offset).collect();
        assert_eq!(starts, [0, 12, 512, 1024, 1536]);
        let mut edit = Edit::new(&block, UNIT);
        for len in (1..=255).cycle().step_by(37).take(30) {
            let before = edit.bytes.clone();
            let Some(gap) = find_gap::<Little>(&before, len, UNIT).unwrap() else {
                assert!(largest_gap::<Little>(&before, UNIT) < required_len::<Little>(len));
                continue;
            };
            assert!(
                largest_gap::<Little>(&before, UNIT) >= required_len::<Little>(len)
                    && !gap.is_apart(UNIT)
            );
            edit.from = before.len();
            edit.to = 0;
            let at = edit
                .add_entry(InodeNumber(20), 1, &vec![b'a' + len as u8 % 26; len])
                .unwrap();
            assert!(edit.is_atomic() && at % UNIT + required_len::<Little>(len) <= UNIT);
        }
        assert!(entries::<Little>(&edit.bytes, u32::MAX).all(|e| e.is_ok()));
    }

    /// Under a layout of whose entries none crosses a unit, whatever is added and removed, and in
    /// whatever order: every state of the block is one that the layout takes.
    #[test]
    fn no_entry_crosses_the_unit_of_its_layout() {
        const UNIT: usize = 512;
        type Chunked = Little<UNIT>;
        let mut block = new_directory_block::<Chunked>(4096, InodeNumber(12), InodeNumber(2), 2);
        cut_into_units::<Chunked>(&mut block, UNIT);
        let mut random = fastrand::Rng::with_seed(7);
        let mut edit = BlockEdit::<Chunked>::new(&block, UNIT);
        let mut there = Vec::new();
        let mut refused = 0;
        for inode in (100..2100).map(InodeNumber) {
            if random.u8(..3) == 0 && !there.is_empty() {
                let (at, _) = there.swap_remove(random.usize(..there.len()));
                edit.clear_entry(at);
            } else {
                let name = vec![b'n'; random.usize(1..=255)];
                match edit.add_entry(inode, 1, &name) {
                    Some(at) => there.push((at, inode)),
                    None => refused += 1,
                }
            }
            let all: Vec<_> = entries::<Chunked>(&edit.bytes, u32::MAX)
                .map(|entry| entry.unwrap())
                .filter(|entry| entry.inode >= InodeNumber(100))
                .map(|entry| (entry.offset, entry.inode))
                .collect();
            let mut expected = there.clone();
            expected.sort_unstable();
            assert_eq!(all, expected);
        }
        assert!(
            refused > 0 && !there.is_empty(),
            "the block was full at times"
        );
    }

    /// In a block that was made without units, the name goes behind the border, and the entry
    /// before keeps what is in front of it.
    #[test]
    fn a_place_behind_a_border_is_apart() {
        const UNIT: usize = 512;
        let mut edit = Edit::new(&empty_block::<Little>(1024), 1024);
        let first = edit.add_entry(InodeNumber(12), 1, &[b'a'; 240]).unwrap();
        let second = edit.add_entry(InodeNumber(13), 1, &[b'b'; 240]).unwrap();
        assert_eq!((first, second), (0, 248));
        let gap = find_gap::<Little>(&edit.bytes, 100, UNIT).unwrap().unwrap();
        assert_eq!((gap.offset, gap.shortened), (512, Some(248)));
        assert!(gap.is_apart(UNIT) && !gap.as_unused().is_apart(UNIT));
        // An unused entry gives up its tail in the same way, and so does the last of several that
        // could be joined.
        edit.clear_entry(second);
        let gap = find_gap::<Little>(&edit.bytes, 255, UNIT).unwrap().unwrap();
        assert_eq!((gap.offset, gap.shortened), (248, None));
        edit.clear_entry(first);
        let joined = gaps::<Little>(&edit.bytes, UNIT).next().unwrap().unwrap();
        assert_eq!((joined.end, joined.swallowed_to), (1024, 256));
        let behind = joined.places(UNIT).nth(1).unwrap();
        assert_eq!(
            (behind.offset, behind.shortened, behind.end),
            (512, Some(248), 1024)
        );
        // Heads in another unit are never swallowed.
        let mut head = edit.bytes.clone();
        head[252..254].copy_from_slice(&<Little>::encode_rec_len(264));
        head[512..520].copy_from_slice(&unused_head::<Little>(512));
        let apart = gaps::<Little>(&head, UNIT)
            .map(|g| g.unwrap().end)
            .collect::<Vec<_>>();
        assert_eq!(apart, [512, 1024]);
    }
}
