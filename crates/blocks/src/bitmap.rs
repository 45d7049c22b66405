//! Bitmaps: bit *n* is bit `n % 8` of byte `n / 8`.
//!
//! The functions on bytes take a set bit for *in use*. [`Bits`] says where in its block a group's
//! bitmap begins and whether a set bit means that or the opposite; [`Marks`] reads either.

use std::borrow::Cow;

use backstitch_layout::BlockNumber;

/// Where the bits of a group are, and what a set one means. ext has a block for the bits alone, and
/// a set bit is a used block. UFS has inode bits (set: used) and fragment bits (set: free) in the
/// block of the cylinder group, each at an offset of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The first block.
    pub block: BlockNumber,
    /// How many blocks they lie in, the first one included: more than one where a UFS's fragments
    /// are smaller than its maps.
    pub blocks: u64,
    /// The byte of the first block that bit 0 is in.
    pub first_byte: usize,
    /// Whether a set bit means *free*.
    pub set_is_free: bool,
}

impl Bits {
    /// Bits that have a block to themselves; a set one means *in use*.
    pub const fn alone(block: BlockNumber) -> Bits {
        Bits {
            block,
            blocks: 1,
            first_byte: 0,
            set_is_free: false,
        }
    }

    /// The part of the bits that is in the blocks which hold those from `from` to `to`, and the bit
    /// with which it begins. Who looks at a few bits need not read, nor copy, all of their blocks.
    #[inline]
    pub fn narrowed(&self, from: usize, to: usize, block_bytes: u32) -> (Bits, usize) {
        if self.blocks == 1 {
            return (*self, 0);
        }
        let block_bytes = block_bytes as usize;
        let most = self.blocks as usize - 1;
        let block_of = |bit: usize| ((self.first_byte + bit / 8) / block_bytes).min(most);
        let (first, last) = (block_of(from), block_of(to.max(from + 1) - 1));
        let first_byte = match first {
            0 => self.first_byte,
            _ => 0,
        };
        let narrow = Bits {
            block: self.block + first as u64,
            blocks: (last - first + 1) as u64,
            first_byte,
            ..*self
        };
        let skipped_bytes = first * block_bytes + first_byte - self.first_byte;
        (narrow, skipped_bytes * 8)
    }

    /// The bits, in the bytes of all their blocks.
    #[inline]
    pub fn marks<'b>(&self, block: &'b [u8]) -> Marks<'b> {
        Marks {
            bytes: block.get(self.first_byte..).unwrap_or(&[]),
            free: match self.set_is_free {
                true => 0xff,
                false => 0,
            },
        }
    }
}

/// What the bits of a group say. Bits beyond the end say *in use*: there is nothing to allocate.
#[derive(Clone, Copy, Debug)]
pub struct Marks<'b> {
    bytes: &'b [u8],
    /// A byte of which all bits say *free*.
    free: u8,
}

impl Marks<'_> {
    /// Whether a bit says *in use*.
    #[inline]
    pub fn is_used(self, bit: usize) -> bool {
        let byte = self.bytes.get(bit / 8);
        byte.is_none_or(|byte| (byte ^ self.free) & (1 << (bit % 8)) != 0)
    }

    /// The first bit in `from..to` that says *in use*.
    #[inline]
    pub fn first_used(self, from: usize, to: usize) -> Option<usize> {
        find(self.bytes, from, to, !self.word())
    }

    /// The first bit in `from..to` that says *free*.
    #[inline]
    pub fn first_free(self, from: usize, to: usize) -> Option<usize> {
        find(self.bytes, from, to, self.word())
    }

    /// Eight bits at a time, each set where it says *in use*.
    #[inline]
    pub fn used_bytes(self) -> impl Iterator<Item = u8> {
        self.bytes.iter().map(move |byte| byte ^ self.free)
    }

    fn word(self) -> u64 {
        u64::from_ne_bytes([self.free; 8])
    }
}

/// Whether bit `bit` is set. A bit beyond the slice counts as set (nothing to allocate there).
pub fn test(bytes: &[u8], bit: usize) -> bool {
    bytes
        .get(bit / 8)
        .is_none_or(|byte| byte & (1 << (bit % 8)) != 0)
}

