//! The differential mutator: damaged images, with our `fsck -y` compared with `e2fsck -fy`.
//!
//! `MUTANTS` is the number of images (bounded by default), `SEED` the seed. A mutant that fails is
//! reported as a line of JSON with its damages and the way to repeat it. `MUTANT=KIND:SEED` runs
//! one and shows both outputs; with `KEEP=DIR` the damaged image and both results are kept there.
//! `KINDS=PART` takes only bases whose names contain it.

use backstitch_tests::command::{backstitch, run};
use backstitch_tests::mutant::atlas::Class as Part;
use backstitch_tests::mutant::base::{Base, KINDS, Kind};
use backstitch_tests::mutant::child::Memory;
use backstitch_tests::mutant::judge::{Bench, Class, Fault, Judgement, MEMORY_BYTES};
use backstitch_tests::mutant::place::Place;
use backstitch_tests::{require, say, setting};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

const THREADS: usize = 2;

/// Base images, made when they are first needed.
struct Bases<'a> {
    place: &'a Place,
    made: Vec<OnceLock<Option<Base>>>,
}

impl<'a> Bases<'a> {
    fn new(place: &'a Place) -> Bases<'a> {
        let made = KINDS.iter().map(|_| OnceLock::new()).collect();
        Bases { place, made }
    }

    fn get(&self, index: usize) -> Option<&Base> {
        let kind: &Kind = &KINDS[index];
        let make = || {
            let base = Base::make(kind, &self.place.dir(kind.name));
            if base.is_none() {
                backstitch_tests::requirements::skip(
                    kind.name,
                    "it cannot be made on this machine",
                );
            }
            base
        };
        self.made[index].get_or_init(make).as_ref()
    }
}

#[derive(Default)]
struct Count {
    classes: BTreeMap<Class, u64>,
    faults: BTreeMap<Fault, u64>,
    failed: u64,
    by_kind: BTreeMap<&'static str, u64>,
}

impl Count {
    fn add(&mut self, judgement: &Judgement) {
        *self.classes.entry(judgement.class).or_default() += 1;
        for (fault, _) in &judgement.faults {
            *self.faults.entry(*fault).or_default() += 1;
        }
        if !judgement.faults.is_empty() {
            self.failed += 1;
            *self.by_kind.entry(judgement.kind).or_default() += 1;
        }
    }
}

#[test]
fn we_keep_what_e2fsck_keeps() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    if let Ok(mutant) = std::env::var("MUTANT") {
        return one(&mutant);
    }
    let (mutants, seed) = (setting("MUTANTS", 400), setting("SEED", 1));
    let place = Place::new();
    let (bases, memory) = (Bases::new(&place), Memory::new(MEMORY_BYTES));
    let (next, count) = (AtomicU64::new(0), Mutex::new(Count::default()));
    let chosen = chosen();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let bench = Bench {
                dir: place.dir(&format!("thread-{thread}")),
                memory: &memory,
            };
            let (bases, next, count, chosen) = (&bases, &next, &count, &chosen);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= mutants {
                        return;
                    }
                    let Some(base) = bases.get(kind_of(chosen, number)) else {
                        continue;
                    };
                    let judgement = bench.judge(base, seed * 1_000_000 + number, false);
                    if !judgement.faults.is_empty() {
                        say(&judgement.line().to_string());
                    }
                    count.lock().expect("a thread panicked").add(&judgement);
                }
            });
        }
    });
    let count = count.into_inner().expect("a thread panicked");
    let rate = mutants as f64 / started.elapsed().as_secs_f64();
    say(&format!(
        "mutants: SEED={seed} MUTANTS={mutants}: {:?}, {:?}, failed {} {:?}, {rate:.0} a second, at most {} MiB",
        count.classes,
        count.faults,
        count.failed,
        count.by_kind,
        memory.largest_bytes() >> 20,
    ));
    assert_eq!(
        count.failed, 0,
        "mutants failed: see the lines of JSON above"
    );
}

fn chosen() -> Vec<usize> {
    let part = std::env::var("KINDS").unwrap_or_default();
    let is_chosen = |index: &usize| KINDS[*index].name.contains(&part);
    let chosen: Vec<usize> = (0..KINDS.len()).filter(is_chosen).collect();
    assert!(!chosen.is_empty(), "KINDS={part}: no such kind");
    chosen
}

