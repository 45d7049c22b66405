//! Reading and writing files, and the host's cache of what was read and written.

use std::collections::VecDeque;
use std::time::Duration;

use backstitch_layout::{AccessTimes, Error as LayoutError, InodeNumber, Piece, operations};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cpu::Work;
use super::{Machine, engine};
use crate::Result;

/// Bytes up to which small writes are gathered, as in `vfs`.
const GATHERED_BYTES: usize = 128 << 10;
/// A write of this length or longer is not gathered.
const LONG_BYTES: usize = 32 << 10;
/// How long a write may stay gathered. After that it is written at the writer's next turn.
const GATHERED_TIME: Duration = Duration::from_millis(500);
/// Bytes that the host reads ahead of a file that is read sequentially.
const AHEAD_BYTES: usize = 128 << 10;
/// Bytes of a page of the host's cache.
const PAGE_BYTES: u64 = 4096;

/// Small writes that are gathered, to become patches together.
#[derive(Default)]
pub(super) struct Gathered {
    /// The file, and the offset at which the next write must begin to be gathered too.
    follows: Option<(InodeNumber, u64)>,
    bytes: Vec<u8>,
    since: Duration,
}

impl Gathered {
    /// Whether gathered bytes belong to this file.
    pub(super) fn is_of(&self, inode: InodeNumber) -> bool {
        !self.bytes.is_empty() && self.follows.is_some_and(|(of, _)| of == inode)
    }

    /// Takes out what was gathered, with its file and offset.
    fn take(&mut self) -> Option<(InodeNumber, u64, Vec<u8>)> {
        let (inode, end_bytes) = self.follows?;
        let bytes = std::mem::take(&mut self.bytes);
        let start_bytes = end_bytes.checked_sub(bytes.len() as u64)?;
        (!bytes.is_empty()).then_some((inode, start_bytes, bytes))
    }
}

/// The result of an attempt to gather a write.
enum Tried {
    Gathered,
    /// The write must be done at once.
    Refused,
    /// What was gathered before must be written first.
    Full,
}

/// Pages that the host keeps of what was read and written, as the kernel does beside the engine.
/// Only their numbers are kept, since their bytes are the drive's newest.
pub(super) struct HostCache {
    pages: FxHashSet<u64>,
    /// In the order of their arrival. The first ones are dropped first.
    order: VecDeque<u64>,
    most_pages: usize,
    /// Where the last read of a file ended.
    ends: FxHashMap<InodeNumber, u64>,
}

impl HostCache {
    pub(super) fn new(bytes: u64) -> HostCache {
        HostCache {
            pages: FxHashSet::default(),
            order: VecDeque::new(),
            most_pages: (bytes / PAGE_BYTES) as usize,
            ends: FxHashMap::default(),
        }
    }

    /// A caller closed the file, so it no longer counts as being read sequentially.
    pub(super) fn forget(&mut self, inode: InodeNumber) {
        self.ends.remove(&inode);
    }

    /// How many bytes at the beginning of a range are cached.
    pub(super) fn has(&self, (offset_bytes, len_bytes): (u64, u64)) -> u64 {
        let end_bytes = offset_bytes + len_bytes;
        let mut pages = offset_bytes / PAGE_BYTES..end_bytes.div_ceil(PAGE_BYTES);
        let missing = pages.find(|page| !self.pages.contains(page));
        missing.map_or(len_bytes, |page| {
            (page * PAGE_BYTES).saturating_sub(offset_bytes)
        })
    }

    pub(super) fn keep(&mut self, (offset_bytes, len_bytes): (u64, u64)) {
        for page in offset_bytes / PAGE_BYTES..(offset_bytes + len_bytes).div_ceil(PAGE_BYTES) {
            if self.pages.insert(page) {
                self.order.push_back(page);
            }
        }
        while self.order.len() > self.most_pages
            && let Some(first) = self.order.pop_front()
        {
            self.pages.remove(&first);
        }
    }
}

impl Machine {
    /// Reads from a file into `into`, replacing what it held: fewer bytes than asked only at its
    /// end.
    pub(super) async fn read(
        &self,
        inode: InodeNumber,
        offset_bytes: u64,
        len_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let is_in_order =
            offset_bytes == 0 || self.core.borrow().cached.ends.get(&inode) == Some(&offset_bytes);
        let ahead = if is_in_order { AHEAD_BYTES } else { 0 };
        let asked_bytes = len_bytes.max(ahead);
        let mut pieces = Vec::new();
        self.cpu.work(&self.schedule, Work::Read(len_bytes)).await;
        self.end_gathering().await?;
        loop {
            let epoch = self
                .operate(None, |fs, v, _| {
                    pieces.clear();
                    fs.map(v, inode, offset_bytes, asked_bytes, &mut pieces)?;
                    Ok(fs.free_epoch())
                })
                .await?;
            if !self.fetch(&pieces, len_bytes).await?
                || self.core.borrow().session.fs.free_epoch() == epoch
            {
                break;
            }
            // Blocks were freed meanwhile, so the bytes may be another file's.
        }
        self.copy(&pieces, len_bytes, into)?;
        let end_bytes = offset_bytes + into.len() as u64;
        self.core.borrow_mut().cached.ends.insert(inode, end_bytes);
        let touch = operations::touch_accessed(inode);
        self.operate(Some(touch), |fs, v, now| {
            fs.touch_accessed(v, inode, AccessTimes::Relative, now)
        })
        .await
    }

