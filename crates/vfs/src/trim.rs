//! Discarding free space (`fstrim`).
//!
//! A block may be discarded once the disk itself says that it is free: before that a crash would bring back a file that has it. So what
//! is free is noted, then everything is brought onto stable storage, and only what has been free all the time is discarded: the
//! layout crosses off what is allocated meanwhile. Each discard is done under the lock, so that nobody allocates a block, and
//! writes to it, between the look and the discard. A write to a block from before it was freed may still be on its way; what a free
//! block holds is nobody's concern.
//!
//! A copy that is being made needs the blocks of its moment, also where they are free by now: no discarding beside it.

use std::ops::Range;

use backstitch_layout::Error as LayoutError;
use parking_lot::MutexGuard;

use crate::Result;
use crate::engine::Engine;

/// Blocks are noted as free in portions of so many bytes of the device, for each of which everything is written once.
const PORTION_BYTES: u64 = 4 << 30;
/// The most that one discard covers: others wait for the lock meanwhile.
const DISCARD_BYTES: u64 = 64 << 20;

impl Engine {
    /// Discards what is free in a range of the device, as runs of `least_bytes` or more. Returns how much that was.
    ///
    /// # Errors
    /// `EROFS`, `EINVAL` where the range is empty or lies behind the end, `EBUSY` beside a snapshot, `EOPNOTSUPP` where the device or
    /// the layout cannot, `EIO`.
    pub fn trim(&self, range_bytes: Range<u64>, least_bytes: u64) -> Result<u64> {
        self.will_wait();
        if range_bytes.start >= range_bytes.end.min(self.device.size_bytes()) {
            return Err(LayoutError::Invalid.into());
        }
        let _one_at_a_time = self.trimming.lock();
        // What was removed is to be free first.
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

    /// Notes what is free in a portion of the range. Returns where it ends.
    fn note_free(&self, range: Range<u64>) -> Result<u64> {
        let portion = PORTION_BYTES / u64::from(self.block_bytes);
        let end = range.end.min(range.start.saturating_add(portion));
        self.run(None, |fs, _, _| {
            if fs.read_only_reason().is_some() {
                return Err(LayoutError::ReadOnly);
            }
            fs.forget_free();
            Ok(())
        })?;
        let mut first = range.start;
        while first < end {
            first = self.run(None, |fs, v, _| fs.note_free(v, first..end))?;
        }
        Ok(end)
    }

    /// Discards what was noted and is still free. Returns how much.
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
