//! A small random generator: every test can be repeated from the seed that it prints.

/// Steele, Lea and Flood's SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in the environment variable `SEED`, or one that differs in each run. It is printed,
    /// so that the run can be repeated.
    pub fn seed(test: &str) -> u64 {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = crate::setting(
            "SEED",
            clock.map_or(0, |t| t.as_micros() as u64 % 1_000_000),
        );
        crate::say(&format!("{test}: SEED={seed}"));
        seed
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next_u64() % n }
    }

    /// A number from `low` up to, not including, `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of the items.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// A number of random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// A size like those of files: often zero, mostly small, sometimes up to `largest`.
    pub fn file_size(&mut self, largest: u64) -> u64 {
        match self.below(8) {
            0 => 0,
            1..=4 => self.below(largest.min(4096)),
            5 | 6 => self.below(largest.min(64 << 10)),
            _ => self.below(largest),
        }
    }
}
