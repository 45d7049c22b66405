//! Revoke blocks: older copies of these blocks must not come home.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::features::INCOMPAT_64BIT;
use super::{BlockKind, Checksums, Features, Header, RawHeader, Sequence};

/// What a revoke block begins with; then come block numbers of 4 bytes, or 8 under the 64-bit
/// feature.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawRevoke {
    pub r_header: RawHeader,
    pub r_count: U32,
}

const START: usize = size_of::<RawRevoke>();

/// The size of one record.
pub fn record_bytes(features: Features) -> usize {
    if features.has_incompat(INCOMPAT_64BIT) {
        8
    } else {
        4
    }
}

/// The block numbers in a revoke block; `None` where it claims to be longer than it can be.
pub fn records<'b>(
    block: &'b [u8],
    features: Features,
    checksums: &Checksums,
) -> Option<impl Iterator<Item = u64> + 'b> {
    let (raw, _) = RawRevoke::ref_from_prefix(block).ok()?;
    let end = raw.r_count.get() as usize;
    if end > block.len().checked_sub(checksums.tail_bytes())? {
        return None;
    }
    let records = block.get(START..end.max(START))?;
    let number = |record: &[u8]| {
        record
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    Some(records.chunks_exact(record_bytes(features)).map(number))
}

/// Whether `records` records lie in a block's first sector, so that no power cut leaves a part of
/// them.
pub fn fits_sector(features: Features, records: usize) -> bool {
    const SECTOR: usize = 512;
    START + records * record_bytes(features) <= SECTOR
}

/// How many records a block has room for.
pub fn capacity(block_bytes: u32, features: Features, checksums: &Checksums) -> usize {
    (block_bytes as usize).saturating_sub(START + checksums.tail_bytes()) / record_bytes(features)
}

/// A revoke block with these records, [`capacity`] at most: more are left out.
pub fn encode(
    block_bytes: u32,
    features: Features,
    checksums: &Checksums,
    sequence: Sequence,
    blocks: &[u64],
) -> Vec<u8> {
    let width = record_bytes(features);
    let blocks = &blocks[..blocks.len().min(capacity(block_bytes, features, checksums))];
    let raw = RawRevoke {
        r_header: Header::encode(BlockKind::Revoke, sequence),
        r_count: ((START + blocks.len() * width) as u32).into(),
    };
    let mut bytes = raw.as_bytes().to_vec();
    for block in blocks {
        bytes.extend_from_slice(&block.to_be_bytes()[8 - width..]);
    }
    bytes.resize(block_bytes as usize, 0);
    checksums.set_tail(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::features::INCOMPAT_CSUM_V3;
    use super::*;

    #[test]
    fn records_survive_either_width() {
        for incompat in [0, INCOMPAT_64BIT, INCOMPAT_64BIT | INCOMPAT_CSUM_V3] {
            let features = Features {
                incompat,
                ..Features::default()
            };
            let checksums = Checksums::new(features, &[1; 16]);
            let room = capacity(1024, features, &checksums);
            let blocks: Vec<u64> = (0..room as u64).map(|n| n * 1000 + 5).collect();
            let block = encode(1024, features, &checksums, Sequence(9), &blocks);
            assert_eq!(block.len(), 1024);
            assert!(checksums.tail_holds(&block));
            let read: Vec<u64> = records(&block, features, &checksums).unwrap().collect();
            assert_eq!(read, blocks);
        }
    }

    #[test]
    fn a_block_that_claims_too_much_is_refused() {
        let features = Features::default();
        let checksums = Checksums::new(features, &[0; 16]);
        let mut block = encode(1024, features, &checksums, Sequence(1), &[3]);
        block[12..16].copy_from_slice(&1025_u32.to_be_bytes());
        assert!(records(&block, features, &checksums).is_none());
        block[12..16].copy_from_slice(&3_u32.to_be_bytes());
        assert_eq!(records(&block, features, &checksums).unwrap().count(), 0);
        assert!(records(&[0; 8], features, &checksums).is_none());
    }
}
