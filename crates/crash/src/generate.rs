//! Workloads of our own: ACE's (the same operations, files and promises, for one and two operations), sequences over a small tree that
//! is on stable storage already, and random ones.

use std::collections::BTreeMap;

use backstitch_layout::{Allocate, FileType};

use crate::ace::Workload;
use crate::operation::{Data, Operation, Path};
use fastrand::Rng as Random;

/// The workloads of `length` operations, 1 or 2, as ACE enumerates them.
pub fn ace(length: usize) -> Vec<Workload> {
    let cores = ace_cores();
    let mut workloads = Vec::new();
    for first in &cores {
        for promise in promises(first) {
            let mut builder = Builder::default();
            if !builder.core(first) {
                continue;
            }
            if length < 2 {
                if promise != Promise::Nothing {
                    workloads.push(builder.ending(&promise));
                }
                continue;
            }
            builder.promise(&promise);
            for second in &cores {
                for promise in promises(second) {
                    let mut builder = builder.clone();
                    if promise != Promise::Nothing && builder.core(second) {
                        workloads.push(builder.ending(&promise));
                    }
                }
            }
        }
    }
    name(workloads, "ace", length, 0)
}

/// Sequences of `length` operations, 1 or 2, each followed by fsync, fdatasync, sync or nothing, over a small tree on stable storage.
pub fn sequences(length: usize) -> Vec<Workload> {
    let cores = tree_cores();
    let tree = tree();
    let mut workloads = Vec::new();
    for first in &cores {
        for promise in every_promise(first) {
            let mut operations = tree.clone();
            operations.push(first.clone());
            operations.extend(promise);
            if length < 2 {
                workloads.push(operations);
                continue;
            }
            for second in &cores {
                for promise in every_promise(second) {
                    let mut operations = operations.clone();
                    operations.push(second.clone());
                    operations.extend(promise);
                    workloads.push(operations);
                }
            }
        }
    }
    name(workloads, "seq", length, tree.len())
}

/// `count` random workloads.
pub fn random(count: usize, seed: u64) -> Vec<Workload> {
    let workloads = (0..count as u64).map(|number| {
        let mut random = Random::with_seed(seed.wrapping_mul(0x1_0000_0001).wrapping_add(number));
        let mut operations = tree();
        let mut grown = Grown::new();
        for _ in 0..6 + random.usize(..10) {
            operations.push(grown.operation(&mut random));
        }
        operations
    });
    name(workloads.collect(), "random", seed as usize, tree().len())
}

/// Puts workloads into an order that depends on the seed only, so that the first ones are of every sort.
pub fn shuffle(workloads: &mut [Workload], seed: u64) {
    let mut random = Random::with_seed(seed);
    for at in (1..workloads.len()).rev() {
        workloads.swap(at, random.usize(..at + 1));
    }
}

fn name(workloads: Vec<Vec<Operation>>, kind: &str, of: usize, setup: usize) -> Vec<Workload> {
    let named = |(number, operations)| Workload {
        name: format!("{kind}:{of}/{}", number + 1),
        operations,
        setup,
    };
    workloads.into_iter().enumerate().map(named).collect()
}

/// What follows an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Promise {
    Nothing,
    Sync,
    /// Of a file or directory, which is made where it is not there.
    Fsync(&'static str),
}

