//! The bytes of a journal, and nothing else: no I/O.
//!
//! One file per structure: first the *raw* one with the field names of the kernel's headers,
//! big-endian as all of a journal is (a test compares it with its table in `docs/FORMAT.md`); then
//! the types that the rest of the crate works with. Parsing never panics and trusts nothing.
//!
//! | block | what |
//! |---|---|
//! | superblock, v1 or v2 | size, features, where the log begins: [`Superblock`] |
//! | descriptor | the homes of the blocks behind it, as tags: [`descriptor`] |
//! | revoke | blocks whose older copies must not come home: [`revoke`] |
//! | commit | the transaction is complete: [`commit`] |
//! | anything else | a copy that a descriptor speaks of |

pub mod checksum;
pub mod commit;
pub mod descriptor;
pub mod external;
pub mod features;
mod header;
pub mod revoke;
pub mod superblock;

pub use checksum::{ChecksumKind, Checksums};
pub use descriptor::TagFormat;
pub use external::ExternalJournal;
pub use features::Features;
pub use header::{BlockKind, Header, RawHeader, RawTail, Sequence};
pub use superblock::{RawSuperblock, Superblock};

/// What every block of the journal's own begins with.
pub const MAGIC: u32 = 0xc03b_3998;
/// The same as bytes.
pub const MAGIC_BYTES: [u8; 4] = MAGIC.to_be_bytes();
/// The size of [`RawHeader`].
pub const HEADER_BYTES: usize = size_of::<RawHeader>();

/// Makes a block a copy for the log: if it begins with the magic number, that is zeroed. Returns
/// whether it was.
pub fn escape(copy: &mut [u8]) -> bool {
    let is_escaped = copy.starts_with(&MAGIC_BYTES);
    if is_escaped {
        copy[..4].fill(0);
    }
    is_escaped
}

/// Puts the magic number back where [`escape`] took it.
pub fn unescape(copy: &mut [u8]) {
    if let Some(start) = copy.get_mut(..4) {
        start.copy_from_slice(&MAGIC_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_is_undone() {
        let mut copy = [0xc0, 0x3b, 0x39, 0x98, 7];
        assert!(escape(&mut copy));
        assert_eq!(copy, [0, 0, 0, 0, 7]);
        unescape(&mut copy);
        assert_eq!(copy, [0xc0, 0x3b, 0x39, 0x98, 7]);
        assert!(!escape(&mut [0xc0, 0x3b, 0x39, 0x99]));
        assert!(!escape(&mut []));
    }
}
