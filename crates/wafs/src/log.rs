//! Writing: append, sync, checkpoint, mount and unmount.

use crate::format::{
    BLOCK_BYTES, Circle, IS_CLEAN, LEAST_LOG_BYTES, LOG_OFFSET_BYTES, MAGIC, OF_FILE_SYSTEM,
    OF_PROGRAMS, RecordHeader, Superblock, VERSION, longest_payload, record_bytes,
};
use crate::memory::{Chunk, Memory};
use crate::read::{Log, Place, Records, check_range, superblock};
use crate::rules::{Rule, holds};
use crate::{Lsn, Result, WafsError};
use backstitch_device::BlockDevice;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// Number of full chunks at which the caller that filled the last one writes all of them.
const CHUNKS_TO_WRITE: usize = 8;
/// Number of full chunks at which every caller that appends waits until some are written.
const MOST_CHUNKS: usize = 32;

/// A payload of this length is written from where it is, and not copied first.
const LONG_BYTES: u64 = 128 << 10;

/// Says what time it is: nanoseconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The host's clock.
pub fn host_clock() -> Clock {
    Arc::new(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_nanos() as u64)
    })
}

/// What a mount found behind the place that the superblock names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The log was not unmounted.
    pub was_in_use: bool,
    /// Records that were found.
    pub records: u64,
    /// Their length.
    pub bytes: u64,
}

/// What a log did since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Records that were appended.
    pub records: u64,
    /// Their length, with headers and padding.
    pub appended_bytes: u64,
    /// Bytes that were handed to the device for them.
    pub written_bytes: u64,
    /// Write requests for them.
    pub writes: u64,
    /// Flushes of the device, those for superblocks too.
    pub flushes: u64,
    /// Checkpoints that were taken.
    pub checkpoints: u64,
    /// How many times the log turned.
    pub turns: u64,
    /// How many times an append waited for the device.
    pub waits: u64,
}

/// A log that is mounted for writing. Any number of threads may use it at a time.
///
/// One that is dropped without [`unmount`](Self::unmount) leaves what a crash at this point leaves.
pub struct Wafs {
    device: Arc<dyn BlockDevice>,
    circle: Circle,
    seed: u32,
    mount: u64,
    recovered: Recovered,
    clock: Clock,
    state: Mutex<State>,
    /// Signals changes of `state` that a caller may wait for.
    changed: Condvar,
    /// The superblock on the device; locked while the next one is written.
    superblock: Mutex<Superblock>,
}

/// What one caller writes at once.
struct Writing<'a> {
    chunks: Vec<Chunk>,
    /// Whole blocks of a long payload, and where they go.
    long: (Lsn, &'a [u8]),
    /// The LSN behind all of it.
    end: Lsn,
}

impl Writing<'_> {
    fn of_chunks(chunks: Vec<Chunk>, before: Lsn) -> Writing<'static> {
        let end = chunks.last().map_or(before, |chunk| chunk.end);
        Writing {
            chunks,
            long: (end, &[]),
            end,
        }
    }
}

struct State {
    memory: Memory,
    /// The oldest record that is kept.
    start: Lsn,
    /// The record before the head; none in a new log.
    last: Option<Lsn>,
    last_time: u64,
    /// Everything before it was handed to the device.
    submitted: Lsn,
    /// Everything before it is on the device for good.
    stable: Lsn,
    /// The record that ends at `stable`.
    stable_last: Option<Lsn>,
    /// Whether a caller writes. Only one does at a time: the last block is written again and again,
    /// and its writes must not overtake each other.
    is_busy: bool,
    /// Why nothing is written any more.
    failure: Option<WafsError>,
    figures: Figures,
}

