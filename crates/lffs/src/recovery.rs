//! Brings home what a crash left in a log, and does what else is done with a log that is not
//! mounted.
//!
//! The log is read twice. The first pass finds its end (by checksum, place and mount number, as the
//! write-ahead log does), the end of the last whole group, and for each freed block the last record
//! that frees it. What lies behind the last whole group never happened: no block went home before
//! its group was in the log, so there is nothing to be undone on the disk. The second pass goes
//! forward and applies the bytes of the records, except those of a block that a later record frees.
//! It writes the changed blocks whenever there is a fixed number of them, so that memory does not
//! grow with the log; bringing a block home twice does no harm.
//!
//! The part of the log in use is read once, in large pieces, and stays in memory from the first
//! pass to the second (if it is long, the second pass reads it again). What lies behind the last
//! superblock's end is read once more before that, by the search for the end.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use backstitch_device::{BlockDevice, Buffer, WriteRequest};
use backstitch_wafs::{Log, Lsn, Records};
use rustc_hash::FxHashMap;

use crate::error::{Error, RecordFault, Result};
use crate::pen::Pen;
use crate::place::{LogDevice, LogMap};
use crate::record::{About, Changes, MAX_SPANS, Record, Span, mark_end};
use crate::rules::{Rule, holds};

/// Where the records' bytes belong.
#[derive(Clone, Copy)]
pub struct Home<'h> {
    /// The file system's device.
    pub device: &'h dyn BlockDevice,
    /// The size of a block.
    pub block_bytes: u32,
    /// The file system's blocks.
    pub blocks: u64,
    /// Whether the log is among them.
    pub has_log: bool,
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Records that were brought home.
    pub records: u64,
    /// Groups that were brought home.
    pub groups: u64,
    /// Writes of blocks: a block that was written twice counts twice.
    pub blocks: u64,
    /// Records left out: their group was not whole.
    pub undone: u64,
}

/// Blocks that are changed in memory before they are written. With blocks of 4,096 bytes they take
/// 32 MiB at most.
const BATCH_BLOCKS: usize = 8192;
/// About how many bytes of records are applied to them before that, at most.
const BATCH_BYTES: usize = 32 << 20;
/// Adjacent blocks that are read in one request at most.
const READ_BLOCKS: u64 = 256;

/// Records that are brought home together.
#[derive(Default)]
struct Batch {
    /// Their payloads.
    bytes: Vec<u8>,
    records: Vec<Batched>,
    /// The blocks that they change. True: the first record of the block gives all of its bytes, so
    /// that the block at home need not be read.
    blocks: BTreeMap<u64, bool>,
}

/// A record of a batch.
struct Batched {
    /// Its index in the log.
    index: u64,
    lsn: u64,
    /// Where its payload is in the batch's bytes.
    payload: Range<usize>,
}

impl Batch {
    fn add(&mut self, index: u64, lsn: u64, payload: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.records.push(Batched {
            index,
            lsn,
            payload: start..self.bytes.len(),
        });
    }

    fn is_full(&self) -> bool {
        self.blocks.len() >= BATCH_BLOCKS || self.bytes.len() >= BATCH_BYTES
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.blocks.clear();
    }
}

/// What the first pass finds.
#[derive(Default)]
struct Found {
    /// The number of records in whole groups.
    whole: u64,
    /// For each freed block the index of the last record that frees it.
    freed_by: FxHashMap<u64, u64>,
    /// The outcome, without the number of blocks.
    outcome: Outcome,
}

/// A log that is not mounted.
pub struct Unmounted<'d> {
    device: LogDevice<'d>,
    map: Arc<LogMap>,
    log_start: Lsn,
    log_end: Lsn,
    /// Whether its superblock says that it was unmounted.
    is_clean: bool,
    pen: Pen,
}

impl<'d> Unmounted<'d> {
    /// Reads the superblocks of the log in these blocks, and finds its end.
    ///
    /// # Errors
    /// Where there is none, or none that can be believed.
    pub fn open(below: &'d dyn BlockDevice, map: &Arc<LogMap>) -> Result<Unmounted<'d>> {
        let device = LogDevice::new(below, map.clone());
        let log = Log::open(&device)?;
        let (log_start, log_end) = (log.start(), log.end());
        let is_clean = log.superblock().flags.get() & backstitch_wafs::format::IS_CLEAN != 0;
        let pen = Pen::behind(&log, map.block_bytes());
        Ok(Unmounted {
            device,
            map: map.clone(),
            log_start,
            log_end,
            is_clean,
            pen,
        })
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.log_start == self.log_end
    }

    /// Whether it was unmounted, and nothing is in it.
    pub fn is_clean(&self) -> bool {
        self.is_clean && self.is_empty()
    }

    /// Length of its records in bytes, from its start to its end.
    pub fn used_bytes(&self) -> u64 {
        self.log_end.0 - self.log_start.0
    }

    /// The UUID of the log in these blocks. Its end is not looked for.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn uuid_of(below: &dyn BlockDevice, map: &Arc<LogMap>) -> Result<[u8; 16]> {
        Ok(Log::uuid(&LogDevice::new(below, map.clone()))?)
    }

