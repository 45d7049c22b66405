//! Descriptor blocks: where the copies behind them belong.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::features::INCOMPAT_64BIT;
use super::{BlockKind, ChecksumKind, Checksums, Features, HEADER_BYTES, Header, Sequence};

/// The copy begins with zeros in place of the magic number.
pub const FLAG_ESCAPE: u32 = 1;
/// No UUID follows this tag.
pub const FLAG_SAME_UUID: u32 = 2;
/// The last tag of its descriptor.
pub const FLAG_LAST_TAG: u32 = 8;
/// The UUID that follows a tag without [`FLAG_SAME_UUID`].
const UUID_BYTES: usize = 16;

/// A tag without checksum v3. Without the 64-bit feature it ends before `t_blocknr_high`; under
/// checksum v2 two unused bytes follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawTag {
    pub t_blocknr: U32,
    pub t_checksum: U16,
    pub t_flags: U16,
    pub t_blocknr_high: U32,
}

/// A tag under checksum v3, always whole.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawTag3 {
    pub t_blocknr: U32,
    pub t_flags: U32,
    pub t_blocknr_high: U32,
    pub t_checksum: U32,
}

/// What tags of a journal look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagFormat {
    kind: ChecksumKind,
    is_wide: bool,
    tail_bytes: usize,
}

/// What a tag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The copy's home.
    pub block: u64,
    /// The flags.
    pub flags: u32,
    /// The copy's checksum, as [`Checksums::of_copy`] gives it.
    pub checksum: u32,
}

impl Tag {
    /// Whether the copy's magic number is zeroed.
    pub fn is_escaped(&self) -> bool {
        self.flags & FLAG_ESCAPE != 0
    }
}

impl TagFormat {
    /// The tags of a journal with these features.
    pub fn new(features: Features, checksums: &Checksums) -> TagFormat {
        TagFormat {
            kind: checksums.kind,
            is_wide: features.has_incompat(INCOMPAT_64BIT),
            tail_bytes: checksums.tail_bytes(),
        }
    }

    /// The size of a tag, without a UUID.
    pub fn tag_bytes(&self) -> usize {
        let narrow = if self.is_wide { 12 } else { 8 };
        match self.kind {
            ChecksumKind::Full => size_of::<RawTag3>(),
            ChecksumKind::Short => narrow + 2,
            ChecksumKind::None | ChecksumKind::Transaction => narrow,
        }
    }

    /// How many tags a block has room for, the first one with a UUID.
    pub fn capacity(&self, block_bytes: u32) -> usize {
        let taken = HEADER_BYTES + UUID_BYTES + self.tail_bytes;
        (block_bytes as usize).saturating_sub(taken) / self.tag_bytes()
    }

    fn parse(&self, bytes: &[u8]) -> Option<Tag> {
        let high = |number: u32| if self.is_wide { u64::from(number) } else { 0 };
        if self.kind == ChecksumKind::Full {
            let (raw, _) = RawTag3::ref_from_prefix(bytes).ok()?;
            return Some(Tag {
                block: high(raw.t_blocknr_high.get()) << 32 | u64::from(raw.t_blocknr.get()),
                flags: raw.t_flags.get(),
                checksum: raw.t_checksum.get(),
            });
        }
        // Without 64 bits the last field belongs to what follows.
        let mut whole = [0; size_of::<RawTag>()];
        let length = self.tag_bytes().min(whole.len());
        whole[..length].copy_from_slice(bytes.get(..length)?);
        let raw = RawTag::ref_from_bytes(&whole).ok()?;
        let checksum = match self.kind {
            ChecksumKind::Short => raw.t_checksum.get().into(),
            _ => 0,
        };
        Some(Tag {
            block: high(raw.t_blocknr_high.get()) << 32 | u64::from(raw.t_blocknr.get()),
            flags: raw.t_flags.get().into(),
            checksum,
        })
    }

    fn encode(&self, tag: &Tag, into: &mut Vec<u8>) {
        let (low, high) = (tag.block as u32, (tag.block >> 32) as u32);
        if self.kind == ChecksumKind::Full {
            let raw = RawTag3 {
                t_blocknr: low.into(),
                t_flags: tag.flags.into(),
                t_blocknr_high: high.into(),
                t_checksum: tag.checksum.into(),
            };
            into.extend_from_slice(raw.as_bytes());
            return;
        }
        let raw = RawTag {
            t_blocknr: low.into(),
            t_checksum: (tag.checksum as u16).into(),
            t_flags: (tag.flags as u16).into(),
            t_blocknr_high: high.into(),
        };
        let end = into.len() + self.tag_bytes();
        let kept = if self.is_wide { 12 } else { 8 };
        into.extend_from_slice(&raw.as_bytes()[..kept]);
        into.resize(end, 0);
    }

