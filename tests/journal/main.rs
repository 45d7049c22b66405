//! Journals that the kernel left at a power cut: our recovery compared with e2fsck's.
//!
//! All that the kernel's driver writes to a disk is recorded while files are made and removed. Then
//! the power is cut at random moments of the recording, each time with a random part of what was
//! not flushed. debugfs, e2fsck and we replay the journal of each state. The bytes must be the
//! same, except for the times of the repair and the free totals in the superblock. When orphans are
//! dealt with as well, which e2fsck does even with `-E journal_only`, it must find nothing left to
//! do.
//!
//! `CUTS` is the number of cuts for each kind of journal (4), `SEED` the seed.

mod kernel;
mod tools;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use backstitch_device::{BlockDevice, MemoryDevice, RecordingDevice, materialise};
use backstitch_formats::journal_host;
use backstitch_journal::format::features::{
    COMPAT_CHECKSUM, INCOMPAT_64BIT, INCOMPAT_ASYNC_COMMIT, INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3,
    INCOMPAT_REVOKE,
};
use backstitch_journal::format::{Features, Sequence};
use backstitch_journal::recovery::{Damage, Home, Outcome};
use backstitch_journal::{JournalDevice, Transaction};
use backstitch_layout::{JournalLocation, RecoveryMark, Timestamp};
use backstitch_tests::command::{run, tool};
use backstitch_tests::dumps::same_dumps;
use backstitch_tests::image::Image;
use backstitch_tests::random::Random;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::{require, say, setting};

use kernel::{MAGIC, PROFILES, Profile, record};

/// Fields of the superblock with the time of the repair (`s_wtime`, `s_lastcheck`, and their high
/// bits); the totals of free blocks and inodes, which only we count again after a replay; and
/// `s_kbytes_written`, to which the others add what they wrote.
const DIFFERENT: [(usize, usize); 6] = [
    (0x178, 8),
    (0x0c, 8),
    (0x30, 4),
    (0x40, 4),
    (0x158, 4),
    (0x274, 4),
];
/// `s_checksum`, which covers these fields.
const CHECKSUM: (usize, usize) = (0x3fc, 4);

/// Our replay and nothing else, as with `e2fsck -E journal_only`.
fn replay(device: &MemoryDevice) -> Outcome {
    let place = journal_host()
        .place(device)
        .expect("no place")
        .expect("no journal");
    let mut journal = backstitch_mechanisms::jbd2::open(device, None, &place).expect("no journal");
    let home = Home {
        device,
        blocks: place.home_blocks,
        contents: journal_host(),
    };
    let outcome = journal
        .recover(&home, Damage::Refuse)
        .expect("cannot replay");
    journal_host()
        .set_recovery(device, RecoveryMark::default())
        .expect("cannot mark");
    outcome
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("cannot write an image");
}

/// The image without the fields in which two repairs may differ.
fn masked(mut bytes: Vec<u8>) -> Vec<u8> {
    for (at, length) in DIFFERENT.into_iter().chain([CHECKSUM]) {
        bytes[1024 + at..1024 + at + length].fill(0);
    }
    bytes
}

/// Compares our replay with another program's.
fn expect_same(what: &str, who: &str, ours: &[u8], theirs: &Path) {
    let ours = masked(ours.to_vec());
    let theirs = masked(fs::read(theirs).expect("gone"));
    assert_eq!(ours.len(), theirs.len());
    if ours != theirs {
        let at = ours
            .iter()
            .zip(&theirs)
            .position(|(a, b)| a != b)
            .unwrap_or(0);
        let (mine, other) = (ours[at], theirs[at]);
        panic!("{what}: byte {at:#x} is {mine:#x}, {who} has {other:#x}");
    }
}

/// The counts of a profile's cuts.
#[derive(Default)]
struct Tally {
    replayed: u64,
    /// Those of them that another program replayed too.
    compared: u64,
    transactions: u64,
    revoked: u64,
    orphans: u64,
}

