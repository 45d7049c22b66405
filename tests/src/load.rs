//! A load of mostly metadata, during which the file system is killed; and what must be true
//! afterwards.
//!
//! Every file is written with words of eight bytes that belong to it: half a mark, half the file's
//! number. If a file shows a word after a crash that is neither zero nor its own, that was never
//! written to it. Some files are fsynced and then only renamed: they must be there under one of
//! their names, with all of their bytes.

use crate::random::Random;
use rustix::fs::{RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Result};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The upper half of every word in every file.
const MARK: u64 = 0x5717_c4ed << 32;
/// Directories in which each thread works, and names in each of them.
const DIRECTORIES: u64 = 6;
const NAMES: u64 = 30;

/// A file that was fsynced, and the names that it may have.
#[derive(Clone, Debug)]
pub struct Promise {
    names: Vec<PathBuf>,
    number: u64,
    inode: u64,
    len: u64,
}

/// The state that all threads share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Whether the file system is about to be killed, so that errors are expected.
    ending: AtomicBool,
    numbers: AtomicU64,
    operations: AtomicU64,
    promises: Mutex<Vec<Promise>>,
    unexpected: Mutex<Vec<String>>,
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// The results of a load.
#[derive(Debug)]
pub struct Done {
    /// How many operations were done or refused.
    pub operations: u64,
    /// Files that must have survived.
    pub promises: Vec<Promise>,
    /// Errors that have nothing to do with the kill.
    pub unexpected: Vec<String>,
}

