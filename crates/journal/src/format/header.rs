//! What every block of the journal's own begins with, what the checksummed ones end with, and the
//! numbers of transactions.

use std::fmt;

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::MAGIC;

/// The first bytes of a block that is no copy.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawHeader {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
}

/// The last bytes of a descriptor or revoke block under checksums v2 and v3.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawTail {
    pub t_checksum: U32,
}

/// What a block of the journal's own is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Tags of the copies behind it.
    Descriptor,
    /// The end of a transaction.
    Commit,
    /// The superblock of the first version.
    SuperblockV1,
    /// The superblock with features.
    SuperblockV2,
    /// Revoked blocks.
    Revoke,
}

impl BlockKind {
    /// The kind of an `h_blocktype`.
    pub fn of(number: u32) -> Option<BlockKind> {
        Some(match number {
            1 => BlockKind::Descriptor,
            2 => BlockKind::Commit,
            3 => BlockKind::SuperblockV1,
            4 => BlockKind::SuperblockV2,
            5 => BlockKind::Revoke,
            _ => return None,
        })
    }

    /// Its `h_blocktype`.
    pub fn number(self) -> u32 {
        match self {
            BlockKind::Descriptor => 1,
            BlockKind::Commit => 2,
            BlockKind::SuperblockV1 => 3,
            BlockKind::SuperblockV2 => 4,
            BlockKind::Revoke => 5,
        }
    }
}

/// The number of a transaction. They follow each other and wrap around, so "later" means the
/// shorter way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sequence(pub u32);

impl Sequence {
    /// The one after this.
    pub fn next(self) -> Sequence {
        Sequence(self.0.wrapping_add(1))
    }

    /// Whether this one comes after `other`.
    pub fn is_after(self, other: Sequence) -> bool {
        self.0.wrapping_sub(other.0) as i32 > 0
    }

    /// How many transactions there are from `earlier` on before this one; 0 where this one is not
    /// after it.
    pub fn distance(self, earlier: Sequence) -> u32 {
        if self.is_after(earlier) {
            self.0.wrapping_sub(earlier.0)
        } else {
            0
        }
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The header of a block that has the magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// `h_blocktype` as it is on the disk.
    pub number: u32,
    /// The transaction.
    pub sequence: Sequence,
}

impl Header {
    /// The header of a block; `None` where it has none.
    pub fn parse(block: &[u8]) -> Option<Header> {
        let (raw, _) = RawHeader::ref_from_prefix(block).ok()?;
        (raw.h_magic.get() == MAGIC).then(|| Header {
            number: raw.h_blocktype.get(),
            sequence: Sequence(raw.h_sequence.get()),
        })
    }

    /// What the block is; `None` for an unknown number.
    pub fn kind(&self) -> Option<BlockKind> {
        BlockKind::of(self.number)
    }

    /// The header's bytes.
    pub fn encode(kind: BlockKind, sequence: Sequence) -> RawHeader {
        RawHeader {
            h_magic: MAGIC.into(),
            h_blocktype: kind.number().into(),
            h_sequence: sequence.0.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_around() {
        let last = Sequence(u32::MAX);
        assert_eq!(last.next(), Sequence(0));
        assert!(last.next().is_after(last));
        assert!(!last.is_after(last.next()));
        assert!(!last.is_after(last));
        assert_eq!(Sequence(2).distance(last), 3);
        assert_eq!(last.distance(Sequence(2)), 0);
    }

    #[test]
    fn kinds_have_their_numbers() {
        for number in 1..=5 {
            assert_eq!(BlockKind::of(number).unwrap().number(), number);
        }
        assert_eq!(BlockKind::of(0), None);
        assert_eq!(Header::parse(&[0; 12]), None);
        assert_eq!(Header::parse(&[0xc0, 0x3b]), None);
    }
}