/// Takes the kinds in turn. Where a large one is not due yet, a small one is taken.
fn kind_of(chosen: &[usize], number: u64) -> usize {
    let (round, turn) = (number / chosen.len() as u64, number as usize % chosen.len());
    let is_due = |index: &usize| round.is_multiple_of(KINDS[*index].every);
    let from_turn = chosen.iter().cycle().skip(turn).take(chosen.len());
    from_turn.copied().find(is_due).unwrap_or(chosen[turn])
}

/// Repeats one mutant, and shows it.
fn one(mutant: &str) {
    let (name, seed) = mutant.split_once(':').expect("MUTANT=KIND:SEED");
    let seed: u64 = seed.parse().expect("MUTANT=KIND:SEED");
    let index = KINDS
        .iter()
        .position(|kind| kind.name == name)
        .expect("no such kind");
    let place = Place::new();
    let (bases, memory) = (Bases::new(&place), Memory::new(MEMORY_BYTES));
    let Some(base) = bases.get(index) else {
        return;
    };
    let bench = Bench {
        dir: place.dir("thread-0"),
        memory: &memory,
    };
    let judgement = bench.judge(base, seed, true);
    say(&format!("{:#}", judgement.line()));
    say(&format!("missing: {:?}", judgement.missing));
    say(&format!(
        "backstitch fsck -y: {:?}\n{}",
        judgement.repair.code, judgement.repair.output
    ));
    say(&format!(
        "e2fsck -fy: {:?}\n{}",
        judgement.e2fsck.code, judgement.e2fsck.output
    ));
    if let Some(dir) = std::env::var_os("KEEP").filter(|dir| dir != "1") {
        let dir = PathBuf::from(dir);
        bench.keep(&dir);
        say(&format!(
            "damaged.img, ours.img, theirs.img: in {}",
            dir.display()
        ));
    }
    assert!(judgement.faults.is_empty(), "the mutant fails");
}

/// An undamaged image keeps everything with either tool, even if its journal must be replayed; and
/// the walk notices if something is lost.
#[test]
fn an_undamaged_image_of_every_kind_keeps_everything() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let place = Place::new();
    let (bases, memory) = (Bases::new(&place), Memory::new(MEMORY_BYTES));
    let bench = Bench {
        dir: place.dir("bench"),
        memory: &memory,
    };
    for index in 0..KINDS.len() {
        let Some(base) = bases.get(index) else {
            continue;
        };
        let judgement = bench.judge_damage(base, &|_| Vec::new(), true);
        let whole = judgement.whole;
        let kept = [judgement.ours.named, judgement.theirs.named];
        assert_eq!(
            kept,
            [whole; 2],
            "{}: {}\n{}",
            base.name,
            judgement.line(),
            judgement.repair.output
        );
        assert!(judgement.faults.is_empty(), "{}", judgement.line());
    }
}

/// Judges damage made by hand in an image of a kind; `None` if the kind cannot be made here.
fn judged(kind: &str, damage: &dyn Fn(&Base, &File) -> Vec<String>) -> Option<Judgement> {
    let place = Place::new();
    let (bases, memory) = (Bases::new(&place), Memory::new(MEMORY_BYTES));
    let bench = Bench {
        dir: place.dir("bench"),
        memory: &memory,
    };
    let index = KINDS.iter().position(|known| known.name == kind);
    let base = bases.get(index.expect("no such kind"))?;
    Some(bench.judge_damage(base, &|file| damage(base, file), true))
}

