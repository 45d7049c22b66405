//! Hashed directories: the index blocks, and the hash functions.
//!
//! A hashed directory's first block is its root, disguised as a directory block in which `..` takes
//! all that is left; other index blocks look like one unused entry. [`block`] has the blocks as
//! validated views, and what changes them.
//!
//! The hashes are those of the kernel's `fs/ext4/hash.c`: the legacy one, half an MD4, and TEA.
//! Each takes characters as signed or as unsigned, which depends on the machine that made the file
//! system and is recorded in the superblock's `s_flags`.

pub mod block;

use super::features::INCOMPAT_LARGE_DIR;
use super::superblock::{FLAG_UNSIGNED_HASH, Superblock};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `hash_version`: the legacy hash, the kernel's own.
pub const HASH_LEGACY: u8 = 0;
/// `hash_version`: half an MD4.
pub const HASH_HALF_MD4: u8 = 1;
/// `hash_version`: TEA.
pub const HASH_TEA: u8 = 2;
/// `hash_version`, in memory only: the legacy hash over unsigned characters.
pub const HASH_LEGACY_UNSIGNED: u8 = 3;
/// In memory only: half an MD4 over unsigned characters.
pub const HASH_HALF_MD4_UNSIGNED: u8 = 4;
/// In memory only: TEA over unsigned characters.
pub const HASH_TEA_UNSIGNED: u8 = 5;

/// Where [`RawRootInfo`] lies in the root block: behind `.` and the start of `..`.
pub const ROOT_INFO_OFFSET: usize = 24;
/// Where the entries of an index block that is not the root start: behind the unused entry's
/// header.
pub const NODE_ENTRIES_OFFSET: usize = 8;
/// The size of an index entry.
pub const ENTRY_SIZE: usize = 8;
/// The deepest index: this many levels below the root's own.
pub const MAX_INDIRECT_LEVELS: u8 = 1;
/// The deepest index with the feature `large_dir`.
pub const MAX_INDIRECT_LEVELS_LARGE: u8 = 2;
/// The bits of an index entry's block number; the rest is reserved.
pub const BLOCK_MASK: u32 = 0x0fff_ffff;

/// The root block's own fields.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawRootInfo {
    pub reserved_zero: U32,
    pub hash_version: u8,
    pub info_length: u8,
    pub indirect_levels: u8,
    pub unused_flags: u8,
}

/// An index entry: names with this hash or more are in this block of the directory. The first entry
/// of a block has [`RawCountLimit`] in place of the hash.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawIndexEntry {
    pub hash: U32,
    pub block: U32,
}

/// How many entries an index block has, and how many would fit.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawCountLimit {
    pub limit: U16,
    pub count: U16,
}

/// The hash of a name under a version (one of the six `HASH_` constants); the lowest bit is clear.
/// `None` for a version that does not exist.
pub fn hash(version: u8, seed: &[u32; 4], name: &[u8]) -> Option<u32> {
    let unsigned = version >= HASH_LEGACY_UNSIGNED;
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    if seed.iter().any(|word| *word != 0) {
        state = *seed;
    }
    let value = match version {
        HASH_LEGACY | HASH_LEGACY_UNSIGNED => legacy(name, unsigned),
        HASH_HALF_MD4 | HASH_HALF_MD4_UNSIGNED => {
            for start in (0..name.len()).step_by(32) {
                half_md4(&mut state, &words(&name[start..], unsigned));
            }
            state[1]
        }
        HASH_TEA | HASH_TEA_UNSIGNED => {
            for start in (0..name.len()).step_by(16) {
                tea(&mut state, &words(&name[start..], unsigned));
            }
            state[0]
        }
        _ => return None,
    };
    Some(value & !1)
}

/// How many levels an index of this file system may have below the root's own.
pub fn max_indirect_levels(sb: &Superblock) -> u8 {
    if sb.features.has_incompat(INCOMPAT_LARGE_DIR) {
        MAX_INDIRECT_LEVELS_LARGE
    } else {
        MAX_INDIRECT_LEVELS
    }
}

/// The version to compute with for an index that says `hash_version`: the superblock tells whether
/// characters are unsigned.
pub fn effective_version(sb: &Superblock, hash_version: u8) -> u8 {
    if hash_version <= HASH_TEA && sb.flags & FLAG_UNSIGNED_HASH != 0 {
        hash_version + HASH_LEGACY_UNSIGNED
    } else {
        hash_version
    }
}