    /// The log's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.pen.uuid()
    }

    /// Gives an unmounted log a UUID that it has not had before, and flushes. Returns that.
    ///
    /// # Errors
    /// The device's.
    pub fn rename(&mut self) -> Result<[u8; 16]> {
        debug_assert!(self.is_clean(), "its records would be lost");
        self.pen.rename();
        self.empty(true)?;
        Ok(self.uuid())
    }

    /// Bytes of the log, and of the shortest log that a mechanism can write.
    pub fn lengths(&self) -> (u64, u64) {
        (self.pen.log_bytes(), self.pen.least_bytes())
    }

    /// The pen with which a mechanism writes this log.
    pub fn into_pen(self) -> Pen {
        self.pen
    }

    fn log(&self) -> Log<'_> {
        Log::as_found(&self.device, *self.pen.last_superblock(), self.log_end)
    }

    /// Passes each record to a closure, with the place where it begins.
    ///
    /// # Errors
    /// Where one contradicts itself; the device's.
    pub fn each(&self, mut look: impl FnMut(u64, &Record<'_>)) -> Result<()> {
        let mut records = self.log().records(self.log_start)?;
        while let Some(found) = records.next()? {
            look(found.lsn.0, &parse(found.lsn.0, found.payload)?);
        }
        Ok(())
    }

    /// Brings home what the log holds, and flushes. The log stays as it is.
    ///
    /// # Errors
    /// Where a record states something impossible: nothing was written then; the device's.
    pub fn replay(&self, home: &Home<'_>) -> Result<Outcome> {
        let mut records = self.log().kept_records(self.log_start)?;
        let Found {
            whole,
            freed_by,
            mut outcome,
        } = self.look_through(home, &mut records)?;
        records.rewind();
        let mut batch = Batch::default();
        for index in 0..whole {
            let Some(found) = records.next()? else {
                break;
            };
            let lsn = found.lsn.0;
            let record = parse(lsn, found.payload)?;
            let mut is_changing = false;
            for span in record.spans() {
                if is_live(&freed_by, index, span.block) {
                    batch.blocks.entry(span.block).or_insert(span.is_whole());
                    is_changing = true;
                }
            }
            if is_changing {
                batch.add(index, lsn, found.payload);
            }
            if batch.is_full() {
                outcome.blocks += bring_home(home, &batch, &freed_by)?;
                batch.clear();
            }
        }
        outcome.blocks += bring_home(home, &batch, &freed_by)?;
        if outcome.blocks > 0 && holds(Rule::HomesAreFlushed) {
            home.device.flush()?;
        }
        Ok(outcome)
    }

    /// Finds the end of the last whole group, and checks everything up to there.
    fn look_through(&self, home: &Home<'_>, records: &mut Records<'_>) -> Result<Found> {
        let mut found = Found::default();
        // Blocks freed by the group whose end has not come yet.
        let mut freed: Vec<(u64, u64)> = Vec::new();
        let mut wrong = None;
        let mut all = 0;
        while let Some(next) = records.next()? {
            let record = parse(next.lsn.0, next.payload)?;
            freed.extend(record.freed().map(|block| (block, all)));
            let lsn = next.lsn.0;
            if record.spans_count() > MAX_SPANS {
                let fault = RecordFault::TooManySpans(record.spans_count());
                wrong = wrong.or(Some(Error::Record { lsn, fault }));
            }
            for span in record.spans() {
                wrong = wrong.or(self.check(home, lsn, &span).err());
            }
            all += 1;
            if record.ends_group || !holds(Rule::OnlyWholeGroupsCount) {
                found.outcome.groups += u64::from(record.ends_group);
                found.whole = all;
                found.freed_by.extend(freed.drain(..));
                wrong.take().map_or(Ok(()), Err)?;
            }
        }
        found.outcome.undone = all - found.whole;
        found.outcome.records = found.whole;
        Ok(found)
    }

    fn check(&self, home: &Home<'_>, lsn: u64, span: &Span<'_>) -> Result<()> {
        let end = span.offset_bytes + span.bytes.len();
        let fault = match span.block {
            block if block >= home.blocks => RecordFault::NoSuchBlock(block),
            block if home.has_log && self.map.has(block) => RecordFault::OwnBlock(block),
            block if end > home.block_bytes as usize => RecordFault::BehindBlock(block),
            _ => return Ok(()),
        };
        Err(Error::Record { lsn, fault })
    }

    /// Marks the log as empty, and flushes.
    ///
    /// The commit point of a recovery.
    ///
    /// # Errors
    /// The device's.
    pub fn empty(&mut self, is_clean: bool) -> Result<()> {
        let head = self.pen.head;
        self.pen.begin_mount();
        self.pen.last_bytes = 0;
        let (offset_bytes, block) = self.pen.superblock((head, head), 0, is_clean);
        self.device.write(offset_bytes, &block)?;
        if holds(Rule::EmptyIsFlushed) {
            self.device.flush()?;
        }
        (self.log_start, self.log_end, self.is_clean) = (Lsn(head), Lsn(head), is_clean);
        Ok(())
    }

    /// Writes a group that gives blocks new bytes into an empty log. When this returns the group is
    /// stable.
    ///
    /// The commit point of these changes.
    ///
    /// # Errors
    /// [`Error::NoRoom`], or the device's.
    pub fn write_alone(&mut self, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        let (log_bytes, needed_bytes) = (self.pen.log_bytes(), self.pen.least_bytes());
        if log_bytes < needed_bytes {
            return Err(Error::NoRoom {
                needed_bytes,
                log_bytes,
            });
        }
        self.empty(false)?;
        let mut changes = Changes::default();
        let bytes: FxHashMap<u64, &[u8]> = blocks.iter().map(|(b, c)| (*b, &c[..])).collect();
        let block_bytes = self.map.block_bytes();
        for (block, _) in blocks {
            changes.note(*block, 0..block_bytes);
        }
        let about = About::of(&backstitch_ordering::Operation::Administration);
        let mut records = Vec::new();
        changes.encode(
            &about,
            (block_bytes, self.pen.longest_bytes()),
            |b| bytes.get(&b).copied(),
            &mut records,
        );
        if let Some(last) = records.last_mut() {
            mark_end(last);
        }
        let needed_bytes = self.pen.len_bytes(records.iter().map(Vec::len));
        let log_bytes = self.pen.most_bytes();
        if needed_bytes > log_bytes {
            return Err(Error::NoRoom {
                needed_bytes,
                log_bytes,
            });
        }
        let head = self.pen.head;
        let bytes = self.pen.append(&mut records, 0);
        for (at, part) in (head..)
            .step_by(block_bytes as usize)
            .zip(bytes.chunks(block_bytes as usize))
        {
            self.device.write(self.pen.offset_bytes(at), part)?;
        }
        self.device.flush()?;
        // The end is searched for as by the next recovery: what is not found here would not count
        // then either.
        (self.log_start, self.log_end) = (Lsn(head), Log::open(&self.device)?.end());
        Ok(())
    }
}

