//! What the tests of crashes share: a machine that does random operations and can be cut at any
//! write, and the checks of what is left.

#![allow(dead_code)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_ext::Ext2;
use backstitch_ext_tools::fsck::{self, Finding, Kind, Options, SliceSource};
use backstitch_ext_tools::mkfs;
use backstitch_layout::{
    Awaited, Error, FileSystem, FileType, InodeNumber, LayoutKind as _, NewInode, OpenRequest,
    ReclaimProgress, ReclaimStep, Rename, RenameMode, Result, SetAttributes, SetXattrMode, Step,
    Stop, Timestamp,
};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::{Mechanism, Operation, Place, Volume, VolumeId};
use backstitch_store::{Goal, Limits, Optimisations, Store, drive};

/// A change of names.
const NAMES: Operation<'static> = Operation::Remove {
    at: Place {
        directory: 2,
        name: b"name",
    },
    is_directory: false,
};

/// Marsaglia's xorshift: repeatable from its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// The size of an image in bytes: enough for some hundred operations, and quick to copy for each
/// state.
const IMAGE_BYTES: usize = 2 << 20;

/// The folder for images, in memory where possible: a file system on a disk may wait for the last
/// image to be written before it takes the next.
pub(crate) fn images() -> PathBuf {
    let in_memory = PathBuf::from("/dev/shm");
    match in_memory.is_dir() {
        true => in_memory,
        false => std::env::temp_dir(),
    }
}

/// A folder for images.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(images()).expect("a temporary folder can be made")
}

pub(crate) struct Machine {
    pub(crate) store: Store,
    pub(crate) mechanism: Box<dyn Mechanism>,
    pub(crate) fs: Box<dyn FileSystem>,
    pub(crate) volume: VolumeId,
    pub(crate) memory: Arc<MemoryDevice>,
    pub(crate) devices: Vec<Arc<dyn BlockDevice>>,
    pub(crate) clock: u64,
    /// (directory, name, inode, is a directory)
    pub(crate) names: Vec<(InodeNumber, String, InodeNumber, bool)>,
}

/// An inode to make, with nothing special about it.
fn new_inode(file_type: FileType) -> NewInode<'static> {
    NewInode {
        file_type,
        permissions: 0o644,
        umask: 0,
        uid: 0,
        gid: 0,
        device_number: 0,
        target: &[],
    }
}

impl Machine {
    pub(crate) fn new(
        ordering: Ordering,
        block_size: u32,
        optimisations: Optimisations,
    ) -> Machine {
        let memory = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        let mut options = mkfs::Mkfs::new([7; 16], [9; 16], 1_600_000_000);
        options.block_size = Some(block_size);
        mkfs::write(&options, &*memory).unwrap();
        Machine::open(memory, ordering, block_size, optimisations)
    }

    /// Opens what is there, as a mount does.
    pub(crate) fn open(
        memory: Arc<MemoryDevice>,
        ordering: Ordering,
        block_size: u32,
        optimisations: Optimisations,
    ) -> Machine {
        let device: Arc<dyn BlockDevice> = memory.clone();
        let mut store = Store::new(Limits::default(), optimisations);
        let volume = store.add_volume(block_size);
        let mut mechanism = ordering.make(None).expect("no journal here");
        let request = OpenRequest {
            read_only: false,
            now: Timestamp {
                seconds: 1_700_000_000,
                nanoseconds: 0,
            },
            without_journal: false,
            journaled: false,
            unwritable_journal: None,
        };
        let devices = vec![device];
        let opened = loop {
            let mut v = Volume::new(&mut store, &mut *mechanism, volume, Duration::ZERO);
            match Ext2.open(&mut v, &*devices[0], &request) {
                Ok(opened) => break opened,
                Err(Stop::Miss) => {
                    drive::read_wanted(&mut store, &devices).unwrap();
                }
                Err(error) => panic!("{error:?}"),
            }
        };
        drive::sync(&mut store, &devices, &opened.first, Duration::ZERO).unwrap();
        let mut fs = opened.file_system;
        let mut v = Volume::new(&mut store, &mut *mechanism, volume, Duration::ZERO);
        let marked = fs.mark_in_use(&mut v).unwrap();
        drive::sync(&mut store, &devices, &marked, Duration::ZERO).unwrap();
        Machine {
            store,
            mechanism,
            fs,
            volume,
            memory,
            devices,
            clock: 0,
            names: Vec::new(),
        }
    }