    /// The tags of a descriptor block, in the order of their copies.
    pub fn tags<'b>(&self, block: &'b [u8]) -> Tags<'b> {
        let end = block.len().saturating_sub(self.tail_bytes);
        Tags {
            format: *self,
            rest: block.get(HEADER_BYTES..end).unwrap_or_default(),
        }
    }
}

/// The tags of a descriptor block.
#[derive(Clone, Debug)]
pub struct Tags<'b> {
    format: TagFormat,
    rest: &'b [u8],
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let length = self.format.tag_bytes();
        let tag = self
            .format
            .parse(self.rest)
            .filter(|_| self.rest.len() >= length)?;
        let uuid = if tag.flags & FLAG_SAME_UUID == 0 {
            UUID_BYTES
        } else {
            0
        };
        self.rest = match tag.flags & FLAG_LAST_TAG {
            0 => self.rest.get(length + uuid..).unwrap_or_default(),
            _ => &[],
        };
        Some(tag)
    }
}

/// A descriptor block for these copies, [`TagFormat::capacity`] at most: their homes, whether they
/// are escaped, and their checksums. The UUID follows the first tag, as the kernel has it.
pub fn encode(
    block_bytes: u32,
    format: &TagFormat,
    checksums: &Checksums,
    uuid: &[u8; 16],
    sequence: Sequence,
    copies: &[(u64, bool, u32)],
) -> Vec<u8> {
    let mut bytes = Header::encode(BlockKind::Descriptor, sequence)
        .as_bytes()
        .to_vec();
    for (index, (block, is_escaped, checksum)) in copies.iter().enumerate() {
        let mut flags = if *is_escaped { FLAG_ESCAPE } else { 0 };
        if index > 0 {
            flags |= FLAG_SAME_UUID;
        }
        if index + 1 == copies.len() {
            flags |= FLAG_LAST_TAG;
        }
        let tag = Tag {
            block: *block,
            flags,
            checksum: *checksum,
        };
        format.encode(&tag, &mut bytes);
        if index == 0 {
            bytes.extend_from_slice(uuid);
        }
    }
    bytes.resize(block_bytes as usize, 0);
    checksums.set_tail(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::features::{INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3};
    use super::*;

    #[test]
    fn tags_have_the_sizes_of_the_kernel() {
        let cases = [
            (0, 8),
            (INCOMPAT_64BIT, 12),
            (INCOMPAT_CSUM_V2, 10),
            (INCOMPAT_CSUM_V2 | INCOMPAT_64BIT, 14),
            (INCOMPAT_CSUM_V3, 16),
            (INCOMPAT_CSUM_V3 | INCOMPAT_64BIT, 16),
        ];
        for (incompat, bytes) in cases {
            let features = Features {
                incompat,
                ..Features::default()
            };
            let checksums = Checksums::new(features, &[2; 16]);
            let format = TagFormat::new(features, &checksums);
            assert_eq!(format.tag_bytes(), bytes);
            let is_wide = incompat & INCOMPAT_64BIT != 0;
            let copies: Vec<(u64, bool, u32)> = (0..format.capacity(1024) as u64)
                .map(|n| {
                    let home = if is_wide { n << 30 | 5 } else { n + 5 };
                    (
                        home,
                        n % 3 == 0,
                        checksums.of_copy(Sequence(4), &n.to_be_bytes()),
                    )
                })
                .collect();
            let block = encode(1024, &format, &checksums, &[2; 16], Sequence(4), &copies);
            assert_eq!(block.len(), 1024);
            assert!(checksums.tail_holds(&block));
            let read: Vec<_> = format
                .tags(&block)
                .map(|tag| (tag.block, tag.is_escaped(), tag.checksum))
                .collect();
            assert_eq!(read, copies);
        }
    }

    #[test]
    fn garbage_is_read_without_end_or_panic() {
        let features = Features::default();
        let checksums = Checksums::new(features, &[0; 16]);
        let format = TagFormat::new(features, &checksums);
        for fill in [0, 0xff, 2] {
            for length in [0, 4, 12, 19, 20, 27, 1024] {
                let count = format.tags(&vec![fill; length]).count();
                assert!(count <= length / 8);
            }
        }
    }
}
