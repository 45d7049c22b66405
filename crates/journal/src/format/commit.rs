//! The commit block: the transaction before it is complete.

use std::mem::offset_of;

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{SIZE_CRC32, TYPE_CRC32};
use super::{BlockKind, ChecksumKind, Checksums, Header, RawHeader, Sequence};

/// A commit block's first bytes; the rest are zeros.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawCommit {
    pub h_header: RawHeader,
    pub h_chksum_type: u8,
    pub h_chksum_size: u8,
    pub h_padding: [u8; 2],
    pub h_chksum: [U32; 8],
    pub h_commit_sec: U64,
    pub h_commit_nsec: U32,
}

/// Where the checksum lies in a commit block.
pub const OFFSET_CHECKSUM: usize = offset_of!(RawCommit, h_chksum);

/// What a commit block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// When it was made, in seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanoseconds: u32,
    checksum: (u8, u8, u32),
}

impl Commit {
    /// Reads a block whose header says that it is one; `None` where it is too short.
    pub fn parse(block: &[u8]) -> Option<Commit> {
        let (raw, _) = RawCommit::ref_from_prefix(block).ok()?;
        Some(Commit {
            seconds: raw.h_commit_sec.get(),
            nanoseconds: raw.h_commit_nsec.get(),
            checksum: (raw.h_chksum_type, raw.h_chksum_size, raw.h_chksum[0].get()),
        })
    }

    /// Whether the transaction has the checksum v1 that the block states. A block that states none
    /// fits any.
    pub fn fits(&self, transaction: u32) -> bool {
        self.checksum == (TYPE_CRC32, SIZE_CRC32, transaction) || self.checksum == (0, 0, 0)
    }

    /// The checksum v1 that the block states; `None` where it states none.
    pub fn stated(&self) -> Option<u32> {
        (self.checksum != (0, 0, 0)).then_some(self.checksum.2)
    }
}

/// A commit block of `block_bytes`. `transaction` is the checksum v1 of the transaction's
/// descriptors and copies, used where the journal has that.
pub fn encode(
    block_bytes: u32,
    checksums: &Checksums,
    sequence: Sequence,
    (seconds, nanoseconds): (u64, u32),
    transaction: u32,
) -> Vec<u8> {
    let mut raw = RawCommit::new_zeroed();
    raw.h_header = Header::encode(BlockKind::Commit, sequence);
    raw.h_commit_sec = seconds.into();
    raw.h_commit_nsec = nanoseconds.into();
    if checksums.kind == ChecksumKind::Transaction {
        (raw.h_chksum_type, raw.h_chksum_size) = (TYPE_CRC32, SIZE_CRC32);
        raw.h_chksum[0] = transaction.into();
    }
    let mut block = raw.as_bytes().to_vec();
    block.resize(block_bytes as usize, 0);
    checksums.set_commit(&mut block);
    block
}
