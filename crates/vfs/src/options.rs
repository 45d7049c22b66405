//! How a file system is mounted, and what the mount found.

use std::time::Duration;

use backstitch_layout::Timestamp;
use backstitch_mechanisms::{Ordering, usual_for};
use backstitch_ordering::Promises;
use backstitch_store::{Limits, Optimisations};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::{Error, Result};

/// The least bound on memory: an operation needs several blocks at once.
pub const LEAST_CACHE_BYTES: u64 = 1 << 20;
/// Bytes of the bound on memory for each patch that may be alive. A patch takes less, but a sync
/// writes all of them at once.
const BYTES_PER_PATCH: u64 = 512;
/// Patches that may be alive however little memory there is.
const LEAST_PATCHES: u64 = 4096;

/// How a file system is to be mounted.
#[derive(Clone, Debug, PartialEq)]
pub struct MountOptions {
    /// Change nothing.
    pub read_only: bool,
    /// The bound on memory: buffers, dependencies and deferred work; [`LEAST_CACHE_BYTES`] where
    /// less is asked for.
    pub cache_bytes: u64,
    /// Bytes that may wait to be written before further writers wait, if that is more than half of
    /// `cache_bytes`; memory may then take as much more.
    pub dirty_bytes: u64,
    /// Bytes that changes (patches, undo data) may hold before they take the room of blocks, if
    /// that is more than an eighth of `cache_bytes`; memory may then take as much more.
    pub changes_bytes: u64,
    /// How long a change may stay in memory only.
    pub expire_seconds: f64,
    /// The consistency mechanism.
    pub ordering: Ordering,
    /// How long a change may stay in a journal's running transaction, in seconds.
    pub commit_seconds: f64,
    /// Which of the patch engine's optimisations are on. All are, except to measure what they are
    /// worth.
    pub optimisations: Optimisations,
    /// The time of the mount, for the superblock.
    pub mount_time: Timestamp,
    /// Whether a file system that has a journal is written without it. After a replay the journal
    /// must be empty.
    pub without_journal: bool,
    /// The unit that the device writes wholly or not at all, if it is less than a block: order is
    /// then kept between such units. A power of two from 512 on. `None`: the block. It is the
    /// block, too, under mechanisms that need no order within blocks.
    pub atomic_bytes: Option<u32>,
    /// Discard what is freed while the file system is in use, once the disk itself says that it is
    /// free.
    pub discard: bool,
    /// How long an unmount goes on reclaiming what a crash left, in seconds. After that the image
    /// stays as after a crash, and the next mount goes on.
    pub reclaim_wait_seconds: f64,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            cache_bytes: 256 << 20,
            dirty_bytes: 0,
            changes_bytes: 0,
            expire_seconds: 30.0,
            ordering: usual_for(false),
            commit_seconds: 5.0,
            optimisations: Optimisations::BOTH,
            mount_time: now(),
            without_journal: false,
            atomic_bytes: None,
            discard: false,
            reclaim_wait_seconds: 20.0,
        }
    }
}

impl MountOptions {
    /// The store's bounds on memory and time.
    pub fn limits(&self) -> Limits {
        Limits {
            memory_bytes: self.cache_bytes.max(LEAST_CACHE_BYTES),
            dirty_bytes: self.dirty_bytes,
            changes_bytes: self.changes_bytes,
            patches: (self.cache_bytes / BYTES_PER_PATCH).max(LEAST_PATCHES),
            expire: seconds(self.expire_seconds),
            ..Limits::default()
        }
    }

    /// The unit that is taken to reach the disk wholly or not at all, under a mechanism with these
    /// promises: the block, unless the options state another one.
    ///
    /// # Errors
    /// [`Error::AtomicUnit`] where the stated unit is impossible.
    pub fn unit_bytes(&self, promises: Promises, block_bytes: u32) -> Result<u32> {
        let needs_units = promises.keeps_order_in_place();
        match self.atomic_bytes.filter(|_| needs_units) {
            Some(bytes) if bytes < 512 || bytes > block_bytes || !bytes.is_power_of_two() => {
                Err(Error::AtomicUnit { bytes, block_bytes })
            }
            bytes => Ok(bytes.unwrap_or(block_bytes)),
        }
    }
}

/// A time that an option states, cut to what a duration can hold.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 1e9))
}

/// What the mount found, and did about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecoveryReport {
    /// Whether a crash had left the image.
    pub needed: bool,
    /// From the start of the mount to a usable file system.
    pub seconds: f64,
    /// What was done, in words.
    pub actions: Vec<String>,
}

/// The wall clock's time as of the kernel's last tick. The kernel's own file systems use it too; it
/// is much cheaper than the exact time.
pub fn now() -> Timestamp {
    let time = read_clock(ClockId::CLOCK_REALTIME_COARSE);
    Timestamp {
        seconds: time.tv_sec(),
        nanoseconds: time.tv_nsec() as u32,
    }
}

/// Reads a clock that every Linux has. It goes through libc: other ways fail under valgrind.
pub(crate) fn read_clock(clock: ClockId) -> TimeSpec {
    clock_gettime(clock).unwrap_or(TimeSpec::new(0, 0))
}
