//! Extent trees (ext4): which runs of blocks a file has.
//!
//! The root is in the inode, where other files have their pointers; the nodes below are blocks of
//! their own. A node is a header of 12 bytes and entries of 12 bytes: *extents* in a leaf, *indexes*
//! above. Entries are ordered by the file's block that they begin with. The depth of a node is its
//! distance from the leaves; it falls by one from a node to those below it, so a way down ends.

use backstitch_layout::BlockNumber;
use core::ops::Range;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic`
pub const MAGIC: u16 = 0xf30a;
/// The depth of the deepest root.
pub const DEPTH_MAX: u16 = 5;
/// The file's blocks that a tree can map: their numbers have 32 bits.
pub const BLOCKS: Range<u64> = 0..1 << 32;
/// The longest extent of blocks that were written. `ee_len` of an unwritten extent is this more
/// than its length.
pub const WRITTEN_MAX: u16 = 0x8000;

/// What a node begins with.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtentHeader {
    pub eh_magic: U16,
    pub eh_entries: U16,
    pub eh_max: U16,
    pub eh_depth: U16,
    pub eh_generation: U32,
}

/// An entry of a leaf.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtent {
    pub ee_block: U32,
    pub ee_len: U16,
    pub ee_start_hi: U16,
    pub ee_start_lo: U32,
}

/// An entry of a node above the leaves.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtentIndex {
    pub ei_block: U32,
    pub ei_leaf_lo: U32,
    pub ei_leaf_hi: U16,
    pub ei_unused: U16,
}

impl RawExtent {
    /// Where its first block is.
    pub fn physical(&self) -> BlockNumber {
        let high = u64::from(self.ee_start_hi.get()) << 32;
        BlockNumber(high | u64::from(self.ee_start_lo.get()))
    }
}

impl RawExtentIndex {
    /// Where the node below is.
    pub fn node(&self) -> BlockNumber {
        let high = u64::from(self.ei_leaf_hi.get()) << 32;
        BlockNumber(high | u64::from(self.ei_leaf_lo.get()))
    }
}

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ExtentFault {
    #[error("magic number {MAGIC:#06x} expected, {0:#06x} found")]
    Magic(u16),
    #[error("a root of depth {0}, at most {DEPTH_MAX} expected")]
    RootDepth(u16),
    #[error("a node of depth {found} where one of depth {expected} belongs")]
    Depth { expected: u16, found: u16 },
    #[error("{entries} entries in a node of depth {depth} with room for {room}")]
    Entries {
        entries: u16,
        depth: u16,
        room: usize,
    },
    #[error(
        "entry {index} maps blocks {} to {} of the file, outside of {} to {}",
        .found.start, .found.end, .within.start, .within.end
    )]
    Range {
        index: usize,
        found: Range<u64>,
        within: Range<u64>,
    },
}

/// A run of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The file's first block.
    pub logical: u64,
    /// How many blocks.
    pub len: u64,
    /// Where the first one is.
    pub physical: BlockNumber,
    /// The blocks belong to the file, but nothing was written to them: they read as zeros.
    pub is_unwritten: bool,
}

impl Extent {
    fn of(raw: &RawExtent) -> Extent {
        let len = raw.ee_len.get();
        let is_unwritten = len > WRITTEN_MAX;
        let len = if is_unwritten { len - WRITTEN_MAX } else { len };
        Extent {
            logical: raw.ee_block.get().into(),
            len: len.into(),
            physical: raw.physical(),
            is_unwritten,
        }
    }
}

/// A node below another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Where it is.
    pub block: BlockNumber,
    /// Its depth.
    pub depth: u16,
    /// The file's blocks that it maps.
    pub within: Range<u64>,
}

/// What a node says of one of the file's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is in this extent.
    Extent(Extent),
    /// No block up to this one is mapped.
    HoleUpTo(u64),
    /// The node below knows.
    Below(Child),
}

/// A node whose entries are as many as it has room for, in order, and within what it maps.
#[derive(Clone, Debug)]
pub struct Node<'b> {
    depth: u16,
    within: Range<u64>,
    entries: &'b [[u8; size_of::<RawExtent>()]],
}

impl<'b> Node<'b> {
    /// The root: the bytes of an inode's pointers.
    ///
    /// # Errors
    ///
    /// [`ExtentFault`] where it cannot be one.
    pub fn root(bytes: &'b [u8]) -> Result<Node<'b>, ExtentFault> {
        let node = Node::parse(bytes, BLOCKS)?;
        if node.depth > DEPTH_MAX {
            return Err(ExtentFault::RootDepth(node.depth));
        }
        Ok(node)
    }

    /// The node below another one: the bytes of its block.
    ///
    /// # Errors
    ///
    /// [`ExtentFault`] where it cannot be that node.
    pub fn below(bytes: &'b [u8], child: &Child) -> Result<Node<'b>, ExtentFault> {
        let node = Node::parse(bytes, child.within.clone())?;
        if node.depth != child.depth {
            return Err(ExtentFault::Depth {
                expected: child.depth,
                found: node.depth,
            });
        }
        Ok(node)
    }

    fn parse(bytes: &'b [u8], within: Range<u64>) -> Result<Node<'b>, ExtentFault> {
        let Ok((header, rest)) = RawExtentHeader::ref_from_prefix(bytes) else {
            return Err(ExtentFault::Magic(0));
        };
        if header.eh_magic.get() != MAGIC {
            return Err(ExtentFault::Magic(header.eh_magic.get()));
        }
        let (all, _) = rest.as_chunks();
        let (entries, depth) = (header.eh_entries.get(), header.eh_depth.get());
        let room = all.len().min(header.eh_max.get().into());
        // A file without blocks has a root without entries, of depth 0.
        let is_empty = entries == 0 && depth > 0;
        if usize::from(entries) > room || is_empty {
            return Err(ExtentFault::Entries {
                entries,
                depth,
                room,
            });
        }
        let node = Node {
            depth,
            within,
            entries: &all[..entries.into()],
        };
        node.check_order()?;
        Ok(node)
    }

    /// Each entry maps something, behind what the one before it maps.
    fn check_order(&self) -> Result<(), ExtentFault> {
        let mut next = self.within.start;
        for index in 0..self.entries.len() {
            let found = self.mapped_by(index);
            if found.start < next || found.end > self.within.end || found.is_empty() {
                return Err(ExtentFault::Range {
                    index,
                    found,
                    within: next..self.within.end,
                });
            }
            next = found.end;
        }
        Ok(())
    }

    /// The file's blocks that an entry maps. That of an index ends where the next one begins.
    fn mapped_by(&self, index: usize) -> Range<u64> {
        let bytes = &self.entries[index];
        if self.depth == 0 {
            let extent = Extent::of(&zerocopy::transmute!(*bytes));
            return extent.logical..extent.logical + extent.len;
        }
        let begins = |bytes: &[u8; size_of::<RawExtentIndex>()]| {
            let raw: RawExtentIndex = zerocopy::transmute!(*bytes);
            u64::from(raw.ei_block.get())
        };
        let behind = self.entries.get(index + 1);
        begins(bytes)..behind.map_or(self.within.end, begins)
    }

    /// What is known of one of the blocks that the node maps.
    pub fn find(&self, logical: u64) -> Found {
        let end_of = |index: usize| self.mapped_by(index).end;
        // The first entry that ends behind the block.
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match end_of(middle) > logical {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        if low == self.entries.len() {
            return Found::HoleUpTo(self.within.end);
        }
        let range = self.mapped_by(low);
        if logical < range.start {
            return Found::HoleUpTo(range.start);
        }
        let bytes = &self.entries[low];
        if self.depth == 0 {
            return Found::Extent(Extent::of(&zerocopy::transmute!(*bytes)));
        }
        let raw: RawExtentIndex = zerocopy::transmute!(*bytes);
        Found::Below(Child {
            block: raw.node(),
            depth: self.depth - 1,
            within: range,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    fn node(depth: u16, entries: &[[u32; 3]]) -> Vec<u8> {
        let header = RawExtentHeader {
            eh_magic: MAGIC.into(),
            eh_entries: (entries.len() as u16).into(),
            eh_max: 4.into(),
            eh_depth: depth.into(),
            eh_generation: 0.into(),
        };
        let mut bytes = header.as_bytes().to_vec();
        for entry in entries {
            bytes.extend(entry.iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes.resize(60, 0);
        bytes
    }

    /// An extent: its length in the low half, the high half of its place above.
    fn extent(logical: u32, len: u16, start: u64) -> [u32; 3] {
        let high = (start >> 32) as u32;
        [logical, u32::from(len) | high << 16, start as u32]
    }

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!(size_of::<RawExtentHeader>(), 12);
        assert_eq!(size_of::<RawExtent>(), size_of::<RawExtentIndex>());
        assert_eq!(offset_of!(RawExtentHeader, eh_depth), 6);
        assert_eq!(offset_of!(RawExtent, ee_start_lo), 8);
        assert_eq!(offset_of!(RawExtentIndex, ei_leaf_hi), 8);
    }

    #[test]
    fn a_leaf_tells_extents_and_holes() {
        let entries = [
            extent(2, 3, 0x1_0000_0007),
            extent(5, WRITTEN_MAX + 2, 100),
            extent(9, WRITTEN_MAX, 200),
        ];
        let bytes = node(0, &entries);
        let leaf = Node::root(&bytes).unwrap();
        assert_eq!(leaf.find(0), Found::HoleUpTo(2));
        let first = Extent {
            logical: 2,
            len: 3,
            physical: BlockNumber(0x1_0000_0007),
            is_unwritten: false,
        };
        assert_eq!(leaf.find(2), Found::Extent(first));
        assert_eq!(leaf.find(4), Found::Extent(first));
        let Found::Extent(second) = leaf.find(6) else {
            panic!("{:?}", leaf.find(6));
        };
        assert_eq!((second.len, second.is_unwritten), (2, true));
        assert_eq!(leaf.find(7), Found::HoleUpTo(9));
        let Found::Extent(last) = leaf.find(9) else {
            panic!("{:?}", leaf.find(9));
        };
        assert_eq!((last.len, last.is_unwritten), (0x8000, false));
        assert_eq!(leaf.find(9 + 0x8000), Found::HoleUpTo(1 << 32));
        assert_eq!(
            Node::root(&node(0, &[])).unwrap().find(7),
            Found::HoleUpTo(1 << 32)
        );
    }

    #[test]
    fn an_index_leads_to_the_node_below() {
        let bytes = node(2, &[[3, 50, 0], [8, 60, 1]]);
        let root = Node::root(&bytes).unwrap();
        assert_eq!(root.find(2), Found::HoleUpTo(3));
        let (first, second) = (root.find(7), root.find(u32::MAX.into()));
        let Found::Below(first) = first else {
            panic!("{first:?}");
        };
        assert_eq!((first.block, first.depth), (BlockNumber(50), 1));
        assert_eq!(first.within, 3..8);
        let Found::Below(second) = second else {
            panic!("{second:?}");
        };
        assert_eq!(second.block, BlockNumber(1 << 32 | 60));
        assert_eq!(second.within, 8..1 << 32);
        let below = node(1, &[[3, 70, 0], [7, 71, 0]]);
        assert!(Node::below(&below, &first).is_ok());
        let outside = Node::below(&below, &second).unwrap_err();
        assert!(matches!(outside, ExtentFault::Range { index: 0, .. }));
        let other = node(0, &[]);
        assert_eq!(
            Node::below(&other, &first).unwrap_err(),
            ExtentFault::Depth {
                expected: 1,
                found: 0
            }
        );
    }

    #[test]
    fn nodes_that_cannot_be_are_refused() {
        let refused = |bytes: &[u8]| Node::root(bytes).unwrap_err();
        assert_eq!(refused(&[0; 60]), ExtentFault::Magic(0));
        assert_eq!(refused(&[]), ExtentFault::Magic(0));
        assert_eq!(
            refused(&node(6, &[[0, 1, 0]])),
            ExtentFault::RootDepth(DEPTH_MAX + 1)
        );
        let five = node(0, &[[0, 1, 9]; 5]);
        assert!(matches!(
            refused(&five[..60]),
            ExtentFault::Entries { room: 4, .. }
        ));
        assert!(matches!(
            refused(&node(1, &[])),
            ExtentFault::Entries { entries: 0, .. }
        ));
        for entries in [
            // Without blocks, overlapping, backwards, behind the last block.
            vec![extent(0, 0, 9)],
            vec![extent(0, 3, 9), extent(2, 1, 20)],
            vec![extent(9, 1, 9), extent(2, 1, 20)],
            vec![extent(u32::MAX, 2, 9)],
        ] {
            let fault = refused(&node(0, &entries));
            assert!(matches!(fault, ExtentFault::Range { .. }), "{fault}");
        }
        let fault = refused(&node(1, &[[5, 9, 0], [5, 10, 0]]));
        assert!(matches!(fault, ExtentFault::Range { index: 0, .. }));
    }
}