    /// Reads pieces that lie on the drive, with the read-ahead, unless the host has all of the
    /// first `len_bytes`. Returns whether anything had to be read.
    async fn fetch(&self, pieces: &[Piece], len_bytes: usize) -> Result<bool> {
        let mut ranges = Vec::new();
        let mut at = 0;
        let mut is_needed = false;
        for piece in pieces {
            if let Piece::Device {
                offset_bytes,
                len_bytes: part,
            } = piece
            {
                let part = *part as u64;
                let there = self.core.borrow().cached.has((*offset_bytes, part));
                let needed = (len_bytes as u64).saturating_sub(at as u64).min(part);
                is_needed |= there < needed;
                if there < part {
                    ranges.push((offset_bytes + there, part - there));
                }
            }
            let (Piece::Hole { len_bytes }
            | Piece::Buffer { len_bytes, .. }
            | Piece::Device { len_bytes, .. }) = piece;
            at += len_bytes;
        }
        if !is_needed {
            return Ok(false);
        }
        self.read_ranges(&ranges).await?;
        Ok(true)
    }

    fn copy(&self, pieces: &[Piece], len_bytes: usize, into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        for piece in pieces {
            let start = into.len();
            match piece {
                Piece::Hole { len_bytes } => into.resize(start + len_bytes, 0),
                Piece::Buffer {
                    data,
                    start,
                    len_bytes,
                } => into.extend_from_slice(&data[*start..start + len_bytes]),
                Piece::Device {
                    offset_bytes,
                    len_bytes,
                } => {
                    into.resize(start + len_bytes, 0);
                    self.drives.peek(*offset_bytes, &mut into[start..])?;
                }
            }
        }
        into.truncate(len_bytes);
        Ok(())
    }

    /// Writes all of `data` into a file.
    pub(super) async fn write(
        &self,
        inode: InodeNumber,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        let work = Work::Write(data.len());
        self.cpu.work(&self.schedule, work).await;
        if self.gather(inode, offset_bytes, data).await? {
            return Ok(());
        }
        self.end_gathering().await?;
        self.write_now(inode, offset_bytes, data).await?;
        let gathered = &mut self.core.borrow_mut().gathered;
        if gathered.bytes.is_empty() {
            gathered.follows = Some((inode, offset_bytes + data.len() as u64));
        }
        Ok(())
    }

    async fn write_now(&self, inode: InodeNumber, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let step = &data[done..data.len().min(done + self.write_step_bytes)];
            let operation = Some(operations::write(inode, at, step));
            let written = self
                .operate(operation, |fs, v, now| fs.write(v, inode, at, step, now))
                .await?;
            if written == 0 {
                return Err(engine(LayoutError::NoSpace));
            }
            done += written;
        }
        Ok(())
    }

    /// Gathers a small write that follows the one before it. False if it must be done at once.
    async fn gather(&self, inode: InodeNumber, offset_bytes: u64, data: &[u8]) -> Result<bool> {
        let most = GATHERED_BYTES.min(self.write_step_bytes);
        loop {
            match self.try_gather(inode, offset_bytes, data, most) {
                Tried::Gathered => return Ok(true),
                Tried::Refused => return Ok(false),
                Tried::Full => self.write_gathered().await?,
            }
        }
    }

    fn try_gather(&self, inode: InodeNumber, offset_bytes: u64, data: &[u8], most: usize) -> Tried {
        let core = &mut *self.core.borrow_mut();
        let gathered = &mut core.gathered;
        let len = gathered.bytes.len() + data.len();
        let end_bytes = offset_bytes + data.len() as u64;
        if gathered.follows != Some((inode, offset_bytes))
            || data.len() >= LONG_BYTES.min(most)
            || core.session.latched.is_some()
            || !(core.session.fs).is_sure_to_fit(inode, end_bytes, len as u64)
        {
            return Tried::Refused;
        }
        if len > most {
            return Tried::Full;
        }
        if gathered.bytes.is_empty() {
            gathered.since = self.now();
        }
        gathered.bytes.extend_from_slice(data);
        gathered.follows = Some((inode, end_bytes));
        core.operations += 1;
        Tried::Gathered
    }

    /// Writes what was gathered. The next write is not joined to it.
    pub(super) async fn end_gathering(&self) -> Result<()> {
        if self.core.borrow().gathered.follows.is_some() {
            self.write_gathered().await?;
            self.core.borrow_mut().gathered.follows = None;
        }
        Ok(())
    }

    async fn write_gathered(&self) -> Result<()> {
        let taken = self.core.borrow_mut().gathered.take();
        match taken {
            Some((inode, start_bytes, bytes)) => self.write_now(inode, start_bytes, &bytes).await,
            None => Ok(()),
        }
    }

    /// Writes what was gathered too long ago. Called by the writer, which cannot wait for memory.
    pub(super) async fn write_gathered_long_ago(&self) -> Result<()> {
        let is_old = {
            let core = self.core.borrow();
            let gathered = &core.gathered;
            let waited = self.now().saturating_sub(gathered.since);
            let is_old = !gathered.bytes.is_empty() && waited >= GATHERED_TIME;
            is_old && !core.session.store.is_crowded()
        };
        match is_old {
            true => self.write_gathered().await,
            false => Ok(()),
        }
    }
}
