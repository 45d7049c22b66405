//! Buffers that are used again: blocks come and go by the thousand, and the allocator would hand
//! their memory from thread to thread.

use backstitch_device::Buffer;

/// The most bytes that are kept for blocks to come.
const KEPT_BYTES: u64 = 16 << 20;
/// And no more than this part of the bound on memory: what blocks may take leaves room for it.
const KEPT_PART: u64 = 16;

/// How much is kept where memory has this bound: half of it buffers, half slabs.
pub(crate) fn kept_bytes(memory_bytes: u64) -> usize {
    KEPT_BYTES.min(memory_bytes / KEPT_PART) as usize
}

/// Buffers that nobody refers to.
#[derive(Debug)]
pub(crate) struct Spare {
    buffers: Vec<Buffer>,
    bytes: usize,
    most_bytes: usize,
    /// What a block without a buffer has.
    nothing: Buffer,
}

impl Spare {
    /// Nothing yet, where memory has this bound.
    pub(crate) fn new(memory_bytes: u64) -> Spare {
        Spare {
            buffers: Vec::new(),
            bytes: 0,
            most_bytes: kept_bytes(memory_bytes) / 2,
            nothing: Buffer::default(),
        }
    }

    /// A buffer with these contents.
    pub(crate) fn filled(&mut self, contents: &[u8]) -> Buffer {
        let Some(mut buffer) = self.buffers.pop_if(|b| b.len() == contents.len()) else {
            return contents.into();
        };
        self.bytes -= buffer.len();
        match buffer.get_mut() {
            Some(bytes) => bytes.copy_from_slice(contents),
            None => return contents.into(),
        }
        buffer
    }

    /// Takes a block's buffer, and keeps it unless somebody else still refers to it.
    pub(crate) fn take_back(&mut self, of: &mut Buffer) {
        let mut buffer = std::mem::replace(of, self.nothing.clone());
        // A part is never kept: its slab is used again as a whole.
        if !buffer.is_part()
            && self.bytes + buffer.len() <= self.most_bytes
            && buffer.get_mut().is_some()
        {
            self.bytes += buffer.len();
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_once_nobody_else_has_it() {
        let mut spare = Spare::new(1 << 30);
        let mut first = spare.filled(&[1; 4096]);
        let (place, reader) = (first.as_ptr(), first.clone());
        spare.take_back(&mut first);
        assert!(first.is_empty());
        let mut second = spare.filled(&[2; 4096]);
        assert_ne!(second.as_ptr(), place, "somebody reads it");
        let place = second.as_ptr();
        spare.take_back(&mut second);
        assert_eq!(spare.filled(&[3; 1024])[..], [3; 1024]);
        let third = spare.filled(&[4; 4096]);
        assert_eq!((third.as_ptr(), &third[..]), (place, &[4; 4096][..]));
        assert_eq!(reader[..], [1; 4096]);
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        for (memory_bytes, most) in [(1 << 30, 8 << 20), (16 << 20, 1 << 19)] {
            let mut spare = Spare::new(memory_bytes);
            let mut all: Vec<_> = (0..5000).map(|_| spare.filled(&[0; 4096])).collect();
            all.iter_mut().for_each(|b| spare.take_back(b));
            assert_eq!((spare.buffers.len(), spare.bytes), (most / 4096, most));
        }
    }
}
