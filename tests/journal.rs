//! Journals that the kernel left when the power went: our recovery beside e2fsck's.
//!
//! Everything that the kernel's driver writes to a disk is recorded while files come and go above it. Then the power is cut at random
//! moments of the record, each time with a random part of what was not flushed. debugfs and e2fsck replay the journal of what is left,
//! and so do we: the bytes must be the same, but for the times of the repair and the free totals in the superblock. With the
//! orphans dealt with as well, which e2fsck does with `-E journal_only` too, it must find nothing left to do.
//!
//! `CUTS` says how many cuts for each kind of journal (4), `SEED` which.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backstitch_device::write_log::{EntryFlags, LogReader};
use backstitch_device::{BlockDevice, MemoryDevice, RecordingDevice, materialise};
use backstitch_ext::Ext2;
use backstitch_journal::format::features::{
    COMPAT_CHECKSUM, INCOMPAT_64BIT, INCOMPAT_ASYNC_COMMIT, INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3,
    INCOMPAT_REVOKE,
};
use backstitch_journal::format::{Features, Sequence};
use backstitch_journal::recovery::{Damage, Home, Outcome};
use backstitch_journal::{JournalDevice, Transaction};
use backstitch_layout::{JournalHost, JournalLocation, RecoveryMark, Timestamp};
use backstitch_tests::command::{backstitch, run, tool};
use backstitch_tests::image::Image;
use backstitch_tests::loop_device::LoopDevice;
use backstitch_tests::random::Random;
use backstitch_tests::recorder::Recorder;
use backstitch_tests::scratch::{Scratch, force_unmount, umount_ours};
use backstitch_tests::{require, say, setting};

/// How long files come and go.
const WORK: Duration = Duration::from_secs(4);
/// What a block of the journal's own begins with: copies of blocks that begin so are escaped.
const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
/// Fields of the superblock that say when it was repaired (`s_wtime`, `s_lastcheck`, and their high bits), and the totals of what is
/// free, which only we count anew after a replay; and `s_kbytes_written`, to which the others add what they wrote.
const DIFFERENT: [(usize, usize); 6] = [
    (0x178, 8),
    (0x0c, 8),
    (0x30, 4),
    (0x40, 4),
    (0x158, 4),
    (0x274, 4),
];
/// `s_checksum`, which covers them.
const CHECKSUM: (usize, usize) = (0x3fc, 4);

/// A kind of journal.
struct Profile {
    name: &'static str,
    mke2fs: &'static [&'static str],
    /// The kernel's driver, and how to mount.
    mount: (&'static str, &'static str),
    /// Whether this version writes such a file system, so that it deals with orphans.
    is_writable: bool,
}

const PROFILES: [Profile; 8] = [
    Profile {
        name: "ext3_ordered",
        mke2fs: &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        mount: ("ext3", "data=ordered,commit=1"),
        is_writable: true,
    },
    Profile {
        name: "ext3_writeback",
        mke2fs: &["-t", "ext3", "-b", "1024", "-J", "size=4"],
        mount: ("ext3", "data=writeback,commit=1"),
        is_writable: true,
    },
    Profile {
        name: "ext3_full",
        mke2fs: &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        mount: ("ext3", "data=journal,commit=1"),
        is_writable: true,
    },
    Profile {
        name: "ext3_full_4k",
        mke2fs: &["-t", "ext3", "-b", "4096", "-J", "size=4"],
        mount: ("ext3", "data=journal,commit=1"),
        is_writable: true,
    },
    Profile {
        name: "ext3_checksum_v1",
        mke2fs: &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        mount: ("ext4", "data=writeback,commit=1,journal_async_commit"),
        is_writable: true,
    },
    Profile {
        name: "ext4_without_extents",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^extents,^metadata_csum,^64bit",
        ],
        mount: ("ext4", "data=journal,commit=1"),
        is_writable: false,
    },
    Profile {
        name: "ext4_64bit",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "metadata_csum,64bit",
        ],
        mount: ("ext4", "data=journal,commit=1"),
        is_writable: false,
    },
    Profile {
        name: "ext4_checksum_v3",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^extents,metadata_csum,^64bit",
        ],
        mount: ("ext4", "data=ordered,commit=1"),
        is_writable: false,
    },
];

