//! What a crash leaves is reclaimed: afterwards a foreign checker finds nothing at all, every name
//! and all contents are there, and a crash inside the reclaim leaves what any crash may leave.

use backstitch_unixfs::Fault;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::crash::{Machine, Random, check, our_check, scratch, seeds, what_no_crash_leaves};
use backstitch_crash::unexpected_of_e2fsck as judge;
use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_ext_tools::fsck::{self, Kind, Options, SliceSource};
use backstitch_layout::{Error, FileType, InodeNumber, Piece, ReclaimStep, Structure};
use backstitch_mechanisms::Ordering;
use backstitch_rules::watch::{self, Form};
use backstitch_store::{Optimisations, drive};
use backstitch_unixfs::rules::Rule;

/// What can be reached: the names, and of each inode its type, its size and its contents.
#[derive(Debug, Default, PartialEq)]
struct Tree {
    names: BTreeSet<(InodeNumber, Vec<u8>, InodeNumber)>,
    inodes: BTreeMap<InodeNumber, (FileType, u64, Vec<u8>)>,
}

impl Tree {
    /// The names, as a machine remembers them.
    fn names_for_machine(&self) -> Vec<(InodeNumber, String, InodeNumber, bool)> {
        let is_directory = |inode| self.inodes[inode].0 == FileType::Directory;
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let names = self.names.iter();
        names
            .map(|(directory, name, inode)| (*directory, text(name), *inode, is_directory(inode)))
            .collect()
    }

    fn of(machine: &mut Machine) -> Tree {
        let mut tree = Tree::default();
        let mut open = vec![machine.fs.root()];
        while let Some(inode) = open.pop() {
            if tree.inodes.contains_key(&inode) {
                continue;
            }
            let attributes = machine
                .run(|fs, v, _| fs.attributes(v, inode))
                .unwrap_or_else(|e| panic!("inode {inode} has a name: {e}"));
            let (kind, mut size) = (attributes.file_type, attributes.size_bytes);
            let mut contents = Vec::new();
            match kind {
                FileType::Directory => {
                    size = 0;
                    let names = names_in(machine, inode);
                    open.extend(names.iter().map(|(_, child)| *child));
                    tree.names
                        .extend(names.into_iter().map(|(name, child)| (inode, name, child)));
                }
                FileType::Regular => contents = contents_of(machine, inode, size),
                FileType::Symlink => {
                    contents = machine.run(|fs, v, _| fs.read_link(v, inode)).unwrap();
                }
                _ => {}
            }
            tree.inodes.insert(inode, (kind, size, contents));
        }
        tree
    }

    /// Nothing may be missing but second names of directories.
    fn assert_kept(&self, after: &Tree, what: &str) {
        assert_eq!(self.inodes, after.inodes, "{what}");
        assert!(after.names.is_subset(&self.names), "{what}");
        for lost in self.names.difference(&after.names) {
            let others = after.names.iter().filter(|n| n.2 == lost.2).count();
            let is_directory = self.inodes[&lost.2].0 == FileType::Directory;
            assert!(is_directory && others == 1, "{what}: lost {lost:?}");
        }
    }
}

fn names_in(machine: &mut Machine, directory: InodeNumber) -> Vec<(Vec<u8>, InodeNumber)> {
    machine
        .run(|fs, v, _| {
            let mut names = Vec::new();
            fs.read_directory(v, directory, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push((entry.name.to_vec(), entry.inode));
                }
                true
            })?;
            Ok(names)
        })
        .unwrap()
}

fn contents_of(machine: &mut Machine, inode: InodeNumber, size: u64) -> Vec<u8> {
    let pieces = machine
        .run(|fs, v, _| {
            let (mut pieces, mut at) = (Vec::new(), 0);
            while at < size {
                let from = pieces.len();
                fs.map(v, inode, at, (size - at) as usize, &mut pieces)?;
                at += pieces[from..].iter().map(length).sum::<usize>() as u64;
            }
            Ok(pieces)
        })
        .unwrap();
    let mut contents = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Hole { len_bytes } => contents.resize(contents.len() + len_bytes, 0),
            Piece::Buffer {
                data,
                start,
                len_bytes,
            } => contents.extend_from_slice(&data[start..start + len_bytes]),
            Piece::Device {
                offset_bytes,
                len_bytes,
            } => {
                let mut bytes = vec![0; len_bytes];
                machine.memory.read(offset_bytes, &mut bytes).unwrap();
                contents.extend(bytes);
            }
        }
    }
    contents
}

