//! Bytes by address, as far as any were written; the rest are zeros.

use backstitch_device::Buffer;
use rustc_hash::FxHashMap;

/// The unit in which bytes are kept, a block of most file systems.
const CHUNK_BYTES: usize = 4096;

/// Sparse contents. Whole aligned buffers are shared with their writers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    chunks: FxHashMap<u64, Buffer>,
}

/// The pieces of a range that lie in one chunk each: the chunk, where in it, and which part of the
/// range.
fn pieces(
    offset_bytes: u64,
    len: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset_bytes + done as u64;
        let within = (at % CHUNK_BYTES as u64) as usize;
        let some = (CHUNK_BYTES - within).min(len - done);
        let range = done..done + some;
        done += some;
        (some > 0).then_some((at / CHUNK_BYTES as u64, within, range))
    })
}

impl Content {
    pub(crate) fn read(&self, offset_bytes: u64, buffer: &mut [u8]) {
        for (chunk, within, range) in pieces(offset_bytes, buffer.len()) {
            let part = &mut buffer[range];
            match self.chunks.get(&chunk) {
                Some(bytes) => part.copy_from_slice(&bytes[within..within + part.len()]),
                None => part.fill(0),
            }
        }
    }

    pub(crate) fn write(&mut self, offset_bytes: u64, buffer: &Buffer) {
        let is_whole =
            buffer.len() == CHUNK_BYTES && offset_bytes.is_multiple_of(CHUNK_BYTES as u64);
        if is_whole {
            self.chunks
                .insert(offset_bytes / CHUNK_BYTES as u64, buffer.clone());
            return;
        }
        for (chunk, within, range) in pieces(offset_bytes, buffer.len()) {
            let bytes = self
                .chunks
                .entry(chunk)
                .or_insert_with(|| Buffer::zeroed(CHUNK_BYTES));
            bytes.make_unique()[within..within + range.len()].copy_from_slice(&buffer[range]);
        }
    }
}