/// Compares our replay with debugfs's, which does nothing else, and with e2fsck's, which deals with
/// orphans too.
fn compare_replays(what: &str, scratch: &Scratch, state: &[u8], tally: &mut Tally) {
    let theirs = scratch.path("theirs.img");
    write(&theirs, state);
    same_dumps(what, &theirs, None);
    let device = MemoryDevice::from_bytes(state.to_vec());
    let outcome = replay(&device);
    let ours = device.snapshot();
    let replayed = run(tool("debugfs").args(["-w", "-R", "jr"]).arg(&theirs)).expect_success();
    // debugfs refuses bitmaps whose checksums are right only after the replay.
    let is_open = !replayed.stderr.contains("not open");
    if is_open {
        expect_same(what, "debugfs", &ours, &theirs);
    }
    let has_orphans = ours[1024 + 0xe8..1024 + 0xec] != [0; 4];
    if !has_orphans {
        write(&theirs, state);
        let mut command = tool("e2fsck");
        command.args(["-y", "-E", "journal_only"]).arg(&theirs);
        run(&mut command).expect_success();
        expect_same(what, "e2fsck", &ours, &theirs);
    }
    tally.compared += u64::from(is_open || !has_orphans);
    tally.replayed += 1;
    tally.transactions += u64::from(outcome.transactions);
    tally.revoked += outcome.revoked;
}

/// Does all that a mount does, and has e2fsck check the result.
fn recover(what: &str, scratch: &Scratch, state: &[u8]) -> u64 {
    let device = MemoryDevice::from_bytes(state.to_vec());
    let now = Timestamp {
        seconds: 1_900_000_000,
        nanoseconds: 0,
    };
    let recovered =
        backstitch_mechanisms::jbd2::recover(&device, None, journal_host(), now, Damage::Refuse);
    let report = recovered.expect("cannot recover").expect("no journal");
    let ours = scratch.path("ours.img");
    write(&ours, &device.snapshot());
    let checked = run(tool("e2fsck").arg("-fn").arg(&ours));
    assert_eq!(checked.code, Some(0), "{what}: {}", checked.describe());
    let orphans = checked.text().contains("rphan");
    assert!(!orphans, "{what}: {}", checked.describe());
    report.orphans_freed + report.orphans_truncated
}

fn compare(profile: &Profile, scratch: &Scratch, cut: u64, state: &[u8], tally: &mut Tally) {
    let what = format!("{}, cut {cut}", profile.name);
    let needs_recovery = state[1024 + 0x60] & 4 != 0;
    if needs_recovery {
        compare_replays(&what, scratch, state, tally);
    }
    if profile.is_writable {
        tally.orphans += recover(&what, scratch, state);
    }
}

fn explore(name: &str) -> Tally {
    let profile = PROFILES
        .iter()
        .find(|profile| profile.name == name)
        .expect("a profile");
    let seed = Random::seed(name);
    let scratch = Scratch::new(name);
    let record = record(&scratch, profile, seed);
    let mut tally = Tally::default();
    let mut random = Random::new(seed);
    record.cut(&mut random, setting("CUTS", 4), &mut |cut, state| {
        compare(profile, &scratch, cut, &state, &mut tally);
    });
    say(&format!(
        "{name}: {} changes; {} journals with {} transactions replayed ({} compared), {} copies revoked, {} orphans",
        record.changes.len(),
        tally.replayed,
        tally.transactions,
        tally.compared,
        tally.revoked,
        tally.orphans
    ));
    assert!(tally.compared > 0, "nothing was compared");
    tally
}

macro_rules! profiles {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            require!("root", "fuse", "loop", "mke2fs", "e2fsck", "debugfs", "backstitch");
            explore(stringify!($name));
        }
    )*};
}

profiles! {
    ext3_ordered ext3_writeback ext3_full ext3_full_4k ext3_checksum_v1 ext4_checksum_v3 ext4_64bit
}