fn length(piece: &Piece) -> usize {
    match piece {
        Piece::Hole { len_bytes }
        | Piece::Buffer { len_bytes, .. }
        | Piece::Device { len_bytes, .. } => *len_bytes,
    }
}

/// Of the states that a crash inside a reclaim leaves, one in this many is given to `e2fsck`, as it
/// is and once it is reclaimed itself. Our own check sees all of them.
const E2FSCK_EVERY: usize = 6;

/// A state that a crash left, and the words and files that a failure is reported with.
struct Trial<'a> {
    path: &'a Path,
    block_size: u32,
    what: String,
    /// How many levels of crashes inside the reclaim are still tried.
    depth: u32,
    /// The inodes that must be there.
    safe: RefCell<BTreeSet<InodeNumber>>,
    /// Whether other operations use the file system meanwhile.
    in_use: bool,
    /// What these operations did.
    done: RefCell<Vec<String>>,
}

impl Trial<'_> {
    /// Mounts the state, reclaims, unmounts, and checks.
    fn run(&self, state: &[u8], random: &mut Random) {
        let memory = Arc::new(MemoryDevice::from_bytes(state.to_vec()));
        let mut machine =
            Machine::open(memory, Ordering::SOFT, self.block_size, Optimisations::BOTH);
        assert_eq!(machine.fs.read_only_reason(), None, "{}", self.what);
        let before = Tree::of(&mut machine);
        for inode in self.safe.borrow().iter() {
            assert!(
                before.inodes.contains_key(inode),
                "{}: inode {inode} always had a name, and has none",
                self.what
            );
        }
        if self.in_use {
            machine.names = before.names_for_machine();
        } else {
            machine.drain();
        }
        let reclaimed = catch_unwind(AssertUnwindSafe(|| self.reclaim(&mut machine, random)));
        if let Err(panic) = reclaimed {
            eprintln!("meanwhile:\n{}", self.done.borrow().join("\n"));
            resume_unwind(panic);
        }
        assert!(!machine.fs.reclaim_progress().running);
        machine.fs.release_all();
        let kept = if self.in_use {
            Tree::of(&mut machine)
        } else {
            before
        };
        self.unmount(&mut machine);
        let after = machine.memory.snapshot();
        let meanwhile = || self.done.borrow().join("\n");
        // e2fsck checks every state of a first crash, and some of a second one.
        if self.depth > 0 || random.below(E2FSCK_EVERY) == 0 {
            let found = self.e2fsck(state, &after);
            assert_eq!(found, None, "{}\nmeanwhile:\n{}", self.what, meanwhile());
        }
        let ours = our_check(&after);
        assert!(ours.is_clean(), "{}: {:?}", self.what, ours.findings);
        let mut again = Machine::open(
            Arc::new(MemoryDevice::from_bytes(after)),
            Ordering::SOFT,
            self.block_size,
            Optimisations::BOTH,
        );
        kept.assert_kept(
            &Tree::of(&mut again),
            &format!("{}\n{}", self.what, meanwhile()),
        );
    }

    /// What e2fsck finds in a state after its reclaim; `None` where it is clean.
    fn e2fsck(&self, state: &[u8], after: &[u8]) -> Option<String> {
        std::fs::write(self.path, after).unwrap();
        let output = Command::new("e2fsck")
            .arg("-fn")
            .arg(self.path)
            .output()
            .unwrap();
        if output.status.code() == Some(0) {
            return None;
        }
        if std::env::var_os("BACKSTITCH_KEEP").is_some() {
            std::fs::write(self.path.with_extension("before"), state).unwrap();
            std::fs::write(self.path.with_extension("after"), after).unwrap();
        }
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn reclaim(&self, machine: &mut Machine, random: &mut Random) {
        let mut random_cut = Random(random.next() | 1);
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 100_000, "{}: the reclaim does not end", self.what);
            let step = match machine.run(|fs, v, now| fs.reclaim(v, now)) {
                Ok(step) => step,
                Err(error) => {
                    if std::env::var_os("BACKSTITCH_KEEP").is_some() {
                        let image = machine.memory.snapshot();
                        std::fs::write(self.path.with_extension("stopped"), image).unwrap();
                    }
                    panic!("{}: {error}", self.what)
                }
            };
            let progress = machine.fs.reclaim_progress();
            assert!((0.0..=1.0).contains(&progress.done_fraction));
            match step {
                ReclaimStep::Done => return,
                ReclaimStep::More if random.below(3) > 0 => {}
                ReclaimStep::More => {
                    self.write_some(machine, random, &mut random_cut);
                }
                ReclaimStep::Wait(_) | ReclaimStep::WaitForFrees
                    if self.in_use && random.below(4) > 0 =>
                {
                    self.write_some(machine, random, &mut random_cut);
                }
                ReclaimStep::Wait(_) | ReclaimStep::WaitForFrees => {
                    while self.write_some(machine, random, &mut random_cut) {}
                    machine.drain();
                }
            }
            if self.in_use && steps < 400 {
                self.use_it(machine, random, steps);
            }
        }
    }

    /// Writes some changes; except at the last level, the power may fail meanwhile.
    fn write_some(&self, machine: &mut Machine, random: &mut Random, cuts: &mut Random) -> bool {
        match self.depth {
            0 => machine.write_unseen(random),
            _ => machine.write_some(random, &mut |state| self.cut(state, cuts)),
        }
    }

    /// What other operations do between two steps of the reclaim.
    fn use_it(&self, machine: &mut Machine, random: &mut Random, number: usize) {
        match random.below(12) {
            0 => machine.background(),
            1 => {
                if let Some(inode) = machine.some_file(random) {
                    machine.fs.hold(inode);
                }
            }
            2 if random.below(8) == 0 => machine.fs.release_all(),
            3..=8 => {
                let done = machine.operation(random, 1_000_000 + number);
                self.done
                    .borrow_mut()
                    .push(format!("step {number}: {done}"));
                let still = named(machine);
                self.safe.borrow_mut().retain(|inode| still.contains(inode));
            }
            _ => {}
        }
    }

    /// Checks a state that a crash inside the reclaim left; some are then reclaimed themselves.
    fn cut(&self, state: &[u8], random: &mut Random) {
        let what = format!("{}, then a crash inside the reclaim", self.what);
        // e2fsck checks some of these states. Where one is reclaimed, `run` checks the result.
        let found = if random.below(E2FSCK_EVERY) == 0 {
            let (report, mut found) = check(state, self.path).unwrap();
            found.extend(judge(&report));
            found
        } else {
            what_no_crash_leaves(our_check(state))
        };
        if !found.is_empty() && std::env::var_os("BACKSTITCH_KEEP").is_some() {
            std::fs::write(self.path.with_extension("cut"), state).unwrap();
        }
        assert!(found.is_empty(), "{what}: {}", found.join("\n"));
        if random.below(4) == 0 {
            let inner = Trial {
                path: self.path,
                block_size: self.block_size,
                what,
                depth: self.depth - 1,
                safe: self.safe.clone(),
                in_use: self.in_use,
                done: RefCell::default(),
            };
            inner.run(state, random);
        }
    }

    fn unmount(&self, machine: &mut Machine) {
        machine.drain();
        machine.run(|fs, v, now| fs.write_counters(v, now)).unwrap();
        machine.drain();
        machine.run(|fs, v, now| fs.mark_clean(v, now)).unwrap();
        machine.drain();
    }
}

