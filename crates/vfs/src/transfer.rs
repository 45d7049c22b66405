//! Moving contents: reads, writes, and what is on stable storage afterwards.

use std::sync::atomic::Ordering;
use std::time::Duration;

use backstitch_device::{BlockDevice, Buffer, DeviceError};
use backstitch_layout::{InodeNumber, Piece, Seek};
use backstitch_ordering::{PatchId, VolumeId};
use backstitch_store::BlockClass;
use parking_lot::MutexGuard;

use crate::Result;
use crate::engine::{Core, Engine};

/// Bytes of one step of a write at most: bounds the time under the lock.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes of one step at least, however little memory there is.
const LEAST_STEP_BYTES: u64 = 64 << 10;
/// A step takes one part in this many of the bound on memory at most: all of it comes into memory
/// before the caller can be made to wait.
const STEP_PART: u64 = 16;
/// The length from which on a write goes into a slab that blocks can have parts of. Blocks of such
/// writes go to the disk around the host's page cache.
pub(crate) const LONG_BYTES: usize = 32 << 10;
/// How long to wait for other threads' reads before looking again.
const OTHERS_READ: Duration = Duration::from_micros(20);
/// The largest piece of `copy_range` at a time.
pub(crate) const COPY_BYTES: usize = 1 << 20;

/// What an [`fsync`](Engine::fsync) has to wait for.
#[derive(Debug)]
pub struct Unsynced(Vec<PatchId>);

/// Bytes of one step of a write. Where a step is atomic in a crash, it is not made shorter for lack
/// of memory.
pub fn step_bytes(memory_bytes: u64, scopes_are_atomic: bool) -> usize {
    let most = match scopes_are_atomic {
        true => STEP_BYTES,
        false => (memory_bytes / STEP_PART).clamp(LEAST_STEP_BYTES, STEP_BYTES),
    };
    most as usize
}

impl Engine {
    /// Reads from a file, appending to `into`: fewer bytes than asked only at its end.
    ///
    /// # Errors
    /// `EISDIR`, `EIO`.
    pub fn read(
        &self,
        inode: InodeNumber,
        offset_bytes: u64,
        len_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let start = into.len();
        into.resize(start + len_bytes, 0);
        let read = self.read_into(inode, offset_bytes, &mut into[start..]);
        into.truncate(start + *read.as_ref().unwrap_or(&0));
        read.map(drop)
    }

    /// Reads from a file into `buffer`. Returns how much: less than it holds only at the file's
    /// end. A buffer that lies at a multiple of 4096 spares long reads a detour through the host's
    /// page cache.
    ///
    /// # Errors
    /// `EISDIR`, `EIO`.
    pub fn read_into(
        &self,
        inode: InodeNumber,
        offset_bytes: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let mut pieces = Vec::new();
        loop {
            let epoch = self.run(None, |fs, v, _| {
                pieces.clear();
                fs.map(v, inode, offset_bytes, buffer.len(), &mut pieces)?;
                Ok(fs.free_epoch())
            })?;
            let (filled, from_device) = self.fill(&pieces, buffer)?;
            if !from_device || self.core.lock().fs.free_epoch() == epoch {
                return Ok(filled);
            }
            // Blocks were freed during the read, and may be another file's now: read again.
        }
    }

    /// Puts the pieces of a file into `buffer`: how many bytes they are, and whether any came from
    /// the device.
    fn fill(&self, pieces: &[Piece], buffer: &mut [u8]) -> Result<(usize, bool)> {
        let mut from_device = false;
        let mut at = 0;
        for piece in pieces {
            let (Piece::Hole { len_bytes }
            | Piece::Buffer { len_bytes, .. }
            | Piece::Device { len_bytes, .. }) = piece;
            let into = &mut buffer[at..at + len_bytes];
            match piece {
                Piece::Hole { .. } => into.fill(0),
                Piece::Buffer { data, start, .. } => {
                    into.copy_from_slice(&data[*start..start + len_bytes]);
                }
                Piece::Device { offset_bytes, .. } => {
                    self.will_wait();
                    self.device.read_contents(*offset_bytes, into)?;
                    self.count_read(*len_bytes);
                    from_device = true;
                }
            }
            at += len_bytes;
        }
        Ok((at, from_device))
    }

