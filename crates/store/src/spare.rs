//! Buffers that are used again: blocks come and go by the thousand, and the allocator would hand their memory from thread to thread.

use std::sync::Arc;

/// So much memory is kept for blocks to come.
const KEPT_BYTES: usize = 4 << 20;

/// Buffers that nobody refers to.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    buffers: Vec<Arc<[u8]>>,
    bytes: usize,
    /// What a block without a buffer has.
    nothing: Arc<[u8]>,
}

impl Spare {
    /// A buffer with these contents.
    pub(crate) fn filled(&mut self, contents: &[u8]) -> Arc<[u8]> {
        let Some(mut buffer) = self.buffers.pop_if(|b| b.len() == contents.len()) else {
            return contents.into();
        };
        self.bytes -= buffer.len();
        match Arc::get_mut(&mut buffer) {
            Some(bytes) => bytes.copy_from_slice(contents),
            None => return contents.into(),
        }
        buffer
    }

    /// Takes a block's buffer, and keeps it unless somebody else still refers to it.
    pub(crate) fn take_back(&mut self, of: &mut Arc<[u8]>) {
        let mut buffer = std::mem::replace(of, self.nothing.clone());
        if self.bytes + buffer.len() <= KEPT_BYTES && Arc::get_mut(&mut buffer).is_some() {
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
        let mut spare = Spare::default();
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
        let mut spare = Spare::default();
        let mut all: Vec<_> = (0..2000).map(|_| spare.filled(&[0; 4096])).collect();
        all.iter_mut().for_each(|b| spare.take_back(b));
        assert_eq!((spare.buffers.len(), spare.bytes), (1024, KEPT_BYTES));
    }
}
