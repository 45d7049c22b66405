//! Which block it is, and what it holds.

/// A block space as a layout sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) volume: VolumeId,
    pub(crate) block: u64,
}

/// What a block holds, as far as mechanisms and the cache care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockClass {
    /// File contents.
    Data,
    /// Inodes, bitmaps, pointers, attributes.
    Metadata,
    /// Names.
    Directory,
    /// A journal's own blocks.
    Journal,
}

/// What a block holds: its class, which mechanisms and the cache go by, and the layout's own number
/// for this kind of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockKind {
    /// Its class.
    pub class: BlockClass,
    /// The layout's number for it; 0 for a kind that is never sealed.
    pub number: u8,
}

impl BlockKind {
    /// A kind of metadata.
    pub const fn metadata(number: u8) -> BlockKind {
        BlockKind {
            class: BlockClass::Metadata,
            number,
        }
    }

    /// A kind of directory block.
    pub const fn directory(number: u8) -> BlockKind {
        BlockKind {
            class: BlockClass::Directory,
            number,
        }
    }
}

impl From<BlockClass> for BlockKind {
    fn from(class: BlockClass) -> BlockKind {
        BlockKind { class, number: 0 }
    }
}