/// A damage: its name, the place, and the bytes put there.
type Case = (&'static str, fn(&Base) -> u64, Vec<u8>);

/// Damages an image at one place after the other. Everything must be kept each time.
fn expect_everything_kept(kind: &str, cases: &[Case]) {
    for (what, offset, bytes) in cases {
        let damage = |base: &Base, file: &File| {
            let written = file.write_all_at(bytes, offset(base));
            written.expect("cannot write");
            vec![(*what).to_owned()]
        };
        let Some(judgement) = judged(kind, &damage) else {
            return;
        };
        expect_all(&judgement);
    }
}

/// Everything is at its path, and the image is repaired rather than refused.
fn expect_all(judgement: &Judgement) {
    assert_eq!(
        (
            judgement.ours.named,
            judgement.faults.len(),
            judgement.repair.code
        ),
        (judgement.whole, 0, Some(1)),
        "{}\n{}",
        judgement.line(),
        judgement.repair.output
    );
}

fn journal(base: &Base) -> u64 {
    base.atlas.spots[&Part::JournalSuperblock][0].offset
}

fn journal_pointers(base: &Base) -> u64 {
    base.atlas.spots[&Part::JournalIndirect][0].offset
}

/// Logs of which a part can be replayed, in whatever way they are found.
#[test]
fn a_damaged_journal_is_replayed_as_far_as_it_is_sound() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let cases: [Case; 6] = [
        ("s_first is 2", |base| journal(base) + 20, vec![0, 0, 0, 2]),
        ("s_blocksize is 0", |base| journal(base) + 12, vec![0; 4]),
        (
            "an unknown feature, and 65 users",
            |base| journal(base) + 40,
            [&[0, 0, 2, 1][..], &[0; 20], &[0, 0, 0, 65]].concat(),
        ),
        (
            "a pointer is missing behind the log",
            |base| journal_pointers(base) + 800,
            vec![0; 4],
        ),
        ("the superblock is lost", |_| 1024, vec![0; 1024]),
        (
            "it is not said that there is a log",
            |_| 1024 + 96,
            vec![2, 0, 0, 0],
        ),
    ];
    expect_everything_kept("ext3-crash-1k", &cases);
}

/// A log is replayed even if fields of the superblock contradict each other and no backup helps.
#[test]
fn a_log_is_found_under_a_superblock_that_contradicts_itself() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let cases: [Case; 4] = [
        ("s_first_data_block is 1", |_| 1024 + 20, vec![1, 0, 0, 0]),
        ("s_inodes_count is 1", |_| 1024, vec![1, 0, 0, 0]),
        ("s_inodes_per_group is 8", |_| 1024 + 40, vec![8, 0, 0, 0]),
        (
            "there is no journal, but it must be replayed",
            |_| 1024 + 92,
            vec![0x38, 0, 0, 0],
        ),
    ];
    expect_everything_kept("ext3-crash-2k-orphans", &cases);
    expect_everything_kept("ext3-our-crash-full", &cases[..3]);
}

/// A block after the journal's end is removed from it: the journal's size is stored twice.
#[test]
fn a_journal_does_not_grow_by_a_stray_pointer() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let behind_the_end = |base: &Base| journal_pointers(base) + 4 * 1015;
    expect_everything_kept("ext3-4k", &[("pointer 1015", behind_the_end, vec![0, 2])]);
}

/// Features that contradict other fields are damage, and no reason to refuse the image.
#[test]
fn impossible_features_are_mended() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let cases: [Case; 3] = [
        ("orphans without their file", |_| 1024 + 102, vec![1]),
        ("made by the Hurd", |_| 1024 + 72, vec![1, 0, 0, 0]),
        ("clusters of one block", |_| 1024 + 101, vec![2]),
    ];
    expect_everything_kept("ext2-4k", &cases);
    expect_everything_kept("ext3-our-crash-full", &cases);
}

/// If the root leads nowhere, no backup of the superblock is preferred because some other directory
/// looks like the root under it.
#[test]
fn a_damaged_root_makes_no_other_superblock_better() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let damage = |base: &Base, file: &File| {
        let inodes = base.atlas.spots[&Part::InodeTable][0].offset;
        let root_pointer = inodes + base.atlas.inode_bytes + 40;
        let done = file
            .write_all_at(&[0x1e, 0, 0, 0], root_pointer)
            .and_then(|()| file.write_all_at(&[10, 0], (8193 << 10) + 206));
        done.expect("cannot change an image");
        vec!["the root's pointer; a backup with 10 blocks kept for descriptors".to_owned()]
    };
    if let Some(judgement) = judged("ext2-all-backups", &damage) {
        assert!(judgement.faults.is_empty(), "{}", judgement.line());
    }
}

/// If two names in an indexed directory are equal, the one in the leaf of its hash keeps the name,
/// whatever their order.
#[test]
fn of_two_equal_names_the_one_in_its_leaf_keeps_it() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let mut renamed = 0;
    for (digit, other) in [(b"0207", b"0607"), (b"0607", b"0207"), (b"0311", b"0711")] {
        let damage = |base: &Base, file: &File| {
            let is_it = |name: &[u8]| name.ends_with(digit);
            let mut found = base.atlas.entries.iter();
            let (block, entry) = found
                .find(|(_, entry)| is_it(&entry.name))
                .expect("no such name");
            let digits = block + (entry.at + 8 + entry.name.len() - 4) as u64;
            file.write_all_at(other, digits).expect("cannot write");
            vec!["two equal names".to_owned()]
        };
        let Some(judgement) = judged("ext2-index-1k", &damage) else {
            return;
        };
        assert!(judgement.faults.is_empty(), "{}", judgement.line());
        // All except the one that was damaged.
        assert_eq!(
            judgement.ours.named,
            judgement.whole - 1,
            "{}",
            judgement.line()
        );
        renamed += 1;
    }
    assert_eq!(renamed, 3);
}

