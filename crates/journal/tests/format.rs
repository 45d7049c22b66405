//! Bytes and numbers of the journal's format, at the borders of what they may be.

use backstitch_layout::{BlockNumber, JournalMap, JournalRun};
use std::sync::Arc;

use backstitch_device::{BlockDevice, Buffer, MemoryDevice, WriteRequest};
use backstitch_journal::format::external::{ExternalJournal, RawDevice};
use backstitch_journal::format::features::{
    COMPAT_CHECKSUM, INCOMPAT_64BIT, INCOMPAT_ASYNC_COMMIT, INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3,
    INCOMPAT_FAST_COMMIT, INCOMPAT_REVOKE,
};
use backstitch_journal::format::superblock::{RawSuperblock, SUPERBLOCK_BYTES};
use backstitch_journal::format::{
    BlockKind, ChecksumKind, Checksums, Features, Sequence, Superblock, commit, revoke,
};
use backstitch_journal::recovery::{Damage, Ending};
use backstitch_journal::{Error, Journal, JournalDevice, Result, Transaction};
use zerocopy::IntoBytes;

const BLOCK: u32 = 1024;
const UUID: [u8; 16] = [7; 16];

fn put(device: &MemoryDevice, offset_bytes: u64, bytes: &[u8]) {
    let request = WriteRequest {
        offset_bytes,
        buffers: vec![bytes.into()],
    };
    device.submit(&[request]).unwrap();
}

fn features(compat: u32, incompat: u32) -> Features {
    Features {
        compat,
        incompat,
        ro_compat: 0,
    }
}

fn run(position: u32, block: u64, blocks: u32) -> JournalRun {
    JournalRun {
        position,
        block: BlockNumber(block),
        blocks,
    }
}

/// What [`ExternalJournal::read`] makes of a device of `kib` KiB with these numbers at byte 1024.
fn external(kib: u64, magic: u16, incompat: u32, log: u32, blocks: u32) -> Option<ExternalJournal> {
    try_external(kib * 1024, magic, incompat, log, blocks).unwrap()
}

fn try_external(
    bytes: u64,
    magic: u16,
    incompat: u32,
    log: u32,
    blocks: u32,
) -> Result<Option<ExternalJournal>> {
    let mut raw: RawDevice = zerocopy::FromZeros::new_zeroed();
    raw.s_magic = magic.into();
    raw.s_feature_incompat = incompat.into();
    raw.s_log_block_size = log.into();
    raw.s_blocks_count_lo = blocks.into();
    raw.s_uuid = UUID;
    let device = MemoryDevice::new(bytes as usize);
    let room = (bytes as usize)
        .saturating_sub(1024)
        .min(size_of::<RawDevice>());
    if room > 0 {
        put(&device, 1024, &raw.as_bytes()[..room]);
    }
    ExternalJournal::read(&device)
}

#[test]
fn a_journal_device_is_told_from_others() {
    const EXT2: u16 = 0xef53;
    for (log, superblock) in [(0, 2), (1, 1), (2, 1), (6, 1)] {
        let block_bytes = 1024 << log;
        let found = external(4096, EXT2, 0xc, log, 4096 >> log).expect("a journal");
        let expected = ExternalJournal {
            block_bytes,
            blocks: 4096 >> log,
            uuid: UUID,
            map: JournalMap::whole_device(4096 >> log, superblock).unwrap(),
        };
        assert_eq!(found, expected);
        assert_eq!(found.map.runs(), [run(0, 0, 4096 >> log)]);
        let too_many = try_external(4096 << 10, EXT2, 8, log, (4096 >> log) + 1);
        assert!(matches!(too_many, Err(Error::Corrupt { .. })), "{log}");
    }
    assert_eq!(external(64, 0xef54, 8, 0, 64), None, "no ext2");
    assert_eq!(external(64, EXT2, 0x16, 0, 64), None, "a file system");
    let too_large = try_external(1 << 20, EXT2, 8, 7, 1);
    assert!(matches!(too_large, Err(Error::Corrupt { .. })));
    // The shortest device that has all of the superblock's fields is too short for a journal.
    let shortest = 1024 + size_of::<RawDevice>() as u64;
    assert!(try_external(shortest, EXT2, 8, 0, 1).is_err());
    assert_eq!(try_external(shortest - 1, EXT2, 8, 0, 1).unwrap(), None);
    assert_eq!(try_external(16, EXT2, 8, 0, 1).unwrap(), None);
}