/// One of the three modes, by the seed; all of them if more cuts than usual are asked for.
#[test]
fn ext4_without_extents() {
    require!(
        "root",
        "fuse",
        "loop",
        "mke2fs",
        "e2fsck",
        "debugfs",
        "backstitch"
    );
    let modes = ["journal", "ordered", "writeback"];
    let first = Random::seed("ext4_without_extents") as usize % modes.len();
    let count = if setting("CUTS", 4) > 4 {
        modes.len()
    } else {
        1
    };
    for mode in modes.iter().cycle().skip(first).take(count) {
        explore(&format!("ext4_without_extents_{mode}"));
    }
}

/// A journal that our format code writes into an image. e2fsck must replay it as we do.
fn write_journal(image: &mut Vec<u8>, random: &mut Random, features: Features) {
    let device = MemoryDevice::from_bytes(image.clone());
    let place = journal_host()
        .place(&device)
        .expect("no place")
        .expect("no journal");
    let JournalLocation::Inside(map) = &place.location else {
        panic!("the journal is elsewhere");
    };
    let view = JournalDevice::new(&device, place.block_bytes, map.clone());
    let opened = backstitch_mechanisms::jbd2::open(&device, None, &place).expect("no journal");
    let mut sb = opened.superblock().clone();
    sb.set_features(features);
    let start = random.between(u64::from(sb.first), u64::from(sb.end)) as u32;
    // Sequence numbers wrap around, as positions do.
    let mut sequence = Sequence(u32::MAX - random.below(20) as u32);
    sb.set_tail(start, sequence);
    let put = |position, bytes: &[u8]| {
        view.write(&[(position, bytes.into())])
            .expect("cannot write")
    };
    put(0, &sb.encode());
    let (mut at, size) = (0, place.block_bytes as usize);
    // Blocks at the file system's end that nothing uses.
    let homes = place.home_blocks - 200;
    loop {
        let mut transaction = Transaction {
            time: (1_700_000_000, 0),
            ..Transaction::default()
        };
        for _ in 0..random.between(1, 200) {
            let home = homes + random.below(200);
            let is_new = transaction.copies.iter().all(|(known, _)| *known != home);
            let mut bytes = vec![random.next_u64() as u8; size];
            if random.one_in(4) {
                bytes[..4].copy_from_slice(&MAGIC);
            }
            if is_new {
                transaction.copies.push((home, bytes));
            }
        }
        transaction.revokes = (0..random.below(9))
            .map(|_| homes + random.below(200))
            .collect();
        let log = transaction.encode(&sb, sequence);
        let room = sb.log_blocks() as usize - 1;
        if at + log.len() >= room {
            break;
        }
        let is_last = at + log.len() * 2 >= room;
        // The last transaction is cut off before its end.
        let kept = if is_last { log.len() / 3 } else { log.len() };
        for block in log.iter().take(kept) {
            put(sb.advance(start, at as u32), block);
            at += 1;
        }
        sequence = sequence.next();
        if is_last {
            break;
        }
    }
    let needed = RecoveryMark {
        needed: true,
        ..RecoveryMark::default()
    };
    journal_host()
        .set_recovery(&device, needed)
        .expect("cannot mark");
    *image = device.snapshot();
}

