//! Gathering small writes: those that follow each other in a file become patches together.
//!
//! A program that writes a file in pieces of 4 KiB changes a block, a pointer, a size and times
//! with each of them. A small write that follows the one before it is therefore kept as bytes. All
//! of these are written as one when they are many, when the engine is called for anything else (on
//! any file, so that operations take effect in the order of the calls), or after about a second.
//!
//! Gathered bytes are in memory only, as every write is that nothing has put onto stable storage.
//! Only writes that cannot fail later are gathered: there is space for them, and no patchgroup
//! orders them. The first write into a new file is one of these where no map need be read to find its
//! place. Only a failing device can still lose them; the file's `fsync` reports that.

use std::time::Duration;

use backstitch_layout::InodeNumber;
use backstitch_layout::operations;
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::options::now;
use crate::taken::Taken;
use crate::transfer::LONG_BYTES;
use crate::{Error, Result, under};

/// Bytes that are gathered at most: they still are in the processor's caches when they are written.
const MOST_BYTES: usize = 128 << 10;
/// The age at which the writer's next turn writes gathered bytes.
const MOST_TIME: Duration = Duration::from_millis(500);

impl Engine {
    /// Gathers a small write that follows the one before it. False where it has to be done at once.
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
            // This may release the lock for a while, so the conditions are checked again.
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
            // Gathered bytes in a slab that blocks have parts of move to a new one.
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

    /// Writes what was gathered. After this no write follows the last one.
    pub(crate) fn end_gathering(&self, core: &mut MutexGuard<'_, Core>) {
        if core.gathered.follows.is_some() {
            self.write_gathered(core);
            core.gathered.follows = None;
        }
    }

    /// Writes what was gathered long ago. For the writer, which makes room when memory is crowded,
    /// and so cannot wait for room.
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

    /// Writes what was gathered. Other threads may take the lock meanwhile; each of them writes the
    /// rest before its own operation.
    pub(crate) fn write_gathered(&self, core: &mut MutexGuard<'_, Core>) {
        self.write_gathered_with(core, |core| self.before_step(core).map(|()| true));
    }

    /// As [`write_gathered`](Self::write_gathered). `before` comes before each step; where it
    /// returns false, the rest is left for later.
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
            // The error is about these bytes, not about what others have written or gathered
            // meanwhile.
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
        // A slab that is lent stays in memory as long as one block has a part of it. So few bytes
        // are copied into their blocks, and a slab with much unused room is not lent: the bytes
        // move to a smaller one first.
        let is_long = taken.bytes().len() >= LONG_BYTES;
        let moved = (is_long && !taken.is_nearly_full()).then(|| {
            let block_bytes = self.store.block_bytes(self.volume);
            Taken::new(self.store.slabs(), block_bytes, start, taken.bytes(), 0)
        });
        let lent = moved.as_ref().or(is_long.then_some(&taken));
        // The write was made under no patchgroup, whatever groups this thread is under now.
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
        let left = taken.bytes().len() - written_bytes;
        let is_whole = left == 0;
        self.gathered.taken = match moved {
            // They do not move again. Few that are left need not move: they stay where they are, and
            // the slab with its room is there for the next ones.
            Some(moved) if left >= LONG_BYTES => Some(moved.after(written_bytes)),
            None if is_long && is_whole => None,
            _ => Some(taken.after(written_bytes)),
        };
        written.map(drop)
    }
}

/// Drops gathered bytes that can never be written. The file's `fsync` reports the error.
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