    pub(crate) fn run<T>(
        &mut self,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Result<T> {
        loop {
            match self.attempt(&mut body) {
                Err(Stop::WaitFor(Awaited::Frees)) => self.drain(),
                Err(Stop::WaitFor(Awaited::Names)) => {
                    self.reclaim_until(|progress| progress.is_settled)
                }
                Err(Stop::WaitFor(Awaited::Reclaim)) => {
                    self.reclaim_until(|progress| !progress.running)
                }
                other => return other.map_err(Stop::into_error),
            }
        }
    }

    /// Reclaims until the given point.
    pub(crate) fn reclaim_until(&mut self, is_enough: impl Fn(&ReclaimProgress) -> bool) {
        while !is_enough(&self.fs.reclaim_progress()) {
            let step = self.attempt(|fs, v, now| fs.reclaim(v, now)).unwrap();
            if let ReclaimStep::Wait(_) | ReclaimStep::WaitForFrees = step {
                self.drain();
            }
        }
    }

    /// As [`run`](Self::run), without waiting for frees.
    pub(crate) fn attempt<T>(
        &mut self,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Step<T> {
        loop {
            match self.step(&mut body) {
                Err(Stop::Miss) => {
                    drive::read_wanted(&mut self.store, &self.devices).unwrap();
                }
                Err(Stop::Again) => {}
                other => return other,
            }
        }
    }

    fn step<T>(
        &mut self,
        body: impl FnOnce(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Step<T> {
        self.clock += 1;
        let now = Timestamp {
            seconds: 1_700_000_000 + self.clock as i64 / 50,
            nanoseconds: 7,
        };
        let mut v = Volume::new(
            &mut self.store,
            &mut *self.mechanism,
            self.volume,
            Duration::from_millis(self.clock * 20),
        );
        v.begin(NAMES);
        let result = body(&mut *self.fs, &mut v, now);
        let mut wait_for = Vec::new();
        v.end(&mut wait_for);
        result
    }

    pub(crate) fn background(&mut self) {
        while self.run(|fs, v, now| fs.background(v, now)).unwrap() {}
    }

    /// Makes an empty file.
    pub(crate) fn make(&mut self, directory: InodeNumber, name: &str) -> InodeNumber {
        self.make_of(FileType::Regular, directory, name)
    }

    /// Makes an empty directory.
    pub(crate) fn make_directory(&mut self, parent: InodeNumber, name: &str) -> InodeNumber {
        self.make_of(FileType::Directory, parent, name)
    }

    /// Moves a name to another directory.
    pub(crate) fn move_to(&mut self, from: InodeNumber, name: &str, to: InodeNumber) {
        let rename = Rename {
            from,
            from_name: name.as_bytes(),
            to,
            to_name: name.as_bytes(),
            mode: RenameMode::Replace,
        };
        self.run(|fs, v, now| fs.rename(v, &rename, now)).unwrap();
    }

    fn make_of(&mut self, kind: FileType, directory: InodeNumber, name: &str) -> InodeNumber {
        let new = new_inode(kind);
        self.run(|fs, v, now| fs.create(v, directory, name.as_bytes(), &new, now))
            .unwrap()
    }

    /// Writes as much of `data` as there is space for.
    pub(crate) fn write_at(&mut self, inode: InodeNumber, at: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            match self.run(|fs, v, now| fs.write(v, inode, at + done as u64, &data[done..], now)) {
                Ok(written) => done += written,
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes out what can be, without doing deferred work.
    pub(crate) fn write_out(&mut self) {
        drive::write_out(&mut self.store, &self.devices, Goal::All, Duration::ZERO).unwrap();
    }

    /// Does deferred work up to the first block that has to be read, and reads it. True where all
    /// is done.
    pub(crate) fn background_until_miss(&mut self) -> bool {
        match self.step(|fs, v, now| fs.background(v, now)) {
            Ok(worked) => !worked,
            Err(Stop::Miss) => {
                drive::read_wanted(&mut self.store, &self.devices).unwrap();
                false
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Puts one inode and what it depends on onto the disk, and nothing else.
    pub(crate) fn fsync(&mut self, inode: InodeNumber) {
        let mut targets = Vec::new();
        self.run(|fs, v, _| {
            fs.sync_targets(v, inode, false, &mut targets);
            Ok(())
        })
        .unwrap();
        drive::sync(&mut self.store, &self.devices, &targets, Duration::ZERO).unwrap();
    }

    pub(crate) fn drain(&mut self) {
        loop {
            self.background();
            let batches =
                drive::write_out(&mut self.store, &self.devices, Goal::All, Duration::ZERO)
                    .unwrap();
            if batches == 0 && self.fs.deferred().pending == 0 {
                return;
            }
        }
    }

    pub(crate) fn directory(&self, random: &mut Random) -> InodeNumber {
        let directories: Vec<InodeNumber> =
            self.names.iter().filter(|n| n.3).map(|n| n.2).collect();
        match random.below(directories.len() + 1) {
            0 => self.fs.root(),
            i => directories[i - 1],
        }
    }

    pub(crate) fn some_name(&self, random: &mut Random, directory: bool) -> Option<usize> {
        let found: Vec<usize> = (0..self.names.len())
            .filter(|i| self.names[*i].3 == directory)
            .collect();
        (!found.is_empty()).then(|| found[random.below(found.len())])
    }

    pub(crate) fn some_file(&self, random: &mut Random) -> Option<InodeNumber> {
        self.some_name(random, false).map(|i| self.names[i].2)
    }

    pub(crate) fn create(&mut self, random: &mut Random, number: usize, kind: usize) -> String {
        let directory = self.directory(random);
        let name = format!("{}{number}", "x".repeat(random.below(40)));
        let long = vec![b't'; 100];
        let file_type = [
            FileType::Regular,
            FileType::Regular,
            FileType::Regular,
            FileType::Directory,
            FileType::Symlink,
        ][kind];
        let new = NewInode {
            target: if file_type == FileType::Symlink {
                &long
            } else {
                &[]
            },
            ..new_inode(file_type)
        };
        let made = self.run(|fs, v, now| fs.create(v, directory, name.as_bytes(), &new, now));
        if let Ok(inode) = made {
            self.names.push((
                directory,
                name.clone(),
                inode,
                file_type == FileType::Directory,
            ));
        }
        format!("create {file_type:?} {name} in {directory}: {made:?}")
    }

    pub(crate) fn remove(&mut self, random: &mut Random, directory: bool) -> String {
        let Some(i) = self.some_name(random, directory) else {
            return String::new();
        };
        let (parent, name, inode, _) = self.names[i].clone();
        let removed = self.run(|fs, v, now| {
            if directory {
                fs.remove_directory(v, parent, name.as_bytes(), now)
            } else {
                fs.unlink(v, parent, name.as_bytes(), now)
            }
        });
        if removed.is_ok() {
            self.names.swap_remove(i);
        }
        format!("remove {name} ({inode}) from {parent}: {removed:?}")
    }

    pub(crate) fn rename(&mut self, random: &mut Random, directory: bool, number: usize) -> String {
        let Some(i) = self.some_name(random, directory) else {
            return String::new();
        };
        let (from, from_name, inode, _) = self.names[i].clone();
        let over = random.below(3) == 0;
        let (to, to_name) = match self.some_name(random, directory) {
            Some(j) if over && j != i => (self.names[j].0, self.names[j].1.clone()),
            _ => (self.directory(random), format!("r{number}")),
        };
        let rename = Rename {
            from,
            from_name: from_name.as_bytes(),
            to,
            to_name: to_name.as_bytes(),
            mode: RenameMode::Replace,
        };
        let moved = self.run(|fs, v, now| fs.rename(v, &rename, now));
        if let Ok(lost) = &moved {
            let same = self
                .names
                .iter()
                .any(|n| n.0 == to && n.1 == to_name && n.2 == inode);
            if !same {
                self.names
                    .retain(|n| !(n.0 == to && n.1 == to_name) || lost.is_none());
                self.names.retain(|n| !(n.0 == from && n.1 == from_name));
                self.names.push((to, to_name.clone(), inode, directory));
            }
        }
        format!("rename {from_name} ({inode}) of {from} to {to_name} of {to}: {moved:?}")
    }

    pub(crate) fn link(&mut self, random: &mut Random, number: usize) -> String {
        let Some(inode) = self.some_file(random) else {
            return String::new();
        };
        let directory = self.directory(random);
        let name = format!("l{number}");
        let linked = self.run(|fs, v, now| fs.link(v, inode, directory, name.as_bytes(), now));
        if linked.is_ok() {
            self.names.push((directory, name.clone(), inode, false));
        }
        format!("link {inode} as {name} in {directory}: {linked:?}")
    }

    pub(crate) fn write(&mut self, random: &mut Random) -> String {
        let Some(inode) = self.some_file(random) else {
            return String::new();
        };
        let data = vec![b'd'; 1 + random.below(20_000)];
        let offset = random.below(30_000) as u64 + if random.below(10) == 0 { 300_000 } else { 0 };
        let written = self.run(|fs, v, now| fs.write(v, inode, offset, &data, now));
        format!("write {} at {offset} of {inode}: {written:?}", data.len())
    }

    pub(crate) fn truncate(&mut self, random: &mut Random) -> String {
        let Some(inode) = self.some_file(random) else {
            return String::new();
        };
        let size = [0, 1, 3000, 30_000, 400_000][random.below(5)];
        let set = SetAttributes {
            size_bytes: Some(size),
            ..SetAttributes::default()
        };
        let done = self
            .run(|fs, v, now| fs.set_attributes(v, inode, &set, now))
            .map(drop);
        format!("truncate {inode} to {size}: {done:?}")
    }

    pub(crate) fn set_xattr(&mut self, random: &mut Random) -> String {
        let Some(inode) = self.some_file(random) else {
            return String::new();
        };
        // Few values, so that inodes share blocks, some of which are not on the disk yet.
        let value = format!("value {}", random.below(12));
        let value = (random.below(4) > 0).then_some(value.as_bytes());
        let any = SetXattrMode::Any;
        let done = self.run(|fs, v, now| fs.set_xattr(v, inode, b"user.a", value, any, now));
        format!("setxattr of {inode} to {value:?}: {done:?}")
    }

    /// Appends to the longest file, some bytes at a time, and fsyncs it each time.
    fn append_and_flush(&mut self, random: &mut Random) -> String {
        let files: Vec<InodeNumber> = (self.names.iter().filter(|n| !n.3).map(|n| n.2)).collect();
        let mut longest = None;
        for file in files {
            let size = self.run(|fs, v, _| fs.attributes(v, file)).unwrap();
            if size.file_type == FileType::Regular
                && longest.is_none_or(|(_, len)| len < size.size_bytes)
            {
                longest = Some((file, size.size_bytes));
            }
        }
        let Some((file, mut end)) = longest else {
            return "nothing to append to".to_owned();
        };
        for _ in 0..2 + random.below(4) {
            let data = vec![9; 500 + random.below(20_000)];
            end += self.write_at(file, end, &data).unwrap_or(0) as u64;
            self.fsync(file);
        }
        format!("append to {file} and flush, up to {end}")
    }

    /// Gives a directory a default access control list, which new inodes in it inherit.
    pub(crate) fn set_default_acl(&mut self, random: &mut Random) -> String {
        let directory = self.directory(random);
        let mut acl = vec![2, 0, 0, 0];
        let named = 1 + random.below(6) as u32;
        for (tag, id) in [
            (1u16, u32::MAX),
            (2, named),
            (4, u32::MAX),
            (16, u32::MAX),
            (32, u32::MAX),
        ] {
            acl.extend(tag.to_le_bytes());
            acl.extend(7u16.to_le_bytes());
            acl.extend(id.to_le_bytes());
        }
        let value = (random.below(4) > 0).then_some(&acl[..]);
        let name = b"system.posix_acl_default";
        let any = SetXattrMode::Any;
        let done = self.run(|fs, v, now| fs.set_xattr(v, directory, name, value, any, now));
        format!("default acl of {directory} for {named}: {done:?}")
    }

    pub(crate) fn operation(&mut self, random: &mut Random, number: usize) -> String {
        match random.below(27) {
            24 => match self.some_file(random) {
                Some(file) => {
                    self.fsync(file);
                    format!("fsync {file}")
                }
                None => "nothing to fsync".to_owned(),
            },
            25 => {
                let made = self.create(random, number, 0);
                let file = self.names.last().map(|n| n.2);
                if let Some(file) = file {
                    let _ = self.write_at(file, 0, &[7; 1500]);
                    self.fsync(file);
                }
                format!("{made}, flushed")
            }
            26 => self.append_and_flush(random),
            0..=6 => {
                let kind = random.below(5);
                self.create(random, number, kind)
            }
            7..=9 => self.remove(random, false),
            10 => self.remove(random, true),
            11 | 12 => self.rename(random, false, number),
            13 => self.rename(random, true, number),
            14 => self.link(random, number),
            15..=17 => self.write(random),
            18 => self.truncate(random),
            19..=21 => self.set_xattr(random),
            _ => self.set_default_acl(random),
        }
    }

    /// Hands a batch to the device; `check` sees a state in which a part of it arrived.
    pub(crate) fn write_some(
        &mut self,
        random: &mut Random,
        check: &mut impl FnMut(&[u8]),
    ) -> bool {
        self.write_part(random, Some(check))
    }

    /// The same without a check.
    pub(crate) fn write_unseen(&mut self, random: &mut Random) -> bool {
        self.write_part(random, None::<&mut fn(&[u8])>)
    }

    fn write_part(&mut self, random: &mut Random, check: Option<&mut impl FnMut(&[u8])>) -> bool {
        let now = Duration::from_millis(self.clock * 20);
        let mut some = Vec::new();
        let goal = match random.below(4) {
            0 => Goal::All,
            1 => Goal::Oldest,
            // A few changes with what they depend on and nothing else. A missing dependency shows
            // best in such a state.
            _ => {
                self.store.uncommitted(&mut some);
                let wanted = 1 + random.below(3);
                while some.len() > wanted {
                    some.swap_remove(random.below(some.len()));
                }
                Goal::Patches(&some)
            }
        };
        let batch = self
            .store
            .next_batch(goal, now, 1 + random.below(1 << 16) as u64);
        if batch.is_empty() {
            return false;
        }
        if let Some(check) = check {
            let mut state = self.memory.snapshot();
            for request in batch.writes.iter().flat_map(|(_, requests)| requests) {
                let mut at = request.offset_bytes as usize;
                for buffer in &request.buffers {
                    if random.below(2) == 0 {
                        state[at..at + buffer.len()].copy_from_slice(buffer);
                    }
                    at += buffer.len();
                }
            }
            check(&state);
        }
        drive::perform(&self.devices, &batch.writes).unwrap();
        self.store.complete(batch, now);
        true
    }
}

/// e2fsck's report, and what our own check finds that soft updates never leave.
pub(crate) fn check(image: &[u8], path: &std::path::Path) -> Option<(String, Vec<String>)> {
    std::fs::write(path, image).unwrap();
    let output = Command::new("e2fsck").arg("-fn").arg(path).output().ok()?;
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let ours = corruption(image, output.status.code() == Some(0), &report);
    Some((report, ours))
}

/// Runs our own check on the same state, which must come to the same verdict. Returns what soft
/// updates never leave.
pub(crate) fn corruption(image: &[u8], theirs_is_clean: bool, report: &str) -> Vec<String> {
    let ours = our_check(image);
    assert_eq!(
        ours.is_clean(),
        theirs_is_clean,
        "the verdicts differ:\n{}\n{report}",
        words(&ours.findings).join("\n")
    );
    what_no_crash_leaves(ours)
}

/// Runs our own check in this thread: for images so small more threads cost more than they save.
pub(crate) fn our_check(image: &[u8]) -> fsck::Report {
    let options = Options {
        threads: Some(1),
        ..Options::default()
    };
    fsck::check_source(&SliceSource(image), &options).unwrap()
}

/// The findings that soft updates never leave.
pub(crate) fn what_no_crash_leaves(report: fsck::Report) -> Vec<String> {
    let mut bad = report.findings;
    bad.retain(|f| f.kind == Kind::Corruption);
    words(&bad)
}

fn words(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

/// The seeds of the histories: `BACKSTITCH_RUNS` of them from `BACKSTITCH_FIRST` on.
pub(crate) fn seeds() -> std::ops::Range<u64> {
    let setting = |name, default| {
        let text = std::env::var(name).ok();
        text.and_then(|n| n.parse().ok()).unwrap_or(default)
    };
    let first = setting("BACKSTITCH_FIRST", 1);
    first..first + setting("BACKSTITCH_RUNS", 6)
}
