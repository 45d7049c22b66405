//! The journal's superblock: 1024 bytes at the start of its first block (the block behind the file
//! system's superblock, on a device of its own).

use std::mem::offset_of;

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{TYPE_CRC32C, crc32c};
use super::features::{
    INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3, INCOMPAT_FAST_COMMIT, INCOMPAT_REPLAYED,
};
use super::{BlockKind, Checksums, Features, Header, MAGIC, RawHeader, Sequence, TagFormat};
use crate::{Error, Fault, Result};

/// The superblock's size.
pub const SUPERBLOCK_BYTES: usize = size_of::<RawSuperblock>();
/// No journal is smaller.
pub const MIN_BLOCKS: u32 = 1024;
/// `s_num_fc_blks` where it is 0.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// The most file systems that can share a journal.
pub const MAX_USERS: usize = 48;

/// The superblock as it is on the disk. Version 1 ends before `s_feature_compat`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawSuperblock {
    pub s_header: RawHeader,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [[u8; 16]; MAX_USERS],
}

/// A superblock that has been checked: every position between `first` and `end` is in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// 1 or 2.
    pub version: u32,
    /// The size of a block.
    pub block_bytes: u32,
    /// Blocks in all.
    pub blocks: u32,
    /// The first block of the log.
    pub first: u32,
    /// The position behind the last block of the log: before the fast commits, where there is room
    /// for them.
    pub end: u32,
    /// The first transaction in the log; in an empty log the number of the next one.
    pub sequence: Sequence,
    /// Where the log begins; 0 where it is empty.
    pub start: u32,
    /// The error number that the kernel left when it gave up; 0 for none.
    pub error_number: i32,
    /// What the journal uses.
    pub features: Features,
    /// The journal's UUID.
    pub uuid: [u8; 16],
    /// The file systems that share a journal on a device of its own.
    pub users: Vec<[u8; 16]>,
    /// Where the log ended when it was closed, as newer kernels note it; 0 where they did not.
    pub head: u32,
    raw: Box<RawSuperblock>,
}

impl Superblock {
    /// Checks a superblock against itself and against the place it was found in: blocks of
    /// `block_bytes`, `blocks` of them, this one at position `position`.
    ///
    /// # Errors
    /// [`Error::NotAJournal`] without the magic number, [`Error::Corrupt`] for numbers that cannot
    /// be. Features that cannot be replayed do *not* fail here, so that they can be named: see
    /// [`Features::unreplayable`].
    pub fn parse(
        bytes: &[u8; SUPERBLOCK_BYTES],
        block_bytes: u32,
        blocks: u32,
        position: u32,
    ) -> Result<Superblock> {
        let raw: RawSuperblock = zerocopy::transmute!(*bytes);
        if raw.s_header.h_magic.get() != MAGIC {
            let found = raw.s_header.h_magic.get();
            let expected = MAGIC;
            return Err(Error::NotAJournal(Fault::Magic { expected, found }));
        }
        let version = match BlockKind::of(raw.s_header.h_blocktype.get()) {
            Some(BlockKind::SuperblockV1) => 1,
            Some(BlockKind::SuperblockV2) => 2,
            _ => {
                let found = raw.s_header.h_blocktype.get();
                return Err(Error::NotAJournal(Fault::NoSuperblock(found)));
            }
        };
        let sb = Superblock::of(raw, version);
        sb.check_place(block_bytes, blocks, position)?;
        sb.check_checksum(bytes, position)?;
        Ok(sb)
    }

