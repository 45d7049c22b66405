//! One dependency of the layout is left out at a time, and a small exploration of what the disk may show must notice.
//!
//! After every operation of a script the graph is asked what may be on the disk: sets of patches with all that they depend on.
//! The least of them (one patch and what it needs), the largest without a patch, all pairs and some threes are put onto a copy of
//! the disk, and looked at: by the check, by a mount, by the promises that were made of the files, and again after the reclaim.

mod crash;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstitch_device::MemoryDevice;
use backstitch_ext::fsck::{self, Code, Kind, Options, Report, SliceSource};
use backstitch_ext::planted::{Planted, plant};
use backstitch_layout::{
    Allocate, Attributes, FileType, InodeNumber, NewInode, Piece, ReclaimStep, Rename, RenameMode,
    SetAttributes, SetXattrMode,
};
use backstitch_ordering::{MechanismKind, PatchId};
use backstitch_patch::{BlockId, Change, Event, Hook};
use backstitch_store::{Goal, Optimisations, Store, drive};
use crash::{Machine, Random};

const BLOCK_SIZE: usize = 1024;
const STATE_AT: usize = 1024 + 58;

/// What a patch does, kept.
#[derive(Clone)]
enum Kept {
    Bytes(usize, Vec<u8>),
    Flip(usize, u32),
}

/// All changes in the order in which they were made.
#[derive(Clone, Default)]
struct Changes(Arc<Mutex<Vec<(PatchId, BlockId, Kept)>>>);

impl Hook for Changes {
    fn event(&mut self, event: &Event<'_>) {
        let (id, block, change) = match event {
            Event::Create {
                id,
                block: Some(block),
                change: Some(change),
                ..
            } => (*id, *block, change),
            Event::Merge {
                into,
                block,
                change,
                ..
            } => (*into, *block, change),
            _ => return,
        };
        let kept = match change {
            Change::Bytes {
                offset_bytes,
                bytes,
            } => Kept::Bytes(*offset_bytes as usize, bytes.to_vec()),
            Change::Flip { offset_bytes, mask } => Kept::Flip(*offset_bytes as usize, *mask),
        };
        self.0.lock().unwrap().push((id, block, kept));
    }
}

/// What may be on the disk at one moment.
struct Moment {
    disk: Vec<u8>,
    /// Of each live patch: the patches that must be there with it, itself among them.
    closures: Vec<Vec<bool>>,
    /// The changes in order: of which patch, where on the disk, what.
    changes: Vec<(usize, usize, Kept)>,
}

impl Moment {
    fn of(machine: &Machine, changes: &Changes) -> Moment {
        let store = &machine.store;
        let graph = store.graph();
        let mut live = Vec::new();
        store.uncommitted(&mut live);
        let place = |id: PatchId| live.iter().position(|l| graph.is_same(*l, id));
        let closures = live
            .iter()
            .map(|id| closure_of(store, &live, *id))
            .collect();
        let mut all = changes.0.lock().unwrap();
        all.retain(|(id, _, _)| graph.is_live(*id));
        let changes = all
            .iter()
            .filter_map(|(id, block, kept)| {
                let at = store.place_of(*block).1 as usize * BLOCK_SIZE;
                Some((place(*id)?, at, kept.clone()))
            })
            .collect();
        Moment {
            disk: machine.memory.snapshot(),
            closures,
            changes,
        }
    }

    /// The disk with these patches.
    fn with(&self, chosen: &[bool]) -> Vec<u8> {
        let mut disk = self.disk.clone();
        for (patch, at, kept) in &self.changes {
            match kept {
                _ if !chosen[*patch] => {}
                Kept::Bytes(offset, bytes) => {
                    disk[at + offset..][..bytes.len()].copy_from_slice(bytes);
                }
                Kept::Flip(offset, mask) => {
                    for (byte, bits) in disk[at + offset..][..4].iter_mut().zip(mask.to_le_bytes())
                    {
                        *byte ^= bits;
                    }
                }
            }
        }
        disk
    }

