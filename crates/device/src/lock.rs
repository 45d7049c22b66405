//! Locks on a file or on parts of it.
//!
//! A program that uses the whole file takes a `flock`: exclusive to write, shared to read; other
//! programs respect it as well. One that uses a part takes a shared one, so that no other writes
//! the whole meanwhile.
//!
//! Within the file there are locks on ranges of bytes, for writing or for reading, which belong to
//! the open file and end with it (`F_OFD_SETLK`). A program that uses the whole locks all of it. So
//! two programs can write parts at the same time if these do not overlap, and none reads the whole
//! while a part of it is being written. These locks are behind every byte that a file can have,
//! because QEMU locks single bytes near the start, with a meaning of its own.
//!
//! A host without such locks has the `flock` only. A program that uses a part then takes it as for
//! the whole.

use crate::holder::{RANGES_AT, lock_holder, loop_device_over, range_holder};
use crate::{DeviceError, Result};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;

/// The byte that is locked, for writing, by the program whose claim keeps the kernel off a block
/// device of which parts are used.
const CLAIM_AT: u64 = RANGES_AT - 1;

/// How an attempt at a lock ended.
enum Attempt {
    Taken,
    Held,
    /// The host has no such locks.
    Unknown,
}

/// A file that is to be locked, and its name in messages.
#[derive(Clone, Copy)]
pub(crate) struct Lock<'a> {
    pub(crate) file: &'a File,
    pub(crate) name: &'a str,
    pub(crate) read_only: bool,
}

impl Lock<'_> {
    /// Keeps out all other writers, and to write all readers, too.
    pub(crate) fn whole(self) -> Result<()> {
        self.flock(!self.read_only)?;
        self.range(0..0)
    }

    /// Keeps out programs that want to write the whole. No part may be used before it is
    /// [claimed](Self::part).
    pub(crate) fn parts(self) -> Result<()> {
        self.flock(false)
    }

    /// Keeps other programs from using a part that overlaps with this one.
    pub(crate) fn part(self, range: Range<u64>) -> Result<()> {
        self.range(range)
    }

    /// Whether another program of ours keeps the kernel off this device. If none does, this one
    /// does from now on.
    pub(crate) fn is_claimed_by_us(self) -> bool {
        matches!(self.try_range(CLAIM_AT, 1, true), Attempt::Held)
    }

    fn flock(self, exclusive: bool) -> Result<()> {
        let operation = match exclusive {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        match rustix::fs::flock(self.file, operation) {
            Ok(()) => Ok(()),
            Err(Errno::WOULDBLOCK) => Err(self.busy(lock_holder(&self.metadata()?))),
            Err(error) => Err(self.cannot(error.into())),
        }
    }

    /// Locks a range, or the whole if the range is empty.
    fn range(self, range: Range<u64>) -> Result<()> {
        let length = range.end - range.start;
        match self.try_range(RANGES_AT + range.start, length, !self.read_only) {
            Attempt::Taken => {}
            Attempt::Held => {
                let metadata = self.metadata()?;
                return Err(self.busy(range_holder(&metadata, &range)));
            }
            Attempt::Unknown if length == 0 => {}
            Attempt::Unknown => self.flock(!self.read_only)?,
        }
        let metadata = self.metadata()?;
        if !self.read_only
            && let Some(holder) = loop_device_over(&metadata, &range)
        {
            return Err(self.busy(holder));
        }
        Ok(())
    }

    fn try_range(self, start: u64, length: u64, exclusive: bool) -> Attempt {
        let kind = if exclusive {
            libc::F_WRLCK
        } else {
            libc::F_RDLCK
        };
        let (Ok(start), Ok(length)) = (start.try_into(), length.try_into()) else {
            return Attempt::Unknown;
        };
        let wanted = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start,
            l_len: length,
            l_pid: 0,
        };
        match fcntl(self.file, FcntlArg::F_OFD_SETLK(&wanted)) {
            Ok(_) => Attempt::Taken,
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => Attempt::Held,
            Err(_) => Attempt::Unknown,
        }
    }

    fn metadata(self) -> Result<std::fs::Metadata> {
        self.file.metadata().map_err(|error| self.cannot(error))
    }

    fn busy(self, holder: String) -> DeviceError {
        DeviceError::Busy {
            device: self.name.to_owned(),
            holder,
        }
    }

    fn cannot(self, error: std::io::Error) -> DeviceError {
        DeviceError::Open {
            device: self.name.to_owned(),
            reason: format!("cannot lock it: {}", crate::host::reason_of(&error)),
        }
    }
}