    /// As [`parse`](Self::parse), but corrects fields that can only have one value where the
    /// superblock was found. Returns what was wrong with them. Where the log's start is impossible,
    /// the log counts as empty.
    ///
    /// # Errors
    /// [`Error::NotAJournal`] without the magic number; [`Error::Corrupt`] where it cannot be
    /// corrected.
    pub fn mended(
        bytes: &[u8; SUPERBLOCK_BYTES],
        block_bytes: u32,
        blocks: u32,
        position: u32,
    ) -> Result<(Superblock, Vec<String>)> {
        let mut raw: RawSuperblock = zerocopy::transmute!(*bytes);
        let mut wrong = Vec::new();
        let mut set = |field: &mut U32, name: &str, right: u32| {
            if field.get() != right {
                wrong.push(format!("{name} was {}, must be {right}", field.get()));
                *field = right.into();
            }
            !wrong.is_empty()
        };
        set(&mut raw.s_blocksize, "s_blocksize", block_bytes);
        let mut is_wrong = set(&mut raw.s_first, "s_first", position + 1);
        let length = raw.s_maxlen.get();
        let is_possible = (MIN_BLOCKS.min(blocks)..=blocks).contains(&length);
        if !is_possible || (length..blocks).contains(&raw.s_start.get()) {
            is_wrong = set(&mut raw.s_maxlen, "s_maxlen", blocks);
        }
        let is_second = raw.s_header.h_blocktype.get() == BlockKind::SuperblockV2.number();
        if is_second && position == 0 && raw.s_nr_users.get() > 1 {
            is_wrong = set(&mut raw.s_nr_users, "s_nr_users", 1);
        }
        let both = INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3;
        if is_second && raw.s_feature_incompat.get() & both == both {
            // No software ever wrote a journal with both, so nothing tells which copies are right.
            return Err(Error::corrupt(position, Fault::TwoKindsOfChecksum));
        }
        if is_second && is_wrong {
            // In a damaged superblock an unknown feature counts as damage too.
            let features = raw.s_feature_incompat.get() & INCOMPAT_REPLAYED;
            set(&mut raw.s_feature_incompat, "s_feature_incompat", features);
        }
        if is_second {
            set(&mut raw.s_feature_ro_compat, "s_feature_ro_compat", 0);
        } else {
            for (field, name) in [
                (&mut raw.s_feature_compat, "s_feature_compat"),
                (&mut raw.s_feature_incompat, "s_feature_incompat"),
                (&mut raw.s_feature_ro_compat, "s_feature_ro_compat"),
                (&mut raw.s_nr_users, "s_nr_users"),
            ] {
                set(field, name, 0);
            }
        }
        let version = if is_second { 2 } else { 1 };
        if Superblock::of(raw, version).lacks_room_for_fast_commits() {
            let features = raw.s_feature_incompat.get() & !INCOMPAT_FAST_COMMIT;
            set(&mut raw.s_feature_incompat, "s_feature_incompat", features);
        }
        let log = Superblock::of(raw, version);
        let start = raw.s_start.get();
        if start != 0 && !(log.first..log.end).contains(&start) {
            wrong.push(format!("s_start was {start}, outside the log"));
            raw.s_start = 0.into();
        }
        if log.features.has_block_checksums() {
            if raw.s_checksum_type != TYPE_CRC32C {
                wrong.push(format!("s_checksum_type was {}", raw.s_checksum_type));
                raw.s_checksum_type = TYPE_CRC32C;
            }
            let right = checksum(&zerocopy::transmute!(raw));
            if raw.s_checksum.get() != right {
                wrong.push("the checksum was wrong".to_owned());
                raw.s_checksum = right.into();
            }
        }
        let bytes: [u8; SUPERBLOCK_BYTES] = zerocopy::transmute!(raw);
        Ok((
            Superblock::parse(&bytes, block_bytes, blocks, position)?,
            wrong,
        ))
    }

    /// Whether fast commits are said to take so many blocks that the log is shorter than any that
    /// was ever made.
    fn lacks_room_for_fast_commits(&self) -> bool {
        self.features.has_incompat(INCOMPAT_FAST_COMMIT) && self.end < MIN_BLOCKS
    }

