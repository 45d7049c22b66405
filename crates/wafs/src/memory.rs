//! The end of the log as it is in memory: chunks that are full and wait to be written, and the one
//! that is being filled.

use crate::Lsn;
use crate::format::{BLOCK_BYTES, Circle};
use backstitch_device::{Buffer, Slab, Slabs, WriteRequest};
use std::sync::Arc;

/// The length of a chunk.
pub(crate) const CHUNK_BYTES: u64 = 128 << 10;
/// Memory of past chunks that is kept for those to come.
const SPARE_BYTES: usize = 4 << 20;

/// Blocks that are written as one request.
#[derive(Clone)]
pub(crate) struct Chunk {
    /// The LSN of its first byte.
    start: Lsn,
    /// The LSN behind its last record's last byte; zeros follow to the end of the block.
    pub(crate) end: Lsn,
    slab: Arc<Slab>,
}

impl Chunk {
    /// The request that writes it.
    pub(crate) fn request(&self, circle: Circle) -> WriteRequest {
        let len = (self.end.0 - self.start.0).next_multiple_of(BLOCK_BYTES);
        let bytes = &self.slab[..len as usize];
        let whole = Buffer::part(&self.slab, bytes);
        WriteRequest {
            offset_bytes: circle.offset_bytes(self.start),
            buffers: vec![whole.expect("whole blocks from the slab's beginning on")],
        }
    }
}

/// Bytes that were appended and not yet handed to the device.
pub(crate) struct Memory {
    circle: Circle,
    slabs: Arc<Slabs>,
    full: Vec<Chunk>,
    open: Slab,
    /// The LSN of the open chunk's first byte: a block's beginning.
    open_start: Lsn,
    /// Where the next byte goes.
    head: Lsn,
    /// Everything before it is in full chunks, or was taken.
    closed: Lsn,
}

impl Memory {
    /// Memory of a log that ends at `head`, in a block that begins with `block`; nothing was
    /// appended yet.
    pub(crate) fn new(circle: Circle, head: Lsn, block: &[u8]) -> Memory {
        let slabs = Slabs::new(SPARE_BYTES);
        let mut open = slabs.take(CHUNK_BYTES as usize);
        open[..block.len()].copy_from_slice(block);
        Memory {
            circle,
            open,
            slabs,
            full: Vec::new(),
            open_start: head.block_start(),
            head,
            closed: head,
        }
    }

    /// Where the next byte goes.
    pub(crate) fn head(&self) -> Lsn {
        self.head
    }

    /// How many full chunks wait.
    pub(crate) fn full_chunks(&self) -> usize {
        self.full.len()
    }

    /// Appends bytes.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let used = (self.head.0 - self.open_start.0) as usize;
            let room = self.room() - used;
            let (some, rest) = bytes.split_at(room.min(bytes.len()));
            self.open[used..used + some.len()].copy_from_slice(some);
            self.head = self.head.plus(some.len() as u64);
            bytes = rest;
            if some.len() == room {
                self.close();
            }
        }
    }

    /// Moves the head over `bytes` bytes without storing any: whole blocks, from the beginning of
    /// the head's block on, which the caller writes itself.
    pub(crate) fn skip(&mut self, bytes: u64) {
        if self.head > self.closed {
            self.close();
        }
        self.head = self.head.plus(bytes);
        (self.open_start, self.closed) = (self.head, self.head);
    }

    /// How many bytes fit into the open chunk, which ends where the log turns at the latest.
    fn room(&self) -> usize {
        CHUNK_BYTES.min(self.circle.bytes_to_turn(self.open_start)) as usize
    }

    /// Ends the open chunk. The next one begins with the block that the last record ends in, which
    /// will be written again.
    fn close(&mut self) {
        let used = (self.head.0 - self.open_start.0) as usize;
        let next_start = self.head.block_start();
        let mut next = self.slabs.take(CHUNK_BYTES as usize);
        let block = &self.open[(next_start.0 - self.open_start.0) as usize..used];
        next[..block.len()].copy_from_slice(block);
        self.open[used..used.next_multiple_of(BLOCK_BYTES as usize)].fill(0);
        let slab = std::mem::replace(&mut self.open, next);
        self.full.push(Chunk {
            start: self.open_start,
            end: self.head,
            slab: Arc::new(slab),
        });
        self.open_start = next_start;
        self.closed = self.head;
    }

    /// Takes the full chunks out; the caller must write them.
    pub(crate) fn take_full(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.full)
    }

    /// Takes out everything that was appended; the caller must write it.
    pub(crate) fn take_all(&mut self) -> Vec<Chunk> {
        if self.head > self.closed {
            self.close();
        }
        self.take_full()
    }
}
