//! What can be wrong with the structures that say where the others are.

use super::inode::BASE_SIZE;
use backstitch_layout::BlockNumber;
use thiserror::Error;

/// What is wrong with a superblock. Fields have the names that the kernel gives them.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SuperblockFault {
    /// A number that is too small or too large for the others.
    #[error("{field} is {found}, must be {low} … {high}")]
    OutOfBounds {
        /// What has the number.
        field: &'static str,
        /// The number.
        found: u64,
        /// The lowest possible one.
        low: u64,
        /// The highest possible one.
        high: u64,
    },
    /// Clusters of more than a block, without the feature.
    #[error("s_log_cluster_size is {found}, not the block's")]
    ClusterIsNotBlock {
        /// The field.
        found: u32,
    },
    /// Groups that do not end with a byte of their bitmaps.
    #[error("s_blocks_per_group is {found}, no multiple of 8")]
    GroupEndsWithinByte {
        /// The field.
        found: u64,
    },
    /// A size that must be a power of two.
    #[error("{field} is {found}, no power of two")]
    NoPowerOfTwo {
        /// What has the size.
        field: &'static str,
        /// The size in bytes.
        found: u32,
    },
    /// The count of inodes is not that of all groups.
    #[error("s_inodes_count is {found}, the groups have {expected}")]
    InodesCount {
        /// The field.
        found: u64,
        /// What the groups have.
        expected: u64,
    },
    /// The device ends before the file system.
    #[error(
        "the file system has {blocks} blocks of {block_bytes} bytes, the device only {device_bytes} bytes"
    )]
    LongerThanDevice {
        /// The blocks by the superblock.
        blocks: u64,
        /// Bytes of a block.
        block_bytes: u64,
        /// The device's size in bytes.
        device_bytes: u64,
    },
    /// A file system with a journal, of which neither an inode nor a device is named.
    #[error("the journal has no place")]
    JournalWithoutPlace,
}

/// What is wrong with a group's descriptor.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DescriptorFault {
    /// The table ends before it.
    #[error("the table is too short")]
    TableTooShort,
    /// A structure of the group is where it cannot be.
    #[error("{structure} at {block}, must be within {first} … {last}")]
    Misplaced {
        /// `block bitmap`, `inode bitmap` or `inode table`.
        structure: &'static str,
        /// Where it begins.
        block: BlockNumber,
        /// The first block where it may be.
        first: BlockNumber,
        /// The last block where it may be.
        last: BlockNumber,
    },
    /// Two structures of the group share blocks.
    #[error("bitmaps and inode table overlap")]
    Overlap,
}

/// What is wrong with an inode as bytes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InodeFault {
    /// The bytes end within the fields that every inode has.
    #[error("{BASE_SIZE} bytes expected, {found} found")]
    TooShort {
        /// The bytes there are.
        found: usize,
    },
}