fn parse(lsn: u64, payload: &[u8]) -> Result<Record<'_>> {
    let fault = RecordFault::NoOperation;
    Record::parse(payload).ok_or(Error::Record { lsn, fault })
}

/// Whether the bytes that the record at this index has of a block come home: no later record frees
/// the block.
fn is_live(freed_by: &FxHashMap<u64, u64>, index: u64, block: u64) -> bool {
    let freed = freed_by.get(&block).filter(|_| holds(Rule::FreedAreHeeded));
    freed.is_none_or(|by| index >= *by && holds(Rule::FreedCountForEarlierRecords))
}

/// Applies the bytes of the records in order and writes the blocks. Returns how many were written.
fn bring_home(home: &Home<'_>, batch: &Batch, freed_by: &FxHashMap<u64, u64>) -> Result<u64> {
    let mut changed = read_home(home, &batch.blocks)?;
    let mut order: Vec<&Batched> = batch.records.iter().collect();
    if !holds(Rule::LastRecordCounts) {
        order.reverse();
    }
    for record in order {
        let lsn = record.lsn;
        for span in parse(lsn, &batch.bytes[record.payload.clone()])?.spans() {
            if !is_live(freed_by, record.index, span.block) {
                continue;
            }
            let block = changed.get_mut(&span.block);
            if !block.is_some_and(|block| span.apply(block)) {
                let fault = RecordFault::BehindBlock(span.block);
                return Err(Error::Record { lsn, fault });
            }
        }
    }
    let blocks = changed.len() as u64;
    let requests: Vec<WriteRequest> = changed
        .into_iter()
        .map(|(block, bytes)| WriteRequest {
            offset_bytes: block * u64::from(home.block_bytes),
            buffers: vec![Buffer::from(bytes)],
        })
        .collect();
    if !requests.is_empty() {
        home.device.submit(&requests)?;
    }
    Ok(blocks)
}

/// The blocks as they are at home, in ascending order, adjacent ones read in one request. Blocks
/// that records give as a whole are zeros.
fn read_home(home: &Home<'_>, blocks: &BTreeMap<u64, bool>) -> Result<BTreeMap<u64, Vec<u8>>> {
    let size = home.block_bytes as usize;
    let zeros = |(block, _): (&u64, &bool)| (*block, vec![0; size]);
    let mut read: BTreeMap<u64, Vec<u8>> = blocks.iter().map(zeros).collect();
    let mut needed = blocks
        .iter()
        .filter(|(_, is_whole)| !**is_whole)
        .map(|(block, _)| *block)
        .peekable();
    let mut bytes = Vec::new();
    while let Some(first) = needed.next() {
        let mut end = first + 1;
        while end - first < READ_BLOCKS && needed.next_if_eq(&end).is_some() {
            end += 1;
        }
        bytes.resize((end - first) as usize * size, 0);
        let offset_bytes = first * u64::from(home.block_bytes);
        home.device.read(offset_bytes, &mut bytes)?;
        for (block, bytes) in read.range_mut(first..end).zip(bytes.chunks_exact(size)) {
            block.1.copy_from_slice(bytes);
        }
    }
    Ok(read)
}
