//! What can be wrong with the structures that say where the others are.

use thiserror::Error;

/// What is wrong with a superblock. Fields have FreeBSD's names.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SuperblockFault {
    /// A number that is too small or too large for the others.
    #[error("{field} is {found}, must be {low} … {high}")]
    OutOfBounds {
        /// What has the number.
        field: &'static str,
        /// The number.
        found: i64,
        /// The lowest possible one.
        low: i64,
        /// The highest possible one.
        high: i64,
    },
    /// A number that follows from others.
    #[error("{field} is {found}, must be {expected}")]
    Contradiction {
        /// What has the number.
        field: &'static str,
        /// The number.
        found: i64,
        /// What follows from the others.
        expected: i64,
    },
    /// A size that must be a power of two.
    #[error("{field} is {found}, no power of two")]
    NoPowerOfTwo {
        /// What has the size.
        field: &'static str,
        /// The size.
        found: i64,
    },
    /// The summary array is where a group has its own structures.
    #[error(
        "the summary of the groups, fragments {first} … {last} by fs_csaddr and fs_cssize, lies on \
         structures of group {group}"
    )]
    SummaryInTheWay {
        /// Its first fragment.
        first: u64,
        /// Its last fragment.
        last: u64,
        /// The group.
        group: u32,
    },
    /// The device ends before the file system.
    #[error("the file system has {file_system} bytes, its device {device}")]
    DeviceTooSmall {
        /// Bytes of the file system.
        file_system: u64,
        /// Bytes of the device.
        device: u64,
    },
}

/// What is wrong with a cylinder group's header.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GroupFault {
    /// The block has fewer bytes than `fs_cgsize`.
    #[error("its block has {found} bytes, {expected} are needed")]
    TooShort {
        /// The bytes.
        found: usize,
        /// `fs_cgsize`
        expected: usize,
    },
    /// Another magic number.
    #[error("magic number {found:#x}, must be 0x90255")]
    Magic {
        /// The number.
        found: i32,
    },
    /// It is another group's.
    #[error("it is the header of group {found}")]
    OtherGroup {
        /// The group.
        found: u32,
    },
    /// A number that is not what the superblock says.
    #[error("{field} is {found}, must be {expected}")]
    Contradiction {
        /// What has the number.
        field: &'static str,
        /// The number.
        found: i64,
        /// What the superblock says.
        expected: i64,
    },
    /// A map that is not within the block.
    #[error("{field} is {found}, which leads past the end of the header")]
    Outside {
        /// What has the offset.
        field: &'static str,
        /// The offset.
        found: u32,
    },
}

/// What is wrong with an inode.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InodeFault {
    /// Fewer bytes than an inode has.
    #[error("{found} bytes, {expected} are needed")]
    TooShort {
        /// The bytes.
        found: usize,
        /// The bytes of an inode.
        expected: usize,
    },
}

/// What is wrong with extended attributes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AttributesFault {
    /// More bytes than the inode has blocks for.
    #[error("{bytes} bytes do not fit into two blocks")]
    TooLong {
        /// The bytes.
        bytes: u32,
    },
    /// A block that no attributes can be in.
    #[error("block {block} cannot be an inode's")]
    NoBlock {
        /// The block.
        block: u64,
    },
    /// One that does not fit into the bytes that there are.
    #[error("the one at byte {at} leads past the end")]
    PastEnd {
        /// The byte.
        at: usize,
    },
}
