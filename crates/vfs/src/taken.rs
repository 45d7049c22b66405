//! Contents on their way from a caller into blocks.
//!
//! What a caller writes is copied once, into a slab, and blocks that it fills become parts of the
//! slab (`Volume::lending`). The bytes begin as far into the slab as into their first block, so
//! that blocks begin at whole sectors.

use std::sync::Arc;

use backstitch_ordering::Volume;
use backstitch_store::{Slab, Slabs};

/// Bytes to be written, in a slab.
pub(crate) struct Taken {
    slab: Arc<Slab>,
    start: usize,
    len: usize,
}

impl Taken {
    /// Takes `data`, to be written from `offset_bytes` of a file on, with room for `room_bytes` in
    /// all.
    pub(crate) fn new(
        slabs: &Arc<Slabs>,
        block_bytes: u32,
        offset_bytes: u64,
        data: &[u8],
        room_bytes: usize,
    ) -> Taken {
        let start = (offset_bytes % u64::from(block_bytes)) as usize;
        let mut slab = slabs.take(start + room_bytes.max(data.len()));
        slab[start..start + data.len()].copy_from_slice(data);
        Taken {
            slab: Arc::new(slab),
            start,
            len: data.len(),
        }
    }

    /// What is left to be written.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.slab[self.start..self.start + self.len]
    }

    /// Appends bytes; false where the slab has no room, or blocks have parts of it already.
    pub(crate) fn append(&mut self, data: &[u8]) -> bool {
        let end = self.start + self.len;
        let room = Arc::get_mut(&mut self.slab).and_then(|s| s.get_mut(end..end + data.len()));
        let Some(room) = room else {
            return false;
        };
        room.copy_from_slice(data);
        self.len += data.len();
        true
    }

    /// The rest after `written_bytes` were written; perhaps only the room.
    pub(crate) fn after(mut self, written_bytes: usize) -> Taken {
        self.start += written_bytes;
        self.len -= written_bytes;
        self
    }

    /// The rest after `written_bytes` were written; `None` where nothing is left.
    pub(crate) fn without(self, written_bytes: usize) -> Option<Taken> {
        let rest = self.after(written_bytes);
        (rest.len > 0).then_some(rest)
    }

    /// Whether the slab has little unused room. What was written of it before counts as used: blocks
    /// may have parts of it.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.start + self.len >= self.slab.len() / 8 * 7
    }

    /// Makes it empty, for bytes to be written from `offset_bytes` on. `None` where blocks have
    /// parts of the slab, or it has less room.
    pub(crate) fn emptied(
        mut self,
        block_bytes: u32,
        offset_bytes: u64,
        room_bytes: usize,
    ) -> Option<Taken> {
        self.start = (offset_bytes % u64::from(block_bytes)) as usize;
        self.len = 0;
        let is_free = Arc::get_mut(&mut self.slab).is_some();
        (is_free && self.start + room_bytes <= self.slab.len()).then_some(self)
    }

    /// Lends the slab to `write`, which writes its bytes: blocks may become parts of it.
    pub(crate) fn lend<T>(
        &self,
        v: &mut Volume<'_>,
        write: impl FnOnce(&mut Volume<'_>, &[u8]) -> T,
    ) -> T {
        v.lending(&self.slab, |v| write(v, self.bytes()))
    }
}