/// Sets bit `bit`. Ignores bits beyond the slice.
pub fn set(bytes: &mut [u8], bit: usize) {
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte |= 1 << (bit % 8);
    }
}

/// Clears bit `bit`. Ignores bits beyond the slice.
pub fn clear(bytes: &mut [u8], bit: usize) {
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte &= !(1 << (bit % 8));
    }
}

/// Sets the bits `from..to`.
pub fn set_range(bytes: &mut [u8], from: usize, to: usize) {
    let mut bit = from;
    while bit < to && !bit.is_multiple_of(8) {
        set(bytes, bit);
        bit += 1;
    }
    while bit + 8 <= to {
        if let Some(byte) = bytes.get_mut(bit / 8) {
            *byte = 0xff;
        }
        bit += 8;
    }
    while bit < to {
        set(bytes, bit);
        bit += 1;
    }
}

/// The bits `from..to`, which must exist, as a bitmap of their own. Bits behind them are clear.
pub fn part(bytes: &[u8], from: usize, to: usize) -> Cow<'_, [u8]> {
    let (within, end) = (from % 8, to.div_ceil(8));
    if within == 0 && to.is_multiple_of(8) {
        return Cow::Borrowed(&bytes[from / 8..end]);
    }
    let count = to - from;
    let byte_at = |at: usize| u16::from(bytes.get(at).copied().unwrap_or(0));
    let shifted = |at: usize| (byte_at(at) | byte_at(at + 1) << 8) >> within;
    let first = from / 8;
    let mut part: Vec<u8> = (first..first + count.div_ceil(8))
        .map(|at| shifted(at) as u8)
        .collect();
    if let (Some(last), bits @ 1..) = (part.last_mut(), count % 8) {
        *last &= (1 << bits) - 1;
    }
    Cow::Owned(part)
}

/// The first clear bit in `from..to`, looking at eight bytes at a time.
pub fn find_zero(bytes: &[u8], from: usize, to: usize) -> Option<usize> {
    find(bytes, from, to, 0)
}

/// The first set bit in `from..to`, looking at eight bytes at a time.
pub fn find_set(bytes: &[u8], from: usize, to: usize) -> Option<usize> {
    find(bytes, from, to, u64::MAX)
}

/// The first bit in `from..to` that is set after all words are xored with `!flip`.
fn find(bytes: &[u8], from: usize, to: usize, flip: u64) -> Option<usize> {
    let to = to.min(bytes.len() * 8);
    let mut bit = from;
    while bit < to {
        let word = word_at(bytes, bit / 64) ^ !flip;
        let rest = word >> (bit % 64);
        if rest != 0 {
            let found = bit + rest.trailing_zeros() as usize;
            return (found < to).then_some(found);
        }
        bit = (bit / 64 + 1) * 64;
    }
    None
}

/// The number of clear bits in `0..bits`.
pub fn count_zeros(bytes: &[u8], bits: usize) -> usize {
    let bits = bits.min(bytes.len() * 8);
    let mut zeros = 0;
    for index in 0..bits.div_ceil(64) {
        let valid = (bits - index * 64).min(64);
        let mask = u64::MAX >> (64 - valid);
        zeros += (!word_at(bytes, index) & mask).count_ones() as usize;
    }
    zeros
}

