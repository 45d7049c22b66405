//! What a record says: one operation, the blocks that it freed, and the bytes that it changed.
//!
//! It is the payload of a record of the write-ahead log (`wafs`), which adds a number and a
//! checksum. Bytes are what they are after the operation, so that bringing a record home twice does
//! no harm. A large operation has several records, one behind the other. Only a *group* of
//! operations counts as a whole; its last record says that the group ends. docs/FORMAT.md has the
//! tables.

use std::ops::Range;

use backstitch_ordering::Operation;
use rustc_hash::FxHashMap;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rules::{Rule, holds};

/// The flag of the last record of a group.
pub const ENDS_GROUP: u8 = 1;
/// The flag of a span: what of the block follows is zeros.
pub const ZEROS_FOLLOW: u16 = 1;
/// Changed bytes with fewer unchanged bytes than this between them become one span, since the
/// header of a span takes as many bytes.
const NEAR_BYTES: u32 = size_of::<RawSpan>() as u32;
/// Bytes of the longest record that is written, also where the log takes longer ones.
pub(crate) const LONG_BYTES: usize = 32 << 10;

/// What a record begins with. The name, the numbers of the freed blocks (8 bytes each) and the
/// spans follow, without gaps; zeros may follow these.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawOperation {
    /// Which operation: see [`kind_name`].
    pub kind: u8,
    /// [`ENDS_GROUP`].
    pub flags: u8,
    /// The length of the name.
    pub name_bytes: U16,
    /// The number of spans.
    pub spans: U32,
    /// The number of freed blocks.
    pub freed: U32,
    /// Zeros.
    pub unused: U32,
    /// The inode of the object, or of the directory that the name is in.
    pub object: U64,
}

/// What a span begins with; its bytes follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSpan {
    /// The block of the file system.
    pub block: U64,
    /// The first byte in it.
    pub offset_bytes: U16,
    /// [`ZEROS_FOLLOW`].
    pub flags: U16,
    /// The number of bytes that follow here.
    pub len_bytes: U32,
}

const KINDS: [&str; 15] = [
    "group",
    "create",
    "link",
    "remove",
    "rename",
    "set-attributes",
    "touch",
    "set-xattr",
    "write",
    "allocate",
    "resize",
    "background",
    "administration",
    "exchange",
    "create-unnamed",
];

/// The name of an operation's number.
pub fn kind_name(kind: u8) -> &'static str {
    KINDS.get(usize::from(kind)).unwrap_or(&"unknown")
}

/// What a record says of an operation beside its bytes: its number, object and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    kind: u8,
    object: u64,
    name: Vec<u8>,
}

impl About {
    pub(crate) fn of(operation: &Operation<'_>) -> About {
        let (kind, object, name): (u8, u64, &[u8]) = match operation {
            Operation::Create { at, .. } => (1, at.directory, at.name),
            Operation::CreateUnnamed { directory, .. } => (14, *directory, &[]),
            Operation::Link { at, .. } => (2, at.directory, at.name),
            Operation::Remove { at, .. } => (3, at.directory, at.name),
            Operation::Rename {
                from, is_exchange, ..
            } => match is_exchange {
                false => (4, from.directory, from.name),
                true => (13, from.directory, from.name),
            },
            Operation::SetAttributes { object, .. } => (5, *object, &[]),
            Operation::Touch { object } => (6, *object, &[]),
            Operation::SetXattr { object, name, .. } => (7, *object, name),
            Operation::Write { object, .. } => (8, *object, &[]),
            Operation::Allocate { object, .. } => (9, *object, &[]),
            Operation::Resize { object, .. } => (10, *object, &[]),
            Operation::Background => (11, 0, &[]),
            Operation::Administration => (12, 0, &[]),
        };
        let name = name.to_vec();
        About { kind, object, name }
    }

    /// The length of a record without spans and freed blocks.
    fn bytes(&self) -> usize {
        size_of::<RawOperation>() + self.name.len()
    }
}