    /// Closed sets of patches, `random` ones where there are too many.
    fn sets(&self, random: &mut Random, random_sets: usize) -> HashSet<Vec<bool>> {
        let n = self.closures.len();
        let union = |members: &[usize]| {
            let mut set = vec![false; n];
            for member in members {
                set.iter_mut()
                    .zip(&self.closures[*member])
                    .for_each(|(s, c)| *s |= c);
            }
            set
        };
        let mut sets = HashSet::from([vec![false; n], vec![true; n]]);
        for i in 0..n {
            sets.insert(self.closures[i].clone());
            let without: Vec<usize> = (0..n).filter(|j| !self.closures[*j][i]).collect();
            sets.insert(union(&without));
        }
        for _ in 0..random_sets.min(n * n) {
            let members: Vec<usize> = (0..2 + random.below(2)).map(|_| random.below(n)).collect();
            sets.insert(union(&members));
        }
        sets
    }
}

fn closure_of(store: &Store, live: &[PatchId], id: PatchId) -> Vec<bool> {
    let graph = store.graph();
    let mut set = vec![false; live.len()];
    let (mut open, mut seen) = (vec![id], HashSet::new());
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            if let Some(at) = live.iter().position(|l| graph.is_same(*l, id)) {
                set[at] = true;
            }
            open.extend(graph.dependencies(id).into_iter().map(|(id, _)| id));
        }
    }
    set
}

/// A file, symlink or directory: an inode number and its generation.
type Key = (InodeNumber, u32);

/// A name in a directory, whatever that is called; `None` is the root.
type Place = (Option<Key>, String);

/// What was done with an object, and what was promised of it.
#[derive(Default)]
struct Object {
    /// Its contents after each step (a symlink's target; nothing of a directory).
    versions: Vec<Vec<u8>>,
    /// The version that was synced.
    synced: Option<usize>,
    /// Names that were synced and that nothing has touched since.
    promised: BTreeSet<Place>,
}

impl Object {
    /// Whether the object may have these contents: some version's size, and at each place what it held in a version with no
    /// shorter one in between.
    fn may_hold(&self, bytes: &[u8]) -> bool {
        let first = self.synced.unwrap_or(0);
        let versions = &self.versions[first..];
        let reaches = |i: usize, j: usize, at: usize| {
            versions[i.min(j)..=i.max(j)].iter().all(|v| v.len() > at)
        };
        versions.iter().enumerate().any(|(j, version)| {
            // The blocks behind the end of a later, shorter version are unmapped before its size is there.
            let later = versions[j..]
                .iter()
                .map(|v| v.len().next_multiple_of(BLOCK_SIZE));
            let unmapped_from = later.min().unwrap_or(usize::MAX);
            let fits = |at: usize| {
                bytes[at] == version[at]
                    || bytes[at] == 0 && at >= unmapped_from
                    || versions
                        .iter()
                        .enumerate()
                        .any(|(i, v)| v.get(at) == Some(&bytes[at]) && reaches(i, j, at))
            };
            version.len() == bytes.len() && (0..bytes.len()).all(fits)
        })
    }
}

/// What the operations so far amount to.
#[derive(Default)]
struct Model {
    paths: BTreeMap<String, Key>,
    objects: BTreeMap<Key, Object>,
}

impl Model {
    fn object(&mut self, path: &str) -> &mut Object {
        self.objects.get_mut(&self.paths[path]).unwrap()
    }

    fn made(&mut self, path: &str, attributes: &Attributes, contents: &[u8]) {
        let key = (attributes.inode, attributes.generation);
        self.paths.insert(path.into(), key);
        let object = self.objects.entry(key).or_default();
        object.versions.push(contents.to_vec());
    }

    fn place(&self, path: &str) -> Place {
        let (above, name) = split(path);
        (self.paths.get(above).copied(), name.into())
    }

    /// The name is no longer promised.
    fn touched(&mut self, path: &str) {
        let place = self.place(path);
        for object in self.objects.values_mut() {
            object.promised.remove(&place);
        }
    }

    fn removed(&mut self, path: &str) {
        self.touched(path);
        self.paths.remove(path);
    }