fn named(machine: &Machine) -> BTreeSet<InodeNumber> {
    machine.names.iter().map(|name| name.2).collect()
}

/// Runs a history, and reclaims what cuts of it leave. Returns how many.
fn explore(block_size: u32, seed: u64, operations: usize, in_use: bool) -> usize {
    let folder = scratch();
    let path = folder.path().join("image");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut random_trial = Random(seed | 0x1000);
    let mut machine = Machine::new(Ordering::SOFT, block_size, Optimisations::BOTH);
    let mut states = 0;
    // Inodes that were on the disk with a name at some time and never lost it since: no crash may
    // lose them.
    let mut safe = BTreeSet::new();
    let mut history = Vec::new();
    for number in 0..operations {
        if number % 40 == 0 {
            machine.drain();
            safe = named(&machine);
            history.clear();
        }
        let done = machine.operation(&mut random, number);
        history.push(format!("{number}: {done}"));
        let still = named(&machine);
        safe.retain(|inode| still.contains(inode));
        if random.below(4) == 0 {
            machine.background();
        }
        if random.below(8) == 0 {
            machine.write_some(&mut random, &mut |state| {
                states += 1;
                let trial = Trial {
                    path: &path,
                    block_size,
                    what: format!(
                        "seed {seed}, blocks of {block_size}, after\n{}\n",
                        history.join("\n")
                    ),
                    depth: 1,
                    safe: RefCell::new(safe.clone()),
                    in_use,
                    done: RefCell::default(),
                };
                trial.run(state, &mut random_trial);
            });
        }
    }
    states
}