/// Makes, changes, truncates and removes files until the time is up. Some are removed while they are open.
fn work(dir: &Path, seed: u64, with_orphans: bool) {
    let mut random = Random::new(seed);
    let started = Instant::now();
    let mut open: Vec<File> = Vec::new();
    let name = |number: u64| {
        dir.join(format!("d{}", number % 7))
            .join(format!("f{number}"))
    };
    while started.elapsed() < WORK {
        let path = name(random.below(60));
        match random.below(12) {
            0..5 => {
                let _ = fs::create_dir(path.parent().unwrap_or(dir));
                let Ok(mut file) = OpenOptions::new().create(true).append(true).open(&path) else {
                    continue;
                };
                let mut bytes = random.bytes(random_len(seed, &path));
                if random.one_in(3) {
                    bytes[..4].copy_from_slice(&MAGIC);
                    let _ = file.seek(SeekFrom::Start(0));
                }
                let _ = file.write_all(&bytes);
                if random.one_in(4) {
                    let _ = file.sync_all();
                }
            }
            5 => {
                if let Ok(file) = OpenOptions::new().write(true).open(&path) {
                    let _ = file.write_all_at(&MAGIC, random.below(20) * 1024);
                    let _ = file.sync_data();
                }
            }
            6 => {
                if let Ok(file) = OpenOptions::new().write(true).open(&path) {
                    let _ = file.set_len(random.below(40_000));
                }
            }
            7 => drop(fs::rename(&path, name(random.below(60)))),
            8 => drop(fs::remove_dir_all(path.parent().unwrap_or(dir))),
            9 if with_orphans => {
                // An orphan as long as it is open.
                if let Ok(file) = File::open(&path) {
                    open.push(file);
                    let _ = fs::remove_file(&path);
                }
                if open.len() > 8 {
                    open.clear();
                }
            }
            10 => drop(std::os::unix::fs::symlink(
                &path,
                dir.join(format!("l{}", random.below(9))),
            )),
            _ => drop(fs::remove_file(&path)),
        }
    }
}

/// A length that a file keeps: a few bytes for most, a few indirect blocks for some.
fn random_len(seed: u64, path: &Path) -> usize {
    let number = path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(seed, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
        });
    match number % 5 {
        0 => 300_000 + (number % 7) as usize * 10_000,
        1..3 => 20_000,
        _ => 500,
    }
}

/// What a record says, in memory.
struct Record {
    base: Vec<u8>,
    changes: Vec<Change>,
}

enum Change {
    /// Where, what, and whether it is durable when it ends.
    Write(usize, Vec<u8>, bool),
    Discard(usize, usize),
    Flush,
}

impl Record {
    fn read(recorder: &Recorder) -> Record {
        let base = fs::read(&recorder.base).expect("cannot read the base");
        let mut log = LogReader::open(&recorder.log).expect("cannot read the log");
        let mut changes = Vec::new();
        let entries: Vec<_> = log
            .by_ref()
            .map(|entry| entry.expect("a damaged log"))
            .collect();
        for entry in entries {
            if entry.flags.contains(EntryFlags::FLUSH) {
                changes.push(Change::Flush);
            }
            let at = entry.offset_bytes as usize;
            if entry.flags.contains(EntryFlags::DISCARD) {
                changes.push(Change::Discard(at, entry.len_bytes as usize));
            } else if entry.has_data() {
                let mut bytes = vec![0; entry.len_bytes as usize];
                log.read_data(&entry, 0, &mut bytes).expect("a damaged log");
                changes.push(Change::Write(
                    at,
                    bytes,
                    entry.flags.contains(EntryFlags::FUA),
                ));
            }
        }
        Record { base, changes }
    }

    /// Calls `look` with what each of `count` power cuts leaves.
    fn cut(&self, random: &mut Random, count: u64, look: &mut dyn FnMut(u64, Vec<u8>)) {
        let mut cuts: Vec<u64> = (0..count)
            .map(|_| random.below(self.changes.len() as u64 + 1))
            .collect();
        cuts.sort_unstable();
        let (mut stable, mut applied) = (self.base.clone(), 0);
        for cut in cuts {
            let before = &self.changes[..cut as usize];
            let flushed = before
                .iter()
                .rposition(|change| matches!(change, Change::Flush))
                .unwrap_or(0);
            for change in &self.changes[applied..flushed.max(applied)] {
                change.apply(&mut stable);
            }
            applied = applied.max(flushed);
            let mut state = stable.clone();
            let share = random.below(5);
            for change in &before[applied..] {
                if matches!(change, Change::Write(_, _, true)) || random.below(4) < share {
                    change.apply(&mut state);
                }
            }
            look(cut, state);
        }
    }
}

impl Change {
    fn apply(&self, state: &mut [u8]) {
        match self {
            Change::Write(at, bytes, _) => state[*at..at + bytes.len()].copy_from_slice(bytes),
            Change::Discard(at, length) => state[*at..at + length].fill(0),
            Change::Flush => {}
        }
    }
}

