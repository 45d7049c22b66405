//! A file system in a file of another one. What it promises holds in every state of the device
//! below both, and neither file system is ever wrong. The explorer would find it if the order
//! stated inside were lost on the way.

use std::sync::Arc;

use backstitch_crash::{
    Campaign, Foreign, Fork, ImageOptions, NoObserver, Observer, Results, Schedule, Workload,
    parse_script,
};
use backstitch_device::MemoryDevice;
use backstitch_formats::usual;
use backstitch_journal::rules::Rule as JournalRule;
use backstitch_layout::tools::{Mkfs, MkfsJournal};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::rules::Rule;

use backstitch_rules::watch::{self, Form};
use backstitch_store::Optimisations;
use backstitch_vfs::{Engine, FileType, MountOptions, NewInode, SetAttributes};

const BLOCK: usize = 1024;

/// Names, contents that grow and shrink, a directory that moves.
const SCRIPTS: [(&str, &str); 3] = [
    (
        "grow",
        "mkdir d; creat d/f; append d/f 3000; sync; append d/f 15000; rename d/f g; truncate g 500; unlink g",
    ),
    (
        "names",
        "mkdir a; mkdir b; creat a/x; write a/x 0 1500; rename a/x b/y; link b/y a/z; mkdir a/s; rename a/s b/s; unlink b/y; rmdir b/s",
    ),
    (
        "sync",
        "creat x; append x 2500; fsync x; creat y; append y 900; rename y x; creat z; setxattr z user.n v; fsync z; unlink z",
    ),
];

/// A compressor removes its input after its output.
const COMPRESSOR: (&str, &str) = (
    "compressor",
    "creat in; write in 0 5000; sync; engage 1; creat out; append out 1500; append out 1500; disengage 1; \
     depend 2 1; engage 2; unlink in; disengage 2",
);

fn made(size_bytes: usize, journal_uuid: Option<[u8; 16]>) -> Vec<u8> {
    let device = MemoryDevice::new(size_bytes);
    let journal = journal_uuid.map(|_| "has_journal");
    let features = ["^resize_inode"].into_iter().chain(journal);
    let mkfs = Mkfs {
        features: features.map(str::to_owned).collect(),
        block_size: Some(BLOCK as u32),
        inodes: Some(64),
        journal_uuid,
        device_is_zero: true,
        ..Mkfs::new([7; 16], [9; 16], 1_600_000_000)
    };
    usual().make(&mkfs, &device).expect("there is room");
    device.snapshot()
}

/// A file system with these files. With `is_sparse`, blocks of zeros in them are holes.
fn around(files: &[(&str, &[u8])], size_bytes: usize, is_sparse: bool) -> Vec<u8> {
    around_with(files, &[], size_bytes, is_sparse)
}

/// The same, with these directories.
fn around_with(
    files: &[(&str, &[u8])],
    directories: &[&str],
    size_bytes: usize,
    is_sparse: bool,
) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::from_bytes(made(size_bytes, None)));
    let options = MountOptions {
        mount_time: backstitch_vfs::Timestamp {
            seconds: 1_600_000_000,
            nanoseconds: 0,
        },
        ..MountOptions::default()
    };
    let engine = Engine::mount(device.clone(), usual().layout(), &options).unwrap();
    let new = NewInode {
        file_type: FileType::Regular,
        permissions: 0o644,
        umask: 0,
        uid: 0,
        gid: 0,
        device_number: 0,
        target: b"",
    };
    let directory = NewInode {
        file_type: FileType::Directory,
        ..new
    };
    for name in directories {
        let made = engine.create(engine.root(), name.as_bytes(), &directory);
        made.unwrap();
    }
    for (name, contents) in files {
        let inode = engine
            .create(engine.root(), name.as_bytes(), &new)
            .unwrap()
            .inode;
        for (i, block) in contents.chunks(BLOCK).enumerate() {
            if !(is_sparse && block.iter().all(|b| *b == 0)) {
                engine.write(inode, (i * BLOCK) as u64, block).unwrap();
            }
        }
        let set = SetAttributes {
            size_bytes: Some(contents.len() as u64),
            ..SetAttributes::default()
        };
        engine.set_attributes(inode, &set).unwrap();
    }
    engine.unmount().unwrap();
    device.snapshot()
}

/// File systems inside one another, `levels` deep.
fn nested(levels: u8, is_sparse: bool) -> Fork {
    let mut image = made(320 * BLOCK, None);
    for level in 0..levels {
        let size_bytes = (320 + 160 * (usize::from(level) + 1)) * BLOCK;
        image = around(&[("inner", &image)], size_bytes, is_sparse);
    }
    Fork::nested(image, BLOCK as u32, levels, false)
}

