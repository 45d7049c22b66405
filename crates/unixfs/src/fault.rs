//! What the shared rules find wrong in an image, with the numbers.

use backstitch_layout::{BlockNumber, InodeNumber};
use thiserror::Error;

/// What is wrong with an inode, a directory or the map of a file.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// A mode whose type bits stand for nothing.
    #[error("mode {mode:#o} is of no file type")]
    ModeOfNoType {
        /// The mode found.
        mode: u16,
    },
    /// The inode's bit says that it is free.
    #[error("it is in use but marked as free")]
    InUseButFree,
    /// The inode's bit was set before, and nothing here has cleared it.
    #[error("it was marked as used and is marked as free")]
    FreedByOthers,
    /// The link count is lower than the number of names.
    #[error("its link count is {found}, but it has {links} links")]
    LinksTooLow {
        /// The count in the inode.
        found: u16,
        /// The names that stand for it.
        links: u16,
    },
    /// More names than can be counted.
    #[error("too many names")]
    TooManyNames,
    /// More blocks than an inode can count.
    #[error("{blocks} blocks are too many")]
    TooManyBlocks {
        /// The blocks that it maps.
        blocks: u64,
    },
    /// Blocks past the end of a file whose pointers cannot be cleared.
    #[error("blocks beyond its size cannot be taken out")]
    BlocksPastEnd,
    /// A map of a kind that the format does not change.
    #[error("{0}")]
    ForeignMap(&'static str),
    /// A block that two owners map.
    #[error("block {block} belongs to something else too")]
    BlockTakenTwice {
        /// The block.
        block: BlockNumber,
    },
    /// A pointer to what cannot be a file's block.
    #[error("block {block} is outside of the file system or belongs to its metadata")]
    NoBlockOfFiles {
        /// The block.
        block: BlockNumber,
    },
    /// A run of which a part cannot be a file's.
    #[error("blocks {start}..{end} are outside of the file system or its metadata")]
    NoRunOfFiles {
        /// The first block.
        start: BlockNumber,
        /// The first block behind it.
        end: BlockNumber,
    },
    /// A block that is mapped and whose bit says that it is free.
    #[error("block {block} is in use but marked as free")]
    BlockInUseButFree {
        /// The block.
        block: BlockNumber,
    },
    /// A run that is mapped and of which some bits say that it is free.
    #[error("blocks {start}..{end} are in use but some are marked as free")]
    RunInUseButFree {
        /// The first block.
        start: BlockNumber,
        /// The first block behind it.
        end: BlockNumber,
    },
    /// A block behind a file's end that is to become a part of it, in a place that its map leads
    /// to already.
    #[error("a place past its end is mapped with its block {logical}")]
    PlaceIsTaken {
        /// The first block of the file that is mapped there.
        logical: u64,
    },
    /// A run that is free by the bitmap, and in part the file system's own.
    #[error(
        "of blocks {start}..{end} some hold the file system's own structures, and are marked as free"
    )]
    OwnBlocksFree {
        /// The first block.
        start: BlockNumber,
        /// The first block behind it.
        end: BlockNumber,
    },
    /// The target of a symbolic link is longer than the inode or the block that holds it.
    #[error("{bytes} bytes do not fit into its {into}")]
    TargetTooLong {
        /// The length in the inode.
        bytes: usize,
        /// What should hold it.
        into: &'static str,
    },
    /// A symbolic link too long for the inode, without a block.
    #[error("a symlink whose target has no block")]
    TargetWithoutBlock,
    /// The inode is not a directory's, or free.
    #[error("it is not a directory, or not in use")]
    NotADirectory,
    /// A directory's size.
    #[error("its size, {bytes}, is no multiple of the block size")]
    SizeNotWhole {
        /// The size found.
        bytes: u64,
    },
    /// A directory without a way up.
    #[error("its parents never lead to the root")]
    ParentsNeverEnd,
    /// A directory without its parent.
    #[error("it has no '..'")]
    NoParent,
    /// Other names come first in a directory.
    #[error("'.' and '..' are not its first two names")]
    DotsNotFirst,
    /// The first two names are missing, or `.` stands for another inode.
    #[error("its '.' or its '..' is missing or wrong")]
    DotsWrong,
    /// A directory has two names, one of them where it is not counted.
    #[error("it has a second name in a directory that does not count it")]
    SecondNameNotCounted,
    /// A name of an inode past the last one.
    #[error("a name stands for inode {inode}, which does not exist")]
    NameOfMissing {
        /// The inode in the entry.
        inode: InodeNumber,
    },
    /// A name of a free inode.
    #[error("a name stands for inode {inode}, which is not in use")]
    NameOfFree {
        /// The inode in the entry.
        inode: InodeNumber,
    },
    /// A name of an inode that the format keeps to itself, or that is free.
    #[error("a name stands for inode {inode}, which no name may stand for")]
    NameOfUnnameable {
        /// The inode in the entry.
        inode: InodeNumber,
    },
    /// The type in the entry is not the inode's.
    #[error("a name says that inode {inode} is of another type")]
    NameOfOtherType {
        /// The inode in the entry.
        inode: InodeNumber,
    },
    /// A name that was there when the directory was walked.
    #[error("its name of inode {inode} is gone")]
    NameGone {
        /// The inode that the name stood for.
        inode: InodeNumber,
    },
}
