//! Sets of fragments.

/// A set of fragments, a bit for each.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    words: Vec<u64>,
    len: u64,
}

impl Bits {
    pub(crate) fn new(len: u64) -> Bits {
        Bits {
            words: vec![0; len.div_ceil(64) as usize],
            len,
        }
    }

    /// Whether a fragment is in the set; what does not exist is.
    pub(crate) fn contains(&self, at: u64) -> bool {
        at >= self.len || self.words[(at / 64) as usize] >> (at % 64) & 1 != 0
    }

    /// Adds a fragment; `false` where it was in the set already, or does not exist.
    pub(crate) fn insert(&mut self, at: u64) -> bool {
        let is_new = !self.contains(at);
        if is_new {
            self.words[(at / 64) as usize] |= 1 << (at % 64);
        }
        is_new
    }

    pub(crate) fn count(&self) -> u64 {
        let ones = self.words.iter().map(|word| u64::from(word.count_ones()));
        ones.sum()
    }

    /// The map of a group's *free* fragments: those from `start` on that are not in the set.
    pub(crate) fn free_map(&self, start: u64, fragments: u32, map_bytes: usize) -> Vec<u8> {
        let mut map = vec![0; map_bytes];
        for (index, byte) in map.iter_mut().enumerate() {
            for bit in 0..8 {
                let at = index as u32 * 8 + bit;
                if at < fragments && !self.contains(start + u64::from(at)) {
                    *byte |= 1 << bit;
                }
            }
        }
        map
    }
}

/// The bits in which two maps differ, as runs: those that are set in the first alone and those in
/// the second alone, one after the other.
pub(crate) fn differences(first: &[u8], second: &[u8]) -> Vec<Difference> {
    let mut runs: Vec<Difference> = Vec::new();
    for (index, (one, other)) in first.iter().zip(second).enumerate() {
        let mut differs = one ^ other;
        while differs != 0 {
            let bit = differs.trailing_zeros();
            differs &= differs - 1;
            let at = index as u32 * 8 + bit;
            let is_in_first = one >> bit & 1 != 0;
            match runs.last_mut() {
                Some(run) if run.is_in_first == is_in_first && run.last + 1 == at => run.last = at,
                _ => runs.push(Difference {
                    is_in_first,
                    start: at,
                    last: at,
                }),
            }
        }
    }
    runs
}

/// A run of bits that are in one of two maps alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) is_in_first: bool,
    pub(crate) start: u32,
    pub(crate) last: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_show_what_is_free_and_where_they_differ() {
        let mut bits = Bits::new(20);
        assert!(bits.insert(3) && bits.insert(4) && !bits.insert(4) && !bits.insert(20));
        assert_eq!(bits.free_map(2, 10, 2), [0b1111_1001, 0b11]);
        assert_eq!(
            (bits.count(), bits.contains(5), bits.contains(99)),
            (2, false, true)
        );
        let run = |is_in_first, start, last| Difference {
            is_in_first,
            start,
            last,
        };
        assert_eq!(
            differences(&[0b1100_0001, 1], &[0b0000_0011, 0]),
            [run(false, 1, 1), run(true, 6, 8)]
        );
    }
}