/// Removes every `r*` beside a directory, which earlier loads have left.
///
/// # Errors
///
/// The file system's errors.
pub fn remove_all_but(kept: &Path) -> Result<()> {
    let parent = kept.parent().expect("a load has a place of its own");
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.path() != kept && entry.file_name().to_string_lossy().starts_with('r') {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

impl Load {
    /// Starts threads that work below `dir`, and one that removes everything else beside it.
    ///
    /// # Panics
    ///
    /// If the directories cannot be made.
    pub fn start(dir: &Path, seed: u64, threads: u64) -> Self {
        let shared = Arc::new(Shared::default());
        fs::create_dir(dir).expect("cannot make the load's directory");
        let mut handles = Vec::new();
        for number in 0..threads {
            let place = dir.join(format!("t{number}"));
            fs::create_dir_all(place.join("kept")).expect("cannot make a thread's directory");
            let random = Random::new(seed.wrapping_mul(1000).wrapping_add(number));
            let mut worker = Worker {
                place,
                random,
                open: Vec::new(),
                shared: shared.clone(),
            };
            handles.push(std::thread::spawn(move || worker.work()));
        }
        let kept = dir.to_owned();
        handles.push(std::thread::spawn(move || {
            // Ends with an error when the file system is killed.
            drop(remove_all_but(&kept))
        }));
        Self {
            shared,
            threads: handles,
        }
    }

    /// Must be called before the file system is killed. Errors are expected after that.
    pub fn expect_the_end(&self) {
        self.shared.ending.store(true, Ordering::SeqCst);
    }

    /// Stops the threads. If the file system is dead they have stopped by themselves.
    ///
    /// # Panics
    ///
    /// If a thread has panicked.
    pub fn finish(self) -> Done {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a thread of the load panicked");
        }
        let take = |list: &Mutex<Vec<String>>| std::mem::take(&mut *list.lock().expect("poisoned"));
        Done {
            operations: self.shared.operations.load(Ordering::Relaxed),
            promises: std::mem::take(&mut *self.shared.promises.lock().expect("poisoned")),
            unexpected: take(&self.shared.unexpected),
        }
    }
}

struct Worker {
    place: PathBuf,
    random: Random,
    open: Vec<(File, u64)>,
    shared: Arc<Shared>,
}

impl Worker {
    fn work(&mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.shared.operations.fetch_add(1, Ordering::Relaxed);
            let Err(error) = self.step() else { continue };
            match Errno::from_io_error(&error) {
                // Errors of which random operations get some.
                Some(
                    Errno::NOENT
                    | Errno::PERM
                    | Errno::EXIST
                    | Errno::NOTEMPTY
                    | Errno::NOTDIR
                    | Errno::ISDIR
                    | Errno::INVAL
                    | Errno::NOSPC
                    | Errno::MLINK
                    | Errno::NODATA
                    | Errno::LOOP,
                ) => {}
                // The file system has been killed.
                Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::INTR) => return,
                _ if self.shared.ending.load(Ordering::SeqCst) => return,
                _ => {
                    let text = format!("{}: {error}", self.place.display());
                    self.shared.unexpected.lock().expect("poisoned").push(text);
                    return;
                }
            }
        }
    }

    fn step(&mut self) -> Result<()> {
        match self.random.below(100) {
            0..25 => self.create(),
            25..33 => self.append(),
            33..48 => fs::remove_file(self.name()),
            48..55 => fs::create_dir_all(self.directory()),
            55..58 => fs::remove_dir(self.directory()),
            58..70 => fs::rename(self.name(), self.name()),
            70..74 => self.move_directory(),
            74..80 => fs::hard_link(self.name(), self.name()),
            80..83 => std::os::unix::fs::symlink("t".repeat(self.long()), self.name()),
            83..87 => self.set_attribute(),
            87..91 => self.shorten(),
            91..96 => self.keep(),
            _ => self.move_kept(),
        }
    }

    fn directory(&mut self) -> PathBuf {
        let mut path = self
            .place
            .join(format!("d{}", self.random.below(DIRECTORIES)));
        while self.random.one_in(3) {
            path.push(format!("d{}", self.random.below(DIRECTORIES)));
        }
        path
    }

    fn name(&mut self) -> PathBuf {
        let number = self.random.below(NAMES);
        // Long names, so that directories have several blocks.
        self.directory()
            .join(format!("f{number}-{}", "x".repeat(number as usize * 5)))
    }

    /// A file's size in bytes, always whole words.
    fn words(&mut self, largest_bytes: u64) -> u64 {
        self.random.file_size(largest_bytes) / 8 * 8
    }

    fn long(&mut self) -> usize {
        self.random.between(1, 200) as usize
    }

    fn create(&mut self) -> Result<()> {
        let path = self.name();
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        let number = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let largest = if self.random.one_in(20) {
            600_000
        } else {
            20_000
        };
        let len = self.words(largest);
        file.write_all_at(&own_bytes(number, len), 0)?;
        self.open.push((file, number));
        if self.open.len() > 8 {
            let closed = self.random.below(8) as usize;
            drop(self.open.swap_remove(closed));
        }
        Ok(())
    }

    /// Writes beyond the end of a file that may have been removed, sometimes leaving a hole.
    fn append(&mut self) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let which = self.random.below(self.open.len() as u64) as usize;
        let len = self.words(30_000);
        let hole = if self.random.one_in(4) {
            self.words(100_000)
        } else {
            0
        };
        let (file, number) = &self.open[which];
        let at = file.metadata()?.len() + hole;
        file.write_all_at(&own_bytes(*number, len), at)
    }

    fn shorten(&mut self) -> Result<()> {
        let file = File::options().write(true).open(self.name())?;
        let len = file.metadata()?.len();
        file.set_len(self.random.below(len + 1) / 8 * 8)
    }

    fn move_directory(&mut self) -> Result<()> {
        let (from, to) = (self.directory(), self.directory());
        let flags = RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(
            rustix::fs::CWD,
            from,
            rustix::fs::CWD,
            to,
            flags,
        )?)
    }

    fn set_attribute(&mut self) -> Result<()> {
        let path = self.name();
        // Few different values, so that attribute blocks are shared.
        let value = vec![self.random.below(3) as u8; 400];
        match rustix::fs::lsetxattr(path, "user.load", &value, XattrFlags::empty()) {
            // UFS keeps the attributes that it has, and takes no new ones.
            Err(Errno::NOTSUP) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Makes and fsyncs a file, which must survive from then on.
    fn keep(&mut self) -> Result<()> {
        let number = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let kept = self.place.join("kept");
        let place = if self.random.one_in(4) {
            kept.join(format!("new-{number}"))
        } else {
            kept
        };
        fs::create_dir_all(&place)?;
        let path = place.join(format!("k{number}"));
        let len = self.words(60_000);
        let file = File::options().write(true).create_new(true).open(&path)?;
        file.write_all_at(&own_bytes(number, len), 0)?;
        file.sync_all()?;
        let inode = file.metadata()?.ino();
        let promise = Promise {
            names: vec![path],
            number,
            inode,
            len,
        };
        self.shared.promises.lock().expect("poisoned").push(promise);
        Ok(())
    }

    /// Gives a kept file another name, sometimes through a link, sometimes in a new directory. It
    /// must keep one of its names.
    fn move_kept(&mut self) -> Result<()> {
        let number = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let place = self.place.join(format!("kept/moved-{}", number % 50));
        let target = place.join(format!("m{number}"));
        let source = {
            let mut promises = self.shared.promises.lock().expect("poisoned");
            let own = |promise: &&mut Promise| promise.names[0].starts_with(&self.place);
            let mut mine: Vec<&mut Promise> = promises.iter_mut().filter(own).collect();
            if mine.is_empty() {
                return Ok(());
            }
            let which = self.random.below(mine.len() as u64) as usize;
            let source = mine[which].names.last().cloned();
            // Noted before the rename, since the kill may come at any moment.
            mine[which].names.push(target.clone());
            source.unwrap_or_default()
        };
        fs::create_dir_all(&place)?;
        if self.random.one_in(3) {
            fs::hard_link(&source, &target)?;
            fs::remove_file(&source)
        } else {
            fs::rename(&source, &target)
        }
    }
}

/// The contents of the file with this number.
fn own_bytes(number: u64, len: u64) -> Vec<u8> {
    let word = (MARK | (number & 0xffff_ffff)).to_le_bytes();
    word.into_iter().cycle().take(len as usize).collect()
}

/// The promises that are broken after a crash, one line for each.
pub fn broken_promises(promises: &[Promise]) -> Vec<String> {
    promises.iter().filter_map(broken).collect()
}

fn broken(promise: &Promise) -> Option<String> {
    let Some(name) = promise.names.iter().find(|name| name.exists()) else {
        let names: Vec<String> = promise
            .names
            .iter()
            .map(|n| n.display().to_string())
            .collect();
        let names = names.join("\n  ");
        return Some(format!(
            "inode {} has none of its names:\n  {names}",
            promise.inode
        ));
    };
    match fs::read(name) {
        Ok(bytes) if bytes == own_bytes(promise.number, promise.len) => None,
        Ok(bytes) => Some(format!(
            "{} has not the {} bytes that were fsynced (it has {})",
            name.display(),
            promise.len,
            bytes.len()
        )),
        Err(error) => Some(format!("{}: {error}", name.display())),
    }
}

/// Files below `dir` that show bytes they were not given, and everything that cannot be read, one
/// line for each.
pub fn foreign_bytes(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return vec![format!("{}: {error}", dir.display())],
    };
    for entry in entries {
        let path = match &entry {
            Ok(entry) => entry.path(),
            Err(error) => {
                found.push(format!("{}: {error}", dir.display()));
                break;
            }
        };
        match path.symlink_metadata() {
            Ok(data) if data.is_dir() => found.extend(foreign_bytes(&path)),
            Ok(data) if data.is_file() => found.extend(foreign_bytes_of(&path)),
            Ok(_) => {}
            Err(error) => found.push(format!("{}: {error}", path.display())),
        }
    }
    found
}