/// What an operation has changed so far.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    blocks: FxHashMap<u64, Vec<Range<u32>>>,
    freed: Vec<u64>,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.freed.is_empty()
    }

    /// The number of changed blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Notes that bytes of a block were changed.
    pub(crate) fn note(&mut self, block: u64, bytes: Range<u32>) {
        let spans = self.blocks.entry(block).or_default();
        match spans.last_mut() {
            Some(last) if bytes.start <= last.end && bytes.end >= last.start => {
                last.start = last.start.min(bytes.start);
                last.end = last.end.max(bytes.end);
            }
            _ => spans.push(bytes),
        }
    }

    /// Notes that a block was freed: earlier changes of it by this operation do not matter.
    pub(crate) fn note_freed(&mut self, block: u64, is_listed: bool) {
        if holds(Rule::FreedLeaveTheirRecord) {
            self.blocks.remove(&block);
        }
        if is_listed && !self.freed.contains(&block) {
            self.freed.push(block);
        }
    }

    /// Turns the changes into records, none longer than `longest_bytes`, and forgets them. `bytes`
    /// returns a block as it is now.
    pub(crate) fn encode<'b>(
        &mut self,
        about: &About,
        (block_bytes, longest_bytes): (u32, usize),
        bytes: impl Fn(u64) -> Option<&'b [u8]>,
        into: &mut Vec<Vec<u8>>,
    ) {
        let mut blocks: Vec<(u64, Vec<Range<u32>>)> = self.blocks.drain().collect();
        blocks.sort_unstable_by_key(|(block, _)| *block);
        // Freed blocks come before all spans: a span counts only where no later record frees its
        // block.
        let room = longest_bytes.saturating_sub(about.bytes());
        let most_freed = (room / size_of::<u64>()).max(1);
        let mut freed = std::mem::take(&mut self.freed);
        while freed.len() > most_freed {
            let rest = freed.split_off(most_freed);
            into.push(Encoder::new(about, freed).finish());
            freed = rest;
        }
        let mut record = Encoder::new(about, freed);
        for (block, mut spans) in blocks {
            let Some(bytes) = bytes(block) else {
                continue;
            };
            join_near(&mut spans);
            for span in spans {
                let span_bytes = size_of::<RawSpan>() + span.len();
                let is_begun = record.head.spans > 0 || record.head.freed > 0;
                if is_begun && record.bytes.len() + span_bytes > longest_bytes {
                    into.push(record.finish());
                    record = Encoder::new(about, Vec::new());
                }
                record.push(block, &bytes[..block_bytes as usize], span);
            }
        }
        into.push(record.finish());
    }
}

/// Sorts spans, and joins those that are near each other.
fn join_near(spans: &mut Vec<Range<u32>>) {
    spans.sort_unstable_by_key(|span| span.start);
    spans.dedup_by(|next, before| {
        let is_near = next.start <= before.end + NEAR_BYTES;
        if is_near {
            before.end = before.end.max(next.end);
        }
        is_near
    });
}

/// The most spans of a record. Recovery refuses longer ones, which could make it hold as many
/// blocks in memory.
pub(crate) const MAX_SPANS: usize = LONG_BYTES / size_of::<RawSpan>();

/// A record that is being built.
struct Encoder {
    head: RawOperation,
    bytes: Vec<u8>,
}

impl Encoder {
    fn new(about: &About, freed: Vec<u64>) -> Encoder {
        let head = RawOperation {
            kind: about.kind,
            flags: 0,
            name_bytes: (about.name.len() as u16).into(),
            spans: 0.into(),
            freed: (freed.len() as u32).into(),
            unused: 0.into(),
            object: about.object.into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(&about.name);
        bytes.extend(freed.into_iter().flat_map(u64::to_le_bytes));
        Encoder { head, bytes }
    }

    fn push(&mut self, block: u64, contents: &[u8], span: Range<u32>) {
        let mut bytes = &contents[span.start as usize..span.end as usize];
        let mut flags = 0;
        if span.end as usize == contents.len() {
            // Trailing zeros are left out: new blocks are mostly zeros.
            let len = bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            (bytes, flags) = (&bytes[..len], ZEROS_FOLLOW);
        }
        let head = RawSpan {
            block: block.into(),
            offset_bytes: (span.start as u16).into(),
            flags: flags.into(),
            len_bytes: (bytes.len() as u32).into(),
        };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(bytes);
        self.head.spans += 1;
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes[..size_of::<RawOperation>()].copy_from_slice(self.head.as_bytes());
        self.bytes
    }
}

/// The record that ends a group where no operation's record does.
pub(crate) fn end_of_group() -> Vec<u8> {
    let mut record = Encoder::new(&About::default(), Vec::new()).finish();
    mark_end(&mut record);
    record
}

/// Makes a record the last one of its group.
pub(crate) fn mark_end(record: &mut [u8]) {
    record[core::mem::offset_of!(RawOperation, flags)] |= ENDS_GROUP;
}

/// Bytes of a block as a record has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// The block.
    pub block: u64,
    /// The first byte in it.
    pub offset_bytes: usize,
    /// Its bytes from there on.
    pub bytes: &'a [u8],
    /// Whether the rest of the block is zeros.
    pub zeros_follow: bool,
}

impl Span<'_> {
    /// Whether it gives all bytes of the block.
    pub fn is_whole(&self) -> bool {
        self.offset_bytes == 0 && self.zeros_follow
    }

    /// Changes the block; false where it does not fit into it.
    #[must_use]
    pub fn apply(&self, block: &mut [u8]) -> bool {
        let end = self.offset_bytes + self.bytes.len();
        let Some(place) = block.get_mut(self.offset_bytes..end) else {
            return false;
        };
        place.copy_from_slice(self.bytes);
        if self.zeros_follow {
            block[end..].fill(0);
        }
        true
    }
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Which operation: see [`kind_name`].
    pub kind: u8,
    /// The inode of the object, or of the directory that the name is in.
    pub object: u64,
    /// The name.
    pub name: &'a [u8],
    /// Whether it is the last one of its group.
    pub ends_group: bool,
    freed: &'a [U64],
    spans: Spans<'a>,
}