/// Two kinds of checksums at the same time are damage: the log is given up, and the rest kept.
#[test]
fn a_journal_with_two_kinds_of_checksums_is_given_up() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let features = |base: &Base| journal(base) + 40;
    let damage = |base: &Base, file: &File| {
        let written = file.write_all_at(&[0, 0, 0, 0x1f], features(base));
        written.expect("cannot write");
        vec!["s_feature_incompat is 0x1f".to_owned()]
    };
    if let Some(judgement) = judged("ext3-our-crash-ordered", &damage) {
        let outcome = (judgement.faults.len(), judgement.repair.code);
        assert_eq!(outcome, (0, Some(1)), "{}", judgement.line());
    }
}

/// If two places in the log claim one block, the one in line with its neighbours has it.
#[test]
fn a_block_that_a_journal_has_twice_is_read_where_it_belongs() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    for (wrong, right) in [(2, 6), (1, 2), (9, 4)] {
        let damage = |base: &Base, file: &File| {
            let (pointers, mut pointer) = (journal_pointers(base), [0; 4]);
            let done = file
                .read_exact_at(&mut pointer, pointers + 4 * right)
                .and_then(|()| file.write_all_at(&pointer, pointers + 4 * wrong));
            done.expect("cannot change an image");
            vec![format!("pointer {wrong} of the journal is pointer {right}")]
        };
        let Some(judgement) = judged("ext3-crash-1k", &damage) else {
            return;
        };
        assert!(judgement.faults.is_empty(), "{}", judgement.line());
    }
}

/// If neither the first descriptor nor the superblock's copy leads to the journal, a backup of the
/// descriptor does.
#[test]
fn a_journal_is_found_by_a_backup_of_the_descriptors() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let damage = |_: &Base, file: &File| {
        for (what, at) in [
            ("bg_inode_table", 2048 + 8),
            ("s_jnl_blocks[12]", 1024 + 316),
        ] {
            let mut byte = [0];
            let read = file.read_exact_at(&mut byte, at);
            let written = read.and_then(|()| file.write_all_at(&[byte[0] ^ 7], at));
            written.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        vec!["bg_inode_table of group 0 and s_jnl_blocks[12]".to_owned()]
    };
    if let Some(judgement) = judged("ext3-crash-1k", &damage) {
        expect_all(&judgement);
    }
}

/// If the superblock is lost, a backup is used even if it names another group than its own.
#[test]
fn a_backup_is_known_by_its_place() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let damage = |_: &Base, file: &File| {
        let done = file
            .write_all_at(&[0; 1024], 1024)
            .and_then(|()| file.write_all_at(&[9, 0], (8193 << 10) + 90));
        done.expect("cannot change an image");
        vec!["no superblock; its backup says group 9".to_owned()]
    };
    if let Some(judgement) = judged("ext2-1k", &damage) {
        expect_all(&judgement);
    }
}

/// Even without repairing, a check says why a journal cannot be replayed.
#[test]
fn a_check_tells_why_a_journal_cannot_be_replayed() {
    require!("backstitch", "mke2fs", "e2fsck", "debugfs");
    let place = Place::new();
    let bases = Bases::new(&place);
    let index = KINDS.iter().position(|kind| kind.name == "ext3-crash-1k");
    let Some(base) = bases.get(index.expect("no such kind")) else {
        return;
    };
    let image = place.dir("bench").join("damaged.img");
    let file = base.copy(&image);
    file.write_all_at(&[0; 4], journal(base))
        .expect("cannot write");
    let outcome = run(backstitch().args(["fsck", "-n"]).arg(&image));
    assert_eq!(outcome.code, Some(4), "{}", outcome.describe());
    let text = outcome.text();
    assert!(text.contains("magic number"), "{text}");
    assert!(!text.contains("needs_recovery"), "{text}");
}