#[test]
fn journals_of_ours_are_replayed_by_e2fsck() {
    require!("mke2fs", "e2fsck", "debugfs", "backstitch");
    let seed = Random::seed("journals_of_ours");
    let scratch = Scratch::new("journals_of_ours");
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    let incompat = [0, INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3, INCOMPAT_ASYNC_COMMIT];
    for round in 0..setting("CUTS", 4) {
        let block = ["1024", "4096"][round as usize % 2];
        let size = ["size=1", "size=4"][round as usize % 2];
        let arguments = ["-t", "ext3", "-b", block, "-J", size];
        let made = Image::mke2fs(&scratch, "made.img", "24M", &arguments).bytes();
        for (compat, incompat) in incompat.iter().flat_map(|bits| {
            let compat = if *bits == INCOMPAT_ASYNC_COMMIT {
                COMPAT_CHECKSUM
            } else {
                0
            };
            [(compat, *bits), (compat, *bits | INCOMPAT_64BIT)]
        }) {
            let features = Features {
                compat,
                incompat: incompat | INCOMPAT_REVOKE,
                ro_compat: 0,
            };
            let mut image = made.clone();
            write_journal(&mut image, &mut random, features);
            let what = format!("round {round}, {features:?}");
            compare_replays(&what, &scratch, &image, &mut tally);
        }
    }
    say(&format!(
        "{} of {} journals compared",
        tally.compared, tally.replayed
    ));
    assert_eq!(tally.compared, tally.replayed);
}

/// The image without the journal's blocks, in which a second recovery may leave other records.
fn without_journal(mut image: Vec<u8>) -> Vec<u8> {
    let device = MemoryDevice::from_bytes(image.clone());
    let place = journal_host()
        .place(&device)
        .expect("no place")
        .expect("no journal");
    if let JournalLocation::Inside(map) = &place.location {
        let size = u64::from(place.block_bytes);
        for run in map.runs() {
            let range = run.block.offset_bytes(size)..run.end().offset_bytes(size);
            image[range.start as usize..range.end as usize].fill(0);
        }
    }
    image
}

/// Cuts our own recovery of a state after each of its writes, and recovers again.
fn cut_recovery(scratch: &Scratch, state: &[u8], random: &mut Random) -> Option<u64> {
    let now = Timestamp {
        seconds: 1_900_000_000,
        nanoseconds: 0,
    };
    let recover_all = |device: &dyn BlockDevice| {
        let done =
            backstitch_mechanisms::jbd2::recover(device, None, journal_host(), now, Damage::Refuse);
        done.expect("cannot recover").expect("no journal")
    };
    let memory = Arc::new(MemoryDevice::from_bytes(state.to_vec()));
    let recording = RecordingDevice::new(memory.clone());
    let report = recover_all(&recording);
    if report.orphans_freed + report.orphans_truncated == 0 {
        return None;
    }
    let expected = without_journal(memory.snapshot());
    let records = recording.records();
    for cut in 0..=records.len() {
        for share in [0, 3] {
            let mut bytes = state.to_vec();
            materialise(&mut bytes, &records, cut, &mut |_| random.below(4) < share);
            let device = MemoryDevice::from_bytes(bytes);
            recover_all(&device);
            let recovered = device.snapshot();
            if random.one_in(20) {
                let path = scratch.path("again.img");
                write(&path, &recovered);
                let checked = run(tool("e2fsck").arg("-fn").arg(&path));
                assert_eq!(checked.code, Some(0), "cut {cut}: {}", checked.describe());
            }
            let what = "recovered to another state";
            assert!(
                without_journal(recovered) == expected,
                "cut {cut}, {share}: {what}"
            );
        }
    }
    Some(records.len() as u64)
}

#[test]
fn a_crash_inside_recovery_recovers() {
    require!("root", "fuse", "loop", "mke2fs", "e2fsck", "backstitch");
    let seed = Random::seed("crash_inside_recovery");
    let scratch = Scratch::new("crash_inside_recovery");
    let record = record(&scratch, &PROFILES[0], seed);
    let mut random = Random::new(seed);
    let (mut states, mut cuts) = (0, 0);
    let mut cutter = Random::new(seed ^ 1);
    record.cut(&mut random, 12, &mut |_, state| {
        if states < setting("CUTS", 4).div_ceil(8)
            && let Some(count) = cut_recovery(&scratch, &state, &mut cutter)
        {
            states += 1;
            cuts += count;
        }
    });
    say(&format!(
        "{states} recoveries with orphans, cut at {cuts} writes and flushes"
    ));
    assert!(states > 0, "no state had orphans");
}