    /// The next data or hole.
    ///
    /// # Errors
    /// `ENXIO` where there is none.
    pub fn seek(&self, inode: InodeNumber, offset_bytes: u64, what: Seek) -> Result<u64> {
        self.run(None, |fs, v, _| fs.seek(v, inode, offset_bytes, what))
    }

    /// Puts a file (or a directory's names) onto stable storage, and every name of it that is not
    /// there yet: what it depends on, nothing else. `data_only` leaves out what only changes times.
    ///
    /// # Errors
    /// `EIO` where the device failed and something of the file is not there, each time: it never
    /// will be.
    pub fn fsync(&self, inode: InodeNumber, data_only: bool) -> Result<()> {
        self.begin_fsync(inode, data_only)?
            .map_or(Ok(()), |rest| self.end_fsync(rest))
    }

    /// The part of [`fsync`](Self::fsync) that waits for nothing; `None` where that is all.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn begin_fsync(&self, inode: InodeNumber, data_only: bool) -> Result<Option<Unsynced>> {
        let mut targets = Vec::new();
        let mut core = self.core.lock();
        self.end_gathering(&mut core);
        core.gathered.take_loss(inode)?;
        self.run_in(&mut core, None, |fs, v, _| {
            targets.clear();
            fs.flush_targets(v, inode, data_only, &mut targets);
            Ok(())
        })?;
        Ok((!targets.is_empty()).then_some(Unsynced(targets)))
    }

    /// The rest of an [`fsync`](Self::fsync).
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn end_fsync(&self, rest: Unsynced) -> Result<()> {
        let mut core = self.core.lock();
        self.make_stable(&mut core, rest.0)
    }

    /// Puts onto stable storage everything that was changed before the call, and does the deferred
    /// work that follows from it.
    ///
    /// # Errors
    /// `EIO` where the device failed.
    pub fn sync(&self) -> Result<()> {
        /// One round for changes, one for the frees that they allow, one for what these change.
        const ROUNDS: usize = 3;
        let mut core = self.core.lock();
        self.end_gathering(&mut core);
        if let Some(observer) = self.observer.get() {
            observer.sync_asked();
        }
        core.fs.retry_deferred();
        // Files that were removed before they ever reached the disk need not get there.
        self.try_deferred_work(&mut core);
        let committed = self.commit(&mut core)?;
        if core.log_is_for_all() && (committed || core.log_state().is_some()) {
            let mut targets: Vec<PatchId> = core.log_state().map(|s| s.last).into_iter().collect();
            core.store.uncommitted_contents(&mut targets);
            return self.make_stable(&mut core, targets);
        }
        for _ in 0..ROUNDS {
            if !core.store.is_dirty() && core.fs.deferred().pending == 0 {
                break;
            }
            let mut targets = Vec::new();
            core.store.uncommitted(&mut targets);
            self.make_stable(&mut core, targets)?;
            self.try_deferred_work(&mut core);
        }
        Ok(())
    }

    /// Does deferred work as far as possible. An error does not end the sync: space that cannot be
    /// freed, because a block cannot be read, must not keep other changes from the disk.
    fn try_deferred_work(&self, core: &mut MutexGuard<'_, Core>) {
        if core.latched.is_none()
            && let Err(error) = self.do_deferred_work(core)
        {
            tracing::warn!("what was removed cannot be freed yet: {error}");
        }
    }

    fn count_read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Reads the blocks that a step missed, without the lock. Fails only if none could be read:
    /// some of the wanted blocks may be another operation's, whose failure is not this one's. When
    /// the step runs again, it asks for what it still needs.
    pub(crate) fn read_wanted(
        &self,
        core: &mut MutexGuard<'_, Core>,
    ) -> std::result::Result<(), DeviceError> {
        let wanted = core.store.take_wanted();
        let soon = core.store.take_wanted_soon();
        let volume = core.volume;
        if wanted.is_empty() {
            self.will_wait();
            // Another thread is reading the blocks.
            MutexGuard::unlocked(core, || std::thread::sleep(OTHERS_READ));
            return Ok(());
        }
        let read = MutexGuard::unlocked(core, || {
            let at_once = read_at_once(&*self.device, self.block_bytes, &wanted);
            for (_, first, count) in soon {
                let bytes = u64::from(self.block_bytes);
                self.device
                    .will_read(first.saturating_mul(bytes), count.saturating_mul(bytes));
            }
            if let Some(read) = at_once {
                return Ok((read, Vec::new()));
            }
            self.will_wait();
            read_blocks(&*self.device, self.block_bytes, &wanted)
        });
        let (read, unreadable) = read.inspect_err(|_| core.store.abandon(&wanted))?;
        core.store.abandon(&unreadable);
        self.count_read(read.len() * self.block_bytes as usize);
        for (block, data) in read {
            core.store.insert(volume, block, BlockClass::Metadata, data);
        }
        Ok(())
    }
}

