//! Undo data: what the bytes of a patch were before it.

/// The previous contents of the bytes that a patch changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Undo {
    /// Nothing to undo (hard, empty).
    None,
    /// Bits, taken back by flipping them again. `covered` holds every bit that was ever flipped,
    /// also those that a merged change flipped back: later flips of them come after.
    Flip { covered: Packed },
    /// They were all zero.
    Zero,
    /// They fit into the patch; those behind these eight were zero.
    Inline([u8; 8]),
    /// They are in this slot of the [`UndoStore`]: all of them but the zeros at their end, or only
    /// those that the patch changed.
    Stored(Packed),
}

/// A number that may lie at any address, which saves a patch four bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed([u8; 4]);

impl Packed {
    pub(crate) fn new(number: u32) -> Packed {
        Packed(number.to_ne_bytes())
    }

    pub(crate) fn get(self) -> u32 {
        u32::from_ne_bytes(self.0)
    }
}

/// The smallest buffer is of 16 bytes, every next size is twice as large.
const CLASSES: usize = 9;
const SMALLEST: usize = 16;
/// Buffers of this many bytes at most are kept for reuse.
const SPARE_BYTES: usize = 256 << 10;

/// Undo data that does not fit into its patch. Buffers come in sizes of powers of two and are used
/// again, so that a graph in a steady state allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct UndoStore {
    slots: Vec<Kept>,
    free_slots: Vec<u32>,
    spare: [Vec<Box<[u8]>>; CLASSES],
    spare_bytes: usize,
    /// Scratch space.
    difference: Vec<u8>,
}

/// Undo data in a buffer.
#[derive(Debug, Default)]
struct Kept {
    buffer: Box<[u8]>,
    len_bytes: usize,
    /// The buffer holds [pieces](Pieces); the patch did not change the bytes outside of them.
    is_difference: bool,
}

/// Bytes of the head of a piece: its offset in the patch's range and its length, 16 bits each.
const HEAD_BYTES: usize = 4;
/// Equal bytes in a row that end a piece. A shorter gap is kept in the piece: another head costs
/// more.
const GAP: usize = HEAD_BYTES;

/// The pieces of a difference, each with where in the patch's range it begins.
struct Pieces<'a>(&'a [u8]);

impl<'a> Iterator for Pieces<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<(usize, &'a [u8])> {
        let ([a, b, c, d], rest) = self.0.split_first_chunk::<HEAD_BYTES>()?;
        let (at, len) = (u16::from_ne_bytes([*a, *b]), u16::from_ne_bytes([*c, *d]));
        let (piece, rest) = rest.split_at(usize::from(len));
        self.0 = rest;
        Some((usize::from(at), piece))
    }
}

/// Where old and new bytes differ from `from` on.
fn next_difference(old: &[u8], new: &[u8], mut from: usize) -> Option<usize> {
    while old.len() - from >= 8 && old[from..from + 8] == new[from..from + 8] {
        from += 8;
    }
    (from..old.len()).find(|at| old[*at] != new[*at])
}

/// Appends the pieces of `old` in which `new` differs; both have the same length.
fn put_difference(old: &[u8], new: &[u8], into: &mut Vec<u8>) {
    let mut from = 0;
    while let Some(start) = next_difference(old, new, from) {
        let mut end = start + 1;
        from = end;
        while from < old.len() && from - end < GAP {
            from += 1;
            if old[from - 1] != new[from - 1] {
                end = from;
            }
        }
        into.extend_from_slice(&(start as u16).to_ne_bytes());
        into.extend_from_slice(&((end - start) as u16).to_ne_bytes());
        into.extend_from_slice(&old[start..end]);
    }
}

impl UndoStore {
    /// Keeps the old bytes of a patch. With `frugal`, zeros at their end take no space: bytes that
    /// a file system initialises or takes into use were mostly zero.
    pub(crate) fn keep(&mut self, old: &[u8], frugal: bool) -> Undo {
        let mut kept = old;
        if frugal {
            let zeros = old.iter().rev().take_while(|b| **b == 0).count();
            kept = &old[..old.len() - zeros];
            if kept.is_empty() {
                return Undo::Zero;
            }
        }
        if kept.len() <= 8 {
            let mut bytes = [0; 8];
            bytes[..kept.len()].copy_from_slice(kept);
            return Undo::Inline(bytes);
        }
        self.store(kept, false)
    }

    /// Keeps only the old bytes that the patch changed, where that takes less than half of the
    /// space. They can be put back only into bytes as the patch left them, so a merge into the
    /// patch replaces them by all old bytes.
    pub(crate) fn keep_difference(&mut self, old: &[u8], new: &[u8]) -> Option<Undo> {
        if old.len() > usize::from(u16::MAX) {
            return None;
        }
        let mut difference = std::mem::take(&mut self.difference);
        difference.clear();
        put_difference(old, new, &mut difference);
        let undo = (difference.len() < old.len() / 2).then(|| self.store(&difference, true));
        self.difference = difference;
        undo
    }