#[test]
fn blocks_of_the_journal_are_found_among_others() {
    let runs = vec![run(0, 100, 3), run(3, 50, 2)];
    let map = JournalMap::inside(runs.clone()).unwrap();
    assert_eq!(map.runs(), runs);
    assert!(!map.has_gaps());
    for (first, blocks, owns) in [
        (0, 50, false),
        (0, 51, true),
        (49, 1, false),
        (49, 2, true),
        (51, 1, true),
        (52, 48, false),
        (52, 49, true),
        (102, 5, true),
        (103, 5, false),
        (0, 1000, true),
        (103, u64::MAX, false),
        (99, u64::MAX, true),
    ] {
        assert_eq!(
            map.owns_any(BlockNumber(first), blocks),
            owns,
            "{blocks} from {first}"
        );
        assert_eq!(
            map.behind(1000).owns_any(BlockNumber(first + 1000), blocks),
            owns
        );
        let alone = JournalMap::whole_device(1024, 2).unwrap();
        assert!(
            !alone.owns_any(BlockNumber(first), blocks),
            "it is on no file system"
        );
    }
    let behind = map.behind(1000);
    let is_own = |block| behind.is_own(BlockNumber(block));
    assert!(is_own(1050) && !is_own(50) && !is_own(1052));
    assert_eq!(behind.runs(), [run(0, 1100, 3), run(3, 1050, 2)]);
}

#[test]
fn so_many_revocations_lie_in_one_sector() {
    for (incompat, most) in [(0, 124), (INCOMPAT_64BIT, 62)] {
        let features = features(0, incompat | INCOMPAT_REVOKE);
        assert!(revoke::fits_sector(features, most));
        assert!(!revoke::fits_sector(features, most + 1));
        assert!(revoke::fits_sector(features, 0));
        let checksums = Checksums::new(features, &UUID);
        let records: Vec<u64> = (0..most as u64).map(|n| n * 3 + 1).collect();
        let block = revoke::encode(BLOCK, features, &checksums, Sequence(3), &records);
        assert!(
            block[512..].iter().all(|b| *b == 0),
            "behind the first sector"
        );
        assert_ne!(block[508..512], [0; 4], "up to its end");
    }
}

#[test]
fn features_have_the_names_that_dumpe2fs_gives_them() {
    let all = Features {
        compat: COMPAT_CHECKSUM | 4,
        incompat: 0x3f | 1 << 31,
        ro_compat: 2,
    };
    let names = [
        "journal_checksum",
        "FEATURE_C2",
        "journal_incompat_revoke",
        "journal_64bit",
        "journal_async_commit",
        "journal_checksum_v2",
        "journal_checksum_v3",
        "fast_commit",
        "FEATURE_I31",
        "FEATURE_R1",
    ];
    assert_eq!(all.names(), names);
    assert!(Features::default().names().is_empty());
    let replayed = features(0, 0x37);
    assert!(replayed.unreplayable().is_empty());
    let one = |bit: u32| features(0, 1 << bit).unreplayable().len();
    assert_eq!((0..32).map(one).sum::<usize>(), 26, "all but six");
}

#[test]
fn a_journal_has_the_checksums_of_its_features() {
    for (compat, incompat, kind, tail) in [
        (0, 0, ChecksumKind::None, 0),
        (0, INCOMPAT_ASYNC_COMMIT, ChecksumKind::None, 0),
        (
            COMPAT_CHECKSUM,
            INCOMPAT_ASYNC_COMMIT,
            ChecksumKind::Transaction,
            0,
        ),
        (COMPAT_CHECKSUM, INCOMPAT_CSUM_V2, ChecksumKind::Short, 4),
        (COMPAT_CHECKSUM, INCOMPAT_CSUM_V3, ChecksumKind::Full, 4),
    ] {
        let checksums = Checksums::new(features(compat, incompat), &UUID);
        assert_eq!((checksums.kind, checksums.tail_bytes()), (kind, tail));
        let block = commit::encode(BLOCK, &checksums, Sequence(5), (9, 8), 0x1234);
        let read = commit::Commit::parse(&block).unwrap();
        assert_eq!((read.seconds, read.nanoseconds), (9, 8));
        match kind {
            ChecksumKind::Transaction => {
                assert_eq!(read.stated(), Some(0x1234));
                assert!(read.fits(0x1234) && !read.fits(0x1235));
            }
            ChecksumKind::None => assert!(read.stated().is_none() && read.fits(0x1234)),
            _ => assert!(checksums.commit_holds(&block)),
        }
    }
}