/// The paper's figure 8: a file system with its journal in another file beside it.
fn figure_8() -> Fork {
    let (inner, journal) = with_journal();
    let files: [(&str, &[u8]); 2] = [("inner", &inner), ("journal", &journal)];
    Fork::nested(around(&files, 1600 * BLOCK, false), BLOCK as u32, 1, true)
}

/// The same, with the inner file system mounted in the tree of the outer one.
fn figure_8_in_tree() -> Fork {
    let (inner, journal) = with_journal();
    let files: [(&str, &[u8]); 2] = [("inner", &inner), ("journal", &journal)];
    let image = around_with(&files, &["loop"], 1600 * BLOCK, false);
    Fork::nested_in_tree(image, BLOCK as u32, true)
}

/// A file system and its journal.
fn with_journal() -> (Vec<u8>, Vec<u8>) {
    let journal = MemoryDevice::new(1030 * BLOCK);
    let how = MkfsJournal {
        block_size: Some(BLOCK as u32),
        device_is_zero: true,
        ..MkfsJournal::new([11; 16], 1_600_000_000)
    };
    let uuid = usual().make_journal(&how, &journal).unwrap().uuid;
    let inner = made(320 * BLOCK, Some(uuid));
    usual().attach_journal(&journal, [7; 16]).unwrap();
    (inner, journal.snapshot())
}

/// A factor for how much is explored, for long runs.
fn effort() -> u64 {
    let said = std::env::var("BACKSTITCH_NESTED_EFFORT");
    said.map_or(1, |n| n.parse().expect("a number"))
}

fn explore(
    base: &Fork,
    script: (&str, &str),
    ordering: Ordering,
    observer: &dyn Observer,
) -> Results {
    explore_up_to(120, base, script, ordering, observer)
}

/// Explores with a bound on the states of each run.
fn explore_up_to(
    most: u64,
    base: &Fork,
    (name, script): (&str, &str),
    ordering: Ordering,
    observer: &dyn Observer,
) -> Results {
    let operations = parse_script(script).expect("a script of our own");
    let setup = match name {
        "compressor" => 3,
        "between" => 6,
        "in both" => 3,
        _ => 0,
    };
    let both = [Optimisations::NONE, Optimisations::BOTH];
    let campaign = Campaign {
        ordering,
        workloads: vec![Workload {
            name: name.to_owned(),
            setup,
            operations,
        }],
        variants: both
            .into_iter()
            .flat_map(|o| Schedule::ALL.map(|schedule| (o, schedule)))
            .collect(),
        image: ImageOptions::default(),
        base: Some(base.clone()),
        seed: 1,
        torn: false,
        drive: None,
        unit_bytes: None,
        exhaustive: 60 * effort() as usize,
        samples: 20 * effort() as usize,
        whole_every: 64,
        in_use_every: 64,
        most_states: u64::MAX,
        most_states_each: most * effort(),
        most_failures: 1,
        threads: 2,
    };
    let results = campaign.run(observer).expect("the engine gets through");
    assert!(results.refused.is_empty(), "{name}: {:?}", results.refused);
    results
}

fn assert_good(results: &Results, what: &str) {
    if let Some(failure) = results.failures.first() {
        panic!(
            "{what}: {}\nafter {:?}",
            failure.verdict(),
            failure.operations()
        );
    }
    println!(
        "{what}: {} states, {} different",
        results.states, results.distinct
    );
    assert!(results.states > 100, "{what}: {} states", results.states);
}

#[test]
fn soft_updates_hold_through_every_level() {
    for (levels, is_sparse) in [(1, false), (1, true), (2, false), (3, true)] {
        let base = nested(levels, is_sparse);
        for script in SCRIPTS {
            let results = explore(&base, script, Ordering::SOFT, &NoObserver);
            let what = format!("{} {levels} deep, holes: {is_sparse}", script.0);
            assert_good(&results, &what);
        }
    }
}

#[test]
fn a_journal_in_a_file_is_as_good_as_one_on_a_device() {
    let base = figure_8();
    for mode in [
        Ordering::JOURNAL_WRITEBACK,
        Ordering::JOURNAL_ORDERED,
        Ordering::JOURNAL_FULL,
    ] {
        let ordering = mode;
        let results = explore(&base, SCRIPTS[2], ordering, &NoObserver);
        assert_good(&results, &format!("{ordering}"));
    }
}

