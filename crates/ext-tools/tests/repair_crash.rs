//! Repairs of what crashes leave, and crashes inside repairs.

use crate::crash;
use crate::crash::{Machine, scratch, seeds};
use crate::support::cutting::CuttingDevice;
use crate::support::random::{self, Random, VARIANTS, make_image, targets};
use crate::support::{e2fsck, environment, have};
use backstitch_device::MemoryDevice;
use backstitch_ext_tools::fsck::{self, Code, Kind, Report, SliceSource};
use backstitch_ext_tools::repair::{Mode, Options, Outcome, repair};
use backstitch_layout::{InodeNumber, Rename, RenameMode};
use backstitch_mechanisms::Ordering;
use backstitch_store::{Optimisations, drive};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn repaired(device: &CuttingDevice, mode: Mode) -> Outcome {
    let options = Options {
        mode,
        guess_geometry: false,
        now_seconds: 1_800_000_000,
        check: fsck::Options::default(),
    };
    repair(device, &options).unwrap()
}

fn report(bytes: &[u8]) -> Report {
    fsck::check_source(&SliceSource(bytes), &fsck::Options::default()).unwrap()
}

/// Preens what a crash left: clean for both checks, without anything in `lost+found`. Then the same
/// with a crash inside.
fn preen(state: &[u8], path: &Path, what: &str, random: &mut Random, depth: u32) {
    let device = CuttingDevice::new(state.to_vec());
    let outcome = repaired(&device, Mode::Preen);
    let found = outcome.before.as_ref().map(|report| &report.findings);
    assert!(outcome.after.is_some(), "{what}: not preened: {found:?}");
    let repairs: Vec<String> = outcome.repairs.iter().map(ToString::to_string).collect();
    assert!(
        repairs.iter().all(|repair| !repair.contains("lost+found")),
        "{what}: {repairs:?}"
    );
    let after = device.snapshot();
    std::fs::write(path, &after).unwrap();
    let (status, words) = e2fsck(path);
    assert_eq!(
        status,
        0,
        "{what}: {words}\nfound {found:?}\n{}",
        repairs.join("\n")
    );
    let ours = report(&after);
    assert!(
        ours.is_clean() && ours.notes.is_empty(),
        "{what}: {:?} {:?}",
        ours.findings,
        ours.notes
    );
    if depth == 0 {
        return;
    }
    if let Some(cut) = device.cut(random) {
        let what = format!("{what}, cut inside the preening");
        let left = report(&cut);
        let corrupt: Vec<_> = left
            .findings
            .iter()
            .filter(|finding| finding.kind == Kind::Corruption)
            .collect();
        assert!(corrupt.is_empty(), "{what}: {corrupt:?}");
        preen(&cut, path, &what, random, depth - 1);
    }
}

#[test]
fn preening_what_crashes_leave() {
    if !have("e2fsck", "e2fsprogs") {
        return;
    }
    let folder = scratch();
    let path = folder.path().join("state");
    let mut states = 0;
    for seed in seeds() {
        for block_size in [1024, 4096] {
            let mut random = crash::Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let mut pick = Random::new(seed);
            let mut machine = Machine::new(Ordering::SOFT, block_size, Optimisations::BOTH);
            for number in 0..400 {
                machine.operation(&mut random, number);
                if random.below(4) == 0 {
                    machine.background();
                }
                if random.below(4) > 0 {
                    continue;
                }
                machine.write_some(&mut random, &mut |state| {
                    if pick.below(8) == 0 {
                        states += 1;
                        let what = format!("seed {seed}, blocks of {block_size}, step {number}");
                        preen(state, &path, &what, &mut pick, 2);
                    }
                });
            }
        }
    }
    eprintln!("{states} states preened");
    assert!(states > 50);
}

#[test]
fn a_repair_that_was_cut_short_is_finished_by_the_next() {
    if !have("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = scratch();
    let path = folder.path().join("state");
    let good = make_image(folder.path(), VARIANTS[0]);
    let targets = targets(&good);
    let mut cuts = 0;
    for seed in 1..=environment("BACKSTITCH_ROUNDS", 100) {
        let mut random = Random::new(seed);
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(6) {
            random::damage(&mut bytes, &targets, &mut random);
        }
        let options = Options {
            mode: Mode::All,
            guess_geometry: false,
            now_seconds: 1_800_000_000,
            check: fsck::Options::default(),
        };
        let device = CuttingDevice::new(bytes);
        if !repair(&device, &options).is_ok_and(|outcome| outcome.is_clean()) {
            continue;
        }
        let Some(cut) = device.cut(&mut random) else {
            continue;
        };
        cuts += 1;
        let again = CuttingDevice::new(cut);
        let outcome = repaired(&again, Mode::All);
        let after = again.snapshot();
        std::fs::write(&path, &after).unwrap();
        let (status, words) = e2fsck(&path);
        assert!(
            status == 0 && outcome.is_clean(),
            "seed {seed}: {words}\n{:?}",
            outcome.repairs
        );
    }
    assert!(cuts > 0);
}

/// A rename of a directory over an empty one: the two parents, and the two names.
struct Replacement {
    machine: Machine,
    from: InodeNumber,
    to: InodeNumber,
    names: [String; 2],
}

/// Prepares one: into another directory, or within one directory but into another block, forwards
/// or backwards.
fn replacement(within: Option<bool>) -> Replacement {
    let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::NONE);
    let root = machine.fs.root();
    let from = machine.make_directory(root, "from");
    let mut to = from;
    let mut names = ["moved".to_owned(), "x".repeat(250)];
    machine.make_directory(from, &names[0]);
    match within {
        Some(is_back) => {
            for letter in ["a", "b", "c"] {
                machine.make(from, &letter.repeat(250));
            }
            machine.make_directory(from, &names[1]);
            if is_back {
                names.reverse();
            }
        }
        None => {
            to = machine.make_directory(root, "to");
            machine.make_directory(to, &names[1]);
        }
    }
    machine.drain();
    Replacement {
        machine,
        from,
        to,
        names,
    }
}

