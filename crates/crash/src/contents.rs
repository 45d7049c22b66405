//! The contents of a file, stored without zeros: a file of 64 MiB that is nearly all hole costs
//! only what is written in it.

use std::ops::Range;
use std::sync::Arc;

use twox_hash::xxhash3_128::Hasher;

/// Bytes of a piece: the size of the smallest block.
pub(crate) const PIECE: u64 = 1024;

/// Bytes of a file from a multiple of [`PIECE`] on.
pub(crate) type Piece = [u8; PIECE as usize];

const ZEROS: Piece = [0; PIECE as usize];

/// A file's bytes. Versions of a file share the pieces in which they do not differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    len: u64,
    /// The pieces that are not all zeros, in order of their numbers. They hold zeros beyond the end
    /// of the file.
    pieces: Vec<(u64, Arc<Piece>)>,
}

impl Contents {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of a piece, with zeros beyond the end.
    pub(crate) fn piece(&self, number: u64) -> &Piece {
        self.place(number).map_or(&ZEROS, |at| &self.pieces[at].1)
    }

    /// The numbers of the pieces that are not all zeros.
    pub(crate) fn written(&self) -> impl Iterator<Item = u64> {
        self.pieces.iter().map(|(number, _)| *number)
    }

    /// The offset after the last byte that is not zero.
    pub(crate) fn written_end(&self) -> u64 {
        self.pieces.last().map_or(0, |(number, piece)| {
            let zeros = piece.iter().rev().take_while(|byte| **byte == 0);
            (number + 1) * PIECE - zeros.count() as u64
        })
    }

    /// The index of a piece, or the one at which to insert it.
    fn place(&self, number: u64) -> Result<usize, usize> {
        self.pieces
            .binary_search_by_key(&number, |(number, _)| *number)
    }

    /// A byte; `None` beyond the end.
    pub(crate) fn byte(&self, at: u64) -> Option<u8> {
        (at < self.len).then(|| self.piece(at / PIECE)[(at % PIECE) as usize])
    }

    /// Writes bytes at an offset. Where the file ends before them it becomes longer.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        self.len = self.len.max(at + bytes.len() as u64);
        let mut rest = bytes;
        let mut at = at;
        while !rest.is_empty() {
            let (number, skip) = (at / PIECE, (at % PIECE) as usize);
            let count = rest.len().min(PIECE as usize - skip);
            self.change(number, |piece| {
                piece[skip..skip + count].copy_from_slice(&rest[..count]);
            });
            rest = &rest[count..];
            at += count as u64;
        }
    }

    /// Writes zeros from one offset to another, without making the file longer.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        let end = range.end.min(self.len);
        if range.start >= end {
            return;
        }
        let numbers = range.start / PIECE..end.div_ceil(PIECE);
        let there: Vec<u64> = self.written().filter(|n| numbers.contains(n)).collect();
        for number in there {
            let start = range.start.max(number * PIECE) - number * PIECE;
            let end = end.min((number + 1) * PIECE) - number * PIECE;
            self.change(number, |piece| piece[start as usize..end as usize].fill(0));
        }
    }

    /// Shortens the file, or makes it longer with zeros.
    pub(crate) fn resize(&mut self, len: u64) {
        self.clear(len..self.len);
        self.len = len;
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut Piece)) {
        let mut bytes = *self.piece(number);
        change(&mut bytes);
        match (self.place(number), bytes == ZEROS) {
            (Ok(at), true) => drop(self.pieces.remove(at)),
            (Ok(at), false) => self.pieces[at].1 = Arc::new(bytes),
            (Err(_), true) => {}
            (Err(at), false) => self.pieces.insert(at, (number, Arc::new(bytes))),
        }
    }

    /// Adds the contents to a hash.
    pub(crate) fn hash_into(&self, hasher: &mut Hasher) {
        hasher.write(&self.len.to_le_bytes());
        for (number, piece) in &self.pieces {
            hasher.write(&number.to_le_bytes());
            hasher.write(&**piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng as Random;

    /// Compares each operation with the same one on a vector of bytes.
    #[test]
    fn it_is_a_vector_of_bytes() {
        let mut random = Random::with_seed(5);
        let (mut contents, mut bytes) = (Contents::default(), Vec::<u8>::new());
        for step in 0..2000 {
            let (at, len) = (random.u64(..9000), random.usize(..3000));
            match random.usize(..4) {
                0 => {
                    let new = vec![step as u8; len];
                    contents.write(at, &new);
                    if !new.is_empty() || at as usize > bytes.len() {
                        bytes.resize(bytes.len().max(at as usize + len), 0);
                    }
                    bytes[at as usize..at as usize + len].copy_from_slice(&new);
                }
                1 => {
                    contents.clear(at..at + len as u64);
                    let end = bytes.len().min(at as usize + len);
                    bytes[end.min(at as usize)..end].fill(0);
                }
                2 => {
                    contents.resize(at);
                    bytes.resize(at as usize, 0);
                }
                _ => {}
            }
            assert_eq!(contents.len(), bytes.len() as u64);
            let shown: Vec<u8> = (0..contents.len())
                .filter_map(|at| contents.byte(at))
                .collect();
            assert_eq!(shown, bytes);
            assert_eq!(contents.byte(contents.len()), None);
        }
        let mut same = Contents::default();
        same.write(0, &bytes);
        assert_eq!(same, contents);
    }
}