    fn renamed(&mut self, from: &str, to: &str) {
        self.touched(from);
        self.touched(to);
        let below = format!("{from}/");
        let old = std::mem::take(&mut self.paths);
        let mut moved = Vec::new();
        for (path, key) in old {
            if path == from || path.starts_with(&below) {
                moved.push((format!("{to}{}", &path[from.len()..]), key));
            } else {
                self.paths.insert(path, key);
            }
        }
        self.paths.extend(moved);
    }

    fn synced(&mut self, key: Key) {
        let names = self.paths.iter().filter(|(_, k)| **k == key);
        let promised = names.map(|(path, _)| self.place(path)).collect();
        let object = self.objects.get_mut(&key).unwrap();
        object.synced = Some(object.versions.len() - 1);
        object.promised = promised;
    }
}

/// What a mount shows: all names, and the contents of files and symlinks.
struct Tree {
    names: BTreeMap<String, (Attributes, Option<Vec<u8>>)>,
}

impl Tree {
    fn of(machine: &mut Machine) -> Result<Tree, String> {
        let mut tree = Tree {
            names: BTreeMap::new(),
        };
        let mut open = vec![(String::new(), machine.fs.root())];
        while let Some((path, directory)) = open.pop() {
            if path.matches('/').count() > 12 {
                return Err(format!("a circle: {path}"));
            }
            let mut names = Vec::new();
            machine
                .run(|fs, v, _| {
                    names.clear();
                    fs.read_directory(v, directory, 0, &mut |entry| {
                        if entry.name != b"." && entry.name != b".." {
                            let name = String::from_utf8_lossy(entry.name).into_owned();
                            names.push((name, entry.inode));
                        }
                        true
                    })
                })
                .map_err(|e| format!("{path}: {e}"))?;
            for (name, inode) in names {
                let path = match path.as_str() {
                    "" => name,
                    above => format!("{above}/{name}"),
                };
                let attributes = machine
                    .run(|fs, v, _| fs.attributes(v, inode))
                    .map_err(|e| format!("{path}: {e}"))?;
                let contents = match attributes.file_type {
                    FileType::Directory => {
                        open.push((path.clone(), inode));
                        None
                    }
                    FileType::Symlink => Some(
                        machine
                            .run(|fs, v, _| fs.read_link(v, inode))
                            .map_err(|e| format!("{path}: {e}"))?,
                    ),
                    _ => Some(contents_of(machine, inode, attributes.size_bytes)?),
                };
                tree.names.insert(path, (attributes, contents));
            }
        }
        Ok(tree)
    }

    fn keeps_promises(&self, model: &Model) -> Result<(), String> {
        let key_of = |path: &str| {
            let (attributes, _) = self.names.get(path)?;
            Some((attributes.inode, attributes.generation))
        };
        let (mut seen, mut places) = (BTreeSet::new(), BTreeMap::new());
        for (path, (attributes, contents)) in &self.names {
            let key = (attributes.inode, attributes.generation);
            seen.insert(key);
            let (above, name) = split(path);
            places.insert((key_of(above), name.to_string()), key);
            let object = model.objects.get(&key);
            if let (Some(contents), Some(object)) = (contents, object)
                && !object.may_hold(contents)
            {
                let len = contents.len();
                return Err(format!("{path} holds {len} bytes that it was not given"));
            }
        }
        for key in model.paths.values() {
            let object = &model.objects[key];
            if object.synced.is_some() && !seen.contains(key) {
                return Err(format!("inode {} was synced and has no name", key.0));
            }
            for place in &object.promised {
                if places.get(place) != Some(key) {
                    let name = &place.1;
                    return Err(format!("{name} was synced and is not there"));
                }
            }
        }
        Ok(())
    }
}