/// Reads a few blocks that the host has in memory; `None` where it has not, or there are more. No
/// other thread need take over the requests meanwhile: two changes of thread would take longer.
fn read_at_once(
    device: &dyn BlockDevice,
    block_bytes: u32,
    wanted: &[(VolumeId, u64)],
) -> Option<Vec<(u64, Buffer)>> {
    const FEW: usize = 8;
    let mut buffer = vec![0; block_bytes as usize];
    let mut read = |block: u64| {
        let at = block.checked_mul(u64::from(block_bytes))?;
        let there = device.read_at_once(at, &mut buffer);
        there.then(|| (block, Buffer::from(&buffer[..])))
    };
    let wanted = (wanted.len() <= FEW).then_some(wanted)?;
    wanted.iter().map(|(_, block)| read(*block)).collect()
}

/// Blocks as they were read, and those that could not be.
type ReadBlocks = (Vec<(u64, Buffer)>, Vec<(VolumeId, u64)>);

/// Reads blocks, adjacent ones in one request; where that fails, each for itself.
///
/// # Errors
/// The device's, where not one block could be read.
pub(crate) fn read_blocks(
    device: &dyn BlockDevice,
    block_bytes: u32,
    wanted: &[(VolumeId, u64)],
) -> std::result::Result<ReadBlocks, DeviceError> {
    const RUN_BLOCKS: usize = 256;
    let mut found = Vec::with_capacity(wanted.len());
    let mut unreadable = Vec::new();
    let mut failure = None;
    let mut rest = wanted;
    let mut buffer = Vec::new();
    while let Some((_, first)) = rest.first() {
        let run = rest
            .iter()
            .take(RUN_BLOCKS)
            .enumerate()
            .take_while(|(i, (_, block))| *block == first + *i as u64)
            .count();
        buffer.clear();
        buffer.resize(run * block_bytes as usize, 0);
        let whole = device.read(first.saturating_mul(u64::from(block_bytes)), &mut buffer);
        for (wanted, data) in rest
            .iter()
            .zip(buffer.chunks_exact_mut(block_bytes as usize))
        {
            let read = match &whole {
                Ok(()) => Ok(()),
                Err(error) if run == 1 => Err(error.clone()),
                Err(_) => device.read(wanted.1.saturating_mul(u64::from(block_bytes)), data),
            };
            match read {
                Ok(()) => found.push((wanted.1, Buffer::from(&*data))),
                Err(error) => {
                    unreadable.push(*wanted);
                    failure = Some(error);
                }
            }
        }
        rest = &rest[run..];
    }
    match failure {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok((found, unreadable)),
    }
}