type Edit = fn(&mut RawSuperblock);

fn superblock(blocks: u32, edit: Edit) -> [u8; SUPERBLOCK_BYTES] {
    let bytes = Superblock::new(BLOCK, blocks, 0, UUID).encode();
    let mut raw: RawSuperblock = zerocopy::transmute!(bytes);
    edit(&mut raw);
    zerocopy::transmute!(raw)
}

fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Superblock> {
    Superblock::parse(bytes, BLOCK, 4096, 0)
}

#[test]
fn the_smallest_log_holds_a_descriptor_a_copy_and_a_commit_record() {
    assert_eq!(parse(&superblock(4, |_| ())).unwrap().log_blocks(), 3);
    assert!(parse(&superblock(3, |_| ())).is_err());
    assert!(parse(&superblock(4096, |_| ())).is_ok());
    assert!(parse(&superblock(4097, |_| ())).is_err(), "no room");
    assert!(parse(&superblock(64, |raw| raw.s_first = 0.into())).is_err());
    for (start, holds) in [(1, true), (63, true), (64, false)] {
        let mut sb = Superblock::new(BLOCK, 64, 0, UUID);
        sb.set_tail(start, Sequence(1));
        assert_eq!(parse(&sb.encode()).is_ok(), holds, "{start}");
    }
}

#[test]
fn version_1_has_none_of_the_later_fields() {
    let bytes = superblock(64, |raw| {
        raw.s_header.h_blocktype = BlockKind::SuperblockV1.number().into();
        raw.s_feature_compat = 1.into();
        raw.s_feature_incompat = (INCOMPAT_FAST_COMMIT | INCOMPAT_CSUM_V3).into();
        raw.s_head = 9.into();
    });
    let sb = parse(&bytes).unwrap();
    assert_eq!((sb.version, sb.features), (1, Features::default()));
    assert_eq!(
        (sb.uuid, sb.users.len(), sb.head, sb.end),
        ([0; 16], 0, 0, 64)
    );
    assert_eq!(sb.oddities().len(), 1);
    let plain = superblock(64, |raw| {
        raw.s_header.h_blocktype = BlockKind::SuperblockV1.number().into();
        raw.s_nr_users = 0.into();
    });
    assert!(parse(&plain).unwrap().oddities().is_empty());
    let first = parse(&superblock(64, |raw| raw.s_head = 9.into())).unwrap();
    assert_eq!((first.version, first.uuid, first.head), (2, UUID, 9));
}

#[test]
fn the_user_of_a_journal_device_is_noted() {
    let mut sb = Superblock::new(BLOCK, 64, 2, UUID);
    assert!(sb.users.is_empty());
    sb.set_user([5; 16]);
    let read = Superblock::parse(&sb.encode(), BLOCK, 64, 2).unwrap();
    assert_eq!(read.users, [[5; 16]]);
    assert_eq!(sb.users, read.users);
}

#[test]
fn fast_commits_take_the_end_of_a_journal() {
    let fast = |blocks: u32| {
        let mut sb = Superblock::new(BLOCK, 4096, 0, UUID);
        sb.set_features(features(0, INCOMPAT_FAST_COMMIT));
        let mut raw: RawSuperblock = zerocopy::transmute!(sb.encode());
        raw.s_num_fc_blks = blocks.into();
        zerocopy::transmute!(raw)
    };
    assert_eq!(parse(&fast(0)).unwrap().end, 4096 - 256);
    assert_eq!(parse(&fast(100)).unwrap().end, 4096 - 100);
    assert_eq!(
        parse(&superblock(4096, |raw| raw.s_num_fc_blks = 100.into()))
            .unwrap()
            .end,
        4096
    );
    for (blocks, is_odd) in [(4096 - 1024, false), (4096 - 1023, true)] {
        let sb = parse(&fast(blocks)).unwrap();
        assert_eq!(sb.oddities().len(), usize::from(is_odd), "{blocks}");
        let (_, wrong) = Superblock::mended(&fast(blocks), BLOCK, 4096, 0).unwrap();
        assert_eq!(wrong.len(), usize::from(is_odd), "{wrong:?}");
    }
}

