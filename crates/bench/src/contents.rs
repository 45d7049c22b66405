//! What files hold: windows of one buffer, so that a run spends no time on making data.

use crate::random::Random;

/// The size of the buffer; a file that is larger goes round.
const POOL_BYTES: usize = 8 << 20;

/// One buffer that all files take their contents from.
pub(crate) struct Contents {
    pool: Vec<u8>,
}

impl Contents {
    /// The buffer of a seed: noise, no two blocks alike.
    pub(crate) fn new(seed: u64) -> Contents {
        let mut random = Random::new(seed, 1);
        let mut pool = Vec::with_capacity(POOL_BYTES);
        while pool.len() < POOL_BYTES {
            pool.extend_from_slice(&random.next().to_le_bytes());
        }
        Contents { pool }
    }

    /// At most `len_bytes` of the contents of file `salt` from `offset_bytes` on: fewer where the
    /// buffer ends.
    pub(crate) fn piece(&self, salt: u64, offset_bytes: u64, len_bytes: u64) -> &[u8] {
        let pool_bytes = self.pool.len() as u64;
        let start = (salt.wrapping_mul(0x9e37_79b9) % pool_bytes + offset_bytes) % pool_bytes;
        let end = (start + len_bytes).min(pool_bytes);
        &self.pool[start as usize..end as usize]
    }
}
