//! ACE's workloads: one or two operations on a fixed set of names, preceded by operations that make
//! what they need, each followed by a promise.

use std::collections::BTreeMap;

use backstitch_crash_core::operation::{Data, Operation, Path};
use backstitch_layout::{Allocate, FileType};

/// The workloads of `length` operations, 1 or 2, as ACE enumerates them.
pub(super) fn workloads(length: usize) -> Vec<Vec<Operation>> {
    let cores = cores();
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
    workloads
}
/// The flush that follows an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Promise {
    Nothing,
    Sync,
    /// Of a file or directory, which is made first if it does not exist.
    Fsync(&'static str),
    /// Of a file that was written through a mapping.
    Fdatasync(&'static str),
}

/// An operation of ACE, without those that make what it needs.
#[derive(Clone, Debug)]
enum Core {
    Create(&'static str),
    /// Makes a file of 32 KiB.
    Fill(&'static str),
    Mkdir(&'static str),
    /// Changes a file of 32 KiB.
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

fn cores() -> Vec<Core> {
    let mut cores = vec![Core::Mkdir("A"), Core::Mkdir("A/C")];
    for file in ["foo", "A/foo"] {
        cores.push(Core::Create(file));
        cores.push(Core::Fill(file));
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

/// The other file of the same directory, where ACE has one.
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
        Core::Create(path) | Core::Fill(path) | Core::Mkdir(path) | Core::Change(path, _) => {
            vec![path]
        }
        Core::Remove(path) | Core::SetXattr(path) | Core::RemoveXattr(path) => vec![path],
        Core::Link(from, to) | Core::Rename(from, to) | Core::RenameDirectory(from, to) => {
            vec![from, to]
        }
    };
    let mut found = vec![Promise::Nothing, Promise::Sync];
    if let Core::Change(path, Change::Write(..)) = core {
        found.push(Promise::Fdatasync(path));
    }
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

/// A workload under construction, with the names that exist by now.
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

    /// Adds an operation and those that make what it needs; `false` if it is impossible.
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
            Core::Fill(path) => {
                self.full_file(path);
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
                self.directory(parent(to));
                self.file(from);
                self.tree.insert(to, FileType::Regular);
                Operation::Link(plain(from), plain(to))
            }
            Core::Rename(from, to) => {
                self.directory(parent(to));
                self.file(from);
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

    /// Directories are moved only if they are empty, since ACE's names for their contents would
    /// change.
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
            Promise::Fdatasync(path) => {
                self.operations
                    .push(Operation::Fdatasync(Path::plain(path)));
            }
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