fn explore_seeds(in_use: bool) {
    if Command::new("e2fsck").arg("-V").output().is_err() {
        eprintln!("SKIPPED: e2fsck is missing (Debian package e2fsprogs)");
        return;
    }
    let mut states = 0;
    for seed in seeds().step_by(3) {
        for block_size in [1024, 4096] {
            states += explore(block_size, seed, 400, in_use);
        }
    }
    eprintln!("{states} states");
    assert!(states > 0);
}

#[test]
fn after_the_reclaim_nothing_is_left_to_find() {
    explore_seeds(false);
}

#[test]
fn nothing_is_left_to_find_either_where_others_used_it_meanwhile() {
    explore_seeds(true);
}

/// Without these rules operations do not tell the reclaim what they change; that must be found.
#[test]
fn what_the_reclaim_is_not_told_is_found() {
    // The other rules are tested by the explorer's planted errors, and one by a history of its own.
    let untold = [Rule::ReclaimToldOfAttributes, Rule::DirectoriesWaitForNames];
    let mut missed = Vec::new();
    for rule in untold {
        let mut tries = (1..40).flat_map(|seed| [(1024, seed), (4096, seed)]);
        let found = tries.any(|(block_size, seed)| {
            watch::switch_off(Some((rule.into(), Form::Whole)));
            let explored = catch_unwind(|| explore(block_size, seed, 400, true));
            watch::switch_off(None);
            explored.is_err()
        });
        if !found {
            missed.push(rule);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_clean_image_needs_no_reclaim() {
    let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::BOTH);
    let step = machine.run(|fs, v, now| fs.reclaim(v, now)).unwrap();
    assert_eq!(step, ReclaimStep::Done);
    let progress = machine.fs.reclaim_progress();
    assert!(!progress.running && progress.done_fraction == 1.0);
}

#[test]
fn what_no_crash_can_leave_ends_the_reclaim() {
    let machine = Machine::new(Ordering::SOFT, 1024, Optimisations::BOTH);
    let mut image = machine.memory.snapshot();
    // The root directory's inode says that it has one link: too few, so other software has written
    // here.
    let table = u32::from_le_bytes(image[2048 + 8..2048 + 12].try_into().unwrap()) as usize;
    let inode_size = usize::from(u16::from_le_bytes([image[1024 + 88], image[1024 + 89]]));
    let links = table * 1024 + inode_size + 26;
    image[links..links + 2].copy_from_slice(&1u16.to_le_bytes());
    let memory = Arc::new(MemoryDevice::from_bytes(image));
    let mut machine = Machine::open(memory, Ordering::SOFT, 1024, Optimisations::BOTH);
    let error = loop {
        match machine.run(|fs, v, now| fs.reclaim(v, now)) {
            Ok(ReclaimStep::More) => {}
            Ok(ReclaimStep::Wait(_) | ReclaimStep::WaitForFrees) => machine.drain(),
            Ok(ReclaimStep::Done) => panic!("damage was passed over"),
            Err(error) => break error,
        }
    };
    let Error::Corrupt(corruption) = &error else {
        panic!("{error}");
    };
    assert_eq!(corruption.structure, Structure::inode(InodeNumber(2)));
    let fault = Fault::LinksTooLow { found: 1, links: 3 };
    assert_eq!(corruption.fault(), Some(&fault), "{error}");
    assert!(!machine.fs.reclaim_progress().running);
}

/// Puts the change with this number and what it depends on onto the disk, and nothing else. `None`
/// where there are fewer changes.
fn with_one_change(machine: &mut Machine, number: usize) -> Option<Vec<u8>> {
    let mut changes = Vec::new();
    machine.store.uncommitted(&mut changes);
    let change = *changes.get(number)?;
    drive::sync(
        &mut machine.store,
        &machine.devices,
        &[change],
        Duration::ZERO,
    )
    .unwrap();
    Some(machine.memory.snapshot())
}

/// A directory moves into another one that is not on the disk yet.
fn moved_out_of_reach() -> Machine {
    let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::NONE);
    let root = machine.fs.root();
    let old = machine.make_directory(root, "old");
    machine.make_directory(old, "moved");
    machine.drain();
    let new = machine.make_directory(root, "new");
    machine.move_to(old, "moved", new);
    machine
}

/// Removes a directory while `..` of one that a crash left without a name leads to it. Returns in
/// how many states that was tried.
fn remove_above_a_nameless_directory() -> usize {
    let mut tried = 0;
    for number in 0.. {
        let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::NONE);
        let root = machine.fs.root();
        let above = machine.make_directory(root, "above");
        machine.drain();
        machine.make_directory(above, "below");
        let Some(state) = with_one_change(&mut machine, number) else {
            return tried;
        };
        let memory = Arc::new(MemoryDevice::from_bytes(state));
        let mut machine = Machine::open(memory, Ordering::SOFT, 1024, Optimisations::NONE);
        let links = machine
            .run(|fs, v, _| fs.attributes(v, above))
            .unwrap()
            .links;
        if links == 2 || !names_in(&mut machine, above).is_empty() {
            continue;
        }
        tried += 1;
        machine
            .run(|fs, v, now| fs.remove_directory(v, root, b"above", now))
            .unwrap();
        machine.fs.release_all();
        machine.drain();
        let image = machine.memory.snapshot();
        let mut findings = fsck::check_source(&SliceSource(&image), &Options::default())
            .unwrap()
            .findings;
        findings.retain(|f| f.kind == Kind::Corruption);
        assert!(findings.is_empty(), "{number}: {findings:?}");
    }
    tried
}

