//! About a thousand operations, the same every time, and what they leave.

use std::collections::{BTreeMap, BTreeSet};

use backstitch_vfs::{Engine, Error, FileType, InodeNumber, RenameMode, SetAttributes};

use super::{new_inode, read_all};

/// How many operations a run has.
pub(crate) const OPERATIONS: usize = 1000;
/// How many directories and names in each there may be.
const DIRECTORIES: u64 = 5;
const NAMES: u64 = 9;

/// A file's contents, and what was promised about it.
#[derive(Clone, Debug, Default)]
struct File {
    contents: Vec<u8>,
    /// Whether it was fsynced, and not changed since.
    durable: bool,
    /// The names that it had since the fsync: the durable one, and where it was moved to.
    names: BTreeSet<(u64, u64)>,
}

/// What to do when an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnError {
    /// Accept it: nothing was changed.
    GoOn,
    /// Do the same once more, which must succeed.
    Repeat,
    /// Only `ENOSPC` is expected, and it leaves nothing half done.
    NoSpace,
}

/// A run of the workload.
#[derive(Clone)]
pub(crate) struct Workload {
    random: u64,
    on_error: OnError,
    directories: BTreeMap<u64, bool>,
    files: BTreeMap<(u64, u64), File>,
    /// The failures seen, by error number.
    pub(crate) failures: BTreeMap<i32, usize>,
}

