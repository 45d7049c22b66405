//! Memory at page boundaries, used again and again.

/// A buffer that begins at a page.
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
}

impl PageBuffer {
    const PAGE_BYTES: usize = 4096;

    pub(crate) const fn new() -> PageBuffer {
        PageBuffer { bytes: Vec::new() }
    }

    /// The first `len` bytes of it, with whatever was there before.
    pub(crate) fn of(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len + Self::PAGE_BYTES {
            self.bytes = vec![0; len.next_power_of_two() + Self::PAGE_BYTES];
        }
        let start = self.bytes.as_ptr().align_offset(Self::PAGE_BYTES);
        // Where the address cannot be told, any other will do.
        let start = start.min(Self::PAGE_BYTES);
        &mut self.bytes[start..start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_at_a_page_and_grows() {
        let mut buffer = PageBuffer::new();
        for len in [0, 1, 4096, 100_000, 1 << 20] {
            let bytes = buffer.of(len);
            assert_eq!(bytes.len(), len);
            assert_eq!(bytes.as_ptr() as usize % 4096, 0);
        }
    }
}
