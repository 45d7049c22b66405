//! What a workload did, and what of it is promised to survive a crash.
//!
//! Everything that changes has a history. A crash may leave the value that was last promised to be
//! stable, or any later one. It may leave neither an older one nor one that never was.

mod given;
mod history;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use backstitch_crash_core::operation::Path;
use backstitch_layout::flags::SETTABLE;
use backstitch_layout::{Attributes, FileType, InodeNumber};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::contents::Contents;
use given::Given;
pub(crate) use history::{History, Under};

/// A file, directory or symlink, for as long as the workload runs.
pub(crate) type ObjectId = usize;

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) kind: FileType,
    pub(crate) inode: InodeNumber,
    /// The contents of a regular file.
    pub(crate) contents: History<Contents>,
    /// The target of a symlink.
    pub(crate) target: Vec<u8>,
    /// The flags that `chattr` can set.
    pub(crate) flags: History<u32>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, History<Option<Vec<u8>>>>,
    pub(crate) owner: History<Owner>,
    pub(crate) times: History<Times>,
    /// The file was truncated, and is not on stable storage since. Once it is, what was cut off
    /// must be gone.
    was_cut: bool,
    pub(crate) ends_in_zeros: bool,
    /// The blocks of a file that are reserved, and those of them whose reservation is on stable
    /// storage: these stay until they are given back.
    pub(crate) reserved: BTreeSet<u64>,
    pub(crate) must_be_mapped: BTreeSet<u64>,
    /// For a regular file: where its blocks are, and those that it was given since it was flushed.
    given: Given,
    /// For a regular file of the image: its size at the beginning, until something beyond it is
    /// flushed. The last block may hold what a crash left there.
    left_end: Option<u64>,
    /// For a directory: every name that it ever had, and what the name stood for.
    pub(crate) entries: BTreeMap<Vec<u8>, History<Option<ObjectId>>>,
    /// For a directory: the old names of what was moved into it, each with the number of the value
    /// by which that name lost it.
    arrivals: Vec<(ObjectId, Vec<u8>, usize)>,
    /// The object's names now.
    pub(crate) names: BTreeSet<(ObjectId, Vec<u8>)>,
    /// For a regular file: names to which it was moved while it was not on the disk at all, each
    /// with the offset up to which it had been written then.
    pub(crate) moved_new: BTreeMap<(ObjectId, Vec<u8>), u64>,
    /// It had a name on stable storage once, and was never without a name since: it must have one
    /// after every crash.
    pub(crate) must_exist: bool,
}

impl Object {
    fn settle_contents(&mut self) {
        self.contents.settle();
        self.given.settle();
        let end = self.contents.current().len();
        self.left_end = self.left_end.filter(|left| *left == end);
        self.must_be_mapped = self.reserved.clone();
        self.ends_in_zeros |= std::mem::take(&mut self.was_cut);
    }

    /// Whether a file was given this block with one of the versions that a crash may leave, up to
    /// version number `version` among these. Then the block may show what it held before.
    pub(crate) fn was_given(&self, block: u64, version: usize) -> bool {
        let oldest = self.contents.oldest();
        self.given.was_given(block, oldest, oldest + version)
    }

    /// Whether a crash before the workload may have left bytes at this offset, beyond the end that
    /// the file had then.
    pub(crate) fn was_left_behind(&self, at: u64, block_bytes: u64) -> bool {
        self.left_end.is_some_and(|end| {
            at >= end && !end.is_multiple_of(block_bytes) && at / block_bytes == end / block_bytes
        })
    }

    fn settle_attributes(&mut self) {
        self.flags.settle();
        self.owner.settle();
        self.xattrs.values_mut().for_each(History::settle);
    }
}

/// Owner, group and permissions of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// In seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) accessed: i64,
    pub(crate) modified: i64,
    /// When the object got these times. Later changes have no earlier time.
    pub(crate) since: i64,
}

impl Owner {
    pub(crate) fn of(attributes: &Attributes) -> Owner {
        Owner {
            permissions: attributes.permissions,
            uid: attributes.uid,
            gid: attributes.gid,
        }
    }
}

impl Times {
    pub(crate) fn of(attributes: &Attributes) -> Times {
        Times {
            accessed: attributes.accessed.seconds,
            modified: attributes.modified.seconds,
            since: attributes.changed.seconds,
        }
    }

