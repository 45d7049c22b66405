//! The contents of files: parts of one buffer, so that a run spends no time on making data.

use crate::random::Random;

/// Bytes of the buffer. The contents of a larger file repeat.
const POOL_BYTES: usize = 8 << 20;

/// The buffer from which all files take their contents.
pub(crate) struct Contents {
    pool: Vec<u8>,
}

impl Contents {
    /// The buffer for a seed: noise, in which no two blocks are alike.
    pub(crate) fn new(seed: u64) -> Contents {
        let mut random = Random::new(seed, 1);
        let mut pool = vec![0; POOL_BYTES];
        for word in pool.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        Contents { pool }
    }

    /// At most `len_bytes` of the contents of file `salt` from `offset_bytes` on; fewer at the end
    /// of the buffer.
    pub(crate) fn piece(&self, salt: u64, offset_bytes: u64, len_bytes: u64) -> &[u8] {
        let pool_bytes = self.pool.len() as u64;
        let start = (salt.wrapping_mul(0x9e37_79b9) % pool_bytes + offset_bytes) % pool_bytes;
        let end = (start + len_bytes).min(pool_bytes);
        &self.pool[start as usize..end as usize]
    }
}
