//! Long streams: a file that is written from one end to the other.
//!
//! Changes may take much memory before the first of them is written, for many files are changed again or removed before long, and
//! what is gone needs no writing. A file of which so much has been written in one go will hardly be: its blocks go to the disk while
//! the next ones come in, so that the `fsync` at its end finds most of them there.

use backstitch_layout::InodeNumber;

use crate::engine::Core;

/// From so much on it is a long stream.
const LONG_STREAM_BYTES: u64 = 64 << 20;

/// What was written last, and how much of the file in one go until then.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    follows: Option<(InodeNumber, u64)>,
    len_bytes: u64,
}

impl Stream {
    fn note(&mut self, inode: InodeNumber, start_bytes: u64, len_bytes: u64) {
        let before = match self.follows == Some((inode, start_bytes)) {
            true => self.len_bytes,
            false => 0,
        };
        self.len_bytes = before + len_bytes;
        self.follows = Some((inode, start_bytes + len_bytes));
    }

    fn is_long(&self) -> bool {
        self.len_bytes >= LONG_STREAM_BYTES
    }
}

impl Core {
    /// Blocks of a file have been written.
    pub(crate) fn note_written(&mut self, inode: InodeNumber, start_bytes: u64, len_bytes: usize) {
        self.stream.note(inode, start_bytes, len_bytes as u64);
        self.store.note_streaming(self.stream.is_long());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_follows_what_was_written_makes_a_stream_longer() {
        let mut stream = Stream::default();
        for piece in 0..64 {
            assert!(!stream.is_long());
            stream.note(InodeNumber(12), (5 << 20) + (piece << 20), 1 << 20);
        }
        assert!(stream.is_long());
        stream.note(InodeNumber(12), 69 << 20, 1);
        assert!(stream.is_long());
        stream.note(InodeNumber(12), 69 << 20, 1 << 20);
        assert!(!stream.is_long(), "the same place again");
        stream.note(InodeNumber(12), 70 << 20, 64 << 20);
        assert!(stream.is_long());
        stream.note(InodeNumber(13), 134 << 20, 1 << 20);
        assert!(!stream.is_long(), "another file");
    }
}