impl State {
    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl Wafs {
    /// Makes an empty log that takes up the whole device. What was there is lost. `uuid`: sixteen
    /// bytes that no other log on this device has had.
    ///
    /// # Errors
    /// [`WafsError::TooSmall`], or the device's.
    pub fn make(device: &dyn BlockDevice, uuid: [u8; 16], now: u64) -> Result<()> {
        let size_bytes = device.size_bytes();
        let log_bytes = size_bytes.saturating_sub(LOG_OFFSET_BYTES);
        let log_bytes = log_bytes - log_bytes % BLOCK_BYTES;
        if log_bytes < LEAST_LOG_BYTES {
            return Err(WafsError::TooSmall {
                device: device.name(),
                size_bytes,
                least_bytes: LOG_OFFSET_BYTES + LEAST_LOG_BYTES,
            });
        }
        let superblocks = Wafs::superblocks(log_bytes, uuid, now);
        for (block, bytes) in superblocks.chunks(BLOCK_BYTES as usize).enumerate() {
            device.write(block as u64 * BLOCK_BYTES, bytes)?;
        }
        Ok(device.flush()?)
    }

    /// The superblocks of an empty log of this length, which come before it: [`LOG_OFFSET_BYTES`]
    /// bytes.
    pub fn superblocks(log_bytes: u64, uuid: [u8; 16], now: u64) -> Vec<u8> {
        let mut superblock = Superblock {
            magic: MAGIC,
            version: U32::new(VERSION),
            checksum: U32::ZERO,
            uuid,
            generation: U64::ZERO,
            log_bytes: U64::new(log_bytes),
            start: U64::ZERO,
            end: U64::ZERO,
            mount: U64::ZERO,
            flags: U32::new(IS_CLEAN),
            last_record_bytes: U32::ZERO,
            time: U64::new(now),
            owner: U32::new(OF_PROGRAMS),
            unused: [0; 420],
        };
        let mut blocks = vec![0; LOG_OFFSET_BYTES as usize];
        for (generation, block) in (0..).zip(blocks.chunks_mut(BLOCK_BYTES as usize)) {
            superblock.generation = U64::new(generation);
            superblock.checksum = U32::new(superblock.right_checksum());
            block[..Superblock::BYTES].copy_from_slice(superblock.as_bytes());
        }
        blocks
    }

    /// Marks a log for good as a file system's, which [`mount`](Self::mount) then refuses. Does
    /// nothing where it is marked already.
    ///
    /// # Errors
    /// Where there is no log, where it cannot be believed, and where the device fails.
    pub fn give_to_file_system(device: &dyn BlockDevice) -> Result<()> {
        let (mut next, _) = superblock(device)?;
        if next.owner.get() == OF_FILE_SYSTEM {
            return Ok(());
        }
        next.owner = U32::new(OF_FILE_SYSTEM);
        next.generation += 1;
        next.checksum = U32::new(next.right_checksum());
        device.write(next.block() * BLOCK_BYTES, next.as_bytes())?;
        Ok(device.flush()?)
    }

    /// Mounts a log for writing: finds its end, and makes sure that records that a crash left
    /// behind the end never count.
    ///
    /// # Errors
    /// Where there is no log, where it is a file system's or cannot be believed, and where the device
    /// fails.
    pub fn mount(device: Arc<dyn BlockDevice>, clock: Clock) -> Result<Wafs> {
        let log = Log::open(&*device)?;
        if log.superblock().owner.get() != OF_PROGRAMS {
            return Err(WafsError::OfFileSystem {
                device: device.name(),
            });
        }
        let (circle, seed) = (log.place.circle, log.place.seed);
        let (start, end, last_time) = (log.start(), log.end(), log.last_time());
        let superblock = *log.superblock();
        let recovered = Recovered {
            was_in_use: superblock.flags.get() & IS_CLEAN == 0,
            records: log.found_behind_superblock(),
            bytes: end.0 - superblock.end.get(),
        };
        let last_bytes = log.last_record_bytes();
        let last = (last_bytes > 0).then(|| Lsn(end.0 - last_bytes));
        let mut block = vec![0; (end.0 - end.block_start().0) as usize];
        if holds(Rule::LastBlockIsKept) {
            device.read(circle.offset_bytes(end.block_start()), &mut block)?;
        }
        let mount = superblock.mount.get() + 1;
        let wafs = Wafs {
            circle,
            seed,
            mount,
            recovered,
            state: Mutex::new(State {
                memory: Memory::new(circle, end, &block),
                start,
                last,
                last_time,
                submitted: end,
                stable: end,
                stable_last: last,
                is_busy: false,
                failure: None,
                figures: Figures::default(),
            }),
            changed: Condvar::new(),
            superblock: Mutex::new(superblock),
            clock,
            device,
        };
        // The records found may be in the host's cache only. They must be on the device before the
        // superblock names them.
        if holds(Rule::EndIsStable) {
            wafs.flush()?;
        }
        wafs.write_superblock(start, false, Rule::MountIsFlushed)?;
        Ok(wafs)
    }

    /// What the mount found.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// The longest payload that this log takes.
    pub fn longest_payload(&self) -> u64 {
        longest_payload(self.circle.log_bytes)
    }

    /// Appends a record and says where it begins. It is in memory then; [`sync`](Self::sync) waits
    /// until it is on the device.
    ///
    /// # Errors
    /// [`WafsError::Full`] where there is no room before the next
    /// [`checkpoint`](Self::checkpoint): nothing was appended. [`WafsError::TooLong`]; the device's,
    /// after which nothing is appended any more.
    pub fn append(&self, payload: &[u8]) -> Result<Lsn> {
        let len_bytes = payload.len() as u64;
        let most_bytes = self.longest_payload();
        if len_bytes > most_bytes {
            return Err(WafsError::TooLong {
                len_bytes,
                most_bytes,
            });
        }
        let needed_bytes = record_bytes(len_bytes);
        let payload_checksum = crc32c::crc32c(payload);
        let now = (self.clock)();
        let is_long = len_bytes >= LONG_BYTES;
        let mut state = self.with_room(is_long)?;
        let lsn = state.memory.head();
        let free_bytes = self.circle.free_bytes(state.start, lsn);
        if needed_bytes > free_bytes && holds(Rule::LiveRecordsAreKept) {
            return Err(WafsError::Full {
                needed_bytes,
                free_bytes,
            });
        }
        let time = now.max(state.last_time);
        let mut header = RecordHeader {
            checksum: U32::ZERO,
            payload_checksum: U32::new(payload_checksum),
            len_bytes: U32::new(len_bytes as u32),
            back_bytes: U32::new(state.last.map_or(0, |last| (lsn.0 - last.0) as u32)),
            lsn: U64::new(lsn.0),
            time: U64::new(time),
            mount: U64::new(self.mount),
        };
        header.checksum = U32::new(header.right_checksum(self.seed));
        let padding = needed_bytes - RecordHeader::BYTES - len_bytes;
        let memory = &mut state.memory;
        memory.put(header.as_bytes());
        let long = match is_long {
            true => put_long(memory, payload),
            false => {
                memory.put(payload);
                None
            }
        };
        memory.put(&[0; 8][..padding as usize]);
        state.last = Some(lsn);
        state.last_time = time;
        state.figures.records += 1;
        state.figures.appended_bytes += needed_bytes;
        let turns = |lsn: Lsn| lsn.0 / self.circle.log_bytes;
        state.figures.turns += turns(state.memory.head()) - turns(lsn);
        match long {
            None => self.write_when_many(state)?,
            Some(long) => {
                let writing = Writing {
                    chunks: state.memory.take_full(),
                    long,
                    end: long.0.plus(long.1.len() as u64),
                };
                drop(self.write(state, &writing, false)?);
            }
        }
        Ok(lsn)
    }

    /// Waits until memory has room for more and, where the caller is going to write, until no other
    /// caller writes. Returns the locked state.
    fn with_room(&self, is_writer: bool) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        loop {
            state.check()?;
            // With so many full chunks some caller writes; see `write_when_many`.
            let has_room = state.memory.full_chunks() < MOST_CHUNKS && !is_writer;
            if has_room || !state.is_busy {
                return Ok(state);
            }
            state.figures.waits += 1;
            self.changed.wait(&mut state);
        }
    }

