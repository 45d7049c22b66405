//! Contents on their way from a caller into blocks.
//!
//! What a caller writes is copied once, into a slab, and blocks that it fills become parts of that (`Store::lend`). It lies there as
//! it will lie in its blocks, so that these begin at whole sectors.

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
    /// Takes `data`, to be written from `offset_bytes` of a file on, with room for `room_bytes` in all.
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

    /// Adds to it; false where it has no room, or blocks have parts of it already.
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

    /// Gives back the room that is left, where nobody has a part of it yet.
    pub(crate) fn give_back_room(&mut self) {
        if let Some(slab) = Arc::get_mut(&mut self.slab) {
            slab.shorten(self.start + self.len);
        }
    }

    /// What is left when so much of it has been written.
    pub(crate) fn without(mut self, written_bytes: usize) -> Option<Taken> {
        self.start += written_bytes;
        self.len -= written_bytes;
        (self.len > 0).then_some(self)
    }

    /// Has `write` take blocks from it, which it writes.
    pub(crate) fn lend<T>(
        &self,
        v: &mut Volume<'_>,
        write: impl FnOnce(&mut Volume<'_>, &[u8]) -> T,
    ) -> T {
        v.lend(Some(self.slab.clone()));
        let written = write(v, self.bytes());
        v.lend(None);
        written
    }
}