    /// What a checker reports although the log can be replayed.
    pub fn oddities(&self) -> Vec<String> {
        let mut odd = Vec::new();
        let raw = &self.raw;
        let words = [
            raw.s_feature_compat,
            raw.s_feature_incompat,
            raw.s_feature_ro_compat,
        ];
        let users = raw.s_nr_users.get();
        match self.version {
            1 if words.iter().any(|word| word.get() != 0) || users != 0 => {
                odd.push("fields of version 2 in a superblock of version 1".to_owned());
            }
            1 => {}
            _ => {
                let unknown = raw.s_feature_ro_compat.get();
                if unknown != 0 {
                    odd.push(format!("unknown read-only features {unknown:#x}"));
                }
                if self.lacks_room_for_fast_commits() {
                    let end = self.end;
                    odd.push(format!("fast commits leave a log of {end} blocks"));
                }
                // Several file systems may share only a journal on a device of its own, which does
                // not begin the device.
                if self.first == 1 && users > 1 {
                    odd.push(format!("{users} users of a journal inside a file system"));
                }
            }
        }
        odd
    }

    fn of(raw: RawSuperblock, version: u32) -> Superblock {
        let features = match version {
            1 => Features::default(),
            _ => Features {
                compat: raw.s_feature_compat.get(),
                incompat: raw.s_feature_incompat.get(),
                ro_compat: raw.s_feature_ro_compat.get(),
            },
        };
        let blocks = raw.s_maxlen.get();
        let fast = match raw.s_num_fc_blks.get() {
            _ if !features.has_incompat(INCOMPAT_FAST_COMMIT) => 0,
            0 => DEFAULT_FAST_COMMIT_BLOCKS,
            blocks => blocks,
        };
        let users = match version {
            1 => 0,
            _ => (raw.s_nr_users.get() as usize).min(MAX_USERS),
        };
        Superblock {
            version,
            block_bytes: raw.s_blocksize.get(),
            blocks,
            first: raw.s_first.get(),
            end: blocks.saturating_sub(fast),
            sequence: Sequence(raw.s_sequence.get()),
            start: raw.s_start.get(),
            error_number: raw.s_errno.get() as i32,
            features,
            uuid: if version == 1 { [0; 16] } else { raw.s_uuid },
            users: raw.s_users[..users].to_vec(),
            head: if version == 1 { 0 } else { raw.s_head.get() },
            raw: Box::new(raw),
        }
    }

    fn check_place(&self, block_bytes: u32, blocks: u32, position: u32) -> Result<()> {
        let wrong = |fault| Err(Error::corrupt(position, fault));
        if self.block_bytes != block_bytes {
            let (found, expected) = (self.block_bytes, block_bytes);
            return wrong(Fault::BlockBytes { found, expected });
        }
        if self.blocks > blocks {
            let (found, room) = (self.blocks, blocks);
            return wrong(Fault::TooManyBlocks { found, room });
        }
        // Room for a descriptor, a copy and a commit block: the kernel wants more, but replays what
        // is there.
        if self.first <= position || self.end < self.first.saturating_add(3) {
            let (first, end) = (self.first, self.end);
            return wrong(Fault::LogBounds { first, end });
        }
        if self.start != 0 && !(self.first..self.end).contains(&self.start) {
            return wrong(Fault::Start { start: self.start });
        }
        Ok(())
    }

    fn check_checksum(&self, bytes: &[u8; SUPERBLOCK_BYTES], position: u32) -> Result<()> {
        if !self.features.has_block_checksums() {
            return Ok(());
        }
        let kind = self.raw.s_checksum_type;
        if kind != TYPE_CRC32C {
            let features = format!("checksums of type {kind}");
            return Err(Error::Incompatible { features });
        }
        let (expected, found) = (checksum(bytes), self.raw.s_checksum.get());
        if expected != found {
            let fault = Fault::SuperblockChecksum { found, expected };
            return Err(Error::corrupt(position, fault));
        }
        Ok(())
    }

    /// Whether nothing is to be replayed.
    pub fn is_empty(&self) -> bool {
        self.start == 0
    }

    /// The blocks of the log.
    pub fn log_blocks(&self) -> u32 {
        self.end - self.first
    }

    /// The position `distance` blocks behind another one, around the log's end.
    pub fn advance(&self, position: u32, distance: u32) -> u32 {
        let from = u64::from(position.saturating_sub(self.first));
        let at = (from + u64::from(distance)) % u64::from(self.log_blocks());
        self.first + at as u32
    }

    /// The journal's checksums.
    pub fn checksums(&self) -> Checksums {
        Checksums::new(self.features, &self.uuid)
    }