/// Records what the kernel writes under a load.
fn record(scratch: &Scratch, profile: &Profile, seed: u64) -> Record {
    let image = Image::mke2fs(scratch, "disk.img", "24M", profile.mke2fs);
    let recorder = Recorder::start(scratch, image.path());
    let dir = scratch.dir("mnt");
    recorder.mount_with(profile.mount.0, profile.mount.1, &dir);
    // e2fsck deals with orphans in another way: where its replay is all there is to compare with, there should be none.
    work(&dir, seed, profile.is_writable);
    force_unmount(&dir);
    recorder.end();
    Record::read(&recorder)
}

/// Our replay, and nothing else, as `e2fsck -E journal_only` does it.
fn replay(device: &MemoryDevice) -> Outcome {
    let place = Ext2.place(device).expect("no place").expect("no journal");
    let mut journal = backstitch_vfs::journal::open(device, None, &place).expect("no journal");
    let home = Home {
        device,
        blocks: place.home_blocks,
    };
    let outcome = journal
        .recover(&home, Damage::Refuse)
        .expect("cannot replay");
    Ext2.set_recovery(device, RecoveryMark::default())
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

/// Our replay against somebody else's.
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

/// What a profile's cuts came to.
#[derive(Default)]
struct Tally {
    replayed: u64,
    /// Of these, those that somebody else replayed too.
    compared: u64,
    transactions: u64,
    revoked: u64,
    orphans: u64,
}

/// What debugfs prints before the log's end. Behind it comes what it takes for fast commits, also where there are none.
fn log_lines(text: &str) -> Vec<&str> {
    let end = text
        .lines()
        .position(|line| line.ends_with("end of journal."));
    text.lines()
        .take(end.map_or(usize::MAX, |at| at + 1))
        .collect()
}

/// The records that a user is shown.
fn compare_dumps(what: &str, image: &Path) {
    let dumped = run(backstitch().args(["journal", "dump"]).arg(image)).expect_success();
    let mut command = tool("debugfs");
    command.args(["-c", "-R", "logdump -a"]).arg(image);
    let expected = run(&mut command).expect_success();
    let (ours, theirs) = (dumped.text(), expected.text());
    let (ours, theirs) = (log_lines(&ours), log_lines(&theirs));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{what}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
}

/// Our replay against debugfs's, which does nothing else, and e2fsck's, which deals with orphans too.
fn compare_replays(what: &str, scratch: &Scratch, state: &[u8], tally: &mut Tally) {
    let theirs = scratch.path("theirs.img");
    write(&theirs, state);
    compare_dumps(what, &theirs);
    let device = MemoryDevice::from_bytes(state.to_vec());
    let outcome = replay(&device);
    let ours = device.snapshot();
    let replayed = run(tool("debugfs").args(["-w", "-R", "jr"]).arg(&theirs)).expect_success();
    // Bitmaps whose checksums are right only after the replay keep debugfs away.
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

/// All that a mount does, and what e2fsck has to say of it.
fn recover(what: &str, scratch: &Scratch, state: &[u8]) -> u64 {
    let device = MemoryDevice::from_bytes(state.to_vec());
    let now = Timestamp {
        seconds: 1_900_000_000,
        nanoseconds: 0,
    };
    let recovered = backstitch_vfs::journal::recover(&device, None, &Ext2, now, Damage::Refuse);
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
    ext3_ordered ext3_writeback ext3_full ext3_full_4k ext3_checksum_v1 ext4_without_extents ext4_checksum_v3 ext4_64bit
}

/// A journal that our format code writes into an image: e2fsck replays it as we do.
fn write_journal(image: &mut Vec<u8>, random: &mut Random, features: Features) {
    let device = MemoryDevice::from_bytes(image.clone());
    let place = Ext2.place(&device).expect("no place").expect("no journal");
    let JournalLocation::Inside(map) = &place.location else {
        panic!("the journal is elsewhere");
    };
    let view = JournalDevice::new(&device, place.block_bytes, map.clone());
    let opened = backstitch_vfs::journal::open(&device, None, &place).expect("no journal");
    let mut sb = opened.superblock().clone();
    sb.set_features(features);
    let start = random.between(u64::from(sb.first), u64::from(sb.end)) as u32;
    // Numbers wrap around as positions do.
    let mut sequence = Sequence(u32::MAX - random.below(20) as u32);
    sb.set_tail(start, sequence);
    let put = |position, bytes: &[u8]| {
        view.write(&[(position, Arc::from(bytes))])
            .expect("cannot write")
    };
    put(0, &sb.encode());
    let (mut at, size) = (0, place.block_bytes as usize);
    // Blocks of nobody, at the file system's end.
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
        // The last one is cut off before its end.
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
    Ext2.set_recovery(&device, needed).expect("cannot mark");
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

/// The image but for the journal's own blocks, in which a second recovery may leave other records.
fn without_journal(mut image: Vec<u8>) -> Vec<u8> {
    let device = MemoryDevice::from_bytes(image.clone());
    let place = Ext2.place(&device).expect("no place").expect("no journal");
    if let JournalLocation::Inside(map) = &place.location {
        let size = u64::from(place.block_bytes);
        for run in map.runs() {
            let range = run.block * size..(run.block + u64::from(run.blocks)) * size;
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
        let done = backstitch_vfs::journal::recover(device, None, &Ext2, now, Damage::Refuse);
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

#[test]
fn a_journal_on_a_device_of_its_own() {
    require!("root", "fuse", "loop", "mke2fs", "e2fsck", "backstitch");
    let scratch = Scratch::new("external_journal");
    let (disk, log) = (scratch.path("disk.img"), scratch.path("log.img"));
    File::create(&disk)
        .and_then(|file| file.set_len(24 << 20))
        .expect("cannot make");
    let mut command = tool("mke2fs");
    run(command
        .args(["-q", "-F", "-O", "journal_dev", "-b", "1024"])
        .arg(&log)
        .arg("2M"))
    .expect_success();
    let dir = scratch.dir("mnt");
    let (crashed, crashed_log) = (scratch.path("crashed.img"), scratch.path("crashed-log.img"));
    {
        let (disk, log) = (LoopDevice::over(&disk), LoopDevice::over(&log));
        let device = format!("device={}", log.name());
        let mut command = tool("mke2fs");
        run(command.args([
            "-q",
            "-F",
            "-t",
            "ext3",
            "-b",
            "1024",
            "-J",
            &device,
            disk.name(),
        ]))
        .expect_success();
        run(tool("mount")
            .args(["-t", "ext3", "-o", "data=journal", disk.name()])
            .arg(&dir))
        .expect_success();
        work(&dir, Random::seed("external_journal"), false);
        let file = File::create(dir.join("last")).expect("cannot create");
        file.sync_all().expect("cannot sync");
        // Nobody writes now: what the two files hold is what a power cut would leave.
        fs::copy(scratch.path("disk.img"), &crashed).expect("cannot copy");
        fs::copy(scratch.path("log.img"), &crashed_log).expect("cannot copy");
        drop(file);
        force_unmount(&dir);
    }
    let theirs = scratch.path("theirs.img");
    fs::copy(&crashed, &theirs).expect("cannot copy");
    let their_log = scratch.path("their-log.img");
    fs::copy(&crashed_log, &their_log).expect("cannot copy");
    let mut command = tool("e2fsck");
    command
        .args(["-y", "-E", "journal_only", "-j"])
        .arg(&their_log)
        .arg(&theirs);
    run(&mut command).expect_success();
    let mount = |options: &str| {
        let mut command = backstitch();
        run(command
            .args(["mount", "-o", options])
            .arg(&crashed)
            .arg(&dir))
    };
    let refused = mount("rw");
    assert!(
        refused.stderr.contains("journal_dev="),
        "{}",
        refused.describe()
    );
    let log_option = format!("nojournal,journal_dev={}", crashed_log.display());
    // Read-only: nothing is written, and all is there.
    mount(&format!("ro,{log_option}")).expect_success();
    assert!(dir.join("last").exists());
    umount_ours(&dir);
    let ours = MemoryDevice::from_bytes(fs::read(&crashed).expect("gone"));
    let our_log = MemoryDevice::from_bytes(fs::read(&crashed_log).expect("gone"));
    let place = Ext2.place(&ours).expect("no place").expect("no journal");
    assert!(
        place.needs_recovery,
        "written by a read-only mount, or nothing to replay"
    );
    let mut journal =
        backstitch_vfs::journal::open(&ours, Some(&our_log), &place).expect("no journal");
    let home = Home {
        device: &ours,
        blocks: place.home_blocks,
    };
    let outcome = journal
        .recover(&home, Damage::Refuse)
        .expect("cannot replay");
    assert!(outcome.transactions > 0, "nothing was replayed");
    Ext2.set_recovery(&ours, RecoveryMark::default())
        .expect("cannot mark");
    expect_same("external", "e2fsck", &ours.snapshot(), &theirs);
    assert!(
        our_log.snapshot() == fs::read(&their_log).expect("gone"),
        "another log"
    );
    mount(&log_option).expect_success();
    fs::write(dir.join("new"), b"new").expect("cannot write");
    umount_ours(&dir);
    let mut command = tool("e2fsck");
    let checked = run(command.args(["-fn", "-j"]).arg(&crashed_log).arg(&crashed));
    assert_eq!(checked.code, Some(0), "{}", checked.describe());
}

#[test]
fn fsck_replays_or_gives_up() {
    require!("mke2fs", "e2fsck", "backstitch");
    let seed = Random::seed("fsck_replays");
    let scratch = Scratch::new("fsck_replays");
    let mut random = Random::new(seed);
    let arguments = ["-t", "ext3", "-b", "1024", "-J", "size=1"];
    let made = Image::mke2fs(&scratch, "made.img", "24M", &arguments);
    let mut dirty = made.bytes();
    let features = Features {
        incompat: INCOMPAT_CSUM_V3 | INCOMPAT_REVOKE,
        ..Features::default()
    };
    write_journal(&mut dirty, &mut random, features);
    let path = scratch.path("dirty.img");
    let fsck = |mode: &str| run(backstitch().args(["fsck", mode]).arg(&path));
    write(&path, &dirty);
    let looked = fsck("-n");
    assert_eq!(looked.code, Some(0), "{}", looked.describe());
    assert!(
        looked.text().contains("taken for done"),
        "{}",
        looked.text()
    );
    assert!(fs::read(&path).expect("gone") == dirty, "-n wrote");
    let preened = fsck("-p");
    assert_eq!(preened.code, Some(1), "{}", preened.describe());
    assert_eq!(fsck("-p").code, Some(0));
    Image::at(path.clone()).expect_clean();
    // A copy whose checksum is wrong: -p leaves everything alone, -y gives it up.
    let device = MemoryDevice::from_bytes(dirty.clone());
    let place = Ext2.place(&device).expect("no place").expect("no journal");
    let journal = backstitch_vfs::journal::open(&device, None, &place).expect("no journal");
    let scan = journal.scan(place.home_blocks).expect("cannot scan");
    // The last one: of an earlier one there may be a later copy, and then nobody reads it.
    let copy = scan.copies.last().expect("no copies").position;
    let at = journal.device().map().block(copy).expect("no such block") * 1024 + 700;
    dirty[at as usize] ^= 1;
    write(&path, &dirty);
    for mode in ["-n", "-p"] {
        let refused = fsck(mode);
        assert!(refused.code >= Some(4), "{}", refused.describe());
        assert!(fs::read(&path).expect("gone") == dirty, "{mode} wrote");
    }
    let repaired = fsck("-y");
    assert_eq!(repaired.code, Some(1), "{}", repaired.describe());
    assert!(
        repaired.text().contains("wrong checksums"),
        "{}",
        repaired.text()
    );
    Image::at(path).expect_clean();
}

#[test]
fn an_image_with_a_journal_is_written_through_it_or_without_it() {
    require!("root", "fuse", "e2fsck", "debugfs", "backstitch");
    let scratch = Scratch::new("without_journal");
    let (source, dir) = (scratch.dir("source"), scratch.dir("mnt"));
    fs::write(source.join("given"), b"given").expect("cannot write");
    let path = scratch.path("disk.img");
    let mut command = backstitch();
    command
        .args(["mkfs", "-t", "ext3", "-s", "16M", "-d"])
        .arg(&source)
        .arg(&path);
    run(&mut command).expect_success();
    Image::at(path.clone()).expect_clean();
    let info = run(backstitch().args(["info", "--json"]).arg(&path))
        .expect_success()
        .json();
    assert_eq!(info["journal"]["blocks"], 1024);
    assert_eq!(info["journal"]["needs_recovery"], false);
    let mount = |options: &str| {
        run(backstitch()
            .args(["mount", "-o", options])
            .arg(&path)
            .arg(&dir))
        .expect_success();
    };
    let unmount = || umount_ours(&dir);
    mount("rw");
    assert_eq!(fs::read(dir.join("given")).expect("cannot read"), b"given");
    fs::write(dir.join("through"), b"journal").expect("cannot write");
    unmount();
    let dumped = run(backstitch().args(["journal", "dump"]).arg(&path)).expect_success();
    // It is empty again, and further than a new one.
    let said = String::from_utf8_lossy(&dumped.stdout).into_owned();
    assert!(said.contains("starts at block 0"), "{said}");
    assert!(!said.trim_end().ends_with("transaction 1"), "{said}");
    Image::at(path.clone()).expect_clean();
    mount("nojournal");
    fs::write(dir.join("new"), b"new").expect("cannot write");
    unmount();
    Image::at(path).expect_clean();
}
