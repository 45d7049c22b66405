//! What can be wrong with what ext alone has: reserved inodes, attributes, orphans and the journal's
//! place.

use backstitch_layout::BlockNumber;
use thiserror::Error;

/// What is wrong with an inode, beside what the shared rules find.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum InodeFault {
    /// A number past the last inode.
    #[error("the numbers end at {last}")]
    NoSuchInode { last: u32 },
    /// The root directory's inode is free.
    #[error("its inode is not in use")]
    RootFree,
    /// The root directory's inode is a file's.
    #[error("its inode is not a directory's")]
    RootNoDirectory,
    /// A reserved inode, such as the journal's, that is a device or a directory.
    #[error("a reserved inode of a type that it cannot have")]
    ReservedType,
    /// A pointer past the end of the file system.
    #[error("block {block} does not exist")]
    NoSuchBlock { block: BlockNumber },
}

/// What is wrong with extended attributes, beside
/// [`XattrError`](crate::format::xattr::XattrError).
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum AttributesFault {
    /// A pointer to what cannot be an attribute block.
    #[error("block {block} cannot be an attribute block")]
    NoAttributeBlock { block: BlockNumber },
    /// An attribute whose name is empty.
    #[error("one has no name")]
    Nameless,
    /// Values that overlap.
    #[error("they overlap")]
    Overlap,
    /// The block counts fewer references than inodes point to it.
    #[error("its count is {found}, but {inodes} inodes have it")]
    TooFewReferences { found: u32, inodes: u32 },
}

/// What is wrong with the list of orphans.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum OrphanFault {
    /// The list leads in a circle.
    #[error("the list does not end")]
    NoEnd,
    /// A number past the last inode, or of a reserved one.
    #[error("no inode that can be one")]
    NoSuchInode,
    /// The inode's bit says that it is free.
    #[error("it is not in use")]
    Free,
    /// A pointer to what cannot be a file's block.
    #[error("it claims block {block}")]
    ClaimsBlock { block: BlockNumber },
    /// A block whose bit says that it is free.
    #[error("its block {block} is free")]
    BlockFree { block: BlockNumber },
    /// The attribute block does not begin as one.
    #[error("its attributes are damaged")]
    AttributesDamaged,
}

/// What is wrong with the inode that holds the journal. Blocks are counted from the journal's start.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum JournalFault {
    /// A number past the last inode.
    #[error("it does not exist")]
    NoSuchInode,
    /// A directory, a device, or an inode without links.
    #[error("it is no regular file")]
    NoRegularFile,
    /// A size that no journal has.
    #[error("a size of {bytes} bytes")]
    Size {
        /// The size found.
        bytes: u64,
    },
    /// The pointers end before the journal does.
    #[error("only {found} of {expected} blocks are there")]
    TooFewBlocks {
        /// The blocks that are mapped.
        found: u64,
        /// The blocks by the size.
        expected: u64,
    },
    /// A block without a place.
    #[error("its block {position} is a hole")]
    Hole {
        /// Which block.
        position: u64,
    },
    /// A block whose place the extent tree leaves out.
    #[error("its block {position} is missing in its extent tree")]
    NotInTree {
        /// Which block.
        position: u64,
    },
    /// A block past the end of the file system.
    #[error("its block {position} is at {block}, which does not exist")]
    Outside {
        /// Which block.
        position: u64,
        /// Its place.
        block: BlockNumber,
    },
    /// A place that cannot be, or that another block of the journal has.
    #[error("its block {position} is at {block}")]
    PlaceTaken {
        /// Which block.
        position: u64,
        /// Its place.
        block: BlockNumber,
    },
    /// A node without the magic number, too deep, or with more entries than it holds.
    #[error("a node of its extent tree makes no sense")]
    Node,
    /// An extent of no blocks, or of blocks that were never written.
    #[error("an extent of length {blocks}")]
    ExtentLength {
        /// The length in the tree.
        blocks: u16,
    },
    /// A tree block past the end of the file system.
    #[error("block {block} does not exist")]
    NoSuchBlock {
        /// Counted from the file system's start.
        block: BlockNumber,
    },
}
