//! Random numbers from a seed: the same on every machine.

/// xorshift64*, seeded through splitmix64 so that neighbouring seeds have nothing in common.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The numbers of `seed` in `stream`. Different parts of a workload use different streams.
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        let mut z = seed
            .wrapping_add(stream.wrapping_mul(0xd1b5_4a32_d192_ed03))
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Random {
            state: (z ^ (z >> 31)) | 1,
        }
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; 0 where `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Uniform in (0, 1).
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Standard normal: the sum of twelve uniform numbers, which needs no function whose last bit
    /// differs between hosts.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [(); 4].map(|()| random.next())
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(7, 0);
        for _ in 0..10_000 {
            assert!((5..=9).contains(&random.between(5, 9)));
            assert!(random.normal().abs() <= 6.0);
        }
        assert_eq!(random.below(0), 0);
        assert_eq!(random.between(3, 3), 3);
    }
}
