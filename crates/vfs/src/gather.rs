//! Gathering small writes: those that follow each other in a file become patches together.
//!
//! A program that writes a file in pieces of 4 KiB would have a block, a pointer, a size and times
//! changed for each of them. Where nothing else is asked for between two writes, the second one
//! need not be done before the third: it is kept as bytes, and all of them are written as one when
//! they are many, when anything else is asked for (of whatever file: so operations take effect in
//! the order in which they were asked for), or after about a second.
//!
//! What is gathered is in memory only, as every write is that nobody has put onto stable storage.
//! Only what can be done whatever comes is gathered: there is room for it, nobody orders it. What
//! is left is a device that fails: the file's `fsync` tells of that.

use std::time::Duration;

use backstitch_layout::InodeNumber;
use backstitch_layout::operations;
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::options::now;
use crate::taken::Taken;
use crate::transfer::LONG_BYTES;
use crate::{Error, Result, under};

/// Bytes that are gathered before they are written: they stay in the processor's caches until then.
const MOST_BYTES: usize = 128 << 10;
/// How long it stays gathered at most, until the writer's next turn.
const MOST_TIME: Duration = Duration::from_millis(500);

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
            let len = gathered.len() + data.len();
            let end_bytes = offset_bytes.saturating_add(data.len() as u64);
            let follows = gathered.follows == Some((inode, offset_bytes));
            if !follows
                || data.len() >= LONG_BYTES.min(most)
                || core.latched.is_some()
                || core.unmounted
                || under::under().is_some()
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
        if gathered.len() == 0 {
            gathered.since = clock;
            let kept = gathered.taken.take();
            gathered.taken = kept.and_then(|t| t.emptied(self.block_bytes, offset_bytes, most));
        }
        if !(gathered.taken.as_mut()).is_some_and(|taken| taken.append(data)) {
            // Some may be left of what blocks have parts of.
            let bytes = [gathered.bytes(), data].concat();
            let start = offset_bytes + data.len() as u64 - bytes.len() as u64;
            let taken = Taken::new(&self.slabs, self.block_bytes, start, &bytes, most);
            gathered.taken = Some(taken);
        }
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

    /// Writes what was gathered long ago: for the writer, which is who makes room where memory is
    /// crowded, and cannot wait for it.
    pub(crate) fn write_gathered_long_ago(&self, core: &mut MutexGuard<'_, Core>) {
        let waited = self.clock().saturating_sub(core.gathered.since);
        if core.gathered.len() == 0 || waited < MOST_TIME {
            return;
        }
        self.write_gathered_with(core, |core| {
            self.note_held(core);
            if core.store.is_crowded() {
                return Ok(false);
            }
            self.make_room(core)?;
            Ok(!core.store.is_crowded())
        });
    }

    /// Writes what was gathered. Other threads may take the lock meanwhile: one that wants to do
    /// something writes the rest first.
    pub(crate) fn write_gathered(&self, core: &mut MutexGuard<'_, Core>) {
        self.write_gathered_with(core, |core| self.before_step(core).map(|()| true));
    }

    /// As [`write_gathered`](Self::write_gathered), with what comes before each step: false where
    /// it is to be left for later.
    fn write_gathered_with(
        &self,
        core: &mut MutexGuard<'_, Core>,
        mut before: impl FnMut(&mut MutexGuard<'_, Core>) -> Result<bool>,
    ) {
        let mut wait_for = Vec::new();
        let mut asked_again = 0;
        while core.gathered.len() > 0 {
            let place = core.gathered.place();
            let tried = match before(core) {
                Ok(true) => match core.write_some_gathered(self.clock_of_step(), &mut wait_for) {
                    Ok(()) => self.after_step(core, &mut wait_for),
                    Err(stop) => self.before_next_try(core, stop, &mut wait_for, &mut asked_again),
                },
                Ok(false) => return,
                Err(error) => Err(error),
            };
            // What others have written or gathered meanwhile is not what failed.
            if let Err(error) = tried
                && core.gathered.place() == place
            {
                lose_gathered(core, error);
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
    ) -> backstitch_layout::Step<()> {
        let place = self.gathered.place();
        let (Some((inode, start)), Some(taken)) = (place, self.gathered.taken.take()) else {
            return Ok(());
        };
        let last = self.gathered.last;
        // Of a few blocks the slab would be in memory for long, and used again for nobody; room
        // that is left would be there as long.
        let is_long = taken.bytes().len() >= LONG_BYTES;
        let moved = (is_long && !taken.is_nearly_full()).then(|| {
            let block_bytes = self.store.block_bytes(self.volume);
            Taken::new(self.store.slabs(), block_bytes, start, taken.bytes(), 0)
        });
        let lent = moved.as_ref().or(is_long.then_some(&taken));
        // It is of who wrote it, under no patchgroup, not of who is here now.
        let written = under::without(|| {
            self.step(
                Some(operations::write(inode, start, taken.bytes())),
                clock,
                last,
                wait_for,
                &mut |fs, v, now| match lent {
                    Some(lent) => lent.lend(v, |v, bytes| fs.write(v, inode, start, bytes, now)),
                    None => fs.write(v, inode, start, taken.bytes(), now),
                },
            )
        });
        let written_bytes = *written.as_ref().unwrap_or(&0);
        self.note_written(inode, start, written_bytes);
        let is_kept = !is_long || moved.is_some();
        let rest = taken.after(written_bytes);
        self.gathered.taken = (is_kept || !rest.bytes().is_empty()).then_some(rest);
        written.map(drop)
    }
}

/// It can never be written. The file's `fsync` tells of it.
fn lose_gathered(core: &mut Core, error: Error) {
    let error = match &core.latched {
        Some(latched) => Error::Latched(latched.clone()),
        None => error,
    };
    let lost_bytes = core.gathered.len();
    core.gathered.taken = None;
    if let Some((inode, _)) = core.gathered.follows.take() {
        tracing::error!(
            "the last {} bytes written to inode {inode} are lost: {error}",
            lost_bytes
        );
        core.gathered.lost.insert(inode, error);
    }
}