/// The 64 bits from bit `index * 64` on; bits beyond the slice are clear.
fn word_at(bytes: &[u8], index: usize) -> u64 {
    let start = index * 8;
    match bytes.get(start..start + 8) {
        Some(word) => u64::from_le_bytes(word.try_into().unwrap_or([0; 8])),
        None => {
            let mut word = [0; 8];
            let rest = bytes.get(start..).unwrap_or(&[]);
            word[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(word)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_at_an_offset_say_the_same_with_either_meaning() {
        // A cylinder group's block: a header, then bits of which a set one is free.
        let mut block = vec![0xa5; 11];
        let mut used = vec![0; 21];
        for bit in [0, 5, 64, 100, 101, 167] {
            set(&mut used, bit);
        }
        block.extend(used.iter().map(|byte| !byte));
        let ufs = Bits {
            block: BlockNumber(7),
            blocks: 1,
            first_byte: 11,
            set_is_free: true,
        };
        let (ext, ufs) = (Bits::alone(BlockNumber(7)).marks(&used), ufs.marks(&block));
        for marks in [ext, ufs] {
            assert!(marks.is_used(0) && !marks.is_used(1) && marks.is_used(101));
            assert!(marks.is_used(168), "nothing can be given behind the end");
            assert_eq!(marks.first_used(6, 168), Some(64));
            assert_eq!(marks.first_used(102, 167), None);
            assert_eq!(marks.first_free(0, 168), Some(1));
            assert_eq!(marks.first_free(100, 168), Some(102));
            assert!(marks.used_bytes().eq(used.iter().copied()));
        }
    }

    #[test]
    fn a_part_of_the_blocks_has_the_same_bits() {
        const BLOCK_BYTES: usize = 16;
        let bits = Bits {
            block: BlockNumber(7),
            blocks: 3,
            first_byte: 11,
            set_is_free: true,
        };
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES as u32)
            .map(|byte| (byte * 91 + 37) as u8)
            .collect();
        let (all, count) = (bits.marks(&bytes), (3 * BLOCK_BYTES - 11) * 8);
        for from in 0..count {
            for to in [from, from + 1, count.min(from + 70)] {
                let (narrow, base) = bits.narrowed(from, to, BLOCK_BYTES as u32);
                let at = (narrow.block.0 - 7) as usize;
                let blocks = at * BLOCK_BYTES..(at + narrow.blocks as usize) * BLOCK_BYTES;
                let marks = narrow.marks(&bytes[blocks]);
                let same = |bit: usize| marks.is_used(bit - base) == all.is_used(bit);
                assert!((from..to).all(same), "{from}..{to}");
            }
        }
        // One bit is in one block, one past the end in none, and bits of one block are all of them.
        let (last, base) = bits.narrowed(count + 99, count + 99, 16);
        assert_eq!((last.block.0, last.blocks, base), (9, 1, 21 * 8));
        assert_eq!(bits.narrowed(40, 40, 16).0.blocks, 1);
        let alone = Bits::alone(BlockNumber(3));
        assert_eq!(alone.narrowed(900, 1000, 16), (alone, 0));
    }

    #[test]
    fn finds_and_counts_across_words() {
        let mut bytes = vec![0xff; 21];
        assert_eq!(find_zero(&bytes, 0, 168), None);
        clear(&mut bytes, 3);
        clear(&mut bytes, 64);
        clear(&mut bytes, 167);
        assert_eq!(find_zero(&bytes, 0, 168), Some(3));
        assert_eq!(find_zero(&bytes, 4, 168), Some(64));
        assert_eq!(find_zero(&bytes, 65, 168), Some(167));
        assert_eq!(find_zero(&bytes, 65, 167), None);
        assert_eq!(count_zeros(&bytes, 168), 3);
        assert_eq!(count_zeros(&bytes, 167), 2);
        assert_eq!(count_zeros(&bytes, 3), 0);
    }

    #[test]
    fn a_part_has_the_bits_from_its_first_one_on() {
        let bytes: Vec<u8> = (0..9_u32).map(|byte| (byte * 91 + 37) as u8).collect();
        for (from, to) in [(0, 72), (8, 24), (0, 13), (5, 8), (5, 29), (13, 72), (7, 7)] {
            let part = part(&bytes, from, to);
            assert_eq!(part.len(), (to - from).div_ceil(8));
            for bit in 0..part.len() * 8 {
                let expected = from + bit < to && test(&bytes, from + bit);
                assert_eq!(test(&part, bit), expected, "{from}..{to} bit {bit}");
            }
        }
    }

    #[test]
    fn sets_ranges() {
        for (from, to) in [(0, 0), (0, 8), (3, 5), (3, 29), (7, 40)] {
            let mut bytes = vec![0; 5];
            set_range(&mut bytes, from, to);
            for bit in 0..40 {
                assert_eq!(
                    test(&bytes, bit),
                    (from..to).contains(&bit),
                    "{from}..{to} bit {bit}"
                );
            }
            assert_eq!(find_set(&bytes, 0, 40), (from < to).then_some(from));
        }
        assert!(test(&[0], 8));
    }
}
