//! Trees of extents with a few changed bytes: nothing panics, and reading ends.

use backstitch_fuzz::corpus;
use backstitch_fuzz::targets::extents::{BLOCK_BYTES, run};

/// Bytes of a root in its inode.
const ROOT_BYTES: usize = 60;
/// Variations of each sound tree that are tried.
const TRIES: usize = 400;

#[test]
fn a_damaged_tree_is_read_to_an_end() {
    let mut random = fastrand::Rng::with_seed(28);
    for (_, sound) in corpus::trees() {
        run(&sound);
        for _ in 0..TRIES {
            let mut tree = sound.clone();
            for _ in 0..random.usize(1..4) {
                // The root or a node after it; mostly the header and the first entries, on which
                // the rest depends.
                let node = match random.usize(..=tree.len() / BLOCK_BYTES) {
                    0 => 0,
                    number => ROOT_BYTES + (number - 1) * BLOCK_BYTES,
                };
                let most = [40, BLOCK_BYTES][usize::from(random.bool())];
                let within = random.usize(..most);
                let at = (node + within) % tree.len();
                tree[at] = match random.u8(..4) {
                    0 => 0,
                    1 => tree[at].wrapping_add(1),
                    2 => tree[at] ^ 1 << random.u8(..8),
                    _ => random.u8(..),
                };
            }
            run(&tree);
        }
    }
}
