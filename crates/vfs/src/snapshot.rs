//! A copy of the whole file system as it is at one moment, made while it is in use.
//!
//! The moment is when the copy begins, under the engine's lock. Blocks that are in memory and not
//! on the device then are noted: as shared buffers, not copies. Everything else is on the device,
//! and stays there until a batch overwrites it. So from that moment on, before a batch is
//! submitted, the blocks that it will overwrite are copied. A thread copies the rest meanwhile,
//! without free blocks and holes.
//!
//! All operations that have returned are in the copy, wholly; none that began later is. The copy is
//! therefore a state that a crash could have left if everything had been written just before: with
//! space marked as used that is not, files that were open without a name, counters that are off. A
//! mount of the copy recovers it.
//!
//! Only a batch that is about to be submitted waits for the copy, for as long as one piece takes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backstitch_device::{BlockDevice, Buffer, WriteRequest, check_range};
use backstitch_layout::FreeSpaceReader;
use backstitch_store::VolumeId;
use parking_lot::{Mutex, MutexGuard};

use crate::engine::{Core, Engine};
use crate::{Error, Result};

/// Blocks copied at a time: bounds how long a batch waits.
const PIECE_BLOCKS: u64 = 256;

/// A copy under way.
pub(crate) struct Snapshot {
    source: Arc<dyn BlockDevice>,
    out: Arc<dyn BlockDevice>,
    block_bytes: u32,
    progress: Mutex<Progress>,
    /// The bytes in `newer`.
    held_bytes: AtomicU64,
}

#[derive(Default)]
struct Progress {
    /// Blocks that were in memory only at the moment, and are not copied yet.
    newer: BTreeMap<u64, Buffer>,
    /// A bit for each block: whether it is in the copy, or was free.
    done: Vec<u64>,
    /// Why copying has ended early.
    failure: Option<Error>,
}

impl Progress {
    fn is_done(&self, block: u64) -> bool {
        self.done[(block / 64) as usize] & (1 << (block % 64)) != 0
    }

