//! Random workloads: operations on names that probably exist.

use backstitch_crash_core::operation::{Data, Operation, Path};
use backstitch_layout::{Allocate, flags};
use fastrand::Rng as Random;

const NAMES: [&str; 6] = ["foo", "bar", "baz", "D", "A", "x"];

/// Flags that files and directories are given. What they make the file system refuse, it refuses in
/// every state.
const FLAGS: [u32; 5] = [
    0,
    flags::NODUMP | flags::NOATIME,
    flags::SYNC | flags::DIRSYNC,
    flags::APPEND,
    flags::IMMUTABLE,
];

/// A file that only grows.
const LOG: &str = "log";

/// A path as text, with plain names.
fn text(path: &Path) -> String {
    let names: Vec<_> = path
        .names
        .iter()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    names.join("/")
}

/// The tree that a random workload has made so far, if its operations succeeded.
pub(super) struct Grown {
    directories: Vec<String>,
    files: Vec<String>,
}

impl Grown {
    pub(super) fn new() -> Grown {
        let own = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        Grown {
            directories: own(&["", "A", "B"]),
            files: own(&["foo", "A/foo", "B/bar"]),
        }
    }

    /// A tree with these directories and files.
    pub(super) fn over(directories: Vec<String>, files: Vec<String>) -> Grown {
        Grown { directories, files }
    }

    /// Changes the tree as an operation does if it succeeds.
    pub(super) fn follow(&mut self, operation: &Operation) {
        match operation {
            Operation::Create(path, _)
            | Operation::Symlink(_, path, _)
            | Operation::Link(_, path) => self.make(&text(path), false),
            Operation::Mkdir(path, _) => self.make(&text(path), true),
            Operation::Unlink(path) | Operation::Rmdir(path) => {
                let gone = text(path);
                self.files.retain(|known| *known != gone);
                self.directories.retain(|known| *known != gone);
            }
            Operation::Rename(from, to) => self.rename(&text(from), &text(to)),
            _ => {}
        }
        if self.directories.is_empty() {
            self.directories.push(String::new());
        }
    }

    /// Flushes a file.
    pub(super) fn flush(&self, random: &mut Random) -> Operation {
        let file = Path::plain(&self.file(random));
        match random.usize(..3) {
            0 => Operation::Fdatasync(file),
            _ => Operation::Fsync(file),
        }
    }

    pub(super) fn directory(&self, random: &mut Random) -> String {
        self.directories[random.usize(..self.directories.len())].clone()
    }

    pub(super) fn file(&self, random: &mut Random) -> String {
        match self.files.len() {
            0 => "foo".to_owned(),
            count => self.files[random.usize(..count)].clone(),
        }
    }

    /// Usually a name that does not exist.
    pub(super) fn new_name(&self, random: &mut Random) -> String {
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

    pub(super) fn operation(&mut self, random: &mut Random) -> Operation {
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

    /// Typical operations of a program that flushes what it does, unless it forgets to.
    pub(super) fn flushed(&mut self, random: &mut Random, operations: &mut Vec<Operation>) {
        let plain = Path::plain;
        let len = [100, 1024, 3000, 14_000][random.usize(..4)];
        let forgets = random.usize(..6) == 0;
        if random.usize(..3) == 0 {
            // Twelve blocks of 1024 bytes are mapped by the inode itself; the log is longer from
            // the start.
            if !self.files.iter().any(|known| known == LOG) {
                self.make(LOG, false);
                operations.push(Operation::Create(plain(LOG), None));
                operations.push(Operation::Append(plain(LOG), Data::Pattern(13_000)));
                operations.push(Operation::Fsync(plain(LOG)));
            }
            operations.push(Operation::Append(plain(LOG), Data::Pattern(len)));
            if !forgets {
                operations.push(Operation::Fdatasync(plain(LOG)));
            }
            return;
        }
        let path = self.new_name(random);
        self.make(&path, false);
        operations.push(Operation::Create(plain(&path), None));
        operations.push(Operation::Write(plain(&path), 0, Data::Pattern(len)));
        if !forgets {
            operations.push(Operation::Fsync(plain(&path)));
        }
        if random.usize(..2) == 0 {
            let to = self.file(random);
            self.rename(&path, &to);
            operations.push(Operation::Rename(plain(&path), plain(&to)));
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
            4 => match random.usize(..4) {
                0 => Operation::RemoveXattr(plain(file), b"user.a".to_vec()),
                1 => Operation::SetAcl(plain(&self.directory(random))),
                2 => {
                    let on = if random.bool() {
                        file.to_owned()
                    } else {
                        self.directory(random)
                    };
                    Operation::Chattr(plain(&on), FLAGS[random.usize(..FLAGS.len())])
                }
                _ => Operation::Work,
            },
            5 => Operation::Fsync(plain(file)),
            6 => Operation::Fsync(plain(&self.directory(random))),
            _ if random.usize(..3) == 0 => Operation::Sync,
            _ => Operation::Fdatasync(plain(file)),
        }
    }
}