fn contents_of(machine: &mut Machine, inode: InodeNumber, size: u64) -> Result<Vec<u8>, String> {
    let mut pieces = Vec::new();
    machine
        .run(|fs, v, _| {
            pieces.clear();
            fs.map(v, inode, 0, size as usize, &mut pieces)
        })
        .map_err(|e| format!("inode {inode}: {e}"))?;
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Hole { len_bytes } => bytes.resize(bytes.len() + len_bytes, 0),
            Piece::Buffer {
                data,
                start,
                len_bytes,
            } => bytes.extend_from_slice(&data[start..start + len_bytes]),
            Piece::Device {
                offset_bytes,
                len_bytes,
            } => {
                let start = bytes.len();
                bytes.resize(start + len_bytes, 0);
                use backstitch_device::BlockDevice;
                machine
                    .memory
                    .read(offset_bytes, &mut bytes[start..])
                    .unwrap();
            }
        }
    }
    Ok(bytes)
}

fn check(disk: &[u8]) -> Result<Report, String> {
    let report = fsck::check_source(&SliceSource(disk), &Options::default()).unwrap();
    let bad = report
        .findings
        .iter()
        .find(|f| f.kind == Kind::Corruption)
        .or(report.findings.first().filter(|_| disk[STATE_AT] & 1 != 0));
    match bad {
        Some(finding) => Err(finding.to_string()),
        None => Ok(report),
    }
}

fn mount(disk: Vec<u8>, optimisations: Optimisations) -> Result<Machine, String> {
    let memory = Arc::new(MemoryDevice::from_bytes(disk));
    let kind = MechanismKind::Soft;
    let machine = Machine::open(memory, kind, BLOCK_SIZE as u32, optimisations);
    match machine.fs.read_only_reason() {
        Some(reason) => Err(reason),
        None => Ok(machine),
    }
}

/// Whether growing a file shows bytes that were cut off.
fn grows_with_zeros(disk: Vec<u8>, tree: &Tree) -> Result<(), String> {
    let mut machine = mount(disk, Optimisations::BOTH)?;
    for (path, (attributes, contents)) in &tree.names {
        let (FileType::Regular, Some(old)) = (attributes.file_type, contents) else {
            continue;
        };
        let size = attributes.size_bytes + 30_000;
        let set = SetAttributes {
            size_bytes: Some(size),
            ..SetAttributes::default()
        };
        let inode = attributes.inode;
        machine
            .run(|fs, v, now| fs.set_attributes(v, inode, &set, now))
            .map_err(|e| format!("{path}: {e}"))?;
        let new = contents_of(&mut machine, inode, size)?;
        if new[old.len()..].iter().any(|b| *b != 0) {
            return Err(format!("{path} grows, and shows bytes that were cut off"));
        }
    }
    Ok(())
}

/// What is wrong with a state of the disk. `grown` says whether a file may have become longer: its new blocks may be mapped then.
fn judge(disk: Vec<u8>, model: &Model, grown: bool) -> Result<(), String> {
    let report = check(&disk)?;
    let mapped_beyond = report
        .findings
        .iter()
        .any(|f| f.code == Code::SizeBelowMapped);
    let copy = (mapped_beyond && !grown).then(|| disk.clone());
    let mut machine = mount(disk, Optimisations::BOTH)?;
    let tree = Tree::of(&mut machine)?;
    tree.keeps_promises(model)?;
    if let Some(copy) = copy {
        grows_with_zeros(copy, &tree)?;
    }
    reclaim(&mut machine, &mut |_| Ok(()))?;
    Tree::of(&mut machine)?.keeps_promises(model)?;
    check(&machine.memory.snapshot()).map(drop)
}

fn reclaim(
    machine: &mut Machine,
    look: &mut impl FnMut(&Machine) -> Result<(), String>,
) -> Result<(), String> {
    loop {
        let step = machine
            .run(|fs, v, now| fs.reclaim(v, now))
            .map_err(|e| format!("the reclaim: {e}"))?;
        look(machine)?;
        match step {
            ReclaimStep::More => {}
            ReclaimStep::Drain => machine.drain(),
            ReclaimStep::Done => break,
        }
    }
    machine.drain();
    Ok(())
}

/// A machine that follows a script.
struct Run {
    machine: Machine,
    model: Model,
    changes: Changes,
    random: Random,
    optimisations: Optimisations,
    /// Something grew since everything was on the disk.
    grown: bool,
    states: usize,
}

