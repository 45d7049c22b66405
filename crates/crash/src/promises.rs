//! Whether what a mounted image shows is what the workload was promised.

use std::sync::Arc;

use backstitch_layout::flags::{APPEND, IMMUTABLE, SETTABLE};
use backstitch_layout::{
    Attributes, DirectoryEntry, Error, FileSystem, FileType, InodeNumber, Piece, Result,
    SetAttributes, Timestamp,
};
use backstitch_ordering::{Operation, Volume};

use crate::model::{Model, Object, ObjectId, ROOT};
use crate::mount::{Mount, Nobody};

/// More findings than this are not collected.
const MOST: usize = 8;

/// What of the promises was not kept, in words; empty where all were.
///
/// `mapped_behind` are the inodes that map blocks behind their end. Where a file grew, the blocks come before the size; where it
/// was cut, they go before it.
pub(crate) fn broken(mount: &mut Mount, model: &Model, mapped_behind: &[u32]) -> Vec<String> {
    let mut check = Check {
        mount,
        model,
        mapped_behind,
        seen: vec![false; model.objects.len()],
        broken: Vec::new(),
    };
    check.directory(ROOT, "");
    for (id, object) in model.objects.iter().enumerate() {
        if object.must_exist && !check.seen[id] && id != ROOT {
            let what = format!(
                "inode {} was on stable storage, nobody removed it, and no name leads to it",
                object.inode
            );
            check.note(what);
        }
    }
    check.broken
}

struct Check<'a> {
    mount: &'a mut Mount,
    model: &'a Model,
    mapped_behind: &'a [u32],
    seen: Vec<bool>,
    broken: Vec<String>,
}

/// A name as a directory shows it.
struct Shown {
    name: Vec<u8>,
    inode: InodeNumber,
}

