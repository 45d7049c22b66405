//! Logs of what was written to a block device, in the format of Linux's dm-log-writes.
//!
//! Three programs write this format: the kernel's device-mapper target `log-writes`, QEMU's block
//! driver `blklogwrites`, and our [`LoggingDevice`]. A log is a superblock and then entries in the
//! order in which requests ended: writes with their data, discards, flushes, and marks, which are
//! remarks of the observer. `docs/FORMAT.md` has the bytes.
//!
//! # What a log says about order
//!
//! An entry with [`EntryFlags::FLUSH`] makes everything before it durable. If it carries data as
//! well, the flush comes first. A write with [`EntryFlags::FUA`] is durable itself when it ends,
//! and says nothing about others. Nothing else orders anything: between two flushes a drive may
//! store any part of what it was given, in any order.
//!
//! # Reading what others wrote
//!
//! [`LogReader`] trusts nothing: every length is checked against the file's before anything is read
//! or allocated. It holds one header at a time; data is read into the caller's memory, in pieces of
//! the caller's size.

mod device;
mod error;
pub mod raw;
mod reader;
mod writer;

pub use device::LoggingDevice;
pub use error::{LogError, LogResult};
pub use reader::{Entry, LogReader};
pub use writer::{LogWriter, MARK_MAX_BYTES};

/// What an entry is, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFlags(pub u64);

impl EntryFlags {
    /// Everything before this entry is durable; before the entry's own data, if it has any.
    pub const FLUSH: EntryFlags = EntryFlags(1);
    /// This write is durable when it ends.
    pub const FUA: EntryFlags = EntryFlags(2);
    /// The sectors' contents are no longer needed.
    pub const DISCARD: EntryFlags = EntryFlags(4);
    /// A remark, in the header's sector.
    pub const MARK: EntryFlags = EntryFlags(8);
    /// The writer called this metadata. It means nothing for the order.
    pub const METADATA: EntryFlags = EntryFlags(16);
    /// Every bit that has a meaning.
    pub const KNOWN: EntryFlags = EntryFlags(31);

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: EntryFlags) -> bool {
        self.0 & other.0 == other.0
    }
}