    fn set_done(&mut self, block: u64) {
        if let Some(word) = self.done.get_mut((block / 64) as usize) {
            *word |= 1 << (block % 64);
        }
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl Snapshot {
    fn new(
        source: Arc<dyn BlockDevice>,
        out: Arc<dyn BlockDevice>,
        block_bytes: u32,
        newer: BTreeMap<u64, Buffer>,
    ) -> Snapshot {
        let blocks = source.size_bytes().div_ceil(block_bytes.into());
        let held = newer.len() as u64 * u64::from(block_bytes);
        Snapshot {
            source,
            out,
            block_bytes,
            progress: Mutex::new(Progress {
                newer,
                done: vec![0; blocks.div_ceil(64) as usize],
                failure: None,
            }),
            held_bytes: AtomicU64::new(held),
        }
    }

    /// Bytes of memory that become free as they are copied.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Ends the copying: the copying thread gets this error.
    pub(crate) fn give_up(&self, why: Error) {
        let mut progress = self.progress.lock();
        progress.failure.get_or_insert(why);
        progress.newer.clear();
        self.held_bytes.store(0, Ordering::Relaxed);
    }

    /// Saves what a batch is about to overwrite. A copy that fails is given up; the batch is
    /// written all the same.
    pub(crate) fn before_write(&self, writes: &[(VolumeId, Vec<WriteRequest>)]) {
        for request in writes.iter().flat_map(|(_, requests)| requests) {
            let first = request.offset_bytes / u64::from(self.block_bytes);
            let end =
                (request.offset_bytes + request.len_bytes()).div_ceil(u64::from(self.block_bytes));
            let mut progress = self.progress.lock();
            if progress.failure.is_some() {
                return;
            }
            if let Err(error) = self.copy(&mut progress, first..end) {
                drop(progress);
                self.give_up(error);
                return;
            }
        }
    }

    /// Copies those blocks of a range that are not in the copy yet.
    fn copy(&self, progress: &mut MutexGuard<'_, Progress>, blocks: Range<u64>) -> Result<()> {
        let mut block = blocks.start;
        while block < blocks.end {
            if progress.is_done(block) {
                block += 1;
                continue;
            }
            if let Some(bytes) = progress.newer.remove(&block) {
                self.held_bytes
                    .fetch_sub(bytes.len() as u64, Ordering::Relaxed);
                self.put(block, &bytes)?;
                progress.set_done(block);
                block += 1;
                continue;
            }
            let wanted = |b: &u64| !progress.is_done(*b) && !progress.newer.contains_key(b);
            let end = (block..blocks.end)
                .find(|b| !wanted(b))
                .unwrap_or(blocks.end);
            self.copy_from_device(block..end)?;
            (block..end).for_each(|b| progress.set_done(b));
            block = end;
        }
        Ok(())
    }

    fn copy_from_device(&self, blocks: Range<u64>) -> Result<()> {
        let size = u64::from(self.block_bytes);
        let mut at = blocks.start * size;
        let end = (blocks.end * size).min(self.source.size_bytes());
        let mut buffer = Vec::new();
        while at < end {
            let len = (end - at).min(PIECE_BLOCKS * size);
            buffer.resize(len as usize, 0);
            self.source.read(at, &mut buffer)?;
            self.put(at / size, &buffer)?;
            at += len;
        }
        Ok(())
    }

    /// Writes whole blocks into the copy, leaving holes where they are zero.
    fn put(&self, first: u64, bytes: &[u8]) -> Result<()> {
        let size = self.block_bytes as usize;
        let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let mut at = 0;
        while at < bytes.len() {
            let rest = bytes[at..].chunks(size);
            let zeros: usize = rest.take_while(|b| is_zero(b)).map(<[u8]>::len).sum();
            at += zeros;
            let rest = bytes[at..].chunks(size);
            let len: usize = rest.take_while(|b| !is_zero(b)).map(<[u8]>::len).sum();
            if len > 0 {
                let offset_bytes = first * size as u64 + at as u64;
                self.out.write(offset_bytes, &bytes[at..at + len])?;
            }
            at += len;
        }
        Ok(())
    }

    /// Copies everything. `go_on` is told the part that is done, and ends the copying by returning
    /// false.
    fn run(
        self: &Arc<Self>,
        free_space: FreeSpaceReader,
        go_on: &mut dyn FnMut(f64) -> bool,
    ) -> Result<()> {
        // Free blocks come first, so that none is copied from then on. One that a batch has had
        // copied before does no harm.
        for free in free_space(&Frozen(self.clone()))? {
            let mut progress = self.progress.lock();
            let newer = progress.newer.range(free.clone());
            let held: Vec<u64> = newer.map(|(block, _)| *block).collect();
            for block in &held {
                progress.newer.remove(block);
            }
            let held_bytes = held.len() as u64 * u64::from(self.block_bytes);
            self.held_bytes.fetch_sub(held_bytes, Ordering::Relaxed);
            for block in free {
                progress.set_done(block);
            }
        }
        self.copy_newer()?;
        let (size, total) = (u64::from(self.block_bytes), self.source.size_bytes());
        let mut at = 0;
        while let Some(data) = self.source.next_data(at)? {
            let (mut block, end) = (data.start / size, data.end.div_ceil(size));
            while block < end {
                let piece = block..end.min(block + PIECE_BLOCKS);
                let mut progress = self.progress.lock();
                progress.check()?;
                self.copy(&mut progress, piece.clone())?;
                drop(progress);
                block = piece.end;
                if !go_on((block * size) as f64 / total as f64) {
                    return Err(Error::Snapshot(
                        "the command that asked for it has ended".to_owned(),
                    ));
                }
            }
            at = end * size;
        }
        // Everything is copied. Later batches save zeros of holes at most, as the copy has them.
        self.progress.lock().check()?;
        self.out.flush()?;
        Ok(())
    }

    /// Copies the blocks that memory holds for the copy.
    fn copy_newer(&self) -> Result<()> {
        loop {
            let mut progress = self.progress.lock();
            progress.check()?;
            let Some(first) = progress.newer.keys().next().copied() else {
                return Ok(());
            };
            let blocks: Vec<u64> = progress
                .newer
                .range(first..first + PIECE_BLOCKS)
                .map(|(block, _)| *block)
                .collect();
            for block in blocks {
                self.copy(&mut progress, block..block + 1)?;
            }
        }
    }
}

/// The file system as it was at the moment, for reading.
struct Frozen(Arc<Snapshot>);

impl BlockDevice for Frozen {
    fn size_bytes(&self) -> u64 {
        self.0.source.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.0.source.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> backstitch_device::Result<()> {
        check_range(
            &self.name(),
            self.size_bytes(),
            offset_bytes,
            buffer.len() as u64,
        )?;
        let size = u64::from(self.0.block_bytes);
        let mut done = 0;
        while done < buffer.len() {
            let at = offset_bytes + done as u64;
            let block = at / size;
            let len = ((size - at % size) as usize).min(buffer.len() - done);
            let part = &mut buffer[done..done + len];
            // The lock is held during the read: otherwise a batch could overwrite the block between
            // the look-up and the read.
            let progress = self.0.progress.lock();
            match progress.newer.get(&block) {
                Some(bytes) => part.copy_from_slice(&bytes[(at % size) as usize..][..len]),
                None if progress.is_done(block) => self.0.out.read(at, part)?,
                None => self.0.source.read(at, part)?,
            }
            done += len;
        }
        Ok(())
    }

    fn submit(&self, _batch: &[WriteRequest]) -> backstitch_device::Result<()> {
        Err(backstitch_device::DeviceError::ReadOnly {
            device: self.name(),
        })
    }

    fn flush(&self) -> backstitch_device::Result<()> {
        Ok(())
    }
}

impl Engine {
    /// Under a log, ends the running transaction. Until the lock is released, memory holds what all
    /// transactions together lead to. Returns a block for the copy that marks the log as empty;
    /// `None` without a log.
    fn between_transactions(
        &self,
        core: &mut MutexGuard<'_, Core>,
    ) -> Result<Option<(u64, Buffer)>> {
        if core.log_state().is_none() {
            return Ok(None);
        }
        self.commit(core)?;
        if !core.log_is_for_all() {
            // The log of an inner file system is copied as it is. Its replay leads to what is in
            // memory.
            return Ok(None);
        }
        match core.mechanism.log().map(|log| log.emptied()) {
            Some(Some(emptied)) => Ok(Some(emptied)),
            _ => {
                let why = "a mount with its journal on another device cannot be copied: the copy would need that journal too";
                Err(Error::Snapshot(why.to_owned()))
            }
        }
    }

    /// The size of the device.
    pub fn device_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    /// Copies the file system as it is at one moment after the call began to `out`, which holds
    /// nothing but zeros and is as large as the device. Other operations go on meanwhile. The copy
    /// is as after a crash; mounting and unmounting it makes it clean.
    ///
    /// `go_on` is told the part that is done, 0 to 1, now and then; where it returns false, the
    /// copying is given up.
    ///
    /// # Errors
    /// Where `out` is too small or fails, something cannot be read, another copy is under way, or
    /// the file system is unmounted.
    pub fn snapshot(
        &self,
        out: Arc<dyn BlockDevice>,
        go_on: &mut dyn FnMut(f64) -> bool,
    ) -> Result<()> {
        if out.size_bytes() < self.device.size_bytes() {
            let why = format!(
                "{}: {} bytes do not fit into {}",
                out.name(),
                self.device.size_bytes(),
                out.size_bytes()
            );
            return Err(Error::Snapshot(why));
        }
        let (snapshot, free_space) = {
            let mut core = self.core.lock();
            self.end_gathering(&mut core);
            let emptied = self.between_transactions(&mut core)?;
            let mut active = self.snapshot.lock();
            if core.unmounted {
                return Err(Error::Snapshot("it is being unmounted".to_owned()));
            }
            if active.is_some() {
                return Err(Error::Snapshot("another snapshot is running".to_owned()));
            }
            // This is the moment that the copy shows.
            let mut newer: BTreeMap<_, _> = core.store.dirty_blocks(core.volume).collect();
            newer.extend(emptied);
            let snapshot = Snapshot::new(self.device.clone(), out, self.block_bytes, newer);
            let snapshot = Arc::new(snapshot);
            *active = Some(snapshot.clone());
            (snapshot, core.fs.free_space())
        };
        let done = snapshot.run(free_space, go_on);
        *self.snapshot.lock() = None;
        // Batches that were put together before may still call it: now it does nothing.
        snapshot.give_up(Error::Snapshot("it has ended".to_owned()));
        done
    }
}
