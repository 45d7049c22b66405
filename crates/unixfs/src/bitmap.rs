//! Bitmaps: bit *n* is bit `n % 8` of byte `n / 8`; a set bit means *in use*.

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

/// The first clear bit in `from..to`, looking at eight bytes at a time.
pub fn find_zero(bytes: &[u8], from: usize, to: usize) -> Option<usize> {
    find(bytes, from, to, 0)
}

/// The first set bit in `from..to`, looking at eight bytes at a time.
pub fn find_set(bytes: &[u8], from: usize, to: usize) -> Option<usize> {
    find(bytes, from, to, u64::MAX)
}

/// The first bit in `from..to` that is set once the word is xored with `!flip`.
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