impl<'a> Record<'a> {
    /// Reads a record; `None` where it contradicts itself. Nothing is copied.
    pub fn parse(payload: &'a [u8]) -> Option<Record<'a>> {
        let (head, rest) = RawOperation::ref_from_prefix(payload).ok()?;
        let (name, rest) = rest.split_at_checked(head.name_bytes.get().into())?;
        let freed = head.freed.get() as usize;
        let (freed, rest) = <[U64]>::ref_from_prefix_with_elems(rest, freed).ok()?;
        let spans = Spans {
            left: head.spans.get(),
            rest,
        };
        let is_whole = spans.clone().count() == spans.left as usize;
        is_whole.then(|| Record {
            kind: head.kind,
            object: head.object.get(),
            name,
            ends_group: head.flags & ENDS_GROUP != 0,
            freed,
            spans,
        })
    }

    /// The blocks that were freed.
    pub fn freed(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.freed.iter().map(|block| block.get())
    }

    /// How many spans there are.
    pub fn spans_count(&self) -> usize {
        self.spans.left as usize
    }

    /// The bytes that were changed.
    pub fn spans(&self) -> Spans<'a> {
        self.spans.clone()
    }
}

/// The spans of a record, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans<'a> {
    left: u32,
    rest: &'a [u8],
}

impl<'a> Iterator for Spans<'a> {
    type Item = Span<'a>;

    /// Ends early where the bytes end within a span.
    fn next(&mut self) -> Option<Span<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (span, behind) = RawSpan::ref_from_prefix(self.rest).ok()?;
        let (bytes, behind) = behind.split_at_checked(span.len_bytes.get() as usize)?;
        self.rest = behind;
        Some(Span {
            block: span.block.get(),
            offset_bytes: span.offset_bytes.get().into(),
            bytes,
            zeros_follow: span.flags.get() & ZEROS_FOLLOW != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The spans that are read back from an operation's records, applied to the block before
        /// it, give the block after it.
        #[test]
        fn changes_come_back(
            changed in prop::collection::vec((0_u64..4, 0_usize..1024, 1_usize..200, any::<u8>()), 0..40),
            longest_bytes in 1100_usize..4000,
        ) {
            let before = vec![7_u8; 1024];
            let mut blocks = vec![before.clone(); 4];
            let mut changes = Changes::default();
            for (block, offset, len, byte) in changed {
                let end = (offset + len).min(1024);
                blocks[block as usize][offset..end].fill(byte / 2);
                changes.note(block, offset as u32..end as u32);
            }
            let mut records = Vec::new();
            changes.encode(&About::default(), (1024, longest_bytes), |block| Some(&blocks[block as usize]), &mut records);
            prop_assert!(changes.is_empty());
            prop_assert!(records.iter().all(|record| record.len() <= longest_bytes));
            let mut home = vec![before; 4];
            for record in &records {
                for span in Record::parse(record).unwrap().spans() {
                    prop_assert!(span.apply(&mut home[span.block as usize]));
                }
            }
            prop_assert_eq!(home, blocks);
        }

        #[test]
        fn anything_can_be_parsed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(record) = Record::parse(&bytes) {
                prop_assert!(record.spans().count() <= bytes.len());
            }
        }
    }

    #[test]
    fn a_freed_block_is_not_in_its_record() {
        let mut changes = Changes::default();
        changes.note(3, 0..4);
        changes.note(5, 0..4);
        changes.note_freed(3, true);
        let mut records = Vec::new();
        let block = [1; 1024];
        changes.encode(
            &About::default(),
            (1024, LONG_BYTES),
            |_| Some(&block),
            &mut records,
        );
        let record = Record::parse(&records[0]).unwrap();
        assert!(record.freed().eq([3]));
        assert_eq!(record.spans().count(), 1);
        let mut end = end_of_group();
        end.resize(500, 0);
        assert!(Record::parse(&end).unwrap().ends_group);
    }

    #[test]
    fn long_lists_of_freed_blocks_are_divided_and_come_before_the_spans() {
        let mut changes = Changes::default();
        for block in 0..1000 {
            changes.note_freed(block, true);
        }
        changes.note(7, 0..1024);
        let (mut records, block) = (Vec::new(), [1; 1024]);
        changes.encode(
            &About::default(),
            (1024, 2000),
            |_| Some(&block),
            &mut records,
        );
        assert!(records.iter().all(|record| record.len() <= 2000));
        let records: Vec<Record<'_>> = records.iter().map(|r| Record::parse(r).unwrap()).collect();
        assert!(records.iter().flat_map(Record::freed).eq(0..1000));
        let (last, before) = records.split_last().unwrap();
        assert_eq!(last.spans().count(), 1);
        assert!(before.iter().all(|record| record.spans().count() == 0));
    }
}