/// The corrections, in words.
#[test]
fn a_superblock_is_mended_as_far_as_damage_shows() {
    const UNKNOWN: u32 = 1 << 30;
    let cases: &[(Edit, &[&str])] = &[
        (|_| (), &[]),
        // An unknown feature stays, unless something else is wrong.
        (|raw| raw.s_feature_incompat = UNKNOWN.into(), &[]),
        (
            |raw| {
                raw.s_feature_incompat = (UNKNOWN | INCOMPAT_REVOKE).into();
                raw.s_first = 9.into();
            },
            &[
                "s_first was 9, must be 1",
                "s_feature_incompat was 1073741825, must be 1",
            ],
        ),
        (
            |raw| {
                raw.s_feature_incompat = UNKNOWN.into();
                raw.s_blocksize = 77.into();
            },
            &[
                "s_blocksize was 77, must be 1024",
                "s_feature_incompat was 1073741824, must be 0",
            ],
        ),
        (
            |raw| raw.s_nr_users = 2.into(),
            &["s_nr_users was 2, must be 1"],
        ),
        (
            |raw| {
                raw.s_header.h_blocktype = BlockKind::SuperblockV1.number().into();
                raw.s_nr_users = 2.into();
                raw.s_feature_compat = 1.into();
            },
            &[
                "s_feature_compat was 1, must be 0",
                "s_nr_users was 2, must be 0",
            ],
        ),
        (
            |raw| raw.s_feature_ro_compat = 4.into(),
            &["s_feature_ro_compat was 4, must be 0"],
        ),
        // A possible length stays, unless the log begins behind it.
        (|raw| raw.s_maxlen = 1024.into(), &[]),
        (
            |raw| raw.s_maxlen = 1023.into(),
            &["s_maxlen was 1023, must be 4096"],
        ),
        (
            |raw| raw.s_maxlen = 4097.into(),
            &["s_maxlen was 4097, must be 4096"],
        ),
        (
            |raw| {
                raw.s_maxlen = 2000.into();
                raw.s_start = 2000.into();
            },
            &["s_maxlen was 2000, must be 4096"],
        ),
        (
            |raw| raw.s_start = 4096.into(),
            &["s_start was 4096, outside the log"],
        ),
        (|raw| raw.s_start = 4095.into(), &[]),
    ];
    for (number, (edit, expected)) in cases.iter().enumerate() {
        let mut bytes = superblock(4096, |raw| {
            raw.s_header.h_blocktype = BlockKind::SuperblockV2.number().into();
        });
        let mut raw: RawSuperblock = zerocopy::transmute!(bytes);
        edit(&mut raw);
        bytes = zerocopy::transmute!(raw);
        let (sb, wrong) = Superblock::mended(&bytes, BLOCK, 4096, 0).unwrap();
        assert_eq!(wrong, *expected, "case {number}");
        assert!(parse(&sb.encode()).is_ok(), "case {number}");
    }
    // The type and the value of the superblock's checksum each have one right value.
    let mut sb = Superblock::new(BLOCK, 4096, 0, UUID);
    sb.set_features(features(0, INCOMPAT_CSUM_V3));
    for (kind, sum, expected) in [(4, 0, 0), (1, 0, 1), (4, 1, 1), (1, 1, 2)] {
        let mut raw: RawSuperblock = zerocopy::transmute!(sb.encode());
        raw.s_checksum_type = kind;
        raw.s_checksum = (raw.s_checksum.get() ^ sum).into();
        let bytes = zerocopy::transmute!(raw);
        let (_, wrong) = Superblock::mended(&bytes, BLOCK, 4096, 0).unwrap();
        assert_eq!(wrong.len(), expected, "{wrong:?}");
    }
    // Several file systems may share a journal on a device of its own.
    let mut sb = Superblock::new(BLOCK, 4096, 2, UUID);
    sb.set_user([5; 16]);
    let mut raw: RawSuperblock = zerocopy::transmute!(sb.encode());
    raw.s_nr_users = 3.into();
    let (sb, wrong) = Superblock::mended(&zerocopy::transmute!(raw), BLOCK, 4096, 2).unwrap();
    assert_eq!((wrong.len(), sb.users.len()), (0, 3));
}