#[test]
fn patchgroups_hold_inside() {
    let results = explore(&nested(1, true), COMPRESSOR, Ordering::SOFT, &NoObserver);
    assert_good(&results, COMPRESSOR.0);
}

/// Dependencies from the outer file system to the inner one and back, twice: a name in either comes
/// after what was done in the other. Syncs of inner files end transactions.
const BETWEEN: (&str, &str) = (
    "between",
    "creat a; write a 0 3000; creat loop/a; write loop/a 0 3000; creat loop/z; sync; engage 1; creat b; append b 1500; disengage 1; \
     depend 2 1; engage 2; creat loop/b; append loop/b 700; disengage 2; fsync loop/z; append loop/z 10; fsync loop/z; depend 3 2; \
     engage 3; unlink a; write b 0 900; disengage 3; depend 4 3; engage 4; rename loop/b loop/a; write loop/a 100 300; disengage 4; \
     depend 5 4; depend 5 1; engage 5; rename b a; creat loop/c; disengage 5; depend 6 5; engage 6; \
     unlink loop/a; creat c; append c 1200; disengage 6",
);

/// Groups that change both file systems, each followed by a group that changes the inner one; all
/// in one transaction, unless the explorer ends it in between.
const IN_BOTH: (&str, &str) = (
    "in both",
    "creat a; creat loop/a; sync; engage 1; creat b; creat loop/b; disengage 1; depend 2 1; engage 2; creat loop/c; disengage 2; \
     engage 3; creat d; creat loop/d; disengage 3; depend 4 3; engage 4; unlink loop/a; disengage 4",
);

struct BrokenJournal(JournalRule);

impl Observer for BrokenJournal {
    fn thread_starts(&self) {
        watch::switch_off(Some((self.0.into(), Form::Whole)));
    }
}

#[test]
fn patchgroups_hold_between_file_systems_of_a_stack() {
    let orderings = [
        Ordering::JOURNAL_WRITEBACK,
        Ordering::JOURNAL_ORDERED,
        Ordering::JOURNAL_FULL,
    ];
    let base = figure_8_in_tree();
    for ordering in orderings {
        let mut runs = vec![(BETWEEN, JournalRule::CommitAfterOtherVolumes, 3_000)];
        if ordering == Ordering::JOURNAL_ORDERED {
            runs.push((IN_BOTH, JournalRule::PartsOfGroupsCount, 40_000));
        }
        for (script, rule, most) in runs {
            let what = format!("{}, {ordering}", script.0);
            let results = explore_up_to(300, &base, script, ordering, &NoObserver);
            assert_good(&results, &what);
            let broken = BrokenJournal(rule);
            let results = explore_up_to(most, &base, script, ordering, &broken);
            let found = results.failures.first().map(|f| f.verdict());
            let found = found.unwrap_or_else(|| panic!("{what}, {rule:?}: nothing was found"));
            assert!(found.contains("patchgroup"), "{what}: {found}");
        }
    }
}

#[test]
fn e2fsck_says_the_same_of_each_level() {
    let foreign = Foreign::new(6, 0).expect("a directory for images");
    let base = nested(2, true);
    let results = explore(&base, SCRIPTS[1], Ordering::SOFT, &foreign);
    assert_good(&results, "e2fsck");
    let checked = foreign.checked.load(std::sync::atomic::Ordering::Relaxed);
    assert!(
        checked >= 9 && checked.is_multiple_of(3),
        "{checked} images checked"
    );
}

/// Switches a rule off in every thread that explores.
struct Broken(Rule);

impl Observer for Broken {
    fn thread_starts(&self) {
        watch::switch_off(Some((self.0.into(), Form::Whole)));
    }
}

#[test]
fn without_the_order_of_the_inside_the_loss_is_found() {
    // As with a driver that passes blocks on and knows nothing of their order.
    let broken = Broken(Rule::UpperVolumesKeepOrder);
    for is_sparse in [false, true] {
        let base = nested(1, is_sparse);
        for script in SCRIPTS {
            let results = explore(&base, script, Ordering::SOFT, &broken);
            let name = script.0;
            assert!(!results.failures.is_empty(), "{name}: nothing was found");
        }
    }
}

#[test]
fn what_has_no_place_on_the_disk_yet_is_not_there() {
    let broken = Broken(Rule::ContentsCountOncePlaced);
    for script in SCRIPTS {
        let results = explore(&nested(1, true), script, Ordering::SOFT, &broken);
        let name = script.0;
        assert!(!results.failures.is_empty(), "{name}: nothing was found");
    }
}