impl Replacement {
    /// Renames, puts the change with this number and what it depends on onto the disk, and cuts the
    /// power. `None` where there are fewer changes.
    fn cut_after(mut self, number: usize) -> Option<Vec<u8>> {
        let rename = Rename {
            from: self.from,
            from_name: self.names[0].as_bytes(),
            to: self.to,
            to_name: self.names[1].as_bytes(),
            mode: RenameMode::Replace,
        };
        let machine = &mut self.machine;
        machine
            .run(|fs, v, now| fs.rename(v, &rename, now))
            .unwrap();
        let mut changes = Vec::new();
        machine.store.uncommitted(&mut changes);
        let change = *changes.get(number)?;
        let (store, devices) = (&mut machine.store, &machine.devices);
        drive::sync(store, devices, &[change], Duration::ZERO).unwrap();
        Some(machine.memory.snapshot())
    }
}

#[test]
fn preening_keeps_the_name_that_was_another_ones() {
    for within in [None, Some(false), Some(true)] {
        let mut with_both = 0;
        for number in 0.. {
            let replacement = replacement(within);
            let (to, name) = (replacement.to, replacement.names[1].clone());
            let Some(state) = replacement.cut_after(number) else {
                break;
            };
            let found = report(&state).findings;
            with_both += usize::from(found.iter().any(|f| f.code == Code::DirectoryTwoNames));
            let device = CuttingDevice::new(state);
            let outcome = repaired(&device, Mode::Preen);
            assert!(outcome.after.is_some(), "{found:?}");
            let memory = Arc::new(MemoryDevice::from_bytes(device.snapshot()));
            let mut machine = Machine::open(memory, Ordering::SOFT, 1024, Optimisations::NONE);
            let named = machine.run(|fs, v, _| fs.lookup(v, to, name.as_bytes()));
            assert!(named.is_ok(), "within one: {within:?}, {number}: {named:?}");
        }
        assert!(with_both > 0, "within one: {within:?}");
    }
}

/// A new file's inode without its name, as a crash may leave it.
fn without_a_name() -> Vec<u8> {
    for number in 0.. {
        let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::BOTH);
        let root = machine.fs.root();
        machine.make(root, "kept");
        machine.drain();
        let file = machine.make(root, "new");
        machine.write_at(file, 0, b"contents").unwrap();
        let mut changes = Vec::new();
        machine.store.uncommitted(&mut changes);
        let change = changes[number];
        drive::sync(
            &mut machine.store,
            &machine.devices,
            &[change],
            Duration::ZERO,
        )
        .unwrap();
        let state = machine.memory.snapshot();
        let has_unnamed = |report: Report| {
            report
                .findings
                .iter()
                .any(|f| f.code == Code::UnconnectedInode)
        };
        if has_unnamed(report(&state)) {
            return state;
        }
    }
    unreachable!("some change is the inode's")
}

#[test]
fn what_has_no_name_is_cleared_unless_there_is_other_damage() {
    let names = |state: Vec<u8>| {
        let device = CuttingDevice::new(state);
        let outcome = repaired(&device, Mode::All);
        assert!(outcome.after.is_some_and(|after| after.is_clean()));
        let repairs = outcome.repairs.iter().map(ToString::to_string);
        repairs
            .filter(|repair| repair.contains("lost+found"))
            .count()
    };
    let state = without_a_name();
    assert_eq!(names(state.clone()), 0);
    // The same with a pointer of another file that leads out of the file system.
    let mut damaged = state;
    let word = |at: usize| u32::from_le_bytes(damaged[at..at + 4].try_into().unwrap()) as usize;
    let (table, inode_bytes) = (word(2048 + 8) * 1024, word(1024 + 88) & 0xffff);
    let pointer = table + 11 * inode_bytes + 40;
    damaged[pointer..pointer + 4].fill(0xff);
    assert_eq!(names(damaged), 1);
}