/// A device with a journal of 64 blocks from its first block on, and 1000 blocks behind it.
struct Disk {
    device: MemoryDevice,
    map: Arc<JournalMap>,
}

impl Disk {
    fn new(features: Features) -> Disk {
        let device = MemoryDevice::new(1064 * BLOCK as usize);
        let mut sb = Superblock::new(BLOCK, 64, 0, UUID);
        sb.set_features(features);
        put(&device, 0, &sb.encode());
        let map = Arc::new(JournalMap::inside(vec![run(0, 0, 64)]).unwrap());
        Disk { device, map }
    }

    fn journal(&self) -> Journal<'_> {
        let view = JournalDevice::new(&self.device, BLOCK, self.map.clone());
        Journal::open(view).unwrap()
    }

    fn write(&self, position: u32, block: &Buffer) {
        put(&self.device, u64::from(position) * u64::from(BLOCK), block);
    }

    fn scan(&self, damage: Damage) -> Result<backstitch_journal::recovery::Scan> {
        self.journal().scan_with(1064, damage)
    }
}

fn transaction(copies: usize, time: u64) -> Transaction {
    let copy = |n: usize| (64 + n as u64, vec![n as u8 | 1; BLOCK as usize]);
    Transaction {
        copies: (0..copies).map(copy).collect(),
        revokes: Vec::new(),
        time: (time, 0),
    }
}

const VARIANTS: [(u32, u32); 6] = [
    (0, 0),
    (COMPAT_CHECKSUM, INCOMPAT_64BIT),
    (0, INCOMPAT_CSUM_V2),
    (0, INCOMPAT_CSUM_V2 | INCOMPAT_64BIT),
    (0, INCOMPAT_CSUM_V3),
    (0, INCOMPAT_CSUM_V3 | INCOMPAT_64BIT),
];

#[test]
fn so_many_copies_fit_into_an_empty_log_and_no_more() {
    for (compat, incompat) in VARIANTS {
        // Journals of one descriptor and of many.
        for blocks in [64_u32, 1000] {
            let device = MemoryDevice::new(2200 * BLOCK as usize);
            let mut sb = Superblock::new(BLOCK, blocks, 0, UUID);
            sb.set_features(features(compat, incompat));
            put(&device, 0, &sb.encode());
            let map = Arc::new(JournalMap::inside(vec![run(0, 0, blocks)]).unwrap());
            let mut journal = Journal::open(JournalDevice::new(&device, BLOCK, map)).unwrap();
            let most = journal.capacity();
            let with = |copies: usize| {
                let mut all = transaction(copies, 1);
                let moved = all.copies.iter_mut().map(|(home, _)| home);
                moved.for_each(|home| *home += 1000);
                all
            };
            assert!(
                journal.write_alone(&with(most + 1)).is_err(),
                "{incompat:#x}"
            );
            journal.write_alone(&with(most)).unwrap();
            let scan = journal.scan(2200).unwrap();
            assert_eq!(scan.copies.len(), most, "{incompat:#x}");
        }
    }
}

/// Two transactions, the second one with a damaged checksum in a record. Where it is older than the
/// first, the log ends; where it is not, it is damaged.
#[test]
fn old_records_end_a_log_and_damaged_ones_do_not() {
    let features = features(0, INCOMPAT_CSUM_V3);
    for (seconds, is_stale) in [(9, true), (10, false), (11, false)] {
        for spoils_commit in [false, true] {
            let disk = Disk::new(features);
            let mut sb = disk.journal().superblock().clone();
            sb.set_tail(1, Sequence(1));
            put(&disk.device, 0, &sb.encode());
            let first = transaction(1, 10).encode(&sb, Sequence(1));
            let second = transaction(1, seconds).encode(&sb, Sequence(2));
            for (position, block) in (1..).zip(first.iter().chain(&second)) {
                disk.write(position, block);
            }
            let at = if spoils_commit { 6 } else { 4 };
            let mut spoiled = second[at as usize - 4].to_vec();
            // A byte that nothing uses.
            spoiled[900] ^= 1;
            disk.write(at, &spoiled.into());
            let refused = disk.scan(Damage::Refuse);
            let skipped = disk.scan(Damage::Skip).unwrap();
            assert_eq!((skipped.copies.len(), skipped.end), (1, Sequence(2)));
            match (is_stale, spoils_commit) {
                (true, _) => assert_eq!(refused.unwrap().ending, Ending::Unfinished),
                (false, true) => assert_eq!(refused.unwrap().ending, Ending::Checksum),
                (false, false) => {
                    assert!(matches!(refused, Err(Error::Corrupt { position: 4, .. })));
                    assert!(skipped.cut_short.is_some());
                }
            }
        }
    }
}