impl Run {
    fn new(optimisations: Optimisations, seed: u64) -> Run {
        let machine = Machine::new(MechanismKind::Soft, BLOCK_SIZE as u32, optimisations);
        let mut run = Run {
            machine,
            model: Model::default(),
            changes: Changes::default(),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            optimisations,
            grown: false,
            states: 0,
        };
        run.watch();
        run
    }

    fn watch(&mut self) {
        let hook = Box::new(self.changes.clone());
        self.machine.store.graph_mut().set_hook(Some(hook));
    }

    fn inode(&self, path: &str) -> InodeNumber {
        match path {
            "" => self.machine.fs.root(),
            path => self.model.paths[path].0,
        }
    }

    fn make(&mut self, path: &str, file_type: FileType, target: &str) {
        let (above, name) = split(path);
        let directory = self.inode(above);
        let new = NewInode {
            file_type,
            permissions: 0o644,
            umask: 0,
            uid: 0,
            gid: 0,
            device_number: 0,
            target: target.as_bytes(),
        };
        let made = self.machine.run(|fs, v, now| {
            let inode = fs.create(v, directory, name.as_bytes(), &new, now)?;
            fs.attributes(v, inode)
        });
        self.model.made(path, &made.unwrap(), target.as_bytes());
    }

    fn write(&mut self, path: &str, at: u64, len: usize, fill: u8) {
        let inode = self.inode(path);
        let data = vec![fill; len];
        let mut done = 0;
        while done < len {
            done += self
                .machine
                .run(|fs, v, now| fs.write(v, inode, at + done as u64, &data[done..], now))
                .unwrap();
            let (start, end) = (at as usize, at as usize + done);
            let versions = &mut self.model.object(path).versions;
            let mut version = versions.last().unwrap().clone();
            self.grown |= version.len() < end;
            version.resize(version.len().max(end), 0);
            version[start..end].fill(fill);
            versions.push(version);
        }
    }

    fn resize(&mut self, path: &str, size: usize) {
        let inode = self.inode(path);
        let set = SetAttributes {
            size_bytes: Some(size as u64),
            ..SetAttributes::default()
        };
        self.machine
            .run(|fs, v, now| fs.set_attributes(v, inode, &set, now))
            .unwrap();
        let versions = &mut self.model.object(path).versions;
        let mut version = versions.last().unwrap().clone();
        self.grown |= version.len() < size;
        version.resize(size, 0);
        versions.push(version);
    }

    fn punch(&mut self, path: &str, at: usize, len: usize) {
        let inode = self.inode(path);
        let (from, length) = (at as u64, len as u64);
        self.machine
            .run(|fs, v, now| fs.allocate(v, inode, Allocate::PunchHole, from, length, now))
            .unwrap();
        let versions = &mut self.model.object(path).versions;
        let mut version = versions.last().unwrap().clone();
        version[at..at + len].fill(0);
        versions.push(version);
    }

    fn set_xattr(&mut self, path: &str, name: &str, value: Option<&[u8]>) {
        let inode = self.inode(path);
        let any = SetXattrMode::Any;
        self.machine
            .run(|fs, v, now| fs.set_xattr(v, inode, name.as_bytes(), value, any, now))
            .unwrap();
    }

    fn all_synced(&mut self) {
        let keys: BTreeSet<Key> = self.model.paths.values().copied().collect();
        keys.into_iter().for_each(|key| self.model.synced(key));
        self.grown = false;
    }