impl Check<'_> {
    fn note(&mut self, what: String) {
        if self.broken.len() < MOST {
            self.broken.push(what);
        }
    }

    fn run<T>(
        &mut self,
        body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Result<T>,
    ) -> Result<T> {
        self.mount.run(Operation::Administration, &mut Nobody, body)
    }

    /// Everything from a directory on.
    fn directory(&mut self, id: ObjectId, path: &str) {
        if std::mem::replace(&mut self.seen[id], true) {
            return;
        }
        let model = self.model;
        let directory = &model.objects[id];
        let names = match self.names(directory.inode) {
            Ok(names) => names,
            Err(error) => return self.note(format!("{path}/: cannot be listed: {error}")),
        };
        for shown in &names {
            self.entry(directory, shown, path);
        }
        for (name, entry) in &directory.entries {
            let there = names.iter().any(|shown| shown.name == *name);
            if !there && !entry.allowed().contains(&None) {
                let name = String::from_utf8_lossy(name);
                self.note(format!("{path}/{name}: the name is missing"));
            }
        }
    }

    fn names(&mut self, inode: InodeNumber) -> Result<Vec<Shown>> {
        self.run(|fs, v, _| {
            let mut names = Vec::new();
            let mut emit = |entry: &DirectoryEntry<'_>| {
                if entry.name != b"." && entry.name != b".." {
                    names.push(Shown {
                        name: entry.name.to_vec(),
                        inode: entry.inode,
                    });
                }
                true
            };
            fs.read_directory(v, inode, 0, &mut emit)?;
            Ok(names)
        })
    }

    fn entry(&mut self, directory: &Object, shown: &Shown, path: &str) {
        let path = format!("{path}/{}", String::from_utf8_lossy(&shown.name));
        let inode = shown.inode;
        if self.model.foreign.contains(&inode) {
            return;
        }
        let attributes = match self.run(|fs, v, _| fs.attributes(v, inode)) {
            Ok(attributes) => attributes,
            Err(error) => return self.note(format!("{path}: inode {inode}: {error}")),
        };
        let Some(id) = self.model.identify(inode, attributes.generation) else {
            let what = format!("{path}: shows inode {inode}, which was never made");
            return self.note(what);
        };
        let entry = directory.entries.get(&shown.name);
        if !entry.is_some_and(|entry| entry.allowed().contains(&Some(id))) {
            self.note(format!("{path}: must not be inode {inode} (any more)"));
        }
        let model = self.model;
        let object = &model.objects[id];
        if object.kind != attributes.file_type {
            let what = format!(
                "{path}: is a {:?}, was made as a {:?}",
                attributes.file_type, object.kind
            );
            return self.note(what);
        }
        let flags = attributes.flags & SETTABLE;
        if !object.flags.allowed().contains(&flags) {
            let allowed = object.flags.allowed();
            self.note(format!(
                "{path}: has flags {flags:#x}, promised were {allowed:x?}"
            ));
        }
        self.xattrs(object, &path);
        if object.kind == FileType::Directory {
            return self.directory(id, &path);
        }
        if std::mem::replace(&mut self.seen[id], true) {
            return;
        }
        match object.kind {
            FileType::Regular => self.contents(object, &attributes, &path),
            FileType::Symlink => self.target(object, &path),
            _ => {}
        }
    }

    fn target(&mut self, object: &Object, path: &str) {
        let inode = object.inode;
        match self.run(|fs, v, _| fs.read_link(v, inode)) {
            Ok(target) if target == object.target => {}
            Ok(_) => self.note(format!("{path}: the symlink points elsewhere")),
            Err(error) => self.note(format!("{path}: the symlink cannot be read: {error}")),
        }
    }

    fn xattrs(&mut self, object: &Object, path: &str) {
        let inode = object.inode;
        match self.run(|fs, v, _| fs.list_xattrs(v, inode)) {
            Ok(names) => {
                let own = names.split(|byte| *byte == 0);
                for name in own.filter(|name| name.starts_with(b"user.")) {
                    let given = object.xattrs.get(name);
                    if !given.is_some_and(|given| given.allowed().iter().any(Option::is_some)) {
                        let name = String::from_utf8_lossy(name);
                        self.note(format!(
                            "{path}: has attribute {name}, which it was not given"
                        ));
                    }
                }
            }
            Err(error) => {
                return self.note(format!("{path}: attributes cannot be listed: {error}"));
            }
        }
        for (name, history) in &object.xattrs {
            let value = match self.run(|fs, v, _| fs.xattr(v, inode, name)) {
                Ok(value) => Some(value),
                Err(Error::NoAttribute) => None,
                Err(error) => {
                    let what = format!("{path}: attributes cannot be read: {error}");
                    return self.note(what);
                }
            };
            if !history.allowed().contains(&value) {
                let name = String::from_utf8_lossy(name);
                self.note(format!("{path}: attribute {name} has a wrong value"));
            }
        }
    }

    fn contents(&mut self, object: &Object, attributes: &Attributes, path: &str) {
        let allowed = object.contents.allowed();
        let size = attributes.size_bytes;
        if !is_size_of(allowed, size) {
            let sizes: Vec<usize> = allowed.iter().map(|version| version.len()).collect();
            let what = format!("{path}: has {size} bytes, promised were {sizes:?}");
            return self.note(what);
        }
        let grew_later = |at: usize| {
            let later = &allowed[at..];
            later.iter().any(|version| version.len() as u64 > size)
        };
        let sized = allowed
            .iter()
            .position(|version| version.len() as u64 == size);
        if self.mapped_behind.contains(&object.inode.0) && !sized.is_none_or(grew_later) {
            self.note(format!(
                "{path}: maps blocks behind the end to which it was cut"
            ));
        }
        let bytes = match read_file(self.mount, object.inode, size as usize) {
            Ok(bytes) => bytes,
            Err(error) => return self.note(format!("{path}: cannot be read: {error}")),
        };
        if allowed.iter().rev().any(|version| **version == *bytes) {
            return;
        }
        if self.mount.contents_may_be_stale && allowed.len() > 1 {
            return;
        }
        let foreign = first_foreign(&bytes, allowed, self.mount.cuts_are_atomic);
        if let Some((at, byte)) = foreign {
            let what = format!(
                "{path}: byte {at} is {byte:#04x}, which it was not given (or not any more)"
            );
            self.note(what);
        }
    }
}

/// Whether a file may have this size: that of a version, or whole blocks on the way from one to a larger one, for a long write is
/// done in steps.
fn is_size_of(versions: &[Arc<[u8]>], size: u64) -> bool {
    let len = |version: &Arc<[u8]>| version.len() as u64;
    versions.iter().any(|version| len(version) == size)
        || size.is_multiple_of(1024)
            && versions
                .windows(2)
                .any(|two| len(&two[0]) < size && size < len(&two[1]))
}