    fn write_when_many(&self, mut state: MutexGuard<'_, State>) -> Result<()> {
        if state.memory.full_chunks() < CHUNKS_TO_WRITE || state.is_busy {
            return Ok(());
        }
        let writing = Writing::of_chunks(state.memory.take_full(), state.submitted);
        self.write(state, &writing, false).map(drop)
    }

    /// Waits until the record at `lsn`, and all before it, are on the device for good. One flush
    /// serves all who wait.
    ///
    /// The commit point of a record is its own write, once all records before it are there.
    ///
    /// # Errors
    /// [`WafsError::NotWritten`] where no record was appended there, or the device's.
    pub fn sync(&self, lsn: Lsn) -> Result<()> {
        let mut state = self.state.lock();
        let end = state.memory.head();
        if lsn >= end {
            return Err(WafsError::NotWritten { lsn, end });
        }
        loop {
            if state.stable > lsn {
                return Ok(());
            }
            state.check()?;
            if !state.is_busy {
                break;
            }
            self.changed.wait(&mut state);
        }
        let (end, last) = (state.memory.head(), state.last);
        let writing = Writing::of_chunks(state.memory.take_all(), state.submitted);
        let mut state = self.write(state, &writing, holds(Rule::SyncFlushes))?;
        (state.stable, state.stable_last) = (end, last);
        Ok(())
    }

