//! What can be wrong with what UFS alone has.

use backstitch_layout::BlockNumber;
use thiserror::Error;

/// What is wrong with an inode, beside what the shared rules find.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum InodeFault {
    /// A number past the last inode.
    #[error("the numbers end at {last}")]
    NoSuchInode { last: u32 },
    /// A size that no file has.
    #[error("a size of {bytes} bytes, at most {most} can be")]
    TooLarge { bytes: u64, most: u64 },
    /// A group's number of initialised inodes is no multiple of a block's, or leaves out some that
    /// are in use.
    #[error("it counts {initialised} initialised inodes, and others are in use or cut in two")]
    InitialisedWrong { initialised: u32 },
    /// The root directory's inode is free.
    #[error("its inode is not in use")]
    RootFree,
    /// The root directory's inode is a file's.
    #[error("its inode is not a directory's")]
    RootNoDirectory,
}

/// What is wrong with the file that a log of operations is in.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum LogFault {
    /// A number past the last inode.
    #[error("it does not exist")]
    NoSuchInode,
    /// A directory, a device, or a file without a name.
    #[error("it is no regular file")]
    NoRegularFile,
    /// A size that no log has: not whole blocks, or more than there are.
    #[error("a size of {bytes} bytes")]
    Size { bytes: u64 },
    /// A pointer that leads nowhere, of the file's block with this number.
    #[error("block {block} has no place")]
    Hole { block: u64 },
    /// A pointer to what cannot be a file's block.
    #[error("it claims fragment {fragment}")]
    Claims { fragment: BlockNumber },
}

/// What is wrong with the list of orphans.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum OrphanFault {
    /// A circle.
    #[error("the list does not end")]
    NoEnd,
    /// A number past the last inode, or of one that is never freed.
    #[error("no inode that can be one")]
    NoSuchInode,
    /// The inode's bit says that it is free.
    #[error("it is not in use")]
    Free,
    /// A pointer to what cannot be a file's block.
    #[error("it claims fragment {fragment}")]
    Claims { fragment: BlockNumber },
    /// A fragment whose bit says that it is free.
    #[error("its fragment {fragment} is free")]
    FragmentFree { fragment: BlockNumber },
}
