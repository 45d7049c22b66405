//! The checksums of a journal.
//!
//! *v1* is one CRC-32 (most significant bit first, not inverted) over a transaction's descriptors
//! and copies, in its commit block. *v2* and *v3* are CRC-32C (not inverted at the end), seeded
//! with the journal's UUID: in the superblock, at the end of descriptor and revoke blocks, in the
//! commit block over itself, and in each tag over the transaction's number and the copy.

use super::features::{COMPAT_CHECKSUM, INCOMPAT_CSUM_V3};
use super::{Features, Sequence};
use crc::{CRC_32_MPEG_2, Crc, Table};

/// `h_chksum_type` and `s_checksum_type`: CRC-32.
pub const TYPE_CRC32: u8 = 1;
/// `h_chksum_type` and `s_checksum_type`: CRC-32C.
pub const TYPE_CRC32C: u8 = 4;
/// `h_chksum_size` of a CRC-32.
pub const SIZE_CRC32: u8 = 4;

/// CRC-32C over `bytes`, going on from `crc`, without the inversions that are usual elsewhere.
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!crc, bytes)
}

/// CRC-32 of commit blocks. Takes sixteen bytes a step, because callers wait while a transaction is
/// summed.
static CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_MPEG_2);

/// CRC-32, most significant bit first, over `bytes`, going on from `crc`.
pub fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = CRC32.digest_with_initial(crc);
    digest.update(bytes);
    digest.finalize()
}

/// Which checksums a journal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    /// None.
    None,
    /// v1: of whole transactions.
    Transaction,
    /// v2: of every block, 16 bits in tags.
    Short,
    /// v3: of every block, 32 bits in tags.
    Full,
}

/// A journal's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksums {
    /// Which.
    pub kind: ChecksumKind,
    seed: u32,
}

impl Checksums {
    /// Those of a journal with these features and this UUID.
    pub fn new(features: Features, uuid: &[u8; 16]) -> Checksums {
        let kind = if features.has_incompat(INCOMPAT_CSUM_V3) {
            ChecksumKind::Full
        } else if features.has_block_checksums() {
            ChecksumKind::Short
        } else if features.has_compat(COMPAT_CHECKSUM) {
            ChecksumKind::Transaction
        } else {
            ChecksumKind::None
        };
        Checksums {
            kind,
            seed: crc32c(!0, uuid),
        }
    }

    /// Whether blocks have checksums of their own.
    pub fn are_per_block(&self) -> bool {
        matches!(self.kind, ChecksumKind::Short | ChecksumKind::Full)
    }

    /// The bytes at the end of a descriptor or revoke block that hold its checksum.
    pub fn tail_bytes(&self) -> usize {
        if self.are_per_block() { 4 } else { 0 }
    }

    /// The checksum of a whole block whose four bytes at `hole` count as zeros.
    fn with_hole(&self, block: &[u8], hole: usize) -> u32 {
        let crc = crc32c(self.seed, &block[..hole]);
        crc32c(crc32c(crc, &[0; 4]), &block[hole + 4..])
    }

    fn holds(&self, block: &[u8], hole: usize) -> bool {
        let found = block.get(hole..hole + 4);
        found.is_some_and(|found| *found == self.with_hole(block, hole).to_be_bytes())
    }

    fn set(&self, block: &mut [u8], hole: usize) {
        let crc = self.with_hole(block, hole);
        block[hole..hole + 4].copy_from_slice(&crc.to_be_bytes());
    }

    /// Whether a descriptor or revoke block has the checksum that it should have; always so without
    /// checksums of blocks.
    pub fn tail_holds(&self, block: &[u8]) -> bool {
        !self.are_per_block() || self.holds(block, block.len().saturating_sub(4))
    }

    /// Gives a descriptor or revoke block its checksum.
    pub fn set_tail(&self, block: &mut [u8]) {
        if self.are_per_block() && block.len() >= 4 {
            self.set(block, block.len() - 4);
        }
    }

    /// Whether a commit block has the checksum over itself that it should have; always so without
    /// checksums of blocks.
    pub fn commit_holds(&self, block: &[u8]) -> bool {
        !self.are_per_block() || self.holds(block, super::commit::OFFSET_CHECKSUM)
    }

    /// Gives a commit block the checksum over itself.
    pub fn set_commit(&self, block: &mut [u8]) {
        if self.are_per_block() {
            self.set(block, super::commit::OFFSET_CHECKSUM);
        }
    }

    /// The checksum of a copy, as its tag has it: over the bytes in the log, in which the magic
    /// number may be zeroed. 0 without checksums.
    pub fn of_copy(&self, sequence: Sequence, copy: &[u8]) -> u32 {
        let crc = || crc32c(crc32c(self.seed, &sequence.0.to_be_bytes()), copy);
        match self.kind {
            ChecksumKind::None | ChecksumKind::Transaction => 0,
            ChecksumKind::Short => crc() & 0xffff,
            ChecksumKind::Full => crc(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_well_known_check_values() {
        // The catalogue's values for "123456789", with its inversion at the end taken off.
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(!crc32(!0, b"123456789"), 0xfc89_1918, "CRC-32/BZIP2");
        assert_eq!(crc32(crc32(!0, b"1234"), b"56789"), crc32(!0, b"123456789"));
    }

    #[test]
    fn a_tail_is_set_and_checked() {
        let features = Features {
            incompat: INCOMPAT_CSUM_V3,
            ..Features::default()
        };
        let checksums = Checksums::new(features, &[7; 16]);
        let mut block = vec![3; 1024];
        checksums.set_tail(&mut block);
        assert!(checksums.tail_holds(&block));
        block[17] ^= 1;
        assert!(!checksums.tail_holds(&block));
        assert!(!checksums.tail_holds(&[]));
        assert!(Checksums::new(Features::default(), &[0; 16]).tail_holds(&block));
    }
}
