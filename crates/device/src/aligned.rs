//! Aligned memory.

use std::ops::{Deref, DerefMut};

/// Memory at an aligned address, zeros at first. An allocator that is asked for aligned memory
/// leaves gaps too small for the next piece of the same length. So this is an aligned part of a
/// slightly longer allocation.
#[derive(Debug, Default)]
pub(crate) struct Aligned {
    bytes: Box<[u8]>,
    start: usize,
    len_bytes: usize,
}

impl Aligned {
    pub(crate) fn new(len_bytes: usize, alignment_bytes: usize) -> Aligned {
        let bytes = vec![0; len_bytes + alignment_bytes].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(alignment_bytes);
        Aligned {
            bytes,
            start: start.min(alignment_bytes),
            len_bytes,
        }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len_bytes]
    }
}

impl DerefMut for Aligned {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len_bytes]
    }
}