    /// As [`sync`](Self::sync), of all that was appended. Returns the log's end.
    ///
    /// # Errors
    /// The device's.
    pub fn sync_all(&self) -> Result<Lsn> {
        let state = self.state.lock();
        let head = state.memory.head();
        let last = state.last.filter(|_| state.stable < head);
        state.check()?;
        drop(state);
        last.map_or(Ok(()), |last| self.sync(last))?;
        Ok(head)
    }

    /// Writes, flushes if asked to, and wakes the callers that wait. The lock is not held during
    /// the I/O.
    fn write<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        writing: &Writing<'_>,
        flush: bool,
    ) -> Result<MutexGuard<'s, State>> {
        state.is_busy = true;
        drop(state);
        let done = self.write_out(writing).and_then(|bytes| match flush {
            true => self.device.flush().map(|()| bytes).map_err(Into::into),
            false => Ok(bytes),
        });
        let mut state = self.state.lock();
        state.is_busy = false;
        self.changed.notify_all();
        match done {
            Err(error) => {
                state.failure.get_or_insert_with(|| error.clone());
                Err(error)
            }
            Ok(bytes) => {
                state.submitted = writing.end;
                state.figures.flushes += u64::from(flush);
                state.figures.written_bytes += bytes;
                state.figures.writes += writing.chunks.len() as u64;
                Ok(state)
            }
        }
    }

    /// Hands chunks to the device, one after the other: each is short enough for the host to take
    /// it at memory's speed. Returns how much was written.
    fn write_out(&self, writing: &Writing<'_>) -> Result<u64> {
        let mut bytes = 0;
        for chunk in &writing.chunks {
            let request = chunk.request(self.circle);
            bytes += request.len_bytes();
            self.device.submit(&[request])?;
        }
        let (mut at, mut rest) = writing.long;
        bytes += rest.len() as u64;
        while !rest.is_empty() {
            let to_turn = self.circle.bytes_to_turn(at) as usize;
            let (some, more) = rest.split_at(to_turn.min(rest.len()));
            self.device.write(self.circle.offset_bytes(at), some)?;
            (at, rest) = (at.plus(some.len() as u64), more);
        }
        Ok(bytes)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()?;
        self.state.lock().figures.flushes += 1;
        Ok(())
    }

    /// Lets go of all records before the one at `start`, or of all there are where that is the
    /// log's end. Their room is used again.
    ///
    /// # Errors
    /// [`WafsError::Gone`], [`WafsError::NotWritten`], [`WafsError::NotARecord`] where no record
    /// begins there; the device's.
    pub fn checkpoint(&self, start: Lsn) -> Result<()> {
        self.records(start)?.next()?;
        self.write_superblock(start, false, Rule::CheckpointIsFlushed)?;
        self.state.lock().figures.checkpoints += 1;
        Ok(())
    }

    /// Writes the next superblock, and lets the log begin at `start`.
    fn write_superblock(&self, start: Lsn, is_clean: bool, flushed: Rule) -> Result<()> {
        let mut written = self.superblock.lock();
        let state = self.state.lock();
        state.check()?;
        // Checkpoints may overlap: the latest start counts.
        let start = start.max(state.start);
        let known_end = match holds(Rule::EndIsStable) {
            true => state.stable.max(start),
            false => state.memory.head(),
        };
        // If the log begins behind the stable end, the record before that place is not named: no
        // reader needs it.
        let last = state.stable_last.filter(|_| known_end == state.stable);
        let last_record_bytes = last.map_or(0, |last| known_end.0 - last.0);
        drop(state);
        let mut next = Superblock {
            generation: U64::new(written.generation.get() + 1),
            start: U64::new(start.0),
            end: U64::new(known_end.0),
            mount: U64::new(self.mount),
            flags: U32::new(if is_clean { IS_CLEAN } else { 0 }),
            last_record_bytes: U32::new(last_record_bytes as u32),
            time: U64::new((self.clock)().max(written.time.get())),
            ..*written
        };
        next.checksum = U32::new(next.right_checksum());
        let block = match holds(Rule::SuperblocksAlternate) {
            true => next.block(),
            false => 0,
        };
        self.device.write(block * BLOCK_BYTES, next.as_bytes())?;
        if holds(flushed) {
            self.flush()?;
        }
        *written = next;
        self.state.lock().start = start;
        Ok(())
    }

    /// Ends the mount: everything is on the device, and the next mount finds the end at once.
    ///
    /// # Errors
    /// The device's. The log is as after a crash then.
    pub fn unmount(self) -> Result<()> {
        self.sync_all()?;
        let start = self.state.lock().start;
        self.write_superblock(start, true, Rule::CheckpointIsFlushed)
    }

    /// The oldest record that is kept; the log's end where there is none.
    pub fn start(&self) -> Lsn {
        self.state.lock().start
    }

    /// Where the next record will begin.
    pub fn end(&self) -> Lsn {
        self.state.lock().memory.head()
    }

    /// The last record; `None` in an empty log.
    pub fn last(&self) -> Option<Lsn> {
        let state = self.state.lock();
        state.last.filter(|last| *last >= state.start)
    }

    /// Everything before it is on the device for good.
    pub fn stable(&self) -> Lsn {
        self.state.lock().stable
    }

    /// What can be appended before the next checkpoint, headers and padding included.
    pub fn free_bytes(&self) -> u64 {
        let state = self.state.lock();
        self.circle.free_bytes(state.start, state.memory.head())
    }

    /// The log's length.
    pub fn log_bytes(&self) -> u64 {
        self.circle.log_bytes
    }

    /// What was done since the mount.
    pub fn figures(&self) -> Figures {
        self.state.lock().figures
    }

    /// The records from `from` to the log's end of now. A checkpoint must not let go of them while
    /// they are read.
    ///
    /// # Errors
    /// [`WafsError::Gone`], [`WafsError::NotWritten`], or the device's: what is in memory only is
    /// written first.
    pub fn records(&self, from: Lsn) -> Result<Records<'_>> {
        let mut state = self.state.lock();
        let end = state.memory.head();
        check_range(from, state.start, end)?;
        while state.submitted < end {
            state.check()?;
            if state.is_busy {
                self.changed.wait(&mut state);
                continue;
            }
            let writing = Writing::of_chunks(state.memory.take_all(), state.submitted);
            state = self.write(state, &writing, false)?;
        }
        let place = Place {
            device: &*self.device,
            circle: self.circle,
            seed: self.seed,
        };
        Ok(Records::new(place, from, end))
    }
}

/// Puts a long payload into memory, except for its whole blocks. Returns these blocks and the place
/// where they go.
fn put_long<'p>(memory: &mut Memory, payload: &'p [u8]) -> Option<(Lsn, &'p [u8])> {
    let head = memory.head();
    let to_block = (BLOCK_BYTES - (head.0 - head.block_start().0)) % BLOCK_BYTES;
    let (first, rest) = payload.split_at(to_block as usize);
    let (blocks, last) = rest.split_at(rest.len() - rest.len() % BLOCK_BYTES as usize);
    memory.put(first);
    let at = memory.head();
    memory.skip(blocks.len() as u64);
    memory.put(last);
    Some((at, blocks))
}