impl Workload {
    pub(crate) fn new(on_error: OnError) -> Workload {
        Workload {
            random: 0x2545_f491_4f6c_dd1d,
            on_error,
            directories: BTreeMap::new(),
            files: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }

    /// A copy to go on with after an unmount: everything is durable.
    pub(crate) fn after_unmount(&self, on_error: OnError) -> Workload {
        let mut next = self.clone();
        next.on_error = on_error;
        for (place, file) in &mut next.files {
            file.durable = true;
            file.names = BTreeSet::from([*place]);
        }
        next
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % n
    }

    /// Does one thing; `None` where it failed.
    fn attempt<T>(&mut self, mut body: impl FnMut() -> backstitch_vfs::Result<T>) -> Option<T> {
        let error = match body() {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        assert!(!matches!(error, Error::Stuck { .. }), "{error}");
        *self.failures.entry(error.errno()).or_default() += 1;
        match self.on_error {
            OnError::GoOn => assert!([5, 30].contains(&error.errno()), "{error}"),
            OnError::NoSpace => assert_eq!(error.errno(), 28, "{error}"),
            OnError::Repeat => {
                assert_eq!(error.errno(), 5, "{error}");
                return Some(body().unwrap_or_else(|e| panic!("{error}, and again: {e}")));
            }
        }
        None
    }

    /// Does all operations.
    pub(crate) fn run(&mut self, engine: &Engine) {
        for _ in 0..OPERATIONS {
            self.step(engine);
        }
    }

    /// Does one operation.
    pub(crate) fn step(&mut self, engine: &Engine) {
        let place = (self.below(DIRECTORIES), self.below(NAMES));
        let what = self.below(100);
        let length = [40, 700, 3000, 20_000][self.below(4) as usize] as usize;
        let Some(directory) = self.directory(engine, place.0) else {
            return;
        };
        let name = name_of(place);
        if !self.files.contains_key(&place) {
            let new = new_inode(FileType::Regular);
            let made = self.attempt(|| engine.create(directory, name.as_bytes(), &new));
            if let Some(made) = made {
                engine.forget(made.inode, 1);
                self.files.insert(place, File::default());
                self.write(engine, place, made.inode, 0, length);
            }
            return;
        }
        let Some(inode) = self.attempt(|| engine.lookup(directory, name.as_bytes())) else {
            return;
        };
        let inode = inode.inode;
        let size = self.files[&place].contents.len();
        match what {
            0..20 => {
                let at = self.below(size as u64 + 1) as usize;
                self.write(engine, place, inode, at, length);
            }
            20..40 => self.write(engine, place, inode, size, length),
            40..50 => {
                let to = self.below(2 * size as u64 + 1000) as usize;
                self.truncate(engine, place, inode, to);
            }
            50..60 => self.rename(engine, place, directory),
            60..70 => {
                let gone = self.attempt(|| engine.unlink(directory, name.as_bytes()));
                if gone.is_some() {
                    self.files.remove(&place);
                }
            }
            70..80 => self.read(engine, place, inode),
            _ => self.fsync(engine, place, inode),
        }
        engine.forget(inode, 1);
    }

    /// The directory's inode, made where it is not there yet.
    fn directory(&mut self, engine: &Engine, number: u64) -> Option<InodeNumber> {
        let (root, name) = (engine.root(), format!("dir{number}"));
        let found = if self.directories.contains_key(&number) {
            self.attempt(|| engine.lookup(root, name.as_bytes()))?
        } else {
            let new = new_inode(FileType::Directory);
            let made = self.attempt(|| engine.create(root, name.as_bytes(), &new))?;
            self.directories.insert(number, false);
            if self.attempt(|| engine.fsync(made.inode, false)).is_some() {
                self.directories.insert(number, true);
            }
            made
        };
        engine.forget(found.inode, 1);
        Some(found.inode)
    }

    fn write(
        &mut self,
        engine: &Engine,
        place: (u64, u64),
        inode: InodeNumber,
        at: usize,
        length: usize,
    ) {
        let fill = self.below(255) as u8 + 1;
        let data: Vec<u8> = (0..length).map(|i| fill ^ (i / 97) as u8).collect();
        let mut done = 0;
        // A failure in the middle shows as a short write; the next call writes the rest.
        while done < length {
            let part = self.attempt(|| engine.write(inode, (at + done) as u64, &data[done..]));
            let Some(written) = part else {
                break;
            };
            assert!(written > 0);
            let file = self.files.entry(place).or_default();
            file.durable = false;
            let end = at + done + written;
            file.contents.resize(file.contents.len().max(end), 0);
            file.contents[at + done..end].copy_from_slice(&data[done..done + written]);
            done += written;
        }
    }

    fn truncate(
        &mut self,
        engine: &Engine,
        place: (u64, u64),
        inode: InodeNumber,
        size_bytes: usize,
    ) {
        let set = SetAttributes {
            size_bytes: Some(size_bytes as u64),
            ..SetAttributes::default()
        };
        if self
            .attempt(|| engine.set_attributes(inode, &set))
            .is_some()
        {
            let file = self.files.entry(place).or_default();
            file.contents.resize(size_bytes, 0);
            file.durable = false;
        }
    }

    fn rename(&mut self, engine: &Engine, place: (u64, u64), directory: InodeNumber) {
        let to = (self.below(DIRECTORIES), self.below(NAMES));
        let Some(target) = self.directory(engine, to.0) else {
            return;
        };
        let (from_name, to_name) = (name_of(place), name_of(to));
        let (from, onto) = (from_name.as_bytes(), to_name.as_bytes());
        let moved =
            self.attempt(|| engine.rename(directory, from, target, onto, RenameMode::Replace));
        if moved.is_some()
            && to != place
            && let Some(mut file) = self.files.remove(&place)
        {
            file.names.insert(to);
            self.files.insert(to, file);
        }
    }

    fn read(&mut self, engine: &Engine, place: (u64, u64), inode: InodeNumber) {
        if let Some(found) = self.attempt(|| read_all(engine, inode)) {
            assert!(found == self.files[&place].contents, "{place:?} differs");
        }
    }

    fn fsync(&mut self, engine: &Engine, place: (u64, u64), inode: InodeNumber) {
        if self.attempt(|| engine.fsync(inode, false)).is_some() {
            let file = self.files.entry(place).or_default();
            file.durable = true;
            file.names = BTreeSet::from([place]);
        }
    }

    /// Whether exactly what the operations left is there.
    pub(crate) fn expect_everything(&self, engine: &Engine) {
        for number in 0..DIRECTORIES {
            for name in 0..NAMES {
                let (place, found) = ((number, name), contents_at(engine, (number, name)));
                let expected = self.files.get(&place).map(|file| &file.contents);
                assert!(
                    found.as_ref() == expected,
                    "{}: {:?} bytes, not {:?}",
                    name_of(place),
                    found.map(|d| d.len()),
                    expected.map(Vec::len)
                );
            }
        }
    }

    /// Whether everything that was fsynced and not changed since is there, under one of the names
    /// that it had since.
    pub(crate) fn expect_promises(&self, engine: &Engine) {
        for (number, durable) in &self.directories {
            let found = engine.lookup(engine.root(), format!("dir{number}").as_bytes());
            assert!(!durable || found.is_ok(), "dir{number} is lost");
        }
        for file in self.files.values().filter(|file| file.durable) {
            let there = file
                .names
                .iter()
                .any(|place| contents_at(engine, *place).as_ref() == Some(&file.contents));
            assert!(there, "a file of {:?} is lost", file.names);
        }
    }

    /// How many files have a promise.
    pub(crate) fn promises(&self) -> usize {
        self.files.values().filter(|file| file.durable).count()
    }
}

/// A file's name.
fn name_of(place: (u64, u64)) -> String {
    format!("file {} of {}", place.1, place.0)
}

/// What a place holds; `None` where nothing is there.
fn contents_at(engine: &Engine, place: (u64, u64)) -> Option<Vec<u8>> {
    let directory = format!("dir{}", place.0);
    let directory = find(engine, engine.root(), &directory)?;
    let file = find(engine, directory, &name_of(place))?;
    // The one failure of a run may happen in this read.
    let data = read_all(engine, file)
        .or_else(|_| read_all(engine, file))
        .unwrap();
    engine.forget(file, 1);
    engine.forget(directory, 1);
    Some(data)
}

/// The inode of a name; `None` where there is no such name.
fn find(engine: &Engine, directory: InodeNumber, name: &str) -> Option<InodeNumber> {
    let mut result = engine.lookup(directory, name.as_bytes());
    if result.as_ref().is_err_and(|error| error.errno() == 5) {
        result = engine.lookup(directory, name.as_bytes());
    }
    match result {
        Ok(attributes) => Some(attributes.inode),
        Err(error) if error.errno() == 2 => None,
        Err(error) => panic!("{error}"),
    }
}

/// Removes everything but `lost+found`.
pub(crate) fn remove_everything(engine: &Engine, directory: InodeNumber) {
    let mut entries = Vec::new();
    engine
        .read_directory(directory, 0, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.file_type));
            true
        })
        .unwrap();
    for (name, file_type) in entries {
        if [&b"."[..], b"..", b"lost+found"].contains(&&name[..]) {
            continue;
        }
        if file_type == Some(FileType::Directory) {
            let inner = engine.lookup(directory, &name).unwrap().inode;
            remove_everything(engine, inner);
            engine.forget(inner, 1);
            engine.rmdir(directory, &name).unwrap();
        } else {
            engine.unlink(directory, &name).unwrap();
        }
    }
}