    /// What its tags look like.
    pub fn tag_format(&self) -> TagFormat {
        TagFormat::new(self.features, &self.checksums())
    }

    /// Sets where the log begins: at `start` (0: it is empty) with transaction `sequence`. Clears
    /// the kernel's error number.
    pub fn set_tail(&mut self, start: u32, sequence: Sequence) {
        (self.start, self.sequence, self.error_number) = (start, sequence, 0);
        self.raw.s_start = start.into();
        self.raw.s_sequence = sequence.0.into();
        self.raw.s_errno = 0.into();
    }

    /// Sets the first block of an empty log, which becomes shorter.
    pub fn set_first(&mut self, first: u32) {
        self.first = first;
        self.raw.s_first = first.into();
    }

    /// Sets the one file system that uses this journal, which is on a device of its own.
    pub fn set_user(&mut self, file_system: [u8; 16]) {
        self.users = vec![file_system];
        self.raw.s_nr_users = 1.into();
        self.raw.s_users[0] = file_system;
    }

    /// Sets the features. A superblock of version 1 becomes one of version 2.
    pub fn set_features(&mut self, features: Features) {
        self.version = 2;
        self.features = features;
        let kind = BlockKind::SuperblockV2.number();
        self.raw.s_header.h_blocktype = kind.into();
        self.raw.s_feature_compat = features.compat.into();
        self.raw.s_feature_incompat = features.incompat.into();
        self.raw.s_feature_ro_compat = features.ro_compat.into();
        self.raw.s_checksum_type = match features.has_block_checksums() {
            true => TYPE_CRC32C,
            false => 0,
        };
    }

    /// The superblock's bytes, with their checksum where the journal has one.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut raw = *self.raw;
        if self.features.has_block_checksums() {
            raw.s_checksum = checksum(&zerocopy::transmute!(raw)).into();
        }
        zerocopy::transmute!(raw)
    }

    /// The superblock of a new, empty journal of `blocks` blocks, at position `position`, as mke2fs
    /// makes it.
    pub fn new(block_bytes: u32, blocks: u32, position: u32, uuid: [u8; 16]) -> Superblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.s_header = Header::encode(BlockKind::SuperblockV2, Sequence(0));
        raw.s_blocksize = block_bytes.into();
        raw.s_maxlen = blocks.into();
        raw.s_first = (position + 1).into();
        raw.s_sequence = 1.into();
        raw.s_uuid = uuid;
        // mke2fs counts a file system as the user of the journal inside it.
        raw.s_nr_users = u32::from(position == 0).into();
        Superblock::of(raw, 2)
    }
}