    /// A foreign checker gives directories an index.
    fn index(&mut self) {
        self.machine.drain();
        let path = std::env::temp_dir().join(format!(
            "backstitch-planted-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&path, self.machine.memory.snapshot()).unwrap();
        for _ in 0..2 {
            Command::new("e2fsck")
                .arg("-fyD")
                .arg(&path)
                .output()
                .unwrap();
        }
        let memory = Arc::new(MemoryDevice::from_bytes(std::fs::read(&path).unwrap()));
        std::fs::remove_file(&path).unwrap();
        let kind = MechanismKind::Soft;
        self.machine = Machine::open(memory, kind, BLOCK_SIZE as u32, self.optimisations);
        self.watch();
        self.all_synced();
    }

    fn step(&mut self, operation: &str, number: usize) {
        let fill = b'a' + (number % 26) as u8;
        let words: Vec<&str> = operation.split_whitespace().collect();
        let count = |i: usize| words[i].parse::<usize>().unwrap();
        match (words[0], words.get(1).copied().unwrap_or("")) {
            ("mkdir", path) => self.make(path, FileType::Directory, ""),
            ("creat", path) => self.make(path, FileType::Regular, ""),
            ("symlink", target) => self.make(words[2], FileType::Symlink, target),
            ("write" | "overwrite", path) => self.write(path, count(2) as u64, count(3), fill),
            ("append", path) => {
                let end = self.model.object(path).versions.last().unwrap().len();
                self.write(path, end as u64, count(2), fill);
            }
            ("truncate", path) => self.resize(path, count(2)),
            ("punch", path) => self.punch(path, count(2), count(3)),
            ("link", path) => {
                let ((above, name), inode) = (split(words[2]), self.inode(path));
                let directory = self.inode(above);
                self.machine
                    .run(|fs, v, now| fs.link(v, inode, directory, name.as_bytes(), now))
                    .unwrap();
                self.model
                    .paths
                    .insert(words[2].into(), self.model.paths[path]);
            }
            ("unlink" | "rmdir", path) => {
                let (above, name) = split(path);
                let directory = self.inode(above);
                self.machine
                    .run(|fs, v, now| match words[0] {
                        "unlink" => fs.unlink(v, directory, name.as_bytes(), now),
                        _ => fs.remove_directory(v, directory, name.as_bytes(), now),
                    })
                    .unwrap();
                self.model.removed(path);
            }
            ("rename", path) => {
                let ((from, from_name), (to, to_name)) = (split(path), split(words[2]));
                let rename = Rename {
                    from: self.inode(from),
                    from_name: from_name.as_bytes(),
                    to: self.inode(to),
                    to_name: to_name.as_bytes(),
                    mode: RenameMode::Replace,
                };
                self.machine
                    .run(|fs, v, now| fs.rename(v, &rename, now))
                    .unwrap();
                self.model.renamed(path, words[2]);
            }
            ("setxattr", path) => self.set_xattr(path, words[2], Some(words[3].as_bytes())),
            ("removexattr", path) => self.set_xattr(path, words[2], None),
            ("setacl", path) => self.set_xattr(path, "system.posix_acl_default", Some(&acl())),
            ("fsync", path) => {
                self.machine.fsync(self.inode(path));
                self.model.synced(self.model.paths[path]);
            }
            ("sync", _) => {
                self.machine.drain();
                self.all_synced();
            }
            ("work", _) => self.machine.background(),
            ("index", _) => self.index(),
            other => panic!("{other:?}"),
        }
    }

    /// Some of what may be written is.
    fn write_some(&mut self) {
        let mut live = Vec::new();
        self.machine.store.uncommitted(&mut live);
        if !live.is_empty() {
            let some = [live[self.random.below(live.len())]];
            let (store, devices) = (&mut self.machine.store, &self.machine.devices);
            drive::write_out(store, devices, Goal::Patches(&some), Duration::ZERO).unwrap();
        }
    }

    /// Looks at what may be on the disk now.
    fn explore(&mut self, random_sets: usize) -> Result<(), String> {
        let moment = Moment::of(&self.machine, &self.changes);
        for set in moment.sets(&mut self.random, random_sets) {
            self.states += 1;
            judge(moment.with(&set), &self.model, self.grown)?;
        }
        Ok(())
    }

    /// Looks at what may be on the disk where the power fails once more in each reclaim of what may be on the disk now.
    fn explore_reclaims(&mut self, error: Option<Planted>) -> Result<(), String> {
        let moment = Moment::of(&self.machine, &self.changes);
        for set in moment.sets(&mut self.random, 10) {
            let mut machine = mount(moment.with(&set), self.optimisations)?;
            let changes = Changes::default();
            let hook = Box::new(changes.clone());
            machine.store.graph_mut().set_hook(Some(hook));
            plant(error);
            let (mut patches, grown) = (0, self.grown);
            let done = reclaim(&mut machine, &mut |machine| {
                let moment = Moment::of(machine, &changes);
                if moment.changes.len() == std::mem::replace(&mut patches, moment.changes.len()) {
                    return Ok(());
                }
                plant(None);
                for set in moment.sets(&mut self.random, 10) {
                    self.states += 1;
                    judge(moment.with(&set), &self.model, grown)?;
                }
                plant(error);
                Ok(())
            });
            plant(None);
            done?;
        }
        Ok(())
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// A default access control list that names a user.
fn acl() -> Vec<u8> {
    let mut acl = vec![2, 0, 0, 0];
    for (tag, id) in [
        (1u16, u32::MAX),
        (2, 5),
        (4, u32::MAX),
        (16, u32::MAX),
        (32, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(7u16.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// Runs a script with an error planted; what is found, and how many states were looked at. Where `in_recovery`, the reclaims of
/// what the script leaves are explored too.
fn follow(
    error: Option<Planted>,
    script: &str,
    optimisations: Optimisations,
    seed: u64,
    random_sets: usize,
    in_recovery: bool,
) -> (usize, Option<String>) {
    plant(error);
    let mut run = Run::new(optimisations, seed);
    let mut found = None;
    let mut since_sync = String::new();
    for (number, operation) in script.split(';').map(str::trim).enumerate() {
        plant(error);
        run.step(operation, number);
        // The first round writes nothing in between, the others something now and then.
        if seed > 1 && run.random.below(2) == 0 {
            run.write_some();
        }
        // The states are judged by a mount that makes no errors.
        plant(None);
        since_sync = format!("{since_sync}; {operation}");
        if let Err(what) = run.explore(random_sets) {
            found = Some(format!("{what} (after{since_sync})"));
            break;
        }
    }
    if in_recovery && found.is_none() {
        let reclaims = run.explore_reclaims(error).err();
        found = reclaims.map(|what| format!("{what} (in a reclaim after{since_sync})"));
    }
    (run.states, found)
}

fn has_what_it_needs(script: &str) -> bool {
    let needs = script.contains("; index");
    !needs || Command::new("e2fsck").arg("-V").output().is_ok()
}

/// The errors to look at: all, or those that `BACKSTITCH_PLANTED` names a part of.
fn errors() -> impl Iterator<Item = Planted> {
    let wanted = std::env::var("BACKSTITCH_PLANTED").unwrap_or_default();
    Planted::ALL
        .iter()
        .copied()
        .filter(move |e| e.name().contains(&wanted) && has_what_it_needs(e.provoking()))
}

#[test]
fn every_planted_error_is_found() {
    let mut missed = Vec::new();
    for error in errors() {
        let script = error.provoking();
        let mut states = 0;
        let found = (1..=6).find_map(|seed| {
            [Optimisations::NONE, Optimisations::BOTH]
                .into_iter()
                .find_map(|optimisations| {
                    let (looked_at, found) = follow(
                        Some(error),
                        script,
                        optimisations,
                        seed,
                        300,
                        error.is_in_recovery(),
                    );
                    states += looked_at;
                    found
                })
        });
        match found {
            Some(what) => eprintln!("{}: {what}: state {states}", error.name()),
            None => missed.push((error.name(), states)),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn nothing_is_found_where_nothing_is_planted() {
    let mut scripts: BTreeMap<&str, bool> = BTreeMap::new();
    for error in errors() {
        *scripts.entry(error.provoking()).or_default() |= error.is_in_recovery();
    }
    let mut states = 0;
    for (script, in_recovery) in scripts {
        for optimisations in [Optimisations::NONE, Optimisations::BOTH] {
            for seed in [1, 2] {
                let (looked_at, found) = follow(None, script, optimisations, seed, 30, in_recovery);
                states += looked_at;
                assert_eq!(found, None, "{script}: seed {seed}, {optimisations:?}");
            }
        }
    }
    eprintln!("{states} states");
}