#[test]
fn a_directory_that_a_nameless_one_leads_to_stays_until_that_is_gone() {
    assert!(remove_above_a_nameless_directory() > 0);
}

#[test]
fn a_directory_removed_while_a_nameless_one_leads_to_it_is_found() {
    let rule = Rule::ParentsWaitForReclaim;
    watch::switch_off(Some((rule.into(), Form::Whole)));
    let explored = catch_unwind(remove_above_a_nameless_directory);
    watch::switch_off(None);
    assert!(explored.is_err());
}

#[test]
fn a_name_that_dotdot_agrees_with_stays_until_dotdot_is_corrected() {
    let mut looked_at = 0;
    for number in 0.. {
        let Some(state) = with_one_change(&mut moved_out_of_reach(), number) else {
            break;
        };
        for cut in 0.. {
            let memory = Arc::new(MemoryDevice::from_bytes(state.clone()));
            let mut machine = Machine::open(memory, Ordering::SOFT, 1024, Optimisations::NONE);
            while machine.run(|fs, v, now| fs.reclaim(v, now)).unwrap() == ReclaimStep::More {}
            let Some(image) = with_one_change(&mut machine, cut) else {
                break;
            };
            let mut findings = fsck::check_source(&SliceSource(&image), &Options::default())
                .unwrap()
                .findings;
            findings.retain(|f| f.kind == Kind::Corruption);
            assert!(findings.is_empty(), "{number}, {cut}: {findings:?}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 0);
}