fn foreign_bytes_of(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    if let Err(error) = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)) {
        return Some(format!("{}: {error}", path.display()));
    }
    if !bytes.len().is_multiple_of(8) {
        return Some(format!(
            "{}: {} bytes, not whole words",
            path.display(),
            bytes.len()
        ));
    }
    let mut own = None;
    for (number, word) in bytes.chunks(8).enumerate() {
        if word == [0; 8] {
            continue;
        }
        let marked = word[4..] == MARK.to_le_bytes()[4..];
        if !marked || *own.get_or_insert(word) != word {
            let at = number * 8;
            return Some(format!(
                "{}: foreign bytes {word:02x?} at {at}",
                path.display()
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(bytes: &[u8]) -> bool {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), bytes).unwrap();
        foreign_bytes(dir.path()).is_empty()
    }

    #[test]
    fn own_bytes_and_zeros_pass() {
        let own = own_bytes(7, 4096);
        assert!(verdict(&own));
        assert!(verdict(&[&own, &[0; 1000][..], &own].concat()));
        assert!(verdict(&[]));
        assert!(verdict(&[0; 5000]));
    }

    #[test]
    fn foreign_bytes_are_found() {
        assert!(!verdict(&[0xee; 4096]));
        assert!(!verdict(&[own_bytes(7, 4096), own_bytes(8, 4096)].concat()));
        assert!(!verdict(&[own_bytes(7, 4096), vec![0xee; 1]].concat()));
        assert!(!verdict(b"abc"));
    }

    #[test]
    fn broken_promises_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<PathBuf> = ["a", "b"].map(|name| dir.path().join(name)).to_vec();
        let promise = Promise {
            names: names.clone(),
            number: 3,
            inode: 12,
            len: 100,
        };
        assert_eq!(broken_promises(std::slice::from_ref(&promise)).len(), 1);
        fs::write(&names[1], own_bytes(3, 100)).unwrap();
        assert!(broken_promises(std::slice::from_ref(&promise)).is_empty());
        fs::write(&names[1], own_bytes(3, 99)).unwrap();
        assert_eq!(broken_promises(std::slice::from_ref(&promise)).len(), 1);
    }
}