/// The checksum of a superblock, its field counted as zeros.
fn checksum(bytes: &[u8; SUPERBLOCK_BYTES]) -> u32 {
    const AT: usize = offset_of!(RawSuperblock, s_checksum);
    let crc = crc32c(!0, &bytes[..AT]);
    crc32c(crc32c(crc, &[0; 4]), &bytes[AT + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> Superblock {
        Superblock::new(1024, 1024, 0, [5; 16])
    }

    fn parse(sb: &Superblock) -> Result<Superblock> {
        Superblock::parse(&sb.encode(), 1024, 1024, 0)
    }

    #[test]
    fn a_new_one_is_read_again() {
        let mut sb = new();
        assert_eq!(SUPERBLOCK_BYTES, 1024);
        assert_eq!(parse(&sb).unwrap(), sb);
        assert!(sb.is_empty());
        assert_eq!((sb.first, sb.end, sb.sequence), (1, 1024, Sequence(1)));
        for incompat in [0, INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3] {
            sb.set_features(Features {
                incompat,
                ..Features::default()
            });
            sb.set_tail(7, Sequence(u32::MAX));
            let read = parse(&sb).unwrap();
            assert_eq!((read.start, read.sequence.0), (7, u32::MAX));
        }
        let mut bytes = sb.encode();
        bytes[0x50 - 1] ^= 1;
        assert!(Superblock::parse(&bytes, 1024, 1024, 0).is_err());
    }

    #[test]
    fn positions_go_around() {
        let sb = new();
        assert_eq!(sb.advance(1, 0), 1);
        assert_eq!(sb.advance(1023, 1), 1);
        assert_eq!(sb.advance(1000, 1023 * 5 + 30), 7);
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let wrong: [fn(&mut RawSuperblock); 8] = [
            |raw| raw.s_header.h_magic = 1.into(),
            |raw| raw.s_header.h_blocktype = 1.into(),
            |raw| raw.s_blocksize = 4096.into(),
            |raw| raw.s_maxlen = 1025.into(),
            |raw| raw.s_maxlen = 3.into(),
            |raw| raw.s_first = 0.into(),
            |raw| raw.s_first = 1023.into(),
            |raw| raw.s_start = 1024.into(),
        ];
        for (index, change) in wrong.iter().enumerate() {
            let mut sb = new();
            change(&mut sb.raw);
            assert!(parse(&sb).is_err(), "{index}");
        }
    }

    #[test]
    fn what_can_only_have_one_value_is_mended() {
        type Damage = fn(&mut RawSuperblock);
        let wrong: [(Damage, &str); 6] = [
            (|raw| raw.s_blocksize = 4096.into(), "s_blocksize was 4096"),
            (|raw| raw.s_first = 2.into(), "s_first was 2"),
            (|raw| raw.s_maxlen = 7.into(), "s_maxlen was 7"),
            (|raw| raw.s_maxlen = 5000.into(), "s_maxlen was 5000"),
            (|raw| raw.s_nr_users = 9.into(), "s_nr_users was 9"),
            (
                |raw| raw.s_feature_ro_compat = 8.into(),
                "s_feature_ro_compat was 8",
            ),
        ];
        for (change, expected) in wrong {
            for incompat in [0, INCOMPAT_CSUM_V3] {
                let mut sb = new();
                sb.set_features(Features {
                    incompat,
                    ..Features::default()
                });
                sb.set_tail(1, Sequence(5));
                let right = parse(&sb).unwrap();
                change(&mut sb.raw);
                // The field has the old checksum, as after damage.
                let bytes: [u8; 1024] = zerocopy::transmute!(*sb.raw);
                let (mended, what) = Superblock::mended(&bytes, 1024, 1024, 0).unwrap();
                assert_eq!(mended, right, "{expected}");
                assert!(what[0].starts_with(expected), "{what:?}");
            }
        }
        let mut sb = new();
        sb.raw.s_start = 1024.into();
        let (mended, what) = Superblock::mended(&sb.encode(), 1024, 1024, 0).unwrap();
        assert!(mended.is_empty() && what.len() == 1, "{what:?}");
        sb.raw.s_header.h_magic = 1.into();
        assert!(Superblock::mended(&sb.encode(), 1024, 1024, 0).is_err());
        assert_eq!(
            Superblock::mended(&new().encode(), 1024, 1024, 0).unwrap(),
            (new(), vec![])
        );
    }

    #[test]
    fn what_checkers_object_to_is_told() {
        assert!(new().oddities().is_empty());
        let wrong: [fn(&mut RawSuperblock); 4] = [
            |raw| raw.s_nr_users = 2.into(),
            |raw| raw.s_feature_ro_compat = 1.into(),
            |raw| raw.s_header.h_blocktype = 3.into(),
            |raw| raw.s_feature_incompat = INCOMPAT_FAST_COMMIT.into(),
        ];
        for change in wrong {
            let mut sb = new();
            change(&mut sb.raw);
            assert_eq!(parse(&sb).unwrap().oddities().len(), 1);
            let (mended, _) = Superblock::mended(&sb.encode(), 1024, 1024, 0).unwrap();
            assert!(mended.oddities().is_empty());
        }
    }

    #[test]
    fn fast_commits_take_the_end() {
        let mut sb = new();
        sb.set_features(Features {
            incompat: INCOMPAT_FAST_COMMIT,
            ..Features::default()
        });
        assert_eq!(parse(&sb).unwrap().end, 768);
        sb.raw.s_num_fc_blks = 2000.into();
        assert!(parse(&sb).is_err());
    }
}
