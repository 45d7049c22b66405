//! Discarding free space: all of it (`fstrim`), or what is freed while the file system is in use
//! (`discard`).
//!
//! A block may be discarded once the disk itself says that it is free: before that a crash would
//! bring back a file that has it. So free blocks are noted, then everything is brought onto stable
//! storage, and only blocks that have been free all the time are discarded: the layout crosses off
//! blocks that are allocated meanwhile. Each discard is done under the lock, so that no block is
//! allocated and written between the check and the discard. A write from before a block was freed
//! may still be on its way; that does no harm, since nothing reads a free block.
//!
//! While a snapshot is being made nothing is discarded: it needs the blocks of its moment, even if
//! they are free by now.

use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use backstitch_layout::Error as LayoutError;
use parking_lot::MutexGuard;

use crate::engine::Engine;
use crate::{Error, Result};

/// Bytes of the device whose free blocks are noted at a time. For each such portion everything is
/// written once.
const PORTION_BYTES: u64 = 4 << 30;
/// Bytes of one discard at most: other operations wait for the lock meanwhile.
const DISCARD_BYTES: u64 = 64 << 20;

/// The shortest run that is discarded after it was freed, in bytes: the file of an image gets a
/// hole only for whole pages.
const LEAST_FREED_BYTES: u64 = 4096;
/// How long the thread sleeps at a time while it holds the engine.
const NAP: Duration = Duration::from_millis(500);

/// Starts the thread that discards what was freed, every `rest`. That is as long as a change may
/// stay in memory, so most of what must be on the disk first is there. The thread holds the engine
/// only for a nap at a time, so that dropping the engine ends it.
pub(crate) fn spawn(engine: &Arc<Engine>, rest: Duration) -> Option<JoinHandle<()>> {
    let engine = Arc::downgrade(engine);
    let mut rested = Duration::ZERO;
    std::thread::Builder::new()
        .name("backstitch-discard".into())
        .spawn(move || while turn(&engine, rest, &mut rested) {})
        .inspect_err(|error| tracing::warn!("nothing is discarded while in use: {error}"))
        .ok()
}

/// One turn of the thread; false when it is to end.
fn turn(engine: &Weak<Engine>, rest: Duration, rested: &mut Duration) -> bool {
    let Some(engine) = engine.upgrade() else {
        return false;
    };
    if *rested < rest {
        let mut core = engine.core.lock();
        if core.stopping || core.latched.is_some() {
            return false;
        }
        let nap = NAP.min(rest - *rested);
        engine.wake_discarder.wait_for(&mut core, nap);
        *rested += nap;
        return !core.stopping;
    }
    *rested = Duration::ZERO;
    match engine.discard_freed() {
        Ok(_) => true,
        Err(error) => {
            let is_over = matches!(
                error,
                Error::Latched(_)
                    | Error::Layout(LayoutError::NotSupported | LayoutError::ReadOnly)
            );
            match &error {
                Error::Layout(LayoutError::NotSupported) => {
                    tracing::warn!("the device cannot discard: nothing is discarded");
                    engine.core.lock().fs.remember_freed(false);
                }
                _ => tracing::debug!("not discarded: {error}"),
            }
            !is_over
        }
    }
}

impl Engine {
    /// Discards free runs of `least_bytes` or more in a range of the device. Returns the number of
    /// bytes.
    ///
    /// # Errors
    /// `EROFS`, `EINVAL` where the range is empty or lies behind the end, `EBUSY` beside a
    /// snapshot, `EOPNOTSUPP` where the device or the layout cannot, `EIO`.
    pub fn trim(&self, range_bytes: Range<u64>, least_bytes: u64) -> Result<u64> {
        self.will_wait();
        if range_bytes.start >= range_bytes.end.min(self.device.size_bytes()) {
            return Err(LayoutError::Invalid.into());
        }
        let _one_at_a_time = self.trimming.lock();
        // First frees what was removed.
        self.sync()?;
        self.drain(&mut self.core.lock())?;
        let bytes = u64::from(self.block_bytes);
        let end = range_bytes.end.min(self.device.size_bytes()) / bytes;
        let mut first = range_bytes.start.div_ceil(bytes);
        let mut discarded = 0;
        while first < end {
            first = self.note_free(first..end)?;
            self.sync()?;
            discarded += self.discard_noted(least_bytes.div_ceil(bytes).max(1))?;
        }
        Ok(discarded)
    }

    /// Discards what was freed since the last call and is still free, once the disk says so.
    /// Returns the number of bytes.
    pub(crate) fn discard_freed(&self) -> Result<u64> {
        let _one_at_a_time = self.trimming.lock();
        // Nothing is discarded during a snapshot; what is freed meanwhile is discarded later.
        if self.snapshot.lock().is_some() {
            return Ok(0);
        }
        let freed = self.core.lock().fs.take_freed();
        if freed.is_empty() {
            return Ok(0);
        }
        self.begin_noting()?;
        for run in freed {
            self.note_run(run)?;
        }
        self.sync()?;
        let least_blocks = LEAST_FREED_BYTES.div_ceil(u64::from(self.block_bytes));
        self.discard_noted(least_blocks)
    }

    /// Discards what was freed before an unmount, if the mount discards. Errors do no harm: the
    /// blocks stay free.
    pub(crate) fn discard_last(&self) {
        if self.discarder.lock().is_none() {
            return;
        }
        let freed = self.drain(&mut self.core.lock());
        if let Err(error) = freed.and_then(|()| self.discard_freed()) {
            tracing::debug!("not discarded: {error}");
        }
    }

    /// Notes the free blocks in a portion of the range. Returns where the portion ends.
    fn note_free(&self, range: Range<u64>) -> Result<u64> {
        let portion = PORTION_BYTES / u64::from(self.block_bytes);
        let end = range.end.min(range.start.saturating_add(portion));
        self.begin_noting()?;
        self.note_run(range.start..end)?;
        Ok(end)
    }

    fn begin_noting(&self) -> Result<()> {
        self.run(None, |fs, _, _| {
            if fs.read_only_reason().is_some() {
                return Err(LayoutError::ReadOnly.into());
            }
            fs.forget_free();
            Ok(())
        })
    }

    fn note_run(&self, run: Range<u64>) -> Result<()> {
        let mut first = run.start;
        while first < run.end {
            first = self.run(None, |fs, v, _| fs.note_free(v, first..run.end))?;
        }
        Ok(())
    }

    /// Discards blocks that were noted and are still free. Returns the number of bytes.
    fn discard_noted(&self, least_blocks: u64) -> Result<u64> {
        let bytes = u64::from(self.block_bytes);
        let most = (DISCARD_BYTES / bytes).max(least_blocks);
        let mut discarded = 0;
        let mut core = self.core.lock();
        while let Some(run) = core.fs.take_free(most) {
            if run.end - run.start < least_blocks {
                continue;
            }
            if self.snapshot.lock().is_some() {
                return Err(LayoutError::Busy.into());
            }
            if core.latched.is_some() || core.unmounted {
                return Err(LayoutError::ReadOnly.into());
            }
            let len = (run.end - run.start) * bytes;
            if !self.device.discard(run.start * bytes, len)? {
                return Err(LayoutError::NotSupported.into());
            }
            discarded += len;
            MutexGuard::bump(&mut core);
        }
        Ok(discarded)
    }
}
