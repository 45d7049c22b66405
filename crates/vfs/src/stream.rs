//! Long streams: a file that is written from one end to the other.
//!
//! Changes may take much memory before the first of them is written: many files are changed again
//! or removed soon, and then need no writing. A file of which much has been written in one go
//! rarely is. So its oldest changes go to the disk while the next come in, and the `fsync` at its
//! end finds most of them there.

use std::collections::VecDeque;

use backstitch_layout::InodeNumber;

/// The bytes written in one go that make a file a long stream.
const LONG_STREAM_BYTES: u64 = 64 << 20;

/// Files that may be written in turns: writing a few other files does not end a stream.
const STREAMS: usize = 4;

/// The files that were written last, the last one first.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    of_files: VecDeque<Stream>,
}

/// How much of a file was written in one go, and where it ends.
#[derive(Clone, Copy, Debug)]
struct Stream {
    inode: InodeNumber,
    end_bytes: u64,
    len_bytes: u64,
}

impl Streams {
    pub(crate) fn note(&mut self, inode: InodeNumber, start_bytes: u64, len_bytes: u64) {
        let known = self.of_files.iter().position(|of| of.inode == inode);
        let before = match known.and_then(|at| self.of_files.remove(at)) {
            Some(before) if before.end_bytes == start_bytes => before.len_bytes,
            _ => 0,
        };
        self.of_files.truncate(STREAMS - 1);
        let stream = Stream {
            inode,
            end_bytes: start_bytes + len_bytes,
            len_bytes: before + len_bytes,
        };
        self.of_files.push_front(stream);
    }

    pub(crate) fn is_any_long(&self) -> bool {
        (self.of_files.iter()).any(|of| of.len_bytes >= LONG_STREAM_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn only_what_follows_what_was_written_makes_a_stream_longer() {
        let mut streams = Streams::default();
        for piece in 0..64 {
            assert!(!streams.is_any_long());
            streams.note(InodeNumber(12), (5 + piece) * MIB, MIB);
        }
        assert!(streams.is_any_long());
        streams.note(InodeNumber(12), 69 * MIB, 1);
        assert!(streams.is_any_long());
        streams.note(InodeNumber(12), 69 * MIB, MIB);
        assert!(!streams.is_any_long(), "the same place again");
        streams.note(InodeNumber(12), 70 * MIB, 64 * MIB);
        assert!(streams.is_any_long());
    }

    #[test]
    fn a_few_files_are_written_in_turns() {
        let mut streams = Streams::default();
        for piece in 0..64 {
            assert!(!streams.is_any_long());
            (12..16).for_each(|inode| streams.note(InodeNumber(inode), piece * MIB, MIB));
        }
        assert!(streams.is_any_long());
        (20..23).for_each(|inode| streams.note(InodeNumber(inode), 0, MIB));
        assert!(streams.is_any_long(), "it may go on");
        streams.note(InodeNumber(23), 0, MIB);
        assert!(!streams.is_any_long(), "the last ones are others");
    }
}