/// The first byte that no version of the file explains.
///
/// A file shows the size of one version, and each byte of that one or of another, written in its place earlier or later; but not
/// of an earlier one on the other side of a version that was too short to have it: that cut it off. What was written there afterwards may show
/// while the file has its old size still, unless operations are there as wholes (`cuts_are_atomic`).
fn first_foreign(
    bytes: &[u8],
    versions: &[Arc<[u8]>],
    cuts_are_atomic: bool,
) -> Option<(usize, u8)> {
    let len = bytes.len();
    // A size between two versions': a long write is done in steps.
    let is_between = versions.iter().all(|version| version.len() != len);
    let sized: Vec<usize> = (0..versions.len())
        .filter(|at| versions[*at].len() == len || is_between && versions[*at].len() > len)
        .collect();
    let explained = |at: usize, byte: u8| {
        sized.iter().any(|sized| {
            let has = |version: &&Arc<[u8]>| version.len() > at;
            let older = versions[..=*sized].iter().rev().take_while(has);
            let newer = versions[*sized..].iter();
            let newer = newer.take_while(|version| has(version) || !cuts_are_atomic);
            older
                .chain(newer.filter(has))
                .any(|version| version[at] == byte)
        })
    };
    let mut shown = bytes.iter().copied().enumerate();
    shown.find(|(at, byte)| !explained(*at, *byte))
}

/// A file's first bytes.
pub(crate) fn read_file(mount: &mut Mount, inode: InodeNumber, size: usize) -> Result<Vec<u8>> {
    let mut pieces = Vec::new();
    mount.run(Operation::Administration, &mut Nobody, |fs, v, _| {
        pieces.clear();
        fs.map(v, inode, 0, size, &mut pieces)
    })?;
    let mut bytes = Vec::with_capacity(size);
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
                mount.read_device(offset_bytes, &mut bytes[start..])?;
            }
        }
    }
    Ok(bytes)
}

/// How far files are grown to see what lies behind their ends.
const GROWTH_BYTES: u64 = 40_000;

/// Grows every file that can be found: what comes to light must be zeros. In words what is not.
pub(crate) fn behind_the_ends(mount: &mut Mount, model: &Model) -> Vec<String> {
    let mut found = Vec::new();
    let objects = model.objects.iter().enumerate();
    for (id, object) in objects.filter(|(_, object)| object.kind == FileType::Regular) {
        let inode = object.inode;
        let administration = Operation::Administration;
        let attributes = mount.run(administration, &mut Nobody, |fs, v, _| {
            fs.attributes(v, inode)
        });
        let Ok(attributes) = attributes else {
            continue;
        };
        let known = model.identify(inode, attributes.generation);
        if known != Some(id) || attributes.links == 0 {
            continue;
        }
        let size = attributes.size_bytes;
        let mut set = |set: &SetAttributes| {
            mount.run(Operation::Attributes, &mut Nobody, |fs, v, now| {
                fs.set_attributes(v, inode, set, now).map(drop)
            })
        };
        let mut freed = Ok(());
        if attributes.flags & (IMMUTABLE | APPEND) != 0 {
            freed = set(&SetAttributes {
                flags: Some(0),
                ..SetAttributes::default()
            });
        }
        let longer = SetAttributes {
            size_bytes: Some(size + GROWTH_BYTES),
            ..SetAttributes::default()
        };
        let grown = freed
            .and_then(|()| set(&longer))
            .and_then(|()| read_file(mount, inode, (size + GROWTH_BYTES) as usize));
        match grown {
            Ok(bytes) if bytes[size as usize..].iter().all(|byte| *byte == 0) => {}
            Ok(_) => found.push(format!(
                "inode {inode}: once it grows, it shows what lay behind its end"
            )),
            Err(error) => found.push(format!("inode {inode}: cannot grow: {error}")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_foreign_and_what_was_written_there_since_is_not() {
        let versions: Vec<Arc<[u8]>> = [vec![1; 20], vec![1; 10], vec![2; 30]]
            .map(Arc::from)
            .to_vec();
        // The old size: with what is there now, where the cut and the write are not there as wholes.
        let mut shown = vec![1; 20];
        shown[15] = 2;
        assert_eq!(first_foreign(&shown, &versions, false), None);
        assert_eq!(first_foreign(&shown, &versions, true), Some((15, 2)));
        // The new size: never with what was there before the cut.
        let mut shown = vec![2; 30];
        shown[5] = 1;
        assert_eq!(first_foreign(&shown, &versions, false), None);
        shown[15] = 1;
        assert_eq!(first_foreign(&shown, &versions, false), Some((15, 1)));
    }
}