    fn are_as(&self, other: &Times) -> bool {
        (self.accessed, self.modified) == (other.accessed, other.modified)
    }
}

/// The files of a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) objects: Vec<Object>,
    by_identity: FxHashMap<(u32, u32), ObjectId>,
    labels: FxHashMap<u32, ObjectId>,
    /// Inodes that a crash before the workload left with blocks beyond their ends.
    pub(crate) maps_behind: FxHashSet<InodeNumber>,
    /// Files that the workload does not change by itself: nothing is promised of them.
    pub(crate) foreign: FxHashSet<InodeNumber>,
    /// The patchgroups that are engaged, and the direct dependencies between patchgroups.
    pub(crate) under: Under,
    pub(crate) comes_after: BTreeSet<(u32, u32)>,
    /// Counts promises. A state that was right at the same count is still right.
    pub(crate) promises: u64,
    /// Names that the reclaim removed. No caller waits for that.
    taken_away: BTreeSet<(ObjectId, Vec<u8>)>,
}

/// The root directory's index among the objects.
pub(crate) const ROOT: ObjectId = 0;

/// A new object.
pub(crate) struct New {
    pub(crate) attributes: Attributes,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) target: Vec<u8>,
    pub(crate) contents: Contents,
}

impl Model {
    /// Adds an object without a name.
    pub(crate) fn add(&mut self, new: New, label: Option<u32>) -> ObjectId {
        let id = self.objects.len();
        let attributes = &new.attributes;
        let identity = (attributes.inode.0, attributes.generation);
        self.by_identity.insert(identity, id);
        let xattrs = new.xattrs.into_iter();
        self.objects.push(Object {
            kind: attributes.file_type,
            inode: attributes.inode,
            owner: History::new(Owner::of(attributes)),
            times: History::new(Times::of(attributes)),
            was_cut: false,
            ends_in_zeros: false,
            reserved: BTreeSet::new(),
            must_be_mapped: BTreeSet::new(),
            given: Given::default(),
            left_end: Some(new.contents.len()),
            xattrs: xattrs
                .map(|(name, value)| (name, History::new(Some(value))))
                .collect(),
            contents: History::new(new.contents),
            target: new.target,
            flags: History::new(attributes.flags & SETTABLE),
            entries: BTreeMap::new(),
            arrivals: Vec::new(),
            names: BTreeSet::new(),
            moved_new: BTreeMap::new(),
            must_exist: false,
        });
        if let Some(label) = label {
            self.labels.insert(label, id);
        }
        id
    }

    /// The object that an inode on the disk is.
    pub(crate) fn identify(&self, inode: InodeNumber, generation: u32) -> Option<ObjectId> {
        self.by_identity.get(&(inode.0, generation)).copied()
    }

    /// The paths of all directories, the root's first, and the paths of everything else.
    pub(crate) fn paths(&self) -> (Vec<String>, Vec<String>) {
        let (mut directories, mut others) = (vec![(ROOT, String::new())], Vec::new());
        let mut at = 0;
        while let Some((id, path)) = directories.get(at).cloned() {
            at += 1;
            for (name, child) in &self.objects[id].entries {
                let Some(child) = *child.current() else {
                    continue;
                };
                let name = String::from_utf8_lossy(name);
                let path = format!("{path}/{name}");
                let is_new = !directories.iter().any(|(known, _)| *known == child);
                match self.objects[child].kind {
                    FileType::Directory if is_new => directories.push((child, path)),
                    FileType::Directory => {}
                    _ => others.push(path),
                }
            }
        }
        let own = |path: String| path.trim_start_matches('/').to_owned();
        (
            directories.into_iter().map(|(_, path)| own(path)).collect(),
            others.into_iter().map(own).collect(),
        )
    }

    /// All directories, with the names in them.
    pub(crate) fn directories(&self) -> Vec<(ObjectId, InodeNumber, Vec<Vec<u8>>)> {
        let all = self.objects.iter().enumerate();
        let directories = all.filter(|(_, object)| object.kind == FileType::Directory);
        let named = directories.map(|(id, object)| {
            let there = object.entries.iter().filter(|(_, e)| e.current().is_some());
            (
                id,
                object.inode,
                there.map(|(name, _)| name.clone()).collect(),
            )
        });
        named.collect()
    }

    pub(crate) fn object(&self, id: ObjectId) -> &Object {
        &self.objects[id]
    }