/// A character's value.
fn character(byte: u8, unsigned: bool) -> u32 {
    if unsigned {
        byte.into()
    } else {
        i32::from(byte as i8) as u32
    }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut current, mut previous) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for byte in name {
        let mixed = current ^ character(*byte, unsigned).wrapping_mul(7_152_373);
        let mut next = previous.wrapping_add(mixed);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        previous = current;
        current = next;
    }
    current << 1
}

/// The next `N` words of a name, padded with its remaining length.
fn words<const N: usize>(name: &[u8], unsigned: bool) -> [u32; N] {
    let length = (name.len() & 0xff) as u32;
    let padding = length * 0x0101_0101;
    let mut result = [padding; N];
    for (word, chunk) in result.iter_mut().zip(name.chunks(4)) {
        for byte in chunk {
            *word = character(*byte, unsigned).wrapping_add(*word << 8);
        }
    }
    result
}

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    const ROUND_2: u32 = 0x5a82_7999;
    const ROUND_3: u32 = 0x6ed9_eba1;
    let [mut a, mut b, mut c, mut d] = *state;
    // One step rotates the roles: (a, b, c, d) becomes (d, a', b, c).
    let mut step = |mix: fn(u32, u32, u32) -> u32, word: u32, shift: u32| {
        let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(word);
        (a, b, c, d) = (d, sum.rotate_left(shift), b, c);
    };
    let choose = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let majority = |x: u32, y: u32, z: u32| (x & y).wrapping_add((x ^ y) & z);
    let parity = |x: u32, y: u32, z: u32| x ^ y ^ z;
    for (index, shift) in [0, 1, 2, 3, 4, 5, 6, 7]
        .into_iter()
        .zip([3, 7, 11, 19].iter().cycle())
    {
        step(choose, input[index], *shift);
    }
    for (index, shift) in [1, 3, 5, 7, 0, 2, 4, 6]
        .into_iter()
        .zip([3, 5, 9, 13].iter().cycle())
    {
        step(majority, input[index].wrapping_add(ROUND_2), *shift);
    }
    for (index, shift) in [3, 7, 2, 6, 1, 5, 0, 4]
        .into_iter()
        .zip([3, 9, 11, 15].iter().cycle())
    {
        step(parity, input[index].wrapping_add(ROUND_3), *shift);
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

fn tea(state: &mut [u32; 4], input: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let (mut left, mut right, mut sum) = (state[0], state[1], 0_u32);
    let half = |value: u32, sum: u32, low: u32, high: u32| {
        (value << 4).wrapping_add(low) ^ value.wrapping_add(sum) ^ (value >> 5).wrapping_add(high)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        left = left.wrapping_add(half(right, sum, input[0], input[1]));
        right = right.wrapping_add(half(left, sum, input[2], input[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seed 12345678-1234-5678-9abc-def012345678.
    const SEED: [u32; 4] = [0x7856_3412, 0x7856_3412, 0xf0de_bc9a, 0x7856_3412];

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!(size_of::<RawRootInfo>(), 8);
        assert_eq!(size_of::<RawIndexEntry>(), ENTRY_SIZE);
        assert_eq!(size_of::<RawCountLimit>(), 4);
    }

    /// Values from `debugfs -R "dx_hash -h VERSION [-s SEED] NAME"` of e2fsprogs 1.47.
    #[test]
    fn hashes_are_those_of_debugfs() {
        let zero = [0; 4];
        let accented = "hällo".as_bytes();
        let long = b"a_name_that_is_longer_than_thirty-two_bytes_really";
        let expected = [
            (HASH_LEGACY, SEED, &b"hello"[..], 0x3225_2546),
            (HASH_HALF_MD4, SEED, b"hello", 0xacba_1d2c),
            (HASH_TEA, SEED, b"hello", 0x3fca_1248),
            (HASH_LEGACY, zero, accented, 0x1a11_861a),
            (HASH_HALF_MD4, zero, accented, 0xe5a1_dd5c),
            (HASH_TEA, zero, accented, 0x52c9_68c6),
            (HASH_LEGACY_UNSIGNED, zero, accented, 0x61e9_7e1a),
            (HASH_HALF_MD4_UNSIGNED, zero, accented, 0xe3e6_7076),
            (HASH_TEA_UNSIGNED, zero, accented, 0x36d9_58b0),
            (HASH_TEA, zero, long, 0x7116_9ee6),
        ];
        for (version, seed, name, value) in expected {
            assert_eq!(hash(version, &seed, name), Some(value), "version {version}");
        }
        assert_eq!(hash(6, &zero, b"x"), None);
    }
}
