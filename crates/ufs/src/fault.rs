//! What can be wrong with what UFS alone has.

use thiserror::Error;

/// What is wrong with an inode, beside what the shared rules find.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum InodeFault {
    /// A number past the last inode.
    #[error("the numbers end at {last}")]
    NoSuchInode { last: u32 },
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

/// What is wrong with extended attributes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum AttributesFault {
    /// More bytes than the inode has blocks for.
    #[error("{bytes} bytes do not fit into two blocks")]
    TooLong { bytes: u32 },
    /// A block that no attributes can be in.
    #[error("block {block} cannot be an inode's")]
    NoBlock { block: u64 },
    /// One that does not fit into the bytes that there are.
    #[error("the one at byte {at} leads past the end")]
    PastEnd { at: usize },
}
