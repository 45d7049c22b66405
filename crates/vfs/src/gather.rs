//! Gathering small writes: those that follow each other in a file become patches together.
//!
//! A program that writes a file in pieces of 4 KiB would have a block, a pointer, a size and times changed for each of them. Where
//! nothing else is asked for between two writes, the second one need not be done before the third: it is kept as bytes, and all of
//! them are written as one when they are many, when anything else is asked for (of whatever file: so operations take effect in the order
//! in which they were asked for), or after half a second.
//!
//! What is gathered is in memory only, as every write is that nobody has put onto stable storage. Only what can be done whatever comes is
//! gathered: there is room for it, nobody orders it. What is left is a device that fails: the file's
//! `fsync` tells of that.

use std::time::Duration;

use backstitch_layout::{InodeNumber, Timestamp};
use backstitch_ordering::Operation;
use parking_lot::MutexGuard;
use rustc_hash::FxHashMap;

use crate::engine::{Core, Engine};
use crate::options::now;
use crate::{Error, Result, groups};

/// A write of so many bytes is worth a step of its own.
const LARGE_BYTES: usize = 32 << 10;
/// So much is gathered before it is written: its copy stays in the processor's caches.
const MOST_BYTES: usize = 128 << 10;
/// How long it stays gathered at most, give or take the writer's nap.
const MOST_TIME: Duration = Duration::from_millis(500);

/// What was written and is not yet in any block.
#[derive(Default)]
pub(crate) struct Gathered {
    /// The file, and where in it a write has to begin to follow the one before.
    follows: Option<(InodeNumber, u64)>,
    /// What has been written last.
    bytes: Vec<u8>,
    /// When the first of it came, by the engine's clock, and when the last, by the file system's.
    since: Duration,
    last: Timestamp,
    /// Files that lost what was gathered of them, and why.
    lost: FxHashMap<InodeNumber, Error>,
}

impl Gathered {
    /// Whether some of it belongs to this file.
    pub(crate) fn is_of(&self, inode: InodeNumber) -> bool {
        !self.bytes.is_empty() && self.follows.is_some_and(|(of, _)| of == inode)
    }

    /// A write was done at once: what follows it may be gathered.
    pub(crate) fn begin_after(&mut self, inode: InodeNumber, end_bytes: u64) {
        self.follows = Some((inode, end_bytes));
    }

    /// So much has been taken into memory.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The number is a new file's.
    pub(crate) fn forget_loss(&mut self, inode: InodeNumber) {
        if !self.lost.is_empty() {
            self.lost.remove(&inode);
        }
    }

    /// What became of what was gathered of a file: told once.
    pub(crate) fn take_loss(&mut self, inode: InodeNumber) -> Result<()> {
        match self.lost.is_empty() {
            true => Ok(()),
            false => self.lost.remove(&inode).map_or(Ok(()), Err),
        }
    }
}

impl Engine {
    /// Takes a small write that follows the one before it. False where it has to be done at once.
    pub(crate) fn gather(
        &self,
        core: &mut MutexGuard<'_, Core>,
        inode: InodeNumber,
        offset_bytes: u64,
        data: &[u8],
    ) -> bool {
        let most = MOST_BYTES.min(self.write_step_bytes);
        loop {
            let gathered = &core.gathered;
            let len = gathered.bytes.len() + data.len();
            let end_bytes = offset_bytes.saturating_add(data.len() as u64);
            let follows = gathered.follows == Some((inode, offset_bytes));
            if !follows
                || data.len() >= LARGE_BYTES.min(most)
                || core.latched.is_some()
                || core.unmounted
                || groups::under().is_some()
                || !core.fs.is_sure_to_fit(inode, end_bytes, len as u64)
            {
                return false;
            }
            if len <= most {
                break;
            }
            // The lock may be given up meanwhile.
            self.write_gathered(core);
        }
        let clock = self.clock_of_step();
        let gathered = &mut core.gathered;
        if gathered.bytes.is_empty() {
            gathered.bytes.reserve(most);
            gathered.since = clock;
        }
        gathered.bytes.extend_from_slice(data);
        gathered.follows = Some((inode, offset_bytes + data.len() as u64));
        gathered.last = now();
        core.operations += 1;
        true
    }

    /// Writes what was gathered; what is written next follows nothing.
    pub(crate) fn end_gathering(&self, core: &mut MutexGuard<'_, Core>) {
        if core.gathered.follows.is_some() {
            self.write_gathered(core);
            core.gathered.follows = None;
        }
    }

    /// Writes what was gathered long ago: for the writer, which is who makes room where memory is crowded, and does not wait for it.
    pub(crate) fn write_gathered_long_ago(&self, core: &mut MutexGuard<'_, Core>) {
        let waited = self.clock().saturating_sub(core.gathered.since);
        if !core.gathered.bytes.is_empty() && waited >= MOST_TIME && !core.store.is_crowded() {
            self.write_gathered(core);
        }
    }

    /// Writes what was gathered. Other threads may take the lock meanwhile: whoever wants to do something does the rest first.
    pub(crate) fn write_gathered(&self, core: &mut MutexGuard<'_, Core>) {
        let mut wait_for = Vec::new();
        let mut asked_again = 0;
        while !core.gathered.bytes.is_empty() {
            let inode = core.gathered.follows.map(|(inode, _)| inode);
            let tried = self.before_step(core).and_then(|()| {
                match core.write_some_gathered(self.clock_of_step(), &mut wait_for) {
                    Ok(()) => self.after_step(core, &mut wait_for),
                    Err(error) => {
                        self.before_next_try(core, error, &mut wait_for, &mut asked_again)
                    }
                }
            });
            if let (Err(error), Some(inode)) = (tried, inode) {
                lose_gathered(core, inode, error);
            }
        }
    }
}

impl Core {
    /// One step of writing what was gathered.
    fn write_some_gathered(
        &mut self,
        clock: Duration,
        wait_for: &mut Vec<backstitch_ordering::PatchId>,
    ) -> backstitch_layout::Result<()> {
        let Some((inode, end_bytes)) = self.gathered.follows else {
            return Ok(());
        };
        let mut bytes = std::mem::take(&mut self.gathered.bytes);
        let start = end_bytes - bytes.len() as u64;
        let last = self.gathered.last;
        // It is of who wrote it, under no patchgroup, not of who is here now.
        let written = groups::without(|| {
            self.step(
                Some(Operation::Contents),
                clock,
                last,
                wait_for,
                &mut |fs, v, now| fs.write(v, inode, start, &bytes, now),
            )
        });
        if let Ok(written) = written {
            bytes.drain(..written);
        }
        self.gathered.bytes = bytes;
        written.map(drop)
    }
}

/// It can never be written. The file's `fsync` tells of it.
fn lose_gathered(core: &mut Core, inode: InodeNumber, error: Error) {
    // A file that somebody else has begun to write meanwhile is no longer the one that failed.
    if !core.gathered.is_of(inode) {
        return;
    }
    let error = match &core.latched {
        Some(latched) => Error::Latched(latched.clone()),
        None => error,
    };
    let bytes = core.gathered.bytes.len();
    tracing::error!("the last {bytes} bytes written to inode {inode} are lost: {error}");
    core.gathered.bytes.clear();
    core.gathered.follows = None;
    core.gathered.lost.insert(inode, error);
}