/// A log of fast commits begins with a record of tag 9 and the number of the transaction that they
/// follow.
#[test]
fn fast_commits_are_refused_where_there_are_any() {
    let is_refused = |head: [u8; 12], incompat: u32| {
        let device = MemoryDevice::new(1200 * BLOCK as usize);
        let mut sb = Superblock::new(BLOCK, 1100, 0, UUID);
        sb.set_features(features(0, incompat));
        let mut raw: RawSuperblock = zerocopy::transmute!(sb.encode());
        raw.s_num_fc_blks = 20.into();
        raw.s_start = 1.into();
        raw.s_sequence = 0x0403_0201.into();
        put(&device, 0, raw.as_bytes());
        put(&device, 1080 * u64::from(BLOCK), &head);
        let map = Arc::new(JournalMap::inside(vec![run(0, 0, 1100)]).unwrap());
        let journal = Journal::open(JournalDevice::new(&device, BLOCK, map)).unwrap();
        match journal.scan(1200) {
            Ok(_) => false,
            Err(Error::Incompatible { .. }) => true,
            Err(error) => panic!("{error}"),
        }
    };
    let head = |tag: u16, sequence: u32| {
        let mut head = [0; 12];
        head[..2].copy_from_slice(&tag.to_le_bytes());
        head[8..].copy_from_slice(&sequence.to_le_bytes());
        head
    };
    assert!(is_refused(head(9, 0x0403_0201), INCOMPAT_FAST_COMMIT));
    assert!(
        !is_refused(head(9, 0x0403_0201), 0),
        "no log of fast commits"
    );
    assert!(!is_refused(head(8, 0x0403_0201), INCOMPAT_FAST_COMMIT));
    assert!(!is_refused(head(0x109, 0x0403_0201), INCOMPAT_FAST_COMMIT));
    assert!(!is_refused(head(9, 0x0403_0202), INCOMPAT_FAST_COMMIT));
    assert!(!is_refused(head(9, 1), INCOMPAT_FAST_COMMIT));
}

/// The superblock no longer says where the log begins. Its beginning is the first record of the
/// transaction that the superblock names; this may wrap around the journal's end.
#[test]
fn a_log_is_found_whose_beginning_is_lost() {
    for (begins_at, other_at, lost, found) in [
        (5, 2, 100, 5),
        (5, 2, 64, 5),
        (5, 2, 0, 0),
        (60, 20, 99, 60),
        (61, 20, 99, 61),
        (63, 20, 99, 63),
    ] {
        let disk = Disk::new(features(0, INCOMPAT_REVOKE));
        let mut sb = disk.journal().superblock().clone();
        sb.set_tail(1, Sequence(7));
        let mut revokes = transaction(1, 3);
        revokes.revokes = vec![80];
        for (at, block) in (0..).zip(revokes.encode(&sb, Sequence(7))) {
            disk.write(sb.advance(begins_at, at), &block);
        }
        // Records of another transaction do not begin it.
        for (at, block) in (other_at..).zip(transaction(1, 2).encode(&sb, Sequence(6))) {
            disk.write(at, &block);
        }
        let mut raw: RawSuperblock = zerocopy::transmute!(sb.encode());
        raw.s_start = lost.into();
        put(&disk.device, 0, raw.as_bytes());
        let view = JournalDevice::new(&disk.device, BLOCK, disk.map.clone());
        let (journal, wrong) = Journal::open_damaged(view).unwrap();
        assert_eq!(
            journal.superblock().start,
            found,
            "from {begins_at}, lost {lost}"
        );
        assert_eq!(journal.superblock().sequence, Sequence(7));
        assert_eq!(wrong.len(), usize::from(lost != 0), "{wrong:?}");
        if found != 0 {
            let scan = journal.scan(1064).unwrap();
            assert_eq!(
                (scan.copies.len(), scan.revokes.len()),
                (1, 1),
                "{begins_at}"
            );
        }
    }
}