    fn store(&mut self, bytes: &[u8], is_difference: bool) -> Undo {
        let mut buffer = self.buffer(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        let kept = Kept {
            buffer,
            len_bytes: bytes.len(),
            is_difference,
        };
        if let Some(slot) = self.free_slots.pop() {
            self.slots[slot as usize] = kept;
            return Undo::Stored(Packed::new(slot));
        }
        self.slots.push(kept);
        Undo::Stored(Packed::new(self.slots.len() as u32 - 1))
    }

    /// Whether only the bytes that a patch changed are kept.
    pub(crate) fn is_difference(&self, undo: Undo) -> bool {
        matches!(undo, Undo::Stored(slot) if self.slots[slot.get() as usize].is_difference)
    }

    /// The bytes to put back, each piece with its offset in the patch's range of `len_bytes`, once
    /// all later patches are taken back.
    pub(crate) fn pieces(&self, undo: Undo, len_bytes: usize) -> Vec<(usize, Box<[u8]>)> {
        match undo {
            Undo::Stored(slot) if self.is_difference(undo) => {
                let kept = &self.slots[slot.get() as usize];
                let pieces = Pieces(&kept.buffer[..kept.len_bytes]);
                pieces.map(|(at, bytes)| (at, bytes.into())).collect()
            }
            _ => {
                let mut bytes = vec![0; len_bytes].into_boxed_slice();
                self.restore(undo, &mut bytes);
                vec![(0, bytes)]
            }
        }
    }

    /// Bytes of undo data that this holds.
    pub(crate) fn held_bytes(&self, undo: Undo) -> u64 {
        match undo {
            Undo::Stored(slot) => self.slots[slot.get() as usize].len_bytes as u64,
            Undo::Inline(_) => 8,
            Undo::None | Undo::Flip { .. } | Undo::Zero => 0,
        }
    }

    fn buffer(&mut self, len: usize) -> Box<[u8]> {
        let size = len.next_power_of_two().max(SMALLEST);
        let class = Self::class(size);
        if let Some(buffer) = self.spare.get_mut(class).and_then(Vec::pop) {
            self.spare_bytes -= buffer.len();
            return buffer;
        }
        vec![0; size].into()
    }

    fn class(size: usize) -> usize {
        (size / SMALLEST).trailing_zeros() as usize
    }

    /// Puts the old bytes into `into`, the patch's range. Where [only the
    /// difference](Self::is_difference) is kept, `into` must be as the patch left it.
    pub(crate) fn restore(&self, undo: Undo, into: &mut [u8]) {
        let kept = match &undo {
            Undo::None | Undo::Flip { .. } => return,
            Undo::Zero => &[],
            Undo::Inline(bytes) => &bytes[..into.len().min(bytes.len())],
            Undo::Stored(slot) => {
                let kept = &self.slots[slot.get() as usize];
                let bytes = &kept.buffer[..kept.len_bytes];
                if kept.is_difference {
                    for (at, piece) in Pieces(bytes) {
                        into[at..at + piece.len()].copy_from_slice(piece);
                    }
                    return;
                }
                bytes
            }
        };
        let (first, zeros) = into.split_at_mut(kept.len());
        first.copy_from_slice(kept);
        zeros.fill(0);
    }

    /// Gives up what `undo` holds.
    pub(crate) fn forget(&mut self, undo: Undo) {
        let Undo::Stored(slot) = undo else {
            return;
        };
        let slot = slot.get();
        let Kept { buffer, .. } = std::mem::take(&mut self.slots[slot as usize]);
        self.free_slots.push(slot);
        let class = Self::class(buffer.len());
        if class < CLASSES && self.spare_bytes + buffer.len() <= SPARE_BYTES {
            self.spare_bytes += buffer.len();
            self.spare[class].push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_puts_back_what_was_there() {
        let mut random = 1u32;
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 16
        };
        let mut undo = UndoStore::default();
        for round in 0..2_000 {
            let len = 1 + next() as usize % 300;
            let old: Vec<u8> = (0..len).map(|_| next() as u8).collect();
            let mut new = old.clone();
            for _ in 0..next() % 6 {
                let at = next() as usize % len;
                new[at] = next() as u8;
            }
            let Some(kept) = undo.keep_difference(&old, &new) else {
                continue;
            };
            assert!(undo.is_difference(kept));
            assert!(undo.held_bytes(kept) < len as u64 / 2);
            let mut back = new.clone();
            undo.restore(kept, &mut back);
            assert_eq!(back, old, "round {round}");
            let mut back = new.clone();
            for (at, bytes) in undo.pieces(kept, len) {
                back[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            assert_eq!(back, old, "round {round}");
            undo.forget(kept);
        }
        assert!(undo.keep_difference(&[1; 200], &[2; 200]).is_none());
    }
}
