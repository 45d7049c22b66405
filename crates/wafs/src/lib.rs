//! A write-ahead log of its own: the WAFS of Seltzer et al., *Journaling versus Soft Updates*
//! (USENIX 2000), §5.2, as a library and a format.
//!
//! Programs append records and get a **log sequence number** (LSN) for each: its offset in a log
//! that never ends. They [wait](Wafs::sync) until a record is on the device, read records by LSN or
//! one after the other, and say up to where they need none any more
//! ([`checkpoint`](Wafs::checkpoint)): the log's bytes are used in a circle. A log lies on any
//! [`BlockDevice`](backstitch_device::BlockDevice): a file, a partition, a second disk, memory that
//! survives.
//!
//! # What holds after a crash
//!
//! * Every record that [`sync`](Wafs::sync) acknowledged is there, whole.
//! * Of those behind the last acknowledged one some may be there: always a beginning of what was
//!   appended, never one without those before it, never a torn one.
//! * What is appended afterwards is never followed by what the crash left behind.
//!
//! The device must write a word of eight bytes wholly or not at all: memory does, and a disk does
//! so with sectors. The last block is written several times while it fills; bytes in it that were
//! acknowledged keep their values.
//!
//! # How it is done
//!
//! The end is not stored: it is found. The superblock says up to where everything was on the
//! device. From there the records follow one another as long as each has the right checksums, the
//! LSN of its own place, and the number of the mount that the superblock names. This number shuts
//! out records that a crash left behind the end: each mount has its own, which is on the device
//! before anything is appended. A checkpoint writes the superblock into the other one of two slots,
//! and room is used again once that is on the device.
//!
//! Depends on `device` and `rules` only.

mod check;
mod error;
pub mod format;
mod log;
mod memory;
mod read;
pub mod rules;

use std::fmt;

pub use check::{CheckReport, check};
pub use error::{Result, WafsError};
pub use log::{Clock, Figures, Recovered, Wafs, host_clock};
pub use read::{Log, Record, Records};

/// A log sequence number: where a record begins, in bytes from the beginning of a log that never
/// ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The LSN `bytes` behind this one.
    pub(crate) fn plus(self, bytes: u64) -> Lsn {
        Lsn(self.0 + bytes)
    }

    /// The beginning of the block that this one is in.
    pub(crate) fn block_start(self) -> Lsn {
        Lsn(self.0 - self.0 % format::BLOCK_BYTES)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