/// An operation of ACE, without what must be there for it.
#[derive(Clone, Debug)]
enum Core {
    Create(&'static str),
    Mkdir(&'static str),
    /// The file has 32 KiB already.
    Change(&'static str, Change),
    Link(&'static str, &'static str),
    Rename(&'static str, &'static str),
    RenameDirectory(&'static str, &'static str),
    Remove(&'static str),
    SetXattr(&'static str),
    RemoveXattr(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Write(u64, usize),
    Truncate(u64),
    Allocate(Allocate, u64, u64),
}

const PAIRS: [(&str, &str); 12] = [
    ("foo", "bar"),
    ("foo", "A/bar"),
    ("foo", "A/C/bar"),
    ("bar", "A/bar"),
    ("bar", "A/C/bar"),
    ("A/foo", "bar"),
    ("A/foo", "A/bar"),
    ("A/foo", "A/C/bar"),
    ("A/bar", "bar"),
    ("A/bar", "A/C/bar"),
    ("A/C/bar", "bar"),
    ("A/C/bar", "A/bar"),
];

const RANGES: [(u64, u64); 3] = [(32768, 32768), (0, 5000), (30768, 5000)];

fn ace_cores() -> Vec<Core> {
    let mut cores = vec![Core::Mkdir("A"), Core::Mkdir("A/C")];
    for file in ["foo", "A/foo"] {
        cores.push(Core::Create(file));
        let allocations = [
            Allocate::ZeroRange { keep_size: false },
            Allocate::ZeroRange { keep_size: true },
            Allocate::PunchHole,
            Allocate::Reserve { keep_size: true },
            Allocate::Reserve { keep_size: false },
        ];
        for how in allocations {
            for (at, len) in RANGES {
                cores.push(Core::Change(file, Change::Allocate(how, at, len)));
            }
        }
        for (at, len) in [
            (32768, 32768),
            (0, 5000),
            (30768, 5000),
            (0, 8192),
            (0, 32768),
        ] {
            cores.push(Core::Change(file, Change::Write(at, len)));
        }
        cores.push(Core::Change(file, Change::Truncate(0)));
        cores.push(Core::Change(file, Change::Truncate(2500)));
        cores.push(Core::SetXattr(file));
        cores.push(Core::RemoveXattr(file));
    }
    for (from, to) in PAIRS {
        cores.push(Core::Link(from, to));
        cores.push(Core::Rename(from, to));
    }
    for (from, to) in [("A", "B"), ("B", "A/C"), ("A/C", "B")] {
        cores.push(Core::RenameDirectory(from, to));
    }
    for file in ["foo", "bar", "A/foo", "A/bar", "A/C/bar"] {
        cores.push(Core::Remove(file));
    }
    cores
}

/// The file beside one, where ACE has one.
fn sibling(path: &str) -> Option<&'static str> {
    Some(match path {
        "foo" => "bar",
        "bar" => "foo",
        "A/foo" => "A/bar",
        "A/bar" => "A/foo",
        "A" => "B",
        _ => return None,
    })
}

fn parent(path: &str) -> &'static str {
    match path {
        "A/C/bar" => "A/C",
        "A/foo" | "A/bar" | "A/C" => "A",
        _ => "",
    }
}

fn promises(core: &Core) -> Vec<Promise> {
    let paths: Vec<&'static str> = match core {
        Core::Create(path) | Core::Mkdir(path) | Core::Change(path, _) | Core::Remove(path) => {
            vec![path]
        }
        Core::SetXattr(path) | Core::RemoveXattr(path) => vec![path],
        Core::Link(from, to) | Core::Rename(from, to) | Core::RenameDirectory(from, to) => {
            vec![from, to]
        }
    };
    let mut found = vec![Promise::Nothing, Promise::Sync];
    for path in paths {
        let near = [Some(path), sibling(path), Some(parent(path))];
        for near in near.into_iter().flatten() {
            let promise = Promise::Fsync(near);
            if !found.contains(&promise) {
                found.push(promise);
            }
        }
    }
    found
}

/// A workload in the making, with what exists by now.
#[derive(Clone, Debug, Default)]
struct Builder {
    operations: Vec<Operation>,
    tree: BTreeMap<&'static str, FileType>,
}

impl Builder {
    fn directory(&mut self, path: &'static str) {
        if path.is_empty() || self.tree.contains_key(path) {
            return;
        }
        self.directory(parent(path));
        self.tree.insert(path, FileType::Directory);
        self.operations
            .push(Operation::Mkdir(Path::plain(path), None));
    }

    fn file(&mut self, path: &'static str) {
        if self.tree.contains_key(path) {
            return;
        }
        self.directory(parent(path));
        self.tree.insert(path, FileType::Regular);
        self.operations
            .push(Operation::Create(Path::plain(path), None));
    }

    fn full_file(&mut self, path: &'static str) {
        self.file(path);
        let data = Data::Pattern(32768);
        self.operations
            .push(Operation::Write(Path::plain(path), 0, data));
    }

    /// Adds an operation with what must be there for it; `false` where it cannot be.
    fn core(&mut self, core: &Core) -> bool {
        let plain = Path::plain;
        let operation = match core {
            Core::Create(path) => {
                if self.tree.contains_key(path) {
                    return false;
                }
                self.file(path);
                return true;
            }
            Core::Mkdir(path) => {
                if self.tree.contains_key(path) {
                    return false;
                }
                self.directory(path);
                return true;
            }
            Core::Change(path, change) => {
                self.full_file(path);
                let place = plain(path);
                match *change {
                    Change::Write(at, len) => Operation::Write(place, at, Data::Pattern(len)),
                    Change::Truncate(size) => Operation::Truncate(place, size),
                    Change::Allocate(how, at, len) => Operation::Allocate(place, how, at, len),
                }
            }
            Core::Link(from, to) => {
                if self.tree.contains_key(to) {
                    return false;
                }
                self.file(from);
                self.directory(parent(to));
                self.tree.insert(to, FileType::Regular);
                Operation::Link(plain(from), plain(to))
            }
            Core::Rename(from, to) => {
                self.file(from);
                self.directory(parent(to));
                self.tree.remove(from);
                self.tree.insert(to, FileType::Regular);
                Operation::Rename(plain(from), plain(to))
            }
            Core::RenameDirectory(from, to) => return self.rename_directory(from, to),
            Core::Remove(path) => {
                self.file(path);
                self.tree.remove(path);
                Operation::Unlink(plain(path))
            }
            Core::SetXattr(path) => {
                self.file(path);
                set_xattr(path)
            }
            Core::RemoveXattr(path) => {
                self.file(path);
                self.operations.push(set_xattr(path));
                Operation::RemoveXattr(plain(path), b"user.xattr1".to_vec())
            }
        };
        self.operations.push(operation);
        true
    }

    /// Directories move only while ACE's names for what is in them stay known: empty.
    fn rename_directory(&mut self, from: &'static str, to: &'static str) -> bool {
        let inside = |path: &&&str| path.len() > from.len() && path.starts_with(from);
        if self.tree.contains_key(to) || self.tree.keys().filter(inside).count() > 0 {
            return false;
        }
        self.directory(parent(to));
        self.directory(from);
        self.tree.remove(from);
        self.tree.insert(to, FileType::Directory);
        let operation = Operation::Rename(Path::plain(from), Path::plain(to));
        self.operations.push(operation);
        true
    }

    fn promise(&mut self, promise: &Promise) {
        match promise {
            Promise::Nothing => {}
            Promise::Sync => self.operations.push(Operation::Sync),
            Promise::Fsync(path) => {
                match *path {
                    "" | "A" | "B" | "A/C" => self.directory(path),
                    path => self.file(path),
                }
                self.operations.push(Operation::Fsync(Path::plain(path)));
            }
        }
    }

    fn ending(mut self, promise: &Promise) -> Vec<Operation> {
        self.promise(promise);
        self.operations
    }
}

fn set_xattr(path: &str) -> Operation {
    let (name, value) = (b"user.xattr1".to_vec(), b"val1 ".to_vec());
    Operation::SetXattr(Path::plain(path), name, value)
}

/// Two directories, one in the other's neighbourhood, and files of some blocks.
fn tree() -> Vec<Operation> {
    let plain = Path::plain;
    vec![
        Operation::Mkdir(plain("A"), None),
        Operation::Mkdir(plain("B"), None),
        Operation::Create(plain("foo"), None),
        Operation::Write(plain("foo"), 0, Data::Pattern(6000)),
        Operation::Create(plain("A/foo"), None),
        Operation::Write(plain("A/foo"), 0, Data::Pattern(14_000)),
        Operation::Create(plain("B/bar"), None),
        Operation::Sync,
    ]
}

fn tree_cores() -> Vec<Operation> {
    let plain = Path::plain;
    let xattr = b"user.a".to_vec();
    let mut cores = vec![
        Operation::Create(plain("bar"), None),
        Operation::Create(plain("A/bar"), None),
        Operation::Mkdir(plain("C"), None),
        Operation::Mkdir(plain("A/D"), None),
        Operation::Symlink(b"target".to_vec(), plain("A/s"), None),
        Operation::Symlink(vec![b't'; 90], plain("s"), None),
        Operation::Unlink(plain("foo")),
        Operation::Unlink(plain("A/foo")),
        Operation::Unlink(plain("B/bar")),
        Operation::Rmdir(plain("B")),
        Operation::Rename(plain("foo"), plain("A/foo")),
        Operation::Rename(plain("A/foo"), plain("B/bar")),
        Operation::Rename(plain("foo"), plain("new")),
        Operation::Rename(plain("foo"), plain("B/new")),
        Operation::Rename(plain("A"), plain("E")),
        Operation::Rename(plain("A"), plain("B/A")),
        Operation::Rename(plain("B"), plain("A/B")),
        Operation::Link(plain("foo"), plain("A/l")),
        Operation::Link(plain("A/foo"), plain("l")),
    ];
    for file in ["foo", "A/foo"] {
        let path = || plain(file);
        let reserve = Allocate::Reserve { keep_size: false };
        cores.extend([
            Operation::Write(path(), 0, Data::Pattern(3000)),
            Operation::Write(path(), 20_000, Data::Pattern(2000)),
            Operation::Append(path(), Data::Pattern(700)),
            Operation::Append(path(), Data::Pattern(9000)),
            Operation::Allocate(path(), reserve, 5000, 10_000),
            Operation::Allocate(path(), Allocate::PunchHole, 1024, 3000),
            Operation::Truncate(path(), 0),
            Operation::Truncate(path(), 1500),
            Operation::Truncate(path(), 40_000),
            Operation::SetXattr(path(), xattr.clone(), b"one".to_vec()),
            Operation::RemoveXattr(path(), xattr.clone()),
        ]);
    }
    cores
}

/// What an operation is about, for what follows it.
fn subject(operation: &Operation) -> Path {
    match operation {
        Operation::Create(path, _)
        | Operation::Mkdir(path, _)
        | Operation::Symlink(_, path, _)
        | Operation::Write(path, ..)
        | Operation::Append(path, _)
        | Operation::Truncate(path, _)
        | Operation::Allocate(path, ..)
        | Operation::SetXattr(path, ..)
        | Operation::RemoveXattr(path, _)
        | Operation::Link(_, path)
        | Operation::Rename(_, path) => path.clone(),
        Operation::Unlink(path) | Operation::Rmdir(path) => {
            let mut directory = path.clone();
            directory.names.pop();
            directory
        }
        _ => Path::default(),
    }
}

fn every_promise(operation: &Operation) -> [Option<Operation>; 4] {
    let subject = subject(operation);
    [
        None,
        Some(Operation::Sync),
        Some(Operation::Fsync(subject.clone())),
        Some(Operation::Fdatasync(subject)),
    ]
}

const NAMES: [&str; 6] = ["foo", "bar", "baz", "D", "A", "x"];

/// What a random workload has made so far, as far as it went well.
struct Grown {
    directories: Vec<String>,
    files: Vec<String>,
}

impl Grown {
    fn new() -> Grown {
        let own = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        Grown {
            directories: own(&["", "A", "B"]),
            files: own(&["foo", "A/foo", "B/bar"]),
        }
    }

    fn directory(&self, random: &mut Random) -> String {
        self.directories[random.usize(..self.directories.len())].clone()
    }

    fn file(&self, random: &mut Random) -> String {
        match self.files.len() {
            0 => "foo".to_owned(),
            count => self.files[random.usize(..count)].clone(),
        }
    }

    /// Mostly a name that is free.
    fn new_name(&self, random: &mut Random) -> String {
        let directory = self.directory(random);
        let name = NAMES[random.usize(..NAMES.len())];
        format!("{directory}/{name}")
            .trim_start_matches('/')
            .to_owned()
    }

    fn make(&mut self, path: &str, directory: bool) {
        let all = self.directories.iter().chain(&self.files);
        if !all.clone().any(|known| known == path) {
            let list = if directory {
                &mut self.directories
            } else {
                &mut self.files
            };
            list.push(path.to_owned());
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.files.retain(|file| file != to);
        let inside = format!("{from}/");
        for path in self.files.iter_mut().chain(&mut self.directories) {
            if path == from {
                *path = to.to_owned();
            } else if let Some(rest) = path.strip_prefix(&inside) {
                *path = format!("{to}/{rest}");
            }
        }
    }

    fn operation(&mut self, random: &mut Random) -> Operation {
        let plain = Path::plain;
        let at = [0, 0, 1024, 5000, 11_000, 13_000, 300_000][random.usize(..7)];
        let len = [1, 100, 1024, 3000, 9000, 20_000][random.usize(..6)];
        let file = self.file(random);
        match random.usize(..24) {
            0..=2 => {
                let path = self.new_name(random);
                self.make(&path, false);
                Operation::Create(plain(&path), None)
            }
            3 | 4 => {
                let path = self.new_name(random);
                self.make(&path, true);
                Operation::Mkdir(plain(&path), None)
            }
            5 => {
                let path = self.new_name(random);
                self.make(&path, false);
                Operation::Symlink(vec![b'x'; len % 90 + 1], plain(&path), None)
            }
            6..=8 => Operation::Write(plain(&file), at, Data::Pattern(len)),
            9 | 10 => Operation::Append(plain(&file), Data::Pattern(len)),
            11 | 12 => Operation::Truncate(plain(&file), at),
            13 => Operation::Allocate(plain(&file), Allocate::PunchHole, at, len as u64),
            14 => {
                let keep_size = random.usize(..2) == 0;
                let how = Allocate::Reserve { keep_size };
                Operation::Allocate(plain(&file), how, at, len as u64)
            }
            15 => {
                let path = self.new_name(random);
                self.make(&path, false);
                Operation::Link(plain(&file), plain(&path))
            }
            16 | 17 => {
                self.files.retain(|known| *known != file);
                Operation::Unlink(plain(&file))
            }
            18 => Operation::Rmdir(plain(&self.directory(random))),
            _ => self.further_operation(random, &file),
        }
    }

    fn further_operation(&mut self, random: &mut Random, file: &str) -> Operation {
        let plain = Path::plain;
        match random.usize(..8) {
            0 | 1 => {
                let to = self.new_name(random);
                self.rename(file, &to);
                Operation::Rename(plain(file), plain(&to))
            }
            2 => {
                let (from, to) = (self.directory(random), self.new_name(random));
                if !from.is_empty() && !to.starts_with(&from) {
                    self.rename(&from, &to);
                }
                Operation::Rename(plain(&from), plain(&to))
            }
            3 => {
                let value = vec![b'v'; 1 + random.usize(..3) * 150];
                Operation::SetXattr(plain(file), b"user.a".to_vec(), value)
            }
            4 => match random.usize(..3) {
                0 => Operation::RemoveXattr(plain(file), b"user.a".to_vec()),
                1 => Operation::SetAcl(plain(&self.directory(random))),
                _ => Operation::Work,
            },
            5 => Operation::Fsync(plain(file)),
            6 => Operation::Fsync(plain(&self.directory(random))),
            _ if random.usize(..3) == 0 => Operation::Sync,
            _ => Operation::Fdatasync(plain(file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_of_workloads() {
        assert!(ace(1).len() >= 416, "{}", ace(1).len());
        assert!(ace(2).len() > 100_000, "{}", ace(2).len());
        assert_eq!(sequences(1).len(), 41 * 4);
        assert_eq!(sequences(2).len(), 41 * 4 * 41 * 4);
    }

    #[test]
    fn workloads_are_different_and_repeatable() {
        let first = ace(1);
        let scripts: BTreeSet<String> = first
            .iter()
            .map(|w| crate::operation::script(&w.operations))
            .collect();
        assert_eq!(scripts.len(), first.len());
        assert_eq!(random(20, 7), random(20, 7));
        assert_ne!(random(20, 7)[3].operations, random(20, 8)[3].operations);
        let (mut one, mut other) = (ace(1), ace(1));
        shuffle(&mut one, 3);
        shuffle(&mut other, 3);
        assert_eq!(one, other);
        assert_ne!(one, first);
    }
}