    pub(crate) fn inode(&self, id: ObjectId) -> InodeNumber {
        self.objects[id].inode
    }

    /// Lets each name of a directory with several names be missing: a crash left them, and nobody
    /// has decided yet which one is right.
    pub(crate) fn doubt_second_names(&mut self) {
        let all = self.objects.iter().enumerate();
        let several = all.filter(|(_, o)| o.kind == FileType::Directory && o.names.len() > 1);
        let doubted: Vec<(ObjectId, ObjectId, Vec<u8>)> = several
            .flat_map(|(id, o)| o.names.iter().map(move |(d, name)| (id, *d, name.clone())))
            .collect();
        for (id, directory, name) in doubted {
            self.set_entry(directory, &name, None);
            self.set_entry(directory, &name, Some(id));
        }
    }

    /// The object at a path; `None` where there is none.
    pub(crate) fn find(&self, path: &Path) -> Option<ObjectId> {
        let mut at = self.start(path)?;
        for name in &path.names {
            at = self.child(at, name)?;
        }
        Some(at)
    }

    /// The directory in which a path ends, and the name there.
    pub(crate) fn parent<'p>(&self, path: &'p Path) -> Option<(ObjectId, &'p [u8])> {
        let (name, names) = path.names.split_last()?;
        let mut at = self.start(path)?;
        for name in names {
            at = self.child(at, name)?;
        }
        (self.objects[at].kind == FileType::Directory).then_some((at, name))
    }

    fn start(&self, path: &Path) -> Option<ObjectId> {
        match path.label {
            Some(label) => self.labels.get(&label).copied(),
            None => Some(ROOT),
        }
    }

    pub(crate) fn child(&self, directory: ObjectId, name: &[u8]) -> Option<ObjectId> {
        *self.objects[directory].entries.get(name)?.current()
    }

    /// Gives an object a name. The object that had it loses it.
    pub(crate) fn enter(&mut self, directory: ObjectId, name: &[u8], id: ObjectId) {
        let lost = self.child(directory, name).filter(|lost| *lost != id);
        self.objects[id].names.insert((directory, name.to_vec()));
        self.set_entry(directory, name, Some(id));
        if let Some(lost) = lost {
            self.lose(lost, directory, name);
        }
    }

    /// Swaps what two names stand for.
    pub(crate) fn exchange(&mut self, one: (ObjectId, &[u8]), other: (ObjectId, &[u8])) {
        let (first, second) = (self.child(one.0, one.1), self.child(other.0, other.1));
        for ((directory, name), old, new) in [(one, first, second), (other, second, first)] {
            let name = (directory, name.to_vec());
            if let (Some(old), Some(new)) = (old, new) {
                self.objects[new].names.insert(name.clone());
                self.objects[old].names.remove(&name);
                self.set_entry(directory, &name.1, Some(new));
            }
        }
    }

    /// Takes a name away.
    pub(crate) fn remove(&mut self, directory: ObjectId, name: &[u8]) {
        let lost = self.child(directory, name);
        self.set_entry(directory, name, None);
        if let Some(lost) = lost {
            self.lose(lost, directory, name);
        }
    }

    /// Notes the reclaim's decision between a directory's several names: removes those of its names
    /// that are `missing`. It keeps one. Other missing names are not removed, so the judge reports
    /// them.
    pub(crate) fn settle_names(&mut self, directory: ObjectId, missing: &[Vec<u8>]) {
        for name in missing {
            let Some(id) = self.child(directory, name) else {
                continue;
            };
            let object = &self.objects[id];
            if object.kind == FileType::Directory && object.names.len() > 1 {
                self.take_away(directory, name);
            }
        }
    }

    /// The reclaim removed a name. It need not be gone until somebody waits for that.
    fn take_away(&mut self, directory: ObjectId, name: &[u8]) {
        self.remove(directory, name);
        self.taken_away.insert((directory, name.to_vec()));
    }

    /// A file that is not on the disk at all was moved to this name. What was written into it must
    /// be there as soon as the name is.
    pub(crate) fn note_moved_new(&mut self, directory: ObjectId, name: &[u8]) {
        let Some(id) = self.child(directory, name) else {
            return;
        };
        let object = &mut self.objects[id];
        let written = object.contents.current().written_end();
        object.moved_new.insert((directory, name.to_vec()), written);
    }

    /// The object that had the name `from` was moved into this directory.
    pub(crate) fn note_arrival(&mut self, directory: ObjectId, from: (ObjectId, &[u8])) {
        if let Some(entry) = self.objects[from.0].entries.get(from.1) {
            let lost = entry.newest();
            let arrival = (from.0, from.1.to_vec(), lost);
            self.objects[directory].arrivals.push(arrival);
        }
    }

    fn set_entry(&mut self, directory: ObjectId, name: &[u8], value: Option<ObjectId>) {
        // The name was made again, so its removal is promised like any other from now on.
        if value.is_some() {
            self.taken_away.remove(&(directory, name.to_vec()));
        }
        self.objects[directory]
            .entries
            .entry(name.to_vec())
            .or_insert_with(|| History::new(None))
            .push(value, &self.under);
    }

    fn lose(&mut self, id: ObjectId, directory: ObjectId, name: &[u8]) {
        let object = &mut self.objects[id];
        object.names.remove(&(directory, name.to_vec()));
        object.moved_new.remove(&(directory, name.to_vec()));
        object.must_exist &= !object.names.is_empty();
    }

    /// The number of a file's newest version.
    pub(crate) fn newest_version(&self, id: ObjectId) -> usize {
        self.objects[id].contents.newest()
    }

    /// Notes where the blocks of a file are since a version, by their numbers in the file.
    pub(crate) fn note_places(&mut self, id: ObjectId, version: usize, now: BTreeMap<u64, u64>) {
        self.objects[id].given.note(version, now);
    }

    /// Adds contents that a step of the newest change has reached.
    pub(crate) fn note_step(&mut self, id: ObjectId, contents: Contents) {
        (self.objects[id].contents).insert_before_current(contents);
    }

    pub(crate) fn set_contents(&mut self, id: ObjectId, contents: Contents) {
        let object = &mut self.objects[id];
        object.was_cut |= contents.len() < object.contents.current().len();
        object.ends_in_zeros = false;
        // What was written may have been cut off since.
        for written in object.moved_new.values_mut() {
            *written = contents.len().min(*written);
        }
        object.contents.push(contents, &self.under);
    }

    pub(crate) fn set_flags(&mut self, id: ObjectId, flags: u32) {
        self.objects[id].flags.push(flags & SETTABLE, &self.under);
    }

    /// Notes an object's attributes.
    pub(crate) fn note_attributes(&mut self, id: ObjectId, attributes: &Attributes) {
        let (owner, times) = (Owner::of(attributes), Times::of(attributes));
        let object = &mut self.objects[id];
        if *object.owner.current() != owner {
            object.owner.push(owner, &self.under);
        }
        if !object.times.current().are_as(&times) {
            object.times.push(times, &self.under);
        }
    }

    /// The newest time of anything, in seconds since 1970.
    pub(crate) fn newest_time(&self) -> Option<i64> {
        let times = self.objects.iter().map(|object| object.times.current());
        times.map(|times| times.accessed.max(times.modified)).max()
    }

    /// An object that has had no name gets one, which shows nothing that is older than what the object
    /// is now; of its contents, where `with_contents`.
    pub(crate) fn promise_whole(&mut self, id: ObjectId, with_contents: bool) {
        self.promises += 1;
        let object = &mut self.objects[id];
        object.settle_attributes();
        if with_contents {
            object.settle_contents();
        }
    }

    /// Notes that blocks of a file are reserved.
    pub(crate) fn reserve(&mut self, id: ObjectId, blocks: Range<u64>) {
        self.objects[id].reserved.extend(blocks);
    }

    /// Notes that blocks of a file are given back, or may be.
    pub(crate) fn give_back(&mut self, id: ObjectId, blocks: Range<u64>) {
        let object = &mut self.objects[id];
        for set in [&mut object.reserved, &mut object.must_be_mapped] {
            set.retain(|block| !blocks.contains(block));
        }
    }

    pub(crate) fn set_xattr(&mut self, id: ObjectId, name: &[u8], value: Option<&[u8]>) {
        self.objects[id]
            .xattrs
            .entry(name.to_vec())
            .or_insert_with(|| History::new(None))
            .push(value.map(<[u8]>::to_vec), &self.under);
    }

    /// The object is on stable storage, and can be reached from the root. For a directory, so are
    /// the names in it.
    pub(crate) fn promise(&mut self, id: ObjectId, data_only: bool) {
        self.promises += 1;
        let object = &mut self.objects[id];
        object.settle_contents();
        if !data_only {
            object.settle_attributes();
            object.times.settle();
        }
        object.entries.values_mut().for_each(History::settle);
        let children: Vec<ObjectId> = self.children(id);
        self.promise_departures(id);
        // The new names of what was moved here are stable, so the old ones are gone.
        for (directory, name, lost) in std::mem::take(&mut self.objects[id].arrivals) {
            if let Some(entry) = self.objects[directory].entries.get_mut(&name) {
                entry.settle_up_to(lost);
            }
        }
        self.promise_reach(id);
        for child in children {
            self.objects[child].must_exist = !self.objects[child].names.is_empty();
        }
    }

    /// The names that the object had and lost are gone, since its link count without them is on
    /// stable storage.
    fn promise_departures(&mut self, id: ObjectId) {
        let entries = self.objects.iter_mut().flat_map(|o| o.entries.values_mut());
        for entry in entries {
            let had = entry.values().iter().rposition(|value| *value == Some(id));
            let Some(had) = had.filter(|had| had + 1 < entry.values().len()) else {
                continue;
            };
            let before = entry.values().get(entry.oldest()..=had).unwrap_or(&[]);
            let was_absent = before.first() == Some(&None)
                && before.iter().all(|value| value.is_none_or(|it| it == id));
            match was_absent {
                // The name came and went in memory alone. It is not on the disk then, and what has
                // the name now need not be there either.
                true => entry.never_was(&Some(id)),
                false => entry.settle_up_to(had + 1),
            }
        }
    }

    fn children(&self, id: ObjectId) -> Vec<ObjectId> {
        let entries = self.objects[id].entries.values();
        entries.filter_map(|entry| *entry.current()).collect()
    }

    /// The names of the object are on stable storage, and so are those of the directories above it
    /// that were not there yet. A directory that was there already and was moved since may have
    /// either name, since `fsync` of a file knows only the file's own names.
    fn promise_reach(&mut self, id: ObjectId) {
        let mut stack = vec![id];
        let mut seen = BTreeSet::new();
        while let Some(id) = stack.pop() {
            if !seen.insert(id) {
                continue;
            }
            self.objects[id].must_exist = id == ROOT || !self.objects[id].names.is_empty();
            for (directory, name) in self.objects[id].names.clone() {
                if let Some(entry) = self.objects[directory].entries.get_mut(&name) {
                    entry.settle();
                }
                if !self.objects[directory].must_exist {
                    stack.push(directory);
                }
            }
        }
    }

    /// Every name and every attribute is on stable storage, but contents need not be.
    pub(crate) fn promise_metadata(&mut self) {
        self.promises += 1;
        let has_name: Vec<bool> = self.objects.iter().map(|o| !o.names.is_empty()).collect();
        for id in 0..self.objects.len() {
            let object = &mut self.objects[id];
            object.settle_attributes();
            for (name, entry) in &mut object.entries {
                // What was removed since then is gone, also under this name.
                let lives_on = || {
                    entry
                        .values()
                        .iter()
                        .rev()
                        .flatten()
                        .next()
                        .map(|o| has_name[*o])
                };
                let is_taken = || self.taken_away.contains(&(id, name.clone()));
                if entry.current().is_some() || !is_taken() || lives_on() != Some(true) {
                    entry.settle();
                }
            }
            object.must_exist = id == ROOT || !object.names.is_empty();
        }
    }

    /// Everything is on stable storage.
    pub(crate) fn promise_all(&mut self) {
        self.taken_away.clear();
        self.promise_metadata();
        for object in &mut self.objects {
            object.settle_contents();
            object.times.settle();
        }
    }

    /// What was done under a patchgroup is on stable storage.
    pub(crate) fn promise_group(&mut self, group: u32) {
        self.promises += 1;
        for object in &mut self.objects {
            object.contents.settle_under(group);
            object.flags.settle_under(group);
            object.owner.settle_under(group);
            object.times.settle_under(group);
            let xattrs = object.xattrs.values_mut();
            xattrs.for_each(|history| history.settle_under(group));
            let entries = object.entries.values_mut();
            entries.for_each(|history| history.settle_under(group));
        }
    }
}
